// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/config.hpp>
#include <coetcd/error.hpp>

namespace coetcd {

namespace detail {

// Boost's base class has a protected destructor that is not virtual. Since it also has a friend,
// g++ warns of that.
#ifdef __GNUC__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wnon-virtual-dtor"
#endif

struct coetcd_category_impl final : boost::system::error_category {
    const char* name() const noexcept override { return "coetcd"; }
    std::string message(int value) const override {
        switch (static_cast<errc>(value)) {
        case errc::timed_out:
            return "timed out: nothing was changed; check the endpoints and that etcd has a "
                   "leader, or allow more time";
        case errc::unavailable:
            return "no etcd endpoint could serve this in time; check the endpoints, the network, "
                   "and that etcd has a leader";
        case errc::outcome_unknown:
            return "the answer was lost: the request may have been applied; read before repeating "
                   "it";
        case errc::protocol_error:
            return "no answer was one of etcd's JSON gateway; check the endpoints";
        case errc::too_large:
            return "the answer is over client_options::max_answer; raise it, or read in pages";
        case errc::session_lost:
            return "the session is lost and with it all its locks; open a new one";
        case errc::session_closed:
            return "the session was closed by this program, and all its locks with it";
        case errc::lock_lost:
            return "the lock's key was deleted by somebody else; lock again";
        case errc::not_owner:
            return "the lock is not held";
        case errc::watch_compacted:
            return "the watch needs history that was compacted; read the keys and watch again";
        case errc::watch_canceled:
            return "etcd ended the watch; watch again";
        case errc::tls_failed:
            return "no secure connection; check the certificates and the endpoint's name";
        case errc::login_failed:
            return "etcd refused the user or the password; check client_options::credentials";
        case errc::cn_auth_unsupported:
            return "etcd's gateway refuses a client certificate with a CommonName while "
                   "authentication is on; use one without, and a user and password";
        case errc::revision_regressed:
            return "etcd's store is older than what was seen of it, or another one, as after a "
                   "snapshot was restored; read the keys and watch again";
        case errc::conflict:
            return "others changed the same keys each time; nothing was changed, try again later";
        case errc::wrong_kind:
            return "what is stored under this name is of another kind; use another name";
        case errc::hold_expired:
            return "the lock was held for as long as it may be, and was given back; lock again";
        case errc::exceeds_limit:
            return "more was asked for than the semaphore's limit, or it has none; raise or store "
                   "the limit, or ask for less";
        case errc::wrong_cluster:
            return "an endpoint leads to another etcd cluster; nothing was changed in this "
                   "client's; check the endpoints";
        case errc::corrupt_snapshot:
            return "the snapshot is not what etcd has sent, and was not kept; take another one";
        case errc::already_exists:
            return "the key is somebody else's; nothing was changed, use another key, or wait "
                   "until it is gone";
        }
        return "unknown coetcd error";
    }
};

struct server_category_impl final : boost::system::error_category {
    const char* name() const noexcept override { return "etcd"; }
    std::string message(int value) const override {
        switch (static_cast<server_errc>(value)) {
        case server_errc::canceled:
            return "canceled";
        case server_errc::unknown:
            return "unknown error";
        case server_errc::invalid_argument:
            return "invalid argument";
        case server_errc::deadline_exceeded:
            return "deadline exceeded";
        case server_errc::not_found:
            return "not found";
        case server_errc::already_exists:
            return "already exists";
        case server_errc::permission_denied:
            return "permission denied";
        case server_errc::resource_exhausted:
            return "resource exhausted";
        case server_errc::failed_precondition:
            return "failed precondition";
        case server_errc::aborted:
            return "aborted";
        case server_errc::out_of_range:
            return "out of range";
        case server_errc::unimplemented:
            return "not implemented by this etcd";
        case server_errc::internal:
            return "internal error";
        case server_errc::unavailable:
            return "unavailable";
        case server_errc::data_loss:
            return "data loss";
        case server_errc::unauthenticated:
            return "unauthenticated";
        }
        return "unknown gRPC code";
    }
};

struct condition_category_impl final : boost::system::error_category {
    const char* name() const noexcept override { return "coetcd.condition"; }
    std::string message(int value) const override {
        switch (static_cast<condition>(value)) {
        case condition::retryable:
            return "retryable";
        case condition::outcome_unknown:
            return "outcome unknown";
        case condition::ownership_lost:
            return "ownership lost";
        }
        return "unknown condition";
    }
    bool equivalent(const error_code& code, int value) const noexcept override {
        switch (static_cast<condition>(value)) {
        case condition::retryable:
            return code == errc::timed_out || code == errc::unavailable ||
                   code == errc::protocol_error || code == errc::conflict;
        case condition::outcome_unknown:
            return code == errc::outcome_unknown;
        case condition::ownership_lost:
            return code == errc::session_lost || code == errc::session_closed ||
                   code == errc::lock_lost || code == errc::hold_expired || code == errc::not_owner;
        }
        return false;
    }
};

#ifdef __GNUC__
#pragma GCC diagnostic pop
#endif

} // namespace detail

COETCD_DECL const char* to_string(errc e) noexcept {
    switch (e) {
    case errc::timed_out:
        return "timed_out";
    case errc::unavailable:
        return "unavailable";
    case errc::outcome_unknown:
        return "outcome_unknown";
    case errc::protocol_error:
        return "protocol_error";
    case errc::too_large:
        return "too_large";
    case errc::session_lost:
        return "session_lost";
    case errc::session_closed:
        return "session_closed";
    case errc::lock_lost:
        return "lock_lost";
    case errc::not_owner:
        return "not_owner";
    case errc::watch_compacted:
        return "watch_compacted";
    case errc::watch_canceled:
        return "watch_canceled";
    case errc::tls_failed:
        return "tls_failed";
    case errc::login_failed:
        return "login_failed";
    case errc::cn_auth_unsupported:
        return "cn_auth_unsupported";
    case errc::revision_regressed:
        return "revision_regressed";
    case errc::conflict:
        return "conflict";
    case errc::exceeds_limit:
        return "exceeds_limit";
    case errc::wrong_kind:
        return "wrong_kind";
    case errc::hold_expired:
        return "hold_expired";
    case errc::wrong_cluster:
        return "wrong_cluster";
    case errc::corrupt_snapshot:
        return "corrupt_snapshot";
    case errc::already_exists:
        return "already_exists";
    }
    return "unknown";
}

COETCD_DECL const char* to_string(server_errc e) noexcept {
    switch (e) {
    case server_errc::canceled:
        return "canceled";
    case server_errc::unknown:
        return "unknown";
    case server_errc::invalid_argument:
        return "invalid_argument";
    case server_errc::deadline_exceeded:
        return "deadline_exceeded";
    case server_errc::not_found:
        return "not_found";
    case server_errc::already_exists:
        return "already_exists";
    case server_errc::permission_denied:
        return "permission_denied";
    case server_errc::resource_exhausted:
        return "resource_exhausted";
    case server_errc::failed_precondition:
        return "failed_precondition";
    case server_errc::aborted:
        return "aborted";
    case server_errc::out_of_range:
        return "out_of_range";
    case server_errc::unimplemented:
        return "unimplemented";
    case server_errc::internal:
        return "internal";
    case server_errc::unavailable:
        return "unavailable";
    case server_errc::data_loss:
        return "data_loss";
    case server_errc::unauthenticated:
        return "unauthenticated";
    }
    return "unknown";
}

COETCD_DECL const char* to_string(condition c) noexcept {
    switch (c) {
    case condition::retryable:
        return "retryable";
    case condition::outcome_unknown:
        return "outcome_unknown";
    case condition::ownership_lost:
        return "ownership_lost";
    }
    return "unknown";
}

COETCD_DECL const boost::system::error_category& coetcd_category() noexcept {
    static const detail::coetcd_category_impl instance;
    return instance;
}

COETCD_DECL const boost::system::error_category& server_category() noexcept {
    static const detail::server_category_impl instance;
    return instance;
}

COETCD_DECL const boost::system::error_category& condition_category() noexcept {
    static const detail::condition_category_impl instance;
    return instance;
}

COETCD_DECL error_code make_error_code(errc e) noexcept {
    return {static_cast<int>(e), coetcd_category()};
}

COETCD_DECL error_code make_error_code(server_errc e) noexcept {
    return {static_cast<int>(e), server_category()};
}

COETCD_DECL boost::system::error_condition make_error_condition(condition c) noexcept {
    return {static_cast<int>(c), condition_category()};
}

} // namespace coetcd
