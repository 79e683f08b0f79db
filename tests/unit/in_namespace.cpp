// SPDX-License-Identifier: BSL-1.0
// Keys below a prefix: what etcd sees, and what the program sees. What all recipes do there is in
// in_namespace_recipes.cpp.
#include <coetcd/client.hpp>
#include <coetcd/detail/access.hpp>
#include <coetcd/detail/wire/base64.hpp>
#include <coetcd/exactly_once.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/observer.hpp>
#include <coetcd/session.hpp>
#include <coetcd/verify.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"

using namespace std::chrono_literals;
using coetcd::client;
using coetcd::compare;
using coetcd::errc;
using coetcd::key_range;
using coetcd::op;
using coetcd::server_errc;
using coetcd::session;
using coetcd::detail::call_request;
using coetcd::detail::reply;
using coetcd::detail::rpc;
using support::failure_of;
using support::scripted_env;
using support::world;

namespace {

using strings = std::vector<std::string>;

std::string base64(std::string_view bytes) {
    std::string text;
    coetcd::detail::wire::append_base64(text, bytes);
    return text;
}

/// All keys that etcd has.
strings keys_of(const world& w) {
    strings all;
    for (const auto& [key, record] : w.etcd->keys) {
        all.push_back(key);
    }
    return all;
}

strings keys_of(const std::vector<coetcd::key_value>& kvs) {
    strings all;
    for (const coetcd::key_value& kv : kvs) {
        all.push_back(kv.key);
    }
    return all;
}

/// etcd names another key in its answers.
void rename_in_answers(world& w, const std::string& from, const std::string& to) {
    w.env->on_call = [serve = w.env->on_call, old = '"' + base64(from) + '"', to](
                         const call_request& q, reply& r) {
        serve(q, r);
        for (auto at = r.body.find(old); at != r.body.npos; at = r.body.find(old)) {
            r.body.replace(at, old.size(), '"' + base64(to) + '"');
        }
    };
}

/// Two programs, one of which has a namespace; both want the same lock.
struct lock_neighbours {
    lock_neighbours()
        : plain(w.client())
        , inside(w.client().in_namespace("app/"))
        , one(w.await(session::open(plain, {60s, "plain"})))
        , two(w.await(session::open(inside, {60s, "inside"})))
        , whole(one, "app/m")
        , part(two, "m") {}
    world w;
    client plain;
    client inside;
    session one;
    session two;
    coetcd::mutex whole;
    coetcd::mutex part;
};

class hold_names final : public coetcd::observer {
public:
    void on_lock_hold(const coetcd::lock_hold_report& r) override { names.emplace_back(r.name); }
    strings names;
};

} // namespace

TEST_CASE("a namespace is all that its client sees of etcd", "[namespace]") {
    world w;
    const client plain = w.client();
    const client app = plain.in_namespace("app/");
    for (const char* key : {"a", "app", "app/", "apq", "b"}) {
        (void)w.await(plain.put(key, "outside"));
    }
    (void)w.await(app.put("a", "1"));
    (void)w.await(app.put("\xff", "2"));
    CHECK(w.await(plain.get("app/a"))->value == "1");
    CHECK(w.await(app.get("a"))->key == "a");
    CHECK_FALSE(w.await(app.get("b")));
    const strings both{"a", "\xff"};
    CHECK(keys_of(w.await(app.range(key_range::all())).kvs) == both);
    CHECK(keys_of(w.await(app.range(key_range::from("a"))).kvs) == both);
    CHECK(w.await(app.range(key_range::all(), {.count_only = true})).count == 2);

    const auto everything = coetcd::txn()
                                .when(compare::create_revision(key_range::all()) > 6)
                                .then(op::range(key_range::all()));
    const auto answer = w.await(app.txn(everything));
    REQUIRE(answer.succeeded); // the keys outside are older
    CHECK(keys_of(answer.responses.at(0).range().kvs) == both);

    const auto erased = w.await(app.erase(key_range::all(), {.prev_kv = true}));
    CHECK(keys_of(erased.prev_kvs) == both);
    CHECK(keys_of(w) == strings{"a", "app", "app/", "apq", "b"});
}

TEST_CASE("a namespace whose prefix ends with the last byte ends where it should", "[namespace]") {
    world w;
    const client plain = w.client();
    for (const char* key : {"a\xff", "b", "b/1"}) {
        (void)w.await(plain.put(key, "outside"));
    }
    const client inside = plain.in_namespace("a\xff");
    (void)w.await(inside.put("\xff\xff", "1"));
    CHECK(keys_of(w.await(inside.range(key_range::all())).kvs) == strings{"\xff\xff"});
    coetcd::watcher all = w.await(inside.watch(key_range::all()));
    (void)w.await(plain.put("b", "outside"));
    (void)w.await(inside.put("k", "2"));
    const auto batch = w.await(all.next());
    REQUIRE(batch.events.size() == 1);
    CHECK(batch.events[0].kv.key == "k");
    CHECK(w.await(inside.erase(key_range::all())).deleted == 2);
    CHECK(keys_of(w) == strings{"a\xff", "b", "b/1"});

    const client last = plain.in_namespace("\xff"); // nothing comes after it
    (void)w.await(last.put("k", "3"));
    CHECK(keys_of(w.await(last.range(key_range::all())).kvs) == strings{"k"});
    CHECK(w.await(last.erase(key_range::all())).deleted == 1);
}

TEST_CASE("a watch in a namespace tells its keys, before and after, and resumes", "[namespace]") {
    world w;
    const client plain = w.client();
    const client app = plain.in_namespace("app/");
    (void)w.await(app.put("k", "1"));
    coetcd::watch_options how;
    how.prev_kv = true;
    coetcd::watcher watcher = w.await(app.watch(key_range::prefix("k"), how));
    (void)w.await(plain.put("k", "outside"));
    (void)w.await(plain.put("app/k", "2"));
    const auto changed = w.await(watcher.next());
    REQUIRE(changed.events.size() == 1);
    CHECK(changed.events[0].kv.key == "k");
    REQUIRE(changed.events[0].prev_kv);
    CHECK(changed.events[0].prev_kv->key == "k");
    CHECK(changed.events[0].prev_kv->value == "1");
    w.env->break_streams();
    (void)w.await(app.erase("k"));
    const auto gone = w.await(watcher.next());
    REQUIRE(gone.events.size() == 1);
    CHECK(gone.events[0].kv.key == "k");
    CHECK(gone.events[0].prev_kv->value == "2");
}

TEST_CASE("a lease has keys in the namespace and elsewhere", "[namespace]") {
    world w;
    const client plain = w.client();
    const client app = plain.in_namespace("app/");
    const auto lease = w.await(plain.lease_grant(60s));
    (void)w.await(plain.put("k", "", {.lease = lease.id}));
    (void)w.await(app.put("k", "", {.lease = lease.id}));
    CHECK(w.await(plain.lease_time_to_live(lease.id, true))->keys == strings{"app/k", "k"});
    CHECK(w.await(app.lease_time_to_live(lease.id, true))->keys == strings{"k"});
    CHECK(w.await(app.lease_leases()).leases == std::vector{lease.id});
    CHECK(w.await(app.lease_revoke(lease.id))); // leases are the cluster's
    CHECK(w.etcd->keys.empty());
}

TEST_CASE("namespaces are nested, and an empty one is none", "[namespace]") {
    world w;
    const client plain = w.client();
    const client app = plain.in_namespace("app/");
    (void)w.await(app.in_namespace("eu/").put("k", "1"));
    CHECK(keys_of(w) == strings{"app/eu/k"});
    CHECK(w.await(app.get("eu/k"))->value == "1");
    CHECK(w.await(plain.in_namespace("app/eu/").get("k"))->value == "1");
    using coetcd::detail::access;
    CHECK(access::impl(plain.in_namespace("")) == access::impl(plain));
    CHECK(access::impl(app.in_namespace("")) == access::impl(app));
    CHECK_THROWS_AS(plain.in_namespace(std::string(513, 'p')), std::invalid_argument);
    CHECK_THROWS_AS(app.in_namespace(std::string(509, 'p')), std::invalid_argument);
    (void)app.in_namespace(std::string(508, 'p'));
    client moved = w.client();
    const client to = std::move(moved);
    CHECK_THROWS_AS(moved.in_namespace("app/"), std::logic_error);
    CHECK_THROWS_AS(moved.in_namespace(""), std::logic_error);
}

TEST_CASE("a namespaced client has the timeout and the endpoints of the client that it is of",
          "[namespace]") {
    world w;
    const client plain = w.client();
    const client app = plain.with_timeout(700ms).in_namespace("app/");
    w.env->decide = [](const call_request&) {
        scripted_env::fate f;
        f.arrives = false;
        return f;
    };
    auto reading = w.start(app.get("k"));
    w.env->pass(699ms);
    CHECK_FALSE(reading.ended());
    w.env->pass(1ms);
    CHECK(reading.code() == errc::timed_out);
    w.env->decide = nullptr;
    app.set_endpoints("http://b:2379");
    (void)w.await(plain.put("k", "1"));
    CHECK(w.env->calls.back().to.host == "b");
    plain.set_endpoints("http://c:2379");
    (void)w.await(app.put("k", "1"));
    CHECK(w.env->calls.back().to.host == "c");
}

TEST_CASE("one login serves a client and its namespaces", "[namespace]") {
    world w;
    w.etcd->require_user("u", "p");
    coetcd::client_options how;
    how.credentials = coetcd::credentials("u", "p");
    how.insecure_plain_text_credentials = true;
    const client plain = w.client(how);
    (void)w.await(plain.put("k", "1"));
    (void)w.await(plain.in_namespace("app/").put("k", "2"));
    const auto logins = std::count_if(w.env->calls.begin(), w.env->calls.end(), [](const auto& c) {
        return c.what == rpc::authenticate;
    });
    CHECK(logins == 1);
}

TEST_CASE("a namespaced client outlives the client that it is of", "[namespace]") {
    world w;
    std::optional<client> plain = w.client();
    std::optional<client> app = plain->in_namespace("app/");
    plain.reset();
    (void)w.await(app->put("k", "1"));
    coetcd::watcher watcher = w.await(app->watch("k"));
    auto reading = w.start(app->get("k"));
    app.reset();
    w.env->pass(10ms);
    CHECK(reading.get()->key == "k");
    w.etcd->write("app/k", "2");
    CHECK(w.await(watcher.next()).events.at(0).kv.key == "k");
}

TEST_CASE("calls in a namespace that share requests", "[namespace]") {
    world w;
    coetcd::client_options how;
    how.combine_calls = true;
    const client plain = w.client(how);
    const client app = plain.in_namespace("app/");
    std::vector<support::background<coetcd::put_response>> puts;
    for (int i = 0; i != 20; ++i) {
        puts.push_back(w.start(app.put("k" + std::to_string(i), "v", {.prev_kv = i == 7})));
    }
    auto reading = w.start(app.get("k3"));
    w.env->pass(1s);
    for (auto& each : puts) {
        (void)each.get();
    }
    CHECK(w.env->calls.size() < 10);
    CHECK(w.etcd->under("app/").size() == 20);
    CHECK(w.etcd->keys.size() == 20);
    CHECK(w.await(app.get("k3"))->key == "k3");
    // One that cannot share its request, and one with conditions.
    CHECK(w.await(app.put("k7", "w", {.prev_kv = true})).prev_kv->key == "k7");
    const auto sale = coetcd::txn().when(compare::value("k7") == "w").then(op::range("k7"));
    CHECK(w.await(app.txn(sale)).responses.at(0).range().kvs.at(0).key == "k7");
}

TEST_CASE("an empty key is refused in a namespace as it is elsewhere", "[namespace]") {
    world w;
    const client app = w.client().in_namespace("app/");
    CHECK_THROWS_AS(app.get(""), std::invalid_argument);
    CHECK_THROWS_AS(app.put("", "v"), std::invalid_argument);
    CHECK_THROWS_AS(app.watch(""), std::invalid_argument);
    CHECK(w.env->calls.empty());
    for (const op& each : {op::put("", "v"), op::erase(""), op::range("")}) {
        auto writing = w.start(app.txn(coetcd::txn().then(each)));
        w.env->pass(10ms);
        CHECK(writing.code() == server_errc::invalid_argument);
    }
    CHECK(w.etcd->keys.empty());
    // What cannot be written is refused at once.
    CHECK_THROWS_AS(app.range("k", {.limit = -1}), std::invalid_argument);
}

TEST_CASE("a lock of a namespace is one of other clients, under its whole name",
          "[namespace][mutex]") {
    lock_neighbours all;
    auto& [w, plain, inside, one, two, whole, part] = all;
    w.await(whole.lock());
    CHECK(whole.key().starts_with("app/m/"));
    CHECK_FALSE(w.await(part.try_lock()));
    const auto holder = w.await(part.holder());
    CHECK("app/" + holder->key == whole.key());
    CHECK(holder->label == "plain");

    auto waiting = w.start(part.lock());
    w.env->pass(1s);
    CHECK_FALSE(waiting.ended());
    const auto waiters = w.await(whole.waiters());
    REQUIRE(waiters.size() == 1);
    CHECK(waiters[0].label == "inside");
    w.await(whole.unlock());
    w.env->pass(10ms);
    waiting.get();
    REQUIRE(part.owns_lock());
    CHECK("app/" + part.key() == waiters[0].key);

    auto again = w.start(whole.lock());
    w.env->pass(1s);
    CHECK_FALSE(again.ended());
    two = session(); // all that it holds is given back
    w.env->pass(1s);
    again.get();
    CHECK(whole.owns_lock());
}

TEST_CASE("the proofs of a lock in a namespace are for clients of that namespace",
          "[namespace][mutex]") {
    lock_neighbours all;
    auto& [w, plain, inside, one, two, whole, part] = all;
    const coetcd::held_lock held = w.await(part.scoped_lock());
    const coetcd::sequencer proof = held.sequencer();
    CHECK(w.await(coetcd::verify(inside, "m", proof)));
    CHECK(w.await(coetcd::verify(w.client().in_namespace("app/"), "m", proof)));
    CHECK_FALSE(w.await(coetcd::verify(plain, "m", proof))); // another lock
    CHECK_FALSE(w.await(coetcd::verify(plain, "app/m", proof)));
    const auto work = coetcd::txn().when(held.is_owner()).then(op::put("k", ""));
    CHECK(w.await(inside.txn(work)).succeeded);
    CHECK_FALSE(w.await(plain.txn(work)).succeeded);
    CHECK(w.etcd->keys.contains("app/k"));
}

TEST_CASE("errors and reports have the names that the program knows", "[namespace][mutex]") {
    world w;
    const auto told = std::make_shared<hold_names>();
    coetcd::client_options how;
    how.observer = told;
    const client app = w.client(how).in_namespace("app/");
    const session s = w.await(session::open(app));
    coetcd::mutex lock(s, "m");
    w.await(lock.lock());
    w.await(lock.unlock());
    CHECK(told->names == strings{"m"});
    w.etcd->denied = "app/";
    auto refused = w.start(lock.lock());
    w.env->pass(1s);
    REQUIRE(refused.code() == server_errc::permission_denied);
    const std::string text = failure_of(refused).what();
    CHECK(text.starts_with("mutex \"m\": "));
    CHECK(text.find("the keys from \"app/m.\" up to") != text.npos); // for who grants it
}

TEST_CASE("an answer with a key outside of the namespace is not etcd's", "[namespace]") {
    world w;
    const client app = w.client().in_namespace("app/");
    const session s = w.await(session::open(app));
    (void)w.await(app.put("k", "1"));
    rename_in_answers(w, "app/k", "apq/k");
    auto reading = w.start(app.get("k"));
    auto writing = w.start(app.put("k", "2", {.prev_kv = true}));
    coetcd::exactly_once once(s, "once");
    auto asking = w.start(once.txn(coetcd::txn().then(op::range("k"))));
    w.env->pass(1min);
    CHECK(reading.code() == errc::protocol_error);
    CHECK(writing.code() == errc::outcome_unknown);
    const coetcd::txn_outcome applied = asking.get(); // its marker tells
    CHECK(applied.succeeded);
    CHECK_FALSE(applied.responses.has_value()); // what it read is not told

    coetcd::mutex lock(s, "m");
    w.env->on_call = [serve = w.env->on_call](const call_request& q, reply& r) {
        serve(q, r);
        if (q.what == rpc::txn) { // whatever it reads
            r.body =
                R"({"header":{"cluster_id":"14841639068965178418","revision":"9"},)"
                R"("succeeded":true,"responses":[{"response_range":{"kvs":[{"key":"eA=="}]}}]})";
        }
    };
    auto locking = w.start(lock.try_lock_for(3s));
    w.env->pass(1min);
    CHECK(locking.code() == errc::timed_out); // it has asked again
    CHECK_FALSE(lock.owns_lock());
}

TEST_CASE("an event of a key outside of the namespace ends the stream, and the watch resumes",
          "[namespace]") {
    world w;
    const client app = w.client().in_namespace("app/");
    std::shared_ptr<scripted_env::server_stream> stream;
    w.env->on_open = [&, open = w.env->on_open](const call_request& q, auto opened) {
        stream = opened;
        open(q, std::move(opened));
    };
    coetcd::watcher watcher = w.await(app.watch("k"));
    REQUIRE(w.env->opened.size() == 1);
    stream->push(R"({"result":{"header":{"cluster_id":"14841639068965178418","revision":"9"},)"
                 R"("watch_id":"1","events":[{"kv":{"key":"eA==","mod_revision":"9"}}]}})");
    (void)w.await(app.put("k", "1"));
    const auto batch = w.await(watcher.next());
    REQUIRE(batch.events.size() == 1);
    CHECK(batch.events[0].kv.key == "k");
    CHECK(w.env->opened.size() == 2);
    stream.reset();
}
