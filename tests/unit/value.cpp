// SPDX-License-Identifier: BSL-1.0
#include <coetcd/value.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"
#include "support/writes.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::errc;
using support::broken;
using support::fate_of_copies;
using support::scripted_env;
using support::world;
using fate = scripted_env::fate;

namespace {

struct settings {
    settings()
        : client(w.client())
        , session(w.await(coetcd::session::open(client))) {
        w.env->calls.clear();
    }
    coetcd::value make(bool with_session) {
        return with_session ? coetcd::value(session, "v") : coetcd::value(client, "v");
    }
    world w;
    coetcd::client client;
    coetcd::session session;
};

} // namespace

TEST_CASE("a value is read, written and exchanged in one round trip each", "[value]") {
    for (const bool with_session : {false, true}) {
        settings s;
        coetcd::value v = s.make(with_session);
        CHECK_FALSE(s.w.await(v.get()));
        const std::int64_t first = s.w.await(v.set("1"));
        CHECK(first == s.w.etcd->keys.at("v").mod_revision);
        CHECK(s.w.await(v.get())->value == "1");
        CHECK(s.w.await(v.get())->mod_revision == first);
        const auto second = s.w.await(v.compare_exchange(first, "2"));
        REQUIRE(second);
        CHECK(*second == s.w.etcd->keys.at("v").mod_revision);
        CHECK_FALSE(s.w.await(v.compare_exchange(first, "3")));
        CHECK_FALSE(s.w.await(v.compare_exchange(0, "3")));
        CHECK(s.w.await(v.get())->value == "2");
        s.w.etcd->erase("v");
        CHECK_FALSE(s.w.await(v.compare_exchange(*second, "3")));
        CHECK(s.w.await(v.compare_exchange(0, "4")));
        CHECK(s.w.etcd->keys.at("v").lease == 0);
        CHECK(s.w.env->calls.size() == 10);
        CHECK(s.w.etcd->under("v.").size() == (with_session ? 1 : 0));
    }
}

TEST_CASE("a write whose answer is lost is made once with a session, in doubt without", "[value]") {
    for (const bool with_session : {false, true}) {
        for (const bool exchange : {false, true}) {
            settings s;
            coetcd::value v = s.make(with_session);
            fate_of_copies(s.w, {broken(), broken()});
            auto write = [&]() -> asio::awaitable<std::int64_t> {
                if (exchange) {
                    const auto written = co_await v.compare_exchange(0, "1");
                    co_return written.value_or(0);
                }
                co_return co_await v.set("1");
            };
            auto writing = s.w.start(write());
            s.w.env->pass(1s);
            CAPTURE(with_session, exchange);
            const auto& stored = s.w.etcd->keys.at("v");
            CHECK(stored.version == 1);
            if (with_session) {
                CHECK(writing.get() == stored.mod_revision);
            } else {
                CHECK(writing.code() == errc::outcome_unknown);
            }
        }
    }
}

TEST_CASE("changes() tells the value there is, or that there is none, and each change", "[value]") {
    for (const bool with_session : {false, true}) {
        settings s;
        coetcd::value v = s.make(with_session);
        coetcd::value_feed news = v.changes();
        REQUIRE(news.get_executor() == s.client.get_executor());
        s.w.env->pass(1s);
        REQUIRE(s.w.env->calls.empty());
        REQUIRE(s.w.etcd->watches() == 0);
        REQUIRE_FALSE(s.w.await(news.next()));
        const auto next = [&] {
            auto waiting = s.w.start(news.next());
            s.w.env->pass(20ms);
            REQUIRE(waiting.ended());
            return waiting.get();
        };
        const std::int64_t first = s.w.await(v.set("1"));
        s.w.env->pass(20ms);
        const std::size_t before = s.w.env->calls.size();
        const auto written = next();
        REQUIRE(written);
        CHECK(written->key == "v");
        CHECK(written->value == "1");
        CHECK(written->mod_revision == first);
        CHECK(written->version == 1);
        CHECK(s.w.env->calls.size() == before); // the event has said it all
        // What it was made of, and a key beside it, are no news.
        auto waiting = s.w.start(news.next());
        s.w.etcd->write("v1", "beside");
        s.w.etcd->write("v/", "below");
        s.w.env->pass(1min);
        REQUIRE_FALSE(waiting.ended());
        (void)s.w.await(v.set("1")); // again: another revision
        s.w.env->pass(20ms);
        REQUIRE(waiting.ended());
        CHECK(waiting.get()->version == 2);
        s.w.etcd->erase("v");
        CHECK_FALSE(next());
        (void)s.w.await(v.set("2"));
        (void)s.w.await(v.set("3"));
        CHECK(next()->value == "3"); // the newest one
        news = coetcd::value_feed();
        s.w.env->pass(15s);
        REQUIRE(s.w.etcd->watches() == 0);
    }
}

TEST_CASE("a feed of a value outlives the session that it was made with", "[value]") {
    settings s;
    std::optional<coetcd::value> v(s.make(true));
    coetcd::value_feed news = v->changes();
    v.reset();
    (void)s.session.orphan();
    s.w.etcd->write("v", "1");
    REQUIRE(s.w.await(news.next())->value == "1");
    auto waiting = s.w.start(news.next());
    s.w.etcd->write("v", "2");
    s.w.env->pass(20ms);
    REQUIRE(waiting.get()->value == "2");
}

TEST_CASE("a value has a name, and an end", "[value]") {
    settings s;
    CHECK_THROWS_AS(coetcd::value(s.session, ""), std::invalid_argument);
    CHECK_THROWS_AS(coetcd::value(s.client, std::string(513, 'x')), std::invalid_argument);
    coetcd::value v(s.session, "v");
    CHECK(v.name() == "v");
    CHECK(v.get_executor() == s.client.get_executor());
    CHECK_THROWS_AS(v.compare_exchange(-1, ""), std::invalid_argument);
    coetcd::value taken = std::move(v);
    CHECK_THROWS_AS(v.get(), std::logic_error); // NOLINT(bugprone-use-after-move): the question
    CHECK_THROWS_AS(v.set("1"), std::logic_error);
    CHECK_THROWS_AS(v.compare_exchange(0, "1"), std::logic_error);
    CHECK_THROWS_AS((void)v.changes(), std::logic_error);
    (void)s.session.orphan();
    auto writing = s.w.start(taken.set("1"));
    s.w.env->pass(1s);
    CHECK(writing.code() == errc::session_closed);
    CHECK_FALSE(s.w.await(taken.get()));
}
