// SPDX-License-Identifier: BSL-1.0
// What becomes of a write that etcd refuses for the lack of the session's lease, while it is not
// known whether that lives.
#include <coetcd/admin.hpp>
#include <coetcd/election.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>
#include <coetcd/shared_mutex.hpp>
#include <coetcd/value.hpp>

#include <chrono>
#include <functional>
#include <limits>
#include <utility>

#include "support/catch.hpp"
#include "support/world.hpp"
#include "support/writes.hpp"

using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::session_state;
using coetcd::detail::call_request;
using coetcd::detail::reply;
using coetcd::detail::rpc;
using support::world;

namespace {

class doubts {
    std::function<void(const call_request&, reply&)> serve_; // outlives what it serves

public:
    doubts()
        : client(w.client())
        , session(w.await(coetcd::session::open(client, {60s}))) {
        serve_ = w.env->on_call;
    }
    /// The next writes, so many of them.
    void refuse_writes(int left) {
        w.env->on_call = [this, left](const call_request& r, reply& a) mutable {
            if (support::is_write(r) && left > 0) {
                --left;
                a.status = 404;
                a.body = R"({"error":"etcdserver: requested lease not found","code":5})";
            } else {
                serve_(r, a);
            }
        };
    }
    /// All that write, and no renewal is answered.
    void begin() {
        refuse_writes(std::numeric_limits<int>::max());
        w.env->decide = [](const call_request& r) {
            support::scripted_env::fate f;
            f.arrives = r.what != rpc::lease_keep_alive;
            return f;
        };
    }
    void end() {
        w.env->on_call = serve_;
        w.env->decide = nullptr;
    }
    /// Long after the renewal has had its time.
    template<class Work>
    void end_after(const Work& waiting) {
        w.env->pass(12s);
        REQUIRE_FALSE(waiting.ended());
        end();
        w.env->pass(5s);
    }
    /// One write is refused while the lease lives, then for some time none arrives, and again one
    /// is refused.
    template<class Work>
    void interrupt_row(Work work) {
        refuse_writes(1);
        w.env->decide = [first = true](const call_request& r) mutable {
            support::scripted_env::fate f;
            f.arrives = !support::is_write(r) || std::exchange(first, false);
            return f;
        };
        auto working = w.start(std::move(work));
        w.env->pass(12s);
        REQUIRE_FALSE(working.ended());
        refuse_writes(1);
        w.env->decide = nullptr;
        w.env->pass(5s);
        working.get();
    }

    world w;
    coetcd::client client;
    coetcd::session session;
};

} // namespace

TEST_CASE("a lock is asked for until it is known whether the lease lives", "[lease_in_doubt]") {
    doubts d;
    coetcd::mutex m(d.session, "m");
    d.begin();
    auto locking = d.w.start(m.lock());
    d.w.env->pass(12s);
    REQUIRE_FALSE(locking.ended());
    SECTION("it does") {
        d.end();
        d.w.env->pass(5s);
        locking.get();
        CHECK(m.owns_lock());
    }
    SECTION("it does not") {
        d.w.etcd->revoke(d.session.lease());
        d.end();
        d.w.env->pass(5s);
        CHECK(locking.code() == errc::session_lost);
    }
    SECTION("that is not told in time") {
        d.w.env->pass(60s);
        CHECK(locking.code() == errc::session_lost);
    }
}

TEST_CASE("a lock within a limit ends in time while it is not known whether the lease lives",
          "[lease_in_doubt]") {
    doubts d;
    coetcd::mutex m(d.session, "m");
    d.begin();
    auto locking = d.w.start(m.try_lock_for(2s));
    d.w.env->pass(2100ms);
    CHECK(locking.code() == errc::timed_out);
    CHECK(d.session.state() != session_state::lost);
}

TEST_CASE("a campaign goes on until it is known whether the lease lives", "[lease_in_doubt]") {
    doubts d;
    coetcd::election office(d.session, "e");
    d.begin();
    auto campaign = d.w.start(office.campaign("a"));
    d.end_after(campaign);
    CHECK(campaign.get().leads());
}

TEST_CASE("proclaim() goes on until it is known whether the lease lives", "[lease_in_doubt]") {
    doubts d;
    coetcd::election office(d.session, "e");
    const coetcd::leadership mine = d.w.await(office.campaign("a"));
    d.begin();
    auto proclaiming = d.w.start(mine.proclaim("b"));
    d.end_after(proclaiming);
    proclaiming.get();
    CHECK(d.w.etcd->keys.at(mine.key()).value == "b");
}

TEST_CASE("a write that did not arrive in between makes a slip of a second refusal",
          "[lease_in_doubt]") {
    doubts d;
    SECTION("of a lock") {
        coetcd::mutex m(d.session, "m");
        d.interrupt_row(m.lock());
        CHECK(m.owns_lock());
    }
    SECTION("of proclaim()") {
        coetcd::election office(d.session, "e");
        const coetcd::leadership mine = d.w.await(office.campaign("a"));
        d.interrupt_row(mine.proclaim("b"));
        CHECK(d.w.etcd->keys.at(mine.key()).value == "b");
    }
}

TEST_CASE("what has a time limit of its own ends then, and is not refused", "[lease_in_doubt]") {
    doubts d;
    coetcd::shared_mutex s(d.session, "s");
    coetcd::held_lock held = d.w.await(s.scoped_lock_shared());
    coetcd::value v(d.session, "v");
    d.begin();
    auto raising = d.w.start(held.try_upgrade());
    auto asking = d.w.start(coetcd::request_release(d.session, "s"));
    auto writing = d.w.start(v.set("1"));
    d.w.env->pass(11s);
    CHECK(raising.code() == errc::timed_out);
    CHECK(asking.code() == errc::timed_out);
    CHECK(writing.code() == errc::outcome_unknown);
    d.end();
    d.w.env->pass(5s);
    CHECK(d.session.state() == session_state::active);
    CHECK(d.w.await(held.try_upgrade()));
}
