// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/service/shared_watch.hpp>
#include <coetcd/detail/service/watch_hub.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

/// A watch of one key, or of a range, for the ends of lives.
class key_watch final : public watch_sink {
public:
    /// Told of events; returns whether they end the wait.
    using listener = std::function<bool(const std::vector<event>&)>;
    /// The end of the life that is waited for ends the wait.
    key_watch(env& world, std::shared_ptr<watch_hub> hub, key_range keys)
        : env_(world)
        , hub_(std::move(hub))
        , keys_(std::move(keys)) {
        start();
    }
    /// One that is shared, and tells of puts as well.
    key_watch(env& world, shared_watches& of, key_range keys, listener to)
        : env_(world)
        , of_(&of)
        , keys_(std::move(keys))
        , to_(std::move(to)) {
        start();
    }
    ~key_watch() {
        if (shared_) {
            shared_->remove(*this);
        } else if (now_ != state::ended) {
            hub_->remove(id_);
        }
    }
    key_watch(const key_watch&) = delete;
    key_watch& operator=(const key_watch&) = delete;

    const std::string& key() const { return keys_.key; }

    /// From now on notifies `wake` of the end of a life that began at `create_revision`.
    /// @param known When the request was sent whose answer told of that life.
    /// @returns False if an event from before that request says that this life has ended. The
    ///   request went through etcd's consensus, so the event is false, and is forgotten.
    bool attach(notifier& wake, std::int64_t create_revision, time_point known) {
        wake_ = &wake;
        unused_ = 0;
        life_ = create_revision;
        if (in_force()) {
            now_ = since_ >= known ? state::blind : state::seeing;
        }
        const bool contradicts = first_end_ > life_ && heard_ <= known;
        if (contradicts) {
            last_event_ = 0;
        }
        note_end();
        return !contradicts;
    }
    /// Where there is a listener: from now on notifies `wake` when it says so. It knows which
    /// events it has been told before.
    /// @param seen All revisions before this one are known, and of this one what there was when the
    ///   request was served that was sent at `known`.
    void follow(notifier& wake, std::int64_t seen, time_point known) {
        wake_ = &wake;
        life_ = 0;
        last_event_ = 0;
        seen_ = seen;
        known_ = known;
        if (in_force()) {
            now_ = after_creation();
        }
    }
    void detach() { wake_ = nullptr; }
    /// How often it received something while there was nobody to notify.
    int unused() const { return unused_; }

    /// The life that is waited for has ended. An event of an earlier life says nothing.
    bool erased() const { return last_event_ > life_; }
    /// The revision at which it has ended, if the watch has been in force ever since that life was
    /// known to be there; else 0.
    std::int64_t certain_end() const { return erased() && now_ == state::seeing ? first_end_ : 0; }
    bool in_force() const {
        return now_ == state::blind || now_ == state::looked || now_ == state::seeing;
    }
    /// It is in force, and has missed nothing.
    bool sees() const { return now_ == state::seeing; }
    /// It is in force but may have missed the end, so the key is to be looked at.
    bool blind() const { return now_ == state::blind; }

    /// Call it when the key is being looked at. Starts the watch anew if etcd has ended it.
    void look_taken() {
        if (blind()) {
            now_ = state::looked;
        }
        restart_if_ended();
    }
    /// There is no answer to that look.
    void look_missed() {
        if (now_ == state::looked) {
            now_ = state::blind;
        }
    }
    /// The answer to that look has shown the life that is waited for.
    void was_shown() {
        if (now_ == state::looked) {
            now_ = state::seeing;
        }
    }
    void restart_if_ended() {
        if (now_ == state::ended) {
            start();
        }
    }

private:
    enum class state {
        ended,     // by etcd
        requested, // not in force yet
        blind,     // in force, with a look to come
        looked,    // in force, with an answer to that look to come
        seeing,    // in force, and nothing was missed since this life was known to be there
    };

    void start() {
        if (of_) {
            join(of_->of(keys_));
            return;
        }
        wire::watch_create_request request(keys_);
        request.no_put = true;
        id_ = hub_->add(std::move(request), *this);
        now_ = state::requested;
    }
    void join(std::shared_ptr<shared_watch> with) {
        if (const auto before = std::exchange(shared_, std::move(with))) {
            before->remove(*this);
        }
        now_ = state::requested;
        shared_->add(*this); // which may be in force
    }
    void note_end() {
        if (!erased()) {
            first_end_ = 0;
        } else if (first_end_ <= life_) {
            first_end_ = last_event_;
            heard_ = env_.now();
        }
    }
    /// etcd tells all that comes after the revision of its answer. A request that was sent after
    /// that, and answered with the same revision, has changed nothing, nor has what shared it.
    state after_creation() const {
        const bool misses_nothing = created_ < seen_ || (created_ == seen_ && since_ < known_);
        return seen_ != 0 && misses_nothing ? state::seeing : state::blind;
    }
    void wake() {
        if (wake_) {
            wake_->notify_all();
        }
    }
    void on_created(std::int64_t revision) override {
        // A restored etcd counts from an older revision. Nothing is lost: a look follows.
        last_event_ = 0;
        first_end_ = 0;
        since_ = env_.now();
        created_ = revision;
        now_ = after_creation();
        wake();
    }
    void on_events(std::vector<event>& events) override {
        unused_ += wake_ ? 0 : 1;
        if (to_ && !to_(events)) {
            return;
        }
        for (const event& e : events) {
            last_event_ = std::max(last_event_, e.kv.mod_revision);
        }
        note_end();
        if (erased()) {
            wake();
        }
    }
    void on_ended(error_code, std::string, std::int64_t) override { now_ = state::ended; }

    env& env_;
    const std::shared_ptr<watch_hub> hub_; // if it is not shared
    shared_watches* const of_ = nullptr;   // or this
    std::shared_ptr<shared_watch> shared_;
    const key_range keys_;
    const listener to_;
    notifier* wake_ = nullptr;
    int unused_ = 0;
    std::int64_t life_ = 0;
    std::int64_t last_event_ = 0;
    std::int64_t first_end_ = 0; // of this life that was told; 0: none was
    time_point heard_{};         // when
    std::int64_t seen_ = 0;      // see `follow`; 0: nothing
    time_point known_{};
    std::int64_t created_ = 0;
    std::int64_t id_ = 0;
    state now_ = state::ended;
    time_point since_{};
};

/// Watches that are kept for a while after their use: a session that waited behind a key is likely
/// to wait behind it again. A watch that is already in force misses nothing, and costs one event
/// for each end of its key.
class kept_watches {
public:
    kept_watches(env& world, std::shared_ptr<watch_hub> hub)
        : env_(world)
        , hub_(std::move(hub)) {}

    std::unique_ptr<key_watch> take(const std::string& key) {
        drop_old();
        const auto found = std::find_if(
            kept_.begin(), kept_.end(), [&](const kept& k) { return k.watch->key() == key; });
        if (found == kept_.end()) {
            return std::make_unique<key_watch>(env_, hub_, key);
        }
        std::unique_ptr<key_watch> watch = std::move(found->watch);
        kept_.erase(found);
        watch->restart_if_ended();
        return watch;
    }
    void keep(std::unique_ptr<key_watch> watch) noexcept {
        watch->detach();
        if (!keeps_) {
            return;
        }
        try {
            kept_.push_front({std::move(watch), env_.now()});
        } catch (const std::bad_alloc&) {
            return; // it ends
        }
        if (kept_.size() > most_kept) {
            kept_.pop_back();
        }
        drop_old();
    }
    /// Drops each watch that was not used for a while, or has cost more than a new one would.
    void drop_old() {
        const time_point now = env_.now();
        std::erase_if(kept_, [now](const kept& k) {
            return now - k.since > longest_kept || k.watch->unused() > most_unused;
        });
    }
    /// Drops all, and keeps none from now on.
    void close() {
        keeps_ = false;
        kept_.clear();
    }

private:
    static constexpr std::size_t most_kept = 16;
    static constexpr int most_unused = 5; // 3 and 8 are as good in the benchmark
    static constexpr std::chrono::seconds longest_kept{10};

    struct kept {
        std::unique_ptr<key_watch> watch;
        time_point since;
    };
    env& env_;
    const std::shared_ptr<watch_hub> hub_;
    std::list<kept> kept_; // the newest first
    bool keeps_ = true;
};

} // namespace coetcd::detail
