// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/recipe/once.hpp>
#include <coetcd/detail/service/call.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/kv.hpp>

#include <boost/asio/awaitable.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

namespace coetcd::detail {

/// The newest revision of which etcd has told. A member that has stalled may answer a read with
/// what there was before; whoever acted on it would ask again at once, without end.
class newest_told {
public:
    void heed(std::int64_t revision) { newest_ = std::max(newest_, revision); }
    /// @param tries How many answers were older than that, so far. After several it is certain that
    ///   etcd was restored from a snapshot, and has nothing newer.
    /// @returns Whether an answer of that revision counts.
    bool accepts(std::int64_t revision, unsigned tries) {
        const bool counts = revision >= newest_ || tries == most;
        if (counts) {
            newest_ = revision;
        }
        return counts;
    }

private:
    static constexpr unsigned most = 8;
    std::int64_t newest_ = 0;
};

/// Reads, and again after a pause while the answer is older than what `told` knows of; that must
/// outlive the call.
inline asio::awaitable<outcome<txn_response>>
ask_anew(std::shared_ptr<client_impl> owner, txn question, call_terms how, newest_told& told) {
    outcome<txn_response> a;
    for (unsigned tries = 0;; ++tries) {
        a = co_await ask_alone(owner, question, how);
        if (a.ec || told.accepts(a.response.header.revision, tries)) {
            break;
        }
        env& world = *owner->world;
        co_await sleep_until(world, after(world.now(), logic::backoff(tries, world.random())));
    }
    co_return a;
}

} // namespace coetcd::detail
