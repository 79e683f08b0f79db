// SPDX-License-Identifier: BSL-1.0
// What sessions and locks make of answers that are not etcd's: nothing that lasts.
#include <coetcd/mutex.hpp>

#include <memory>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"

using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::session_state;
using coetcd::detail::call_request;
using coetcd::detail::reply;
using coetcd::detail::rpc;
using support::scripted_env;
using support::world;

namespace {

/// What proxies, other servers, and members without a gateway answer.
struct page {
    unsigned status;
    const char* body;
    bool too_large = false; ///< It was not read to its end.
    void answer(reply& r) const {
        r.status = status;
        r.body = body;
        r.ec = too_large ? coetcd::error_code(errc::too_large) : coetcd::error_code();
    }
};
const page sites[] = {{200, "<html>hello</html>"},
                      {200, ""},
                      {200, "{}"},
                      {302, ""},
                      {400, "<html>400 The plain HTTP request was sent to HTTPS port</html>"},
                      {401, "<html>401 Authorization Required</html>"},
                      {403, "<html>403 Forbidden</html>"},
                      {404, "404 page not found\n"},
                      {404, R"({"code":5,"message":"Not Found","details":[]})"},
                      {429, "<html>429 Too Many Requests</html>"},
                      {502, "<html>502 Bad Gateway</html>"},
                      {200, "<html>", true},
                      {403, "<html>", true},
                      {0, "", true}};

/// A cluster of three behind something that may answer in their place.
struct cluster {
    cluster()
        : client(w.client(coetcd::endpoints("http://a:2379", "http://b:2379", "http://c:2379"))) {
        w.env->on_call = [this, serve = w.env->on_call](const call_request& q, reply& r) {
            if (instead && (bad.empty() || q.to.host == bad)) {
                ++hits;
                instead->answer(r);
                return;
            }
            serve(q, r);
        };
        w.env->on_open = [this,
                          serve = w.env->on_open](const call_request& q,
                                                  std::shared_ptr<scripted_env::server_stream> s) {
            if (instead && (bad.empty() || q.to.host == bad)) {
                ++hits;
                reply no;
                instead->answer(no);
                s->push(std::move(no));
                return;
            }
            serve(q, s);
        };
    }

    world w;
    coetcd::client client;
    const page* instead = nullptr; ///< Null: etcd answers.
    std::string bad;               ///< Only this host; empty: all.
    int hits = 0;
};

} // namespace

TEST_CASE("one endpoint that does not lead to etcd is of no account", "[not_etcd]") {
    for (const page& each : sites) {
        CAPTURE(each.status, each.body);
        cluster c;
        world& w = c.w;
        const coetcd::session session = w.await(coetcd::session::open(c.client, {10s}));
        coetcd::mutex mutex(session, "m");
        w.await(mutex.lock());
        c.bad = w.env->calls.back().to.host; // where all goes
        c.instead = &each;
        w.env->pass(12s);
        REQUIRE(session.state() == session_state::active);
        for (int i = 0; i != 20; ++i) {
            auto got = w.start(c.client.get("x"));
            w.env->pass(200ms);
            REQUIRE(got.succeeded());
        }
        REQUIRE(w.await(mutex.unlock()));
        w.await(mutex.lock());
        CHECK(c.hits < 10); // it is asked now and then
        c.hits = 0;
        w.env->pass(10min); // even if it never gets better
        REQUIRE(session.state() == session_state::active);
        CHECK(c.hits < 100);
    }
}

TEST_CASE("a wait for a lock rides out what is not etcd's", "[not_etcd][mutex]") {
    for (const page& each : sites) {
        if (std::string(each.body).find("\"code\"") != std::string::npos) {
            continue; // no member knows transactions: that is etcd's word
        }
        CAPTURE(each.status, each.body);
        for (const auto moment : {0ms, 1ms, 3ms, 5ms, 300ms}) {
            CAPTURE(moment.count());
            cluster c;
            world& w = c.w;
            const coetcd::session one = w.await(coetcd::session::open(c.client, {60s}));
            const coetcd::session two = w.await(coetcd::session::open(c.client, {60s}));
            coetcd::mutex first(one, "m");
            coetcd::mutex second(two, "m");
            w.await(first.lock());
            auto waiting = w.start(second.lock());
            w.env->pass(moment);
            c.instead = &each;
            w.env->break_streams();
            w.env->pass(12s);
            REQUIRE_FALSE(waiting.ended());
            (void)w.start(first.unlock());
            w.env->pass(8s);
            REQUIRE_FALSE(waiting.ended());
            c.instead = nullptr;
            w.env->pass(15s);
            REQUIRE(waiting.succeeded());
            REQUIRE(two.state() == session_state::active);
            REQUIRE(one.state() == session_state::active);
            REQUIRE(w.await(second.unlock()));
            w.env->pass(1s);
            REQUIRE(w.etcd->under("m/").empty());
        }
    }
}

TEST_CASE("a clean-up rides out what is not etcd's", "[not_etcd][mutex]") {
    for (const page& each : sites) {
        if (std::string(each.body).find("\"code\"") != std::string::npos) {
            continue;
        }
        CAPTURE(each.status, each.body);
        cluster c;
        world& w = c.w;
        const coetcd::session session = w.await(coetcd::session::open(c.client, {60s}));
        {
            coetcd::mutex mutex(session, "m");
            w.await(mutex.lock());
            c.instead = &each;
        }
        w.env->pass(20s);
        REQUIRE(session.state() != session_state::lost);
        c.instead = nullptr;
        w.env->pass(10s);
        REQUIRE(session.state() == session_state::active);
        REQUIRE(w.etcd->under("m/").empty());
    }
}

TEST_CASE("a login rides out what is not etcd's", "[not_etcd][auth]") {
    for (const page& each : sites) {
        if (std::string(each.body).find("\"code\"") != std::string::npos) {
            continue;
        }
        CAPTURE(each.status, each.body);
        cluster c;
        world& w = c.w;
        w.etcd->require_user("shop", "pw");
        coetcd::client_options o;
        o.credentials = coetcd::credentials("shop", "pw");
        o.insecure_plain_text_credentials = true;
        c.client = w.client(coetcd::endpoints("http://a:1", "http://b:1"), o);
        c.instead = &each;
        auto got = w.start(c.client.get("x"));
        w.env->pass(3s);
        REQUIRE_FALSE(got.ended());
        c.instead = nullptr;
        w.env->pass(3s);
        REQUIRE(got.succeeded());
    }
}
