// A hundred tasks for four programs, while everything goes wrong.
//
// The tasks are the items of a work queue. Each of the four programs takes one after the other, in
// whichever session its keeper has. In the story one of them is killed in the middle of a task; one
// is stopped there for longer than its lease lasts, and then continues; the lease of one is revoked
// by hand; and nobody can reach etcd for ten seconds.
//
// What a task does, and that it is done, is one transaction: so no task is lost, and none has its
// effect twice, although some were begun more than once.
//
// Run: task_runner [http://127.0.0.1:2379]
// Exit code 0 if it came out that way.
#include <coetcd.hpp>
#include <coetcd/work_queue.hpp>

#include <boost/asio.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <future>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>

#include "stage.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

constexpr int tasks = 100;
std::string at(const std::string& run, const std::string& what) {
    return "task_runner/" + run + "/" + what;
}

// --- A program that works -------------------------------------------------------------------

class worker {
public:
    worker(const coetcd::client& client, std::string name, std::string run)
        : script(client.get_executor())
        , sessions_(client, coetcd::session_keeper_options(3s))
        , name_(std::move(name))
        , run_(std::move(run)) {
        script.on_end = [this] { stop_.emit(asio::cancellation_type::terminal); };
    }

    stage::script script;

    asio::awaitable<void> run() {
        stage::report(name_, "ready", "");
        co_await script.wait_for_cue();
        for (bool goes_on = true; goes_on;) {
            const auto end = co_await coetcd::as_result(work());
            goes_on = !end.error().is_cancelled();
        }
        co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
        co_await sessions_.close();
        script.close();
    }
    asio::cancellation_slot stop() { return stop_.slot(); }

private:
    /// Does one task after the other, until the session ends.
    asio::awaitable<void> work() {
        const auto session = co_await sessions_.wait_live();
        coetcd::work_queue queue(*session, at(run_, "tasks"));
        for (;;) {
            std::optional<coetcd::job> next = co_await queue.take_for(1s);
            if (!next) {
                stage::report(name_, "idle", "has nothing to do");
                continue;
            }
            if (script.holds()) {
                stage::report(name_, "inside", std::to_string(session->lease()));
                co_await script.wait_for_cue();
            }
            co_await finish(*next);
        }
    }
    /// Carries out the task. Its effect and its end are one transaction.
    asio::awaitable<void> finish(coetcd::job& task) {
        asio::steady_timer takes(co_await asio::this_coro::executor, 40ms);
        co_await takes.async_wait(asio::use_awaitable);
        coetcd::txn effect;
        effect.then(coetcd::op::put(at(run_, "done/") + task.value(), name_));
        const bool done = co_await task.ack(std::move(effect));
        stage::report(name_, done ? "did" : "late", task.value());
    }

    coetcd::session_keeper sessions_;
    const std::string name_;
    const std::string run_;
    asio::cancellation_signal stop_;
};

int be_worker(const std::string& url, const std::string& run, const std::string& name) {
    asio::io_context context;
    coetcd::client client(context.get_executor(), url);
    worker w(client, name, run);
    int result = 0;
    const auto at_end = [&](std::exception_ptr failure) { result = failure ? 1 : result; };
    asio::co_spawn(context, w.script.follow(), at_end);
    asio::co_spawn(context, w.run(), asio::bind_cancellation_slot(w.stop(), at_end));
    context.run();
    return result;
}

// --- The story --------------------------------------------------------------------------------

class story {
public:
    explicit story(const std::string& url)
        : client_(context_.get_executor(), url)
        , run_(std::to_string(::getpid()) + "-" +
               std::to_string(std::chrono::system_clock::now().time_since_epoch().count()))
        , cable_(server(url)) {}

    bool play() {
        now(enqueue_all());
        stage::company all({"http://127.0.0.1:" + std::to_string(cable_.port()), run_},
                           {"A", "B", "C", "D"});
        all.begin();
        work_on(all);
        const stage::event killed = all.hold_one();
        all.kill(killed.who);
        all.note(killed.who, "SIGKILL, in the middle of a task");
        all.go();
        work_on(all);
        const stage::event stopped = all.hold_one(killed.who);
        all.stop(stopped.who);
        all.note(stopped.who, "SIGSTOP, in the middle of a task");
        all.go();
        work_on(all);
        const stage::event robbed = all.hold_one(stopped.who);
        now(client_.lease_revoke(std::stoll(robbed.text)));
        all.note(robbed.who, "its lease is revoked by hand, in the middle of a task");
        all.go();
        work_on(all);
        cable_.cut();
        all.note("nobody can reach etcd any more");
        now(asio::steady_timer(context_, 10s).async_wait(asio::use_awaitable));
        cable_.mend();
        all.note("etcd can be reached again");
        all.resume(stopped.who);
        all.note(stopped.who, "SIGCONT: it continues where it stood");

        do {
            (void)all.wait_for("idle");
        } while (now(left()) != 0);
        all.say("end");
        while (all.next_or_end()) {
        }
        return all.wait() && now(is_each_done_once());
    }

private:
    /// Some tasks are done, and nothing goes wrong.
    static void work_on(stage::company& all) {
        for (int i = 0; i != 15; ++i) {
            (void)all.wait_for("did");
        }
    }
    static asio::ip::tcp::endpoint server(const std::string& url) {
        const auto host = url.find("//") + 2;
        const auto port = url.rfind(':');
        asio::io_context context;
        asio::ip::tcp::resolver resolver(context);
        return *resolver.resolve(url.substr(host, port - host), url.substr(port + 1)).begin();
    }

    /// Runs it to its end.
    template<class T>
    T now(asio::awaitable<T> work) {
        auto ended = asio::co_spawn(context_, std::move(work), asio::use_future);
        context_.restart();
        while (ended.wait_for(0s) != std::future_status::ready) {
            context_.run_one();
        }
        return ended.get();
    }

    asio::awaitable<void> enqueue_all() {
        coetcd::session session = co_await coetcd::session::open(client_);
        coetcd::work_queue queue(session, at(run_, "tasks"));
        for (int i = 0; i != tasks; ++i) {
            co_await queue.enqueue("task " + std::to_string(i));
        }
        co_await session.close();
    }
    asio::awaitable<std::int64_t> left() {
        coetcd::session session = co_await coetcd::session::open(client_);
        coetcd::work_queue queue(session, at(run_, "tasks"));
        const coetcd::work_state state = co_await queue.state();
        co_await session.close();
        co_return state.ready + state.busy + state.dead;
    }
    asio::awaitable<bool> is_each_done_once() {
        const coetcd::range_response done =
            co_await client_.range(coetcd::key_range::prefix(at(run_, "done/")));
        const auto twice = std::count_if(
            done.kvs.begin(), done.kvs.end(), [](const auto& task) { return task.version > 1; });
        std::printf(
            "\n%zu of %d tasks are done, %td of them twice\n", done.kvs.size(), tasks, twice);
        (void)co_await client_.erase(coetcd::key_range::prefix(at(run_, "")));
        co_return done.kvs.size() == tasks&& twice == 0;
    }

    asio::io_context context_;
    coetcd::client client_;
    const std::string run_;
    stage::cable cable_;
};

} // namespace

int main(int argc, char** argv) {
    try {
        if (argc == 5 && argv[1] == stage::process_flag) {
            stage::die_with_parent();
            return be_worker(argv[2], argv[3], argv[4]);
        }
        story s(argc > 1 ? argv[1] : "http://127.0.0.1:2379");
        return s.play() ? 0 : 1;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "task_runner: %s\n", e.what());
        return 1;
    }
}

// Prints:
//   ...
//     * s  * SIGKILL, in the middle of a task
//   ...
//     * s  * SIGSTOP, in the middle of a task
//   ...
//     * s  * its lease is revoked by hand, in the middle of a task
//   ...
//     * s  * nobody can reach etcd any more
//   ...
//     * s  * etcd can be reached again
//   ...
//     * s  * SIGCONT: it continues where it stood
//   ...
//   100 of 100 tasks are done, 0 of them twice
