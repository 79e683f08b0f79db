// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <boost/asio/any_io_executor.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "support/async.hpp"
#include "support/etcd_cluster.hpp"
#include "support/process.hpp"
#include "support/run_test.hpp"
#include "workload.hpp"

// Processes that take a lock in turn and do something under it, and what may strike them: see
// nemesis.cpp and judged.cpp.
namespace faults {

constexpr std::chrono::seconds writer_ttl{2};

/// What a writer of any kind is told on its command line.
class writer_options {
public:
    explicit writer_options(const std::vector<std::string>& words);
    std::string kind;
    std::string number;
    std::string lock;
    std::string target; ///< A key, or a file.
    std::vector<std::string> urls;
};

/// A line for the test that has started this writer: see `writer`.
void say(const std::string& line);

/// A writer that records what it sees, until it shall stop: see judged.hpp.
awaitable<void> judged_on(writer_options how, const bool& stop);
bool is_judged(const std::string& kind);

/// A writer, and what it has said.
class writer {
public:
    writer(boost::asio::any_io_executor executor, std::vector<std::string> words);
    writer(const writer&) = delete;
    writer& operator=(const writer&) = delete;

    std::vector<std::string> added;
    std::vector<std::string> perhaps;
    std::size_t refused = 0;
    std::size_t held = 0;
    clock::time_point held_at{};
    std::string trouble; // the last

    void signal(int number) { process_.signal(number); }
    awaitable<void> end();

private:
    awaitable<void> read();

    support::background_process process_;
    std::optional<support::task<void>> reading_;
};

using writers = std::vector<std::unique_ptr<writer>>;

/// Three of them, each of which prefers another member.
writers start_writers(boost::asio::any_io_executor executor,
                      const support::etcd_cluster& etcd,
                      const std::string& kind,
                      const std::string& lock,
                      const std::string& target);

/// Strikes members, one at a time, until it is time to stop; leaves them healthy.
class nemesis {
public:
    explicit nemesis(support::etcd_cluster& etcd)
        : etcd_(etcd) {}

    std::map<std::string, int> done;

    awaitable<void> rage(const bool& stop);

private:
    awaitable<std::size_t> leads();
    void strike(unsigned long what, std::size_t victim);
    void undo(unsigned long what, std::size_t victim);

    support::etcd_cluster& etcd_;
    std::minstd_rand random_{std::random_device{}()};
};

/// Stops a writer while it holds the lock, until another one has had it.
awaitable<void> overtake(writers& all);

awaitable<void> end_all(writers& all);

/// For so long the nemesis strikes, and writers are overtaken; then they are ended.
/// @param enough Tells whether there is something to judge; it goes on until then, for at most a
///   minute more.
/// @returns How many writers were stopped.
awaitable<int> torment(
    nemesis& strikes, writers& all, std::chrono::seconds time, std::function<bool()> enough = [] {
        return true;
    });

/// How many elements, lines or turns went well so far.
std::size_t added_by(const writers& all);

/// How many were refused since a later owner had the lock.
std::size_t refused_by(const writers& all);

/// For a test that torments writers for so long.
support::run_options for_seconds(std::chrono::seconds time);

} // namespace faults
