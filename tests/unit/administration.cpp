// SPDX-License-Identifier: BSL-1.0
#include "unit/administration.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"

namespace administration {

using namespace std::chrono_literals;
using coetcd::client;
using coetcd::errc;
using support::failure_of;
using support::scripted_env;
using support::world;

namespace {

std::vector<row> all_rows() {
    std::vector<row> all = auth_calls();
    for (auto more : {cluster_calls(), maintenance_calls()}) {
        all.insert(all.end(), more.begin(), more.end());
    }
    return all;
}

} // namespace

TEST_CASE("each call of an administrator is one request, and reads its answer",
          "[auth][cluster][maintenance]") {
    for (const row& each : all_rows()) {
        INFO(each.name);
        world w;
        answers(w, each.what, each.answer);
        const client c = w.client();
        CHECK(w.await(each.call(c)) == each.result);
        CHECK(sent(w, each.what) == each.request);
        for (const call_request& q : w.env->calls) {
            CHECK(q.to.text() == "http://etcd:2379");
        }
    }
}

TEST_CASE("a lost answer to an administrator: what reads is repeated, what changes is not",
          "[auth][cluster][maintenance]") {
    for (const row& each : all_rows()) {
        INFO(each.name);
        world w;
        answers(w, each.what, each.answer);
        bool first = true;
        w.env->decide = [&](const call_request& q) {
            scripted_env::fate f;
            f.breaks = q.what == each.what && std::exchange(first, false);
            return f;
        };
        const client c = w.client();
        auto calling = w.start(each.call(c));
        w.env->pass(6s);
        REQUIRE(calling.ended());
        if (each.changes) {
            const coetcd::error e = failure_of(calling);
            CHECK(e.code() == errc::outcome_unknown);
            CHECK(e.code() == coetcd::condition::outcome_unknown);
            CHECK(count(w, each.what) == 1);
        } else {
            CHECK(calling.get() == each.result);
            CHECK(count(w, each.what) == 2);
        }
    }
}

TEST_CASE("an answer to an administrator that is not etcd's is not believed",
          "[auth][cluster][maintenance]") {
    for (const row& each : all_rows()) {
        for (const std::string body : {"<html>hello</html>", R"({"ok":true})", "", "[]", "7"}) {
            INFO(each.name << ": " << body);
            world w;
            answers(w, each.what, body);
            const client c = w.client();
            auto calling = w.start(each.call(c));
            w.env->pass(11s);
            REQUIRE(calling.ended());
            CHECK(calling.code() == (each.changes ? errc::outcome_unknown : errc::protocol_error));
        }
    }
}

TEST_CASE("a call of an administrator that reaches nobody changes nothing",
          "[auth][cluster][maintenance]") {
    for (const row& each : all_rows()) {
        INFO(each.name);
        world w;
        w.env->decide = [](const call_request&) {
            scripted_env::fate f;
            f.refused = true;
            return f;
        };
        const client c = w.client();
        auto calling = w.start(each.call(c));
        w.env->pass(5001ms);
        REQUIRE(calling.ended());
        CHECK(calling.code() == errc::unavailable);
    }
}

TEST_CASE("a call of an administrator can be cancelled at any moment, and ends once",
          "[auth][cluster][maintenance][cancellation]") {
    for (const row& each : all_rows()) {
        for (auto when = 0ms; when < 8ms; ++when) {
            INFO(each.name << " at " << when.count());
            world w;
            answers(w, each.what, each.answer);
            const client c = w.client();
            auto calling = w.start(each.call(c));
            w.env->pass(when);
            calling.cancel();
            w.env->pass(0ms);
            REQUIRE(calling.ended());
            w.env->pass(100ms);
            CHECK(calling.completions() == 1);
        }
    }
}

TEST_CASE("a call of an administrator outlives its client, and what it was made with",
          "[auth][cluster][maintenance]") {
    for (const row& each : all_rows()) {
        INFO(each.name);
        world w;
        answers(w, each.what, each.answer);
        std::optional<client> c(w.client());
        auto calling = w.start(each.call(*c));
        c.reset();
        w.env->pass(50ms);
        REQUIRE(calling.ended());
        CHECK(calling.get() == each.result);
    }
}

TEST_CASE("calls of administrators that wait at the same time all end",
          "[auth][cluster][maintenance]") {
    for (const row& each : all_rows()) {
        INFO(each.name);
        world w;
        answers(w, each.what, each.answer);
        const client c = w.client();
        auto one = w.start(each.call(c));
        auto other = w.start(each.call(c));
        w.env->pass(50ms);
        REQUIRE(one.ended());
        REQUIRE(other.ended());
        CHECK(one.get() == other.get());
    }
}

TEST_CASE("an answer of another cluster does not count for an administrator",
          "[auth][cluster][maintenance]") {
    for (const row& each : all_rows()) {
        INFO(each.name);
        world w;
        const client c = w.client();
        (void)w.await(c.get("k")); // it is one of this cluster
        std::string other = each.answer;
        const std::string ours = "14841639068965178418";
        if (const auto at = other.find(ours); at != other.npos) {
            other.replace(at, ours.size(), "3");
        }
        w.env->on_call = [&](const call_request& q, reply& r) {
            r.status = 200;
            r.body = q.what == each.what ? other
                                         : R"({"header":{"cluster_id":"3","member_id":"7"},)"
                                           R"("version":"3.6.0","leader":"7"})";
        };
        auto calling = w.start(each.call(c.with_timeout(900ms)));
        w.env->pass(1s);
        REQUIRE(calling.ended());
        const bool asks_many = each.what == rpc::move_leader;
        CHECK(calling.code() == (asks_many ? errc::unavailable : errc::wrong_cluster));
        const bool names_it = other != each.answer;
        CHECK(
            (names_it || count(w, each.what) == 0)); // else its answer could not be told from ours
    }
}

} // namespace administration
