// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/rpc.hpp>
#include <coetcd/detail/wire/decode.hpp>
#include <coetcd/detail/wire/encode.hpp>
#include <coetcd/detail/wire/json.hpp>
#include <coetcd/detail/wire/printable.hpp>
#include <coetcd/detail/wire/requests.hpp>
#include <coetcd/detail/wire/status.hpp>
#include <coetcd/kv.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

// The messages about alarms, databases of members, and versions.
namespace coetcd::detail::wire {

struct alarm_request {
    enum class act { list, raise, disarm }; // in etcd's order
    act action = act::list;
    std::uint64_t member_id = 0;
    std::int64_t type = 0; ///< In etcd's order; 0: all.
};

struct defragment_request {};

struct hash_kv_request {
    std::int64_t revision = 0; ///< 0: the newest one.
};

struct move_leader_request {
    std::uint64_t target = 0;
};

struct downgrade_request {
    enum class act { validate, enable, cancel }; // in etcd's order
    act action = act::validate;
    std::string version;
};

struct alarm_member {
    std::uint64_t member_id = 0;
    std::int64_t type = 0;
};

struct alarm_response {
    static constexpr std::string_view field = "alarms";
    response_header header; ///< Empty before 3.5.
    std::vector<alarm_member> alarms;
};

/// An answer that says nothing.
struct empty_response {
    static constexpr std::string_view field = {};
    response_header header; ///< Empty.
};

struct hash_kv_response {
    response_header header;
    std::uint32_t hash = 0;
    std::int64_t compact_revision = 0;
    std::int64_t hash_revision = 0;
};

struct downgrade_response {
    response_header header;
    std::string version;
};

template<>
struct request_traits<alarm_request> : answered_by<rpc::alarm, alarm_response, answer_form::bare> {
};
template<>
struct request_traits<defragment_request>
    : answered_by<rpc::defragment, empty_response, answer_form::bare> {};
template<>
struct request_traits<move_leader_request>
    : answered_by<rpc::move_leader, empty_response, answer_form::bare> {};
template<>
struct request_traits<hash_kv_request> : answered_by<rpc::hash_kv, hash_kv_response> {};
template<>
struct request_traits<downgrade_request> : answered_by<rpc::downgrade, downgrade_response> {};

inline void append(std::string& out, const alarm_request& request) {
    object_writer object(out);
    object.choice("action", request.action);
    object.natural("memberID", request.member_id);
    object.number("alarm", request.type);
    object.end();
}

inline void append(std::string& out, const defragment_request&) {
    out += "{}";
}

inline void append(std::string& out, const hash_kv_request& request) {
    object_writer object(out);
    object.number("revision", request.revision);
    object.end();
}

inline void append(std::string& out, const move_leader_request& request) {
    object_writer object(out);
    object.natural("targetID", request.target);
    object.end();
}

inline void append(std::string& out, const downgrade_request& request) {
    object_writer object(out);
    object.choice("action", request.action);
    if (!request.version.empty()) {
        object.start("version");
        append_json_string(out, request.version);
    }
    object.end();
}

inline void read(const json_value& body, alarm_response& response) {
    read_header(body, response.header);
    for (const auto& item : read_array(body, "alarms")) {
        alarm_member& a = response.alarms.emplace_back();
        a.member_id = read_uint64(item, "memberID");
        a.type =
            read_enum<std::int64_t>(item, "alarm", {{"NONE", 0}, {"NOSPACE", 1}, {"CORRUPT", 2}});
    }
}

inline void read(const json_value& body, empty_response& response) {
    read_header(body, response.header);
}

inline void read(const json_value& body, hash_kv_response& response) {
    read_header(body, response.header);
    response.hash = read_integer<std::uint32_t>(body, "hash");
    response.compact_revision = read_int64(body, "compact_revision");
    response.hash_revision = read_int64(body, "hash_revision");
}

inline void read(const json_value& body, downgrade_response& response) {
    read_header(body, response.header);
    response.version = printable(read_text(body, "version"));
}

/// A piece of a snapshot. It has no header.
struct snapshot_piece {
    std::uint64_t remaining = 0; ///< Bytes of the database that come after it.
    std::string bytes;
    std::string version; ///< Of the storage; since 3.6.
};

/// Reads one message of a snapshot.
inline std::variant<snapshot_piece, status> decode_snapshot(std::string_view line) {
    const auto message = parse(line);
    if (auto failure = to_status(message.root())) {
        return *std::move(failure);
    }
    const json_value& body = require_object(message.root(), "result");
    snapshot_piece piece;
    piece.remaining = read_uint64(body, "remaining_bytes");
    piece.bytes = read_bytes(body, "blob");
    piece.version = printable(read_text(body, "version"));
    return piece;
}

} // namespace coetcd::detail::wire
