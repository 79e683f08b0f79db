// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/rpc.hpp>
#include <coetcd/detail/wire/cluster.hpp>
#include <coetcd/detail/wire/decode.hpp>
#include <coetcd/detail/wire/encode.hpp>
#include <coetcd/detail/wire/json.hpp>
#include <coetcd/detail/wire/requests.hpp>
#include <coetcd/kv.hpp>

#include <cstdint>
#include <string>
#include <vector>

// The messages that change the members of a cluster.
namespace coetcd::detail::wire {

struct member_add_request {
    std::vector<std::string> peer_urls;
    bool is_learner = false;
};

struct member_update_request {
    std::uint64_t id = 0;
    std::vector<std::string> peer_urls;
};

/// A call about one member.
template<rpc What>
struct member_request {
    std::uint64_t id = 0;
};

struct member_add_response {
    response_header header;
    member added;
};

template<>
struct request_traits<member_add_request> : answered_by<rpc::member_add, member_add_response> {};
template<>
struct request_traits<member_update_request>
    : answered_by<rpc::member_update, member_list_response> {};
template<rpc What>
struct request_traits<member_request<What>> : answered_by<What, member_list_response> {};

inline void
append_urls(object_writer& object, std::string& out, const std::vector<std::string>& urls) {
    list_writer list(object, out, "peerURLs");
    for (const std::string& url : urls) {
        append_json_string(list.next(), url);
    }
    list.end();
}

inline void append(std::string& out, const member_add_request& request) {
    object_writer object(out);
    append_urls(object, out, request.peer_urls);
    object.flag("isLearner", request.is_learner);
    object.end();
}

inline void append(std::string& out, const member_update_request& request) {
    object_writer object(out);
    object.natural("ID", request.id);
    append_urls(object, out, request.peer_urls);
    object.end();
}

template<rpc What>
void append(std::string& out, const member_request<What>& request) {
    object_writer object(out);
    object.natural("ID", request.id);
    object.end();
}

inline void read(const json_value& body, member_add_response& response) {
    read_header(body, response.header);
    read(require_object(body, "member"), response.added);
    if (response.added.id == 0) {
        fail_protocol("no member was added");
    }
}

} // namespace coetcd::detail::wire
