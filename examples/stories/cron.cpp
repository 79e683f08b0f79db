// A job that is to run once a minute, on exactly one of three servers.
//
// The servers elect a leader, which runs the jobs. In the story the leader is killed in the middle
// of a job; the next one is stopped there for longer than its lease lasts, and then continues; the
// one after that is cut off from etcd. Each time another one takes over.
//
// What a job does it does by a transaction that names the term of the leader, and so at most once:
// etcd refuses it when the term is over, however late it comes. The story ends with the log of the
// jobs, which is in etcd, too.
//
// To be watched, a minute takes one second.
//
// Run: cron [http://127.0.0.1:2379]
// Exit code 0 if it came out that way.
#include <coetcd.hpp>

#include <boost/asio.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "stage.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

constexpr auto minute = 1s; // of the story
constexpr auto ttl = 2s;

std::string election_name(const std::string& run) {
    return "cron/" + run + "/leader";
}
std::string log_prefix(const std::string& run) {
    return "cron/" + run + "/log/";
}

// --- A server ---------------------------------------------------------------------------------

class server {
public:
    server(const coetcd::client& client, std::string name, std::string run)
        : script(client.get_executor())
        , client_(client.with_timeout(1s))
        , name_(std::move(name))
        , run_(std::move(run)) {
        script.on_end = [this] {
            ended_ = true;
            stop_.emit(asio::cancellation_type::terminal);
            script.close();
        };
    }

    stage::script script;

    void start() {
        asio::co_spawn(client_.get_executor(), script.follow(), asio::detached);
        auto at_end = [this](std::exception_ptr failure) {
            if (failure && !ended_) {
                std::rethrow_exception(failure);
            }
        };
        asio::co_spawn(client_.get_executor(),
                       serve(),
                       asio::bind_cancellation_slot(stop_.slot(), std::move(at_end)));
    }

private:
    void tell(const std::string& kind, const std::string& text) const {
        stage::report(name_, kind, text);
    }

    asio::awaitable<void> serve() {
        tell("ready", "");
        co_await script.wait_for_cue();
        coetcd::lead_options how;
        how.ttl = ttl;
        how.again = coetcd::again::always;
        auto duty = [this](const coetcd::leadership& term) { return on_duty(term); };
        co_await coetcd::lead(client_, election_name(run_), name_, duty, how);
    }

    /// Runs the jobs for as long as it leads.
    asio::awaitable<void> on_duty(const coetcd::leadership& term) {
        tell("leads", "leads, term " + std::to_string(term.term()));
        while (term.leads() && !ended_) {
            const auto now = co_await coetcd::as_result(next_minute());
            if (!now) {
                break; // it was cancelled, since the term is lost
            }
            // A job that has begun is not cut short; so it may be late, and is fenced.
            co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
            co_await run_job(*now, term);
            co_await asio::this_coro::reset_cancellation_state();
        }
        tell("stops", "does not lead any more, and knows it");
    }

    /// Minutes that have passed meanwhile are not made up for.
    static asio::awaitable<std::int64_t> next_minute() {
        const auto now = std::chrono::system_clock::now();
        const auto next = std::chrono::floor<std::chrono::seconds>(now) + minute;
        asio::system_timer timer(co_await asio::this_coro::executor, next);
        co_await timer.async_wait(asio::use_awaitable);
        co_return next.time_since_epoch() / minute;
    }

    asio::awaitable<void> run_job(std::int64_t number, const coetcd::leadership& term) {
        const std::string job = std::to_string(number);
        if (script.holds()) {
            tell("inside", "is running the job of minute " + job);
            co_await script.wait_for_cue();
        }
        const std::string entry = log_prefix(run_) + job;
        coetcd::txn note =
            coetcd::txn()
                .when(term.is_leader(), coetcd::compare::version(entry) == 0)
                .then(coetcd::op::put(entry, name_ + ", term " + std::to_string(term.term())));
        const auto noted = co_await coetcd::as_result(client_.txn(std::move(note)));
        if (!noted) {
            tell("unclear", "does not know what became of the job of minute " + job);
        } else if (noted->succeeded) {
            tell("ran", job);
        } else {
            tell("refused", "etcd refuses its job of minute " + job + ": its term is over");
        }
    }

    const coetcd::client client_;
    const std::string name_;
    const std::string run_;
    asio::cancellation_signal stop_;
    bool ended_ = false;
};

/// cron --process RUN URL URL URL NAME
int serve(const std::string& run, const std::string& url, const std::string& name) {
    asio::io_context context;
    server one(coetcd::client(context.get_executor(), url), name, run);
    one.start();
    context.run();
    return 0;
}

// --- The story --------------------------------------------------------------------------------

struct log_entry {
    std::string minute;
    std::string who;
};

asio::awaitable<std::vector<log_entry>> read_log(coetcd::client client, std::string run) {
    auto all = coetcd::key_range::prefix(log_prefix(run));
    const coetcd::range_response found = co_await client.range(all);
    std::vector<log_entry> log;
    for (const coetcd::key_value& kv : found.kvs) {
        log.push_back(log_entry{kv.key.substr(log_prefix(run).size()), kv.value});
    }
    co_await client.erase(all);
    co_return log;
}

class story {
public:
    explicit story(const std::string& url)
        : url_(url)
        , run_(std::to_string(std::chrono::system_clock::now().time_since_epoch() / 1us)) {
        const std::size_t colon = url.rfind(':');
        const asio::ip::tcp::endpoint etcd(
            asio::ip::make_address(url.substr(7, colon - 7)),
            static_cast<unsigned short>(std::stoi(url.substr(colon + 1))));
        for (int i = 0; i < 3; ++i) {
            cables_.push_back(std::make_unique<stage::cable>(etcd));
        }
        all_ = std::make_unique<stage::company>(
            std::vector<std::string>{run_, address(0), address(1), address(2)});
    }

    /// @returns Whether it came out as it should.
    bool play() {
        all_->begin();
        wait_for_leader_after("");
        run_jobs(3);

        const std::string dead = hold();
        all_->kill(dead);
        all_->note(dead, "SIGKILL");
        all_->go();
        wait_for_leader_after(dead);
        run_jobs(2);

        const std::string late = hold();
        all_->stop(late);
        all_->note(late, "SIGSTOP");
        all_->go();
        wait_for_leader_after(late);
        run_jobs(2);
        all_->resume(late);
        all_->note(late, "SIGCONT: it continues where it stood");
        wait_until_it_stops(late); // and is refused before that
        run_jobs(1);

        const std::string lonely = leader_;
        stage::cable& cable = *cables_.at(static_cast<std::size_t>(lonely[0] - 'A'));
        cable.cut();
        all_->note(lonely, "is cut off from etcd");
        wait_until_it_stops(lonely); // by its own clock: nobody can tell it
        wait_for_leader_after(lonely);
        run_jobs(2);
        cable.mend();
        all_->note(lonely, "can reach etcd again, and waits for its turn");
        run_jobs(2);

        all_->say("end");
        while (const auto e = all_->next_or_end()) {
            hear(*e);
        }
        const bool well = all_->wait();
        all_->note("the end");
        return judge() && well;
    }

private:
    std::string address(std::size_t i) const {
        return "http://127.0.0.1:" + std::to_string(cables_[i]->port());
    }

    void hear(const stage::event& e) {
        if (e.kind == "ran") {
            told_twice_ += told_.insert(e.text).second ? 0 : 1;
            all_->note(e.who, "runs the job of minute " + e.text);
            return;
        }
        refused_ += e.kind == "refused" ? 1 : 0;
        unclear_ += e.kind == "unclear" ? 1 : 0;
        leader_ = e.kind == "leads" ? e.who : leader_;
        all_->note(e.who, e.text);
    }
    stage::event next() {
        stage::event e = all_->next();
        hear(e);
        return e;
    }
    void wait_until_it_stops(const std::string& who) {
        for (stage::event e = next(); e.kind != "stops" || e.who != who;) {
            e = next();
        }
    }
    void wait_for_leader_after(const std::string& last) {
        while (leader_ == last) {
            (void)next();
        }
    }
    void run_jobs(int count) {
        for (int ran = 0; ran < count;) {
            ran += next().kind == "ran" ? 1 : 0;
        }
    }
    /// Makes the leader wait in the middle of its next job.
    /// @returns Who it is.
    std::string hold() {
        all_->say("hold");
        for (;;) {
            const stage::event e = next();
            if (e.kind == "inside") {
                return e.who;
            }
        }
    }

    bool judge() {
        asio::io_context context;
        auto reading = read_log(coetcd::client(context.get_executor(), url_), run_);
        auto read = asio::co_spawn(context, std::move(reading), asio::use_future);
        context.run();
        const std::vector<log_entry> log = read.get();

        std::printf("\nThe log in etcd:\n");
        std::string last;
        int missed = 0;
        for (const log_entry& e : log) {
            const std::int64_t passed = last.empty() ? 1 : std::stoll(e.minute) - std::stoll(last);
            if (passed > 1) {
                missed += static_cast<int>(passed - 1);
                std::printf("  %lld without a leader\n", static_cast<long long>(passed - 1));
            }
            std::printf("  minute %s  %s\n", e.minute.c_str(), e.who.c_str());
            last = e.minute;
        }
        const bool once = told_twice_ == 0 && told_.size() <= log.size() &&
                          log.size() <= told_.size() + static_cast<std::size_t>(unclear_);
        std::printf("\n%zu jobs ran, %d of them twice; %d that came too late were refused; %d\n"
                    "minutes passed while no server could know that it led.\n",
                    log.size(),
                    told_twice_,
                    refused_,
                    missed);
        return once && refused_ > 0 && log.size() >= 12;
    }

    const std::string url_;
    const std::string run_;
    std::vector<std::unique_ptr<stage::cable>> cables_; // of A, B and C
    std::unique_ptr<stage::company> all_;
    std::string leader_;
    std::set<std::string> told_; // minutes whose jobs ran, as the servers tell
    int told_twice_ = 0;
    int refused_ = 0;
    int unclear_ = 0;
};

} // namespace

int main(int argc, char** argv) {
    try {
        if (argc == 7 && argv[1] == stage::process_flag) {
            stage::die_with_parent();
            const std::string name = argv[6];
            return serve(argv[2], argv[3 + (name[0] - 'A')], name);
        }
        story s(argc > 1 ? argv[1] : "http://127.0.0.1:2379");
        return s.play() ? 0 : 1;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "cron: %s\n", e.what());
        return 1;
    }
}

// Prints:
//   ...
//     * s  * leads, term *
//   ...
//     * s  * SIGKILL
//   ...
//     * s  * SIGSTOP
//   ...
//     * s  * SIGCONT: it continues where it stood
//     * s  * etcd refuses its job of minute *: its term is over
//   ...
//     * s  * is cut off from etcd
//   ...
//     * s  * can reach etcd again, and waits for its turn
//   ...
//   The log in etcd:
//   ...
//   * jobs ran, 0 of them twice; * that came too late were refused; *
//   minutes passed while no server could know that it led.
