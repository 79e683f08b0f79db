// SPDX-License-Identifier: BSL-1.0
#include <coetcd/group.hpp>
#include <coetcd/session_keeper.hpp>

#include <chrono>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"
#include "support/writes.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::group;
using coetcd::member_entry;
using coetcd::members_feed;
using coetcd::membership;
using support::world;

namespace {

using list = std::vector<member_entry>;

/// The values, in order.
std::string values(const list& all) {
    std::string text;
    for (const member_entry& m : all) {
        text += m.value + ' ';
    }
    return text;
}

/// Two sessions with one group.
struct group_settings {
    group_settings()
        : client(w.client())
        , one(w.await(coetcd::session::open(client)))
        , two(w.await(coetcd::session::open(client)))
        , a(one, "g")
        , b(two, "g") {
        w.env->calls.clear();
    }
    /// What a feed tells next; "nothing" if there is no news.
    std::string next(members_feed& feed) {
        auto waiting = w.start(feed.next());
        w.env->pass(100ms);
        if (waiting.ended()) {
            return values(waiting.get());
        }
        waiting.cancel(); // else it takes what the next call is to tell
        w.env->pass(0s);
        return "nothing";
    }
    world w;
    coetcd::client client;
    coetcd::session one;
    coetcd::session two;
    group a;
    group b;
};

} // namespace

TEST_CASE("a group has those as members who have joined and not left", "[group]") {
    group_settings s;
    CHECK(s.a.name() == "g");
    CHECK(s.a.get_executor() == s.client.get_executor());
    CHECK(s.w.await(s.a.members()).empty());
    CHECK(s.w.env->calls.size() == 1);
    s.w.env->calls.clear();
    membership first = s.w.await(s.a.join("a"));
    CHECK(s.w.env->calls.size() == 1); // one round trip
    CHECK(first.is_member());
    CHECK(first);
    CHECK(first.get_executor() == s.client.get_executor());
    membership second = s.w.await(s.b.join("b"));
    membership third = s.w.await(s.a.join("c")); // of one session
    CHECK(first.key().starts_with("g/"));
    CHECK(first.key() != third.key());
    const list all = s.w.await(s.b.members());
    CHECK(values(all) == "a b c ");
    CHECK(all[0].key == first.key());
    CHECK(all[0].lease == s.one.lease());
    CHECK(all[1].lease == s.two.lease());
    CHECK(all[0].joined < all[1].joined);
    CHECK(all[0].revision == all[0].joined);

    s.w.env->pass(1s);
    const std::size_t before = s.w.env->calls.size();
    s.w.await(first.update("x"));
    CHECK(s.w.env->calls.size() == before + 1);
    const list then = s.w.await(coetcd::members_of(s.client, "g"));
    CHECK(values(then) == "x b c "); // as old as before
    CHECK(then[0].joined == all[0].joined);
    CHECK(then[0].revision > all[0].revision);

    s.w.env->pass(1s);
    const std::size_t now = s.w.env->calls.size();
    CHECK(s.w.await(second.leave()));
    CHECK(s.w.env->calls.size() == now + 1);
    CHECK_FALSE(second.is_member());
    CHECK_FALSE(s.w.await(second.leave()));
    CHECK(values(s.w.await(s.a.members())) == "x c ");
    first = membership();
    s.w.env->pass(1s);
    CHECK(values(s.w.await(s.a.members())) == "c ");
    s.w.await(s.one.close());
    CHECK(s.w.await(s.a.members()).empty());
    CHECK_FALSE(third.is_member());
    CHECK(s.w.await(third.wait_lost()) == errc::session_closed);
    CHECK(s.w.etcd->keys.empty());
}

TEST_CASE("changes() tells who is in a group, and each change, without a request", "[group]") {
    group_settings s;
    members_feed feed = s.b.changes();
    members_feed other = coetcd::watch_members(s.client, "g");
    s.w.env->pass(1s);
    CHECK(s.w.env->calls.empty());
    CHECK(s.next(feed) == "");
    CHECK(s.next(other) == "");
    membership first = s.w.await(s.a.join("a"));
    CHECK(s.next(feed) == "a ");
    s.w.env->pass(1s); // it has looked at its key
    const std::size_t before = s.w.env->calls.size();
    membership second = s.w.await(s.b.join("b"));
    CHECK(s.next(feed) == "a b ");
    s.w.await(first.update("x"));
    CHECK(s.next(feed) == "x b ");
    CHECK(s.w.await(first.leave()));
    CHECK(s.next(feed) == "b ");
    CHECK(s.w.env->calls.size() == before + 4); // of the members, and a look of the second
    s.w.etcd->revoke(s.two.lease());
    CHECK(s.next(feed) == "");
    CHECK(s.next(feed) == "nothing");
}

TEST_CASE("a slow reader of a group gets the newest list", "[group]") {
    group_settings s;
    members_feed feed = s.a.changes();
    CHECK(s.next(feed) == "");
    std::vector<membership> all;
    for (int i = 0; i != 20; ++i) {
        all.push_back(s.w.await(s.a.join(std::to_string(i))));
    }
    for (int i = 0; i != 18; ++i) {
        CHECK(s.w.await(all[static_cast<std::size_t>(i)].leave()));
    }
    s.w.env->pass(100ms);
    CHECK(s.next(feed) == "18 19 ");
    CHECK(s.next(feed) == "nothing");
}

TEST_CASE("a feed of a group looks where an event cannot tell", "[group]") {
    group_settings s;
    members_feed feed = s.a.changes();
    membership first = s.w.await(s.a.join("a"));
    CHECK(s.next(feed) == "a ");
    s.w.etcd->tells = false; // one event is lost
    s.w.etcd->write("g/hidden", "h");
    s.w.etcd->tells = true;
    CHECK(s.next(feed) == "nothing");
    s.w.etcd->write("g/hidden", "i"); // it has never heard of that key
    CHECK(s.next(feed) == "a i ");
    s.w.etcd->tells = false;
    s.w.etcd->write("g/other", "o");
    s.w.etcd->tells = true;
    auto waiting = s.w.start(feed.next());
    s.w.env->pass(21s); // or with a later look
    REQUIRE(waiting.ended());
    CHECK(values(waiting.get()) == "a i o ");
}

TEST_CASE("a member that was deleted by hand is there again, as a younger one", "[group]") {
    group_settings s;
    const membership first = s.w.await(s.a.join("a"));
    const membership second = s.w.await(s.b.join("b"));
    members_feed feed = s.a.changes();
    CHECK(s.next(feed) == "a b ");
    s.w.etcd->erase(first.key());
    s.w.env->pass(1s);
    CHECK(s.next(feed) == "b a ");
    CHECK(first.is_member());
}

TEST_CASE("a keeper's member is the same one in the next session", "[group]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::session_keeper keeper(client, coetcd::session_keeper_options(6s));
    group g(keeper, "g");
    CHECK(g.get_executor() == client.get_executor());
    membership m = w.await(g.join("a"));
    const std::string key = m.key();
    for (int round = 0; round != 3; ++round) {
        w.env->pass(1s);
        w.etcd->revoke(keeper.current()->lease());
        w.env->pass(10s);
        const list all = w.await(g.members());
        REQUIRE(all.size() == 1);
        CHECK(all[0].key == key);
        CHECK(all[0].value == "a");
        CHECK(all[0].lease == keeper.current()->lease());
        CHECK(m.is_member());
    }
    auto loss = w.start(m.wait_lost());
    w.await(keeper.close());
    w.env->pass(1s);
    CHECK(loss.get() == errc::session_closed);
    CHECK(w.etcd->keys.empty());
    auto joining = w.start(g.join("b"));
    w.env->pass(1s);
    CHECK(joining.code() == errc::session_closed);
}

TEST_CASE("a member that etcd refuses to change and to heal asks seldom", "[group]") {
    group_settings s;
    membership m = s.w.await(s.a.join("a"));
    bool may_write = false;
    s.w.env->on_call = [&may_write, serve = s.w.env->on_call](const auto& r, auto& answer) {
        if (may_write || !support::is_write(r)) {
            serve(r, answer);
        } else {
            answer.status = 403;
            answer.body = R"({"error":"etcdserver: permission denied","code":7})";
        }
    };
    s.w.etcd->erase(m.key());
    s.w.env->pass(1s);
    auto updating = s.w.start(m.update("b"));
    s.w.env->calls.clear();
    s.w.env->pass(2min);
    CHECK(updating.code() == coetcd::server_errc::permission_denied);
    CHECK(s.w.env->calls.size() < 150); // renewals of two sessions, and the feed, for the most part
    may_write = true;
    s.w.env->pass(1min);
    CHECK(values(s.w.await(s.a.members())) == "a ");
    s.w.await(m.update("c"));
    CHECK(values(s.w.await(s.a.members())) == "c ");
}

TEST_CASE("join() that is cancelled leaves no member", "[group]") {
    for (const auto when : {0us, 500us, 1500us}) {
        group_settings s;
        auto joining = s.w.start(s.a.join("a"));
        s.w.env->pass(when);
        joining.cancel();
        s.w.env->pass(1s);
        CHECK(joining.code() == asio::error::operation_aborted);
        CHECK(s.w.await(s.a.members()).empty());
        CHECK(s.w.etcd->keys.empty());
    }
}

TEST_CASE("a group that was left has no member again by a late request", "[group]") {
    group_settings s;
    support::fate_of_copies(s.w, {support::late(20s)});
    membership m = s.w.await(s.a.join("a"));
    CHECK(s.w.await(m.leave()));
    s.w.env->pass(1min);
    CHECK(s.w.await(s.a.members()).empty());
}

TEST_CASE("a group has a name, and an end", "[group]") {
    group_settings s;
    CHECK_THROWS_AS(group(s.one, ""), std::invalid_argument);
    CHECK_THROWS_AS(group(s.one, std::string(513, 'x')), std::invalid_argument);
    CHECK_THROWS_AS(coetcd::watch_members(s.client, ""), std::invalid_argument);
    CHECK_THROWS_AS(coetcd::members_of(s.client, ""), std::invalid_argument);
    membership none;
    CHECK_FALSE(none.is_member());
    CHECK_FALSE(s.w.await(none.leave()));
    CHECK_THROWS_AS(none.update("1"), std::logic_error);
    CHECK_THROWS_AS(none.key(), std::logic_error);
    CHECK_THROWS_AS(none.wait_lost(), std::logic_error);
    std::optional<group> g(group(s.one, "g"));
    auto joining = s.w.start(g->join("a"));
    members_feed feed = g->changes();
    g.reset(); // calls under way complete
    s.w.env->pass(1s);
    const membership m = joining.get();
    CHECK(m.is_member());
    CHECK(s.next(feed) == "a ");
    (void)s.one.orphan();
    auto late = s.w.start(s.a.join("b"));
    s.w.env->pass(1s);
    CHECK(late.code() == errc::session_closed);
}
