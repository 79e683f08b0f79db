// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/mirror.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "integration/common.hpp"
#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/etcd_server.hpp"
#include "support/etcd_tools.hpp"
#include "support/run_test.hpp"
#include "support/tcp_proxy.hpp"

using namespace std::chrono_literals;
using namespace support;
namespace asio = boost::asio;
using coetcd::client;
using coetcd::errc;
using coetcd::key_range;
using coetcd::mirror;
using coetcd::mirror_batch;
using coetcd::mirror_change;
using coetcd::mirror_changes;
using coetcd::mirror_entry;
using coetcd::op;
using coetcd::server_errc;
using coetcd::txn;
using integration::connect;

namespace {

/// What a reader that does what it is told has.
struct copied_map {
    void take(const mirror_batch& batch) {
        for (const mirror_change& c : batch.changes) {
            const auto had = all.find(c.key());
            const mirror_entry before = had == all.end() ? nullptr : had->second;
            if (before != c.was) {
                throw std::runtime_error("a change does not follow from the one before it: " +
                                         c.key());
            }
            if (c.is) {
                all[c.key()] = c.is;
            } else {
                all.erase(c.key());
            }
            compared += c.by_comparison ? 1 : 0;
            told += 1;
        }
        if (batch.revision < revision) {
            throw std::runtime_error("a reader was taken back");
        }
        revision = batch.revision;
    }
    std::map<std::string, mirror_entry> all;
    std::int64_t revision = 0;
    std::size_t told = 0;
    std::size_t compared = 0;
};

awaitable<void> follow_changes(mirror_changes& from, copied_map& to) {
    for (;;) {
        const mirror_batch batch = co_await from.next();
        to.take(batch);
    }
}

/// All keys that etcd has at a revision.
awaitable<std::vector<coetcd::key_value>> at(client c, key_range keys, std::int64_t revision) {
    coetcd::range_options how;
    how.revision = revision;
    auto r = co_await c.range(std::move(keys), how);
    co_return std::move(r.kvs);
}

awaitable<void> require_same(client c, const mirror& m, key_range keys) {
    const coetcd::mirror_snapshot all = m.snapshot();
    const auto expected = co_await at(c, std::move(keys), all.revision);
    REQUIRE(all.entries.size() == expected.size());
    for (std::size_t i = 0; i != expected.size(); ++i) {
        REQUIRE(*all.entries[i] == expected[i]);
    }
}

/// Puts so many keys, in transactions of a hundred.
awaitable<void> put_many(client c, std::string prefix, int n, std::string value) {
    for (int i = 0; i < n; i += 100) {
        txn some;
        for (int k = i; k != std::min(i + 100, n); ++k) {
            some.then(op::put(prefix + std::to_string(100'000 + k), value));
        }
        (void)co_await c.txn(std::move(some));
    }
}

} // namespace

TEST_CASE("A mirror tells what there is, each change, and one's own writes", "[mirror]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string name = unique_name("mirrored") + '/';
        (void)co_await c.put(name + "a", "1");
        mirror m = co_await coetcd::open_mirror(c, name);
        CHECK(m.size() == 1);
        mirror_changes changes = m.changes();
        copied_map copy;
        const mirror_batch first = co_await changes.next();
        copy.take(first);
        for (int i = 0; i != 20; ++i) {
            auto both = txn().then(op::put(name + "a", std::to_string(i)),
                                   op::put(name + "b", std::to_string(i)));
            const auto done = co_await c.txn(std::move(both));
            co_await m.wait(done.header.revision);
            CHECK(m.get(name + "a")->value == std::to_string(i));
            CHECK(m.get(name + "b")->value == std::to_string(i));
            const mirror_batch batch = co_await changes.next();
            REQUIRE(batch.changes.size() == 2);
            CHECK(batch.changes[0].revision == done.header.revision);
            copy.take(batch);
        }
        const auto elsewhere = co_await c.put(unique_name("not-mirrored"), "1");
        co_await m.wait(elsewhere.header.revision);
        CHECK(m.revision() >= elsewhere.header.revision);
        co_await erase_all(c, name); // all of it, in one revision
        const mirror_batch last = co_await changes.next();
        copy.take(last);
        CHECK(last.changes.size() == 2);
        CHECK(copy.all.empty());
        CHECK(m.size() == 0);
        CHECK_FALSE(m.trouble());
    });
}

TEST_CASE("A mirror may be of all keys, or of the last ones", "[mirror]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        etcd_server etcd;
        const client c(executor, etcd.url());
        const std::string last = "\xff\xff";
        (void)co_await c.put("a", "1");
        (void)co_await c.put(last, "1");
        mirror all = co_await coetcd::open_mirror(c, "");
        mirror high = co_await coetcd::open_mirror(c, "\xff");
        mirror single = co_await coetcd::open_mirror_of(c, "a");
        CHECK(all.size() == 2);
        CHECK(high.size() == 1);
        (void)co_await c.put(last + "b", "2");
        (void)co_await c.put(std::string(1, '\0'), "2");
        const auto done = co_await c.put("a", "2");
        for (const mirror* m : {&all, &high, &single}) {
            co_await m->wait(done.header.revision);
        }
        CHECK(all.size() == 4);
        CHECK(high.size() == 2);
        CHECK(single.get("a")->value == "2");
        co_await require_same(c, all, key_range::all());
        co_await require_same(c, high, key_range::prefix("\xff"));
        auto everything = key_range::all();
        const auto erased = co_await c.erase(std::move(everything));
        co_await all.wait(erased.header.revision);
        co_await high.wait(erased.header.revision);
        CHECK(all.size() == 0);
        CHECK(high.size() == 0);
    });
}

TEST_CASE("A mirror of many keys is read in pages, while they change", "[mirror]") {
    run_test(
        []() -> awaitable<void> {
            const auto executor = co_await asio::this_coro::executor;
            etcd_server etcd;
            coetcd::client_options large;
            large.max_answer = 64 * 1024 * 1024;
            const client writer(executor, etcd.url(), large);
            constexpr int many = 20'000;
            co_await put_many(writer, "m/", many, std::string(100, 'x'));
            coetcd::client_options small;
            small.max_answer = 300'000; // about 1,200 of these keys
            const client c(executor, etcd.url(), small);
            bool stop = false;
            auto change = [](client by, const bool& until) -> awaitable<void> {
                std::mt19937 random(7);
                const auto any = [&] { return "m/" + std::to_string(100'000 + random() % many); };
                while (!until) {
                    const std::string gone = any();
                    auto one = txn().then(op::put("m/0", std::to_string(random())));
                    one.then(op::erase(gone));
                    (void)co_await by.txn(std::move(one));
                    auto back = txn().then(op::put(gone, "back"));
                    (void)co_await by.txn(std::move(back));
                }
            };
            task<void> changing(executor, change(writer, stop));
            mirror m = co_await coetcd::open_mirror(c, "m/");
            CHECK(m.size() >= many); // one may be gone, and one is new
            copied_map copy;
            mirror_changes changes = m.changes();
            task<void> following(executor, follow_changes(changes, copy));
            auto busy = [&]() -> awaitable<bool> { co_return copy.told > many + 200; };
            co_await eventually(busy, 20s, "the reader is told of changes");
            stop = true;
            co_await changing.result();
            const auto last = co_await writer.put("m/last", "1");
            co_await m.wait(last.header.revision);
            co_await require_same(writer, m, key_range::prefix("m/"));
            auto told = [&]() -> awaitable<bool> {
                co_return copy.revision >= last.header.revision;
            };
            co_await eventually(told, 5s, "the reader is told of the last change");
            CHECK(copy.all.size() == m.size());
            CHECK(copy.compared <= many + 1); // the present
            following.cancel();
            (void)co_await following.how_it_ended();
            auto everything = key_range::prefix("m/");
            const auto erased = co_await writer.erase(std::move(everything)); // one revision
            co_await m.wait(erased.header.revision);
            CHECK(m.size() == 0);
        },
        integration::patient(120s));
}

TEST_CASE("A mirror finds what was compacted while it was cut off", "[mirror]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        etcd_server etcd;
        tcp_proxy proxy(executor, etcd.port());
        const client direct(executor, etcd.url());
        const client c(executor, proxy.url());
        co_await put_many(direct, "m/", 200, "1");
        mirror m = co_await coetcd::open_mirror(c, "m/");
        mirror_changes changes = m.changes();
        copied_map copy;
        const mirror_batch present = co_await changes.next();
        copy.take(present);
        proxy.refuse(true);
        proxy.cut();
        (void)co_await direct.put("m/100000", "2");
        (void)co_await direct.erase("m/100001");
        (void)co_await direct.put("m/new", "1");
        (void)co_await direct.put("m/passing", "1");
        const auto last = co_await direct.erase("m/passing");
        (void)co_await direct.compact(last.header.revision, true);
        auto in_trouble = [&]() -> awaitable<bool> { co_return m.trouble().has_value(); };
        co_await eventually(in_trouble, 5s, "the mirror notices");
        CHECK(m.get("m/100000")->value == "1");
        CHECK(m.age() > 0s);
        proxy.refuse(false);
        co_await m.wait(last.header.revision);
        co_await require_same(direct, m, key_range::prefix("m/"));
        const mirror_batch found = co_await changes.next();
        copy.take(found);
        CHECK(found.changes.size() == 3);
        CHECK(copy.compared == 203);
        CHECK(copy.all.size() == m.size());
        const auto after = co_await direct.put("m/new", "2");
        co_await m.wait(after.header.revision);
        CHECK(m.get("m/new")->value == "2");
        auto well = [&]() -> awaitable<bool> { co_return !m.trouble(); };
        co_await eventually(well, 5s, "there is no trouble any more");
    });
}

TEST_CASE("A mirror goes on after a restart of etcd, and tells each change", "[mirror]") {
    run_test(
        []() -> awaitable<void> {
            const auto executor = co_await asio::this_coro::executor;
            etcd_server etcd;
            const client c(executor, etcd.url());
            (void)co_await c.put("m/a", "0");
            mirror m = co_await coetcd::open_mirror(c, "m/");
            mirror_changes changes = m.changes();
            copied_map copy;
            task<void> following(executor, follow_changes(changes, copy));
            std::int64_t last = 0;
            int puts = 0;
            for (int round = 0; round != 3; ++round) {
                for (int i = 0; i != 20; ++i) {
                    const std::string value = std::to_string(++puts);
                    const auto done = co_await c.put("m/a", value);
                    last = done.header.revision;
                }
                if (round == 0) {
                    co_await in_thread([&] { etcd.kill(); });
                    CHECK(m.get("m/a")); // it goes on telling what it knows
                } else {
                    co_await in_thread([&] { etcd.stop(); });
                }
                co_await in_thread([&] { etcd.start(); });
            }
            co_await m.wait(last);
            CHECK(m.get("m/a")->value == std::to_string(puts));
            auto told = [&]() -> awaitable<bool> { co_return copy.revision >= last; };
            co_await eventually(told, 5s, "the reader is told of the last change");
            CHECK(copy.told == 1 + static_cast<std::size_t>(puts));
            CHECK(copy.compared == 1);
            CHECK_FALSE(following.done());
            following.cancel();
            (void)co_await following.how_it_ended();
        },
        integration::patient(120s));
}

TEST_CASE("A mirror whose user loses its rights ends, and tells what it knew", "[mirror][auth]") {
    run_test(
        []() -> awaitable<void> {
            const auto executor = co_await asio::this_coro::executor;
            etcd_server etcd;
            const auto must = [&](std::vector<std::string> arguments, bool as_root) {
                if (as_root) {
                    arguments.insert(arguments.end(), {"--user", "root:canary"});
                }
                REQUIRE(etcd.etcdctl(arguments).exit_code == 0);
            };
            must({"user", "add", "root:canary"}, false);
            must({"user", "grant-role", "root", "root"}, false);
            must({"user", "add", "app:canary"}, false);
            must({"role", "add", "app"}, false);
            must({"role", "grant-permission", "app", "--prefix=true", "readwrite", "app/"}, false);
            must({"user", "grant-role", "app", "app"}, false);
            must({"auth", "enable"}, false);
            coetcd::client_options options;
            options.credentials = coetcd::credentials("app", "canary");
            const client c(executor, etcd.url(), options);
            const auto refused = co_await ending_of(coetcd::open_mirror(c, "other/"));
            CHECK(refused.code == server_errc::permission_denied);
            const auto put = co_await c.put("app/a", "1");
            mirror m = co_await coetcd::open_mirror(c, "app/");
            mirror_changes changes = m.changes();
            (void)co_await changes.next();
            co_await m.wait(put.header.revision);
            must({"role", "revoke-permission", "app", "--prefix=true", "app/"}, true);
            const auto ended = co_await ending_of(changes.next()); // a look finds out
            CHECK(ended.code == server_errc::permission_denied);
            REQUIRE(m.trouble());
            CHECK(m.trouble()->code() == server_errc::permission_denied);
            CHECK(m.get("app/a")->value == "1");
        },
        integration::patient(60s));
}
