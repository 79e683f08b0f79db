// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/places.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

/// Transactions as texts, and answers to them.
namespace support {

using coetcd::compare;
using coetcd::erase_request;
using coetcd::erase_response;
using coetcd::errc;
using coetcd::error;
using coetcd::key_range;
using coetcd::key_value;
using coetcd::op;
using coetcd::op_response;
using coetcd::put_request;
using coetcd::put_response;
using coetcd::range_options;
using coetcd::range_request;
using coetcd::range_response;
using coetcd::sort_order;
using coetcd::sort_target;
using coetcd::txn;
using coetcd::txn_response;

// A transaction as a text: "<conditions> ? <operations> : <operations, if they do not hold>".

inline std::string text(const key_range& range) {
    return range.range_end.empty() ? range.key : "[" + range.key + "," + range.range_end + ")";
}

inline std::string text(const compare& c) {
    const bool create = c.what == compare::target::create;
    const bool equal = c.how == compare::result::equal;
    if ((!create && c.what != compare::target::mod) ||
        (!equal && c.how != compare::result::greater)) {
        throw std::logic_error("a condition of another kind");
    }
    return (create ? "c(" : "m(") + text(c.range) + (equal ? ")=" : ")>") +
           std::to_string(std::get<std::int64_t>(c.operand));
}

inline std::string text(const op& o) {
    if (const auto* p = std::get_if<put_request>(&o)) {
        if (p->options.prev_kv || p->options.ignore_value || p->options.ignore_lease) {
            throw std::logic_error("a put of another kind");
        }
        return "put(" + p->key + "," + p->value + "," +
               coetcd::detail::logic::hex(std::uint64_t(p->options.lease)) + ")";
    }
    if (const auto* d = std::get_if<erase_request>(&o)) {
        return (d->options.prev_kv ? "erase_and_tell(" : "erase(") + text(d->range) + ")";
    }
    const auto& r = std::get<range_request>(o);
    const range_options& how = r.options;
    if (!how.keys_only || how.serializable || how.count_only || how.revision != 0 ||
        how.min_create_revision != 0 || how.min_mod_revision != 0 || how.max_mod_revision != 0) {
        throw std::logic_error("a read of another kind");
    }
    if (how.limit != 0 && how.order == sort_order::descend && how.target == sort_target::create) {
        const bool bounded = how.max_create_revision != 0;
        return "newest" + (how.limit == 1 ? "" : std::to_string(how.limit)) + "(" + text(r.range) +
               (bounded ? " to " + std::to_string(how.max_create_revision) : "") + ")";
    }
    if (how.limit != 0 || how.order != sort_order::none || how.max_create_revision != 0) {
        throw std::logic_error("a read of another kind");
    }
    return "get(" + text(r.range) + ")";
}

inline std::string text(const txn& t) {
    std::string out;
    for (const compare& c : t.compares) {
        out += text(c) + " ";
    }
    out += "?";
    for (const op& o : t.success) {
        out += " " + text(o);
    }
    out += " :";
    for (const op& o : t.failure) {
        out += " " + text(o);
    }
    return out;
}

// Answers.

inline key_value kv(std::string key, std::int64_t create_revision, std::int64_t mod_revision = 1) {
    key_value out;
    out.key = std::move(key);
    out.create_revision = create_revision;
    out.mod_revision = mod_revision;
    return out;
}

/// The answer to a read.
inline op_response found(std::vector<key_value> kvs) {
    range_response r;
    r.kvs = std::move(kvs);
    return r;
}
inline const op_response none = found({});

/// The answer to an erase.
/// @param told The lives that ended, if that was asked for.
inline op_response erased(std::int64_t count, std::vector<key_value> told = {}) {
    erase_response r;
    r.deleted = count;
    r.prev_kvs = std::move(told);
    return r;
}
inline const op_response put = put_response();

inline txn_response answer(bool succeeded, std::vector<op_response> responses) {
    txn_response r;
    r.succeeded = succeeded;
    r.header.revision = 50;
    r.responses = std::move(responses);
    return r;
}
inline txn_response yes(std::vector<op_response> responses) {
    return answer(true, std::move(responses));
}
inline txn_response no(std::vector<op_response> responses) {
    return answer(false, std::move(responses));
}
inline txn_response without_revision(txn_response r) {
    r.header.revision = 0;
    return r;
}

/// Whether the reading of an answer ends in `errc::protocol_error`.
inline bool refused(const std::function<void()>& read) {
    try {
        read();
        return false;
    } catch (const error& e) {
        return e.code() == errc::protocol_error;
    }
}

inline std::vector<std::string> names(const std::vector<coetcd::detail::logic::held_life>& all) {
    std::vector<std::string> out;
    for (const coetcd::detail::logic::held_life& life : all) {
        out.push_back(life.key + " " + std::to_string(life.create_revision));
    }
    return out;
}

} // namespace support
