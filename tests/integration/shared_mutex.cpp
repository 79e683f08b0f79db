// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/observer.hpp>
#include <coetcd/session.hpp>
#include <coetcd/shared_mutex.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <signal.h>
#include <string>
#include <utility>
#include <vector>

#include "integration/common.hpp"
#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/etcd_server.hpp"
#include "support/etcd_tools.hpp"
#include "support/process.hpp"
#include "support/run_test.hpp"

using namespace std::chrono_literals;
using namespace support;
namespace asio = boost::asio;
using coetcd::client;
using coetcd::held_lock;
using coetcd::lock_mode;
using coetcd::session;
using coetcd::shared_mutex;
using integration::connect;
using integration::patient;

namespace {

/// Counts the transactions of locks.
struct transactions final : coetcd::observer {
    void on_request(const coetcd::request_report& r) override { count += r.rpc == "txn" ? 1U : 0U; }
    std::size_t count = 0;
};

/// The readers and writers inside, as they tell it.
struct room {
    int readers = 0;
    int writers = 0;
    int reads = 0;
    int writes = 0;
    int most_readers = 0;
    int upgrades = 0;
    int downgrades = 0;

    void enter(lock_mode mode) {
        (mode == lock_mode::shared ? readers : writers) += 1;
        (mode == lock_mode::shared ? reads : writes) += 1;
        most_readers = std::max(most_readers, readers);
        check();
    }
    void leave(lock_mode mode) { (mode == lock_mode::shared ? readers : writers) -= 1; }
    void check() const {
        CHECK(writers <= 1);
        CHECK((writers == 0 || readers == 0));
    }
};

/// Takes the lock so many times, in either mode, and changes that now and then.
awaitable<void> visit(const session& s, std::string name, room& inside, int times, unsigned seed) {
    std::mt19937 random(seed);
    const auto one_in = [&](unsigned n) { return random() % n == 0; };
    shared_mutex m(s, name);
    for (int i = 0; i < times; ++i) {
        held_lock held;
        if (one_in(3)) {
            held = co_await m.scoped_lock();
        } else {
            held = co_await m.scoped_lock_shared();
        }
        inside.enter(held.mode());
        co_await sleep_for(std::chrono::microseconds(random() % 2000));
        if (held.mode() == lock_mode::exclusive && one_in(2)) {
            // Before the request, as it counts at the call.
            inside.leave(lock_mode::exclusive);
            inside.enter(lock_mode::shared);
            ++inside.downgrades;
            co_await held.downgrade();
            co_await sleep_for(std::chrono::microseconds(random() % 2000));
        }
        if (held.mode() == lock_mode::shared && one_in(2)) {
            inside.leave(lock_mode::shared);
            const bool raised = co_await held.try_upgrade();
            inside.enter(held.mode());
            inside.upgrades += raised ? 1 : 0;
            co_await sleep_for(std::chrono::microseconds(random() % 2000));
        }
        inside.leave(held.mode());
        const bool ours = co_await held.unlock();
        CHECK(ours);
    }
}

} // namespace

TEST_CASE("Readers share the lock, writers have it alone, whatever modes they change to",
          "[shared_mutex]") {
    const auto body = []() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client one = connect(executor);
        const client two = connect(executor);
        const std::string name = unique_name("shared");
        std::vector<session> sessions;
        for (int i = 0; i < 4; ++i) {
            session s = co_await open_session(i % 2 == 0 ? one : two, 30s);
            sessions.push_back(std::move(s));
        }
        room inside;
        std::vector<awaitable<void>> all;
        for (unsigned i = 0; i < 12; ++i) {
            all.push_back(visit(sessions[i % sessions.size()], name, inside, 40, i));
        }
        co_await run_all(std::move(all));
        std::cout << inside.reads << " reads, " << inside.most_readers << " at a time, "
                  << inside.writes << " writes, " << inside.downgrades << " downgrades, "
                  << inside.upgrades << " upgrades\n";
        CHECK(inside.most_readers > 1);
        CHECK(inside.downgrades > 20);
        co_await until_count(one, name + "/", 0);
        for (session& s : sessions) {
            co_await s.close();
        }
        co_await until_count(one, name, 0);
    };
    run_test(body, patient(120s));
}

TEST_CASE("A writer goes on reading while another one waits, and readers come after that",
          "[shared_mutex]") {
    const auto body = []() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        session one = co_await open_session(c, 30s);
        session two = co_await open_session(c, 30s);
        session three = co_await open_session(c, 30s);
        const std::string name = unique_name("shared");
        shared_mutex a(one, name);
        shared_mutex b(two, name);
        shared_mutex d(three, name);
        held_lock held = co_await a.scoped_lock();
        task<void> writing(executor, b.lock());
        co_await until_count(c, name + "/write/", 2);
        task<void> reading(executor, d.lock_shared());
        co_await until_count(c, name + "/read/", 1);

        co_await held.downgrade();
        CHECK(held.mode() == lock_mode::shared);
        coetcd::txn guarded =
            coetcd::txn().when(held.is_owner()).then(coetcd::op::put(name + ".x", "1"));
        const auto written = co_await c.txn(std::move(guarded));
        CHECK(written.succeeded);
        co_await sleep_for(200ms);
        CHECK(!writing.done());
        CHECK(!reading.done());
        // A reader from before the writer may write again: it need not wait.
        const bool refused = co_await held.try_upgrade();
        CHECK(!refused); // since another reader waits
        reading.cancel();
        co_await until_count(c, name + "/read/", 0);
        const bool raised = co_await held.try_upgrade();
        CHECK(raised);
        co_await held.downgrade();

        (void)co_await held.unlock();
        co_await writing.result();
        CHECK(b.owns_lock());
        (void)co_await b.unlock();
        co_await d.lock_shared();
        co_await one.close();
        co_await two.close();
        co_await three.close();
        co_await erase_all(c, name);
    };
    run_test(body);
}

TEST_CASE("When 200 readers leave, the writer alone is woken, once for each that it waited for",
          "[shared_mutex][herd]") {
    const auto body = []() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const auto seen_by_writer = std::make_shared<transactions>();
        const auto seen_by_reader = std::make_shared<transactions>();
        coetcd::client_options of_writer;
        of_writer.observer = seen_by_writer;
        coetcd::client_options of_reader;
        of_reader.observer = seen_by_reader;
        const client c = connect(executor);
        const client writes = connect(executor, of_writer);
        const client reads = connect(executor, of_reader);
        session crowd = co_await open_session(c, 60s);
        session one = co_await open_session(writes, 60s);
        session two = co_await open_session(reads, 60s);
        const std::string name = unique_name("herd");
        shared_mutex m(crowd, name);
        std::vector<held_lock> readers;
        for (int i = 0; i < 200; ++i) {
            held_lock held = co_await m.scoped_lock_shared();
            readers.push_back(std::move(held));
        }
        shared_mutex writer(one, name);
        task<void> writing(executor, writer.lock());
        co_await until_count(c, name + "/write/", 1);
        shared_mutex reader(two, name);
        task<void> reading(executor, reader.lock_shared());
        co_await until_count(c, name + "/read/", 201);
        co_await sleep_for(500ms); // until they watch
        const std::size_t before = seen_by_writer->count;
        const std::size_t before_reader = seen_by_reader->count;

        std::mt19937 random(1);
        std::shuffle(readers.begin(), readers.end(), random);
        for (held_lock& held : readers) {
            CHECK(!writing.done());
            const bool ours = co_await held.unlock();
            CHECK(ours);
        }
        co_await writing.result();
        const std::size_t used = seen_by_writer->count - before;
        std::cout << "200 readers left in random order: the writer made " << used
                  << " requests, a reader behind it " << seen_by_reader->count - before_reader
                  << '\n';
        CHECK(used <= 200 + 20); // each wake, and looks from time to time
        CHECK(seen_by_reader->count - before_reader <= 10);
        (void)co_await writer.unlock();
        co_await reading.result();
        co_await crowd.close();
        co_await one.close();
        co_await two.close();
        co_await until_count(c, name, 0);
    };
    run_test(body, patient(120s));
}

TEST_CASE("A writer and etcdctl lock exclude each other", "[shared_mutex][etcdctl]") {
    const auto body = []() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        session s = co_await open_session(c, 30s);
        const std::string name = unique_name("go");
        shared_mutex m(s, name);

        auto theirs = shared_etcd().background_etcdctl({"lock", name});
        const auto key = co_await theirs.async_read_line();
        REQUIRE(key);
        const bool busy = co_await m.try_lock();
        CHECK(!busy);
        task<void> next(executor, m.lock());
        co_await until_count(c, name + "/", 3);
        CHECK(!next.done());
        theirs.signal(SIGINT);
        co_await next.result();
        CHECK(m.owns_lock());
        (void)co_await theirs.async_wait();

        auto waiting = shared_etcd().background_etcdctl({"lock", name});
        co_await until_count(c, name + "/", 3);
        const bool ours = co_await m.unlock();
        CHECK(ours);
        const auto granted = co_await waiting.async_read_line();
        CHECK(granted);
        waiting.signal(SIGINT);
        (void)co_await waiting.async_wait();
        co_await s.close();
        co_await until_count(c, name, 0);
    };
    const auto waits_for_readers = []() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        session s = co_await open_session(c, 30s);
        const std::string name = unique_name("go");
        shared_mutex m(s, name);
        held_lock held = co_await m.scoped_lock_shared();
        auto theirs = shared_etcd().background_etcdctl({"lock", name});
        co_await until_count(c, name + "/", 2);
        const bool ours = co_await held.unlock();
        CHECK(ours);
        const auto key = co_await theirs.async_read_line();
        CHECK(key);
        theirs.signal(SIGINT);
        (void)co_await theirs.async_wait();
        co_await s.close();
        co_await until_count(c, name, 0);
    };
    run_test(body);
    run_test(waits_for_readers);
}

TEST_CASE("A thousand cancels at random moments of a shared_mutex leave no key",
          "[shared_mutex][cancellation]") {
    const auto body = []() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string name = unique_name("cancels");
        std::vector<session> sessions;
        for (int i = 0; i < 3; ++i) {
            session s = co_await open_session(c, 60s);
            sessions.push_back(std::move(s));
        }
        std::mt19937 random(1);
        int cancelled = 0;
        int changed = 0;
        const auto one = [&](std::size_t worker) -> awaitable<void> {
            while (cancelled < 1000) {
                shared_mutex m(sessions[worker % sessions.size()], name);
                const bool reads = random() % 3 != 0;
                task<held_lock> lock(executor, reads ? m.scoped_lock_shared() : m.scoped_lock());
                co_await sleep_for(std::chrono::microseconds(random() % 4000));
                if (random() % 2 == 0) {
                    lock.cancel();
                }
                std::optional<held_lock> held;
                try {
                    held = co_await lock.result();
                } catch (const boost::system::system_error& e) {
                    REQUIRE(e.code() == asio::error::operation_aborted);
                    ++cancelled;
                    continue;
                }
                // A change of the mode, cancelled as well.
                if (held->mode() == lock_mode::exclusive) {
                    task<void> lowering(executor, held->downgrade());
                    co_await yield(static_cast<int>(random() % 20));
                    lowering.cancel();
                    (void)co_await lowering.how_it_ended();
                    CHECK(held->mode() == lock_mode::shared);
                } else {
                    task<bool> raising(executor, held->try_upgrade());
                    co_await yield(static_cast<int>(random() % 20));
                    raising.cancel();
                    const auto how = co_await raising.how_it_ended();
                    cancelled += how.code ? 1 : 0;
                }
                ++changed;
            }
        };
        std::vector<awaitable<void>> all;
        for (std::size_t i = 0; i < 9; ++i) {
            all.push_back(one(i));
        }
        co_await run_all(std::move(all));
        std::cout << "cancelled: " << cancelled << ", changed their mode: " << changed << '\n';
        CHECK(changed > 50);
        co_await until_count(c, name + "/", 0, 10s);
        for (session& s : sessions) {
            CHECK(s.state() == coetcd::session_state::active);
            shared_mutex m(s, name);
            const bool free = co_await m.try_lock();
            CHECK(free);
            (void)co_await m.unlock();
        }
        for (session& s : sessions) {
            co_await s.close();
        }
        co_await until_count(c, name, 0);
    };
    run_test(body, patient(180s));
}
