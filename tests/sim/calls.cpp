// SPDX-License-Identifier: BSL-1.0
// Single calls of clients, many at once: they may share requests.
#include <algorithm>

#include "sim/users.hpp"

namespace sim {

using namespace std::chrono_literals;
using coetcd::compare;
using coetcd::errc;
using coetcd::op;

void actor::start_calling(std::uint64_t seed) {
    chance taste(seed);
    if (s_.w.store.forbidden_prefix.empty()) {
        s_.w.store.forbidden_prefix = registers::forbidden;
    }
    const int callers = taste.between(3, 12);
    s_.judge.rates.expect(*p_, 4 * callers);
    for (int i = callers; i != 0; --i) {
        start_besides("who makes calls", make_calls(taste.next()));
    }
}

asio::awaitable<void> actor::make_calls(std::uint64_t seed) {
    chance taste(seed);
    for (int n = taste.between(4, 40); n != 0 && client_; --n) {
        const auto o = std::make_shared<operation>(*p_);
        auto calling = make_call(taste);
        co_await perform(o, std::move(calling));
        if (taste.one_in(4)) {
            (void)co_await p_->sleep(taste.skewed(0ms, 60ms));
        }
    }
}

asio::awaitable<void> actor::make_call(chance& taste) {
    const std::string key = registers::key(taste.below(4));
    const std::string other = registers::key(taste.below(4));
    const coetcd::client by = *client_; // it may go before the call begins
    switch (taste.below(8)) {
    case 0:
        return put_once(by, key);
    case 1:
        return read_once(by, key);
    case 2:
        return erase_once(by,
                          taste.one_in(4) ? coetcd::key_range::prefix(registers::prefix)
                                          : coetcd::key_range(key));
    case 3:
        return put_in_vain(by, taste.one_in(2));
    case 4:
        return read_both(by, key, other);
    default: {
        const bool puts_both = taste.one_in(2);
        const bool asks_why = taste.one_in(3);
        return put_if(by, key, other, puts_both, asks_why);
    }
    }
}

/// Tells the referee how a call has ended that puts this value.
asio::awaitable<void> actor::watch_over_put(std::string value, asio::awaitable<std::int64_t> call) {
    registers& judge = s_.judge.calls;
    const std::uint64_t repeated = p_->repeated_calls;
    try {
        const std::int64_t revision = co_await std::move(call);
        judge.ended(value, revision);
    } catch (const boost::system::system_error& e) {
        if (was_not_made(e.code(), repeated) &&
            e.code() != coetcd::server_errc::resource_exhausted) { // it may be said late
            judge.ended(value, 0);
        }
        throw;
    }
}

asio::awaitable<void> actor::put_once(coetcd::client by, std::string key) {
    std::string value = s_.judge.calls.begin();
    auto put =
        [](coetcd::client by, std::string k, std::string v) -> asio::awaitable<std::int64_t> {
        auto putting = by.put(std::move(k), std::move(v));
        const coetcd::put_response r = co_await std::move(putting);
        co_return r.header.revision;
    };
    auto call = put(std::move(by), std::move(key), value);
    return watch_over_put(std::move(value), std::move(call));
}

asio::awaitable<void> actor::read_once(coetcd::client by, std::string key) {
    auto reading = by.txn(coetcd::txn().then(op::range(key)));
    const coetcd::txn_response r = co_await std::move(reading);
    const coetcd::range_response& found = r.responses.at(0).range();
    std::optional<std::string> value;
    if (!found.kvs.empty()) {
        value = found.kvs.front().value;
    }
    s_.judge.calls.saw(key, value, r.header.revision, "a reader");
    (void)co_await by.get(key); // it tells no revision
}

/// Both are read at the same revision.
asio::awaitable<void> actor::read_both(coetcd::client by, std::string key, std::string other) {
    auto reading = by.txn(coetcd::txn().then(op::range(key), op::range(other)));
    const coetcd::txn_response r = co_await std::move(reading);
    for (std::size_t i = 0; i != 2; ++i) {
        const coetcd::range_response& found = r.responses.at(i).range();
        std::optional<std::string> value;
        if (!found.kvs.empty()) {
            value = found.kvs.front().value;
        }
        s_.judge.calls.saw(i == 0 ? key : other, value, r.header.revision, "a reader of two");
    }
}

asio::awaitable<void> actor::erase_once(coetcd::client by, coetcd::key_range keys) {
    std::int64_t before = 0;
    auto erasing = by.erase(keys);
    const coetcd::erase_response r = co_await std::move(erasing);
    registers& judge = s_.judge.calls;
    for (std::uint64_t i = 0; i != 4; ++i) {
        const std::string key = registers::key(i);
        if (!keys.range_end.empty() || keys.key == key) {
            judge.saw(key, std::nullopt, r.header.revision, "one that erases");
            before += judge.at(key, r.header.revision - 1) ? 1 : 0;
        }
    }
    const bool may_differ = s_.w.had_other_clusters() || s_.w.had_foreign_answers();
    if (r.deleted != 0 && r.deleted != before && !may_differ) {
        s_.w.fail("another number of keys was erased than was there");
    }
}

/// Whoever shares its request is not to notice.
asio::awaitable<void> actor::put_in_vain(coetcd::client by, bool without_lease) {
    coetcd::put_options how;
    how.lease = without_lease ? 4711 : 0;
    std::string key = without_lease ? registers::key(9) : std::string(registers::forbidden) + "/x";
    const std::string value = s_.judge.calls.begin();
    try {
        auto putting = by.put(std::move(key), value, how);
        (void)co_await std::move(putting);
        s_.w.fail("a put was carried out that has no lease, or is forbidden");
    } catch (const coetcd::error& e) {
        const bool refused = e.code() == (without_lease ? coetcd::server_errc::not_found
                                                        : coetcd::server_errc::permission_denied);
        if (!refused) {
            throw;
        }
        s_.judge.calls.ended(value, 0);
    }
}

/// Puts one key if another one, or the same, is as it was a moment ago.
asio::awaitable<void> actor::put_if(
    coetcd::client by, std::string key, std::string other, bool puts_both, bool asks_why) {
    registers& judge = s_.judge.calls;
    const std::optional<std::string> seen = judge.now(other);
    const std::string value = judge.begin();
    const std::string second = puts_both && key != other ? judge.begin() : std::string();
    coetcd::txn what;
    what.compares.push_back(seen ? compare::value(other) == *seen : compare::version(other) == 0);
    what.success.push_back(op::put(key, value));
    if (!second.empty()) {
        what.success.push_back(op::put(other, second));
    }
    if (asks_why) {
        what.failure.push_back(op::range(other));
    }
    bool done = false;
    auto call = [&]() -> asio::awaitable<std::int64_t> {
        auto asking = by.txn(std::move(what));
        const coetcd::txn_response r = co_await std::move(asking);
        done = r.succeeded;
        const std::int64_t revision = r.header.revision;
        if (done) { // nor does another one of the same revision touch it
            judge.saw(other, seen, revision - 1, "one that compares");
            if (key != other && second.empty()) {
                judge.saw(other, seen, revision, "one that compares, at once,");
            }
        } else if (judge.at(other, revision) == seen && !s_.w.had_foreign_answers()) {
            s_.w.fail("a condition did not hold that holds at the revision of the answer");
        }
        if (!done && asks_why) {
            const coetcd::range_response& found = r.responses.at(0).range();
            std::optional<std::string> told;
            if (!found.kvs.empty()) {
                told = found.kvs.front().value;
            }
            judge.saw(other, told, revision, "one that was refused");
        }
        co_return done ? revision : 0;
    };
    auto calling = call();
    co_await watch_over_put(value, std::move(calling));
}

} // namespace sim
