// SPDX-License-Identifier: BSL-1.0
// What clients write once.
#include <coetcd/counter.hpp>
#include <coetcd/exactly_once.hpp>
#include <coetcd/sequence.hpp>
#include <coetcd/stm.hpp>

#include "sim/users.hpp"

namespace sim {

using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::transaction;

namespace {

ledger::verdict verdict_of(bool undone) {
    return undone ? ledger::verdict::refused : ledger::verdict::in_doubt;
}

asio::awaitable<int> read_account(transaction& t, ledger::reads& seen, int i) {
    const std::string key = ledger::account(i);
    const std::optional<std::string> value = co_await t.get(key);
    seen.key(key, value ? &*value : nullptr);
    co_return std::stoi(value.value());
}

} // namespace

asio::awaitable<void> actor::write_once(chance& taste) {
    const std::uint64_t what = taste.below(8);
    if (what == 0) {
        return draw_number();
    }
    if (what == 1) {
        return count_up();
    }
    if (what == 2) {
        return audit(taste);
    }
    if (what == 3) {
        return carry_out(taste);
    }
    if (what == 4) {
        return transact_loosely(taste);
    }
    return transact(taste);
}

/// Moves an amount from one account to another; or puts a key, or erases it, by what is there. What
/// it counted on in vain may be so again.
asio::awaitable<void> actor::transact(chance& taste) {
    ledger& book = s_.judge.book;
    const std::uint64_t id = book.begin();
    enum class kind { move, range, toggle };
    const auto what = static_cast<kind>(taste.below(3));
    const int from = taste.between(0, ledger::accounts - 1);
    const int to = (from + 1) % ledger::accounts;
    const int amount = taste.between(1, 9);
    const nanoseconds thinks = taste.one_in(3) ? taste.skewed(0ms, 100ms) : 0ms;
    std::string absent; // what it counts on
    auto body = [&](transaction& t) -> asio::awaitable<void> {
        ledger::reads seen;
        absent.clear();
        if (what == kind::toggle) { // a key that comes and goes
            const std::string key = "pool/" + std::to_string(id % 2);
            const std::optional<std::string> value = co_await t.get(key);
            seen.key(key, value ? &*value : nullptr);
            if (value) {
                t.erase(key);
            } else {
                t.put(key, "x");
                absent = key;
            }
        } else if (what == kind::range) {
            const auto all = co_await t.range(coetcd::key_range::prefix("pool/"));
            std::vector<std::string> keys;
            for (const auto& kv : all) {
                keys.push_back(kv.key);
            }
            seen.range("pool/", keys);
            if (keys.size() < 3) {
                t.put("pool/" + std::to_string(id % 5), "x");
            } else {
                t.erase(keys[id % keys.size()]);
            }
        } else {
            const int left = co_await read_account(t, seen, from);
            const int right = co_await read_account(t, seen, to);
            t.put(ledger::account(from), std::to_string(left - amount));
            t.put(ledger::account(to), std::to_string(right + amount));
        }
        t.put(ledger::note(id), seen.text());
        if (thinks > 0ms) {
            (void)co_await p_->sleep(thinks);
        }
    };
    coetcd::stm_options options(static_cast<coetcd::isolation>(taste.below(3)));
    if (taste.one_in(2)) {
        options.attempts = 1;
    }
    if (taste.one_in(3)) {
        options.prefetch = {ledger::account(from), ledger::account(to)};
    }
    const std::uint64_t repeated = p_->repeated_calls;
    try {
        co_await coetcd::stm(*session_, body, options);
        book.ended(id, ledger::verdict::done);
    } catch (const boost::system::system_error& e) {
        if (e.code() == errc::conflict) {
            book.conflicted(id, options.attempts);
            if (!absent.empty()) {
                s_.w.store.erase(absent); // a copy that came now would find what it counts on
            }
        } else {
            book.ended(id, verdict_of(was_not_made(e.code(), repeated)));
        }
        throw;
    }
}

/// At the lowest level a transaction may count on what is there no more, and its sums need not be
/// right. It sees what was committed all the same, and its own writes, and is applied once.
asio::awaitable<void> actor::transact_loosely(chance& taste) {
    ledger& book = s_.judge.book;
    const std::uint64_t id = book.begin();
    const std::string from = "loose/" + std::to_string(taste.below(2));
    const std::string to = "loose/" + std::to_string(taste.below(2));
    const std::string mine = std::to_string(id);
    auto body = [&](transaction& t) -> asio::awaitable<void> {
        const std::optional<std::string> seen = co_await t.get(from);
        if (seen && !book.was_loose(from, *seen)) {
            s_.w.fail("a transaction has seen what was never committed: " + *seen);
        }
        t.put(to, mine);
        const std::optional<std::string> own = co_await t.get(to);
        if (own != mine) {
            s_.w.fail("a transaction does not see what it has written");
        }
        t.put(ledger::note(id), "");
    };
    const std::uint64_t repeated = p_->repeated_calls;
    try {
        co_await coetcd::stm(
            *session_, body, coetcd::stm_options(coetcd::isolation::read_committed));
        book.ended(id, ledger::verdict::done);
    } catch (const boost::system::system_error& e) {
        book.ended(id, verdict_of(was_not_made(e.code(), repeated)));
        if (e.code() == errc::conflict) {
            s_.w.fail("a transaction that compares nothing has met a conflict");
        }
        throw;
    }
}

/// Adds all accounts up.
asio::awaitable<void> actor::audit(chance& taste) {
    auto body = [&](transaction& t) -> asio::awaitable<int> {
        ledger::reads seen;
        int sum = 0;
        for (int i = 0; i != ledger::accounts; ++i) {
            sum += co_await read_account(t, seen, i);
        }
        co_return sum;
    };
    const auto level = static_cast<coetcd::isolation>(taste.below(3));
    const int sum = co_await coetcd::stm(*session_, body, coetcd::stm_options(level));
    s_.judge.book.audited(sum);
}

asio::awaitable<void> actor::draw_number() {
    ledger& book = s_.judge.book;
    book.drawing();
    coetcd::sequence numbers(*session_, "numbers");
    const std::uint64_t repeated = p_->repeated_calls;
    try {
        const std::int64_t number = co_await numbers.next();
        book.drew(number);
    } catch (const boost::system::system_error& e) {
        if (was_not_made(e.code(), repeated)) {
            book.not_drawn();
        }
        throw;
    }
}

asio::awaitable<void> actor::count_up() {
    ledger& book = s_.judge.book;
    book.counting();
    coetcd::counter tally(*session_, "tally");
    const std::uint64_t repeated = p_->repeated_calls;
    try {
        const std::int64_t sum = co_await tally.add();
        book.counted(sum);
    } catch (const boost::system::system_error& e) {
        if (was_not_made(e.code(), repeated)) {
            book.not_counted();
        }
        throw;
    }
}

/// Notes something, if the counter is not far yet, or while a key is not there: that may be so
/// again later.
asio::awaitable<void> actor::carry_out(chance& taste) {
    ledger& book = s_.judge.book;
    const std::uint64_t id = book.begin();
    coetcd::exactly_once once(*session_, "once");
    const std::string absent = taste.one_in(2) ? "pool/0" : ""; // what it counts on
    coetcd::compare condition = absent.empty()
                                    ? coetcd::compare::version("tally") < taste.between(0, 6)
                                    : coetcd::compare::create_revision(absent) == 0;
    coetcd::txn what =
        coetcd::txn()
            .when(std::move(condition))
            .then(coetcd::op::put(ledger::note(id), ""), coetcd::op::range(ledger::note(id)))
            .otherwise(coetcd::op::range(ledger::note(id)));
    const std::uint64_t repeated = p_->repeated_calls;
    try {
        const coetcd::txn_outcome end = co_await once.txn(std::move(what));
        book.ended(id, end.succeeded ? ledger::verdict::done : ledger::verdict::refused);
        if (!end.succeeded && !absent.empty()) {
            s_.w.store.erase(absent); // a copy that came now would find what it counts on
        }
        if (end.responses) {
            const auto& read = end.responses->back().range();
            if (read.kvs.empty() == end.succeeded) {
                s_.w.fail("a transaction tells another answer than the one there was");
            }
        }
    } catch (const boost::system::system_error& e) {
        book.ended(id, verdict_of(was_not_made(e.code(), repeated)));
        throw;
    }
}

} // namespace sim
