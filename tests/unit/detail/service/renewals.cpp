// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/service/renewals.hpp>

#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
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
using support::background;
using support::scripted_env;
using fate = scripted_env::fate;

namespace {

constexpr std::size_t full = logic::most_renewals_together;

/// Leases 1, 2, 3 ... of 10 seconds, and what renews them.
class renewals_fixture {
public:
    explicit renewals_fixture(std::size_t count = 3)
        : context(std::make_unique<asio::io_context>(1))
        , env(std::make_shared<scripted_env>(*context)) {
        const std::vector<logic::endpoint> where = {logic::parse_endpoint("http://etcd:1")};
        renewing = std::make_shared<renewals>(std::make_shared<router>(env, where));
        for (std::size_t i = 0; i != count; ++i) {
            ids.push_back(static_cast<lease_id>(i) + 1);
            (void)env->store.call(
                0, rpc::lease_grant, wire::encode(wire::lease_grant_request{10s, ids.back()}));
        }
        env->decide = [this](const call_request&) {
            const std::size_t n = sent_at.size();
            sent_at.push_back(env->now());
            return n < script.size() ? script[n] : fate();
        };
    }
    ~renewals_fixture() { context.reset(); } // what is under way goes before what it uses
    renewals_fixture(const renewals_fixture&) = delete;
    renewals_fixture& operator=(const renewals_fixture&) = delete;

    background<renewals::result>
    start(lease_id id, std::chrono::nanoseconds timeout = 2s, bool alone = false) {
        call_terms how{env->now() + timeout};
        how.attempt_timeout = timeout;
        how.way = connection_kind::renewal;
        return background<renewals::result>(*context, renewals::renew(renewing, id, how, alone));
    }
    /// All leases at once.
    std::vector<background<renewals::result>> start_all(std::chrono::nanoseconds timeout = 2s) {
        std::vector<background<renewals::result>> all;
        for (const lease_id id : ids) {
            all.push_back(start(id, timeout));
        }
        return all;
    }

    /// The leases that a request asks for, in order.
    std::vector<lease_id> asked(std::size_t request) const {
        std::vector<lease_id> out;
        wire::line_splitter lines(1000);
        lines.feed(env->calls.at(request).body);
        for (std::string line; lines.finish(line);) {
            out.push_back(wire::read_int64(wire::parse(line).root(), "ID"));
        }
        return out;
    }
    /// How many messages the requests had.
    std::vector<std::size_t> sizes() const {
        std::vector<std::size_t> out;
        for (std::size_t i = 0; i != env->calls.size(); ++i) {
            out.push_back(asked(i).size());
        }
        return out;
    }
    /// Has etcd's answers replaced before they are sent.
    void spoil(std::function<void(std::string&)> how) {
        env->on_call = [serve = env->on_call, how = std::move(how)](const call_request& q,
                                                                    reply& r) {
            serve(q, r);
            how(r.body);
        };
    }

    std::unique_ptr<asio::io_context> context;
    std::shared_ptr<scripted_env> env;
    std::shared_ptr<renewals> renewing;
    std::vector<lease_id> ids;
    std::vector<fate> script;        ///< Of the first requests.
    std::vector<time_point> sent_at; ///< The requests.
};

fate late(std::chrono::nanoseconds by) {
    fate f;
    f.late = by;
    return f;
}

fate swallowed() {
    fate f;
    f.arrives = false;
    return f;
}

std::vector<std::string> lines_of(const std::string& body) {
    std::vector<std::string> out;
    wire::line_splitter lines(body.size());
    lines.feed(body);
    for (std::string line; lines.finish(line);) {
        out.push_back(line + "\n");
    }
    return out;
}

} // namespace

TEST_CASE("a renewal goes at once if nothing is under way", "[renewals]") {
    renewals_fixture f;
    for (int round = 1; round != 4; ++round) {
        const time_point began = f.env->now();
        auto r = f.start(2);
        f.env->pass(3ms);
        const renewals::result got = r.get();
        CHECK_FALSE(got.ec);
        CHECK(got.response.id == 2);
        CHECK(got.response.ttl == 10s);
        CHECK(got.sent == began);
        CHECK(f.sent_at.back() == began);
        CHECK(f.env->calls.back().way == connection_kind::renewal);
        CHECK(f.env->calls.back().deadline == began + 2s);
        CHECK(f.sizes() == std::vector<std::size_t>(static_cast<std::size_t>(round), 1));
    }
}

TEST_CASE("renewals that come while one is under way share the next request", "[renewals]") {
    renewals_fixture f(6);
    const time_point began = f.env->now();
    auto all = f.start_all();
    f.env->pass(10ms);
    REQUIRE(f.sizes() == std::vector<std::size_t>{1, 5});
    CHECK(f.asked(0) == std::vector<lease_id>{1});
    CHECK(f.asked(1) == std::vector<lease_id>{2, 3, 4, 5, 6});
    CHECK(f.sent_at[1] == began + f.env->round_trip);
    for (std::size_t i = 0; i != all.size(); ++i) {
        const renewals::result got = all[i].get();
        CHECK_FALSE(got.ec);
        CHECK(got.response.id == f.ids[i]);
        CHECK(got.response.ttl == 10s);
        CHECK(got.sent == f.sent_at[i == 0 ? 0 : 1]);
    }
}

TEST_CASE("full requests do not wait, what is left over does, and the order is kept",
          "[renewals]") {
    renewals_fixture f(1 + 3 * full + 2);
    const time_point began = f.env->now();
    auto all = f.start_all();
    f.env->pass(20ms);
    REQUIRE(f.sizes() == std::vector<std::size_t>{1, full, full, full, 2});
    CHECK(f.sent_at[0] == began);
    CHECK(f.sent_at[1] == began);
    CHECK(f.sent_at[2] == began);
    CHECK(f.sent_at[3] == began);
    CHECK(f.sent_at[4] == began + f.env->round_trip);
    std::vector<lease_id> order;
    for (std::size_t i = 0; i != f.env->calls.size(); ++i) {
        const auto some = f.asked(i);
        order.insert(order.end(), some.begin(), some.end());
    }
    CHECK(order == f.ids);
    for (auto& each : all) {
        CHECK_FALSE(each.get().ec);
    }
}

TEST_CASE("the longest messages fit in what etcd's gateway reads at once", "[renewals]") {
    renewals_fixture f(0);
    auto first = f.start(1);
    for (std::size_t i = 0; i != full; ++i) {
        f.ids.push_back(std::numeric_limits<lease_id>::min());
    }
    auto all = f.start_all();
    f.env->pass(10ms);
    REQUIRE(f.env->calls.size() == 2);
    CHECK(f.asked(1).size() == full);
    CHECK(f.env->calls[1].body.size() <= 512);
}

TEST_CASE("a request that is held up holds up the others for a moment only", "[renewals]") {
    renewals_fixture f(4);
    f.script = {late(500ms)};
    const time_point began = f.env->now();
    auto all = f.start_all();
    f.env->pass(19ms);
    CHECK(f.env->calls.size() == 1);
    f.env->pass(10ms);
    REQUIRE(f.sizes() == std::vector<std::size_t>{1, 3});
    CHECK(f.sent_at[1] == began + logic::longest_gathering);
    CHECK_FALSE(all[0].ended());
    CHECK_FALSE(all[1].get().ec);
    CHECK_FALSE(all[3].get().ec);
    f.env->pass(1s);
    CHECK_FALSE(all[0].get().ec);
}

TEST_CASE("a renewal that finds as many under way as there may be goes when one has ended",
          "[renewals]") {
    renewals_fixture f(4);
    f.script = {late(300ms), late(500ms)};
    const time_point began = f.env->now();
    auto first = f.start(1);
    f.env->pass(1ms);
    auto second = f.start(2);
    f.env->pass(50ms);
    CHECK(f.env->calls.size() == 2);
    auto third = f.start(3);
    auto fourth = f.start(4);
    f.env->pass(200ms);
    CHECK(f.env->calls.size() == 2);
    f.env->pass(100ms);
    REQUIRE(f.sizes() == std::vector<std::size_t>{1, 1, 2});
    CHECK(f.sent_at[2] == began + 300ms + f.env->round_trip);
    CHECK_FALSE(third.get().ec);
    CHECK_FALSE(fourth.get().ec);
    CHECK_FALSE(second.ended());
}

TEST_CASE("each waits until its own deadline, sent or not", "[renewals]") {
    renewals_fixture f(4);
    f.script = {swallowed(), swallowed()};
    auto first = f.start(1, 2s);
    f.env->pass(1ms);
    auto second = f.start(2, 1s);
    f.env->pass(50ms);
    auto third = f.start(3, 100ms);
    auto fourth = f.start(4, 5s);
    f.env->pass(101ms);
    const renewals::result unsent = third.get();
    CHECK(unsent.ec == errc::timed_out);
    CHECK((unsent.left == effect::none));
    CHECK_THAT(unsent.text, support::contains("lease_keep_alive: "));
    CHECK_FALSE(second.ended());
    f.env->pass(1s);
    const renewals::result unanswered = second.get();
    CHECK(unanswered.ec == errc::timed_out);
    CHECK((unanswered.left == effect::unresolved));
    // No request waits for what has given up.
    REQUIRE(f.env->calls.size() == 3);
    CHECK(f.asked(2) == std::vector<lease_id>{4});
    CHECK_FALSE(fourth.get().ec);
    f.env->pass(1s);
    CHECK(first.get().ec == errc::timed_out);
}

TEST_CASE("a request lasts until the latest deadline in it", "[renewals]") {
    renewals_fixture f(3);
    f.script = {fate(), late(400ms)};
    const time_point began = f.env->now();
    auto first = f.start(1);
    auto second = f.start(2, 100ms);
    auto third = f.start(3, 900ms);
    f.env->pass(1s);
    REQUIRE(f.sizes() == std::vector<std::size_t>{1, 2});
    CHECK(f.env->calls[1].deadline == began + 900ms);
    CHECK(second.get().ec == errc::timed_out);
    CHECK_FALSE(third.get().ec);
}

TEST_CASE("a renewal that is to go alone does so, whatever is under way", "[renewals]") {
    renewals_fixture f(4);
    f.script = {late(500ms), late(500ms)};
    auto first = f.start(1);
    f.env->pass(1ms);
    auto second = f.start(2);
    f.env->pass(50ms);
    auto gathered = f.start(3);
    auto alone = f.start(4, 2s, true);
    f.env->pass(3ms);
    CHECK_FALSE(alone.get().ec);
    REQUIRE(f.sizes() == std::vector<std::size_t>{1, 1, 1});
    CHECK(f.asked(2) == std::vector<lease_id>{4});
    CHECK_FALSE(gathered.ended());
    // Nor does it count as one of them.
    f.env->pass(600ms);
    auto again = f.start(4, 2s, true);
    auto other = f.start(3);
    f.env->pass(0s);
    CHECK(f.env->calls.size() == 6);
}

TEST_CASE("after a failure of all, renewals do not stand in each other's way", "[renewals]") {
    renewals_fixture f(200);
    std::vector<background<renewals::result>> all;
    f.env->round_trip = 150ms; // etcd is far away
    for (const lease_id id : f.ids) {
        all.push_back(f.start(id, 2s, true)); // each of them has failed before
    }
    std::size_t most = 0;
    std::size_t under_way = 0;
    f.env->decide = [&](const call_request&) {
        most = std::max(most, ++under_way);
        f.env->at(f.env->now() + f.env->round_trip, [&] { --under_way; });
        return fate();
    };
    f.env->pass(1200ms);
    for (auto& each : all) {
        CHECK_FALSE(each.get().ec);
    }
    CHECK(most > 4);
    CHECK(most <= logic::renewal_connections);
    CHECK(f.env->calls.size() < 20);
}

TEST_CASE("one that goes alone wants its own answer, and goes elsewhere for it", "[renewals]") {
    renewals_fixture f(1);
    f.env->on_call = [serve = f.env->on_call, others = 2](const call_request& q, reply& r) mutable {
        serve(q, r);
        if (others-- > 0) {
            r.body =
                R"({"result":{"header":{"cluster_id":"14841639068965178418"},"ID":"77","TTL":"9"}})";
        }
    };
    auto alone = f.start(1, 2s, true);
    f.env->pass(1s);
    CHECK_FALSE(alone.get().ec);
    CHECK(alone.get().response.id == 1);
    CHECK(f.env->calls.size() == 3);
}

TEST_CASE("a lease that is gone is told as such, and the others are renewed", "[renewals]") {
    renewals_fixture f(4);
    f.env->store.revoke(3);
    auto all = f.start_all();
    f.env->pass(10ms);
    for (std::size_t i = 0; i != all.size(); ++i) {
        const renewals::result got = all[i].get();
        CHECK_FALSE(got.ec);
        CHECK(got.response.ttl == (f.ids[i] == 3 ? 0s : 10s));
    }
}

TEST_CASE("a renewal that is not answered has failed, and the others have not", "[renewals]") {
    struct {
        const char* what;
        std::function<void(std::string&)> spoil;
        error_code expected; // of leases 4 and 5
        const char* text;
    } const rows[] = {
        {"the stream ends early",
         [](std::string& body) {
             const auto lines = lines_of(body);
             body = lines.size() < 4 ? body : lines[0] + lines[1];
         },
         errc::unavailable,
         "not this one"},
        {"it ends with an error",
         [](std::string& body) {
             const auto lines = lines_of(body);
             body = lines.size() < 4 ? body
                                     : lines[0] + lines[1] +
                                           R"({"error":{"grpc_code":14,"message":"no leader"}})";
         },
         server_errc::unavailable,
         "no leader"},
        {"there are answers for others",
         [](std::string& body) {
             const auto lines = lines_of(body);
             const std::string other =
                 R"({"result":{"header":{"cluster_id":"14841639068965178418"},"ID":"77","TTL":"9"}})";
             body = lines.size() < 4 ? body : other + "\n" + lines[1] + other + "\n" + lines[0];
         },
         errc::unavailable,
         "not this one"},
    };
    for (const auto& row : rows) {
        CAPTURE(row.what);
        renewals_fixture f(5);
        f.spoil(row.spoil);
        auto all = f.start_all();
        f.env->pass(10ms);
        REQUIRE(f.sizes() == std::vector<std::size_t>{1, 4});
        for (std::size_t i = 0; i != all.size(); ++i) {
            const renewals::result got = all[i].get();
            if (f.ids[i] < 4) {
                CHECK_FALSE(got.ec);
                CHECK(got.response.id == f.ids[i]);
            } else {
                CHECK(got.ec == row.expected);
                CHECK((got.left == effect::unresolved));
                CHECK_THAT(got.text, support::contains(row.text));
            }
        }
    }
}

TEST_CASE("a request that fails is the failure of all that share it", "[renewals]") {
    struct {
        const char* what;
        std::string body;
        unsigned status;
        error_code expected;
    } const rows[] = {
        {"refused",
         R"({"error":{"grpc_code":7,"message":"etcdserver: permission denied"}})",
         200,
         server_errc::permission_denied},
        {"refused, before the stream began",
         R"({"error":"x","message":"etcdserver: permission denied","code":7})",
         403,
         server_errc::permission_denied},
        {"garbled in the middle",
         R"({"result":{"header":{"cluster_id":"14841639068965178418"},"ID":"2","TTL":"9"}})"
         "\n{]\n",
         200,
         errc::timed_out},
        {"empty", "", 200, errc::timed_out},
        {"a page of something else", "<html>403 Forbidden</html>", 403, errc::timed_out},
        {"of other leases",
         R"({"result":{"header":{"cluster_id":"14841639068965178418"},"ID":"77","TTL":"9"}})",
         200,
         errc::timed_out},
    };
    for (const auto& row : rows) {
        CAPTURE(row.what);
        renewals_fixture f(4);
        auto first = f.start(1);
        f.env->pass(1ms);
        f.env->on_call = [&row](const call_request&, reply& r) {
            r.status = row.status;
            r.body = row.body;
        };
        auto second = f.start(2);
        auto third = f.start(3);
        f.env->pass(2s);
        CHECK_FALSE(first.get().ec);
        for (auto* each : {&second, &third}) {
            const renewals::result got = each->get();
            CHECK(got.ec == row.expected);
            CHECK(got.response.ttl == 0s);
            CHECK_THAT(got.text, support::contains("lease_keep_alive: "));
        }
        CHECK(f.asked(1) == std::vector<lease_id>{2, 3});
        // What went before does not count against those that follow.
        f.env->on_call = [](const call_request&, reply& r) {
            r.body =
                R"({"result":{"header":{"cluster_id":"14841639068965178418"},"ID":"4","TTL":"9"}})";
        };
        auto next = f.start(4);
        f.env->pass(10ms);
        CHECK_FALSE(next.get().ec);
    }
}

TEST_CASE("one lease that two renew is renewed for both", "[renewals]") {
    renewals_fixture f(2);
    auto first = f.start(1);
    auto second = f.start(2);
    auto third = f.start(2);
    f.env->pass(10ms);
    CHECK(f.sizes() == std::vector<std::size_t>{1, 2});
    CHECK_FALSE(second.get().ec);
    CHECK_FALSE(third.get().ec);
}

TEST_CASE("a renewal that is cancelled does not cut off the others", "[renewals][cancellation]") {
    for (const auto moment : {0ms, 1ms, 2ms, 3ms}) {
        CAPTURE(moment.count());
        renewals_fixture f(4);
        auto all = f.start_all();
        f.env->pass(moment);
        const bool sent = f.env->calls.size() == 2;
        CHECK(sent == (moment >= 2ms));
        all[2].cancel();
        f.env->pass(0s);
        REQUIRE(all[2].ended());
        CHECK(all[2].code() == asio::error::operation_aborted);
        f.env->pass(10ms);
        CHECK_FALSE(all[0].get().ec);
        CHECK_FALSE(all[1].get().ec);
        CHECK_FALSE(all[3].get().ec);
        const std::vector<lease_id> without{2, 4};
        CHECK(f.asked(1) == (sent ? std::vector<lease_id>{2, 3, 4} : without));
    }
    // Even the one for which the request was made.
    renewals_fixture f(2);
    f.script = {late(100ms)};
    auto first = f.start(1);
    f.env->pass(1ms);
    first.cancel();
    auto second = f.start(2);
    f.env->pass(1s);
    CHECK(first.code() == asio::error::operation_aborted);
    CHECK_FALSE(second.get().ec);
    CHECK(f.sizes() == std::vector<std::size_t>{1, 1});
    // One that goes alone takes its request with it.
    auto alone = f.start(1, 2s, true);
    f.env->pass(1ms);
    alone.cancel();
    f.env->pass(0s);
    CHECK(alone.code() == asio::error::operation_aborted);
    auto next = f.start(1);
    f.env->pass(3ms);
    CHECK_FALSE(next.get().ec);
}

TEST_CASE("the owner may go while renewals are under way", "[renewals]") {
    renewals_fixture f(4);
    auto all = f.start_all();
    f.renewing.reset();
    f.env->pass(10ms);
    for (auto& each : all) {
        CHECK_FALSE(each.get().ec);
    }
    // So may the callers that wait: the request lasts until it is answered.
    renewals_fixture one(1);
    const std::weak_ptr<renewals> left = one.renewing;
    auto only = one.start(1);
    one.renewing.reset();
    one.env->pass(1ms);
    only.cancel();
    one.env->pass(0s);
    CHECK_FALSE(left.expired());
    one.env->pass(10ms);
    CHECK(left.expired());
    // So may all.
    for (const auto moment : {0ms, 1ms, 2ms, 3ms}) {
        renewals_fixture g(4);
        g.script = {fate(), swallowed()};
        auto some = g.start_all();
        g.env->pass(moment);
        if (moment == 1ms) {
            g.renewing.reset();
        }
    }
}
