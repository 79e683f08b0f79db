// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/logic/lease_clock.hpp>
#include <coetcd/detail/logic/places.hpp>
#include <coetcd/detail/logic/standing.hpp>
#include <coetcd/detail/service/key_watch.hpp>
#include <coetcd/detail/service/lane.hpp>
#include <coetcd/detail/service/session.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

/// The wait until one of some keys is erased, or there is a sign. It uses watches, a look where the
/// watches cannot know, and a look from time to time, since servers have lost events.
class vigil {
public:
    enum class end {
        told,  ///< Lives that are waited for have ended, for certain: see `take_ends`. Or there is
               ///< a sign, and nothing was missed before.
        moved, ///< A life that is watched may have ended, or a look says that something is
               ///< different.
        late,  ///< The deadline came first.
        failed ///< A look failed for good: see `failure`.
    };

    /// @param wake Notified of whatever may end the wait; its owner notifies it of the session's
    ///   end.
    /// @param held For a vigil over something that is held: whether it still is. Its end ends the
    ///   wait as well, and `wake` is notified of it. Such a vigil looks only where the watches
    ///   cannot know, since renewals look from time to time, and goes on if a look fails.
    vigil(std::shared_ptr<session_impl> s, notifier& wake, std::function<bool()> held = {})
        : session_(std::move(s))
        , owner_(session_->owner)
        , wake_(wake)
        , held_(std::move(held)) {}
    /// A vigil without a session.
    /// @param ttl That of the keys that are waited for: how often to look follows from it.
    vigil(std::shared_ptr<client_impl> c, std::chrono::seconds ttl, notifier& wake)
        : owner_(std::move(c))
        , wake_(wake)
        , watches_(std::make_unique<kept_watches>(*owner_->world, owner_->hub))
        , ttl_(ttl) {}
    ~vigil() {
        drop_watched();
        withdraw_question();
    }
    vigil(const vigil&) = delete;
    vigil& operator=(const vigil&) = delete;

    /// Waits for the ends of these lives of keys. What was watched before and is again goes on
    /// being watched, so no end is missed.
    /// @param known They were there in the answer to a request that was sent then.
    void watch(const std::vector<logic::held_life>& lives, time_point known) {
        signs_.clear();
        withdraw_question(); // it is about others
        std::vector<std::unique_ptr<key_watch>> before = std::exchange(watched_, {});
        bool true_so_far = true;
        for (const logic::held_life& life : lives) {
            const auto same = std::find_if(before.begin(), before.end(), [&](const auto& w) {
                return w && w->key() == life.key;
            });
            watched_.push_back(same != before.end() ? std::move(*same) : watches().take(life.key));
            watched_.back()->restart_if_ended();
            true_so_far &= watched_.back()->attach(wake_, life.create_revision, known);
        }
        for (std::size_t i = 0; i != own_.size(); ++i) {
            true_so_far &= own_[i]->attach(wake_, own_lives_[i].create_revision, known);
        }
        std::for_each(before.begin(), before.end(), [this](auto& w) { drop(w); });
        note_events(true_so_far);
        begin_patience();
    }
    /// The revisions at which the lives that are waited for have ended, in their order; 0 for those
    /// that have not. Only the latter are waited for from now on.
    std::vector<std::int64_t> take_ends() {
        std::vector<std::int64_t> ends;
        for (auto& w : watched_) {
            ends.push_back(w->certain_end());
            if (ends.back() != 0) {
                drop(w);
            }
        }
        std::erase(watched_, nullptr);
        return ends;
    }
    /// Watches signs, from before a request on whose answer says whether to wait for them. Call it
    /// where none are watched. These watches are not kept for later, since they receive events that
    /// concern others.
    /// @param to Told of all events. Returns whether the wait is over.
    void watch_ahead(const std::vector<key_range>& signs, const key_watch::listener& to) {
        for (const key_range& keys : signs) {
            signs_.push_back(
                std::make_unique<key_watch>(*owner_->world, session_->signs, keys, to));
        }
    }
    bool watches_signs() const { return !signs_.empty(); }
    /// Waits for them. Where a watch has missed something, the wait ends.
    /// @param seen What the answer tells of, and `known` when it was asked for: see
    ///   `key_watch::follow`.
    void wait_for_signs(std::int64_t seen, time_point known) {
        drop_watched();
        withdraw_question(); // it may be older
        for (const auto& w : signs_) {
            w->restart_if_ended();
            w->follow(wake_, seen, known);
        }
        begin_patience();
    }
    /// If the wait takes long, waits for the ends of these as well: our own keys, which go only if
    /// somebody deletes them.
    /// @param known They were there in the answer to a request that was sent then.
    void watch_later(std::vector<logic::held_life> own, time_point known) {
        own_lives_ = std::move(own);
        own_known_ = known;
    }

    bool knows_own() const { return !own_lives_.empty(); }
    /// From now on we delete our own keys ourselves.
    void drop_own() { own_.clear(); }

    /// @param look Makes the read for a look; most waits never look. `moved` tells whether the
    ///   answer says that the wait is over.
    asio::awaitable<end> until_moved(std::function<txn()> look,
                                     std::function<bool(const txn_response&)> moved,
                                     time_point deadline) {
        env& world = *owner_->world;
        while (alive()) {
            const time_point now = world.now();
            const bool may_be_over = has_event() || any_own(&key_watch::erased);
            if (may_be_over && now >= trusts_events_) {
                withdraw_question();
                const bool is_certain = are_told_ends_certain();
                co_return is_certain ? end::told : end::moved;
            }
            if (now >= deadline) {
                co_return end::late;
            }
            if (may_be_over) {
                (void)co_await wake_.wait(std::min(deadline, trusts_events_));
                continue;
            }
            const bool watches_own = own_.size() == own_lives_.size();
            if (!watches_own && now >= own_due_) {
                watch_own();
                continue; // a kept watch may have been told already
            }
            if (!signs_.empty() && any_blind()) {
                withdraw_question();
                co_return end::moved;
            }
            const bool blind = any_blind() || any_own(&key_watch::blind);
            if (!blind && now < recheck_) {
                const time_point next = watches_own ? recheck_ : std::min(recheck_, own_due_);
                (void)co_await wake_.wait(std::min(deadline, next));
                continue;
            }
            recheck_ = next_recheck();
            if (blind) {
                withdraw_question(); // it may be from before the watch was in force
            }
            tell_watches(&key_watch::look_taken);
            if (!blind && held_) {
                continue;
            }
            const bool answered = co_await ask(look, deadline);
            if (!answered) {
                continue; // the next round says why, or asks again
            }
            const auto answer = std::exchange(question_, nullptr);
            if (answer->ec && held_) {
                continue;
            }
            if (answer->ec) {
                failure = answer->ec;
                failure_text = answer->text;
                co_return end::failed;
            }
            if (moved(answer->response)) {
                co_return end::moved;
            }
            tell_watches(&key_watch::was_shown);
        }
        co_return end::late;
    }

    /// Waits until this life of a key has ended.
    /// @param known It was there in the answer to a request that was sent then.
    asio::awaitable<end> until_gone(std::string key,
                                    std::int64_t create_revision,
                                    time_point known,
                                    time_point deadline) {
        watch({{key, create_revision}}, known);
        std::function<txn()> look = [&] {
            return txn().then(op::range(key, logic::transactions::keys_only()));
        };
        std::function<bool(const txn_response&)> gone = [&](const txn_response& r) {
            return logic::is_gone(r.header, logic::answers::range_at(r, 0), key, create_revision);
        };
        auto wait = until_moved(std::move(look), std::move(gone), deadline);
        const end how = co_await std::move(wait);
        co_return how == end::told ? end::moved : how;
    }

    error_code failure;
    std::string failure_text;

private:
    // A wait that ends sooner does not watch its own keys.
    static constexpr std::chrono::milliseconds own_patience{250};

    /// Also if ends are taken since, this goes on.
    void begin_patience() {
        own_due_ = after(owner_->world->now(), own_patience);
        recheck_ = next_recheck();
    }
    void watch_own() {
        for (const logic::held_life& life : own_lives_) {
            own_.push_back(watches().take(life.key));
            (void)own_.back()->attach(wake_, life.create_revision, own_known_);
        }
    }
    /// A member that reports ends that did not happen would make us ask etcd as fast as it answers.
    void note_events(bool were_true) {
        false_ends_ = were_true ? 0 : false_ends_ + 1;
        if (!were_true) {
            env& world = *owner_->world;
            trusts_events_ =
                after(world.now(), logic::pause_after_false_end(false_ends_, world.random()));
        }
    }
    bool any_own(bool (key_watch::*is)() const) const {
        return std::any_of(
            own_.begin(), own_.end(), [is](const auto& own) { return ((*own).*is)(); });
    }
    /// What is waited for: lives, or signs.
    const std::vector<std::unique_ptr<key_watch>>& waited_for() const {
        return signs_.empty() ? watched_ : signs_;
    }
    bool has_event() const {
        const auto& all = waited_for();
        return std::any_of(all.begin(), all.end(), [](const auto& w) { return w->erased(); });
    }
    /// Whether nothing else has happened than that lives have ended, and the watches that have told
    /// it miss nothing.
    bool are_told_ends_certain() const {
        if (any_own(&key_watch::erased)) {
            return false;
        }
        const bool miss_nothing =
            std::all_of(signs_.begin(), signs_.end(), [](const auto& w) { return w->sees(); });
        return miss_nothing && std::all_of(watched_.begin(), watched_.end(), [](const auto& w) {
                   return !w->erased() || w->certain_end() != 0;
               });
    }
    bool any_blind() const {
        // One look serves all, once all of them are watched.
        const auto& all = waited_for();
        return std::all_of(all.begin(), all.end(), [](const auto& w) { return w->in_force(); }) &&
               std::any_of(all.begin(), all.end(), [](const auto& w) { return w->blind(); });
    }
    /// One look is about all of them.
    void tell_watches(void (key_watch::*what)()) {
        for (const auto& w : waited_for()) {
            ((*w).*what)();
        }
        for (const auto& w : own_) {
            ((*w).*what)();
        }
    }

    time_point next_recheck() const {
        env& world = *owner_->world;
        const std::chrono::seconds ttl = session_ ? session_->ttl() : ttl_;
        return after(world.now(), logic::recheck_interval(ttl, world.random()));
    }

    bool alive() const { return held_ ? held_() : !session_ || session_->alive(); }
    kept_watches& watches() { return session_ ? session_->watches : *watches_; }

    /// @returns Whether `question_` has an answer, or has failed for good.
    asio::awaitable<bool> ask(const std::function<txn()>& look, time_point deadline) {
        if (!question_) {
            question_ = std::make_shared<lane_part>(look());
            question_->order = lane_part::rank::patient;
            question_->likely = true;
            question_->not_after = deadline;
            question_->on_end = [this] { wake_.notify_all(); };
            owner_->transactions->submit(question_);
        }
        while (!question_->over) {
            if (!alive() || has_event() || owner_->world->now() >= deadline) {
                co_return false;
            }
            (void)co_await wake_.wait(deadline);
        }
        if (question_->ec && logic::is_transient(question_->ec)) {
            question_ = nullptr;
            co_return false;
        }
        co_return true;
    }

    void withdraw_question() {
        if (question_) {
            question_->on_end = nullptr;
            owner_->transactions->withdraw(question_);
            question_ = nullptr;
            tell_watches(&key_watch::look_missed);
        }
    }
    void drop(std::unique_ptr<key_watch>& w) {
        if (w) {
            watches().keep(std::move(w));
            w = nullptr;
        }
    }
    void drop_watched() {
        std::for_each(watched_.begin(), watched_.end(), [this](auto& w) { drop(w); });
        watched_.clear();
    }

    const std::shared_ptr<session_impl> session_; // null if there is none
    const std::shared_ptr<client_impl> owner_;
    notifier& wake_;
    const std::function<bool()> held_;                // empty if it waits for what others have
    const std::unique_ptr<kept_watches> watches_;     // without a session, which has its own
    const std::chrono::seconds ttl_{0};               // without a session
    std::vector<std::unique_ptr<key_watch>> watched_; // of the keys ahead
    std::vector<std::unique_ptr<key_watch>> signs_;   // or these
    std::vector<std::unique_ptr<key_watch>> own_;
    std::vector<logic::held_life> own_lives_;
    time_point own_known_{};
    time_point own_due_{};
    time_point recheck_{};
    std::shared_ptr<lane_part> question_;
    unsigned false_ends_ = 0; // that were told, in a row
    time_point trusts_events_ = time_point::min();
};

} // namespace coetcd::detail
