// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/env.hpp>

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/execution.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/post.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "sim/between.hpp"
#include "sim/common.hpp"

namespace sim {

namespace asio = boost::asio;
using coetcd::error_code;
using coetcd::detail::time_point;
using std::chrono::nanoseconds;

/// What goes wrong in a world.
enum class fault : std::size_t {
    request_lost,
    answer_lost,
    doubted,        // etcd answers that it timed out, and has done what it was asked for
    doubted_late,   // likewise, and does it seconds later
    duplicated,     // the request arrives twice, and only the second time is there an answer
    late_duplicate, // likewise, seconds later
    very_late,      // a transaction gets no answer, and arrives, maybe again, in the very end
    delayed,        // by up to some seconds
    refused,        // no connection
    broken,         // the connection ends instead of the answer
    interrupted,    // something in between answers in etcd's place
    stream_dropped,
    stream_silent, // it stays open, and carries nothing any more
    event_lost,    // by the server
    stale_read,    // by a member that has stalled
    early_revoke,
    leader_change,
    compaction,
    member_paused,
    member_cut,    // off from the other members
    member_lags,   // applies nothing for a while
    member_hidden, // for a while something in between answers in its place
    client_paused,
    client_cut, // off from the cluster
    client_crashed,
    clock_rate,
    token_expired,
    locked_out, // the user has another password for a while
    no_space,
    operator_delete,
    silent_delete, // likewise, and nobody is told
};
inline constexpr std::size_t fault_kinds = 31;
std::string_view name(fault f);

/// How often what goes wrong: a swarm, in which each seed has a subset of its own.
struct weather {
    std::array<std::uint32_t, fault_kinds> ppm{}; ///< Of each occasion; 0: never.
    std::uint32_t operator[](fault f) const { return ppm[static_cast<std::size_t>(f)]; }
    bool calm() const { return ppm == decltype(ppm){}; }
    std::uint32_t& operator[](fault f) { return ppm[static_cast<std::size_t>(f)]; }
};

class world;
class process;

/// Is told what goes over the network, as it does.
class wiretap {
public:
    /// A client sends a request; its number is none that was there before.
    virtual void
    sent(const process& /*by*/, std::uint64_t /*number*/, const coetcd::detail::call_request&) {}
    /// One of its copies has reached etcd: what happens there until `served` is its doing.
    virtual void arrives(std::uint64_t /*number*/) {}
    virtual void served(std::uint64_t /*number*/) {}
    /// The client has the answer.
    virtual void answered(std::uint64_t /*number*/) {}
    /// A client opens a stream, or sends messages on it.
    virtual void sent_on_stream(const process& /*by*/) {}
    /// A line of a stream has reached a client.
    virtual void told(const process& /*who*/, std::string_view /*line*/) {}

protected:
    ~wiretap() = default;
};

/// Runs handlers in one simulated process.
class process_executor {
public:
    explicit process_executor(process& in)
        : in_(&in) {}

    asio::execution_context& query(asio::execution::context_t) const noexcept;
    process_executor require(asio::execution::blocking_t::never_t) const {
        process_executor other = *this;
        other.may_block_ = false;
        return other;
    }
    process_executor require(asio::execution::blocking_t::possibly_t) const {
        process_executor other = *this;
        other.may_block_ = true;
        return other;
    }
    template<class F>
    void execute(F&& f) const;

    friend bool operator==(const process_executor& a, const process_executor& b) noexcept {
        return a.in_ == b.in_ && a.may_block_ == b.may_block_;
    }
    friend bool operator!=(const process_executor& a, const process_executor& b) noexcept {
        return !(a == b);
    }

private:
    process* in_;
    bool may_block_ = true;
};

/// What a coroutine waits for. Resumed once; the first reason counts.
class suspension : public std::enable_shared_from_this<suspension> {
public:
    explicit suspension(process& in)
        : in_(in) {}
    suspension(const suspension&) = delete;
    suspension& operator=(const suspension&) = delete;
    ~suspension();

    /// Waits for `resume`, or for a cancellation.
    static asio::awaitable<error_code> wait(std::shared_ptr<suspension> self);
    void resume(error_code ec = {});
    bool resumed() const { return resumed_; }

private:
    friend class process;
    struct continuation {
        virtual ~continuation() = default;
        virtual void post() = 0;
    };
    template<class Handler>
    struct handler_of;
    template<class Handler>
    void start(Handler handler);

    process& in_;
    std::unique_ptr<continuation> then_;
    std::list<suspension*>::iterator place_;
    bool resumed_ = false;
    error_code result_;
};

/// A client's process: its clock, its chance, its event loop, and its way to the network. The
/// `env` of the library that runs in it.
class process final : public coetcd::detail::env, public std::enable_shared_from_this<process> {
public:
    process(world& in, std::size_t number, std::uint64_t seed);
    ~process() override;

    asio::any_io_executor executor() const override { return executor_; }
    time_point now() const override;
    std::uint64_t random() override { return chance_.next(); }
    std::unique_ptr<coetcd::detail::sleeper> make_sleeper() override;
    asio::awaitable<coetcd::detail::reply> call(coetcd::detail::call_request request) override;
    asio::awaitable<coetcd::detail::open_result>
    open(coetcd::detail::call_request request) override;

    /// A pause of the code of tests.
    asio::awaitable<error_code> sleep(nanoseconds time);

    /// Its clock runs that much too fast, or slow.
    void set_rate(std::int64_t ppm) { rate_ppm_ = ppm; }
    /// Nothing goes out, or comes in by a stream, until then.
    void cut_off(nanoseconds until) { cut_until_ = until; }
    bool is_cut_off() const;
    /// Nothing runs until then.
    void pause(nanoseconds until);
    bool is_paused() const;
    /// Ends it where it stands: nothing of it runs any more, and nothing is sent.
    void crash();
    /// Likewise, as soon as it waits for something, or another of its handlers is about to run.
    void crash_soon() { crashing_ = true; }
    bool has_crashed() const { return crashed_; }
    /// Drops what its code holds. Called by `crash`.
    std::function<void()> on_crash;

    /// When, by the world's clock, its own clock shows that.
    nanoseconds to_world(time_point when) const;

    /// Whether a line of a stream is all that has happened to it at this moment.
    bool heard_one_line() const;

    std::size_t number() const { return number_; }
    std::size_t waiting() const { return waiting_.size(); }
    /// Calls that failed on the way, so far.
    std::uint64_t failed_calls = 0;
    /// Calls that were repeated on the way.
    std::uint64_t repeated_calls = 0;
    std::uint64_t pauses = 0; ///< So far.
    /// Its requests and its suspensions, so far; and who wants to know of each.
    std::uint64_t calls = 0;
    std::uint64_t suspensions = 0;
    std::function<void()> on_suspension;
    /// Fails one call: that with this number.
    std::uint64_t failing_call = 0;
    fault failing_how = fault::request_lost;

    world& in;

    // For the executor.
    class context final : public asio::execution_context {
    public:
        ~context() { shutdown(); }
        using asio::execution_context::shutdown;
    };
    context loop;
    struct task {
        virtual ~task() = default;
        virtual void run() = 0;
    };
    void enqueue(std::unique_ptr<task> t);
    bool is_running() const { return running_; }

private:
    friend class world;
    friend class suspension;
    class sleeper_here;
    class client_stream;
    struct link;

    bool run_ready();
    void shut_down();
    /// Something from outside has happened to it.
    void stir(bool by_line = false);

    const std::size_t number_;
    chance chance_;
    process_executor executor_;
    std::int64_t rate_ppm_ = 0;
    nanoseconds offset_;
    nanoseconds paused_until_{0};
    nanoseconds cut_until_{0};
    nanoseconds stirred_at_{-1};
    int stirs_ = 0; // at that time
    bool heard_a_line_ = false;
    std::deque<std::unique_ptr<task>> ready_;
    std::list<suspension*> waiting_;
    bool running_ = false;
    bool crashing_ = false;
    bool crashed_ = false;
};

/// Everything outside the processes: time, the network, etcd, and what goes wrong. One thread; the
/// same seed gives the same history.
class world {
public:
    struct options {
        int members = 3;
        dialect speaks = dialect::v1;
        nanoseconds latency_low = std::chrono::microseconds(300);
        nanoseconds latency_high = std::chrono::milliseconds(20);
        nanoseconds progress_interval = std::chrono::minutes(10); ///< Of watches.
    };

    world(std::uint64_t seed, options o);
    ~world();
    world(const world&) = delete;
    world& operator=(const world&) = delete;

    nanoseconds now() const { return now_; }
    void at(nanoseconds when, std::function<void()> fire);
    void after(nanoseconds wait, std::function<void()> fire) { at(now_ + wait, std::move(fire)); }

    std::shared_ptr<process> add_process();
    const std::vector<std::shared_ptr<process>>& processes() const { return processes_; }
    /// From when on none of them stands still any more; now if none does.
    nanoseconds all_awake() const;

    /// Runs what is ready, then goes on to the next event.
    /// @returns False if nothing will ever happen again, or something is wrong.
    bool step();
    /// Ends all processes where they stand.
    void shut_down();

    etcd store;
    chance luck; ///< Of what goes wrong.

    // What goes wrong.
    /// From now on, until `heal`.
    void set_weather(const weather& w);
    const weather& now_weather() const { return weather_; }
    /// Nothing goes wrong any more; what is on its way arrives, late as it may be.
    void heal();
    /// What was held back until now arrives soon.
    void let_late_ones_come();
    bool healed() const { return healed_; }
    /// Whether a fault strikes now; counts it.
    bool strikes(fault f);
    static constexpr std::uint64_t most_crashes = 3;
    static constexpr int most_stale = 6; ///< Revisions, of a state that is read.
    /// Requests that have not arrived yet.
    std::uint64_t in_flight() const { return in_flight_; }
    void count(fault f) { ++counts_[static_cast<std::size_t>(f)]; }
    std::uint64_t count_of(fault f) const { return counts_[static_cast<std::size_t>(f)]; }
    bool had_lost_events() const {
        return count_of(fault::event_lost) != 0 || count_of(fault::silent_delete) != 0;
    }
    const std::array<std::uint64_t, fault_kinds>& counts() const { return counts_; }
    bool had_foreign_answers() const {
        return count_of(fault::interrupted) != 0 || count_of(fault::member_hidden) != 0;
    }
    wiretap* listening = nullptr;
    /// The keys that an operator may delete begin with one of them.
    std::vector<std::string> operator_prefixes{"/"};

    // The record.
    void note(std::string_view what, std::uint64_t a = 0, std::string_view text = {});
    std::uint64_t trace() const { return trace_; }
    /// Keep what was noted as text, the last so many of it.
    void keep_notes(std::size_t most) { most_notes_ = most; }
    const std::deque<std::string>& notes() const { return notes_; }
    /// Something is wrong: stops the world. The first one counts.
    void fail(std::string what);
    const std::string& failure() const { return failure_; }

    /// The latest that a message is on its way.
    static constexpr std::chrono::seconds longest_delay{8};

private:
    friend class process;
    struct event {
        nanoseconds when;
        std::uint64_t tie;
        std::uint64_t number;
        std::function<void()> fire;
    };
    struct later {
        bool operator()(const event& a, const event& b) const {
            return a.when != b.when ? a.when > b.when
                   : a.tie != b.tie ? a.tie > b.tie
                                    : a.number > b.number;
        }
    };

    struct letter {
        coetcd::detail::call_request request;
        std::uint64_t number;
    };
    nanoseconds latency() { return luck.skewed(options_.latency_low, options_.latency_high); }
    /// Makes a member lag; ends by itself.
    void let_lag(int member, nanoseconds until);
    /// When a member stands still until; else now.
    nanoseconds awake(int member) const;
    /// What something in between answers, if it does.
    const foreign_answer* answered_between(int member, bool chosen = false);
    bool is_hidden(int member) const {
        return hiding_[static_cast<std::size_t>(member)] != nullptr;
    }
    void delete_by_hand();
    /// Keeps a request back until `let_late_ones_come`, or for a long time.
    void hold_back(int member, std::shared_ptr<const letter> what);
    /// Sends a request that arrives later.
    void send(nanoseconds wait,
              int member,
              std::shared_ptr<const letter> what,
              std::function<void(etcd::answer)> answered);
    void deliver(int member,
                 std::shared_ptr<const letter> what,
                 std::function<void(etcd::answer)> answered,
                 etcd::answer so_far = {});
    void chaos();
    void look_at_leases();
    void look_at_watches();
    void tell_progress();
    void new_leader();

    const options options_;
    nanoseconds now_{0};
    std::vector<event> events_;
    std::uint64_t last_event_ = 0;
    chance ties_;
    std::uint64_t seed_;
    std::vector<std::shared_ptr<process>> processes_;
    std::vector<nanoseconds> member_paused_until_;
    std::vector<nanoseconds> member_lags_until_;
    std::vector<const foreign_answer*> hiding_; // each member; null: nothing
    int ill_member_ = -1;
    struct held_letter {
        int member;
        std::shared_ptr<const letter> what;
    };
    std::map<std::uint64_t, held_letter> held_back_;
    std::uint64_t in_flight_ = 0;
    std::uint64_t grants_in_flight_ = 0;
    std::uint64_t last_letter_ = 0;
    bool looking_at_watches_ = false;
    weather weather_;
    bool healed_ = true;
    std::array<std::uint64_t, fault_kinds> counts_{};
    std::uint64_t trace_ = 0xcbf29ce484222325;
    std::size_t most_notes_ = 0;
    std::deque<std::string> notes_;
    std::string failure_;
    std::uint64_t handlers_now_ = 0; // without time going on
};

template<class F>
void process_executor::execute(F&& f) const {
    using function = std::decay_t<F>;
    if (may_block_ && in_->is_running()) {
        function run(std::forward<F>(f));
        std::move(run)();
        return;
    }
    struct task_of final : process::task {
        explicit task_of(function g)
            : held(std::move(g)) {}
        void run() override {
            function here(std::move(held));
            std::move(here)();
        }
        function held;
    };
    in_->enqueue(std::make_unique<task_of>(std::forward<F>(f)));
}

} // namespace sim
