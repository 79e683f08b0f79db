// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/service/key_watch.hpp>
#include <coetcd/detail/wire/base64.hpp>

#include <boost/asio/awaitable.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"

using namespace coetcd;
using namespace coetcd::detail;
using namespace std::chrono_literals;
using support::scripted_env;
using support::world;

namespace {

class key_watch_fixture {
public:
    key_watch_fixture()
        : hub(std::make_shared<watch_hub>(
              std::make_shared<router>(
                  w.env, std::vector<logic::endpoint>{logic::parse_endpoint("http://etcd:2379")}),
              100'000))
        , wake(*w.env)
        , listening_(w.start(listen(*this))) {
        hub->hold();
        w.env->on_open = [this, serve = w.env->on_open](const call_request& request, auto opened) {
            stream_ = opened;
            serve(request, opened);
        };
    }
    ~key_watch_fixture() {
        hub->release();
        listening_.cancel();
        w.env->pass(1s);
    }
    key_watch_fixture(const key_watch_fixture&) = delete;
    key_watch_fixture& operator=(const key_watch_fixture&) = delete;

    env& world_env() { return *w.env; }
    time_point now() const { return w.env->now(); }
    void pass(std::chrono::nanoseconds time = 10ms) { w.env->pass(time); }

    std::unique_ptr<key_watch> watch(const std::string& key) {
        return std::make_unique<key_watch>(*w.env, hub, key);
    }
    /// One that is in force, and was looked at.
    std::unique_ptr<key_watch> watch_in_force(const std::string& key) {
        auto made = watch(key);
        pass();
        made->look_taken();
        return made;
    }
    /// Begins a life of a key.
    std::int64_t put(const std::string& key) {
        w.etcd->write(key, "");
        return w.etcd->revision;
    }
    void erase(const std::string& key) {
        w.etcd->erase(key);
        pass();
    }
    /// A member tells of an end that there was not.
    void tell_end(const std::string& key, std::int64_t revision) {
        std::string name;
        wire::append_base64(name, key);
        stream_->push(
            R"({"result":{"header":{"cluster_id":"14841639068965178418"},"watch_id":"1","events":[{"type":"DELETE","kv":{"key":")" +
            name + R"(","mod_revision":")" + std::to_string(revision) + R"("}}]}})");
        pass();
    }
    /// etcd ends a watch by itself.
    void end_watch(int id) {
        stream_->push(R"({"result":{"header":{"cluster_id":"14841639068965178418"},"watch_id":")" +
                      std::to_string(id) +
                      R"(","canceled":true,"cancel_reason":"etcdserver: permission denied"}})");
        pass();
    }

    world w;
    const std::shared_ptr<watch_hub> hub;
    notifier wake;
    int told = 0; ///< How often `wake` was notified.

private:
    static asio::awaitable<void> listen(key_watch_fixture& self) {
        for (;;) {
            (void)co_await self.wake.wait();
            ++self.told;
        }
    }
    support::background<void> listening_;
    std::shared_ptr<scripted_env::server_stream> stream_;
};

} // namespace

TEST_CASE("a watch of a key tells that its life has ended", "[service][key_watch]") {
    key_watch_fixture f;
    const auto life = f.put("k");
    const auto watch = f.watch_in_force("k");
    CHECK(watch->key() == "k");
    watch->attach(f.wake, life, f.now());
    f.put("k");
    f.put("other");
    f.erase("other");
    CHECK_FALSE(watch->erased());
    CHECK(f.told == 0);
    f.erase("k");
    CHECK(watch->erased());
    CHECK(f.told == 1);
    CHECK_FALSE(watch->blind());
}

TEST_CASE("the end of an earlier life says nothing of this one", "[service][key_watch]") {
    key_watch_fixture f;
    const auto first = f.put("k");
    const auto watch = f.watch_in_force("k");
    watch->attach(f.wake, first, f.now());
    f.erase("k");
    REQUIRE(watch->erased());
    const auto second = f.put("k");
    watch->attach(f.wake, second, f.now());
    CHECK_FALSE(watch->erased());
    CHECK(f.told == 1);
    f.erase("k");
    CHECK(watch->erased());
    CHECK(f.told == 2);

    // as told by a member that lags: the waiter knows of a later life already
    const auto third = f.put("k");
    const auto known = f.now();
    watch->attach(f.wake, third + 10, known);
    f.pass();
    f.erase("k");
    CHECK_FALSE(watch->erased());
    CHECK(f.told == 2);
    // It was told before it was waited for.
    CHECK(watch->attach(f.wake, third, known));
    CHECK(watch->erased());
}

TEST_CASE("an event is false if a later answer says that the life goes on",
          "[service][key_watch][security]") {
    key_watch_fixture f;
    const auto life = f.put("k");
    const auto watch = f.watch_in_force("k");
    CHECK(watch->attach(f.wake, life, f.now()));
    f.tell_end("k", std::numeric_limits<std::int64_t>::max() - 1);
    REQUIRE(watch->erased());
    const auto before = f.now() - 10ms;
    CHECK(watch->attach(f.wake, life, before - 1ms)); // that answer may not know of it
    CHECK(watch->erased());
    f.pass();
    CHECK_FALSE(watch->attach(f.wake, life, f.now()));
    CHECK_FALSE(watch->erased());
    CHECK_FALSE(watch->blind());
    f.erase("k");
    CHECK(watch->erased());
}

TEST_CASE("a watch is blind from its creation until a look is taken", "[service][key_watch]") {
    key_watch_fixture f;
    const auto life = f.put("k");
    const auto watch = f.watch("k");
    watch->attach(f.wake, life, f.now());
    CHECK_FALSE(watch->blind()); // not in force: it will tell when it is
    CHECK(f.told == 0);
    f.pass();
    CHECK(watch->blind());
    CHECK(f.told == 1);
    watch->look_taken();
    CHECK_FALSE(watch->blind());
    CHECK(f.w.etcd->watches() == 1); // the same
}

TEST_CASE("an end is certain if nothing was missed since the life was known to be there",
          "[service][key_watch]") {
    // It is in force since before that; it was looked at; the look has had no answer, or shows it.
    enum class how { in_force, not_looked, looked, missed, shown, interrupted };
    for (const how each :
         {how::in_force, how::not_looked, how::looked, how::missed, how::shown, how::interrupted}) {
        CAPTURE(static_cast<int>(each));
        key_watch_fixture f;
        const auto watch = f.watch("k");
        if (each == how::in_force) {
            f.pass();
        }
        const auto life = f.put("k");
        watch->attach(f.wake, life, f.now());
        f.pass();
        CHECK(watch->certain_end() == 0);
        if (each != how::in_force && each != how::not_looked) {
            watch->look_taken();
        }
        if (each == how::missed) {
            watch->look_missed();
            CHECK(watch->blind());
        }
        if (each == how::shown || each == how::interrupted) {
            watch->was_shown();
            watch->look_missed(); // another one
            CHECK_FALSE(watch->blind());
        }
        if (each == how::interrupted) {
            f.w.env->break_streams();
            f.pass(1s);
            CHECK(watch->blind());
        }
        f.erase("k");
        f.pass();
        CHECK(watch->erased());
        const bool certain = each == how::in_force || each == how::shown;
        CHECK((watch->certain_end() == f.w.etcd->revision) == certain);
        CHECK((watch->certain_end() != 0) == certain);
        watch->was_shown(); // by an answer of before
        watch->attach(f.wake, f.put("k"), f.now() - 1h);
        CHECK(watch->certain_end() == 0); // of that life
    }
}

TEST_CASE("a watch that was in force before a life was heard of is not blind",
          "[service][key_watch]") {
    key_watch_fixture f;
    const auto watch = f.watch("k");
    f.pass(f.w.env->round_trip);
    REQUIRE(watch->blind());
    const int told = f.told;
    const time_point created = f.now();
    struct {
        std::chrono::nanoseconds known; // after its creation
        bool blind;
    } const rows[] = {{-1s, true}, {-1ns, true}, {0ns, true}, {1ns, false}, {1s, false}};
    for (const auto& row : rows) {
        watch->attach(f.wake, 5, created + row.known);
        CHECK(watch->blind() == row.blind);
    }
    CHECK(f.told == told);
}

TEST_CASE("after its stream broke a watch is blind", "[service][key_watch]") {
    key_watch_fixture f;
    const auto life = f.put("k");
    const auto watch = f.watch_in_force("k");
    watch->attach(f.wake, life, f.now());
    f.w.env->break_streams();
    f.w.etcd->erase("k"); // it is not told of this
    f.pass(1s);
    CHECK_FALSE(watch->erased());
    CHECK(watch->blind());
    CHECK(f.told == 1);
    watch->look_taken();
    CHECK_FALSE(watch->blind());
    // also for a waiter that knew of the life before the stream was there again
    watch->attach(f.wake, life, f.now() - 1s);
    CHECK(watch->blind());
}

TEST_CASE("what a watch was told before etcd was restored says nothing of later lives",
          "[service][key_watch]") {
    key_watch_fixture f;
    f.put("other");
    f.put("other");
    const auto life = f.put("k");
    const auto watch = f.watch_in_force("k");
    watch->attach(f.wake, life, f.now());
    f.erase("k");
    REQUIRE(watch->erased());
    f.w.etcd->revision = 2;
    f.w.env->break_streams();
    f.pass(1s);
    CHECK(watch->blind()); // a waiter that was told and has not looked yet is not left waiting
    CHECK(f.told == 2);
    watch->look_taken();
    const auto restored = f.put("k");
    REQUIRE(restored < life);
    watch->attach(f.wake, restored, f.now());
    CHECK_FALSE(watch->erased());
    CHECK_FALSE(watch->blind());
    f.erase("k");
    CHECK(watch->erased());
}

TEST_CASE("a watch that etcd has ended begins anew with the next look", "[service][key_watch]") {
    key_watch_fixture f;
    const auto life = f.put("k");
    const auto watch = f.watch_in_force("k");
    watch->attach(f.wake, life, f.now());
    watch->restart_if_ended(); // it has not
    f.pass();
    CHECK_FALSE(watch->blind());
    f.end_watch(1);
    CHECK_FALSE(watch->blind());
    f.pass(1s);
    CHECK_FALSE(watch->blind()); // nothing insists on it
    watch->attach(f.wake, life, f.now() - 1h);
    CHECK_FALSE(watch->blind()); // not in force
    CHECK(f.told == 0);
    watch->look_taken();
    f.pass();
    CHECK(watch->blind());
    CHECK(f.told == 1);
    watch->look_taken();
    f.erase("k");
    CHECK(watch->erased());
}

TEST_CASE("a watch ends in etcd with its object, once", "[service][key_watch]") {
    key_watch_fixture f;
    auto one = f.watch_in_force("a");
    auto two = f.watch_in_force("b");
    CHECK(f.w.etcd->watches() == 2);
    one = nullptr;
    f.pass();
    CHECK(f.w.etcd->watches() == 1);
    f.end_watch(2);
    two = nullptr; // it has ended before
    f.pass();
}

TEST_CASE("a watch that tells no waiter any more goes on", "[service][key_watch]") {
    key_watch_fixture f;
    const auto life = f.put("k");
    const auto watch = f.watch_in_force("k");
    const auto known = f.now();
    watch->attach(f.wake, life, known);
    watch->detach();
    f.pass();
    f.erase("k");
    CHECK(f.told == 0);
    CHECK(watch->attach(f.wake, life, known));
    CHECK(watch->erased());
}

TEST_CASE("a watch that was kept is taken again, in force as it is", "[service][key_watch]") {
    key_watch_fixture f;
    kept_watches kept(f.world_env(), f.hub);
    const auto life = f.put("k");
    auto watch = kept.take("k");
    watch->attach(f.wake, life, f.now());
    f.pass();
    const key_watch* const same = watch.get();
    const int told = f.told;
    kept.keep(std::move(watch));
    CHECK(f.w.etcd->watches() == 1);
    f.erase("k");
    CHECK(f.told == told); // no waiter is told
    const auto next = f.put("k");

    auto other = kept.take("l");
    CHECK(other.get() != same);
    watch = kept.take("k");
    CHECK(watch.get() == same);
    watch->attach(f.wake, next, f.now());
    CHECK_FALSE(watch->blind());
    CHECK_FALSE(watch->erased());
    f.erase("k");
    CHECK(watch->erased());
    CHECK(kept.take("k").get() != same); // it is in use
}

TEST_CASE("a watch that ended while it was kept begins anew when it is taken",
          "[service][key_watch]") {
    key_watch_fixture f;
    kept_watches kept(f.world_env(), f.hub);
    kept.keep(f.watch_in_force("k"));
    f.end_watch(1);
    const auto watch = kept.take("k");
    watch->attach(f.wake, 1, f.now());
    CHECK_FALSE(watch->blind());
    f.pass();
    CHECK(watch->blind());
}

TEST_CASE("watches are kept for ten seconds", "[service][key_watch]") {
    key_watch_fixture f;
    kept_watches kept(f.world_env(), f.hub);
    kept.keep(f.watch_in_force("a"));
    f.pass(5s);
    kept.keep(f.watch_in_force("b"));
    f.pass(5s - 10ms);
    kept.drop_old();
    f.pass();
    CHECK(f.w.etcd->watches() == 2);
    f.pass(1ms);
    std::size_t left = 1;
    SECTION("a call drops the old ones") {
        kept.drop_old();
    }
    SECTION("taking one drops the old ones") {
        kept.keep(kept.take("b"));
    }
    SECTION("keeping one drops the old ones") {
        kept.keep(f.watch("c"));
        left = 2;
    }
    f.pass();
    CHECK(f.w.etcd->watches() == left);
    f.pass(11s);
    kept.drop_old();
    f.pass();
    CHECK(f.w.etcd->watches() == 0);
}

TEST_CASE("a watch that has heard of more than a new one costs is not kept",
          "[service][key_watch]") {
    key_watch_fixture f;
    kept_watches kept(f.world_env(), f.hub);
    const auto hear = [&f](int times) {
        for (int i = 0; i != times; ++i) {
            (void)f.put("k");
            f.erase("k");
        }
    };
    auto watch = f.watch_in_force("k");
    watch->attach(f.wake, 1, f.now());
    hear(20); // it is in use
    for (int i = 0; i != 2; ++i) {
        kept.keep(std::move(watch));
        hear(5);
        kept.drop_old();
        f.pass();
        CHECK(f.w.etcd->watches() == 1);
        watch = kept.take("k"); // counts anew
        watch->attach(f.wake, 1, f.now());
    }
    kept.keep(std::move(watch));
    hear(6);
    kept.drop_old();
    f.pass();
    CHECK(f.w.etcd->watches() == 0);
}

TEST_CASE("a watch that is too old is not taken", "[service][key_watch]") {
    key_watch_fixture f;
    kept_watches kept(f.world_env(), f.hub);
    auto watch = f.watch_in_force("a");
    kept.keep(std::move(watch));
    f.pass(11s);
    watch = kept.take("a");
    watch->attach(f.wake, 1, f.now());
    f.pass();
    CHECK(watch->blind()); // a new one
}

TEST_CASE("of the watches that were used the last 16 are kept", "[service][key_watch]") {
    key_watch_fixture f;
    kept_watches kept(f.world_env(), f.hub);
    std::vector<const key_watch*> all;
    for (int i = 0; i != 17; ++i) {
        auto watch = f.watch("k" + std::to_string(i));
        all.push_back(watch.get());
        kept.keep(std::move(watch));
        f.pass();
        CHECK(f.w.etcd->watches() == std::min<std::size_t>(all.size(), 16));
    }
    const auto last = kept.take("k16");
    const auto second = kept.take("k1");
    CHECK(last.get() == all[16]);
    CHECK(second.get() == all[1]);
    f.pass();
    CHECK(f.w.etcd->watches() == 16);
    const auto first = kept.take("k0"); // the first one had to go
    f.pass();
    CHECK(f.w.etcd->watches() == 17);
}

TEST_CASE("at the end of the session no watch is kept any more", "[service][key_watch]") {
    key_watch_fixture f;
    kept_watches kept(f.world_env(), f.hub);
    auto used = f.watch_in_force("used");
    kept.keep(f.watch_in_force("a"));
    kept.keep(f.watch_in_force("b"));
    CHECK(f.w.etcd->watches() == 3);
    kept.close();
    f.pass();
    CHECK(f.w.etcd->watches() == 1);
    kept.keep(std::move(used));
    f.pass();
    CHECK(f.w.etcd->watches() == 0);
    auto late = kept.take("late"); // a waiter may still take one
    f.pass();
    CHECK(f.w.etcd->watches() == 1);
    late = nullptr;
}

namespace {

/// A waiter that shares a watch, and hears of all that it tells.
class sharer {
public:
    sharer(key_watch_fixture& f, shared_watches& of)
        : watch_(std::make_unique<key_watch>(
              f.world_env(), of, key_range::prefix("s/"), [this](const std::vector<event>& all) {
                  heard += static_cast<int>(all.size());
                  if (on_heard) {
                      on_heard();
                  }
                  return true;
              })) {}
    key_watch& watch() { return *watch_; }
    void leave() { watch_ = nullptr; }

    int heard = 0;
    std::function<void()> on_heard;

private:
    std::unique_ptr<key_watch> watch_;
};

} // namespace

TEST_CASE("waiters that share a watch are told the same, by one watch", "[service][key_watch]") {
    key_watch_fixture f;
    shared_watches all(f.hub);
    sharer first(f, all);
    sharer second(f, all);
    f.pass();
    CHECK(f.w.etcd->watches() == 1);
    CHECK(first.watch().blind());
    CHECK(second.watch().blind());
    f.put("s/1");
    f.pass();
    CHECK(first.heard == 1);
    CHECK(second.heard == 1);
    first.leave();
    f.erase("s/1");
    CHECK(second.heard == 2);
    second.leave();
    f.pass();
    CHECK(f.w.etcd->watches() == 0);
    sharer third(f, all);
    f.pass();
    CHECK(f.w.etcd->watches() == 1);
    CHECK(third.heard == 0);
}

TEST_CASE("a waiter that shares a watch which is in force misses what was told before, and no more",
          "[service][key_watch]") {
    key_watch_fixture f;
    shared_watches all(f.hub);
    sharer first(f, all);
    f.pass();
    const std::int64_t told = f.put("s/1");
    f.pass();
    sharer second(f, all);
    CHECK(second.watch().in_force()); // at once
    CHECK(second.watch().blind());
    second.watch().follow(f.wake, told, f.now()); // asked for before, or at the same time
    CHECK(second.watch().blind());
    second.watch().follow(f.wake, told, f.now() + 1ms);
    CHECK(second.watch().sees());
    second.watch().follow(f.wake, told + 1, f.now());
    CHECK(second.watch().sees());
    CHECK_FALSE(second.watch().erased());
    f.put("s/2");
    f.pass();
    CHECK(second.heard == 1);
    CHECK(second.watch().erased());
    CHECK(first.heard == 2);
}

TEST_CASE("when etcd ends a shared watch, those that share it begin another one",
          "[service][key_watch]") {
    key_watch_fixture f;
    shared_watches all(f.hub);
    sharer first(f, all);
    sharer second(f, all);
    f.pass();
    f.end_watch(1);
    CHECK_FALSE(first.watch().in_force());
    first.watch().restart_if_ended();
    second.watch().restart_if_ended();
    f.pass();
    CHECK(first.watch().in_force());
    CHECK(second.watch().in_force());
    CHECK(f.w.etcd->watches() == 2); // the one that it only said to have ended, and the new one
    f.put("s/1");
    f.pass();
    CHECK(first.heard == 1);
    CHECK(second.heard == 1);
}

TEST_CASE("waiters may let go of a shared watch while they are told, and others join",
          "[service][key_watch]") {
    key_watch_fixture f;
    shared_watches all(f.hub);
    sharer first(f, all);
    sharer second(f, all);
    std::optional<sharer> late;
    f.pass();
    first.on_heard = [&] {
        if (!late) {
            second.leave();
            late.emplace(f, all);
        }
    };
    f.put("s/1");
    f.pass();
    CHECK(first.heard == 1);
    CHECK(second.heard == 0);
    REQUIRE(late);
    CHECK(late->heard == 0);
    CHECK(late->watch().in_force());
    f.put("s/2");
    f.pass();
    CHECK(late->heard == 1);
    first.leave();
    late->leave();
    f.pass();
    CHECK(f.w.etcd->watches() == 0);
}

namespace {

/// Lets go of what it shares as soon as it is told something.
class leaver final : public watch_sink {
public:
    explicit leaver(std::shared_ptr<shared_watch> of)
        : of_(std::move(of)) {
        of_->add(*this);
    }
    int heard = 0;

private:
    void on_created(std::int64_t) override {}
    void on_events(std::vector<event>& events) override {
        heard += static_cast<int>(events.size());
        of_->remove(*this);
        of_ = nullptr;
    }
    void on_ended(error_code, std::string, std::int64_t) override {}

    std::shared_ptr<shared_watch> of_;
};

} // namespace

TEST_CASE("the last one may let go of a shared watch while it is told", "[service][key_watch]") {
    key_watch_fixture f;
    shared_watches all(f.hub);
    leaver last(all.of(key_range::prefix("s/")));
    f.pass();
    f.put("s/1");
    f.pass();
    CHECK(last.heard == 1);
    CHECK(f.w.etcd->watches() == 0);
}
