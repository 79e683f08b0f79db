// SPDX-License-Identifier: BSL-1.0
#include <coetcd/sequence.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
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
using support::background;
using support::broken;
using support::fate_of_copies;
using support::scripted_env;
using support::world;
using fate = scripted_env::fate;

namespace {

struct numbers {
    numbers()
        : client(w.client())
        , session(w.await(coetcd::session::open(client)))
        , sequence(session, "n") {
        w.env->calls.clear();
    }
    /// As one that others have drawn from before.
    void begin() {
        CHECK(w.await(sequence.next()) == 1);
        w.env->calls.clear();
    }
    world w;
    coetcd::client client;
    coetcd::session session;
    coetcd::sequence sequence;
};

} // namespace

TEST_CASE("a sequence gives a number a round trip", "[sequence]") {
    numbers n;
    CHECK(n.w.await(n.sequence.last()) == 0);
    n.w.env->calls.clear();
    CHECK(n.w.await(n.sequence.next()) == 1);
    CHECK(n.w.env->calls.size() == 2); // the first one of all
    for (int i = 2; i <= 5; ++i) {
        CHECK(n.w.await(n.sequence.next()) == i);
    }
    CHECK(n.w.env->calls.size() == 6);
    CHECK(n.w.await(n.sequence.last()) == 5);
    CHECK(n.w.etcd->under("n.").size() == 1);
    CHECK(n.w.etcd->keys.at("n").lease == 0);
}

TEST_CASE("a number whose answer is lost is read from the history", "[sequence]") {
    numbers n;
    n.begin();
    coetcd::sequence other(n.session, "n");
    std::set<std::int64_t> seen{1};
    for (int i = 1; i <= 10; ++i) {
        fate_of_copies(n.w, {broken()});
        auto drawing = n.w.start(n.sequence.next());
        n.w.env->pass(3ms); // it is drawn, and not answered
        CHECK(seen.insert(n.w.await(other.next())).second);
        CHECK(seen.insert(n.w.await(other.next())).second);
        n.w.env->pass(1s);
        const std::int64_t mine = drawing.get();
        CHECK(seen.insert(mine).second);
        CHECK(mine == 3 * i - 1);
    }
    CHECK(seen.size() == 31);
    CHECK(*seen.rbegin() == 31);
}

TEST_CASE("many calls at the same time get each number once", "[sequence]") {
    numbers n;
    const bool is_new = GENERATE(false, true);
    if (!is_new) {
        n.begin();
    }
    const std::int64_t first = is_new ? 1 : 2;
    std::vector<background<std::int64_t>> drawing;
    for (int i = 0; i != 50; ++i) {
        drawing.push_back(n.w.start(n.sequence.next()));
    }
    n.w.env->pass(10ms);
    std::set<std::int64_t> seen;
    for (auto& each : drawing) {
        seen.insert(each.get());
    }
    CHECK(seen.size() == 50);
    CHECK(*seen.begin() == first);
    CHECK(*seen.rbegin() == first + 49);
    CHECK(n.w.env->calls.size() <= (is_new ? 150 : 50));
}

TEST_CASE("a number that nothing tells any more is left out", "[sequence]") {
    numbers n;
    n.begin();
    fate_of_copies(n.w, {broken()});
    auto drawing = n.w.start(n.sequence.next());
    n.w.env->pass(3ms);
    n.w.etcd->write("other", "1");
    n.w.etcd->compact(n.w.etcd->revision);
    n.w.env->pass(1s);
    CHECK(drawing.code() == errc::outcome_unknown);
    CHECK(n.w.await(n.sequence.next()) == 3);
}

TEST_CASE("a sequence that is erased meanwhile begins at 1 again", "[sequence]") {
    numbers n;
    n.begin();
    n.w.etcd->erase("n");
    CHECK(n.w.await(n.sequence.next()) == 1);
    CHECK(n.w.await(n.sequence.next()) == 2);
}

TEST_CASE("a sequence leaves alone what is none", "[sequence]") {
    numbers n;
    n.w.etcd->write("n", "41"); // a counter's
    auto drawing = n.w.start(n.sequence.next());
    auto asking = n.w.start(n.sequence.last());
    n.w.env->pass(10ms);
    CHECK(drawing.code() == errc::wrong_kind);
    CHECK_THROWS_WITH(drawing.get(), support::contains("sequence \"n\": the key holds a value"));
    CHECK(asking.code() == errc::wrong_kind);
    CHECK(n.w.etcd->keys.at("n").value == "41");
    CHECK(n.w.etcd->keys.at("n").version == 1);
}

TEST_CASE("a sequence that is cancelled leaves out one number at the most", "[sequence]") {
    numbers n;
    for (int moment = 0; moment != 6; ++moment) {
        const std::int64_t before = n.w.await(n.sequence.next());
        auto drawing = n.w.start(n.sequence.next());
        n.w.env->pass(moment * 500us);
        const bool over = drawing.ended();
        drawing.cancel();
        n.w.env->pass(100ms);
        CHECK(drawing.code() ==
              (over ? coetcd::error_code() : coetcd::error_code(asio::error::operation_aborted)));
        const std::int64_t after = n.w.await(n.sequence.next());
        CAPTURE(moment, before, after);
        CHECK(after > before);
        CHECK(after <= before + 2);
    }
}

TEST_CASE("an answer without a number does not tell one", "[sequence]") {
    numbers n;
    const auto serve = n.w.env->on_call;
    n.w.env->on_call = [&](const auto& request, auto& reply) {
        serve(request, reply);
        if (support::is_write(request)) {
            reply.body =
                R"({"header":{"cluster_id":"14841639068965178418","revision":"9"},"succeeded":true,"responses":[{"response_put":{}},)"
                R"({"response_range":{}},{"response_put":{}}]})";
        }
    };
    auto drawing = n.w.start(n.sequence.next());
    n.w.env->pass(1s);
    CHECK(drawing.code() == errc::outcome_unknown);
}

TEST_CASE("a sequence has a name, and an end", "[sequence]") {
    numbers n;
    CHECK_THROWS_AS(coetcd::sequence(n.session, ""), std::invalid_argument);
    CHECK_THROWS_AS(coetcd::sequence(n.session, std::string(513, 'x')), std::invalid_argument);
    CHECK(n.sequence.name() == "n");
    CHECK(n.sequence.get_executor() == n.client.get_executor());
    coetcd::sequence& old = n.sequence;
    coetcd::sequence taken = std::move(n.sequence);
    CHECK_THROWS_AS(old.next(), std::logic_error);
    CHECK_THROWS_AS(old.last(), std::logic_error);
    CHECK_THROWS_AS(old.name(), std::logic_error);
    (void)n.session.orphan();
    auto drawing = n.w.start(taken.next());
    n.w.env->pass(1s);
    CHECK(drawing.code() == errc::session_closed);
    CHECK(n.w.await(taken.last()) == 0);
}
