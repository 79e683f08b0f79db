// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/places.hpp>
#include <coetcd/detail/logic/sequence.hpp>
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

inline std::int64_t require_sequence(const named_recipe& by, const range_response& read) {
    const std::optional<std::int64_t> last = logic::last_drawn(read);
    if (!last) {
        throw error(errc::wrong_kind, by.title + ": the key holds a value; a sequence's is empty");
    }
    return *last;
}

/// Puts the key of a sequence: its version is the number, and no two puts have the same version.
inline asio::awaitable<std::int64_t> next_number(std::shared_ptr<const named_recipe> by) {
    once_writer writer(by->session, by->name, by->title);
    const call_terms in_time = by->within();
    once_end end;
    for (bool exists = true; !end.applied;) {
        txn what = logic::draw(by->name, exists);
        end = co_await writer.apply(std::move(what), once_writer::form::plain, in_time);
        if (!end.applied) { // it was erased, or put, in between
            exists = require_sequence(*by, logic::answers::range_at(*end.answered, 0)) != 0;
        }
    }
    std::int64_t number = 0;
    std::string why = "the answer lacks it";
    if (end.answered) {
        number = logic::last_drawn(logic::answers::range_at(*end.answered, 1)).value_or(0);
    } else { // the history has the number
        range_options then;
        then.revision = end.revision;
        const range_request request(by->name, then);
        const outcome<range_response> a = co_await call(by->session->owner, request, in_time);
        number = a.ec ? 0 : logic::last_drawn(a.response).value_or(0);
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
    co_return require_sequence(*by, a.response);
}

} // namespace coetcd::detail
