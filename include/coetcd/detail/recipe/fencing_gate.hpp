// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/fencing_gate.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/detail/wire/printable.hpp>
#include <coetcd/error.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace coetcd::detail {

inline logic::passage require_gate(logic::passage how_it_went, const std::string& key) {
    if (!how_it_went.is_gate) {
        throw error(errc::wrong_kind,
                    "fencing_gate \"" + wire::printable(key) +
                        "\": the key holds something else than a token");
    }
    return how_it_went;
}

/// If an answer was lost, the token is admitted again, unless a greater one has come since.
inline asio::awaitable<bool>
come_through(std::shared_ptr<client_impl> by, call_terms how, std::string key, std::int64_t token) {
    const txn asks = logic::pass(key, token, std::nullopt);
    const txn_response said = co_await ask(by, asks, how.as(impact::idempotent));
    co_return require_gate(logic::after_pass(said, false), key).through;
}

inline asio::awaitable<std::optional<txn_response>> work_behind(std::shared_ptr<client_impl> by,
                                                                call_terms how,
                                                                std::string key,
                                                                std::int64_t token,
                                                                txn work) {
    const impact does = impact_of(work) == impact::none ? impact::idempotent : impact::once;
    const std::optional<txn> all(std::move(work));
    const txn asks = logic::pass(key, token, all);
    const txn_response said = co_await ask(by, asks, how.as(does));
    logic::passage how_it_went = require_gate(logic::after_pass(said, true), key);
    std::optional<txn_response> did;
    if (how_it_went.through) {
        did = std::move(how_it_went.did);
    }
    co_return did;
}

} // namespace coetcd::detail
