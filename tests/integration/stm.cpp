// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/counter.hpp>
#include <coetcd/exactly_once.hpp>
#include <coetcd/sequence.hpp>
#include <coetcd/session.hpp>
#include <coetcd/stm.hpp>
#include <coetcd/value.hpp>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
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
using coetcd::isolation;
using coetcd::key_range;
using coetcd::op;
using coetcd::session;
using coetcd::stm_options;
using coetcd::transaction;
using coetcd::txn;

namespace {

constexpr int crowd = 8;

constexpr isolation levels[] = {isolation::serializable_snapshot,
                                isolation::serializable,
                                isolation::repeatable_reads,
                                isolation::read_committed};

/// A client of one's own, with a session.
struct person {
    person(const asio::any_io_executor& executor, const std::string& url)
        : own(executor, url) {}
    awaitable<void> begin() { member = co_await open_session(own, 20s); }
    client own;
    session member;
};

awaitable<std::vector<std::unique_ptr<person>>> open_crowd(std::string url) {
    const auto executor = co_await asio::this_coro::executor;
    std::vector<std::unique_ptr<person>> all;
    for (int i = 0; i != crowd; ++i) {
        all.push_back(std::make_unique<person>(executor, url));
        co_await all.back()->begin();
    }
    co_return all;
}

awaitable<void> close_crowd(std::vector<std::unique_ptr<person>>& all) {
    for (const auto& p : all) {
        co_await p->member.close();
    }
}

awaitable<int> number_at(transaction& t, std::string key) {
    const std::optional<std::string> value = co_await t.get(std::move(key));
    co_return value ? std::stoi(*value) : 0;
}

/// Lets bodies go on together: each waits in its first run until all have come.
class rendezvous {
public:
    rendezvous(const asio::any_io_executor& executor, int count)
        : left_(count)
        , all_here_(executor, clock::time_point::max()) {}
    awaitable<void> arrive() {
        if (--left_ <= 0) {
            all_here_.cancel();
            co_return;
        }
        boost::system::error_code ignored;
        co_await all_here_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    }

private:
    int left_;
    asio::steady_timer all_here_;
};

/// Runs a context of its own.
struct other_thread {
    other_thread()
        : busy(asio::make_work_guard(context))
        , thread([this] { context.run(); }) {}
    ~other_thread() {
        busy.reset();
        thread.join();
    }
    asio::io_context context;
    asio::executor_work_guard<asio::io_context::executor_type> busy;
    std::thread thread;
};

/// An amount goes from one account to another, if it is there, and is noted.
class bank {
public:
    explicit bank(std::string prefix)
        : prefix_(std::move(prefix)) {}

    static constexpr int accounts = 4;
    static constexpr int capital = 1000; // of each

    std::string account(int i) const { return prefix_ + "account/" + std::to_string(i); }
    std::string note(int who) const { return prefix_ + "note/" + std::to_string(who); }

    awaitable<void> open(client c) const {
        for (int i = 0; i != accounts; ++i) {
            co_await c.put(account(i), std::to_string(capital));
        }
    }
    awaitable<void> move(transaction& t, int who, int from, int to, int amount) const {
        const int left = co_await number_at(t, account(from));
        const int right = co_await number_at(t, account(to));
        const int notes = co_await number_at(t, note(who));
        t.put(account(from), std::to_string(left - amount));
        t.put(account(to), std::to_string(right + amount));
        t.put(note(who), std::to_string(notes + 1));
    }
    awaitable<int> sum(transaction& t) const {
        const auto all = co_await t.range(key_range::prefix(prefix_ + "account/"));
        int total = 0;
        for (const auto& kv : all) {
            total += std::stoi(kv.value);
        }
        co_return total;
    }
    awaitable<int> notes(client c, int who) const {
        const auto found = co_await c.get(note(who));
        co_return found ? std::stoi(found->value) : 0;
    }

private:
    const std::string prefix_;
};

/// Moves money many times.
/// @returns How often it is known to have been moved, and how often that is not known.
awaitable<std::pair<int, int>> move_often(person& who, const bank& b, int number, int times) {
    std::mt19937 chance(static_cast<unsigned>(number) + 1);
    std::pair<int, int> result(0, 0);
    stm_options options;
    options.attempts = 1000;
    for (int i = 0; i != times; ++i) {
        const int from = static_cast<int>(chance() % bank::accounts);
        const int to =
            (from + 1 + static_cast<int>(chance() % (bank::accounts - 1))) % bank::accounts;
        const int amount = static_cast<int>(chance() % 50);
        auto body = [&](transaction& t) { return b.move(t, number, from, to, amount); };
        auto work = coetcd::stm(who.member, body, options);
        const ending how = co_await ending_of(std::move(work));
        result.first += how.code ? 0 : 1;
        result.second += how.code == errc::outcome_unknown ? 1 : 0;
    }
    co_return result;
}

} // namespace

TEST_CASE("Eight clients move money, and the sum is kept", "[stm]") {
    run_test([]() -> awaitable<void> {
        auto all = co_await open_crowd(shared_etcd().url());
        const std::string prefix = unique_name("bank") + '/';
        const bank b(prefix);
        const client& first = all.front()->own;
        co_await b.open(first);
        constexpr int times = 25;
        int running = crowd;
        auto one = [&](int i) -> awaitable<void> {
            person& who = *all[static_cast<std::size_t>(i)];
            const auto [moved, unknown] = co_await move_often(who, b, i, times);
            CHECK(moved == times);
            CHECK(unknown == 0);
            --running;
        };
        std::vector<awaitable<void>> works;
        for (int i = 0; i != crowd; ++i) {
            works.push_back(one(i));
        }
        int looks = 0;
        auto look = [&]() -> awaitable<void> {
            while (running != 0) {
                auto body = [&](transaction& t) { return b.sum(t); };
                const int total = co_await coetcd::stm(first, body);
                CHECK(total == bank::accounts * bank::capital);
                ++looks;
            }
        };
        works.push_back(look());
        co_await run_all(std::move(works));
        CHECK(looks > 5);
        for (int i = 0; i != crowd; ++i) {
            const int notes = co_await b.notes(first, i);
            CHECK(notes == times);
        }
        co_await close_crowd(all);
        co_await erase_all(first, prefix);
    });
}

TEST_CASE("Money is moved once, whatever happens to the connections", "[stm][faults]") {
    run_test(
        []() -> awaitable<void> {
            const auto executor = co_await asio::this_coro::executor;
            tcp_proxy proxy(executor, shared_etcd().port());
            const client direct(executor, shared_etcd().url());
            person who(executor, proxy.url());
            co_await who.begin();
            const std::string prefix = unique_name("bank") + '/';
            const bank b(prefix);
            co_await b.open(direct);
            bool over = false;
            int cuts = 0;
            auto harm = [&]() -> awaitable<void> {
                std::mt19937 chance(7);
                while (!over) {
                    co_await sleep_for(std::chrono::milliseconds(5 + chance() % 30));
                    proxy.answers(traffic::lose);
                    co_await sleep_for(std::chrono::milliseconds(1 + chance() % 8));
                    proxy.cut();
                    proxy.answers(traffic::pass);
                    ++cuts;
                }
            };
            constexpr int times = 100;
            std::pair<int, int> moved;
            auto move = [&]() -> awaitable<void> {
                moved = co_await move_often(who, b, 0, times);
                over = true;
            };
            std::vector<awaitable<void>> works;
            works.push_back(harm());
            works.push_back(move());
            co_await run_all(std::move(works));
            CHECK(cuts > 10);
            const int notes = co_await b.notes(direct, 0);
            CHECK(notes >= moved.first);
            CHECK(notes <= moved.first + moved.second);
            CHECK(moved.second == 0); // it is known each time
            auto sum = [&](transaction& t) { return b.sum(t); };
            const int total = co_await coetcd::stm(direct, sum);
            CHECK(total == bank::accounts * bank::capital);
            co_await who.member.close();
            co_await erase_all(direct, prefix);
        },
        {.timeout = 120s});
}

TEST_CASE("Write skew is refused above read_committed, and found there", "[stm]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        person who(executor, shared_etcd().url());
        co_await who.begin();
        for (const isolation level : levels) {
            const std::string prefix = unique_name("skew") + '/';
            co_await who.own.put(prefix + "a", "100");
            co_await who.own.put(prefix + "b", "100");
            rendezvous both(executor, 2);
            // Each may overdraw one account as long as both together have enough.
            auto withdraw = [&](std::string from) -> awaitable<void> {
                bool first = true;
                auto body = [&](transaction& t) -> awaitable<void> {
                    const int x = co_await number_at(t, prefix + "a");
                    const int y = co_await number_at(t, prefix + "b");
                    if (std::exchange(first, false)) {
                        co_await both.arrive();
                    }
                    if (x + y >= 150) {
                        t.put(prefix + from, std::to_string((from == "a" ? x : y) - 150));
                    }
                };
                co_await coetcd::stm(who.member, body, stm_options(level));
            };
            std::vector<awaitable<void>> works;
            works.push_back(withdraw("a"));
            works.push_back(withdraw("b"));
            co_await run_all(std::move(works));
            auto sum = [&](transaction& t) -> awaitable<int> {
                const int x = co_await number_at(t, prefix + "a");
                const int y = co_await number_at(t, prefix + "b");
                co_return x + y;
            };
            const int left = co_await coetcd::stm(who.own, sum);
            CAPTURE(coetcd::to_string(level));
            CHECK(left == (level == isolation::read_committed ? -100 : 50));
            co_await erase_all(who.own, prefix);
        }
        co_await who.member.close();
    });
}

TEST_CASE("A range has no phantoms: no seat is sold that there is not", "[stm]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        constexpr std::size_t seats = 5;
        auto all = co_await open_crowd(shared_etcd().url());
        for (const isolation level : levels) {
            const std::string prefix = unique_name("seats") + '/';
            rendezvous everybody(executor, crowd);
            auto book = [&](int number) -> awaitable<void> {
                bool first = true;
                auto body = [&](transaction& t) -> awaitable<void> {
                    const auto taken = co_await t.range(key_range::prefix(prefix));
                    if (std::exchange(first, false)) {
                        co_await everybody.arrive(); // all have seen it empty
                    }
                    if (taken.size() < seats) {
                        t.put(prefix + std::to_string(number), "taken");
                    }
                };
                stm_options options(level);
                options.attempts = 1000;
                person& who = *all[static_cast<std::size_t>(number)];
                co_await coetcd::stm(who.member, body, std::move(options));
            };
            std::vector<awaitable<void>> works;
            for (int i = 0; i != crowd; ++i) {
                works.push_back(book(i));
            }
            co_await run_all(std::move(works));
            const client& first = all.front()->own;
            const auto sold = co_await count(first, prefix);
            CAPTURE(coetcd::to_string(level));
            // Where it is not minded, all of them get one: the test can fail.
            CHECK(sold ==
                  (level == isolation::read_committed ? crowd : static_cast<std::int64_t>(seats)));
            co_await erase_all(first, prefix);
        }
        co_await close_crowd(all);
    });
}

TEST_CASE("What is erased from a range is minded, too", "[stm]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        person who(executor, shared_etcd().url());
        co_await who.begin();
        const std::string prefix = unique_name("doctors") + '/';
        co_await who.own.put(prefix + "one", "on call");
        co_await who.own.put(prefix + "two", "on call");
        rendezvous both(executor, 2);
        auto leave = [&](std::string name) -> awaitable<void> {
            bool first = true;
            auto body = [&](transaction& t) -> awaitable<void> {
                const auto on_call = co_await t.range(key_range::prefix(prefix));
                if (std::exchange(first, false)) {
                    co_await both.arrive();
                }
                if (on_call.size() > 1) {
                    t.erase(prefix + name);
                }
            };
            co_await coetcd::stm(who.member, body);
        };
        std::vector<awaitable<void>> works;
        works.push_back(leave("one"));
        works.push_back(leave("two"));
        co_await run_all(std::move(works));
        const auto left = co_await count(who.own, prefix);
        CHECK(left == 1);
        co_await who.member.close();
        co_await erase_all(who.own, prefix);
    });
}

TEST_CASE("A sequence that eight clients draw from has no gap and no double", "[sequence]") {
    run_test([]() -> awaitable<void> {
        auto all = co_await open_crowd(shared_etcd().url());
        const std::string name = unique_name("sequence");
        constexpr int times = 50;
        std::set<std::int64_t> seen;
        std::vector<awaitable<void>> works;
        auto draw = [&](person& who) -> awaitable<void> {
            coetcd::sequence numbers(who.member, name);
            for (int i = 0; i != times; ++i) {
                const std::int64_t number = co_await numbers.next();
                CHECK(seen.insert(number).second);
            }
        };
        for (const auto& p : all) {
            works.push_back(draw(*p));
        }
        co_await run_all(std::move(works));
        CHECK(seen.size() == crowd * times);
        CHECK(*seen.begin() == 1);
        CHECK(*seen.rbegin() == crowd * times);
        coetcd::sequence again(all.front()->member, name);
        const std::int64_t last = co_await again.last();
        CHECK(last == crowd * times);
        co_await close_crowd(all);
        co_await until_count(all.front()->own, name + ".", 0);
        co_await erase_all(all.front()->own, name);
    });
}

TEST_CASE("A counter that eight clients raise is exact", "[counter]") {
    run_test([]() -> awaitable<void> {
        auto all = co_await open_crowd(shared_etcd().url());
        const std::string name = unique_name("counter");
        constexpr int times = 25;
        std::set<std::int64_t> seen;
        auto raise = [&](person& who) -> awaitable<void> {
            const client patient = who.own.with_timeout(30s);
            session own = co_await session::open(patient);
            coetcd::counter counter(own, name);
            for (int i = 0; i != times; ++i) {
                const std::int64_t sum = co_await counter.add();
                CHECK(seen.insert(sum).second);
            }
            co_await own.close();
        };
        std::vector<awaitable<void>> works;
        for (const auto& p : all) {
            works.push_back(raise(*p));
        }
        co_await run_all(std::move(works));
        coetcd::counter counter(all.front()->member, name);
        const std::int64_t sum = co_await counter.get();
        CHECK(sum == crowd * times);
        CHECK(seen.size() == crowd * times);
        co_await close_crowd(all);
        co_await erase_all(all.front()->own, name);
    });
}

TEST_CASE("A number whose answer is lost is read from etcd's history", "[sequence][faults]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        tcp_proxy proxy(executor, shared_etcd().port());
        const client direct(executor, shared_etcd().url());
        person who(executor, proxy.url());
        co_await who.begin();
        session other = co_await open_session(direct, 20s);
        const std::string name = unique_name("sequence");
        coetcd::sequence mine(who.member, name);
        coetcd::sequence theirs(other, name);
        const std::int64_t first = co_await theirs.next(); // else it has to be put first
        CHECK(first == 1);
        for (std::int64_t i = 1; i != 4; ++i) {
            proxy.answers(traffic::lose);
            task<std::int64_t> drawing(executor, mine.next());
            auto drawn = [&]() -> awaitable<bool> {
                const std::int64_t last = co_await theirs.last();
                co_return last == 2 * i;
            };
            co_await eventually(drawn, 2s, "a number is drawn");
            const std::int64_t next = co_await theirs.next();
            CHECK(next == 2 * i + 1);
            proxy.answers(traffic::pass);
            proxy.cut();
            const std::int64_t number = co_await drawing.result();
            CHECK(number == 2 * i);
        }
        co_await who.member.close();
        co_await other.close();
        co_await erase_all(direct, name);
    });
}

TEST_CASE("A transaction whose answer is lost is carried out once", "[once][faults]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        tcp_proxy proxy(executor, shared_etcd().port());
        const client direct(executor, shared_etcd().url());
        person who(executor, proxy.url());
        co_await who.begin();
        const std::string prefix = unique_name("once") + '/';
        coetcd::exactly_once once(who.member, prefix + "marker");
        for (const bool holds : {true, false}) {
            const std::string key = prefix + (holds ? "yes" : "no");
            co_await direct.put(key, "1");
            proxy.answers(traffic::lose);
            coetcd::put_options tells;
            tells.prev_kv = true;
            txn what = txn()
                           .when(coetcd::compare::value(key) == (holds ? "1" : "0"))
                           .then(op::range(key), op::put(key, "2", tells))
                           .otherwise(op::range(key), op::erase(key));
            task<coetcd::txn_outcome> doing(executor, once.txn(std::move(what)));
            auto done = [&]() -> awaitable<bool> {
                const auto found = co_await direct.get(key);
                co_return !found || found->value == "2";
            };
            co_await eventually(done, 2s, "it is carried out");
            co_await direct.put(key, "3");
            proxy.answers(traffic::pass);
            proxy.cut();
            const coetcd::txn_outcome outcome = co_await doing.result();
            CHECK(outcome.succeeded == holds);
            REQUIRE(outcome.responses.has_value());
            REQUIRE(outcome.responses->size() == 2);
            CHECK((*outcome.responses)[0].range().kvs.at(0).value == "1");
            if (holds) {
                REQUIRE((*outcome.responses)[1].put().prev_kv);
                CHECK((*outcome.responses)[1].put().prev_kv->value == "1");
            } else {
                CHECK((*outcome.responses)[1].erase().deleted == 1);
            }
            const auto now = co_await direct.get(key);
            REQUIRE(now);
            CHECK(now->value == "3"); // it was not done again
        }
        co_await who.member.close();
        co_await erase_all(direct, prefix);
    });
}

TEST_CASE("The limits of a transaction are etcd's", "[stm]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        person who(executor, shared_etcd().url());
        co_await who.begin();
        const std::string prefix = unique_name("limits") + '/';
        auto body = [&](transaction& t) -> awaitable<void> {
            for (int i = 0; i != 127; ++i) {
                const std::string key = prefix + std::to_string(i);
                const auto value = co_await t.get(key);
                t.put(key, value.value_or("new"));
            }
        };
        co_await coetcd::stm(who.member, body);
        coetcd::exactly_once once(who.member, prefix + "marker");
        txn what;
        for (int i = 0; i != 126; ++i) {
            what.success.push_back(op::put(prefix + std::to_string(i), "once"));
        }
        for (int i = 0; i != 127; ++i) {
            what.compares.push_back(coetcd::compare::version(prefix + std::to_string(i)) == 1);
        }
        const coetcd::txn_outcome outcome = co_await once.txn(std::move(what));
        CHECK(outcome.succeeded);
        const auto all = co_await count(who.own, prefix);
        CHECK(all == 128); // and the marker
        co_await who.member.close();
        co_await erase_all(who.own, prefix);
    });
}

TEST_CASE("A body runs on the executor of its caller", "[stm]") {
    other_thread home;
    run_test([&]() -> awaitable<void> {
        const auto here = co_await asio::this_coro::executor;
        const auto thread = std::this_thread::get_id();
        const client c(home.context.get_executor(), shared_etcd().url());
        session s = co_await session::open(c);
        const std::string key = unique_name("executor");
        for (int i = 1; i <= 20; ++i) {
            auto body = [&](transaction& t) -> awaitable<int> {
                CHECK(std::this_thread::get_id() == thread);
                const int n = co_await number_at(t, key);
                CHECK(std::this_thread::get_id() == thread);
                t.put(key, std::to_string(n + 1));
                co_return n + 1;
            };
            const int n = co_await coetcd::stm(s, body);
            CHECK(n == i);
            CHECK(std::this_thread::get_id() == thread);
        }
        coetcd::value v(s, key);
        const auto now = co_await v.get();
        CHECK(now->value == "20");
        co_await s.close();
        co_await erase_all(c, key);
    });
}
