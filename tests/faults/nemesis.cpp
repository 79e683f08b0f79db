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
#include <map>
#include <memory>
#include <optional>
#include <random>
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
#include "support/process.hpp"
#include "support/run_test.hpp"

using namespace std::chrono_literals;
using namespace faults;
using boost::system::system_error;
using coetcd::client;
using coetcd::op;
using coetcd::session;
using support::background_process;
using support::etcd_cluster;
using support::eventually;
using support::sleep_for;
using support::task;

// Writers, each a process of its own, take one lock in turn and write; a nemesis strikes members
// and stops writers at random. What must hold is that nothing which was acknowledged gets lost, and
// that nobody writes to a resource after a later owner of the lock.

namespace {

constexpr auto writer_ttl = 2s;

// The process of a writer

// What a writer of any kind is told on its command line.
class writer_options {
public:
    explicit writer_options(const std::vector<std::string>& words) {
        kind = words.at(0);
        number = words.at(1);
        lock = words.at(2);
        target = words.at(3);
        urls.assign(words.begin() + 4, words.end());
    }
    std::string kind;
    std::string number;
    std::string lock;
    std::string target; ///< A key, or a file.
    std::vector<std::string> urls;
};

void say(const std::string& line) {
    std::cout << line << std::endl;
}

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
    for (int n = 1; !stop; ++n) {
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
    task<void> writing(executor, write_on(std::move(how), stop));
    boost::asio::signal_set told(executor, SIGTERM);
    (void)co_await told.async_wait(boost::asio::use_awaitable);
    stop = true;
    co_await writing.result();
}

// The tests

// A writer, and what it has said.
class writer {
public:
    writer(boost::asio::any_io_executor executor, std::vector<std::string> words)
        : process_(start(std::move(words))) {
        reading_.emplace(executor, read());
    }
    writer(const writer&) = delete;
    writer& operator=(const writer&) = delete;

    std::vector<std::string> added;
    std::vector<std::string> perhaps;
    std::size_t refused = 0;
    std::size_t held = 0;
    clock::time_point held_at{};
    bool ended = false;
    std::string trouble; // the last

    void signal(int number) { process_.signal(number); }
    /// Kills it, and waits for all that it has said.
    awaitable<void> kill() {
        process_.signal(SIGKILL);
        co_await reading_->result();
    }
    awaitable<void> end() {
        process_.signal(SIGCONT);
        process_.signal(SIGTERM);
        co_await reading_->result();
        const int code = co_await process_.async_wait();
        CHECK(code == 0);
    }

private:
    static background_process start(std::vector<std::string> words) {
        const auto self = std::filesystem::read_symlink("/proc/self/exe").string();
        words.insert(words.begin(), {self, "--writer"});
        support::process_options options;
        options.capture = true;
        return background_process(words, std::move(options));
    }
    awaitable<void> read() {
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
        ended = true;
    }

    background_process process_;
    std::optional<task<void>> reading_;
};

using writers = std::vector<std::unique_ptr<writer>>;

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

std::size_t held_by(const writers& all) {
    std::size_t sum = 0;
    for (const auto& w : all) {
        sum += w->held;
    }
    return sum;
}

// Strikes members, one at a time, until it is time to stop; leaves them healthy.
class nemesis {
public:
    explicit nemesis(etcd_cluster& etcd)
        : etcd_(etcd) {}

    std::map<std::string, int> done;

    awaitable<void> rage(const bool& stop) {
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

private:
    awaitable<std::size_t> leads() {
        std::size_t found = 0;
        const std::function<void()> ask = [&] { found = etcd_.leader(); };
        co_await support::in_thread(ask);
        co_return found;
    }
    void strike(unsigned long what, std::size_t victim) {
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
    void undo(unsigned long what, std::size_t victim) {
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

    etcd_cluster& etcd_;
    std::minstd_rand random_{std::random_device{}()};
};

// Stops a writer while it holds the lock, until another one has had it.
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
    co_await eventually(overtaken, 40s, "another one gets the lock of one that stands still");
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

std::vector<std::string> words_of(const std::string& text) {
    std::istringstream in(text);
    std::vector<std::string> all;
    for (std::string w; in >> w;) {
        all.push_back(w);
    }
    return all;
}

// How many lines of a file are those of an older owner after a later one.
std::size_t overtaken_lines(const std::string& file) {
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

std::size_t count_lines(const std::string& file) {
    std::ifstream in(file);
    std::size_t n = 0;
    for (std::string line; std::getline(in, line);) {
        ++n;
    }
    return n;
}

class temporary_file {
public:
    temporary_file()
        : path_(std::filesystem::temp_directory_path() / support::unique_name("coetcd-resource")) {}
    temporary_file(const temporary_file&) = delete;
    temporary_file& operator=(const temporary_file&) = delete;
    ~temporary_file() { std::filesystem::remove(path_); }
    std::string path() const { return path_.string(); }

private:
    std::filesystem::path path_;
};

support::run_options for_seconds(std::chrono::seconds time) {
    support::run_options options;
    options.timeout = time + 180s;
    return options;
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
        bool stop = false;
        task<void> raging(executor, strikes.rage(stop));
        const auto until = clock::now() + time;
        int stopped = 0;
        while (clock::now() < until) {
            co_await overtake(all);
            ++stopped;
            co_await sleep_for(300ms);
        }
        stop = true;
        co_await raging.result();
        co_await end_all(all);

        const auto found = co_await c.get(key);
        const auto elements = words_of(found ? found->value : std::string());
        const std::set<std::string> there(elements.begin(), elements.end());
        CHECK(there.size() == elements.size());
        std::size_t added = 0, perhaps = 0, refused = 0, lost = 0;
        std::set<std::string> known;
        for (const auto& w : all) {
            for (const auto& e : w->added) {
                lost += there.contains(e) ? 0 : 1;
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

TEST_CASE("fenced_file: nobody writes after a later owner", "[nemesis][short]") {
    const auto time = duration(60s) / 2;
    etcd_cluster& etcd = shared_cluster();
    const auto body = [&]() -> awaitable<void> {
        const auto executor = co_await boost::asio::this_coro::executor;
        const temporary_file file;
        const auto lock = support::unique_name("file-lock");
        writers all = start_writers(executor, etcd, "fenced_file", lock, file.path());
        nemesis strikes(etcd);
        bool stop = false;
        task<void> raging(executor, strikes.rage(stop));
        const auto until = clock::now() + time;
        int stopped = 0;
        while (clock::now() < until) {
            co_await overtake(all);
            ++stopped;
            co_await sleep_for(300ms);
        }
        stop = true;
        co_await raging.result();
        co_await end_all(all);
        std::size_t refused = 0;
        for (const auto& w : all) {
            refused += w->refused;
        }
        std::cout << "fenced_file: " << count_lines(file.path()) << " lines, " << refused
                  << " refused; " << stopped << " writers stopped" << std::endl;
        CHECK(overtaken_lines(file.path()) == 0);
        CHECK(count_lines(file.path()) > 20);
        CHECK(refused > 0);
    };
    support::run_test(body, for_seconds(time));
}

TEST_CASE("unfenced_file: an older owner writes after a later one, as a control",
          "[nemesis][short]") {
    etcd_cluster& etcd = shared_cluster();
    const auto body = [&]() -> awaitable<void> {
        const auto executor = co_await boost::asio::this_coro::executor;
        const temporary_file file;
        const auto lock = support::unique_name("file-lock");
        writers all = start_writers(executor, etcd, "unfenced_file", lock, file.path());
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
