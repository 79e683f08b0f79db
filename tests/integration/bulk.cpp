// SPDX-License-Identifier: BSL-1.0
#include <coetcd/bulk.hpp>
#include <coetcd/client.hpp>
#include <coetcd/pages.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "integration/common.hpp"
#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/etcd_server.hpp"
#include "support/etcd_tools.hpp"
#include "support/run_test.hpp"

using namespace std::chrono_literals;
using namespace support;
namespace asio = boost::asio;
using coetcd::client;
using coetcd::errc;
using coetcd::key_range;
using coetcd::put_request;
using coetcd::server_errc;
using integration::connect;

namespace {

std::vector<put_request> numbered(const std::string& prefix, int n, std::size_t bytes) {
    std::vector<put_request> all;
    for (int i = 0; i != n; ++i) {
        all.emplace_back(prefix + std::to_string(10'000 + i), std::string(bytes, 'x'));
    }
    return all;
}

} // namespace

TEST_CASE("Thousands of keys are written, read in pages and erased", "[bulk][pages]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string prefix = unique_name("bulk") + "/";
        const auto keys = key_range::prefix(prefix);
        coetcd::bulk writes = coetcd::put_all(c, numbered(prefix, 3000, 20));
        const std::size_t written = co_await writes.run();
        CHECK(written == 3000);

        coetcd::page_options how;
        how.size = 700;
        coetcd::pages all(c, keys, how);
        std::size_t read = 0;
        std::int64_t revision = 0;
        std::string last;
        for (bool over = false; !over;) {
            auto page = co_await all.next();
            over = !page;
            if (page) {
                CHECK(page->kvs.size() == (read == 2800 ? 200 : 700));
                CHECK(page->left == static_cast<std::int64_t>(3000 - read - page->kvs.size()));
                CHECK(page->kvs.front().key > last);
                CHECK((revision == 0 || page->revision == revision));
                last = page->kvs.back().key;
                revision = page->revision;
                read += page->kvs.size();
                // what is written meanwhile is not seen
                (void)co_await c.put(prefix + "9" + std::to_string(read), "");
            }
        }
        CHECK(read == 3000);
        coetcd::bulk_options by;
        by.keys = 100;
        coetcd::bulk erases = coetcd::erase_range(c, keys, by);
        const auto first = co_await erases.next();
        REQUIRE(first);
        CHECK(first->keys == 100);
        const std::size_t erased = co_await erases.run();
        CHECK(erased == 3005);
        co_await until_count(c, prefix, 0);
    });
}

TEST_CASE("Large values are written and read in requests that etcd and we accept",
          "[bulk][pages]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        coetcd::client_options options;
        options.max_answer = 200'000;
        const client c = connect(executor, options);
        const std::string prefix = unique_name("large") + "/";
        auto all = numbered(prefix, 60, 40'000); // 2.4 MB
        all.emplace_back(prefix + "9", std::string(1'200'000, 'y'));
        coetcd::bulk writes = coetcd::put_all(c, std::move(all));
        const std::size_t written = co_await writes.run();
        CHECK(written == 61);
        coetcd::pages pages(c, key_range::prefix(prefix));
        std::size_t read = 0;
        coetcd::error_code why;
        for (bool over = false; !over;) {
            try {
                auto page = co_await pages.next();
                over = !page;
                if (page) {
                    read += page->kvs.size();
                    CHECK(page->kvs.size() <= 3);
                }
            } catch (const coetcd::error& e) {
                why = e.code();
                over = true;
            }
        }
        CHECK(read == 60);
        CHECK(why == errc::too_large); // the last one, by itself
        // etcd itself refuses what is over its limit, and the bulk says how far it came
        std::vector<put_request> two;
        two.emplace_back(prefix + "a", "fits");
        two.emplace_back(prefix + "b", std::string(1'600'000, 'z'));
        coetcd::bulk too_large = coetcd::put_all(c, std::move(two));
        std::string text;
        try {
            (void)co_await too_large.run();
        } catch (const coetcd::error& e) {
            text = e.what();
        }
        CHECK(text.find("after 1 keys") != std::string::npos);
        CHECK(text.find("too large") != std::string::npos);
        coetcd::bulk erases = coetcd::erase_range(c, key_range::prefix(prefix));
        const std::size_t erased = co_await erases.run();
        CHECK(erased == 62);
    });
}

TEST_CASE("Pages of a revision that is compacted end with an error that says so", "[pages]") {
    run_test([]() -> awaitable<void> {
        const etcd_server own;
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, own.url());
        coetcd::bulk writes = coetcd::put_all(c, numbered("k/", 30, 1));
        (void)co_await writes.run();
        coetcd::page_options how;
        how.size = 10;
        coetcd::pages pages(c, key_range::prefix("k/"), how);
        const auto first = co_await pages.next();
        REQUIRE(first);
        const auto put = co_await c.put("k/9", "");
        (void)co_await c.compact(first->revision);
        const auto second = co_await pages.next(); // that revision itself is still there
        REQUIRE(second);
        CHECK(second->kvs.size() == 10);
        (void)co_await c.compact(put.header.revision);
        std::optional<coetcd::error> failure;
        try {
            (void)co_await pages.next();
        } catch (const coetcd::error& e) {
            failure = e;
        }
        REQUIRE(failure);
        CHECK(failure->code() == server_errc::out_of_range);
        CHECK(std::string(failure->what()).find("was compacted") != std::string::npos);
        coetcd::page_options later;
        later.revision = put.header.revision + 1000;
        coetcd::pages none(c, key_range::prefix("k/"), later);
        std::string text;
        try {
            (void)co_await none.next();
        } catch (const coetcd::error& e) {
            text = e.what();
        }
        CHECK(text.find("etcd has no revision") != std::string::npos);
    });
}
