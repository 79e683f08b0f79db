// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/detail/service/session.hpp>
#include <coetcd/detail/service/session_keeper.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/session.hpp>

#include <chrono>
#include <memory>

namespace coetcd::detail {

/// Where a key is kept: in one session, or in whichever one a keeper has.
struct key_home {
    std::shared_ptr<session_impl> session;
    std::shared_ptr<session_keeper_impl> keeper;

    const std::shared_ptr<client_impl>& owner() const {
        return session ? session->owner : keeper->owner;
    }
    env& world() const { return *owner()->world; }
    std::chrono::nanoseconds timeout() const {
        return session ? session->request_timeout : keeper->timeout();
    }
    /// The lease that is certain to exist now; 0 for none. May be called from anywhere.
    lease_id live() const {
        if (session) {
            return session->is_certain() ? session->lease() : 0;
        }
        const std::shared_ptr<const coetcd::session> now = keeper->current();
        return now ? access::impl(*now)->lease() : 0;
    }
};

} // namespace coetcd::detail
