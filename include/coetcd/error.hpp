// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/config.hpp>

#include <boost/system/error_category.hpp>
#include <boost/system/error_code.hpp>
#include <boost/system/error_condition.hpp>
#include <boost/system/system_error.hpp>

#include <string>
#include <type_traits>

namespace coetcd {

using error_code = boost::system::error_code;

/// Failures that the library itself finds. Cancellation is not among them: a cancelled operation
/// throws `boost::system::system_error` with `boost::asio::error::operation_aborted`.
enum class errc {
    timed_out = 1,   ///< The deadline passed; nothing was changed.
    unavailable,     ///< No endpoint could be reached, or none could serve; nothing was changed.
    outcome_unknown, ///< The request was sent and its answer was lost: it may have been applied.
    protocol_error,  ///< No answer came from etcd; nothing was changed.
    too_large,       ///< An answer over the limit of `client_options`.
    session_lost,    ///< The session's lease ended, or may have ended.
    session_closed,  ///< This program closed, orphaned or destroyed the session.
    lock_lost,       ///< The lock's key was deleted by somebody else.
    not_owner,       ///< The lock is not held, so there is nothing to prove or to share.
    watch_compacted, ///< History before the revision that the watch needs was compacted.
    watch_canceled,  ///< etcd ended the watch.
    tls_failed,      ///< No secure connection: an endpoint is not trusted, or does not trust us.
    login_failed,    ///< etcd refused the user or the password.
    cn_auth_unsupported, ///< The client certificate names a user, which the gateway refuses.
    revision_regressed,  ///< etcd's store is older than what was seen, or another one, restored.
    conflict,            ///< Others changed the same keys each time; nothing was changed by us.
    wrong_kind,          ///< What is stored under the name is not what this object keeps there.
    hold_expired,        ///< `lock_options::max_hold` has passed: the lock was given back.
    exceeds_limit,       ///< More was asked for than the semaphore's limit, or it has none.
    wrong_cluster,       ///< An endpoint leads to another cluster; nothing was changed in ours.
    corrupt_snapshot,    ///< A snapshot is not what etcd has sent; it was not kept.
    already_exists,      ///< The key is somebody else's; nothing was changed.
};

/// Failures that etcd reports: its gRPC codes.
enum class server_errc {
    canceled = 1,
    unknown = 2,
    invalid_argument = 3,
    deadline_exceeded = 4,
    not_found = 5,
    already_exists = 6,
    permission_denied = 7,
    resource_exhausted = 8,
    failed_precondition = 9,
    aborted = 10,
    out_of_range = 11,
    unimplemented = 12,
    internal = 13,
    unavailable = 14,
    data_loss = 15,
    unauthenticated = 16,
};

/// What a caller needs to know about a failure: `if (e.code() == coetcd::condition::retryable)`.
enum class condition {
    retryable = 1,   ///< Nothing was changed, and the same call may succeed later.
    outcome_unknown, ///< The change may have been applied: read before you repeat it.
    ownership_lost,  ///< A lock that was held, or waited for, is no longer ours.
};

/// The names of the enumerators, for logs and the labels of metrics; "unknown" for any other value.
/// `message()` of an `error_code` has the prose.
const char* to_string(errc e) noexcept;
const char* to_string(server_errc e) noexcept;
const char* to_string(condition c) noexcept;

const boost::system::error_category& coetcd_category() noexcept;
const boost::system::error_category& server_category() noexcept;
const boost::system::error_category& condition_category() noexcept;

error_code make_error_code(errc e) noexcept;
error_code make_error_code(server_errc e) noexcept;
boost::system::error_condition make_error_condition(condition c) noexcept;

/// What every failed operation throws: `code()` is for programs, `what()` is for logs. The text
/// says what happened, on which endpoint, and what to do. It holds no password, token or key,
/// unless a server puts one into its own words.
class error : public boost::system::system_error {
public:
    error(error_code code, const std::string& text)
        : system_error(code, text) {}
};

} // namespace coetcd

template<>
struct boost::system::is_error_code_enum<coetcd::errc> : std::true_type {};
template<>
struct boost::system::is_error_code_enum<coetcd::server_errc> : std::true_type {};
template<>
struct boost::system::is_error_condition_enum<coetcd::condition> : std::true_type {};

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/error.hpp>
#endif
