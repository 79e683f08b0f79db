// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <string>
#include <utility>

namespace coetcd {

/// Options of a session.
class session_options {
public:
    /// @param lifetime See `ttl`.
    /// @param shown See `label`.
    session_options(std::chrono::seconds lifetime = std::chrono::seconds(10),
                    std::string shown = {})
        : ttl(lifetime)
        , label(std::move(shown)) {}

    /// How long the session's locks outlive its process, when that dies or is cut off. Short:
    /// others wait less; long: a longer pause of the process or of etcd is survived. At least one
    /// second; etcd raises it to its minimum, by default two. What it grants counts:
    /// `session::ttl`.
    std::chrono::seconds ttl;

    /// Who this is, for people: `mutex::holder` shows it. It is stored in etcd, as it is.
    std::string label;
};

enum class session_state {
    active,  ///< The last renewal succeeded.
    suspect, ///< The last renewal failed; there is time for more. Locks are still held.
    lost,    ///< It is over, for good. So are its locks.
};

/// Why a session is lost.
enum class session_end : int {
    none,           ///< It is not.
    expired,        ///< etcd has no such lease any more: it expired there, or was revoked.
    deadline,       ///< No renewal succeeded in time; etcd may have ended the lease.
    closed,         ///< `close` was called, or the session was destroyed.
    orphaned,       ///< `orphan` was called.
    cleanup_failed, ///< A key that had to go could not be deleted, so the lease was given up.
};

const char* to_string(session_end reason) noexcept;

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/session_options.hpp>
#endif
