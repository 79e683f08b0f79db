// SPDX-License-Identifier: BSL-1.0
#include <coetcd/as_result.hpp>
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/session_keeper.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/locks.hpp"
#include "support/race.hpp"
#include "support/world.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::server_errc;
using coetcd::session_end;
using coetcd::session_keeper;
using coetcd::session_keeper_options;
using coetcd::session_state;
using coetcd::detail::call_request;
using coetcd::detail::reply;
using coetcd::detail::rpc;
using support::background;
using support::reach;
using support::scripted_env;
using support::world;
using shared_session = std::shared_ptr<const coetcd::session>;

namespace {

/// A keeper, which has not done anything yet.
struct kept {
    explicit kept(session_keeper_options options = {})
        : client(w.client())
        , keeper(client, std::move(options)) {}
    world w;
    coetcd::client client;
    session_keeper keeper;
};

/// etcd cannot be reached.
void go_away(world& w) {
    w.env->decide = [](const call_request&) {
        scripted_env::fate f;
        f.refused = true;
        return f;
    };
}
void come_back(world& w) {
    w.env->decide = nullptr;
}

/// etcd refuses to grant leases, as long as `refuses`.
void refuse_grants(world& w, const bool& refuses, const char* body, unsigned status) {
    w.env->on_call = [&refuses, body, status, serve = w.env->on_call](const call_request& q,
                                                                      reply& r) {
        if (refuses && q.what == rpc::lease_grant) {
            r.status = status;
            r.body = body;
            return;
        }
        serve(q, r);
    };
}
const char* const denied = R"({"code":7,"message":"etcdserver: permission denied"})";

std::size_t grants(const world& w) {
    return static_cast<std::size_t>(
        std::count_if(w.env->calls.begin(), w.env->calls.end(), [](const call_request& r) {
            return r.what == rpc::lease_grant;
        }));
}

asio::awaitable<void> until_suspect(const session_keeper& keeper) {
    (void)co_await keeper.wait_suspect();
}

/// Something that never ends by itself.
asio::awaitable<void> work(std::shared_ptr<coetcd::detail::env> env) {
    coetcd::detail::notifier never(*env);
    (void)co_await never.wait();
}

} // namespace

TEST_CASE("a keeper opens a session in one round trip", "[session_keeper]") {
    kept all(session_keeper_options(5s, "me"));
    auto& [w, client, keeper] = all;
    REQUIRE_FALSE(keeper.current());
    REQUIRE(keeper.trouble()->code() == errc::timed_out);
    REQUIRE(keeper.get_executor() == client.get_executor());
    w.env->pass(2ms);
    const shared_session now = keeper.current();
    REQUIRE(now);
    REQUIRE(now->state() == session_state::active);
    REQUIRE(now->ttl() == 5s);
    REQUIRE_FALSE(keeper.trouble());
    REQUIRE(w.env->calls.size() == 1);
    w.env->pass(60s);
    REQUIRE(keeper.current() == now); // one is enough
    REQUIRE(w.etcd->leases() == 1);

    coetcd::mutex m(*now, "m");
    w.await(m.lock());
    REQUIRE(w.etcd->keys.begin()->second.value == "me");
}

TEST_CASE("a keeper refuses bad options before it does anything", "[session_keeper]") {
    world w;
    const coetcd::client client = w.client();
    const auto refused = [&](const session_keeper_options& o, const char* why) {
        CHECK_THROWS_WITH(session_keeper(client, o), support::contains(why));
        CHECK_THROWS_AS(session_keeper(client, o), std::invalid_argument);
    };
    refused(session_keeper_options(0s), "ttl");
    session_keeper_options o;
    o.pause = 0ms;
    refused(o, "pause");
    o.pause = -1ms;
    refused(o, "pause");
    o.pause = 2s;
    o.max_pause = 1999ms;
    refused(o, "max_pause");
    w.env->pass(1s);
    REQUIRE(w.env->calls.empty());
}

TEST_CASE("a keeper replaces a session that is lost", "[session_keeper]") {
    kept all(session_keeper_options(6s));
    auto& [w, client, keeper] = all;
    shared_session before = w.await(keeper.wait_live());
    for (int round = 0; round != 5; ++round) {
        auto changed = w.start(keeper.wait_changed(before));
        w.etcd->revoke(before->lease());
        w.env->pass(2500ms); // a renewal, and a pause
        REQUIRE(before->reason() == session_end::expired);
        const shared_session now = keeper.current();
        REQUIRE(now);
        REQUIRE(now != before);
        REQUIRE(now->lease() != before->lease());
        REQUIRE(now->state() == session_state::active);
        REQUIRE(changed.succeeded());
        REQUIRE(w.etcd->leases() == 1);
        before = now;
    }
}

TEST_CASE("a keeper looks at the clock", "[session_keeper]") {
    kept all(session_keeper_options(6s));
    auto& [w, client, keeper] = all;
    const shared_session before = w.await(keeper.wait_live());
    w.env->stall(6s);
    REQUIRE_FALSE(keeper.current()); // in the first instruction
    REQUIRE(keeper.trouble()->code() == errc::timed_out);
    auto waiting = w.start(keeper.wait_live(1s));
    w.env->pass(200ms);
    REQUIRE(waiting.get() == keeper.current());
    REQUIRE(keeper.current() != before);
    REQUIRE(before->reason() == session_end::deadline);
}

TEST_CASE("a keeper goes on while etcd is away, without haste", "[session_keeper]") {
    // It is refused at once, so that only the pauses hold the keeper back.
    bool refuses = true;
    world w;
    refuse_grants(w, refuses, denied, 403);
    const coetcd::client client = w.client();
    std::vector<coetcd::detail::time_point> times;
    w.env->decide = [&](const call_request&) {
        times.push_back(w.env->now());
        return scripted_env::fate();
    };
    session_keeper_options o;
    o.pause = 200ms;
    o.max_pause = 3s;
    session_keeper keeper(client, o);
    w.env->pass(60s);
    REQUIRE(times.size() > 10);
    auto expected = 200ms;
    for (std::size_t i = 1; i != times.size(); ++i) {
        const auto pause = times[i] - times[i - 1] - w.env->round_trip;
        INFO("pause " << i << " was " << pause.count());
        CHECK(pause >= expected / 2);
        CHECK(pause <= expected);
        expected = std::min<std::chrono::milliseconds>(expected * 2, 3s);
    }
    // And it heals.
    refuses = false;
    w.env->pass(3s + 2ms);
    REQUIRE(keeper.current());
}

TEST_CASE("wait_live() waits for a session with patience", "[session_keeper]") {
    kept all(session_keeper_options(5s));
    auto& [w, client, keeper] = all;
    go_away(w);
    SECTION("there is one") {
        come_back(w);
        const shared_session now = w.await(keeper.wait_live());
        const std::size_t calls = w.env->calls.size();
        auto again = w.start(keeper.wait_live(0s));
        w.env->pass(0s);
        REQUIRE(again.get() == now);
        REQUIRE(w.env->calls.size() == calls);
    }
    SECTION("there is one in time") {
        auto one = w.start(keeper.wait_live(60s));
        auto other = w.start(keeper.wait_live());
        w.env->pass(15s);
        REQUIRE_FALSE(one.ended());
        come_back(w);
        w.env->pass(6s); // one pause, and what the client itself makes of etcd's absence
        REQUIRE(one.get() == keeper.current());
        REQUIRE(other.get() == keeper.current());
        REQUIRE(w.etcd->leases() == 1);
    }
    SECTION("there is none in time") {
        const auto began = w.env->now();
        auto waiting = w.start(keeper.wait_live(7s));
        auto at_once = w.start(keeper.wait_live(0s));
        auto negative = w.start(keeper.wait_live(-1s));
        w.env->pass(0s);
        REQUIRE(at_once.code() == errc::timed_out);
        REQUIRE(negative.code() == errc::timed_out);
        while (!waiting.ended()) {
            w.env->pass(1ms);
        }
        REQUIRE(w.env->now() - began >= 7s);
        REQUIRE(w.env->now() - began <= 7s + 1ms);
        REQUIRE(waiting.code() == errc::timed_out);
        REQUIRE(waiting.code() == coetcd::condition::retryable);
        // It says why, although that is not its own failure.
        REQUIRE_THROWS_WITH(waiting.get(), support::contains("the last attempt to open one"));
        REQUIRE_THROWS_WITH(waiting.get(), support::contains("http://etcd:2379"));
        REQUIRE_THAT(keeper.trouble()->what(), support::contains("http://etcd:2379"));
    }
    SECTION("it is cancelled") {
        auto waiting = w.start(keeper.wait_live());
        w.env->pass(1s);
        waiting.cancel();
        w.env->pass(0s);
        REQUIRE(waiting.code() == asio::error::operation_aborted);
        come_back(w);
        w.env->pass(10s);
        REQUIRE(keeper.current()); // the keeper has not noticed
    }
    SECTION("it was lost meanwhile, and nothing has failed yet") {
        come_back(w);
        const shared_session now = w.await(keeper.wait_live());
        w.etcd->revoke(now->lease());
        while (now->state() != session_state::lost) {
            w.env->pass(1ms);
        }
        auto waiting = w.start(keeper.wait_live(10ms));
        w.env->pass(10ms);
        REQUIRE(waiting.code() == errc::timed_out);
        REQUIRE_THROWS_WITH(waiting.get(),
                            support::contains(coetcd::describe(session_end::expired)));
    }
}

TEST_CASE("a keeper knows why there is no session from the first moment", "[session_keeper]") {
    for (const bool logs_in : {false, true}) {
        for (const bool silent : {false, true}) {
            INFO("logs in " << logs_in << " silent " << silent);
            world w;
            coetcd::client_options options;
            if (logs_in) {
                options.credentials.emplace("root", std::string("secret"));
                options.insecure_plain_text_credentials = true;
            }
            w.env->decide = [silent](const call_request&) {
                scripted_env::fate f;
                f.refused = !silent;
                f.arrives = !silent;
                return f;
            };
            const coetcd::client client = w.client(options);
            const session_keeper keeper(client);
            const std::string cause = silent ? "no answer" : "Connection refused";
            const std::string asked = logs_in ? "authenticate: " : "lease_grant: ";
            auto waiting = w.start(keeper.wait_live(200ms));
            for (const auto later : {1ms, 999ms, 3000ms, 4000ms, 10000ms}) {
                w.env->pass(later);
                const std::string text = keeper.trouble().value().what();
                REQUIRE_THAT(text, support::contains("no session: "));
                REQUIRE_THAT(text, support::contains(asked));
                REQUIRE_THAT(text, support::contains(cause));
                REQUIRE_THAT(text, support::contains("http://etcd:2379"));
                // What is to be done is said once.
                const std::size_t advice = text.find("check ");
                REQUIRE(advice != text.npos);
                REQUIRE(text.find("check ", advice + 1) == text.npos);
                REQUIRE(text.find("secret") == text.npos);
            }
            REQUIRE_THROWS_WITH(waiting.get(), support::contains(cause));
        }
    }
}

TEST_CASE("a waiter is told at once what will hardly pass by itself", "[session_keeper]") {
    bool refuses = true;
    world w;
    refuse_grants(w, refuses, denied, 403);
    const coetcd::client client = w.client();
    session_keeper keeper(client);
    auto early = w.start(keeper.wait_live()); // before anything is known
    w.env->pass(2ms);
    REQUIRE(early.code() == server_errc::permission_denied);
    auto later = w.start(keeper.wait_live(60s));
    auto locking = w.start(coetcd::with_lock(keeper, "m", [&] { return work(w.env); }));
    auto trying = w.start(coetcd::with_lock_for(keeper, "m", 60s, [&] { return work(w.env); }));
    w.env->pass(0s);
    REQUIRE(later.code() == server_errc::permission_denied);
    REQUIRE(locking.code() == server_errc::permission_denied);
    REQUIRE(trying.code() == server_errc::permission_denied);
    REQUIRE(keeper.trouble()->code() == server_errc::permission_denied);
    REQUIRE_THAT(keeper.trouble()->what(), support::contains("etcdserver: permission denied"));

    // What is worse but passes is waited for.
    go_away(w);
    w.env->pass(20s);
    auto patient = w.start(keeper.wait_live(60s));
    w.env->pass(20s);
    REQUIRE_FALSE(patient.ended());
    refuses = false;
    come_back(w);
    w.env->pass(12s);
    REQUIRE(patient.get());
    REQUIRE_FALSE(keeper.trouble());
}

TEST_CASE("wait_changed() tells of each change that lasts", "[session_keeper]") {
    kept all(session_keeper_options(6s));
    auto& [w, client, keeper] = all;
    auto first = w.start(keeper.wait_changed());
    w.env->pass(2ms);
    const shared_session now = first.get();
    REQUIRE(now);
    REQUIRE(now == keeper.current());

    auto quiet = w.start(keeper.wait_changed(now));
    auto cancelled = w.start(keeper.wait_changed(now));
    w.env->pass(30s);
    REQUIRE_FALSE(quiet.ended());
    cancelled.cancel();
    w.env->pass(0s);
    REQUIRE(cancelled.code() == asio::error::operation_aborted);

    go_away(w);
    w.env->pass(6s);
    REQUIRE(quiet.get() == nullptr);
    auto back = w.start(keeper.wait_changed(nullptr));
    w.env->pass(6s);
    REQUIRE_FALSE(back.ended());
    come_back(w);
    w.env->pass(12s);
    const shared_session then = back.get();
    REQUIRE(then);
    REQUIRE(then == keeper.current());

    // A waiter that has slept is told at once, and once.
    REQUIRE(w.await(keeper.wait_changed(now)) == keeper.current());
    REQUIRE(w.await(keeper.wait_changed(nullptr)) == keeper.current());
}

TEST_CASE("a keeper says when its session is in danger, and when no longer",
          "[session_keeper][suspect]") {
    kept all(session_keeper_options(9s));
    auto& [w, client, keeper] = all;
    auto early = w.start(keeper.wait_active()); // there is none yet
    auto one = w.start(keeper.wait_suspect());
    auto other = w.start(keeper.wait_suspect());
    w.env->pass(0s);
    REQUIRE_FALSE(early.ended());
    w.env->pass(2ms);
    const shared_session now = keeper.current();
    REQUIRE(now);
    REQUIRE(early.succeeded());
    w.env->pass(60s);
    REQUIRE_FALSE(one.ended());
    for (int round = 0; round != 3; ++round) {
        w.env->renews = false;
        reach(w, *now, session_state::suspect);
        REQUIRE(one.get() >= now->remaining());
        REQUIRE(one.get() <= now->remaining() + 1ms);
        REQUIRE(other.get() == one.get());

        const std::size_t calls = w.env->calls.size();
        auto again = w.start(keeper.wait_suspect());
        auto active = w.start(keeper.wait_active());
        auto active_too = w.start(keeper.wait_active());
        w.env->pass(0s);
        REQUIRE(again.get() == now->remaining());
        REQUIRE(w.env->calls.size() == calls);
        w.env->pass(1s);
        REQUIRE_FALSE(active.ended());

        w.env->renews = true;
        reach(w, *now, session_state::active);
        REQUIRE(active.succeeded());
        REQUIRE(active_too.succeeded());
        auto at_once = w.start(keeper.wait_active());
        one = w.start(keeper.wait_suspect()); // for the next time
        other = w.start(keeper.wait_suspect());
        w.env->pass(0s);
        REQUIRE(at_once.succeeded());
        w.env->pass(20s);
        REQUIRE_FALSE(one.ended());
    }
    REQUIRE(keeper.current() == now);
}

TEST_CASE("a keeper's wait for danger goes on in the next session", "[session_keeper][suspect]") {
    kept all(session_keeper_options(6s));
    auto& [w, client, keeper] = all;
    SECTION("there was none at first") {
        go_away(w);
        auto suspect = w.start(keeper.wait_suspect());
        auto active = w.start(keeper.wait_active());
        w.env->pass(30s);
        REQUIRE_FALSE(suspect.ended());
        REQUIRE_FALSE(active.ended());
        come_back(w);
        while (!keeper.current()) {
            w.env->pass(1ms);
        }
        REQUIRE(active.succeeded());
        w.env->pass(10s);
        REQUIRE_FALSE(suspect.ended());
        w.env->renews = false;
        reach(w, *keeper.current(), session_state::suspect);
        REQUIRE(suspect.get() <= keeper.current()->remaining() + 1ms);
    }
    SECTION("none can be opened, for a reason that will hardly pass") {
        bool refuses = true;
        refuse_grants(w, refuses, denied, 403);
        w.env->pass(1s);
        REQUIRE(keeper.trouble()->code() == server_errc::permission_denied);
        auto suspect = w.start(keeper.wait_suspect());
        auto active = w.start(keeper.wait_active());
        w.env->pass(20s);
        REQUIRE_FALSE(suspect.ended());
        REQUIRE_FALSE(active.ended());
        refuses = false;
        w.env->pass(6s);
        REQUIRE(active.succeeded());
        REQUIRE_FALSE(suspect.ended());
    }
    SECTION("one is lost that was never suspect") {
        bool stalls = false;
        SECTION("its lease is revoked") {}
        SECTION("the process stands still") {
            stalls = true;
        }
        shared_session now = w.await(keeper.wait_live());
        auto suspect = w.start(keeper.wait_suspect());
        w.env->pass(1s);
        for (int round = 0; round != 3; ++round) {
            const shared_session before = now;
            if (stalls) {
                w.env->stall(6s);
            } else {
                w.etcd->revoke(before->lease());
            }
            w.env->pass(2500ms);
            REQUIRE(before->state() == session_state::lost);
            now = keeper.current();
            REQUIRE(now);
            REQUIRE(now != before);
            REQUIRE_FALSE(suspect.ended());
        }
        w.env->renews = false;
        reach(w, *now, session_state::suspect);
        REQUIRE(suspect.get() > now->remaining() - 1ms);
    }
    SECTION("one is lost while it is suspect") {
        const shared_session before = w.await(keeper.wait_live());
        go_away(w);
        reach(w, *before, session_state::suspect);
        auto suspect = w.start(keeper.wait_suspect()); // at once
        auto active = w.start(keeper.wait_active());
        w.env->pass(0s);
        REQUIRE(suspect.get() == before->remaining());
        reach(w, *before, session_state::lost);
        auto later = w.start(keeper.wait_suspect()); // none is suspect now
        w.env->pass(20s);
        REQUIRE_FALSE(active.ended());
        REQUIRE_FALSE(later.ended());
        come_back(w);
        while (!keeper.current()) {
            w.env->pass(1ms);
        }
        REQUIRE(active.succeeded());
        REQUIRE(keeper.current() != before);
        w.env->pass(10s);
        REQUIRE_FALSE(later.ended());
    }
}

TEST_CASE("a keeper's waits for a state end when it does", "[session_keeper][suspect]") {
    enum class phase { none, active, suspect };
    for (const phase when : {phase::none, phase::active, phase::suspect}) {
        for (const bool is_destroyed : {false, true}) {
            CAPTURE(static_cast<int>(when), is_destroyed);
            world w;
            const coetcd::client client = w.client();
            std::optional<session_keeper> keeper;
            keeper.emplace(client, session_keeper_options(9s));
            if (when == phase::none) {
                go_away(w);
            } else {
                const shared_session now = w.await(keeper->wait_live());
                if (when == phase::suspect) {
                    w.env->renews = false;
                    reach(w, *now, session_state::suspect);
                }
            }
            std::vector<background<void>> waiting;
            const auto wait = [&] {
                if (when != phase::suspect) {
                    waiting.push_back(w.start(until_suspect(*keeper)));
                }
                if (when != phase::active) {
                    waiting.push_back(w.start(keeper->wait_active()));
                }
            };
            wait();
            wait();
            w.env->pass(10ms);
            for (auto& each : waiting) {
                REQUIRE_FALSE(each.ended());
            }
            if (is_destroyed) {
                keeper.reset();
            } else {
                (void)keeper->close();
            }
            w.env->pass(0s);
            if (keeper) {
                waiting.push_back(w.start(until_suspect(*keeper))); // in vain from the beginning
                waiting.push_back(w.start(keeper->wait_active()));
                w.env->pass(0s);
            }
            for (auto& each : waiting) {
                REQUIRE(each.code() == errc::session_closed);
                REQUIRE(each.completions() == 1);
                REQUIRE_THROWS_WITH(each.get(), support::contains("session_keeper was closed"));
            }
        }
    }
}

TEST_CASE("a keeper's wait for a state that is cancelled leaves the keeper as it is",
          "[session_keeper][suspect][cancellation]") {
    kept all(session_keeper_options(9s));
    auto& [w, client, keeper] = all;
    go_away(w);
    auto none_suspect = w.start(keeper.wait_suspect());
    auto none_active = w.start(keeper.wait_active());
    w.env->pass(1s);
    none_suspect.cancel();
    none_active.cancel();
    w.env->pass(0s);
    REQUIRE(none_suspect.code() == asio::error::operation_aborted);
    REQUIRE(none_active.code() == asio::error::operation_aborted);
    come_back(w);
    const shared_session now = w.await(keeper.wait_live());
    auto suspect = w.start(keeper.wait_suspect());
    auto other = w.start(keeper.wait_suspect());
    w.env->pass(1s);
    suspect.cancel();
    w.env->pass(0s);
    REQUIRE(suspect.code() == asio::error::operation_aborted);
    w.env->renews = false;
    reach(w, *now, session_state::suspect);
    REQUIRE(other.succeeded()); // it has not noticed
    auto active = w.start(keeper.wait_active());
    w.env->pass(1s);
    active.cancel();
    w.env->pass(0s);
    REQUIRE(active.code() == asio::error::operation_aborted);
    w.env->renews = true;
    w.env->pass(20s);
    REQUIRE(keeper.current() == now);
}

TEST_CASE("a keeper's waits for a state can be awaited from any executor",
          "[session_keeper][suspect]") {
    kept all(session_keeper_options(9s));
    auto& [w, client, keeper] = all;
    support::race<void> active(w, keeper.wait_active(), true);
    support::race<std::chrono::nanoseconds> suspect(w, keeper.wait_suspect(), true);
    support::race<std::chrono::nanoseconds> cancelled(w, keeper.wait_suspect(), true);
    const shared_session now = w.await(keeper.wait_live());
    w.env->pass(1s);
    CHECK(active.result());
    cancelled.ring_after(0);
    w.env->pass(0s);
    CHECK_FALSE(cancelled.result());
    w.env->renews = false;
    reach(w, *now, session_state::suspect);
    w.env->pass(0s);
    CHECK(suspect.result().value() <= now->remaining() + 1ms);
}

TEST_CASE("close() ends a keeper in every phase", "[session_keeper]") {
    const auto check = [](world& w, session_keeper& keeper, const shared_session& last) {
        auto live = w.start(keeper.wait_live());
        auto changed = w.start(keeper.wait_changed(last));
        auto none = w.start(keeper.wait_changed(nullptr));
        auto locking = w.start(coetcd::with_lock(keeper, "m", [&] { return work(w.env); }));
        auto closing = w.start(keeper.close());
        REQUIRE_FALSE(keeper.current()); // at the call
        REQUIRE(keeper.trouble()->code() == errc::session_closed);
        auto again = w.start(keeper.close());
        w.env->pass(20ms);
        closing.get();
        again.get();
        REQUIRE(live.code() == errc::session_closed);
        REQUIRE(changed.ended());
        REQUIRE((last ? changed.get() == nullptr : changed.code() == errc::session_closed));
        REQUIRE(none.code() == errc::session_closed);
        REQUIRE(locking.code() == errc::session_closed);
        REQUIRE(w.await(coetcd::as_result(keeper.wait_live())).error().code() ==
                errc::session_closed);
        REQUIRE(w.etcd->leases() == 0);
        const std::size_t calls = w.env->calls.size();
        w.env->pass(60s);
        REQUIRE(w.env->calls.size() == calls);
        w.await(keeper.close()); // nothing is left to do
        REQUIRE(w.env->calls.size() == calls);
    };
    SECTION("opening") {
        for (auto when = 0ms; when != 3ms; ++when) {
            kept all;
            all.w.env->pass(when);
            INFO("after " << when.count() << " ms");
            check(all.w, all.keeper, all.keeper.current());
        }
    }
    SECTION("open") {
        kept all;
        all.w.env->pass(5s);
        REQUIRE(all.keeper.current());
        check(all.w, all.keeper, all.keeper.current());
    }
    SECTION("pausing") {
        const bool refuses = true;
        kept all;
        refuse_grants(all.w, refuses, denied, 403);
        all.w.env->pass(5s);
        REQUIRE(grants(all.w) > 2);
        check(all.w, all.keeper, nullptr); // not what was told before
    }
    SECTION("pausing after a loss") {
        kept all(session_keeper_options(6s));
        const shared_session last = all.w.await(all.keeper.wait_live());
        all.w.etcd->revoke(last->lease());
        while (last->state() != session_state::lost) {
            all.w.env->pass(1ms);
        }
        check(all.w, all.keeper, nullptr);
    }
    SECTION("lost in this very moment") {
        kept all(session_keeper_options(6s));
        (void)all.w.await(all.keeper.wait_live());
        all.w.env->stall(6s);
        check(all.w, all.keeper, nullptr);
    }
    SECTION("by itself, the call is enough") {
        kept all;
        all.w.env->pass(5s);
        (void)all.keeper.close(); // it is not awaited
        REQUIRE_FALSE(all.keeper.current());
        all.w.env->pass(10ms);
        REQUIRE(all.w.etcd->leases() == 0);
    }
}

TEST_CASE("close() that fails or is cancelled leaves the lease to its end", "[session_keeper]") {
    kept all(session_keeper_options(6s));
    auto& [w, client, keeper] = all;
    const shared_session last = w.await(keeper.wait_live());
    SECTION("etcd is away") {
        go_away(w);
        auto closing = w.start(keeper.close());
        w.env->pass(5100ms);
        REQUIRE(closing.code() == errc::unavailable);
        REQUIRE(last->reason() == session_end::closed);
    }
    SECTION("it is cancelled") {
        auto closing = w.start(keeper.close());
        closing.cancel();
        w.env->pass(10ms);
        REQUIRE(closing.code() == asio::error::operation_aborted);
        REQUIRE(w.etcd->leases() == 0);
    }
}

TEST_CASE("a keeper may be destroyed in every phase", "[session_keeper]") {
    for (const bool away : {false, true}) {
        for (auto when = 0ms; when < 9s; when += when < 4ms ? 1ms : 333ms) {
            INFO((away ? "away, " : "") << when.count() << " ms");
            world w;
            const coetcd::client client = w.client();
            std::optional<session_keeper> keeper;
            keeper.emplace(client, session_keeper_options(4s));
            if (away) {
                go_away(w);
            }
            w.env->pass(when);
            const shared_session last = keeper->current();
            auto live = w.start(keeper->wait_live());
            auto changed = w.start(keeper->wait_changed(last));
            auto locking = w.start(coetcd::with_lock(*keeper, "m", [&] { return work(w.env); }));
            w.env->pass(when % 5ms);
            keeper.reset();
            w.env->pass(0s);
            REQUIRE(live.ended());
            REQUIRE(changed.ended());
            REQUIRE(live.completions() == 1);
            come_back(w);
            w.env->pass(20ms);
            REQUIRE(locking.ended());
            REQUIRE(locking.code() == errc::session_closed);
            REQUIRE((!last || last->state() == session_state::lost));
            w.env->pass(10s);
            REQUIRE(w.etcd->leases() == 0);
            REQUIRE(w.etcd->keys.empty());
            const std::size_t calls = w.env->calls.size();
            w.env->pass(60s);
            REQUIRE(w.env->calls.size() == calls);
        }
    }
}

TEST_CASE("a keeper can be moved, and closes what it had", "[session_keeper]") {
    kept all;
    auto& [w, client, keeper] = all;
    const shared_session first = w.await(keeper.wait_live());
    session_keeper other = std::move(keeper);
    REQUIRE(other.current() == first);
    session_keeper third(client);
    const shared_session second = w.await(third.wait_live());
    third = std::move(other);
    REQUIRE(third.current() == first);
    REQUIRE(second->reason() == session_end::closed);
    w.env->pass(10ms);
    REQUIRE(w.etcd->leases() == 1);

    const auto body = [&] { return work(w.env); };
    const std::vector<std::pair<const char*, std::function<void()>>> uses = {
        {"get_executor", [&] { (void)keeper.get_executor(); }},
        {"current", [&] { (void)keeper.current(); }},
        {"wait_live", [&] { (void)keeper.wait_live(); }},
        {"wait_changed", [&] { (void)keeper.wait_changed(); }},
        {"wait_suspect", [&] { (void)keeper.wait_suspect(); }},
        {"wait_active", [&] { (void)keeper.wait_active(); }},
        {"trouble", [&] { (void)keeper.trouble(); }},
        {"close", [&] { (void)keeper.close(); }},
        {"with_lock", [&] { (void)coetcd::with_lock(keeper, "m", body); }},
        {"with_lock_for", [&] { (void)coetcd::with_lock_for(keeper, "m", 1s, body); }},
    };
    for (const auto& [name, use] : uses) {
        INFO(name);
        CHECK_THROWS_AS(use(), std::logic_error);
    }
}

TEST_CASE("a session outlives its keeper only as one that is lost", "[session_keeper]") {
    world w;
    shared_session left;
    {
        const coetcd::client client = w.client();
        session_keeper keeper(client);
        left = w.await(keeper.wait_live());
    }
    REQUIRE(left->state() == session_state::lost);
    REQUIRE(left->reason() == session_end::closed);
    coetcd::mutex m(*left, "m");
    auto locking = w.start(m.lock());
    w.env->pass(10ms);
    REQUIRE(locking.code() == errc::session_closed);
    REQUIRE(w.etcd->leases() == 0);
}

TEST_CASE("with_lock() of a keeper runs its body in the session that there is",
          "[session_keeper][with_lock]") {
    kept all;
    auto& [w, client, keeper] = all;
    auto token = [&](const coetcd::held_lock& held) -> asio::awaitable<std::int64_t> {
        REQUIRE(held.owns_lock());
        REQUIRE(w.etcd->under("m/").size() == 1);
        co_return held.fencing_token();
    };
    REQUIRE(w.await(coetcd::with_lock(keeper, "m", token)) > 0); // it has opened one for that
    w.env->pass(10ms);
    REQUIRE(w.etcd->keys.empty());
    int ran = 0;
    auto nothing = [&]() -> asio::awaitable<void> {
        ++ran;
        co_return;
    };
    w.await(coetcd::with_lock(keeper, "m", nothing));
    REQUIRE(w.await(coetcd::with_lock_for(keeper, "m", 1s, nothing)));
    REQUIRE(w.await(coetcd::with_lock_for(keeper, "m", 0s, nothing))); // as try_lock()
    auto never = coetcd::with_lock_for(keeper, "m", std::chrono::nanoseconds::min(), nothing);
    w.env->pass(1s);
    const coetcd::session other = w.await(coetcd::session::open(client));
    coetcd::mutex theirs(other, "m");
    w.await(theirs.lock());
    REQUIRE_FALSE(w.await(std::move(never)));
    REQUIRE(w.await(theirs.unlock()));
    REQUIRE(w.await(coetcd::with_lock_for(keeper, "m", 1s, token)).value() > 0);
    REQUIRE(ran == 3);
    auto failing = []() -> asio::awaitable<int> {
        throw std::runtime_error("out of stock");
        co_return 0;
    };
    auto failed = w.start(coetcd::with_lock(keeper, "m", failing));
    w.env->pass(20ms);
    REQUIRE_THROWS_WITH(failed.get(), "out of stock");
    REQUIRE(w.etcd->keys.empty());

    // Names are looked at before anything is sent.
    const std::size_t calls = w.env->calls.size();
    const std::string longer(513, 'x');
    REQUIRE_THROWS_AS(coetcd::with_lock(keeper, "", nothing), std::invalid_argument);
    REQUIRE_THROWS_AS(coetcd::with_lock(keeper, longer, nothing), std::invalid_argument);
    REQUIRE_THROWS_AS(coetcd::with_lock_for(keeper, "", 1s, nothing), std::invalid_argument);
    REQUIRE(w.env->calls.size() == calls);
}

TEST_CASE("a wait for a lock goes on in the next session", "[session_keeper][with_lock]") {
    kept all(session_keeper_options(6s));
    auto& [w, client, keeper] = all;
    const coetcd::session rival = w.await(coetcd::session::open(client, {60s}));
    coetcd::mutex held(rival, "m");
    w.await(held.lock());
    int ran = 0;
    auto body = [&]() -> asio::awaitable<int> { co_return ++ran; };
    const shared_session before = w.await(keeper.wait_live());
    auto patient = w.start(coetcd::with_lock(keeper, "m", body));
    auto hurried = w.start(coetcd::with_lock_for(keeper, "m", 30s, body));
    w.env->pass(1s);
    REQUIRE(w.etcd->under("m/").size() == 2); // ours, of one session, and the rival's

    SECTION("the lease is revoked") {
        w.etcd->revoke(before->lease());
    }
    SECTION("etcd is away for a while") {
        go_away(w);
        w.env->break_streams();
        w.env->pass(8s);
        REQUIRE(before->reason() == session_end::deadline);
        come_back(w);
    }
    w.env->pass(12s);
    REQUIRE(keeper.current());
    REQUIRE(keeper.current() != before);
    REQUIRE_FALSE(patient.ended());
    REQUIRE_FALSE(hurried.ended());
    w.env->pass(1s);
    REQUIRE(w.etcd->under("m/").size() == 2);
    REQUIRE(w.await(held.unlock()));
    w.env->pass(1s);
    REQUIRE(patient.get() + *hurried.get() == 3); // each once
    REQUIRE(ran == 2);
}

TEST_CASE("with_lock_for() of a keeper ends with its patience, session or not",
          "[session_keeper][with_lock]") {
    kept all(session_keeper_options(6s));
    auto& [w, client, keeper] = all;
    const coetcd::session rival = w.await(coetcd::session::open(client, {600s}));
    coetcd::mutex held(rival, "m");
    w.await(held.lock());
    bool ran = false;
    auto body = [&]() -> asio::awaitable<void> {
        ran = true;
        co_return;
    };
    const auto lasts = [&](auto operation) {
        const auto began = w.env->now();
        auto waiting = w.start(std::move(operation));
        while (!waiting.ended()) {
            w.env->pass(1ms);
        }
        return std::pair(w.env->now() - began, std::move(waiting));
    };
    SECTION("others have it") {
        auto [time, waiting] = lasts(coetcd::with_lock_for(keeper, "m", 20s, body));
        REQUIRE_FALSE(waiting.get());
        REQUIRE(time >= 20s);
        REQUIRE(time <= 20s + 5ms);
        auto [none, trying] = lasts(coetcd::with_lock_for(keeper, "m", 0s, body));
        REQUIRE_FALSE(trying.get());
        REQUIRE(none <= 5ms);
    }
    SECTION("others have it, in all of several sessions") {
        const auto end = w.env->now() + 20s;
        auto waiting = w.start(coetcd::with_lock_for(keeper, "m", 20s, body));
        while (w.env->now() < end - 3s) {
            w.etcd->revoke(w.await(keeper.wait_live())->lease());
            w.env->pass(2500ms);
        }
        while (!waiting.ended()) {
            w.env->pass(1ms);
        }
        REQUIRE_FALSE(waiting.get());
        REQUIRE(w.env->now() >= end);
        REQUIRE(w.env->now() <= end + 5ms);
    }
    SECTION("there is no session") {
        (void)w.await(keeper.wait_live());
        go_away(w);
        w.env->break_streams();
        auto [time, waiting] = lasts(coetcd::with_lock_for(keeper, "m", 20s, body));
        REQUIRE(waiting.code() == errc::timed_out);
        REQUIRE(time >= 20s);
        REQUIRE(time <= 20s + 5ms);
        REQUIRE_THROWS_WITH(waiting.get(), support::contains("no session"));
        auto [none, trying] = lasts(coetcd::with_lock_for(keeper, "m", 0s, body));
        REQUIRE(trying.code() == errc::timed_out);
        REQUIRE(none <= 5ms);
    }
    SECTION("it is cancelled") {
        for (const auto when : {0ms, 1ms, 2ms, 3ms, 4ms, 1000ms}) {
            auto waiting = w.start(coetcd::with_lock_for(keeper, "m", 20s, body));
            w.env->pass(when);
            waiting.cancel();
            w.env->pass(0s);
            REQUIRE(waiting.code() == asio::error::operation_aborted);
            w.env->pass(100ms);
            REQUIRE(w.etcd->under("m/").size() == 1);
        }
    }
    SECTION("our place is deleted by hand: that is no matter of the session") {
        auto waiting = w.start(coetcd::with_lock_for(keeper, "m", 20s, body));
        w.env->pass(1s);
        for (const std::string& key : w.etcd->under("m/")) {
            if (key != held.key()) {
                w.etcd->erase(key);
            }
        }
        w.env->pass(1s);
        REQUIRE(waiting.code() == errc::lock_lost);
    }
    REQUIRE_FALSE(ran);
}

TEST_CASE("a body under a keeper's lock is cancelled with its session, and not run again",
          "[session_keeper][with_lock]") {
    kept all(session_keeper_options(6s));
    auto& [w, client, keeper] = all;
    int began = 0;
    int aborted = 0;
    auto body = [&]() -> asio::awaitable<void> {
        ++began;
        try {
            co_await work(w.env);
        } catch (const boost::system::system_error& e) {
            aborted += e.code() == asio::error::operation_aborted ? 1 : 0;
            throw;
        }
    };
    auto working = w.start(coetcd::with_lock(keeper, "m", body));
    auto trying = w.start(coetcd::with_lock_for(keeper, "n", 1s, body));
    w.env->pass(1s);
    REQUIRE(began == 2);
    errc expected = errc::session_lost;
    SECTION("the lease is revoked") {
        w.etcd->revoke(keeper.current()->lease());
        w.env->pass(2500ms);
    }
    SECTION("no renewal succeeds") {
        go_away(w);
        w.env->pass(6s);
    }
    SECTION("the keeper is closed") {
        (void)keeper.close();
        w.env->pass(20ms);
        expected = errc::session_closed;
    }
    REQUIRE(working.code() == expected);
    REQUIRE(trying.code() == expected);
    come_back(w);
    w.env->pass(10s);
    REQUIRE(began == 2);
    REQUIRE(aborted == 2);
}

TEST_CASE("with_lock() of a keeper that is cancelled leaves nothing, wherever it was",
          "[session_keeper][with_lock][cancellation]") {
    for (const bool live : {false, true}) {
        for (auto when = 0ms; when != 12ms; ++when) {
            kept all;
            auto& [w, client, keeper] = all;
            if (live) {
                (void)w.await(keeper.wait_live());
            }
            bool ended = false;
            auto body = [&]() -> asio::awaitable<void> {
                coetcd::detail::notifier pause(*w.env);
                (void)co_await pause.wait(w.env->now() + 4ms);
                ended = true;
            };
            auto working = w.start(coetcd::with_lock(keeper, "m", body));
            w.env->pass(when);
            working.cancel();
            w.env->pass(0s);
            REQUIRE(working.ended());
            REQUIRE(working.completions() == 1);
            REQUIRE((working.succeeded() || working.code() == asio::error::operation_aborted));
            REQUIRE((!working.succeeded() || ended));
            w.env->pass(100ms);
            REQUIRE(w.etcd->under("m/").empty());
            REQUIRE(keeper.current()); // the keeper has not noticed
        }
    }
}

TEST_CASE("through outages the requests of two keepers end, alone, and each begins once",
          "[session_keeper][with_lock]") {
    int done = 0;
    int lost = 0;
    for (std::uint64_t seed = 1; seed != 31; ++seed) {
        INFO("seed " << seed);
        std::mt19937_64 chance(seed);
        const auto below = [&](int n) {
            return static_cast<int>(chance() % static_cast<unsigned>(n));
        };
        world w;
        const coetcd::client client = w.client();
        std::vector<session_keeper> keepers;
        for (int i = 0; i != 2; ++i) {
            keepers.emplace_back(client, session_keeper_options(4s));
        }
        int inside = 0;
        bool alone = true;
        const auto request = [&](session_keeper& keeper,
                                 std::chrono::milliseconds patience,
                                 std::chrono::milliseconds takes,
                                 std::shared_ptr<int> begun) -> asio::awaitable<bool> {
            auto body = [&, takes, begun]() -> asio::awaitable<void> {
                struct leaving {
                    int& count;
                    ~leaving() { --count; }
                };
                ++*begun;
                alone = alone && inside == 0;
                ++inside;
                const leaving at_end{inside};
                coetcd::detail::notifier pause(*w.env);
                (void)co_await pause.wait(w.env->now() + takes);
            };
            const bool ran = co_await coetcd::with_lock_for(keeper, "m", patience, body);
            co_return ran;
        };
        std::vector<std::pair<background<bool>, std::shared_ptr<int>>> requests;
        for (int step = 0; step != 60; ++step) {
            const int what = below(10);
            if (what < 3) {
                const auto begun = std::make_shared<int>(0);
                auto& keeper = keepers[static_cast<std::size_t>(below(2))];
                requests.emplace_back(
                    w.start(request(keeper, 1ms * (1 + below(20'000)), 1ms * below(6'000), begun)),
                    begun);
            } else if (what == 3) {
                go_away(w);
                w.env->break_streams();
            } else if (what == 4) {
                w.env->decide = [lose = below(2) == 0](const call_request&) {
                    scripted_env::fate f;
                    f.answered = false;
                    f.arrives = !lose;
                    return f;
                };
            } else if (what < 7) {
                come_back(w);
            }
            w.env->pass(1ms * below(3'000));
        }
        come_back(w);
        w.env->pass(60s);
        REQUIRE(alone);
        for (auto& [how, begun] : requests) {
            REQUIRE(how.ended());
            REQUIRE(*begun <= 1);
            const coetcd::error_code ec = how.code();
            CHECK((!ec || ec == errc::timed_out || ec == errc::session_lost));
            done += !ec && *begun == 1 ? 1 : 0;
            lost += ec == errc::session_lost && *begun == 1 ? 1 : 0;
        }
        REQUIRE(keepers[0].current());
        REQUIRE(keepers[1].current());
        keepers.clear();
        w.env->pass(10s);
        REQUIRE(w.etcd->leases() == 0);
        REQUIRE(w.etcd->keys.empty());
    }
    CHECK(done > 100); // of some 500
    CHECK(lost > 5);
}

TEST_CASE("the whole world may end under a keeper", "[session_keeper]") {
    for (const bool away : {false, true}) {
        for (auto when = 0ms; when < 8s; when += when < 4ms ? 1ms : 333ms) {
            kept all;
            auto& [w, client, keeper] = all;
            if (away) {
                go_away(w);
            }
            const auto waiting = w.start(keeper.wait_changed());
            const auto suspect = w.start(keeper.wait_suspect());
            const auto active = w.start(keeper.wait_active());
            const auto working =
                w.start(coetcd::with_lock(keeper, "m", [&] { return work(w.env); }));
            w.env->pass(when);
        }
    }
    SUCCEED("no leak, no access to what is gone");
}
