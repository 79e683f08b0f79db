// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iostream>
#include <malloc.h>
#include <map>
#include <optional>
#include <random>
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
using coetcd::errc;
using coetcd::event;
using coetcd::event_type;
using coetcd::key_range;
using coetcd::op;
using coetcd::session;
using coetcd::txn;
using coetcd::watch_batch;
using coetcd::watcher;
using integration::connect;

// Of ASan, if it is there.
extern "C" __attribute__((weak)) std::size_t __sanitizer_get_current_allocated_bytes();

namespace {

/// Takes events until there are `n`; not one more may come with them.
awaitable<std::vector<event>> take(watcher& from, std::size_t n) {
    std::vector<event> all;
    while (all.size() < n) {
        watch_batch some = co_await from.next();
        CHECK(!some.events.empty());
        CHECK(some.revision >= some.events.back().kv.mod_revision);
        for (event& e : some.events) {
            all.push_back(std::move(e));
        }
    }
    CHECK(all.size() == n);
    co_return all;
}

/// Writes to one key until told to stop, and rides out whatever happens to etcd.
awaitable<void> keep_writing(client c, std::string key, const bool& stop, std::int64_t& written) {
    const client hasty = c.with_timeout(500ms);
    std::int64_t i = 0;
    while (!stop) {
        ++i;
        const auto e = co_await ending_of(hasty.put(key, std::to_string(i)));
        if (!e.code) {
            ++written;
        }
        co_await sleep_for(1ms);
    }
}

/// Takes the events of one key, each of which has a version one above the one before.
awaitable<void> follow(watcher& w, std::int64_t& version, std::int64_t& revision) {
    for (;;) {
        const watch_batch batch = co_await w.next();
        for (const event& e : batch.events) {
            if (e.kv.version != version + 1 || e.kv.mod_revision <= revision) {
                throw std::runtime_error("version " + std::to_string(e.kv.version) + " follows " +
                                         std::to_string(version));
            }
            version = e.kv.version;
            revision = e.kv.mod_revision;
        }
    }
}

/// Bytes that the program has allocated.
std::size_t heap_in_use() {
    if (__sanitizer_get_current_allocated_bytes != nullptr) {
        return __sanitizer_get_current_allocated_bytes();
    }
    const auto info = ::mallinfo2();
    return info.uordblks + info.hblkhd;
}

/// Changes a few keys in every way: one at a time and several in one revision. Stays ahead of the
/// watch that is told of it, but not far.
awaitable<void> keep_changing(
    client c, std::string name, unsigned seed, const bool& stop, const std::vector<event>& told) {
    std::mt19937 random(seed);
    const auto below = [&](std::size_t n) { return random() % n; };
    while (!stop) {
        auto changes = txn();
        const std::size_t first = below(8);
        for (std::size_t i = 0; i <= below(4); ++i) {
            const std::string key = name + std::to_string((first + i) % 8);
            if (below(4) == 0) {
                changes.success.push_back(op::erase(key));
            } else {
                changes.success.push_back(op::put(key, std::string(below(300), 'x')));
            }
        }
        const auto done = co_await c.txn(std::move(changes));
        auto near = [&]() -> awaitable<bool> {
            co_return told.empty() || done.header.revision < told.back().kv.mod_revision + 60;
        };
        co_await eventually(near, 20s, "the watch tells of changes");
    }
}

/// Collects what a watch tells, until it has told of all up to a revision.
awaitable<void> collect(watcher& w, std::vector<event>& all, const std::int64_t& last) {
    while (last == 0 || all.empty() || all.back().kv.mod_revision < last) {
        watch_batch batch = co_await w.next();
        for (event& e : batch.events) {
            all.push_back(std::move(e));
        }
    }
}

bool same(const event& a, const event& b) {
    const auto same_kv = [](const coetcd::key_value& x, const coetcd::key_value& y) {
        return x.key == y.key && x.value == y.value && x.mod_revision == y.mod_revision &&
               x.create_revision == y.create_revision && x.version == y.version;
    };
    return a.type == b.type && same_kv(a.kv, b.kv) &&
           a.prev_kv.has_value() == b.prev_kv.has_value() &&
           (!a.prev_kv || same_kv(*a.prev_kv, *b.prev_kv));
}

/// Writes all the time, cuts the connections of a watch again and again, and compares what it told
/// with the history.
template<class Proxy>
awaitable<void> compare_with_history(Proxy& proxy, std::size_t buffer) {
    const auto executor = co_await asio::this_coro::executor;
    const client direct = connect(executor);
    const client c(executor, proxy.url());
    const std::string name = unique_name("story") + '/';
    const auto begin = co_await direct.put(name + "begin", "");
    coetcd::watch_options from;
    from.start_revision = begin.header.revision;
    from.prev_kv = true;
    from.buffer = buffer;
    watcher w = co_await c.watch(key_range::prefix(name), from);

    bool stop = false;
    std::int64_t last = 0;
    std::vector<event> told;
    task<void> writer(executor, keep_changing(direct, name, 7, stop, told));
    task<void> reader(executor, collect(w, told, last));
    for (int i = 0; i < 10; ++i) {
        const auto more = told.size() + 20;
        auto goes_on = [&]() -> awaitable<bool> { co_return told.size() >= more || reader.done(); };
        co_await eventually(goes_on, 20s, "the watch goes on");
        proxy.cut();
        co_await yield(i * 10);
        proxy.cut(); // while it is being resumed
    }
    stop = true;
    co_await writer.result();
    const auto end = co_await direct.put(name + "end", "");
    last = end.header.revision;
    co_await reader.result();

    std::vector<event> history;
    watcher again = co_await direct.watch(key_range::prefix(name), from);
    co_await collect(again, history, last);
    REQUIRE(told.size() == history.size());
    for (std::size_t i = 0; i < told.size(); ++i) {
        INFO("event " << i);
        REQUIRE(same(told[i], history[i]));
    }
    co_await erase_all(direct, name);
}

/// Waits until the server has so many watches.
awaitable<void> until_watches(double n, std::uint16_t port = shared_etcd().port()) {
    auto there = [=]() -> awaitable<bool> {
        const double now = co_await metric(port, "etcd_debugging_mvcc_watcher_total");
        co_return now == n;
    };
    const std::string what = "the server has " + std::to_string(n) + " watches";
    co_await eventually(there, 10s, what);
}

/// Waits until the server has a watch.
awaitable<void> until_watched() {
    auto watched = []() -> awaitable<bool> {
        const double now =
            co_await metric(shared_etcd().port(), "etcd_debugging_mvcc_watcher_total");
        co_return now > 0;
    };
    co_await eventually(watched, 10s, "the server has a watch");
}

/// How often etcd tells of progress; the flag has lost its prefix with 3.6.
std::string progress_flag() {
    const auto version = run_process({environment("COETCD_ETCD", "etcd"), "--version"}).output;
    const bool old = version.find("Version: 3.4") != version.npos ||
                     version.find("Version: 3.5") != version.npos;
    return old ? "--experimental-watch-progress-notify-interval"
               : "--watch-progress-notify-interval";
}

} // namespace

TEST_CASE("A watch tells of puts and erases, in order, each once", "[watch]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string key = unique_name("watched");
        (void)co_await c.put(key, "before");

        watcher w = co_await c.watch(key);
        const auto first = co_await c.put(key, "1");
        REQUIRE(shared_etcd().etcdctl({"put", key, "2"}).exit_code == 0);
        (void)co_await c.put(key + "/not-this-one", "x");
        const auto erased = co_await c.erase(key);
        const auto again = co_await c.put(key, "3");

        const auto events = co_await take(w, 4);
        CHECK(events[0].type == event_type::put);
        CHECK(events[0].kv.key == key);
        CHECK(events[0].kv.value == "1");
        CHECK(events[0].kv.version == 2);
        CHECK(events[0].kv.mod_revision == first.header.revision);
        CHECK(!events[0].prev_kv);
        CHECK(events[1].kv.value == "2");
        CHECK(events[2].type == event_type::erase);
        CHECK(events[2].kv.key == key);
        CHECK(events[2].kv.mod_revision == erased.header.revision);
        CHECK(events[3].kv.value == "3");
        CHECK(events[3].kv.create_revision == again.header.revision);
        co_await erase_all(c, key);
    });
}

TEST_CASE("A watch of a prefix tells the changes of one revision together", "[watch]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string name = unique_name("prefix") + '/';
        watcher w = co_await c.watch(key_range::prefix(name));
        auto both = txn().then(op::put(name + "a", "1"), op::put(name + "b", "2"));
        const auto done = co_await c.txn(std::move(both));
        const auto batch = co_await w.next();
        const auto& events = batch.events;
        CHECK(batch.revision == done.header.revision);
        REQUIRE(events.size() == 2);
        CHECK(events[0].kv.key == name + "a");
        CHECK(events[1].kv.key == name + "b");
        CHECK(events[0].kv.mod_revision == done.header.revision);
        CHECK(events[1].kv.mod_revision == done.header.revision);
        co_await erase_all(c, name);
        const auto erased = co_await take(w, 2);
        CHECK(erased[1].type == event_type::erase);
    });
}

TEST_CASE("A watch leaves out what it was asked to, and adds what was before", "[watch]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string key = unique_name("filtered");
        coetcd::watch_options no_put;
        no_put.no_put = true;
        no_put.prev_kv = true;
        coetcd::watch_options no_erase;
        no_erase.no_erase = true;
        no_erase.prev_kv = true;
        watcher erases = co_await c.watch(key, no_put);
        watcher puts = co_await c.watch(key, no_erase);
        for (int i = 0; i < 3; ++i) {
            (void)co_await c.put(key, "old");
            (void)co_await c.put(key, "new");
            (void)co_await c.erase(key);
        }
        const auto erased = co_await take(erases, 3);
        for (const event& e : erased) {
            CHECK(e.type == event_type::erase);
            REQUIRE(e.prev_kv);
            CHECK(e.prev_kv->value == "new");
        }
        const auto put = co_await take(puts, 6);
        for (std::size_t i = 0; i < put.size(); ++i) {
            CHECK(put[i].type == event_type::put);
            CHECK(put[i].prev_kv.has_value() == (i % 2 == 1));
        }
        CHECK(put[1].prev_kv->value == "old");
    });
}

TEST_CASE("A watch with a start revision tells the history first", "[watch]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string key = unique_name("history");
        (void)co_await c.put(key, "0");
        coetcd::watch_options from;
        for (int i = 1; i <= 5; ++i) {
            const auto r = co_await c.put(key, std::to_string(i));
            from.start_revision = i == 3 ? r.header.revision : from.start_revision;
        }
        watcher w = co_await c.watch(key, from);
        (void)co_await c.put(key, "6");
        const auto events = co_await take(w, 4);
        CHECK(events[0].kv.value == "3");
        CHECK(events[3].kv.value == "6");

        // One that begins in the future waits for it.
        from.start_revision = events[3].kv.mod_revision + 2;
        watcher later = co_await c.watch(key, from);
        (void)co_await c.put(key, "7");
        (void)co_await c.put(key, "8");
        const auto late = co_await take(later, 1);
        CHECK(late[0].kv.value == "8");
        (void)co_await c.erase(key);
    });
}

TEST_CASE("A history that exceeds what etcd sends at once comes complete", "[watch]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        coetcd::client_options options;
        options.max_answer = 32 * 1024 * 1024;
        const client c(executor, shared_etcd().url(), options);
        const std::string name = unique_name("fragments") + '/';
        coetcd::watch_options from;
        for (int i = 0; i < 8; ++i) {
            const std::string value(700'000, static_cast<char>('a' + i));
            const auto r = co_await c.put(name + std::to_string(i), value);
            from.start_revision = i == 0 ? r.header.revision : from.start_revision;
        }
        watcher w = co_await c.watch(key_range::prefix(name), from);
        const auto events = co_await take(w, 8);
        for (std::size_t i = 0; i < events.size(); ++i) {
            const std::string expected(700'000, static_cast<char>('a' + i));
            CHECK((events[i].kv.value == expected));
        }
        co_await erase_all(c, name);
    });
}

TEST_CASE("A watch whose history was compacted ends, and says where history begins", "[watch]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string key = unique_name("forgotten");
        const auto first = co_await c.put(key, "1");
        const auto second = co_await c.put(key, "2");
        (void)co_await c.compact(second.header.revision);

        coetcd::watch_options from;
        from.start_revision = first.header.revision;
        watcher w = co_await c.watch(key, from);
        from.start_revision = 0;
        try {
            (void)co_await w.next();
        } catch (const coetcd::compacted_error& e) {
            CHECK(e.code() == errc::watch_compacted);
            from.start_revision = e.compact_revision();
        }
        CHECK(from.start_revision == second.header.revision);
        const auto again = co_await ending_of(w.next());
        CHECK(again.code == errc::watch_compacted);
        watcher next = co_await c.watch(key, from);
        const auto events = co_await take(next, 1);
        CHECK(events[0].kv.value == "2");
        (void)co_await c.erase(key);
    });
}

TEST_CASE("A watcher that is destroyed leaves no watch on the server", "[watch]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        std::optional<client> c = connect(executor);
        const std::string key = unique_name("ended");
        co_await until_watches(0);
        // With a session the stream stays open, so that each watch has to be ended by itself.
        std::optional<session> s;
        const std::vector<int> ways{0, 1};
        for (const int stream_stays : ways) {
            INFO("the stream stays: " << stream_stays);
            if (stream_stays != 0) {
                session opened = co_await session::open(*c);
                s.emplace(std::move(opened));
            }
            std::vector<watcher> all;
            for (int i = 0; i < 20; ++i) {
                watcher w = co_await c->watch(key);
                all.push_back(std::move(w));
            }
            co_await until_watches(20);
            task<watch_batch> waiting(executor, all.front().next());
            co_await yield(5);
            all.clear();
            const auto e = co_await waiting.how_it_ended();
            CHECK(e.code == asio::error::operation_aborted);
            co_await until_watches(0);

            // The same holds if they are cancelled while they start.
            std::vector<task<watcher>> starting;
            for (int i = 0; i < 50; ++i) {
                starting.emplace_back(executor, c->watch(key));
            }
            for (std::size_t i = 0; i < starting.size(); ++i) {
                co_await yield(1);
                starting[i].cancel();
            }
            for (auto& t : starting) {
                const auto ended = co_await t.how_it_ended();
                CHECK((!ended.code || ended.code == asio::error::operation_aborted));
            }
            starting.clear();
            co_await until_watches(0);
        }
        s.reset();

        // And if the client goes first.
        std::vector<watcher> last;
        for (int i = 0; i < 20; ++i) {
            watcher w = co_await c->watch(key);
            last.push_back(std::move(w));
        }
        std::optional<task<watcher>> one_more(std::in_place, executor, c->watch(key));
        c.reset();
        co_await until_watches(21);
        one_more.reset();
        last.clear();
        co_await until_watches(0);
    });
}

TEST_CASE("Ten thousand watches share one connection", "[watch][many]") {
    const auto body = []() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client direct = connect(executor);
        co_await until_watches(0);
        tcp_proxy proxy(executor, shared_etcd().port());
        coetcd::client_options patient;
        patient.request_timeout = 60s;
        const client c(executor, proxy.url(), patient);
        const std::string name = unique_name("many") + '/';
        const auto first = co_await direct.put(name + "first", "");
        coetcd::watch_options from;
        from.start_revision = first.header.revision + 1;
        constexpr std::size_t n = 10'000;
        const auto key = [&](std::size_t i) { return name + std::to_string(i); };

        std::vector<std::optional<watcher>> watchers(n);
        const auto begin = [&](std::size_t i) -> awaitable<void> {
            watcher w = co_await c.watch(key(i), from);
            watchers[i].emplace(std::move(w));
        };
        std::vector<awaitable<void>> all;
        const std::size_t before = heap_in_use();
        const auto start = clock::now();
        for (std::size_t i = 0; i < n; ++i) {
            all.push_back(begin(i));
        }
        co_await run_all(std::exchange(all, {}));
        const auto begun = clock::now();
        const std::size_t after = heap_in_use();
        std::cout << n << " watches: " << (after - before) / n
                  << " bytes of heap for each, begun in " << ms_between(start, begun) << " ms\n";
        CHECK((after - before) / n < 3000);
        CHECK(proxy.count().accepted == 1);
        co_await until_watches(n);

        // Each is told of its own key.
        auto writes = txn();
        for (std::size_t i = 0; i < n; ++i) {
            writes.success.push_back(op::put(key(i), std::to_string(i)));
            if (writes.success.size() == 100) {
                (void)co_await direct.txn(std::exchange(writes, txn()));
            }
        }
        for (std::size_t i = 0; i < n; ++i) {
            const auto events = co_await take(*watchers[i], 1);
            CHECK(events[0].kv.key == key(i));
            CHECK(events[0].kv.value == std::to_string(i));
        }
        std::cout << "    all told of one change each in " << ms_between(begun, clock::now())
                  << " ms\n";
        CHECK(proxy.count().accepted == 1);

        // One after the other, and then the rest at once.
        watchers.resize(n / 2);
        co_await until_watches(n / 2);
        CHECK(proxy.count().accepted == 1);
        watchers.clear();
        co_await until_watches(0);
        co_await erase_all(direct, name);
    };
    run_options options;
    options.timeout = 300s;
    run_test(body, options);
}

TEST_CASE("A wait for events that is cancelled loses none", "[watch]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string key = unique_name("patient");
        watcher w = co_await c.watch(key);
        std::size_t seen = 0;
        int cancelled = 0;
        for (int i = 0; i < 100; ++i) {
            task<watch_batch> next(executor, w.next());
            co_await yield(i % 3);
            task<void> put(executor, discard(c.put(key, std::to_string(i))));
            co_await yield(i % 20);
            next.cancel();
            try {
                const watch_batch batch = co_await next.result();
                for (const event& e : batch.events) {
                    CHECK(e.kv.value == std::to_string(seen));
                    ++seen;
                }
            } catch (const boost::system::system_error&) {
                ++cancelled;
            }
            co_await put.result();
        }
        CHECK(cancelled > 0);
        const auto rest = co_await take(w, 100 - seen);
        for (const event& e : rest) {
            CHECK(e.kv.value == std::to_string(seen));
            ++seen;
        }
        (void)co_await c.erase(key);
    });
}

TEST_CASE("A watch goes on without gap or duplicate when its connection is cut", "[watch]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client direct = connect(executor);
        const std::string key = unique_name("cut");
        tcp_proxy proxy(executor, shared_etcd().port());
        const client c(executor, proxy.url());
        watcher w = co_await c.watch(key);

        bool stop = false;
        std::int64_t written = 0;
        std::int64_t version = 0;
        std::int64_t revision = 0;
        task<void> writer(executor, keep_writing(direct, key, stop, written));
        task<void> reader(executor, follow(w, version, revision));
        for (int i = 0; i < 10; ++i) {
            const auto more = version + 10;
            auto goes_on = [&]() -> awaitable<bool> { co_return version >= more || reader.done(); };
            co_await eventually(goes_on, 10s, "the watch goes on");
            proxy.cut();
        }
        stop = true;
        co_await writer.result();
        auto complete = [&]() -> awaitable<bool> { co_return version >= written || reader.done(); };
        co_await eventually(complete, 10s, "the watch has told of all");
        reader.cancel();
        const auto e = co_await reader.how_it_ended();
        CHECK(e.code == asio::error::operation_aborted);
        CHECK(version == written);
        CHECK(proxy.count().accepted >= 10);
        (void)co_await direct.erase(key);
    });
}

TEST_CASE("What a watch tells is the history, however often its stream breaks",
          "[watch][history]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        tcp_proxy proxy(executor, shared_etcd().port());
        co_await compare_with_history(proxy, 1024 * 1024);
        CHECK(proxy.count().accepted >= 10);
        co_await compare_with_history(proxy, 20'000); // and it is told to stop again and again
    });
}

TEST_CASE("A long history comes complete although its stream breaks in the midst of it",
          "[watch][history]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client direct = connect(executor);
        const std::string key = unique_name("long");
        constexpr std::int64_t n = 2500; // etcd sends 1000 revisions at once
        coetcd::watch_options from;
        const auto write = [&](std::int64_t many) -> awaitable<void> {
            for (; many != 0; --many) {
                const auto r = co_await direct.put(key, "v");
                from.start_revision = from.start_revision == 0
                                          ? r.header.revision
                                          : std::min(from.start_revision, r.header.revision);
            }
        };
        std::vector<awaitable<void>> writers;
        for (int i = 0; i < 5; ++i) {
            writers.push_back(write(n / 5));
        }
        co_await run_all(std::move(writers));

        tcp_proxy proxy(executor, shared_etcd().port());
        const client c(executor, proxy.url());
        watcher w = co_await c.watch(key, from);
        std::int64_t version = 0;
        std::int64_t revision = 0;
        while (version < n) {
            const watch_batch batch = co_await w.next();
            for (const event& e : batch.events) {
                CHECK(e.kv.version == ++version);
                CHECK(e.kv.mod_revision > revision);
                revision = e.kv.mod_revision;
            }
            CHECK(batch.revision == revision);
            if (version < n) {
                proxy.cut();
            }
        }
        CHECK(proxy.count().accepted > 1);
        (void)co_await direct.erase(key);
    });
}

TEST_CASE("A reader that is slow holds little, and does not slow others", "[watch][slow]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string key = unique_name("slow");
        coetcd::watch_options small;
        small.buffer = 64 * 1024;
        watcher slow = co_await c.watch(key, small);
        watcher quick = co_await c.watch(key);
        constexpr std::size_t n = 200;
        std::size_t told = 0;
        const auto value = [](std::size_t i) { return std::to_string(i) + std::string(8000, 'x'); };
        const std::size_t before = heap_in_use();
        for (std::size_t i = 0; i < n; ++i) {
            (void)co_await c.put(key, value(i));
            const auto events = co_await take(quick, 1); // at once
            CHECK((events[0].kv.value == value(i)));
        }
        const std::size_t held = heap_in_use() - before;
        CHECK(held < 500'000); // of the 1,600,000 that were written
        co_await until_watches(1);
        while (told < n) {
            const watch_batch batch = co_await slow.next();
            std::size_t bytes = 0;
            for (const event& e : batch.events) {
                CHECK((e.kv.value == value(told)));
                ++told;
                bytes += e.kv.value.size();
            }
            // What history comes in one message, etcd decides.
            CHECK(bytes < small.buffer + 8000 * n);
        }
        task<watch_batch> more(executor, slow.next());
        (void)co_await c.put(key, "the last");
        const watch_batch batch = co_await more.result();
        CHECK(batch.events.size() == 1);
        co_await erase_all(c, key);
    });
}

TEST_CASE("A reader that was too slow for the history is told so, after what it has",
          "[watch][slow]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string key = unique_name("late");
        coetcd::watch_options small;
        small.buffer = 1;
        co_await until_watches(0);
        watcher slow = co_await c.watch(key, small);
        (void)co_await c.put(key, "1");
        co_await until_watches(0);
        (void)co_await c.put(key, "2");
        const auto third = co_await c.put(key, "3");
        (void)co_await c.compact(third.header.revision);
        const auto events = co_await take(slow, 1);
        CHECK(events[0].kv.value == "1");
        std::int64_t begins = 0;
        try {
            (void)co_await slow.next();
        } catch (const coetcd::compacted_error& e) {
            begins = e.compact_revision();
        }
        CHECK(begins == third.header.revision);
        (void)co_await c.erase(key);
    });
}

TEST_CASE("A message that is too large ends the watch that it is for", "[watch]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client direct = connect(executor);
        coetcd::client_options options;
        options.max_answer = 20'000;
        const client c(executor, shared_etcd().url(), options);
        const std::string name = unique_name("large") + '/';
        watcher bad = co_await c.watch(name + "bad");
        watcher good = co_await c.watch(name + "good");
        (void)co_await direct.put(name + "good", "1");
        (void)co_await direct.put(name + "bad", std::string(30'000, 'x'));
        (void)co_await direct.put(name + "good", "2");
        const auto e = co_await ending_of(bad.next());
        CHECK(e.code == errc::too_large);
        const auto events = co_await take(good, 2);
        CHECK(events[1].kv.value == "2");
        co_await until_watches(1);
        co_await erase_all(direct, name);
    });
}

TEST_CASE("A watch that nothing happens to does not fall behind", "[watch]") {
    etcd_server etcd({progress_flag() + "=100ms"});
    const auto body = [&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client direct(executor, etcd.url());
        tcp_proxy proxy(executor, etcd.port());
        const client c(executor, proxy.url());
        coetcd::watch_options options;
        options.progress_notify = true;
        watcher told = co_await c.watch("quiet", options);
        watcher quiet = co_await c.watch("quiet");
        std::int64_t revision = 0;
        for (int i = 0; i < 10; ++i) {
            const auto r = co_await direct.put("other", "x");
            revision = r.header.revision;
        }
        for (int i = 0; i < 3; ++i) {
            for (watch_batch batch; batch.revision < revision;) {
                batch = co_await told.next();
                CHECK(batch.events.empty());
            }
            (void)co_await told.next(); // by then the other one is there, too
        }
        (void)co_await direct.compact(revision);
        proxy.cut();
        (void)co_await direct.put("quiet", "1");
        const auto events = co_await take(quiet, 1);
        CHECK(events[0].kv.value == "1");
    };
    run_test(body);
}

TEST_CASE("Watches work behind a proxy that completes requests", "[watch][proxy]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client direct = connect(executor);
        co_await until_watches(0);
        tcp_proxy proxy(executor, shared_etcd().port());
        proxy.requests(traffic::whole);
        const client c(executor, proxy.url());
        const std::string name = unique_name("behind") + '/';
        const auto start = clock::now();
        std::vector<watcher> all;
        for (int i = 0; i < 10; ++i) {
            watcher w = co_await c.watch(key_range::prefix(name));
            all.push_back(std::move(w));
            if (i == 0) {
                std::cout << "behind a proxy that completes requests: the first watch took "
                          << ms_between(start, clock::now()) << " ms\n";
            }
        }
        co_await until_watches(10);
        (void)co_await direct.put(name + "1", "v");
        for (watcher& w : all) {
            const auto events = co_await take(w, 1);
            CHECK(events[0].kv.value == "v");
        }
        all.erase(all.begin() + 5, all.end());
        co_await until_watches(5);
        task<watch_batch> waiting(executor, all[1].next());
        std::vector<task<watcher>> starting;
        for (int i = 0; i < 30; ++i) {
            starting.emplace_back(executor, c.watch(name));
        }
        for (std::size_t i = 0; i < starting.size(); ++i) {
            co_await yield(1);
            starting[i].cancel();
        }
        for (auto& t : starting) {
            (void)co_await t.how_it_ended();
        }
        starting.clear();
        co_await until_watches(5);
        all.clear();
        const auto e = co_await waiting.how_it_ended();
        CHECK(e.code == asio::error::operation_aborted);
        co_await until_watches(0);
        co_await erase_all(direct, name);
    });
}

TEST_CASE("Behind such a proxy, too, a watch tells the history", "[watch][proxy][history]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        tcp_proxy proxy(executor, shared_etcd().port());
        proxy.requests(traffic::whole);
        co_await compare_with_history(proxy, 1024 * 1024);
        co_await compare_with_history(proxy, 20'000);
        co_await until_watches(0);
    });
}

TEST_CASE("Behind such a proxy a lock is handed over by its watches", "[watch][proxy][mutex]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        co_await until_watches(0);
        tcp_proxy proxy(executor, shared_etcd().port());
        proxy.requests(traffic::whole);
        const client c(executor, proxy.url());
        session one = co_await session::open(c);
        session other = co_await session::open(c);
        const std::string name = unique_name("handed");
        coetcd::mutex first(one, name);
        coetcd::mutex second(other, name);
        co_await first.lock();
        for (int i = 0; i < 10; ++i) {
            task<void> waiting(executor, second.lock());
            auto waits = [&]() -> awaitable<bool> {
                const std::vector<coetcd::lock_entry> behind = co_await first.waiters();
                co_return behind.size() == 1;
            };
            co_await eventually(waits, 5s, "it waits");
            co_await until_watched();
            const auto before = clock::now();
            (void)co_await first.unlock();
            co_await waiting.result();
            // Without watches it would look again after some seconds only.
            CHECK(ms_between(before, clock::now()) < 1000);
            std::swap(first, second);
        }
        (void)co_await first.unlock();
        co_await one.close(); // what it keeps of watches goes with it
        co_await other.close();
        co_await until_watches(0);
    });
}

TEST_CASE("A watch goes on without gap or duplicate when its server restarts", "[watch][restart]") {
    const auto signal = GENERATE(std::string("SIGTERM"), std::string("SIGKILL"));
    INFO(signal);
    etcd_server etcd;
    const auto body = [&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, etcd.url());
        const client writing(executor, etcd.url());
        watcher w = co_await c.watch("k");

        bool stop = false;
        std::int64_t written = 0;
        std::int64_t version = 0;
        std::int64_t revision = 0;
        task<void> writer(executor, keep_writing(writing, "k", stop, written));
        task<void> reader(executor, follow(w, version, revision));
        std::int64_t more = 20;
        auto goes_on = [&]() -> awaitable<bool> { co_return version >= more || reader.done(); };
        for (int i = 0; i < 3; ++i) {
            co_await eventually(goes_on, 15s, "the watch goes on");
            const std::function<void()> restart = [&] {
                if (signal == "SIGKILL") {
                    etcd.kill();
                } else {
                    etcd.stop();
                }
                etcd.start();
            };
            co_await in_thread(restart);
            more = version + 20;
        }
        co_await eventually(goes_on, 15s, "the watch goes on");
        stop = true;
        co_await writer.result();
        const auto last = co_await c.get("k");
        REQUIRE(last);
        CHECK(last->version >= written); // some whose answer was lost were applied
        auto complete = [&]() -> awaitable<bool> {
            co_return version >= last->version || reader.done();
        };
        co_await eventually(complete, 10s, "the watch has told of all");
        reader.cancel();
        const auto e = co_await reader.how_it_ended();
        INFO(e.text);
        CHECK(e.code == asio::error::operation_aborted);
        CHECK(version == last->version);
        CHECK(revision == last->mod_revision);
    };
    run_test(body);
}

TEST_CASE("A watch goes on when etcd has stood still", "[watch]") {
    etcd_server etcd;
    const auto body = [&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, etcd.url());
        watcher w = co_await c.watch("k");
        (void)co_await c.put("k", "1");
        (void)co_await take(w, 1);
        etcd.pause();
        const auto late = co_await ending_of(c.with_timeout(300ms).put("k", "2"));
        CHECK(late.code == errc::outcome_unknown);
        etcd.resume();
        (void)co_await c.put("k", "3");
        for (bool told = false; !told;) { // the other one may be applied after it
            const watch_batch batch = co_await w.next();
            for (const coetcd::event& e : batch.events) {
                told = told || e.kv.value == "3";
            }
        }
    };
    run_test(body);
}

TEST_CASE("A watch goes on elsewhere when its member falls silent", "[watch]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client direct = connect(executor);
        const std::string key = unique_name("silent");
        tcp_proxy one(executor, shared_etcd().port());
        tcp_proxy other(executor, shared_etcd().port());
        const client c(executor, coetcd::endpoints(one.url(), other.url()));
        watcher w = co_await c.watch(key);
        tcp_proxy& used = one.count().accepted > 0 ? one : other;
        used.requests(traffic::hold);
        used.answers(traffic::hold);
        (void)co_await direct.put(key, "v");
        const auto before = clock::now();
        const auto events = co_await take(w, 1);
        CHECK(events[0].kv.value == "v");
        CHECK(ms_between(before, clock::now()) < 20'000);
        (void)co_await direct.erase(key);
    });
}
