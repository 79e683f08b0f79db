// Locks, elections and semaphores on etcd, for shells, cron and operators: see coetcd --help.
// SPDX-License-Identifier: BSL-1.0
#include <coetcd/error.hpp>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include <CLI/CLI.hpp>
#include <csignal>
#include <exception>
#include <functional>
#include <string>
#include <utility>

#include "child.hpp"
#include "connection.hpp"
#include "duration.hpp"
#include "hold.hpp"
#include "output.hpp"
#include "show.hpp"

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
  75  what was held was lost, and COMMAND stopped; or the place in the queue was
 126  COMMAND cannot be run
 127  there is no such COMMAND
)";

void add_command(CLI::App& app, hold_options& how) {
    app.add_option("--ttl", how.ttl, "After so long it is free, if we die or are cut off")
        ->transform(as_duration())
        ->capture_default_str();
    app.add_option("--label", how.label, "What others see; by default user, machine and process");
    app.add_option("--grace", how.grace, "Of COMMAND, between SIGTERM and SIGKILL, after a loss")
        ->transform(as_duration())
        ->capture_default_str();
    app.add_flag("-v,--verbose", how.verbose, "Name the holder and the waiters");
    app.add_option(
           "command", how.command, "Run under it, after --; none: hold it until SIGINT or SIGTERM")
        ->type_name("COMMAND");
}

void add_patience(CLI::App& app, hold_options& how, bool& tries) {
    auto* timeout = app.add_option("--timeout", how.timeout, "Wait no longer than that")
                        ->transform(as_duration());
    app.add_flag("--try", tries, "Do not wait")->excludes(timeout);
}

/// What a failure is to the shell.
int status_of(const boost::system::error_code& ec) {
    return ec == coetcd::condition::ownership_lost ? lost : unavailable;
}

/// Runs it to its end. SIGINT and SIGTERM cancel it; while a command runs, that gets them.
int run(const job& work) {
    asio::io_context context;
    asio::cancellation_signal stop;
    asio::signal_set signals(context, SIGINT, SIGTERM);
    int interrupted = 0;
    std::function<void()> listen = [&] {
        signals.async_wait([&](const boost::system::error_code& ec, int number) {
            if (!ec) {
                interrupted = number;
                if (!child::is_running()) {
                    stop.emit(asio::cancellation_type::terminal);
                }
                listen();
            }
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
                       signals.clear(); // a second one ends us at once
                       signals.cancel();
                   }));
    context.run();
    try {
        if (failure) {
            std::rethrow_exception(failure);
        }
    } catch (const boost::system::system_error& e) {
        if (e.code() == asio::error::operation_aborted && interrupted != 0) {
            return 128 + interrupted;
        }
        note(e.what());
        return status_of(e.code());
    }
    return status;
}

} // namespace

int main(int argc, char** argv) {
    std::signal(SIGPIPE, SIG_IGN); // a write tells it
    CLI::App app("Locks, elections and semaphores on etcd, together with etcdctl and Go's client");
    app.footer(closing_words);
    app.require_subcommand(1);
    app.fallthrough();
    connection where;
    where.add_flags(app);
    job work;

    lock_flags locking;
    bool tries = false;
    auto* lock_app = app.add_subcommand("lock", "Runs a command under a lock");
    lock_app->add_option("name", locking.name, "The lock")->required();
    lock_app->add_flag(
        "--shared", locking.shared, "Together with others that say so, too; without, alone");
    lock_app->add_option("--max-hold", locking.max_hold, "Stop COMMAND after so long")
        ->transform(as_duration());
    add_patience(*lock_app, locking, tries);
    add_command(*lock_app, locking);
    lock_app->callback([&] { work = [&](auto on) { return lock(where.connect(on), locking); }; });

    elect_flags electing;
    bool listens = false;
    bool in_json = false;
    auto* elect_app = app.add_subcommand("elect", "Runs a command while we lead");
    elect_app->add_option("name", electing.name, "The election")->required();
    elect_app->add_option("value", electing.value, "What those who listen are told");
    elect_app->add_flag("--listen", listens, "Print each leader's value, and \"nobody\"");
    elect_app->add_flag("--json", in_json, "Print them as JSON, a line each");
    add_command(*elect_app, electing);
    elect_app->callback([&] {
        if (!listens && electing.value.empty()) {
            throw CLI::RequiredError("value");
        }
        work = [&](auto on) {
            return listens ? listen(where.connect(on), electing.name, in_json)
                           : elect(where.connect(on), electing);
        };
    });

    semaphore_flags counting;
    auto* sem_app = app.add_subcommand("sem", "Runs a command with a permit of a semaphore");
    sem_app->add_option("name", counting.name, "The semaphore")->required();
    sem_app->add_option("--limit", counting.limit, "So many permits, if nobody has said it yet")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    sem_app->add_option("--permits", counting.permits, "How many of them we take")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    add_patience(*sem_app, counting, tries);
    add_command(*sem_app, counting);
    sem_app->callback(
        [&] { work = [&](auto on) { return take_permits(where.connect(on), counting); }; });

    top_flags showing;
    auto* top_app = app.add_subcommand("top", "Shows all locks, live on a terminal");
    top_app->add_option("prefix", showing.prefix, "Only those whose names begin so");
    top_app->add_flag("--once", showing.once, "Print them, and end");
    top_app->add_flag("--json", showing.as_json, "Print them as JSON, a line each, and end");
    top_app->add_option("--sort", showing.order, "By this column")
        ->check(CLI::IsMember({"name", "waiters", "token"}))
        ->capture_default_str();
    top_app->callback([&] { work = [&](auto on) { return top(where.connect(on), showing); }; });

    std::string name;
    auto* who_app = app.add_subcommand("who", "Names the holder and the waiters of a lock");
    who_app->add_option("name", name, "The lock")->required();
    who_app->add_flag("--json", in_json, "As JSON");
    who_app->callback(
        [&] { work = [&](auto on) { return who(where.connect(on), name, in_json); }; });

    std::int64_t token = 0;
    bool without_asking = false;
    auto* unlock_app = app.add_subcommand("unlock", "Ends an ownership by force");
    unlock_app->add_option("name", name, "The lock")->required();
    unlock_app->add_option("--token", token, "Of the ownership to end: see who")
        ->required()
        ->check(CLI::PositiveNumber);
    unlock_app->add_flag("-y,--yes", without_asking, "Do not ask");
    unlock_app->callback([&] {
        work = [&](auto on) { return unlock(where.connect(on), name, token, without_asking); };
    });

    auto* status_app = app.add_subcommand("status", "Tells how the members of the cluster are");
    status_app->add_flag("--json", in_json, "As JSON, a line each");
    status_app->callback(
        [&] { work = [&](auto on) { return status(where.connect_to_each(on), in_json); }; });

    try {
        app.parse(argc, argv);
        if (tries) {
            locking.timeout = counting.timeout = 0;
        }
        return run(work);
    } catch (const CLI::ParseError& e) {
        return app.exit(e) == 0 ? well : wrong_usage;
    } catch (const std::invalid_argument& e) {
        note(e.what());
        return wrong_usage;
    } catch (const output_error& e) {
        note(e.what());
        return no_output;
    } catch (const std::exception& e) {
        note(e.what());
        return failed;
    }
}
