// SPDX-License-Identifier: BSL-1.0
#pragma once

// How the lease of a session that has ended is ended in etcd.

#include <coetcd/detail/service/lease.hpp>
#include <coetcd/detail/service/session.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

namespace coetcd::detail {

/// A revocation. Its outcome is told, even if it never begins.
struct session_impl::revoking {
    explicit revoking(std::shared_ptr<session_impl> s)
        : of(std::move(s)) {
        of->revocation_ = revocation::under_way;
        // Unless it gets further. The text is short, so it takes no memory.
        how_it_went.ec = errc::outcome_unknown;
        how_it_went.text = "out of memory";
    }
    ~revoking() {
        of->trouble_ = std::move(how_it_went);
        of->revocation_ = of->trouble_.ec ? revocation::failed : revocation::done;
        of->changed_.notify_all();
    }
    revoking(const revoking&) = delete;
    revoking& operator=(const revoking&) = delete;
    const std::shared_ptr<session_impl> of;
    answer how_it_went;
};

inline void session_impl::begin_to_revoke() {
    const bool there = gives_lease_up() && reason_ != session_end::expired;
    if (there && (revocation_ == revocation::none || revocation_ == revocation::failed)) {
        revocation_ = revocation::failed; // unless it begins
        trouble_.ec = errc::outcome_unknown;
        auto ends = std::make_unique<revoking>(shared_from_this());
        spawn(world, revoke(std::move(ends)));
    }
}

inline asio::awaitable<void> session_impl::revoke(std::unique_ptr<revoking> ends) {
    const session_impl& s = *ends->of;
    const auto patience = std::min<std::chrono::nanoseconds>(s.ttl(), std::chrono::seconds(5));
    auto ending = end_lease(s.owner, s.lease_, patience);
    ends->how_it_went = co_await std::move(ending);
}

inline asio::awaitable<void> session_impl::until_revoked(std::shared_ptr<session_impl> self,
                                                         std::shared_ptr<const closing> how) {
    bool is_second = false;
    while (!how->begun || self->revocation_ == revocation::under_way) {
        (void)co_await self->changed_.wait();
        if (how->joins && self->revocation_ == revocation::failed &&
            !std::exchange(is_second, true)) {
            self->begin_to_revoke();
        }
    }
    if (self->revocation_ == revocation::failed) {
        self->trouble_.check();
    }
}

} // namespace coetcd::detail
