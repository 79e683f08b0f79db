// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/session.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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
using coetcd::event;
using coetcd::event_type;
using coetcd::key_range;
using coetcd::op;
using coetcd::session;
using coetcd::txn;
using coetcd::watcher;
using traffic = tcp_proxy::traffic;

namespace {

client connect(const asio::any_io_executor& executor) {
    return client(executor, shared_etcd().url());
}

/// Takes events until there are `n`; not one more may come with them.
awaitable<std::vector<event>> take(watcher& from, std::size_t n) {
    std::vector<event> all;
    while (all.size() < n) {
        std::vector<event> some = co_await from.next();
        CHECK(!some.empty());
        for (event& e : some) {
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
        const std::vector<event> events = co_await w.next();
        for (const event& e : events) {
            if (e.kv.version != version + 1 || e.kv.mod_revision <= revision) {
                throw std::runtime_error("version " + std::to_string(e.kv.version) + " follows " +
                                         std::to_string(version));
            }
            version = e.kv.version;
            revision = e.kv.mod_revision;
        }
    }
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
        CHECK(w.compact_revision() == 0);
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
        const auto events = co_await w.next();
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
        coetcd::watch_options no_delete;
        no_delete.no_delete = true;
        no_delete.prev_kv = true;
        watcher erases = co_await c.watch(key, no_put);
        watcher puts = co_await c.watch(key, no_delete);
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
        const auto e = co_await ending_of(w.next());
        CHECK(e.code == errc::watch_compacted);
        CHECK(w.compact_revision() == second.header.revision);
        const auto again = co_await ending_of(w.next());
        CHECK(again.code == errc::watch_compacted);

        // As the text says: read, and watch from there.
        from.start_revision = w.compact_revision();
        watcher next = co_await c.watch(key, from);
        const auto events = co_await take(next, 1);
        CHECK(events[0].kv.value == "2");
        (void)co_await c.erase(key);
    });
}

TEST_CASE("A watcher that is destroyed leaves no watch on the server", "[watch]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const auto port = shared_etcd().port();
        const std::string watches = "etcd_debugging_mvcc_watcher_total";
        const std::string key = unique_name("ended");
        // With a session the stream stays open, so that each watch has to be ended by itself.
        std::optional<session> s;
        const std::vector<int> ways{0, 1};
        for (const int stream_stays : ways) {
            INFO("the stream stays: " << stream_stays);
            if (stream_stays != 0) {
                session opened = co_await session::open(c);
                s.emplace(std::move(opened));
            }
            const auto before = co_await metric(port, watches);
            std::vector<watcher> all;
            for (int i = 0; i < 20; ++i) {
                watcher w = co_await c.watch(key);
                all.push_back(std::move(w));
            }
            const auto during = co_await metric(port, watches);
            CHECK(during == before + 20);
            task<std::vector<event>> waiting(executor, all.front().next());
            co_await yield(5);
            all.clear();
            const auto e = co_await waiting.how_it_ended();
            CHECK(e.code == asio::error::operation_aborted);
            auto back = [&]() -> awaitable<bool> {
                const auto now = co_await metric(port, watches);
                co_return now == before;
            };
            co_await eventually(back, 5s, "all watches have gone");

            // Also if they are cancelled while they start.
            std::vector<task<watcher>> starting;
            for (int i = 0; i < 50; ++i) {
                starting.emplace_back(executor, c.watch(key));
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
            co_await eventually(back, 5s, "all watches have gone, also those that never began");
        }
    });
}

TEST_CASE("Thousands of watches share one connection", "[watch]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        tcp_proxy proxy(executor, shared_etcd().port());
        coetcd::client_options options;
        options.connections = 2;
        options.request_timeout = 30s;
        options.attempt_timeout = 30s;
        const client c(executor, proxy.url(), options);
        const std::string name = unique_name("many") + '/';
        constexpr std::size_t n = 2000;
        const auto key = [&](std::size_t i) { return name + std::to_string(i); };
        std::vector<std::optional<watcher>> watchers(n);
        const auto begin = [&](std::size_t i) -> awaitable<void> {
            watcher w = co_await c.watch(key(i));
            watchers[i].emplace(std::move(w));
        };
        const auto put_and_take = [&](std::size_t i) -> awaitable<void> {
            (void)co_await c.put(key(i), std::to_string(i));
            const auto events = co_await take(*watchers[i], 1);
            CHECK(events[0].kv.key == key(i));
            CHECK(events[0].kv.value == std::to_string(i));
        };
        std::vector<awaitable<void>> all;
        for (std::size_t i = 0; i < n; ++i) {
            all.push_back(begin(i));
        }
        co_await run_all(std::exchange(all, {}));
        for (std::size_t i = 0; i < n; ++i) {
            all.push_back(put_and_take(i));
        }
        co_await run_all(std::move(all));
        CHECK(proxy.accepted() <= 3);
        co_await erase_all(c, name);
    });
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
            task<std::vector<event>> next(executor, w.next());
            co_await yield(i % 3);
            task<void> put(executor, discard(c.put(key, std::to_string(i))));
            co_await yield(i % 20);
            next.cancel();
            try {
                const auto events = co_await next.result();
                for (const event& e : events) {
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
        CHECK(proxy.accepted() >= 10);
        (void)co_await direct.erase(key);
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
        for (bool last = false; !last;) {
            const auto events = co_await w.next();
            last = events.back().kv.value == "3";
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
        tcp_proxy& used = one.accepted() > 0 ? one : other;
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
