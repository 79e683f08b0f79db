// SPDX-License-Identifier: BSL-1.0
#include <coetcd/mutex.hpp>
#include <coetcd/observer.hpp>
#include <coetcd/session.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"

using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::error_code;
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
    };
    struct wait {
        std::string name;
        std::chrono::nanoseconds waited;
        bool acquired;
        error_code failure;
    };
    struct hold {
        std::string name;
        std::chrono::nanoseconds held;
        bool lost;
    };
    void on_request(const coetcd::request_report& r) override {
        requests.push_back(
            {std::string(r.rpc), std::string(r.endpoint), r.attempt, r.latency, r.outcome});
    }
    void on_watch_stream(const coetcd::watch_stream_report& r) override {
        streams.push_back({std::string(r.endpoint), r.opened, r.watches});
    }
    void on_renewal(const coetcd::renewal_report& r) override { renewals.push_back(r); }
    void on_session_end(const coetcd::session_report& r) override { ends.push_back(r); }
    void on_lock_wait(const coetcd::lock_wait_report& r) override {
        waits.push_back({std::string(r.name), r.waited, r.acquired, r.failure});
    }
    void on_lock_hold(const coetcd::lock_hold_report& r) override {
        holds.push_back({std::string(r.name), r.held, r.lost});
    }

    struct stream {
        std::string endpoint;
        bool opened;
        std::size_t watches;
    };
    std::vector<stream> streams;
    std::vector<request> requests;
    std::vector<coetcd::renewal_report> renewals;
    std::vector<coetcd::session_report> ends;
    std::vector<wait> waits;
    std::vector<hold> holds;
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
        REQUIRE_FALSE(w.seen->renewals.empty());
        CHECK(bool(w.seen->renewals[0].outcome) != closed);
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
