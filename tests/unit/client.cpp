// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/mutex.hpp>

#include <boost/asio/co_spawn.hpp>

#include <exception>
#include <functional>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::compare;
using coetcd::errc;
using coetcd::op;
using coetcd::server_errc;
using coetcd::detail::call_request;
using coetcd::detail::rpc;
using support::background;
using support::scripted_env;
using support::world;

namespace {

// Every public call, each as something that can be awaited and that ends with true.
using call = std::function<asio::awaitable<bool>(coetcd::client)>;

template<class T>
asio::awaitable<bool> ends(asio::awaitable<T> work) {
    (void)co_await std::move(work);
    co_return true;
}

std::vector<std::pair<std::string, call>> all_calls() {
    using coetcd::client;
    return {
        {"get", [](client c) { return ends(c.get("k")); }},
        {"range", [](client c) { return ends(c.range(coetcd::key_range::prefix("k"))); }},
        {"put", [](client c) { return ends(c.put("k", "v")); }},
        {"erase", [](client c) { return ends(c.erase("k")); }},
        {"txn", [](client c) { return ends(c.txn(coetcd::txn().then(op::put("k", "v")))); }},
        {"read-only txn", [](client c) { return ends(c.txn(coetcd::txn().then(op::range("k")))); }},
        {"compact", [](client c) { return ends(c.compact(1)); }},
        {"lease_grant", [](client c) { return ends(c.lease_grant(10s)); }},
        {"lease_revoke", [](client c) { return ends(c.lease_revoke(7)); }},
        {"lease_keep_alive_once", [](client c) { return ends(c.lease_keep_alive_once(7)); }},
        {"lease_time_to_live", [](client c) { return ends(c.lease_time_to_live(7)); }},
        {"lease_leases", [](client c) { return ends(c.lease_leases()); }},
        {"status", [](client c) { return ends(c.status()); }},
        {"watch", [](client c) { return ends(c.watch("k")); }},
    };
}

bool changes(const std::string& name) {
    return name != "get" && name != "range" && name != "read-only txn" && name != "watch" &&
           name != "lease_keep_alive_once" && name != "lease_time_to_live" &&
           name != "lease_leases" && name != "status";
}

/// etcd has a user, and answers each login with a token.
void grant_logins(world& w) {
    w.env->on_call = [serve = w.env->on_call](const call_request& q, coetcd::detail::reply& r) {
        if (q.what == rpc::authenticate) {
            r.status = 200;
            r.body = R"({"header":{"cluster_id":"14841639068965178418"},"token":"t.1"})";
        } else {
            serve(q, r);
        }
    };
}

} // namespace

TEST_CASE("keys are written, read and erased", "[client]") {
    world w;
    const coetcd::client client = w.client();
    REQUIRE_FALSE(w.await(client.get("a")));
    const std::string bytes("\0\xff/=", 4);
    const auto put = w.await(client.put("a", bytes));
    REQUIRE(put.header.revision == 2);
    REQUIRE(put.header.cluster_id == 14841639068965178418U);
    const auto found = w.await(client.get("a"));
    REQUIRE(found);
    REQUIRE(found->value == bytes);
    REQUIRE(found->create_revision == 2);
    (void)w.await(client.put("ab", ""));
    const auto range = w.await(client.range(coetcd::key_range::prefix("a")));
    REQUIRE(range.count == 2);
    REQUIRE(range.kvs.at(1).key == "ab");
    REQUIRE(w.await(client.erase(coetcd::key_range::prefix("a"))).deleted == 2);
    REQUIRE(w.await(client.erase("a")).deleted == 0);
}

TEST_CASE("a transaction reads like a sentence", "[client]") {
    world w;
    const coetcd::client client = w.client();
    (void)w.await(client.put("stock", "7"));
    coetcd::txn sale = coetcd::txn()
                           .when(compare::value("stock") == "7", compare::version("sold") == 0)
                           .then(op::put("stock", "6"), op::put("sold", "1"))
                           .otherwise(op::range("stock"));
    auto result = w.await(client.txn(sale));
    REQUIRE(result.succeeded);
    REQUIRE(result.responses.size() == 2);
    result = w.await(client.txn(sale));
    REQUIRE_FALSE(result.succeeded);
    REQUIRE(result.responses.at(0).range().kvs.at(0).value == "6");
}

TEST_CASE("leases are granted under an id of our choice, so that a grant can be repeated",
          "[client]") {
    world w;
    const coetcd::client client = w.client();
    bool first = true;
    w.env->decide = [&](const call_request&) {
        scripted_env::fate f;
        f.breaks = std::exchange(first, false);
        return f;
    };
    const auto granted = w.await(client.lease_grant(5s));
    REQUIRE(granted.ttl == 5s);
    REQUIRE(w.etcd->leases() == 1);
    auto taken = w.start(client.lease_grant(5s, granted.id));
    w.env->pass(10ms);
    REQUIRE(taken.code() == server_errc::failed_precondition); // that one is taken
    REQUIRE(w.await(client.lease_keep_alive_once(granted.id)).value().ttl == 5s);
    REQUIRE(w.await(client.lease_time_to_live(granted.id)).value().granted_ttl == 5s);
    REQUIRE(w.await(client.lease_revoke(granted.id)));
    // A lease that does not exist is nothing, whatever is asked of it.
    REQUIRE_FALSE(w.await(client.lease_keep_alive_once(granted.id)));
    REQUIRE_FALSE(w.await(client.lease_time_to_live(granted.id)));
    REQUIRE_FALSE(w.await(client.lease_revoke(granted.id)));
    REQUIRE_FALSE(w.await(coetcd::session::adopt(client, granted.id)));
}

TEST_CASE("a revoke that is repeated after a lost answer is no failure", "[client]") {
    world w;
    const coetcd::client client = w.client();
    const auto granted = w.await(client.lease_grant(5s));
    bool first = true;
    w.env->decide = [&](const call_request&) {
        scripted_env::fate f;
        f.breaks = std::exchange(first, false);
        return f;
    };
    REQUIRE(w.await(client.lease_revoke(granted.id)));
    REQUIRE(w.etcd->leases() == 0);
}

TEST_CASE("every call ends at its deadline when nothing answers", "[client]") {
    for (const auto& [name, call] : all_calls()) {
        world w;
        const coetcd::client client = w.client().with_timeout(3s);
        w.env->decide = [](const call_request&) {
            scripted_env::fate f;
            f.arrives = false;
            return f;
        };
        auto calling = w.start(call(client));
        w.env->pass(2999ms);
        INFO(name);
        REQUIRE_FALSE(calling.ended());
        w.env->pass(2ms);
        REQUIRE(calling.ended());
        REQUIRE(calling.code() == (changes(name) ? errc::outcome_unknown : errc::timed_out));
        const auto expected =
            changes(name) ? coetcd::condition::outcome_unknown : coetcd::condition::retryable;
        REQUIRE(calling.code() == expected);
    }
}

TEST_CASE("every call says that no endpoint can be reached, and which", "[client]") {
    for (const auto& [name, call] : all_calls()) {
        world w;
        const coetcd::client client = w.client();
        w.env->decide = [](const call_request&) {
            scripted_env::fate f;
            f.refused = true;
            return f;
        };
        auto calling = w.start(call(client));
        w.env->pass(5001ms);
        INFO(name);
        REQUIRE(calling.ended());
        REQUIRE(calling.code() == errc::unavailable);
        try {
            (void)calling.get();
        } catch (const coetcd::error& e) {
            REQUIRE_THAT(e.what(), support::contains("http://etcd:2379"));
        }
    }
}

TEST_CASE("every call can be cancelled at any moment, and ends once", "[client][cancellation]") {
    for (const auto& [name, call] : all_calls()) {
        for (auto when = 0ms; when < 5ms; ++when) {
            world w;
            const coetcd::client client = w.client();
            auto calling = w.start(call(client));
            w.env->pass(when);
            calling.cancel();
            w.env->pass(0ms);
            INFO(name << " at " << when.count());
            REQUIRE(calling.ended());
            w.env->pass(100ms);
            REQUIRE(calling.completions() == 1);
        }
    }
}

TEST_CASE("a change that may have been applied is not repeated", "[client]") {
    for (const auto& [name, call] : all_calls()) {
        if (name != "put" && name != "erase" && name != "txn" && name != "compact") {
            continue;
        }
        world w;
        const coetcd::client client = w.client();
        w.env->decide = [](const call_request&) {
            scripted_env::fate f;
            f.breaks = true;
            return f;
        };
        auto calling = w.start(call(client));
        w.env->pass(100ms);
        INFO(name);
        REQUIRE(calling.code() == errc::outcome_unknown);
        REQUIRE(w.env->calls.size() == 1);
    }
}

TEST_CASE("a client that is destroyed lets its calls complete", "[client]") {
    for (const auto& [name, call] : all_calls()) {
        if (name == "watch") {
            continue; // it stays
        }
        world w;
        std::optional<coetcd::client> client(w.client());
        auto calling = w.start(call(*client));
        client.reset();
        w.env->pass(20ms);
        INFO(name);
        REQUIRE(calling.ended());
        REQUIRE(calling.completions() == 1);
    }
}

TEST_CASE("each handle tells where its work is done", "[client]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::session session = w.await(coetcd::session::open(client));
    coetcd::mutex mutex(session, "m");
    const coetcd::held_lock held = w.await(mutex.scoped_lock());
    // As the result of co_spawn: what that returns has to be made from nothing, too.
    coetcd::watcher watcher;
    boost::asio::co_spawn(
        *w.context, client.watch("k"), [&](std::exception_ptr, coetcd::watcher made) {
            watcher = std::move(made);
        });
    w.env->pass(100ms);
    const boost::asio::any_io_executor home = w.context->get_executor();
    CHECK(client.get_executor() == home);
    CHECK(session.get_executor() == home);
    CHECK(mutex.get_executor() == home);
    CHECK(held.get_executor() == home);
    CHECK(watcher.get_executor() == home);
}

TEST_CASE("endpoints and options that cannot be right are refused by name", "[client]") {
    world w;
    const auto make = [&](coetcd::endpoints cluster, coetcd::client_options options = {}) {
        return w.client(std::move(cluster), options);
    };
    REQUIRE_THROWS_WITH(make("ftp://x"), support::contains("endpoints: \"ftp://x\""));
    REQUIRE_THROWS_WITH(make("https://x:1"), support::contains("endpoints: \"https://x:1\""));
    REQUIRE_THROWS_WITH(make({"http://x", "http://y:0"}), support::contains("http://y:0"));
    REQUIRE_THROWS_WITH(make(std::vector<std::string>()), support::contains("endpoints"));
    const auto with = [&](auto change) {
        coetcd::client_options options;
        change(options);
        return make("x", options);
    };
    using options = coetcd::client_options;
    REQUIRE_THROWS_WITH(with([](options& o) { o.request_timeout = 0ms; }),
                        support::contains("request_timeout"));
    REQUIRE_THROWS_WITH(with([](options& o) { o.attempt_timeout = -1ms; }),
                        support::contains("attempt_timeout"));
    REQUIRE_THROWS_WITH(with([](options& o) { o.connect_timeout = 0ms; }),
                        support::contains("connect_timeout"));
    REQUIRE_THROWS_WITH(with([](options& o) { o.max_answer = 0; }),
                        support::contains("max_answer"));
    REQUIRE_THROWS_WITH(with([](options& o) { o.connections = 0; }),
                        support::contains("connections"));
    const coetcd::client client = w.client();
    REQUIRE_THROWS_WITH(client.with_timeout(0ms), support::contains("timeout"));
    REQUIRE_THROWS_WITH(client.get(""), support::contains("key"));
    REQUIRE_THROWS_WITH(client.put("", "v"), support::contains("key"));
    REQUIRE_THROWS_WITH(client.erase(""), support::contains("key"));
    REQUIRE_THROWS_WITH(client.lease_grant(0s), support::contains("ttl"));
    REQUIRE_THROWS_WITH(client.lease_grant(5s, -1), support::contains("id"));
    REQUIRE_THROWS_WITH(client.lease_revoke(0), support::contains("lease"));
    REQUIRE(w.env->calls.empty());
}

TEST_CASE(
    "sec.token.plain_http: a password goes to no other host in the clear unless it is asked for",
    "[client][auth][security]") {
    world w;
    coetcd::client_options o;
    o.credentials = coetcd::credentials("root", "canary");
    for (const char* url : {"http://etcd:2379",
                            "etcd",
                            "http://10.0.0.1:2379",
                            "http://127.evil.org",
                            "http://[::2]:2379"}) {
        CAPTURE(url);
        try {
            (void)w.client(url, o);
            FAIL("it was accepted");
        } catch (const std::invalid_argument& e) {
            CHECK_THAT(e.what(), support::contains("insecure_plain_text_credentials"));
            CHECK_THAT(e.what(), !support::contains("canary"));
        }
    }
    for (const char* url : {"http://127.0.0.1:1", "http://localhost", "http://[::1]:2"}) {
        CHECK_NOTHROW(w.client(url, o));
    }
    // One is enough to give it away.
    CHECK_THROWS_AS(w.client(coetcd::endpoints("http://localhost", "http://etcd"), o),
                    std::invalid_argument);
    o.insecure_plain_text_credentials = true;
    CHECK_NOTHROW(w.client("http://etcd:2379", o));
}

TEST_CASE("credentials that cannot be right are told at once", "[client][auth]") {
    using coetcd::credentials;
    const std::function<std::string()> none;
    CHECK_THROWS_AS(credentials("", "x"), std::invalid_argument);
    CHECK_THROWS_AS(credentials("", [] { return std::string(); }), std::invalid_argument);
    CHECK_THROWS_AS(credentials("u", none), std::invalid_argument);
    CHECK(credentials("u", "").user() == "u"); // etcd's to judge
    coetcd::client_options o;
    o.member_refresh = 0s;
    world w;
    CHECK_THROWS_AS(w.client(o), std::invalid_argument);
}

TEST_CASE("a login that ends by a lack of memory keeps no call waiting", "[client][auth]") {
    world w;
    coetcd::client_options o;
    o.insecure_plain_text_credentials = true;
    o.credentials = coetcd::credentials("root", "secret");
    w.env->decide = [first = true](const call_request& q) mutable -> scripted_env::fate {
        if (q.what == rpc::authenticate && std::exchange(first, false)) {
            throw std::bad_alloc();
        }
        return {};
    };
    grant_logins(w);
    const coetcd::client client = w.client(o);
    auto putting = w.start(client.put("k", "v"));
    CHECK_THROWS_AS(w.env->pass(0s), std::bad_alloc); // it comes out of the event loop
    w.env->pass(10s);
    REQUIRE(putting.ended());
    (void)putting.get();
    (void)w.await(client.put("k", "v"));
}

TEST_CASE("each attempt of a login has the time of an attempt", "[client][auth]") {
    world w;
    coetcd::client_options o;
    o.insecure_plain_text_credentials = true;
    o.credentials = coetcd::credentials("root", "secret");
    grant_logins(w);
    SECTION("a short one, so that the next endpoint is asked in time") {
        o.request_timeout = 2s;
        o.attempt_timeout = 300ms;
        w.env->decide = [silent = std::string()](const call_request& q) mutable {
            silent = silent.empty() ? q.to.text() : silent; // the first one that is asked
            scripted_env::fate f;
            f.answered = q.to.text() != silent;
            return f;
        };
        const coetcd::client client = w.client({"http://a", "http://b"}, o);
        (void)w.await(client.put("k", "v"));
    }
    SECTION("a long one, for a network where each answer takes long") {
        o.request_timeout = 20s;
        o.attempt_timeout = 5s;
        w.env->round_trip = 3s;
        const coetcd::client client = w.client("http://a", o);
        (void)w.await(client.put("k", "v"));
    }
}

TEST_CASE("a call that has no login in time says why, as one that needs none", "[client][auth]") {
    for (const bool silent : {false, true}) {
        for (const auto patience : {100ms, 5000ms, 7000ms}) { // the login's end is not awaited
            INFO("silent " << silent << " patience " << patience.count());
            world w;
            coetcd::client_options o;
            o.insecure_plain_text_credentials = true;
            o.credentials = coetcd::credentials("root", "secret");
            w.env->decide = [silent](const call_request&) {
                scripted_env::fate f;
                f.refused = !silent;
                f.arrives = !silent;
                return f;
            };
            const coetcd::client client = w.client(o).with_timeout(patience);
            auto getting = w.start(client.get("k"));
            w.env->pass(patience + 10ms);
            CHECK(getting.code() == (silent ? errc::timed_out : errc::unavailable));
            CHECK_THROWS_WITH(getting.get(), support::contains("http://etcd:2379"));
            CHECK_THROWS_WITH(getting.get(),
                              support::contains(silent ? "no answer" : "Connection refused"));
        }
    }
}

TEST_CASE("members are learned, and looked at, where each answer takes long", "[client]") {
    world w;
    coetcd::client_options o;
    o.request_timeout = 20s;
    o.attempt_timeout = 5s;
    o.member_refresh = 10s;
    w.env->round_trip = 3s;
    w.env->on_call = [serve = w.env->on_call](const call_request& q, coetcd::detail::reply& r) {
        if (q.what == rpc::member_list) {
            r.status = 200;
            r.body =
                R"({"header":{"cluster_id":"14841639068965178418"},"members":[{"clientURLs":["http://b:2379"]}]})";
        } else {
            serve(q, r);
        }
    };
    const coetcd::client client = w.client("http://a", o);
    w.env->pass(1s);
    (void)w.await(client.get("k"));
    w.env->calls.clear();
    w.env->pass(30s);
    REQUIRE(w.env->kept.size() == 1);
    CHECK(w.env->kept.back().back().text() == "http://b:2379");
    std::string looks; // the second one of an endpoint follows an answer to the first one
    for (const call_request& q : w.env->calls) {
        looks += q.what == rpc::range ? q.to.host : "";
    }
    CHECK(looks == "aabb");
}

TEST_CASE("sec.token.password: a password is asked for when it is needed, and goes to etcd alone",
          "[client][auth]") {
    world w;
    int asked = 0;
    coetcd::client_options o;
    o.insecure_plain_text_credentials = true;
    o.credentials = coetcd::credentials("root", [&] {
        ++asked;
        return std::string("canary");
    });
    w.env->on_call = [serve = w.env->on_call](const call_request& q, coetcd::detail::reply& r) {
        if (q.what == rpc::authenticate) {
            CHECK(q.body == R"({"name":"root","password":"canary"})");
            r.status = 200;
            r.body = R"({"header":{"cluster_id":"14841639068965178418"},"token":"t.1"})";
        } else {
            CHECK(q.token == "t.1");
            CHECK(q.body.find("canary") == q.body.npos);
            serve(q, r);
        }
    };
    const coetcd::client client = w.client(o);
    CHECK(asked == 0);
    (void)w.await(client.put("k", "v"));
    (void)w.await(client.get("k"));
    CHECK(asked == 1);
}

TEST_CASE("sec.token.callback: a token of the user's own is asked for when it is needed, and goes "
          "with each request",
          "[client][auth]") {
    world w;
    int asked = 0;
    coetcd::client_options o;
    o.insecure_plain_text_credentials = true;
    o.token = [&] { return "canary." + std::to_string(++asked); };
    std::string valid = "canary.1";
    w.env->on_call = [&, serve = w.env->on_call](const call_request& q, coetcd::detail::reply& r) {
        CHECK(q.what != rpc::authenticate);
        CHECK(q.body.find("canary") == q.body.npos);
        if (q.token == valid) {
            serve(q, r);
        } else {
            r.status = 401;
            r.body = R"({"code":16,"message":"etcdserver: invalid auth token"})";
        }
    };
    const coetcd::client client = w.client(o);
    CHECK(asked == 0);
    (void)w.await(client.put("k", "v"));
    (void)w.await(client.get("k"));
    CHECK(asked == 1);
    valid = "canary.2";                  // the first one is valid no longer
    (void)w.await(client.put("k", "w")); // etcd has done nothing when it refuses a token
    CHECK(asked == 2);

    valid = "none that we know of";
    auto refused = w.start(client.get("k"));
    w.env->pass(6s);
    try {
        (void)refused.get();
        FAIL("it was answered");
    } catch (const coetcd::error& e) {
        CHECK(e.code() == server_errc::unauthenticated);
        CHECK(std::string(e.what()).find("canary") == std::string::npos);
    }
    CHECK(asked >= 3);
    CHECK(asked < 20); // with pauses that grow
}

TEST_CASE("sec.token.broken: a callback that gives no token fails the calls, and says why",
          "[client][auth]") {
    const std::pair<std::function<std::string()>, const char*> rows[] = {
        {[]() -> std::string { throw std::runtime_error("canary"); }, "threw an exception"},
        {[] { return std::string(); }, "gave no token"},
        {[] { return std::string("canary 1"); }, "gave no token"},
        {[] { return std::string("canary\r\nX: y"); }, "gave no token"},
        {[] { return std::string(5000, 'c'); }, "gave no token"},
    };
    for (const auto& [token, why] : rows) {
        world w;
        coetcd::client_options o;
        o.insecure_plain_text_credentials = true;
        o.token = token;
        const coetcd::client client = w.client(o);
        auto reading = w.start(client.get("k"));
        w.env->pass(10s);
        try {
            (void)reading.get();
            FAIL("it was sent");
        } catch (const coetcd::error& e) {
            CHECK(e.code() == errc::login_failed);
            CHECK_THAT(std::string(e.what()), support::contains(why));
            CHECK(std::string(e.what()).find("canary") == std::string::npos);
        }
        CHECK(w.env->calls.empty());
    }
}

TEST_CASE("a token is kept from the clear, and from other credentials", "[client][auth]") {
    world w;
    coetcd::client_options o;
    o.token = [] { return std::string("t"); };
    CHECK_THROWS_AS(w.client(o), std::invalid_argument); // http to another host
    CHECK_NOTHROW(w.client("http://127.0.0.1:1", o));
    o.insecure_plain_text_credentials = true;
    CHECK_NOTHROW(w.client(o));
    o.credentials = coetcd::credentials("root", "secret");
    CHECK_THROWS_AS(w.client(o), std::invalid_argument);
}

TEST_CASE("endpoints are replaced, for everything that the client has", "[client][endpoints]") {
    world w;
    const coetcd::client client = w.client({"http://a", "http://b"});
    const coetcd::session s = w.await(coetcd::session::open(client, 6s));
    coetcd::mutex m(s, "m");
    w.await(m.lock());
    auto late = w.start(client.get("k")); // it is under way
    client.with_timeout(1s).set_endpoints({"http://c", "http://d:1"});
    REQUIRE(w.env->kept.size() == 1);
    CHECK(w.env->kept[0].size() == 2);
    w.env->pass(1s);
    REQUIRE(late.ended());
    w.env->calls.clear();
    (void)w.await(client.put("k", "v"));
    w.env->pass(30s);
    CHECK(m.owns_lock());
    CHECK(w.await(m.unlock()));
    REQUIRE(w.env->calls.size() > 5); // renewals, too
    for (const call_request& q : w.env->calls) {
        CHECK((q.to.host == "c" || q.to.host == "d"));
    }
}

TEST_CASE("what was learned is forgotten with the endpoints that told it", "[client][endpoints]") {
    world w;
    coetcd::client_options o;
    o.member_refresh = 10s;
    w.env->on_call = [serve = w.env->on_call](const call_request& q, coetcd::detail::reply& r) {
        if (q.what == rpc::member_list) {
            r.status = 200;
            r.body =
                R"({"header":{"cluster_id":"14841639068965178418"},"members":[{"clientURLs":["http://of-)" +
                q.to.host + R"(:2379"]}]})";
        } else {
            serve(q, r);
        }
    };
    const auto known = [&] {
        std::string hosts;
        for (const auto& each : w.env->kept.back()) {
            hosts += each.host + " ";
        }
        return hosts;
    };
    const coetcd::client client = w.client("http://a", o);
    w.env->pass(1s);
    (void)w.await(client.get("k"));
    w.env->pass(1s);
    REQUIRE(known() == "a of-a ");
    client.set_endpoints("http://b");
    CHECK(known() == "b ");
    w.env->pass(31s);
    (void)w.await(client.get("k"));
    w.env->pass(1s);
    CHECK(known() == "b of-b ");
}

TEST_CASE("endpoints that cannot be right replace none", "[client][endpoints]") {
    world w;
    coetcd::client_options o;
    o.credentials = coetcd::credentials("root", "secret");
    o.insecure_plain_text_credentials = false;
    grant_logins(w);
    const coetcd::client client = w.client("http://127.0.0.1:1", o);
    CHECK_THROWS_AS(client.set_endpoints(std::vector<std::string>()), std::invalid_argument);
    CHECK_THROWS_AS(client.set_endpoints("ftp://a"), std::invalid_argument);
    CHECK_THROWS_AS(client.set_endpoints({"http://127.0.0.1:2", "https://a"}),
                    std::invalid_argument);
    CHECK_THROWS_AS(client.set_endpoints("http://elsewhere"),
                    std::invalid_argument); // in the clear
    CHECK(w.env->kept.empty());
    (void)w.await(client.put("k", "v"));
    CHECK(w.env->calls.back().to.port == 1);
    coetcd::client moved = client;
    const coetcd::client taken = std::move(moved);
    CHECK_THROWS_AS(moved.set_endpoints("http://127.0.0.1:2"), std::logic_error);
}
