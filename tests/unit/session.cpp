// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/election.hpp>
#include <coetcd/multi_lock.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/observer.hpp>
#include <coetcd/semaphore.hpp>
#include <coetcd/session.hpp>

#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/locks.hpp"
#include "support/race.hpp"
#include "support/world.hpp"
#include "support/writes.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::session_end;
using coetcd::session_state;
using coetcd::detail::call_request;
using coetcd::detail::rpc;
using support::background;
using support::reach;
using support::scripted_env;
using support::world;

namespace {

std::size_t renewals(const world& w) {
    return static_cast<std::size_t>(
        std::count_if(w.env->calls.begin(), w.env->calls.end(), [](const call_request& r) {
            return r.what == rpc::lease_keep_alive;
        }));
}

/// Some answers say that a lease lasts for longer than it does.
void overstate(world& w, rpc in, std::chrono::seconds said, std::size_t times = ~std::size_t{0}) {
    w.env->on_call = [in, said, times, serve = w.env->on_call](const call_request& r,
                                                               coetcd::detail::reply& a) mutable {
        serve(r, a);
        constexpr std::string_view field = "\"TTL\":\"";
        const auto at = a.body.find(field);
        if (r.what == in && at != a.body.npos && times != 0) {
            --times;
            const auto begin = at + field.size();
            a.body.replace(begin, a.body.find('"', begin) - begin, std::to_string(said.count()));
        }
    };
}

const std::string lease_gone = R"({"error":{"grpc_code":5,"http_code":404,)"
                               R"("message":"etcdserver: requested lease not found"}})";

} // namespace

TEST_CASE("open() grants a lease in one round trip", "[session]") {
    world w;
    const coetcd::client client = w.client();
    const coetcd::session s = w.await(coetcd::session::open(client, {5s}));
    REQUIRE(w.env->calls.size() == 1);
    REQUIRE(w.etcd->leases() == 1);
    REQUIRE(s.lease() > 0);
    REQUIRE(s.ttl() == 5s);
    REQUIRE(s.state() == session_state::active);
    REQUIRE(s.reason() == session_end::none);
    // Counted from when the request was sent, less a margin.
    REQUIRE(s.remaining() == 4500ms - 2ms);
}

TEST_CASE("a ttl that is not positive is refused before anything is sent", "[session]") {
    world w;
    const coetcd::client client = w.client();
    REQUIRE_THROWS_WITH(coetcd::session::open(client, 0s), support::contains("ttl"));
    REQUIRE_THROWS_WITH(coetcd::session::open(client, -1s), support::contains("ttl"));
    REQUIRE_THROWS_WITH(coetcd::session::open(client, 10'000'000'000s), support::contains("ttl"));
    REQUIRE_THROWS_WITH(coetcd::session::adopt(client, 0), support::contains("lease"));
    REQUIRE(w.env->calls.empty());
}

TEST_CASE("the ttl that etcd grants counts once a renewal says the same", "[session]") {
    world w;
    const coetcd::client client = w.client();
    const coetcd::session s = w.await(coetcd::session::open(client, {1s}));
    REQUIRE(s.ttl() == 1s);
    w.env->pass(500ms);
    REQUIRE(s.ttl() == 2s);
    w.env->pass(10s);
    REQUIRE(s.state() == session_state::active);
}

TEST_CASE("sec.ttl: no answer makes a session trust its lease for longer than it lasts",
          "[session][security]") {
    struct {
        const char* what;
        rpc in;
        std::chrono::seconds said;
    } const rows[] = {
        {"grants say that it lasts for ever", rpc::lease_grant, 9'000'000'000s},
        {"grants say a little more", rpc::lease_grant, 6s},
        {"renewals say that it lasts for ever", rpc::lease_keep_alive, 9'000'000'000s},
        {"renewals say a little more", rpc::lease_keep_alive, 4s},
    };
    for (const auto& row : rows) {
        for (const std::size_t times : {std::size_t{1}, ~std::size_t{0}}) {
            CAPTURE(row.what, times);
            world w;
            overstate(w, row.in, row.said, times);
            const coetcd::client client = w.client();
            const coetcd::session s = w.await(coetcd::session::open(client, {3s}));
            CHECK(s.ttl() == 3s);
            w.env->pass(10s);
            CHECK(s.state() == session_state::active);
            CHECK(s.ttl() == 3s);
            CHECK(w.etcd->leases() == 1);
            CHECK(renewals(w) >= 9);
        }
    }
}

TEST_CASE("sec.ttl: adopt() believes no single answer", "[session][security]") {
    for (const rpc in : {rpc::lease_keep_alive, rpc::lease_time_to_live}) {
        world w;
        const coetcd::client client = w.client();
        const coetcd::lease_id lease = w.await(client.lease_grant(9s)).id;
        if (in == rpc::lease_keep_alive) {
            overstate(w, in, 3600s);
        } else {
            w.env->on_call = [serve = w.env->on_call](const call_request& r,
                                                      coetcd::detail::reply& a) {
                serve(r, a);
                if (r.what == rpc::lease_time_to_live) {
                    a.body.replace(a.body.find("grantedTTL") + 13, 1, "3600");
                }
            };
        }
        const auto s = w.await(coetcd::session::adopt(client, lease));
        REQUIRE(s);
        CHECK(s->ttl() == 9s);
        w.env->pass(60s);
        CHECK(s->state() == session_state::active);
        CHECK(s->ttl() == 9s);
    }
}

TEST_CASE("sec.ttl: a grant that is too good to be true is worth what was asked for",
          "[lease][security]") {
    world w;
    const coetcd::client client = w.client();
    overstate(w, rpc::lease_grant, 9'000'000'000s);
    CHECK(w.await(client.lease_grant(5s)).ttl == 5s);
    CHECK(w.await(client.lease_grant(5s, 4711)).ttl == 5s);
}

TEST_CASE("a session is renewed three times in a ttl", "[session]") {
    world w;
    const coetcd::client client = w.client();
    const coetcd::session s = w.await(coetcd::session::open(client, {9s}));
    w.env->pass(90s);
    REQUIRE(renewals(w) >= 27);
    REQUIRE(renewals(w) <= 33);
    REQUIRE(s.state() == session_state::active);
    REQUIRE(w.etcd->leases() == 1);
}

TEST_CASE("a failed renewal makes a session suspect, the next success active again", "[session]") {
    world w;
    const coetcd::client client = w.client();
    const coetcd::session s = w.await(coetcd::session::open(client, {9s}));
    w.env->renews = false;
    w.env->pass(6s);
    REQUIRE(s.state() == session_state::suspect);
    REQUIRE(s.reason() == session_end::none);
    w.env->renews = true;
    w.env->pass(2s);
    REQUIRE(s.state() == session_state::active);
}

TEST_CASE("a renewal that fails says nothing of one that was sent after it", "[session]") {
    world w;
    const coetcd::client client = w.client();
    const coetcd::session s = w.await(coetcd::session::open(client, {9s}));
    w.await(client.put("m/0", "in the way"));
    coetcd::mutex m(s, "m");
    auto waiting = w.start(m.lock());
    w.env->pass(2s);
    w.env->decide = [](const call_request&) {
        scripted_env::fate f;
        f.answered = false;
        return f;
    };
    while (renewals(w) == 0) {
        w.env->pass(10ms);
    }
    w.env->decide = nullptr;
    w.etcd->erase(w.etcd->under("m/").back()); // the waiter renews the lease to learn why
    w.env->pass(100ms);
    CHECK(waiting.code() == errc::lock_lost);
    REQUIRE(renewals(w) == 2);
    CHECK(s.state() == session_state::active);
    w.env->pass(2100ms); // the first one has failed
    CHECK(s.state() == session_state::active);
    CHECK(renewals(w) == 2); // and is not tried again
}

TEST_CASE("a session without renewals is lost before etcd can end its lease", "[session]") {
    for (const auto ttl : {2s, 5s, 10s, 60s}) {
        for (auto down = 0ms; down < 1000ms; down += 130ms) {
            world w;
            const coetcd::client client = w.client();
            const coetcd::session s = w.await(coetcd::session::open(client, {ttl}));
            auto lost = w.start(s.wait_lost());
            w.env->pass(down);
            // Requests arrive, so that etcd goes on renewing; the answers do not.
            w.env->decide = [](const call_request&) {
                scripted_env::fate f;
                f.answered = false;
                f.late = 100ms;
                return f;
            };
            w.env->pass(std::chrono::nanoseconds(ttl) + 1s);
            INFO("ttl " << ttl.count() << " down after " << down.count());
            REQUIRE(lost.get() == session_end::deadline);
            REQUIRE(s.state() == session_state::lost);
            REQUIRE(s.remaining() == 0ns);
        }
    }
}

TEST_CASE("validity counts from the sending of a renewal, not from its answer", "[session]") {
    world w;
    const coetcd::client client = w.client();
    const coetcd::session s = w.await(coetcd::session::open(client, {9s}));
    w.env->round_trip = 1500ms;
    auto last = s.remaining();
    bool renewed = false;
    for (int i = 0; i < 60; ++i) {
        w.env->pass(100ms);
        if (s.remaining() > last) {
            renewed = true; // within the last step, by what was sent a latency ago
            REQUIRE(s.remaining() <= 8100ms - 1500ms);
        }
        last = s.remaining();
    }
    REQUIRE(renewed);
}

TEST_CASE("a lease that is revoked elsewhere is noticed with the next renewal", "[session]") {
    world w;
    const coetcd::client client = w.client();
    const coetcd::session s = w.await(coetcd::session::open(client, {9s}));
    auto lost = w.start(s.wait_lost());
    w.env->pass(1s);
    w.etcd->revoke(s.lease());
    w.env->pass(3s);
    REQUIRE(lost.get() == session_end::expired);
    REQUIRE(s.reason() == session_end::expired);
}

TEST_CASE("a stall longer than the ttl is noticed in the first instruction", "[session]") {
    world w;
    const coetcd::client client = w.client();
    const coetcd::session s = w.await(coetcd::session::open(client, {9s}));
    auto lost = w.start(s.wait_lost());
    w.env->stall(9s);
    REQUIRE(s.state() == session_state::lost);
    REQUIRE(s.reason() == session_end::deadline);
    w.env->pass(0s);
    REQUIRE(lost.get() == session_end::deadline);
    w.env->pass(60s);
    REQUIRE(s.state() == session_state::lost); // it never comes back
}

TEST_CASE("renewals go on at other endpoints", "[session]") {
    world w;
    const coetcd::client client = w.client(coetcd::endpoints("http://a", "http://b", "http://c"));
    const coetcd::session s = w.await(coetcd::session::open(client, {5s}));
    std::string bad = w.env->calls.back().to.host;
    w.env->decide = [&](const call_request& r) {
        scripted_env::fate f;
        f.arrives = r.to.host != bad; // it hangs
        return f;
    };
    w.env->pass(60s);
    REQUIRE(s.state() == session_state::active);
    bad = w.env->calls.back().to.host;
    w.env->pass(60s);
    REQUIRE(s.state() == session_state::active);
}

TEST_CASE("sec.blame: a member that refuses renewals ends no session", "[session][security]") {
    struct {
        unsigned status;
        const char* body;
    } const rows[] = {
        {400, R"({"code":3,"message":"etcdserver: odd"})"},
        {404, R"({"code":5,"message":"no route matched"})"},
        {409, R"({"code":6,"message":"etcdserver: odd"})"},
        {403, R"({"code":7,"message":"etcdserver: permission denied"})"},
        {429, R"({"code":8,"message":"etcdserver: too many requests"})"},
        {429, R"({"code":8,"message":"etcdserver: mvcc: database space exceeded"})"},
        {400, R"({"code":9,"message":"etcdserver: odd"})"},
        {400, R"({"code":11,"message":"etcdserver: odd"})"},
        {401, R"({"code":16,"message":"etcdserver: invalid auth token"})"},
        {200, R"({"error":{"grpc_code":7,"message":"etcdserver: permission denied"}})"},
    };
    for (const auto& row : rows) {
        CAPTURE(row.body);
        world w;
        const coetcd::client client =
            w.client(coetcd::endpoints("http://a", "http://b", "http://c"));
        const coetcd::session s = w.await(coetcd::session::open(client, {5s}));
        const std::string bad = w.env->calls.back().to.host;
        std::size_t refused = 0;
        w.env->on_call = [&, serve = w.env->on_call](const call_request& r,
                                                     coetcd::detail::reply& a) {
            if (r.what == rpc::lease_keep_alive && r.to.host == bad) {
                ++refused;
                a.status = row.status;
                a.body = row.body;
            } else {
                serve(r, a);
            }
        };
        for (int i = 0; i != 300; ++i) {
            w.env->pass(100ms);
            REQUIRE(s.state() == session_state::active);
        }
        CHECK(refused >= 1);
        CHECK(refused <= 2); // the others are asked from then on
    }
}

TEST_CASE("what all members say of a renewal is told", "[session][security]") {
    world w;
    const coetcd::client client = w.client(coetcd::endpoints("http://a", "http://b", "http://c"));
    const coetcd::session s = w.await(coetcd::session::open(client, {5s}));
    w.env->on_call = [serve = w.env->on_call](const call_request& r, coetcd::detail::reply& a) {
        serve(r, a);
        if (r.what == rpc::lease_keep_alive) {
            a.status = 403;
            a.body = R"({"code":7,"message":"etcdserver: permission denied"})";
        }
    };
    w.env->pass(4s);
    CHECK(s.state() == session_state::suspect);
    CHECK(renewals(w) >= 6);
    CHECK(renewals(w) <= 60); // a round of three after each pause
    w.env->pass(1s);
    CHECK(s.reason() == session_end::deadline);
}

TEST_CASE("a member that says that the lease is gone is believed, in etcd's words",
          "[session][security]") {
    world w;
    const coetcd::client client = w.client(coetcd::endpoints("http://a", "http://b", "http://c"));
    const coetcd::session s = w.await(coetcd::session::open(client, {5s}));
    w.env->on_call = [serve = w.env->on_call](const call_request& r, coetcd::detail::reply& a) {
        serve(r, a);
        if (r.what == rpc::lease_keep_alive) {
            a.body = lease_gone;
        }
    };
    w.env->pass(2s);
    CHECK(s.reason() == session_end::expired);
    CHECK(renewals(w) == 1);
    CHECK_FALSE(w.await(client.lease_keep_alive_once(s.lease())));
}

TEST_CASE("which of several sessions is meant is asked for", "[session][security]") {
    world w;
    const coetcd::client client = w.client();
    const coetcd::session one = w.await(coetcd::session::open(client, {5s}));
    const coetcd::session two = w.await(coetcd::session::open(client, {5s}));
    std::size_t shared = 0;
    w.env->on_call = [&, serve = w.env->on_call](const call_request& r, coetcd::detail::reply& a) {
        serve(r, a);
        if (r.what == rpc::lease_keep_alive && r.body.find('\n') != r.body.npos) {
            ++shared;
            a.body = lease_gone;
        }
    };
    w.env->round_trip = 1s; // they are due while one is under way
    for (int i = 0; shared == 0 && i != 1000; ++i) {
        w.env->pass(100ms);
    }
    w.env->round_trip = 2ms;
    w.env->pass(3s);
    CHECK(one.state() == session_state::active);
    CHECK(two.state() == session_state::active);
}

TEST_CASE("close() revokes the lease, once", "[session]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::session s = w.await(coetcd::session::open(client));
    auto lost = w.start(s.wait_lost());
    auto closing = w.start(s.close());
    REQUIRE(s.state() == session_state::lost); // at the call
    w.env->pass(2ms);
    closing.get();
    REQUIRE(lost.get() == session_end::closed);
    REQUIRE(w.etcd->leases() == 0);
    const std::size_t calls = w.env->calls.size();
    auto again = w.start(s.close());
    w.env->pass(100s);
    again.get();
    REQUIRE(w.env->calls.size() == calls); // and it is renewed no more
}

TEST_CASE("close() gives up after the ttl, or five seconds", "[session]") {
    for (const auto& [ttl, longest] : {std::pair{3s, 3s}, std::pair{60s, 5s}}) {
        world w;
        const coetcd::client client = w.client();
        coetcd::session s = w.await(coetcd::session::open(client, {ttl}));
        w.env->decide = [](const call_request&) {
            scripted_env::fate f;
            f.refused = true;
            return f;
        };
        auto closing = w.start(s.close());
        w.env->pass(longest + 100ms);
        REQUIRE(closing.code() == errc::unavailable);
        REQUIRE(s.reason() == session_end::closed);
    }
}

TEST_CASE("close() takes effect at the call, whatever becomes of its result", "[session]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::session s = w.await(coetcd::session::open(client));
    (void)s.close(); // it is not awaited
    REQUIRE(s.reason() == session_end::closed);
    w.env->pass(2ms);
    REQUIRE(w.etcd->leases() == 0);

    // In a coroutine that is cancelled already nothing can be awaited.
    s = w.await(coetcd::session::open(client));
    auto work = [&]() -> asio::awaitable<void> {
        coetcd::detail::notifier never(*w.env);
        try {
            (void)co_await never.wait();
        } catch (const boost::system::system_error&) {
        }
        co_await s.close();
    };
    auto working = w.start(work());
    w.env->pass(1ms);
    working.cancel();
    w.env->pass(2ms);
    REQUIRE(working.code() == asio::error::operation_aborted);
    REQUIRE(s.reason() == session_end::closed);
    REQUIRE(w.etcd->leases() == 0);
}

TEST_CASE("close() that is cut off revokes the lease in the background",
          "[session][cancellation]") {
    for (const bool destroyed : {false, true}) {
        for (auto when = 0ms; when < 4ms; ++when) {
            world w;
            const coetcd::client client = w.client();
            std::optional<coetcd::session> s = w.await(coetcd::session::open(client));
            bool first = true;
            w.env->decide = [&](const call_request& r) {
                scripted_env::fate f;
                f.refused = r.what == rpc::lease_revoke && std::exchange(first, false);
                return f;
            };
            auto closing = w.start(s->close());
            w.env->pass(when);
            closing.cancel();
            if (destroyed) {
                s.reset();
            }
            w.env->pass(0ms);
            INFO("destroyed " << destroyed << " after " << when.count() << " ms");
            REQUIRE(closing.code() == asio::error::operation_aborted);
            w.env->pass(100ms);
            REQUIRE(w.etcd->leases() == 0);
        }
    }
}

TEST_CASE("close() ends by a lack of memory in the midst", "[session]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::session s = w.await(coetcd::session::open(client));
    w.env->decide = [](const call_request& r) -> scripted_env::fate {
        if (r.what == rpc::lease_revoke) {
            throw std::bad_alloc();
        }
        return {};
    };
    auto closing = w.start(s.close());
    CHECK_THROWS_AS(w.env->pass(10ms), std::bad_alloc); // it comes out of the event loop
    w.env->pass(10ms);
    CHECK(closing.code() == errc::outcome_unknown);
    w.env->decide = nullptr;
    w.await(s.close());
}

TEST_CASE("close() that failed can be called again", "[session]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::session s = w.await(coetcd::session::open(client, {60s}));
    bool down = true;
    w.env->decide = [&](const call_request&) {
        scripted_env::fate f;
        f.refused = down;
        return f;
    };
    auto closing = w.start(s.close());
    w.env->pass(6s);
    REQUIRE(closing.code() == errc::unavailable);
    REQUIRE(w.etcd->leases() == 1);
    down = false;
    auto one = w.start(s.close());
    auto other = w.start(s.close()); // waits for the same request
    const std::size_t calls = w.env->calls.size();
    w.env->pass(10ms);
    one.get();
    other.get();
    REQUIRE(w.env->calls.size() == calls + 1);
    REQUIRE(w.etcd->leases() == 0);
}

TEST_CASE("close() does not fail with a request that began before it", "[session]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::session s = w.await(coetcd::session::open(client, {60s}));
    bool silent = true;
    w.env->decide = [&](const call_request&) {
        scripted_env::fate f;
        f.answered = !silent;
        return f;
    };
    auto earlier = w.start(s.close());
    w.env->pass(4900ms); // that request has begun its last attempt
    auto later = w.start(s.close());
    silent = false;
    w.env->pass(2s);
    REQUIRE(earlier.ended());
    REQUIRE_FALSE(earlier.succeeded());
    later.get();
    REQUIRE(w.etcd->leases() == 0);
}

TEST_CASE("a session that could not be opened keeps nothing busy", "[session]") {
    world w;
    const coetcd::client client = w.client();
    w.env->decide = [](const call_request&) {
        scripted_env::fate f;
        f.answered = false; // it stands still
        return f;
    };
    auto opening = w.start(coetcd::session::open(client));
    w.env->pass(5001ms);
    REQUIRE(opening.code() == errc::outcome_unknown);
    w.env->pass(1100ms);
    w.context->restart();
    (void)w.context->run_for(1s);
    REQUIRE(w.context->stopped()); // it has run out of work
}

TEST_CASE("a session whose user could not be logged in keeps nothing busy", "[session]") {
    world w;
    coetcd::client_options o;
    o.credentials = coetcd::credentials("root", "secret");
    o.insecure_plain_text_credentials = true;
    o.attempt_timeout = 500ms;
    const coetcd::client client = w.client(o);
    w.env->decide = [](const call_request&) {
        scripted_env::fate f;
        f.answered = false; // it stands still
        return f;
    };
    auto opening = w.start(coetcd::session::open(client.with_timeout(1s)));
    w.env->pass(1001ms);
    REQUIRE(opening.code() == errc::timed_out);
    w.env->pass(500ms);
    w.context->restart();
    (void)w.context->run_for(1s);
    REQUIRE(w.context->stopped()); // it has run out of work
}

TEST_CASE("a login goes on as long as anybody waits for it", "[session]") {
    world w;
    coetcd::client_options o;
    o.credentials = coetcd::credentials("root", "secret");
    o.insecure_plain_text_credentials = true;
    w.etcd->require_user("root", "secret");
    struct logins final : coetcd::observer {
        void on_request(const coetcd::request_report& r) override {
            if (r.rpc == "authenticate") {
                attempts.push_back(r.attempt);
            }
        }
        std::vector<unsigned> attempts;
    };
    const auto seen = std::make_shared<logins>();
    o.observer = seen;
    const coetcd::client client = w.client(o);
    bool silent = true;
    w.env->decide = [&](const call_request&) {
        scripted_env::fate f;
        f.answered = !silent;
        return f;
    };
    auto hasty = w.start(client.with_timeout(100ms).get("k"));
    w.env->pass(200ms);
    REQUIRE(hasty.code() == errc::timed_out);
    auto patient = w.start(client.get("k")); // joins that login
    w.env->pass(2500ms);
    REQUIRE_FALSE(patient.ended());
    silent = false;
    w.env->pass(2s);
    REQUIRE(patient.succeeded());
    CHECK(seen->attempts == std::vector<unsigned>{0, 1, 2}); // of one
}

TEST_CASE("destroying a session revokes its lease in the background", "[session]") {
    world w;
    const coetcd::client client = w.client();
    std::optional<coetcd::session> s = w.await(coetcd::session::open(client));
    s.reset();
    w.env->pass(2ms);
    REQUIRE(w.etcd->leases() == 0);
    coetcd::session other = w.await(coetcd::session::open(client));
    const coetcd::session third = w.await(coetcd::session::open(client));
    coetcd::session moved = std::move(other);
    w.env->pass(10ms);
    REQUIRE(w.etcd->leases() == 2);
    moved = w.await(coetcd::session::open(client));
    w.env->pass(10ms);
    REQUIRE(w.etcd->leases() == 2);
    REQUIRE(moved.state() == session_state::active);
}

TEST_CASE("a waiter for a loss is told of the session's end", "[session]") {
    world w;
    const coetcd::client client = w.client();
    std::optional<coetcd::session> s = w.await(coetcd::session::open(client));
    auto lost = w.start(s->wait_lost());
    auto cancelled = w.start(s->wait_lost());
    w.env->pass(1s);
    cancelled.cancel();
    w.env->pass(0ms);
    REQUIRE(cancelled.code() == asio::error::operation_aborted);
    REQUIRE_FALSE(lost.ended());
    s.reset();
    w.env->pass(0ms);
    REQUIRE(lost.get() == session_end::closed);
}

namespace {

/// What an error says after "session: " or the like.
std::string reason_in(const std::string& text) {
    const std::size_t end = text.find(": ");
    REQUIRE(end != text.npos);
    return text.substr(end);
}

asio::awaitable<void> until_suspect(const coetcd::session& s) {
    (void)co_await s.wait_suspect();
}

} // namespace

TEST_CASE("a session says when it is in danger, and when no longer", "[session][suspect]") {
    world w;
    const coetcd::client client = w.client();
    const coetcd::session s = w.await(coetcd::session::open(client, {9s}));
    auto one = w.start(s.wait_suspect());
    auto other = w.start(s.wait_suspect());
    auto at_once = w.start(s.wait_active());
    w.env->pass(0s);
    REQUIRE(at_once.succeeded());
    w.env->pass(60s);
    REQUIRE_FALSE(one.ended());
    for (int round = 0; round != 3; ++round) {
        w.env->renews = false;
        reach(w, s, session_state::suspect);
        REQUIRE(one.ended());
        REQUIRE(one.get() >= s.remaining());
        REQUIRE(one.get() <= s.remaining() + 1ms);
        REQUIRE(one.get() > 3s);
        REQUIRE(one.get() < 6s);
        REQUIRE(other.get() == one.get());

        w.env->pass(1s); // and more renewals fail
        auto again = w.start(s.wait_suspect());
        auto active = w.start(s.wait_active());
        auto active_too = w.start(s.wait_active());
        w.env->pass(0s);
        REQUIRE(again.get() == s.remaining());
        w.env->pass(1s);
        REQUIRE_FALSE(active.ended());

        w.env->renews = true;
        reach(w, s, session_state::active);
        REQUIRE(active.succeeded());
        REQUIRE(active_too.succeeded());
        one = w.start(s.wait_suspect()); // for the next time
        other = w.start(s.wait_suspect());
        w.env->pass(20s);
        REQUIRE_FALSE(one.ended());
    }
}

TEST_CASE("what is held says that its session is in danger, and no longer", "[session][suspect]") {
    world w;
    const coetcd::client client = w.client();
    const coetcd::session s = w.await(coetcd::session::open(client, {9s}));
    coetcd::mutex m(s, "m");
    coetcd::multi_lock several(s, {coetcd::exclusive("a"), coetcd::exclusive("b")});
    coetcd::semaphore pool(s, "pool", 2);
    coetcd::election e(s, "e");
    const coetcd::held_lock one = w.await(m.scoped_lock());
    const coetcd::held_locks all = w.await(several.scoped_lock());
    const coetcd::permit permit = w.await(pool.acquire());
    const coetcd::leadership term = w.await(e.campaign("me"));
    std::vector<background<std::chrono::nanoseconds>> suspect;
    suspect.push_back(w.start(one.wait_suspect()));
    suspect.push_back(w.start(all.wait_suspect()));
    suspect.push_back(w.start(permit.wait_suspect()));
    suspect.push_back(w.start(term.wait_suspect()));
    w.env->pass(20s);
    w.env->renews = false;
    reach(w, s, session_state::suspect);
    std::vector<background<void>> active;
    active.push_back(w.start(one.wait_active()));
    active.push_back(w.start(all.wait_active()));
    active.push_back(w.start(permit.wait_active()));
    active.push_back(w.start(term.wait_active()));
    for (auto& each : suspect) {
        REQUIRE(each.ended());
        CHECK(each.get() > 3s);
    }
    w.env->pass(1s);
    for (auto& each : active) {
        CHECK_FALSE(each.ended());
    }
    w.env->renews = true;
    reach(w, s, session_state::active);
    for (auto& each : active) {
        CHECK(each.succeeded());
    }
    CHECK(one.owns_lock());
    w.env->renews = false;
    auto lost = w.start(term.wait_active());
    reach(w, s, session_state::suspect);
    lost = w.start(term.wait_active());
    reach(w, s, session_state::lost);
    w.env->pass(0s);
    CHECK_THROWS_AS(lost.get(), coetcd::error);
    CHECK_THROWS_AS((void)coetcd::held_lock().wait_suspect(), std::logic_error);
}

TEST_CASE("a wait for danger makes no request, and hurries no renewal", "[session][suspect]") {
    std::vector<std::size_t> calls;
    for (const int waiters : {0, 1, 5}) {
        world w;
        const coetcd::client client = w.client();
        const coetcd::session s = w.await(coetcd::session::open(client, {9s}));
        auto watch = [&]() -> asio::awaitable<void> {
            for (;;) {
                (void)co_await s.wait_suspect();
                co_await s.wait_active();
            }
        };
        std::vector<background<void>> all;
        for (int i = 0; i != waiters; ++i) {
            all.push_back(w.start(watch()));
        }
        for (int i = 0; i != 5; ++i) {
            w.env->renews = false;
            reach(w, s, session_state::suspect);
            w.env->pass(2s);
            w.env->renews = true;
            reach(w, s, session_state::active);
            w.env->pass(5s);
        }
        calls.push_back(w.env->calls.size());
    }
    CHECK(calls[0] > 20);
    CHECK(calls[1] == calls[0]);
    CHECK(calls[2] == calls[0]);
}

TEST_CASE("a wait for danger, or for its end, ends with the session", "[session][suspect]") {
    using maybe_session = std::optional<coetcd::session>;
    struct {
        const char* what;
        void (*happens)(world&, maybe_session&);
        errc expected;
        session_end why;
    } const rows[] = {
        {"the lease is revoked",
         [](world& w, maybe_session& s) {
             w.etcd->revoke(s->lease());
             w.env->renews = true;
             reach(w, *s, session_state::lost);
         },
         errc::session_lost,
         session_end::expired},
        {"the process stands still",
         [](world& w, maybe_session&) { w.env->stall(9s); },
         errc::session_lost,
         session_end::deadline},
        {"it is closed",
         [](world&, maybe_session& s) { (void)s->close(); },
         errc::session_closed,
         session_end::closed},
        {"it is orphaned",
         [](world&, maybe_session& s) { (void)s->orphan(); },
         errc::session_closed,
         session_end::orphaned},
        {"it is destroyed",
         [](world&, maybe_session& s) { s.reset(); },
         errc::session_closed,
         session_end::closed},
    };
    for (const auto& row : rows) {
        for (const bool in_danger : {false, true}) {
            CAPTURE(row.what, in_danger);
            world w;
            const coetcd::client client = w.client();
            maybe_session s = w.await(coetcd::session::open(client, {9s}));
            w.await(client.put("m/0", "in the way"));
            coetcd::mutex m(*s, "m");
            auto locking = w.start(m.lock());
            w.env->pass(1s);
            if (in_danger) {
                w.env->renews = false;
                reach(w, *s, session_state::suspect);
            }
            std::vector<background<void>> waiting;
            const auto wait = [&] {
                waiting.push_back(w.start(in_danger ? s->wait_active() : until_suspect(*s)));
                w.env->pass(0s);
            };
            wait();
            wait();
            w.env->pass(10ms);
            REQUIRE_FALSE(waiting[0].ended());
            row.happens(w, s);
            w.env->pass(0s);
            for (auto& each : waiting) {
                REQUIRE(each.code() == row.expected);
                REQUIRE(each.completions() == 1);
            }
            if (s) {
                REQUIRE(s->reason() == row.why);
                wait(); // in vain from the beginning
                REQUIRE(waiting.back().code() == row.expected);
            }
            // It says what others are told.
            w.env->pass(1s);
            REQUIRE(locking.code() == row.expected);
            const std::string told = support::failure_of(waiting.back()).what();
            CHECK_THAT(told, support::contains("session: "));
            CHECK(reason_in(told) == reason_in(support::failure_of(locking).what()));
            CHECK_THAT(told, support::contains(coetcd::describe(row.why)));
        }
    }
}

TEST_CASE("a session that is in danger to its end says why", "[session][suspect]") {
    world w;
    const coetcd::client client = w.client();
    const coetcd::session s = w.await(coetcd::session::open(client, {9s}));
    auto suspect = w.start(s.wait_suspect());
    w.env->renews = false;
    reach(w, s, session_state::suspect);
    REQUIRE(suspect.succeeded());
    auto active = w.start(s.wait_active());
    reach(w, s, session_state::lost);
    w.env->pass(0s);
    REQUIRE(s.reason() == session_end::deadline);
    REQUIRE(active.code() == errc::session_lost);
    REQUIRE_THROWS_WITH(active.get(), support::contains("the last attempt"));
    w.env->renews = true;
    w.env->pass(20s);
    auto again = w.start(s.wait_active()); // it never is
    w.env->pass(0s);
    REQUIRE(again.code() == errc::session_lost);
}

TEST_CASE("both waits for the state look at the clock first", "[session][suspect]") {
    for (const bool in_danger : {false, true}) {
        CAPTURE(in_danger);
        world w;
        const coetcd::client client = w.client();
        const coetcd::session s = w.await(coetcd::session::open(client, {9s}));
        if (in_danger) {
            w.env->renews = false;
            reach(w, s, session_state::suspect);
        }
        auto suspect = w.start(s.wait_suspect());
        auto active = w.start(s.wait_active());
        w.env->stall(9s); // before either has begun, and nobody has looked yet
        w.env->pass(0s);
        REQUIRE(suspect.code() == errc::session_lost);
        REQUIRE(active.code() == errc::session_lost);
    }
}

TEST_CASE("a wait for the state ends with the time of the session, whoever else is late",
          "[session][suspect]") {
    world w;
    const coetcd::client client = w.client();
    const coetcd::session s = w.await(coetcd::session::open(client, {9s}));
    w.env->renews = false;
    reach(w, s, session_state::suspect);
    // What renews it has no memory, and pauses time and again.
    w.env->decide = [](const call_request&) -> scripted_env::fate { throw std::bad_alloc(); };
    auto active = w.start(s.wait_active());
    w.env->pass(0s);
    const auto end = w.env->now() + s.remaining();
    while (!active.ended()) { // it does not look at the state
        w.env->pass(1ms);
    }
    CHECK(w.env->now() >= end);
    CHECK(w.env->now() <= end + 1ms);
    CHECK(active.code() == errc::session_lost);
    CHECK(s.reason() == session_end::deadline);
}

TEST_CASE("a wait for the state that is cancelled leaves the session as it is",
          "[session][suspect][cancellation]") {
    world w;
    const coetcd::client client = w.client();
    const coetcd::session s = w.await(coetcd::session::open(client, {9s}));
    auto cancelled = w.start(s.wait_suspect());
    auto suspect = w.start(s.wait_suspect());
    w.env->pass(1s);
    cancelled.cancel();
    w.env->pass(0s);
    REQUIRE(cancelled.code() == asio::error::operation_aborted);
    REQUIRE(s.state() == session_state::active);
    w.env->renews = false;
    reach(w, s, session_state::suspect);
    REQUIRE(suspect.succeeded()); // the other one has not noticed

    auto cut_off = w.start(s.wait_active());
    auto active = w.start(s.wait_active());
    w.env->pass(1s);
    cut_off.cancel();
    w.env->pass(0s);
    REQUIRE(cut_off.code() == asio::error::operation_aborted);
    REQUIRE(s.state() == session_state::suspect);
    w.env->renews = true;
    reach(w, s, session_state::active);
    REQUIRE(active.succeeded());
}

TEST_CASE("a wait for the state can be awaited from any executor",
          "[session][suspect][cancellation]") {
    for (const bool elsewhere : {false, true}) {
        CAPTURE(elsewhere);
        world w;
        const coetcd::client client = w.client();
        const coetcd::session s = w.await(coetcd::session::open(client, {9s}));
        support::race<std::chrono::nanoseconds> cancelled(w, s.wait_suspect(), elsewhere);
        support::race<std::chrono::nanoseconds> suspect(w, s.wait_suspect(), elsewhere);
        w.env->pass(1s);
        cancelled.ring_after(0);
        w.env->pass(0s);
        CHECK_FALSE(cancelled.result());
        w.env->renews = false;
        reach(w, s, session_state::suspect);
        w.env->pass(0s);
        CHECK(suspect.result().value() >= s.remaining());
        CHECK(suspect.result().value() <= s.remaining() + 1ms);
        support::race<void> cut_off(w, s.wait_active(), elsewhere);
        support::race<void> active(w, s.wait_active(), elsewhere);
        w.env->pass(1ms);
        cut_off.ring_after(0);
        w.env->pass(0s);
        CHECK_FALSE(cut_off.result());
        w.env->renews = true;
        reach(w, s, session_state::active);
        w.env->pass(0s);
        CHECK(active.result());
    }
}

TEST_CASE("an orphaned lease lives on for its ttl, and can be adopted", "[session]") {
    world w;
    const coetcd::client client = w.client();
    std::optional<coetcd::session> s = w.await(coetcd::session::open(client, {9s}));
    const coetcd::lease_id lease = s->orphan();
    REQUIRE(s->reason() == session_end::orphaned);
    s.reset();
    w.env->pass(5s);
    REQUIRE(w.etcd->leases() == 1);
    coetcd::session heir = w.await(coetcd::session::adopt(client, lease)).value();
    REQUIRE(heir.lease() == lease);
    REQUIRE(heir.ttl() == 9s);
    w.env->pass(60s);
    REQUIRE(heir.state() == session_state::active);
    (void)heir.orphan();
    w.env->pass(20s);
    REQUIRE_FALSE(w.await(coetcd::session::adopt(client, lease)));
}

TEST_CASE("adopt() || timer leaves the lease to another if the timer wins",
          "[session][cancellation]") {
    constexpr int most_hops = 30;
    for (const bool elsewhere : {false, true}) {
        int lost = 0;
        for (int hops = 0; hops != most_hops; ++hops) {
            INFO("elsewhere " << elsewhere << ", " << hops << " handlers later");
            world w;
            const auto watching = std::make_shared<support::answers>("lease_keep_alive");
            coetcd::client_options options;
            options.observer = watching;
            const coetcd::client client = w.client(std::move(options));
            const coetcd::lease_id lease = w.await(client.lease_grant(9s)).id;
            support::race<std::optional<coetcd::session>> first(
                w, coetcd::session::adopt(client, lease), elsewhere);
            watching->told = [&] { first.ring_after(hops); };
            w.env->pass(50ms);
            watching->told = nullptr;
            const bool adopted = first.result().has_value(); // it lives on in `first`
            lost += adopted ? 0 : 1;
            w.env->pass(8s);
            REQUIRE(w.etcd->leases() == 1);
            w.env->pass(8s);
            REQUIRE(w.etcd->leases() == (adopted ? 1 : 0)); // it is not renewed
        }
        CHECK((lost > 0) == elsewhere); // at home, what was told is there already
        CHECK(lost < most_hops);
    }
}

TEST_CASE("what slow attempts took does not count against the session", "[session]") {
    world w;
    const coetcd::client client = w.client(coetcd::endpoints("http://a", "http://b"));
    std::string hangs;
    w.env->decide = [&](const call_request& r) {
        if (hangs.empty()) {
            hangs = r.to.host;
        }
        scripted_env::fate f;
        f.arrives = r.to.host != hangs;
        return f;
    };
    const coetcd::session s = w.await(coetcd::session::open(client, {2s}));
    REQUIRE(s.state() == session_state::active);
    REQUIRE(s.remaining() > 1700ms);
}

TEST_CASE("a grant whose answer is lost is asked for again, by the same name", "[session]") {
    world w;
    const coetcd::client client = w.client();
    int calls = 0;
    w.env->decide = [&](const call_request&) {
        scripted_env::fate f;
        f.breaks = calls++ == 0;
        return f;
    };
    auto opening = w.start(coetcd::session::open(client));
    w.env->pass(1s);
    const coetcd::session s = opening.get();
    REQUIRE(w.etcd->leases() == 1);
    REQUIRE(s.ttl() == 10s);
    w.env->pass(60s);
    REQUIRE(s.state() == session_state::active);
}

TEST_CASE("a grant that a proxy repeats by itself is made anew", "[session]") {
    world w;
    const coetcd::client client = w.client();
    const auto serve = w.env->on_call;
    int copies = 0;
    w.env->on_call = [&](const call_request& r, coetcd::detail::reply& answer) {
        serve(r, answer);
        if (r.what == rpc::lease_grant && copies-- > 0) {
            serve(r, answer); // the first answer was lost on the way to the proxy
        }
    };
    copies = 2;
    const coetcd::session s = w.await(coetcd::session::open(client, {5s}));
    REQUIRE(s.ttl() == 5s);
    REQUIRE(w.etcd->leases() == 3); // two of them end by themselves
    w.env->pass(20s);
    REQUIRE(w.etcd->leases() == 1);
    REQUIRE(s.state() == session_state::active);
    // Whose it is cannot be told, and so is not asked for ever.
    copies = 100;
    auto opening = w.start(coetcd::session::open(client, {5s}));
    w.env->pass(3s);
    REQUIRE(opening.code() == coetcd::server_errc::failed_precondition);
    // An id that the caller chose may be taken.
    REQUIRE_THROWS_WITH(w.await(client.lease_grant(5s, 7)), support::contains("already exists"));
}

TEST_CASE("no lease is granted once more by a copy of the request that comes late", "[session]") {
    world w;
    const coetcd::client client = w.client();
    const auto is_grant = [](const call_request& r) { return r.what == rpc::lease_grant; };
    support::fate_of(w, is_grant, {support::late(20s)});
    auto session = w.await(coetcd::session::open(client, {5s}));
    const coetcd::lease_id lease = session.lease();
    w.await(session.close());
    w.env->pass(22s);
    CHECK(w.etcd->leases() <= 1);
    CHECK_FALSE(w.await(client.lease_time_to_live(lease)));
}

TEST_CASE("sec.random: two sessions never share a lease, even if chance is broken",
          "[session][security]") {
    world w;
    const coetcd::client client = w.client();
    w.env->always = ~std::uint64_t{0};
    const coetcd::session first = w.await(coetcd::session::open(client));
    auto second = w.start(coetcd::session::open(client));
    w.env->pass(3s);
    REQUIRE(second.code() == coetcd::server_errc::failed_precondition);
    w.env->pass(60s);
    REQUIRE(first.state() == session_state::active); // it was not revoked
    REQUIRE(w.etcd->leases() == 1);
}

TEST_CASE("a lease of an id that is taken is not granted", "[lease]") {
    world w;
    const coetcd::client client = w.client();
    (void)w.await(client.lease_grant(60s, 7));
    auto again = w.start(client.lease_grant(60s, 7));
    w.env->pass(1s);
    REQUIRE(again.code() == coetcd::server_errc::failed_precondition);
    // Nor is it known to be granted if an answer was lost: it may have been there before.
    for (const coetcd::lease_id id : {7, 8}) {
        int calls = 0;
        w.env->decide = [&](const call_request&) {
            scripted_env::fate f;
            f.breaks = calls++ == 0;
            return f;
        };
        auto doubtful = w.start(client.lease_grant(60s, id));
        w.env->pass(1s);
        REQUIRE(doubtful.code() == errc::outcome_unknown);
        REQUIRE(calls == 2);
    }
}

TEST_CASE("open() that fails or is cancelled leaves no lease", "[session][cancellation]") {
    for (auto when = 0ms; when < 4ms; ++when) {
        world w;
        const coetcd::client client = w.client();
        auto opening = w.start(coetcd::session::open(client));
        w.env->pass(when);
        opening.cancel();
        w.env->pass(0ms);
        REQUIRE(opening.ended());
        REQUIRE(opening.completions() == 1);
        w.env->pass(10ms);
        REQUIRE(w.etcd->leases() == (opening.succeeded() ? 1 : 0));
    }
    world w;
    const coetcd::client client = w.client();
    w.env->decide = [&](const call_request& r) {
        scripted_env::fate f;
        f.answered = r.what != rpc::lease_grant;
        return f;
    };
    auto opening = w.start(coetcd::session::open(client));
    w.env->pass(5001ms);
    REQUIRE(opening.code() == errc::outcome_unknown);
    w.env->pass(10ms);
    REQUIRE(w.etcd->leases() == 0);
}

TEST_CASE("open() whose lease ends before it learns of it opens with another one", "[session]") {
    world w;
    const coetcd::client client = w.client();
    int grants = 0;
    w.env->decide = [&](const call_request& r) {
        scripted_env::fate f;
        f.breaks = r.what == rpc::lease_grant && grants++ == 0;
        return f;
    };
    w.env->on_call = [&, serve = w.env->on_call](const call_request& r, coetcd::detail::reply& a) {
        if (r.what == rpc::lease_keep_alive && grants == 2) { // the answers took so long
            w.etcd->revoke(w.etcd->lease_ids().front());
        }
        serve(r, a);
    };
    const coetcd::session s = w.await(coetcd::session::open(client));
    CHECK(grants == 3);
    CHECK(w.etcd->lease_ids() == std::vector<coetcd::lease_id>{s.lease()});
}

TEST_CASE("open() whose first answer is lost leaves no lease if it is refused then", "[session]") {
    world w;
    const coetcd::client client = w.client();
    int grants = 0;
    w.env->decide = [&](const call_request& r) {
        scripted_env::fate f;
        f.breaks = r.what == rpc::lease_grant && grants == 0;
        return f;
    };
    w.env->on_call = [&, serve = w.env->on_call](const call_request& r, coetcd::detail::reply& a) {
        if (r.what == rpc::lease_grant && ++grants == 2) {
            a.status = 429;
            a.body = R"({"code":8,"message":"etcdserver: mvcc: database space exceeded"})";
            return;
        }
        serve(r, a);
    };
    auto opening = w.start(coetcd::session::open(client));
    w.env->pass(1s);
    REQUIRE(grants == 2);
    REQUIRE(opening.code() == errc::outcome_unknown);
    REQUIRE(w.etcd->leases() == 0);
    grants = 0;
    auto granting = w.start(client.lease_grant(10s, 77));
    w.env->pass(1s);
    REQUIRE(granting.code() == errc::outcome_unknown);
}

TEST_CASE("the whole world may end under a session", "[session]") {
    for (auto when = 0ms; when < 8s; when += 333ms) {
        world w;
        const coetcd::client client = w.client();
        coetcd::session s = w.await(coetcd::session::open(client));
        const auto lost = w.start(s.wait_lost());
        const auto suspect = w.start(s.wait_suspect());
        w.env->pass(when);
    }
    SUCCEED("no leak, no access to what is gone");
}
