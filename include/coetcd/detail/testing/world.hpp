// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/env.hpp>
#include <coetcd/detail/testing/chance.hpp>
#include <coetcd/detail/testing/etcd.hpp>
#include <coetcd/detail/testing/process.hpp>
#include <coetcd/detail/wire/line_splitter.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coetcd::detail::testing {

class link;

/// Receives what goes over the network, as it goes.
class wiretap {
public:
    /// A client sends a request; its number is a new one.
    virtual void sent(const process& /*by*/, std::uint64_t /*number*/, const call_request&) {}
    /// One of its copies has reached etcd: what happens there until `served` comes from it.
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

/// The fate of a request on its way.
struct fate {
    nanoseconds there{0}; ///< How long it takes to get there.
    nanoseconds back{0};  ///< How much longer than usual its answer takes.
    bool refused = false; ///< There is no connection: it is not even sent.
    bool lost = false;    ///< It is lost on the way there.
    bool answer_lost = false;
    std::optional<nanoseconds> breaks;    ///< The connection ends then, with or without an answer.
    std::optional<nanoseconds> again;     ///< A second copy comes this much later, and is answered.
    std::optional<nanoseconds> held_back; ///< A copy comes then, and is not answered.
    /// What something other than etcd, in between, answers; if its status is 0, without an end.
    std::optional<etcd::answer> instead;
    bool passes_on = false;            ///< Whether it passes the request on all the same.
    std::optional<etcd::answer> doubt; ///< What etcd says although it has done it.
    std::optional<nanoseconds> later;  ///< When etcd does it, having told its doubt before.
};

/// The fate of a line of a stream on its way to the client.
enum class line_fate {
    arrives,
    swallowed, ///< So are all lines after it.
    broken     ///< The stream ends.
};

/// Everything outside the processes: time, the network and etcd. It has one thread, and the same
/// seed gives the same history. Nothing goes wrong by itself: derived classes decide that.
class world {
public:
    struct options {
        int members = 3;
        dialect speaks = dialect::v1;
        nanoseconds latency_low = std::chrono::microseconds(300);
        nanoseconds latency_high = std::chrono::milliseconds(20);
        nanoseconds progress_interval = std::chrono::minutes(10); ///< That of watches.
        nanoseconds sync_interval = etcd::sync_interval;          ///< At most this long.
        /// The most that a process has to one member for users' calls; 0: as many as it likes.
        std::size_t connections = 0;
        /// What happens at the same time happens in the order in which it was set in motion.
        bool in_order = false;
    };

    world(std::uint64_t seed, options o);
    virtual ~world();
    world(const world&) = delete;
    world& operator=(const world&) = delete;

    nanoseconds now() const { return now_; }
    void at(nanoseconds when, std::function<void()> fire);
    void after(nanoseconds wait, std::function<void()> fire) { at(now_ + wait, std::move(fire)); }

    /// @param where Runs the process, if it is not null; the world lets it. Must outlive all that
    ///   runs in it, unless `shut_down` is called before.
    std::shared_ptr<process> add_process(asio::io_context* where = nullptr);
    const std::vector<std::shared_ptr<process>>& processes() const { return processes_; }
    /// While one exists, a process does nothing for which a real one would need memory: for example
    /// its socket is closed, or its timer stopped.
    class own_doing {
    public:
        explicit own_doing(world& of)
            : of_(of) {
            ++of_.own_doings_;
        }
        ~own_doing() { --of_.own_doings_; }
        own_doing(const own_doing&) = delete;
        own_doing& operator=(const own_doing&) = delete;

    private:
        world& of_;
    };
    bool is_own_doing() const { return own_doings_ != 0; }
    /// The time from which none of them stands still any more; now if none does.
    nanoseconds all_awake() const;

    /// Runs what is ready, then goes on to the next event.
    /// @returns False if nothing will ever happen again, or something is wrong.
    bool step();
    /// Runs everything that happens in this time.
    void pass(nanoseconds time);
    /// Messages of a stream with more bytes than this are read in pieces; see `reply::more`.
    std::size_t piece = wire::line_splitter::usual_piece;
    /// How many may run while no time passes; more means that they go round in circles.
    std::uint64_t most_handlers = 100'000;
    /// Ends all processes where they stand.
    void shut_down();

    etcd store;
    chance luck; ///< Decides what goes wrong.

    /// Makes a member answer nothing until then.
    void pause_member(int member, nanoseconds until) {
        member_paused_until_[static_cast<std::size_t>(member)] = until;
    }
    /// Makes a member lag; ends by itself.
    void let_lag(int member, nanoseconds until);
    /// Elects one of the healthy members, if there is one.
    void new_leader();
    /// Lets arrive soon what was held back until now.
    void let_late_ones_come();
    /// Requests that have not arrived yet.
    std::uint64_t in_flight() const { return in_flight_; }
    wiretap* listening = nullptr;

    // The record.
    void note(std::string_view what, std::uint64_t a = 0, std::string_view text = {});
    std::uint64_t trace() const { return trace_; }
    /// Keeps the last `most` notes as text.
    void keep_notes(std::size_t most) { most_notes_ = most; }
    const std::deque<std::string>& notes() const { return notes_; }
    /// Stops the world because something is wrong. The first failure counts.
    void fail(std::string what);
    const std::string& failure() const { return failure_; }

protected:
    /// The latency of one way.
    virtual nanoseconds latency() {
        return luck.skewed(options_.latency_low, options_.latency_high);
    }
    /// How long a connection for a stream takes.
    virtual nanoseconds connecting() { return 2 * latency(); }
    /// The number of the member at an endpoint: "http://m0" is the first one.
    virtual int member_of(const call_request& request) const {
        return request.to.host.back() - '0';
    }
    /// Decides over a request, before it leaves.
    virtual fate judge(process& by, const call_request& what);
    /// Decides whether a stream is refused, or lost.
    virtual fate judge_stream(process& by, const call_request& what);
    virtual line_fate judge_line(const process& to, bool once);
    /// What something in between answers to a stream, if it does.
    virtual std::optional<etcd::answer> answered_between(int /*member*/) { return {}; }
    /// The cluster that the endpoint of a request leads to.
    virtual etcd& store_of(const call_request&) { return store; }
    /// A request has arrived.
    virtual etcd::answer serve(int member, const call_request& what, etcd::answer so_far) {
        return store_of(what).call(member, what.what, what.body, what.token, std::move(so_far));
    }
    /// Its answer has arrived.
    virtual reply receive(const call_request& what, const etcd::answer& a);
    /// A stream has arrived, with its first messages; then more, or its end.
    virtual void accept(const std::shared_ptr<link>& from, const call_request& what);
    virtual void hear(link& from, const std::string& messages);
    virtual void closed(link& from);
    /// Asked before each handler: whether the process ends here.
    virtual bool crashes(process& /*which*/) { return false; }
    /// Asked before each handler: whether the process stands still from here on.
    virtual bool pauses(process& /*which*/) { return false; }

    /// Until when a member stands still; otherwise now.
    nanoseconds awake(int member) const;
    /// Whether code of a process runs now.
    bool is_running() const { return running_ != nullptr; }
    /// Grants that have not arrived yet.
    std::uint64_t grants_in_flight() const { return grants_in_flight_; }
    /// Lets time pass, and nothing else happen.
    void skip(nanoseconds time) { now_ += time; }

private:
    friend class process;
    friend class link;
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
        call_request request;
        std::uint64_t number;
    };
    struct held_letter {
        int member;
        std::shared_ptr<const letter> what;
    };

    /// Keeps a request back until then, or until `let_late_ones_come`.
    void hold_back(int member, std::shared_ptr<const letter> what, nanoseconds wait);
    /// Sends a request that arrives later.
    void send(nanoseconds wait,
              int member,
              std::shared_ptr<const letter> what,
              std::function<void(etcd::answer)> answered);
    void deliver(int member,
                 std::shared_ptr<const letter> what,
                 std::function<void(etcd::answer)> answered,
                 etcd::answer so_far = {});
    void run_ready();
    void look_at_leases();
    void look_at_watches();
    void tell_progress();

    const options options_;
    nanoseconds now_{0};
    std::vector<event> events_;
    std::uint64_t last_event_ = 0;
    chance ties_;
    std::uint64_t seed_;
    std::vector<std::shared_ptr<process>> processes_;
    const process* running_ = nullptr;
    int own_doings_ = 0;
    std::vector<nanoseconds> member_paused_until_;
    std::vector<nanoseconds> member_lags_until_;
    std::map<std::uint64_t, held_letter> held_back_;
    std::uint64_t in_flight_ = 0;
    std::uint64_t grants_in_flight_ = 0;
    std::uint64_t last_letter_ = 0;
    bool looking_at_watches_ = false;
    std::uint64_t trace_ = 0xcbf29ce484222325;
    std::size_t most_notes_ = 0;
    std::deque<std::string> notes_;
    std::string failure_;
    std::uint64_t handlers_now_ = 0; // while no time passes
};

} // namespace coetcd::detail::testing
