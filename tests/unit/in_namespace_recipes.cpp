// SPDX-License-Identifier: BSL-1.0
#include <coetcd/admin.hpp>
#include <coetcd/barrier.hpp>
#include <coetcd/bulk.hpp>
#include <coetcd/counter.hpp>
#include <coetcd/detail/wire/base64.hpp>
#include <coetcd/election.hpp>
#include <coetcd/ephemeral.hpp>
#include <coetcd/exactly_once.hpp>
#include <coetcd/fencing_gate.hpp>
#include <coetcd/group.hpp>
#include <coetcd/latch.hpp>
#include <coetcd/mirror.hpp>
#include <coetcd/multi_lock.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/pages.hpp>
#include <coetcd/registry.hpp>
#include <coetcd/semaphore.hpp>
#include <coetcd/sequence.hpp>
#include <coetcd/session.hpp>
#include <coetcd/session_keeper.hpp>
#include <coetcd/shared_mutex.hpp>
#include <coetcd/stm.hpp>
#include <coetcd/timed_claim.hpp>
#include <coetcd/value.hpp>
#include <coetcd/verify.hpp>
#include <coetcd/work_queue.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"

// Whatever a program does in a namespace, etcd gets what it would get without one, with the prefix
// before each key; and the program is told what it would be told without one.

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::client;
using coetcd::compare;
using coetcd::key_range;
using coetcd::op;
using coetcd::session;
using coetcd::detail::call_request;
using coetcd::detail::rpc;
using support::background;
using support::scripted_env;
using support::world;

namespace {

using strings = std::vector<std::string>;

std::string base64_of(std::string_view bytes) {
    std::string text;
    coetcd::detail::wire::append_base64(text, bytes);
    return text;
}
std::string bytes_of(std::string_view text) {
    std::string bytes;
    REQUIRE(coetcd::detail::wire::decode_base64(text, bytes));
    return bytes;
}

/// Writes a request anew, with other keys.
using key_change = std::function<std::string(std::string key, bool is_end)>;
std::string with_keys(std::string_view body, const key_change& change) {
    std::string out;
    for (;;) {
        const std::string_view key = R"("key":")";
        const std::string_view end = R"("range_end":")";
        const std::size_t at = std::min(body.find(key), body.find(end));
        if (at == body.npos) {
            return out += body;
        }
        const bool is_end = at == body.find(end);
        const std::size_t begins = at + (is_end ? end : key).size();
        const std::size_t ends = body.find('"', begins);
        out += body.substr(0, begins);
        out += base64_of(change(bytes_of(body.substr(begins, ends - begins)), is_end));
        body.remove_prefix(ends);
    }
}

/// A client, and what it has asked and was told.
class namespace_play {
public:
    /// @param prefix Of its namespace; empty for none.
    /// @param hidden Keys that it is not to see, or to touch.
    explicit namespace_play(const std::string& prefix, const std::set<std::string>& hidden = {})
        : c_(w_.client().in_namespace(prefix))
        , prefix_(prefix) {
        listen();
        for (const std::string& key : hidden) {
            w_.etcd->write(prefix.empty() ? "\x01" + key : key, "hidden");
        }
        w_.env->pass(1s);
        w_.env->calls.clear();
        all();
        const auto hides = [&](const std::string& key) {
            return hidden.contains(prefix.empty() ? key.substr(1) : key);
        };
        for (const auto& [key, record] : w_.etcd->keys) {
            if (hides(key)) {
                CHECK(record.value == "hidden");
            } else {
                note("left", key.substr(prefix.size()));
            }
        }
    }

    const strings& told() const { return told_; }
    /// What was asked, streams included.
    const strings& asked() const { return asked_; }
    const std::set<std::string>& keys() const { return keys_; }

private:
    void listen() {
        w_.env->decide = [this](const call_request& q) {
            hear(std::string(name(q.what)), q.body);
            return scripted_env::fate();
        };
        w_.env->on_open = [this, open = w_.env->on_open](const call_request& q, auto stream) {
            hear("open", q.body);
            open(q, std::move(stream));
        };
        w_.env->on_message = [this, more = w_.env->on_message](auto stream, const auto& lines) {
            hear("message", lines);
            more(std::move(stream), lines);
        };
    }
    void hear(const std::string& what, const std::string& body) {
        asked_.push_back(what + ' ' + body);
        (void)with_keys(body, [this](std::string key, bool is_end) {
            if (!is_end && key != std::string(1, '\0')) {
                keys_.insert(key);
            }
            return key;
        });
    }

    template<class T>
    T await(asio::awaitable<T> work) {
        return w_.await(std::move(work));
    }
    void pass() { w_.env->pass(1s); }

    void note(const char* what, const std::string& text) {
        told_.push_back(std::string(what) + ": " + text);
    }
    void note(const char* what, std::int64_t n) { note(what, std::to_string(n)); }
    void note(const char* what, const coetcd::key_value& kv) {
        note(what, kv.key + '=' + kv.value + '@' + std::to_string(kv.mod_revision));
    }
    void note(const char* what, const std::optional<coetcd::key_value>& kv) {
        kv ? note(what, *kv) : note(what, "nothing");
    }
    void note(const char* what, const std::vector<coetcd::key_value>& kvs) {
        note(what, static_cast<std::int64_t>(kvs.size()));
        for (const coetcd::key_value& kv : kvs) {
            note(what, kv);
        }
    }
    void note(const char* what, const std::vector<coetcd::event>& events) {
        for (const coetcd::event& e : events) {
            note(what, e.type == coetcd::event_type::put ? "put" : "erase");
            note(what, e.kv);
            note(what, e.prev_kv);
        }
    }

    void all() {
        calls();
        watches();
        const session one = await(session::open(c_, {60s, "one"}));
        const session two = await(session::open(c_, {60s, "two"}));
        locks(one, two);
        shared_locks(one, two);
        elections(one, two);
        permits(one, two);
        writers(one);
        barriers(one);
        members(one);
        work(one);
        many();
        tools(one);
        keeper();
        pass();
    }

    void calls() {
        note("put", await(c_.put("k/1", "a", {.prev_kv = true})).prev_kv);
        note("put", await(c_.put("k/1", "b", {.prev_kv = true})).prev_kv);
        (void)await(c_.put("k/2", "c"));
        (void)await(c_.put("l", "d"));
        note("get", await(c_.get("k/1")));
        note("get", await(c_.get("k/3")));
        note("range", await(c_.range({"k/1", "k/2"})).kvs);
        note("prefix", await(c_.range(key_range::prefix("k/"))).kvs);
        coetcd::range_options last;
        last.order = coetcd::sort_order::descend;
        last.limit = 2;
        note("from", await(c_.range(key_range::from("k/2"), last)).kvs);
        note("count", await(c_.range(key_range::from("k"), {.count_only = true})).count);
        const auto nested = coetcd::txn()
                                .when(compare::value(key_range::prefix("k/")) == "b")
                                .then(op::put("no", ""))
                                .otherwise(op::range(key_range::from("k/2")),
                                           op::put("k/4", "e", {.prev_kv = true}),
                                           op::erase("l", {.prev_kv = true}));
        const auto answer =
            await(c_.txn(coetcd::txn()
                             .when(compare::value("k/1") == "b", compare::version("k/9") == 0)
                             .when(compare::create_revision(key_range::from("k")) > 1)
                             .then(op::nested(nested), op::range("k/1"))
                             .otherwise(op::put("no", ""))));
        note("succeeded", answer.succeeded);
        const auto& inner = answer.responses.at(0).nested();
        note("nested", inner.succeeded);
        note("nested", inner.responses.at(0).range().kvs);
        note("nested", inner.responses.at(1).put().prev_kv);
        note("nested", inner.responses.at(2).erase().prev_kvs);
        note("txn", answer.responses.at(1).range().kvs);
        const auto lease = await(c_.lease_grant(60s, 77));
        (void)await(c_.put("leased/1", "x", {.lease = lease.id}));
        (void)await(c_.put("leased/2", "x", {.lease = lease.id}));
        const auto lasts = await(c_.lease_time_to_live(lease.id, true));
        for (const std::string& key : lasts->keys) {
            note("leased", key);
        }
        (void)await(c_.lease_revoke(lease.id));
        note("revoked", await(c_.range(key_range::prefix("leased/"))).kvs);
        note("erase", await(c_.erase(key_range::prefix("k/"), {.prev_kv = true})).prev_kvs);
    }

    void watches() {
        coetcd::watch_options how;
        how.prev_kv = true;
        coetcd::watcher one = await(c_.watch("w/1", how));
        coetcd::watcher all = await(c_.watch(key_range::from("w"), how));
        (void)await(c_.put("w/1", "a"));
        (void)await(c_.put("w/2", "b"));
        (void)await(c_.put("w/1", "c"));
        (void)await(c_.erase("w/1"));
        pass();
        note("one", await(one.next()).events);
        note("all", await(all.next()).events);
        w_.env->break_streams();
        (void)await(c_.put("w/1", "d"));
        pass();
        note("resumed", await(one.next()).events);
        note("resumed", await(all.next()).events);
        how.start_revision = 1;
        coetcd::watcher past = await(c_.watch(key_range::prefix("w/"), how));
        note("past", await(past.next()).events);
    }

    void locks(const session& one, const session& two) {
        coetcd::mutex first(one, "m");
        coetcd::mutex second(two, "m");
        await(first.lock());
        note("key", first.key());
        note("token", first.fencing_token());
        note("busy", await(second.try_lock()));
        note("holder", await(second.holder())->key);
        auto waiting = w_.start(second.lock());
        pass();
        note("waits", !waiting.ended());
        for (const coetcd::lock_entry& each : await(first.waiters())) {
            note("waiter", each.key + ' ' + each.label);
        }
        coetcd::txn guarded = coetcd::txn().when(first.is_owner()).then(op::put("done", "1"));
        note("guarded", await(c_.txn(guarded)).succeeded);
        await(first.unlock());
        await(std::move(waiting));
        note("handed over", second.key());
        await(second.unlock());
        note("late", await(c_.txn(guarded)).succeeded);

        // Several at once share requests.
        std::vector<std::unique_ptr<coetcd::mutex>> many;
        std::vector<background<bool>> tries;
        for (int i = 0; i != 6; ++i) {
            many.push_back(std::make_unique<coetcd::mutex>(one, "many/" + std::to_string(i / 2)));
            tries.push_back(w_.start(many.back()->try_lock()));
        }
        pass();
        for (auto& each : tries) {
            note("tried", each.get());
        }
        for (const auto& each : many) {
            (void)await(each->unlock());
        }
        coetcd::lock_options keeps;
        keeps.retain = 10s;
        coetcd::mutex kept(one, "kept", keeps);
        await(kept.lock());
        await(kept.unlock());
        await(kept.lock());
        note("kept", kept.key());
        await(kept.unlock());
    }

    template<class T>
    T await(background<T> b) {
        while (!b.ended()) {
            w_.env->pass(1ms);
        }
        return b.get();
    }

    void shared_locks(const session& one, const session& two) {
        coetcd::shared_mutex first(one, "s");
        coetcd::shared_mutex second(two, "s");
        await(first.lock_shared());
        await(second.lock_shared());
        note("shared", await(first.try_lock()));
        await(first.unlock_shared());
        await(second.unlock_shared());
        coetcd::held_lock held = await(first.scoped_lock());
        await(held.downgrade());
        note("upgraded", await(held.try_upgrade()));
        note("sequencer", await(coetcd::verify(c_, "s", held.sequencer())));
        await(held.unlock());
        coetcd::multi_lock all(one, {coetcd::exclusive("a"), coetcd::shared("b")});
        await(all.lock());
        for (const compare& each : all.is_owner()) {
            note("owner", each.range.key);
        }
        await(all.unlock());
    }

    void elections(const session& one, const session& two) {
        coetcd::election first(one, "e");
        coetcd::election second(two, "e");
        coetcd::leadership term = await(first.campaign("a"));
        note("term", term.key());
        auto waiting = w_.start(second.campaign("b"));
        coetcd::leader_feed news = coetcd::observe(c_, "e");
        const auto tell = [&] {
            const std::optional<coetcd::leader> now = await(news.next());
            note("leads", now ? now->key + ' ' + now->value : "nobody");
        };
        tell();
        await(term.proclaim("a2"));
        tell();
        await(term.resign());
        coetcd::leadership next = await(std::move(waiting));
        tell();
        await(next.resign());
    }

    void permits(const session& one, const session& two) {
        coetcd::semaphore first(one, "p", 2);
        coetcd::semaphore second(two, "p", 2);
        coetcd::permit mine = await(first.acquire());
        coetcd::permit other = await(second.acquire());
        note("permit", mine.key());
        auto waiting = w_.start(first.acquire());
        pass();
        note("full", !waiting.ended());
        await(other.release());
        coetcd::permit third = await(std::move(waiting));
        for (const coetcd::permit_entry& each : await(second.holders())) {
            note("has", each.key);
        }
        await(second.set_limit(3));
        note("limit", await(first.adjust_limit(2)));
        await(mine.release());
        await(third.release());
    }

    void writers(const session& one) {
        coetcd::sequence numbers(one, "n");
        note("number", await(numbers.next()));
        note("number", await(numbers.next()));
        coetcd::counter visits(one, "visits");
        note("visits", await(visits.add(3)));
        note("visits", await(visits.add(4)));
        coetcd::value v(one, "v");
        coetcd::value_feed news = v.changes();
        note("value", await(news.next()));
        const std::int64_t at = await(v.set("1"));
        note("value", await(news.next()));
        note("exchanged", await(v.compare_exchange(at, "2")).has_value());
        note("value", await(news.next()));
        coetcd::exactly_once writer(one, "o");
        const auto outcome = await(writer.txn(coetcd::txn()
                                                  .when(compare::value("v") == "2")
                                                  .then(op::put("once", "1"), op::range("v"))));
        note("once", outcome.succeeded);
        note("once", outcome.responses->at(1).range().kvs);
        auto body = [](coetcd::transaction& t) -> asio::awaitable<void> {
            const auto a = co_await t.get("once");
            const std::vector<coetcd::key_value> some = co_await t.range(key_range::prefix("v"));
            const std::string sum = a.value_or("") + some.at(0).key + some.at(0).value;
            t.put("stm", sum);
        };
        await(coetcd::stm(one, body));
        note("stm", await(c_.get("stm")));
        coetcd::fencing_gate gate(c_, "gate");
        note("admitted", await(gate.admit(5)));
        note("admitted", await(gate.admit(4)));
    }

    void barriers(const session& one) {
        coetcd::barrier closed(one, "barrier");
        await(closed.hold());
        auto waiting = w_.start(closed.wait());
        pass();
        note("closed", !waiting.ended());
        await(closed.release());
        await(std::move(waiting));
        coetcd::latch both(one, "latch", 2);
        await(both.count_down());
        auto last = w_.start(both.wait());
        pass();
        note("one to come", !last.ended());
        const session two = await(session::open(c_, {60s, "latch"}));
        coetcd::latch other(two, "latch", 2);
        await(other.count_down());
        await(std::move(last));
    }

    void members(const session& one) {
        coetcd::group workers(one, "g");
        coetcd::membership member = await(workers.join("a"));
        coetcd::members_feed news = coetcd::watch_members(c_, "g");
        const auto tell = [&] {
            for (const coetcd::member_entry& each : await(news.next())) {
                note("member", each.key + ' ' + each.value);
            }
        };
        tell();
        await(member.update("b"));
        tell();
        await(member.leave());
        tell();
        coetcd::ephemeral key = await(coetcd::ephemeral::create(one, "here", "up"));
        note("ephemeral", key.key());
        await(key.update("down"));
        await(key.remove());
        coetcd::registration here = await(coetcd::register_service(one, "service", "a:1"));
        coetcd::endpoints_feed endpoints = coetcd::resolve(c_, "service");
        for (const coetcd::service_endpoint& each : await(endpoints.next())) {
            note("endpoint", each.address);
        }
        await(here.remove());
        note("endpoints", static_cast<std::int64_t>(await(endpoints.next()).size()));
    }

    void work(const session& one) {
        coetcd::work_queue mails(one, "mails");
        await(mails.enqueue(strings{"a", "b", "c"}));
        coetcd::job first = await(mails.take());
        note("job", first.id() + ' ' + first.value());
        note("acked",
             await(first.ack(
                 coetcd::txn().when(compare::version("sent") == 0).then(op::put("sent", "a")))));
        coetcd::job second = await(mails.take());
        note("buried", await(second.bury()));
        for (coetcd::dead_item& each : await(mails.dead())) {
            note("dead", each.value);
            note("revived", await(mails.revive(std::move(each))));
        }
        coetcd::job third = await(mails.take());
        note("retried", await(third.retry()));
    }

    void many() {
        std::vector<coetcd::put_request> orders;
        for (int i = 100; i != 130; ++i) {
            orders.emplace_back("orders/" + std::to_string(i), "o");
        }
        note("written", static_cast<std::int64_t>(await(put_all(c_, std::move(orders)).run())));
        coetcd::pages pages(c_, key_range::prefix("orders/"), {.size = 12});
        while (const auto page = await(pages.next())) {
            note("page", page->kvs);
        }
        const coetcd::mirror all = await(coetcd::open_mirror(c_, "orders/"));
        note("mirrored", static_cast<std::int64_t>(all.size()));
        coetcd::mirror_changes changes = all.changes();
        (void)await(changes.next());
        const auto written = await(c_.put("orders/200", "p"));
        await(all.wait(written.header.revision));
        note("mirrored", all.get("orders/200")->value);
        for (const coetcd::mirror_change& each : await(changes.next()).changes) {
            note("changed", each.key());
        }
        auto erases = coetcd::erase_range(c_, key_range::prefix("orders/"));
        note("erased", static_cast<std::int64_t>(await(erases.run())));
    }

    void tools(const session& one) {
        auto claim = await(coetcd::try_claim(c_, "claim", 60s));
        note("claim", claim->key());
        await(claim->release());
        coetcd::mutex lock(one, "admin");
        await(lock.lock());
        note("forced", await(coetcd::force_unlock(c_, "admin", lock.fencing_token())));
        pass();
        note("owns", lock.owns_lock());
    }

    void keeper() {
        coetcd::session_keeper sessions(c_);
        auto body = [this]() -> asio::awaitable<void> {
            note("kept", "locked");
            co_return;
        };
        await(coetcd::with_lock(sessions, "keeper", body));
        await(sessions.close());
    }

    world w_;
    const client c_;
    const std::string prefix_;
    strings told_;
    strings asked_;
    std::set<std::string> keys_;
};

} // namespace

TEST_CASE("what is done in a namespace is what is done without one, with other keys",
          "[namespace]") {
    const std::set<std::string> names = namespace_play("").keys();
    REQUIRE(names.size() > 50);
    const namespace_play plain("", names);
    const std::string prefix = GENERATE(std::string("app/"), std::string("a\xff"));
    const std::string end = prefix == "app/" ? "app0" : "b";
    const namespace_play inside(prefix, names);
    CHECK(inside.told() == plain.told());

    strings expected;
    const std::string zero(1, '\0');
    for (const std::string& each : plain.asked()) {
        const bool looks_around = each.starts_with(R"(range {"key":"AA==","count_only")");
        const bool asks = each.starts_with("open") || each.starts_with("message");
        expected.push_back(with_keys(each, [&](std::string key, bool is_end) {
            const bool of_the_client = !is_end && key == zero && (looks_around || asks);
            return of_the_client ? key : is_end && key == zero ? end : prefix + key;
        }));
    }
    CHECK(inside.asked() == expected);
}
