// SPDX-License-Identifier: BSL-1.0
#include "support/etcd_server.hpp"

#include <chrono>

#include "support/catch.hpp"
#include "support/run_test.hpp"

using namespace std::chrono_literals;

TEST_CASE("A private etcd keeps its data when it is restarted and killed", "[support]") {
    support::etcd_server server;
    REQUIRE(server.etcdctl({"put", "a", "1"}).exit_code == 0);
    const auto url = server.url();

    server.restart();
    CHECK(server.url() == url);
    CHECK(server.etcdctl({"get", "a", "--print-value-only"}).output == "1\n");

    server.kill();
    server.start();
    CHECK(server.etcdctl({"get", "a", "--print-value-only"}).output == "1\n");
}

TEST_CASE("A paused etcd does not answer until it is resumed", "[support]") {
    support::etcd_server server;
    server.pause();
    CHECK(server.etcdctl({"--command-timeout=300ms", "put", "a", "1"}).exit_code != 0);
    server.resume();
    CHECK(server.etcdctl({"put", "a", "1"}).exit_code == 0);
    server.pause();
    server.stop();
}

TEST_CASE("A test may await the output and the end of a child process", "[support]") {
    support::run_test([]() -> boost::asio::awaitable<void> {
        auto lock = support::shared_etcd().background_etcdctl({"lock", "support/lock"});
        const auto key = co_await lock.async_read_line();
        REQUIRE(key);
        CHECK_THAT(*key, support::contains("support/lock/"));
        lock.signal(SIGINT); // etcdctl then unlocks
        co_await lock.async_wait();
        CHECK(lock.wait_for(0ms));
    });
    CHECK(support::shared_etcd().etcdctl({"get", "--prefix", "support/"}).output.empty());
}
