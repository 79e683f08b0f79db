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
#include <cstddef>
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

class kept_key;
class retained_locks;

/// Something that is held by keys. Each round of renewal checks that they are still there.
class held_keys {
public:
    virtual std::vector<logic::held_life> held_by() const = 0;
    /// Called when one of them is no longer there.
    virtual void on_key_gone() = 0;

    std::uint64_t number = 0; ///< Among those of its session, which sets it.

protected:
    ~held_keys() = default;
};

/// A session, as its handles share it: a lease that is renewed, and what is held with it.
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
        , signs(owner->hub)
        , lease_(lease)
        , cluster_(cluster)
        , trusted_(ttl)
        , label_(std::move(label))
        , nonce_(world.random() >> 32)
        , changed_(world)
        , turned_(world) {
        renewed(sent, sent, ttl.at_first());
        owner->hub->hold();
    }
    ~session_impl() {
        if (!told_) {
            owner->hub->release();
        }
    }
    session_impl(const session_impl&) = delete;
    session_impl& operator=(const session_impl&) = delete;

    /// @param timeout For this call, and for those that are made through the session.
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
    // These may be called from anywhere.
    std::chrono::seconds ttl() const { return ttl_; }
    const std::string& label() const { return label_; }
    time_point certain_until() const { return certain_until_; }
    session_end reason() const { return reason_; }
    /// When a renewal last failed: none has failed since.
    time_point well_since() const { return well_since_; }
    /// Tells this object from others that have, or had, the same lease.
    std::uint64_t nonce() const { return nonce_; }

    /// Whether the client now belongs to another cluster than the one that has the lease.
    bool is_replaced() const { return owner->cluster_router->cluster() != cluster_; }
    /// Whether it has not ended, and is not about to be found to have.
    bool is_certain() const {
        return reason_ == session_end::none && !is_replaced() && world.now() < certain_until();
    }
    /// Whether the lease is certain to exist now. A deadline that has passed, or another cluster,
    /// ends the session here and now, in whichever handler looks first.
    bool alive() {
        if (reason_ == session_end::none && !is_certain()) {
            lose(is_replaced() ? session_end::cluster_replaced : session_end::deadline);
        }
        return reason_ == session_end::none;
    }
    /// Whether its own program has ended it.
    bool is_ended_by_us() const {
        const session_end why = reason_;
        return why == session_end::closed || why == session_end::orphaned;
    }
    /// Whether it has ended for another reason.
    bool is_taken_away() const { return reason_ != session_end::none && !is_ended_by_us(); }
    /// The error for those who counted on it, once it has ended. Its text begins with `who`.
    error loss(const std::string& who) const {
        std::string text = who + ": " + describe(reason_);
        // `failed_renewal_` may be touched at home only.
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
    /// 0 if it has ended.
    std::chrono::nanoseconds remaining() {
        constexpr std::chrono::nanoseconds none(0);
        return alive() ? std::max(none, certain_until() - world.now()) : none;
    }

    /// Ends the session; the first reason counts. May be called from anywhere: it takes effect at
    /// once, and those concerned are told at home; if memory is short, `keep_alive` tells them.
    void lose(session_end why) noexcept {
        session_end none = session_end::none;
        if (reason_.compare_exchange_strong(none, why)) {
            try {
                at_home(world, [self = shared_from_this()] { self->tell_loss(); });
            } catch (const std::bad_alloc&) {
                // The session has ended all the same.
            }
        }
    }
    /// The one way out if there is no memory for what must not be left undone: the session ends,
    /// and what it has in etcd goes with its lease, which nobody renews. May be called from any
    /// destructor at home: it runs in a handler of its own, which a context that ends does not run.
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
    shared_watches signs;                     ///< For those that wait for the same things.
    logic::failing_time<time_point> cleanups; ///< For places that are given up.
    logic::marker_table markers;              ///< For writes that are applied once.
    std::int64_t value_changed = 0;           ///< The last change of a lock's value by us.
    int leftovers = 0;                        ///< Keys that may be there though etcd refused them.

    std::shared_ptr<retained_locks> retained; ///< Null if there never was any.
    std::size_t most_retained = 0;            ///< See `session_options::retained`.

    /// Lives of keys.
    using lives = std::set<std::pair<std::string, std::int64_t>>;
    lives resumed; ///< Those of earlier objects with this lease that were taken over.

    std::map<std::string, kept_key*> kept; ///< Those who keep keys in it, by key.

    static asio::awaitable<session_end> wait_lost(std::shared_ptr<session_impl> self) {
        while (self->alive()) {
            (void)co_await self->changed_.wait(self->certain_until());
        }
        co_return self->reason_;
    }

    /// Waits until it is in that state, or has ended.
    static asio::awaitable<session_state> until(std::shared_ptr<session_impl> self,
                                                session_state wanted);
    /// The same, for users: they are told of its end by an exception.
    static asio::awaitable<void> wait_for(std::shared_ptr<session_impl> self, session_state wanted);
    static asio::awaitable<std::chrono::nanoseconds>
    wait_suspect(std::shared_ptr<session_impl> self);

    /// Ends the session, and has etcd end the lease, at the call; await it to know that etcd has.
    static asio::awaitable<void> close(std::shared_ptr<session_impl> self) {
        self->lose(session_end::closed);
        const auto how = std::make_shared<closing>();
        at_home(self->world, [self, how] {
            const closing::begun_at_end in_any_case{*self, *how};
            how->joins = self->revocation_ == revocation::under_way;
            self->begin_to_revoke();
        });
        return self->owner->home(until_revoked(self, how));
    }

    /// Whether it has ended so that all keys with its lease are to go, or have gone: nobody renews
    /// the lease any more.
    bool gives_lease_up() const {
        return reason_ != session_end::none && reason_ != session_end::orphaned;
    }
    /// Has etcd end the lease in the background, unless that was done or is under way. May be
    /// called from anywhere. If memory is short, the lease ends by itself.
    void revoke() noexcept {
        try {
            at_home(world, [self = shared_from_this()] { self->begin_to_revoke(); });
        } catch (const std::bad_alloc&) {
            // A later `close` tries again.
        }
    }

    /// Call it when a member has refused a transaction because the lease was missing. A renewal
    /// tells whether it is: if so, the session ends. The look also ends with the session.
    /// @returns Whether there is no lease; nothing if that could not be learned in time.
    static asio::awaitable<std::optional<bool>> look_for_lease(std::shared_ptr<session_impl> self,
                                                               call_terms how);

    /// Renews the lease, with as many attempts as there is time for. Then it checks the held keys.
    /// An early renewal postpones the next one and its check.
    /// @returns False if the session is lost.
    static asio::awaitable<bool> renew(std::shared_ptr<session_impl> self);

    void look_after(held_keys& k) {
        k.number = ++last_number_;
        held_.emplace_hint(held_.end(), k.number, &k);
    }
    void look_away(held_keys& k) { held_.erase(k.number); }
    void tell_gone(const std::vector<logic::held_life>& gone);

private:
    /// From here on it is renewed.
    static void begin(const std::shared_ptr<session_impl>& self, std::size_t most_retained);
    /// Tells of the end, once; if a lack of memory cuts this short, the next call continues.
    void tell_loss() {
        if (!std::exchange(told_, true)) {
            watches.close();
            owner->hub->release(); // waiters have watches of their own
            if (const auto& observer = owner->options.observer) {
                observer->on_session_end({lease_, reason_});
            }
        }
        changed_.notify_all();
        turned_.notify_all();
        losses.tell();
    }
    void set_suspect(bool now) {
        if (suspect_.exchange(now) != now) {
            turned_.notify_all();
        }
    }
    void begin_to_revoke();
    /// @param began When the renewal began, perhaps to wait for a connection.
    void renewed(time_point began, time_point sent, std::chrono::seconds ttl) {
        if (began < last_began_) {
            return; // a later renewal was answered earlier
        }
        ttl_ = ttl;
        last_began_ = began;
        certain_until_ = after(sent, logic::certain(ttl));
        set_suspect(false);
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
    /// A call of `close`.
    struct closing {
        bool begun = false; ///< At home.
        bool joins = false; ///< It found a revocation under way.
        struct begun_at_end {
            session_impl& of;
            closing& what;
            ~begun_at_end() {
                what.begun = true;
                of.changed_.notify_all();
            }
        };
    };
    static asio::awaitable<void> until_revoked(std::shared_ptr<session_impl> self,
                                               std::shared_ptr<const closing> how);

    /// How far our request to end the lease has got.
    enum class revocation { none, under_way, done, failed };

    const lease_id lease_;
    const std::uint64_t cluster_; // that has it
    const logic::trusted_ttl trusted_;
    const std::string label_;
    const std::uint64_t nonce_;
    std::atomic<std::chrono::seconds> ttl_{std::chrono::seconds(0)};
    time_point last_began_ = time_point::min();           // the last renewal that succeeded
    std::atomic<time_point> certain_until_{time_point()}; // follows from it
    std::atomic<bool> suspect_ = false;
    time_point well_since_ = time_point::min();
    std::atomic<session_end> reason_ = session_end::none;
    revocation revocation_ = revocation::none;
    answer trouble_;             // with the revocation
    std::string failed_renewal_; // why the last renewal failed, if it did
    notifier changed_;
    notifier turned_; // for `until`; apart, since `changed_` cuts the pauses of renewals short
    std::map<std::uint64_t, held_keys*> held_; // by number: in order of arrival
    std::uint64_t last_number_ = 0;
    bool looks_ = false;  // whether what is held is still there
    answer refused_look_; // the last look, if it was refused
    bool told_ = false;   // of its end
};

inline asio::awaitable<bool> session_impl::try_renew(std::shared_ptr<session_impl> self) {
    const time_point began = self->world.now();
    const auto timeout = logic::renewal_timeout(self->ttl_);
    const time_point deadline = std::min(after(began, timeout), self->certain_until());
    const bool alone =
        self->suspect_ || logic::renews_alone(self->certain_until() - began, self->ttl_);
    const call_terms how{deadline, timeout, connection_kind::renewal};
    renewals::result a =
        co_await renewals::renew(self->owner->lease_renewals, self->lease_, how, alone);
    if (!a.ec && self->refused_look_.ec && !self->looks_) {
        co_await look_after_held(self);
        if (!self->alive()) {
            co_return true; // it took too long
        }
    }
    if (!a.ec && self->refused_look_.ec) { // see there
        a.ec = self->refused_look_.ec;
        a.text = "what it holds cannot be looked at: " + self->refused_look_.text;
    }
    if (const auto& observer = self->owner->options.observer; observer && !self->told_) {
        const time_point now = self->world.now();
        // A lease that we have ended need not be renewed.
        const error_code outcome = self->is_ended_by_us() ? error_code() : a.ec;
        observer->on_renewal({self->lease_, now - began, self->certain_until() - now, outcome});
    }
    if (a.ec && began < self->last_began_) {
        co_return true; // a later renewal has succeeded
    }
    const bool gone = logic::is_lease_gone(a.ec, a.text);
    if (a.ec && !gone) {
        self->set_suspect(true);
        self->well_since_ = self->world.now();
        self->failed_renewal_ = a.text;
        co_return false;
    }
    if (self->is_replaced()) {
        self->lose(session_end::cluster_replaced);
    } else if (!gone && is_there(a.response)) {
        self->renewed(began, a.sent, self->trusted_.renewed(a.response.ttl));
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
        const time_point next = std::min(after(self->last_began_, pause), self->certain_until());
        if (self->world.now() < next) {
            (void)co_await self->changed_.wait(next);
            continue;
        }
        (void)co_await renew(self);
        self->watches.drop_old();
    }
    self->tell_loss(); // for those who were not told for lack of memory
}

/// Runs from the first renewal to the end of the session. What fails for lack of memory is tried
/// again; if there is not even enough for a pause, the session ends.
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
    if (const auto& observer = self->owner->options.observer) {
        observer->on_session_open({self->lease_, self->ttl()});
    }
    constexpr std::chrono::milliseconds moment(100);
    for (bool over = false; !over;) {
        try {
            co_await renew_when_due(self);
            over = true;
        } catch (const std::bad_alloc&) {
            // There may be more memory in a moment.
        }
        if (!over) {
            co_await sleep_until(self->world, after(self->world.now(), moment));
        }
    }
}

} // namespace coetcd::detail

#include <coetcd/detail/service/session_end.hpp>
#include <coetcd/detail/service/session_looks.hpp>
#include <coetcd/detail/service/session_open.hpp>
#include <coetcd/detail/service/session_waits.hpp>
