// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/recipe/once.hpp>
#include <coetcd/detail/service/call.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace coetcd::detail {

/// The version of a key at some time; 0 if it did not exist.
inline std::int64_t version_in(const range_response& r) {
    return r.kvs.empty() ? 0 : r.kvs.front().version;
}

/// Puts the key of a sequence: its version is the number, and no two puts have the same.
inline asio::awaitable<std::int64_t> next_number(std::shared_ptr<const named_recipe> by) {
    once_writer writer(by->session, by->name, by->title);
    const when in_time = by->within();
    txn what = txn().then(op::put(by->name, std::string()), op::range(by->name));
    const once_end end = co_await writer.apply(std::move(what), once_writer::form::plain, in_time);
    std::int64_t number = 0;
    std::string why = "the answer lacks it";
    if (end.answered) {
        number = version_in(logic::answers::range_at(*end.answered, 1));
    } else { // the history has it
        range_options then;
        then.revision = end.revision;
        const range_request request(by->name, then);
        const outcome<range_response> a = co_await call(by->session->owner, request, in_time);
        number = a.ec ? 0 : version_in(a.response);
        why = a.ec ? a.text : why;
    }
    if (number <= 0) {
        throw error(errc::outcome_unknown,
                    by->title + ": a number was drawn, and cannot be told: " + why);
    }
    co_return number;
}

inline asio::awaitable<std::int64_t> last_number(std::shared_ptr<const named_recipe> by) {
    const range_request request(by->name);
    const outcome<range_response> a = co_await call(by->session->owner, request, by->within());
    a.check();
    co_return version_in(a.response);
}

} // namespace coetcd::detail
