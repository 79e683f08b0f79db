// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/router.hpp>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/scripted_env.hpp"

using namespace coetcd;
using namespace coetcd::detail;
using namespace std::chrono_literals;
using logic::effect;
using support::scripted_env;
using fate = scripted_env::fate;

namespace {

constexpr std::size_t size = 3; // of the cluster
constexpr bool idempotent = true;
constexpr bool changes = true;

std::vector<logic::endpoint> cluster(std::size_t count) {
    std::vector<logic::endpoint> out;
    for (std::size_t i = 0; i != count; ++i) {
        out.push_back(logic::parse_endpoint("http://h:" + std::to_string(i + 1)));
    }
    return out;
}

/// Takes "ok"; "{}" is an error of etcd; all else is garbled.
std::optional<wire::status> decode(const std::string& body) {
    if (body == "ok") {
        return std::nullopt;
    }
    if (body == "{}") {
        return wire::status{server_errc::unavailable, "etcdserver: no leader"};
    }
    throw error(errc::protocol_error, "garbled");
}

/// A cluster and a router to it.
class fixture {
public:
    explicit fixture(std::size_t count = size)
        : router_(std::make_shared<router>(env, cluster(count))) {
        env->on_call = [](const call_request&, reply& r) { r.body = "ok"; };
        env->decide = [this](const call_request&) {
            times.push_back(env->now() - start);
            return next < script.size() ? script[next++] : otherwise;
        };
    }

    /// Each request is answered with an error of etcd; all of them, or but the last of `count`.
    void fail_with(unsigned status, std::string message, std::size_t count = ~std::size_t{0}) {
        env->on_call = [status, message, count, n = std::size_t{0}](const call_request&,
                                                                    reply& r) mutable {
            const bool fails = n++ < count;
            r.status = fails ? status : 200;
            r.body = fails ? message : "ok";
        };
    }

    answer call(bool may_repeat, bool writes, std::chrono::nanoseconds timeout = 5s) {
        std::optional<answer> result;
        env->run(run(spec(may_repeat, writes, timeout), result));
        took = env->now() - start;
        return *result;
    }

    /// Cancels a call after some time. True if it ended by that.
    bool cancelled_after(std::chrono::nanoseconds when, bool may_repeat) {
        std::optional<answer> result;
        std::exception_ptr failure;
        bool ended = false;
        asio::cancellation_signal stop;
        asio::co_spawn(context,
                       run(spec(may_repeat, changes, 5s), result),
                       asio::bind_cancellation_slot(stop.slot(), [&](std::exception_ptr e) {
                           failure = e;
                           ended = true;
                       }));
        env->pass(when);
        stop.emit(asio::cancellation_type::terminal);
        env->pass(0s);
        REQUIRE(ended);
        try {
            if (failure) {
                std::rethrow_exception(failure);
            }
            return false;
        } catch (const boost::system::system_error& e) {
            return e.code() == asio::error::operation_aborted;
        }
    }

    /// Which endpoints were asked, in order.
    std::vector<int> asked() const {
        std::vector<int> out;
        for (const auto& c : env->calls) {
            out.push_back(c.to.port);
        }
        return out;
    }
    std::size_t endpoints_asked() const {
        const auto all = asked();
        return std::set<int>(all.begin(), all.end()).size();
    }

    asio::io_context context;
    std::shared_ptr<scripted_env> env = std::make_shared<scripted_env>(context);
    std::vector<fate> script; ///< Of the first requests.
    fate otherwise;           ///< Of the others.
    std::size_t next = 0;
    time_point start = env->now();
    std::vector<std::chrono::nanoseconds> times; ///< Of the requests, since the start.
    std::chrono::nanoseconds took{0};
    lane way = lane::shared;

    router& cluster_router() { return *router_; }

private:
    call_spec spec(bool may_repeat, bool writes, std::chrono::nanoseconds timeout) const {
        call_spec s{rpc::txn, env->now() + timeout, may_repeat, writes};
        s.way = way;
        return s;
    }
    asio::awaitable<void> run(call_spec s, std::optional<answer>& result) {
        decoder d = decode;
        answer a = co_await router_->call(s, "body", std::move(d));
        result = std::move(a);
    }

    std::shared_ptr<router> router_;
};

fate refused() {
    fate f;
    f.refused = true;
    return f;
}

fate broken() {
    fate f;
    f.breaks = true;
    return f;
}

fate lost() {
    fate f;
    f.arrives = false;
    return f;
}

const char* const no_leader = R"({"code":14,"message":"etcdserver: no leader"})";
const char* const timed_out = R"({"code":14,"message":"etcdserver: request timed out"})";
const char* const denied = R"({"code":7,"message":"etcdserver: permission denied"})";
const char* const full = R"({"code":8,"message":"etcdserver: mvcc: database space exceeded"})";
const char* const busy = R"({"code":8,"message":"etcdserver: too many requests"})";

} // namespace

TEST_CASE("a request that succeeds is made once", "[router]") {
    for (const bool may_repeat : {false, true}) {
        fixture f;
        const answer a = f.call(may_repeat, changes);
        CHECK_FALSE(a.ec);
        CHECK(a.left == effect::none);
        CHECK_NOTHROW(a.check());
        REQUIRE(f.env->calls.size() == 1);
        CHECK(f.env->calls[0].body == "body");
        CHECK(f.env->calls[0].what == rpc::txn);
        CHECK(f.env->calls[0].way == lane::shared);
    }
}

TEST_CASE("a request goes its own way", "[router]") {
    fixture f;
    f.way = lane::renewal;
    f.script = {refused()};
    CHECK_FALSE(f.call(idempotent, changes).ec);
    REQUIRE(f.env->calls.size() == 2);
    CHECK(f.env->calls[0].way == lane::renewal);
    CHECK(f.env->calls[1].way == lane::renewal);
}

TEST_CASE("one attempt has a time of its own only if there may be another one", "[router]") {
    fixture f;
    CHECK_FALSE(f.call(idempotent, changes).ec);
    CHECK(f.env->calls.at(0).deadline == f.start + 2s);
    fixture g;
    CHECK_FALSE(g.call(idempotent, changes, 1s).ec);
    CHECK(g.env->calls.at(0).deadline == g.start + 1s);
    fixture h;
    CHECK_FALSE(h.call(!idempotent, changes).ec);
    CHECK(h.env->calls.at(0).deadline == h.start + 5s);
}

TEST_CASE("the next endpoint is tried, and kept if it works", "[router]") {
    fixture f;
    f.script = {refused(), refused()};
    CHECK_FALSE(f.call(idempotent, changes).ec);
    CHECK(f.env->calls.size() == 3);
    CHECK(f.endpoints_asked() == 3);
    CHECK_FALSE(f.call(idempotent, changes).ec);
    CHECK(f.asked()[3] == f.asked()[2]);
}

TEST_CASE("what was not sent is repeated, whatever it is", "[router]") {
    fixture f;
    f.script = {refused(), refused()};
    const answer a = f.call(!idempotent, changes);
    CHECK_FALSE(a.ec);
    CHECK(a.left == effect::none);
    CHECK(f.endpoints_asked() == 3);
}

TEST_CASE("what was sent is repeated only if it is idempotent", "[router]") {
    struct {
        fate first;
        const char* what;
    } const rows[] = {{broken(), "broken"}, {lost(), "lost"}};
    for (const auto& row : rows) {
        CAPTURE(row.what);
        fixture f;
        f.script = {row.first};
        const answer a = f.call(idempotent, changes);
        CHECK_FALSE(a.ec);
        CHECK(a.left == effect::unresolved); // of the first attempt
        CHECK(f.env->calls.size() == 2);
        CHECK(f.endpoints_asked() == 2);

        fixture g;
        g.script = {refused(), row.first};
        const answer b = g.call(!idempotent, changes);
        CHECK(b.ec == errc::outcome_unknown);
        CHECK(b.left == effect::unresolved);
        CHECK(g.env->calls.size() == 2); // the one that was not sent, and the one that was
        CHECK_THROWS_AS(b.check(), error);
    }
}

TEST_CASE("what changes nothing has no unknown outcome", "[router]") {
    fixture f;
    f.otherwise = broken();
    const answer a = f.call(!idempotent, !changes);
    CHECK(a.ec == asio::error::eof);
    CHECK(f.env->calls.size() == 1);
}

TEST_CASE("what etcd refused for now is repeated elsewhere, whatever it is", "[router]") {
    for (const bool may_repeat : {false, true}) {
        fixture f;
        f.fail_with(503, no_leader, 2);
        const answer a = f.call(may_repeat, changes);
        CHECK_FALSE(a.ec);
        CHECK(a.left == effect::none);
        CHECK(f.endpoints_asked() == 3);
    }
    // The same, as a stream tells it.
    fixture f;
    f.fail_with(200, "{}", 2);
    CHECK_FALSE(f.call(!idempotent, changes).ec);
    CHECK(f.endpoints_asked() == 3);
}

TEST_CASE("what may still commit is not repeated unless it is idempotent", "[router]") {
    fixture f;
    f.fail_with(503, timed_out, 1);
    const answer a = f.call(!idempotent, changes);
    CHECK(a.ec == errc::outcome_unknown);
    CHECK_THAT(a.text, support::contains("request timed out"));
    CHECK(f.env->calls.size() == 1);

    fixture g;
    g.fail_with(503, timed_out, 1);
    const answer b = g.call(idempotent, changes);
    CHECK_FALSE(b.ec);
    CHECK(b.left == effect::unresolved);
    CHECK(g.env->calls.size() == 2);
}

TEST_CASE("an endpoint that is busy is not at fault", "[router]") {
    fixture f;
    f.fail_with(429, busy, 2);
    CHECK_FALSE(f.call(!idempotent, changes).ec);
    CHECK(f.env->calls.size() == 3);
    CHECK(f.endpoints_asked() == 1);
}

TEST_CASE("a refusal for good is told at once, with all that is known", "[router]") {
    for (const bool may_repeat : {false, true}) {
        fixture f;
        f.fail_with(403, denied);
        const answer a = f.call(may_repeat, changes);
        CHECK(a.ec == server_errc::permission_denied);
        CHECK(a.left == effect::none);
        CHECK_THAT(a.text, support::contains("txn"));
        CHECK_THAT(a.text, support::contains("etcdserver: permission denied"));
        CHECK_THAT(a.text, support::contains("http://h:" + std::to_string(f.asked().at(0))));
        CHECK(f.env->calls.size() == 1);
        try {
            a.check();
            FAIL("nothing was thrown");
        } catch (const error& e) {
            CHECK(e.code() == server_errc::permission_denied);
            CHECK_THAT(e.what(), support::contains(a.text));
        }
    }
}

TEST_CASE("an answer tells what the attempts before it may have done", "[router]") {
    fixture f;
    f.script = {broken()};
    f.fail_with(403, denied);
    const answer a = f.call(idempotent, changes);
    CHECK(a.ec == server_errc::permission_denied);
    CHECK(a.left == effect::unresolved);

    fixture g;
    g.fail_with(429, full);
    const answer b = g.call(!idempotent, changes);
    CHECK(b.ec == server_errc::resource_exhausted);
    CHECK(b.left == effect::settled);
    CHECK(g.env->calls.size() == 1);
}

TEST_CASE("an answer that is not etcd's is asked for again at each endpoint", "[router]") {
    fixture f;
    f.fail_with(200, "<html>", 2);
    CHECK_FALSE(f.call(idempotent, !changes).ec);
    CHECK(f.endpoints_asked() == 3);

    for (const std::size_t count : {std::size_t{1}, std::size_t{2}, size}) {
        fixture g(count);
        g.fail_with(200, "<html>");
        const answer a = g.call(idempotent, changes);
        CHECK(a.ec == errc::protocol_error);
        CHECK(a.left == effect::unresolved);
        CHECK_THAT(a.text, support::contains("garbled"));
        CHECK(g.env->calls.size() == count + 1);
        CHECK(g.endpoints_asked() == count);
        CHECK(g.took < 1s);
    }

    fixture h;
    h.fail_with(200, "<html>");
    const answer b = h.call(!idempotent, changes);
    CHECK(b.ec == errc::outcome_unknown);
    CHECK(h.env->calls.size() == 1);
}

TEST_CASE("an error page of something before etcd is judged by its status", "[router]") {
    fixture f;
    f.fail_with(404, "404 page not found\n");
    const answer a = f.call(idempotent, changes);
    CHECK(a.ec == server_errc::unimplemented);
    CHECK_THAT(a.text, support::contains("404 page not found"));
    CHECK(f.env->calls.size() == 1);
    fixture g;
    g.fail_with(502, "<html>Bad Gateway</html>", 2);
    const answer b = g.call(idempotent, changes);
    CHECK_FALSE(b.ec);
    CHECK(b.left == effect::unresolved);
}

TEST_CASE("an answer over the limit is not asked for again", "[router]") {
    for (const bool writes : {false, true}) {
        fixture f;
        f.env->on_call = [](const call_request&, reply& r) { r.ec = errc::too_large; };
        CHECK(f.call(idempotent, writes).ec == errc::too_large);
        CHECK(f.env->calls.size() == 1);
    }
    fixture f;
    f.env->on_call = [](const call_request&, reply& r) { r.ec = errc::too_large; };
    CHECK(f.call(!idempotent, changes).ec == errc::outcome_unknown);
    CHECK(f.env->calls.size() == 1);
}

TEST_CASE("the deadline is for all attempts together", "[router]") {
    fixture f;
    f.otherwise = lost();
    const answer a = f.call(idempotent, !changes);
    CHECK(a.ec == errc::timed_out);
    CHECK_THAT(a.text, support::contains("txn"));
    CHECK_THAT(a.text, support::contains("deadline"));
    CHECK(f.took == 5s);
    REQUIRE(f.times.size() == 3);
    CHECK(f.times[0] == 0s);
    CHECK(f.times[1] == 2s);
    CHECK(f.times[2] == 4s);
    CHECK(f.endpoints_asked() == 3);
    CHECK(f.env->calls[2].deadline == f.start + 5s);
}

TEST_CASE("at the deadline a change that was sent has an unknown outcome", "[router]") {
    for (const bool may_repeat : {false, true}) {
        fixture f;
        f.otherwise = lost();
        const answer a = f.call(may_repeat, changes);
        CHECK(a.ec == errc::outcome_unknown);
        CHECK(a.left == effect::unresolved);
        CHECK(f.took == 5s);
        CHECK(f.env->calls.size() == (may_repeat ? 3 : 1));
    }
    // Even if the last attempt did not get that far.
    fixture f;
    f.script = {broken()};
    f.otherwise = refused();
    CHECK(f.call(idempotent, changes).ec == errc::outcome_unknown);
    CHECK(f.took == 5s);
}

TEST_CASE("at the deadline a change that was not sent is known not to be done", "[router]") {
    for (const bool may_repeat : {false, true}) {
        fixture f;
        f.otherwise = refused();
        const answer a = f.call(may_repeat, changes);
        CHECK(a.ec == errc::unavailable);
        CHECK(a.ec == condition::retryable);
        CHECK(a.left == effect::none);
        CHECK_THAT(a.text,
                   support::contains(error_code(asio::error::connection_refused).message()));
        CHECK(f.took == 5s);
    }
    fixture f;
    f.fail_with(503, no_leader);
    const answer a = f.call(!idempotent, changes);
    CHECK(a.ec == errc::unavailable);
    CHECK_THAT(a.text, support::contains("no leader"));
}

TEST_CASE("at the deadline a request that etcd gave up is late", "[router]") {
    fixture f;
    f.fail_with(504, R"({"code":4,"message":"context deadline exceeded"})");
    CHECK(f.call(idempotent, !changes).ec == errc::timed_out);
    fixture g;
    g.fail_with(504, R"({"code":4,"message":"context deadline exceeded"})");
    CHECK(g.call(idempotent, changes).ec == errc::outcome_unknown);
}

TEST_CASE("no request is made after its deadline", "[router]") {
    for (const auto timeout : {0s, -1s}) {
        fixture f;
        const answer a = f.call(idempotent, changes, timeout);
        CHECK(a.ec == errc::timed_out);
        CHECK(f.env->calls.empty());
        CHECK(f.took == 0s);
    }
}

TEST_CASE("there is a pause only after each endpoint was tried, and it grows", "[router]") {
    for (const std::size_t count : {std::size_t{1}, size}) {
        CAPTURE(count);
        fixture f(count);
        f.otherwise = refused();
        CHECK(f.call(!idempotent, changes).ec == errc::unavailable);
        REQUIRE(f.times.size() > 8 * count);
        std::chrono::nanoseconds longest = 25ms;
        for (std::size_t round = 1; round != 8; ++round) {
            const auto pause = f.times[round * count] - f.times[round * count - 1];
            CHECK(pause >= longest / 2);
            CHECK(pause <= longest);
            longest = std::min<std::chrono::nanoseconds>(2 * longest, 1s);
            for (std::size_t i = 1; i != count; ++i) {
                CHECK(f.times[round * count + i] == f.times[round * count]);
            }
        }
    }
}

TEST_CASE("a call can be cancelled wherever it waits", "[router][cancellation]") {
    for (const bool may_repeat : {false, true}) {
        // A full round of refusals, a pause, and then nothing but silence.
        for (auto when = 0ns; when < 60ms; when += 500us) {
            CAPTURE(when.count());
            fixture f;
            f.script = {refused(), refused(), refused()};
            f.otherwise = lost();
            CHECK(f.cancelled_after(when, may_repeat));
            const auto calls = f.env->calls.size();
            f.env->pass(10s);
            CHECK(f.env->calls.size() == calls);
        }
    }
}

TEST_CASE("a call that was cancelled too late has its answer", "[router][cancellation]") {
    fixture f;
    CHECK_FALSE(f.cancelled_after(3ms, idempotent));
    CHECK(f.env->calls.size() == 1);
}

TEST_CASE("a transport that reports a cancellation ends the call", "[router][cancellation]") {
    fixture f;
    f.env->on_call = [](const call_request&, reply& r) { r.ec = asio::error::operation_aborted; };
    try {
        (void)f.call(idempotent, changes);
        FAIL("nothing was thrown");
    } catch (const boost::system::system_error& e) {
        CHECK(e.code() == asio::error::operation_aborted);
    }
    CHECK(f.env->calls.size() == 1);
}

TEST_CASE("a stream makes its own attempts, with the same choice", "[router]") {
    fixture f;
    router& r = f.cluster_router();
    CHECK(r.world() == f.env);
    const std::size_t first = r.pick();
    CHECK(r.endpoint(first).port == first + 1);
    r.failed(first);
    const std::size_t second = r.pick();
    CHECK(second != first);
    r.succeeded(second);
    CHECK_FALSE(f.call(idempotent, changes).ec);
    CHECK(f.env->calls.at(0).to.port == second + 1);
}
