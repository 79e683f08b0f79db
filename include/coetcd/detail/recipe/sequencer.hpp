// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/sequencer.hpp>
#include <coetcd/detail/service/client.hpp>

#include <memory>
#include <optional>
#include <utility>

namespace coetcd::detail {

/// Whether the ownership that somebody claims to have still lasts.
inline asio::awaitable<bool> is_proved(std::shared_ptr<client_impl> by,
                                       call_terms how,
                                       std::optional<logic::sequencer> claimed) {
    if (!claimed) {
        co_return false;
    }
    const txn proof = logic::prove(*claimed);
    const txn_response said = co_await ask(by, proof, how.as(impact::none));
    co_return said.succeeded;
}

} // namespace coetcd::detail
