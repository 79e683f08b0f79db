// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/detail/logic/mirror_read.hpp>
#include <coetcd/mirror.hpp>

#include <boost/asio/strand.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
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
using coetcd::key_range;
using coetcd::mirror;
using coetcd::mirror_batch;
using coetcd::mirror_change;
using coetcd::mirror_changes;
using coetcd::mirror_entry;
using coetcd::op;
using coetcd::server_errc;
using coetcd::detail::call_request;
using coetcd::detail::reply;
using coetcd::detail::rpc;
using support::has;
using support::scripted_env;
using support::world;

namespace {

using mirror_list = std::vector<std::string>;

struct mirror_fixture : world {
    explicit mirror_fixture(coetcd::client_options options = {})
        : owner(client(std::move(options))) {
        etcd->write("d/", "0"); // none of its keys
    }
    ~mirror_fixture() {
        copy.reset();
        env->pass(10s);
    }

    mirror& open(std::string prefix = "c/", coetcd::mirror_options how = {}) {
        copy.emplace(await(coetcd::open_mirror(owner, std::move(prefix), how)));
        env->pass(10ms); // the watch begins
        return *copy;
    }
    /// Writes all of them in one transaction; an empty value erases.
    std::int64_t write(const std::map<std::string, std::string>& all) {
        coetcd::txn t;
        for (const auto& [key, value] : all) {
            t.then(value.empty() ? op::erase(key) : op::put(key, value));
        }
        const auto done = await(owner.txn(std::move(t)));
        env->pass(5ms);
        return done.header.revision;
    }
    mirror_list told() const { return texts(copy->snapshot()); }
    static mirror_list texts(const coetcd::mirror_snapshot& all) {
        mirror_list result;
        for (const mirror_entry& e : all.entries) {
            result.push_back(e->key + "=" + e->value);
        }
        return result;
    }
    /// "key was>is", with "?" if it is by comparison.
    static mirror_list texts(const mirror_batch& batch) {
        const auto text = [](const mirror_entry& e) { return e ? e->value : std::string("-"); };
        mirror_list result;
        for (const mirror_change& c : batch.changes) {
            result.push_back(c.key() + " " + text(c.was) + ">" + text(c.is) +
                             (c.by_comparison ? "?" : ""));
        }
        return result;
    }
    mirror_list next(mirror_changes& from) { return texts(await(from.next())); }

    std::size_t reads() const {
        return static_cast<std::size_t>(
            std::count_if(env->calls.begin(), env->calls.end(), [](const call_request& r) {
                return r.what == rpc::range || r.what == rpc::txn;
            }));
    }
    /// Nothing reaches etcd.
    void cut() {
        env->decide = [](const call_request&) {
            scripted_env::fate f;
            f.refused = true;
            return f;
        };
        env->break_streams();
        env->pass(1s);
    }
    void heal(std::chrono::nanoseconds within = 15s) {
        env->decide = nullptr;
        env->pass(within);
    }
    /// Takes its present.
    mirror_changes reader() {
        mirror_changes r = copy->changes();
        (void)await(r.next());
        return r;
    }

    coetcd::client owner;
    std::optional<mirror> copy;
};

/// Each range is refused, in etcd's words.
void refuse_reads(scripted_env& env, std::string text, int code) {
    env.on_call = [serve = env.on_call, text, code](const call_request& c, reply& r) {
        if (c.what != rpc::range && c.what != rpc::txn) {
            serve(c, r);
            return;
        }
        r.status = 403;
        r.body = R"({"error":")" + text + R"(","message":")" + text + R"(","code":)" +
                 std::to_string(code) + "}";
    };
}

} // namespace

TEST_CASE("a mirror has what there is when it opens, by one read, and each change", "[mirror]") {
    mirror_fixture f;
    f.write({{"c/b", "1"}, {"c/a", "1"}, {"c", "0"}});
    f.env->calls.clear();
    mirror m = f.await(coetcd::open_mirror(f.owner, "c/"));
    CHECK(f.env->calls.size() == 1);
    CHECK(m.get_executor() == f.owner.get_executor());
    CHECK(f.texts(m.snapshot()) == mirror_list{"c/a=1", "c/b=1"});
    CHECK(m.revision() == f.etcd->revision);
    CHECK(m.size() == 2);
    REQUIRE(m.get("c/a"));
    CHECK(m.get("c/a")->value == "1");
    CHECK(m.get("c/a")->mod_revision == f.etcd->keys.at("c/a").mod_revision);
    CHECK(m.get("c/a")->version == 1);
    CHECK_FALSE(m.get("c/c"));
    CHECK_FALSE(m.get("d/"));
    CHECK_FALSE(m.trouble());
    CHECK(m.age() == 0s);
    f.env->pass(10ms);
    const mirror_entry before = m.get("c/a");
    f.etcd->write("c/a", "2");
    f.etcd->write("c/c", "1");
    f.etcd->erase("c/b");
    f.env->pass(5ms);
    CHECK(f.texts(m.snapshot()) == mirror_list{"c/a=2", "c/c=1"});
    CHECK(m.revision() == f.etcd->revision);
    CHECK(before->value == "1"); // it lives on
    CHECK(f.env->calls.size() == 1);
    CHECK(f.etcd->watches() == 1);
    CHECK(f.texts(m.snapshot(key_range("c/b", "c/d"))) == mirror_list{"c/c=1"});
    CHECK(f.texts(m.snapshot(key_range("c/a"))) == mirror_list{"c/a=2"});
    CHECK(f.texts(m.snapshot(key_range("c/b"))).empty());
    CHECK(f.texts(m.snapshot(key_range::from("c/b"))) == mirror_list{"c/c=1"});
    CHECK(f.texts(m.snapshot(key_range::prefix("c/c"))) == mirror_list{"c/c=1"});
    CHECK(f.texts(m.snapshot(key_range::prefix("x"))).empty());
}

TEST_CASE("a mirror may be of all keys, of one, or of a range", "[mirror]") {
    mirror_fixture f;
    f.etcd->write(std::string("\xff\xff"), "1");
    f.etcd->write("a", "1");
    mirror all = f.await(coetcd::open_mirror(f.owner, ""));
    mirror last = f.await(coetcd::open_mirror(f.owner, "\xff"));
    mirror one = f.await(coetcd::open_mirror_of(f.owner, "a"));
    mirror some = f.await(coetcd::open_mirror_of(f.owner, {"b", "c"}));
    f.env->pass(10ms);
    f.etcd->write("a/", "1");
    f.etcd->write("b", "1");
    f.etcd->write("c", "1");
    f.etcd->write("\xff", "1");
    f.env->pass(5ms);
    CHECK(f.texts(all.snapshot()) ==
          mirror_list{"a=1", "a/=1", "b=1", "c=1", "d/=0", "\xff=1", "\xff\xff=1"});
    CHECK(f.texts(last.snapshot()) == mirror_list{"\xff=1", "\xff\xff=1"});
    CHECK(f.texts(one.snapshot()) == mirror_list{"a=1"});
    CHECK(f.texts(some.snapshot()) == mirror_list{"b=1"});
    f.etcd->erase("b");
    f.env->pass(5ms);
    CHECK(some.size() == 0);
}

TEST_CASE("the readers of a mirror are told what there is, and each change, in order", "[mirror]") {
    mirror_fixture f;
    f.write({{"c/a", "1"}, {"c/b", "1"}});
    mirror& m = f.open();
    mirror_changes first = m.changes();
    CHECK(first.get_executor() == f.owner.get_executor());
    mirror_batch batch = f.await(first.next());
    CHECK(f.texts(batch) == mirror_list{"c/a ->1?", "c/b ->1?"});
    CHECK(batch.revision == m.revision());
    auto waiting = f.start(first.next());
    f.env->pass(1s);
    CHECK_FALSE(waiting.ended());
    const std::int64_t both = f.write({{"c/a", "2"}, {"c/c", "2"}, {"d/x", "2"}});
    REQUIRE(waiting.ended());
    batch = waiting.get();
    CHECK(f.texts(batch) == mirror_list{"c/a 1>2", "c/c ->2"});
    CHECK(batch.revision == both);
    CHECK(batch.changes.front().revision == both);
    CHECK(batch.changes.front().is == m.get("c/a"));
    mirror_changes second = m.changes();
    f.write({{"c/a", "3"}});
    f.write({{"c/b", ""}});
    f.write({{"c/b", "4"}});
    CHECK(f.next(second) == mirror_list{"c/a ->3?", "c/b ->4?", "c/c ->2?"});
    CHECK(f.next(first) == mirror_list{"c/a 2>3", "c/b 1>-", "c/b ->4"});
    f.write({{"c/a", "5"}});
    CHECK(f.next(second) == mirror_list{"c/a 3>5"});
    CHECK(f.next(first) == mirror_list{"c/a 3>5"});
    mirror nothing = f.await(coetcd::open_mirror(f.owner, "nothing/"));
    mirror_changes none = nothing.changes();
    CHECK(f.next(none).empty()); // but the first call returns
}

TEST_CASE("a slow reader of a mirror is told the difference, and holds up no other", "[mirror]") {
    mirror_fixture f;
    coetcd::mirror_options small;
    small.buffer = 2000;
    mirror& m = f.open("c/", small);
    mirror_changes slow = f.reader();
    mirror_changes quick = f.reader();
    for (int i = 0; i != 50; ++i) {
        f.write({{"c/a", std::to_string(i)}, {"c/b", i % 2 == 0 ? "1" : ""}});
        CHECK(f.next(quick).size() == 2);
    }
    CHECK(f.next(slow) == mirror_list{"c/a ->49?"});
    f.write({{"c/a", "50"}});
    CHECK(f.next(slow) == mirror_list{"c/a 49>50"});
    CHECK(m.size() == 1);
}

TEST_CASE("many keys are read in pages, all of one revision", "[mirror]") {
    mirror_fixture f;
    constexpr int many = 3000;
    for (int i = 0; i != many; ++i) {
        f.etcd->write("c/" + std::to_string(10'000 + i), "1");
    }
    const std::int64_t then = f.etcd->revision;
    int page = 0;
    f.env->decide = [&](const call_request& r) {
        if (r.what == rpc::range && ++page > 1) { // somebody writes between any two
            f.etcd->write("c/10000", std::to_string(page));
            f.etcd->write("c/1" + std::to_string(page), "new");
            f.etcd->erase("c/" + std::to_string(12'999 - page));
        }
        return scripted_env::fate();
    };
    auto opening = f.start(coetcd::open_mirror(f.owner, "c/"));
    f.env->pass(1s);
    mirror m = opening.get();
    CHECK(page == 3); // of 512, 1024 and 2048
    mirror_changes all = m.changes();
    const mirror_batch first = f.await(all.next());
    // What it had at first shows in what it was told.
    CHECK(m.revision() == f.etcd->revision);
    CHECK(m.revision() == then + 3 * (page - 1));
    CHECK(m.size() == f.etcd->under("c/").size());
    CHECK(m.get("c/10000")->value == std::to_string(page));
    CHECK(first.changes.size() == m.size());
}

TEST_CASE("a read that compaction has overtaken begins anew", "[mirror]") {
    mirror_fixture f;
    for (int i = 0; i != 1000; ++i) {
        f.etcd->write("c/" + std::to_string(i), "1");
    }
    int page = 0;
    int overtaken = 1;
    f.env->decide = [&](const call_request& r) {
        if (r.what == rpc::range && ++page % 2 == 0 && overtaken-- > 0) {
            f.etcd->write("c/0", "2");
            f.etcd->compact(f.etcd->revision);
        }
        return scripted_env::fate();
    };
    SECTION("once") {
        mirror m = f.await(coetcd::open_mirror(f.owner, "c/"));
        CHECK(page == 3); // the pages have grown
        CHECK(m.size() == 1000);
        CHECK(m.get("c/0")->value == "2");
    }
    SECTION("each time") {
        for (int i = 1000; i != 9000; ++i) {
            f.etcd->write("c/" + std::to_string(i), "1");
        }
        overtaken = 1000;
        auto opening = f.start(coetcd::open_mirror(f.owner, "c/"));
        f.env->pass(10s);
        CHECK(opening.ended());
        CHECK((opening.succeeded() || opening.code() == server_errc::out_of_range));
    }
}

TEST_CASE("a page that is too large is asked for again, halved", "[mirror]") {
    for (const bool of_etcd : {false, true}) {
        mirror_fixture f;
        for (int i = 0; i != 300; ++i) {
            f.etcd->write("c/" + std::to_string(i), "1");
        }
        int most = 100;
        f.env->on_call = [&, serve = f.env->on_call](const call_request& c, reply& r) {
            serve(c, r);
            const int asked = nlohmann::json::parse(c.body).value("limit", 0);
            if (c.what != rpc::range || asked <= most) {
                return;
            }
            if (of_etcd) {
                r.status = 429;
                r.body = R"({"message":"grpc: received message larger than max","code":8})";
            } else {
                r.ec = make_error_code(errc::too_large);
            }
        };
        CAPTURE(of_etcd);
        mirror m = f.await(coetcd::open_mirror(f.owner, "c/"));
        CHECK(m.size() == 300);
        most = 0;
        auto opening = f.start(coetcd::open_mirror(f.owner, "c/"));
        f.env->pass(1s);
        CHECK(opening.code() == (of_etcd ? coetcd::error_code(server_errc::resource_exhausted)
                                         : coetcd::error_code(errc::too_large)));
    }
}

TEST_CASE("after a break of the watch each change is told, once", "[mirror]") {
    for (auto when = 0ms; when < 30ms; when += 3ms) {
        mirror_fixture f;
        mirror& m = f.open();
        mirror_changes seen = f.reader();
        auto writing = f.start([](coetcd::client c) -> asio::awaitable<bool> {
            for (int i = 0; i != 20; ++i) {
                (void)co_await c.put("c/a", std::to_string(i));
            }
            co_return true;
        }(f.owner));
        f.env->pass(when);
        f.env->break_streams();
        f.env->pass(2s);
        REQUIRE(writing.get());
        const mirror_batch batch = f.await(seen.next());
        INFO("after " << when.count() << " ms");
        REQUIRE(batch.changes.size() == 20);
        for (std::size_t i = 0; i != 20; ++i) {
            CHECK(batch.changes[i].is->value == std::to_string(i));
            CHECK_FALSE(batch.changes[i].by_comparison);
            CHECK(batch.changes[i].was == (i == 0 ? nullptr : batch.changes[i - 1].is));
        }
        CHECK(m.revision() == f.etcd->revision);
    }
}

TEST_CASE("what was compacted before it was told is found by comparison", "[mirror]") {
    mirror_fixture f;
    f.write({{"c/a", "1"}, {"c/b", "1"}, {"c/c", "1"}});
    mirror& m = f.open();
    mirror_changes seen = f.reader();
    f.cut();
    f.etcd->write("c/a", "2");
    f.etcd->write("c/a", "3");
    f.etcd->erase("c/b");
    f.etcd->write("c/d", "1");
    f.etcd->write("c/e", "1");
    f.etcd->erase("c/e");
    f.etcd->compact(f.etcd->revision);
    f.env->pass(5s);
    CHECK(f.told() == mirror_list{"c/a=1", "c/b=1", "c/c=1"}); // what it knows
    f.heal(2s);
    CHECK(f.told() == mirror_list{"c/a=3", "c/c=1", "c/d=1"});
    CHECK(m.revision() == f.etcd->revision);
    CHECK_FALSE(m.trouble());
    CHECK(f.next(seen) == mirror_list{"c/a 1>3?", "c/b 1>-?", "c/d ->1?"});
    f.write({{"c/a", "4"}});
    CHECK(f.next(seen) == mirror_list{"c/a 3>4"});
    CHECK(f.etcd->watches() == 1);
}

TEST_CASE("what a read finds unchanged takes no memory again", "[mirror]") {
    mirror_fixture f;
    f.write({{"c/a", "1"}, {"c/b", "1"}});
    mirror& m = f.open();
    const mirror_entry a = m.get("c/a");
    const mirror_entry b = m.get("c/b");
    f.cut();
    f.etcd->write("c/a", "2");
    f.etcd->write("c/a", "1"); // the same value, but another version
    f.etcd->compact(f.etcd->revision);
    f.heal();
    CHECK(m.revision() == f.etcd->revision);
    CHECK(m.get("c/a") != a);
    CHECK(m.get("c/b") == b); // the same object
}

TEST_CASE("a mirror looks at many keys in parts, all of one revision", "[mirror]") {
    mirror_fixture f;
    constexpr std::size_t part = coetcd::detail::logic::most_looked_at;
    for (std::size_t i = 0; i != 2 * part + 1; ++i) {
        f.etcd->write("c/" + std::to_string(100'000 + i), "1");
    }
    mirror& m = f.open();
    f.env->calls.clear();
    const auto lost = GENERATE(as<std::string>(), "nothing", "a put", "an erase");
    f.etcd->tells = false;
    if (lost == "a put") {
        f.etcd->write("c/" + std::to_string(100'000 + part), "2"); // the first of the second part
    } else if (lost == "an erase") {
        f.etcd->erase("c/" + std::to_string(100'000 + 2 * part));
    }
    f.etcd->tells = true;
    f.etcd->write("d/", "1");
    auto waiting = f.start(m.wait(f.etcd->revision)); // nothing that is mirrored, or lost
    int looks = 0;
    f.env->decide = [&](const call_request& r) {
        if (r.what == rpc::txn) {
            ++looks;
            CHECK(has(r, "\"revision\":") == (looks % 3 != 1)); // that of the first part
        }
        return scripted_env::fate();
    };
    f.env->pass(200ms);
    CHECK(looks == 3);
    CHECK(waiting.ended() == (lost == "nothing"));
    f.env->pass(10s);
    CHECK(waiting.ended());
    CHECK(m.revision() == f.etcd->revision);
    CHECK(m.size() == f.etcd->under("c/").size());
    CHECK(m.get("c/" + std::to_string(100'000 + part))->value == (lost == "a put" ? "2" : "1"));
}

TEST_CASE("a look that compaction has overtaken is begun anew", "[mirror]") {
    mirror_fixture f;
    for (std::size_t i = 0; i != coetcd::detail::logic::most_looked_at + 1; ++i) {
        f.etcd->write("c/" + std::to_string(100'000 + i), "1");
    }
    mirror& m = f.open();
    f.etcd->write("d/", "1");
    auto waiting = f.start(m.wait(f.etcd->revision));
    int looks = 0;
    f.env->decide = [&](const call_request& r) {
        if (r.what == rpc::txn && ++looks == 2) {
            f.etcd->write("d/", "2");
            f.etcd->compact(f.etcd->revision);
        }
        return scripted_env::fate();
    };
    f.env->pass(200ms);
    CHECK(looks == 2);
    CHECK_FALSE(waiting.ended());
    CHECK_FALSE(m.trouble());
    f.env->pass(6s);
    CHECK(waiting.ended());
    CHECK(looks == 4);
    CHECK_FALSE(m.trouble());
}

TEST_CASE("a mirror says that it is out of date, why, and for how long", "[mirror]") {
    mirror_fixture f;
    f.write({{"c/a", "1"}});
    mirror& m = f.open();
    f.env->pass(5s);
    CHECK_FALSE(m.trouble());
    CHECK(m.age() == 0s);
    f.cut();
    f.etcd->write("c/a", "2");
    f.env->pass(9s);
    REQUIRE(m.trouble());
    CHECK(m.trouble()->code() == errc::unavailable);
    CHECK_THAT(m.trouble()->what(), support::contains("mirror of \"c/\""));
    CHECK(m.age() > 9900ms);
    CHECK(m.age() <= 10s);
    CHECK(m.get("c/a")->value == "1");
    f.heal(2s);
    CHECK_FALSE(m.trouble());
    CHECK(m.age() == 0s);
    CHECK(m.get("c/a")->value == "2");
    // It is not over as soon as the watch is in force, if events are still to come.
    f.cut();
    const std::int64_t other = f.etcd->revision;
    f.etcd->write("d/x", "2");
    f.heal(2s); // nothing comes: a look tells
    CHECK_FALSE(m.trouble());
    CHECK(m.revision() > other);
}

TEST_CASE("that nothing can be read is trouble, even if the watch lives", "[mirror]") {
    mirror_fixture f;
    f.write({{"c/a", "1"}});
    mirror& m = f.open();
    f.env->decide = [](const call_request& r) {
        scripted_env::fate fate;
        fate.refused = r.what == rpc::txn;
        return fate;
    };
    f.env->pass(30s);
    REQUIRE(m.trouble());
    CHECK(m.trouble()->code() == errc::unavailable);
    CHECK(m.age() >= 15s);
    CHECK(m.age() <= 30s);
    f.etcd->write("c/a", "2");
    f.env->pass(5ms);
    CHECK(m.get("c/a")->value == "2");
    f.heal();
    CHECK_FALSE(m.trouble());
}

TEST_CASE("what etcd has forgotten to tell is found", "[mirror]") {
    const auto goes_on = GENERATE(false, true);
    const auto lost = GENERATE(as<std::string>(), "a put", "an erase", "a new key");
    CAPTURE(goes_on, lost);
    mirror_fixture f;
    f.write({{"c/a", "1"}, {"c/b", "1"}, {"c/x", "1"}});
    mirror& m = f.open();
    mirror_changes seen = f.reader();
    f.etcd->tells = false;
    mirror_list expected{"c/a=1", "c/b=1", "c/x=1"};
    if (lost == "a put") {
        f.etcd->write("c/a", "2");
        expected[0] = "c/a=2";
    } else if (lost == "an erase") {
        f.etcd->erase("c/a");
        expected.erase(expected.begin());
    } else {
        f.etcd->write("c/c", "1");
        expected.insert(expected.begin() + 2, "c/c=1");
    }
    f.etcd->tells = true;
    for (int i = 0; i != 160; ++i) { // the watch goes on as if nothing had happened
        f.env->pass(100ms);
        if (goes_on && i < 40) {
            f.etcd->write("c/x", "1");
        }
    }
    CHECK(f.told() == expected);
    CHECK(m.revision() == f.etcd->revision);
    CHECK_FALSE(m.trouble());
    CHECK_FALSE(f.next(seen).empty());
    f.write({{"c/b", "2"}});
    CHECK(f.next(seen) == mirror_list{"c/b 1>2"});
}

TEST_CASE("a mirror reads no more than once if nothing was lost", "[mirror]") {
    mirror_fixture f;
    f.write({{"c/a", "1"}});
    mirror& m = f.open();
    mirror_changes seen = f.reader();
    f.env->calls.clear();
    for (int i = 0; i != 3000; ++i) { // for a minute there is always something under way
        f.etcd->write("c/" + std::to_string(i % 7), std::to_string(i));
        if (i % 3 == 0) {
            f.etcd->erase("c/" + std::to_string(i % 5));
        }
        if (i % 400 == 0) {
            f.etcd->compact(f.etcd->revision - 1);
        }
        f.env->pass(20ms);
    }
    CHECK(std::none_of(f.env->calls.begin(), f.env->calls.end(), [](const call_request& r) {
        return r.what == rpc::range;
    }));
    CHECK(f.env->calls.size() >= 5);
    CHECK(f.env->calls.size() <= 30);
    CHECK(m.size() == f.etcd->under("c/").size());
    CHECK_FALSE(m.trouble());
}

TEST_CASE("wait() returns when a write is seen, one's own or another's", "[mirror]") {
    mirror_fixture f;
    mirror& m = f.open();
    f.env->calls.clear();
    SECTION("of a key that is mirrored, without a round trip") {
        for (int i = 0; i != 10; ++i) {
            const auto put = f.await(f.owner.put("c/a", std::to_string(i)));
            f.await(m.wait(put.header.revision));
            CHECK(m.get("c/a")->value == std::to_string(i));
        }
        CHECK(f.env->calls.size() == 10); // the puts
        f.await(m.wait(0));
        f.await(m.wait(m.revision()));
    }
    SECTION("of another key, with one") {
        f.write({{"c/a", "1"}});
        const auto put = f.await(f.owner.put("d/a", "1"));
        f.env->calls.clear();
        const auto began = f.env->now();
        f.await(m.wait(put.header.revision));
        CHECK(f.env->now() - began < 200ms);
        CHECK(f.env->calls.size() == 1);
        CHECK(m.revision() == put.header.revision);
        const auto again = f.await(f.owner.put("d/a", "1")); // while a look is under way
        auto waiting = f.start(m.wait(again.header.revision));
        f.env->pass(101ms);
        const auto third = f.await(f.owner.put("d/a", "1"));
        auto another = f.start(m.wait(third.header.revision));
        f.env->pass(150ms);
        CHECK(waiting.ended());
        CHECK(another.ended());
    }
    SECTION("of keys that came and went before the watch told of them") {
        f.cut();
        f.etcd->write("c/x", "1");
        f.etcd->erase("c/x");
        const std::int64_t then = f.etcd->revision;
        mirror_changes seen = f.reader();
        f.env->decide = [](const call_request& r) {
            scripted_env::fate fate;
            fate.refused = r.what == rpc::watch;
            return fate;
        };
        f.env->pass(5s);
        CHECK(m.trouble());
        f.await(m.wait(then));
        CHECK(m.size() == 0);
        CHECK(m.revision() >= then);
        CHECK(m.trouble()); // but younger
        CHECK(m.age() < 1s);
        f.heal();
        CHECK(m.size() == 0);
        CHECK(f.next(seen) == mirror_list{"c/x ->1", "c/x 1>-"});
        CHECK_FALSE(m.trouble());
    }
}

TEST_CASE("wait() in vain", "[mirror]") {
    mirror_fixture f;
    mirror& m = f.open();
    const std::int64_t future = f.etcd->revision + 5;
    CHECK_THROWS_AS(m.wait(-1), std::invalid_argument);
    CHECK_THROWS_AS(m.wait_for(-1, 1s), std::invalid_argument);
    CHECK(f.await(m.wait_for(m.revision(), 0s)));
    CHECK(f.await(m.wait_for(m.revision(), -1s)));
    CHECK_FALSE(f.await(m.wait_for(future, 0s)));
    const auto began = f.env->now();
    CHECK_FALSE(f.await(m.wait_for(future, 500ms)));
    CHECK(f.env->now() - began >= 500ms);
    CHECK(f.env->now() - began < 510ms);
    auto cancelled = f.start(m.wait(future));
    auto waiting = f.start(m.wait(future));
    auto limited = f.start(m.wait_for(future, 1h));
    f.env->pass(1s);
    cancelled.cancel();
    f.env->pass(0ms);
    CHECK(cancelled.code() == asio::error::operation_aborted);
    CHECK_FALSE(waiting.ended());
    f.copy.reset();
    f.env->pass(0ms);
    CHECK(waiting.code() == asio::error::operation_aborted);
    CHECK(limited.code() == asio::error::operation_aborted);
}

TEST_CASE("a restored store is begun anew, and everybody is told", "[mirror]") {
    mirror_fixture f;
    f.write({{"c/a", "1"}});
    coetcd::detail::testing::etcd older([] { return 0ns; });
    older.restore(*f.etcd);
    older.write("c/r", "1");
    for (int i = 0; i != 10; ++i) {
        f.write({{"c/a", "2"}, {"c/b", "1"}});
    }
    mirror& m = f.open();
    mirror_changes seen = f.reader();
    mirror_changes late = m.changes();
    const std::int64_t before = m.revision();
    auto waiting = f.start(m.wait(before + 100));
    auto reading = f.start(seen.next());
    f.etcd->restore(older);
    f.env->pass(20s);
    CHECK(reading.code() == errc::revision_regressed);
    CHECK(waiting.code() == errc::revision_regressed);
    CHECK_THAT(support::failure_of(waiting).what(), support::contains("was told of"));
    CHECK(m.revision() < before);
    CHECK(f.told() == mirror_list{"c/a=1", "c/r=1"});
    CHECK_FALSE(m.trouble());
    CHECK(f.next(seen) == mirror_list{"c/a 2>1?", "c/b 1>-?", "c/r ->1?"});
    CHECK(f.next(late) == mirror_list{"c/a ->1?", "c/r ->1?"}); // it was told nothing before
    f.write({{"c/a", "3"}});
    CHECK(f.next(seen) == mirror_list{"c/a 1>3"});
    f.await(m.wait(f.etcd->revision));
}

TEST_CASE("an answer of a member that is behind does not take a mirror back", "[mirror]") {
    mirror_fixture f;
    f.write({{"c/a", "1"}});
    mirror& m = f.open();
    mirror_changes seen = f.reader();
    f.cut();
    f.etcd->write("c/a", "1.5");
    f.etcd->write("c/a", "2");
    f.etcd->compact(f.etcd->revision);
    // The first answers are from before all that.
    int old = 2;
    f.env->on_call = [&, serve = f.env->on_call](const call_request& c, reply& r) {
        serve(c, r);
        if (c.what == rpc::range && old-- > 0) {
            const auto past = r.body.find(R"("revision":")");
            REQUIRE(past != r.body.npos);
            r.body = R"({"header":{"cluster_id":"14841639068965178418","revision":"1"}})";
        }
    };
    f.env->decide = nullptr;
    f.env->pass(500ms);
    CHECK(f.told() == mirror_list{"c/a=1"});
    f.env->pass(15s);
    CHECK(f.told() == mirror_list{"c/a=2"});
    CHECK(f.next(seen) == mirror_list{"c/a 1>2?"});
    CHECK(m.revision() == f.etcd->revision);
}

TEST_CASE("a mirror that etcd refuses twice has ended, and tells what it knew", "[mirror]") {
    mirror_fixture f;
    f.write({{"c/a", "1"}});
    mirror& m = f.open();
    mirror_changes seen = f.reader();
    auto reading = f.start(seen.next());
    auto waiting = f.start(m.wait(1'000));
    const auto serve = f.env->on_call;
    SECTION("it is refused for good") {
        refuse_reads(*f.env, "etcdserver: permission denied", 7);
        f.env->pass(20s);
        REQUIRE(m.trouble());
        CHECK(m.trouble()->code() == server_errc::permission_denied);
        CHECK(reading.code() == server_errc::permission_denied);
        CHECK(waiting.code() == server_errc::permission_denied);
        auto again = f.start(seen.next());
        auto other = f.start(m.wait(1'000));
        f.env->pass(0ms);
        CHECK(again.code() == server_errc::permission_denied);
        CHECK(other.code() == server_errc::permission_denied);
        f.await(m.wait(m.revision()));
        mirror_changes fresh = m.changes();
        CHECK(f.next(fresh) == mirror_list{"c/a ->1?"});
        CHECK(f.told() == mirror_list{"c/a=1"});
        CHECK(m.age() > 0s);
        CHECK(f.etcd->watches() == 0);
        f.env->calls.clear();
        f.env->pass(1h);
        CHECK(f.env->calls.empty());
    }
    SECTION("once") {
        int refused = 0;
        f.env->on_call = [&](const call_request& c, reply& r) {
            serve(c, r);
            if (c.what == rpc::txn && ++refused == 1) {
                r.status = 403;
                r.body = R"({"error":"x","message":"etcdserver: permission denied","code":7})";
            }
        };
        f.env->pass(30s);
        CHECK(refused > 1);
        CHECK_FALSE(m.trouble());
        CHECK_FALSE(reading.ended());
        f.write({{"c/a", "2"}});
        CHECK(f.texts(reading.get()) == mirror_list{"c/a 1>2"});
    }
}

TEST_CASE("open_mirror() fails as other calls do", "[mirror]") {
    mirror_fixture f;
    f.write({{"c/a", "1"}});
    coetcd::mirror_options none;
    none.buffer = 0;
    CHECK_THROWS_AS(coetcd::open_mirror(f.owner, "c/", none), std::invalid_argument);
    CHECK_THROWS_AS(coetcd::open_mirror_of(f.owner, key_range("")), std::invalid_argument);
    f.env->calls.clear();
    SECTION("refused") {
        refuse_reads(*f.env, "etcdserver: permission denied", 7);
        auto opening = f.start(coetcd::open_mirror(f.owner, "c/"));
        f.env->pass(1s);
        CHECK(opening.code() == server_errc::permission_denied);
        CHECK_THAT(support::failure_of(opening).what(), support::contains("mirror of \"c/\""));
    }
    SECTION("no answer in time") {
        f.cut();
        auto opening = f.start(coetcd::open_mirror(f.owner.with_timeout(2s), "c/"));
        f.env->pass(2010ms);
        REQUIRE(opening.ended());
        CHECK((opening.code() == errc::unavailable || opening.code() == errc::timed_out));
    }
    SECTION("an answer that is not etcd's") {
        f.env->on_call = [](const call_request&, reply& r) {
            r.body = R"({"header":{"cluster_id":"14841639068965178418","revision":"9"},)"
                     R"("kvs":[{"key":"eA==","mod_revision":"2"}]})"; // "x"
        };
        auto opening = f.start(coetcd::open_mirror(f.owner, "c/"));
        f.env->pass(1s);
        CHECK(opening.code() == errc::protocol_error);
    }
    CHECK(f.etcd->watches() == 0);
}

TEST_CASE("open_mirror() that is cancelled at any moment leaves no watch",
          "[mirror][cancellation]") {
    for (auto when = 0ms; when < 10ms; ++when) {
        mirror_fixture f;
        auto opening = f.start(coetcd::open_mirror(f.owner, "c/"));
        f.env->pass(when);
        opening.cancel();
        f.env->pass(20ms);
        REQUIRE(opening.ended());
        CHECK(f.etcd->watches() == (opening.succeeded() ? 1 : 0));
    }
}

TEST_CASE("a mirror ends with its handle, and its readers with it", "[mirror]") {
    mirror_fixture f;
    f.write({{"c/a", "1"}});
    mirror& m = f.open();
    mirror_changes seen = f.reader();
    std::optional<mirror_changes> gone = f.reader();
    auto reading = f.start(seen.next());
    auto of_gone = f.start(gone->next());
    f.env->pass(10ms);
    gone.reset();
    f.env->pass(0ms);
    CHECK(of_gone.code() == asio::error::operation_aborted);
    CHECK_FALSE(reading.ended());
    mirror moved = std::move(m);
    CHECK_THROWS_AS(f.copy->get("c/a"), std::logic_error);
    CHECK_THROWS_AS(f.copy->changes(), std::logic_error);
    CHECK_THROWS_AS(mirror_changes().next(), std::logic_error);
    CHECK(moved.size() == 1);
    CHECK(f.etcd->watches() == 1);
    moved = mirror(); // ends it
    f.env->pass(10ms);
    CHECK(reading.code() == asio::error::operation_aborted);
    auto again = f.start(seen.next());
    f.env->pass(0ms);
    CHECK(again.code() == asio::error::operation_aborted);
    CHECK(f.etcd->watches() == 0);
    f.env->calls.clear();
    f.env->pass(10min);
    CHECK(f.env->calls.empty());
}

TEST_CASE("a mirror may be asked, followed and destroyed away from home", "[mirror]") {
    mirror_fixture f;
    f.write({{"c/a", "1"}});
    mirror& m = f.open();
    std::optional<mirror_changes> seen = f.reader();
    f.env->away = true;
    mirror_changes fresh = m.changes();
    CHECK(m.get("c/a")->value == "1");
    CHECK(f.told() == mirror_list{"c/a=1"});
    CHECK_FALSE(m.trouble());
    seen.reset();
    f.env->pass(0ms);
    CHECK(f.next(fresh) == mirror_list{"c/a ->1?"});
    f.copy.reset();
    CHECK(f.etcd->watches() == 1); // it ends at home
    f.env->pass(10ms);
    CHECK(f.etcd->watches() == 0);
    auto over = f.start(fresh.next());
    f.env->pass(0ms);
    CHECK(over.code() == asio::error::operation_aborted);
    f.env->away = false;
}

TEST_CASE("a mirror may be destroyed at any moment while it reads again", "[mirror]") {
    for (auto when = 0ms; when < 60ms; when += 2ms) {
        mirror_fixture f;
        f.write({{"c/a", "1"}});
        f.open();
        f.cut();
        f.etcd->write("c/a", "2");
        f.etcd->write("c/a", "3");
        f.etcd->compact(f.etcd->revision);
        f.env->decide = nullptr;
        f.env->pass(500ms + when);
        f.copy.reset();
        f.env->pass(1s);
        CHECK(f.etcd->watches() == 0);
        f.env->calls.clear();
        f.env->pass(1min);
        CHECK(f.env->calls.empty());
    }
}

TEST_CASE("next() of a mirror's reader can be cancelled, and loses nothing",
          "[mirror][cancellation]") {
    mirror_fixture f;
    f.write({{"c/a", "1"}});
    mirror& m = f.open();
    mirror_changes seen = m.changes();
    CHECK(f.next(seen) == mirror_list{"c/a ->1?"});
    auto reading = f.start(seen.next());
    f.env->pass(10ms);
    reading.cancel();
    f.env->pass(0ms);
    CHECK(reading.code() == asio::error::operation_aborted);
    f.write({{"c/a", "2"}});
    CHECK(f.next(seen) == mirror_list{"c/a 1>2"});
}

TEST_CASE("next() || timer of a mirror's reader loses nothing if the timer wins",
          "[mirror][cancellation]") {
    constexpr int most_hops = 24;
    int lost = 0;
    for (const bool elsewhere : {false, true}) {
        for (int hops = 0; hops != most_hops; ++hops) {
            INFO("elsewhere " << elsewhere << ", " << hops << " handlers later");
            mirror_fixture f;
            mirror& m = f.open();
            mirror_changes seen = f.reader();
            mirror_changes other = f.reader();
            std::optional<support::race<mirror_batch>> first;
            const auto ring = [&]() -> asio::awaitable<bool> { // when the event has come
                (void)co_await other.next();
                first->ring_after(hops);
                co_return true;
            };
            auto ringing = f.start(ring());
            f.env->pass(0ms);
            first.emplace(f, seen.next(), elsewhere);
            f.env->pass(5ms);
            f.etcd->write("c/a", "1");
            f.env->pass(10ms);
            const bool told = first->result().has_value();
            lost += told ? 0 : 1;
            f.write({{"c/a", "2"}});
            CHECK(f.next(seen) ==
                  (told ? mirror_list{"c/a 1>2"} : mirror_list{"c/a ->1", "c/a 1>2"}));
            CHECK(m.size() == 1);
        }
    }
    CHECK(lost > 0);
    CHECK(lost < 2 * most_hops);
}

TEST_CASE("what a mirror costs, in round trips", "[mirror]") {
    mirror_fixture f;
    for (int i = 0; i != 400; ++i) {
        f.etcd->write("c/" + std::to_string(i), "1");
    }
    f.env->calls.clear();
    mirror& m = f.open();
    CHECK(f.env->calls.size() == 1);
    mirror_changes seen = f.reader();
    for (int i = 0; i != 100; ++i) {
        f.etcd->write("c/" + std::to_string(i), "2");
        f.env->pass(2ms);
        (void)f.await(seen.next());
        (void)m.get("c/1");
        (void)m.snapshot();
    }
    CHECK(f.env->calls.size() == 1);
    f.env->calls.clear();
    f.env->pass(140s); // at 400 keys a look each 7 to 14 s
    CHECK(f.env->calls.size() >= 10);
    CHECK(f.env->calls.size() <= 20);
    CHECK(f.reads() == f.env->calls.size());
    CHECK(f.etcd->watches() == 1);
}
