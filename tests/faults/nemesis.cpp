// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <set>
#include <signal.h>
#include <sstream>
#include <stdexcept>
#include <string>
#include <sys/file.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "harness.hpp"
#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/etcd_cluster.hpp"
#include "support/etcd_tools.hpp"
#include "support/run_test.hpp"
#include "support/temporary_file.hpp"
#include "writers.hpp"

using namespace std::chrono_literals;
using namespace faults;
using boost::system::system_error;
using coetcd::client;
using coetcd::op;
using coetcd::session;
using support::etcd_cluster;
using support::sleep_for;
using support::task;

// Writers, each a process of its own, take one lock in turn and write; a nemesis strikes members
// and stops writers at random. What must hold is that nothing which was acknowledged gets lost, and
// that no writer writes to a resource after a later owner of the lock.

namespace {

// The process of a writer

// Adds an element to a list in etcd, in a round trip to read it and another one to write it.
awaitable<void> add_element(client c, writer_options how, coetcd::compare owner, int n) {
    const auto found = co_await c.get(how.target);
    co_await sleep_for(20ms); // time to be overtaken
    const std::string element = how.number + '.' + std::to_string(n);
    const std::string list = (found ? found->value : std::string()) + element + ' ';
    try {
        auto change = coetcd::txn().then(op::put(how.target, list));
        if (how.kind == "guarded_set") {
            change.compares.push_back(owner);
        }
        const auto r = co_await c.txn(std::move(change));
        say((r.succeeded ? "added " : "refused ") + element);
    } catch (const system_error& e) {
        say((e.code() == coetcd::condition::outcome_unknown ? "perhaps " : "failed ") + element);
    }
}

// Adds a line to a file, unless, if it is fenced, a later owner of the lock has done so.
void append_line(const writer_options& how, std::int64_t fence, int n) {
    const int file = ::open(how.target.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0 || ::flock(file, LOCK_EX) != 0) {
        throw std::runtime_error(how.target);
    }
    std::int64_t highest = 0;
    std::ifstream lines(how.target);
    for (std::string line; std::getline(lines, line);) {
        highest = std::max<std::int64_t>(highest, std::stoll(line));
    }
    const std::string text = std::to_string(fence) + ' ' + how.number + '.' + std::to_string(n);
    if (how.kind == "fenced_file" && fence < highest) {
        say("refused " + text);
    } else {
        const std::string line = text + '\n';
        if (::write(file, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
            throw std::runtime_error(how.target);
        }
        say("added " + text);
    }
    ::close(file);
}

awaitable<void> write_on(writer_options how, const bool& stop) {
    const auto executor = co_await boost::asio::this_coro::executor;
    const client c(executor, how.urls);
    std::optional<session> lease;
    std::optional<coetcd::mutex> lock;
    int n = 0;
    while (!stop) {
        ++n;
        try {
            if (!lease || lease->state() == coetcd::session_state::lost) {
                lock.reset();
                session s = co_await support::open_session(c, writer_ttl);
                lease.emplace(std::move(s));
                lock.emplace(*lease, how.lock);
            }
            co_await lock->lock();
            const auto fence = lock->fencing_token();
            const auto owner = lock->is_owner();
            say("held");
            if (how.kind.ends_with("set")) {
                co_await add_element(c, how, owner, n);
            } else {
                co_await sleep_for(20ms); // time to be overtaken
                append_line(how, fence, n);
            }
            (void)co_await lock->unlock();
        } catch (const system_error& e) {
            say(std::string("trouble ") + e.what());
        }
        co_await sleep_for(5ms);
    }
    say("stopped");
}

awaitable<void> serve_writer(writer_options how) {
    const auto executor = co_await boost::asio::this_coro::executor;
    bool stop = false;
    const bool judged = is_judged(how.kind);
    task<void> writing(executor,
                       judged ? judged_on(std::move(how), stop) : write_on(std::move(how), stop));
    boost::asio::signal_set told(executor, SIGTERM);
    (void)co_await told.async_wait(boost::asio::use_awaitable);
    stop = true;
    co_await writing.result();
}

// The tests

std::vector<std::string> words_of(const std::string& text) {
    std::istringstream in(text);
    std::vector<std::string> all;
    for (std::string w; in >> w;) {
        all.push_back(w);
    }
    return all;
}

// How many lines of a file are those of an older owner after a later one.
std::size_t overtaken_lines(const std::filesystem::path& file) {
    std::ifstream in(file);
    std::int64_t highest = 0;
    std::size_t found = 0;
    for (std::string line; std::getline(in, line);) {
        const auto fence = std::stoll(line);
        found += fence < highest ? 1 : 0;
        highest = std::max<std::int64_t>(highest, fence);
    }
    return found;
}

std::size_t count_lines(const std::filesystem::path& file) {
    std::ifstream in(file);
    std::size_t n = 0;
    for (std::string line; std::getline(in, line);) {
        ++n;
    }
    return n;
}

void run_set(const std::string& kind, bool may_lose) {
    const auto time = duration(60s);
    etcd_cluster& etcd = shared_cluster();
    const auto body = [&]() -> awaitable<void> {
        const auto executor = co_await boost::asio::this_coro::executor;
        const client c(executor, etcd.urls());
        const auto lock = support::unique_name("set-lock");
        const auto key = support::unique_name("set");
        writers all = start_writers(executor, etcd, kind, lock, key);
        nemesis strikes(etcd);
        const auto much = [&] {
            return added_by(all) > 20 && !strikes.done.empty() && (may_lose || refused_by(all) > 0);
        };
        const int stopped = co_await torment(strikes, all, time, much);

        const auto found = co_await c.get(key);
        const auto elements = words_of(found ? found->value : std::string());
        const std::set<std::string> there(elements.begin(), elements.end());
        CHECK(there.size() == elements.size());
        std::size_t added = 0, perhaps = 0, refused = 0, lost = 0;
        std::set<std::string> known;
        for (const auto& w : all) {
            for (const auto& e : w->added) {
                lost += there.contains(e) ? 0U : 1U;
            }
            known.insert(w->added.begin(), w->added.end());
            known.insert(w->perhaps.begin(), w->perhaps.end());
            added += w->added.size();
            perhaps += w->perhaps.size();
            refused += w->refused;
        }
        std::cout << kind << ": " << added << " added, " << perhaps << " perhaps, " << refused
                  << " refused, " << lost << " lost; " << stopped << " writers stopped";
        for (const auto& [what, n] : strikes.done) {
            std::cout << ", " << n << " members " << what;
        }
        std::cout << std::endl;
        CHECK(added > 20);
        CHECK(stopped > 0);
        CHECK(!strikes.done.empty());
        CHECK(std::includes(known.begin(), known.end(), there.begin(), there.end()));
        if (may_lose) {
            CHECK(lost > 0);
        } else {
            CHECK(lost == 0);
            CHECK(refused > 0);
        }
        (void)co_await c.erase(key);
    };
    support::run_test(body, for_seconds(time));
}

} // namespace

int faults::run_writer(const std::vector<std::string>& arguments) {
    boost::asio::io_context context{1};
    int status = 0;
    boost::asio::co_spawn(context,
                          serve_writer(writer_options(arguments)),
                          [&](std::exception_ptr e) { status = e ? 1 : 0; });
    context.run();
    return status;
}

TEST_CASE("guarded_set: no element that was acknowledged is lost", "[nemesis][short]") {
    run_set("guarded_set", false);
}

TEST_CASE("unguarded_set: elements get lost, as a control", "[nemesis]") {
    run_set("unguarded_set", true);
}

TEST_CASE("fenced_file: no writer writes after a later owner", "[nemesis][short]") {
    const auto time = duration(60s) / 2;
    etcd_cluster& etcd = shared_cluster();
    const auto body = [&]() -> awaitable<void> {
        const auto executor = co_await boost::asio::this_coro::executor;
        const support::temporary_file file("coetcd-resource");
        const auto lock = support::unique_name("file-lock");
        writers all = start_writers(executor, etcd, "fenced_file", lock, file.path().string());
        nemesis strikes(etcd);
        const auto enough = [&] { return refused_by(all) != 0 && count_lines(file.path()) > 20; };
        const int stopped = co_await torment(strikes, all, time, enough);
        std::cout << "fenced_file: " << count_lines(file.path()) << " lines, " << refused_by(all)
                  << " refused; " << stopped << " writers stopped" << std::endl;
        CHECK(overtaken_lines(file.path()) == 0);
        CHECK(count_lines(file.path()) > 20);
        CHECK(refused_by(all) > 0);
    };
    support::run_test(body, for_seconds(time));
}

TEST_CASE("unfenced_file: an older owner writes after a later one, as a control",
          "[nemesis][short]") {
    etcd_cluster& etcd = shared_cluster();
    const auto body = [&]() -> awaitable<void> {
        const auto executor = co_await boost::asio::this_coro::executor;
        const support::temporary_file file("coetcd-resource");
        const auto lock = support::unique_name("file-lock");
        writers all = start_writers(executor, etcd, "unfenced_file", lock, file.path().string());
        int stopped = 0;
        const auto until = clock::now() + 60s;
        while (overtaken_lines(file.path()) == 0 && clock::now() < until) {
            co_await overtake(all);
            ++stopped;
            co_await sleep_for(300ms);
        }
        co_await end_all(all);
        std::cout << "unfenced_file: " << overtaken_lines(file.path()) << " of "
                  << count_lines(file.path()) << " lines come too late; " << stopped
                  << " writers stopped" << std::endl;
        CHECK(overtaken_lines(file.path()) > 0);
    };
    support::run_test(body, for_seconds(60s));
}
