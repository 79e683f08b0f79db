// SPDX-License-Identifier: BSL-1.0
// What docs/pages/recipes/queue.md shows.
#include <coetcd/priority_queue.hpp>
#include <coetcd/queue.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/awaitable.hpp>

#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace asio = boost::asio;

namespace manual {

asio::awaitable<void> queue_produce(coetcd::session& session) {
    coetcd::queue samples(session, "app/samples");
    co_await samples.enqueue(std::string("17.5"));
    std::vector<std::string> more = {"17.6", "17.4"};
    co_await samples.enqueue(std::move(more)); // up to 60, next to each other, all or none
}

asio::awaitable<void> queue_consume(coetcd::session& session) {
    coetcd::queue samples(session, "app/samples");
    for (;;) {
        const std::string next = co_await samples.dequeue();
        std::cout << next << '\n';
    }
}

asio::awaitable<void> queue_priorities(coetcd::session& session) {
    coetcd::priority_queue alerts(session, "app/alerts");
    co_await alerts.enqueue("disk full", 0); // the most urgent
    co_await alerts.enqueue("disk nearly full", 10);
    const std::string first = co_await alerts.dequeue(); // "disk full"
    std::cout << first << '\n';
}

} // namespace manual
