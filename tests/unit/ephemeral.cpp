// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/standing.hpp>
#include <coetcd/ephemeral.hpp>
#include <coetcd/session_keeper.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
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
using coetcd::ephemeral;
using coetcd::errc;
using coetcd::lease_id;
using coetcd::server_errc;
using coetcd::detail::call_request;
using coetcd::detail::reply;
using coetcd::detail::rpc;
using support::background;
using support::broken;
using support::failure_of;
using support::fate_of;
using support::fate_of_copies;
using support::is_write;
using support::late;
using support::lost;
using support::scripted_env;
using support::unanswered;
using support::world;

namespace {

/// A client with a session.
struct ephemeral_settings {
    ephemeral_settings()
        : client(w.client())
        , session(w.await(coetcd::session::open(client))) {
        w.env->calls.clear();
    }
    ephemeral create(std::string value = "1") {
        return w.await(ephemeral::create(session, "k", std::move(value)));
    }
    /// What the key holds; nothing if there is none.
    std::optional<std::string> value() const { return value_of(w, "k"); }
    static std::optional<std::string> value_of(const world& w, const std::string& key) {
        const auto found = w.etcd->keys.find(key);
        return found == w.etcd->keys.end() ? std::nullopt
                                           : std::optional<std::string>(found->second.value);
    }
    std::size_t writes() const {
        std::size_t n = 0;
        for (const call_request& r : w.env->calls) {
            n += r.what == rpc::txn ? 1U : 0U;
        }
        return n;
    }
    world w;
    coetcd::client client;
    coetcd::session session;
};

/// The same in a keeper.
struct kept {
    kept()
        : client(w.client())
        , keeper(client, coetcd::session_keeper_options(6s)) {}
    lease_id lease() const { return keeper.current()->lease(); }
    std::optional<std::string> value() const { return ephemeral_settings::value_of(w, "k"); }
    ephemeral create(std::string value = "1") {
        return w.await(ephemeral::create(keeper, "k", std::move(value)));
    }
    world w;
    coetcd::client client;
    coetcd::session_keeper keeper;
};

/// Somebody else puts a key with a lease.
void put_with(world& w, const coetcd::client& by, const std::string& value, lease_id lease) {
    coetcd::put_options how;
    how.lease = lease;
    (void)w.await(by.put("k", value, how));
}

bool is_erase(const call_request& r) {
    return r.what == rpc::txn && r.body.find("request_delete_range") != std::string::npos;
}

void etcd_goes_away(world& w) {
    w.env->decide = [](const call_request&) {
        scripted_env::fate f;
        f.refused = true;
        return f;
    };
}

} // namespace

TEST_CASE("an ephemeral key is put, changed and removed in one round trip each", "[ephemeral]") {
    ephemeral_settings s;
    ephemeral e = s.create();
    CHECK(s.w.env->calls.size() == 1);
    CHECK(e.exists());
    CHECK(e);
    CHECK(e.key() == "k");
    CHECK(e.get_executor() == s.client.get_executor());
    CHECK(s.value() == "1");
    CHECK(s.w.etcd->keys.at("k").lease == s.session.lease());

    // In the background: a watch, a look at first, and some later.
    s.w.env->pass(2s);
    CHECK(s.w.etcd->watches_of("k") == 1);
    CHECK(s.w.env->calls.size() == 2);
    const std::size_t before = s.w.env->calls.size();
    s.w.await(e.update("2"));
    CHECK(s.w.env->calls.size() == before + 1);
    CHECK(s.value() == "2");
    CHECK(s.w.etcd->keys.at("k").lease == s.session.lease());
    s.w.await(e.update("2")); // it is there already
    CHECK(s.w.env->calls.size() == before + 1);

    s.w.env->pass(1s);
    const std::size_t then = s.w.env->calls.size();
    auto removing = s.w.start(e.remove());
    CHECK_FALSE(e.exists()); // at the call
    s.w.env->pass(2ms);
    CHECK(removing.get());
    CHECK(s.w.env->calls.size() == then + 1);
    CHECK_FALSE(s.value());
    CHECK_FALSE(s.w.await(e.remove()));
    CHECK(s.w.env->calls.size() == then + 1);
    auto updating = s.w.start(e.update("3"));
    s.w.env->pass(1s);
    CHECK(updating.code() == errc::not_owner);
    CHECK(s.w.etcd->keys.empty());
    s.w.env->pass(15s);
    CHECK(s.w.etcd->watches() == 0);
}

TEST_CASE("an ephemeral key looks about every 10 s", "[ephemeral]") {
    ephemeral_settings s;
    const ephemeral e = s.create();
    s.w.env->pass(2s);
    const auto reads = [&] {
        std::size_t n = 0;
        for (const call_request& r : s.w.env->calls) {
            n += r.what == rpc::range ? 1U : 0U;
        }
        return n;
    };
    const std::size_t before = reads();
    s.w.env->pass(100s);
    CHECK(reads() - before >= 8);
    CHECK(reads() - before <= 20);
    CHECK(s.writes() == 1);
}

TEST_CASE("an ephemeral key that somebody else has is refused, with the owner's lease",
          "[ephemeral]") {
    ephemeral_settings s;
    SECTION("another session") {
        const coetcd::session other = s.w.await(coetcd::session::open(s.client));
        const ephemeral theirs = s.w.await(ephemeral::create(other, "k", "theirs"));
        auto creating = s.w.start(ephemeral::create(s.session, "k", "ours"));
        s.w.env->pass(1s);
        CHECK(failure_of(creating).code() == errc::already_exists);
        const std::string lease =
            coetcd::detail::logic::hex(static_cast<std::uint64_t>(other.lease()));
        CHECK_THAT(failure_of(creating).what(), support::contains("lease " + lease));
        CHECK_THAT(failure_of(creating).what(), support::contains("ephemeral \"k\""));
        CHECK(s.value() == "theirs");
        CHECK(theirs.exists());
    }
    SECTION("nobody's lease") {
        s.w.etcd->write("k", "theirs");
        auto creating = s.w.start(ephemeral::create(s.session, "k", "ours"));
        s.w.env->pass(1s);
        CHECK(failure_of(creating).code() == errc::already_exists);
        CHECK_THAT(failure_of(creating).what(), support::contains("the key has no lease"));
        CHECK(s.value() == "theirs");
    }
    CHECK(s.w.etcd->keys.size() == 1);
    CHECK(s.w.etcd->watches_of("k") <= 1);
}

TEST_CASE("an ephemeral key that the lease has already is taken over", "[ephemeral]") {
    ephemeral_settings s;
    put_with(s.w, s.client, "before", s.session.lease());
    s.w.env->calls.clear();
    ephemeral e = s.create("now");
    CHECK(s.w.env->calls.size() == 2);
    CHECK(s.value() == "now");
    CHECK(s.w.etcd->keys.at("k").version == 2);
    CHECK(s.w.await(e.remove()));
    CHECK(s.w.etcd->keys.empty());
}

TEST_CASE("a session has an ephemeral key once", "[ephemeral]") {
    ephemeral_settings s;
    std::optional<ephemeral> first(s.create());
    auto second = s.w.start(ephemeral::create(s.session, "k", "2"));
    s.w.env->pass(1s);
    CHECK(failure_of(second).code() == errc::already_exists);
    CHECK_THAT(failure_of(second).what(), support::contains("this session has the key already"));
    CHECK(s.value() == "1");
    CHECK(first->exists());
    // One that is being removed is waited for.
    fate_of(s.w, &is_erase, {late(1s)});
    first.reset();
    auto third = s.w.start(ephemeral::create(s.session, "k", "3"));
    s.w.env->pass(500ms);
    CHECK_FALSE(third.ended());
    s.w.env->pass(1s);
    REQUIRE(third.ended());
    CHECK(third.get().exists());
    CHECK(s.w.etcd->history().size() >= 3);
}

TEST_CASE("what is done to an ephemeral key by hand is put right", "[ephemeral]") {
    ephemeral_settings s;
    ephemeral e = s.create();
    s.w.env->pass(1s);
    const std::size_t before = s.writes();
    for (int round = 0; round != 3; ++round) {
        s.w.etcd->erase("k");
        CHECK_FALSE(s.value());
        s.w.env->pass(2s);
        CHECK(s.value() == "1");
        CHECK(s.w.etcd->keys.at("k").lease == s.session.lease());
        CHECK(e.exists());
    }
    CHECK(s.writes() == before + 3);
    s.w.etcd->write("k", "by hand"); // without a lease
    s.w.env->pass(2s);
    CHECK(s.value() == "1");
    CHECK(s.w.etcd->keys.at("k").lease == s.session.lease());
    put_with(s.w, s.client, "by hand", s.session.lease());
    s.w.env->pass(2s);
    CHECK(s.value() == "1");
    s.w.await(e.update("2"));
    s.w.etcd->erase("k");
    s.w.env->pass(2s);
    CHECK(s.value() == "2");
    CHECK(s.w.await(e.remove()));
    s.w.env->pass(1min);
    CHECK(s.w.etcd->keys.empty());
}

TEST_CASE("an ephemeral key is healed also if no event tells of its end", "[ephemeral]") {
    ephemeral_settings s;
    const ephemeral e = s.create();
    s.w.env->pass(1s);
    s.w.etcd->tells = false;
    s.w.etcd->erase("k");
    s.w.etcd->tells = true;
    s.w.env->pass(1s);
    CHECK_FALSE(s.value());
    s.w.env->pass(20s);
    CHECK(s.value() == "1");
}

TEST_CASE("somebody who undoes each healing keeps nobody busy", "[ephemeral]") {
    ephemeral_settings s;
    const ephemeral e = s.create();
    s.w.env->pass(1s);
    const std::size_t before = s.writes();
    for (int i = 0; i != 10'000; ++i) {
        s.w.etcd->erase("k");
        s.w.env->pass(1ms);
    }
    CHECK(s.writes() - before <= 40);
    s.w.env->pass(2s);
    CHECK(s.value() == "1");
}

TEST_CASE("an ephemeral key that somebody else has put meanwhile is lost", "[ephemeral]") {
    ephemeral_settings s;
    ephemeral e = s.create();
    s.w.env->pass(1s);
    auto loss = s.w.start(e.wait_lost());
    auto updating = s.w.start(e.wait_lost());
    const coetcd::session other = s.w.await(coetcd::session::open(s.client));
    CHECK_FALSE(loss.ended());
    SECTION("in another life") {
        const coetcd::txn what = coetcd::txn().then(coetcd::op::erase("k"));
        // Both before we can put it again.
        s.w.etcd->tells = false;
        s.w.etcd->erase("k");
        s.w.etcd->tells = true;
        put_with(s.w, s.client, "theirs", other.lease());
    }
    SECTION("in the same one") {
        put_with(s.w, s.client, "theirs", other.lease());
    }
    s.w.env->pass(1s);
    CHECK(loss.get() == errc::lock_lost);
    CHECK_FALSE(e.exists());
    CHECK(s.value() == "theirs");
    auto late_update = s.w.start(e.update("2"));
    s.w.env->pass(1s);
    CHECK(failure_of(late_update).code() == errc::lock_lost);
    CHECK_THAT(failure_of(late_update).what(), support::contains("the key has lease"));
    CHECK_FALSE(s.w.await(e.remove()));
    CHECK(s.value() == "theirs");
    CHECK(s.w.await(e.wait_lost()) == errc::lock_lost);
    s.w.env->pass(1min);
    CHECK(s.value() == "theirs");
}

TEST_CASE("an ephemeral key is put once, whatever becomes of the request", "[ephemeral]") {
    const std::vector<std::vector<scripted_env::fate>> scripts = {{broken()},
                                                                  {lost()},
                                                                  {unanswered()},
                                                                  {broken(), broken()},
                                                                  {lost(), unanswered()},
                                                                  {late(3s)}};
    for (const auto& script : scripts) {
        ephemeral_settings s;
        fate_of_copies(s.w, script);
        ephemeral e = s.create();
        CHECK(e.exists());
        CHECK(s.value() == "1");
        s.w.env->pass(10s);
        CHECK(s.w.etcd->keys.at("k").version == 1);
        CHECK(s.w.await(e.remove()));
        s.w.env->pass(10s);
        CHECK_FALSE(s.value());
    }
}

TEST_CASE("no late copy puts an ephemeral key again that was removed", "[ephemeral]") {
    for (const bool destroyed : {false, true}) {
        ephemeral_settings s;
        fate_of_copies(s.w, {late(20s)});
        std::optional<ephemeral> e(s.create());
        CHECK(s.value() == "1");
        if (destroyed) {
            e.reset();
            s.w.env->pass(1s);
        } else {
            CHECK(s.w.await(e->remove()));
        }
        CHECK_FALSE(s.value());
        s.w.env->pass(1min);
        CHECK_FALSE(s.value());
        // What makes it void goes with the session.
        CHECK(s.w.etcd->keys.size() == 1);
        CHECK(s.w.etcd->keys.begin()->first.starts_with("k."));
        CHECK(s.w.etcd->keys.begin()->second.lease == s.session.lease());
        s.w.await(s.session.close());
        CHECK(s.w.etcd->keys.empty());
    }
}

TEST_CASE("updates of an ephemeral key take effect once, in order", "[ephemeral]") {
    const std::vector<std::vector<scripted_env::fate>> scripts = {
        {broken()}, {lost()}, {unanswered()}, {late(15s)}, {broken(), late(15s)}};
    for (const auto& script : scripts) {
        ephemeral_settings s;
        ephemeral e = s.create();
        s.w.env->pass(1s);
        fate_of_copies(s.w, script);
        s.w.await(e.update("2"));
        CHECK(s.value() == "2");
        CHECK(s.w.etcd->keys.at("k").version == 2);
        s.w.await(e.update("3"));
        CHECK(s.value() == "3");
        s.w.env->pass(1min); // a late copy of the first comes now
        CHECK(s.value() == "3");
        CHECK(s.w.etcd->keys.at("k").version == 3);
        CHECK(e.exists());
    }
}

TEST_CASE("an update that another one follows at once may be left out", "[ephemeral]") {
    ephemeral_settings s;
    ephemeral e = s.create();
    s.w.env->pass(1s);
    std::vector<background<void>> all;
    for (int i = 2; i != 10; ++i) {
        all.push_back(s.w.start(e.update(std::to_string(i))));
    }
    s.w.env->pass(10ms);
    for (auto& each : all) {
        CHECK(each.succeeded());
    }
    CHECK(s.value() == "9");
    CHECK(s.w.etcd->keys.at("k").version <= 3);
}

TEST_CASE("an update that is cancelled is made all the same", "[ephemeral]") {
    ephemeral_settings s;
    ephemeral e = s.create();
    s.w.env->pass(1s);
    auto updating = s.w.start(e.update("2"));
    s.w.env->pass(0s);
    updating.cancel();
    s.w.env->pass(0s);
    CHECK(updating.code() == asio::error::operation_aborted);
    s.w.env->pass(1s);
    CHECK(s.value() == "2");
    s.w.await(e.update("3"));
    CHECK(s.value() == "3");
}

TEST_CASE("create() that is cancelled leaves nothing", "[ephemeral]") {
    for (const auto when : {0us, 500us, 1500us, 2000us}) {
        ephemeral_settings s;
        auto creating = s.w.start(ephemeral::create(s.session, "k", "1"));
        s.w.env->pass(when);
        creating.cancel();
        s.w.env->pass(1s);
        CHECK((creating.succeeded() || creating.code() == asio::error::operation_aborted));
        if (creating.succeeded()) {
            creating.get() = ephemeral();
        }
        s.w.env->pass(1s);
        CHECK(s.w.etcd->keys.empty());
        s.w.env->pass(1min);
        CHECK(s.w.etcd->watches() == 0);
        CHECK(s.session.state() == coetcd::session_state::active);
    }
}

TEST_CASE("an ephemeral key goes with its object, or with its session", "[ephemeral]") {
    ephemeral_settings s;
    std::optional<ephemeral> e(s.create());
    s.w.env->pass(1s);
    auto loss = s.w.start(e->wait_lost());
    s.w.env->pass(1s);
    SECTION("it is destroyed") {
        e.reset();
        s.w.env->pass(1s);
        CHECK(s.w.etcd->keys.empty());
        CHECK(loss.code() == asio::error::operation_aborted);
        return;
    }
    SECTION("it is assigned to") {
        ephemeral moved = std::move(*e);
        *e = s.w.await(ephemeral::create(s.session, "other", "2"));
        moved = std::move(*e);
        s.w.env->pass(1s);
        CHECK_FALSE(s.value());
        CHECK(s.w.etcd->keys.size() == 1);
        CHECK(moved.key() == "other");
        return;
    }
    errc expected = errc::session_closed;
    bool stays = false;
    SECTION("the session is closed") {
        s.w.await(s.session.close());
        CHECK(s.w.etcd->keys.empty());
    }
    SECTION("the session is orphaned") {
        (void)s.session.orphan();
        stays = true;
    }
    SECTION("the session is lost") {
        s.w.etcd->revoke(s.session.lease());
        s.w.env->pass(1min);
        expected = errc::session_lost;
    }
    s.w.env->pass(1s);
    CHECK(loss.get() == expected);
    CHECK_FALSE(e->exists());
    auto updating = s.w.start(e->update("2"));
    s.w.env->pass(1s);
    CHECK(updating.code() == expected);
    CHECK_FALSE(s.w.await(e->remove()));
    auto creating = s.w.start(ephemeral::create(s.session, "k", "1"));
    s.w.env->pass(1s);
    CHECK(creating.code() == expected);
    CHECK(s.value().has_value() == stays);
    e.reset();
    s.w.env->pass(1s);
    CHECK(s.value().has_value() == stays);
}

TEST_CASE("exists() looks at the clock", "[ephemeral]") {
    ephemeral_settings s;
    const ephemeral e = s.create();
    CHECK(e.exists());
    s.w.env->stall(2min);
    CHECK_FALSE(e.exists()); // in the first instruction
}

TEST_CASE("etcd may refuse to have an ephemeral key", "[ephemeral]") {
    ephemeral_settings s;
    SECTION("at first") {
        s.w.etcd->denied = "k";
        auto creating = s.w.start(ephemeral::create(s.session, "k", "1"));
        s.w.env->pass(1s);
        CHECK(failure_of(creating).code() == server_errc::permission_denied);
        CHECK_THAT(failure_of(creating).what(), support::contains("from \"k.\" up to"));
        s.w.etcd->denied.reset();
        s.w.env->pass(1s);
        CHECK(s.w.etcd->keys.empty());
        const ephemeral later = s.create();
        CHECK(later.exists());
    }
    SECTION("a new value") {
        ephemeral e = s.create();
        s.w.env->pass(1s);
        s.w.etcd->no_space = true;
        auto updating = s.w.start(e.update("2"));
        s.w.env->pass(5s);
        REQUIRE(updating.ended());
        CHECK(updating.code() == errc::outcome_unknown); // etcd may have applied it
        CHECK(e.exists());
        CHECK(s.value() == "1");
        s.w.etcd->no_space = false;
        s.w.env->pass(1min);
        CHECK(s.value() == "1");
        s.w.await(e.update("3"));
        CHECK(s.value() == "3");
    }
    SECTION("that it is put again") {
        const ephemeral e = s.create();
        s.w.env->pass(1s);
        s.w.etcd->no_space = true;
        s.w.etcd->erase("k");
        s.w.env->pass(5min);
        CHECK_FALSE(s.value());
        CHECK(s.writes() < 100);
        s.w.etcd->no_space = false;
        s.w.env->pass(31s);
        CHECK(s.value() == "1");
    }
    SECTION("that it is removed") {
        ephemeral e = s.create();
        s.w.env->pass(1s);
        // Not the renewals' looks.
        bool refuses = true;
        s.w.env->on_call = [&, serve = s.w.env->on_call](const call_request& q, reply& r) {
            if (refuses && is_erase(q)) {
                r.status = 403;
                r.body = R"({"code":7,"message":"etcdserver: permission denied"})";
                return;
            }
            serve(q, r);
        };
        auto removing = s.w.start(e.remove());
        s.w.env->pass(5s);
        CHECK(removing.code() == server_errc::permission_denied);
        CHECK(s.value() == "1");
        refuses = false;
        s.w.env->pass(40s);
        CHECK(s.w.etcd->keys.empty());
        s.w.env->on_call = nullptr;
    }
}

TEST_CASE("an ephemeral key waits for etcd while its session lives", "[ephemeral]") {
    ephemeral_settings s;
    ephemeral e = s.create();
    s.w.env->pass(1s);
    etcd_goes_away(s.w);
    SECTION("to be changed") {
        auto updating = s.w.start(e.update("2"));
        s.w.env->pass(6s);
        CHECK_FALSE(updating.ended());
        s.w.env->decide = nullptr;
        s.w.env->pass(3s);
        CHECK(updating.succeeded());
        CHECK(s.value() == "2");
    }
    SECTION("to be removed") {
        auto removing = s.w.start(e.remove());
        s.w.env->pass(12s);
        CHECK(removing.code() == errc::timed_out);
        s.w.env->decide = nullptr;
        s.w.env->pass(3s);
        CHECK(s.w.etcd->keys.empty());
    }
    SECTION("in vain") {
        auto updating = s.w.start(e.update("2"));
        auto loss = s.w.start(e.wait_lost());
        s.w.env->pass(5min);
        CHECK(updating.code() == errc::session_lost);
        CHECK(loss.get() == errc::session_lost);
        s.w.env->decide = nullptr;
        s.w.env->pass(2min);
        CHECK(s.w.etcd->keys.empty());
    }
}

TEST_CASE("an answer that is not etcd's is asked for again", "[ephemeral]") {
    ephemeral_settings s;
    int odd = 0;
    s.w.env->on_call = [&, serve = s.w.env->on_call](const call_request& q, reply& r) {
        if (is_write(q) && odd++ < 3) {
            r.status = 200;
            r.body = R"({"header":{"revision":"7"},"succeeded":true})";
            return;
        }
        serve(q, r);
    };
    const ephemeral e = s.create();
    CHECK(odd >= 4);
    CHECK(e.exists());
    CHECK(s.value() == "1");
    s.w.env->on_call = nullptr;
}

TEST_CASE("an ephemeral key of a keeper lives on in the next session", "[ephemeral]") {
    for (const bool stalls : {false, true}) {
        kept s;
        ephemeral e = s.create(); // waits for the first session
        CHECK(s.value() == "1");
        CHECK(s.w.etcd->keys.at("k").lease == s.lease());
        CHECK(e.exists());
        s.w.env->pass(1s);
        for (int round = 0; round != 3; ++round) {
            const lease_id before = s.lease();
            if (stalls) {
                s.w.env->stall(7s);
                CHECK_FALSE(e.exists());
            } else {
                s.w.etcd->revoke(before);
            }
            s.w.env->pass(10s);
            REQUIRE(s.keeper.current());
            CHECK(s.lease() != before);
            CHECK(s.value() == "1");
            CHECK(s.w.etcd->keys.at("k").lease == s.lease());
            CHECK(e.exists());
        }
        s.w.await(e.update("2"));
        CHECK(s.value() == "2");
        CHECK(s.w.await(e.remove()));
        CHECK(s.w.etcd->keys.empty());
    }
}

TEST_CASE("a key that a lost session's lease has still is taken over", "[ephemeral]") {
    kept s;
    const ephemeral e = s.create();
    s.w.env->pass(1s);
    const lease_id before = s.lease();
    // It cannot be revoked, and not be renewed.
    s.w.env->decide = [](const call_request& r) {
        scripted_env::fate f;
        f.arrives = r.what != rpc::lease_revoke;
        return f;
    };
    s.w.env->stall(4500ms); // of a ttl of 6 s, 1 s of which has passed
    s.w.env->pass(300ms);
    REQUIRE(s.keeper.current());
    REQUIRE(s.lease() != before);
    const auto& now = s.w.etcd->keys.at("k");
    CHECK(now.lease == s.lease());
    CHECK(now.version == 2); // it was never absent
    s.w.env->pass(20s);
    CHECK_FALSE(s.w.etcd->has_lease(before));
    CHECK(s.value() == "1");
}

TEST_CASE("no late copy of a lost session puts a key again that was removed", "[ephemeral]") {
    kept s;
    // What puts it at first comes late, and the session's lease cannot be revoked.
    s.w.env->decide = [is_first = true](const call_request& r) mutable {
        scripted_env::fate f;
        f.arrives = r.what != rpc::lease_revoke;
        return is_write(r) && std::exchange(is_first, false) ? late(8s) : f;
    };
    ephemeral e = s.create();
    s.w.env->pass(1s);
    const lease_id before = s.lease();
    s.w.env->stall(4500ms); // of a ttl of 6 s, 1 s of which has passed
    s.w.env->pass(300ms);
    REQUIRE(s.keeper.current());
    REQUIRE(s.lease() != before);
    CHECK(s.w.etcd->keys.at("k").lease == s.lease());
    s.w.etcd->elect(0); // all leases have their whole time again
    CHECK(s.w.await(e.remove()));
    CHECK_FALSE(s.value());
    s.w.env->pass(4s); // it has come
    REQUIRE(s.w.etcd->has_lease(before));
    CHECK_FALSE(s.value());
}

TEST_CASE("a keeper that is closed, or has no session, has no key", "[ephemeral]") {
    kept s;
    std::optional<ephemeral> e(s.create());
    s.w.env->pass(1s);
    auto loss = s.w.start(e->wait_lost());
    SECTION("closed") {
        s.w.await(s.keeper.close());
        s.w.env->pass(1s);
        CHECK(loss.get() == errc::session_closed);
        CHECK_FALSE(s.w.await(e->remove()));
        CHECK(s.w.etcd->keys.empty());
    }
    SECTION("away") {
        etcd_goes_away(s.w);
        s.w.env->pass(10s);
        CHECK_FALSE(e->exists());
        CHECK_FALSE(loss.ended());
        auto updating = s.w.start(e->update("2"));
        s.w.env->pass(10s);
        CHECK_FALSE(updating.ended());
        SECTION("and back") {
            s.w.env->decide = nullptr;
            s.w.env->pass(10s);
            CHECK(updating.succeeded());
            CHECK(s.value() == "2");
            CHECK(e->exists());
        }
        SECTION("while it is removed") {
            CHECK_FALSE(s.w.await(e->remove()));
            s.w.env->pass(0s);
            CHECK(updating.code() == errc::not_owner);
            CHECK(loss.code() == asio::error::operation_aborted);
            s.w.env->decide = nullptr;
            s.w.env->pass(1min);
            CHECK(s.w.etcd->keys.empty());
        }
    }
}

TEST_CASE("a keeper's key that somebody else has put in between is lost", "[ephemeral]") {
    kept s;
    ephemeral e = s.create();
    s.w.env->pass(1s);
    const coetcd::session other = s.w.await(coetcd::session::open(s.client));
    s.w.etcd->revoke(s.lease());
    put_with(s.w, s.client, "theirs", other.lease());
    s.w.env->pass(10s);
    CHECK(s.w.await(e.wait_lost()) == errc::lock_lost);
    CHECK(s.value() == "theirs");
}

TEST_CASE("create() in a keeper throws what will hardly pass", "[ephemeral]") {
    world w;
    w.env->on_call = [serve = w.env->on_call](const call_request& q, reply& r) {
        if (q.what == rpc::lease_grant) {
            r.status = 403;
            r.body = R"({"code":7,"message":"etcdserver: permission denied"})";
            return;
        }
        serve(q, r);
    };
    const coetcd::client client = w.client();
    const coetcd::session_keeper keeper(client);
    auto creating = w.start(ephemeral::create(keeper, "k", "1"));
    w.env->pass(1s);
    CHECK(creating.code() == server_errc::permission_denied);
    w.env->on_call = nullptr;
}

TEST_CASE("an ephemeral key has a name, and an empty object has none", "[ephemeral]") {
    ephemeral_settings s;
    CHECK_THROWS_AS(ephemeral::create(s.session, "", "1"), std::invalid_argument);
    CHECK_THROWS_AS(ephemeral::create(s.session, std::string(513, 'x'), "1"),
                    std::invalid_argument);
    ephemeral none;
    CHECK_FALSE(none.exists());
    CHECK_FALSE(s.w.await(none.remove()));
    CHECK_THROWS_AS(none.key(), std::logic_error);
    CHECK_THROWS_AS(none.update("1"), std::logic_error);
    CHECK_THROWS_AS(none.wait_lost(), std::logic_error);
    CHECK(s.w.env->calls.empty());
}
