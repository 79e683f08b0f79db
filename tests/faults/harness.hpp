// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "support/async.hpp"
#include "support/etcd_cluster.hpp"
#include "support/process.hpp"
#include "support/tcp_proxy.hpp"
#include "workload.hpp"

namespace faults {

/// What may become of an operation under a fault.
class cell {
public:
    /// @param may, must Letters of `ended`; what must be seen may be seen. `O` stands for `R` too.
    /// @param limit How long an attempt may take, of the time since the fault.
    cell(std::string may, std::string must = {}, std::chrono::milliseconds limit = default_limit)
        : allowed(may + must)
        , required(std::move(must))
        , bound(limit) {}
    static constexpr std::chrono::milliseconds default_limit{8000};

    std::string allowed;
    std::string required;
    std::chrono::milliseconds bound;
};

enum class role { leader, follower };

/// Of the lock that is held throughout a fault.
constexpr std::chrono::seconds long_ttl{10};

class fault {
public:
    fault() {}

    std::string name{};
    role victim = role::leader; ///< The member that all clients use.
    bool strikes_all = false;   ///< Each member in turn: clients may use any of them.
    bool proxied = false;       ///< Clients reach the members through `arena::proxies`.
    bool by_name = false;       ///< Clients reach the members by the names of their hosts.
    bool separate = false;      ///< The clients are a process of their own.
    bool fresh_cluster = false; ///< The fault leaves a cluster that is of no use to others.
    bool history = true;        ///< The store keeps what was written to it.
    bool held = false;          ///< A lock is held throughout, with `long_ttl`.
    std::string program{};      ///< Of a fresh cluster; empty: the usual one.
    std::vector<std::string> extra_arguments{};            ///< The same.
    std::function<void(support::etcd_cluster&)> prepare{}; ///< Before anything is at work.
    workload_options work{};
    /// In the order of `operation`.
    std::vector<cell> cells{};
    std::chrono::seconds recovery{10}; ///< How long after it all operations succeed again.
};

/// A healthy cluster, and all operations at work on it, for one fault.
class arena {
public:
    arena(boost::asio::any_io_executor executor,
          const fault& what,
          support::etcd_cluster& cluster,
          std::vector<std::string>& problems);

    // For the fault

    support::etcd_cluster& etcd;
    const std::size_t victim;                                 ///< A member.
    const std::string prefix;                                 ///< Of all keys.
    std::vector<std::unique_ptr<support::tcp_proxy>> proxies; ///< One for each member.
    coetcd::client clean;                                     ///< That no fault concerns.
    std::optional<support::background_process> process;       ///< The clients', if separate.
    journal tells;

    void strike();                          ///< The fault begins.
    void heal() { healed_ = clock::now(); } ///< All should go well again.
    clock::time_point struck() const { return struck_; }
    /// For so long the fault lasts.
    awaitable<void> last(std::chrono::milliseconds time) { return support::sleep_for(time); }
    awaitable<void> blocking(std::function<void()> f) { return support::in_thread(std::move(f)); }
    /// That the fault bites, and all else that must be.
    void expect(bool yes, const std::string& what);
    /// Waits until an attempt that began after the strike ended like this; `O` stands for `R` too.
    awaitable<void> until(operation what, std::string outcomes, std::chrono::milliseconds within);
    /// How many attempts ended so since the strike.
    std::size_t seen(operation what, char outcome) const;
    void answers(const support::toxics& t);  ///< Of all proxies.
    void requests(const support::toxics& t); ///< Of all proxies.
    /// The sum over all proxies.
    std::size_t count(std::size_t support::tcp_proxy::counters::*which) const;
    /// The leases of all clients.
    awaitable<std::vector<coetcd::lease_id>> leases();
    /// What clients do not need, but may use besides.
    boost::asio::any_io_executor executor() const { return executor_; }

    // For the harness

    awaitable<void> begin();
    awaitable<void> end();
    std::array<std::string, operations> row() const;

private:
    awaitable<void> hold();
    awaitable<void> give_back();
    awaitable<void> write();
    awaitable<void> listen();
    awaitable<void> stop();
    awaitable<void> validate(std::int64_t last);
    bool recovered(operation what) const;
    bool overlaps(const attempt& a) const;
    bool most_use_the_victim();
    void check_outcomes();
    void problem(const std::string& text) { problems_.push_back(text); }

    const fault& fault_;
    const boost::asio::any_io_executor executor_;
    std::vector<std::unique_ptr<support::tcp_proxy>> clean_proxies_;
    std::vector<std::string>& problems_;
    clock::time_point struck_ = clock::time_point::max();
    clock::time_point healed_ = clock::time_point::max();
    std::optional<coetcd::session> lease_; // of what is held
    std::optional<coetcd::mutex> held_;
    std::optional<workload> work_;
    std::optional<support::task<void>> writing_;
    std::optional<support::task<void>> listening_;
    std::string preferred_;                    // the url that the clients are to use
    std::array<bool, operations> elsewhere_{}; // they use another one, when it strikes
    bool stop_writing_ = false;
    bool client_stopped_ = false;
    std::int64_t first_revision_ = 0;
};

/// Lets a fault happen while all operations are at work, and checks what becomes of them.
/// @param body Calls `strike`, makes it happen and sees to it that it does, ends it, calls `heal`.
void run_fault(const fault& what, std::function<awaitable<void>(arena&)> body);

/// A row for what cannot be done here.
void add_row(const std::string& name, const std::string& text);

void print_table();

/// The cluster that the tests share; a new one if the last one has come to harm.
support::etcd_cluster& shared_cluster();
void drop_shared_cluster();

/// What became of the keys at each revision from `first` to `last`.
awaitable<std::vector<change>>
history(coetcd::client c, std::string prefix, std::int64_t first, std::int64_t last);

/// Checks that no key's value, `<fence>.<anything>`, is ever smaller than one before.
std::vector<std::string> falling_fences(const std::vector<change>& all);

/// The client process: `faults --client <options as JSON>`.
int run_client(const std::string& options);

/// A client process of the tests with a nemesis; see nemesis.cpp.
int run_writer(const std::vector<std::string>& arguments);

/// How long what has no end lasts: --seconds, or COETCD_FAULTS_SECONDS.
std::chrono::seconds duration(std::chrono::seconds otherwise);

/// Moves this process's wall clock.
void shift_wall_clock(std::chrono::seconds by);

/// Gives this process name resolution of its own, before there is any thread.
void enter_private_names();
/// The contents of /etc/hosts.
void set_hosts(const std::string& text);

} // namespace faults
