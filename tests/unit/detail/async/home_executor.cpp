// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/async/home_executor.hpp>

#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/system_executor.hpp>

#include <atomic>
#include <future>
#include <thread>

#include "support/catch.hpp"

namespace asio = boost::asio;
using coetcd::detail::home_executor;

TEST_CASE("a client works on the executor that it was given, if one handler at a time runs there",
          "[home]") {
    asio::io_context context;
    asio::thread_pool pool(2);
    const asio::any_io_executor fine[] = {
        context.get_executor(),
        asio::make_strand(context),
        asio::make_strand(pool),
        asio::make_strand(asio::any_io_executor(pool.get_executor())),
    };
    for (const asio::any_io_executor& given : fine) {
        CHECK(home_executor(given).get() == given);
    }
}

TEST_CASE("a client works on a strand of its own where many may run", "[home]") {
    asio::thread_pool pool(4);
    const asio::any_io_executor many[] = {pool.get_executor(), asio::system_executor()};
    for (const asio::any_io_executor& given : many) {
        const home_executor home(given);
        CHECK(home.get() != given);
        CHECK(home_executor(given).get() != home.get()); // another client, another strand
        // They come one after the other, in order.
        int last = 0; // no atomic
        std::atomic<bool> in_order{true};
        std::promise<void> done;
        for (int i = 1; i <= 1000; ++i) {
            asio::post(home.get(), [&, i] {
                in_order = in_order && last == i - 1 && home.runs_here();
                last = i;
                if (i == 1000) {
                    done.set_value();
                }
            });
        }
        done.get_future().wait();
        CHECK(in_order);
    }
}

TEST_CASE("it is known whether one is at home", "[home]") {
    asio::io_context context;
    asio::io_context other;
    const asio::any_io_executor all[] = {context.get_executor(), asio::make_strand(context)};
    for (const asio::any_io_executor& given : all) {
        const home_executor home(given);
        CHECK_FALSE(home.runs_here());
        int seen = 0;
        asio::post(home.get(), [&] { seen += home.runs_here() ? 1 : 0; });
        asio::post(other, [&] { seen += home.runs_here() ? 100 : 10; });
        context.restart();
        context.run();
        other.restart();
        other.run();
        CHECK(seen == 11);
        CHECK_FALSE(home.runs_here());
    }
    // A handler of the same context is not one of the strand.
    const home_executor strand(asio::make_strand(context));
    bool seen = true;
    asio::post(context, [&] { seen = strand.runs_here(); });
    context.restart();
    context.run();
    CHECK_FALSE(seen);
}
