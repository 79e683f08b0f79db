// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/claim_times.hpp>
#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/logic/lease_clock.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/logic/timed_claim.hpp>
#include <coetcd/detail/recipe/admin.hpp>
#include <coetcd/detail/recipe/vigil.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/detail/service/lease.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace coetcd::detail {

/// A name that was claimed for a time. Its lease is revoked when it is given back.
class claim_impl : public std::enable_shared_from_this<claim_impl> {
public:
    claim_impl(std::shared_ptr<client_impl> c,
               std::chrono::nanoseconds t,
               std::string k,
               lease_id l,
               std::int64_t r,
               time_point u,
               time_point m)
        : owner(std::move(c))
        , timeout(t)
        , key(std::move(k))
        , lease(l)
        , token(r)
        , until(u)
        , at_least_until(m)
        , changed_(*owner->world) {}

    const std::shared_ptr<client_impl> owner;
    const std::chrono::nanoseconds timeout;
    const std::string key;
    const lease_id lease;
    const std::int64_t token;
    const time_point until;          ///< The claim is certain to exist until then.
    const time_point at_least_until; ///< Until then it is not given back to others.

    // These may be called from anywhere.
    bool valid() const { return !given_back_ && owner->world->now() < until; }
    std::chrono::nanoseconds left() const {
        return valid() ? until - owner->world->now() : std::chrono::nanoseconds(0);
    }
    void keep() { kept_ = true; }
    /// Called when nobody has a handle to it any more.
    void drop() {
        if (!kept_ && !given_back_) {
            begin_to_release();
        }
    }

    /// Gives it back at the call; await it to know that etcd knows.
    static asio::awaitable<bool> release(const std::shared_ptr<claim_impl>& self) {
        self->begin_to_release();
        return self->owner->home(until_released(self));
    }
    /// Gives it back in the background, unless that was done or is under way.
    void begin_to_release() {
        given_back_ = true;
        at_home(*owner->world, [self = shared_from_this()] {
            if (self->now_ == state::there) {
                self->now_ = state::leaving;
                spawn(*self->owner->world, leave(self));
            }
        });
    }

private:
    enum class state { there, leaving, gone };

    static asio::awaitable<void> leave(std::shared_ptr<claim_impl> self) {
        const time_point now = self->owner->world->now();
        const auto rest = logic::rest_of_min_hold(now, self->at_least_until);
        if (rest) {
            return outlast(std::move(self), *rest);
        }
        return revoke(std::move(self));
    }

    /// Gives the key a lease that ends when the minimum has passed, in place of the one that lasts
    /// for longer. From then on that one has no key, or still has it if this fails: in either case
    /// the key stays for long enough.
    static asio::awaitable<void> outlast(std::shared_ptr<claim_impl> self,
                                         std::chrono::seconds rest) {
        const call_terms how = self->owner->within(self->timeout);
        lease_guard next(self->owner);
        outcome<txn_response> changed;
        try {
            (void)co_await next.grant(how, rest);
            next.release(); // from now on the key may have it
            const txn change = logic::change_lease(self->key, self->token, next.lease());
            changed = co_await call(self->owner, change, how.as(impact::idempotent));
            if (changed.ec == server_errc::not_found) {
                changed.ec = errc::timed_out; // it took so long that the new lease has ended
            }
        } catch (const error& e) {
            changed.ec = e.code();
            changed.text = e.what();
        }
        self->trouble_ = changed;
        self->was_there_ = !changed.ec && changed.response.succeeded;
        self->now_ = changed.ec ? state::there : state::gone;
        if (!changed.ec) {
            end_lease_quietly(self->owner, self->lease, self->timeout);
        }
        if (!changed.ec && !changed.response.succeeded) {
            end_lease_quietly(self->owner, next.lease(), self->timeout); // the key has gone
        }
        self->changed_.notify_all();
    }

    static asio::awaitable<void> revoke(std::shared_ptr<claim_impl> self) {
        const call_terms how = self->owner->within(self->timeout);
        auto revoking = try_to_revoke(self->owner, how, self->lease);
        const outcome<lease_revoke_response> revoked = co_await std::move(revoking);
        self->trouble_ = revoked;
        if (revoked.ec == server_errc::not_found) {
            self->trouble_.ec.clear();
        }
        self->was_there_ =
            !revoked.ec || (!self->trouble_.ec && revoked.left == logic::effect::unresolved);
        self->now_ = self->trouble_.ec ? state::there : state::gone;
        self->changed_.notify_all();
    }
    static asio::awaitable<bool> until_released(std::shared_ptr<claim_impl> self) {
        while (self->now_ == state::leaving) {
            (void)co_await self->changed_.wait();
        }
        if (self->now_ == state::there) {
            self->trouble_.check();
        }
        const bool told = std::exchange(self->told_, true);
        co_return self->was_there_ && !told;
    }

    std::atomic<bool> given_back_ = false;
    std::atomic<bool> kept_ = false;
    state now_ = state::there; // its lease
    bool was_there_ = false;   // when it was revoked
    bool told_ = false;        // that it was
    answer trouble_;           // with that
    notifier changed_;
};

/// The outcome of one try.
struct claim_try {
    std::shared_ptr<claim_impl> claim; ///< Null if somebody else is there.
    std::optional<logic::predecessor> ahead;
    time_point sent{}; ///< When the request was sent whose answer told so.
};

/// Grants a lease, and takes the name with it if that is free. Whatever ends it without a claim,
/// the lease is revoked in the background, and with it goes the key, if it was put.
inline asio::awaitable<claim_try> try_to_claim(std::shared_ptr<client_impl> by,
                                               call_terms how,
                                               std::chrono::nanoseconds timeout,
                                               std::string name,
                                               claim_times times) {
    lease_guard guard(by);
    outcome<lease_grant_response> granted;
    try {
        granted = co_await guard.grant(how, times.hold);
    } catch (const error& e) {
        if (e.code() == errc::outcome_unknown) {
            throw error(errc::timed_out, // nothing of it stays
                        logic::words_of(e) + "; a lease that it may have left is given back");
        }
        throw;
    }
    const lease_id lease = guard.lease();
    guard.may_be_used(timeout);
    const txn takes = logic::take_for_a_time(name, lease);
    outcome<txn_response> said = co_await call(by, takes, how.as(impact::idempotent));
    if (said.ec == errc::outcome_unknown || said.ec == server_errc::not_found) {
        said.ec = errc::timed_out; // also if it took so long that the lease has ended
    }
    check_lock_answer(said, name, "try_claim");
    const logic::claiming now = logic::after_taking_for_a_time(said.response, name, lease);
    claim_try result;
    result.ahead = now.ahead;
    result.sent = said.sent;
    if (now.token == 0) {
        co_return result;
    }
    auto world = by->world;
    const logic::trusted_ttl ttl(times.hold, granted.response.ttl); // no renewal confirms it
    const time_point until = after(granted.sent, logic::certain(ttl.at_first()));
    // Taken by now, at the latest.
    const time_point at_least_until =
        times.min_hold.count() > 0 ? after(world->now(), times.min_hold) : time_point::min();
    const bool lasts = at_least_until <= after(granted.sent, ttl.at_first());
    const auto made = make_at_home<claim_impl>(std::move(world),
                                               by,
                                               timeout,
                                               logic::claim_key(name, lease),
                                               lease,
                                               now.token,
                                               until,
                                               lasts ? at_least_until : time_point::min());
    guard.release();
    auto at_end = [made](claim_impl*) { made->drop(); }; // from anywhere
    result.claim = std::shared_ptr<claim_impl>(made.get(), std::move(at_end));
    if (!made->valid() || !lasts) {
        throw error(errc::timed_out,
                    "try_claim \"" + wire::printable(name) + "\": etcd was too slow");
    }
    co_return result;
}

/// Waits until a key ahead has gone.
/// @returns False if the deadline came first.
inline asio::awaitable<bool> until_free(std::shared_ptr<client_impl> by,
                                        std::string name,
                                        logic::predecessor ahead,
                                        time_point known,
                                        std::chrono::seconds hold,
                                        time_point deadline) {
    notifier wake(*by->world);
    vigil watching(by, hold, wake);
    auto wait = watching.until_gone(ahead.key, ahead.create_revision, known, deadline);
    const vigil::end how = co_await std::move(wait);
    if (how == vigil::end::failed) {
        answer failure;
        failure.ec = watching.failure;
        failure.text = watching.failure_text;
        check_lock_answer(failure, name, "claim_for");
    }
    co_return how == vigil::end::moved;
}

/// Reads which owner is there now, if there is one.
inline asio::awaitable<std::optional<logic::predecessor>>
who_has(std::shared_ptr<client_impl> by, call_terms how, std::string name) {
    const range_request oldest = logic::oldest_key_of(name);
    const outcome<range_response> read = co_await call(by, oldest, how);
    check_lock_answer(read, name, "claim_for");
    co_return logic::first_in(read.response);
}

/// One round of `claim_until`: a try if nobody is there, otherwise a wait for that key to go and a
/// look.
/// @param last What is known of the owner that is there; set to what is known now.
inline asio::awaitable<void> claim_round(std::shared_ptr<client_impl> by,
                                         std::chrono::nanoseconds timeout,
                                         std::string name,
                                         claim_times times,
                                         time_point deadline,
                                         claim_try& last) {
    env& world = *by->world;
    const auto in_time = [&] {
        call_terms how = by->within(timeout);
        how.deadline = std::min(how.deadline, deadline);
        return how;
    };
    if (!last.ahead) {
        auto tries = try_to_claim(by, in_time(), timeout, name, times);
        last = co_await std::move(tries);
        co_return;
    }
    auto waits = until_free(by, name, *last.ahead, last.sent, times.hold, deadline);
    const bool free = co_await std::move(waits);
    if (!free) {
        co_return;
    }
    last.ahead.reset();
    const time_point next = after(world.now(), logic::before_a_try(world.random()));
    co_await sleep_until(world, std::min(next, deadline));
    if (world.now() >= deadline) {
        co_return;
    }
    last.sent = world.now();
    auto looks = who_has(by, in_time(), name);
    last.ahead = co_await std::move(looks);
}

/// Tries, and tries again whenever the owner that is there has gone, until `deadline`.
/// @returns Null if others had it.
inline asio::awaitable<std::shared_ptr<claim_impl>> claim_until(std::shared_ptr<client_impl> by,
                                                                std::chrono::nanoseconds timeout,
                                                                std::string name,
                                                                claim_times times,
                                                                time_point deadline) {
    env& world = *by->world;
    claim_try last;
    bool busy = false; // somebody was there
    unsigned failures = 0;
    while (!last.claim && (!busy || world.now() < deadline)) {
        std::optional<error> failure;
        try {
            co_await claim_round(by, timeout, name, times, deadline, last);
        } catch (const error& e) {
            failure = e;
        }
        busy = busy || last.ahead.has_value();
        if (!failure) {
            failures = 0;
            continue;
        }
        const bool passing = logic::is_transient(failure->code());
        if (!passing || (world.now() >= deadline && !busy)) {
            throw error(*failure);
        }
        const time_point next = after(world.now(), logic::backoff(failures++, world.random()));
        co_await sleep_until(world, std::min(next, deadline));
    }
    co_return std::move(last.claim);
}

/// Tries once.
/// @returns Null if others have it.
inline asio::awaitable<std::shared_ptr<claim_impl>> claim_now(std::shared_ptr<client_impl> by,
                                                              std::chrono::nanoseconds timeout,
                                                              std::string name,
                                                              claim_times times) {
    auto tries = try_to_claim(by, by->within(timeout), timeout, std::move(name), times);
    claim_try tried = co_await std::move(tries);
    co_return std::move(tried.claim);
}

} // namespace coetcd::detail
