// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/mirror_batch.hpp>

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/common.hpp"
#include "sim/world.hpp"

namespace sim {

/// What is below it is mirrored.
inline constexpr std::string_view mirrored_prefix = "table/";

/// What must be true of a mirror, and of what the readers of its changes are told.
class mirror_rules {
public:
    /// Revisions of the keys.
    using table = std::map<std::string, std::int64_t>;

    explicit mirror_rules(world& w)
        : world_(w)
        , states_{{0, {}, nanoseconds(0)}} {}

    // What clients do.

    /// A mirror, or a reader of its changes, as long as this exists.
    struct follower {
        bool reads_changes = false;
        nanoseconds since{0};
        bool is_slow = false;      ///< It may be told differences at any time.
        std::int64_t revision = 0; ///< That it told last.
        bool told = false;
        table last{};
    };
    class entry {
    public:
        entry(mirror_rules& of, bool reads_changes)
            : of_(of)
            , place_(of.followers_.insert(of.followers_.end(),
                                          follower{reads_changes, of.world_.now()})) {}
        ~entry() { of_.followers_.erase(place_); }
        entry(const entry&) = delete;
        entry& operator=(const entry&) = delete;
        follower& operator*() const { return *place_; }

    private:
        mirror_rules& of_;
        const std::list<follower>::iterator place_;
    };
    /// What a mirror has now.
    void shown(follower& f, const coetcd::mirror_snapshot& all);
    void told(follower& f, const coetcd::mirror_batch& batch);
    /// It begins anew: etcd seems to have gone back.
    static void regressed(follower& f) { f.revision = 0; }

    /// Somebody that waits for a revision, as long as this exists.
    class seat {
    public:
        explicit seat(mirror_rules& of)
            : of_(of)
            , place_(of.waiting_.insert(of.waiting_.end(), of.world_.now())) {}
        ~seat() { of_.waiting_.erase(place_); }
        seat(const seat&) = delete;
        seat& operator=(const seat&) = delete;

    private:
        mirror_rules& of_;
        const std::list<nanoseconds>::iterator place_;
    };

    // What the network does.

    /// Told that a line of a stream has come to a client, as long as this exists.
    class line_listener {
    public:
        line_listener(mirror_rules& of, std::function<void(const process&)> tell)
            : of_(of)
            , place_(of.listeners_.insert(of.listeners_.end(), std::move(tell))) {}
        ~line_listener() { of_.listeners_.erase(place_); }
        line_listener(const line_listener&) = delete;
        line_listener& operator=(const line_listener&) = delete;

    private:
        mirror_rules& of_;
        const std::list<std::function<void(const process&)>>::iterator place_;
    };
    void line_comes(const process& to) {
        for (const auto& tell : listeners_) {
            tell(to);
        }
    }

    // What etcd does.

    /// Of one revision.
    void changed(const std::vector<etcd::change>& changes);

    /// Whether a reader was not told yet what there is.
    bool owes_states() const;
    void look_for_untold(nanoseconds healed_at, nanoseconds bound) const;

    std::uint64_t looks = 0;
    std::uint64_t batches = 0;

private:
    struct state {
        std::int64_t revision = 0;
        table keys;
        nanoseconds since{0};
    };
    /// What there was then.
    std::size_t at(std::int64_t revision) const;
    /// Whether it may have what never was.
    bool is_excused() const { return world_.had_lost_events() || world_.had_other_clusters(); }
    void check_revision(follower& f, std::int64_t now);
    void check_steps(const follower& f, const coetcd::mirror_batch& batch) const;
    bool is_untold(const follower& f) const { return !f.told || f.last != states_.back().keys; }

    world& world_;
    std::vector<state> states_; ///< All that there were.
    std::list<follower> followers_;
    std::list<nanoseconds> waiting_;
    std::list<std::function<void(const process&)>> listeners_;
};

} // namespace sim
