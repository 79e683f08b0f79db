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

#include "bench/measure.hpp"

namespace bench {

namespace asio = boost::asio;
using asio::awaitable;
using nlohmann::json;

/// What a worker process is to do: the JSON object on its command line. The Go client's program
/// takes the same.
struct task {
    explicit task(const json& object);

    std::string kind;    ///< Such as `uncontended`.
    std::string subject; ///< `coetcd`, `raw` or `redis`.
    std::string url;     ///< Of the server; of Redis the port.
    std::string direct;  ///< Of the server without a delay in between.
    std::string name;    ///< What all locks' names begin with; new for each task.
    std::string gate;    ///< See `pass_gate`.
    pid_t server = 0;    ///< Whose processor time counts.
    std::size_t count;   ///< Of coroutines, waiters, sessions or acquisitions.
    std::size_t slice;   ///< Of the first and the last acquisitions, to be compared.
    double seconds;      ///< How long to measure.
    double limit;        ///< How long the rest may take, in seconds.
    long ttl;            ///< Of sessions, in seconds.
};

/// Each returns what it has measured.
awaitable<json> run_coetcd(task t); // locks.cpp
awaitable<json> run_scale(task t);  // scale.cpp: thousands of waiters, sessions, names
awaitable<json> run_raw(task t);    // raw.cpp
awaitable<json> run_redis(task t);  // redis.cpp
awaitable<json> run_writer(task t); // raw.cpp: other writes, `count` a second, for ever
awaitable<json> run_delay(task t);  // delay.cpp: a proxy that delays, for ever

/// The program in its role as a worker: does the task, and prints the result as a line of JSON.
int work(const std::string& text);

/// Prints a line of JSON.
void tell(const json& line);

/// Tells that this process is ready, and waits until the gate, a FIFO, is opened for all. Returns
/// at once if the task has none.
awaitable<void> pass_gate(std::string gate);

/// Waits for coroutines that it has started. They may outlive it.
class crew {
public:
    explicit crew(const asio::any_io_executor& executor);
    void start(awaitable<void> member);
    /// Returns when all have ended, or at `until`: then it is false.
    /// @throws What the first one that failed has thrown.
    awaitable<bool> joined(clock::time_point until = clock::time_point::max());

private:
    struct state;
    std::shared_ptr<state> state_;
};

/// Takes and gives back the lock of one contender, once.
using lock_and_unlock = std::function<awaitable<void>(std::size_t contender)>;

/// The rate of `contenders` coroutines that take and give back locks for `seconds`. Each does it
/// once before. A latency is that of lock and unlock together.
awaitable<json>
measure_pairs(lock_and_unlock pair, std::size_t contenders, double seconds, pid_t server);

/// When a lock was taken and when it began to be given back, of each acquisition.
class ownerships {
public:
    void taken() { taken_ = microseconds(clock::now()); }
    void leaving();
    json to_json() const { return json(list_); }

private:
    std::int64_t taken_ = 0;
    json::array_t list_;
};

} // namespace bench
