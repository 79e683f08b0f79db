// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/wire/auth.hpp>
#include <coetcd/detail/wire/base64.hpp>
#include <coetcd/detail/wire/cluster.hpp>
#include <coetcd/detail/wire/requests.hpp>
#include <coetcd/detail/wire/watch.hpp>
#include <coetcd/kv.hpp>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace coetcd::detail::wire {

/// How deep transactions may nest: deeper ones have answers that `parse` refuses.
inline constexpr int max_nested_txns = 3;

/// Writes one JSON object. Leaves out fields that have their default value, unless told `always`.
/// Names and words are ours, so that nothing needs an escape.
class object_writer {
public:
    explicit object_writer(std::string& out)
        : out_(out) {
        out_ += '{';
    }
    object_writer(const object_writer&) = delete;
    object_writer& operator=(const object_writer&) = delete;

    /// Starts a field; the caller appends its value.
    void start(std::string_view name) {
        if (!first_) {
            out_ += ',';
        }
        first_ = false;
        out_ += '"';
        out_ += name;
        out_ += "\":";
    }
    void bytes(std::string_view name, std::string_view value, bool always = false) {
        if (!value.empty() || always) {
            start(name);
            out_ += '"';
            append_base64(out_, value);
            out_ += '"';
        }
    }
    void number(std::string_view name, std::int64_t value, bool always = false) {
        if (value != 0 || always) {
            char digits[20];
            const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
            start(name);
            out_.append(digits, end);
        }
    }
    void natural(std::string_view name, std::uint64_t value) {
        if (value != 0) {
            char digits[20];
            const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
            start(name);
            out_.append(digits, end);
        }
    }
    void flag(std::string_view name, bool value) {
        if (value) {
            start(name);
            out_ += "true";
        }
    }
    /// Writes an enumerator as its number: ours are in etcd's order.
    template<class Enum>
    void choice(std::string_view name, Enum value) {
        number(name, static_cast<std::int64_t>(value));
    }
    void range(const key_range& keys) {
        bytes("key", keys.key);
        bytes("range_end", keys.range_end);
    }
    void end() { out_ += '}'; }

private:
    std::string& out_;
    bool first_ = true;
};

inline void append(std::string& out, const range_request& request) {
    const auto& options = request.options;
    if (options.limit < 0 || options.revision < 0) {
        throw std::invalid_argument("range_options: limit and revision must not be negative");
    }
    object_writer object(out);
    object.range(request.range);
    object.number("limit", options.limit);
    object.number("revision", options.revision);
    object.choice("sort_order", options.order);
    object.choice("sort_target", options.target);
    object.flag("serializable", options.serializable);
    object.flag("keys_only", options.keys_only);
    object.flag("count_only", options.count_only);
    object.number("min_mod_revision", options.min_mod_revision);
    object.number("max_mod_revision", options.max_mod_revision);
    object.number("min_create_revision", options.min_create_revision);
    object.number("max_create_revision", options.max_create_revision);
    object.end();
}

inline void append(std::string& out, const put_request& request) {
    object_writer object(out);
    object.bytes("key", request.key);
    object.bytes("value", request.value);
    object.number("lease", request.options.lease);
    object.flag("prev_kv", request.options.prev_kv);
    object.flag("ignore_value", request.options.ignore_value);
    object.flag("ignore_lease", request.options.ignore_lease);
    object.end();
}

inline void append(std::string& out, const erase_request& request) {
    object_writer object(out);
    object.range(request.range);
    object.flag("prev_kv", request.options.prev_kv);
    object.end();
}

/// Writes a list, if it has items.
class list_writer {
public:
    list_writer(object_writer& object, std::string& out, std::string_view name)
        : object_(object)
        , out_(out)
        , name_(name) {}
    list_writer(const list_writer&) = delete;
    list_writer& operator=(const list_writer&) = delete;

    /// Where the next item is to be appended.
    std::string& next() {
        if (empty_) {
            object_.start(name_);
        }
        out_ += std::exchange(empty_, false) ? '[' : ',';
        return out_;
    }
    void end() {
        if (!empty_) {
            out_ += ']';
        }
    }

private:
    object_writer& object_;
    std::string& out_;
    const std::string_view name_;
    bool empty_ = true;
};

inline void append(std::string& out, const compare& condition) {
    object_writer object(out);
    const std::int64_t number =
        condition.what == compare::target::value ? 0 : std::get<std::int64_t>(condition.operand);
    // A key that does not exist has version 0, like both its revisions; and a condition that says
    // nothing else compares the version with 0.
    if (condition.how == compare::result::equal && number == 0 &&
        condition.what != compare::target::value && condition.what != compare::target::lease) {
        object.range(condition.range);
        object.end();
        return;
    }
    object.choice("result", condition.how);
    object.choice("target", condition.what);
    object.range(condition.range);
    // The operand is always sent: etcd tells an absent one from a default one.
    switch (condition.what) {
    case compare::target::version:
        object.number("version", number, true);
        break;
    case compare::target::create:
        object.number("create_revision", number, true);
        break;
    case compare::target::mod:
        object.number("mod_revision", number, true);
        break;
    case compare::target::value:
        object.bytes("value", std::get<std::string>(condition.operand), true);
        break;
    case compare::target::lease:
        object.number("lease", number, true);
        break;
    }
    object.end();
}

inline void append(std::string& out, const txn& request, int level = 0);

/// @param level How deep the transaction that it belongs to is nested.
inline void append(std::string& out, const op& operation, int level) {
    object_writer kind(out);
    if (const auto* get = std::get_if<range_request>(&operation)) {
        kind.start("request_range");
        append(out, *get);
    } else if (const auto* put = std::get_if<put_request>(&operation)) {
        kind.start("request_put");
        append(out, *put);
    } else if (const auto* erase = std::get_if<erase_request>(&operation)) {
        kind.start("request_delete_range");
        append(out, *erase);
    } else {
        kind.start("request_txn");
        append(out, std::get<txn>(operation), level + 1);
    }
    kind.end();
}

inline void append(std::string& out, const txn& request, int level) {
    if (level > max_nested_txns) {
        throw std::invalid_argument("txn: transactions may nest " +
                                    std::to_string(max_nested_txns) + " deep");
    }
    object_writer object(out);
    list_writer compares(object, out, "compare");
    for (const compare& c : request.compares) {
        append(compares.next(), c);
    }
    compares.end();
    const auto operations = [&](std::string_view name, const std::vector<op>& all) {
        list_writer list(object, out, name);
        for (const op& o : all) {
            append(list.next(), o, level);
        }
        list.end();
    };
    operations("success", request.success);
    operations("failure", request.failure);
    object.end();
}

inline void append(std::string& out, const compaction_request& request) {
    object_writer object(out);
    object.number("revision", request.revision);
    object.flag("physical", request.physical);
    object.end();
}

inline void append(std::string& out, const lease_grant_request& request) {
    object_writer object(out);
    object.number("TTL", request.ttl.count());
    object.number("ID", request.id);
    object.end();
}

inline void append(std::string& out, const lease_revoke_request& request) {
    object_writer object(out);
    object.number("ID", request.id);
    object.end();
}

inline void append(std::string& out, const lease_keep_alive_request& request) {
    object_writer object(out);
    object.number("ID", request.id);
    object.end();
}

inline void append(std::string& out, const lease_time_to_live_request& request) {
    object_writer object(out);
    object.number("ID", request.id);
    object.flag("keys", request.keys);
    object.end();
}

inline void append(std::string& out, const lease_leases_request&) {
    out += "{}";
}

/// Appends text as a JSON string. JSON is UTF-8: etcd refuses anything else.
inline void append_json_string(std::string& out, std::string_view text) {
    constexpr std::string_view digits = "0123456789abcdef";
    out += '"';
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (byte < 0x20) {
            out += "\\u00";
            out += digits[byte / 16];
            out += digits[byte % 16];
        } else {
            out += c;
        }
    }
    out += '"';
}

/// The result holds the password, and the caller must wipe it. If `out` was empty, no second copy
/// of the password is left in memory.
inline void append(std::string& out, const authenticate_request& request) {
    const std::string_view password = request.password.view();
    out.reserve(64 + 6 * (request.name.size() + password.size()));
    object_writer object(out);
    object.start("name");
    append_json_string(out, request.name);
    object.start("password");
    append_json_string(out, password);
    object.end();
}

inline void append(std::string& out, const member_list_request&) {
    out += R"({"linearizable":true})";
}

inline void append(std::string& out, const status_request&) {
    out += "{}";
}

inline void append(std::string& out, const watch_create_request& request) {
    object_writer message(out);
    message.start("create_request");
    object_writer object(out);
    object.range(request.range);
    object.number("start_revision", request.start_revision);
    object.flag("progress_notify", request.progress_notify);
    if (request.no_put || request.no_delete) {
        object.start("filters");
        out += !request.no_put      ? R"(["NODELETE"])"
               : !request.no_delete ? R"(["NOPUT"])"
                                    : R"(["NOPUT","NODELETE"])";
    }
    object.flag("prev_kv", request.prev_kv);
    object.number("watch_id", request.watch_id);
    object.end();
    message.end();
}

inline void append(std::string& out, const watch_cancel_request& request) {
    object_writer message(out);
    message.start("cancel_request");
    object_writer object(out);
    object.number("watch_id", request.watch_id);
    object.end();
    message.end();
}

/// @throws std::invalid_argument if transactions nest more than `max_nested_txns` deep, or if a
///   range has a negative limit or revision.
template<class Request>
std::string encode(const Request& request) {
    std::string out;
    append(out, request);
    return out;
}

} // namespace coetcd::detail::wire
