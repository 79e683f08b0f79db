// SPDX-License-Identifier: BSL-1.0
// What docs/pages/operating.md shows.
#include <coetcd/as_result.hpp>
#include <coetcd/client.hpp>
#include <coetcd/client_options.hpp>
#include <coetcd/dns_srv.hpp>
#include <coetcd/printable.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/this_coro.hpp>

#include <chrono>
#include <fstream>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace manual {

namespace {

std::string read_password() {
    std::ifstream file("/run/secrets/etcd");
    std::string line;
    std::getline(file, line);
    return line;
}

std::string read_token() {
    return read_password();
}

} // namespace

asio::awaitable<void> operating_user(std::string url) {
    const auto executor = co_await asio::this_coro::executor;
    coetcd::client_options options;
    options.credentials = coetcd::credentials("shop", [] { return read_password(); });
    const coetcd::client client(executor, url, options);
    (void)co_await client.get("orders");
}

coetcd::client operating_cluster(asio::any_io_executor executor) {
    const coetcd::endpoints cluster(
        "http://10.0.0.1:2379", "http://10.0.0.2:2379", "http://10.0.0.3:2379");
    coetcd::client_options options;
    options.member_refresh = 60s; // also members that are added later
    coetcd::client client(executor, cluster, options);
    return client;
}

void operating_token(asio::any_io_executor executor, const std::string& url) {
    coetcd::client_options options;
    options.token = [] { return read_token(); };
    coetcd::client client(executor, url, options);
    client.set_endpoints({"http://10.0.0.4:2379", "http://10.0.0.5:2379"});
}

asio::awaitable<void> operating_dns(coetcd::client_options options,
                                    asio::cancellation_signal& stop) {
    const auto executor = co_await asio::this_coro::executor;
    coetcd::srv_options how;
    how.scheme = coetcd::srv_scheme::https;
    const auto found = co_await coetcd::discover_endpoints("example.com", how);
    const coetcd::client client(executor, found, options);
    auto work = coetcd::follow_endpoints(client, "example.com", how);
    auto end = asio::bind_cancellation_slot(stop.slot(), asio::detached); // it has no other end
    asio::co_spawn(executor, std::move(work), std::move(end));
}

asio::awaitable<void> operating_status(asio::any_io_executor executor,
                                       std::vector<std::string> urls) {
    for (const std::string& url : urls) {
        const coetcd::client one(executor, url); // with one endpoint, that member answers
        const auto status = co_await coetcd::as_result(one.status());
        if (!status) {
            std::cout << url << ": " << status.error() << '\n';
            continue;
        }
        std::cout << url << ": " << status->version << ", " << status->db_size << " bytes\n";
        for (const std::string& trouble : status->errors) {
            std::cout << url << ": " << coetcd::printable(trouble) << '\n';
        }
    }
}

} // namespace manual
