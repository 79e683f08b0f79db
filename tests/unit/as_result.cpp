// SPDX-License-Identifier: BSL-1.0
#include <coetcd/as_result.hpp>
#include <coetcd/mutex.hpp>

#include <boost/asio/error.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>

#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "support/catch.hpp"
#include "support/world.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::as_result;
using coetcd::errc;
using support::world;

namespace {

asio::awaitable<int> seven() {
    co_return 7;
}
asio::awaitable<void> nothing() {
    co_return;
}
template<class T, class Thrown>
asio::awaitable<T> fails(Thrown thrown) {
    throw thrown;
    co_return T();
}

} // namespace

TEST_CASE("as_result() gives what an operation returned", "[as_result]") {
    world w;
    const coetcd::result<int> number = w.await(as_result(seven()));
    REQUIRE(number.has_value());
    CHECK(*number == 7);
    CHECK_FALSE(number.error().code());
    CHECK(number.error().text().empty());
    CHECK_THROWS_AS(number.error().rethrow(), std::logic_error);
    CHECK(w.await(as_result(nothing())).has_value());
    // The same holds for what cannot be copied, nor made from nothing.
    auto made = []() -> asio::awaitable<std::unique_ptr<int>> {
        co_return std::make_unique<int>(7);
    };
    auto moved = w.await(as_result(made()));
    REQUIRE(moved.has_value());
    CHECK(**moved == 7);
    const coetcd::client client = w.client();
    auto watching = w.await(as_result(client.watch("k")));
    CHECK(watching.has_value());
}

TEST_CASE("as_result() gives code and text of what an operation threw", "[as_result]") {
    world w;
    const coetcd::error thrown(errc::unavailable, "at no endpoint");
    const auto number = w.await(as_result(fails<int>(thrown)));
    REQUIRE(number.has_error());
    CHECK(number.error().code() == errc::unavailable);
    CHECK(number.error().code() == coetcd::condition::retryable);
    CHECK(number.error().text() == thrown.what());
    CHECK_THROWS_AS(number.value(), coetcd::error);
    std::ostringstream shown;
    shown << number;
    CHECK_THAT(shown.str(), support::contains("at no endpoint"));
    // What it was is not forgotten.
    const auto gone = w.await(as_result(fails<int>(coetcd::compacted_error(42, "watch"))));
    REQUIRE(gone.has_error());
    CHECK(gone.error().code() == errc::watch_compacted);
    try {
        (void)gone.value();
        FAIL("it has a value");
    } catch (const coetcd::compacted_error& e) {
        CHECK(e.compact_revision() == 42);
    }
    CHECK_FALSE(coetcd::failure().is_cancelled());
}

TEST_CASE("as_result() lets through what is no error of an operation", "[as_result]") {
    world w;
    CHECK_THROWS_AS(w.await(as_result(fails<int>(std::logic_error("a bug")))), std::logic_error);
}

TEST_CASE("as_result() of an operation that is cancelled", "[as_result][cancellation]") {
    world w;
    const coetcd::client client = w.client();
    const coetcd::session session = w.await(coetcd::session::open(client));
    auto waiting = w.start(as_result(session.wait_lost()));
    w.env->pass(10ms);
    waiting.cancel();
    w.env->pass(1ms);
    REQUIRE(waiting.succeeded());
    CHECK(waiting.get().error().code() == asio::error::operation_aborted);
    CHECK(waiting.get().error().is_cancelled());
}

TEST_CASE("`||` of as_result() ends with a loss, and that of with_lock() does not", "[as_result]") {
    using namespace asio::experimental::awaitable_operators;
    world w;
    const coetcd::client client = w.client();
    coetcd::session session = w.await(coetcd::session::open(client));
    coetcd::session other = w.await(coetcd::session::open(client));
    auto body = [&]() -> asio::awaitable<void> { (void)co_await other.wait_lost(); };
    coetcd::mutex one(session, "one");
    coetcd::mutex two(session, "two");
    auto plain = w.start(coetcd::with_lock(one, body) || other.wait_lost());
    auto told = w.start(as_result(coetcd::with_lock(two, body)) || other.wait_lost());
    w.env->pass(10ms);
    REQUIRE(one.owns_lock());
    REQUIRE(two.owns_lock());
    w.await(session.close());
    w.env->pass(10ms);
    CHECK_FALSE(plain.ended());
    REQUIRE(told.succeeded());
    auto how = told.get();
    REQUIRE(how.index() == 0);
    CHECK(std::get<0>(how).error().code() == coetcd::condition::ownership_lost);
    w.await(other.close());
    w.env->pass(10ms);
    CHECK(plain.ended());
}
