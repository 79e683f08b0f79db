// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/detail/access.hpp>
#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/logic/election.hpp>
#include <coetcd/detail/recipe/feed.hpp>
#include <coetcd/election.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/race.hpp"
#include "support/world.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::event;
using coetcd::event_type;
using coetcd::range_response;
using coetcd::detail::call_request;
using coetcd::detail::feed;
using coetcd::detail::rpc;
using support::scripted_env;
using support::world;
using question = coetcd::detail::logic::question<std::string>;

namespace {

/// The value of the key "k", or "none". A put tells it; of an erase only a look tells.
question value_of_k() {
    question q{"the value", {"k"}, coetcd::detail::wire::watch_create_request("k"), {}, {}};
    q.from = [](const range_response& r) {
        return r.kvs.empty() ? std::string("none") : r.kvs.front().value;
    };
    q.follow = [](const std::string&, const event& e) {
        return e.type == event_type::put ? std::optional(e.kv.value) : std::nullopt;
    };
    return q;
}

/// The same; only looks tell.
question looked_up() {
    question q = value_of_k();
    q.follow = [](const std::string&, const event&) { return std::optional<std::string>(); };
    return q;
}

struct feed_fixture : world {
    explicit feed_fixture(question q = value_of_k())
        : owner(client())
        , impl(coetcd::detail::access::impl(owner))
        , news(coetcd::detail::make_at_home<feed<std::string>>(env, impl, 5s, std::move(q))) {}
    ~feed_fixture() {
        news.reset();
        env->pass(10s);
    }

    support::background<std::string> next() { return start(feed<std::string>::next(news)); }
    std::string told() { return await(feed<std::string>::next(news)); }
    void put(const std::string& value) { etcd->write("k", value); }
    std::size_t looks() const {
        return static_cast<std::size_t>(
            std::count_if(env->calls.begin(), env->calls.end(), [](const call_request& r) {
                return r.what == rpc::range;
            }));
    }

    coetcd::client owner;
    std::shared_ptr<coetcd::detail::client_impl> impl;
    std::shared_ptr<feed<std::string>> news;
};

using leader_question = coetcd::detail::logic::question<std::optional<coetcd::leader>>;
coetcd::leader_feed leaders_by(world& w, const coetcd::client& client, leader_question q) {
    using impl = feed<std::optional<coetcd::leader>>;
    auto made = coetcd::detail::make_at_home<impl>(
        w.env, coetcd::detail::access::impl(client), 5s, std::move(q));
    return coetcd::detail::access::make<coetcd::leader_feed>(std::move(made));
}

scripted_env::fate no_answer() {
    scripted_env::fate f;
    f.arrives = false;
    return f;
}

} // namespace

TEST_CASE("a feed tells the present first, by one look", "[feed]") {
    feed_fixture f;
    f.put("a");
    CHECK(f.env->opened.empty());
    CHECK(f.told() == "a");
    CHECK(f.looks() == 1);
    CHECK(f.etcd->watches() == 1);
    auto next = f.next();
    f.env->pass(5s);
    CHECK_FALSE(next.ended());
    CHECK(f.looks() == 1);
    f.env->pass(20s); // but for a look from time to time
    CHECK_FALSE(next.ended());
    CHECK(f.looks() >= 2);
    CHECK(f.looks() <= 4);
}

TEST_CASE("a feed follows changes, and looks only where it has to", "[feed]") {
    feed_fixture f;
    CHECK(f.told() == "none");
    for (const std::string value : {"a", "b", "c"}) {
        auto next = f.next();
        f.put(value);
        f.env->pass(5ms);
        CHECK(next.get() == value);
    }
    CHECK(f.looks() == 1);
    auto next = f.next();
    f.etcd->erase("k");
    f.env->pass(5ms);
    CHECK(next.get() == "none");
    CHECK(f.looks() == 2);
}

TEST_CASE("a feed that cannot follow looks once for each change", "[feed]") {
    feed_fixture f(looked_up());
    CHECK(f.told() == "none");
    for (const std::string value : {"a", "b", "c"}) {
        auto next = f.next();
        f.put(value);
        f.env->pass(10ms);
        CHECK(next.get() == value);
    }
    CHECK(f.looks() == 4);
}

TEST_CASE("a slow reader is told the newest answer, and no other", "[feed]") {
    for (const bool follows : {false, true}) {
        feed_fixture f(follows ? value_of_k() : looked_up());
        f.put("a");
        CHECK(f.told() == "a");
        for (int i = 0; i != 100; ++i) {
            f.put(std::to_string(i));
            f.env->pass(1ms);
        }
        f.env->pass(1min);
        const std::size_t before = f.looks();
        CHECK(f.told() == "99");
        CHECK(f.looks() == before + 1); // no reader has waited for longer than it trusts events
    }
}

TEST_CASE("an answer is told once, whatever happens", "[feed]") {
    feed_fixture f(looked_up());
    f.put("a");
    CHECK(f.told() == "a");
    auto next = f.next();
    for (int i = 0; i != 5; ++i) {
        f.put("a");
        f.env->pass(10ms);
        CHECK_FALSE(next.ended());
    }
    f.put("b");
    f.env->pass(10ms);
    CHECK(next.get() == "b");
}

TEST_CASE("a change at any moment of the beginning is told", "[feed]") {
    for (const bool follows : {false, true}) {
        for (auto when = 0us; when < 15ms; when += 500us) {
            INFO("after " << when.count() << " us");
            feed_fixture f(follows ? value_of_k() : looked_up());
            f.put("a");
            std::string last;
            auto next = f.next();
            f.env->pass(when);
            f.put("b");
            f.env->pass(10ms);
            f.etcd->erase("k");
            for (int i = 0; i != 5 && last != "none"; ++i) {
                f.env->pass(20ms);
                if (next.ended()) {
                    last = next.get();
                    next = f.next();
                }
            }
            CHECK(last == "none");
        }
    }
}

TEST_CASE("what a broken stream has missed is looked for", "[feed]") {
    feed_fixture f;
    f.put("a");
    CHECK(f.told() == "a");
    auto next = f.next();
    f.env->pass(100ms);
    f.env->break_streams();
    f.put("b"); // it is not told of this
    f.env->pass(500ms);
    CHECK(next.get() == "b");
    CHECK(f.looks() == 2);
}

TEST_CASE("what etcd has forgotten to tell is found within ten seconds", "[feed]") {
    feed_fixture f;
    f.put("a");
    CHECK(f.told() == "a");
    auto next = f.next();
    f.etcd->tells = false;
    f.put("b");
    f.env->pass(5s);
    CHECK_FALSE(next.ended());
    f.env->pass(5100ms);
    CHECK(next.get() == "b");
}

TEST_CASE("a feed that has not been asked for a while looks before it answers", "[feed]") {
    feed_fixture f;
    f.put("a");
    CHECK(f.told() == "a");
    f.etcd->tells = false;
    f.put("b");
    f.env->pass(1min);
    CHECK(f.looks() == 1); // no reader waits
    CHECK(f.told() == "b");
    CHECK(f.looks() == 2);
}

TEST_CASE("history that is compacted all the time is no concern of a feed", "[feed]") {
    feed_fixture f;
    CHECK(f.told() == "none");
    for (int i = 0; i != 40; ++i) {
        f.put(std::to_string(i));
        f.etcd->compact(f.etcd->revision);
        if (i % 10 == 0) {
            f.env->break_streams();
        }
        f.env->pass(50ms);
    }
    f.env->pass(1s);
    CHECK(f.told() == "39");
}

TEST_CASE("a watch that etcd ends begins anew", "[feed]") {
    feed_fixture f;
    std::shared_ptr<scripted_env::server_stream> stream;
    f.env->on_open = [&, serve = f.env->on_open](const call_request& request, auto opened) {
        stream = opened;
        serve(request, opened);
    };
    f.put("a");
    CHECK(f.told() == "a");
    auto next = f.next();
    stream->push(
        R"({"result":{"header":{"cluster_id":"14841639068965178418"},"watch_id":"1","canceled":true,"cancel_reason":)"
        R"("etcdserver: mvcc: required revision has been compacted"}})");
    f.put("b"); // in between
    f.env->pass(1500ms);
    CHECK(next.get() == "b");
    next = f.next();
    f.env->pass(100ms); // the watch that began anew calls for a look
    const std::size_t before = f.looks();
    f.put("c");
    f.env->pass(10ms);
    CHECK(next.get() == "c");
    CHECK(f.looks() == before);
}

TEST_CASE("a feed never goes back", "[feed]") {
    feed_fixture f(looked_up());
    f.put("a");
    f.put("b");
    CHECK(f.told() == "b");
    auto next = f.next();
    SECTION("a member that stands still answers with what it had") {
        f.etcd->stale_by = 1;
        f.env->break_streams(); // reason enough to look
        f.env->pass(3s);
        CHECK_FALSE(next.ended());
        f.etcd->stale_by = 0;
        f.env->pass(10s);
        CHECK_FALSE(next.ended());
        f.put("c");
        f.env->pass(10ms);
        CHECK(next.get() == "c");
    }
    SECTION("the store was restored from a snapshot") {
        f.etcd->stale_by = 1;
        f.env->break_streams();
        f.env->pass(10s);
        CHECK(next.code() == errc::revision_regressed);
        CHECK(f.told() == "a"); // all begins anew
        f.etcd->stale_by = 0;
        f.put("c");
        f.env->pass(10ms);
        CHECK(f.told() == "c");
    }
}

TEST_CASE("an older answer is no answer", "[feed]") {
    // A look is under way when later news comes by the watch: it must not be undone.
    bool first = true; // outlives the looks
    feed_fixture f;
    f.put("a");
    CHECK(f.told() == "a");
    f.env->on_call = [&, serve = f.env->on_call](const call_request& r,
                                                 coetcd::detail::reply& answer) {
        serve(r, answer);
        if (r.what == rpc::range && std::exchange(first, false)) {
            f.put("b"); // after what was read, and told at once
        }
    };
    auto next = f.next();
    f.env->pass(11s); // a recheck
    CHECK(next.get() == "b");
    next = f.next();
    f.env->pass(11s);
    CHECK_FALSE(next.ended());
}

TEST_CASE("a look that is older than the watch is no answer", "[feed]") {
    feed_fixture f;
    f.put("a");
    f.put("b");
    f.etcd->stale_by = 1; // the watch tells what comes after "b", and the look shows "a"
    auto next = f.next();
    f.env->pass(300ms);
    CHECK_FALSE(next.ended());
    f.etcd->stale_by = 0;
    f.env->pass(2s);
    CHECK(next.get() == "b");
}

TEST_CASE("a look that is older than what the watch told of is not repeated at once", "[feed]") {
    int looks = 0; // outlives them
    feed_fixture f(looked_up());
    f.put("a");
    CHECK(f.told() == "a");
    auto next = f.next();
    f.env->pass(1s);
    f.env->decide = [&looks](const call_request& r) {
        looks += r.what == rpc::range;
        return scripted_env::fate{};
    };
    f.etcd->stale_by = 1;
    f.put("b");
    f.env->pass(1s);
    CHECK(looks > 0);
    CHECK(looks <= 20);
    f.env->pass(10s);
    CHECK(next.code() == errc::revision_regressed);
    f.etcd->stale_by = 0;
}

TEST_CASE("an outage is waited out", "[feed]") {
    feed_fixture f(looked_up());
    f.env->decide = [](const call_request&) { return no_answer(); };
    auto next = f.next();
    f.env->pass(1min);
    CHECK_FALSE(next.ended());
    f.env->decide = nullptr;
    f.put("a");
    f.env->pass(10s);
    CHECK(next.get() == "a");
    // Only the looks fail.
    f.env->decide = [](const call_request& r) {
        scripted_env::fate fate;
        fate.arrives = r.what == rpc::watch;
        return fate;
    };
    next = f.next();
    f.put("b");
    f.env->pass(1min);
    CHECK_FALSE(next.ended());
    f.env->decide = nullptr;
    f.env->pass(5s);
    CHECK(next.get() == "b");
}

TEST_CASE("a refusal is thrown, and asked for again by the next call", "[feed]") {
    feed_fixture f;
    bool refuses = true;
    int asked = 0;
    f.env->on_call = [&, serve = f.env->on_call](const call_request& r,
                                                 coetcd::detail::reply& answer) {
        serve(r, answer);
        if (r.what == rpc::range && refuses) {
            ++asked;
            answer.status = 403;
            answer.body = R"({"error":"etcdserver: permission denied","code":7,)"
                          R"("message":"etcdserver: permission denied"})";
        }
    };
    auto next = f.next();
    f.env->pass(500ms);
    CHECK(next.code() == coetcd::server_errc::permission_denied);
    CHECK_THROWS_WITH(next.get(), support::contains("the value"));
    CHECK(asked == 1);
    next = f.next();
    f.env->pass(500ms);
    CHECK(next.code() == coetcd::server_errc::permission_denied);
    CHECK(asked == 2);
    refuses = false;
    CHECK(f.told() == "none");
}

TEST_CASE("after an answer the next refusal is the first one again", "[feed]") {
    feed_fixture f(looked_up());
    bool refuses = true;
    f.env->on_call = [&, serve = f.env->on_call](const call_request& r,
                                                 coetcd::detail::reply& answer) {
        serve(r, answer);
        if (r.what == rpc::range && refuses) {
            answer.status = 403;
            answer.body = R"({"error":"etcdserver: permission denied","code":7,)"
                          R"("message":"etcdserver: permission denied"})";
        }
    };
    const auto be_refused = [&] {
        const auto began = f.env->now();
        auto next = f.next();
        while (!next.ended()) {
            f.env->pass(1ms);
        }
        CHECK(next.code() == coetcd::server_errc::permission_denied);
        return f.env->now() - began;
    };
    std::chrono::nanoseconds last{0};
    for (int i = 0; i != 8; ++i) {
        last = be_refused();
    }
    CHECK(last > 400ms);
    refuses = false;
    CHECK(f.told() == "none");
    refuses = true;
    f.put("a");
    f.env->pass(10ms);
    (void)be_refused();
    CHECK(be_refused() < 60ms);
}

TEST_CASE("an answer that is not etcd's is none", "[feed]") {
    feed_fixture f;
    int bad = 2;
    f.env->on_call = [&, serve = f.env->on_call](const call_request& r,
                                                 coetcd::detail::reply& answer) {
        serve(r, answer);
        if (r.what == rpc::range && bad > 0) {
            --bad;
            answer.body = "{}"; // no revision
        }
    };
    CHECK(f.told() == "none");
    CHECK(bad == 0);
}

TEST_CASE("next() || timer loses no answer if the timer wins", "[feed][cancellation]") {
    constexpr int most_hops = 24;
    for (const bool elsewhere : {false, true}) {
        int lost = 0;
        for (int hops = 0; hops != most_hops; ++hops) {
            INFO("elsewhere " << elsewhere << ", " << hops << " handlers later");
            world w;
            const coetcd::client client = w.client();
            std::optional<support::race<std::optional<coetcd::leader>>> first;
            auto q = coetcd::detail::logic::who_leads("e");
            q.follow = [&, at = hops, follow = q.follow](const auto& before, const event& e) {
                first->ring_after(at);
                return follow(before, e);
            };
            auto leaders = leaders_by(w, client, std::move(q));
            REQUIRE_FALSE(w.await(leaders.next()));
            first.emplace(w, leaders.next(), elsewhere);
            w.env->pass(10ms);
            w.etcd->write("e/1", "a");
            w.env->pass(10ms);
            const auto told = first->result();
            lost += told ? 0 : 1;
            const auto now = told ? *told : w.await(leaders.next());
            REQUIRE(now);
            CHECK(now->value == "a");
            auto next = w.start(leaders.next());
            w.env->pass(10ms);
            CHECK_FALSE(next.ended());
        }
        CHECK(lost > 0);
        CHECK(lost < most_hops);
    }
}

TEST_CASE("a cancellation loses nothing", "[feed][cancellation]") {
    for (auto when = 0us; when < 12ms; when += 500us) {
        INFO("after " << when.count() << " us");
        feed_fixture f(looked_up());
        f.put("a");
        auto next = f.next();
        f.env->pass(when);
        const bool before = next.ended();
        next.cancel();
        f.env->pass(0ms);
        REQUIRE(next.ended());
        if (!before) {
            CHECK(next.code() == asio::error::operation_aborted);
            CHECK(f.told() == "a");
        }
        next = f.next();
        f.put("b");
        f.env->pass(when);
        const bool told = next.ended();
        next.cancel();
        f.env->pass(0ms);
        REQUIRE(next.ended());
        if (!told) {
            CHECK(f.told() == "b");
        }
        CHECK(next.completions() == 1);
        CHECK(f.etcd->watches() == 1);
    }
}

TEST_CASE("a feed that is ended tells its waiter, and leaves no watch", "[feed]") {
    for (auto when = 0us; when < 12ms; when += 500us) {
        INFO("after " << when.count() << " us");
        feed_fixture f;
        auto next = f.next();
        f.env->pass(when);
        const bool before = next.ended();
        f.news->end();
        f.env->pass(0ms);
        REQUIRE(next.ended());
        CHECK((before || next.code() == asio::error::operation_aborted));
        auto late = f.next();
        f.env->pass(0ms);
        CHECK(late.code() == asio::error::operation_aborted);
        f.env->pass(2s);
        CHECK(f.etcd->watches() == 0);
    }
}

TEST_CASE("two calls of one feed are both told, by one look", "[feed]") {
    feed_fixture f;
    auto one = f.next();
    auto two = f.next();
    f.env->pass(20ms);
    CHECK(one.get() == "none");
    CHECK_FALSE(two.ended()); // there is nothing new
    CHECK(f.looks() == 1);
    f.put("a");
    f.env->pass(5ms);
    CHECK(two.get() == "a");
}

TEST_CASE("a reader is told something however fast things change", "[feed]") {
    feed_fixture f(looked_up());
    CHECK(f.told() == "none");
    int n = 0;
    int told = 0;
    std::string last;
    std::optional<support::background<std::string>> next(f.next());
    for (int i = 0; i != 400; ++i) {
        f.put(std::to_string(++n));
        f.env->pass(500us);
        if (next->ended()) {
            last = next->get();
            ++told;
            next.emplace(f.next());
        }
    }
    CHECK(told > 10);
    f.env->pass(1s);
    CHECK((last == "400" || next->get() == "400"));
}

TEST_CASE("behind a proxy that completes requests the first answer comes at once", "[feed]") {
    feed_fixture f;
    f.env->duplex = scripted_env::way::buffered;
    f.put("a");
    const auto began = f.env->now();
    CHECK(f.told() == "a");
    CHECK(f.env->now() - began < 300ms);
    auto next = f.next();
    f.env->pass(5s); // it has found out what is in the way
    f.put("b");
    f.env->pass(20ms);
    CHECK(next.get() == "b");
}

TEST_CASE("the whole world may end while a coroutine waits for news", "[feed]") {
    for (auto when = 0ms; when < 8ms; ++when) {
        world w;
        const coetcd::client client = w.client();
        auto news = coetcd::detail::make_at_home<feed<std::string>>(
            w.env, coetcd::detail::access::impl(client), 5s, value_of_k());
        const auto next = w.start(feed<std::string>::next(std::move(news)));
        w.env->pass(when);
    }
    SUCCEED("no leak, no access to what is gone");
}
