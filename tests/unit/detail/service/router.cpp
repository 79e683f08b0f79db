// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/service/router.hpp>

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
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/scripted_env.hpp"
#include "support/world.hpp"

using namespace coetcd;
using namespace coetcd::detail;
using namespace std::chrono_literals;
using logic::effect;
using support::scripted_env;
using fate = scripted_env::fate;

namespace {

/// How a request is to be made: at once, in the usual way.
call_terms terms(const env& world, std::chrono::nanoseconds timeout, bool may_repeat, bool writes) {
    call_terms how{world.now() + timeout};
    how.known = !writes ? impact::none : may_repeat ? impact::idempotent : impact::once;
    return how;
}

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
decoded decode(const std::string& body) {
    if (body == "ok") {
        response_header header;
        header.cluster_id = 14841639068965178418u;
        return header;
    }
    if (body == "{}") {
        return wire::status{server_errc::unavailable, "etcdserver: no leader"};
    }
    throw error(errc::protocol_error, "garbled");
}

/// What etcd answers: to look around, the router reads.
std::string good(const call_request& q) {
    return q.what == rpc::range ? R"({"header":{"cluster_id":"14841639068965178418"}})" : "ok";
}

/// A cluster and a router to it.
class router_fixture {
public:
    explicit router_fixture(std::size_t count = size)
        : router_(std::make_shared<router>(env, cluster(count))) {
        env->on_call = [](const call_request& q, reply& r) { r.body = good(q); };
        env->decide = [this](const call_request&) {
            times.push_back(env->now() - start);
            return next < script.size() ? script[next++] : otherwise;
        };
    }

    /// Each request is answered with an error of etcd; all of them, or but the last of `count`.
    void fail_with(unsigned status, std::string message, std::size_t count = ~std::size_t{0}) {
        env->on_call = [status, message, count, n = std::size_t{0}](const call_request& q,
                                                                    reply& r) mutable {
            const bool fails = n++ < count;
            r.status = fails ? status : 200;
            r.body = fails ? message : good(q);
        };
    }
    /// One endpoint answers everything so, the others are well.
    void spoil(int port, unsigned status, std::string body) {
        env->on_call = [port, status, body](const call_request& q, reply& r) {
            const bool bad = q.to.port == port;
            r.status = bad ? status : 200;
            r.body = bad ? body : good(q);
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
        std::set<int> out;
        for (const auto& c : env->calls) {
            if (c.what == rpc::txn) { // and not to look around
                out.insert(c.to.port);
            }
        }
        return out.size();
    }

    asio::io_context context;
    std::shared_ptr<scripted_env> env = std::make_shared<scripted_env>(context);
    std::vector<fate> script; ///< Of the first requests.
    fate otherwise;           ///< Of the others.
    std::size_t next = 0;
    time_point start = env->now();
    std::vector<std::chrono::nanoseconds> times; ///< Of the requests, since the start.
    std::chrono::nanoseconds took{0};
    connection_kind way = connection_kind::shared;
    bool may_be_large = false; ///< The answers.

    router& cluster_router() { return *router_; }
    const std::shared_ptr<router>& shared_router() const { return router_; }

private:
    call_terms spec(bool may_repeat, bool writes, std::chrono::nanoseconds timeout) const {
        call_terms how = terms(*env, timeout, may_repeat, writes);
        how.way = way;
        how.may_be_large = may_be_large;
        return how;
    }
    asio::awaitable<void> run(call_terms how, std::optional<answer>& result) {
        decoder d = decode;
        answer a = co_await carry(router_, rpc::txn, how, "body", std::move(d));
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
const char* const no_space = R"({"code":8,"message":"etcdserver: mvcc: database space exceeded"})";
const char* const busy = R"({"code":8,"message":"etcdserver: too many requests"})";

} // namespace

TEST_CASE("a request that succeeds is made once", "[router]") {
    for (const bool may_repeat : {false, true}) {
        router_fixture f;
        const answer a = f.call(may_repeat, changes);
        CHECK_FALSE(a.ec);
        CHECK(a.left == effect::none);
        CHECK_NOTHROW(a.check());
        REQUIRE(f.env->calls.size() == 1);
        CHECK(f.env->calls[0].body == "body");
        CHECK(f.env->calls[0].what == rpc::txn);
        CHECK(f.env->calls[0].way == connection_kind::shared);
    }
}

TEST_CASE("a request goes its own way", "[router]") {
    router_fixture f;
    f.way = connection_kind::renewal;
    f.script = {refused()};
    CHECK_FALSE(f.call(idempotent, changes).ec);
    REQUIRE(f.env->calls.size() == 2);
    CHECK(f.env->calls[0].way == connection_kind::renewal);
    CHECK(f.env->calls[1].way == connection_kind::renewal);
}

TEST_CASE("one attempt has a time of its own only if there may be another one", "[router]") {
    router_fixture f;
    CHECK_FALSE(f.call(idempotent, changes).ec);
    CHECK(f.env->calls.at(0).deadline == f.start + 2s);
    router_fixture g;
    CHECK_FALSE(g.call(idempotent, changes, 1s).ec);
    CHECK(g.env->calls.at(0).deadline == g.start + 1s);
    router_fixture h;
    CHECK_FALSE(h.call(!idempotent, changes).ec);
    CHECK(h.env->calls.at(0).deadline == h.start + 5s);
}

TEST_CASE("the next endpoint is tried, and kept if it works", "[router]") {
    router_fixture f;
    f.script = {refused(), refused()};
    CHECK_FALSE(f.call(idempotent, changes).ec);
    CHECK(f.env->calls.size() == 3);
    CHECK(f.endpoints_asked() == 3);
    CHECK_FALSE(f.call(idempotent, changes).ec);
    CHECK(f.asked()[3] == f.asked()[2]);
}

TEST_CASE("what was not sent is repeated, whatever it is", "[router]") {
    router_fixture f;
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
        router_fixture f;
        f.script = {row.first};
        const answer a = f.call(idempotent, changes);
        CHECK_FALSE(a.ec);
        CHECK(a.left == effect::unresolved); // of the first attempt
        CHECK(f.endpoints_asked() == 2);

        router_fixture g;
        g.script = {refused(), row.first};
        const answer b = g.call(!idempotent, changes);
        CHECK(b.ec == errc::outcome_unknown);
        CHECK(b.left == effect::unresolved);
        CHECK(g.env->calls.size() == 2); // the one that was not sent, and the one that was
        CHECK_THROWS_AS(b.check(), error);
    }
}

TEST_CASE("what changes nothing has no unknown outcome", "[router]") {
    router_fixture f;
    f.otherwise = broken();
    const answer a = f.call(idempotent, !changes);
    CHECK(a.ec == errc::unavailable);
    CHECK(a.left == effect::unresolved);
    CHECK(f.took == 5s);
}

TEST_CASE("what etcd refused for now is repeated elsewhere, whatever it is", "[router]") {
    for (const bool may_repeat : {false, true}) {
        router_fixture f;
        f.fail_with(503, no_leader, 2);
        const answer a = f.call(may_repeat, changes);
        CHECK_FALSE(a.ec);
        CHECK(a.left == effect::none);
        CHECK(f.endpoints_asked() == 3);
    }
    // The same, as a stream tells it.
    router_fixture f;
    f.fail_with(200, "{}", 2);
    CHECK_FALSE(f.call(!idempotent, changes).ec);
    CHECK(f.endpoints_asked() == 3);
}

TEST_CASE("what may still commit is not repeated unless it is idempotent", "[router]") {
    router_fixture f;
    f.fail_with(503, timed_out, 1);
    const answer a = f.call(!idempotent, changes);
    CHECK(a.ec == errc::outcome_unknown);
    CHECK_THAT(a.text, support::contains("request timed out"));
    CHECK(f.env->calls.size() == 1);

    router_fixture g;
    g.fail_with(503, timed_out, 1);
    const answer b = g.call(idempotent, changes);
    CHECK_FALSE(b.ec);
    CHECK(b.left == effect::unresolved);
    CHECK(g.env->calls.size() == 2);
}

TEST_CASE("an endpoint is not at fault because our own requests were in the way", "[router]") {
    for (const bool crowded : {true, false}) {
        router_fixture f;
        f.env->on_call = [&, first = true](const call_request& q, reply& r) mutable {
            r.body = good(q);
            if (std::exchange(first, false)) {
                r.ec = errc::timed_out;
                r.crowded = crowded;
            }
        };
        CHECK_FALSE(f.call(idempotent, changes).ec);
        CHECK(f.env->calls.size() == 2);
        CHECK(f.endpoints_asked() == (crowded ? 1 : 2));
    }
}

TEST_CASE("a request has all the time of its call to wait for others of ours", "[router]") {
    for (const bool may_repeat : {true, false}) {
        router_fixture f;
        f.script = {refused()};
        CHECK_FALSE(f.call(may_repeat, changes).ec);
        for (const call_request& q : f.env->calls) {
            CHECK(q.latest == f.start + 5s);
            CHECK(q.patience == 2s);
        }
    }
}

TEST_CASE("endpoints that are busy are asked one after the other", "[router]") {
    router_fixture f;
    f.fail_with(429, busy, 2);
    CHECK_FALSE(f.call(!idempotent, changes).ec);
    CHECK(f.env->calls.size() == 3);
    CHECK(f.endpoints_asked() == 3);
}

TEST_CASE("a refusal for good is told at once, with all that is known", "[router]") {
    for (const bool may_repeat : {false, true}) {
        router_fixture f;
        f.fail_with(403, denied);
        const answer a = f.call(may_repeat, changes);
        CHECK(a.ec == server_errc::permission_denied);
        CHECK(a.left == effect::none);
        CHECK_THAT(a.text, support::contains("txn"));
        CHECK_THAT(a.text, support::contains("etcdserver: permission denied"));
        CHECK_THAT(a.text, support::contains("http://h:" + std::to_string(f.asked().back())));
        CHECK(f.env->calls.size() == (may_repeat ? size : 1));
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
    router_fixture f;
    f.script = {broken()};
    f.fail_with(403, denied);
    const answer a = f.call(idempotent, changes);
    CHECK(a.ec == server_errc::permission_denied);
    CHECK(a.left == effect::unresolved);

    router_fixture g;
    g.fail_with(429, no_space);
    const answer b = g.call(!idempotent, changes);
    CHECK(b.ec == server_errc::resource_exhausted);
    CHECK(b.left == effect::settled);
    CHECK(g.env->calls.size() == 1);
}

TEST_CASE("an answer that is not etcd's is asked for elsewhere, until the deadline", "[router]") {
    router_fixture f;
    f.fail_with(200, "<html>", 2);
    CHECK_FALSE(f.call(idempotent, !changes).ec);
    CHECK(f.endpoints_asked() == 3);

    for (const std::size_t count : {std::size_t{1}, std::size_t{2}, size}) {
        router_fixture g(count);
        g.fail_with(200, "<html>");
        const answer a = g.call(idempotent, !changes);
        CHECK(a.ec == errc::protocol_error);
        CHECK(a.ec == condition::retryable);
        CHECK_THAT(a.text, support::contains("garbled"));
        CHECK(g.endpoints_asked() == count);
        CHECK(g.took == 5s);
        router_fixture h(count);
        h.fail_with(200, "<html>");
        CHECK(h.call(idempotent, changes).ec == errc::outcome_unknown);
        CHECK(h.took == 5s);
    }

    router_fixture h;
    h.fail_with(200, "<html>");
    const answer b = h.call(!idempotent, changes);
    CHECK(b.ec == errc::outcome_unknown);
    CHECK(h.env->calls.size() == 1);
}

TEST_CASE("what answers in the place of etcd is at fault, and not etcd's word", "[router]") {
    struct {
        unsigned status;
        const char* body;
        bool turns_away; // what is not to be repeated is known not to be done
    } const rows[] = {{404, "404 page not found\n", true},
                      {404, R"({"code":5,"message":"Not Found","details":[]})", true},
                      {400, "Client sent an HTTP request to an HTTPS server.\n", true},
                      {400, "<html>400 Bad Request</html>", true},
                      {401, "<html>401 Authorization Required</html>", true},
                      {401, R"({"code":401,"message":"Unauthorized"})", true},
                      {403, "<html>403 Forbidden</html>", true},
                      {403, R"({"message":"Forbidden"})", true},
                      {429, "<html>429 Too Many Requests</html>", true},
                      {405, "", true},
                      {421, "host is not allowed\n", true},
                      {302, "", true},
                      {308, "<html>308 Permanent Redirect</html>", true},
                      {501, R"({"code":12,"message":"Method Not Allowed"})", true},
                      {200, "<html>hello</html>", false},
                      {200, "", false},
                      {502, "<html>502 Bad Gateway</html>", false},
                      {503, "upstream connect error", false},
                      {504, "<html>504 Gateway Time-out</html>", false},
                      {500, R"({"error":{"message":"x"}})", false}};
    for (const auto& row : rows) {
        CAPTURE(row.status, row.body);
        // The healthy members serve, and it is not tried again at once.
        for (const int bad : {1, 2, 3}) {
            router_fixture f;
            f.spoil(bad, row.status, row.body);
            for (int i = 0; i != 5; ++i) {
                const answer a = f.call(idempotent, changes);
                CHECK_FALSE(a.ec);
            }
            const auto asked = f.asked();
            CHECK(std::count(asked.begin(), asked.end(), bad) <= 1);
            router_fixture once;
            once.spoil(bad, row.status, row.body);
            if (once.cluster_router().pick().port == bad) {
                const answer a = once.call(!idempotent, changes);
                CHECK(a.ec == (row.turns_away ? error_code() : errc::outcome_unknown));
            }
        }
        // It may be gone soon: a rolling update of what is before etcd.
        router_fixture g(1);
        g.env->on_call = [&](const call_request& q, reply& r) {
            const bool bad = g.env->now() - g.start < 3s;
            r.status = bad ? row.status : 200;
            r.body = bad ? row.body : good(q);
        };
        CHECK_FALSE(g.call(idempotent, changes).ec == condition::outcome_unknown);
        CHECK((g.took >= 3s || g.took < 1s)); // the second: all members lack the method
    }
}

TEST_CASE("a page that is too large for us is not etcd's", "[router]") {
    for (const unsigned status : {0U, 403U}) { // its header, or its text
        router_fixture f;
        f.env->on_call = [&, left = 2](const call_request& q, reply& r) mutable {
            r.body = good(q);
            if (left-- > 0) {
                r.ec = errc::too_large;
                r.status = status;
            }
        };
        CHECK_FALSE(f.call(idempotent, changes).ec);
        CHECK(f.endpoints_asked() == 3);
    }
}

TEST_CASE("a refusal by what is before etcd is told at the deadline", "[router]") {
    router_fixture f;
    f.fail_with(403, "<html>403 Forbidden</html>");
    const answer a = f.call(!idempotent, changes);
    CHECK(a.ec == errc::protocol_error);
    CHECK(a.ec == condition::retryable);
    CHECK(a.left == effect::none);
    CHECK(f.took == 5s);
    CHECK(f.endpoints_asked() == 3);
    CHECK_THAT(a.text, support::contains("403 Forbidden"));
}

TEST_CASE("what no member can do is told at once", "[router]") {
    for (const std::size_t count : {std::size_t{1}, size}) {
        router_fixture f(count);
        f.fail_with(404, R"({"code":5,"message":"Not Found","details":[]})");
        const answer a = f.call(!idempotent, changes);
        CHECK(a.ec == server_errc::unimplemented);
        CHECK(f.env->calls.size() == count + 1);
        CHECK(f.endpoints_asked() == count);
        CHECK(f.took < 1s);
    }
}

TEST_CASE("a request that can be split is given up where no answer is etcd's", "[router]") {
    router_fixture f;
    f.fail_with(403, "<html>what is this?</html>");
    call_terms how = terms(*f.env, 5s, idempotent, changes);
    how.can_be_split = true;
    decoder d = decode;
    support::background<answer> b(f.context,
                                  carry(f.shared_router(), rpc::txn, how, "body", std::move(d)));
    f.env->pass(1s);
    REQUIRE(b.ended());
    CHECK(b.get().ec == errc::protocol_error);
    CHECK(f.env->calls.size() == size + 1);
}

TEST_CASE("an error never says both that nothing was changed and that something may be",
          "[router]") {
    for (const fate& f : {lost(), broken(), refused()}) {
        for (const bool may_repeat : {false, true}) {
            router_fixture g;
            g.otherwise = f;
            const answer a = g.call(may_repeat, changes);
            const std::string what = error(a.ec, a.text).what();
            CAPTURE(what);
            const bool nothing = what.find("nothing was changed") != what.npos;
            const bool maybe = what.find("may have been applied") != what.npos;
            CHECK_FALSE((nothing && maybe));
            CHECK(maybe == (a.left == effect::unresolved));
        }
    }
}

TEST_CASE("an answer over the limit is asked for once more, elsewhere", "[router]") {
    for (const std::size_t count : {std::size_t{1}, size}) {
        for (const bool writes : {false, true}) {
            router_fixture f(count);
            f.may_be_large = true;
            f.env->on_call = [](const call_request&, reply& r) { r.ec = errc::too_large; };
            CHECK(f.call(idempotent, writes).ec == errc::too_large);
            CHECK(f.env->calls.size() == std::min<std::size_t>(count, 2));
            CHECK(f.endpoints_asked() == f.env->calls.size());
            CHECK(f.took < 1s);
        }
        router_fixture f(count);
        f.may_be_large = true;
        f.env->on_call = [](const call_request&, reply& r) { r.ec = errc::too_large; };
        CHECK(f.call(!idempotent, changes).ec == errc::outcome_unknown);
        CHECK(f.env->calls.size() == 1);
    }
}

TEST_CASE("an endpoint that alone gives a large answer is at fault", "[router]") {
    router_fixture f;
    f.may_be_large = true;
    int bad = 0;
    f.env->on_call = [&](const call_request& q, reply& r) {
        bad = bad == 0 ? q.to.port : bad;
        r.body = good(q);
        if (q.to.port == bad) {
            r.ec = errc::too_large;
        }
    };
    CHECK_FALSE(f.call(idempotent, !changes).ec);
    CHECK(f.env->calls.size() == 2);
    CHECK_FALSE(f.call(idempotent, !changes).ec);
    CHECK(f.env->calls.size() == 3); // it is not asked again so soon
    // But not if the others give it, too: then it is true.
    router_fixture g;
    g.may_be_large = true;
    g.env->on_call = [](const call_request&, reply& r) { r.ec = errc::too_large; };
    CHECK(g.call(idempotent, !changes).ec == errc::too_large);
    const int first = g.env->calls.front().to.port;
    g.env->on_call = [](const call_request& q, reply& r) { r.body = good(q); };
    CHECK_FALSE(g.call(idempotent, !changes).ec);
    CHECK(g.env->calls.back().to.port == first);
}

TEST_CASE("a large answer to what has no large one is not etcd's", "[router]") {
    for (const bool writes : {false, true}) {
        router_fixture f;
        f.env->on_call = [](const call_request&, reply& r) { r.ec = errc::too_large; };
        const answer a = f.call(idempotent, writes);
        CHECK(a.ec == (writes ? errc::outcome_unknown : errc::protocol_error));
        CHECK_THAT(a.text, support::contains("too large to be etcd's"));
        CHECK(f.endpoints_asked() == size);
        CHECK(f.took == 5s);
    }
    router_fixture f;
    f.env->on_call = [left = 2](const call_request& q, reply& r) mutable {
        r.body = good(q);
        if (left-- > 0) {
            r.ec = errc::too_large;
        }
    };
    CHECK_FALSE(f.call(idempotent, changes).ec);
    CHECK(f.endpoints_asked() == size);
}

TEST_CASE("an endpoint that answers a look around at great length does not work", "[router]") {
    router_fixture f;
    int bad = 0;
    f.env->on_call = [&](const call_request& q, reply& r) {
        r.body = good(q);
        if (q.what == rpc::range && q.to.port == bad) {
            r.ec = errc::too_large;
        }
    };
    CHECK_FALSE(f.call(idempotent, !changes).ec);
    bad = f.env->calls.back().to.port; // where all goes
    f.env->pass(2s);
    CHECK_FALSE(f.call(idempotent, !changes).ec);
    f.env->pass(50ms); // it has looked around
    CHECK_FALSE(f.call(idempotent, !changes).ec);
    CHECK(f.env->calls.back().to.port != bad);
}

TEST_CASE("the deadline is for all attempts together", "[router]") {
    router_fixture f;
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
        router_fixture f;
        f.otherwise = lost();
        const answer a = f.call(may_repeat, changes);
        CHECK(a.ec == errc::outcome_unknown);
        CHECK(a.left == effect::unresolved);
        CHECK(f.took == 5s);
        CHECK(f.env->calls.size() == (may_repeat ? 3 : 1));
    }
    // Even if the last attempt did not get that far.
    router_fixture f;
    f.script = {broken()};
    f.otherwise = refused();
    CHECK(f.call(idempotent, changes).ec == errc::outcome_unknown);
    CHECK(f.took == 5s);
}

TEST_CASE("at the deadline a change that was not sent is known not to be done", "[router]") {
    for (const bool may_repeat : {false, true}) {
        router_fixture f;
        f.otherwise = refused();
        const answer a = f.call(may_repeat, changes);
        CHECK(a.ec == errc::unavailable);
        CHECK(a.ec == condition::retryable);
        CHECK(a.left == effect::none);
        CHECK_THAT(a.text,
                   support::contains(error_code(asio::error::connection_refused).message()));
        CHECK(f.took == 5s);
    }
    router_fixture f;
    f.fail_with(503, no_leader);
    const answer a = f.call(!idempotent, changes);
    CHECK(a.ec == errc::unavailable);
    CHECK_THAT(a.text, support::contains("no leader"));
}

TEST_CASE("at the deadline a request that etcd gave up is late", "[router]") {
    router_fixture f;
    f.fail_with(504, R"({"code":4,"message":"context deadline exceeded"})");
    CHECK(f.call(idempotent, !changes).ec == errc::timed_out);
    router_fixture g;
    g.fail_with(504, R"({"code":4,"message":"context deadline exceeded"})");
    CHECK(g.call(idempotent, changes).ec == errc::outcome_unknown);
}

TEST_CASE("a gateway that has no way through to etcd is named", "[router]") {
    const char* const given_up = R"({"code":4,"message":"context deadline exceeded"})";
    for (const bool slow : {true, false}) { // etcd, and that is all
        CAPTURE(slow);
        router_fixture f(1);
        f.env->on_call = [=](const call_request& q, reply& r) {
            const bool answers = slow && q.what == rpc::status;
            r.status = answers ? 200 : 504;
            r.body = answers ? "{}" : given_up;
        };
        const answer a = f.call(idempotent, !changes);
        CHECK(a.ec == errc::timed_out);
        CHECK((a.text.find("--max-concurrent-streams") == a.text.npos) == slow);
        const auto questions =
            std::count_if(f.env->calls.begin(), f.env->calls.end(), [](const auto& each) {
                return each.what == rpc::status;
            });
        CHECK(questions == 1);
    }
}

TEST_CASE("no request is made after its deadline", "[router]") {
    for (const auto timeout : {0s, -1s}) {
        router_fixture f;
        const answer a = f.call(idempotent, changes, timeout);
        CHECK(a.ec == errc::timed_out);
        CHECK(f.env->calls.empty());
        CHECK(f.took == 0s);
    }
}

TEST_CASE("there is a pause only after each endpoint was tried, and it grows", "[router]") {
    for (const std::size_t count : {std::size_t{1}, size}) {
        CAPTURE(count);
        router_fixture f(count);
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
            router_fixture f;
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
    router_fixture f;
    CHECK_FALSE(f.cancelled_after(3ms, idempotent));
    CHECK(f.env->calls.size() == 1);
}

TEST_CASE("a transport that reports a cancellation ends the call", "[router][cancellation]") {
    router_fixture f;
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
    router_fixture f;
    router& r = f.cluster_router();
    CHECK(r.world() == f.env);
    const logic::endpoint first = r.pick();
    r.failed(first, {}, router::use::stream);
    const logic::endpoint second = r.pick();
    CHECK(second != first);
    r.succeeded(second, {}, router::use::stream);
    CHECK_FALSE(f.call(idempotent, changes).ec);
    CHECK(f.env->calls.at(0).to == second);
}

namespace {

/// An etcd with authentication on, and a client with a user.
class auth_fixture {
public:
    explicit auth_fixture(std::size_t count = 1)
        : router_(make(count)) {
        env->on_call = [this](const call_request& q, reply& r) { serve(q, r); };
    }

    static constexpr const char* canary = "canary-password";

    support::background<answer> start(bool may_repeat = true,
                                      std::chrono::nanoseconds timeout = 5s) {
        const call_terms how = terms(*env, timeout, may_repeat, true);
        return support::background<answer>(context, run(router_, how));
    }
    answer call(bool may_repeat = true, std::chrono::nanoseconds timeout = 5s) {
        auto b = start(may_repeat, timeout);
        while (!b.ended()) {
            env->pass(1ms);
        }
        return b.get();
    }
    std::size_t count(rpc what) const {
        return static_cast<std::size_t>(
            std::count_if(env->calls.begin(), env->calls.end(), [&](const call_request& c) {
                return c.what == what;
            }));
    }

    asio::io_context context;
    std::shared_ptr<scripted_env> env = std::make_shared<scripted_env>(context);
    router& cluster_router() { return *router_; }

    // The server.
    bool enabled = true;
    bool expires_at_once = false;
    std::string password = canary;
    int code = 16;
    std::string refusal = "etcdserver: invalid auth token";
    std::string token; ///< That is valid now; none if empty.
    int granted = 0;

    std::function<std::string()> ask = [] { return std::string(canary); };

private:
    std::shared_ptr<router> make(std::size_t count) {
        router_options o;
        o.login = [this] { return wire::authenticate_request("root", secret(ask())); };
        return std::make_shared<router>(env, cluster(count), std::move(o));
    }
    static asio::awaitable<answer> run(std::shared_ptr<router> r, call_terms how) {
        decoder d = decode;
        answer a = co_await carry(std::move(r), rpc::txn, how, "body", std::move(d));
        co_return a;
    }
    void serve(const call_request& q, reply& r) {
        r.status = 200;
        if (q.what == rpc::authenticate) {
            if (!q.token.empty()) { // as 3.4 does
                r.status = 401;
                r.body = R"({"error":"x","code":16,"message":"etcdserver: invalid auth token"})";
            } else if (!enabled) {
                r.status = 400;
                r.body = R"({"code":9,"message":"etcdserver: authentication is not enabled"})";
            } else if (q.body.find('"' + password + '"') == q.body.npos) {
                r.status = 400;
                r.body = R"({"code":3,"message":"etcdserver: authentication failed, )"
                         R"(invalid user ID or password"})";
            } else {
                token = "token." + std::to_string(++granted);
                r.body =
                    R"({"header":{"cluster_id":"14841639068965178418"},"token":")" + token + "\"}";
            }
        } else if (enabled && (q.token.empty() || q.token != token)) {
            r.status = 401;
            r.body = R"({"code":)" + std::to_string(code) + R"(,"message":")" + refusal + "\"}";
        } else {
            r.body = good(q);
            if (expires_at_once) {
                token.clear();
            }
        }
    }

    std::shared_ptr<router> router_;
};

} // namespace

TEST_CASE("the first request logs in, and the others use its token", "[router][auth]") {
    auth_fixture f;
    CHECK_FALSE(f.call().ec);
    CHECK_FALSE(f.call().ec);
    REQUIRE(f.env->calls.size() == 3);
    CHECK(f.env->calls[0].what == rpc::authenticate);
    CHECK(f.env->calls[0].token.empty());
    CHECK(f.env->calls[1].token == "token.1");
    CHECK(f.env->calls[2].token == "token.1");
}

TEST_CASE("sec.token.single_flight: a hundred requests at once log in once", "[router][auth]") {
    auth_fixture f;
    for (int round = 1; round != 4; ++round) {
        std::vector<support::background<answer>> all;
        for (int i = 0; i != 100; ++i) {
            all.push_back(f.start());
        }
        f.env->pass(10s);
        for (auto& b : all) {
            REQUIRE(b.ended());
            CHECK_FALSE(b.get().ec);
        }
        CHECK(f.count(rpc::authenticate) == static_cast<std::size_t>(round));
        f.token.clear(); // it expires
    }
}

TEST_CASE("sec.token.one_retry: a token that is refused is replaced once, also for what must not "
          "be repeated",
          "[router][auth]") {
    struct {
        int code;
        const char* message;
    } const rows[] = {{16, "etcdserver: invalid auth token"},
                      {3, "etcdserver: user name is empty"},
                      {3, "etcdserver: revision of auth store is old"}};
    for (const auto& row : rows) {
        for (const bool may_repeat : {false, true}) {
            CAPTURE(row.message, may_repeat);
            auth_fixture f;
            f.code = row.code;
            f.refusal = row.message;
            CHECK_FALSE(f.call(may_repeat).ec);
            f.token.clear();
            const answer a = f.call(may_repeat);
            CHECK_FALSE(a.ec);
            CHECK(a.left == effect::none);
            CHECK(f.count(rpc::authenticate) == 2);
            CHECK(f.count(rpc::txn) == 3);
        }
    }
}

TEST_CASE("sec.token.one_retry: etcd that refuses each token is not asked for ever",
          "[router][auth]") {
    auth_fixture f;
    f.env->on_call = [](const call_request& q, reply& r) {
        const bool login = q.what == rpc::authenticate;
        r.status = login ? 200 : 401;
        r.body = login ? R"({"header":{"cluster_id":"14841639068965178418"},"token":"t"})"
                       : R"({"code":16,"message":"etcdserver: invalid auth token"})";
    };
    const auto before = f.env->now();
    const answer a = f.call();
    CHECK(a.ec == server_errc::unauthenticated);
    CHECK(f.count(rpc::txn) == 2);
    // The more often that happens, the rarer the logins.
    std::size_t calls = 0;
    while (f.env->now() - before < 60s) {
        (void)f.call(true, 30s);
        ++calls;
    }
    CHECK(f.count(rpc::authenticate) < 30);
    CHECK(calls < 30);
}

TEST_CASE("sec.token.denied: a permission that is denied is final", "[router][auth]") {
    auth_fixture f;
    f.env->on_call = [serve = f.env->on_call](const call_request& q, reply& r) {
        if (q.what == rpc::authenticate) {
            serve(q, r);
            return;
        }
        r.status = 403;
        r.body = denied;
    };
    CHECK(f.call().ec == server_errc::permission_denied);
    CHECK(f.count(rpc::txn) == 1);
    CHECK(f.count(rpc::authenticate) == 1);
}

TEST_CASE("sec.token.backoff: a wrong password fails all calls, and is not tried again at once",
          "[router][auth]") {
    auth_fixture f;
    f.password = "another";
    const auto begin = f.env->now();
    std::size_t calls = 0;
    while (f.env->now() - begin < 20s) {
        const answer a = f.call();
        CHECK(a.ec == errc::login_failed);
        CHECK(a.left == effect::none);
        CHECK_THAT(a.text, support::contains("txn: authenticate: "));
        CHECK_THAT(a.text, support::contains("invalid user ID or password"));
        CHECK_THAT(a.text, !support::contains(auth_fixture::canary));
        ++calls;
        f.env->pass(10ms);
    }
    CHECK(calls > 1000);
    CHECK(f.count(rpc::txn) == 0);
    CHECK(f.count(rpc::authenticate) < 20);

    f.password = auth_fixture::canary; // the operator sees to it
    f.env->pass(5s);
    CHECK_FALSE(f.call().ec);
}

TEST_CASE("a login is done at any endpoint, in the time of the call", "[router][auth]") {
    auth_fixture f(3);
    int left = 2;
    f.env->decide = [&](const call_request& q) {
        return q.what == rpc::authenticate && left-- > 0 ? refused() : fate();
    };
    CHECK_FALSE(f.call().ec);
    CHECK(f.count(rpc::authenticate) == 3);

    auth_fixture g(3);
    g.env->decide = [&](const call_request& q) {
        return q.what == rpc::authenticate ? lost() : fate();
    };
    const auto begin = g.env->now();
    const answer a = g.call(true, 2s);
    CHECK(a.ec == errc::timed_out);
    CHECK(a.left == effect::none);
    CHECK_THAT(a.text, support::contains("authenticate: no answer in time"));
    CHECK(g.env->now() - begin < 2100ms);
    CHECK(g.count(rpc::txn) == 0);

    auth_fixture h(3);
    h.env->decide = [&](const call_request&) { return refused(); };
    const answer b = h.call(true, 6s);
    CHECK(b.ec == errc::unavailable);
    CHECK_THAT(b.text, support::contains("http://h:"));
}

TEST_CASE("a user is no trouble where authentication is off, and logs in when it is on",
          "[router][auth]") {
    auth_fixture f;
    f.enabled = false;
    CHECK_FALSE(f.call().ec);
    CHECK_FALSE(f.call().ec);
    CHECK(f.count(rpc::authenticate) == 1);
    CHECK(f.env->calls.back().token.empty());
    f.enabled = true;
    f.code = 3;
    f.refusal = "etcdserver: user name is empty";
    CHECK_FALSE(f.call().ec);
    CHECK(f.count(rpc::authenticate) == 2);
}

TEST_CASE("a call that waits for a login can be cancelled; the login goes on for the others",
          "[router][auth][cancellation]") {
    auth_fixture f;
    auto first = f.start();
    auto second = f.start();
    f.env->pass(1ms);
    first.cancel();
    f.env->pass(0s);
    CHECK(first.code() == asio::error::operation_aborted);
    f.env->pass(1s);
    REQUIRE(second.ended());
    CHECK_FALSE(second.get().ec);
    CHECK(f.count(rpc::authenticate) == 1);
}

TEST_CASE("sec.canary.callback: a callback that throws fails the calls, without its words",
          "[router][auth]") {
    auth_fixture f;
    f.ask = []() -> std::string { throw std::runtime_error("canary"); };
    const answer a = f.call();
    CAPTURE(a.text);
    CHECK(a.ec == errc::login_failed);
    CHECK_THAT(a.text, support::contains("callback"));
    CHECK_THAT(a.text, !support::contains("canary"));
    f.env->pass(5s);
    f.ask = [] { return std::string(auth_fixture::canary); };
    CHECK_FALSE(f.call().ec);
}

TEST_CASE("a client without a user is told to have one", "[router][auth]") {
    router_fixture f;
    f.fail_with(400, R"({"code":3,"message":"etcdserver: user name is empty"})");
    const answer a = f.call(idempotent, changes);
    CHECK(a.ec == server_errc::invalid_argument);
    CHECK_THAT(a.text, support::contains("client_options::credentials"));
    CHECK(f.env->calls.size() == size);
}

TEST_CASE("a certificate that names a user has an error of its own", "[router][auth]") {
    router_fixture f;
    f.fail_with(400,
                "CommonName of client sending a request against gateway will be ignored and not "
                "used as expected\n");
    const answer a = f.call(idempotent, changes);
    CHECK(a.ec == errc::cn_auth_unsupported);
    CHECK(f.env->calls.size() == size);
}

TEST_CASE("a connection that is not secure is given up when no endpoint has a better one",
          "[router]") {
    router_fixture f;
    f.env->on_call = [](const call_request&, reply& r) {
        r.ec = errc::tls_failed;
        r.text = "expired";
    };
    const answer a = f.call(idempotent, !changes);
    CHECK(a.ec == errc::tls_failed);
    CHECK_THAT(a.text, support::contains("expired, on http://h:"));
    CHECK(f.env->calls.size() == size + 1);
}

TEST_CASE("while other endpoints may come back, one that is not secure does not end a call",
          "[router]") {
    router_fixture f;
    f.env->decide = [&](const call_request& q) {
        fate t;
        t.refused = q.to.port != 1 && f.env->now() - f.start < 2s;
        return t;
    };
    f.env->on_call = [](const call_request& q, reply& r) {
        r.body = "ok";
        if (q.to.port == 1) {
            r.ec = errc::tls_failed;
        }
    };
    CHECK_FALSE(f.call(idempotent, !changes).ec);
    CHECK(f.took >= 2s);
}

TEST_CASE("a router in use looks around, and moves to a nearer endpoint", "[router]") {
    router_fixture f;
    f.env->decide = [](const call_request& q) {
        fate t;
        t.late = q.to.port == 2 ? 0ms : 50ms;
        return t;
    };
    std::set<int> last;
    for (int i = 0; i != 50; ++i) {
        CHECK_FALSE(f.call(idempotent, changes).ec);
        f.env->pass(100ms);
    }
    CHECK(f.env->calls.back().to.port == 2);
    CHECK(f.cluster_router().pick().port == 2);
    // Seldom, and not at all when there is no use for it.
    const auto calls = f.env->calls.size();
    CHECK(calls < 50 + 2 * 3 + 1);
    f.env->pass(10min);
    CHECK(f.env->calls.size() == calls);
}

TEST_CASE("a member that is too busy, or refuses what others do, is not asked again at once",
          "[router]") {
    struct {
        unsigned status;
        const char* body;
    } const rows[] = {{429, busy}, {403, denied}};
    for (const auto& row : rows) {
        for (const int bad : {1, 2, 3}) {
            CAPTURE(row.body, bad);
            router_fixture f;
            f.spoil(bad, row.status, row.body);
            for (int i = 0; i != 10; ++i) {
                const answer a = f.call(idempotent, changes);
                CHECK_FALSE(a.ec);
            }
            const auto asked = f.asked();
            CHECK(std::count(asked.begin(), asked.end(), bad) <= 1);
        }
    }
    // All refuse it: none is to blame, and each is asked once.
    router_fixture f;
    const int first = f.cluster_router().pick().port;
    f.fail_with(403, denied);
    const answer a = f.call(idempotent, changes);
    CHECK(a.ec == server_errc::permission_denied);
    CHECK(f.env->calls.size() == size);
    CHECK(f.endpoints_asked() == size);
    CHECK(f.cluster_router().pick().port == first);
    // What may not be repeated is refused by one.
    router_fixture once;
    once.fail_with(403, denied);
    CHECK(once.call(!idempotent, changes).ec == server_errc::permission_denied);
    CHECK(once.env->calls.size() == 1);
}
