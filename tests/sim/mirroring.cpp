// SPDX-License-Identifier: BSL-1.0
// What programs do with a mirror, and what changes in it.
#include <coetcd/mirror.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "sim/mirrors.hpp"
#include "sim/users.hpp"

namespace sim {

using namespace std::chrono_literals;
using coetcd::errc;

namespace {

std::string row(chance& taste) {
    return std::string(mirrored_prefix) + std::to_string(taste.below(5));
}

} // namespace

void actor::start_mirroring(std::uint64_t seed) {
    chance taste(seed);
    start_besides("who has a mirror", have_mirror(taste.next()));
    start_besides("who reads the changes of a mirror", read_mirror(taste.next()));
    start_besides("who writes what is mirrored", write_rows(taste.next()));
    s_.judge.rates.expect(*p_, 2);
}

/// Some other program.
asio::awaitable<void> actor::write_rows(std::uint64_t seed) {
    chance taste(seed);
    for (int n = taste.between(5, 40); n != 0 && client_; --n) {
        if (const std::string key = row(taste); taste.one_in(3)) {
            s_.w.store.erase(key);
        } else {
            s_.w.store.write(key, std::to_string(++s_.writes));
        }
        if (!s_.judge.prompt && !s_.w.healed() && taste.one_in(12)) {
            overtake_watches(taste);
        }
        (void)co_await p_->sleep(taste.skewed(0ms, taste.one_in(4) ? 2000ms : 200ms));
    }
}

/// All watches break, and when they resume, what has happened meanwhile is compacted.
void actor::overtake_watches(chance& taste) {
    s_.w.count(fault::stream_dropped);
    for (int m = 0; m != s_.w.store.members(); ++m) {
        s_.w.store.end_streams(m, false);
    }
    for (int n = taste.between(1, 6); n != 0; --n) {
        if (const std::string key = row(taste); taste.one_in(2)) {
            s_.w.store.erase(key);
        } else {
            s_.w.store.write(key, std::to_string(++s_.writes));
        }
    }
    s_.w.count(fault::compaction);
    s_.w.store.compact(s_.w.store.revision);
}

/// Has one mirror after the other, and looks at it.
asio::awaitable<void> actor::have_mirror(std::uint64_t seed) {
    chance taste(seed);
    while (client_) {
        const auto o = std::make_shared<operation>(*p_);
        mirror_buffer_ = taste.one_in(2) ? 300 : 1'000'000;
        asio::awaitable<void> opening = open_mirror();
        co_await perform(o, std::move(opening));
        if (!mirror_) {
            (void)co_await p_->sleep(200ms);
            continue;
        }
        const mirror_rules::entry seen(s_.judge.mirrors, false);
        for (int looks = taste.between(3, 30); mirror_ && (looks != 0 || s_.w.healed()); --looks) {
            s_.judge.mirrors.shown(*seen, mirror_->snapshot());
            const auto waiting = std::make_shared<operation>(*p_);
            const std::uint64_t what = s_.w.healed() ? 3 : taste.below(4);
            if (what < 2) {
                asio::awaitable<void> work = write_and_wait(taste.next());
                co_await perform(waiting, std::move(work));
            }
            (void)co_await p_->sleep(taste.skewed(0ms, what == 3 ? 2000ms : 200ms));
        }
        mirror_changes_.reset();
        mirror_.reset();
    }
}

asio::awaitable<void> actor::open_mirror() {
    if (!client_) {
        co_return; // all was closed before it has begun
    }
    coetcd::mirror_options options;
    options.buffer = mirror_buffer_;
    asio::awaitable<coetcd::mirror> opening =
        coetcd::open_mirror(*client_, std::string(mirrored_prefix), options);
    coetcd::mirror opened = co_await std::move(opening);
    if (client_) {
        mirror_.emplace(std::move(opened));
    }
}

/// Whoever has written sees it.
asio::awaitable<void> actor::write_and_wait(std::uint64_t seed) {
    if (!client_) {
        co_return;
    }
    chance taste(seed);
    const coetcd::client by = *client_;
    const std::string one = row(taste);
    coetcd::txn what;
    if (taste.one_in(4)) { // nothing that is mirrored
        what.then(coetcd::op::put("tables", std::to_string(++s_.writes)));
    } else {
        what.then(coetcd::op::put(one, std::to_string(++s_.writes)));
        if (const std::string other = row(taste); other != one) {
            what.then(coetcd::op::erase(other));
        }
    }
    asio::awaitable<coetcd::txn_response> writing = by.txn(std::move(what));
    const coetcd::txn_response written = co_await std::move(writing);
    const std::int64_t revision = written.header.revision;
    if (!mirror_) {
        co_return;
    }
    bool has_it = true;
    try {
        if (taste.one_in(2)) {
            const nanoseconds patience = taste.skewed(0ms, 1000ms);
            asio::awaitable<bool> waiting = mirror_->wait_for(revision, patience);
            has_it = co_await std::move(waiting);
        } else {
            const mirror_rules::seat waits(s_.judge.mirrors);
            asio::awaitable<void> waiting = mirror_->wait(revision);
            co_await std::move(waiting);
        }
    } catch (const boost::system::system_error& e) {
        if (was_misled(e.code())) {
            co_return;
        }
        throw;
    }
    if (mirror_ && has_it != (mirror_->revision() >= revision)) {
        s_.w.fail("a mirror is said to have a revision that it has not: " +
                  std::to_string(revision));
    }
}

/// Reads the changes of whichever mirror there is.
asio::awaitable<void> actor::read_mirror(std::uint64_t seed) {
    chance taste(seed);
    while (client_) {
        if (!mirror_) {
            (void)co_await p_->sleep(100ms);
            continue;
        }
        mirror_changes_.emplace(mirror_->changes());
        const mirror_rules::entry seen(s_.judge.mirrors, true);
        (*seen).is_slow = mirror_buffer_ < 1000;
        bool goes_on = true;
        while (mirror_changes_ && goes_on) {
            const auto o = std::make_shared<operation>(*p_);
            std::optional<mirror_rules::line_listener> at_a_line;
            if (s_.moments && taste.one_in(4)) { // it is cancelled when something comes
                const std::uint64_t hops = taste.below(12);
                at_a_line.emplace(s_.judge.mirrors, [this, o, hops](const process& to) {
                    if (&to == p_.get()) {
                        emit(o, hops);
                    }
                });
            }
            asio::awaitable<void> reading = read_batch(*seen, goes_on);
            co_await perform(o, std::move(reading));
            if (taste.one_in(3)) {
                const bool is_long = taste.one_in(3) && !s_.w.healed();
                (void)co_await p_->sleep(taste.skewed(0ms, is_long ? 4000ms : 100ms));
            }
        }
        mirror_changes_.reset();
    }
}

/// @param goes_on Set to false if there is no more to read.
asio::awaitable<void> actor::read_batch(mirror_rules::follower& f, bool& goes_on) {
    try {
        if (!mirror_changes_) {
            co_return;
        }
        asio::awaitable<coetcd::mirror_batch> reading = mirror_changes_->next();
        const coetcd::mirror_batch batch = co_await std::move(reading);
        s_.judge.mirrors.told(f, batch);
    } catch (const boost::system::system_error& e) {
        goes_on = e.code() == asio::error::operation_aborted || was_misled(e.code());
        if (was_misled(e.code())) {
            mirror_rules::regressed(f);
        } else {
            throw;
        }
    }
}

} // namespace sim
