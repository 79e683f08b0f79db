// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/async/loss.hpp>
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/logic/held.hpp>
#include <coetcd/detail/logic/lease_clock.hpp>
#include <coetcd/detail/logic/leaving.hpp>
#include <coetcd/detail/logic/once.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/detail/service/key_watch.hpp>
#include <coetcd/detail/service/lane.hpp>
#include <coetcd/detail/service/lease.hpp>
#include <coetcd/detail/service/local_queues.hpp>
#include <coetcd/detail/service/until_over.hpp>
#include <coetcd/session_options.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace coetcd::detail {

/// Something that is held by keys; each round of renewal looks whether they are still there.
class held_keys {
public:
    virtual std::vector<logic::held_life> held_by() const = 0;
    /// One of them is not there any more.
    virtual void on_key_gone() = 0;

    std::uint64_t number = 0; ///< Among those of its session, which sets it.

protected:
    ~held_keys() = default;
};

class session_impl : public std::enable_shared_from_this<session_impl> {
public:
    session_impl(std::shared_ptr<client_impl> c,
                 lease_id lease,
                 std::uint64_t cluster,
                 logic::trusted_ttl ttl,
                 std::string label,
                 time_point sent,
                 std::chrono::nanoseconds timeout)
        : owner(std::move(c))
        , world(*owner->world)
        , request_timeout(timeout)
        , watches(world, owner->hub)
        , lease_(lease)
        , cluster_(cluster)
        , trusted_(ttl)
        , label_(std::move(label))
        , nonce_(world.random() >> 32)
        , changed_(world) {
        renewed(sent, ttl.at_first());
        owner->hub->hold();
    }
    ~session_impl() {
        if (!told_) {
            owner->hub->release();
        }
    }
    session_impl(const session_impl&) = delete;
    session_impl& operator=(const session_impl&) = delete;

    /// @param timeout Of this call, and of those that are made through the session.
    /// @param tried See `when`.
    static asio::awaitable<std::shared_ptr<session_impl>>
    open(std::shared_ptr<client_impl> c,
         std::chrono::nanoseconds timeout,
         session_options options,
         const std::function<void(const std::string&)>* tried = nullptr);
    /// Null if there is no such lease.
    static asio::awaitable<std::shared_ptr<session_impl>> adopt(std::shared_ptr<client_impl> c,
                                                                std::chrono::nanoseconds timeout,
                                                                lease_id lease,
                                                                session_options options);

    const std::shared_ptr<client_impl> owner;
    env& world;
    const std::chrono::nanoseconds request_timeout;

    lease_id lease() const { return lease_; }
    // From anywhere.
    std::chrono::seconds ttl() const { return ttl_; }
    const std::string& label() const { return label_; }
    time_point certain_until() const { return certain_until_; }
    session_end reason() const { return reason_; }
    /// When a renewal failed the last time: none has since.
    time_point well_since() const { return well_since_; }
    /// Tells this object from others that have, or had, the same lease.
    std::uint64_t nonce() const { return nonce_; }

    /// Whether the client belongs to another cluster by now than the one that has the lease.
    bool is_replaced() const { return owner->cluster_router->cluster() != cluster_; }
    /// Whether it has not ended, and is not about to be found to have.
    bool is_certain() const {
        return reason_ == session_end::none && !is_replaced() && world.now() < certain_until();
    }
    /// Whether the lease is certain to exist now. A deadline that has passed ends the session here
    /// and now, whichever handler comes to look first; and so does another cluster.
    bool alive() {
        if (reason_ == session_end::none && !is_certain()) {
            lose(is_replaced() ? session_end::cluster_replaced : session_end::deadline);
        }
        return reason_ == session_end::none;
    }
    /// Whether it has ended, as its own program wanted it to.
    bool is_ended_by_us() const {
        const session_end why = reason_;
        return why == session_end::closed || why == session_end::orphaned;
    }
    /// Whether it has ended otherwise.
    bool is_taken_away() const { return reason_ != session_end::none && !is_ended_by_us(); }
    /// What those are told who counted on it, now that it has ended. Begins with `who`.
    error loss(const std::string& who) const {
        std::string text = who + ": " + describe(reason_);
        // Which is to be touched at home only.
        const bool known = world.is_home() && !failed_renewal_.empty();
        if (reason_ == session_end::deadline && known) {
            text += "; the last attempt: " + failed_renewal_;
        }
        return {is_ended_by_us() ? errc::session_closed : errc::session_lost, text};
    }
    /// @throws error as `loss`.
    void require_alive(const std::string& who) {
        if (!alive()) {
            throw loss(who);
        }
    }
    session_state state() {
        return !alive() ? session_state::lost
                        : (suspect_ ? session_state::suspect : session_state::active);
    }

    /// The first reason counts. From anywhere: it holds at once, and those concerned are told at
    /// home; where memory is short, by `keep_alive`.
    void lose(session_end why) noexcept {
        session_end none = session_end::none;
        if (reason_.compare_exchange_strong(none, why)) {
            try {
                at_home(world, [self = shared_from_this()] { self->tell_loss(); });
            } catch (const std::bad_alloc&) {
                // It holds all the same.
            }
        }
    }
    /// The one way out where there is no memory for what must not be left undone: the session ends,
    /// and what it has in etcd goes with its lease, which nobody renews. From any destructor at
    /// home: in a handler of its own, which a context that ends does not run.
    void fail(session_end why) noexcept {
        const auto end = [weak = weak_from_this(), why] {
            if (const auto self = weak.lock()) {
                self->lose(why);
                self->revoke();
            }
        };
        try {
            defer(world, end);
        } catch (const std::bad_alloc&) {
            end();
        }
    }
    loss_source losses;

    local_queues wanted;                      ///< The coroutines of this session that want names.
    kept_watches watches;                     ///< For waiters.
    logic::failing_time<time_point> cleanups; ///< Of places that are given up.
    logic::marker_table markers;              ///< Of writes that are applied once.

    /// Lives of keys.
    using lives = std::set<std::pair<std::string, std::int64_t>>;
    lives resumed; ///< Of earlier objects with this lease: those that were taken over.

    static asio::awaitable<session_end> wait_lost(std::shared_ptr<session_impl> self) {
        while (self->alive()) {
            (void)co_await self->changed_.wait(self->certain_until());
        }
        co_return self->reason_;
    }

    /// Ends it, and has etcd end the lease, at the call; what is awaited is that etcd has.
    static asio::awaitable<void> close(std::shared_ptr<session_impl> self) {
        self->lose(session_end::closed);
        const auto joins = std::make_shared<bool>(false);
        at_home(self->world, [self, joins] {
            *joins = self->revocation_ == revocation::under_way;
            self->begin_to_revoke();
        });
        return self->owner->home(until_revoked(self, joins));
    }

    /// It has ended, and all keys with its lease are to go, or have gone: nobody renews it any
    /// more.
    bool gives_lease_up() const {
        return reason_ != session_end::none && reason_ != session_end::orphaned;
    }
    /// Has etcd end the lease, in the background, unless that was done or is under way. From
    /// anywhere. Where memory is short the lease ends by itself.
    void revoke() noexcept {
        try {
            at_home(world, [self = shared_from_this()] { self->begin_to_revoke(); });
        } catch (const std::bad_alloc&) {
            // A later `close` tries again.
        }
    }

    /// A member has refused a transaction for the lack of the lease. A renewal tells: if there is
    /// none the session ends. Also ends with the session.
    /// @returns Whether there is none; nothing if that was not to be learned in time.
    static asio::awaitable<std::optional<bool>> look_for_lease(std::shared_ptr<session_impl> self,
                                                               call_terms how);

    /// Renews the lease, with as many attempts as there is time for. Then it looks after what
    /// is held: the next renewal, and the look with it, is due later by this one.
    /// @returns False if the session is lost.
    static asio::awaitable<bool> renew(std::shared_ptr<session_impl> self);

    void look_after(held_keys& k) {
        k.number = ++last_number_;
        held_.emplace_hint(held_.end(), k.number, &k);
    }
    void look_away(held_keys& k) { held_.erase(k.number); }

private:
    /// Once; what a lack of memory has cut short, the next call goes on with.
    void tell_loss() {
        if (!std::exchange(told_, true)) {
            if (const auto& observer = owner->options.observer) {
                observer->on_session_end({lease_, reason_});
            }
            watches.close();
            owner->hub->release(); // waiters have watches of their own
        }
        changed_.notify_all();
        losses.tell();
    }
    void begin_to_revoke();
    void renewed(time_point sent, std::chrono::seconds ttl) {
        if (sent < last_sent_) {
            return; // a later one was answered earlier
        }
        ttl_ = ttl;
        last_sent_ = sent;
        certain_until_ = after(sent, logic::certain(ttl));
        suspect_ = false;
        failed_renewal_.clear();
    }

    /// One attempt.
    /// @returns Whether the lease was renewed, or is known to be lost.
    static asio::awaitable<bool> try_renew(std::shared_ptr<session_impl> self);
    static asio::awaitable<void> renew_when_due(std::shared_ptr<session_impl> self);
    static asio::awaitable<void> keep_alive(std::shared_ptr<session_impl> self);
    struct lease_look {
        bool over = false;
        std::optional<bool> gone;
    };
    static asio::awaitable<void> renew_to_tell(std::shared_ptr<session_impl> self,
                                               call_terms how,
                                               std::shared_ptr<lease_look> look);
    static asio::awaitable<void> look_after_held(std::shared_ptr<session_impl> self);
    struct revoking;
    static asio::awaitable<void> revoke(std::unique_ptr<revoking> ends);
    /// @param joins A revocation was under way before: if that fails, ask once more.
    static asio::awaitable<void> until_revoked(std::shared_ptr<session_impl> self,
                                               std::shared_ptr<const bool> joins);

    /// How far the end of the lease is that we ask for.
    enum class revocation { none, under_way, done, failed };

    const lease_id lease_;
    const std::uint64_t cluster_; // that has it
    const logic::trusted_ttl trusted_;
    const std::string label_;
    const std::uint64_t nonce_;
    std::atomic<std::chrono::seconds> ttl_{std::chrono::seconds(0)};
    time_point last_sent_ = time_point::min(); // when the last renewal that succeeded was sent
    std::atomic<time_point> certain_until_{time_point()}; // follows from it
    std::atomic<bool> suspect_ = false;
    time_point well_since_ = time_point::min();
    std::atomic<session_end> reason_ = session_end::none;
    revocation revocation_ = revocation::none;
    answer trouble_;             // with that
    std::string failed_renewal_; // why the last renewal failed, if it did
    notifier changed_;
    std::map<std::uint64_t, held_keys*> held_; // by number: in order of arrival
    std::uint64_t last_number_ = 0;
    bool looks_ = false; // whether what is held is still there
    bool told_ = false;  // of its end
};

inline asio::awaitable<bool> session_impl::try_renew(std::shared_ptr<session_impl> self) {
    const time_point sent = self->world.now();
    const auto timeout = logic::renewal_timeout(self->ttl_);
    const time_point deadline = std::min(after(sent, timeout), self->certain_until());
    const bool alone =
        self->suspect_ || logic::renews_alone(self->certain_until() - sent, self->ttl_);
    const call_terms how{deadline, timeout, connection_kind::renewal};
    const renewals::result a =
        co_await renewals::renew(self->owner->lease_renewals, self->lease_, how, alone);
    if (const auto& observer = self->owner->options.observer) {
        const time_point now = self->world.now();
        // What we have ended need not be renewed.
        const error_code outcome = self->is_ended_by_us() ? error_code() : a.ec;
        observer->on_renewal({self->lease_, now - sent, self->certain_until() - now, outcome});
    }
    if (a.ec && sent < self->last_sent_) {
        co_return true; // a later one has succeeded
    }
    const bool gone = logic::is_lease_gone(a.ec, a.text);
    if (a.ec && !gone) {
        self->suspect_ = true;
        self->well_since_ = self->world.now();
        self->failed_renewal_ = a.text;
        co_return false;
    }
    if (self->is_replaced()) {
        self->lose(session_end::cluster_replaced);
    } else if (!gone && is_there(a.response)) {
        self->renewed(sent, self->trusted_.renewed(a.response.ttl));
    } else {
        self->lose(session_end::expired);
    }
    co_return true;
}

inline asio::awaitable<void> session_impl::renew_to_tell(std::shared_ptr<session_impl> self,
                                                         call_terms how,
                                                         std::shared_ptr<lease_look> look) {
    const auto renewed = co_await try_to_renew(self->owner, how, self->lease_);
    if (!logic::is_transient(renewed.ec)) {
        look->gone = !renewed.ec && !is_there(renewed.response);
    }
    if (look->gone == true) {
        self->lose(session_end::expired);
    }
    look->over = true;
    self->changed_.notify_all();
}

inline asio::awaitable<std::optional<bool>>
session_impl::look_for_lease(std::shared_ptr<session_impl> self, call_terms how) {
    const bool lived = self->alive();
    const auto look = std::make_shared<lease_look>();
    spawn(self->world, renew_to_tell(self, how, look));
    while (!look->over && self->alive() == lived && self->world.now() < how.deadline) {
        const time_point end = lived ? self->certain_until() : how.deadline;
        (void)co_await self->changed_.wait(std::min(how.deadline, end));
    }
    std::optional<bool> gone = look->gone;
    if (!gone && self->reason() == session_end::expired) {
        gone = true;
    }
    co_return gone;
}

inline asio::awaitable<bool> session_impl::renew(std::shared_ptr<session_impl> self) {
    while (self->alive()) {
        const bool settled = co_await try_renew(self);
        if (settled) {
            break;
        }
        const auto pause = logic::renewal_pause(self->world.random());
        const time_point next = std::min(after(self->world.now(), pause), self->certain_until());
        (void)co_await self->changed_.wait(next);
    }
    const bool alive = self->alive();
    if (alive && !self->looks_ && !self->held_.empty()) {
        spawn(self->world, look_after_held(self));
    }
    co_return alive;
}

inline asio::awaitable<void> session_impl::renew_when_due(std::shared_ptr<session_impl> self) {
    while (self->alive()) {
        const auto pause = logic::renewal_interval(self->ttl_, self->world.random());
        const time_point next = std::min(after(self->last_sent_, pause), self->certain_until());
        if (self->world.now() < next) {
            (void)co_await self->changed_.wait(next);
            continue;
        }
        (void)co_await renew(self);
        self->watches.drop_old();
    }
    self->tell_loss(); // whom a lack of memory has kept from being told
}

/// Runs from the first renewal to the end of the session. What fails for lack of memory is tried
/// again; if that is not even enough for a pause, the session ends.
inline asio::awaitable<void> session_impl::keep_alive(std::shared_ptr<session_impl> self) {
    struct keeping {
        session_impl& of;
        ~keeping() {
            if (of.reason_ == session_end::none) {
                of.fail(session_end::deadline);
            }
        }
    };
    const keeping until_the_end{*self};
    constexpr std::chrono::milliseconds moment(100);
    for (bool over = false; !over;) {
        try {
            co_await renew_when_due(self);
            over = true;
        } catch (const std::bad_alloc&) {
            // There may be more in a moment.
        }
        if (!over) {
            co_await sleep_until(self->world, after(self->world.now(), moment));
        }
    }
}

/// What is held by a key that was deleted by hand is lost, although the lease lives. Beside the
/// renewals, never in their way.
inline asio::awaitable<void> session_impl::look_after_held(std::shared_ptr<session_impl> self) {
    struct looking {
        session_impl& of;
        ~looking() { of.looks_ = false; }
    };
    self->looks_ = true;
    const looking until_the_end{*self};
    std::vector<logic::held_life> all;
    std::map<std::string, std::uint64_t> whose; // by key
    for (const auto& [number, k] : self->held_) {
        for (logic::held_life& life : k->held_by()) {
            whose.emplace(life.key, number);
            all.push_back(std::move(life));
        }
    }
    for (const std::vector<logic::held_life>& some : logic::rounds(std::move(all))) {
        const auto part = std::make_shared<lane_part>(logic::look_at(some));
        part->order = lane_part::rank::patient;
        part->likely = true;
        part->not_after = after(self->world.now(), logic::renewal_timeout(self->ttl_));
        co_await until_over(self->owner->transactions, part);
        if (part->ec) {
            co_return; // the next round looks again
        }
        for (const logic::held_life& gone : logic::missing(part->response, some)) {
            // It may have been released while the answer was on its way.
            const auto found = self->held_.find(whose[gone.key]);
            if (found == self->held_.end()) {
                continue;
            }
            const std::vector<logic::held_life> lives = found->second->held_by();
            if (std::find(lives.begin(), lives.end(), gone) != lives.end()) {
                found->second->on_key_gone();
            }
        }
    }
}

} // namespace coetcd::detail

#include <coetcd/detail/service/session_end.hpp>
#include <coetcd/detail/service/session_open.hpp>
