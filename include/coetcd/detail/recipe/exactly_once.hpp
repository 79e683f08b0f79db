// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/read_again.hpp>
#include <coetcd/detail/recipe/once.hpp>
#include <coetcd/detail/wire/encode.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/txn_outcome.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace coetcd::detail {

/// @throws std::invalid_argument if etcd would not accept it within another transaction.
inline void require_fit_within(const txn& what) {
    // etcd 3.4 adds the longest inner list to the list that it is in.
    constexpr std::size_t most = 127;
    const std::size_t operations = std::max(what.success.size(), what.failure.size()) + 1;
    if (std::max(what.compares.size(), operations) > most) {
        throw std::invalid_argument(
            "txn: has more than 127 conditions, or more than 126 operations in a list");
    }
    txn outer;
    outer.success.push_back(op::nested(what));
    (void)wire::encode(outer); // it throws if it cannot be written
}

/// Reads from the history what a list of operations answered.
/// @returns Nothing if the history does not tell.
inline asio::awaitable<std::optional<std::vector<op_response>>> read_answers_again(
    std::shared_ptr<client_impl> by, std::vector<op> ops, std::int64_t at, call_terms how) {
    std::optional<std::vector<op_response>> result;
    const std::optional<txn> reads = logic::read_again(ops, at);
    if (reads) {
        txn_response said;
        if (!reads->success.empty()) {
            outcome<txn_response> a =
                co_await ask_alone(std::move(by), *reads, how.as(impact::none));
            if (a.ec) {
                co_return result;
            }
            said = std::move(a.response);
        }
        result = logic::as_answered(ops, said, at);
    }
    co_return result;
}

inline asio::awaitable<txn_outcome> carry_out_once(std::shared_ptr<const named_recipe> by,
                                                   txn what) {
    once_writer writer(by->session, by->name, by->title);
    const call_terms in_time = by->within();
    txn request = what;
    once_end end = co_await writer.apply(std::move(request), once_writer::form::either, in_time);
    txn_outcome result;
    result.succeeded = end.mark.ends_with(logic::marks::then);
    result.revision = end.revision;
    if (end.answered) {
        result.responses = std::move(end.answered->responses);
    } else {
        std::vector<op> done = std::move(result.succeeded ? what.success : what.failure);
        result.responses =
            co_await read_answers_again(by->session->owner, std::move(done), end.revision, in_time);
    }
    co_return result;
}

} // namespace coetcd::detail
