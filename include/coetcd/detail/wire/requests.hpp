// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/rpc.hpp>
#include <coetcd/detail/wire/auth.hpp>
#include <coetcd/detail/wire/cluster.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/lease.hpp>
#include <coetcd/member_status.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <variant>
#include <vector>

namespace coetcd::detail::wire {

// Requests that users make by name and argument; those about keys are in <coetcd/kv.hpp>.

struct compaction_request {
    std::int64_t revision = 0;
    bool physical = false;
};

struct lease_grant_request {
    std::chrono::seconds ttl{0};
    lease_id id = 0; ///< 0 to let etcd choose one.
};

struct lease_revoke_request {
    lease_id id = 0;
};

struct lease_keep_alive_request {
    lease_id id = 0;
};

struct lease_time_to_live_request {
    lease_id id = 0;
    bool keys = false;
};

struct lease_leases_request {};

/// How the gateway writes an answer.
enum class answer_form {
    whole,  ///< As a message.
    stream, ///< As a stream, with one message for each in the body of the request.
    bare    ///< As a message that may lack the header, and so not name the cluster.
};

template<rpc What, class Response, answer_form Form = answer_form::whole>
struct answered_by {
    static constexpr rpc what = What;
    static constexpr answer_form form = Form;
    using response = Response;
};

/// The call that makes a request, and the type of its answer.
template<class Request>
struct request_traits;

template<>
struct request_traits<range_request> : answered_by<rpc::range, range_response> {};
template<>
struct request_traits<put_request> : answered_by<rpc::put, put_response> {};
template<>
struct request_traits<erase_request> : answered_by<rpc::delete_range, erase_response> {};
template<>
struct request_traits<txn> : answered_by<rpc::txn, txn_response> {};
template<>
struct request_traits<compaction_request> : answered_by<rpc::compact, compaction_response> {};
template<>
struct request_traits<lease_grant_request> : answered_by<rpc::lease_grant, lease_grant_response> {};
template<>
struct request_traits<lease_revoke_request>
    : answered_by<rpc::lease_revoke, lease_revoke_response> {};
template<>
struct request_traits<lease_keep_alive_request>
    : answered_by<rpc::lease_keep_alive, lease_keep_alive_response, answer_form::stream> {};
template<>
struct request_traits<lease_time_to_live_request>
    : answered_by<rpc::lease_time_to_live, lease_time_to_live_response> {};
template<>
struct request_traits<lease_leases_request>
    : answered_by<rpc::lease_leases, lease_leases_response> {};
template<>
struct request_traits<authenticate_request>
    : answered_by<rpc::authenticate, authenticate_response> {};
template<>
struct request_traits<member_list_request> : answered_by<rpc::member_list, member_list_response> {};
template<>
struct request_traits<status_request> : answered_by<rpc::status, member_status> {};

template<class Request>
using response_of = typename request_traits<Request>::response;

// Whether etcd's answer to a request may be as large as what users have stored. No other answer
// ever exceeds a limit that anybody would set.

template<class Request>
bool may_be_large(const Request&) {
    return false;
}
inline bool may_be_large(const range_request& r) {
    return !r.options.count_only;
}
inline bool may_be_large(const put_request& r) {
    return r.options.prev_kv;
}
inline bool may_be_large(const erase_request& r) {
    return r.options.prev_kv;
}
inline bool may_be_large(const lease_time_to_live_request& r) {
    return r.keys;
}
inline bool may_be_large(const lease_leases_request&) {
    return true;
}
inline bool may_be_large(const txn& t) {
    const auto any = [](const std::vector<op>& operations) {
        return std::any_of(operations.begin(), operations.end(), [](const op& o) {
            return std::visit([](const auto& each) { return may_be_large(each); },
                              static_cast<const op::variant&>(o));
        });
    };
    return any(t.success) || any(t.failure);
}

} // namespace coetcd::detail::wire
