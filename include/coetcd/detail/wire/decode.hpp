// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/wire/auth.hpp>
#include <coetcd/detail/wire/cluster.hpp>
#include <coetcd/detail/wire/json.hpp>
#include <coetcd/detail/wire/line_splitter.hpp>
#include <coetcd/detail/wire/requests.hpp>
#include <coetcd/detail/wire/status.hpp>
#include <coetcd/detail/wire/watch.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/lease.hpp>
#include <coetcd/member_status.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

namespace coetcd::detail::wire {

/// A message of a stream: an answer, or the failure that ends it.
template<class Response>
using stream_message = std::variant<Response, status>;

// Each function below reads one message; all throw `error` with `errc::protocol_error`. An absent
// field has its default value.

inline void read(const json_value& body, response_header& header) {
    header.cluster_id = read_uint64(body, "cluster_id");
    header.member_id = read_uint64(body, "member_id");
    header.revision = read_revision(body, "revision");
    header.raft_term = read_uint64(body, "raft_term");
}

inline void read(const json_value& body, key_value& kv) {
    kv.key = read_bytes(body, "key");
    kv.value = read_bytes(body, "value");
    kv.create_revision = read_revision(body, "create_revision");
    kv.mod_revision = read_revision(body, "mod_revision");
    kv.version = read_count(body, "version");
    kv.lease = read_int64(body, "lease");
}

inline std::optional<key_value> read_prev_kv(const json_value& body) {
    const auto* value = read_object(body, "prev_kv");
    if (!value) {
        return std::nullopt;
    }
    std::optional<key_value> kv(std::in_place);
    read(*value, *kv);
    return kv;
}

inline std::vector<key_value> read_kvs(const json_value& body, const char* name) {
    std::vector<key_value> kvs;
    const auto& items = read_array(body, name);
    kvs.reserve(items.size());
    for (const auto& item : items) {
        read(item, kvs.emplace_back());
    }
    return kvs;
}

/// A time to live; -1 stands for a lease that is gone.
inline std::chrono::seconds read_ttl(const json_value& body, const char* name) {
    const auto ttl = read_int64(body, name);
    if (ttl < -1 || ttl > 9'000'000'000) {
        fail_field(name, "a time to live");
    }
    return std::chrono::seconds(ttl);
}

inline void read_header(const json_value& body, response_header& header) {
    if (const auto* value = read_object(body, "header")) {
        read(*value, header);
    }
}

inline void read(const json_value& body, range_response& response) {
    read_header(body, response.header);
    response.kvs = read_kvs(body, "kvs");
    response.more = read_bool(body, "more");
    response.count = read_count(body, "count");
}

inline void read(const json_value& body, put_response& response) {
    read_header(body, response.header);
    response.prev_kv = read_prev_kv(body);
}

inline void read(const json_value& body, erase_response& response) {
    read_header(body, response.header);
    response.deleted = read_count(body, "deleted");
    response.prev_kvs = read_kvs(body, "prev_kvs");
}

inline void read(const json_value& body, txn_response& response);

inline op_response read_op_response(const json_value& body) {
    const auto to = [](const json_value& value, auto response) {
        read(value, response);
        return op_response(std::move(response));
    };
    if (const auto* value = read_object(body, "response_range")) {
        return to(*value, range_response());
    }
    if (const auto* value = read_object(body, "response_put")) {
        return to(*value, put_response());
    }
    if (const auto* value = read_object(body, "response_delete_range")) {
        return to(*value, erase_response());
    }
    return to(require_object(body, "response_txn"), txn_response());
}

inline void read(const json_value& body, txn_response& response) {
    read_header(body, response.header);
    response.succeeded = read_bool(body, "succeeded");
    for (const auto& item : read_array(body, "responses")) {
        response.responses.push_back(read_op_response(item));
    }
}

inline void read(const json_value& body, compaction_response& response) {
    read_header(body, response.header);
}

inline void read(const json_value& body, lease_grant_response& response) {
    read_header(body, response.header);
    response.id = read_int64(body, "ID");
    response.ttl = read_ttl(body, "TTL");
    if (response.id == 0 || response.ttl.count() < 1) {
        fail_protocol("no lease was granted");
    }
}

inline void read(const json_value& body, lease_revoke_response& response) {
    read_header(body, response.header);
}

inline void read(const json_value& body, lease_keep_alive_response& response) {
    read_header(body, response.header);
    response.id = read_int64(body, "ID");
    response.ttl = read_ttl(body, "TTL");
}

inline void read(const json_value& body, lease_time_to_live_response& response) {
    read_header(body, response.header);
    response.id = read_int64(body, "ID");
    response.ttl = read_ttl(body, "TTL");
    response.granted_ttl = read_ttl(body, "grantedTTL");
    for (const auto& item : read_array(body, "keys")) {
        response.keys.push_back(to_bytes(item, "keys"));
    }
}

inline void read(const json_value& body, lease_leases_response& response) {
    read_header(body, response.header);
    for (const auto& item : read_array(body, "leases")) {
        response.leases.push_back(read_int64(item, "ID"));
    }
}

inline void read(const json_value& body, event& change) {
    change.type = read_enum<event_type>(
        body, "type", {{"PUT", event_type::put}, {"DELETE", event_type::erase}});
    read(require_object(body, "kv"), change.kv);
    change.prev_kv = read_prev_kv(body);
}

inline void read(const json_value& body, watch_response& response) {
    read_header(body, response.header);
    response.watch_id = read_int64(body, "watch_id");
    response.created = read_bool(body, "created");
    response.canceled = read_bool(body, "canceled");
    response.compact_revision = read_revision(body, "compact_revision");
    response.cancel_reason = printable(read_text(body, "cancel_reason"));
    for (const auto& item : read_array(body, "events")) {
        read(item, response.events.emplace_back());
    }
}

inline void read(const json_value& body, authenticate_response& response) {
    read_header(body, response.header);
    response.token = read_text(body, "token");
    if (!is_token(response.token)) {
        fail_field("token", "a token");
    }
}

inline void read(const json_value& body, member& m) {
    m.id = read_uint64(body, "ID");
    m.name = read_text(body, "name");
    m.is_learner = read_bool(body, "isLearner");
    for (const auto& url : read_array(body, "peerURLs")) {
        m.peer_urls.push_back(to_text(url, "peerURLs"));
    }
    for (const auto& url : read_array(body, "clientURLs")) {
        m.client_urls.push_back(to_text(url, "clientURLs"));
    }
}

inline void read(const json_value& body, member_list_response& response) {
    read_header(body, response.header);
    for (const auto& item : read_array(body, "members")) {
        member& m = response.members.emplace_back();
        read(item, m);
    }
}

inline void read(const json_value& body, member_status& response) {
    read_header(body, response.header);
    response.version = read_text(body, "version");
    response.db_size = read_count(body, "dbSize");
    response.leader = read_uint64(body, "leader");
    response.raft_index = read_uint64(body, "raftIndex");
    response.is_learner = read_bool(body, "isLearner");
    for (const auto& text : read_array(body, "errors")) {
        response.errors.push_back(to_text(text, "errors"));
    }
}

/// Reads an answer. etcd never leaves out the header, nor the cluster in it. An answer without them
/// is not etcd's, or its fields were renamed on the way: then none of them can be relied upon.
template<class Response>
Response read_answer(const json_value& body) {
    require_object(body, "header");
    Response response;
    read(body, response);
    if (response.header.cluster_id == 0) {
        fail_protocol("the header has no 'cluster_id'");
    }
    return response;
}

/// Reads the answer to a request that succeeded.
template<class Response>
Response decode(std::string_view body) {
    return read_answer<Response>(parse(body).root());
}

/// Reads an answer that may lack the header. Only what it does not have tells that it is etcd's.
template<class Response>
Response decode_bare(std::string_view body) {
    const auto message = parse(body);
    Response response;
    read(message.root(), response); // it is an object
    for (const json_value& value : json_items(message.root())) {
        if (value.name != "header" && value.name != Response::field) {
            fail_protocol("it has a field that etcd's answer does not have");
        }
    }
    return response;
}

/// Reads one message of a stream. A failure is a value here, in every form that etcd gives it.
template<class Response>
stream_message<Response> decode_stream(std::string_view line) {
    const auto message = parse(line);
    if (auto failure = to_status(message.root())) {
        return *std::move(failure);
    }
    return read_answer<Response>(require_object(message.root(), "result"));
}

/// All that a stream said, once it has ended.
template<class Response>
struct whole_stream {
    std::vector<Response> messages;
    std::optional<status> failure; ///< The failure that ended it.
};

/// Reads the body of a stream that has ended.
template<class Response>
whole_stream<Response> decode_whole_stream(std::string_view body) {
    whole_stream<Response> all;
    line_splitter lines(body.size());
    lines.feed(body);
    for (std::string line; !all.failure && lines.finish(line);) {
        stream_message<Response> message = decode_stream<Response>(line);
        if (auto* failure = std::get_if<status>(&message)) {
            all.failure = std::move(*failure);
        } else {
            all.messages.push_back(std::get<Response>(std::move(message)));
        }
    }
    return all;
}

/// Reads the answer to a `Request`.
template<class Request>
stream_message<response_of<Request>> decode_answer(std::string_view body) {
    if constexpr (request_traits<Request>::form == answer_form::stream) {
        return decode_stream<response_of<Request>>(body);
    } else if constexpr (request_traits<Request>::form == answer_form::bare) {
        return decode_bare<response_of<Request>>(body);
    } else {
        return decode<response_of<Request>>(body);
    }
}

/// Whether a message of a stream that was cut off begins as one of etcd's.
inline bool begins_message(std::string_view beginning) {
    for (const std::string_view part : {"{", "\"result\""}) {
        beginning.remove_prefix(std::min(beginning.find_first_not_of(" \t\r\n"), beginning.size()));
        if (!beginning.starts_with(part)) {
            return false;
        }
        beginning.remove_prefix(part.size());
    }
    return true;
}

inline constexpr std::string_view events_field = "\"events\"";

/// Finds the number in the first field of this name, which includes the quotes.
/// @returns Nothing if it is not there, or not all of it.
inline std::optional<std::int64_t> find_number(std::string_view beginning, std::string_view name) {
    const auto named = beginning.find(name);
    if (named == beginning.npos) {
        return std::nullopt;
    }
    beginning.remove_prefix(named + name.size());
    beginning.remove_prefix(std::min(beginning.find_first_not_of(" :\""), beginning.size()));
    const char* const end = beginning.data() + beginning.size();
    std::int64_t number = 0;
    const auto [stop, failure] = std::from_chars(beginning.data(), end, number);
    const bool whole = failure == std::errc() && stop != end; // else there may be more digits
    return whole ? std::optional(number) : std::nullopt;
}

/// Finds the id of the watch in the beginning of a message: etcd writes it before the events.
inline std::optional<std::int64_t> find_watch_id(std::string_view beginning) {
    return find_number(beginning.substr(0, beginning.find(events_field)), "\"watch_id\"");
}

/// Finds the revision of the first event: etcd writes it after the key and before the value.
inline std::optional<std::int64_t> find_revision(std::string_view beginning) {
    beginning.remove_prefix(std::min(beginning.find(events_field), beginning.size()));
    return find_number(beginning, "\"mod_revision\"");
}

} // namespace coetcd::detail::wire
