// SPDX-License-Identifier: BSL-1.0
// What becomes of a client whose endpoints lead to another cluster, or came to.
#include <coetcd/client.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>
#include <coetcd/timed_claim.hpp>
#include <coetcd/watch.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "support/catch.hpp"
#include "support/world.hpp"

using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::session_end;
using coetcd::session_state;
using coetcd::detail::call_request;
using coetcd::detail::reply;
using coetcd::detail::rpc;
using coetcd::detail::testing::etcd;
using support::failure_of;
using support::world;

namespace {

/// Endpoints a, b and c, each of which may lead to another cluster.
struct two_clusters {
    two_clusters() {
        other.cluster = 4711; // 1267 in etcd's logs
        w.env->decide = [this](const call_request& q) {
            support::scripted_env::fate f;
            f.refused = q.to.host == down;
            return f;
        };
    }
    void stray(const std::string& hosts) {
        for (const char host : hosts) {
            w.env->leads_to[std::string(1, host)] = &other;
        }
        w.env->break_streams();
    }
    void come_back() { w.env->leads_to.clear(); }
    coetcd::client make_client() {
        return w.client(coetcd::endpoints("http://a:2379", "http://b:2379", "http://c:2379"));
    }
    std::size_t sent_to(const std::string& host, std::size_t from = 0) const {
        const auto& all = w.env->calls;
        return static_cast<std::size_t>(std::count_if(
            all.begin() + static_cast<std::ptrdiff_t>(from), all.end(), [&](const call_request& q) {
                return q.to.host == host;
            }));
    }
    std::string where() const { return w.env->calls.back().to.host; }
    std::string others() const {
        std::string all("abc");
        all.erase(all.find(where()), 1);
        return all;
    }

    world w;
    etcd other{[this] { return static_cast<const coetcd::detail::testing::world&>(*w.env).now(); }};
    std::string down;
};

bool mentions(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

} // namespace

TEST_CASE("one endpoint that leads to another cluster is of no account", "[other_cluster]") {
    for (const bool copied : {false, true}) { // it has the same keys and leases, at first
        CAPTURE(copied);
        two_clusters c;
        world& w = c.w;
        const coetcd::client client = c.make_client();
        const coetcd::session session = w.await(coetcd::session::open(client, {10s}));
        coetcd::mutex mutex(session, "m");
        w.await(mutex.lock());
        if (copied) {
            c.other.restore(*w.etcd);
        }
        c.stray(c.where());
        w.env->pass(12s);
        REQUIRE(session.state() == session_state::active);
        CHECK(mutex.owns_lock());
        const std::string bad = w.env->leads_to.begin()->first;
        const std::size_t before = w.env->calls.size();
        for (int i = 0; i != 20; ++i) {
            w.await(client.put("x", std::to_string(i)));
            REQUIRE(w.await(client.get("x"))->value == std::to_string(i));
        }
        CHECK(c.sent_to(bad, before) <= 2);
        REQUIRE(w.await(mutex.unlock()));
        w.await(mutex.lock());
        w.env->pass(10min);
        REQUIRE(session.state() == session_state::active);
    }
}

TEST_CASE("a lock is not to be had of another cluster", "[other_cluster][mutex]") {
    two_clusters c;
    world& w = c.w;
    const coetcd::client client = c.make_client();
    const coetcd::session session = w.await(coetcd::session::open(client, {60s}));
    coetcd::mutex mutex(session, "m");
    c.other.restore(*w.etcd); // which knows the lease
    c.down = c.others().substr(0, 1);
    const std::string last = c.others().substr(1, 1);
    c.stray(c.where() + last);
    auto tried = w.start(mutex.try_lock());
    w.env->pass(30s);
    CHECK(failure_of(tried).code() == errc::timed_out);
    CHECK_FALSE(mutex.owns_lock());
    c.come_back();
    w.env->pass(10s);
    CHECK(w.etcd->under("m/").empty());
    REQUIRE(w.await(mutex.try_lock()));
}

TEST_CASE("what another cluster has written is not written twice", "[other_cluster]") {
    two_clusters c;
    world& w = c.w;
    const coetcd::client client = c.make_client();
    (void)w.await(client.get("x"));
    const std::string bad = c.where();
    c.stray(bad);
    auto writing = w.start(client.put("x", "1"));
    w.env->pass(10s);
    const coetcd::error e = failure_of(writing);
    CHECK(e.code() == errc::wrong_cluster);
    CAPTURE(e.what());
    CHECK(mentions(e.what(), "http://" + bad + ":2379"));
    CHECK(mentions(e.what(), "cluster 1267"));
    CHECK(mentions(e.what(), "cdf818194e3a8c32"));
    CHECK(c.other.keys.contains("x"));
    CHECK_FALSE(w.etcd->keys.contains("x"));
    w.await(client.put("x", "2")); // the endpoint is not the preferred one any more
    CHECK(w.etcd->keys.at("x").value == "2");
}

TEST_CASE("a watch goes on elsewhere", "[other_cluster][watch]") {
    for (const bool copied : {false, true}) {
        CAPTURE(copied);
        two_clusters c;
        world& w = c.w;
        const coetcd::client client = c.make_client();
        w.await(client.put("x", "1"));
        coetcd::watcher changes = w.await(client.watch("x"));
        if (copied) {
            c.other.restore(*w.etcd);
        }
        c.stray(c.where());
        auto next = w.start(changes.next());
        w.env->pass(5s);
        REQUIRE_FALSE(next.ended());
        w.etcd->write("x", "2");
        w.env->pass(1s);
        REQUIRE(next.succeeded());
        CHECK(next.get().events.at(0).kv.value == "2");
        CHECK(c.other.watches() == 0);
    }
}

TEST_CASE("a cluster that was replaced is taken for the new one", "[other_cluster]") {
    for (const bool copied : {false, true}) {
        CAPTURE(copied);
        two_clusters c;
        world& w = c.w;
        const coetcd::client client = c.make_client();
        const coetcd::session session = w.await(coetcd::session::open(client, {10s}));
        coetcd::mutex mutex(session, "m");
        w.await(mutex.lock());
        coetcd::watcher changes = w.await(client.watch("x"));
        auto next = w.start(changes.next());
        auto lost = w.start(session.wait_lost());
        if (copied) {
            c.other.restore(*w.etcd);
        }
        c.other.revision += 1000; // as with --bump-revision
        c.stray("abc");
        w.env->pass(5s);
        REQUIRE(session.state() == session_state::lost);
        CHECK(session.reason() == session_end::cluster_replaced);
        REQUIRE(lost.succeeded());
        CHECK_FALSE(mutex.owns_lock());
        const coetcd::error e = failure_of(next);
        CHECK(e.code() == errc::revision_regressed);
        CAPTURE(e.what());
        CHECK(mentions(e.what(), "cluster cdf818194e3a8c32 was replaced by cluster 1267"));
        w.env->pass(12s); // the lease, should it be there, is not renewed

        const coetcd::session second = w.await(coetcd::session::open(client, {10s}));
        coetcd::mutex again(second, "m");
        w.await(again.lock());
        CHECK(c.other.under("m/").size() == 1);
        coetcd::watcher anew = w.await(client.watch("x"));
        auto heard = w.start(anew.next());
        c.other.write("x", "3");
        w.env->pass(1s);
        REQUIRE(heard.succeeded());
        w.env->pass(1min);
        REQUIRE(second.state() == session_state::active);
    }
}

TEST_CASE("a call outlasts the change of clusters, within its time", "[other_cluster]") {
    two_clusters c;
    world& w = c.w;
    const coetcd::client client = w.client("http://a:2379");
    (void)w.await(client.get("x"));
    c.stray("a");
    auto reading = w.start(client.get("x"));
    w.env->pass(500ms);
    REQUIRE_FALSE(reading.ended());
    w.env->pass(2s);
    REQUIRE(reading.succeeded());
    const coetcd::session session = w.await(coetcd::session::open(client, {10s}));
    c.come_back(); // and back again
    w.env->pass(8s);
    CHECK(session.reason() == session_end::cluster_replaced);
    CHECK(w.await(client.put("x", "1")).header.cluster_id == w.etcd->cluster);
}

TEST_CASE("a watch that is paused learns it when it goes on", "[other_cluster][watch]") {
    two_clusters c;
    world& w = c.w;
    const coetcd::client client = w.client("http://a:2379");
    coetcd::watch_options small;
    small.buffer = 1;
    coetcd::watcher changes = w.await(client.watch("x", small));
    w.etcd->write("x", "1");
    w.env->pass(1s); // it is unread, and more than the buffer holds
    c.other.restore(*w.etcd);
    c.stray("a");
    auto reading = w.start(client.get("x"));
    w.env->pass(3s);
    REQUIRE(reading.succeeded());
    CHECK(w.await(changes.next()).events.size() == 1);
    auto next = w.start(changes.next());
    w.env->pass(1s);
    CHECK(failure_of(next).code() == errc::revision_regressed);
}

TEST_CASE("it is not replaced as long as one endpoint has not said so", "[other_cluster]") {
    two_clusters c;
    world& w = c.w;
    const coetcd::client client = c.make_client();
    const coetcd::session session = w.await(coetcd::session::open(client, {10s}));
    c.down = c.others().substr(0, 1);
    c.stray("abc");
    auto reading = w.start(client.get("x"));
    w.env->pass(7s);
    const coetcd::error e = failure_of(reading);
    CHECK(e.code() == errc::wrong_cluster);
    CAPTURE(e.what());
    CHECK(mentions(e.what(), "the deadline passed; last: it leads to cluster 1267"));
    w.env->pass(8s);
    CHECK(session.reason() == session_end::deadline);
    c.come_back();
    w.env->pass(10s);
    CHECK(w.await(client.put("x", "1")).header.cluster_id == w.etcd->cluster);
}

TEST_CASE("errors of an endpoint that has strayed are no more ours than its answers",
          "[other_cluster]") {
    two_clusters c;
    world& w = c.w;
    const coetcd::client client = c.make_client();
    (void)w.await(client.get("x"));
    const std::string bad = c.where();
    c.stray(bad);
    auto writing = w.start(client.put("x", "1"));
    w.env->pass(1s);
    CHECK(failure_of(writing).code() == errc::wrong_cluster);
    c.other.require_user("root", "secret"); // it refuses all
    for (int i = 0; i != 50; ++i) {
        auto reading = w.start(client.get("x"));
        w.env->pass(1s);
        REQUIRE(reading.succeeded());
    }
    CHECK(c.sent_to(bad) > 2);
}

TEST_CASE("an error of an endpoint that has strayed may be our cluster's again",
          "[other_cluster]") {
    two_clusters c;
    world& w = c.w;
    const coetcd::client client = w.client("http://a:2379");
    (void)w.await(client.get("x"));
    c.stray("a");
    auto first = w.start(client.put("x", "1"));
    w.env->pass(100ms);
    CHECK(failure_of(first).code() == errc::wrong_cluster);
    c.come_back();
    w.env->on_call = [serve = w.env->on_call](const call_request& q, reply& r) {
        if (q.what == rpc::put) { // it may be carried out later
            r.status = 503;
            r.body = R"({"code":14,"message":"etcdserver: request timed out"})";
        } else {
            serve(q, r);
        }
    };
    auto second = w.start(client.put("x", "2"));
    w.env->pass(100ms);
    CHECK(failure_of(second).code() == errc::outcome_unknown);
}

TEST_CASE("a cluster that refuses all that it is asked for is asked which one it is",
          "[other_cluster]") {
    two_clusters c;
    world& w = c.w;
    const coetcd::client client = w.client("http://a:2379");
    const coetcd::lease_id lease = w.await(client.lease_grant(60s)).id;
    c.stray("a");
    auto writing = w.start(client.put("x", "1"));
    w.env->pass(1s);
    CHECK(failure_of(writing).code() == errc::wrong_cluster);
    auto revoking = w.start(client.lease_revoke(lease)); // there is no such lease
    w.env->pass(4s);
    REQUIRE(revoking.succeeded());
    CHECK_FALSE(revoking.get());
}

TEST_CASE("a lease that another cluster does not know is revoked", "[other_cluster][lease]") {
    two_clusters c;
    world& w = c.w;
    const coetcd::client client = c.make_client();
    const coetcd::lease_id lease = w.await(client.lease_grant(60s)).id;
    c.stray(c.where());
    CHECK(w.await(client.lease_revoke(lease)));
    CHECK(w.etcd->leases() == 0);
    CHECK_FALSE(w.await(client.lease_revoke(lease)));
    c.come_back();
    w.env->pass(1min);
    // Neither is what is given back: a session, and a claim.
    coetcd::session session = w.await(coetcd::session::open(client, {60s}));
    std::optional<coetcd::timed_claim> claim = w.await(coetcd::try_claim(client, "job", 60s));
    REQUIRE(claim);
    CHECK(w.etcd->leases() == 2);
    c.stray(c.where());
    CHECK(w.await(claim->release()));
    w.await(session.close());
    CHECK(w.etcd->leases() == 0);
}

TEST_CASE("a session opens while its cluster is replaced", "[other_cluster][session]") {
    // What is granted there is not believed, until it is known that all endpoints lead there.
    two_clusters c;
    world& w = c.w;
    const coetcd::client client = c.make_client();
    (void)w.await(client.get("x"));
    c.stray("abc");
    auto opening = w.start(coetcd::session::open(client, {60s}));
    w.env->pass(20s);
    REQUIRE(opening.succeeded());
    const coetcd::session session = opening.get();
    CHECK(session.state() == session_state::active);
    w.env->pass(2min); // what was drawn in vain ends by itself
    CHECK(c.other.leases() == 1);
    CHECK(w.etcd->leases() == 0);
}

TEST_CASE("a lease whose end no member can confirm may be there", "[other_cluster][lease]") {
    two_clusters c;
    world& w = c.w;
    const coetcd::client client = c.make_client();
    const coetcd::lease_id lease = w.await(client.lease_grant(60s)).id;
    c.stray(c.where());
    const std::string bad = c.where();
    w.env->decide = [&](const call_request& q) {
        support::scripted_env::fate f;
        f.refused = q.to.host != bad;
        return f;
    };
    auto revoking = w.start(client.lease_revoke(lease));
    w.env->pass(30s);
    const coetcd::error e = failure_of(revoking);
    CAPTURE(e.what());
    CHECK(w.etcd->leases() == 1);
    CHECK(e.code() != coetcd::server_errc::not_found);
}

TEST_CASE("a cluster that wants a new token before it tells its identity gets one",
          "[other_cluster][auth]") {
    two_clusters c;
    world& w = c.w;
    w.etcd->require_user("root", "secret");
    coetcd::client_options options;
    options.credentials.emplace("root", std::string("secret"));
    options.insecure_plain_text_credentials = true;
    const coetcd::client client = w.client(coetcd::endpoints("http://a:2379"), options);
    w.await(client.put("x", "1"));
    c.stray("a");
    auto first = w.start(client.get("x"));
    w.env->pass(100ms); // it is known to have strayed, and not yet to have taken its place
    c.other.require_user("root", "secret");
    c.other.expire_tokens();
    w.env->pass(20s);
    CHECK_FALSE(w.await(client.get("x")));
}

TEST_CASE("an answer that names no cluster is not etcd's", "[other_cluster]") {
    // A proxy that writes the fields of JSON in another way: none of them can be read.
    world w;
    const coetcd::client client = w.client("http://a:2379");
    w.env->on_call = [serve = w.env->on_call](const call_request& q, reply& r) {
        serve(q, r);
        const std::string name = "cluster_id";
        if (const auto at = r.body.find(name); at != r.body.npos) {
            r.body.replace(at, name.size(), "clusterId");
        }
    };
    auto reading = w.start(client.get("x"));
    auto opening = w.start(coetcd::session::open(client, {10s}));
    w.env->pass(10s);
    const coetcd::error e = failure_of(reading);
    CHECK(e.code() == errc::protocol_error);
    CAPTURE(e.what());
    CHECK(mentions(e.what(), "the header has no 'cluster_id'"));
    CHECK(mentions(e.what(), "http://a:2379"));
    CHECK_FALSE(opening.succeeded());
}
