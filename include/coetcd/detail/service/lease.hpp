// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/logic/lease_clock.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/lease.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace coetcd::detail {

/// Whether a grant was refused because there is a lease of that number.
inline bool is_taken(const answer& a) {
    return a.ec == server_errc::failed_precondition &&
           a.text.find("lease already exists") != std::string::npos;
}

// How etcd says that there is no such lease.
inline bool is_there(const lease_keep_alive_response& r) {
    return r.ttl.count() > 0;
}
inline bool is_there(const lease_time_to_live_response& r) {
    return r.ttl.count() >= 0; // 0: in its last second
}

/// A number that nobody else has, since nobody can guess it. Positive, like etcd's own.
inline lease_id draw_lease(env& world) {
    return static_cast<lease_id>(world.random() >> 1) | 1;
}

/// Makes one renewal. A missing lease is not a failure, however etcd reports it.
inline asio::awaitable<outcome<lease_keep_alive_response>>
try_to_renew(std::shared_ptr<client_impl> impl, call_terms how, lease_id id) {
    const wire::lease_keep_alive_request request{id};
    outcome<lease_keep_alive_response> renewed = co_await call(std::move(impl), request, how);
    if (logic::is_lease_gone(renewed.ec, renewed.text)) {
        renewed.ec.clear();
        renewed.response.ttl = std::chrono::seconds(0);
    }
    co_return renewed;
}

/// @returns What was renewed, or is known to have ended. Throws other errors.
inline asio::awaitable<outcome<lease_keep_alive_response>>
lease_keep_alive(std::shared_ptr<client_impl> impl, call_terms how, lease_id id) {
    outcome<lease_keep_alive_response> renewed = co_await try_to_renew(std::move(impl), how, id);
    renewed.check();
    co_return renewed;
}

/// @returns Nothing if there is no such lease. Throws other errors.
inline asio::awaitable<std::optional<lease_keep_alive_response>>
renew_once(std::shared_ptr<client_impl> impl, call_terms how, lease_id id) {
    const outcome<lease_keep_alive_response> renewed =
        co_await lease_keep_alive(std::move(impl), how, id);
    std::optional<lease_keep_alive_response> there;
    if (is_there(renewed.response)) {
        there = renewed.response;
    }
    co_return there;
}

/// Grants a lease of a number that was drawn. If such a lease exists and an answer was lost, the
/// lease is ours. If it exists although no answer was lost, it is somebody else's: two may have
/// drawn the same number, if their source is broken, and would share the lease and its locks.
inline asio::awaitable<outcome<lease_grant_response>> try_to_grant(
    std::shared_ptr<client_impl> impl, call_terms how, std::chrono::seconds ttl, lease_id drawn) {
    const wire::lease_grant_request request{ttl, drawn};
    outcome<lease_grant_response> granted = co_await call(impl, request, how);
    if (is_taken(granted) && granted.left == logic::effect::unresolved) {
        // Another call has to tell its ttl.
        how.known.reset();
        lease_grant_response& response = granted.response;
        const outcome<lease_keep_alive_response> renewed =
            co_await try_to_renew(std::move(impl), how, drawn);
        if (renewed.ec) {
            throw error(errc::outcome_unknown, renewed.text);
        }
        if (is_there(renewed.response)) {
            response.header = renewed.response.header;
            response.id = renewed.response.id;
            response.ttl = std::min(ttl, renewed.response.ttl); // no grant says more
            granted.sent = renewed.sent;
            granted.ec.clear();
        } // otherwise it has ended meanwhile, and another number is to be drawn
    }
    granted.response.ttl = logic::credible_grant(ttl, granted.response.ttl);
    co_return granted;
}

/// @throws error if it was refused: `errc::outcome_unknown` if an earlier attempt may have done it.
inline void check_grant(const outcome<lease_grant_response>& granted) {
    if (granted.ec && granted.ec != errc::outcome_unknown &&
        granted.left == logic::effect::unresolved) {
        throw error(errc::outcome_unknown,
                    granted.text +
                        "; an earlier attempt, which was not answered, may have done it");
    }
    granted.check();
}

/// Has etcd end a lease. A missing lease is an error, `server_errc::not_found`. This refusal does
/// not tell which cluster it is from, so another answer has to say the same.
inline asio::awaitable<outcome<lease_revoke_response>>
try_to_revoke(std::shared_ptr<client_impl> impl, call_terms how, lease_id id) {
    const wire::lease_revoke_request request{id};
    outcome<lease_revoke_response> revoked = co_await call(impl, request, how);
    if (revoked.ec == server_errc::not_found) {
        const wire::lease_time_to_live_request question{id, false};
        const outcome<lease_time_to_live_response> asked = co_await call(impl, question, how);
        if (asked.ec && asked.ec != server_errc::not_found) {
            static_cast<answer&>(revoked) = asked;
        } else if (!asked.ec && is_there(asked.response)) {
            revoked = co_await call(std::move(impl), request, how);
        }
    }
    co_return revoked;
}

/// Has etcd end a lease. A missing lease is a success.
inline asio::awaitable<answer>
end_lease(std::shared_ptr<client_impl> impl, lease_id id, std::chrono::nanoseconds patience) {
    const call_terms how = impl->within(patience);
    const outcome<lease_revoke_response> revoked = co_await try_to_revoke(std::move(impl), how, id);
    answer result = revoked;
    if (result.ec == server_errc::not_found) {
        result.ec.clear();
    }
    co_return result;
}

/// Ends a lease in the background. If memory is short, the lease ends by itself.
inline void end_lease_quietly(std::shared_ptr<client_impl> impl,
                              lease_id id,
                              std::chrono::nanoseconds patience) noexcept {
    auto quietly = [](asio::awaitable<answer> work) -> asio::awaitable<void> {
        (void)co_await std::move(work);
    };
    env& world = *impl->world;
    try {
        spawn(world, quietly(end_lease(std::move(impl), id, patience)));
    } catch (const std::bad_alloc&) {
        // The lease ends by itself: nobody renews it.
    }
}

/// Grants a lease of a number that is drawn: the request can be repeated.
/// @param drawn Is told the number before it is sent. Must outlive the call.
/// @returns What was granted. Throws other errors.
inline asio::awaitable<outcome<lease_grant_response>> grant_drawn_lease(
    std::shared_ptr<client_impl> impl, call_terms how, std::chrono::seconds ttl, lease_id& drawn) {
    // A proxy that repeats a request by itself takes a number from us, and a granted lease may end
    // before we learn of it. After the cluster was replaced, all numbers seem to be taken until
    // that is known, some seconds at most.
    constexpr int draws = 10;
    // A copy of the request that comes after the lease has ended would grant it once more, and with
    // it, copies of what was done with the lease could be applied again. Where there may be such a
    // copy, another number is drawn, if there is time.
    const time_point begun = impl->world->now();
    const time_point halfway = begun + (how.deadline - begun) / 2;
    constexpr std::chrono::milliseconds first_pause{5};
    constexpr std::chrono::milliseconds longest_pause{1000};
    outcome<lease_grant_response> granted;
    for (int i = 0; i != draws; ++i) {
        if (i != 0) {
            const auto moment = logic::backoff(
                static_cast<unsigned>(i - 1), impl->world->random(), first_pause, longest_pause);
            const time_point next = after(impl->world->now(), moment);
            co_await sleep_until(*impl->world, std::min(next, how.deadline));
        }
        drawn = draw_lease(*impl->world);
        granted = co_await try_to_grant(impl, how, ttl, drawn);
        const bool may_come_again = !granted.ec && granted.left == logic::effect::unresolved;
        if (may_come_again && i + 1 != draws && impl->world->now() < halfway) {
            end_lease_quietly(impl, drawn, std::chrono::seconds(1));
        } else if (!is_taken(granted)) {
            break;
        }
    }
    check_grant(granted);
    co_return granted;
}

/// @param id 0 to have one drawn. Any other may belong to somebody else's lease.
inline asio::awaitable<lease_grant_response> lease_grant(std::shared_ptr<client_impl> impl,
                                                         call_terms how,
                                                         std::chrono::seconds ttl,
                                                         lease_id id) {
    outcome<lease_grant_response> granted;
    if (id == 0) {
        granted = co_await grant_drawn_lease(std::move(impl), how, ttl, id);
    } else {
        const wire::lease_grant_request request{ttl, id};
        granted = co_await call(std::move(impl), request, how);
        if (is_taken(granted) && granted.left == logic::effect::unresolved) {
            throw error(errc::outcome_unknown,
                        granted.text + "; it may be one that this very call granted");
        }
        check_grant(granted);
        granted.response.ttl = logic::credible_grant(ttl, granted.response.ttl);
    }
    co_return std::move(granted.response);
}

/// @returns Nothing if there is no such lease. Throws other errors.
inline asio::awaitable<std::optional<lease_revoke_response>>
lease_revoke(std::shared_ptr<client_impl> impl, call_terms how, lease_id id) {
    const outcome<lease_revoke_response> revoked = co_await try_to_revoke(std::move(impl), how, id);
    std::optional<lease_revoke_response> there;
    if (revoked.ec != server_errc::not_found) {
        revoked.check();
        there = revoked.response;
    } else if (revoked.left == logic::effect::unresolved) {
        there = revoked.response; // it was there, if an attempt of ours may have ended it
    }
    co_return there;
}

/// What `asking` tells of a lease; nothing if there is none.
template<class Response>
asio::awaitable<std::optional<Response>> if_there(asio::awaitable<Response> asking) {
    Response r = co_await std::move(asking);
    std::optional<Response> there;
    if (is_there(r)) {
        there.emplace(std::move(r));
    }
    co_return there;
}

/// A lease that is granted for something that does not exist yet. Whatever ends the work before
/// that, the lease that may have been granted is ended in the background.
class lease_guard {
public:
    explicit lease_guard(std::shared_ptr<client_impl> by)
        : by_(std::move(by)) {}
    ~lease_guard() {
        if (pending_ && lease_ != 0) { // a number was drawn
            end_lease_quietly(std::move(by_), lease_, patience_);
        }
    }
    lease_guard(const lease_guard&) = delete;
    lease_guard& operator=(const lease_guard&) = delete;

    /// As `grant_drawn_lease`. This object must outlive the call.
    asio::awaitable<outcome<lease_grant_response>> grant(call_terms how, std::chrono::seconds ttl) {
        pending_ = true;
        try {
            co_return co_await grant_drawn_lease(by_, how, ttl, lease_);
        } catch (const error& e) {
            pending_ = e.code() == errc::outcome_unknown;
            throw;
        }
    }
    lease_id lease() const { return lease_; }
    /// From now on a key may have the lease, and block others.
    /// @param patience How long to try to end it.
    void may_be_used(std::chrono::nanoseconds patience) { patience_ = patience; }
    /// The lease now has an owner, which ends it.
    void release() { pending_ = false; }

private:
    std::shared_ptr<client_impl> by_;
    lease_id lease_ = 0;
    bool pending_ = false;
    // A lease that no key has blocks nobody, and ends by itself, so a program that wants to exit
    // does not wait for it for long.
    std::chrono::nanoseconds patience_ = std::chrono::seconds(1);
};

/// @param what Its name, for the message.
inline void require_ttl(std::chrono::seconds ttl, const char* what = "ttl") {
    constexpr std::chrono::seconds longest(9'000'000'000); // etcd's
    if (ttl.count() <= 0 || ttl > longest) {
        throw std::invalid_argument(std::string(what) +
                                    ": must be from one second to 9,000,000,000");
    }
}

inline void require_lease(lease_id id) {
    if (id == 0) {
        throw std::invalid_argument("lease: 0 is no lease");
    }
}

} // namespace coetcd::detail
