// SPDX-License-Identifier: BSL-1.0
// What docs/pages/recipes/work_queue.md shows.
#include <coetcd/kv.hpp>
#include <coetcd/session.hpp>
#include <coetcd/work_queue.hpp>

#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace manual {

namespace {

asio::awaitable<void> send_mail(std::string /*to*/) {
    co_return;
}

} // namespace

asio::awaitable<void> work_produce(coetcd::session& session) {
    coetcd::work_queue mails(session, "mails");
    co_await mails.enqueue(std::string("ada@example.com"));
    std::vector<std::string> more = {"bob@example.com", "eve@example.com"};
    co_await mails.enqueue(std::move(more)); // up to 60, next to each other, all or none
}

asio::awaitable<void> work_consume(coetcd::session& session) {
    coetcd::work_queue mails(session, "mails");
    for (;;) {
        coetcd::job next = co_await mails.take();
        co_await send_mail(next.value()); // if it throws, `next` is destroyed: somebody tries again
        co_await next.ack();              // only now the item is erased
    }
}

asio::awaitable<void> work_once(coetcd::work_queue& orders) {
    coetcd::job next = co_await orders.take();
    auto effect = coetcd::txn()
                      .when(coetcd::compare::value("stock") == "7")
                      .then(coetcd::op::put("stock", "6"));
    const bool done = co_await next.ack(std::move(effect)); // both, or neither
    if (!done && next.owns()) {
        std::cout << "the stock has changed: look again\n";
    } else if (!done) {
        std::cout << "somebody else has the order now\n";
    }
}

asio::awaitable<void> work_dead(coetcd::work_queue& mails) {
    std::vector<coetcd::dead_item> dead = co_await mails.dead();
    for (coetcd::dead_item& d : dead) {
        std::cout << d.value << " failed " << d.attempts << " times\n";
        co_await mails.revive(std::move(d)); // or erase_dead
    }
}

} // namespace manual
