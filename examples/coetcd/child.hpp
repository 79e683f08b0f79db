// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/signal_set.hpp>

#include <chrono>
#include <csignal>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <sys/types.h>
#include <termios.h>
#include <utility>
#include <vector>

namespace tool {

/// A program that runs in a process group of its own, with our terminal if we have one: at once if
/// none but us could need it, else when it asks for it. Signals that we get are passed on to it.
///
/// On Linux the kernel kills it if we are killed, unless it has changed its user. Elsewhere it goes
/// on then.
class child {
public:
    /// Nothing: it is not to be there.
    using variables = std::vector<std::pair<std::string, std::optional<std::string>>>;

    /// Takes note of the signals that are ignored, as by nohup, or blocked: they stay so, here and
    /// in commands. Only that a child has ended is always heard here.
    /// To be called before anything listens for signals.
    static void keep_signals();
    /// Those of these signals that were not ignored.
    static std::vector<int> heeded(std::initializer_list<int> signals);
    /// The signals that end us, with all that is done for it; a command gets them in our place.
    static constexpr std::initializer_list<int> ending{
        SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM};

    /// Starts it.
    /// @param changes Of its environment.
    /// @param may_go_on Is asked before it is continued, when it or we have stood still. If not,
    ///   `run` is to be cancelled soon.
    /// @throws std::system_error if there can be no process.
    child(boost::asio::any_io_executor executor,
          const std::vector<std::string>& command,
          const variables& changes,
          std::function<bool()> may_go_on);
    child(const child&) = delete;
    child& operator=(const child&) = delete;
    /// Kills it, if that is permitted.
    ~child();

    /// Whether there is one, that gets the signals; or its end is still being looked into.
    static bool is_running() { return running_ != 0; }
    /// Whether there is one that has not ended.
    static bool is_alive() { return alive_ != 0; }
    /// When the last one was found to have ended.
    static std::chrono::steady_clock::time_point ended_at() { return ended_at_; }
    /// Whether one was to be stopped, and still runs: it has changed its user, and may not be
    /// signalled.
    static bool has_escaped() { return escaped_; }

    /// Runs it to its end. Cancelled: stops it, with SIGTERM, and after `grace` with SIGKILL. If
    /// that is not permitted, says so at once, and does not wait for its end.
    /// @returns The exit status as a shell tells it: 128 and the signal that ended it, 127 if there
    ///   is no such program, 126 if it cannot be run.
    static boost::asio::awaitable<int> run(child& self, std::chrono::milliseconds grace);
    pid_t group() const { return pid_; }
    /// Ends what one that has ended has left in its group. Says so if that is not permitted.
    static void kill_the_rest_of(pid_t group);
    /// Whether it has not ended by itself.
    bool was_stopped() const { return was_stopped_; }
    /// If SIGINT has ended a command: whom it has to end, too, for `kill`. That is we; or all of
    /// our process group, 0, if the command had the terminal: a script has not got the signal then.
    static std::optional<pid_t> interrupts();

private:
    boost::asio::awaitable<int> wait();
    boost::asio::awaitable<int> stop(std::chrono::milliseconds grace);
    /// As far as it is permitted.
    void signal(int number) const;
    /// Says so if it is not permitted.
    void pass_on(int number) const;
    /// Unless it may not.
    void go_on() const;
    /// Those of its group that we may not signal.
    std::vector<pid_t> out_of_reach() const;
    /// @param left Those that cannot be ended.
    static void give_up_on(const std::vector<pid_t>& left);
    bool reap();
    /// Whether it has ended. It does not stand still with it.
    bool has_ended();
    void take_end(int how);
    /// From us to its group; nothing if it is somebody else's.
    /// @returns Whether its group has it now.
    bool give_terminal();
    /// From its group.
    /// @returns Whether that had it.
    bool take_terminal() const;
    /// Gives it the terminal if it has stopped for that, and we have it. Else stops with it, and
    /// goes on with it.
    void stand_still(int why);

    boost::asio::signal_set signals_;
    std::function<bool()> may_go_on_;
    pid_t pid_ = -1;
    int status_ = -1; ///< -1: it still runs.
    bool was_stopped_ = false;
    bool died_ = false;  ///< By a signal.
    const int terminal_; ///< -1: we have none.
    termios modes_{};    ///< Of the terminal, before it had it first.
    bool knows_modes_ = false;
    static inline int running_ = 0;
    static inline int alive_ = 0; // of these
    static inline std::chrono::steady_clock::time_point ended_at_{};
    static inline bool escaped_ = false;
    static inline std::optional<pid_t> interrupts_;
};

} // namespace tool
