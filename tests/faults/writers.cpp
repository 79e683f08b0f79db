// SPDX-License-Identifier: BSL-1.0
#include "writers.hpp"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <signal.h>
#include <stdexcept>
#include <string>
#include <utility>

#include "support/catch.hpp"

using namespace std::chrono_literals;
using support::etcd_cluster;
using support::eventually;
using support::sleep_for;
using support::task;

namespace faults {

writer_options::writer_options(const std::vector<std::string>& words)
    : kind(words.at(0))
    , number(words.at(1))
    , lock(words.at(2))
    , target(words.at(3))
    , urls(words.begin() + 4, words.end()) {}

void say(const std::string& line) {
    std::cout << line << std::endl;
}

namespace {

support::background_process start(std::vector<std::string> words) {
    const auto self = std::filesystem::read_symlink("/proc/self/exe").string();
    words.insert(words.begin(), {self, "--writer"});
    support::process_options options;
    options.capture = true;
    return support::background_process(words, std::move(options));
}

std::size_t held_by(const writers& all) {
    std::size_t sum = 0;
    for (const auto& w : all) {
        sum += w->held;
    }
    return sum;
}

std::string said_by(const writers& all) {
    std::string text;
    for (const auto& w : all) {
        const auto since =
            std::chrono::duration_cast<std::chrono::seconds>(clock::now() - w->held_at);
        text += "; " + std::to_string(w->held) + " turns, the last " +
                std::to_string(since.count()) + " s ago";
        text += w->trouble.empty() ? "" : ", and " + w->trouble;
    }
    return text;
}

} // namespace

writer::writer(boost::asio::any_io_executor executor, std::vector<std::string> words)
    : process_(start(std::move(words))) {
    reading_.emplace(executor, read());
}

awaitable<void> writer::end() {
    process_.signal(SIGCONT);
    process_.signal(SIGTERM);
    co_await reading_->result();
    const int code = co_await process_.async_wait();
    CHECK(code == 0);
}

awaitable<void> writer::read() {
    for (;;) {
        const auto line = co_await process_.async_read_line();
        if (!line) {
            break;
        }
        const auto space = line->find(' ');
        const auto what = line->substr(0, space);
        const auto rest = space == line->npos ? std::string() : line->substr(space + 1);
        if (what == "held") {
            ++held;
            held_at = clock::now();
        } else if (what == "added") {
            added.push_back(rest);
        } else if (what == "perhaps") {
            perhaps.push_back(rest);
        } else if (what == "refused") {
            ++refused;
        } else if (what == "trouble") {
            trouble = rest;
        }
    }
}

writers start_writers(boost::asio::any_io_executor executor,
                      const etcd_cluster& etcd,
                      const std::string& kind,
                      const std::string& lock,
                      const std::string& target) {
    writers all;
    for (int i = 0; i < 3; ++i) {
        std::vector<std::string> words{kind, std::to_string(i), lock, target};
        auto urls = etcd.urls();
        std::rotate(urls.begin(), urls.begin() + i, urls.end());
        words.insert(words.end(), urls.begin(), urls.end());
        all.push_back(std::make_unique<writer>(executor, std::move(words)));
    }
    return all;
}

awaitable<void> nemesis::rage(const bool& stop) {
    while (!stop) {
        const std::size_t leader = co_await leads();
        const bool strike_leader = random_() % 2 == 0;
        const std::size_t victim = strike_leader ? leader : (leader + 1 + random_() % 2) % 3;
        const auto what = random_() % 4;
        const std::function<void()> begin = [&] { strike(what, victim); };
        const std::function<void()> end = [&] {
            undo(what, victim);
            etcd_.wait_healthy();
        };
        co_await support::in_thread(begin);
        co_await sleep_for(std::chrono::milliseconds(1000 + random_() % 3000));
        co_await support::in_thread(end);
        co_await sleep_for(std::chrono::milliseconds(200 + random_() % 1000));
    }
}

awaitable<std::size_t> nemesis::leads() {
    std::size_t found = 0;
    const std::function<void()> ask = [&] { found = etcd_.leader(); };
    co_await support::in_thread(ask);
    co_return found;
}

void nemesis::strike(unsigned long what, std::size_t victim) {
    switch (what) {
    case 0:
        ++done["killed"];
        etcd_.kill(victim);
        break;
    case 1:
        ++done["paused"];
        etcd_.pause(victim);
        break;
    case 2:
        ++done["isolated"];
        etcd_.isolate(victim);
        break;
    default:
        ++done["not heard"];
        etcd_.isolate_answers(victim);
        break;
    }
}

void nemesis::undo(unsigned long what, std::size_t victim) {
    switch (what) {
    case 0:
        etcd_.start(victim);
        break;
    case 1:
        etcd_.resume(victim);
        break;
    default:
        etcd_.heal();
        break;
    }
}

awaitable<void> overtake(writers& all) {
    // The moment when one has just got it is the best one.
    const auto before = held_by(all);
    auto next = [&]() -> awaitable<bool> { co_return held_by(all) > before; };
    co_await eventually(next, 30s, "somebody gets the lock");
    const auto latest = std::max_element(all.begin(), all.end(), [](const auto& a, const auto& b) {
        return a->held_at < b->held_at;
    });
    writer& victim = **latest;
    victim.signal(SIGSTOP);
    const auto others = held_by(all) - victim.held;
    auto overtaken = [&]() -> awaitable<bool> {
        co_return held_by(all) - victim.held > others + 2;
    };
    try {
        co_await eventually(overtaken, 40s, "another one gets the lock of one that stands still");
    } catch (const std::runtime_error& e) {
        throw std::runtime_error(e.what() + said_by(all));
    }
    victim.signal(SIGCONT);
}

awaitable<void> end_all(writers& all) {
    for (const auto& w : all) {
        task<void> ending(co_await boost::asio::this_coro::executor, w->end());
        auto done = [&]() -> awaitable<bool> { co_return ending.done(); };
        co_await eventually(done, 30s, "a writer ends; it says " + w->trouble);
        co_await ending.result();
    }
}

std::size_t added_by(const writers& all) {
    std::size_t n = 0;
    for (const auto& w : all) {
        n += w->added.size();
    }
    return n;
}

std::size_t refused_by(const writers& all) {
    std::size_t n = 0;
    for (const auto& w : all) {
        n += w->refused;
    }
    return n;
}

awaitable<int>
torment(nemesis& strikes, writers& all, std::chrono::seconds time, std::function<bool()> enough) {
    bool stop = false;
    task<void> raging(co_await boost::asio::this_coro::executor, strikes.rage(stop));
    const auto until = clock::now() + time;
    int stopped = 0;
    while (clock::now() < until || (!enough() && clock::now() < until + 60s)) {
        co_await overtake(all);
        ++stopped;
        co_await sleep_for(300ms);
    }
    stop = true;
    co_await raging.result();
    co_await end_all(all);
    co_return stopped;
}

support::run_options for_seconds(std::chrono::seconds time) {
    support::run_options options;
    options.timeout = time + 180s;
    return options;
}

} // namespace faults
