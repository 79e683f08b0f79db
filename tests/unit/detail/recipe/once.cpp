// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/recipe/once.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/error.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
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
using coetcd::compare;
using coetcd::errc;
using coetcd::op;
using coetcd::server_errc;
using coetcd::txn;
using coetcd::detail::once_end;
using coetcd::detail::once_writer;
using support::background;
using support::broken;
using support::fate_of_copies;
using support::late;
using support::lost;
using support::scripted_env;
using support::unanswered;
using support::world;
using fate = scripted_env::fate;

namespace {

constexpr auto plain = once_writer::form::plain;

/// A session that writes the key `k`.
struct desk {
    desk()
        : client(w.client())
        , session(w.await(coetcd::session::open(client)))
        , impl(coetcd::detail::access::impl(session)) {
        writer.emplace(impl, "n", "test");
    }
    ~desk() { writer.reset(); }

    coetcd::detail::call_terms in_time() const { return impl->owner->within(5s); }
    background<once_end> start(txn what) {
        return w.start(writer->apply(std::move(what), plain, in_time()));
    }
    once_end write(txn what) { return w.await(writer->apply(std::move(what), plain, in_time())); }
    /// How often `k` was written in this life.
    std::int64_t version() const {
        const auto found = w.etcd->keys.find("k");
        return found == w.etcd->keys.end() ? 0 : found->second.version;
    }
    std::vector<std::string> markers() const { return w.etcd->under("n."); }

    world w;
    coetcd::client client;
    coetcd::session session;
    std::shared_ptr<coetcd::detail::session_impl> impl;
    std::optional<once_writer> writer;
};

txn put(std::string value = "v") {
    return txn().then(op::put("k", std::move(value)));
}
txn put_if_absent() {
    return txn().when(compare::version("k") == 0).then(op::put("k", "v")).otherwise(op::range("k"));
}

/// etcd carries out the next write, and refuses it.
void refuse_what_is_made(desk& d,
                         unsigned status,
                         const std::string& code,
                         const std::string& why) {
    const std::string said =
        R"({"error":")" + why + R"(","message":")" + why + R"(","code":)" + code + '}';
    d.w.env->on_call = [serve = d.w.env->on_call, status, said, first = true](const auto& request,
                                                                              auto& reply) mutable {
        serve(request, reply);
        if (support::is_write(request) && std::exchange(first, false)) {
            reply.status = status;
            reply.body = said;
        }
    };
}
void say_full(desk& d) {
    refuse_what_is_made(d, 429, "8", "etcdserver: mvcc: database space exceeded");
}

/// Ends the session. Then a late copy of the request for its lease brings that back, without what
/// was put under it.
void close_and_grant_again(desk& d) {
    auto closing = d.w.start(d.session.close());
    d.w.env->pass(100ms);
    REQUIRE(closing.ended());
    auto granting = d.w.start(d.client.lease_grant(60s, d.session.lease()));
    d.w.env->pass(5s);
    REQUIRE_NOTHROW(granting.get());
}

} // namespace

TEST_CASE("a write takes one round trip, and a key with the session's lease", "[once]") {
    desk d;
    d.w.env->calls.clear();
    for (int i = 1; i <= 3; ++i) {
        const once_end end = d.write(put());
        CHECK(end.applied);
        REQUIRE(end.answered);
        CHECK(end.answered->responses.size() == 1);
        CHECK(end.revision == d.w.etcd->keys.at("k").mod_revision);
        CHECK(d.version() == i);
        REQUIRE(d.markers().size() == 1);
        const auto& marker = d.w.etcd->keys.at(d.markers().front());
        CHECK(marker.lease == d.session.lease());
        CHECK(marker.mod_revision == end.revision);
    }
    CHECK(d.w.env->calls.size() == 3);
}

TEST_CASE("a write whose answer is lost is applied once, and known to be", "[once]") {
    for (const bool first : {true, false}) {
        for (int lost_answers = 1; lost_answers <= 2; ++lost_answers) {
            for (const fate& f : {broken(), unanswered()}) {
                desk d;
                if (!first) {
                    (void)d.write(put());
                }
                const std::int64_t before = d.version();
                fate_of_copies(d.w, std::vector<fate>(static_cast<std::size_t>(lost_answers), f));
                const once_end end = d.write(put());
                CAPTURE(first, lost_answers, f.breaks);
                CHECK(end.applied);
                CHECK_FALSE(end.answered);
                CHECK(d.version() == before + 1);
                CHECK(end.revision == d.w.etcd->keys.at("k").mod_revision);
                (void)d.write(put());
                CHECK(d.version() == before + 2);
            }
        }
    }
}

TEST_CASE("a write that is lost on its way is sent again", "[once]") {
    desk d;
    fate refused;
    refused.refused = true;
    fate_of_copies(d.w, {lost(), refused});
    const once_end end = d.write(put());
    CHECK(end.applied);
    CHECK(end.answered);
    CHECK(d.version() == 1);
}

TEST_CASE("a copy that comes late changes nothing", "[once]") {
    for (const bool first : {true, false}) {
        for (const int more : {0, 1}) {
            desk d;
            if (!first) {
                (void)d.write(put());
            }
            const std::int64_t before = d.version();
            fate_of_copies(d.w, {late(4s)});
            CHECK(d.write(put()).applied);
            for (int i = 0; i != more; ++i) {
                (void)d.write(put());
            }
            CHECK(d.version() == before + 1 + more);
            d.w.env->pass(5s);
            CHECK(d.version() == before + 1 + more);
        }
    }
}

TEST_CASE("a write whose condition does not hold is refused, and says why", "[once]") {
    desk d;
    d.w.etcd->write("k", "theirs");
    d.w.env->calls.clear();
    const once_end end = d.write(put_if_absent());
    CHECK_FALSE(end.applied);
    CHECK(end.revision == d.w.etcd->revision);
    REQUIRE(end.answered);
    REQUIRE(end.answered->responses.size() == 1);
    CHECK(end.answered->responses.front().range().kvs.front().value == "theirs");
    CHECK(d.w.env->calls.size() == 1);
    CHECK(d.markers().empty());
}

TEST_CASE("what was refused is not applied by a copy that comes late", "[once]") {
    desk d;
    d.w.etcd->write("k", "theirs");
    fate_of_copies(d.w, {late(3s)});
    CHECK_FALSE(d.write(put_if_absent()).applied);
    d.w.etcd->erase("k"); // now the condition would hold
    d.w.env->pass(5s);
    CHECK(d.version() == 0);
    CHECK(d.write(put_if_absent()).applied);
    CHECK(d.version() == 1);
}

TEST_CASE("what was refused and then applied by a late copy is told", "[once]") {
    desk d;
    d.w.etcd->write("k", "theirs");
    // The first copy comes at 3 s, after the second was refused, and before the one that would
    // make it void.
    fate_of_copies(d.w, {late(3s), fate(), late(1500ms)});
    auto writing = d.start(put_if_absent());
    d.w.env->pass(2500ms);
    d.w.etcd->erase("k");
    d.w.env->pass(2s);
    REQUIRE(writing.ended());
    const once_end end = writing.get();
    CHECK(end.applied);
    CHECK_FALSE(end.answered);
    CHECK(d.version() == 1);
    CHECK(end.revision == d.w.etcd->keys.at("k").mod_revision);
    d.w.env->pass(5s);
    CHECK(d.version() == 1);
    (void)d.write(put());
    CHECK(d.version() == 2);
}

TEST_CASE("the request that makes a refusal final is repeated, too", "[once]") {
    for (const fate& f : {broken(), lost()}) {
        desk d;
        d.w.etcd->write("k", "theirs");
        fate_of_copies(d.w, {late(4s), fate(), f});
        CHECK_FALSE(d.write(put_if_absent()).applied);
        d.w.etcd->erase("k");
        d.w.env->pass(6s);
        CHECK(d.version() == 0);
        CHECK(d.write(put_if_absent()).applied);
    }
}

TEST_CASE("a refusal is not made final when the session has ended", "[once]") {
    desk d;
    d.w.etcd->write("k", "");
    fate_of_copies(d.w, {unanswered(), fate(), unanswered()});
    auto writing = d.start(put_if_absent());
    d.w.env->pass(2500ms);
    auto closing = d.w.start(d.session.close());
    d.w.env->pass(10s);
    CHECK(writing.code() == errc::outcome_unknown);
    CHECK_THROWS_WITH(writing.get(), support::contains("closed"));
}

TEST_CASE("a write without an answer in time is in doubt; the next one is not", "[once]") {
    for (const bool arrives : {true, false}) {
        desk d;
        std::vector<fate> all(20, arrives ? unanswered() : lost());
        fate_of_copies(d.w, std::move(all));
        auto writing = d.start(put("1"));
        d.w.env->pass(5100ms);
        CHECK(writing.code() == errc::outcome_unknown);
        CHECK(d.version() == (arrives ? 1 : 0));
        CHECK(d.session.state() == coetcd::session_state::active);
        d.w.env->decide = nullptr;
        CHECK(d.write(put("2")).applied);
        CHECK(d.version() == (arrives ? 2 : 1));
        CHECK(d.w.etcd->keys.at("k").value == "2");
    }
}

TEST_CASE("a write that never leaves is not in doubt", "[once]") {
    desk d;
    fate refused;
    refused.refused = true;
    fate_of_copies(d.w, std::vector<fate>(500, refused));
    auto writing = d.start(put());
    d.w.env->pass(5100ms);
    CHECK(writing.code() == errc::unavailable);
}

TEST_CASE("a write that was given up is applied before the next one, or not at all", "[once]") {
    for (const auto wait : {0s, 10s}) {
        for (const bool first : {true, false}) {
            desk d;
            if (!first) {
                (void)d.write(put("0"));
            }
            fate_of_copies(d.w, {late(4s)});
            auto writing = d.start(put("1"));
            d.w.env->pass(100ms);
            writing.cancel();
            d.w.env->pass(1ms);
            CHECK(writing.code() == asio::error::operation_aborted);
            d.w.env->pass(wait);
            const std::int64_t before = d.version();
            CHECK(before == (first ? 0 : 1) + (wait == 0s ? 0 : 1));
            const once_end end = d.write(put("2"));
            CHECK(end.applied);
            CHECK(end.answered);
            CHECK(d.version() == before + 1);
            d.w.env->pass(10s);
            CHECK(d.version() == before + 1);
            CHECK(d.w.etcd->keys.at("k").value == "2");
        }
    }
}

TEST_CASE("a write that is cancelled before it begins is not sent", "[once]") {
    desk d;
    d.w.env->calls.clear();
    auto work = [&]() -> asio::awaitable<void> {
        asio::steady_timer never(*d.w.context, asio::steady_timer::time_point::max());
        boost::system::error_code cancelled;
        co_await never.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
        auto writing = d.writer->apply(put(), plain, d.in_time());
        (void)co_await std::move(writing);
    };
    auto writing = d.w.start(work());
    d.w.env->pass(1ms);
    writing.cancel();
    d.w.env->pass(1s);
    CHECK(writing.code() == asio::error::operation_aborted);
    CHECK(std::none_of(d.w.env->calls.begin(), d.w.env->calls.end(), support::is_write));
    CHECK(d.version() == 0);
}

TEST_CASE("a write that has no session is not sent", "[once]") {
    desk d;
    (void)d.session.orphan();
    d.w.env->calls.clear();
    auto writing = d.start(put());
    d.w.env->pass(1s);
    CHECK(writing.code() == errc::session_closed);
    CHECK(d.w.env->calls.empty());
}

TEST_CASE("a write without a lease is in doubt, and the session is lost", "[once]") {
    // Something on the way may have sent it twice, and the first copy found the lease.
    for (const bool first : {true, false}) {
        desk d;
        if (!first) {
            (void)d.write(put());
        }
        const std::int64_t before = d.version();
        d.w.etcd->revoke(d.session.lease());
        auto writing = d.start(put());
        d.w.env->pass(100ms);
        CHECK(writing.code() == errc::outcome_unknown);
        CHECK(d.version() == before);
        d.w.env->pass(20s); // a renewal
        CHECK(d.session.reason() == coetcd::session_end::expired);
    }
}

TEST_CASE("a write whose lease ends while its answer is lost is in doubt", "[once]") {
    for (const fate& f : {broken(), late(1s)}) {
        desk d;
        fate_of_copies(d.w, {f});
        auto writing = d.start(put());
        d.w.env->pass(f.breaks ? 3ms : 500ms);
        CHECK(d.version() == (f.breaks ? 1 : 0));
        d.w.etcd->revoke(d.session.lease());
        d.w.env->pass(4s);
        CHECK(writing.code() == errc::outcome_unknown);
        d.w.env->pass(5s);
        CHECK(d.version() == (f.breaks ? 1 : 0));
    }
}

TEST_CASE("another lease that is gone does not end the session", "[once]") {
    desk d;
    coetcd::put_options leased;
    leased.lease = 12345;
    auto writing = d.start(txn().then(op::put("k", "v", leased)));
    d.w.env->pass(100ms);
    CHECK(writing.code() == server_errc::not_found);
    CHECK(d.session.state() == coetcd::session_state::active);
    CHECK(d.write(put()).applied);
}

TEST_CASE("a write that was made before its second copy missed a lease is known", "[once]") {
    // Something on the way has sent it twice.
    const bool answers = GENERATE(true, false);
    desk d;
    refuse_what_is_made(d, 404, "5", "etcdserver: requested lease not found");
    if (!answers) {
        support::fate_of(
            d.w,
            [](const coetcd::detail::call_request& r) { return !support::is_write(r); },
            std::vector<fate>(100, unanswered()));
    }
    auto writing = d.start(put());
    d.w.env->pass(10s);
    CHECK(d.version() == 1);
    if (answers) {
        const once_end end = writing.get();
        CHECK(end.applied);
        CHECK(end.revision == d.w.etcd->keys.at("k").mod_revision);
    } else {
        CHECK(writing.code() == errc::outcome_unknown);
    }
}

TEST_CASE("a refusal that comes after the end of the session is in doubt", "[once]") {
    // A copy may have been applied under the lease, which took with it what would tell.
    desk d;
    d.w.etcd->write("k", "");
    fate_of_copies(d.w, {late(500ms)});
    auto writing = d.start(put_if_absent());
    d.w.env->pass(250ms);
    auto closing = d.w.start(d.session.close());
    d.w.env->pass(2s);
    CHECK(writing.code() == errc::outcome_unknown);
}

TEST_CASE("a write is not sent again when its session has ended", "[once]") {
    desk d;
    fate_of_copies(d.w, {unanswered()});
    auto writing = d.start(put());
    d.w.env->pass(500ms);
    close_and_grant_again(d);
    CHECK(writing.code() == errc::outcome_unknown);
    CHECK_THROWS_WITH(writing.get(), support::contains("closed"));
    CHECK(d.version() == 1);
}

TEST_CASE("a write that is applied after the end of its session is in doubt, if sent twice",
          "[once]") {
    desk d;
    fate_of_copies(d.w, {unanswered(), late(500ms)});
    auto writing = d.start(put());
    d.w.env->pass(2100ms);
    close_and_grant_again(d);
    CHECK(d.version() == 2);
    CHECK(writing.code() == errc::outcome_unknown);
}

TEST_CASE("where a marker was erased by hand a write is in doubt, and the next one is not",
          "[once]") {
    desk d;
    (void)d.write(put());
    const std::string marker = d.markers().at(0);
    SECTION("nothing is in doubt") {
        d.w.etcd->erase(marker);
        auto writing = d.start(put());
        d.w.env->pass(100ms);
        CHECK(writing.code() == errc::outcome_unknown);
        CHECK(d.version() == 1);
        CHECK(d.write(put()).applied);
        CHECK(d.version() == 2);
        REQUIRE(d.markers().size() == 1);
        CHECK(d.markers().at(0) != marker);
    }
    SECTION("a copy may have been applied") {
        fate_of_copies(d.w, {broken()});
        auto writing = d.start(put());
        d.w.env->pass(3ms);
        d.w.etcd->erase(marker);
        d.w.env->pass(1s);
        CHECK(writing.code() == errc::outcome_unknown);
        CHECK(d.version() == 2);
    }
}

TEST_CASE("what etcd refuses says what it lacks", "[once]") {
    desk d;
    d.w.etcd->forbidden = {"k"};
    auto denied = d.start(put());
    d.w.env->pass(100ms);
    CHECK(denied.code() == server_errc::permission_denied);
    REQUIRE_THROWS_WITH(denied.get(), support::contains("test: "));
    REQUIRE_THROWS_WITH(denied.get(), support::contains("\"n.\" up to, but not including, \"n0\""));
    d.w.etcd->forbidden = {};
    d.w.etcd->no_space = true;
    auto full = d.start(put());
    d.w.env->pass(100ms);
    CHECK(full.code() == server_errc::resource_exhausted);
    d.w.etcd->no_space = false;
    CHECK(d.write(put()).applied);
    CHECK(d.version() == 1);
}

TEST_CASE("a write that was made, and then refused for lack of space, is known", "[once]") {
    desk d;
    say_full(d);
    const once_end end = d.write(put());
    CHECK(end.applied);
    CHECK(d.version() == 1);
    CHECK(end.revision == d.w.etcd->keys.at("k").mod_revision);
}

TEST_CASE("a write that was made, and then refused, is in doubt if the lease took what tells",
          "[once]") {
    for (const bool first : {true, false}) {
        CAPTURE(first);
        desk d;
        if (!first) {
            (void)d.write(put());
        }
        const std::int64_t before = d.version();
        say_full(d);
        const auto asks = [](const coetcd::detail::call_request& r) {
            return r.what == coetcd::detail::rpc::txn && !support::is_write(r);
        };
        support::fate_of(d.w, asks, {late(500ms)});
        auto writing = d.start(put());
        d.w.env->pass(100ms);
        auto closing = d.w.start(d.session.close());
        d.w.env->pass(2s);
        CHECK(writing.code() == errc::outcome_unknown);
        CHECK(d.version() == before + 1);
    }
}

TEST_CASE("an answer that is not one to the request is not etcd's", "[once]") {
    const std::vector<std::string> bodies = {
        R"({"header":{"cluster_id":"14841639068965178418","revision":"50"},"succeeded":true})",
        R"({"header":{"cluster_id":"14841639068965178418"},"succeeded":true,"responses":[{"response_put":{}},{"response_put":{}}]})",
        R"({"header":{"cluster_id":"14841639068965178418","revision":"50"},"succeeded":true,"responses":[{"response_range":{}},{"response_put":{}}]})",
        R"({"header":{"cluster_id":"14841639068965178418","revision":"50"}})",
        R"({"header":{"cluster_id":"14841639068965178418","revision":"50"},"responses":[{"response_put":{}}]})",
        "<html>",
        "{}",
    };
    for (const std::string& body : bodies) {
        CAPTURE(body);
        desk d;
        const auto serve = d.w.env->on_call;
        bool strange = true;
        d.w.env->on_call = [&](const auto& request, auto& reply) {
            serve(request, reply);
            if (support::is_write(request) && std::exchange(strange, false)) {
                reply.body = body;
            }
        };
        const once_end end = d.write(put());
        CHECK(end.applied);
        CHECK_FALSE(end.answered);
        CHECK(d.version() == 1);
    }
}

TEST_CASE("writes at the same time have markers of their own, which are used again", "[once]") {
    desk d;
    std::vector<background<once_end>> writing;
    std::vector<std::unique_ptr<once_writer>> writers;
    for (int round = 0; round != 3; ++round) {
        for (int i = 0; i != 5; ++i) {
            writers.push_back(std::make_unique<once_writer>(d.impl, "m", "test"));
            auto what = txn().then(op::put("m" + std::to_string(i), "v"));
            writing.push_back(
                d.w.start(writers.back()->apply(std::move(what), plain, d.in_time())));
        }
        d.w.env->pass(100ms);
        writers.clear();
    }
    for (auto& each : writing) {
        CHECK(each.get().applied);
    }
    CHECK(d.w.etcd->under("m.").size() == 5);
    CHECK(d.w.etcd->keys.at("m0").version == 3);
}

TEST_CASE("a marker that is not used for long is erased, if nothing can need it", "[once]") {
    using table = coetcd::detail::logic::marker_table;
    for (const bool in_doubt : {false, true}) {
        CAPTURE(in_doubt);
        desk d;
        if (in_doubt) {
            fate_of_copies(d.w, {late(30s)});
        }
        CHECK(d.write(put()).applied); // by the second copy, if the first one is late
        d.w.env->decide = nullptr;
        const std::string marker = d.markers().at(0);
        d.writer.reset();
        for (std::size_t i = 0; i != table::most_idle; ++i) {
            once_writer other(d.impl, "o" + std::to_string(i), "test");
            (void)d.w.await(other.apply(txn(), plain, d.in_time()));
        }
        d.w.env->pass(1s);
        CHECK(d.w.etcd->keys.contains(marker) == in_doubt);
        d.w.env->pass(60s);
        CHECK(d.version() == 1);
    }
}
