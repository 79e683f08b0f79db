// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/question.hpp>
#include <coetcd/detail/recipe/once.hpp>
#include <coetcd/detail/service/call.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/detail/service/session.hpp>
#include <coetcd/detail/wire/printable.hpp>
#include <coetcd/detail/wire/watch.hpp>
#include <coetcd/kv.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace coetcd::detail {

struct value_impl {
    /// @param s If null, a write whose answer is lost stays in doubt.
    value_impl(std::shared_ptr<client_impl> c,
               std::shared_ptr<session_impl> s,
               std::chrono::nanoseconds t,
               std::string n)
        : owner(std::move(c))
        , session(std::move(s))
        , timeout(t)
        , name(named_recipe::checked(std::move(n)))
        , title("value \"" + wire::printable(name) + "\"") {}

    call_terms within() const { return owner->within(timeout); }

    const std::shared_ptr<client_impl> owner;
    const std::shared_ptr<session_impl> session;
    const std::chrono::nanoseconds timeout;
    const std::string name;
    const std::string title; ///< For messages.
};

inline asio::awaitable<std::optional<key_value>> get_value(std::shared_ptr<const value_impl> v) {
    return first_of(ask(v->owner, range_request(v->name), v->within()));
}

/// Asks what the value is, and what becomes of it.
inline logic::question<std::optional<key_value>> value_now(const value_impl& v) {
    using state = std::optional<key_value>;
    const auto from = [](const range_response& found) {
        return found.kvs.empty() ? state() : state(found.kvs.front());
    };
    const auto follow = [](const state&, const event& e) {
        const bool put = e.type == event_type::put;
        return std::optional<state>(std::in_place, put ? state(e.kv) : state());
    };
    wire::watch_create_request changes(key_range(v.name));
    return {v.title + ", changes", range_request(v.name), std::move(changes), from, follow};
}

/// @returns The revision at which it was made; nothing if it was refused.
inline asio::awaitable<std::optional<std::int64_t>> write_value(std::shared_ptr<const value_impl> v,
                                                                txn what) {
    std::optional<std::int64_t> written;
    if (v->session) {
        once_writer writer(v->session, v->name, v->title);
        const once_end end =
            co_await writer.apply(std::move(what), once_writer::form::plain, v->within());
        if (end.applied) {
            written = end.revision;
        }
    } else {
        const outcome<txn_response> a =
            co_await ask_alone(v->owner, std::move(what), v->within().as(impact::once));
        a.check();
        if (a.response.succeeded) {
            written = a.response.header.revision;
        }
    }
    co_return written;
}

inline asio::awaitable<std::int64_t> set_value(std::shared_ptr<const value_impl> v,
                                               std::string desired) {
    txn what = txn().then(op::put(v->name, std::move(desired)));
    const std::optional<std::int64_t> written = co_await write_value(v, std::move(what));
    if (!written) {
        throw error(errc::protocol_error, v->title + ": it was refused, without a reason");
    }
    co_return *written;
}

inline asio::awaitable<std::optional<std::int64_t>>
exchange_value(std::shared_ptr<const value_impl> v, std::int64_t expected, std::string desired) {
    txn what = txn()
                   .when(compare::mod_revision(v->name) == expected)
                   .then(op::put(v->name, std::move(desired)));
    return write_value(std::move(v), std::move(what));
}

} // namespace coetcd::detail
