// SPDX-License-Identifier: BSL-1.0
#include <coetcd/fencing_gate.hpp>

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "support/catch.hpp"
#include "support/world.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::detail::call_request;
using support::scripted_env;
using support::world;

namespace {

coetcd::txn put(std::string value) {
    return coetcd::txn().then(coetcd::op::put("stock", std::move(value)));
}

} // namespace

TEST_CASE("a gate lets no token through that is below the greatest", "[fencing_gate]") {
    world w;
    const coetcd::fencing_gate gate(w.client(), "gate");
    CHECK(gate.key() == "gate");
    CHECK(w.await(gate.admit(9)));
    CHECK(w.etcd->keys.at("gate").value == "0000000000000009");
    CHECK(w.etcd->keys.at("gate").lease == 0);
    CHECK(w.env->calls.size() == 1);
    CHECK(w.await(gate.admit(9)));
    CHECK(w.await(gate.admit(10))); // as numbers, not as texts
    CHECK_FALSE(w.await(gate.admit(9)));
    CHECK(w.await(gate.admit(256)));
    CHECK_FALSE(w.await(gate.admit(255)));
    CHECK_FALSE(w.await(gate.admit(1)));
    CHECK(w.await(gate.admit(std::numeric_limits<std::int64_t>::max())));
    CHECK_FALSE(w.await(gate.admit(std::numeric_limits<std::int64_t>::max() - 1)));
    w.etcd->erase("gate");
    CHECK(w.await(gate.admit(1)));
}

TEST_CASE("a gate does work together with a token, or not at all", "[fencing_gate]") {
    world w;
    const coetcd::fencing_gate gate(w.client(), "gate");
    const auto first = w.await(gate.admit(5, put("a")));
    REQUIRE(first);
    CHECK(first->succeeded);
    CHECK(first->header.revision == w.etcd->revision);
    CHECK(w.etcd->keys.at("stock").mod_revision == w.etcd->keys.at("gate").mod_revision);
    CHECK_FALSE(w.await(gate.admit(4, put("b"))).has_value());
    CHECK(w.etcd->keys.at("stock").value == "a");
    const auto next = w.await(gate.admit(6, put("c")));
    REQUIRE(next);
    CHECK(w.etcd->keys.at("stock").value == "c");
    // its own conditions are its own
    coetcd::txn never = coetcd::txn()
                            .when(coetcd::compare::value("stock") == "x")
                            .then(coetcd::op::put("stock", "d"));
    const auto refused = w.await(gate.admit(7, std::move(never)));
    REQUIRE(refused);
    CHECK_FALSE(refused->succeeded);
    CHECK(w.etcd->keys.at("gate").value.back() == '7');
}

TEST_CASE("a gate asks again where that does no harm", "[fencing_gate]") {
    world w;
    const coetcd::fencing_gate gate(w.client(), "gate");
    bool first = true;
    w.env->decide = [&](const call_request&) {
        scripted_env::fate f;
        f.breaks = std::exchange(first, false);
        return f;
    };
    CHECK(w.await(gate.admit(5)));
    first = true;
    auto working = w.start(gate.admit(6, put("a")));
    w.env->pass(6s);
    CHECK(working.code() == errc::outcome_unknown);
    CHECK(w.etcd->keys.at("stock").version == 1);
    first = true;
    const auto read = w.await(gate.admit(6, coetcd::txn().then(coetcd::op::range("stock"))));
    REQUIRE(read);
    CHECK(read->responses.at(0).range().kvs.at(0).value == "a");
}

TEST_CASE("a gate leaves alone what is none", "[fencing_gate]") {
    world w;
    const coetcd::fencing_gate gate(w.client(), "gate");
    for (const std::string text :
         {"", "7", "\"text\"", "{}", "a text that is longer than a token"}) {
        CAPTURE(text);
        w.etcd->write("gate", text);
        auto asking = w.start(gate.admit(9));
        auto working = w.start(gate.admit(9, put("a")));
        w.env->pass(10ms);
        CHECK(asking.code() == errc::wrong_kind);
        CHECK(working.code() == errc::wrong_kind);
        CHECK_THROWS_WITH(working.get(), support::contains("fencing_gate \"gate\": the key holds"));
        CHECK(w.etcd->keys.at("gate").value == text);
        CHECK_FALSE(w.etcd->keys.contains("stock"));
    }
}

TEST_CASE("what is no token and no key is refused", "[fencing_gate]") {
    world w;
    CHECK_THROWS_WITH(coetcd::fencing_gate(w.client(), ""), "key: is empty");
    const coetcd::fencing_gate gate(w.client(), "gate");
    for (const std::int64_t token : {std::int64_t{0}, std::int64_t{-1}}) {
        CHECK_THROWS_WITH(gate.admit(token), "token: must be positive");
        CHECK_THROWS_AS(gate.admit(token, put("a")), std::invalid_argument);
    }
    CHECK(w.env->calls.empty());
    auto asking = w.start(gate.admit(1));
    asking.cancel();
    w.env->pass(0ms);
    CHECK(asking.code() == asio::error::operation_aborted);
}
