// SPDX-License-Identifier: BSL-1.0
// What docs/pages/testing.md shows.
#include <coetcd/client.hpp>
#include <coetcd/testing.hpp>

#include <boost/asio/awaitable.hpp>

#include <cassert>
#include <chrono>
#include <cstdint>
#include <functional>
#include <iostream>
#include <string>

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace manual {

asio::awaitable<bool> ship(coetcd::client client, std::string order);
void test_of_an_order(coetcd::testing::cluster_options options);

void an_order_is_shipped_once() {
    coetcd::testing::cluster etcd;
    const coetcd::client one = etcd.make_client();
    const coetcd::client other = etcd.make_client();

    auto shipping = etcd.start(one, ship(one, "42")); // your code, in the process of a client
    etcd.pass(1s);
    etcd.stall(one, 1min); // longer than its lease lasts
    auto again = etcd.start(other, ship(other, "42"));
    etcd.pass(2min);
    assert(again.get() && !shipping.get()); // it was shipped once
}

void many_orders() {
    for (std::uint64_t seed = 1; seed != 100; ++seed) {
        coetcd::testing::cluster_options options;
        options.seed = seed;
        test_of_an_order(options);
    }
}

asio::awaitable<void>
ship_at_last(coetcd::testing::cluster& etcd, coetcd::client client, std::string order);

void a_thousand_histories() {
    for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
        coetcd::testing::cluster_options options;
        options.seed = seed;
        coetcd::testing::cluster etcd(options);
        const coetcd::client one = etcd.make_client();
        const coetcd::client other = etcd.make_client();

        etcd.begin_faults();
        auto first = etcd.start(one, ship_at_last(etcd, one, "42")); // tries until it is shipped
        auto second = etcd.start(other, ship_at_last(etcd, other, "42"));
        etcd.pass(20s);
        etcd.end_faults();
        etcd.pass(2min);

        const bool ended = first.succeeded() && second.succeeded();
        const auto shipped = etcd.run(one, one.get("shipped/42"));
        if (!ended || !shipped || shipped->version != 1) {
            std::cout << "not shipped once, with seed " << seed << '\n';
            for (const std::string& fault : etcd.faults()) {
                std::cout << fault << '\n'; // 1.250 s  answer_lost  txn of client 0 to member 2
            }
        }
    }
}

void with_lost_answers(coetcd::testing::cluster& etcd) {
    auto lost_answers = coetcd::testing::fault_options::none();
    lost_answers.answer_lost = 0.2;
    etcd.begin_faults(lost_answers);
}

using pause = std::function<asio::awaitable<void>(std::chrono::nanoseconds)>;

pause pause_of_a_test(coetcd::testing::cluster& etcd, const coetcd::client& one) {
    const pause in_test = [&](std::chrono::nanoseconds time) { return etcd.sleep(one, time); };
    return in_test;
}

} // namespace manual
