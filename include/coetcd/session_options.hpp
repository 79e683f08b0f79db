// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>

namespace coetcd {

/// Options of a session.
class session_options {
public:
    /// @param lifetime The `ttl`; 10 s by default.
    /// @param shown The `label`; none by default.
    session_options(std::chrono::seconds lifetime = std::chrono::seconds(10),
                    std::string shown = {})
        : ttl(lifetime)
        , label(std::move(shown)) {}

    /// How long locks stay held after the process dies. Shorter: faster takeover. Longer: survives
    /// longer pauses. From 1 s to 9,000,000,000 s; etcd raises it to its minimum, by default 2 s:
    /// see `session::ttl`.
    std::chrono::seconds ttl;

    /// A name for people: `mutex::holder` shows it. It is stored in etcd as it is.
    std::string label;

    /// How many locks it keeps that nobody holds: see `lock_options::retain`. If there are more,
    /// those go that were not used for the longest time. 0: none.
    std::size_t retained = 1024;
};

enum class session_state {
    active,  ///< The last renewal succeeded.
    suspect, ///< The last renewal failed; there is time for more. Locks are still held.
    lost,    ///< It has ended for good. So have its locks.
};

/// Why a session is lost.
enum class session_end : int {
    none,           ///< It is not lost.
    expired,        ///< etcd no longer has the lease: it expired there, or was revoked.
    deadline,       ///< No renewal succeeded in time; etcd may have ended the lease.
    closed,         ///< `close` was called, or the session was destroyed.
    orphaned,       ///< `orphan` was called.
    cleanup_failed, ///< A key could not be deleted and would block others: the lease was given up.
    cluster_replaced, ///< The endpoints lead to another cluster now, which did not grant the lease.
};

/// The names of the enumerators, for logs and the labels of metrics; "unknown" for any other value.
const char* to_string(session_state state) noexcept;
const char* to_string(session_end reason) noexcept;

/// A sentence for people, such as "its lease expired or was revoked".
const char* describe(session_end reason) noexcept;

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/session_options.hpp>
#endif
