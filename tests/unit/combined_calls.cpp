// SPDX-License-Identifier: BSL-1.0
// Calls of users that travel together.
#include <coetcd/client.hpp>

#include <chrono>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"

using namespace std::chrono_literals;
using coetcd::compare;
using coetcd::errc;
using coetcd::key_range;
using coetcd::op;
using coetcd::put_options;
using coetcd::server_errc;
using coetcd::detail::call_request;
using coetcd::detail::reply;
using coetcd::detail::rpc;
using support::background;
using support::failure_of;
using support::scripted_env;
using support::world;

namespace {

coetcd::client_options combined() {
    coetcd::client_options o;
    o.combine_calls = true;
    return o;
}

struct fixture {
    fixture()
        : client(w.client(combined())) {
        (void)w.await(client.put("there", "1"));
        w.env->calls.clear();
    }

    template<class T>
    background<T>& start(std::vector<std::unique_ptr<background<T>>>& all,
                         boost::asio::awaitable<T> work) {
        all.push_back(
            std::unique_ptr<background<T>>(new background<T>(*w.context, std::move(work))));
        return *all.back();
    }
    background<coetcd::put_response>& put(const std::string& key, put_options how = {}) {
        return start(puts, client.put(key, "v", how));
    }
    background<std::optional<coetcd::key_value>>& get(const std::string& key) {
        return start(gets, client.get(key));
    }
    background<coetcd::erase_response>& erase(key_range keys) {
        return start(erases, client.erase(std::move(keys)));
    }
    background<coetcd::txn_response>& txn(coetcd::txn what) {
        return start(txns, client.txn(std::move(what)));
    }
    void finish() { w.env->pass(1min); }
    /// Two requests of each kind are under way, and stay so for a while: others gather.
    void occupy() {
        for (const char* key : {"busy 1", "busy 2"}) {
            put(key);
            get(key);
            w.env->pass(0s);
        }
        REQUIRE(w.env->calls.size() == 4);
        w.env->calls.clear();
    }
    std::size_t requests() const { return w.env->calls.size(); }
    /// Fails as etcd does that carries out nothing, whatever shares the request with this key.
    void refuse(const std::string& key, const std::string& error) {
        std::string quoted = "\"" + key + "\"";
        w.env->on_call = [serve = w.env->on_call, quoted, error](const call_request& q, reply& r) {
            if (q.body.find(quoted) != std::string::npos) {
                r.status = 400;
                r.body = error;
            } else {
                serve(q, r);
            }
        };
    }

    world w;
    coetcd::client client;
    std::vector<std::unique_ptr<background<coetcd::put_response>>> puts;
    std::vector<std::unique_ptr<background<std::optional<coetcd::key_value>>>> gets;
    std::vector<std::unique_ptr<background<coetcd::erase_response>>> erases;
    std::vector<std::unique_ptr<background<coetcd::txn_response>>> txns;
};

} // namespace

TEST_CASE("calls go by themselves unless it is said otherwise", "[combined_calls]") {
    world w;
    const coetcd::client client = w.client();
    auto a = w.start(client.put("a", ""));
    auto b = w.start(client.put("b", ""));
    auto c = w.start(client.get("a"));
    w.env->pass(1s);
    CHECK(a.succeeded());
    CHECK(b.succeeded());
    CHECK(c.succeeded());
    CHECK(w.env->calls.size() == 3);
}

TEST_CASE("calls that are made at once go together, and each has its own answer",
          "[combined_calls]") {
    fixture f;
    auto& a = f.put("a");
    auto& b = f.put("b");
    auto& holds = f.txn(coetcd::txn().when(compare::value("there") == "1").then(op::put("c", "")));
    auto& fails = f.txn(coetcd::txn()
                            .when(compare::value("there") == "2")
                            .then(op::put("d", ""), op::put("e", "")));
    auto& reads = f.get("there");
    auto& finds_none = f.get("nowhere");
    auto& says_why = f.txn(coetcd::txn()
                               .when(compare::value("there") == "2")
                               .then(op::range("a"))
                               .otherwise(op::range("there")));
    f.finish();
    CHECK(f.requests() == 2); // one that changes, one that reads
    const std::int64_t at = a.get().header.revision;
    CHECK(at == f.w.etcd->revision);
    CHECK(b.get().header.revision == at);
    const coetcd::txn_response held = holds.get();
    CHECK(held.succeeded);
    CHECK(held.header.revision == at);
    CHECK(held.responses.size() == 1);
    const coetcd::txn_response failed = fails.get();
    CHECK_FALSE(failed.succeeded);
    CHECK(failed.responses.empty());
    CHECK(f.w.etcd->keys.contains("c"));
    CHECK_FALSE(f.w.etcd->keys.contains("d"));
    const std::optional<coetcd::key_value> found = reads.get();
    REQUIRE(found);
    CHECK(found->value == "1");
    CHECK_FALSE(finds_none.get());
    const coetcd::txn_response told = says_why.get();
    CHECK_FALSE(told.succeeded);
    CHECK(told.responses.at(0).range().kvs.at(0).value == "1");
    CHECK(told.header.revision != 0);
}

TEST_CASE("many go in few requests", "[combined_calls]") {
    fixture f;
    for (int i = 0; i != 512; ++i) {
        f.put("k" + std::to_string(i));
    }
    f.finish();
    CHECK(f.requests() <= 10);
    for (auto& each : f.puts) {
        REQUIRE(each->succeeded());
    }
}

TEST_CASE("calls about one key are carried out one after the other", "[combined_calls]") {
    fixture f;
    auto& first = f.put("a");
    auto& second = f.put("a");
    auto& neighbour = f.put("b");
    f.finish();
    CHECK(f.requests() == 2);
    CHECK(first.get().header.revision != second.get().header.revision);
    CHECK(first.get().header.revision == neighbour.get().header.revision);
    CHECK(f.w.etcd->keys.at("a").version == 2);
}

TEST_CASE("erasing does not wait for what cannot be put", "[combined_calls]") {
    fixture f;
    f.w.etcd->no_space = true;
    auto& put = f.put("a");
    auto& erase = f.erase("there");
    f.finish();
    CHECK(failure_of(put).code() == server_errc::resource_exhausted);
    CHECK(erase.get().deleted == 1);
}

TEST_CASE("one that is refused does not have others refused", "[combined_calls]") {
    fixture f;
    put_options no_lease;
    no_lease.lease = 4711;
    std::vector<background<coetcd::put_response>*> good;
    for (int i = 0; i != 20; ++i) {
        good.push_back(&f.put("k" + std::to_string(i)));
    }
    auto& bad = f.put("x", no_lease);
    f.finish();
    CHECK(failure_of(bad).code() == server_errc::not_found);
    for (auto* each : good) {
        CHECK(each->succeeded());
    }
    CHECK(f.requests() < 15);
}

TEST_CASE("one that may not touch its key goes by itself from then on", "[combined_calls]") {
    fixture f;
    f.refuse("c2VjcmV0", R"({"code":7,"message":"etcdserver: permission denied"})"); // secret
    auto& a = f.put("a");
    auto& secret = f.put("secret");
    auto& b = f.put("b");
    f.w.env->pass(1s);
    CHECK(a.succeeded());
    CHECK(b.succeeded());
    CHECK(failure_of(secret).code() == server_errc::permission_denied);
    f.w.env->calls.clear();
    auto& again = f.put("secret");
    auto& c = f.put("c");
    f.w.env->pass(1s);
    CHECK(failure_of(again).code() == server_errc::permission_denied);
    CHECK(c.succeeded());
    CHECK(f.requests() == 2);
}

TEST_CASE("a lost answer leaves all that shared it in doubt, and none is repeated",
          "[combined_calls]") {
    fixture f;
    f.w.env->decide = [](const call_request&) {
        scripted_env::fate lost;
        lost.breaks = true;
        return lost;
    };
    auto& a = f.put("a");
    auto& b = f.put("b");
    f.w.env->pass(1s);
    CHECK(f.requests() == 1);
    CHECK(failure_of(a).code() == errc::outcome_unknown);
    CHECK(failure_of(b).code() == errc::outcome_unknown);
    CHECK(std::string(failure_of(b).what()).find("http://etcd:2379") != std::string::npos);
    CHECK(f.w.etcd->keys.at("a").version == 1);
}

TEST_CASE("what only reads is asked for again", "[combined_calls]") {
    fixture f;
    bool first = true;
    f.w.env->decide = [&first](const call_request&) {
        scripted_env::fate lost;
        lost.breaks = std::exchange(first, false);
        return lost;
    };
    auto& a = f.get("there");
    auto& b = f.get("nowhere");
    f.w.env->pass(1s);
    CHECK(f.requests() == 2);
    CHECK(a.get()->value == "1");
    CHECK_FALSE(b.get());
}

TEST_CASE("calls that were carried out, perhaps, are not made again in smaller requests",
          "[combined_calls]") {
    fixture f;
    // etcd says so of a request that it has carried out, too.
    f.refuse("YQ==", R"({"code":8,"message":"etcdserver: mvcc: database space exceeded"})"); // a
    auto& a = f.put("a");
    auto& b = f.put("b");
    f.w.env->pass(1s);
    CHECK(f.requests() == 1);
    CHECK(failure_of(a).code() == server_errc::resource_exhausted);
    CHECK(failure_of(b).code() == server_errc::resource_exhausted);
}

TEST_CASE("one that is cancelled before its request leaves is not sent", "[combined_calls]") {
    fixture f;
    f.w.env->round_trip = 100ms;
    f.occupy();
    auto& a = f.put("a");
    auto& b = f.put("b");
    f.w.env->pass(1ms);
    a.cancel();
    f.w.env->pass(0s);
    CHECK(a.ended());
    f.finish();
    CHECK(b.succeeded());
    CHECK_FALSE(f.w.etcd->keys.contains("a"));
}

TEST_CASE("one that is cancelled under way does not concern the others", "[combined_calls]") {
    fixture f;
    auto& a = f.put("a");
    auto& b = f.put("b");
    f.w.env->pass(1ms);
    a.cancel();
    f.w.env->pass(0s);
    CHECK(a.ended());
    f.finish();
    CHECK(b.succeeded());
    CHECK(f.w.etcd->keys.contains("a"));
}

TEST_CASE("one whose time is over does not wait for those that it shares a request with",
          "[combined_calls]") {
    fixture f;
    f.w.env->decide = [](const call_request&) {
        scripted_env::fate late;
        late.late = 1s;
        return late;
    };
    const coetcd::client hasty = f.client.with_timeout(200ms);
    auto changes = f.w.start(hasty.put("a", ""));
    auto reads = f.w.start(hasty.get("there"));
    auto& others_put = f.put("b");
    auto& others_get = f.get("there");
    f.w.env->pass(201ms);
    REQUIRE(changes.ended());
    REQUIRE(reads.ended());
    const coetcd::error unknown = failure_of(changes);
    CHECK(unknown.code() == errc::outcome_unknown);
    CHECK(std::string(unknown.what()).find("http://etcd:2379") != std::string::npos);
    CHECK(failure_of(reads).code() == errc::timed_out);
    f.finish();
    CHECK(others_put.succeeded());
    CHECK(others_get.succeeded());
}

TEST_CASE("one that was not sent in time has changed nothing", "[combined_calls]") {
    fixture f;
    f.w.env->round_trip = 1s;
    f.occupy();
    const coetcd::client hasty = f.client.with_timeout(3ms);
    auto late = f.w.start(hasty.put("a", ""));
    f.w.env->pass(100ms);
    CHECK(failure_of(late).code() == errc::timed_out);
    f.finish();
    CHECK_FALSE(f.w.etcd->keys.contains("a"));
}

TEST_CASE("some calls go by themselves", "[combined_calls]") {
    fixture f;
    put_options prev;
    prev.prev_kv = true;
    coetcd::erase_options prevs;
    prevs.prev_kv = true;
    coetcd::range_options here;
    here.serializable = true;
    (void)f.start(f.puts, f.client.put("a", "", prev));
    (void)f.start(f.erases, f.client.erase("there", prevs));
    f.txn(coetcd::txn().then(op::put("b", ""), op::range("b")));
    f.txn(coetcd::txn().then(op::nested(coetcd::txn().then(op::put("c", "")))));
    f.txn(coetcd::txn().then(op::range("there", here)));
    auto range = f.w.start(f.client.range("there"));
    f.finish();
    CHECK(range.succeeded());
    CHECK(f.requests() == 6);
    CHECK(f.erases.front()->get().prev_kvs.size() == 1);
    for (auto& each : f.txns) {
        CHECK(each->succeeded());
    }
}

TEST_CASE("what counts keys, and what returns only that, shares a request", "[combined_calls]") {
    fixture f;
    coetcd::range_options count;
    count.count_only = true;
    auto& counts = f.txn(coetcd::txn().then(op::put("a", ""), op::range("there", count)));
    f.put("b");
    f.finish();
    CHECK(f.requests() == 1);
    CHECK(counts.get().responses.at(1).range().count == 1);
}

TEST_CASE("answers that are too large together are asked for in smaller requests",
          "[combined_calls]") {
    world w;
    coetcd::client_options o = combined();
    o.max_answer = 4096;
    const coetcd::client client = w.client(o);
    for (int i = 0; i != 8; ++i) {
        w.etcd->write("k" + std::to_string(i), std::string(800, 'x'));
    }
    w.env->on_call = [serve = w.env->on_call](const call_request& q, reply& r) {
        serve(q, r);
        if (r.body.size() > 4096) {
            r.ec = errc::too_large;
        }
    };
    const auto read_all = [&] {
        w.env->calls.clear();
        std::vector<std::unique_ptr<background<std::optional<coetcd::key_value>>>> all;
        for (int i = 0; i != 8; ++i) {
            all.push_back(std::unique_ptr<background<std::optional<coetcd::key_value>>>(
                new background<std::optional<coetcd::key_value>>(
                    *w.context, client.get("k" + std::to_string(i)))));
        }
        w.env->pass(5s);
        for (auto& each : all) {
            REQUIRE(each->succeeded());
        }
        return w.env->calls.size();
    };
    CHECK(read_all() > 4);
    CHECK(read_all() <= 4); // it is remembered
}

TEST_CASE("what cannot be written is an error at once, of nobody else", "[combined_calls]") {
    fixture f;
    coetcd::range_options wrong;
    wrong.limit = -1;
    auto& good = f.get("there");
    CHECK_THROWS_AS(f.client.txn(coetcd::txn().then(op::range("there", wrong))),
                    std::invalid_argument);
    CHECK_THROWS_AS(f.client.put("", ""), std::invalid_argument);
    f.finish();
    CHECK(good.succeeded());
    CHECK(f.requests() == 1);
}

TEST_CASE("calls that are under way need no client", "[combined_calls]") {
    world w;
    std::optional<coetcd::client> client(w.client(combined()));
    auto a = w.start(client->put("a", ""));
    auto b = w.start(client->put("b", ""));
    client.reset();
    w.env->pass(1s);
    CHECK(a.succeeded());
    CHECK(b.succeeded());
    CHECK(w.env->calls.size() == 1);
}
