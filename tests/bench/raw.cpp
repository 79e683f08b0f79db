// SPDX-License-Identifier: BSL-1.0
// The floor: the requests of a lock and nothing else, over connections that are kept.
#include <coetcd/detail/wire/base64.hpp>
#include <coetcd/detail/wire/encode.hpp>

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <utility>
#include <vector>

#include "bench/connection.hpp"
#include "bench/raw_bodies.hpp"
#include "bench/worker.hpp"

namespace bench {
namespace {

namespace wire = coetcd::detail::wire;

constexpr std::size_t most_connections = 8; // as many as the library makes by default

awaitable<void> lock_and_unlock_once(connection& c, const pair_bodies& bodies) {
    co_await c.txn(bodies.lock.with({}));
    co_await c.txn(bodies.unlock.with(c.revision));
}

struct turns {
    explicit turns(const task& t, std::int64_t lease)
        : bodies(t.name, lease) {}
    pass_bodies bodies;
    std::size_t count = 0;
};

awaitable<void> pass_once(connection& c, turns& all) {
    if (all.count == 0) {
        co_await c.txn(all.bodies.lock.with({}));
    } else {
        co_await c.txn(all.bodies.pass[(all.count - 1) % 2].with(c.revision));
    }
    ++all.count;
}

} // namespace

awaitable<json> run_raw(task t) {
    const std::size_t width =
        t.kind == "one-name" ? 1 : std::min<std::size_t>(t.count, most_connections);
    const auto connections = co_await open_connections(t.url, width);
    connection& first = *connections.front();
    const wire::lease_grant_request grant{std::chrono::minutes(10), 0};
    co_await first.post("/v3/lease/grant", wire::encode(grant));
    const auto lease = std::stoll(std::string(quoted(first.answer(), "\"ID\":\"")));

    std::vector<pair_bodies> bodies;
    for (std::size_t i = 0; i < width; ++i) {
        bodies.emplace_back(t.name + "-" + std::to_string(i), lease);
    }
    turns all(t, lease);
    lock_and_unlock own_names = [&](std::size_t i) {
        return lock_and_unlock_once(*connections[i], bodies[i]);
    };
    lock_and_unlock one_name = [&](std::size_t) { return pass_once(first, all); };
    json result;
    if (t.kind == "one-name") {
        result = co_await measure_pairs(std::move(one_name), width, t.seconds, t.server);
    } else {
        result = co_await measure_pairs(std::move(own_names), width, t.seconds, t.server);
    }
    const wire::lease_revoke_request revoke{lease};
    co_await first.post("/v3/lease/revoke", wire::encode(revoke));
    co_return result;
}

namespace {

/// Writes once every `pause`, and catches up by one write at most.
awaitable<void> write_often(connection& c, std::string key, nanoseconds pause) {
    std::string body = "{\"key\":\"";
    wire::append_base64(body, key);
    body += "\",\"value\":\"eA==\"}";
    asio::steady_timer pace(co_await asio::this_coro::executor, clock::now());
    for (;;) {
        co_await c.post("/v3/kv/put", body);
        pace.expires_at(std::max(pace.expiry() + pause, clock::now() - pause));
        co_await pace.async_wait(asio::use_awaitable);
    }
}

} // namespace

awaitable<json> run_writer(task t) {
    constexpr std::size_t writers = 16;
    const auto connections = co_await open_connections(t.url, writers);
    crew all(co_await asio::this_coro::executor);
    for (std::size_t i = 0; i < writers; ++i) {
        all.start(write_often(*connections[i],
                              t.name + "-" + std::to_string(i),
                              nanoseconds(std::chrono::seconds(writers)) / t.count));
    }
    json ready;
    ready["ready"] = true;
    tell(ready);
    (void)co_await all.joined();
    co_return ready;
}

} // namespace bench
