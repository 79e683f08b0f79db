// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/held.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/logic/rule.hpp>
#include <coetcd/detail/logic/rw.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail::logic {

/// What etcd may have of one attempt: its keys, as far as answers have told, and what else may come
/// of its requests. Safety rests on it: an attempt that is over gives up whatever may be there.
class presence {
public:
    /// The presence of an attempt that has sent nothing.
    presence() = default;
    /// The presence of keys that an earlier object with the same lease has put.
    /// @param may_come A request that puts them again may still be under way.
    presence(lease_id lease, name_keys put, std::int64_t create_revision, bool may_come)
        : create_revision_(create_revision)
        , may_come_(may_come) {
        keys_.lease = lease;
        keys_.by_name.push_back(std::move(put));
    }

    // What happens.

    /// These are the keys that the attempt will ask for.
    void begin(attempt_keys keys) { keys_ = std::move(keys); }
    /// Nothing was sent after all.
    void withdraw() { keys_.by_name.clear(); }

    /// etcd has answered a request to enter.
    /// @param left What copies of the request that were not answered may have done.
    /// @throws error if `response` is no answer to that request.
    standing answered(rule& by, asking what, const txn_response& response, effect left) {
        as_of_ = std::max(as_of_, response.header.revision);
        // Other copies may still be under way, whatever became of the one that was answered.
        may_come_ = may_come_ || left == effect::unresolved;
        may_have_come_ = left == effect::settled;
        const std::int64_t before = create_revision_;
        standing now = after_asking(by, what, response, keys_, before);
        create_revision_ = now.create_revision;
        // Keys that this request has not put were put by a copy of it, and there may be more
        // copies.
        const bool earlier = !response.succeeded && now.create_revision != 0;
        may_come_ = may_come_ || (earlier && now.create_revision != before);
        // If only some keys are there, or none, somebody deletes them; others may be left.
        may_come_ = may_come_ || now.at == standing::where::gone || now.partly;
        if (now.at == standing::where::ended) {
            for (std::size_t i = 0; i != keys_.by_name.size(); ++i) {
                keys_.by_name[i].epoch = now.epochs[i];
            }
        }
        return now;
    }
    /// There was no answer to a request to enter, or none that can be read.
    /// @param refused etcd says that nothing was done, which may be wrong.
    void failed(effect left, bool refused) {
        may_come_ = may_come_ || left != effect::none;
        refused_ = refused_ || refused;
    }
    /// etcd has answered a request to confirm.
    standing confirmed(rule& by, const txn_response& response) {
        as_of_ = std::max(as_of_, response.header.revision);
        return by.after_confirm(response, keys_, create_revision_);
    }
    /// Events have told who was before us, up to this revision.
    void told(std::int64_t revision) { as_of_ = std::max(as_of_, revision); }
    /// Somebody has deleted a key by which the place is held.
    void deleted() { deleted_ = true; }

    /// A writer begins to go on as a reader, or a reader as a writer: it may have the write key,
    /// but is not held by it.
    void change_mode() { just_reads(keys_.by_name.front()); }
    /// The request to go on as a writer is over, or not wanted any more.
    /// @param may_come The request may still be applied.
    void raise_ended(bool may_come) { may_come_ = may_come_ || may_come; }
    /// The place is held by the write key, too.
    void raised(std::int64_t write_life) {
        keys_.by_name.front().later.front().create_revision = write_life;
    }
    /// The write key is not there, and none can come.
    /// @param voided This epoch makes void what was under way.
    void lowered(std::int64_t epoch, bool voided) {
        keys_.by_name.front().epoch = epoch;
        may_come_ = may_come_ && !voided;
    }
    /// A request to give up the keys of one name has found another epoch, or keys that are there
    /// nevertheless.
    void not_left(std::size_t index, std::int64_t epoch) {
        keys_.by_name[index].epoch = epoch;
        may_come_ = true;
    }

    // What is known.

    const attempt_keys& keys() const { return keys_; }
    const name_keys& first() const { return keys_.by_name.front(); }
    /// That of the keys that the attempt began with; 0 if they are not known to be there.
    std::int64_t create_revision() const { return create_revision_; }
    bool is_known() const { return create_revision_ != 0; }
    /// The newest revision of which etcd has told where the place stands.
    std::int64_t as_of() const { return as_of_; }
    bool is_deleted() const { return deleted_; }
    /// When an owner ends, it leaves a note, or takes it away.
    bool has_note() const { return !first().note_key.empty(); }
    /// Its holder may read, or write.
    bool has_modes() const { return !first().write_key.empty(); }

    /// By all that etcd has said, nothing was put, and nothing will be.
    bool is_absent() const { return !is_known() && !may_come_ && !may_have_come_; }
    /// A request to enter was refused once, and only etcd's word says that nothing was done.
    bool was_refused() const { return refused_; }
    /// A request that puts its keys may still be applied: giving them up takes another epoch.
    bool may_come() const { return may_come_; }
    /// Giving up everything takes another epoch. A note is dropped with the life that left it, or
    /// with the epoch.
    bool needs_epoch() const { return may_come_ || !is_known() || (deleted_ && has_note()); }
    /// Something may be there although one key was deleted.
    bool outlasts_deletion() const { return may_come_ || has_note() || held_by().size() > 1; }

    /// The lives by which the place is held: it is lost with any of them.
    std::vector<held_life> held_by() const {
        return deleted_ ? std::vector<held_life>() : counted_on(keys_, create_revision_);
    }
    /// The key that stands for the place; with several names, that of the first. Callable from
    /// anywhere once the place is held.
    const std::string& key(bool writes) const {
        const name_keys& c = first();
        if (!has_modes()) {
            return c.keys.front();
        }
        return writes ? c.write_key : c.base_key; // which do not change, unlike `keys`
    }
    /// The lives that stand for the place: one of each name. Callable from anywhere once the place
    /// is held.
    /// @param write_life That of the write key; 0 if the holder only reads.
    std::vector<held_life> proof(std::int64_t write_life) const {
        std::vector<held_life> all;
        if (has_modes() && keys_.by_name.size() == 1) {
            const bool writes = write_life != 0;
            all.push_back({key(writes), writes ? write_life : create_revision_});
            return all;
        }
        for (const name_keys& c : keys_.by_name) {
            all.push_back({c.keys.front(), create_revision_});
        }
        return all;
    }

private:
    attempt_keys keys_;
    std::int64_t create_revision_ = 0;
    std::int64_t as_of_ = 0;
    bool may_come_ = false;      // a request that puts keys may still be under way
    bool may_have_come_ = false; // the last answer does not tell what an earlier copy has done
    bool refused_ = false;
    bool deleted_ = false;
};

} // namespace coetcd::detail::logic
