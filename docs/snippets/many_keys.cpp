// SPDX-License-Identifier: BSL-1.0
// What docs/pages/recipes/many_keys.md shows.
#include <coetcd/bulk.hpp>
#include <coetcd/client.hpp>
#include <coetcd/pages.hpp>

#include <boost/asio/awaitable.hpp>

#include <cstddef>
#include <iostream>
#include <optional>
#include <utility>
#include <vector>

namespace asio = boost::asio;

namespace manual {

asio::awaitable<void> many_keys_pages(coetcd::client client) {
    coetcd::pages orders(client, coetcd::key_range::prefix("orders/"), {.size = 500});
    while (const std::optional<coetcd::key_page> page = co_await orders.next()) {
        for (const coetcd::key_value& order : page->kvs) {
            std::cout << order.key << ' ' << order.value << '\n';
        }
    }
}

asio::awaitable<std::size_t> many_keys_put(coetcd::client client,
                                           std::vector<coetcd::put_request> orders) {
    coetcd::bulk writes = coetcd::put_all(client, std::move(orders));
    while (const std::optional<coetcd::bulk_step> done = co_await writes.next()) {
        std::cout << done->total << " are written\n";
    }
    co_return writes.total();
}

asio::awaitable<std::size_t> many_keys_erase(coetcd::client client) {
    coetcd::bulk erases = coetcd::erase_range(client, coetcd::key_range::prefix("orders/2025/"));
    const std::size_t erased = co_await erases.run();
    co_return erased;
}

} // namespace manual
