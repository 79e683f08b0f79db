// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <nlohmann/json.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

#include "bench/measure.hpp"

namespace bench {

namespace asio = boost::asio;
using asio::awaitable;
using nlohmann::json;

/// The work of one process: a JSON object on its command line. The Go program takes the same.
struct task {
    explicit task(const json& object);

    std::string kind;    ///< Such as `uncontended`.
    std::string subject; ///< `coetcd`, `raw` or `redis`; or a part, as `flood`.
    std::string url;     ///< Of the server, or of each member, with commas; of Redis the port.
    std::string direct;  ///< As `url`, without the delay.
    std::string name;    ///< Prefix of all locks' names; unique to each task.
    std::string gate;    ///< See `pass_gate`.
    pid_t server = 0;    ///< Its processor time is measured.
    std::size_t count;   ///< Of coroutines, waiters, sessions, acquisitions, events or watches.
    std::size_t slice;   ///< Size of a sample of `count`; of sessions, how many are opened at once.
    double seconds;      ///< How long to measure.
    double limit;        ///< Of all that waits for others, in seconds.
    long ttl;            ///< Of sessions, in seconds.
    double hold;         ///< How long each owner keeps a lock that is handed over, in seconds.
    double stall;        ///< For how long a watch is not read, once, in seconds.
};

/// Each returns what it has measured.
awaitable<json> run_coetcd(task t);    // locks.cpp
awaitable<json> run_queue(task t);     // queues.cpp
awaitable<json> run_scale(task t);     // scale.cpp: thousands of waiters, sessions, names
awaitable<json> run_watches(task t);   // watches.cpp
awaitable<json> run_raw(task t);       // raw.cpp
awaitable<json> run_raw_watch(task t); // flood.cpp
awaitable<json> run_flood(task t);     // flood.cpp: `count` events as fast as etcd takes them
awaitable<json> run_redis(task t);     // redis.cpp
awaitable<json> run_writer(task t);    // raw.cpp: other writes, `count` a second, for ever
awaitable<json> run_delay(task t);     // delay.cpp: a proxy that delays, for ever

/// Runs the program as a worker: does the task and prints the result as a line of JSON.
int work(const std::string& text);

/// The parts of `url`.
std::vector<std::string> urls_of(const task& t);

/// Prints a line of JSON.
void tell(const json& line);

/// Reports that this process is ready and waits at the gate, a FIFO, until its writer closes it:
/// that starts all processes at once. Without a gate it returns at once.
awaitable<void> pass_gate(std::string gate);

/// Lets time pass that is being measured; nothing waits for it to be over.
awaitable<void> let_pass(double seconds);

/// A group of coroutines to wait for. They may outlive it.
class crew {
public:
    explicit crew(const asio::any_io_executor& executor);
    void start(awaitable<void> member);
    /// Waits until all have ended, or until `until`.
    /// @returns Whether all have ended.
    /// @throws The first exception of any of them.
    awaitable<bool> joined(clock::time_point until = clock::time_point::max());

private:
    struct state;
    std::shared_ptr<state> state_;
};

/// Takes and releases one contender's lock, once.
using lock_and_unlock = std::function<awaitable<void>(std::size_t contender)>;

/// Measures `contenders` coroutines that lock and unlock for `seconds`, after one warm-up each.
/// Latencies are those of lock and unlock together.
awaitable<json>
measure_pairs(lock_and_unlock pair, std::size_t contenders, double seconds, pid_t server);

/// Very many operations: are the last ones as fast as the first? Ends after `count` of them, or
/// after `seconds`; compares `slice` of them.
class long_run {
public:
    explicit long_run(const task& t);
    bool goes_on() const { return ends_.size() < count_ && clock::now() < until_; }
    /// One has ended.
    void add(clock::time_point began);
    json to_json() const;

private:
    std::size_t count_;
    std::size_t slice_;
    stretch measured_;
    clock::time_point began_ = clock::now();
    clock::time_point until_;
    std::vector<clock::time_point> ends_;
    durations each_;
};

/// For each acquisition, when the lock was taken and when its release began.
class ownerships {
public:
    void taken() { taken_ = microseconds(clock::now()); }
    void leaving();
    json to_json() const { return json(list_); }

private:
    std::int64_t taken_ = 0;
    json::array_t list_;
};

/// What it takes to read a watch that is flooded.
class consumption {
public:
    /// Reads no further for `stall`, once, when some events are there.
    awaitable<void> pause_once(const task& t, std::size_t events);
    json to_json(std::size_t events) const;

private:
    std::size_t before_ = resident();
    double cpu_ = own_cpu();
    bool paused_ = false;
};

} // namespace bench
