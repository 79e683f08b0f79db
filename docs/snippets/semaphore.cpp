// SPDX-License-Identifier: BSL-1.0
// What docs/pages/recipes/semaphore.md shows.
#include <coetcd/semaphore.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <cstdint>
#include <iostream>

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace manual {

namespace {

asio::awaitable<void> import_file() {
    co_return;
}

} // namespace

asio::awaitable<void> semaphore_smallest(coetcd::session& session) {
    coetcd::semaphore imports(session, "imports", 3);       // three at a time, in the cluster
    co_await coetcd::with_permits(imports, 1, import_file); // cancelled if the permit is lost
}

asio::awaitable<void> semaphore_permits(coetcd::semaphore& imports) {
    {
        const coetcd::permit two = co_await imports.acquire(2); // waits for room for both
        co_await import_file();
    } // given back in the background

    coetcd::permit one = co_await imports.acquire();
    co_await import_file();
    co_await one.release(); // etcd knows
}

asio::awaitable<void> semaphore_patience(coetcd::semaphore& imports) {
    const auto soon = co_await imports.acquire_for(1, 500ms);
    if (!soon) {
        const coetcd::semaphore_state now = co_await imports.state();
        std::cout << now.used << " of " << now.limit << " are out\n";
    }
}

asio::awaitable<void> semaphore_without_limit(coetcd::session& session) {
    coetcd::semaphore shared(session, "imports");             // brings no limit
    const std::int64_t now = co_await shared.ensure_limit(3); // stores 3, unless one is stored
    std::cout << "at most " << now << " at a time\n";
}

asio::awaitable<std::int64_t> semaphore_limit(coetcd::semaphore& imports) {
    co_await imports.set_limit(5);
    const std::int64_t limit = co_await imports.adjust_limit(-2); // 3
    co_return limit;
}

} // namespace manual
