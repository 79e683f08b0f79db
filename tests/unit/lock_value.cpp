// SPDX-License-Identifier: BSL-1.0
#include <coetcd/lock_value.hpp>
#include <coetcd/shared_mutex.hpp>

#include <chrono>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "support/catch.hpp"
#include "support/locks.hpp"
#include "support/world.hpp"
#include "support/writes.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::held_lock;
using coetcd::detail::call_request;
using support::scripted_env;
using support::world;
using value_text = std::optional<std::string>;

namespace {

coetcd::lock_options valued() {
    coetcd::lock_options o;
    o.value = true;
    return o;
}

/// Two sessions, and a lock of each with a value.
struct heirs {
    heirs()
        : client(w.client())
        , one(w.await(coetcd::session::open(client)))
        , two(w.await(coetcd::session::open(client)))
        , a(one, "m", valued())
        , b(two, "m", valued()) {
        w.env->calls.clear();
    }
    /// The requests since the last question.
    std::size_t requests() {
        const std::size_t n = w.env->calls.size();
        w.env->calls.clear();
        return n;
    }
    /// The value in etcd.
    std::string stored() { return w.etcd->keys.at("m.value").value; }
    void pass() { w.env->pass(100ms); }

    world w;
    coetcd::client client;
    coetcd::session one;
    coetcd::session two;
    coetcd::mutex a;
    coetcd::mutex b;
};

bool is_change(const call_request& r) {
    return support::has(r, R"(request_put":{"key":"bS52YWx1ZQ==")"); // "m.value"
}

} // namespace

TEST_CASE("a free lock brings what the last holder has left, with the grant", "[lock_value]") {
    heirs h;
    held_lock first = h.w.await(h.a.scoped_lock());
    CHECK(h.w.await(coetcd::get_value(first)) == value_text());
    CHECK(h.requests() == 1);
    h.w.await(coetcd::set_value(first, "1"));
    CHECK(h.w.await(coetcd::get_value(first)) == value_text("1"));
    h.w.await(coetcd::set_value(first, "2"));
    CHECK(h.requests() == 2);
    CHECK(h.w.await(first.unlock()));
    h.w.await(h.one.close());
    CHECK(h.stored() == "2"); // it outlives its holder, and the session
    CHECK(h.w.etcd->keys.at("m.value").lease == 0);

    (void)h.requests();
    std::optional<held_lock> next = h.w.await(h.b.scoped_try_lock());
    REQUIRE(next);
    CHECK(h.w.await(coetcd::get_value(*next)) == value_text("2"));
    CHECK(h.requests() == 1);
    h.w.await(coetcd::set_value(*next, ""));
    CHECK(h.w.await(coetcd::get_value(*next)) == value_text(""));
    CHECK(h.w.await(next->unlock()));
    h.w.await(h.b.lock());
    held_lock adopted(h.b, std::adopt_lock);
    (void)h.requests();
    CHECK(h.w.await(coetcd::get_value(adopted)) == value_text(""));
    CHECK(h.requests() == 0);
    CHECK(h.w.await(coetcd::get_value(h.client, "m")) == value_text("")); // for anybody
    CHECK(h.w.await(coetcd::get_value(h.client, "other")) == value_text());
}

TEST_CASE("who waits for a lock has what its last holder leaves, not what was there",
          "[lock_value]") {
    heirs h;
    held_lock first = h.w.await(h.a.scoped_lock());
    h.w.await(coetcd::set_value(first, "old"));
    auto waiting = h.w.start(h.b.scoped_lock());
    h.pass();
    h.w.await(coetcd::set_value(first, "new"));
    SECTION("granted by the end of a key") {
        CHECK(h.w.await(first.unlock()));
        h.w.env->pass(3ms);
        held_lock next = waiting.get();
        h.pass();
        (void)h.requests();
        CHECK(h.w.await(coetcd::get_value(next)) == value_text("new"));
        CHECK(h.w.await(coetcd::get_value(next)) == value_text("new"));
        CHECK(h.requests() == 1);
    }
    SECTION("granted by a look") {
        h.w.env->break_streams();
        CHECK(h.w.await(first.unlock()));
        h.w.env->pass(15s);
        held_lock next = waiting.get();
        CHECK(support::count(h.w, support::is_confirm) == 1);
        (void)h.requests();
        CHECK(h.w.await(coetcd::get_value(next)) == value_text("new"));
        CHECK(h.requests() == 0);
    }
}

TEST_CASE("a lock without the option reads its value when asked", "[lock_value]") {
    heirs h;
    coetcd::mutex plain(h.one, "m");
    held_lock held = h.w.await(plain.scoped_lock());
    (void)h.requests();
    CHECK(h.w.await(coetcd::get_value(held)) == value_text());
    CHECK(h.requests() == 1);
    h.w.await(coetcd::set_value(held, "1"));
    CHECK(h.requests() == 2);
    CHECK(h.w.await(coetcd::get_value(held)) == value_text("1"));
    CHECK(h.requests() == 1);
}

TEST_CASE("a retained lock is taken at home, and its value is asked for", "[lock_value][retain]") {
    heirs h;
    coetcd::lock_options o = valued();
    o.retain = 10s;
    coetcd::mutex kept(h.one, "m", o);
    for (const char* next : {"1", "2", "3"}) {
        held_lock held = h.w.await(kept.scoped_lock());
        h.w.await(coetcd::set_value(held, next));
        CHECK(h.w.await(held.unlock()));
        h.pass();
    }
    (void)h.requests();
    held_lock held = h.w.await(kept.scoped_lock());
    CHECK(h.requests() == 0);
    CHECK(h.w.await(coetcd::get_value(held)) == value_text("3"));
    CHECK(h.requests() == 1);
}

TEST_CASE("a member that has stalled brings no value of an earlier hold back",
          "[lock_value][retain]") {
    world w;
    const coetcd::client client = w.client();
    const coetcd::session session = w.await(coetcd::session::open(client));
    coetcd::lock_options o;
    o.retain = 10s;
    coetcd::mutex m(session, "m", o);
    std::string before; // the answer to the read, before the change
    bool stalls = false;
    w.env->on_call = [&, serve = w.env->on_call](const call_request& q, coetcd::detail::reply& r) {
        serve(q, r);
        if (support::has(q, R"("success":[{"request_range":{"key":"bS52YWx1ZQ==")")) {
            if (stalls) {
                r.body = before;
            }
            before = r.body;
        }
    };
    {
        held_lock first = w.await(m.scoped_lock());
        CHECK(w.await(coetcd::get_value(first)) == value_text());
        w.await(coetcd::set_value(first, "1"));
        w.await(first.unlock());
    }
    held_lock second = w.await(m.scoped_lock());
    stalls = true;
    auto reading = w.start(coetcd::get_value(second));
    auto changing = w.start(coetcd::set_value(second, "2"));
    w.env->pass(1s);
    CHECK_FALSE(reading.ended());
    CHECK_FALSE(changing.ended());
    SECTION("if there is another one in time") {
        stalls = false;
        w.env->pass(1s);
        (void)reading.get();
        changing.get();
        CHECK(w.await(coetcd::get_value(second)) == value_text("2"));
    }
    SECTION("or says that there is none") {
        w.env->pass(10s);
        CHECK(reading.code() == errc::timed_out);
        CHECK(changing.code() == errc::timed_out);
        CHECK(w.etcd->keys.at("m.value").value == "1");
    }
}

TEST_CASE("after a delay the value is what the vanished holder has left", "[lock_value][delay]") {
    heirs h;
    coetcd::lock_options o = valued();
    o.delay = 5s;
    coetcd::mutex first(h.one, "m", o);
    coetcd::mutex next(h.two, "m", o);
    held_lock held = h.w.await(first.scoped_lock());
    auto waiting = h.w.start(next.scoped_lock());
    h.pass();
    h.w.await(coetcd::set_value(held, "last words"));
    h.w.etcd->erase(held.key());
    h.w.env->pass(20s);
    held_lock after = waiting.get();
    CHECK(h.w.await(coetcd::get_value(after)) == value_text("last words"));
    auto late = h.w.start(coetcd::set_value(held, "late"));
    h.pass();
    CHECK(late.code() == errc::lock_lost);
    CHECK(h.stored() == "last words");
}

TEST_CASE("a holder that was overtaken neither reads nor changes the value", "[lock_value]") {
    heirs h;
    held_lock held = h.w.await(h.a.scoped_lock());
    h.w.await(coetcd::set_value(held, "1"));
    SECTION("and does not know yet") {
        h.w.etcd->erase(held.key());
        CHECK(held.owns_lock());
        auto changing = h.w.start(coetcd::set_value(held, "2"));
        h.pass();
        CHECK(changing.code() == errc::lock_lost);
        auto reading = h.w.start(coetcd::get_value(held)); // of which nothing is known now
        h.pass();
        CHECK(reading.code() == errc::lock_lost);
    }
    SECTION("and knows") {
        (void)h.one.orphan();
        (void)h.requests();
        auto changing = h.w.start(coetcd::set_value(held, "2"));
        auto reading = h.w.start(coetcd::get_value(held));
        h.pass();
        CHECK(changing.code() == errc::session_closed);
        CHECK(reading.code() == errc::session_closed);
        CHECK(h.requests() == 0);
    }
    SECTION("after it has given the lock back") {
        CHECK(h.w.await(held.unlock()));
        (void)h.requests();
        auto changing = h.w.start(coetcd::set_value(held, "2"));
        auto reading = h.w.start(coetcd::get_value(held));
        h.pass();
        CHECK(changing.code() == errc::not_owner);
        CHECK(reading.code() == errc::not_owner);
        CHECK(h.requests() == 0);
    }
    SECTION("by another holder, while its request is on its way") {
        support::delay_first(h.w, is_change, 1s);
        auto changing = h.w.start(coetcd::set_value(held, "2"));
        h.w.env->pass(10ms);
        h.w.etcd->erase(held.key());
        held_lock next = h.w.await(h.b.scoped_lock());
        CHECK(h.w.await(coetcd::get_value(next)) == value_text("1"));
        h.w.env->pass(10s);
        CHECK(changing.code() == errc::lock_lost);
        CHECK(h.w.await(coetcd::get_value(next)) == value_text("1"));
    }
    CHECK(h.stored() == "1");
}

TEST_CASE("a value whose answer is lost is set once, and undoes nothing later", "[lock_value]") {
    for (const auto& fate :
         {support::broken(), support::lost(), support::unanswered(), support::late(8s)}) {
        heirs h;
        held_lock held = h.w.await(h.a.scoped_lock());
        support::fate_of(h.w, is_change, {fate});
        h.w.await(coetcd::set_value(held, "1"));
        h.w.await(coetcd::set_value(held, "2"));
        h.w.env->pass(10s); // the late one comes
        CHECK(h.stored() == "2");
        CHECK(h.w.etcd->keys.at("m.value").version == 2);
        CHECK(h.w.await(coetcd::get_value(held)) == value_text("2"));
    }
}

TEST_CASE("a change that nobody answers is unknown, and the value is read again", "[lock_value]") {
    heirs h;
    held_lock held = h.w.await(h.a.scoped_lock());
    h.w.await(coetcd::set_value(held, "1"));
    h.w.env->decide = [](const call_request& r) {
        return is_change(r) ? support::unanswered() : scripted_env::fate();
    };
    auto changing = h.w.start(coetcd::set_value(held, "2"));
    h.w.env->pass(8s);
    CHECK(changing.code() == errc::outcome_unknown);
    h.w.env->decide = nullptr;
    (void)h.requests();
    CHECK(h.w.await(coetcd::get_value(held)) == value_text("2"));
    CHECK(h.requests() >= 1);
    h.w.await(coetcd::set_value(held, "3"));
    CHECK(h.stored() == "3");
}

TEST_CASE("a change that comes long after it failed is seen", "[lock_value]") {
    heirs h;
    held_lock held = h.w.await(h.a.scoped_lock());
    h.w.await(coetcd::set_value(held, "1"));
    h.w.env->decide = [](const call_request& r) {
        return is_change(r) ? support::late(10s) : scripted_env::fate();
    };
    auto changing = h.w.start(coetcd::set_value(held, "2"));
    h.w.env->pass(6s);
    CHECK(changing.code() == errc::outcome_unknown);
    h.w.env->decide = nullptr;
    CHECK(h.w.await(coetcd::get_value(held)) == value_text("1"));
    h.w.env->pass(10s);
    CHECK(h.stored() == "2");
    CHECK(h.w.await(coetcd::get_value(held)) == value_text("2"));
}

TEST_CASE("a change that is cancelled may have happened", "[lock_value]") {
    heirs h;
    held_lock held = h.w.await(h.a.scoped_lock());
    h.w.await(coetcd::set_value(held, "1"));
    auto changing = h.w.start(coetcd::set_value(held, "2"));
    changing.cancel();
    h.pass();
    CHECK(changing.code() == asio::error::operation_aborted);
    CHECK(h.w.await(coetcd::get_value(held)) == value_text(h.stored()));
}

TEST_CASE("coroutines that share a lock change its value one after the other", "[lock_value]") {
    heirs h;
    held_lock held = h.w.await(h.a.scoped_lock());
    const held_lock other = held.share();
    h.w.await(coetcd::set_value(held, "0"));
    support::delay_first(h.w, is_change, 1500us); // after the other one has read
    auto one = h.w.start(coetcd::set_value(held, "1"));
    auto two = h.w.start(coetcd::set_value(other, "2"));
    h.pass();
    one.get();
    two.get();
    CHECK(h.w.etcd->keys.at("m.value").version == 3);
    CHECK(h.stored() == "2");
    CHECK(h.w.await(coetcd::get_value(held)) == value_text("2"));
    CHECK(h.w.await(coetcd::get_value(other)) == value_text("2"));
    SECTION("and an older answer does not hide a newer value") {
        h.w.env->decide = [](const call_request& r) {
            return is_change(r) ? support::unanswered() : scripted_env::fate();
        };
        auto lost = h.w.start(coetcd::set_value(held, "3"));
        h.w.env->pass(8s);
        CHECK(lost.code() == errc::outcome_unknown);
        // An answer takes so long that the value changes meanwhile.
        h.w.env->decide = nullptr;
        auto reading = h.w.start(coetcd::get_value(held));
        auto changing = h.w.start(coetcd::set_value(other, "4"));
        h.pass();
        (void)reading.get();
        changing.get();
        CHECK(h.w.await(coetcd::get_value(held)) == value_text("4"));
    }
}

TEST_CASE("a lock that is held to read has a value, too, and cannot change it", "[lock_value]") {
    heirs h;
    coetcd::shared_mutex shared(h.one, "rw");
    held_lock writer = h.w.await(shared.scoped_lock());
    h.w.await(coetcd::set_value(writer, "w"));
    h.w.await(writer.downgrade());
    CHECK(h.w.await(coetcd::get_value(writer)) == value_text("w"));
    CHECK_THROWS_WITH(coetcd::set_value(writer, "r"), "set_value: the lock is only held to read");
    CHECK(h.w.etcd->keys.at("rw.value").value == "w");
}

TEST_CASE("what cannot be a value, a name or a lock is refused at once", "[lock_value]") {
    heirs h;
    held_lock held = h.w.await(h.a.scoped_lock());
    (void)h.requests();
    CHECK_THROWS_WITH(coetcd::set_value(held, std::string(16 * 1024 + 1, 'x')),
                      "value: is longer than 16 KiB");
    CHECK_THROWS_AS(coetcd::get_value(h.client, ""), std::invalid_argument);
    const held_lock none;
    CHECK_THROWS_AS(coetcd::get_value(none), std::logic_error);
    CHECK_THROWS_AS(coetcd::set_value(none, "x"), std::logic_error);
    CHECK(h.requests() == 0);
    h.w.await(coetcd::set_value(held, std::string(16 * 1024, 'x')));
    CHECK(h.stored().size() == 16 * 1024);
}

TEST_CASE("a member that has stalled tells no value from before the lock was ours",
          "[lock_value]") {
    heirs all;
    world& w = all.w;
    std::string before; // the answer to the first owner's read
    bool stalls = false;
    w.env->on_call = [&, serve = w.env->on_call](const call_request& q, coetcd::detail::reply& r) {
        serve(q, r);
        if (support::has(q, R"("success":[{"request_range":{"key":"bS52YWx1ZQ==")")) {
            if (stalls) {
                r.body = before;
            } else {
                before = r.body;
            }
        }
    };
    coetcd::mutex a(all.one, "m"); // without its value
    coetcd::mutex b(all.two, "m");
    held_lock first = w.await(a.scoped_lock());
    w.await(coetcd::set_value(first, "1"));
    auto taking = w.start(b.scoped_lock());
    all.pass();
    {
        held_lock again = std::move(first);
        CHECK(w.await(coetcd::get_value(again)) == value_text("1"));
        w.await(coetcd::set_value(again, "2"));
        w.await(again.unlock());
    }
    all.pass();
    held_lock second = taking.get();
    stalls = true;
    auto reading = w.start(coetcd::get_value(second));
    w.env->pass(1s);
    CHECK_FALSE(reading.ended());
    stalls = false;
    w.env->pass(2s);
    CHECK(reading.get() == value_text("2"));
}
