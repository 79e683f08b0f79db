// SPDX-License-Identifier: BSL-1.0
// What docs/pages/recipes/mirror.md shows.
#include <coetcd/client.hpp>
#include <coetcd/mirror.hpp>

#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <iostream>
#include <string>

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace manual {

asio::awaitable<void> mirror_smallest(coetcd::client client) {
    const coetcd::mirror config = co_await coetcd::open_mirror(client, "config/");
    if (const coetcd::mirror_entry limit = config.get("config/limit")) { // no round trip
        std::cout << "the limit is " << limit->value << '\n';
    }
}

asio::awaitable<void> mirror_changes(const coetcd::mirror& config) {
    coetcd::mirror_changes changes = config.changes();
    for (;;) {
        const coetcd::mirror_batch batch = co_await changes.next(); // first: all there is
        for (const coetcd::mirror_change& c : batch.changes) {
            std::cout << c.key() << ": " << (c.was ? c.was->value : "nothing") << " -> "
                      << (c.is ? c.is->value : "nothing") << '\n';
        }
    }
}

asio::awaitable<void> mirror_own_write(coetcd::client client, const coetcd::mirror& config) {
    const coetcd::put_response written = co_await client.put("config/limit", "7");
    co_await config.wait(written.header.revision);
    std::cout << config.get("config/limit")->value << '\n'; // 7, or what somebody else wrote since
}

void mirror_age(const coetcd::mirror& config) {
    if (const auto trouble = config.trouble()) {
        std::cerr << trouble->what() << '\n';
    }
    if (config.age() > 30s) {
        std::cerr << "the configuration may be out of date\n";
    }
}

void mirror_snapshot(const coetcd::mirror& config) {
    const auto part = coetcd::key_range::prefix("config/routes/");
    const coetcd::mirror_snapshot routes = config.snapshot(part);
    std::cout << routes.entries.size() << " routes at revision " << routes.revision << '\n';
    for (const coetcd::mirror_entry& route : routes.entries) {
        std::cout << route->key << ' ' << route->value << '\n';
    }
}

} // namespace manual
