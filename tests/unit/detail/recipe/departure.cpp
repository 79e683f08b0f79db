// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/recipe/departure.hpp>
#include <coetcd/mutex.hpp>

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/locks.hpp"
#include "support/world.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::session_state;
using coetcd::detail::call_request;
using coetcd::detail::rpc;
using support::background;
using support::is_enter;
using support::owner;
using support::scripted_env;
using support::world;

namespace {

/// Ends when it is cancelled; calls `f` in the midst of that.
asio::awaitable<void> until_cancelled(std::function<void()> f) {
    auto begin = [f = std::move(f)](auto handler) {
        const auto waiting = std::make_shared<decltype(handler)>(std::move(handler));
        asio::get_associated_cancellation_slot(*waiting).assign(
            [f, waiting](asio::cancellation_type) {
                f();
                asio::post(asio::get_associated_executor(*waiting), [waiting] {
                    std::move (*waiting)(coetcd::error_code(asio::error::operation_aborted));
                });
            });
    };
    auto token = asio::use_awaitable;
    auto waiting = asio::async_initiate<asio::use_awaitable_t<>, void(coetcd::error_code)>(
        std::move(begin), token);
    co_await std::move(waiting);
}

} // namespace

TEST_CASE("one bad answer never costs a session", "[departure]") {
    const std::pair<unsigned, const char*> answers[] = {
        {404, "<html>404 page not found</html>"},
        {404, "default backend - 404"},
        {429, "<html>429 Too Many Requests</html>"},
        {401, "<html>401 Authorization Required</html>"},
        {403, "<html>403 Forbidden</html>"},
        {302, "<html>302 Found</html>"},
        {503, "<html>503 Service Unavailable</html>"},
        {200, "<html>maintenance</html>"},
        {200, ""},
        {200, "{"},
        {403, R"({"error":"etcdserver: permission denied","code":7})"},
        {400, R"({"error":"etcdserver: duplicate key given in txn request","code":3})"},
        {404, R"({"error":"Not Found","code":5,"message":"Not Found"})"},
    };
    for (const auto& [status, body] : answers) {
        for (const bool unresolved : {false, true}) {
            owner all;
            auto& [w, client, session, mutex] = all;
            coetcd::mutex other(session, "other");
            w.await(other.lock());
            w.env->decide = [first = unresolved](const call_request& r) mutable {
                scripted_env::fate f;
                f.breaks = is_enter(r) && std::exchange(first, false);
                return f;
            };
            w.await(mutex.lock());
            bool bad = true;
            w.env->on_call = [&, serve = w.env->on_call, s = status, b = body](
                                 const call_request& r, coetcd::detail::reply& answer) {
                if (bad && r.what == rpc::txn) {
                    answer.status = s;
                    answer.body = b;
                } else {
                    serve(r, answer);
                }
            };
            auto unlocking = w.start(mutex.unlock());
            w.env->pass(50ms);
            bad = false;
            w.env->pass(10s);
            INFO(status << ": " << body << ", unresolved " << unresolved);
            REQUIRE(unlocking.ended());
            REQUIRE(session.state() == session_state::active);
            REQUIRE(other.owns_lock());
            REQUIRE(w.etcd->under("m/").empty());
            w.await(mutex.lock());
        }
    }
}

TEST_CASE("where there is no space the key goes at once, and the epoch changes later",
          "[departure]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    int sent = 0;
    w.env->decide = [&sent, first = true](const call_request& r) mutable {
        sent += r.what == rpc::txn;
        scripted_env::fate f;
        f.breaks = is_enter(r) && std::exchange(first, false);
        return f;
    };
    w.await(mutex.lock());
    w.etcd->no_space = true;
    auto unlocking = w.start(mutex.unlock());
    w.env->pass(50ms);
    REQUIRE(unlocking.code() == coetcd::server_errc::resource_exhausted);
    REQUIRE(w.etcd->under("m/").empty());
    sent = 0;
    w.env->pass(60s); // many times its ttl
    REQUIRE(session.state() == session_state::active);
    REQUIRE(w.etcd->under("m.").empty());
    REQUIRE(sent <= 250); // two each time, after pauses of up to a second
    w.etcd->no_space = false;
    w.env->pass(1100ms);
    REQUIRE(w.etcd->under("m.").size() == 1);
    w.await(mutex.lock());
}

TEST_CASE("an outage ends a session by its own deadline, whatever is to be cleaned up",
          "[departure]") {
    owner all(coetcd::session_options(20s));
    auto& [w, client, session, mutex] = all;
    const coetcd::session quiet = w.await(coetcd::session::open(client, {20s}));
    std::optional<coetcd::mutex> dropped(std::in_place, session, "n");
    w.await(dropped->lock());
    bool calls_fail = true;
    bool renewals_fail = true;
    w.env->decide = [&](const call_request& r) {
        scripted_env::fate f;
        f.refused = r.what == rpc::lease_keep_alive ? renewals_fail : calls_fail;
        return f;
    };
    dropped.reset();
    w.env->pass(15s);
    REQUIRE(quiet.state() == session_state::suspect);
    REQUIRE(session.state() == session_state::suspect);
    renewals_fail = false;
    w.env->pass(11s); // it has failed for more than a ttl, most of which was an outage
    REQUIRE(session.state() == session_state::active);
    calls_fail = false;
    w.env->pass(6s);
    REQUIRE(session.state() == session_state::active);
    REQUIRE(w.etcd->under("n/").empty());
    // Another one, from which nothing recovers.
    w.await(mutex.lock());
    calls_fail = renewals_fail = true;
    auto unlocking = w.start(mutex.unlock());
    w.env->pass(20s);
    REQUIRE(unlocking.code() == errc::unavailable);
    REQUIRE(quiet.reason() == coetcd::session_end::deadline);
    REQUIRE(session.reason() == coetcd::session_end::deadline);
}

TEST_CASE("a storm of cancellations costs no session its lease", "[departure][cancellation]") {
    for (const int names : {1, 5, 500, 15'000}) {
        owner all;
        auto& [w, client, session, mutex] = all;
        w.await(mutex.lock());
        std::vector<coetcd::mutex> wanted;
        for (int i = 0; i != names; ++i) {
            wanted.emplace_back(session, "n" + std::to_string(i));
        }
        w.env->round_trip = 1500ms; // etcd is slow
        std::size_t next = 0;
        for (int round = 0; round != 3000; ++round) {
            std::vector<background<void>> storm;
            for (int i = 0; i != 5; ++i) {
                storm.push_back(w.start(wanted[next++ % wanted.size()].lock()));
            }
            w.env->pass(2ms);
            for (auto& one : storm) {
                one.cancel();
            }
        }
        INFO("15,000 attempts for " << names << " locks in 6 s");
        const auto is_place = [](const auto& k) { return k.first.find('/') != std::string::npos; };
        for (auto passed = 0s; passed < 60s; passed += 1s) {
            w.env->pass(1s);
            REQUIRE(session.state() == session_state::active);
            REQUIRE(mutex.owns_lock());
        }
        REQUIRE(std::count_if(w.etcd->keys.begin(), w.etcd->keys.end(), is_place) == 1);
        w.env->round_trip = 2ms;
        w.await(wanted.front().lock());
    }
}

TEST_CASE("what a lost session waits for goes with one request", "[departure]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::session session = w.await(coetcd::session::open(client));
    coetcd::mutex mine(session, "mine");
    w.await(mine.lock());
    std::vector<coetcd::mutex> wanted;
    std::vector<background<void>> waiting;
    for (int i = 0; i != 200; ++i) {
        const std::string name = "n" + std::to_string(i);
        w.etcd->write(name + "/stray", "x");
        wanted.emplace_back(session, name);
        waiting.push_back(w.start(wanted.back().lock()));
    }
    w.env->pass(1s);
    REQUIRE(w.etcd->keys.size() == 401);
    w.env->renews = false;
    w.env->calls.clear();
    w.env->pass(10s);
    REQUIRE(session.reason() == coetcd::session_end::deadline);
    for (auto& one : waiting) {
        REQUIRE(one.code() == errc::session_lost);
    }
    REQUIRE_FALSE(w.await(mine.unlock()));
    REQUIRE(w.etcd->keys.size() == 200);
    REQUIRE(support::count(w, support::is_release) == 0);
    REQUIRE(support::count(w, [](const call_request& r) { return r.what == rpc::lease_revoke; }) ==
            1);
}

TEST_CASE("a cancellation handler may destroy other locks of the session", "[departure]") {
    for (int how = 0; how != 4; ++how) {
        owner all;
        auto& [w, client, session, mutex] = all;
        std::optional<coetcd::mutex> before(std::in_place, session, "before");
        std::optional<coetcd::mutex> after(std::in_place, session, "after");
        std::optional<coetcd::mutex> waiting(std::in_place, session, "after");
        w.await(before->lock());
        auto body = [&]() -> asio::awaitable<void> {
            std::function<void()> destroy = [&] {
                before.reset();
                after.reset();
                waiting.reset();
            };
            auto work = until_cancelled(std::move(destroy));
            co_await std::move(work);
        };
        auto working = w.start(coetcd::with_lock(mutex, body));
        w.env->pass(20ms);
        w.await(after->lock());
        auto queued = w.start(waiting->lock());
        w.env->pass(20ms);
        asio::post(*w.context, [&] { // so that the cancellation comes in the midst of it
            if (how == 0) {
                (void)session.close();
            } else if (how == 1) {
                (void)session.orphan();
            } else if (how == 2) {
                w.env->stall(9500ms);
                (void)after->owns_lock(); // which finds out
            } else {
                w.etcd->revoke(session.lease());
            }
        });
        w.env->pass(4s);
        INFO("how " << how);
        REQUIRE_FALSE(after);
        w.env->pass(1s);
        REQUIRE(working.code() == coetcd::condition::ownership_lost);
        REQUIRE(queued.code() == coetcd::condition::ownership_lost);
        REQUIRE(w.etcd->keys.size() == (how == 1 ? 3 : 0));
    }
}
