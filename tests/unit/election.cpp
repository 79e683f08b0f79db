// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/wire/base64.hpp>
#include <coetcd/election.hpp>
#include <coetcd/mutex.hpp>

#include <boost/asio/this_coro.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/locks.hpp"
#include "support/world.hpp"
#include "support/writes.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::election;
using coetcd::errc;
using coetcd::leadership;
using coetcd::detail::call_request;
using coetcd::detail::rpc;
using support::background;
using support::is_enter;
using support::is_release;
using support::scripted_env;
using support::world;

namespace {

/// One session that campaigns.
struct candidate : world {
    explicit candidate(coetcd::session_options options = {})
        : owner(client())
        , session(await(coetcd::session::open(owner, std::move(options))))
        , own(session, "e") {}
    coetcd::client owner;
    coetcd::session session;
    election own;
};

/// Two of them.
struct candidates : world {
    explicit candidates(coetcd::session_options first = {}, coetcd::session_options second = {})
        : owner(client())
        , one(await(coetcd::session::open(owner, std::move(first))))
        , two(await(coetcd::session::open(owner, std::move(second))))
        , a(one, "e")
        , b(two, "e") {}
    coetcd::client owner;
    coetcd::session one;
    coetcd::session two;
    election a;
    election b;
};

scripted_env::fate loses_answer(bool is_lost = true) {
    scripted_env::fate f;
    f.arrives = !is_lost;
    return f;
}

/// Whether a request puts this value.
std::function<bool(const call_request&)> proclaims(const std::string& value) {
    std::string text;
    coetcd::detail::wire::append_base64(text, value);
    return [text](const call_request& r) {
        return r.what == rpc::txn && r.body.find('"' + text + '"') != std::string::npos;
    };
}

/// From now on etcd refuses what puts, after so many more requests.
void refuse_puts(world& w, int after = 0, bool for_the_lease = false) {
    w.env->on_call = [serve = w.env->on_call, left = after, for_the_lease](
                         const call_request& r, coetcd::detail::reply& answer) mutable {
        if (!support::is_write(r) || left-- > 0) {
            serve(r, answer);
        } else if (for_the_lease) {
            answer.status = 404;
            answer.body = R"({"error":"etcdserver: requested lease not found","code":5})";
        } else {
            answer.status = 403;
            answer.body = R"({"error":"etcdserver: permission denied","code":7})";
        }
    };
}
/// What becomes of the first request that puts; until further notice there is no connection for
/// others.
void only_one_copy(world& w, scripted_env::fate f) {
    w.env->decide = [f, first = true](const call_request& r) mutable {
        scripted_env::fate none;
        none.refused = support::is_write(r);
        return none.refused && std::exchange(first, false) ? f : none;
    };
}

/// What the keys of the election have had as their values, in order.
std::vector<std::string> told(const world& w) {
    std::vector<std::string> all;
    for (const auto& c : w.etcd->history()) {
        if (c.key.starts_with("e/")) {
            all.push_back(c.deleted ? "-" : c.now.value);
        }
    }
    return all;
}
using strings = std::vector<std::string>;

std::string value_of(std::optional<coetcd::leader> l) {
    return l ? l->value : "nobody";
}

} // namespace

TEST_CASE("campaign() leads in one round trip if there is no leader, resign() ends that in one",
          "[election]") {
    candidate w;
    const std::size_t before = w.env->calls.size();
    leadership mine = w.await(w.own.campaign("host a"));
    REQUIRE(w.env->calls.size() == before + 1);
    REQUIRE(mine.leads());
    REQUIRE(static_cast<bool>(mine));
    REQUIRE(w.etcd->under("e/") == strings{mine.key()});
    const auto& record = w.etcd->keys.at(mine.key());
    REQUIRE(record.value == "host a");
    REQUIRE(record.create_revision == mine.term());
    REQUIRE(record.lease == w.session.lease());
    REQUIRE(mine.get_executor() == w.own.get_executor());
    coetcd::txn guarded = coetcd::txn().when(mine.is_leader()).then(coetcd::op::put("k", "1"));
    REQUIRE(w.await(w.owner.txn(guarded)).succeeded);

    w.env->pass(1s); // it watches its key, and looks at it once
    REQUIRE(w.env->calls.size() == before + 3);
    REQUIRE(w.await(mine.resign()));
    REQUIRE(w.env->calls.size() == before + 4);
    REQUIRE_FALSE(mine.leads());
    REQUIRE(w.etcd->under("e/").empty());
    REQUIRE_FALSE(w.await(mine.resign()));
    REQUIRE(w.env->calls.size() == before + 4);
    REQUIRE_FALSE(w.await(w.owner.txn(guarded)).succeeded);
    w.env->pass(15s);
    REQUIRE(w.etcd->watches() == 0);
}

TEST_CASE("an election cannot be called anything", "[election]") {
    candidate w;
    REQUIRE(w.own.name() == "e");
    const std::string long_one(513, 'x');
    REQUIRE_THROWS_WITH(election(w.session, ""), "name: is empty");
    REQUIRE_THROWS_WITH(election(w.session, long_one), "name: is longer than 512 bytes");
    REQUIRE_THROWS_WITH(coetcd::observe(w.owner, ""), "name: is empty");
    REQUIRE_THROWS_WITH(coetcd::leader_of(w.owner, long_one), "name: is longer than 512 bytes");
    auto body = []() -> asio::awaitable<void> { co_return; };
    REQUIRE_THROWS_WITH(coetcd::lead(w.owner, "", "v", body), "name: is empty");
    REQUIRE_THROWS_AS(coetcd::lead(w.owner, "e", "v", body, {.ttl = 0s}), std::invalid_argument);
    REQUIRE_THROWS_WITH(coetcd::lead(w.owner, "e", "v", body, {.pause = 0ms}),
                        "pause: must be positive");
    REQUIRE_THROWS_WITH(w.own.resume("f/1", 5), "key: is not one of this election");
    REQUIRE_THROWS_WITH(w.own.resume("e/", 5), "key: is not one of this election");
    REQUIRE_THROWS_WITH(w.own.resume("e/1", 0), "term: must be positive");
}

TEST_CASE("the candidates lead one after the other, in order of arrival", "[election]") {
    candidates w;
    std::optional<leadership> first(w.await(w.a.campaign("a")));
    auto second = w.start(w.b.campaign("b"));
    w.env->pass(50ms);
    auto third = w.start(w.a.campaign("a again")); // two of one session are two
    w.env->pass(500ms);
    REQUIRE_FALSE(second.ended());
    REQUIRE_FALSE(third.ended());
    const std::int64_t term = first->term();
    REQUIRE(w.await(first->resign()));
    w.env->pass(10ms);
    leadership next = second.get();
    REQUIRE(next.leads());
    REQUIRE(next.term() > term);
    next = leadership(); // it resigns
    REQUIRE_FALSE(next.leads());
    w.env->pass(10ms);
    leadership last = third.get();
    REQUIRE(last.leads());
    REQUIRE(told(w) == strings{"a", "b", "-", "a again", "-"});
    last = leadership();
    w.env->pass(10ms);
    REQUIRE(w.etcd->under("e/").empty());
}

TEST_CASE("an election and a mutex of one name exclude each other", "[election]") {
    candidates w;
    coetcd::mutex here(w.one, "e");
    coetcd::mutex there(w.two, "e");
    leadership mine = w.await(w.a.campaign("a"));
    REQUIRE_FALSE(w.await(here.try_lock()));
    auto locking = w.start(there.lock());
    w.env->pass(50ms);
    REQUIRE_FALSE(locking.ended());
    REQUIRE(w.await(mine.resign()));
    w.env->pass(10ms);
    locking.get();
    REQUIRE_FALSE(w.await(w.a.try_campaign("a")));
    auto waiting = w.start(w.b.campaign("b"));
    w.env->pass(50ms);
    REQUIRE_FALSE(waiting.ended());
    REQUIRE(w.await(there.unlock()));
    w.env->pass(10ms);
    REQUIRE(waiting.get().leads());
}

TEST_CASE("try_campaign() leads if there is no leader, and leaves nothing if there is one",
          "[election]") {
    candidates w;
    std::optional<leadership> mine = w.await(w.a.try_campaign("a"));
    REQUIRE(mine);
    REQUIRE(w.etcd->keys.at(mine->key()).value == "a");
    w.env->pass(50ms);
    const std::size_t before = w.env->calls.size();
    REQUIRE_FALSE(w.await(w.b.try_campaign("b")));
    REQUIRE(w.env->calls.size() == before + 1);
    REQUIRE_FALSE(w.await(w.a.try_campaign("again"))); // known here
    REQUIRE_FALSE(w.await(w.a.campaign_for("again", 0s)));
    REQUIRE(w.env->calls.size() == before + 1);
    w.env->pass(1s);
    REQUIRE(w.etcd->under("e/").size() == 1);
    REQUIRE(w.await(mine->resign()));
    REQUIRE(w.await(w.b.try_campaign("b")));
}

TEST_CASE("campaign_for() waits as long as it is told", "[election]") {
    candidates w({60s}, {60s});
    leadership mine = w.await(w.a.campaign("a"));
    const auto began = w.env->now();
    REQUIRE_FALSE(w.await(w.b.campaign_for("b", 300ms)));
    REQUIRE(w.env->now() - began >= 300ms);
    REQUIRE(w.env->now() - began < 320ms);
    w.env->pass(20ms);
    REQUIRE(w.etcd->under("e/").size() == 1);
    const auto past = std::chrono::system_clock::time_point::min();
    REQUIRE_FALSE(w.await(w.b.campaign_until("b", past)));
    auto waiting = w.start(w.b.campaign_for("b", 10s));
    w.env->pass(50ms);
    REQUIRE(w.await(mine.resign()));
    w.env->pass(10ms);
    std::optional<leadership> theirs = waiting.get();
    REQUIRE(theirs);
    // Its patience is no limit of what it does then.
    w.env->pass(12s);
    w.await(theirs->proclaim("b still"));
    REQUIRE(value_of(w.await(w.a.leader())) == "b still");
    REQUIRE(w.await(theirs->resign()));

    w.env->decide = [](const call_request&) { return loses_answer(); };
    auto nothing = w.start(w.a.campaign_for("a", 500ms));
    auto at_once = w.start(w.b.try_campaign("b"));
    w.env->pass(6s);
    REQUIRE(nothing.code() == errc::timed_out);
    REQUIRE_THROWS_WITH(nothing.get(), support::contains("election \"e\", campaign_for"));
    REQUIRE(at_once.code() == errc::timed_out);
    REQUIRE_THROWS_WITH(at_once.get(), support::contains("election \"e\", try_campaign"));
    w.env->decide = nullptr;
    w.env->pass(10s);
    REQUIRE(w.etcd->under("e/").empty());
}

TEST_CASE("cancelled at any moment, campaign() ends once and leaves no key",
          "[election][cancellation]") {
    for (const auto late : {0ms, 7ms, 700ms}) {
        for (const bool busy : {false, true}) {
            for (auto when = 0ms; when < 30ms; ++when) {
                INFO("late " << late.count() << " busy " << busy << " at " << when.count());
                candidates w;
                leadership theirs;
                if (busy) {
                    theirs = w.await(w.a.campaign("a"));
                }
                support::delay_first(w, is_enter, late);
                auto waiting = w.start(w.b.campaign("b"));
                w.env->pass(when);
                const bool before = waiting.ended();
                waiting.cancel();
                w.env->pass(0ms);
                REQUIRE(waiting.ended());
                w.env->pass(1500ms);
                REQUIRE(waiting.completions() == 1);
                REQUIRE(w.two.state() == coetcd::session_state::active);
                if (before) {
                    REQUIRE(w.await(waiting.get().resign()));
                } else {
                    REQUIRE(waiting.code() == asio::error::operation_aborted);
                }
                REQUIRE(w.etcd->under("e/").size() == (busy ? 1 : 0));
                theirs = leadership();
                REQUIRE(w.await(w.b.campaign("b")).leads());
            }
        }
    }
}

TEST_CASE("everything may be destroyed while campaign() is under way", "[election]") {
    for (int what = 0; what != 3; ++what) {
        for (auto when = 0ms; when < 12ms; ++when) {
            INFO("what " << what << " at " << when.count());
            world w;
            std::optional<coetcd::client> client(w.client());
            coetcd::session one = w.await(coetcd::session::open(*client));
            std::optional<coetcd::session> two(w.await(coetcd::session::open(*client)));
            election a(one, "e");
            std::optional<election> b(std::in_place, *two, "e");
            leadership mine = w.await(a.campaign("a"));
            auto waiting = w.start(b->campaign("b"));
            w.env->pass(when);
            if (what == 0) {
                client.reset();
            } else if (what == 1) {
                two.reset();
            } else {
                b.reset();
            }
            w.env->pass(50ms);
            REQUIRE(w.await(mine.resign()));
            w.env->pass(50ms);
            if (what == 1) {
                REQUIRE(waiting.code() == errc::session_closed);
                REQUIRE(w.etcd->under("e/").empty());
            } else {
                REQUIRE(waiting.get().leads()); // an election holds nothing itself
            }
        }
    }
}

TEST_CASE("the whole world may end while there is a leader", "[election]") {
    for (auto when = 0ms; when < 12ms; ++when) {
        world w;
        const coetcd::client client = w.client();
        coetcd::session one = w.await(coetcd::session::open(client));
        election a(one, "e");
        leadership mine = w.await(a.campaign("a"));
        coetcd::leader_feed news = a.observe();
        const auto proclaiming = w.start(mine.proclaim("b"));
        const auto following = w.start(news.next());
        const auto waiting = w.start(a.campaign("c"));
        w.env->pass(when);
    }
    SUCCEED("no leak, no access to what is gone");
}

TEST_CASE("a leader whose key is deleted by hand is told at once", "[election]") {
    candidate w(coetcd::session_options(60s));
    leadership mine = w.await(w.own.campaign("a"));
    const std::int64_t term = mine.term();
    const coetcd::compare is_leader = mine.is_leader();
    auto waiting = w.start(mine.wait_lost());
    auto early = 0ms; // right after the grant, it is not watched yet
    SECTION("while it is watched") {
        early = 100ms;
    }
    SECTION("before it is") {}
    w.env->pass(early);
    REQUIRE(mine.leads());
    w.etcd->erase(mine.key());
    w.env->pass(20ms);
    REQUIRE_FALSE(mine.leads());
    REQUIRE(waiting.get() == errc::lock_lost);
    REQUIRE(w.session.state() == coetcd::session_state::active);
    REQUIRE(mine.term() == term);
    auto late = w.start(mine.proclaim("b"));
    w.env->pass(10ms);
    REQUIRE(late.code() == errc::lock_lost);
    REQUIRE_FALSE(w.await(mine.resign()));
    leadership next = w.await(w.own.campaign("b"));
    REQUIRE(next.term() > term);
    w.env->pass(100ms);
    REQUIRE(next.leads()); // the end of the earlier life is none of its concern
}

TEST_CASE("a leader whose lease is revoked is told at once, and why", "[election]") {
    candidate w(coetcd::session_options(60s));
    leadership mine = w.await(w.own.campaign("a"));
    auto waiting = w.start(mine.wait_lost());
    w.env->pass(100ms);
    w.etcd->revoke(w.session.lease());
    w.env->pass(20ms);
    REQUIRE_FALSE(mine.leads());
    REQUIRE(waiting.get() == errc::session_lost);
    REQUIRE(w.session.reason() == coetcd::session_end::expired);
}

TEST_CASE("a leader that cannot ask why its key has gone does not wait for that", "[election]") {
    candidate w(coetcd::session_options(60s));
    leadership mine = w.await(w.own.campaign("a"));
    auto waiting = w.start(mine.wait_lost());
    w.env->pass(100ms);
    w.env->decide = [](const call_request&) { return loses_answer(); };
    w.etcd->erase(mine.key());
    w.env->pass(900ms);
    REQUIRE_FALSE(waiting.ended());
    w.env->pass(200ms);
    REQUIRE(waiting.get() == errc::lock_lost);
    REQUIRE_FALSE(mine.leads());
}

TEST_CASE("a leader learns of the end that etcd does not tell with the next renewal",
          "[election]") {
    candidate w(coetcd::session_options(6s));
    leadership mine = w.await(w.own.campaign("a"));
    w.env->pass(100ms);
    SECTION("the event is lost") {
        w.etcd->tells = false;
        w.etcd->erase(mine.key());
        w.env->pass(2500ms);
    }
    SECTION("it comes while the stream is broken") {
        w.env->break_streams();
        w.etcd->erase(mine.key());
        w.env->pass(500ms); // once there is another one
    }
    REQUIRE_FALSE(mine.leads());
}

TEST_CASE("a leader that is not sure does not give up", "[election]") {
    candidate w(coetcd::session_options(20s));
    leadership mine = w.await(w.own.campaign("a"));
    w.etcd->stale_by = 1; // reads are from before the term
    w.env->pass(100ms);
    w.env->break_streams();
    w.env->pass(10s);
    REQUIRE(mine.leads());
}

TEST_CASE("a leader that stood still knows it in its first instruction", "[election]") {
    candidate w;
    leadership mine = w.await(w.own.campaign("a"));
    w.env->stall(9500ms);
    REQUIRE_FALSE(mine.leads());
    auto late = w.start(mine.proclaim("b"));
    w.env->pass(1s);
    REQUIRE(late.code() == errc::session_lost);
}

TEST_CASE("a candidate whose lease is gone never leads", "[election]") {
    // The Go client does: it has no key any more, and takes that for having no predecessor.
    candidates w;
    leadership mine = w.await(w.a.campaign("a"));
    auto waiting = w.start(w.b.campaign("b"));
    w.env->pass(2s);
    w.etcd->revoke(w.two.lease());
    SECTION("while the leader stays") {
        w.env->pass(1s);
    }
    SECTION("and the leader goes") {
        (void)w.await(mine.resign());
        w.env->pass(1s);
    }
    REQUIRE(waiting.code() == errc::session_lost);
}

TEST_CASE("a candidate whose key is deleted by hand fails at once", "[election]") {
    candidates w;
    leadership mine = w.await(w.a.campaign("a"));
    auto waiting = w.start(w.b.campaign("b"));
    w.env->pass(2s);
    for (const std::string& key : w.etcd->under("e/")) {
        if (key != mine.key()) {
            w.etcd->erase(key);
        }
    }
    w.env->pass(20ms);
    REQUIRE(waiting.code() == errc::lock_lost);
    REQUIRE(w.two.state() == coetcd::session_state::active);
}

TEST_CASE("proclaim() changes what is told, in one round trip", "[election]") {
    candidate w;
    leadership mine = w.await(w.own.campaign("a"));
    w.env->pass(100ms);
    const std::size_t before = w.env->calls.size();
    w.await(mine.proclaim("b"));
    w.await(mine.proclaim("c"));
    w.await(mine.proclaim("c"));
    w.await(mine.proclaim(""));
    REQUIRE(w.env->calls.size() == before + 4);
    REQUIRE(told(w) == strings{"a", "b", "c", "c", ""});
    const auto& record = w.etcd->keys.at(mine.key());
    REQUIRE(record.create_revision == mine.term());
    REQUIRE(record.lease == w.session.lease());
    REQUIRE(mine.leads());
}

TEST_CASE("several proclaim() take effect in their order, each once", "[election]") {
    for (int how = 0; how != 4; ++how) {
        for (int victim = 0; victim != 4; ++victim) {
            INFO("how " << how << " victim " << victim);
            candidate w(coetcd::session_options(60s));
            leadership mine = w.await(w.own.campaign("a"));
            w.env->pass(100ms);
            w.env->decide = [&, n = 0](const call_request& r) mutable {
                scripted_env::fate f;
                if (r.what == rpc::txn && n++ == victim) {
                    f.arrives = how != 0;
                    f.answered = how != 1;
                    f.breaks = how == 2;
                    f.late = how == 3 ? 8s : 0s;
                }
                return f;
            };
            std::vector<background<void>> all;
            for (const std::string value : {"b", "c", "d"}) {
                all.push_back(w.start(mine.proclaim(value)));
            }
            w.env->pass(30s);
            for (auto& one : all) {
                one.get();
            }
            REQUIRE(told(w) == strings{"a", "b", "c", "d"});
        }
    }
}

TEST_CASE("a late copy of proclaim() does not undo a later one", "[election]") {
    candidate w(coetcd::session_options(60s));
    leadership mine = w.await(w.own.campaign("a"));
    w.env->pass(100ms);
    bool first = true;
    w.env->decide = [&, is_it = proclaims("b")](const call_request& r) {
        scripted_env::fate f;
        f.late = is_it(r) && std::exchange(first, false) ? 8s : 0s;
        return f;
    };
    SECTION("after it was repeated") {
        w.await(mine.proclaim("b"));
        w.await(mine.proclaim("c"));
        w.env->pass(20s);
        REQUIRE(told(w) == strings{"a", "b", "c"});
    }
    SECTION("after it was cancelled") {
        auto cancelled = w.start(mine.proclaim("b"));
        w.env->pass(10ms);
        cancelled.cancel();
        w.env->pass(0ms);
        REQUIRE(cancelled.code() == asio::error::operation_aborted);
        w.await(mine.proclaim("c"));
        w.env->pass(20s);
        REQUIRE(told(w) == strings{"a", "c"});
    }
    SECTION("and what comes before the later one is no obstacle") {
        auto cancelled = w.start(mine.proclaim("b"));
        w.env->pass(10ms);
        cancelled.cancel();
        w.env->pass(20s);
        REQUIRE(told(w) == strings{"a", "b"});
        w.await(mine.proclaim("c"));
        REQUIRE(told(w) == strings{"a", "b", "c"});
    }
    SECTION("nor does one of a term that is over") {
        auto cancelled = w.start(mine.proclaim("b"));
        w.env->pass(10ms);
        cancelled.cancel();
        REQUIRE(w.await(mine.resign()));
        leadership next = w.await(w.own.campaign("d"));
        REQUIRE(next.key() == mine.key()); // the same key, another life
        w.env->pass(20s);
        REQUIRE(told(w) == strings{"a", "-", "d"});
    }
}

TEST_CASE("cancelled at any moment, proclaim() ends once, and the next one works",
          "[election][cancellation]") {
    for (auto when = 0us; when < 5ms; when += 500us) {
        INFO("after " << when.count() << " us");
        candidate w;
        leadership mine = w.await(w.own.campaign("a"));
        auto one = w.start(mine.proclaim("b"));
        auto two = w.start(mine.proclaim("c"));
        w.env->pass(when);
        one.cancel();
        w.env->pass(0ms);
        REQUIRE(one.ended());
        w.env->pass(20ms);
        two.get();
        REQUIRE(one.completions() == 1);
        REQUIRE(told(w).back() == "c");
        w.await(mine.proclaim("d"));
        REQUIRE(told(w).back() == "d");
    }
}

TEST_CASE("proclaim() rides out an outage that the session survives", "[election]") {
    candidate w(coetcd::session_options(60s));
    leadership mine = w.await(w.own.campaign("a"));
    w.env->pass(100ms);
    w.env->decide = [](const call_request& r) { return loses_answer(r.what == rpc::txn); };
    auto proclaiming = w.start(mine.proclaim("b"));
    w.env->pass(20s); // longer than any one call may take
    REQUIRE_FALSE(proclaiming.ended());
    w.env->decide = nullptr;
    w.env->pass(5s);
    proclaiming.get();
    REQUIRE(told(w) == strings{"a", "b"});
}

TEST_CASE("proclaim() ends with its session", "[election]") {
    candidate w;
    leadership mine = w.await(w.own.campaign("a"));
    w.env->pass(100ms);
    w.env->decide = [](const call_request&) { return loses_answer(); };
    auto proclaiming = w.start(mine.proclaim("b"));
    auto next = w.start(mine.proclaim("c"));
    auto expected = errc::session_lost;
    SECTION("that is lost") {
        w.env->pass(9100ms);
    }
    SECTION("that is closed") {
        expected = errc::session_closed;
        w.env->pass(1s);
        auto closing = w.start(w.session.close());
        w.env->pass(1ms);
    }
    SECTION("that stood still") {
        w.env->stall(1min);
        w.env->pass(1ms);
    }
    REQUIRE(proclaiming.code() == expected);
    REQUIRE(next.code() == expected);
}

TEST_CASE("what others write into the leader's key does not hold it up", "[election]") {
    candidate w;
    leadership mine = w.await(w.own.campaign("a"));
    w.env->pass(100ms);
    (void)w.await(w.owner.put(mine.key(), "theirs")); // without the lease
    w.await(mine.proclaim("b"));
    REQUIRE(told(w) == strings{"a", "theirs", "b"});
    REQUIRE(w.etcd->keys.at(mine.key()).lease == w.session.lease());
    REQUIRE(mine.leads());
}

TEST_CASE("proclaim() of a term that is over says so", "[election]") {
    candidate w(coetcd::session_options(60s));
    std::optional<leadership> mine(w.await(w.own.campaign("a")));
    w.env->pass(100ms);
    SECTION("which it finds out itself") {
        w.etcd->tells = false;
        w.etcd->erase(mine->key());
        auto late = w.start(mine->proclaim("b"));
        w.env->pass(20ms);
        REQUIRE(late.code() == errc::lock_lost);
        REQUIRE_FALSE(mine->leads());
        REQUIRE(w.session.state() == coetcd::session_state::active);
    }
    SECTION("with its lease") {
        w.etcd->tells = false;
        w.etcd->revoke(w.session.lease());
        auto late = w.start(mine->proclaim("b"));
        w.env->pass(20ms);
        REQUIRE(late.code() == errc::session_lost);
    }
    SECTION("since it was resigned") {
        w.await(mine->resign());
        auto late = w.start(mine->proclaim("b"));
        w.env->pass(20ms);
        REQUIRE(late.code() == errc::not_owner);
        REQUIRE(late.code() == coetcd::condition::ownership_lost);
    }
    SECTION("since it is being resigned") {
        auto late = w.start(mine->proclaim("b"));
        auto later = w.start(mine->proclaim("c"));
        auto resign = [&]() -> asio::awaitable<bool> {
            const bool done = co_await mine->resign();
            co_return done;
        };
        const auto when = GENERATE(0us, 500us, 3000us); // with it; while it is under way; after it
        if (when != 0us) {
            w.env->pass(when);
        }
        auto resigning = w.start(resign());
        w.env->pass(50ms);
        REQUIRE(resigning.get());
        REQUIRE((late.succeeded() || late.code() == errc::not_owner));
        REQUIRE((later.succeeded() || later.code() == errc::not_owner));
        REQUIRE(w.etcd->under("e/").empty());
    }
    SECTION("since it is destroyed") {
        auto late = w.start(mine->proclaim("b"));
        w.env->pass(500us);
        mine.reset();
        w.env->pass(50ms);
        REQUIRE((late.succeeded() || late.code() == errc::not_owner));
        REQUIRE(w.etcd->under("e/").empty());
    }
}

TEST_CASE("what etcd refuses to proclaim is thrown, and no obstacle later", "[election]") {
    candidate w;
    leadership mine = w.await(w.own.campaign("a"));
    w.env->pass(100ms);
    w.etcd->no_space = true;
    auto refused = w.start(mine.proclaim("b"));
    w.env->pass(20ms);
    REQUIRE(refused.code() == coetcd::server_errc::resource_exhausted);
    REQUIRE_THROWS_WITH(refused.get(), support::contains("election \"e\", proclaim"));
    REQUIRE(mine.leads());
    w.etcd->no_space = false;
    w.await(mine.proclaim("c"));
    REQUIRE(told(w) == strings{"a", "c"});
}

TEST_CASE("proclaim() that is refused only the second time tells if the first one did it",
          "[election]") {
    const bool applied = GENERATE(true, false);
    CAPTURE(applied);
    candidate w;
    leadership mine = w.await(w.own.campaign("a"));
    w.env->pass(100ms);
    w.env->decide = [&, n = 0, is_it = proclaims("b")](const call_request& r) mutable {
        scripted_env::fate f;
        const int which = is_it(r) ? ++n : 0;
        f.breaks = which == 1 && applied;
        f.arrives = which != 1 || applied;
        w.etcd->no_space = which == 2;
        return f;
    };
    auto proclaiming = w.start(mine.proclaim("b"));
    w.env->pass(5s);
    if (applied) {
        proclaiming.get();
        REQUIRE(told(w) == strings{"a", "b"});
    } else {
        REQUIRE(proclaiming.code() == errc::outcome_unknown); // it might still come
        REQUIRE(told(w) == strings{"a"});
    }
    w.env->decide = nullptr;
    w.etcd->no_space = false;
    w.await(mine.proclaim("c"));
    REQUIRE(told(w).back() == "c");
}

TEST_CASE("proclaim() says so if what became of it cannot be told", "[election]") {
    candidate w;
    leadership mine = w.await(w.own.campaign("a"));
    w.env->pass(100ms);
    w.env->decide = [&, n = 0, is_it = proclaims("b")](const call_request& r) mutable {
        scripted_env::fate f;
        const int which = is_it(r) ? ++n : 0;
        f.breaks = which == 1;
        return f;
    };
    const auto serve = w.env->on_call;
    w.env->on_call = [&, n = 0](const call_request& r, coetcd::detail::reply& answer) mutable {
        serve(r, answer);
        if (r.what == rpc::txn && ++n > 1) {
            answer.status = 403;
            answer.body = R"({"error":"etcdserver: permission denied","code":7})";
        }
    };
    auto proclaiming = w.start(mine.proclaim("b"));
    w.env->pass(5s);
    REQUIRE(proclaiming.code() == errc::outcome_unknown);
    w.env->on_call = serve;
    w.await(mine.proclaim("c"));
    REQUIRE(told(w).back() == "c");
}

TEST_CASE("proclaim() that is refused while a copy may come late is in doubt", "[election]") {
    const bool by_a_later_request = GENERATE(false, true);
    CAPTURE(by_a_later_request);
    candidate w(coetcd::session_options(60s));
    leadership mine = w.await(w.own.campaign("a"));
    w.env->pass(100ms);
    only_one_copy(w, support::late(30s));
    auto proclaiming = w.start(mine.proclaim("b"));
    w.env->pass(by_a_later_request ? 20s : 10ms);
    const auto serve = w.env->on_call;
    refuse_puts(w);
    w.env->decide = nullptr;
    w.env->pass(5s);
    REQUIRE(proclaiming.code() == errc::outcome_unknown);
    REQUIRE(mine.leads());
    REQUIRE(told(w) == strings{"a"});
    w.env->on_call = serve;
    w.env->pass(30s);
    REQUIRE(told(w) == strings{"a", "b"});
    w.await(mine.proclaim("c"));
    REQUIRE(told(w) == strings{"a", "b", "c"});
}

TEST_CASE("proclaim() that is refused when what it put may be overwritten is in doubt",
          "[election]") {
    const int served = GENERATE(0, 1, 2);     // of the requests that find the other value
    const bool twice = GENERATE(false, true); // something on the way has sent it so
    CAPTURE(served, twice);
    candidate w;
    leadership mine = w.await(w.own.campaign("a"));
    w.env->pass(100ms);
    only_one_copy(w, twice ? scripted_env::fate() : support::broken());
    const auto serve = w.env->on_call;
    w.env->on_call = [&, again = twice](const call_request& r,
                                        coetcd::detail::reply& answer) mutable {
        serve(r, answer);
        if (support::is_write(r) && std::exchange(again, false)) {
            serve(r, answer);
        }
    };
    auto proclaiming = w.start(mine.proclaim("b"));
    w.env->pass(twice ? 6s : 10ms); // longer than one request may take
    REQUIRE_FALSE(proclaiming.ended());
    (void)w.await(w.owner.put(mine.key(), "theirs"));
    w.env->on_call = serve;
    refuse_puts(w, served);
    w.env->decide = nullptr;
    w.env->pass(5s);
    REQUIRE(proclaiming.code() == errc::outcome_unknown);
    REQUIRE(told(w) == strings{"a", "b", "theirs"});
    w.env->on_call = serve;
    w.await(mine.proclaim("c"));
    REQUIRE(told(w).back() == "c");
}

TEST_CASE("proclaim() that misses the lease ends the session, whatever is in doubt", "[election]") {
    candidate w;
    leadership mine = w.await(w.own.campaign("a"));
    w.env->pass(100ms);
    only_one_copy(w, loses_answer());
    auto proclaiming = w.start(mine.proclaim("b"));
    w.env->pass(10ms);
    w.etcd->revoke(w.etcd->lease_ids().front());
    refuse_puts(w, 0, true);
    w.env->decide = nullptr;
    w.env->pass(5s);
    REQUIRE(proclaiming.code() == errc::session_lost);
}

TEST_CASE("resign() whose answer is lost is told from one that was too late", "[election]") {
    candidate w(coetcd::session_options(60s));
    leadership mine = w.await(w.own.campaign("a"));
    w.env->decide = [first = true](const call_request& r) mutable {
        scripted_env::fate f;
        f.breaks = is_release(r) && std::exchange(first, false);
        return f;
    };
    REQUIRE(w.await(mine.resign()));
    leadership other = w.await(w.own.campaign("b"));
    w.etcd->tells = false;
    w.etcd->erase(other.key());
    REQUIRE_FALSE(w.await(other.resign()));
    leadership third = w.await(w.own.campaign("c"));
    w.env->decide = [](const call_request& r) { return loses_answer(r.what == rpc::txn); };
    auto resigning = w.start(third.resign());
    REQUIRE_FALSE(third.leads()); // at the call
    w.env->pass(6s);
    REQUIRE(resigning.code() == coetcd::condition::outcome_unknown);
    REQUIRE_THROWS_WITH(resigning.get(), support::contains("election \"e\", resign"));
    w.env->decide = nullptr;
    w.env->pass(6s);
    REQUIRE(w.etcd->under("e/").empty());
}

TEST_CASE("a leadership that is dropped resigns", "[election]") {
    candidate w;
    {
        leadership mine = w.await(w.own.campaign("a"));
        leadership moved = std::move(mine);
        REQUIRE(moved.leads());
        w.env->pass(10ms);
        REQUIRE(w.etcd->under("e/").size() == 1);
    }
    w.env->pass(10ms);
    REQUIRE(w.etcd->under("e/").empty());
    election other(w.session, "f");
    leadership mine = w.await(w.own.campaign("a"));
    mine = w.await(other.campaign("b"));
    w.env->pass(10ms);
    REQUIRE(w.etcd->under("e/").empty());
    REQUIRE(w.etcd->under("f/") == strings{mine.key()});
    w.env->pass(10ms);
    auto waiting = w.start(mine.wait_lost());
    w.env->pass(1s);
    REQUIRE_FALSE(waiting.ended());
    mine = leadership();
    w.env->pass(10ms);
    REQUIRE(waiting.code() == asio::error::operation_aborted);
}

TEST_CASE("leader() and leader_of() tell who leads", "[election]") {
    candidates w;
    REQUIRE_FALSE(w.await(w.a.leader()));
    REQUIRE_FALSE(w.await(coetcd::leader_of(w.owner, "e")));
    leadership mine = w.await(w.a.campaign("a"));
    auto waiting = w.start(w.b.campaign("b"));
    w.env->pass(50ms);
    const std::size_t before = w.env->calls.size();
    const std::optional<coetcd::leader> l = w.await(w.b.leader());
    REQUIRE(w.env->calls.size() == before + 1);
    REQUIRE(l);
    REQUIRE(l->value == "a");
    REQUIRE(l->key == mine.key());
    REQUIRE(l->term == mine.term());
    REQUIRE(l->revision == mine.term());
    REQUIRE(l->lease == w.one.lease());
    w.await(mine.proclaim("c"));
    const std::optional<coetcd::leader> then = w.await(coetcd::leader_of(w.owner, "e"));
    REQUIRE(then);
    REQUIRE(then->value == "c");
    REQUIRE(then->term == mine.term());
    REQUIRE(then->revision > mine.term());
    // Without a session, too.
    (void)w.one.orphan();
    w.await(w.two.close());
    REQUIRE(value_of(w.await(w.a.leader())) == "c");
    REQUIRE(waiting.code() == errc::session_closed);
}

TEST_CASE("observe() tells who leads, and also that there is no leader", "[election][observe]") {
    candidates w;
    coetcd::leader_feed news = coetcd::observe(w.owner, "e");
    REQUIRE(news.get_executor() == w.owner.get_executor());
    REQUIRE(value_of(w.await(news.next())) == "nobody");
    const auto next_is = [&](const std::string& expected) {
        background<std::optional<coetcd::leader>> next = w.start(news.next());
        w.env->pass(20ms);
        CHECK(next.ended());
        CHECK(value_of(next.get()) == expected);
    };
    leadership mine = w.await(w.a.campaign("a"));
    next_is("a");
    auto waiting = w.start(w.b.campaign("b"));
    w.env->pass(100ms);
    w.await(mine.proclaim("a2"));
    const std::size_t before = w.env->calls.size();
    next_is("a2");
    REQUIRE(w.env->calls.size() == before); // the event has said it all
    w.await(mine.resign());
    next_is("b");
    { const leadership theirs = waiting.get(); }
    w.env->pass(10ms);
    next_is("nobody");
    auto next = w.start(news.next());
    w.env->pass(1min);
    REQUIRE_FALSE(next.ended());
    w.etcd->write("e/zzz", "by hand");
    w.env->pass(10ms);
    REQUIRE(value_of(next.get()) == "by hand");
}

TEST_CASE("observe() costs one look for a change of the leader, none for the queue",
          "[election][observe]") {
    candidates w;
    leadership mine = w.await(w.a.campaign("a"));
    coetcd::leader_feed news = w.a.observe();
    REQUIRE(value_of(w.await(news.next())) == "a");
    const auto looks = [&] {
        return std::count_if(w.env->calls.begin(), w.env->calls.end(), [](const call_request& r) {
            return r.what == rpc::range;
        });
    };
    REQUIRE(looks() == 1);
    auto next = w.start(news.next());
    for (int i = 0; i != 5; ++i) {
        REQUIRE_FALSE(w.await(w.b.campaign_for("b", 100ms)));
    }
    w.env->pass(100ms);
    REQUIRE_FALSE(next.ended());
    REQUIRE(looks() == 1);
    auto waiting = w.start(w.b.campaign("b"));
    w.env->pass(100ms);
    w.await(mine.resign());
    w.env->pass(20ms);
    REQUIRE(value_of(next.get()) == "b");
    REQUIRE(looks() == 2);
}

TEST_CASE("two feeds of one election do not disturb each other", "[election][observe]") {
    candidate w;
    coetcd::leader_feed one = w.own.observe();
    std::optional<coetcd::leader_feed> two(w.own.observe());
    REQUIRE(value_of(w.await(one.next())) == "nobody");
    auto waiting = w.start(two->next());
    w.env->pass(20ms);
    REQUIRE(value_of(waiting.get()) == "nobody");
    auto aborted = w.start(two->next());
    w.env->pass(20ms);
    two.reset();
    w.env->pass(1ms);
    REQUIRE(aborted.code() == asio::error::operation_aborted);
    leadership mine = w.await(w.own.campaign("a"));
    REQUIRE(value_of(w.await(one.next())) == "a");
    coetcd::leader_feed moved = std::move(one);
    w.await(mine.proclaim("b"));
    REQUIRE(value_of(w.await(moved.next())) == "b");
    moved = coetcd::leader_feed();
    mine = leadership();
    w.env->pass(15s);
    REQUIRE(w.etcd->watches() == 0);
}

TEST_CASE("whatever happens, observe() ends with the last state and never goes back",
          "[election][observe]") {
    for (unsigned seed = 1; seed != 9; ++seed) {
        INFO("seed " << seed);
        std::mt19937 chance(seed);
        const auto one_in = [&](unsigned n) { return chance() % n == 0; };
        candidates w({60s}, {60s});
        coetcd::leader_feed news = coetcd::observe(w.owner, "e");
        std::vector<std::pair<std::int64_t, std::int64_t>> seen; // of the leaders
        std::string last = "nothing";
        std::optional<background<std::optional<coetcd::leader>>> next(w.start(news.next()));
        const auto listen = [&] {
            if (next->ended()) {
                const std::optional<coetcd::leader> l = next->get();
                last = value_of(l);
                if (l) {
                    const std::pair<std::int64_t, std::int64_t> now(l->term, l->revision);
                    CHECK((seen.empty() || seen.back() < now));
                    seen.push_back(now);
                }
                next.emplace(w.start(news.next()));
            }
        };
        w.env->decide = [&](const call_request& r) {
            scripted_env::fate f;
            f.breaks = r.what == rpc::range && one_in(4);
            f.late = one_in(4) ? 30ms : 0ms;
            return f;
        };
        std::optional<leadership> mine;
        for (int i = 0; i != 60; ++i) {
            const std::string value = std::to_string(i);
            if (!mine) {
                mine.emplace(w.await((one_in(2) ? w.a : w.b).campaign(value)));
            } else if (one_in(3)) {
                w.await(mine->resign());
                mine.reset();
            } else {
                w.await(mine->proclaim(value));
            }
            if (one_in(6)) {
                w.env->break_streams();
            }
            w.etcd->compact(w.etcd->revision);
            w.env->pass(std::chrono::milliseconds(chance() % 60));
            listen();
        }
        w.env->decide = nullptr;
        for (int i = 0; i != 200; ++i) {
            w.env->pass(100ms);
            listen();
        }
        CHECK(last == value_of(w.await(w.a.leader())));
        CHECK(seen.size() > 5);
    }
}

TEST_CASE("resume() goes on with the term that the lease has", "[election][resume]") {
    candidates w(coetcd::session_options(20s));
    leadership before = w.await(w.a.campaign("a"));
    w.await(before.proclaim("b"));
    const std::string key = before.key();
    const std::int64_t term = before.term();
    (void)w.one.orphan();
    coetcd::session heir = w.await(coetcd::session::adopt(w.owner, w.one.lease())).value();
    election own(heir, "e");
    REQUIRE_FALSE(w.await(w.b.resume())); // it is another lease's
    w.env->calls.clear();
    const bool by_term = GENERATE(false, true);
    const bool by_hand = GENERATE(false, true);
    auto resuming = by_term ? own.resume(key, term) : own.resume();
    std::optional<leadership> mine = w.await(std::move(resuming));
    REQUIRE(w.env->calls.size() == (by_term ? 1 : 2));
    REQUIRE(mine);
    REQUIRE(mine->leads());
    REQUIRE(mine->key() == key);
    REQUIRE(mine->term() == term);
    w.await(mine->proclaim("c"));
    w.await(mine->proclaim("c"));
    REQUIRE(told(w) == strings{"a", "b", "c", "c"});
    REQUIRE_FALSE(w.await(own.resume())); // once
    REQUIRE_FALSE(w.await(own.resume(key, term)));
    auto waiting = w.start(w.b.campaign("d"));
    w.env->pass(30s);
    REQUIRE(mine->leads());
    auto losing = w.start(mine->wait_lost());
    if (by_hand) {
        w.etcd->erase(key);
        w.env->pass(20ms);
        REQUIRE(losing.get() == errc::lock_lost);
    } else {
        REQUIRE(w.await(mine->resign()));
    }
    w.env->pass(20ms);
    REQUIRE(waiting.get().leads());
}

TEST_CASE("a value that was proclaimed before the term was resumed is put again",
          "[election][resume]") {
    // A copy of what the earlier owner proclaimed last may be under way, and must not win.
    candidates w(coetcd::session_options(60s));
    leadership before = w.await(w.a.campaign("a"));
    w.env->decide = [first = true, is_it = proclaims("late")](const call_request& r) mutable {
        scripted_env::fate f;
        f.late = is_it(r) && std::exchange(first, false) ? 8s : 0s;
        return f;
    };
    auto cancelled = w.start(before.proclaim("late"));
    w.env->pass(10ms);
    cancelled.cancel();
    (void)w.one.orphan();
    coetcd::session heir = w.await(coetcd::session::adopt(w.owner, w.one.lease())).value();
    election own(heir, "e");
    std::optional<leadership> mine = w.await(own.resume());
    REQUIRE(mine);
    w.await(mine->proclaim("a")); // as it is
    w.env->pass(20s);
    REQUIRE(told(w) == strings{"a", "a"});
}

TEST_CASE("what is refused before the term's last change is known was never proclaimed",
          "[election][resume]") {
    candidates w(coetcd::session_options(60s));
    leadership before = w.await(w.a.campaign("a"));
    (void)w.one.orphan();
    coetcd::session heir = w.await(coetcd::session::adopt(w.owner, w.one.lease())).value();
    election own(heir, "e");
    std::optional<leadership> mine = w.await(own.resume());
    REQUIRE(mine);
    only_one_copy(w, support::late(8s));
    auto proclaiming = w.start(mine->proclaim("b"));
    w.env->pass(10ms);
    const auto serve = w.env->on_call;
    refuse_puts(w);
    w.env->decide = nullptr;
    w.env->pass(5s);
    REQUIRE(proclaiming.code() == coetcd::server_errc::permission_denied);
    w.env->on_call = serve;
    w.env->pass(20s);
    REQUIRE(told(w) == strings{"a"});
}

TEST_CASE("resume() of a term takes nothing that is not its", "[election][resume]") {
    candidates w({60s}, {60s});
    leadership theirs = w.await(w.a.campaign("a"));
    auto waiting = w.start(w.b.campaign("b"));
    w.env->pass(50ms);
    std::string behind;
    for (const std::string& key : w.etcd->under("e/")) {
        behind = key == theirs.key() ? behind : key;
    }
    const std::int64_t since = w.etcd->keys.at(behind).create_revision;
    // Of another lease.
    REQUIRE_FALSE(w.await(w.b.resume(theirs.key(), theirs.term())));
    REQUIRE(theirs.leads());
    // Of another object with the same lease: but that waits.
    coetcd::session heir = w.await(coetcd::session::adopt(w.owner, w.two.lease())).value();
    election own(heir, "e");
    REQUIRE_FALSE(w.await(own.resume(behind, since)));
    REQUIRE(w.etcd->keys.contains(behind)); // and goes on waiting
    // Our own, which an object has already.
    const std::size_t before = w.env->calls.size();
    REQUIRE_FALSE(w.await(w.a.resume(theirs.key(), theirs.term())));
    REQUIRE(w.env->calls.size() == before);
    REQUIRE(theirs.leads());
    // Another term.
    w.await(theirs.resign());
    w.env->pass(20ms);
    leadership mine = waiting.get();
    REQUIRE_FALSE(w.await(own.resume(mine.key(), mine.term() + 1)));
    REQUIRE_FALSE(w.await(own.resume(mine.key() + "0", mine.term())));
    REQUIRE(mine.leads());

    (void)heir.close();
    auto late = w.start(own.resume(mine.key(), mine.term()));
    w.env->pass(20ms);
    REQUIRE(late.code() == errc::session_closed);
}

TEST_CASE("resume() of a term that is cancelled on its way back leaves it as it is",
          "[election][resume][cancellation]") {
    candidates w;
    leadership before = w.await(w.a.campaign("a"));
    const std::string key = before.key();
    const std::int64_t term = before.term();
    (void)w.one.orphan();
    coetcd::session heir = w.await(coetcd::session::adopt(w.owner, w.one.lease())).value();
    election own(heir, "e");
    asio::io_context elsewhere(1);
    const bool by_term = GENERATE(false, true);
    auto work = by_term ? own.resume(key, term) : own.resume();
    support::background<std::optional<leadership>> resuming(elsewhere, std::move(work));
    elsewhere.poll();
    w.env->pass(1ms);
    resuming.cancel(); // gets there just before what was resumed
    w.env->pass(20ms);
    elsewhere.restart();
    elsewhere.poll();
    REQUIRE(resuming.ended());
    REQUIRE(resuming.code() == asio::error::operation_aborted);
    w.env->pass(1s);
    REQUIRE(w.etcd->under("e/") == strings{key});
    REQUIRE(w.await(own.resume(key, term)));
}

TEST_CASE("resume() of a term that is cancelled or fails leaves it as it is",
          "[election][resume][cancellation]") {
    for (auto when = 0us; when < 4ms; when += 500us) {
        INFO("after " << when.count() << " us");
        candidates w;
        leadership before = w.await(w.a.campaign("a"));
        const std::string key = before.key();
        const std::int64_t term = before.term();
        (void)w.one.orphan();
        coetcd::session heir = w.await(coetcd::session::adopt(w.owner, w.one.lease())).value();
        election own(heir, "e");
        auto resuming = w.start(own.resume(key, term));
        w.env->pass(when);
        const bool ended = resuming.ended();
        resuming.cancel();
        w.env->pass(0ms);
        REQUIRE(resuming.ended());
        w.env->pass(100ms);
        REQUIRE(w.etcd->under("e/") == strings{key});
        if (!ended) {
            REQUIRE(resuming.code() == asio::error::operation_aborted);
            REQUIRE(w.await(own.resume(key, term)));
        }
    }
    candidates w;
    leadership before = w.await(w.a.campaign("a"));
    (void)w.one.orphan();
    coetcd::session heir = w.await(coetcd::session::adopt(w.owner, w.one.lease())).value();
    election own(heir, "e");
    w.env->decide = [](const call_request& r) {
        scripted_env::fate f;
        f.refused = r.what == rpc::txn;
        return f;
    };
    auto resuming = w.start(own.resume(before.key(), before.term()));
    w.env->pass(6s);
    REQUIRE(resuming.code() == errc::unavailable);
    w.env->decide = nullptr;
    REQUIRE(w.await(own.resume(before.key(), before.term())));
}

TEST_CASE("lead() runs its body while it leads, and returns what it returns", "[election][lead]") {
    candidate w;
    auto number = [&](const leadership& l) -> asio::awaitable<int> {
        REQUIRE(l.leads());
        const std::optional<coetcd::leader> now = co_await w.own.leader();
        REQUIRE(value_of(now) == "a");
        co_return 7;
    };
    REQUIRE(w.await(coetcd::lead(w.own, "a", number)) == 7);
    w.env->pass(10ms);
    REQUIRE(w.etcd->under("e/").empty());
    auto failing = []() -> asio::awaitable<void> {
        throw std::runtime_error("out of stock");
        co_return;
    };
    auto failed = w.start(coetcd::lead(w.own, "a", failing));
    w.env->pass(20ms);
    REQUIRE_THROWS_WITH(failed.get(), "out of stock");
    REQUIRE(w.etcd->under("e/").empty());
    auto closing = [&]() -> asio::awaitable<void> { co_await w.session.close(); };
    auto closed = w.start(coetcd::lead(w.own, "a", closing));
    w.env->pass(50ms);
    REQUIRE(closed.code() == errc::session_closed);
    REQUIRE(w.etcd->keys.empty());
}

TEST_CASE("lead() cancels its body when the term is lost, awaits its end, and reports the loss",
          "[election][lead]") {
    for (const bool by_hand : {false, true}) {
        candidate w(coetcd::session_options(60s));
        bool aborted = false;
        bool ended = false;
        auto body = [&]() -> asio::awaitable<int> {
            coetcd::detail::notifier never(*w.env);
            try {
                (void)co_await never.wait();
            } catch (const boost::system::system_error& e) {
                aborted = e.code() == asio::error::operation_aborted;
            }
            co_await asio::this_coro::throw_if_cancelled(false);
            (void)co_await never.wait(w.env->now() + 5s); // it takes its time
            ended = true;
            co_return 1;
        };
        auto working = w.start(coetcd::lead(w.own, "a", body));
        w.env->pass(100ms);
        if (by_hand) {
            w.etcd->erase(w.etcd->under("e/").front());
        } else {
            w.etcd->revoke(w.session.lease());
        }
        w.env->pass(20ms);
        REQUIRE(aborted);
        REQUIRE_FALSE(working.ended());
        w.env->pass(5s);
        REQUIRE(ended);
        REQUIRE(working.code() == (by_hand ? errc::lock_lost : errc::session_lost));
    }
}

namespace {

/// A body for `lead` with sessions of its own, and what becomes of it.
struct officer {
    explicit officer(world& where)
        : w(where)
        , leaves(*where.env) {}
    asio::awaitable<void> operator()(const leadership& l) {
        REQUIRE(l.leads());
        REQUIRE(++inside == 1); // never two at a time
        ++terms;
        term = l.term();
        key = l.key();
        struct at_end {
            officer& of;
            ~at_end() { --of.inside; }
        };
        const at_end leaves_office{*this};
        co_await serve();
    }
    asio::awaitable<void> serve() {
        std::exception_ptr failure;
        try {
            (void)co_await leaves.wait();
        } catch (...) {
            failure = std::current_exception();
        }
        if (failure) {
            ++cancelled;
            co_await asio::this_coro::throw_if_cancelled(false);
            (void)co_await leaves.wait(w.env->now() + slow);
            std::rethrow_exception(failure);
        }
        if (throws) {
            throw std::runtime_error("enough");
        }
    }

    world& w;
    coetcd::detail::notifier leaves; ///< Notified: it ends by itself.
    bool throws = false;
    std::chrono::milliseconds slow{0}; ///< To end when it is cancelled.
    int inside = 0;
    int terms = 0;
    int cancelled = 0;
    std::int64_t term = 0;
    std::string key;
};

struct office : world {
    office()
        : owner(client())
        , serves(*this) {}
    ~office() { context.reset(); } // what is under way goes before what it uses
    background<void> lead(coetcd::lead_options how = {}) {
        auto body = [this](const leadership& l) { return serves(l); };
        return start(coetcd::lead(owner, "e", "a", body, how));
    }
    coetcd::client owner;
    officer serves;
};

} // namespace

TEST_CASE("lead() with sessions of its own ends with its body, and leaves nothing",
          "[election][lead]") {
    office w;
    auto leading = w.lead();
    w.env->pass(1min);
    REQUIRE(w.serves.terms == 1);
    REQUIRE(w.etcd->leases() == 1);
    w.serves.leaves.notify_all();
    w.env->pass(20ms);
    leading.get();
    REQUIRE(w.serves.terms == 1);
    REQUIRE(w.etcd->leases() == 0);
    REQUIRE(w.etcd->keys.empty());

    w.serves.throws = true;
    for (const auto when : {coetcd::again::never, coetcd::again::on_loss, coetcd::again::always}) {
        auto failing = w.lead({.again = when});
        w.env->pass(50ms);
        w.serves.leaves.notify_all();
        w.env->pass(50ms);
        REQUIRE_THROWS_WITH(failing.get(), "enough");
        REQUIRE(w.etcd->leases() == 0);
    }
}

TEST_CASE("lead() leads again after a loss, and never runs two bodies at a time",
          "[election][lead]") {
    for (const bool by_hand : {false, true}) {
        for (const auto slow : {0ms, 3000ms}) {
            INFO("by hand " << by_hand << ", slow " << slow.count());
            office w;
            w.serves.slow = slow;
            auto leading = w.lead();
            for (int round = 1; round != 4; ++round) {
                w.env->pass(1min);
                REQUIRE(w.serves.inside == 1);
                REQUIRE(w.serves.terms == round);
                if (by_hand) {
                    w.etcd->erase(w.serves.key);
                } else {
                    w.etcd->revoke(w.etcd->lease_ids().front());
                }
                w.env->pass(20ms);
                REQUIRE(w.serves.cancelled == round);
                REQUIRE(w.serves.inside == (slow == 0ms ? 0 : 1));
                w.env->pass(slow + 500ms);
                REQUIRE(w.serves.terms == round + 1);
            }
            w.serves.leaves.notify_all();
            w.env->pass(1s);
            leading.get();
            REQUIRE(w.etcd->leases() == 0);
        }
    }
}

TEST_CASE("lead() once reports a loss, with what the body has thrown", "[election][lead]") {
    office w;
    auto leading = w.lead({.again = coetcd::again::never});
    w.env->pass(100ms);
    w.etcd->erase(w.serves.key);
    w.env->pass(1s);
    REQUIRE(w.serves.terms == 1);
    REQUIRE(leading.code() == errc::lock_lost);
    try {
        leading.get();
    } catch (const coetcd::error& e) {
        try {
            std::rethrow_if_nested(e);
            FAIL("it has nothing nested");
        } catch (const boost::system::system_error& inner) {
            REQUIRE(inner.code() == asio::error::operation_aborted);
        }
    }
    REQUIRE(w.etcd->leases() == 0);
}

TEST_CASE("lead() for ever goes on until it is cancelled", "[election][lead]") {
    office w;
    coetcd::session other = w.await(coetcd::session::open(w.owner));
    election rival(other, "e");
    auto leading = w.lead({.again = coetcd::again::always});
    w.env->pass(100ms);
    auto waiting = w.start(rival.campaign("b"));
    w.env->pass(100ms);
    w.serves.leaves.notify_all();
    w.env->pass(20ms);
    REQUIRE(w.serves.inside == 0);
    leadership theirs = waiting.get(); // the others get their turn
    REQUIRE(theirs.leads());
    w.env->pass(1s);
    REQUIRE(w.await(theirs.resign()));
    w.env->pass(20ms);
    REQUIRE(w.serves.terms == 2);
    leading.cancel();
    w.env->pass(20ms);
    REQUIRE(leading.code() == asio::error::operation_aborted);
    REQUIRE(w.serves.inside == 0);
    w.env->pass(100ms);
    REQUIRE(w.etcd->leases() == 1);
    REQUIRE(w.etcd->keys.empty());
}

TEST_CASE("lead() that is cancelled awaits its body, wherever it is",
          "[election][lead][cancellation]") {
    for (auto when = 0us; when < 12ms; when += 500us) {
        INFO("after " << when.count() << " us");
        office w;
        w.serves.slow = 2000ms;
        auto leading = w.lead({.again = coetcd::again::always});
        w.env->pass(when);
        const bool inside = w.serves.inside != 0;
        leading.cancel();
        w.env->pass(1ms);
        REQUIRE(leading.ended() != inside);
        w.env->pass(3s);
        REQUIRE(leading.code() == asio::error::operation_aborted);
        REQUIRE(leading.completions() == 1);
        REQUIRE(w.serves.inside == 0);
        REQUIRE(w.etcd->leases() == 0);
        REQUIRE(w.etcd->keys.empty());
    }
}

TEST_CASE("lead() waits out an outage, at its beginning and in the middle", "[election][lead]") {
    office w;
    w.env->decide = [](const call_request&) {
        scripted_env::fate f;
        f.refused = true;
        return f;
    };
    auto leading = w.lead();
    w.env->pass(1min);
    REQUIRE_FALSE(leading.ended());
    REQUIRE(w.serves.terms == 0);
    w.env->decide = nullptr;
    w.env->pass(11s); // the longest pause
    REQUIRE(w.serves.inside == 1);
    w.env->decide = [](const call_request&) { return loses_answer(); };
    w.env->pass(1min);
    REQUIRE(w.serves.inside == 0);
    REQUIRE_FALSE(leading.ended());
    w.env->decide = nullptr;
    w.env->pass(21s);
    REQUIRE(w.serves.inside == 1);
    REQUIRE(w.serves.terms == 2);
    w.serves.leaves.notify_all();
    w.env->pass(1s);
    leading.get();
}

TEST_CASE("lead() outlives the loss of a session while it waits", "[election][lead]") {
    office w;
    coetcd::session other = w.await(coetcd::session::open(w.owner, {60s}));
    election rival(other, "e");
    leadership theirs = w.await(rival.campaign("b"));
    auto leading = w.lead({.again = coetcd::again::never});
    for (int i = 0; i != 3; ++i) {
        w.env->pass(2s);
        const auto queue = w.etcd->under("e/");
        REQUIRE(queue.size() == 2);
        for (const std::string& key : queue) {
            if (key != theirs.key() && i == 0) {
                w.etcd->erase(key);
            } else if (key != theirs.key()) {
                w.etcd->revoke(w.etcd->keys.at(key).lease);
            }
        }
        REQUIRE_FALSE(leading.ended());
    }
    w.env->pass(2s);
    w.await(theirs.resign());
    w.env->pass(20ms);
    REQUIRE(w.serves.inside == 1);
    w.serves.leaves.notify_all();
    w.env->pass(1s);
    leading.get();
}

TEST_CASE("lead() does not go on where etcd refuses", "[election][lead]") {
    office w;
    SECTION("a lease") {
        w.etcd->no_space = true;
        auto leading = w.lead();
        w.env->pass(1s);
        REQUIRE(leading.code() == coetcd::server_errc::resource_exhausted);
    }
    SECTION("a place") {
        w.env->on_call = [serve = w.env->on_call](const call_request& r,
                                                  coetcd::detail::reply& answer) {
            serve(r, answer);
            if (is_enter(r)) {
                answer.status = 403;
                answer.body = R"({"error":"etcdserver: permission denied","code":7,)"
                              R"("message":"etcdserver: permission denied"})";
            }
        };
        auto leading = w.lead();
        w.env->pass(1s);
        REQUIRE(leading.code() == coetcd::server_errc::permission_denied);
        w.env->pass(10s);
        REQUIRE(w.etcd->leases() == 0);
    }
    REQUIRE(w.serves.terms == 0);
}

TEST_CASE("the whole world may end while lead() is under way", "[election][lead]") {
    for (auto when = 0ms; when < 12ms; ++when) {
        office w;
        const auto leading = w.lead({.again = coetcd::again::always});
        w.env->pass(when);
    }
    SUCCEED("no leak, no access to what is gone");
}
