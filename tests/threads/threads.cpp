// SPDX-License-Identifier: BSL-1.0
// What the classes promise of threads, on a real etcd. Built with TSan by `tests/run --preset tsan
// threads`; no other sanitizer sees a race.
#include <coetcd.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_future.hpp>

#include <atomic>
#include <chrono>
#include <exception>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/etcd_server.hpp"
#include "support/etcd_tools.hpp"

using namespace std::chrono_literals;
using namespace support;
namespace asio = boost::asio;
using coetcd::client;
using coetcd::client_options;
using coetcd::key_range;
using coetcd::session;

namespace {

constexpr int threads = 4;
constexpr int clients = 8;
constexpr int rounds = 10;

using strand = asio::strand<asio::io_context::executor_type>;

/// Runs a context on several threads, until its work is done or it is stopped.
class crew {
public:
    explicit crew(asio::io_context& context) {
        for (int i = 0; i < threads; ++i) {
            members_.emplace_back([&context] { context.run(); });
        }
    }
    ~crew() { join(); }
    void join() {
        for (std::thread& t : members_) {
            if (t.joinable()) {
                t.join();
            }
        }
    }

private:
    std::vector<std::thread> members_;
};

/// Counts what it is told, by whichever thread.
class counting final : public coetcd::observer {
public:
    void on_request(const coetcd::request_report&) override { ++requests; }
    void on_lock_wait(const coetcd::lock_wait_report& r) override { acquired += r.acquired; }
    std::atomic<int> requests{0};
    std::atomic<int> acquired{0};
};

/// All that a client can do, one thing after the other. Everything in it is on one strand.
awaitable<void> work(std::string url,
                     std::string name,
                     std::shared_ptr<coetcd::observer> observer,
                     std::atomic<int>& inside,
                     std::atomic<int>& total) {
    const auto executor = co_await asio::this_coro::executor;
    client_options options;
    options.observer = std::move(observer);
    const client c(executor, url, options);
    session s = co_await session::open(c);
    coetcd::mutex m(s, name);
    const std::string own = unique_name("threads") + '/';
    coetcd::watcher w = co_await c.watch(key_range::prefix(own));
    for (int i = 0; i < rounds; ++i) {
        auto body = [&]() -> awaitable<void> {
            if (++inside != 1) {
                throw std::logic_error("not alone");
            }
            (void)co_await c.put(own + std::to_string(i), "x");
            --inside;
        };
        co_await coetcd::with_lock(m, body);
        (void)co_await w.next();
        ++total;
    }
    co_await s.close();
    auto mine = key_range::prefix(own);
    (void)co_await c.erase(std::move(mine));
}

/// What a service does in each of its connections: all shapes of a lock, on a strand of its own.
class visitor {
public:
    visitor(client c, session& s, const std::string& name, std::vector<int>& counts, int id)
        : client_(std::move(c))
        , session_(s)
        , name_(name)
        , counts_(counts)
        , id_(id) {}

    awaitable<void> run() {
        for (int i = 0; i < rounds; ++i) {
            const auto which = static_cast<std::size_t>(id_ + i) % counts_.size();
            coetcd::mutex m(session_, name_ + std::to_string(which));
            co_await take(m, counts_[which], i % 6);
            if (session_.state() == coetcd::session_state::lost || session_.remaining() == 0ns) {
                throw std::logic_error("the session is lost");
            }
        }
    }

private:
    awaitable<void> take(coetcd::mutex& m, int& count, int how) {
        const auto here = co_await asio::this_coro::executor;
        auto body = [&]() -> awaitable<void> {
            const auto executor = co_await asio::this_coro::executor;
            if (executor != here) {
                throw std::logic_error("a body runs on another executor");
            }
            const int before = count; // no atomic: the lock orders
            co_await yield();
            count = before + 1;
        };
        if (how == 0) {
            co_await m.lock();
            co_await body();
            coetcd::txn guarded = coetcd::txn().when(m.is_owner()).then(coetcd::op::range("x"));
            const auto answer = co_await client_.txn(std::move(guarded));
            const bool was_ours = co_await m.unlock();
            if (!answer.succeeded || !was_ours || m.owns_lock()) {
                throw std::logic_error("it was not ours");
            }
        } else if (how == 1) {
            const coetcd::held_lock held = co_await m.scoped_lock();
            co_await body(); // given back from here, by the destructor
        } else if (how == 2) {
            co_await coetcd::with_lock(m, body);
        } else if (how == 3) {
            const bool ran = co_await coetcd::with_lock_for(m, 60s, body);
            if (!ran) {
                throw std::logic_error("it took too long");
            }
        } else if (how == 4) {
            const auto taken = co_await coetcd::as_result(m.try_lock_for(60s));
            if (!taken || !*taken || m.fencing_token() == 0) {
                throw std::logic_error("it was not taken");
            }
            co_await body(); // goes with the mutex
        } else {
            // Cancelled from here, at any moment of its way there and back.
            asio::cancellation_signal stop;
            auto ended = std::make_shared<bool>(false);
            asio::co_spawn(here,
                           m.lock(),
                           asio::bind_cancellation_slot(
                               stop.slot(), [ended](std::exception_ptr) { *ended = true; }));
            co_await yield(id_ % 7);
            stop.emit(asio::cancellation_type::terminal);
            while (!*ended) {
                co_await yield();
            }
            if (m.owns_lock()) {
                co_await body();
                (void)m.unlock(); // takes effect although it is not awaited
            } else {
                co_await coetcd::with_lock(m, body);
            }
        }
    }

    const client client_;
    session& session_;
    const std::string name_;
    std::vector<int>& counts_;
    const int id_;
};

/// Until it is cancelled.
awaitable<void> forever() {
    co_await sleep_for(1h);
}

/// Of keys that another coroutine writes meanwhile.
awaitable<void> follow(client c, std::string key, std::promise<void>& ready) {
    coetcd::watcher w = co_await c.watch(key);
    ready.set_value();
    for (int seen = 0; seen != rounds;) {
        const coetcd::watch_batch batch = co_await w.next();
        seen += static_cast<int>(batch.events.size());
    }
}

} // namespace

TEST_CASE("A client serves coroutines on any executor, whichever thread they are on", "[threads]") {
    asio::thread_pool pool(threads);
    const bool own_strand = GENERATE(true, false);
    const auto home = own_strand ? asio::any_io_executor(pool.get_executor())
                                 : asio::any_io_executor(asio::make_strand(pool));
    const std::string name = unique_name("anywhere") + '/';
    std::vector<int> counts(3);
    {
        const client c(home, shared_etcd().url());
        session s = asio::co_spawn(pool, session::open(c), asio::use_future).get();
        std::vector<std::unique_ptr<visitor>> visitors;
        std::vector<std::future<void>> ends;
        std::promise<void> ready;
        ends.push_back(
            asio::co_spawn(asio::make_strand(pool), follow(c, name, ready), asio::use_future));
        ready.get_future().wait();
        for (int i = 0; i < 2 * clients; ++i) {
            visitors.push_back(std::make_unique<visitor>(c, s, name, counts, i));
            ends.push_back(
                asio::co_spawn(asio::make_strand(pool), visitors.back()->run(), asio::use_future));
        }
        for (int i = 0; i < rounds; ++i) {
            (void)asio::co_spawn(pool, c.put(name, "x"), asio::use_future).get();
        }
        for (auto& e : ends) {
            e.get();
        }
        auto loss = asio::co_spawn(asio::make_strand(pool), s.wait_lost(), asio::use_future);
        asio::co_spawn(pool, s.close(), asio::use_future).get();
        CHECK(loss.get() == coetcd::session_end::closed);
        (void)asio::co_spawn(pool, c.erase(name), asio::use_future).get();
        CHECK(asio::co_spawn(pool, count(c, name), asio::use_future).get() == 0);
    }
    pool.join();
    int total = 0;
    for (const int each : counts) {
        total += each;
    }
    CHECK(total == 2 * clients * rounds);
}

TEST_CASE("A body on the threads of a pool is cancelled where it runs", "[threads]") {
    asio::thread_pool pool(threads);
    {
        const client c(pool.get_executor(), shared_etcd().url());
        for (int i = 0; i < rounds; ++i) {
            session s = asio::co_spawn(pool, session::open(c), asio::use_future).get();
            coetcd::mutex m(s, unique_name("body"));
            std::promise<void> begun;
            auto body = [&]() -> awaitable<void> {
                begun.set_value();
                for (;;) {
                    co_await sleep_for(1us);
                }
            };
            auto end = asio::co_spawn(pool, coetcd::with_lock(m, body), asio::use_future);
            begun.get_future().wait();
            asio::co_spawn(pool, s.close(), asio::use_future).get();
            CHECK_THROWS_AS(end.get(), coetcd::error);
        }
    }
    pool.join();
}

TEST_CASE("A keeper and a task group serve requests on all threads, and end in order",
          "[threads][session_keeper]") {
    asio::thread_pool pool(threads);
    const std::string name = unique_name("kept") + '/';
    std::vector<int> counts(3);
    std::atomic<int> done{0};
    std::atomic<int> lost{0};
    {
        const client c(pool.get_executor(), shared_etcd().url());
        coetcd::session_keeper keeper(c, coetcd::session_keeper_options(2s));
        coetcd::task_group requests(c);
        const auto request = [&](int id) -> awaitable<void> {
            const auto which = static_cast<std::size_t>(id) % counts.size();
            const std::string lock = name + std::to_string(which);
            auto body = [&]() -> awaitable<void> {
                const int before = counts[which]; // no atomic: the lock orders
                co_await yield();
                counts[which] = before + 1;
            };
            try {
                if (id % 2 == 0) {
                    co_await coetcd::with_lock(keeper, lock, body);
                } else {
                    const bool ran = co_await coetcd::with_lock_for(keeper, lock, 60s, body);
                    if (!ran) {
                        throw std::logic_error("it took too long");
                    }
                }
                ++done;
            } catch (const coetcd::error& e) {
                if (e.code() != coetcd::condition::ownership_lost) {
                    throw;
                }
                ++lost; // the body may have ended or not
            }
        };
        constexpr int all = 2 * clients * rounds;
        for (int i = 0; i < all; ++i) {
            const bool taken = i % 3 == 0 ? requests.spawn(pool.get_executor(), request(i))
                                          : requests.spawn(asio::make_strand(pool), request(i));
            CHECK(taken);
        }
        // Meanwhile sessions are lost, from elsewhere; and others look at what there is.
        auto changes = asio::co_spawn(
            pool,
            [&]() -> awaitable<int> {
                std::shared_ptr<const session> now;
                int seen = 0;
                try {
                    for (;;) {
                        now = co_await keeper.wait_changed(now);
                        ++seen;
                    }
                } catch (const coetcd::error& e) {
                    co_return e.code() == coetcd::errc::session_closed ? seen : -1;
                }
            },
            asio::use_future);
        for (int i = 0; i < 3; ++i) {
            const auto now = asio::co_spawn(pool, keeper.wait_live(60s), asio::use_future).get();
            (void)asio::co_spawn(pool, c.lease_revoke(now->lease()), asio::use_future).get();
            while (now->state() != coetcd::session_state::lost) {
                (void)keeper.current();
                (void)keeper.trouble();
                (void)requests.size();
                std::this_thread::yield();
            }
        }
        auto ending = asio::co_spawn(pool, requests.shutdown(60s), asio::use_future);
        CHECK(ending.get() == 0);
        CHECK_FALSE(requests.spawn(pool.get_executor(), request(0)));
        CHECK(done + lost == all);
        asio::co_spawn(pool, keeper.close(), asio::use_future).get();
        CHECK(changes.get() >= 2);
        CHECK(asio::co_spawn(pool, count(c, name), asio::use_future).get() == 0);
    }
    pool.join();
    const int total = counts[0] + counts[1] + counts[2];
    CHECK(total >= done);
    CHECK(total <= done + lost);
}

TEST_CASE("A keeper and a task group are destroyed by another thread", "[threads][shutdown]") {
    asio::thread_pool pool(threads);
    const std::string name = unique_name("dropped");
    std::atomic<int> ended{0};
    int begun = 0;
    {
        const client c(pool.get_executor(), shared_etcd().url());
        for (int i = 0; i < 3 * rounds; ++i) {
            coetcd::session_keeper keeper(c);
            coetcd::task_group requests(c);
            auto waiting = asio::co_spawn(pool, keeper.wait_live(60s), asio::use_future);
            auto queued = asio::co_spawn(
                pool, ending_of(coetcd::with_lock(keeper, name, forever)), asio::use_future);
            const auto request = [](std::atomic<int>& count) -> awaitable<void> {
                try {
                    co_await forever();
                } catch (const boost::system::system_error&) {
                    ++count;
                }
            };
            begun += requests.spawn(asio::make_strand(pool), request(ended)) ? 1 : 0;
            if (i % 3 == 0) {
                (void)waiting.get();
            } else if (i % 3 == 1) {
                std::this_thread::yield();
            }
            {
                const coetcd::session_keeper gone = std::move(keeper);
                const coetcd::task_group gone_too = std::move(requests);
            }
            CHECK(queued.get().code == coetcd::errc::session_closed);
        }
    }
    pool.join();
    CHECK(ended == begun);
}

TEST_CASE("What is written once may be written from all threads of a pool", "[threads]") {
    asio::thread_pool pool(threads);
    const std::string name = unique_name("once") + '/';
    {
        const client c(pool.get_executor(), shared_etcd().url());
        const client patient = c.with_timeout(60s);
        session s = asio::co_spawn(pool, session::open(patient), asio::use_future).get();
        coetcd::counter counter(s, name + "counter");
        coetcd::sequence sequence(s, name + "sequence");
        const std::string sum = name + "sum";
        auto visit = [&]() -> awaitable<void> {
            coetcd::stm_options options;
            options.attempts = 10'000;
            auto body = [&](coetcd::transaction& t) -> awaitable<void> {
                const auto before = co_await t.get(sum);
                co_await yield();
                t.put(sum, std::to_string(before ? std::stoi(*before) + 1 : 1));
            };
            for (int i = 0; i < rounds; ++i) {
                co_await coetcd::stm(s, body, options);
                (void)co_await counter.add();
                (void)co_await sequence.next();
            }
        };
        std::vector<std::future<void>> ends;
        for (int i = 0; i < clients; ++i) {
            ends.push_back(asio::co_spawn(pool, visit(), asio::use_future));
        }
        for (auto& e : ends) {
            e.get();
        }
        const auto total = asio::co_spawn(pool, c.get(sum), asio::use_future).get();
        CHECK(total.value().value == std::to_string(clients * rounds));
        CHECK(asio::co_spawn(pool, counter.get(), asio::use_future).get() == clients * rounds);
        CHECK(asio::co_spawn(pool, sequence.last(), asio::use_future).get() == clients * rounds);
        asio::co_spawn(pool, s.close(), asio::use_future).get();
        asio::co_spawn(pool, erase_all(c, name), asio::use_future).get();
    }
    pool.join();
}

TEST_CASE("Clients on strands of their own share the threads of one context", "[threads]") {
    asio::io_context context;
    const std::string url = shared_etcd().url();
    const std::string name = unique_name("strands");
    const auto observer = std::make_shared<counting>();
    std::atomic<int> inside{0};
    std::atomic<int> total{0};
    std::vector<std::future<void>> ends;
    for (int i = 0; i < clients; ++i) {
        ends.push_back(asio::co_spawn(asio::make_strand(context),
                                      work(url, name, observer, inside, total),
                                      asio::use_future));
    }
    crew all(context);
    for (auto& e : ends) {
        e.get();
    }
    all.join();
    CHECK(total == clients * rounds);
    CHECK(observer->acquired == clients * rounds);
    CHECK(observer->requests > 3 * clients * rounds);
}

TEST_CASE("Each thread may have a context and a client of its own", "[threads]") {
    const std::string url = shared_etcd().url();
    const std::string name = unique_name("contexts");
    std::atomic<int> inside{0};
    std::atomic<int> total{0};
    std::vector<std::future<void>> ends;
    for (int i = 0; i < threads; ++i) {
        ends.push_back(std::async(std::launch::async, [&] {
            asio::io_context context(1);
            auto end =
                asio::co_spawn(context, work(url, name, nullptr, inside, total), asio::use_future);
            context.run();
            end.get();
        }));
    }
    for (auto& e : ends) {
        e.get();
    }
    CHECK(total == threads * rounds);
}

TEST_CASE("One Prometheus observer serves the clients of all threads", "[threads][prometheus]") {
    const std::string url = shared_etcd().url();
    const std::string name = unique_name("metrics");
    const auto observer = std::make_shared<coetcd::prometheus_observer>();
    constexpr int reports = 1000;
    std::atomic<int> inside{0};
    std::atomic<int> total{0};
    std::atomic<int> at_work{threads};
    std::vector<std::future<void>> ends;
    for (int i = 0; i < threads; ++i) {
        ends.push_back(std::async(std::launch::async, [&] {
            for (int n = 0; n < reports; ++n) { // what clients report, and more of it
                observer->on_request({"txn", "http://a:1", 1, 2ms, {}});
                observer->on_connection({coetcd::connection_report::opened, "http://a:1", 1ms, {}});
                observer->on_renewal({1, 1ms, 500ms, coetcd::errc::timed_out});
                observer->on_session_end({1, coetcd::session_end::expired});
                observer->on_lock_wait({"m", 1ms, false, {}});
                observer->on_lock_hold({"m", 1ms, coetcd::lock_end::key_deleted});
                observer->on_overrun({"m", 1s, "mutex", 1, 1});
                observer->on_watch_stream({"http://a:1", true, 1});
            }
            asio::io_context context(1);
            auto end =
                asio::co_spawn(context, work(url, name, observer, inside, total), asio::use_future);
            context.run();
            --at_work;
            end.get();
        }));
    }
    while (at_work != 0) {
        (void)observer->text();
        std::this_thread::yield();
    }
    for (auto& e : ends) {
        e.get();
    }
    CHECK(total == threads * rounds);
    const std::string text = observer->text();
    const auto line = [](const std::string& metric, int value) {
        return contains('\n' + metric + ' ' + std::to_string(value) + '\n');
    };
    CHECK_THAT(text, line("coetcd_lock_hold_seconds_count", threads * (reports + rounds)));
    const std::string lost = "coetcd_locks_lost_total{reason=\"key_deleted\"}";
    CHECK_THAT(text, line(lost, threads * reports));
    CHECK_THAT(text, line("coetcd_overruns_total", threads * reports));
    CHECK_THAT(text, line("coetcd_renewals_failed_total", threads * reports));
    CHECK_THAT(text, line("coetcd_connections{endpoint=\"http://a:1\"}", threads * reports));
    CHECK_THAT(text, line("coetcd_watch_streams{endpoint=\"http://a:1\"}", threads * reports));
    CHECK_THAT(text, line("coetcd_sessions_ended_total{reason=\"closed\"}", threads));
}

TEST_CASE("Several coroutines of one client run on its strand, whichever thread has it",
          "[threads]") {
    asio::io_context context;
    const strand on(context.get_executor());
    const client c(on, shared_etcd().url());
    const std::string name = unique_name("strand");
    int count = 0; // no atomic: the strand orders
    auto open = asio::co_spawn(on, session::open(c), asio::use_future);
    session s;
    std::vector<std::future<void>> ends;
    auto guard = std::make_optional(asio::make_work_guard(context));
    crew all(context);
    s = open.get();
    const auto one = [&]() -> awaitable<void> {
        coetcd::mutex m(s, name);
        for (int i = 0; i < rounds; ++i) {
            co_await m.lock();
            const int before = count;
            co_await yield();
            count = before + 1;
            co_await m.unlock();
        }
    };
    for (int i = 0; i < clients; ++i) {
        ends.push_back(asio::co_spawn(on, one(), asio::use_future));
    }
    for (auto& e : ends) {
        e.get();
    }
    asio::co_spawn(on, s.close(), asio::use_future).get();
    guard.reset();
    all.join();
    CHECK(count == clients * rounds);
}

TEST_CASE("Another thread ends everything in an orderly way", "[threads][shutdown]") {
    asio::io_context context;
    const strand on(context.get_executor());
    const client c(on, shared_etcd().url());
    const std::string name = unique_name("shutdown");
    std::atomic<bool> locked{false};
    asio::cancellation_signal stop;
    const auto serve = [&]() -> awaitable<void> {
        session s = co_await session::open(c);
        coetcd::mutex m(s, name);
        auto forever = [&]() -> awaitable<void> {
            coetcd::watcher w = co_await c.watch(name);
            locked = true;
            for (;;) {
                (void)co_await w.next();
            }
        };
        co_await coetcd::with_lock(m, forever);
    };
    std::promise<bool> ended;
    asio::co_spawn(
        on, serve(), asio::bind_cancellation_slot(stop.slot(), [&](std::exception_ptr e) {
            ended.set_value(e != nullptr);
        }));
    crew all(context);
    while (!locked) {
        std::this_thread::yield();
    }
    // A signal is for the strand, as all that belongs to it.
    asio::post(on, [&] { stop.emit(asio::cancellation_type::terminal); });
    CHECK(ended.get_future().get());
    all.join(); // the lock is released, the lease revoked: nothing is left to do
    CHECK(shared_etcd().etcdctl({"get", "--prefix", name}).output.empty());
}

TEST_CASE("Another thread stops the context in the middle of everything", "[threads][shutdown]") {
    const std::string url = shared_etcd().url();
    for (int round = 0; round < 5; ++round) {
        const std::string name = unique_name("stop");
        std::atomic<int> inside{0};
        std::atomic<int> total{0};
        asio::io_context context;
        std::vector<std::future<void>> ends;
        for (int i = 0; i < clients; ++i) {
            ends.push_back(asio::co_spawn(asio::make_strand(context),
                                          work(url, name, nullptr, inside, total),
                                          asio::use_future));
        }
        {
            crew all(context);
            while (total < 3 * (round + 1)) {
                std::this_thread::yield();
            }
            context.stop();
        }
        CHECK(total < clients * rounds);
        // The coroutines, and with them clients, sessions and locks, go with the context.
    }
}
