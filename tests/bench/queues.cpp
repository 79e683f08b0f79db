// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/queue.hpp>
#include <coetcd/session.hpp>
#include <coetcd/work_queue.hpp>

#include <boost/asio/this_coro.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/measure.hpp"
#include "bench/worker.hpp"

namespace bench {
namespace {

awaitable<bool> take_one(coetcd::queue& from) {
    const std::optional<std::string> item = co_await from.try_dequeue();
    co_return item.has_value();
}
awaitable<bool> take_one(coetcd::work_queue& from) {
    std::optional<coetcd::job> item = co_await from.try_take();
    if (item) {
        co_await item->ack();
    }
    co_return item.has_value();
}

template<class Queue>
awaitable<void> fill(Queue& q, std::size_t items) {
    while (items != 0) {
        const std::size_t n = std::min<std::size_t>(items, Queue::max_batch);
        std::vector<std::string> batch(n, std::string(100, 'x'));
        co_await q.enqueue(std::move(batch));
        items -= n;
    }
}

template<class Queue>
awaitable<void> consume(Queue& q, long_run& all) {
    bool any = true;
    while (any && all.goes_on()) {
        const auto began = clock::now();
        any = co_await take_one(q);
        if (any) {
            all.add(began);
        }
    }
}

/// Consumers of a queue that is full, with a session each.
template<class Queue>
awaitable<json> drain(task t) {
    constexpr std::size_t consumers = 8;
    const auto executor = co_await boost::asio::this_coro::executor;
    const coetcd::client client(executor, coetcd::endpoints(urls_of(t)));
    const coetcd::session_options options{std::chrono::seconds(t.ttl)};
    std::vector<coetcd::session> sessions;
    std::deque<Queue> queues;
    for (std::size_t i = 0; i < consumers; ++i) {
        sessions.push_back(co_await coetcd::session::open(client, options));
        queues.emplace_back(sessions.back(), t.name);
    }
    co_await fill(queues.front(), t.count);
    long_run all(t);
    crew members(executor);
    for (Queue& q : queues) {
        members.start(consume(q, all));
    }
    (void)co_await members.joined();
    json result = all.to_json();
    for (coetcd::session& s : sessions) {
        co_await s.close();
    }
    co_return result;
}

} // namespace

awaitable<json> run_queue(task t) {
    return t.kind == "queue" ? drain<coetcd::queue>(std::move(t))
                             : drain<coetcd::work_queue>(std::move(t));
}

} // namespace bench
