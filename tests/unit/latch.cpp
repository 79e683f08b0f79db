// SPDX-License-Identifier: BSL-1.0
#include <coetcd/latch.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "support/catch.hpp"
#include "support/world.hpp"
#include "support/writes.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::latch;
using coetcd::detail::call_request;
using support::scripted_env;
using support::world;

namespace {

struct latch_settings {
    latch_settings()
        : client(w.client())
        , session(w.await(coetcd::session::open(client)))
        , l(session, "l", 3) {
        w.env->calls.clear();
    }
    std::size_t counted() { return w.etcd->under("l/").size(); }

    world w;
    coetcd::client client;
    coetcd::session session;
    latch l;
};

bool is_count(const call_request& r) {
    return support::is_write(r) && r.body.find("bC8") != std::string::npos; // "l/"
}

} // namespace

TEST_CASE("a latch is counted down, one round trip each but for the first", "[latch]") {
    latch_settings s;
    CHECK(s.l.name() == "l");
    CHECK(s.l.get_executor() == s.client.get_executor());
    CHECK(s.w.await(s.l.remaining()) == 3);
    CHECK(s.w.env->calls.size() == 2);
    CHECK(s.w.await(s.l.count_down()) == 2);
    CHECK(s.w.env->calls.size() == 3);
    latch other(s.session, "l", 10); // what is stored counts
    CHECK(s.w.await(other.count_down()) == 1);
    CHECK(s.w.env->calls.size() == 5);
    CHECK(s.w.await(s.l.count_down()) == 0);
    CHECK(s.w.await(s.l.count_down()) == 0);
    CHECK(s.w.await(other.remaining()) == 0);
    s.w.env->calls.clear();
    s.w.await(s.l.wait());
    CHECK(s.w.env->calls.size() == 1);
    CHECK(s.counted() == 4);
    s.w.await(s.session.close());
    CHECK(s.counted() == 4); // a count outlives its program
    CHECK(s.w.etcd->keys.at("l.total").value == "3");
    CHECK(s.w.etcd->keys.at("l.total").lease == 0);
}

TEST_CASE("those who wait for a latch pass with the last count, and not before", "[latch]") {
    latch_settings s;
    auto one = s.w.start(s.l.wait());
    auto two = s.w.start(s.l.wait_for(1h));
    auto three = s.w.start(s.l.wait_until(std::chrono::steady_clock::now() + 1h));
    s.w.env->pass(1s);
    CHECK(s.w.await(s.l.count_down()) == 2);
    CHECK(s.w.await(s.l.count_down()) == 1);
    s.w.env->pass(1min);
    CHECK_FALSE(one.ended());
    CHECK_FALSE(two.ended());
    s.w.env->calls.clear();
    CHECK(s.w.await(s.l.count_down()) == 0);
    s.w.env->pass(20ms);
    one.get();
    CHECK(two.get());
    CHECK(three.get());
    CHECK(s.w.env->calls.size() == 1); // waiters are told by the event
    s.w.env->pass(15s);
    CHECK(s.w.etcd->watches() == 0);
}

TEST_CASE("a count that a broken stream has missed is found", "[latch]") {
    latch_settings s;
    auto waiting = s.w.start(s.l.wait());
    s.w.env->pass(1s);
    s.w.env->break_streams();
    for (const char* key : {"l/1", "l/2", "l/3"}) {
        s.w.etcd->write(key, "");
    }
    s.w.env->pass(15s);
    CHECK(waiting.ended());
}

TEST_CASE("a wait for a latch ends at its time", "[latch]") {
    latch_settings s;
    CHECK_FALSE(s.w.await(s.l.wait_for(0s)));
    const auto began = s.w.env->now();
    CHECK_FALSE(s.w.await(s.l.wait_for(20s)));
    CHECK(s.w.env->now() - began >= 20s);
    CHECK(s.w.env->now() - began < 21s);
    s.w.env->decide = [](const call_request&) { return support::lost(); };
    auto blind = s.w.start(s.l.wait_for(1s));
    s.w.env->pass(10s);
    CHECK(blind.code() == errc::timed_out);
    latch fresh(s.session, "l", 3);
    auto first = s.w.start(fresh.wait());
    s.w.env->pass(10s);
    CHECK(first.code() == errc::timed_out);
}

TEST_CASE("a wait for a latch outlives its session and its object", "[latch]") {
    latch_settings s;
    std::optional<latch> l(std::in_place, s.session, "l", 1);
    auto waiting = s.w.start(l->wait());
    l.reset();
    s.w.env->pass(1s);
    (void)s.session.orphan();
    s.w.env->pass(1min);
    CHECK_FALSE(waiting.ended());
    s.w.etcd->write("l/1", "");
    s.w.env->pass(1s);
    waiting.get();
}

TEST_CASE("a count whose answer is lost counts once", "[latch]") {
    for (const auto& fate :
         {support::broken(), support::lost(), support::unanswered(), support::late(8s)}) {
        latch_settings s;
        support::fate_of(s.w, is_count, {fate});
        CHECK(s.w.await(s.l.count_down()) == 2);
        s.w.env->pass(10s);
        CHECK(s.counted() == 1);
    }
    latch_settings s;
    s.w.env->decide = [](const call_request& r) {
        return is_count(r) ? support::unanswered() : scripted_env::fate();
    };
    auto counting = s.w.start(s.l.count_down());
    s.w.env->pass(10s);
    CHECK(counting.code() == errc::outcome_unknown);
    CHECK(s.counted() == 1);
    // whether the number was stored is no doubt
    latch_settings t;
    t.w.env->decide = [](const call_request&) { return support::unanswered(); };
    auto reading = t.w.start(t.l.remaining());
    t.w.env->pass(10s);
    CHECK(reading.code() == errc::timed_out);
}

TEST_CASE("a count that is refused after one without an answer may have been counted", "[latch]") {
    latch_settings s;
    CHECK(s.w.await(s.l.remaining()) == 3);
    support::fate_of(s.w, is_count, {support::unanswered()});
    auto counting = s.w.start(s.l.count_down());
    s.w.env->pass(100ms);
    CHECK(s.counted() == 1);
    s.w.etcd->denied = "l/";
    s.w.env->pass(20s);
    CHECK(counting.code() == errc::outcome_unknown);
    s.w.etcd->denied = std::nullopt;
    CHECK(s.w.await(s.l.remaining()) == 2);
    s.w.etcd->denied = "l/";
    auto refused = s.w.start(s.l.count_down());
    s.w.env->pass(20s);
    CHECK(refused.code() == coetcd::server_errc::permission_denied);
    CHECK(s.counted() == 1);
}

TEST_CASE("a count is in doubt if etcd says that it has no space: it may say so afterwards",
          "[latch]") {
    latch_settings s;
    CHECK(s.w.await(s.l.remaining()) == 3);
    s.w.env->on_call = [serve = s.w.env->on_call](const call_request& r, coetcd::detail::reply& a) {
        serve(r, a);
        if (is_count(r)) {
            a.status = 429;
            a.body = R"({"code":8,"message":"etcdserver: mvcc: database space exceeded"})";
        }
    };
    auto counting = s.w.start(s.l.count_down());
    s.w.env->pass(20s);
    CHECK(counting.code() == errc::outcome_unknown);
    CHECK(s.counted() == 1);
}

TEST_CASE("cancelled at any moment, a latch has counted once or not", "[latch][cancellation]") {
    for (auto when = 0us; when < 6ms; when += 500us) {
        latch_settings s;
        auto counting = s.w.start(s.l.count_down());
        auto waiting = s.w.start(s.l.wait());
        s.w.env->pass(when);
        counting.cancel();
        waiting.cancel();
        s.w.env->pass(0ms);
        CHECK(counting.ended());
        CHECK(waiting.code() == asio::error::operation_aborted);
        s.w.env->pass(15s);
        CHECK(s.counted() <= 1);
        CHECK(s.w.etcd->watches() == 0);
        CHECK(s.w.await(s.l.remaining()) == 3 - static_cast<std::int64_t>(s.counted()));
    }
}

TEST_CASE("what is no latch is told, and what cannot be one refused", "[latch]") {
    latch_settings s;
    CHECK_THROWS_AS(latch(s.session, "", 1), std::invalid_argument);
    CHECK_THROWS_AS(latch(s.session, "l", 0), std::invalid_argument);
    s.w.etcd->write("l.total", "many");
    for (int call = 0; call != 3; ++call) {
        const auto code = [&] {
            if (call == 0) {
                auto b = s.w.start(s.l.count_down());
                s.w.env->pass(1s);
                return b.code();
            }
            if (call == 1) {
                auto b = s.w.start(s.l.remaining());
                s.w.env->pass(1s);
                return b.code();
            }
            auto b = s.w.start(s.l.wait());
            s.w.env->pass(1s);
            return b.code();
        };
        CHECK(code() == errc::wrong_kind);
    }
    CHECK(s.counted() == 0);
    (void)s.session.orphan();
    auto counting = s.w.start(s.l.count_down());
    s.w.env->pass(1s);
    CHECK(counting.code() == errc::session_closed);
    latch taken = std::move(s.l);
    CHECK_THROWS_AS(s.l.count_down(), std::logic_error); // NOLINT(bugprone-use-after-move)
    CHECK_THROWS_AS(s.l.remaining(), std::logic_error);
    CHECK_THROWS_AS(s.l.wait(), std::logic_error);
    CHECK_THROWS_AS(s.l.wait_for(1s), std::logic_error);
}
