// SPDX-License-Identifier: BSL-1.0
#include <coetcd/exactly_once.hpp>

#include <chrono>
#include <cstddef>
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
using coetcd::compare;
using coetcd::errc;
using coetcd::op;
using coetcd::txn;
using coetcd::txn_outcome;
using support::broken;
using support::fate_of_copies;
using support::scripted_env;
using support::world;
using fate = scripted_env::fate;

namespace {

struct shop {
    shop()
        : client(w.client())
        , session(w.await(coetcd::session::open(client)))
        , once(session, "shop") {
        w.etcd->write("stock", "5");
        w.env->calls.clear();
    }
    world w;
    coetcd::client client;
    coetcd::session session;
    coetcd::exactly_once once;
};

/// Sells the last but 4; else says what there is.
txn sale() {
    coetcd::put_options tells;
    tells.prev_kv = true;
    return txn()
        .when(compare::value("stock") == "5")
        .then(op::range("stock"), op::put("stock", "4", tells), op::erase("offer"))
        .otherwise(op::range("stock"));
}

/// The same, however it was answered.
void check_sold(const txn_outcome& sold, const shop& s) {
    CHECK(sold.succeeded);
    CHECK(sold.revision == s.w.etcd->keys.at("stock").mod_revision);
    REQUIRE(sold.responses.has_value());
    REQUIRE(sold.responses->size() == 3);
    CHECK((*sold.responses)[0].range().kvs.front().value == "5");
    REQUIRE((*sold.responses)[1].put().prev_kv);
    CHECK((*sold.responses)[1].put().prev_kv->value == "5");
    CHECK((*sold.responses)[2].erase().deleted == 1);
    CHECK(s.w.etcd->keys.at("stock").value == "4");
    CHECK(s.w.etcd->keys.at("stock").version == 2);
}

} // namespace

TEST_CASE("a transaction is carried out in one round trip, and tells its branch", "[once]") {
    shop s;
    s.w.etcd->write("offer", "today");
    check_sold(s.w.await(s.once.txn(sale())), s);
    CHECK(s.w.env->calls.size() == 1);
    const txn_outcome second = s.w.await(s.once.txn(sale()));
    CHECK_FALSE(second.succeeded);
    CHECK(second.revision == s.w.etcd->revision);
    REQUIRE(second.responses.has_value());
    REQUIRE(second.responses->size() == 1);
    CHECK(second.responses->front().range().kvs.front().value == "4");
    CHECK(s.w.env->calls.size() == 2);
    CHECK(s.w.etcd->under("shop.").size() == 1);
    CHECK(s.once.name() == "shop");
    CHECK(s.once.get_executor() == s.client.get_executor());
}

TEST_CASE("a lost answer is known from the marker, and read again", "[once]") {
    for (const int lost : {1, 2}) {
        for (const bool changes : {false, true}) {
            shop s;
            s.w.etcd->write("offer", "today");
            fate_of_copies(s.w, std::vector<fate>(static_cast<std::size_t>(lost), broken()));
            auto selling = s.w.start(s.once.txn(sale()));
            s.w.env->pass(3ms);
            if (changes) { // what comes later is not taken for it
                s.w.etcd->write("offer", "tomorrow");
                s.w.etcd->write("other", "1");
            }
            s.w.env->pass(1s);
            check_sold(selling.get(), s);
        }
    }
}

TEST_CASE("a refusal whose answer is lost is known, too", "[once]") {
    shop s;
    s.w.etcd->write("stock", "3");
    fate_of_copies(s.w, {broken()});
    auto selling = s.w.start(s.once.txn(sale()));
    s.w.env->pass(3ms);
    s.w.etcd->write("stock", "5"); // a copy that finds this must not sell
    s.w.env->pass(1s);
    const txn_outcome no = selling.get();
    CHECK_FALSE(no.succeeded);
    REQUIRE(no.responses.has_value());
    CHECK(no.responses->front().range().kvs.front().value == "3");
    CHECK(s.w.etcd->keys.at("stock").value == "5");
}

TEST_CASE("answers that nothing tells any more are missing", "[once]") {
    SECTION("the history is compacted") {
        shop s;
        fate_of_copies(s.w, {broken()});
        auto selling = s.w.start(s.once.txn(sale()));
        s.w.env->pass(3ms);
        s.w.etcd->write("other", "1");
        s.w.etcd->compact(s.w.etcd->revision);
        s.w.env->pass(1s);
        const txn_outcome sold = selling.get();
        CHECK(sold.succeeded);
        CHECK_FALSE(sold.responses.has_value());
    }
    SECTION("a transaction is in it") {
        shop s;
        fate_of_copies(s.w, {broken()});
        txn outer = txn().then(op::nested(sale()));
        const txn_outcome sold = s.w.await(s.once.txn(std::move(outer)));
        CHECK(sold.succeeded);
        CHECK_FALSE(sold.responses.has_value());
        CHECK(s.w.etcd->keys.at("stock").value == "4");
    }
    SECTION("there is nothing to tell") {
        shop s;
        fate_of_copies(s.w, {broken()});
        const txn_outcome done = s.w.await(s.once.txn(txn().then(op::put("k", "v"))));
        CHECK(done.succeeded);
        REQUIRE(done.responses.has_value());
        REQUIRE(done.responses->size() == 1);
        CHECK(done.responses->front().put().header.revision == done.revision);
    }
}

TEST_CASE("a transaction in another one is answered, too", "[once]") {
    shop s;
    txn outer = txn().then(op::nested(sale()), op::put("k", "v"));
    const txn_outcome sold = s.w.await(s.once.txn(std::move(outer)));
    REQUIRE(sold.responses.has_value());
    REQUIRE(sold.responses->size() == 2);
    CHECK((*sold.responses)[0].nested().succeeded);
    CHECK((*sold.responses)[0].nested().responses.size() == 3);
}

TEST_CASE("what etcd would not take is refused at the call", "[once]") {
    shop s;
    const auto puts = [](int count) {
        txn t;
        for (int i = 0; i != count; ++i) {
            t.success.push_back(op::put("k" + std::to_string(i), "v"));
        }
        return t;
    };
    CHECK(s.w.await(s.once.txn(puts(126))).succeeded);
    CHECK_THROWS_AS(s.once.txn(puts(127)), std::invalid_argument);
    txn many;
    for (int i = 0; i != 127; ++i) {
        many.compares.push_back(compare::version("stock") == 1);
    }
    CHECK(s.w.await(s.once.txn(many)).succeeded);
    many.compares.push_back(compare::version("stock") == 1);
    CHECK_THROWS_AS(s.once.txn(many), std::invalid_argument);

    txn deep;
    for (int i = 0; i != 2; ++i) {
        deep = txn().then(op::nested(deep));
    }
    CHECK(s.w.await(s.once.txn(deep)).succeeded);
    deep = txn().then(op::nested(deep));
    CHECK_THROWS_AS(s.once.txn(deep), std::invalid_argument);
    coetcd::range_options bad;
    bad.limit = -1;
    CHECK_THROWS_AS(s.once.txn(txn().then(op::range("k", bad))), std::invalid_argument);

    CHECK_THROWS_AS(coetcd::exactly_once(s.session, ""), std::invalid_argument);
    CHECK_THROWS_AS(coetcd::exactly_once(s.session, std::string(513, 'x')), std::invalid_argument);
}

TEST_CASE("an object that was moved from has nothing to carry out", "[once]") {
    shop s;
    coetcd::exactly_once& once = s.once;
    const coetcd::exactly_once taken = std::move(s.once);
    CHECK_THROWS_AS(once.txn(sale()), std::logic_error);
    CHECK_THROWS_AS(once.get_executor(), std::logic_error);
    CHECK_THROWS_AS(once.name(), std::logic_error);
    CHECK(s.w.await(taken.txn(sale())).succeeded);
}

TEST_CASE("an object may go while its transaction is under way", "[once]") {
    shop s;
    std::optional<coetcd::exactly_once> once(std::in_place, s.session, "shop");
    auto selling = s.w.start(once->txn(sale()));
    once.reset();
    s.w.env->pass(1s);
    CHECK(selling.get().succeeded);
}
