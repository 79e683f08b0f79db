// For your own tests: the order handler of 15_http_server without a server, on an etcd in memory
// and a clock of its own. Minutes pass in milliseconds, and each run is the same.
#include <coetcd/testing.hpp>

#include <chrono>
#include <cstdlib>
#include <iostream>

#include "orders.hpp"

using namespace std::chrono_literals;
using coetcd::testing::cluster;
using shop::outcome;

namespace {

void check(bool holds, const char* what) {
    std::cout << (holds ? "holds: " : "DOES NOT HOLD: ") << what << '\n';
    if (!holds) {
        std::exit(1);
    }
}

/// A server, but for HTTP. To pack takes it ten seconds.
struct server {
    server(cluster& etcd, std::string name)
        : client(etcd.make_client())
        , sessions(client, coetcd::session_keeper_options(5s, name))
        , orders(client, sessions, name, [&etcd, this](std::string) {
            ++packed;
            return etcd.sleep(client, 10s);
        }) {}

    const coetcd::client client;
    coetcd::session_keeper sessions;
    int packed = 0;
    const shop::order_handler orders;
};

void two_ask_for_the_same() {
    cluster etcd;
    server first(etcd, "first");
    server second(etcd, "second");
    auto one = etcd.start(first.client, first.orders.ship("42"));
    etcd.pass(8s);
    auto other = etcd.start(second.client, second.orders.ship("42"));
    etcd.pass(4s);
    check(one.get().what == outcome::kind::shipped, "the first one ships the order");
    check(other.get().by == "first", "the second one is told so");
    check(second.packed == 0, "it has packed nothing");
}

void the_lease_is_lost_meanwhile() {
    cluster etcd;
    server first(etcd, "first");
    server second(etcd, "second");
    auto late = etcd.start(first.client, first.orders.ship("42"));
    etcd.pass(1s);
    etcd.stall(first.client, 1min); // its lease ends, and it does not know
    auto next = etcd.start(second.client, second.orders.ship("42"));
    etcd.pass(30s);
    check(next.get().what == outcome::kind::shipped, "the next one ships the order");
    check(!late.ended(), "the late one still knows nothing");
    etcd.pass(1min);
    check(late.ended() && !late.succeeded(), "the late one is told that its lock is lost");
    check(etcd.run(first.client, first.client.get("shipped/42"))->value == "second",
          "the order is shipped once");
}

} // namespace

int main() {
    two_ask_for_the_same();
    the_lease_is_lost_meanwhile();
}

// Prints:
//   holds: the first one ships the order
//   holds: the second one is told so
//   holds: it has packed nothing
//   holds: the next one ships the order
//   holds: the late one still knows nothing
//   holds: the late one is told that its lock is lost
//   holds: the order is shipped once
