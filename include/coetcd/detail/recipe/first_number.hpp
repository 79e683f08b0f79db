// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/first_number.hpp>
#include <coetcd/detail/service/call.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/detail/wire/printable.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace coetcd::detail {

/// Finds the number that counts for all users of a recipe, and stores ours if there is none.
/// @throws error `errc::wrong_kind` if it is none, or over `most`. Whether ours was stored is never
///   in doubt for a caller: it does not have to know.
inline asio::awaitable<std::int64_t> find_first_number(std::shared_ptr<client_impl> by,
                                                       std::string title,
                                                       std::string key,
                                                       std::int64_t ours,
                                                       std::int64_t most,
                                                       call_terms in_time) {
    const txn stores = logic::store_first(key, ours);
    outcome<txn_response> a = co_await call(std::move(by), stores, in_time.as(impact::idempotent));
    if (a.ec == errc::outcome_unknown) {
        a.ec = errc::timed_out;
    }
    if (a.ec) {
        throw error(a.ec, title + ": " + a.text);
    }
    const std::optional<std::int64_t> found = logic::first_stored(a.response);
    if (!found || *found > most) {
        throw error(errc::wrong_kind,
                    title + ": " + wire::printable(key) + " holds no number of such a kind");
    }
    co_return *found;
}

} // namespace coetcd::detail
