// Locks, elections and semaphores on etcd, for shells, cron and operators: see coetcd --help.
// SPDX-License-Identifier: BSL-1.0
#include <coetcd/error.hpp>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/multiple_exceptions.hpp>
#include <boost/asio/signal_set.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <fcntl.h>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "child.hpp"
#include "connection.hpp"
#include "hold.hpp"
#include "output.hpp"
#include "show.hpp"
#include "terminal.hpp"

namespace asio = boost::asio;
using namespace tool;

namespace {

using job = std::function<asio::awaitable<int>(asio::any_io_executor)>;

constexpr const char* closing_words = R"(
Times: 90s, 1.5m, 1h30m, 250ms.

Exit status: that of COMMAND; 128 and the number of the signal that ended it; or
   0  it went well
   1  somebody else has it, also after --timeout; or there is nobody
   2  wrong usage
  69  etcd cannot be asked, or refuses
  70  something else
  74  the output cannot be written
  75  what was held was lost, or --max-hold is over, and COMMAND stopped; or the place in the
      queue was lost
  76  the same, but COMMAND could not be stopped: it still runs
 126  COMMAND cannot be run
 127  there is no such COMMAND
)";

void append(std::vector<option>& all, std::vector<option> more) {
    all.insert(all.end(), more.begin(), more.end());
}

option label_flag(hold_options& how) {
    return {"--label",
            "TEXT",
            "What others see; by default user, machine and process",
            text(how.label)};
}

std::vector<option> command_flags(hold_options& how) {
    return {
        {"--ttl",
         "TIME",
         "After so long it is free, if we die or are cut off",
         time(how.ttl),
         "",
         "10s"},
        {"--grace",
         "TIME",
         "Of COMMAND, between SIGTERM and SIGKILL, after a loss",
         time(how.grace),
         "",
         "10s"},
        {"--keep-password",
         "",
         "Leave the password in COMMAND's environment",
         yes(how.keep_password)},
        {"--verbose", "", "Name the holder and the waiters", yes(how.verbose), "-v"},
    };
}

std::vector<option> patience_flags(hold_options& how, bool& tries) {
    return {
        {"--timeout", "TIME", "Wait no longer than that", time(how.timeout)},
        {"--try", "", "Do not wait", yes(tries)},
    };
}

/// What `--try` and `--timeout` say together.
void settle_patience(hold_options& how, bool tries) {
    if (tries && how.timeout) {
        throw usage_error("--try and --timeout exclude each other");
    }
    if (tries) {
        how.timeout = 0;
    }
}

option json_flag(bool& in_json, const char* help) {
    return {"--json", "", help, yes(in_json)};
}

/// All that the line can say, and what is to be done then.
class coetcd_line {
public:
    coetcd_line() {
        grammar_.help =
            "Locks, elections and semaphores on etcd, together with etcdctl and Go's client";
        grammar_.options = where_.flags();
        grammar_.closing = closing_words;
        add_lock();
        add_elect();
        add_sem();
        add_top();
        add_who();
        add_ask();
        add_unlock();
        add_status();
    }
    coetcd_line(const coetcd_line&) = delete;
    coetcd_line& operator=(const coetcd_line&) = delete;

    /// @returns Nothing if help was asked for, and given.
    std::optional<job> read(const words& line) {
        const meaning found = parse(grammar_, line, [](const char* name) {
            return static_cast<const char*>(std::getenv(name));
        });
        if (found.wanted == nullptr) {
            say(std::string_view(found.help).substr(0, found.help.size() - 1));
            return std::nullopt;
        }
        where_.prepare();
        return jobs_.at(found.wanted->name);
    }

private:
    void add(subcommand s, job does) {
        jobs_.emplace(s.name, std::move(does));
        grammar_.subcommands.push_back(std::move(s));
    }

    void add_lock() {
        subcommand s{"lock",
                     "Runs a command under a lock",
                     {{"NAME", "The lock", lock_name(lock_.name)}},
                     {}};
        s.options = patience_flags(lock_, tries_);
        s.options.push_back({"--shared",
                             "",
                             "Together with others that say so, too; without, alone",
                             yes(lock_.shared)});
        s.options.push_back(
            {"--max-hold", "TIME", "Stop COMMAND after so long", some_time(lock_.max_hold)});
        s.options.push_back(label_flag(lock_));
        append(s.options, command_flags(lock_));
        s.command = &lock_.command;
        s.check = [this] { settle_patience(lock_, tries_); };
        add(std::move(s), [this](auto on) {
            return lock(where_.connect(on, troubles_if(lock_.verbose)), lock_);
        });
    }

    void add_elect() {
        subcommand s{"elect", "Runs a command while we lead", {}, {}};
        s.operands = {
            {"NAME", "The election", lock_name(elect_.name)},
            {"VALUE", "What those who listen are told; not with --listen", text(value_), false}};
        s.options = {{"--listen", "", "Print each leader's value, and \"nobody\"", yes(listens_)},
                     json_flag(in_json_, "Print them as JSON, a line each")};
        append(s.options, command_flags(elect_));
        s.command = &elect_.command;
        s.check = [this] {
            if (listens_ && (value_ || !elect_.command.empty())) {
                throw usage_error("elect: --listen takes neither a VALUE nor a COMMAND");
            }
            if (!listens_ && !value_) {
                throw usage_error("elect: there is no VALUE, and no --listen");
            }
            if (!listens_ && in_json_) {
                throw usage_error("elect: --json goes with --listen");
            }
            elect_.value = value_.value_or("");
        };
        add(std::move(s), [this](auto on) {
            return listens_ ? listen(where_.connect(on, troubles_if(true)), elect_.name, in_json_)
                            : elect(where_.connect(on, troubles_if(elect_.verbose)), elect_);
        });
    }

    void add_sem() {
        subcommand s{"sem",
                     "Runs a command with a permit of a semaphore",
                     {{"NAME", "The semaphore", lock_name(sem_.name)}},
                     {}};
        s.options = {
            {"--limit",
             "N",
             "So many permits, if nobody has said it yet",
             count(sem_.limit),
             "",
             "1"},
            {"--permits", "N", "How many of them we take", count(sem_.permits), "", "1"},
            {"--set-limit", "N", "Change the limit, for all, and end", count(new_limit_, 0)},
        };
        append(s.options, patience_flags(sem_, tries_));
        s.options.push_back(label_flag(sem_));
        append(s.options, command_flags(sem_));
        for (option& other : s.options) {
            if (other.name != "--set-limit") {
                other.take = [this, take = other.take](const std::string& value) {
                    with_others_ = true;
                    take(value);
                };
            }
        }
        s.command = &sem_.command;
        s.check = [this] {
            if (new_limit_ && !sem_.command.empty()) {
                throw usage_error("sem: --set-limit takes no COMMAND");
            }
            if (new_limit_ && with_others_) {
                throw usage_error("sem: --set-limit takes no other flag of sem");
            }
            settle_patience(sem_, tries_);
        };
        add(std::move(s), [this](auto on) {
            return new_limit_ ? set_limit(where_.connect(on), sem_.name, *new_limit_)
                              : take_permits(where_.connect(on, troubles_if(sem_.verbose)), sem_);
        });
    }

    void add_top() {
        subcommand s{"top", "Shows all locks, live on a terminal", {}, {}};
        s.operands = {{"PREFIX", "Only those whose names begin so", text(top_.prefix), false}};
        s.options = {
            {"--once", "", "Print them, and end", yes(top_.once)},
            json_flag(top_.as_json, "Print them as JSON, a line each, and end"),
            {"--sort",
             "COLUMN",
             "By name, waiters or token",
             one_of(top_.order, {"name", "waiters", "token"}),
             "",
             "name"},
        };
        add(std::move(s), [this](auto on) { return top(where_.connect(on), top_); });
    }

    void add_who() {
        subcommand s{"who",
                     "Names the holder and the waiters of a lock",
                     {{"NAME", "The lock", lock_name(name_)}},
                     {json_flag(in_json_, "As JSON")}};
        add(std::move(s), [this](auto on) { return who(where_.connect(on), name_, in_json_); });
    }

    void add_ask() {
        subcommand s{"ask",
                     "Asks the holder of a lock to give it back",
                     {{"NAME", "The lock", lock_name(name_)}},
                     {}};
        s.options = {
            {"--ttl", "TIME", "How long the request stands", some_time(ask_ttl_), "", "1m"}};
        add(std::move(s), [this](auto on) { return ask(where_.connect(on), name_, ask_ttl_); });
    }

    void add_unlock() {
        subcommand s{
            "unlock", "Ends an ownership by force", {{"NAME", "The lock", lock_name(name_)}}, {}};
        s.options = {{"--token", "N", "Of the ownership to end: see who", count(token_, 1)},
                     {"--yes", "", "Do not ask", yes(without_asking_), "-y"}};
        s.check = [this] {
            if (!token_) {
                throw usage_error("unlock: there is no --token");
            }
        };
        add(std::move(s), [this](auto on) {
            return unlock(where_.connect(on), name_, *token_, without_asking_);
        });
    }

    void add_status() {
        subcommand s{"status",
                     "Tells how the members of the cluster are",
                     {},
                     {json_flag(in_json_, "As JSON, a line each")}};
        add(std::move(s), [this](auto on) { return status(where_.connect_to_each(on), in_json_); });
    }

    connection where_;
    grammar grammar_;
    std::map<std::string, job> jobs_;

    lock_flags lock_;
    elect_flags elect_;
    std::optional<std::string> value_;
    semaphore_flags sem_;
    std::optional<std::int64_t> new_limit_;
    bool with_others_ = false; ///< Flags that mean nothing to `--set-limit`.
    top_flags top_;
    std::string name_;
    std::optional<std::int64_t> token_;
    double ask_ttl_ = 60;
    bool tries_ = false;
    bool listens_ = false;
    bool in_json_ = false;
    bool without_asking_ = false;
};

/// What a failure is to the shell.
int status_of(const boost::system::error_code& ec) {
    return ec != coetcd::condition::ownership_lost ? unavailable
           : child::has_escaped()                  ? lost_and_runs
                                                   : lost;
}

/// What a signal does to any program.
void die_of(int number, pid_t whom = ::getpid()) {
    std::signal(number, SIG_DFL);
    sigset_t alone;
    ::sigemptyset(&alone);
    ::sigaddset(&alone, number);
    ::sigprocmask(SIG_UNBLOCK, &alone, nullptr);
    (void)::kill(whom, number);
}

/// A signal has ended the command, or the wait. SIGINT ends us, too, now that all is given back: so
/// a shell learns that its script is to end.
/// @returns The exit status, for the others.
int end_by(int number, pid_t whom = ::getpid()) {
    if (number == SIGINT) {
        finish_notes();
        die_of(SIGINT, whom);
    }
    return 128 + number;
}

/// A second signal that comes sooner says the same once more, as where a terminal is closed, or
/// both a group and its member are signalled. A later one is from somebody who does not want to
/// wait.
constexpr std::chrono::milliseconds apart{500};

/// Several that have failed together are cancelled, as a rule; the first one tells as much.
[[noreturn]] void rethrow_one(const std::exception_ptr& failure) {
    try {
        std::rethrow_exception(failure);
    } catch (const asio::multiple_exceptions& e) {
        std::rethrow_exception(e.first_exception());
    }
}

/// All is done, and only what was said is still to be read: no signal changes the exit status now.
void let_signals_pass() {
    sigset_t all;
    ::sigemptyset(&all);
    for (const int number : child::ending) {
        ::sigaddset(&all, number);
    }
    ::sigprocmask(SIG_BLOCK, &all, nullptr);
}

/// How long what a failure has left behind may take to end, in the background.
constexpr std::chrono::seconds aftermath{2};

/// Runs it to its end. Signals that end us cancel it; while a command runs, that gets them.
int run(const job& work) {
    note_aside();
    // It is never destroyed: that would await the answer of a name server that has none.
    static asio::io_context& context = *new asio::io_context;
    asio::cancellation_signal stop;
    asio::signal_set signals(context);
    for (const int number : child::heeded(child::ending)) {
        signals.add(number);
    }
    int interrupted = 0;
    std::optional<std::chrono::steady_clock::time_point> ends_since;
    std::optional<std::chrono::steady_clock::time_point> of_command; // it has got the last one then
    bool is_done = false; // a signal may have come just before
    std::function<void()> listen = [&] {
        signals.async_wait([&](const boost::system::error_code& ec, int number) {
            if (ec || is_done) {
                return;
            }
            interrupted = number;
            const auto now = std::chrono::steady_clock::now();
            auto first = ends_since.value_or(of_command.value_or(now));
            if (of_command && !ends_since) {
                first = std::max(first, child::ended_at()); // perhaps of this very signal
            }
            if (!child::is_alive() && now - first >= apart) {
                die_of(number);
                std::_Exit(128 + number); // the first process of a container survives that
            }
            if (child::is_running()) {
                of_command = child::is_alive() ? now : first;
            } else {
                ends_since = ends_since.value_or(now);
                stop.emit(asio::cancellation_type::terminal);
            }
            listen();
        });
    };
    listen();
    int status = failed;
    std::exception_ptr failure;
    auto main = [&]() -> asio::awaitable<int> { return work(context.get_executor()); };
    asio::co_spawn(context,
                   main(),
                   asio::bind_cancellation_slot(stop.slot(), [&](std::exception_ptr e, int s) {
                       failure = e;
                       status = s;
                       is_done = true;
                       signals.cancel();
                   }));
    while (!is_done && context.run_one() != 0) {
    }
    if (ends_since) { // until a second signal counts; without a first one, none does
        context.run_until(*ends_since + apart);
        signals.clear();
    }
    context.run_for(aftermath);
    let_signals_pass();
    try {
        if (failure) {
            rethrow_one(failure);
        }
    } catch (const boost::system::system_error& e) {
        if (e.code() == asio::error::operation_aborted && interrupted != 0) {
            return end_by(interrupted);
        }
        note(in_flags(e.what()));
        return status_of(e.code());
    }
    const std::optional<pid_t> whom = child::interrupts();
    return whom && status == 128 + SIGINT ? end_by(SIGINT, *whom) : status;
}

/// Of the standard descriptors, those that are closed get one that can be neither read nor written,
/// and that commands do not have: else a connection to etcd would be one of them.
void fill_closed_descriptors() {
    for (const int each : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (::fcntl(each, F_GETFD) < 0) {
            (void)::open("/dev/null", (each == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
        }
    }
}

int run_line(int argc, char** argv) {
    try {
        coetcd_line all;
        const std::optional<job> work = all.read(words(argv + std::min(argc, 1), argv + argc));
        return work ? run(*work) : well;
    } catch (const usage_error& e) {
        note(std::string(e.what()) + "\nRun coetcd --help, or coetcd SUBCOMMAND --help, for more.");
        return wrong_usage;
    } catch (const std::invalid_argument& e) {
        note(in_flags(e.what()));
        return wrong_usage;
    } catch (const output_error& e) {
        note(e.what());
        return no_output;
    } catch (const interruption& e) {
        return end_by(e.number);
    } catch (const std::exception& e) {
        note(e.what());
        return failed;
    }
}

} // namespace

int main(int argc, char** argv) {
    fill_closed_descriptors();
    child::keep_signals();
    std::signal(SIGPIPE, SIG_IGN); // a write tells it
    const int status = run_line(argc, argv);
    finish_notes();
    return status;
}
