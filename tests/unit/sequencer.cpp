// SPDX-License-Identifier: BSL-1.0
#include <coetcd/mutex.hpp>
#include <coetcd/verify.hpp>

#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>

#include "support/catch.hpp"
#include "support/locks.hpp"
#include "support/world.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::sequencer;
using coetcd::detail::call_request;
using support::owner;
using support::rivals;
using support::scripted_env;

TEST_CASE("verify() tells whether an ownership lasts, in one round trip", "[sequencer]") {
    rivals all;
    auto& [w, client, one, two, a, b] = all;
    coetcd::held_lock held = w.await(a.scoped_lock());
    const coetcd::sequencer text = held.sequencer();
    CHECK_THAT(text.text(),
               support::contains("coetcd1:exclusive:" + std::to_string(held.fencing_token())));
    const auto before = w.etcd->revision;
    const std::size_t calls = w.env->calls.size();
    CHECK(w.await(coetcd::verify_of_any_lock(client, text)));
    CHECK(w.env->calls.size() == calls + 1);
    CHECK(w.await(coetcd::verify(client, "m", text)));
    CHECK_FALSE(w.await(coetcd::verify(client, "n", text)));
    CHECK(w.env->calls.size() == calls + 2); // of another lock: not asked
    CHECK(w.etcd->revision == before);
    CHECK(w.etcd->keys.contains(held.key()));

    SECTION("not after it was given back") {
        w.await(held.unlock());
        CHECK_FALSE(w.await(coetcd::verify_of_any_lock(client, text)));
        CHECK(held.sequencer() == text);
    }
    SECTION("not by the next ownership of the same key") {
        const std::string key = held.key();
        w.await(held.unlock());
        held = w.await(a.scoped_lock());
        REQUIRE(held.key() == key);
        CHECK_FALSE(w.await(coetcd::verify_of_any_lock(client, text)));
        CHECK(w.await(coetcd::verify_of_any_lock(client, held.sequencer())));
    }
    SECTION("not after its lease has ended, whatever the holder believes") {
        w.etcd->revoke(one.lease());
        CHECK(held.owns_lock());
        CHECK_FALSE(w.await(coetcd::verify_of_any_lock(client, text)));
    }
    SECTION("a member that answers from memory does not count") {
        w.await(held.unlock());
        w.etcd->stale_by = 1;
        CHECK_FALSE(w.await(coetcd::verify_of_any_lock(client, text)));
        w.etcd->stale_by = 0;
    }
    SECTION("without space in etcd, too") {
        w.etcd->no_space = true;
        CHECK(w.await(coetcd::verify_of_any_lock(client, text)));
    }
    SECTION("a lost answer is asked for again") {
        bool first = true;
        w.env->decide = [&](const call_request&) {
            scripted_env::fate f;
            f.breaks = std::exchange(first, false);
            return f;
        };
        CHECK(w.await(coetcd::verify_of_any_lock(client, text)));
    }
    SECTION("etcd that does not answer is an error") {
        w.env->decide = [&](const call_request&) {
            scripted_env::fate f;
            f.arrives = false;
            return f;
        };
        auto asking = w.start(coetcd::verify_of_any_lock(client, text));
        w.env->pass(6s);
        CHECK(asking.code() == errc::timed_out);
    }
    SECTION("cancelled, it ends at once") {
        auto asking = w.start(coetcd::verify_of_any_lock(client, text));
        asking.cancel();
        w.env->pass(0ms);
        CHECK(asking.code() == asio::error::operation_aborted);
    }
}

TEST_CASE("what is no sequencer verifies as false, and is not sent", "[sequencer]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    w.etcd->write("m/x", "somebody's data");
    const std::size_t calls = w.env->calls.size();
    for (const char* bad : {"", "m/x", "coetcd1:exclusive:1:", "coetcd1:exclusive:x:bS94"}) {
        const sequencer text(bad);
        CHECK_FALSE(w.await(coetcd::verify(client, "m", text)));
        CHECK_FALSE(w.await(coetcd::verify_of_any_lock(client, text)));
        CHECK_THROWS_AS(coetcd::guard_of_any_lock(text), std::invalid_argument);
        CHECK_THROWS_AS(coetcd::guard("m", text), std::invalid_argument);
    }
    CHECK(w.env->calls.size() == calls);
    // A sequencer that is made up deletes nothing, whether it is true or not.
    const auto life = std::to_string(w.etcd->keys.at("m/x").create_revision);
    CHECK(w.await(coetcd::verify_of_any_lock(
        client, sequencer("coetcd1:exclusive:" + life + ":bS94")))); // m/x
    CHECK_FALSE(w.await(coetcd::verify_of_any_lock(client, sequencer("coetcd1:exclusive:1:bS94"))));
    CHECK(w.etcd->keys.contains("m/x"));
}

TEST_CASE("guard() refuses what comes after the end of an ownership", "[sequencer]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    coetcd::held_lock held = w.await(mutex.scoped_lock());
    const coetcd::sequencer text = held.sequencer();
    const auto write = [&, c = client](std::string value) {
        return c.txn(coetcd::txn()
                         .when(coetcd::guard("m", text))
                         .then(coetcd::op::put("stock", std::move(value))));
    };
    CHECK_NOTHROW(coetcd::guard_of_any_lock(text));
    CHECK(w.await(write("1")).succeeded);
    w.await(held.unlock());
    CHECK_FALSE(w.await(write("2")).succeeded);
    held = w.await(mutex.scoped_lock());
    CHECK_FALSE(w.await(write("3")).succeeded);
    CHECK(w.etcd->keys.at("stock").value == "1");
    CHECK_THROWS_AS(coetcd::guard("other", text), std::invalid_argument);
    CHECK_THROWS_AS(coetcd::held_lock().sequencer(), std::logic_error);
}
