// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/config.hpp>
#include <coetcd/session_options.hpp>

namespace coetcd {

COETCD_DECL const char* to_string(session_state state) noexcept {
    switch (state) {
    case session_state::active:
        return "active";
    case session_state::suspect:
        return "suspect";
    case session_state::lost:
        return "lost";
    }
    return "unknown";
}

COETCD_DECL const char* to_string(session_end reason) noexcept {
    switch (reason) {
    case session_end::none:
        return "none";
    case session_end::expired:
        return "expired";
    case session_end::deadline:
        return "deadline";
    case session_end::closed:
        return "closed";
    case session_end::orphaned:
        return "orphaned";
    case session_end::cleanup_failed:
        return "cleanup_failed";
    case session_end::cluster_replaced:
        return "cluster_replaced";
    }
    return "unknown";
}

COETCD_DECL const char* describe(session_end reason) noexcept {
    switch (reason) {
    case session_end::none:
        return "it is not lost";
    case session_end::expired:
        return "its lease expired or was revoked";
    case session_end::deadline:
        return "no renewal succeeded in time";
    case session_end::closed:
        return "it was closed";
    case session_end::orphaned:
        return "its lease was orphaned";
    case session_end::cleanup_failed:
        return "a key could not be deleted, so the lease was given up";
    case session_end::cluster_replaced:
        return "the endpoints lead to another cluster now, which did not grant the lease";
    }
    return "";
}

} // namespace coetcd
