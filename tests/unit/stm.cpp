// SPDX-License-Identifier: BSL-1.0
#include <coetcd/stm.hpp>

#include <boost/asio/experimental/awaitable_operators.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
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
using asio::awaitable;
using coetcd::errc;
using coetcd::isolation;
using coetcd::key_range;
using coetcd::op;
using coetcd::stm_options;
using coetcd::transaction;
using coetcd::txn;
using coetcd::detail::call_request;
using coetcd::detail::rpc;
using support::background;
using support::broken;
using support::fate_of_copies;
using support::late;
using support::scripted_env;
using support::world;
using fate = scripted_env::fate;

namespace {

constexpr isolation levels[] = {isolation::serializable_snapshot,
                                isolation::serializable,
                                isolation::repeatable_reads,
                                isolation::read_committed};

bool pins(isolation level) {
    return level == isolation::serializable_snapshot || level == isolation::serializable;
}

/// Two accounts, with 100 each.
struct bank {
    bank()
        : client(w.client())
        , session(w.await(coetcd::session::open(client))) {
        w.etcd->write("a", "100");
        w.etcd->write("b", "100");
        w.env->calls.clear();
    }

    int amount(const std::string& key) const { return std::stoi(w.etcd->keys.at(key).value); }
    std::size_t requests() const {
        return static_cast<std::size_t>(
            std::count_if(w.env->calls.begin(), w.env->calls.end(), [](const call_request& r) {
                return r.what != rpc::lease_keep_alive;
            }));
    }
    /// Another writer moves an amount from `a` to `b`.
    void others_move(int amount_moved) {
        const int left = amount("a") - amount_moved;
        const int right = amount("b") + amount_moved;
        w.etcd->write("a", std::to_string(left));
        w.etcd->write("b", std::to_string(right));
    }
    template<class Body>
    auto run(Body body, stm_options options = {}) {
        return w.await(coetcd::stm(session, std::move(body), std::move(options)));
    }

    world w;
    coetcd::client client;
    coetcd::session session;
};

awaitable<int> read(transaction& t, std::string key) {
    const std::optional<std::string> value = co_await t.get(std::move(key));
    co_return value ? std::stoi(*value) : 0;
}

/// Moves 30 from `a` to `b`; returns what is left.
awaitable<int> transfer(transaction& t) {
    const int a = co_await read(t, "a");
    const int b = co_await read(t, "b");
    t.put("a", std::to_string(a - 30));
    t.put("b", std::to_string(b + 30));
    co_return a - 30;
}

stm_options at(isolation level) {
    return stm_options(level);
}

stm_options prefetching() {
    stm_options options;
    options.prefetch = {"a", "b"};
    return options;
}

} // namespace

TEST_CASE("a transaction costs a round trip for each read, and one for the commit", "[stm]") {
    bank b;
    CHECK(b.run(transfer) == 70);
    CHECK(b.requests() == 3);
    CHECK(b.amount("a") == 70);
    CHECK(b.amount("b") == 130);
    CHECK(b.w.etcd->keys.at("a").mod_revision == b.w.etcd->keys.at("b").mod_revision);
    CHECK(b.w.etcd->under("coetcd.stm.").size() == 1);

    b.w.env->calls.clear();
    CHECK(b.run(transfer, prefetching()) == 40);
    CHECK(b.requests() == 2);
    CHECK(b.w.etcd->under("coetcd.stm.").size() == 1);
    CHECK(b.w.await(coetcd::stm(b.client, transfer)) == 10);
    CHECK(b.w.etcd->under("coetcd.stm.").size() == 1);
}

TEST_CASE("a body may return nothing", "[stm]") {
    bank b;
    auto body = [](transaction& t) -> awaitable<void> {
        t.put("c", "1");
        t.erase("a");
        co_return;
    };
    b.run(body);
    CHECK(b.requests() == 1);
    CHECK(b.w.etcd->keys.contains("c"));
    CHECK_FALSE(b.w.etcd->keys.contains("a"));
}

TEST_CASE("a body sees what it has written", "[stm]") {
    bank b;
    auto body = [](transaction& t) -> awaitable<std::vector<std::string>> {
        std::vector<std::string> seen;
        const auto note = [&seen](const std::optional<std::string>& v) {
            seen.push_back(v.value_or("none"));
        };
        t.put("a", "1");
        note(co_await t.get("a"));
        t.erase("a");
        note(co_await t.get("a"));
        note(co_await t.get("b"));
        note(co_await t.get("b"));
        note(co_await t.get("c"));
        t.put("c", "3");
        const auto revision = co_await t.revision("c");
        seen.push_back(std::to_string(revision));
        const auto all = co_await t.range(key_range("a", "d"));
        for (const auto& kv : all) {
            seen.push_back(kv.key + "=" + kv.value);
        }
        co_return seen;
    };
    CHECK(b.run(body) ==
          std::vector<std::string>{"1", "none", "100", "100", "none", "0", "b=100", "c=3"});
    CHECK(b.requests() == 4); // b, c, the range, the commit
}

TEST_CASE("a conflict runs the body again, with what the refusal told", "[stm]") {
    for (const isolation level :
         {isolation::serializable_snapshot, isolation::serializable, isolation::repeatable_reads}) {
        bank b;
        int runs = 0;
        auto body = [&](transaction& t) -> awaitable<int> {
            const int left = co_await transfer(t);
            if (++runs <= 2) {
                b.others_move(10);
            }
            co_return left;
        };
        CAPTURE(to_string(level));
        CHECK(b.run(body, at(level)) == 50);
        CHECK(runs == 3);
        CHECK(b.amount("a") == 50);
        CHECK(b.amount("b") == 150);
        CHECK(b.requests() == 2 + 3); // what was read is read once
    }
}

TEST_CASE("a transaction that others are always before is given up", "[stm]") {
    for (const unsigned attempts : {1U, 2U, 5U}) {
        bank b;
        int runs = 0;
        auto body = [&](transaction& t) -> awaitable<int> {
            ++runs;
            const int left = co_await transfer(t);
            b.others_move(1);
            co_return left;
        };
        stm_options options;
        options.attempts = attempts;
        auto running = b.w.start(coetcd::stm(b.session, body, options));
        b.w.env->pass(10s);
        CHECK(running.code() == errc::conflict);
        CHECK(running.code() == coetcd::condition::retryable);
        CHECK(runs == static_cast<int>(attempts));
        CHECK(b.amount("a") == 100 - static_cast<int>(attempts));
    }
}

TEST_CASE("pauses between attempts grow, up to a limit", "[stm]") {
    for (const auto longest : {0ms, 500ms, 20ms}) {
        bank b;
        std::vector<support::time_point> times;
        auto body = [&](transaction& t) -> awaitable<int> {
            times.push_back(b.w.env->now());
            const int left = co_await transfer(t);
            b.others_move(1);
            co_return left;
        };
        stm_options options = prefetching();
        options.max_pause = longest;
        auto running = b.w.start(coetcd::stm(b.session, body, options));
        b.w.env->pass(60s);
        CHECK(running.code() == errc::conflict);
        REQUIRE(times.size() == 20);
        std::chrono::milliseconds full = 1ms;
        for (std::size_t i = 1; i != times.size(); ++i) {
            const auto pause = times[i] - times[i - 1] - b.w.env->round_trip; // of the commit
            const std::chrono::nanoseconds most = std::min(full, longest);
            CAPTURE(longest.count(), i);
            CHECK(pause >= most / 2);
            CHECK(pause <= most);
            full = std::min<std::chrono::milliseconds>(full * 2, 1000ms);
        }
    }
}

TEST_CASE("whatever request is lost, or its answer, or late: it is applied once", "[stm]") {
    for (const stm_options& options : {stm_options(), prefetching()}) {
        for (std::size_t which = 0; which != 3; ++which) {
            for (int how = 0; how != 5; ++how) {
                bank b;
                b.w.env->decide = [&, next = std::size_t{0}](const call_request& r) mutable {
                    fate f;
                    if (r.what == rpc::txn && next++ == which) {
                        f.arrives = how != 0;
                        f.answered = how != 1;
                        f.breaks = how == 2;
                        f.refused = how == 3;
                        f.late = how == 4 ? 4s : 0s;
                    }
                    return f;
                };
                CAPTURE(options.prefetch.size(), which, how);
                CHECK(b.run(transfer, options) == 70);
                CHECK(b.amount("a") == 70);
                b.w.env->pass(10s);
                CHECK(b.amount("a") == 70);
                CHECK(b.amount("b") == 130);
                CHECK(b.run(transfer, options) == 40);
            }
        }
    }
}

TEST_CASE("a refusal whose first copy is late does not pay twice", "[stm]") {
    bank b;
    b.w.etcd->erase("a"); // a key that does not exist may not exist again
    bool once = true;
    auto body = [&](transaction& t) -> awaitable<void> {
        const bool absent = !co_await t.get("a");
        const int other = co_await read(t, "b");
        t.put("a", absent ? "1" : "2");
        t.put("b", std::to_string(other + 1));
        if (std::exchange(once, false)) {
            b.w.etcd->write("a", "theirs");
        }
    };
    // The first copy of the first commit comes at 3 s; the second is refused at 2 s.
    fate_of_copies(b.w, {late(3s)});
    auto running = b.w.start(coetcd::stm(b.session, body));
    b.w.env->pass(2500ms);
    REQUIRE(running.succeeded());
    CHECK(b.amount("b") == 101);
    CHECK(b.w.etcd->keys.at("a").value == "2");
    b.w.etcd->erase("a");
    b.w.etcd->write("b", "100");
    b.w.env->pass(5s);
    CHECK_FALSE(b.w.etcd->keys.contains("a"));
    CHECK(b.amount("b") == 100);
}

TEST_CASE("without a session a lost answer is told, and what only reads does not mind", "[stm]") {
    bank b;
    fate_of_copies(b.w, {broken()});
    auto running = b.w.start(coetcd::stm(b.client, transfer));
    b.w.env->pass(100ms);
    CHECK(running.code() == errc::outcome_unknown);
    CHECK(b.amount("a") == 70);

    for (const isolation level : levels) {
        auto sum = [](transaction& t) -> awaitable<int> {
            const int x = co_await read(t, "a");
            const int y = co_await read(t, "b");
            co_return x + y;
        };
        b.w.env->decide = [first = true](const call_request&) mutable {
            return std::exchange(first, false) ? broken() : fate();
        };
        CHECK(b.w.await(coetcd::stm(b.client, sum, at(level))) == 200);
    }
}

TEST_CASE("what only reads needs no commit, if it reads at one revision", "[stm]") {
    struct {
        isolation level;
        std::size_t one, two;
    } const rows[] = {
        {isolation::serializable_snapshot, 1, 2},
        {isolation::serializable, 1, 2},
        {isolation::repeatable_reads, 1, 3},
        {isolation::read_committed, 1, 2},
    };
    for (const auto& row : rows) {
        CAPTURE(to_string(row.level));
        bank b;
        auto one = [](transaction& t) -> awaitable<int> { co_return co_await read(t, "a"); };
        CHECK(b.run(one, at(row.level)) == 100);
        CHECK(b.requests() == row.one);
        b.w.env->calls.clear();
        auto two = [](transaction& t) -> awaitable<int> {
            const int x = co_await read(t, "a");
            const int y = co_await read(t, "b");
            co_return x + y;
        };
        CHECK(b.run(two, at(row.level)) == 200);
        CHECK(b.requests() == row.two);
        CHECK(b.w.etcd->under("coetcd.stm.").empty());
    }
}

TEST_CASE("the two upper levels show the store at one moment", "[stm]") {
    for (const isolation level : levels) {
        CAPTURE(to_string(level));
        bank b;
        int runs = 0;
        std::vector<int> sums;
        auto body = [&](transaction& t) -> awaitable<void> {
            const int x = co_await read(t, "a");
            if (++runs == 1) {
                b.others_move(10);
            }
            const int y = co_await read(t, "b");
            sums.push_back(x + y);
        };
        b.run(body, at(level));
        // The others read what was never there; repeatable_reads notices it at the end.
        if (pins(level)) {
            CHECK(sums == std::vector<int>{200});
        } else if (level == isolation::repeatable_reads) {
            CHECK(sums == std::vector<int>{210, 200});
        } else {
            CHECK(sums == std::vector<int>{210});
        }
    }
}

TEST_CASE("reads at the same time are of one revision, too", "[stm]") {
    using namespace asio::experimental::awaitable_operators;
    for (const isolation level : {isolation::serializable_snapshot, isolation::serializable}) {
        bank b;
        b.w.env->decide = [first = true](const call_request& r) mutable {
            fate f;
            f.late = r.what == rpc::txn && std::exchange(first, false) ? 100ms : 0ms;
            return f;
        };
        auto body = [](transaction& t) -> awaitable<int> {
            const auto [x, y, z] = co_await (read(t, "a") && read(t, "b") && read(t, "c"));
            co_return x + y + z;
        };
        auto running = b.w.start(coetcd::stm(b.session, body, at(level)));
        b.w.env->pass(50ms);
        b.others_move(10);
        b.w.env->pass(51500us); // the first read has been answered, the others are under way
        b.others_move(10);
        b.w.env->pass(1s);
        CHECK(running.get() == 200);
    }
}

TEST_CASE("write skew is refused above read_committed, and happens there", "[stm]") {
    for (const isolation level : levels) {
        CAPTURE(to_string(level));
        bank b; // each may take 150 as long as both together have it
        auto withdraw = [](std::string from, bool waits) {
            return [from, waits](transaction& t) -> awaitable<void> {
                const int x = co_await read(t, "a");
                const int y = co_await read(t, "b");
                if (waits) {
                    (void)co_await read(t, "unrelated");
                }
                if (x + y >= 150) {
                    t.put(from, std::to_string((from == "a" ? x : y) - 150));
                }
            };
        };
        auto one = b.w.start(coetcd::stm(b.session, withdraw("a", false), at(level)));
        auto two = b.w.start(coetcd::stm(b.session, withdraw("b", true), at(level)));
        b.w.env->pass(1s);
        one.get();
        two.get();
        const bool skewed = b.amount("a") + b.amount("b") < 0;
        CHECK(skewed == (level == isolation::read_committed));
    }
}

TEST_CASE("serializable_snapshot minds a write to what it only writes", "[stm]") {
    for (const isolation level : levels) {
        CAPTURE(to_string(level));
        bank b;
        int runs = 0;
        auto body = [&](transaction& t) -> awaitable<void> {
            (void)co_await read(t, "a");
            t.put("b", "1");
            if (++runs == 1) {
                b.w.etcd->write("b", "2");
            }
        };
        b.run(body, at(level));
        CHECK(runs == (level == isolation::serializable_snapshot ? 2 : 1));
        CHECK(b.amount("b") == 1);
    }
}

TEST_CASE("a range has no phantoms: what is added, changed or erased is minded", "[stm]") {
    const std::vector<std::pair<std::string, std::function<void(bank&)>>> changes = {
        {"added", [](bank& b) { b.w.etcd->write("r/3", "1"); }},
        {"changed", [](bank& b) { b.w.etcd->write("r/1", "9"); }},
        {"erased", [](bank& b) { b.w.etcd->erase("r/1"); }},
        {"erased, the newest", [](bank& b) { b.w.etcd->erase("r/2"); }},
        {"erased and put again",
         [](bank& b) {
             b.w.etcd->erase("r/1");
             b.w.etcd->write("r/1", "1");
         }},
        {"nothing", [](bank& b) { b.w.etcd->write("r0", "1"); }},
    };
    for (const isolation level : levels) {
        for (const auto& [what, change] : changes) {
            CAPTURE(to_string(level), what);
            bank b;
            b.w.etcd->write("r/1", "1");
            b.w.etcd->write("r/2", "1");
            int runs = 0;
            std::size_t seen = 0;
            auto body = [&](transaction& t) -> awaitable<void> {
                const auto all = co_await t.range(key_range::prefix("r/"));
                seen = all.size();
                t.put("count", std::to_string(all.size()));
                if (++runs == 1) {
                    change(b);
                }
            };
            b.run(body, at(level));
            const bool minds = level != isolation::read_committed && what != "nothing";
            CHECK(runs == (minds ? 2 : 1));
            CHECK(b.requests() == (minds ? 3 : 2));
            if (minds) {
                CHECK(seen == b.w.etcd->under("r/").size());
            }
        }
    }
    bank b; // an empty one
    int runs = 0;
    auto body = [&](transaction& t) -> awaitable<void> {
        const auto all = co_await t.range(key_range::prefix("r/"));
        t.put("r/" + std::to_string(all.size()), "mine");
        if (++runs == 1) {
            b.w.etcd->write("r/0", "theirs");
        }
    };
    b.run(body);
    CHECK(runs == 2);
    CHECK(b.w.etcd->keys.at("r/0").value == "theirs");
    CHECK(b.w.etcd->keys.at("r/1").value == "mine");
}

TEST_CASE("a body whose history is compacted is run again, whatever it does then", "[stm]") {
    for (const bool swallows : {false, true}) {
        for (const bool prefetches : {false, true}) {
            bank b;
            int runs = 0;
            auto body = [&](transaction& t) -> awaitable<int> {
                const int x = co_await read(t, "a");
                t.put("x", "run " + std::to_string(++runs));
                if (runs == 1) {
                    b.others_move(10);
                    b.w.etcd->compact(b.w.etcd->revision);
                }
                try {
                    const int y = co_await read(t, "c");
                    co_return x + y;
                } catch (const coetcd::error& e) {
                    CHECK(e.code() == errc::conflict);
                    if (swallows) {
                        co_return -1;
                    }
                    throw;
                }
            };
            stm_options options;
            if (prefetches) {
                options.prefetch = {"a"};
            }
            CHECK(b.run(body, options) == 90);
            CHECK(runs == 2);
            CHECK(b.w.etcd->keys.at("x").value == "run 2");
            CHECK(b.w.etcd->keys.at("x").version == 1);
        }
    }
}

TEST_CASE("what a body throws is thrown, and nothing is written", "[stm]") {
    bank b;
    auto plain = [](transaction& t) -> awaitable<int> {
        t.put("a", "0");
        (void)co_await t.get("b");
        throw std::domain_error("not enough");
    };
    CHECK_THROWS_AS(b.run(plain), std::domain_error);
    auto nested = [](transaction& t) -> awaitable<int> {
        t.put("a", "0");
        try {
            throw std::domain_error("not enough");
        } catch (...) {
            std::throw_with_nested(std::runtime_error("transfer"));
        }
        co_return 0;
    };
    try {
        b.run(nested);
        FAIL("it did not throw");
    } catch (const std::runtime_error& outer) {
        CHECK_THROWS_AS(std::rethrow_if_nested(outer), std::domain_error);
    }
    CHECK(b.amount("a") == 100);
    CHECK(b.requests() == 1);
}

TEST_CASE("a cancelled transaction ends at once, and is applied as a whole or not at all",
          "[stm]") {
    int applied = 0;
    int aborted = 0;
    for (const bool conflict : {false, true}) {
        for (int moment = 0; moment != 24; ++moment) {
            bank b;
            int runs = 0;
            auto body = [&](transaction& t) -> awaitable<int> {
                const int left = co_await transfer(t);
                if (++runs == 1 && conflict) {
                    b.others_move(10);
                }
                co_return left;
            };
            auto running = b.w.start(coetcd::stm(b.session, body));
            b.w.env->pass(moment * 500us);
            const bool was_over = running.ended();
            running.cancel();
            b.w.env->pass(0ms);
            CAPTURE(conflict, moment);
            REQUIRE(running.ended());
            if (was_over) {
                running.get();
                ++applied;
            } else {
                CHECK(running.code() == asio::error::operation_aborted);
                ++aborted;
            }
            b.w.env->pass(10s);
            CHECK(b.amount("a") + b.amount("b") == 200);
            const int untouched = conflict && runs >= 1 ? 90 : 100;
            CHECK((b.amount("a") == untouched || b.amount("a") == untouched - 30));
            if (was_over) {
                CHECK(b.amount("a") == untouched - 30);
            }
            b.run(transfer); // what was given up is not in the way
            CHECK(b.amount("a") + b.amount("b") == 200);
        }
    }
    CHECK(applied > 5);
    CHECK(aborted > 15);
}

TEST_CASE("a session that ends ends its transactions", "[stm]") {
    for (int moment = 0; moment != 4; ++moment) {
        bank b;
        const auto at_moment = [&](int m) {
            if (m == moment) {
                b.w.etcd->revoke(b.session.lease());
                if (moment != 3) { // else it does not know
                    (void)b.session.orphan();
                }
            }
        };
        auto body = [&](transaction& t) -> awaitable<void> {
            at_moment(1);
            const int x = co_await read(t, "a");
            at_moment(2);
            at_moment(3);
            t.put("a", std::to_string(x - 30));
        };
        at_moment(0);
        auto running = b.w.start(coetcd::stm(b.session, body));
        b.w.env->pass(1s);
        CAPTURE(moment);
        CHECK(running.code() == (moment == 3 ? errc::outcome_unknown : errc::session_closed));
        CHECK(b.amount("a") == 100);
    }
}

TEST_CASE("a session that ends with a commit under way leaves it in doubt", "[stm]") {
    bank b;
    fate_of_copies(b.w, {broken()});
    auto running = b.w.start(coetcd::stm(b.session, transfer));
    b.w.env->pass(6500us);
    REQUIRE(b.amount("a") == 70);
    b.w.etcd->revoke(b.session.lease());
    b.w.env->pass(1s);
    CHECK(running.code() == errc::outcome_unknown);
    CHECK(running.code() != coetcd::condition::ownership_lost); // to begin again would pay twice
}

TEST_CASE("an etcd that does not answer ends a transaction in time", "[stm]") {
    for (const bool at_commit : {false, true}) {
        bank b;
        b.w.env->decide = [at_commit](const call_request& r) {
            fate f;
            f.arrives = r.what != rpc::txn || (at_commit && !support::is_write(r));
            return f;
        };
        auto running = b.w.start(coetcd::stm(b.session, transfer));
        b.w.env->pass(5100ms);
        CHECK(running.code() == (at_commit ? errc::outcome_unknown : errc::timed_out));
        CHECK(b.amount("a") == 100);
    }
}

TEST_CASE("more than etcd accepts is refused before the commit is sent", "[stm]") {
    for (const int puts : {127, 128}) {
        bank b;
        auto body = [puts](transaction& t) -> awaitable<void> {
            for (int i = 0; i != puts; ++i) {
                t.put("k" + std::to_string(i), "v");
            }
            co_return;
        };
        if (puts == 127) {
            b.run(body);
            CHECK(b.requests() == 1);
        } else {
            CHECK_THROWS_AS(b.run(body), std::invalid_argument);
            CHECK(b.requests() == 0);
            b.w.await(coetcd::stm(b.client, body)); // it has no marker
        }
        CHECK(b.w.etcd->keys.contains("k126"));
    }
}

TEST_CASE("what cannot be done is refused at the call", "[stm]") {
    bank b;
    const auto refused = [&](const std::function<void(stm_options&)>& spoil) {
        stm_options options;
        spoil(options);
        CHECK_THROWS_AS(coetcd::stm(b.session, transfer, options), std::invalid_argument);
        CHECK_THROWS_AS(coetcd::stm(b.client, transfer, options), std::invalid_argument);
    };
    refused([](stm_options& o) { o.attempts = 0; });
    refused([](stm_options& o) { o.max_pause = -1ms; });
    refused([](stm_options& o) { o.marker = ""; });
    refused([](stm_options& o) { o.marker = std::string(513, 'x'); });
    refused([](stm_options& o) { o.prefetch = {""}; });
    refused([](stm_options& o) { o.prefetch.assign(129, "k"); });

    auto body = [](transaction& t) -> awaitable<void> {
        CHECK_THROWS_AS(t.get(""), std::invalid_argument);
        CHECK_THROWS_AS(t.range(""), std::invalid_argument);
        CHECK_THROWS_AS(t.revision(""), std::invalid_argument);
        CHECK_THROWS_AS(t.put("", "v"), std::invalid_argument);
        CHECK_THROWS_AS(t.erase(""), std::invalid_argument);
        coetcd::put_options how;
        how.prev_kv = true;
        CHECK_THROWS_AS(t.put("k", "v", how), std::invalid_argument);
        how.prev_kv = false;
        how.ignore_value = true;
        CHECK_THROWS_AS(t.put("k", "v", how), std::invalid_argument);
        co_return;
    };
    b.run(body);
    CHECK(b.requests() == 0);

    coetcd::session& s = b.session;
    const coetcd::session taken = std::move(b.session);
    CHECK_THROWS_AS(coetcd::stm(s, transfer), std::logic_error);
    coetcd::client& c = b.client;
    const coetcd::client other = std::move(b.client);
    CHECK_THROWS_AS(coetcd::stm(c, transfer), std::logic_error);
}

TEST_CASE("the name of the marker is one's own choice", "[stm]") {
    bank b;
    stm_options options;
    options.marker = "shop.moves";
    b.run(transfer, options);
    CHECK(b.w.etcd->under("shop.moves.").size() == 1);
    CHECK(b.w.etcd->under("coetcd.stm.").empty());
}

TEST_CASE("transactions of an adopted lease have markers of their own", "[stm]") {
    bank b;
    b.run(transfer);
    (void)b.session.orphan();
    coetcd::session heir = b.w.await(coetcd::session::adopt(b.client, b.session.lease())).value();
    CHECK(b.w.await(coetcd::stm(heir, transfer)) == 40);
    CHECK(b.w.etcd->under("coetcd.stm.").size() == 2);
}

TEST_CASE("many transactions at the same time keep the sum, and leave few markers", "[stm]") {
    bank b;
    std::vector<background<int>> all;
    stm_options options;
    options.attempts = 200;
    for (int i = 0; i != 10; ++i) {
        all.push_back(b.w.start(coetcd::stm(b.session, transfer, options)));
    }
    b.w.env->pass(60s);
    for (auto& each : all) {
        each.get();
    }
    CHECK(b.amount("a") == 100 - 300);
    CHECK(b.amount("b") == 100 + 300);
    CHECK(b.w.etcd->under("coetcd.stm.").size() <= 10);
    b.w.await(b.session.close());
    CHECK(b.w.etcd->under("coetcd.stm.").empty());
}
