// SPDX-License-Identifier: BSL-1.0
#include <coetcd/maintenance.hpp>

#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"
#include "unit/administration.hpp"

namespace administration {

using namespace std::chrono_literals;
using coetcd::alarm_type;
using coetcd::client;
using coetcd::errc;
using coetcd::maintenance;
using coetcd::raised_alarm;
using coetcd::server_errc;
using support::failure_of;
using support::scripted_env;
using support::world;

namespace {

const std::string there = "http://etcd:2379";

std::string words_of_alarms(const std::vector<raised_alarm>& all) {
    std::string text;
    for (const raised_alarm& a : all) {
        text += std::to_string(a.member_id) + ':' + std::to_string(static_cast<int>(a.type)) + ' ';
    }
    return text;
}

std::string words_of_hash(const coetcd::kv_hash& h) {
    std::string text;
    for (const std::int64_t n : {static_cast<std::int64_t>(h.member_id),
                                 static_cast<std::int64_t>(h.hash),
                                 h.revision,
                                 h.compact_revision,
                                 h.hash_revision}) {
        text += std::to_string(n) + ' ';
    }
    return text;
}

std::string words_of_member(const coetcd::member_status& s) {
    return s.version;
}

raised_alarm no_space_of(std::uint64_t member) {
    raised_alarm a;
    a.member_id = member;
    a.type = alarm_type::no_space;
    return a;
}

} // namespace

std::vector<row> maintenance_calls() {
    using alarms = std::vector<raised_alarm>;
    return {
        {"alarms",
         [](client c) { return text<alarms>(maintenance(c).alarms(), words_of_alarms); },
         rpc::alarm,
         "{}",
         with(R"("alarms":[{"memberID":"13668033151171901709","alarm":"NOSPACE"},)"
              R"({"alarm":"CORRUPT"}])"),
         "13668033151171901709:1 0:2 "},
        {"disarm",
         [](client c) { return text(maintenance(c).disarm(no_space_of(13668033151171901709U))); },
         rpc::alarm,
         R"({"action":2,"memberID":13668033151171901709,"alarm":1})",
         R"({"alarms":[{"memberID":"13668033151171901709","alarm":"NOSPACE"}]})",
         "yes",
         true},
        {"disarm what is not raised",
         [](client c) { return text(maintenance(c).disarm(no_space_of(0))); },
         rpc::alarm,
         R"({"action":2,"alarm":1})",
         "{}",
         "no",
         true},
        {"status",
         [](client c) {
             return text<coetcd::member_status>(maintenance(c).status(there), words_of_member);
         },
         rpc::status,
         "{}",
         with(R"("version":"3.6.5")"),
         "3.6.5"},
        {"defragment",
         [](client c) { return text(maintenance(c).defragment(there)); },
         rpc::defragment,
         "{}",
         "{}",
         "done",
         true},
        {"hash_kv",
         [](client c) {
             return text<coetcd::kv_hash>(maintenance(c).hash_kv(there), words_of_hash);
         },
         rpc::hash_kv,
         "{}",
         with(R"("hash":4213501344,"compact_revision":"-1","hash_revision":"1")"),
         "7 4213501344 5 -1 1 "},
        {"hash_kv of a revision",
         [](client c) {
             return text<coetcd::kv_hash>(maintenance(c).hash_kv(there, 4), words_of_hash);
         },
         rpc::hash_kv,
         R"({"revision":4})",
         with(R"("hash":1,"compact_revision":"2")"),
         "7 1 5 2 0 "},
        {"move_leader",
         [](client c) { return text(maintenance(c).move_leader(13668033151171901709U)); },
         rpc::move_leader,
         R"({"targetID":13668033151171901709})",
         "{}",
         "done",
         true},
        {"validate_downgrade",
         [](client c) { return text(maintenance(c).validate_downgrade("3.5")); },
         rpc::downgrade,
         R"({"version":"3.5"})",
         with(R"("version":"3.6")"),
         "3.6"},
        {"enable_downgrade",
         [](client c) { return text(maintenance(c).enable_downgrade("3.5")); },
         rpc::downgrade,
         R"({"action":1,"version":"3.5"})",
         with(R"("version":"3.6")"),
         "3.6",
         true},
        {"cancel_downgrade",
         [](client c) { return text(maintenance(c).cancel_downgrade()); },
         rpc::downgrade,
         R"({"action":2})",
         with(R"("version":"3.6")"),
         "3.6",
         true},
    };
}

TEST_CASE("maintenance refuses bad arguments before it sends anything", "[maintenance]") {
    world w;
    const client c = w.client();
    const maintenance m(c);
    using bad = std::invalid_argument;
    CHECK_THROWS_AS(m.disarm(raised_alarm()), bad);
    CHECK_THROWS_AS(m.status("etcd:0"), bad);
    CHECK_THROWS_AS(m.status("https://etcd:2379"), bad); // this client has no TLS
    CHECK_THROWS_AS(m.defragment(""), bad);
    CHECK_THROWS_AS(m.hash_kv("ftp://etcd:2379"), bad);
    CHECK_THROWS_AS(m.hash_kv(there, -1), bad);
    CHECK_THROWS_AS(m.move_leader(0), bad);
    for (const char* version : {"", "3", "3.", ".5", "3.5.0", "v3.5", "3.x", "3.55555"}) {
        CAPTURE(version);
        CHECK_THROWS_AS(m.validate_downgrade(version), bad);
        CHECK_THROWS_AS(m.enable_downgrade(version), bad);
    }
    CHECK_THROWS_AS(m.snapshot("", "file"), bad);
    CHECK_THROWS_AS(m.snapshot(there, ""), bad);
    CHECK_THROWS_AS(m.snapshot(there, "/tmp/"), bad);
    CHECK(w.env->calls.empty());

    coetcd::client_options o;
    o.credentials = coetcd::credentials("root", "canary");
    const maintenance with_user(w.client("http://localhost:2379", o));
    CHECK_THROWS_AS(with_user.status("http://elsewhere:2379"), bad); // in the clear
}

TEST_CASE("a call about one member is made there, even if the client does not have it",
          "[maintenance]") {
    world w;
    answers(w, rpc::defragment, "{}");
    const client c = w.client("http://one:2379");
    w.await(maintenance(c).defragment("http://two:2379"));
    REQUIRE(w.env->calls.size() == 2);
    CHECK((w.env->calls.at(0).what == rpc::status));
    CHECK((w.env->calls.at(1).what == rpc::defragment));
    CHECK(w.env->calls.at(0).to.text() == "http://two:2379");
    CHECK(w.env->calls.at(1).to.text() == "http://two:2379");

    // It is not made elsewhere if that member does not answer.
    w.env->calls.clear();
    w.env->decide = [](const call_request& q) {
        scripted_env::fate f;
        f.refused = q.to.host == "two";
        return f;
    };
    auto asking = w.start(maintenance(c).status("http://two:2379"));
    w.env->pass(5001ms);
    REQUIRE(asking.ended());
    CHECK(asking.code() == errc::unavailable);
    for (const call_request& q : w.env->calls) {
        CHECK(q.to.host == "two");
    }
}

TEST_CASE("the alarms of an etcd that does not name its cluster are asked for beside its status",
          "[maintenance]") {
    world w;
    answers(w, rpc::alarm, R"({"alarms":[{"memberID":"7","alarm":"NOSPACE"}]})"); // 3.4
    const client c = w.client({"http://a:2379", "http://b:2379"});
    const auto raised = w.await(maintenance(c).alarms());
    CHECK(raised == std::vector<raised_alarm>{no_space_of(7)});
    REQUIRE(w.env->calls.size() == 2);
    CHECK((w.env->calls.at(1).what == rpc::status));
    CHECK(w.env->calls.at(0).to == w.env->calls.at(1).to);
}

TEST_CASE("an alarm is taken back where the status was told", "[maintenance]") {
    world w;
    answers(w, rpc::alarm, "{}");
    const client c = w.client({"http://a:2379", "http://b:2379"});
    bool first = true;
    w.env->decide = [&](const call_request&) {
        scripted_env::fate f;
        f.refused = std::exchange(first, false);
        return f;
    };
    CHECK_FALSE(w.await(maintenance(c).disarm(no_space_of(7))));
    REQUIRE(w.env->calls.size() == 3);
    CHECK(w.env->calls.at(0).to != w.env->calls.at(1).to);
    CHECK(w.env->calls.at(1).to == w.env->calls.at(2).to);
}

TEST_CASE("an alarm that coetcd does not know is not taken for another one", "[maintenance]") {
    world w;
    answers(w, rpc::alarm, with(R"("alarms":[{"memberID":"7","alarm":"BORED"}])"));
    const client c = w.client();
    auto asking = w.start(maintenance(c).alarms());
    w.env->pass(5001ms);
    CHECK(asking.code() == errc::protocol_error);
}

TEST_CASE("what etcd 3.4 lacks is said at once, and how to get it", "[maintenance]") {
    world w;
    answers(w, rpc::hash_kv, "Not Found\n", 404);
    answers(w, rpc::downgrade, "Not Found\n", 404);
    const client c = w.client();
    auto hashing = w.start(maintenance(c).hash_kv(there));
    auto downgrading = w.start(maintenance(c).enable_downgrade("3.3"));
    w.env->pass(500ms);
    for (auto* each : {&hashing}) {
        CHECK_THAT(failure_of(*each).what(), support::contains("since etcd 3.5"));
        CHECK(each->code() == server_errc::unimplemented);
    }
    CHECK(downgrading.code() == server_errc::unimplemented);
}

namespace {

/// Three members, of which the one at http://c:2379 leads.
void three_members(world& w, const std::string& leader = "3") {
    w.env->on_call = [leader](const call_request& q, reply& r) {
        const std::string id = std::to_string(q.to.host.at(0) - 'a' + 1);
        r.status = 200;
        r.body = "{}";
        if (q.what == rpc::status) {
            r.body = R"({"header":{"cluster_id":"5","member_id":")" + id +
                     R"("},"version":"3.6.0","leader":")" + leader + R"("})";
        }
    };
}
const std::vector<std::string> three{"http://a:2379", "http://b:2379", "http://c:2379"};

} // namespace

TEST_CASE("the leader is found among the client's endpoints, and asked to go", "[maintenance]") {
    world w;
    three_members(w);
    const client c = w.client(three);
    w.env->decide = [](const call_request& q) {
        scripted_env::fate f;
        f.refused = q.to.host == "a"; // it does not matter
        return f;
    };
    w.await(maintenance(c).move_leader(2));
    CHECK(count(w, rpc::move_leader) == 1);
    CHECK(sent(w, rpc::move_leader) == R"({"targetID":2})");
    for (const call_request& q : w.env->calls) {
        CHECK((q.what != rpc::move_leader || q.to.text() == "http://c:2379"));
    }
}

TEST_CASE("a member that leads already is not asked to", "[maintenance]") {
    world w;
    three_members(w);
    const client c = w.client(three);
    w.await(maintenance(c).move_leader(3));
    CHECK(w.env->calls.size() == 1);
    CHECK(count(w, rpc::move_leader) == 0);
}

TEST_CASE("a leader that is nowhere cannot be asked to go", "[maintenance]") {
    for (const std::string leader : {"9", "0"}) {
        world w;
        three_members(w, leader);
        const client c = w.client(three);
        auto moving = w.start(maintenance(c).move_leader(2));
        w.env->pass(100ms);
        const coetcd::error e = failure_of(moving);
        CHECK(e.code() == errc::unavailable);
        const char* const why = leader == "9" ? "the leader 9 is at none" : "no leader";
        CHECK_THAT(e.what(), support::contains(why));
        CHECK(count(w, rpc::status) == 3);
    }
}

TEST_CASE("a leader that has just changed refuses to go, and nothing else is tried",
          "[maintenance]") {
    world w;
    answers(w, rpc::move_leader, R"({"code":9,"message":"etcdserver: not leader"})", 400);
    const client c = w.client();
    auto moving = w.start(maintenance(c).move_leader(2));
    w.env->pass(100ms);
    CHECK(moving.code() == server_errc::failed_precondition);
    CHECK(count(w, rpc::move_leader) == 1);
}

TEST_CASE("a defragmentation that does not end in time goes on", "[maintenance]") {
    world w;
    answers(w, rpc::defragment, "{}");
    w.env->decide = [](const call_request& q) {
        scripted_env::fate f;
        f.answered = q.what != rpc::defragment;
        return f;
    };
    const client c = w.client();
    auto asking = w.start(maintenance(c.with_timeout(1min)).defragment(there));
    w.env->pass(59s);
    CHECK_FALSE(asking.ended()); // it has all of the client's time
    w.env->pass(2s);
    CHECK(asking.code() == errc::outcome_unknown);
    CHECK(count(w, rpc::defragment) == 1);
}

} // namespace administration
