// SPDX-License-Identifier: BSL-1.0
// etcd has raised its CORRUPT alarm: it changes nothing any more, but renews leases.
#include <coetcd/client.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>

#include <chrono>
#include <string>

#include "support/catch.hpp"
#include "support/world.hpp"

using namespace std::chrono_literals;
using coetcd::server_errc;
using coetcd::session_state;
using support::world;

namespace {

/// Whether it has failed, and says why.
template<class T>
bool tells(support::background<T>& b) {
    try {
        (void)b.get();
    } catch (const coetcd::error& e) {
        const std::string text = e.what();
        CAPTURE(text);
        CHECK(e.code() == server_errc::data_loss);
        CHECK(text.find("etcdserver: corrupt cluster") != std::string::npos);
        return true;
    }
    return false;
}

} // namespace

TEST_CASE("a call that wants to change something is told of the alarm at once", "[corrupt]") {
    for (const bool all : {false, true}) {
        world w;
        const coetcd::client client =
            all ? w.client(coetcd::endpoints("http://a:1", "http://b:1", "http://c:1"))
                : w.client("http://a:1");
        const coetcd::session session = w.await(coetcd::session::open(client, {10s}));
        const coetcd::session second = w.await(coetcd::session::open(client, {10s}));
        coetcd::mutex held(session, "held");
        coetcd::mutex waits(second, "held");
        coetcd::mutex free(second, "free");
        w.await(held.lock());
        w.etcd->corrupt = true;
        auto put = w.start(client.put("x", "1"));
        auto opened = w.start(coetcd::session::open(client, {10s}));
        auto tried = w.start(free.try_lock());
        auto waited = w.start(waits.lock());
        w.env->pass(500ms);
        CHECK(tells(put));
        CHECK(tells(opened));
        CHECK(tells(tried));
        CHECK(tells(waited));
        CHECK_FALSE(w.await(client.get("x"))); // reads are served
        auto unlocked = w.start(held.unlock());
        w.env->pass(7s);
        CHECK(tells(unlocked));
        CHECK(session.state() == session_state::active);
        w.etcd->corrupt = false;
        w.env->pass(3s);
        CHECK(w.etcd->under("held/").empty()); // it goes on in the background
        REQUIRE(w.await(free.try_lock()));
        CHECK(session.state() == session_state::active);
        CHECK(second.state() == session_state::active);
    }
}

TEST_CASE("a session that is lost tells why its renewals failed", "[session]") {
    world w;
    const coetcd::client client = w.client("http://a:1");
    const coetcd::session session = w.await(coetcd::session::open(client, {10s}));
    coetcd::mutex mutex(session, "m");
    w.env->on_call = [serve = w.env->on_call](const coetcd::detail::call_request& q,
                                              coetcd::detail::reply& r) {
        if (q.what == coetcd::detail::rpc::lease_keep_alive) { // as etcd 3.7 does
            r.status = 403;
            r.body = R"({"error":{"code":7,"message":"etcdserver: permission denied"}})";
            return;
        }
        serve(q, r);
    };
    w.env->pass(11s);
    REQUIRE(session.reason() == coetcd::session_end::deadline);
    auto locking = w.start(mutex.lock());
    w.env->pass(1s);
    try {
        locking.get();
        FAIL("it was locked");
    } catch (const coetcd::error& e) {
        const std::string text = e.what();
        CAPTURE(text);
        CHECK(e.code() == coetcd::errc::session_lost);
        CHECK(text.find("no renewal succeeded in time; the last attempt: lease_keep_alive: "
                        "etcdserver: permission denied, on http://a:1") != std::string::npos);
    }
}
