// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/service/call.hpp>
#include <coetcd/detail/service/router.hpp>

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/scripted_env.hpp"
#include "support/world.hpp"

using namespace coetcd;
using namespace coetcd::detail;
using namespace std::chrono_literals;
using support::scripted_env;

namespace {

/// A router whose requests are all answered in the same way.
struct call_fixture {
    explicit call_fixture(
        std::string body = R"({"header":{"cluster_id":"14841639068965178418","revision":"7"}})",
        unsigned status = 200) {
        env->on_call = [body, status](const call_request&, reply& r) {
            r.status = status;
            r.body = body;
        };
    }

    template<class Request>
    outcome<wire::response_of<Request>> make(const Request& request, call_terms how) {
        support::background<outcome<wire::response_of<Request>>> b(context,
                                                                   call(carrier, request, how));
        env->pass(1min);
        return b.get();
    }
    template<class Request>
    outcome<wire::response_of<Request>> make(const Request& request) {
        return make(request, call_terms{env->now() + 5s});
    }
    /// How often a request is made whose first answer is lost.
    template<class Request>
    std::size_t attempts(const Request& request, call_terms how) {
        env->calls.clear();
        bool lost = false;
        env->decide = [&lost](const call_request&) {
            scripted_env::fate f;
            f.breaks = !std::exchange(lost, true);
            return f;
        };
        (void)make(request, how);
        return env->calls.size();
    }

    asio::io_context context;
    std::shared_ptr<scripted_env> env = std::make_shared<scripted_env>(context);
    std::shared_ptr<router> carrier = std::make_shared<router>(
        env, std::vector<logic::endpoint>{logic::parse_endpoint("http://etcd:1")});
};

} // namespace

TEST_CASE("a request is written, sent to its call, and its answer read", "[call]") {
    call_fixture f(
        R"({"header":{"cluster_id":"14841639068965178418","revision":"7"},"kvs":[{"key":"aw==","value":"dg=="}],"count":"1"})");
    const auto began = f.env->now();
    const outcome<range_response> o = f.make(range_request("k"));
    o.check();
    CHECK(o.response.header.revision == 7);
    REQUIRE(o.response.kvs.size() == 1);
    CHECK(o.response.kvs[0].value == "v");
    CHECK(o.sent == began);
    CHECK((o.left == logic::effect::none));
    REQUIRE(f.env->calls.size() == 1);
    CHECK(f.env->calls[0].what == rpc::range);
    CHECK(f.env->calls[0].body == R"({"key":"aw=="})");
    CHECK(f.env->calls[0].way == connection_kind::shared);
}

TEST_CASE("a request is sent when it leaves, not when its call begins", "[call]") {
    struct log : observer {
        std::vector<request_report> all;
        void on_request(const request_report& r) override { all.push_back(r); }
    };
    const auto seen = std::make_shared<log>();
    call_fixture f;
    router_options how;
    how.observer = seen;
    f.carrier = std::make_shared<router>(
        f.env, std::vector<logic::endpoint>{logic::parse_endpoint("http://etcd:1")}, how);
    const auto began = f.env->now();
    const auto serve = f.env->on_call;
    f.env->on_call = [&](const call_request& request, reply& r) {
        serve(request, r);
        r.departed = began + 1us;
    };
    const outcome<range_response> o = f.make(range_request("k"));
    o.check();
    CHECK(o.sent == began + 1us);
    REQUIRE(seen->all.size() == 1);
    CHECK(seen->all[0].waited == 1us);
    CHECK(seen->all[0].latency == f.env->round_trip - 1us);
}

TEST_CASE("a failure is told with its code, its text and what may be left of the request",
          "[call]") {
    call_fixture f(R"({"code":14,"message":"etcdserver: request timed out"})", 503);
    const outcome<put_response> o = f.make(put_request("k", "v"));
    CHECK(o.ec == errc::outcome_unknown);
    CHECK((o.left == logic::effect::unresolved));
    CHECK_THAT(o.text, support::contains("put: etcdserver: request timed out"));
    CHECK_THROWS_AS(o.check(), error);
    CHECK(o.response.header.revision == 0);
}

TEST_CASE("an answer that is no answer to the request is a failure", "[call]") {
    call_fixture f(R"({"revision":"7"})");
    const outcome<put_response> o = f.make(put_request("k", "v"));
    CHECK(o.ec == errc::outcome_unknown);
    CHECK(f.make(range_request("k")).ec == errc::protocol_error);
}

TEST_CASE("the answer to a renewal is a stream of one message", "[call]") {
    const wire::lease_keep_alive_request renewal{5};
    call_fixture good(
        R"({"result":{"header":{"cluster_id":"14841639068965178418","revision":"7"},"ID":"5","TTL":"60"}})");
    const outcome<lease_keep_alive_response> o = good.make(renewal);
    CHECK_FALSE(o.ec);
    CHECK(o.response.id == 5);
    CHECK(o.response.ttl == 60s);
    CHECK(good.env->calls.at(0).body == R"({"ID":5})");

    call_fixture bad(R"({"error":{"grpc_code":7,"message":"etcdserver: permission denied"}})");
    CHECK(bad.make(renewal).ec == server_errc::permission_denied);
}

TEST_CASE("a request is repeated if that does no harm, or if the caller says so", "[call]") {
    call_fixture f;
    const call_terms usual{f.env->now() + 1h};
    CHECK(f.attempts(range_request("k"), usual) == 2);
    CHECK(f.attempts(put_request("k", "v"), usual) == 1);
    CHECK(f.attempts(erase_request("k"), usual) == 1);
    CHECK(f.attempts(txn(), usual) == 1);
    CHECK(f.attempts(txn(), usual.as(impact::none)) == 2);
    CHECK(f.attempts(txn(), usual.as(impact::idempotent)) == 2);
    CHECK(f.attempts(range_request("k"), usual.as(impact::once)) == 1);
    CHECK(f.attempts(wire::lease_revoke_request{5}, usual) == 2);
    CHECK(f.attempts(wire::compaction_request{5}, usual) == 1);
    CHECK_FALSE(usual.known);
}

TEST_CASE("a call is made in its time and on its way", "[call]") {
    call_fixture f;
    f.env->decide = [](const call_request&) {
        scripted_env::fate lost;
        lost.arrives = false;
        return lost;
    };
    const auto began = f.env->now();
    call_terms how{began + 3s};
    how.attempt_timeout = 1s;
    how.way = connection_kind::renewal;
    const outcome<range_response> o = f.make(range_request("k"), how);
    CHECK(o.ec == errc::timed_out);
    REQUIRE(f.env->calls.size() == 3);
    CHECK(f.env->calls[0].deadline == began + 1s);
    CHECK(f.env->calls[2].deadline == how.deadline);
    CHECK(f.env->calls[0].way == connection_kind::renewal);
    // What is not repeated has all the time that there is.
    f.env->calls.clear();
    how.deadline = f.env->now() + 3s;
    (void)f.make(put_request("k", "v"), how);
    REQUIRE(f.env->calls.size() == 1);
    CHECK(f.env->calls[0].deadline == how.deadline);
}

TEST_CASE("a request that cannot be written is refused before anything is sent", "[call]") {
    call_fixture f;
    range_options fewer;
    fewer.limit = -1;
    const call_terms how{f.env->now() + 5s};
    CHECK_THROWS_AS((void)call(f.carrier, range_request("k", fewer), how), std::invalid_argument);
    CHECK(f.env->calls.empty());
}
