// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/detail/access.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/detail/service/renewals.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "integration/common.hpp"
#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/etcd_server.hpp"
#include "support/etcd_tools.hpp"
#include "support/process.hpp"
#include "support/run_test.hpp"
#include "support/tcp_proxy.hpp"

using namespace std::chrono_literals;
using namespace support;
namespace asio = boost::asio;
using coetcd::client;
using coetcd::client_options;
using coetcd::compare;
using coetcd::errc;
using coetcd::key_range;
using coetcd::op;
using coetcd::server_errc;
using coetcd::session;
using coetcd::txn;
using integration::connect;

namespace {

std::vector<std::string> keys_of(const coetcd::range_response& r) {
    std::vector<std::string> keys;
    for (const auto& kv : r.kvs) {
        keys.push_back(kv.key);
    }
    return keys;
}

using strings = std::vector<std::string>;

} // namespace

TEST_CASE("A key is put, read and erased, as etcdctl sees it", "[client]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string key = unique_name("kv");

        const auto before = co_await c.get(key);
        CHECK(!before);
        const auto first = co_await c.put(key, "one");
        CHECK(first.header.revision > 0);
        CHECK(first.header.cluster_id != 0);
        CHECK(!first.prev_kv);
        CHECK(shared_etcd().etcdctl({"get", key, "--print-value-only"}).output == "one\n");

        coetcd::put_options with_previous;
        with_previous.prev_kv = true;
        const auto second = co_await c.put(key, "two", with_previous);
        REQUIRE(second.prev_kv);
        CHECK(second.prev_kv->value == "one");
        const auto read = co_await c.get(key);
        REQUIRE(read);
        CHECK(read->value == "two");
        CHECK(read->version == 2);
        CHECK(read->create_revision == first.header.revision);
        CHECK(read->mod_revision == second.header.revision);
        CHECK(read->lease == 0);

        CHECK(shared_etcd().etcdctl({"put", key, "three"}).exit_code == 0);
        coetcd::erase_options previous;
        previous.prev_kv = true;
        const auto erased = co_await c.erase(key, previous);
        CHECK(erased.deleted == 1);
        REQUIRE(erased.prev_kvs.size() == 1);
        CHECK(erased.prev_kvs[0].value == "three");
        const auto again = co_await c.erase(key);
        CHECK(again.deleted == 0);
        CHECK(shared_etcd().etcdctl({"get", key}).output.empty());
    });
}

TEST_CASE("Keys and values are bytes", "[client]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        std::string all;
        for (int i = 0; i < 256; ++i) {
            all += static_cast<char>(i);
        }
        const std::string name = unique_name("bytes") + '/';
        const std::string key = name + all;
        const strings values{all, std::string(), std::string(900'000, '\xfe')};
        for (const std::string& value : values) {
            (void)co_await c.put(key, value);
            const auto read = co_await c.get(key);
            REQUIRE(read);
            CHECK(read->key == key);
            CHECK((read->value == value)); // without its text, should it differ
        }
        co_await erase_all(c, name);
    });
}

TEST_CASE("A range is read in the order, to the extent and as of the revision asked for",
          "[client]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string name = unique_name("range") + '/';
        const auto at = [&](const char* suffix) { return name + suffix; };
        const auto first = co_await c.put(at("a"), "3");
        const auto second = co_await c.put(at("c"), "1");
        const auto third = co_await c.put(at("b"), "2");
        const auto fourth = co_await c.put(at("a"), "0");
        const key_range all = key_range::prefix(name);

        const auto plain = co_await c.range(all);
        const strings in_order{at("a"), at("b"), at("c")};
        CHECK(keys_of(plain) == in_order);
        CHECK(plain.count == 3);
        CHECK(!plain.more);

        coetcd::range_options how;
        how.order = coetcd::sort_order::descend;
        how.target = coetcd::sort_target::create;
        how.limit = 2;
        how.keys_only = true;
        const auto newest = co_await c.range(all, how);
        const strings newest_two{at("b"), at("c")};
        CHECK(keys_of(newest) == newest_two);
        CHECK(newest.more);
        CHECK(newest.count == 3);
        CHECK(newest.kvs[0].value.empty());

        coetcd::range_options by_value;
        by_value.order = coetcd::sort_order::ascend;
        by_value.target = coetcd::sort_target::value;
        const auto valued = co_await c.range(all, by_value);
        const strings value_order{at("a"), at("c"), at("b")};
        CHECK(keys_of(valued) == value_order);

        coetcd::range_options then;
        then.revision = first.header.revision;
        const auto old = co_await c.range(all, then);
        REQUIRE(old.kvs.size() == 1);
        CHECK(old.kvs[0].value == "3");

        coetcd::range_options modified;
        modified.min_mod_revision = third.header.revision;
        const auto late = co_await c.range(all, modified);
        const strings modified_late{at("a"), at("b")};
        CHECK(keys_of(late) == modified_late);
        coetcd::range_options created;
        created.max_create_revision = second.header.revision;
        created.serializable = true;
        const auto early = co_await c.range(all, created);
        const strings created_early{at("a"), at("c")};
        CHECK(keys_of(early) == created_early);

        const auto half = co_await c.range(key_range(at("a"), at("c")));
        CHECK(half.count == 2);
        coetcd::range_options count_only;
        count_only.count_only = true;
        const auto counted = co_await c.range(all, count_only);
        CHECK(counted.count == 3);
        CHECK(counted.kvs.empty());
        const auto from = co_await c.range(key_range::from(at("c")));
        REQUIRE(!from.kvs.empty());
        CHECK(from.kvs[0].key == at("c"));

        const auto erased = co_await c.erase(all);
        CHECK(erased.deleted == 3);
        CHECK(erased.header.revision == fourth.header.revision + 1);
    });
}

TEST_CASE("A transaction does what its conditions decide", "[client]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string name = unique_name("txn") + '/';
        const std::string stock = name + "stock";
        const std::string sold = name + "sold";

        auto create = txn()
                          .when(compare::version(stock) == 0)
                          .then(op::put(stock, "7"), op::range(stock))
                          .otherwise(op::range(stock));
        const auto created = co_await c.txn(create);
        REQUIRE(created.succeeded);
        REQUIRE(created.responses.size() == 2);
        CHECK(created.responses[1].range().kvs.at(0).value == "7");
        const auto refused = co_await c.txn(std::move(create));
        CHECK(!refused.succeeded);
        REQUIRE(refused.responses.size() == 1);
        CHECK(refused.responses[0].range().kvs.at(0).value == "7");
        CHECK(refused.header.revision == created.header.revision);

        auto inner = txn()
                         .when(compare::version(sold) == 0)
                         .then(op::put(sold, "1"))
                         .otherwise(op::erase(sold));
        auto sell = txn()
                        .when(compare::value(stock) == "7",
                              compare::create_revision(stock) == created.header.revision,
                              compare::mod_revision(stock) > 0,
                              compare::version(stock) < 2,
                              compare::lease(stock) == 0,
                              compare::value(stock) != "8")
                        .then(op::put(stock, "6"), op::nested(std::move(inner)));
        const auto done = co_await c.txn(std::move(sell));
        REQUIRE(done.succeeded);
        REQUIRE(done.responses.size() == 2);
        const auto& nested = done.responses[1].nested();
        CHECK(nested.succeeded);
        REQUIRE(nested.responses.size() == 1);
        CHECK(nested.responses[0].put().header.revision == done.header.revision);

        // A condition on a range holds if it holds for each key.
        auto none_new =
            txn()
                .when(compare::create_revision(key_range::prefix(name)) > created.header.revision)
                .otherwise(op::erase(key_range::prefix(name)));
        const auto swept = co_await c.txn(std::move(none_new));
        CHECK(!swept.succeeded);
        REQUIRE(swept.responses.size() == 1);
        CHECK(swept.responses[0].erase().deleted == 2);
    });
}

TEST_CASE("Compacted history cannot be read any more", "[client]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string key = unique_name("compacted");
        const auto first = co_await c.put(key, "1");
        const auto second = co_await c.put(key, "2");
        const auto done = co_await c.compact(second.header.revision, true);
        CHECK(done.header.revision >= second.header.revision);

        coetcd::range_options old;
        old.revision = first.header.revision;
        const auto read = co_await ending_of(c.range(key, old));
        CHECK(read.code == server_errc::out_of_range);
        CHECK_THAT(read.text, contains("compacted"));
        const auto again = co_await ending_of(c.compact(first.header.revision));
        CHECK(again.code == server_errc::out_of_range);
        (void)co_await c.erase(key);
    });
}

TEST_CASE("A lease keeps its keys until it ends", "[client]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string key = unique_name("leased");

        const auto granted = co_await c.lease_grant(60s);
        CHECK(granted.id > 0);
        CHECK(granted.ttl == 60s);
        coetcd::put_options with_lease;
        with_lease.lease = granted.id;
        (void)co_await c.put(key, "v", with_lease);
        const auto renewed = co_await c.lease_keep_alive_once(granted.id);
        CHECK(renewed.value().id == granted.id);
        CHECK(renewed.value().ttl == 60s);
        const auto left = co_await c.lease_time_to_live(granted.id, true);
        CHECK(left.value().granted_ttl == 60s);
        CHECK(left.value().ttl >= 50s);
        CHECK(left.value().keys == strings{key});
        const coetcd::member_status now = co_await c.status();
        CHECK(now.is_leader());
        CHECK(now.db_size > 0);
        CHECK(now.version.starts_with("3."));
        const auto all = co_await c.lease_leases();
        CHECK(std::count(all.leases.begin(), all.leases.end(), granted.id) == 1);
        CHECK(lists_lease(shared_etcd(), granted.id));

        const auto revoked = co_await c.lease_revoke(granted.id);
        CHECK(revoked);
        const auto gone = co_await c.get(key);
        CHECK(!gone);
        const auto dead = co_await c.lease_time_to_live(granted.id);
        CHECK(!dead);
        const auto not_renewed = co_await c.lease_keep_alive_once(granted.id);
        CHECK(!not_renewed);
        const auto twice = co_await c.lease_revoke(granted.id);
        CHECK(!twice);

        const auto named = co_await c.lease_grant(1s, 4711);
        CHECK(named.id == 4711);
        CHECK(named.ttl == 2s); // etcd's minimum
        const auto taken = co_await ending_of(c.lease_grant(60s, 4711));
        CHECK(taken.code.category() == coetcd::server_category());
        CHECK_THAT(taken.text, contains("lease already exists"));
        (void)co_await c.lease_revoke(4711);
    });
}

TEST_CASE("Many leases are renewed in few requests, and none of them is left out", "[client]") {
    struct counter final : coetcd::observer {
        void on_request(const coetcd::request_report& r) override {
            renewals += r.rpc == "lease_keep_alive" ? 1 : 0;
        }
        int renewals = 0;
    };
    run_test([]() -> awaitable<void> {
        constexpr int leases = 200;
        constexpr int rounds = 20;
        const auto executor = co_await asio::this_coro::executor;
        const auto counted = std::make_shared<counter>();
        client_options o;
        o.observer = counted;
        const client c(executor, shared_etcd().url(), o);
        std::vector<coetcd::lease_id> ids;
        for (int i = 0; i != leases; ++i) {
            const auto granted = co_await c.lease_grant(60s);
            ids.push_back(granted.id);
        }
        using coetcd::detail::renewals;
        const auto impl = coetcd::detail::access::impl(c);
        for (int round = 0; round != rounds; ++round) {
            std::vector<task<renewals::result>> all;
            for (const coetcd::lease_id id : ids) {
                coetcd::detail::call_terms how = impl->within(5s);
                how.way = coetcd::detail::connection_kind::renewal;
                all.emplace_back(executor, renewals::renew(impl->lease_renewals, id, how, false));
            }
            for (std::size_t i = 0; i != all.size(); ++i) {
                const renewals::result renewed = co_await all[i].result();
                CHECK_FALSE(renewed.ec);
                CHECK(renewed.response.id == ids[i]);
                CHECK(renewed.response.ttl == 60s);
            }
        }
        CHECK(counted->renewals <= rounds * (leases / 16 + 3));
        for (const coetcd::lease_id id : ids) {
            (void)co_await c.lease_revoke(id);
        }
    });
}

TEST_CASE("What etcd refuses is told by its code and its words", "[client]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string key = unique_name("refused");

        coetcd::put_options no_lease;
        no_lease.lease = 1234;
        const auto leased = co_await ending_of(c.put(key, "v", no_lease));
        CHECK(leased.code == server_errc::not_found);
        CHECK_THAT(leased.text,
                   contains("put: ") && contains("requested lease not found") &&
                       contains(shared_etcd().url()));

        auto twice = txn().then(op::put(key, "1"), op::put(key, "2"));
        const auto duplicate = co_await ending_of(c.txn(std::move(twice)));
        CHECK(duplicate.code == server_errc::invalid_argument);
        CHECK_THAT(duplicate.text, contains("duplicate key"));

        coetcd::range_options future;
        future.revision = 1'000'000'000;
        const auto unborn = co_await ending_of(c.range(key, future));
        CHECK(unborn.code == server_errc::out_of_range);
        CHECK(unborn.code != coetcd::condition::retryable);

        coetcd::put_options keep;
        keep.ignore_value = true;
        const auto nothing_to_keep = co_await ending_of(c.put(key, "", keep));
        CHECK(nothing_to_keep.code == server_errc::invalid_argument);

        const std::string huge(2'000'000, 'x');
        const auto large = co_await ending_of(c.put(key, huge));
        CHECK(large.code.category() == coetcd::server_category());
        CHECK_THAT(large.text, contains("too large"));
        const auto left = co_await c.get(key);
        CHECK(!left);
    });
}

TEST_CASE("An argument that cannot be right is refused by name, and nothing is sent", "[client]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const auto refused = [](const char* field, auto call) {
            INFO(field);
            try {
                call();
                FAIL("it was accepted");
            } catch (const std::invalid_argument& e) {
                CHECK_THAT(e.what(), contains(field));
            }
        };
        const auto refused_url = [&](const char* url) {
            INFO(url);
            refused("endpoints: ", [&] { client(executor, url); });
            refused(url, [&] { client(executor, url); });
        };
        refused_url("http://");
        refused_url("http://a b:2379");
        refused_url("http://localhost:0");
        refused_url("http://localhost:65536");
        refused_url("ftp://localhost:2379");
        refused_url("http://localhost:2379/v3");
        refused_url("https://localhost:2379");
        refused("endpoints", [&] { client(executor, std::vector<std::string>()); });

        tcp_proxy proxy(executor, shared_etcd().port());
        client_options options;
        options.request_timeout = 0ms;
        refused("request_timeout", [&] { client(executor, proxy.url(), options); });
        const client c(executor, proxy.url());
        refused("key", [&] { (void)c.get(""); });
        refused("key", [&] { (void)c.range(""); });
        refused("key", [&] { (void)c.put("", "v"); });
        refused("key", [&] { (void)c.erase(""); });
        refused("key", [&] { (void)c.watch(""); });
        refused("ttl", [&] { (void)c.lease_grant(0s); });
        refused("ttl", [&] { (void)c.lease_grant(-1s); });
        refused("id", [&] { (void)c.lease_grant(1s, -1); });
        refused("lease", [&] { (void)c.lease_revoke(0); });
        refused("lease", [&] { (void)c.lease_keep_alive_once(0); });
        refused("lease", [&] { (void)c.lease_time_to_live(0); });
        refused("lease", [&] { (void)session::adopt(c, 0); });
        refused("timeout", [&] { (void)c.with_timeout(-1ms); });
        coetcd::watch_options past;
        past.start_revision = -1;
        refused("start_revision", [&] { (void)c.watch("k", past); });
        refused("ttl", [&] { (void)session::open(c, 0s); });
        refused("ttl", [&] { (void)session::open(c, -5s); });
        co_await yield(10);
        CHECK(proxy.count().accepted == 0);

        session s = co_await session::open(c);
        const auto sent = proxy.count().passed_requests;
        refused("name", [&] { coetcd::mutex(s, ""); });
        refused("name", [&] { coetcd::mutex(s, std::string(513, 'x')); });
        co_await yield(10);
        CHECK(proxy.count().passed_requests == sent);
        coetcd::mutex longest(s, std::string(512, 'x'));
        const bool taken = co_await longest.try_lock();
        CHECK(taken);
        co_await s.close();
    });
}

TEST_CASE("A call goes to the next endpoint if one fails", "[client]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const std::string key = unique_name("failover");
        tcp_proxy one(executor, shared_etcd().port());
        tcp_proxy other(executor, shared_etcd().port());
        client_options options;
        options.attempt_timeout = 500ms;
        const client c(executor, coetcd::endpoints(one.url(), other.url()), options);

        (void)co_await c.put(key, "1");
        CHECK(one.count().accepted + other.count().accepted == 1);
        tcp_proxy& used = one.count().accepted == 1 ? one : other;
        tcp_proxy& spare = one.count().accepted == 1 ? other : one;

        // Dead: connections are refused. What was not sent is repeated, even a put.
        used.refuse(true);
        used.cut();
        (void)co_await c.put(key, "2");
        CHECK(spare.count().accepted == 1);

        // Mute: it takes requests and does not answer. What can be repeated is.
        used.refuse(false);
        spare.requests(traffic::hold);
        const auto before = clock::now();
        const auto read = co_await c.get(key);
        const auto took = ms_between(before, clock::now());
        REQUIRE(read);
        CHECK(read->value == "2");
        CHECK(took >= 500);
        CHECK(took < 2500);

        // It stays with the one that works.
        const auto at_once = clock::now();
        (void)co_await c.get(key);
        CHECK(ms_between(at_once, clock::now()) < 500);
        (void)co_await c.erase(key);
    });
}

TEST_CASE("Without any endpoint a call fails at its deadline and says where", "[client]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        tcp_proxy nobody(executor, shared_etcd().port());
        const client c = client(executor, nobody.url()).with_timeout(600ms);
        nobody.refuse(true);
        const auto before = clock::now();
        const auto e = co_await ending_of(c.put("k", "v"));
        CHECK(e.code == errc::unavailable);
        CHECK(e.code == coetcd::condition::retryable);
        CHECK_THAT(e.text, contains("put: ") && contains(nobody.url()));
        CHECK(ms_between(before, e.when) >= 500);
        CHECK(ms_between(before, e.when) < 2000);
    });
}

TEST_CASE("A change whose answer is lost has an unknown outcome, and is not repeated", "[client]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client direct = connect(executor);
        const std::string key = unique_name("unknown");
        tcp_proxy proxy(executor, shared_etcd().port());
        const client c = client(executor, proxy.url()).with_timeout(1s);

        const auto expect_unknown = [](const ending& e) {
            CHECK(e.code == errc::outcome_unknown);
            CHECK(e.code == coetcd::condition::outcome_unknown);
            CHECK(e.code != coetcd::condition::retryable);
        };
        proxy.answers(traffic::lose);
        const auto put = co_await ending_of(c.put(key, "1"));
        expect_unknown(put);
        const auto erased = co_await ending_of(c.erase(key));
        expect_unknown(erased);
        auto write = txn().then(op::put(key, "2"));
        const auto written = co_await ending_of(c.txn(std::move(write)));
        expect_unknown(written);
        const auto now = co_await direct.get(key);
        REQUIRE(now);
        CHECK(now->value == "2");
        CHECK(now->version == 1); // each was applied, once

        // A connection that breaks tells so at once.
        proxy.answers(traffic::pass);
        (void)co_await c.get(key);
        proxy.requests(traffic::hold);
        const auto before = clock::now();
        task<coetcd::put_response> cut_off(executor, c.put(key, "3"));
        const auto held = [&]() -> awaitable<bool> { co_return proxy.held_requests() > 0; };
        co_await eventually(held, 5s, "the put is under way");
        proxy.cut();
        const auto e = co_await cut_off.how_it_ended();
        expect_unknown(e);
        CHECK(ms_between(before, e.when) < 900);
        proxy.requests(traffic::pass);

        // A read is just repeated.
        proxy.requests(traffic::hold);
        task<std::optional<coetcd::key_value>> read(executor, c.with_timeout(5s).get(key));
        co_await eventually(held, 5s, "the read is under way");
        proxy.requests(traffic::pass);
        proxy.cut();
        const auto found = co_await read.result();
        REQUIRE(found);
        CHECK(found->value == "2");
        (void)co_await direct.erase(key);
    });
}

TEST_CASE("A call in flight is cancelled at once, and others go on", "[client]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const std::string key = unique_name("cancelled");
        tcp_proxy proxy(executor, shared_etcd().port());
        const client c(executor, proxy.url());
        const auto held = [&]() -> awaitable<bool> { co_return proxy.held_requests() > 0; };

        proxy.requests(traffic::hold);
        task<void> put(executor, discard(c.put(key, "1")));
        co_await eventually(held, 5s, "the put is under way");
        put.cancel(asio::cancellation_type::partial);
        put.cancel(asio::cancellation_type::total);
        co_await yield(20);
        CHECK(!put.done()); // only terminal counts
        const auto before = clock::now();
        put.cancel();
        const auto e = co_await put.how_it_ended();
        CHECK(e.code == asio::error::operation_aborted);
        CHECK(ms_between(before, e.when) < 1000);

        // The same holds while it waits for a connection.
        std::vector<task<void>> crowd;
        for (int i = 0; i < 20; ++i) {
            crowd.emplace_back(executor, discard(c.get(key)));
        }
        co_await yield(20);
        const auto crowd_before = clock::now();
        for (auto& t : crowd) {
            t.cancel();
        }
        for (auto& t : crowd) {
            const auto ended = co_await t.how_it_ended();
            CHECK(ended.code == asio::error::operation_aborted);
        }
        CHECK(ms_between(crowd_before, clock::now()) < 1000);

        proxy.requests(traffic::pass);
        (void)co_await c.erase(key);
    });
}

TEST_CASE("A thousand calls at once share a few connections", "[client]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        tcp_proxy proxy(executor, shared_etcd().port());
        client_options options;
        options.connections = 3;
        options.request_timeout = 30s;
        const client c(executor, proxy.url(), options);
        const std::string name = unique_name("crowd") + '/';
        std::vector<awaitable<void>> all;
        for (int i = 0; i < 1000; ++i) {
            all.push_back(discard(c.put(name + std::to_string(i), "v")));
        }
        co_await run_all(std::move(all));
        const auto there = co_await count(c, name);
        CHECK(there == 1000);
        CHECK(proxy.count().accepted <= 3);
        co_await erase_all(c, name);
    });
}

TEST_CASE("An answer that is too large, or not etcd's, is told apart", "[client]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const std::string key = unique_name("large");
        client_options options;
        options.max_answer = 10'000;
        const client c(executor, shared_etcd().url(), options);
        const std::string value(20'000, 'x');
        (void)co_await c.put(key, value);
        const auto large = co_await ending_of(c.get(key));
        CHECK(large.code == errc::too_large);
        const auto erased = co_await c.erase(key);
        CHECK(erased.deleted == 1);

        const asio::ip::tcp::endpoint any(asio::ip::address_v4::loopback(), 0);
        asio::ip::tcp::acceptor acceptor(executor, any);
        const auto greet = [&]() -> awaitable<void> {
            const std::string greeting = "220 mail.example.com ESMTP\r\n";
            for (;;) {
                boost::system::error_code ec;
                asio::ip::tcp::socket guest =
                    co_await acceptor.async_accept(asio::redirect_error(asio::use_awaitable, ec));
                if (ec) {
                    co_return;
                }
                co_await asio::async_write(
                    guest, asio::buffer(greeting), asio::redirect_error(asio::use_awaitable, ec));
            }
        };
        task<void> stranger(executor, greet());
        const client wrong(executor,
                           "127.0.0.1:" + std::to_string(acceptor.local_endpoint().port()));
        const auto e = co_await ending_of(wrong.get(key));
        CHECK(e.code == errc::protocol_error);
        CHECK_THAT(e.text, contains("check the endpoints"));
        acceptor.close();
        co_await stranger.result();
    });
}

TEST_CASE("A client may be destroyed while its calls are under way", "[client]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const std::string key = unique_name("destroyed");
        std::optional<client> c(connect(executor));
        std::vector<task<void>> calls;
        for (int i = 0; i < 30; ++i) {
            calls.emplace_back(executor, discard(c->put(key, std::to_string(i))));
        }
        calls.emplace_back(executor, discard(c->watch(key)));
        co_await yield(3);
        c.reset();
        for (auto& call : calls) {
            const auto e = co_await call.how_it_ended();
            CHECK(!e.code);
        }
        const client another = connect(executor);
        (void)co_await another.erase(key);
    });
}

namespace {

struct deadline_row {
    std::string call;
    std::chrono::milliseconds bound;
    std::vector<errc> allowed;
    task<void> running;
};

} // namespace

TEST_CASE("Every call ends within its deadline when etcd stands still", "[client][deadline]") {
    etcd_server etcd;
    const auto body = [&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        client_options options;
        options.request_timeout = 1s;
        options.attempt_timeout = 400ms;
        options.connections = 64;
        const client c(executor, etcd.url(), options);
        session s = co_await open_session(c, 5s);
        session to_close = co_await open_session(c, 3s);
        session watched = co_await open_session(c, 3s);
        const auto lease = co_await c.lease_grant(60s);
        coetcd::mutex held(s, "deadline/held");
        co_await held.lock();
        coetcd::mutex guarded(s, "deadline/guarded");
        auto guard = co_await guarded.scoped_lock();
        coetcd::mutex fresh(s, "deadline/fresh");
        coetcd::mutex tried(s, "deadline/tried");
        coetcd::mutex timed(s, "deadline/timed");
        coetcd::mutex scoped(s, "deadline/scoped");
        coetcd::mutex with(s, "deadline/with");
        const auto nothing = []() -> awaitable<void> { co_return; };

        etcd.pause();
        std::vector<deadline_row> rows;
        const auto start = clock::now();
        const auto row = [&](std::string name,
                             std::chrono::milliseconds bound,
                             std::vector<errc> allowed,
                             awaitable<void> work) {
            task<void> running(executor, std::move(work));
            rows.push_back({std::move(name), bound, std::move(allowed), std::move(running)});
        };
        const std::vector<errc> late{errc::timed_out};
        const std::vector<errc> unknown{errc::outcome_unknown};
        const std::vector<errc> lost{errc::session_lost};
        auto read = txn().then(op::range("k"));
        auto write = txn().then(op::put("k", "v"));
        row("get", 1s, late, discard(c.get("k")));
        row("range", 1s, late, discard(c.range(key_range::prefix("k"))));
        row("put", 1s, unknown, discard(c.put("k", "v")));
        row("erase", 1s, unknown, discard(c.erase("k")));
        row("txn that reads", 1s, late, discard(c.txn(std::move(read))));
        row("txn that writes", 1s, unknown, discard(c.txn(std::move(write))));
        row("compact", 1s, unknown, discard(c.compact(1)));
        row("lease_grant", 1s, unknown, discard(c.lease_grant(60s)));
        row("lease_revoke", 1s, unknown, discard(c.lease_revoke(lease.id)));
        row("lease_keep_alive_once", 1s, late, discard(c.lease_keep_alive_once(lease.id)));
        row("lease_time_to_live", 1s, late, discard(c.lease_time_to_live(lease.id)));
        row("lease_leases", 1s, late, discard(c.lease_leases()));
        row("watch", 1s, late, discard(c.watch("k")));
        row("put with another timeout",
            300ms,
            unknown,
            discard(c.with_timeout(300ms).put("k", "v")));
        row("session::open", 1s, unknown, discard(session::open(c)));
        row("session::adopt", 1s, late, discard(session::adopt(c, lease.id)));
        row("session::close", 3s, unknown, to_close.close());
        row("session::wait_lost", 3s, {}, discard(watched.wait_lost()));
        row("mutex::try_lock",
            1s,
            {errc::timed_out, errc::outcome_unknown},
            discard(tried.try_lock()));
        row("mutex::try_lock_for", 700ms, late, discard(timed.try_lock_for(700ms)));
        row("mutex::unlock", 1s, unknown, discard(held.unlock()));
        row("held_lock::unlock", 1s, unknown, discard(guard.unlock()));
        row("mutex::holder", 1s, late, discard(held.holder()));
        row("mutex::waiters", 1s, late, discard(held.waiters()));
        row("mutex::lock", 5s, lost, fresh.lock());
        row("mutex::scoped_lock", 5s, lost, discard(scoped.scoped_lock()));
        row("with_lock", 5s, lost, coetcd::with_lock(with, nothing));

        for (auto& r : rows) {
            const auto e = co_await r.running.how_it_ended();
            INFO(r.call << " ended after " << ms_between(start, e.when) << " ms: " << e.text);
            // A second for a busy machine.
            CHECK(ms_between(start, e.when) < static_cast<double>((r.bound + 1s).count()));
            bool expected = r.allowed.empty() && !e.code;
            for (const errc allowed : r.allowed) {
                expected = expected || e.code == allowed;
            }
            CHECK(expected);
        }
        etcd.resume();
    };
    run_test(body);
}

TEST_CASE("An observer is told of connections, also of one that fails, and of their end",
          "[client][observer]") {
    class connections final : public coetcd::observer {
    public:
        void on_connection(const coetcd::connection_report& r) override {
            ++count[r.what];
            CHECK(!std::string(r.endpoint).empty());
            CHECK((r.what == r.failed) == bool(r.reason));
            CHECK(r.duration >= 0ns);
        }
        int count[3] = {0, 0, 0};
    };
    const auto seen = std::make_shared<connections>();
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        client_options o;
        o.observer = seen;
        {
            const client c(executor, shared_etcd().url(), o);
            (void)co_await c.get("k");
            (void)co_await c.get("k");
            CHECK(seen->count[coetcd::connection_report::opened] == 1);
            CHECK(seen->count[coetcd::connection_report::closed] == 0);
        }
        const client nobody(executor, "http://127.0.0.1:1", o);
        const client hasty = nobody.with_timeout(100ms);
        (void)co_await ending_of(hasty.get("k"));
        CHECK(seen->count[coetcd::connection_report::failed] > 0);
    });
    CHECK(seen->count[coetcd::connection_report::closed] == 1);
}

namespace {

/// Takes spans over HTTP/2 without understanding them, until there are some bytes among them.
awaitable<void> until_told(asio::ip::tcp::acceptor& at, std::string bytes) {
    asio::ip::tcp::socket etcd = co_await at.async_accept(asio::use_awaitable);
    const std::string settings("\0\0\0\4\0\0\0\0\0", 9);
    const std::string accepts("\0\0\0\4\1\0\0\0\0", 9);
    const std::string both = settings + accepts;
    co_await asio::async_write(etcd, asio::buffer(both), asio::use_awaitable);
    std::string all;
    std::string part(4096, '\0');
    while (all.find(bytes) == all.npos) {
        const std::size_t n =
            co_await etcd.async_read_some(asio::buffer(part), asio::use_awaitable);
        all.append(part, 0, n);
    }
}

class tracer final : public coetcd::observer {
public:
    void on_request_begin(const coetcd::request_begin_report&,
                          coetcd::request_headers& more) override {
        more.add("Grpc-Metadata-traceparent",
                 "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    }
};

} // namespace

TEST_CASE("etcd's spans belong to the trace that an observer names", "[client][observer]") {
    const std::string help = run_process({environment("COETCD_ETCD", "etcd"), "--help"}).output;
    const std::string flag = "enable-distributed-tracing";
    const std::size_t found = help.find(flag);
    if (found == help.npos) {
        return; // before 3.5
    }
    const bool is_experiment = help.substr(0, found).ends_with("--experimental-");
    const std::string named = is_experiment ? "--experimental-" : "--";
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        asio::ip::tcp::acceptor at(executor,
                                   asio::ip::tcp::endpoint(asio::ip::address_v4::loopback(), 0));
        const std::string to = "127.0.0.1:" + std::to_string(at.local_endpoint().port());
        std::optional<etcd_server> etcd;
        co_await in_thread([&] {
            etcd.emplace(strings{named + flag,
                                 named + "distributed-tracing-address=" + to,
                                 named + "distributed-tracing-sampling-rate=1000000"});
        });
        client_options o;
        o.observer = std::make_shared<tracer>();
        const client c(executor, etcd->url(), o);
        const std::string id = "\x0a\xf7\x65\x19\x16\xcd\x43\xdd\x84\x48\xeb\x21\x1c\x80\x31\x9c";
        task<void> told(executor, until_told(at, id));
        (void)co_await c.put("traced", "x");
        co_await told.result();
    });
}
