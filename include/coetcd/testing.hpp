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

/// What goes wrong by chance between `begin_faults` and `end_faults`. Each number is the
/// probability at one occasion, from 0, never, to 1, always. The promises of the manual hold
/// whatever strikes, except for those that are named here (G4, ...).
struct fault_options {
    // At each request of a client, such as one of a lock.

    /// There is no connection, and the request is not sent. This also applies when a stream is
    /// opened.
    double connection_refused = 0.02;
    /// The connection ends at some moment, whether the request was done or not.
    double connection_broken = 0.02;
    /// The request does not arrive; the client waits until its deadline.
    double request_lost = 0.02;
    /// A request that changes keys arrives up to `longest` later, when the client may have given
    /// up. So a change that threw `errc::outcome_unknown` may still be applied.
    double request_late = 0.02;
    /// The request is done; the client waits for the answer until its deadline.
    double answer_lost = 0.02;
    /// The request or its answer takes up to 4 s longer.
    double delayed = 0.05;
    /// A transaction arrives twice, up to 4 s apart, and the second answer counts, as with a proxy
    /// that repeats a POST. Off, since coetcd demands that no proxy does: a transaction of your own
    /// may be reported refused although it was done (G12), and the key of a released lock may
    /// return (G6).
    double request_repeated = 0;

    // At each message of a stream, such as an event of a watch.

    double stream_dropped = 0.02; ///< The stream ends instead.
    double stream_silent = 0.02;  ///< It stays open, but delivers nothing more.

    // At each step of a client's code, including the library's: whenever a wait is over.

    /// Its process stands still, as with `stall`, for up to `longest`.
    double client_stalled = 0.005;

    // In each second.

    /// One of the clients is cut off, as with `cut`, for up to `longest`.
    double client_cut = 0.05;
    /// etcd ends one of the leases, as with `lose_lease`: until the next renewal `owns_lock` may be
    /// true for two clients (G4), and a write that is under way may be made twice (G18).
    double lease_ended = 0.02;
    /// As `change_leader`.
    double leader_changed = 0.02;
    /// One member is gone, or stands still and answers late, for up to `longest`. At most one at a
    /// time, besides those that `stop_member` has stopped: a cluster of three continues, one of one
    /// or two waits.
    double member_stopped = 0.02;
    /// As `compact`.
    double compacted = 0.02;

    /// The longest time that a lasting fault takes; most are much shorter. Must be positive, and at
    /// most a day. Use about three times your ttl: only a fault that outlasts a lease can lose a
    /// lock.
    std::chrono::nanoseconds longest = std::chrono::seconds(30);

    /// All numbers are 0: set those that you want.
    static fault_options none();
};

/// Code that runs in a process of a `cluster`. A handle; the code keeps running without it.
template<class T>
using task = detail::testing::task<T>;

/// An etcd cluster in memory, a network, and processes with a client each, all on a clock that
/// advances only in `pass` and `run`, as fast as the test can: ten minutes take milliseconds, a
/// test is the same each time, and no thread, socket or file is used. What is hard to have with a
/// real etcd, such as a lease that is lost at a chosen moment, is one call here; `begin_faults`
/// makes it happen at random moments.
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
/// Asio timers use real time, which does not pass in this world, so they never fire. Pass to your
/// code, as a parameter, the function that it waits with: in a test, `sleep`.
///
/// @par Thread safety
/// None: one thread uses it, its clients and what they make. It must outlive all of them except
/// tasks.
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
    /// Lets time pass: what is due happens, even if `time` is zero.
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
    /// The process of a client stands still for so long, like one that is stopped, swapped out, or
    /// on a machine that sleeps: its code does not run, while time and everything else continue.
    void stall(const client& one, std::chrono::nanoseconds time);
    /// Ends the process of a client where it stands, like `kill -9`: none of its code runs any
    /// more. Its tasks never end. Its leases end when their time is over. If that code itself calls
    /// it, the process ends as soon as the code waits for something.
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

    // What goes wrong by chance.

    /// From now on anything may go wrong by chance, drawn from the cluster's seed. Without it, only
    /// what a test calls for goes wrong. Another call replaces the options.
    /// @throws std::invalid_argument naming the member of `options` that is out of its range, if
    ///   one is; then nothing has changed.
    void begin_faults(fault_options options = {});
    /// Nothing goes wrong by chance any more: clients are joined, members start again, and there is
    /// a leader after two seconds. Late requests arrive within a second, what was delayed in its
    /// time. A client that stands still goes on when its time is over. A silent stream stays silent
    /// until its client gives it up.
    void end_faults();
    /// What has gone wrong by chance so far, a line each, in order: when, the member of
    /// `fault_options`, and what was struck, such as "1.250 s  answer_lost  txn of client 0 to
    /// member 2". Clients count from 0, in the order in which they were made.
    const std::vector<std::string>& faults() const;

    // What there is, without a request.

    /// The keys that begin with `prefix`, sorted.
    std::vector<std::string> keys(const std::string& prefix = "") const;
    std::size_t leases() const;
    /// The requests of a client so far; not counting streams and what is sent on them.
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
