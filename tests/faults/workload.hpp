// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/election.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "support/async.hpp"

namespace faults {

using support::awaitable;
using support::clock;

enum class operation { create, keepalive, lock, try_lock, unlock, with_lock, campaign, watch };
constexpr std::size_t operations = 8;
const char* to_string(operation what);

/// How an attempt ended, as a letter.
namespace ended {
constexpr char well = 'O';
constexpr char retried = 'R';   ///< Well, after an attempt that failed.
constexpr char busy = 'F';      ///< `try_lock` returned false.
constexpr char timed_out = 'T'; ///< Or no endpoint was there. Nothing was changed.
constexpr char unknown = 'A';   ///< It may have been applied.
constexpr char suspended = 'S'; ///< A renewal failed; the session lives.
constexpr char lost = 'L';      ///< The session.
constexpr char key_lost = 'K';  ///< The lock's key.
constexpr char not_owner = 'N'; ///< `unlock` returned false.
constexpr char compacted = 'W';
constexpr char regressed = 'V'; ///< The store is older than what was seen of it.
constexpr char protocol = 'P';  ///< The answer is not etcd's.
constexpr char too_large = 'B';
constexpr char refused = 'X'; ///< By etcd, in its words.
constexpr char canceled = 'C';
constexpr char other = '?'; ///< Never right.
} // namespace ended

bool is_well(char outcome);
std::string word(char outcome);

class attempt {
public:
    attempt() {}
    operation what = operation::create;
    char outcome = ended::other;
    clock::time_point began{};
    clock::time_point over{};
    std::string text{};
};

/// A write, and what its writer knows of it. Values are unique.
class written {
public:
    written() {}
    std::string key{};
    std::optional<std::string> value{}; ///< Empty: it was deleted.
    char outcome = ended::other;        ///< `well`, `unknown`, or anything else: not applied.
    std::int64_t revision = 0;
};

/// What happened to one key at one revision.
class change {
public:
    change() {}
    std::int64_t revision = 0;
    std::string key{};
    std::optional<std::string> value{}; ///< Empty: it was deleted.
    bool operator==(const change&) const = default;
};

std::ostream& operator<<(std::ostream& out, const change& c);

/// All that is known of a run. It can be passed on, line by line, to another process.
class journal {
public:
    void add(attempt a);
    void add(written w);
    void add(change c);
    void complain(std::string text); ///< What must never be.

    /// Prints all that is added.
    void print_to(std::ostream& out) { out_ = &out; }
    /// Adds what another journal printed.
    void read(const std::string& line);

    std::vector<attempt> attempts;
    std::vector<written> writes;
    std::vector<change> told; ///< By the watch.
    std::vector<std::string> complaints;

private:
    std::ostream* out_ = nullptr;
};

class workload_options {
public:
    workload_options() {}
    std::vector<std::string> urls{};
    std::string prefix{};
    std::chrono::seconds ttl{5};
    std::int64_t first_revision = 0; ///< That the watch begins with.
    bool fresh_clients = false;      ///< Each session is opened by a new client.
    bool cancels = false;            ///< All attempts, at random moments.
    bool flooded = false; ///< The client of `lock` also watches more than its reader takes.
    coetcd::client_options client{};
    std::string preferred{}; ///< The url that all clients are to use; empty: any will do.
};

/// All operations, each again and again by a client of its own, until it is told to stop.
///
/// Each lock's holder writes its fencing token, by a transaction with `is_owner`, to
/// `<prefix>w/<lock>`. `lock`, `with_lock` and `campaign`, with `lead`, contend in one queue, and
/// `try_lock` tries that as well.
/// The watch looks at `<prefix>w/`; keys of locks are below `<prefix>l/`.
class workload {
public:
    workload(boost::asio::any_io_executor executor, workload_options options, journal& tells);
    workload(const workload&) = delete;
    workload& operator=(const workload&) = delete;

    void start();
    /// Ends all but the watch, each after what it is at.
    awaitable<void> stop();
    /// Also ends the watch and closes the sessions.
    awaitable<void> close();
    bool stopped() const { return stop_; }
    /// An operation whose client does not use the preferred member begins anew with one that does,
    /// once its present attempt is over.
    void use_preferred();
    std::vector<std::string> unfinished() const; ///< What `stop` waits for.
    std::string used_by(operation what) const;   ///< The url that its client has used last.

private:
    class ears;
    struct party;
    /// What a holder writes with.
    struct claim {
        coetcd::compare owner;
        std::int64_t fence;
    };
    template<class Held>
    static std::optional<claim> claim_of(const Held& held);

    awaitable<coetcd::client> client_of(operation what);
    coetcd::client new_client(operation what);
    awaitable<void> run(operation what);
    awaitable<void> run_with_one_client(operation what);
    bool ends(operation what) const;
    awaitable<void> create();
    awaitable<void> keepalive();
    awaitable<void> lock();
    awaitable<void> try_lock();
    awaitable<void> unlock();
    awaitable<void> run_held(operation what); // with_lock, or campaign
    awaitable<void> watch();
    awaitable<char> await_attempt(operation what, awaitable<char> work);
    awaitable<char> next_changes(coetcd::client c, std::optional<coetcd::watcher>& w);
    awaitable<bool> ready(operation what, party& p, std::string name);
    awaitable<void> write_guarded(coetcd::client c, std::string name, std::optional<claim> by);
    awaitable<void> flood();
    awaitable<void> read_slowly(coetcd::client c);
    awaitable<void> hold(coetcd::mutex& m, std::chrono::milliseconds wait);
    void record(operation what, char outcome, clock::time_point began, std::string text = {});
    std::string lock_name(const std::string& name) const { return options_.prefix + "l/" + name; }

    const boost::asio::any_io_executor executor_;
    const workload_options options_;
    journal& journal_;
    bool stop_ = false;
    std::array<bool, operations> moves_{}; // which are to begin anew with another client
    std::array<std::shared_ptr<ears>, operations> ears_;
    std::array<std::optional<support::task<void>>, operations> tasks_;
    std::list<support::task<void>> besides_; ///< They end by being cancelled.
    std::vector<std::shared_ptr<party>> parties_;
    std::int64_t next_revision_ = 0;
    std::int64_t last_of_flood_ = 0; // revision that the flooded watch has told
    int writes_ = 0;
    std::minstd_rand random_;
};

/// What is known of an error, as a letter.
char outcome_of(const boost::system::system_error& e);

} // namespace faults
