// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/client_options.hpp>
#include <coetcd/detail/testing/task.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

/// For tests of code that locks: an etcd without a server, on a clock of its own.
namespace coetcd::testing {

struct cluster_options {
    int members = 3; ///< 1 to 3.
    /// Decides the order of simultaneous events, and all chance: the same seed gives the same test.
    /// Other seeds try other orders.
    std::uint64_t seed = 1;
    std::chrono::nanoseconds round_trip = std::chrono::milliseconds(2);
};

/// Code that runs in a process of a `cluster`. A handle; the code keeps running without it.
template<class T>
using task = detail::testing::task<T>;

/// An etcd cluster in memory, a network, and processes with a client each, all on a clock that
/// advances only in `pass` and `run`, as fast as the test can: ten minutes take milliseconds, a
/// test is the same each time, and no thread, socket or file is used. What is hard to have with a
/// real etcd, such as a lease that is lost at a chosen moment, is a call.
///
///     coetcd::testing::cluster etcd;
///     const coetcd::client client = etcd.make_client();
///     auto shipping = etcd.start(client, ship(client, "42"));
///     etcd.pass(1s);
///     etcd.change_leader();
///     etcd.pass(10s);
///     assert(shipping.get());
///
/// The etcd speaks the bytes of the JSON gateway, and does what etcd 3.4 to 3.7 do with keys,
/// transactions, leases and watches.
///
/// Asio timers use real time, which does not pass in this world, so they never fire. Pass what code
/// waits with as a parameter: in a test, `sleep`.
///
/// @par Thread safety
/// None: one thread for it, its clients and what they make. It must outlive all of them but tasks.
class cluster {
public:
    /// @throws std::invalid_argument if an option is out of its range.
    explicit cluster(cluster_options options = {});
    ~cluster();
    cluster(const cluster&) = delete;
    cluster& operator=(const cluster&) = delete;

    // Processes.

    /// A client in a process of its own. Its handlers run in `pass` and `run`.
    /// @throws std::invalid_argument as the constructor of `client`.
    client make_client(client_options options = {});

    /// Runs `code` in the process of a client, when time passes.
    template<class T>
    task<T> start(const client& in, boost::asio::awaitable<T> code) {
        return task<T>(in.get_executor(), std::move(code));
    }
    /// The same, and lets time pass until it has ended.
    /// @returns What it returns.
    /// @throws What it throws; `std::runtime_error` if it has not ended after an hour of this
    ///   world's time.
    template<class T>
    T run(const client& in, boost::asio::awaitable<T> code) {
        task<T> t = start(in, std::move(code));
        pass_until([&] { return t.ended(); });
        return t.get();
    }

    /// Time since the beginning.
    std::chrono::nanoseconds now() const;
    /// Lets time pass: what is due happens, also if `time` is zero.
    /// @throws std::runtime_error if an exception escapes from a handler, or handlers go round in
    ///   circles; `std::logic_error` if it is called by code in a process.
    void pass(std::chrono::nanoseconds time);
    /// A pause of code that runs in the process of a client.
    /// @throws boost::system::system_error with `operation_aborted` if it is cancelled, `terminal`.
    boost::asio::awaitable<void> sleep(const client& in, std::chrono::nanoseconds time);

    // What goes wrong.

    /// etcd ends a lease, as it does when an operator revokes it: its keys are deleted.
    void lose_lease(const session& of);
    /// Nothing gets from a client to etcd, or back, until `join`. Its streams stay silent.
    void cut(const client& one);
    void join(const client& one);
    /// The process of a client stands still for so long, as one that is stopped, swapped out, or on
    /// a machine that sleeps: its code does not run, while time and everything else continue.
    void stall(const client& one, std::chrono::nanoseconds time);
    /// Ends the process of a client where it stands, as `kill -9`: none of its code runs any more.
    /// Its tasks never end. Its leases end when their time is over. Called by that code itself, as
    /// soon as it waits for something.
    void kill(const client& one);
    /// The next request of a client that may change something is done, and the connection breaks
    /// before its answer comes.
    void lose_answer(const client& of);
    /// The leader of the cluster is gone; a new leader is elected after one to two seconds. All
    /// leases have their whole time again, as in etcd.
    void change_leader();
    /// A member answers nothing, and its watches deliver nothing, until `start_member`.
    /// @param member 0 to `members` - 1.
    void stop_member(int member);
    void start_member(int member);
    /// History up to now is gone.
    void compact();

    // What there is, without a request.

    /// The keys that begin with `prefix`, sorted.
    std::vector<std::string> keys(const std::string& prefix = "") const;
    std::size_t leases() const;
    /// The requests of a client so far; streams and what is sent on them not counted.
    std::uint64_t requests(const client& of) const;

private:
    class impl;
    /// @param done Called after each step.
    void pass_until(const std::function<bool()>& done);

    std::unique_ptr<impl> impl_;
};

} // namespace coetcd::testing

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/testing.hpp>
#endif
