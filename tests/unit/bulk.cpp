// SPDX-License-Identifier: BSL-1.0
#include <coetcd/bulk.hpp>

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
using coetcd::bulk;
using coetcd::bulk_options;
using coetcd::errc;
using coetcd::key_range;
using coetcd::put_request;
using coetcd::server_errc;
using coetcd::detail::call_request;
using coetcd::detail::rpc;
using support::world;

namespace {

bool changes_many(const call_request& r) {
    return r.what == rpc::txn || r.what == rpc::delete_range;
}

struct bulk_settings {
    bulk_settings()
        : client(w.client()) {}

    static std::vector<put_request> puts(int n, const std::string& value = "1") {
        std::vector<put_request> all;
        for (int i = 0; i != n; ++i) {
            all.emplace_back("k/" + std::to_string(100 + i), value);
        }
        return all;
    }
    static bulk_options by(std::size_t keys, bool repeat = false) {
        bulk_options o;
        o.keys = keys;
        o.repeat = repeat;
        return o;
    }
    void fill(int n) {
        for (const put_request& p : puts(n)) {
            w.etcd->write(p.key, p.value);
        }
        w.etcd->write("k", "beside");
        w.etcd->write("k0", "beside");
    }
    std::size_t stored() { return w.etcd->under("k/").size(); }
    bulk erase(std::size_t keys, bool repeat = false) {
        return coetcd::erase_range(client, key_range::prefix("k/"), by(keys, repeat));
    }

    world w;
    coetcd::client client;
};

} // namespace

TEST_CASE("many keys are written in transactions of the right size", "[bulk]") {
    bulk_settings s;
    bulk b = coetcd::put_all(s.client, bulk_settings::puts(300));
    REQUIRE(b.get_executor() == s.client.get_executor());
    CHECK(s.w.env->calls.empty());
    const auto first = s.w.await(b.next());
    REQUIRE(first);
    CHECK(first->keys == 128);
    CHECK(first->total == 128);
    CHECK(first->revision == s.w.etcd->revision);
    CHECK(s.stored() == 128);
    CHECK(s.w.await(b.run()) == 300);
    CHECK(b.total() == 300);
    CHECK(s.stored() == 300);
    CHECK(s.w.env->calls.size() == 3);
    CHECK_FALSE(s.w.await(b.next()));
    CHECK(s.w.await(b.run()) == 300);
    CHECK(s.w.env->calls.size() == 3);
    CHECK(s.w.await(coetcd::put_all(s.client, {}).run()) == 0);
    CHECK(s.w.env->calls.size() == 3);
}

TEST_CASE("what is put keeps its order, its lease and its options", "[bulk]") {
    bulk_settings s;
    const auto lease = s.w.await(s.client.lease_grant(60s)).id;
    std::vector<put_request> all;
    coetcd::put_options with;
    with.lease = lease;
    all.emplace_back("k/1", "old");
    all.emplace_back("k/2", "2", with);
    all.emplace_back("k/1", "new");
    CHECK(s.w.await(coetcd::put_all(s.client, std::move(all)).run()) == 3);
    CHECK(s.w.etcd->keys.at("k/1").value == "new");
    CHECK(s.w.etcd->keys.at("k/1").version == 2);
    CHECK(s.w.etcd->keys.at("k/2").lease == lease);
}

TEST_CASE("many keys are erased, and those that were there are counted", "[bulk]") {
    bulk_settings s;
    s.fill(5);
    std::vector<std::string> keys;
    for (const put_request& p : bulk_settings::puts(7)) {
        keys.push_back(p.key);
    }
    keys.push_back(keys.front()); // twice
    bulk b = coetcd::erase_all(s.client, std::move(keys), bulk_settings::by(3));
    CHECK(s.w.await(b.next())->keys == 3);
    CHECK(s.w.await(b.run()) == 5);
    CHECK(s.stored() == 0);
    CHECK(s.w.env->calls.size() == 3);
}

TEST_CASE("a range is erased in bounded steps, two round trips each", "[bulk]") {
    bulk_settings s;
    s.fill(7);
    bulk b = s.erase(3);
    const auto first = s.w.await(b.next());
    REQUIRE(first);
    CHECK(first->keys == 3);
    CHECK(first->revision == s.w.etcd->revision);
    CHECK(s.stored() == 4);
    CHECK(s.w.env->calls.size() == 2);
    s.w.etcd->write("k/1035", "between two that go");
    CHECK(s.w.await(b.next())->keys == 3);
    CHECK(s.w.await(b.next())->keys == 2);
    CHECK(s.w.env->calls.size() == 6);
    CHECK_FALSE(s.w.await(b.next()));
    CHECK(b.total() == 8);
    CHECK(s.w.env->calls.size() == 6);
    CHECK(s.stored() == 0);
    CHECK(s.w.etcd->keys.size() == 2); // those beside it
    CHECK(s.w.await(s.erase(3).run()) == 0);
    CHECK(s.w.env->calls.size() == 7);
}

TEST_CASE("a key that is put while a range is erased may stay", "[bulk]") {
    bulk_settings s;
    s.fill(4);
    bulk b = s.erase(2);
    (void)s.w.await(b.next());
    s.w.etcd->write("k/1", "before what is left");
    CHECK(s.w.await(b.run()) == 4);
    CHECK(s.stored() == 1);
}

TEST_CASE("keys that are too long for one answer are erased in smaller steps", "[bulk]") {
    bulk_settings s;
    s.fill(8);
    s.w.env->on_call = [serve = s.w.env->on_call](const call_request& q, coetcd::detail::reply& r) {
        serve(q, r);
        if (r.body.size() > 700) {
            r.ec = errc::too_large;
        }
    };
    bulk b = s.erase(8);
    CHECK(s.w.await(b.run()) == 8);
    CHECK(s.stored() == 0);
}

TEST_CASE("a bulk stops at the first failure, says how far it came, and goes on from there",
          "[bulk]") {
    bulk_settings s;
    bulk b = coetcd::put_all(s.client, bulk_settings::puts(10), bulk_settings::by(4));
    (void)s.w.await(b.next());
    s.w.etcd->no_space = true;
    auto running = s.w.start(b.run());
    s.w.env->pass(1s);
    const coetcd::error failure = support::failure_of(running);
    CHECK(failure.code() == server_errc::resource_exhausted);
    CHECK(std::string(failure.what()).find("put_all: after 4 keys") != std::string::npos);
    CHECK(b.total() == 4);
    CHECK(s.stored() == 4);
    s.w.etcd->no_space = false;
    CHECK(s.w.await(b.run()) == 10);
    CHECK(s.stored() == 10);
}

TEST_CASE("a lost answer leaves a bulk in doubt, and nothing of it is counted", "[bulk]") {
    for (const bool erases : {false, true}) {
        for (const bool repeat : {false, true}) {
            bulk_settings s;
            CAPTURE(erases, repeat);
            if (erases) {
                s.fill(10);
            }
            const bulk_options o = bulk_settings::by(4, repeat);
            bulk b =
                erases ? s.erase(4, repeat) : coetcd::put_all(s.client, bulk_settings::puts(10), o);
            (void)s.w.await(b.next());
            support::fate_of(s.w, changes_many, {support::broken()});
            auto running = s.w.start(b.run());
            s.w.env->pass(1s);
            REQUIRE(running.ended());
            if (repeat) {
                CHECK(running.get() == (erases ? 6 : 10)); // the second copy found nothing to erase
            } else {
                CHECK(running.code() == errc::outcome_unknown);
                CHECK(b.total() == 4);
                CHECK(s.stored() == (erases ? 2 : 8));
                CHECK(s.w.await(b.run()) == (erases ? 6 : 10)); // the same again
            }
            CHECK(s.stored() == (erases ? 0 : 10));
            CHECK(s.w.etcd->keys.size() == (erases ? 2 : 10));
        }
    }
}

TEST_CASE("an answer that is not one to the transaction leaves a bulk in doubt", "[bulk]") {
    for (const bool erases : {false, true}) {
        bulk_settings s;
        CAPTURE(erases);
        s.fill(3);
        bulk b = erases ? s.erase(4) : coetcd::put_all(s.client, bulk_settings::puts(3));
        s.w.env->on_call = [serve = s.w.env->on_call](const call_request& q,
                                                      coetcd::detail::reply& r) {
            serve(q, r);
            if (changes_many(q)) {
                r.body = q.what == rpc::txn
                             ? R"({"header":{"cluster_id":"14841639068965178418","revision":"9"},)"
                               R"("succeeded":true})"
                             : R"({"header":{"cluster_id":"14841639068965178418"},"deleted":"3"})";
            }
        };
        auto running = s.w.start(b.run());
        s.w.env->pass(1s);
        CHECK(running.code() == errc::outcome_unknown);
        CHECK(b.total() == 0);
    }
}

TEST_CASE("cancelled at any moment, a bulk makes the same transaction again",
          "[bulk][cancellation]") {
    for (const bool erases : {false, true}) {
        for (auto when = 0us; when < 12000us; when += 500us) {
            bulk_settings s;
            INFO("erases " << erases << " at " << when.count());
            if (erases) {
                s.fill(10);
            }
            bulk b = erases
                         ? s.erase(4)
                         : coetcd::put_all(s.client, bulk_settings::puts(10), bulk_settings::by(4));
            auto running = s.w.start(b.run());
            s.w.env->pass(when);
            running.cancel();
            s.w.env->pass(1ms);
            REQUIRE(running.ended());
            const std::size_t counted = b.total();
            CHECK(counted <= (erases ? 10 - s.stored() : s.stored()));
            const std::size_t all = s.w.await(b.run());
            CHECK(all <= 10);
            CHECK(all >= counted);
            CHECK(s.stored() == (erases ? 0 : 10));
        }
    }
}

TEST_CASE("calls of a bulk take turns, and outlive it", "[bulk]") {
    bulk_settings s;
    std::optional<bulk> b(coetcd::put_all(s.client, bulk_settings::puts(5), bulk_settings::by(2)));
    auto one = s.w.start(b->next());
    auto two = s.w.start(b->run());
    auto three = s.w.start(b->next());
    b.reset();
    s.w.env->pass(1s);
    CHECK(one.get()->total == 2);
    CHECK(two.get() == 5);
    CHECK_FALSE(three.get());
    CHECK(s.w.env->calls.size() == 3);
}

TEST_CASE("what a bulk could not do is refused before anything is sent", "[bulk]") {
    bulk_settings s;
    auto puts = bulk_settings::puts(2);
    puts.emplace_back("", "x");
    CHECK_THROWS_AS(coetcd::put_all(s.client, puts), std::invalid_argument);
    coetcd::put_options tells;
    tells.prev_kv = true;
    puts.back() = put_request("k", "x", tells);
    CHECK_THROWS_AS(coetcd::put_all(s.client, puts), std::invalid_argument);
    CHECK_THROWS_AS(coetcd::put_all(s.client, {}, bulk_settings::by(0)), std::invalid_argument);
    CHECK_THROWS_AS(coetcd::erase_all(s.client, {"a", ""}), std::invalid_argument);
    CHECK_THROWS_AS(coetcd::erase_all(s.client, {"a"}, bulk_settings::by(129)),
                    std::invalid_argument);
    CHECK_THROWS_AS(coetcd::erase_range(s.client, ""), std::invalid_argument);
    CHECK_THROWS_AS(coetcd::erase_range(s.client, "a", bulk_settings::by(0)),
                    std::invalid_argument);
    CHECK(s.w.env->calls.empty());
    bulk b = coetcd::put_all(s.client, bulk_settings::puts(1));
    bulk taken = std::move(b);
    CHECK_THROWS_AS(b.next(), std::logic_error); // NOLINT(bugprone-use-after-move): the question
    CHECK_THROWS_AS(b.run(), std::logic_error);
    CHECK_THROWS_AS(b.total(), std::logic_error);
    CHECK(s.w.await(taken.run()) == 1);
}
