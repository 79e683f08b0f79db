// SPDX-License-Identifier: BSL-1.0
#include <coetcd/admin.hpp>
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/election.hpp>
#include <coetcd/multi_lock.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/observer.hpp>
#include <coetcd/observers.hpp>
#include <coetcd/prometheus.hpp>
#include <coetcd/semaphore.hpp>
#include <coetcd/session.hpp>
#include <coetcd/shared_mutex.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"

using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::error_code;
using coetcd::lock_end;
using coetcd::session_end;
using coetcd::detail::call_request;
using coetcd::detail::rpc;
using support::background;
using support::scripted_env;
using support::world;

namespace {

/// Keeps what it is told.
class recorder final : public coetcd::observer {
public:
    struct request {
        std::string rpc, endpoint;
        unsigned attempt;
        std::chrono::nanoseconds latency;
        error_code outcome;
        std::uint64_t id;
    };
    struct beginning {
        std::string rpc, endpoint;
        unsigned attempt;
        std::uint64_t id;
    };
    void on_request_begin(const coetcd::request_begin_report& r,
                          coetcd::request_headers& more) override {
        beginnings.push_back({std::string(r.rpc), std::string(r.endpoint), r.attempt, r.id});
        more.add(header, std::to_string(r.id));
    }
    struct wait {
        std::string name;
        std::chrono::nanoseconds waited;
        bool acquired;
        error_code failure;
        std::string kind;
    };
    struct hold {
        std::string name;
        std::chrono::nanoseconds held;
        bool lost;
        lock_end reason;
        std::string kind;
        std::int64_t token;
        coetcd::lease_id lease;
    };
    struct overrun {
        std::string name;
        std::chrono::nanoseconds time;
        std::int64_t token;
    };
    void on_request(const coetcd::request_report& r) override {
        requests.push_back(
            {std::string(r.rpc), std::string(r.endpoint), r.attempt, r.latency, r.outcome, r.id});
    }
    void on_watch_stream(const coetcd::watch_stream_report& r) override {
        streams.push_back({std::string(r.endpoint), r.opened, r.watches});
    }
    void on_renewal(const coetcd::renewal_report& r) override { renewals.push_back(r); }
    void on_session_open(const coetcd::session_open_report& r) override { opened.push_back(r); }
    void on_session_end(const coetcd::session_report& r) override { ends.push_back(r); }
    void on_lock_wait_begin(const coetcd::lock_wait_begin_report& r) override {
        begun.push_back(std::string(r.kind) + " " + std::string(r.name));
    }
    void on_lock_wait(const coetcd::lock_wait_report& r) override {
        waits.push_back(
            {std::string(r.name), r.waited, r.acquired, r.failure, std::string(r.kind)});
    }
    void on_lock_hold(const coetcd::lock_hold_report& r) override {
        holds.push_back({std::string(r.name),
                         r.held,
                         r.lost(),
                         r.reason,
                         std::string(r.kind),
                         r.token,
                         r.lease});
    }
    void on_overrun(const coetcd::overrun_report& r) override {
        overruns.push_back({std::string(r.name), r.overrun, r.token});
    }

    struct stream {
        std::string endpoint;
        bool opened;
        std::size_t watches;
    };
    std::vector<stream> streams;
    std::vector<beginning> beginnings;
    std::vector<request> requests;
    std::string header = "X-Id";
    std::vector<coetcd::renewal_report> renewals;
    std::vector<coetcd::session_open_report> opened;
    std::vector<coetcd::session_report> ends;
    std::vector<std::string> begun;
    std::vector<wait> waits;
    std::vector<hold> holds;
    std::vector<overrun> overruns;
};

/// A world whose client is observed.
struct observed : world {
    observed() { options.observer = seen; }
    coetcd::session open(std::chrono::seconds ttl = 6s) {
        return await(coetcd::session::open(client(options), ttl));
    }
    std::shared_ptr<recorder> seen = std::make_shared<recorder>();
    coetcd::client_options options;
};

} // namespace

TEST_CASE("an observer is told of each attempt of a request", "[observer]") {
    observed w;
    w.options.attempt_timeout = 500ms;
    std::vector<scripted_env::fate> script(2);
    script[0].refused = true;
    script[1].arrives = false;
    std::size_t next = 0;
    w.env->decide = [&](const call_request&) {
        return next < script.size() ? script[next++] : scripted_env::fate();
    };
    const coetcd::client c = w.client(w.options);
    (void)w.await(c.get("k"));
    const auto& r = w.seen->requests;
    REQUIRE(r.size() == 3);
    for (unsigned i = 0; i != 3; ++i) {
        CHECK(r[i].rpc == "range");
        CHECK(r[i].endpoint == "http://etcd:2379");
        CHECK(r[i].attempt == i);
    }
    CHECK(r[0].outcome == boost::asio::error::connection_refused);
    CHECK(r[0].latency == 0ns);
    CHECK(r[1].outcome == errc::timed_out);
    CHECK(r[1].latency == 500ms);
    CHECK_FALSE(r[2].outcome);
    CHECK(r[2].latency == 2ms);
}

TEST_CASE("an observer is told of the beginning of each attempt, and may add headers to it",
          "[observer]") {
    observed w;
    const coetcd::client c = w.client(w.options);
    bool refused = false;
    w.env->decide = [&](const call_request&) {
        scripted_env::fate f;
        f.refused = !std::exchange(refused, true);
        return f;
    };
    (void)w.await(c.get("k"));
    auto cancelled = w.start(c.put("k", "v"));
    w.env->pass(1ms);
    CHECK(w.seen->beginnings.size() == 3);
    CHECK(w.seen->requests.size() == 2);
    cancelled.cancel();
    w.env->pass(1ms);
    const auto& b = w.seen->beginnings;
    const auto& r = w.seen->requests;
    REQUIRE(b.size() == 3);
    REQUIRE(r.size() == 3);
    REQUIRE(w.env->calls.size() == 3);
    for (unsigned i = 0; i != 3; ++i) {
        CHECK(b[i].rpc == (i == 2 ? "put" : "range"));
        CHECK(b[i].endpoint == "http://etcd:2379");
        CHECK(b[i].attempt == (i == 1 ? 1U : 0U));
        CHECK(b[i].id == r[i].id);
        CHECK(w.env->calls[i].headers == "X-Id: " + std::to_string(b[i].id) + "\r\n");
    }
    CHECK(b[0].id != 0);
    CHECK(b[0].id != b[1].id);
    CHECK(b[1].id != b[2].id);
    CHECK(r[2].outcome == boost::asio::error::operation_aborted);
    CHECK(r[2].rpc == "put");
}

TEST_CASE("a header that could spoil a request is not added to it", "[observer]") {
    const std::pair<const char*, bool> names[] = {
        {"traceparent", true},
        {"Grpc-Metadata-traceparent", true},
        {"X-9", true},
        {"", false},
        {"a b", false},
        {"a:", false},
        {"a\r\nb", false},
        {"host", false},
        {"CONTENT-length", false},
        {"Transfer-Encoding", false},
        {"Authorization", false},
        {"Grpc-Metadata-Authorization", false},
        {"grpc-metadata-Token", false},
        {"grpc-timeout", false},
    };
    for (const auto& [name, fits] : names) {
        coetcd::request_headers h;
        CHECK(h.add(name, "v") == fits);
        CHECK(h.lines() == (fits ? std::string(name) + ": v\r\n" : ""));
    }
    coetcd::request_headers h;
    CHECK(h.add("a", ""));
    CHECK_FALSE(h.add("b", "1\r\nHost: x"));
    CHECK_FALSE(h.add("b", std::string("1\0", 2)));
    CHECK_FALSE(h.add("b", "\xc3\xa9"));
    CHECK(h.add("b", "x y\tz"));
    CHECK(h.lines() == "a: \r\nb: x y\tz\r\n");
    coetcd::request_headers full;
    CHECK(full.add("a", std::string(4096 - 5, 'x')));
    CHECK_FALSE(full.add("b", ""));
    CHECK_FALSE(coetcd::request_headers().add("a", std::string(4096 - 4, 'x')));
    CHECK_FALSE(coetcd::request_headers().add("a", std::string(5000, 'x')));
}

TEST_CASE("an observer is told of renewals, and of how much time was left", "[observer]") {
    observed w;
    coetcd::session s = w.open(6s);
    w.env->pass(5s);
    REQUIRE(w.seen->renewals.size() >= 2);
    for (const auto& r : w.seen->renewals) {
        CHECK(r.lease == s.lease());
        CHECK(r.latency == 2ms);
        CHECK(r.margin > 3s); // of 5.4, less a third of 6
        CHECK(r.margin < 4s);
        CHECK_FALSE(r.outcome);
    }
    // The later they come the less is left.
    w.seen->renewals.clear();
    w.env->renews = false;
    w.env->pass(3500ms);
    REQUIRE_FALSE(w.seen->renewals.empty());
    CHECK(w.seen->renewals.back().outcome == coetcd::condition::retryable);
    CHECK(w.seen->renewals.back().margin < 3s);
    w.env->renews = true;
    w.env->pass(1s);
    CHECK_FALSE(w.seen->renewals.back().outcome);
    CHECK(w.seen->ends.empty());
}

TEST_CASE("an observer is told once of the end of a session, and why", "[observer]") {
    observed w;
    {
        coetcd::session s = w.open();
        w.await(s.close());
        w.await(s.close());
    }
    REQUIRE(w.seen->ends.size() == 1);
    CHECK(w.seen->ends[0].reason == session_end::closed);
    coetcd::session s = w.open();
    w.etcd->revoke(s.lease());
    w.env->pass(6s);
    REQUIRE(w.seen->ends.size() == 2);
    CHECK(w.seen->ends[1].reason == session_end::expired);
    CHECK(w.seen->ends[1].lease == s.lease());
}

TEST_CASE("an observer is told how long a lock was waited for, and held", "[observer]") {
    observed w;
    const coetcd::session first = w.open();
    const coetcd::session second = w.open();
    coetcd::mutex a(first, "n");
    coetcd::mutex b(second, "n");
    w.await(a.lock());
    auto waiting = w.start(b.lock());
    w.env->pass(100ms);
    w.await(a.unlock());
    w.env->pass(100ms);
    REQUIRE(waiting.succeeded());
    w.await(b.unlock());

    const auto& waits = w.seen->waits;
    REQUIRE(waits.size() == 2);
    CHECK(waits[0].name == "n");
    CHECK(waits[0].acquired);
    CHECK(waits[0].waited == 2ms);
    CHECK(waits[1].acquired);
    CHECK(waits[1].waited > 100ms);
    CHECK(waits[1].waited < 120ms);
    const auto& holds = w.seen->holds;
    REQUIRE(holds.size() == 2);
    CHECK(holds[0].name == "n");
    CHECK(holds[0].held > 95ms);
    CHECK(holds[0].held < 110ms);
    CHECK_FALSE(holds[0].lost);
    CHECK_FALSE(holds[1].lost);
}

TEST_CASE("an observer is told how a wait ends without the lock", "[observer]") {
    observed w;
    const coetcd::session first = w.open();
    const coetcd::session second = w.open();
    coetcd::mutex a(first, "n");
    coetcd::mutex b(second, "n");
    w.await(a.lock());
    w.seen->waits.clear();

    CHECK_FALSE(w.await(b.try_lock()));
    CHECK_FALSE(w.await(b.try_lock_for(50ms)));
    auto cancelled = w.start(b.lock());
    w.env->pass(50ms);
    cancelled.cancel();
    w.env->pass(50ms);
    auto lost = w.start(b.lock());
    w.env->pass(50ms);
    w.etcd->revoke(second.lease());
    w.env->pass(10s);
    CHECK(lost.code() == errc::session_lost);

    const auto& waits = w.seen->waits;
    REQUIRE(waits.size() == 4);
    for (const auto& x : waits) {
        CHECK_FALSE(x.acquired);
    }
    CHECK_FALSE(waits[0].failure);
    CHECK_FALSE(waits[1].failure);
    CHECK(waits[1].waited == 50ms);
    CHECK(waits[2].failure == boost::asio::error::operation_aborted);
    CHECK(waits[3].failure == errc::session_lost);
    CHECK(w.seen->holds.empty());
}

TEST_CASE("an observer is told of a lock that is lost when it is, and once", "[observer]") {
    observed w;
    const coetcd::session s = w.open();
    coetcd::mutex a(s, "a");
    coetcd::mutex b(s, "b");
    w.await(a.lock());
    w.await(b.lock());
    w.etcd->erase(w.etcd->under("a/").at(0)); // by hand
    w.env->pass(3s);
    REQUIRE(w.seen->holds.size() == 1);
    CHECK(w.seen->holds[0].name == "a");
    CHECK(w.seen->holds[0].lost);
    w.etcd->revoke(s.lease());
    w.env->pass(6s);
    REQUIRE(w.seen->holds.size() == 2);
    CHECK(w.seen->holds[1].name == "b");
    CHECK(w.seen->holds[1].lost);
    w.await(a.unlock());
    w.await(b.unlock());
    CHECK(w.seen->holds.size() == 2);
}

TEST_CASE("an observer is told of a lock that is given up with its mutex", "[observer]") {
    observed w;
    const coetcd::session s = w.open();
    {
        coetcd::mutex a(s, "a");
        w.await(a.lock());
    }
    REQUIRE(w.seen->holds.size() == 1);
    CHECK_FALSE(w.seen->holds[0].lost);
    // A process that stands still for too long has lost it, even if that was not noticed.
    {
        coetcd::mutex a(s, "a");
        w.await(a.lock());
        w.env->stall(10s);
    }
    REQUIRE(w.seen->holds.size() == 2);
    CHECK(w.seen->holds[1].lost);
}

TEST_CASE("an observer is held for as long as it may be told something, and no longer",
          "[observer]") {
    struct counter final : coetcd::observer {
        counter(std::size_t& r, bool& e)
            : reports(r)
            , ended(e) {}
        ~counter() override { ended = true; }
        void on_request(const coetcd::request_report&) override { ++reports; }
        void on_session_end(const coetcd::session_report&) override { ++reports; }
        void on_lock_hold(const coetcd::lock_hold_report&) override { ++reports; }
        std::size_t& reports;
        bool& ended;
    };
    for (const bool away : {false, true}) {
        world w;
        std::size_t reports = 0;
        bool ended = false;
        {
            coetcd::client_options options;
            options.observer = std::make_shared<counter>(reports, ended);
            const coetcd::client c = w.client(options);
            const coetcd::session s = w.await(coetcd::session::open(c, 6s));
            coetcd::mutex a(s, "a");
            w.await(a.lock());
            if (away) {
                w.env->decide = [](const call_request&) {
                    scripted_env::fate f;
                    f.arrives = false;
                    return f;
                };
            }
        }
        const std::size_t before = reports;
        CHECK_FALSE(ended); // the lease is being revoked
        const auto began = w.env->now();
        while (!ended && w.env->now() < began + 60s) {
            w.env->pass(1ms);
        }
        CHECK(ended);
        CHECK(reports > before); // it was told of that, too
        CHECK(w.env->now() - began < 30s);
    }
}

TEST_CASE("what goes with a session that its own program ends is not lost", "[observer]") {
    observed w;
    std::optional<coetcd::session> s = w.open();
    coetcd::mutex a(*s, "a");
    w.await(a.lock());
    bool lost = false;
    SECTION("it is closed") {
        w.await(s->close());
    }
    SECTION("it is destroyed") {
        s.reset();
    }
    SECTION("it is orphaned") {
        (void)s->orphan();
    }
    SECTION("it is closed, and was lost before without anybody's notice") {
        w.env->stall(10s);
        s.reset();
        lost = true;
    }
    w.env->pass(20ms);
    REQUIRE(w.seen->holds.size() == 1);
    CHECK(w.seen->holds[0].lost == lost);
}

TEST_CASE("an observer is told how the ownership of a lock has ended, and which it was",
          "[observer]") {
    observed w;
    const coetcd::client c = w.client(w.options);
    std::optional<coetcd::session> s = w.await(coetcd::session::open(c, 6s));
    coetcd::lock_options brief;
    brief.max_hold = 1s;
    coetcd::mutex m(*s, "m");
    coetcd::mutex timed(*s, "m", brief);
    coetcd::mutex& taken = GENERATE(false, true) ? timed : m;
    w.await(taken.lock());
    const std::int64_t token = taken.fencing_token();
    const coetcd::lease_id lease = s->lease();
    lock_end expected = lock_end::given_back;
    SECTION("it is given back") {
        w.await(taken.unlock());
    }
    SECTION("its session is closed") {
        w.await(s->close());
        expected = lock_end::session_closed;
    }
    SECTION("its session is orphaned") {
        (void)s->orphan();
        expected = lock_end::session_closed;
    }
    SECTION("its session is lost") {
        w.etcd->revoke(lease);
        w.env->pass(600ms);
        (void)w.await(c.lease_time_to_live(lease));
        w.env->pass(6s);
        expected = &taken == &timed ? lock_end::hold_expired : lock_end::session_lost;
    }
    SECTION("the process has stood still") {
        w.env->stall(10s);
        expected = &taken == &timed ? lock_end::hold_expired : lock_end::session_lost;
        w.env->pass(1s);
    }
    SECTION("its key is deleted") {
        w.etcd->erase(w.etcd->under("m/").at(0));
        w.env->pass(3s);
        expected = &taken == &timed ? lock_end::hold_expired : lock_end::key_deleted;
    }
    w.env->pass(20ms);
    REQUIRE(w.seen->holds.size() == 1);
    const recorder::hold& h = w.seen->holds[0];
    CHECK(to_string(h.reason) == std::string(to_string(expected)));
    CHECK(h.lost == (expected > lock_end::session_closed));
    CHECK(h.token == token);
    CHECK(h.lease == lease);
    CHECK(h.kind == "mutex");
}

TEST_CASE("an observer is told of what kind a lock is, and when a call begins to wait for it",
          "[observer]") {
    observed w;
    const auto metrics = std::make_shared<coetcd::prometheus_observer>();
    w.options.observer = std::make_shared<coetcd::observers>(w.seen, metrics);
    const auto series = [&metrics] {
        const std::string text = metrics->text();
        std::size_t found = 0;
        for (auto at = text.find("kind="); at != text.npos; at = text.find("kind=", at + 1)) {
            ++found;
        }
        return found;
    };
    const coetcd::session s = w.open();
    const auto before = series();
    REQUIRE(w.seen->opened.size() == 1);
    CHECK(w.seen->opened[0].lease == s.lease());
    CHECK(w.seen->opened[0].ttl == 6s);
    const auto expected = [](const std::string& kind) { return kind + " n/" + kind; };
    SECTION("mutex") {
        coetcd::mutex m(s, "n/mutex");
        auto held = w.await(m.scoped_lock());
        CHECK(w.seen->begun.back() == expected("mutex"));
    }
    SECTION("shared_mutex, to write") {
        coetcd::shared_mutex m(s, "n/shared_mutex");
        auto held = w.await(m.scoped_lock());
        CHECK(w.seen->begun.back() == expected("shared_mutex"));
    }
    SECTION("shared_mutex, to read") {
        coetcd::shared_mutex m(s, "n/shared_mutex");
        auto held = w.await(m.scoped_lock_shared());
        CHECK(w.seen->begun.back() == expected("shared_mutex"));
    }
    SECTION("multi_lock") {
        coetcd::multi_lock m(s, {coetcd::exclusive("n/multi_lock"), coetcd::exclusive("o")});
        w.await(m.lock());
        w.await(m.unlock());
        CHECK(w.seen->begun.back() == expected("multi_lock"));
    }
    SECTION("semaphore") {
        coetcd::semaphore m(s, "n/semaphore", 2);
        auto held = w.await(m.acquire());
        CHECK(w.seen->begun.back() == expected("semaphore"));
    }
    SECTION("election") {
        coetcd::election e(s, "n/election");
        auto term = w.await(e.campaign("us"));
        CHECK(w.seen->begun.back() == expected("election"));
    }
    w.env->pass(20ms);
    REQUIRE(w.seen->begun.size() == 1);
    REQUIRE(w.seen->waits.size() == 1);
    REQUIRE(w.seen->holds.size() == 1);
    CHECK(w.seen->waits[0].kind + " " + w.seen->waits[0].name == w.seen->begun[0]);
    CHECK(w.seen->holds[0].kind == w.seen->waits[0].kind);
    CHECK(series() == before); // the metrics know this kind
}

TEST_CASE("an observer is told of a body that runs on after the loss of its lock, once",
          "[observer]") {
    observed w;
    w.options.overrun = 300ms;
    const coetcd::session s = w.open();
    coetcd::mutex m(s, "m");
    coetcd::detail::notifier end(*w.env);
    std::int64_t token = 0;
    bool heeds = false;
    auto body = [&](const coetcd::held_lock& held) -> boost::asio::awaitable<void> {
        token = held.fencing_token();
        if (!heeds) {
            co_await boost::asio::this_coro::reset_cancellation_state(
                boost::asio::disable_cancellation());
        }
        (void)co_await end.wait();
    };
    const auto lose = [&] {
        w.env->pass(10ms);
        w.etcd->erase(w.etcd->under("m/").at(0));
        while (m.owns_lock()) {
            w.env->pass(1ms);
        }
    };
    SECTION("it ignores its cancellation") {
        auto job = w.start(coetcd::with_lock(m, body));
        lose();
        w.env->pass(310ms);
        REQUIRE(w.seen->overruns.size() == 1);
        CHECK(w.seen->overruns[0].name == "m");
        CHECK(w.seen->overruns[0].time == 300ms);
        CHECK(w.seen->overruns[0].token == token);
        w.env->pass(10s);
        CHECK(w.seen->overruns.size() == 1);
        end.notify_all();
        w.env->pass(1ms);
        CHECK(job.code() == errc::lock_lost);
    }
    SECTION("it ends in time") {
        auto job = w.start(coetcd::with_lock(m, body));
        lose();
        w.env->pass(200ms);
        end.notify_all();
        w.env->pass(1s);
        CHECK(job.code() == errc::lock_lost);
        CHECK(w.seen->overruns.empty());
    }
    SECTION("it heeds its cancellation") {
        heeds = true;
        auto job = w.start(coetcd::with_lock(m, body));
        lose();
        w.env->pass(1s);
        CHECK(job.code() == errc::lock_lost);
        CHECK(w.seen->overruns.empty());
    }
    SECTION("nothing is lost") {
        auto job = w.start(coetcd::with_lock(m, body));
        w.env->pass(1s);
        end.notify_all();
        w.env->pass(1s);
        CHECK(job.succeeded());
        CHECK(w.seen->overruns.empty());
    }
}

TEST_CASE("several observers are told everything, each", "[observer]") {
    observed w;
    const auto other = std::make_shared<recorder>();
    other->header = "X-Other";
    w.options.observer =
        std::make_shared<coetcd::observers>(w.seen, std::shared_ptr<recorder>(), other);
    {
        w.options.overrun = 100ms;
        const coetcd::client c = w.client(w.options);
        const coetcd::watcher watch = w.await(c.watch("k"));
        coetcd::session s = w.await(coetcd::session::open(c, 6s));
        coetcd::mutex m(s, "m");
        coetcd::detail::notifier end(*w.env);
        auto body = [&]() -> boost::asio::awaitable<void> {
            co_await boost::asio::this_coro::reset_cancellation_state(
                boost::asio::disable_cancellation());
            (void)co_await end.wait();
        };
        auto job = w.start(coetcd::with_lock(m, body));
        w.env->pass(3s);
        w.etcd->erase(w.etcd->under("m/").at(0));
        w.env->pass(3s);
        end.notify_all();
        w.await(s.close());
    }
    w.env->pass(1s);
    for (const auto& each : {w.seen, other}) {
        CHECK(each->requests.size() > 3);
        CHECK(each->beginnings.size() == each->requests.size());
        CHECK(each->requests.size() == w.seen->requests.size());
        CHECK(each->streams.size() == 2);
        CHECK(each->renewals.size() == w.seen->renewals.size());
        CHECK_FALSE(each->renewals.empty());
        CHECK(each->opened.size() == 1);
        CHECK(each->ends.size() == 1);
        CHECK(each->begun.size() == 1);
        CHECK(each->waits.size() == 1);
        CHECK(each->holds.size() == 1);
        CHECK(each->overruns.size() == 1);
    }
    const std::string headers = w.env->calls.at(0).headers;
    CHECK_THAT(headers, support::contains("X-Id: "));
    CHECK_THAT(headers, support::contains("\r\nX-Other: "));
    struct connections final : coetcd::observer {
        void on_connection(const coetcd::connection_report&) override { ++count; }
        int count = 0;
    };
    const auto one = std::make_shared<connections>();
    coetcd::observers(one, one).on_connection({});
    CHECK(one->count == 2);
}

TEST_CASE("a renewal that the end of its session overtakes has not failed", "[observer]") {
    for (const bool closed : {false, true}) {
        observed w;
        coetcd::session s = w.open();
        w.env->decide = [](const call_request& r) {
            scripted_env::fate f;
            f.answered = r.way != coetcd::detail::connection_kind::renewal;
            return f;
        };
        const std::size_t before = w.env->calls.size();
        while (w.env->calls.size() == before) {
            w.env->pass(1ms);
        }
        if (closed) {
            w.await(s.close());
        }
        w.env->pass(2s);
        CHECK(w.seen->renewals.empty() == closed); // nothing is told after the end
        CHECK((closed || w.seen->renewals[0].outcome));
    }
}

TEST_CASE("an observer is told of the stream of watches", "[observer]") {
    observed w;
    const coetcd::client c = w.client(w.options);
    {
        const coetcd::watcher a = w.await(c.watch("a"));
        const coetcd::watcher b = w.await(c.watch("b"));
        w.env->break_streams();
        w.env->pass(1s);
    }
    w.env->pass(1s);
    const auto& s = w.seen->streams;
    REQUIRE(s.size() == 4);
    CHECK(s[0].endpoint == "http://etcd:2379");
    CHECK(s[0].opened);
    CHECK(s[0].watches == 1);
    CHECK_FALSE(s[1].opened);
    CHECK(s[1].watches == 2);
    CHECK(s[2].opened);
    CHECK(s[2].watches == 2);
    CHECK_FALSE(s[3].opened);
    CHECK(s[3].watches == 0);
}

TEST_CASE("what a connection did has a name as a label", "[observer]") {
    const auto name = [](coetcd::connection_report::kind k) { return std::string(to_string(k)); };
    CHECK(name(coetcd::connection_report::opened) == "opened");
    CHECK(name(coetcd::connection_report::failed) == "failed");
    CHECK(name(coetcd::connection_report::closed) == "closed");
}
