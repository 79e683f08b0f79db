// SPDX-License-Identifier: BSL-1.0
#include <coetcd/registry.hpp>
#include <coetcd/session_keeper.hpp>

#include <chrono>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"

using namespace std::chrono_literals;
using coetcd::endpoints_feed;
using coetcd::errc;
using coetcd::register_service;
using coetcd::registration;
using coetcd::service_endpoint;
using support::failure_of;
using support::world;

namespace {

using list = std::vector<service_endpoint>;

std::string told(const list& all) {
    std::string text;
    for (const service_endpoint& e : all) {
        text += e.address + ' ' + e.metadata + ' ';
    }
    return text;
}

struct registry_settings {
    registry_settings()
        : client(w.client())
        , one(w.await(coetcd::session::open(client)))
        , two(w.await(coetcd::session::open(client))) {
        w.env->calls.clear();
    }
    std::string next(endpoints_feed& feed) {
        auto waiting = w.start(feed.next());
        w.env->pass(100ms);
        if (waiting.ended()) {
            return told(waiting.get());
        }
        waiting.cancel(); // else it takes what the next call is to tell
        w.env->pass(0s);
        return "nothing";
    }
    list now() { return w.await(coetcd::endpoints_of(client, "orders")); }
    world w;
    coetcd::client client;
    coetcd::session one;
    coetcd::session two;
};

} // namespace

TEST_CASE("a service has the endpoints that are registered", "[registry]") {
    registry_settings s;
    endpoints_feed feed = coetcd::resolve(s.client, "orders");
    CHECK(s.next(feed) == "");
    s.w.env->calls.clear();
    registration first = s.w.await(register_service(s.one, "orders", "b:1"));
    CHECK(s.w.env->calls.size() == 1); // one round trip
    CHECK(first.exists());
    CHECK(first);
    CHECK(first.key() == "orders/b:1");
    CHECK(first.get_executor() == s.client.get_executor());
    CHECK(s.w.etcd->keys.at("orders/b:1").value == R"({"Op":0,"Addr":"b:1","Metadata":null})");
    CHECK(s.w.etcd->keys.at("orders/b:1").lease == s.one.lease());
    CHECK(s.next(feed) == "b:1 null ");
    registration second = s.w.await(register_service(s.two, "orders", "a:1", R"({"zone":"b"})"));
    CHECK(s.next(feed) == R"(a:1 {"zone":"b"} b:1 null )");
    s.w.await(second.update("7"));
    CHECK(s.next(feed) == "a:1 7 b:1 null ");
    const list all = s.now();
    REQUIRE(all.size() == 2);
    CHECK(all[0].key == "orders/a:1");
    CHECK(all[0].lease == s.two.lease());
    s.w.etcd->write("orders/x", "no endpoint");
    s.w.etcd->write("orders2/x", R"({"Op":0,"Addr":"c","Metadata":null})");
    CHECK(s.next(feed) == "nothing");
    s.w.etcd->erase("orders/x");
    CHECK(s.w.await(first.remove()));
    CHECK(s.next(feed) == "a:1 7 ");
    CHECK_FALSE(first.exists());
    CHECK_FALSE(s.w.await(first.remove()));
    s.w.await(s.two.close());
    CHECK(s.next(feed) == "");
    CHECK(s.w.await(second.wait_lost()) == errc::session_closed);
}

TEST_CASE("an endpoint that was deleted by hand is registered again", "[registry]") {
    registry_settings s;
    const registration first = s.w.await(register_service(s.one, "orders", "a:1"));
    s.w.env->pass(1s);
    s.w.etcd->erase("orders/a:1");
    s.w.env->pass(1s);
    CHECK(told(s.now()) == "a:1 null ");
}

TEST_CASE("the last one to register an address has it", "[registry]") {
    registry_settings s;
    registration before = s.w.await(register_service(s.one, "orders", "a:1", "1"));
    s.w.env->pass(1s);
    s.w.env->calls.clear();
    registration now = s.w.await(register_service(s.two, "orders", "a:1", "2"));
    CHECK(s.w.env->calls.size() == 2);
    CHECK(told(s.now()) == "a:1 2 ");
    CHECK(s.w.await(before.wait_lost()) == errc::lock_lost);
    CHECK_FALSE(before.exists());
    CHECK_FALSE(s.w.await(before.remove()));
    s.w.await(s.one.close());
    s.w.env->pass(1min);
    CHECK(told(s.now()) == "a:1 2 ");
    CHECK(now.exists());
    auto again = s.w.start(register_service(s.two, "orders", "a:1", "3"));
    s.w.env->pass(1s);
    CHECK(failure_of(again).code() == errc::already_exists);
    CHECK_THAT(failure_of(again).what(), support::contains("service \"orders\", \"a:1\""));
    CHECK(told(s.now()) == "a:1 2 ");
    // Also one that has no lease.
    s.w.etcd->write("orders/b:1", R"({"Op":0,"Addr":"b:1","Metadata":1})");
    const registration third = s.w.await(register_service(s.two, "orders", "b:1", "4"));
    CHECK(told(s.now()) == "a:1 2 b:1 4 ");
    CHECK(s.w.etcd->keys.at("orders/b:1").lease == s.two.lease());
}

TEST_CASE("a keeper's endpoint is registered again after a loss", "[registry]") {
    world w;
    const coetcd::client client = w.client();
    const coetcd::session_keeper keeper(client, coetcd::session_keeper_options(6s));
    registration r = w.await(register_service(keeper, "orders", "a:1"));
    w.env->pass(1s);
    w.etcd->revoke(keeper.current()->lease());
    CHECK(w.await(coetcd::endpoints_of(client, "orders")).empty());
    w.env->pass(10s);
    CHECK(told(w.await(coetcd::endpoints_of(client, "orders"))) == "a:1 null ");
    CHECK(r.exists());
    r = registration();
    w.env->pass(1s);
    CHECK(w.etcd->keys.empty());
}

TEST_CASE("what cannot be registered is refused before anything is sent", "[registry]") {
    registry_settings s;
    CHECK_THROWS_AS(register_service(s.one, "", "a"), std::invalid_argument);
    CHECK_THROWS_AS(register_service(s.one, "orders", ""), std::invalid_argument);
    CHECK_THROWS_AS(register_service(s.one, "orders", "\xff"), std::invalid_argument);
    CHECK_THROWS_AS(register_service(s.one, "orders", std::string(512, 'x')),
                    std::invalid_argument);
    CHECK_THROWS_AS(register_service(s.one, "orders", "a", "{"), std::invalid_argument);
    CHECK_THROWS_AS(coetcd::resolve(s.client, ""), std::invalid_argument);
    CHECK_THROWS_AS(coetcd::endpoints_of(s.client, std::string(513, 'x')), std::invalid_argument);
    registration none;
    CHECK_FALSE(none.exists());
    CHECK_FALSE(s.w.await(none.remove()));
    CHECK_THROWS_AS(none.key(), std::logic_error);
    CHECK_THROWS_AS(none.update("1"), std::logic_error);
    CHECK_THROWS_AS(none.wait_lost(), std::logic_error);
    s.w.env->pass(1s);
    CHECK(s.w.env->calls.empty());
    registration some = s.w.await(register_service(s.one, "orders", "a"));
    CHECK_THROWS_AS(some.update("{"), std::invalid_argument);
}
