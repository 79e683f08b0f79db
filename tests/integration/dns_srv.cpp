// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/dns_srv.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/observer.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/error.hpp>
#include <boost/asio/this_coro.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "integration/common.hpp"
#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/etcd_server.hpp"
#include "support/name_server.hpp"
#include "support/run_test.hpp"
#include "support/tcp_proxy.hpp"

using namespace std::chrono_literals;
using namespace support;

namespace {

/// Where the last request was answered.
class last_endpoint final : public coetcd::observer {
public:
    void on_request(const coetcd::request_report& r) override {
        if (!r.outcome) {
            where = r.endpoint;
        }
    }
    std::string where;
};

dns_zone records_of(std::uint16_t port) {
    dns_zone zone;
    zone["_etcd-client._tcp.example.com"] = {dns_srv{0, 0, port, "localhost"}};
    return zone;
}

} // namespace

TEST_CASE("A cluster is found by DNS, and followed with a lock held", "[dns]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        tcp_proxy proxy(executor, shared_etcd().port());
        const std::string url = proxy.url();
        const auto port = static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)));
        name_server names(executor, dns_from(records_of(port)));
        coetcd::srv_options how;
        how.name_servers = names.servers();
        how.refresh = 5ms;
        const std::vector<std::string> found =
            co_await coetcd::discover_endpoints("example.com", how);
        const std::string first = "http://localhost:" + std::to_string(port);
        REQUIRE(found == std::vector<std::string>{first});

        const auto seen = std::make_shared<last_endpoint>();
        coetcd::client_options options;
        options.observer = seen;
        const coetcd::client client(executor, found, options);
        coetcd::session session = co_await coetcd::session::open(client, 10s);
        coetcd::mutex mutex(session, unique_name("dns"));
        co_await mutex.lock();
        CHECK(seen->where == first);

        task<void> following(executor, coetcd::follow_endpoints(client, "example.com", how));
        co_await names.until_asked(names.asked().size() + 3);
        (void)co_await client.get("k");
        CHECK(seen->where == first);
        names.answer_by(dns_from(records_of(shared_etcd().port())));
        const std::string second = "http://localhost:" + std::to_string(shared_etcd().port());
        auto moved = [client, seen, second]() -> awaitable<bool> {
            (void)co_await client.get("k");
            co_return seen->where == second;
        };
        co_await eventually(moved, 10s, "the client is where DNS says");
        proxy.refuse(true);
        proxy.cut();
        CHECK(mutex.owns_lock());
        const bool given_back = co_await mutex.unlock();
        CHECK(given_back);
        CHECK(seen->where == second);
        co_await session.close();

        following.cancel();
        const ending e = co_await following.how_it_ended();
        CHECK(e.code == asio::error::operation_aborted);
    });
}
