// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/access.hpp>
#include <coetcd/detail/logic/places.hpp>
#include <coetcd/detail/recipe/vigil.hpp>
#include <coetcd/detail/rpc.hpp>
#include <coetcd/detail/service/lane.hpp>
#include <coetcd/session.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "support/catch.hpp"
#include "support/world.hpp"

using namespace std::chrono_literals;
using coetcd::detail::vigil;

namespace {

struct one_session {
    support::world w;
    coetcd::client client = w.client();
    coetcd::session session = w.await(coetcd::session::open(client));
    const std::shared_ptr<coetcd::detail::session_impl> impl =
        coetcd::detail::access::impl(session);
};

} // namespace

TEST_CASE("a watch of our own key that was kept, and told of its end, ends the wait when it counts",
          "[vigil]") {
    one_session all;
    auto& [w, client, session, impl] = all;
    w.etcd->write("ahead", "");
    w.etcd->write("own", "");
    const std::int64_t life = w.etcd->keys.at("own").create_revision;
    coetcd::detail::notifier wake(impl->world);
    {
        auto earlier = impl->watches.take("own");
        earlier->attach(wake, life, impl->world.now());
        w.env->pass(50ms);
        impl->watches.keep(std::move(earlier));
    }
    vigil waits(impl, wake);
    waits.watch({{"ahead", w.etcd->keys.at("ahead").create_revision}}, impl->world.now());
    waits.watch_later({{"own", life}}, impl->world.now());
    std::function<coetcd::txn()> look = [] {
        return coetcd::txn().then(coetcd::op::range("ahead"));
    };
    std::function<bool(const coetcd::txn_response&)> never = [](const auto&) { return false; };
    auto waiting = w.start(
        waits.until_moved(std::move(look), std::move(never), coetcd::detail::time_point::max()));
    w.env->pass(100ms);
    w.etcd->erase("own");
    w.env->pass(100ms);
    REQUIRE_FALSE(waiting.ended()); // it counts after 250 ms
    w.env->pass(100ms);
    REQUIRE(waiting.get() == vigil::end::moved);
}

TEST_CASE("a watch of our own key that was kept, and may have missed its end, asks for a look",
          "[vigil]") {
    one_session all;
    auto& [w, client, session, impl] = all;
    w.etcd->write("ahead", "");
    w.etcd->write("own", "");
    const std::int64_t life = w.etcd->keys.at("own").create_revision;
    coetcd::detail::notifier wake(impl->world);
    const auto known = impl->world.now();
    {
        auto earlier = impl->watches.take("own");
        earlier->attach(wake, life, impl->world.now());
        w.env->pass(50ms);
        impl->watches.keep(std::move(earlier));
    }
    vigil waits(impl, wake);
    waits.watch({{"ahead", w.etcd->keys.at("ahead").create_revision}}, impl->world.now());
    waits.watch_later({{"own", life}}, known);
    bool counts = false; // the key ahead is looked at, too, after the break
    std::function<coetcd::txn()> look = [] { return coetcd::txn().then(coetcd::op::range("own")); };
    std::function<bool(const coetcd::txn_response&)> moved = [&](const auto& r) {
        return counts && r.responses.front().range().kvs.empty();
    };
    auto waiting = w.start(
        waits.until_moved(std::move(look), std::move(moved), coetcd::detail::time_point::max()));
    w.env->pass(60ms);
    w.env->break_streams();
    w.etcd->erase("own");
    w.env->pass(150ms);
    REQUIRE_FALSE(waiting.ended());
    counts = true;
    w.env->pass(100ms);
    REQUIRE(waiting.get() == vigil::end::moved);
}

TEST_CASE("a look that was not sent when an event tells the end is not sent any more", "[vigil]") {
    one_session all;
    auto& [w, client, session, impl] = all;
    w.etcd->write("ahead", "");
    w.env->round_trip = 1s; // as many requests under way as there may be: no room for another one
    for (int i = 0; i != 32; ++i) {
        impl->owner->transactions->submit(std::make_shared<coetcd::detail::lane_part>(
            coetcd::txn().then(coetcd::op::range("other"))));
        w.env->pass(6ms);
    }
    w.env->round_trip = 2ms;
    coetcd::detail::notifier wake(impl->world);
    vigil waits(impl, wake);
    waits.watch({{"ahead", w.etcd->keys.at("ahead").create_revision}}, impl->world.now());
    bool asked = false;
    std::function<coetcd::txn()> look = [&] {
        asked = true;
        return coetcd::txn().then(coetcd::op::range("ahead"));
    };
    std::function<bool(const coetcd::txn_response&)> never = [](const auto&) { return false; };
    auto waiting = w.start(
        waits.until_moved(std::move(look), std::move(never), coetcd::detail::time_point::max()));
    w.env->pass(50ms);
    REQUIRE(asked); // since the watch has begun
    w.etcd->erase("ahead");
    w.env->pass(50ms);
    REQUIRE(waiting.get() == vigil::end::moved);
    const std::size_t sent = w.env->calls.size();
    w.env->pass(2s);
    CHECK(w.env->calls.size() == sent);
}

TEST_CASE("a vigil over what is held looks only when it may have missed the end, and goes on if a "
          "look fails",
          "[vigil]") {
    one_session all;
    auto& [w, client, session, impl] = all;
    w.etcd->write("held", "");
    bool denies = false;
    w.env->on_call = [&, serve = w.env->on_call](const coetcd::detail::call_request& q,
                                                 coetcd::detail::reply& r) {
        if (denies && q.what == coetcd::detail::rpc::txn) {
            r.status = 403;
            r.body = R"({"code":7,"message":"etcdserver: permission denied"})";
        } else {
            serve(q, r);
        }
    };
    coetcd::detail::notifier wake(impl->world);
    bool held = true;
    vigil watches(impl, wake, [&] { return held; });
    watches.watch({{"held", w.etcd->keys.at("held").create_revision}}, impl->world.now());
    int looks = 0;
    std::function<coetcd::txn()> look = [&] {
        ++looks;
        return coetcd::txn().then(coetcd::op::range("held"));
    };
    std::function<bool(const coetcd::txn_response&)> never = [](const auto&) { return false; };
    auto watching = w.start(
        watches.until_moved(std::move(look), std::move(never), coetcd::detail::time_point::max()));
    w.env->pass(60s);
    CHECK(looks == 1); // when the watch had begun
    denies = true;
    w.env->break_streams();
    w.env->pass(60s);
    CHECK(looks == 2); // after the break
    REQUIRE_FALSE(watching.ended());

    SECTION("its end is the key's") {
        w.etcd->erase("held");
        w.env->pass(10ms);
        CHECK(watching.get() == vigil::end::moved);
    }
    SECTION("its end is the hold's") {
        held = false;
        wake.notify_all();
        w.env->pass(10ms);
        CHECK(watching.get() == vigil::end::late);
    }
}
