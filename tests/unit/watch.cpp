// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/access.hpp>
#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/detail/service/watch_sink.hpp>
#include <coetcd/detail/wire/watch.hpp>
#include <coetcd/value.hpp>
#include <coetcd/watch.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/race.hpp"
#include "support/world.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::event;
using coetcd::detail::call_request;
using support::background;
using support::scripted_env;
using support::world;

namespace {

void put(world& w, const coetcd::client& client, std::string key, std::string value) {
    (void)w.await(client.put(std::move(key), std::move(value)));
}

std::vector<std::string> values(const std::vector<event>& events) {
    std::vector<std::string> out;
    for (const event& e : events) {
        out.push_back(e.type == coetcd::event_type::put ? e.kv.value : "-");
    }
    return out;
}

using strings = std::vector<std::string>;
using revisions = std::vector<std::int64_t>;

revisions revisions_of(const std::vector<event>& events) {
    revisions out;
    for (const event& e : events) {
        out.push_back(e.kv.mod_revision);
    }
    return out;
}

/// What next() returns at once.
coetcd::watch_batch now(world& w, coetcd::watcher& from) {
    auto reading = w.start(from.next());
    w.env->pass(0ms);
    return reading.get();
}

/// An etcd of which the test says each word. It confirms watches by itself, with a revision that is
/// ahead of the events to come.
class script {
public:
    explicit script(world& w)
        : world_(w) {
        w.env->on_open = [this](const call_request& r,
                                std::shared_ptr<scripted_env::server_stream> stream) {
            stream_ = stream;
            hear(r.body);
        };
        w.env->on_message = [this](std::shared_ptr<scripted_env::server_stream>,
                                   const std::string& lines) { hear(lines); };
    }

    revisions starts;     ///< Of all creates.
    revisions ids;        ///< Theirs.
    revisions canceled;   ///< The ids of those that were ended.
    bool confirms = true; ///< Creates.

    void say(const std::string& result) {
        stream_->push(R"({"result":)" + result + "}");
        world_.env->pass(10ms);
    }
    void progress(std::int64_t id, std::int64_t revision) { say(head(id, revision) + "}"); }
    /// @param revision That of the header.
    /// @param more It is a piece of a message.
    void events(std::int64_t id, std::int64_t revision, const revisions& of, bool more = false) {
        coetcd::detail::reply r;
        r.status = 200;
        r.more = more;
        r.body = R"({"result":)" + head(id, revision) + list(of) + "}";
        stream_->push(std::move(r));
        world_.env->pass(10ms);
    }
    /// The same, without letting others run.
    void events_now(std::int64_t id, const revisions& of) {
        coetcd::detail::reply r;
        r.status = 200;
        r.body = R"({"result":)" + head(id, 99) + list(of) + "}";
        stream_->arrive(std::move(r));
    }
    void fail(coetcd::error_code ec, std::string beginning) {
        coetcd::detail::reply r;
        r.status = 200;
        r.ec = ec;
        r.body = std::move(beginning);
        stream_->push(std::move(r));
        world_.env->pass(10ms);
    }
    /// Of a message that is not complete so many bytes come.
    void trickle(std::uint64_t bytes) {
        stream_->received += bytes;
        world_.env->pass(1s);
    }
    void breaks() {
        world_.env->break_streams();
        world_.env->pass(1s);
    }

private:
    static std::string list(const revisions& of) {
        std::string text;
        for (const std::int64_t r : of) {
            text += (text.empty() ? "" : ",") +
                    (R"({"kv":{"key":"YQ==","mod_revision":")" + std::to_string(r) + R"("}})");
        }
        return R"(,"events":[)" + text + "]}";
    }
    static std::string head(std::int64_t id, std::int64_t revision) {
        return R"({"header":{"cluster_id":"14841639068965178418","revision":")" +
               std::to_string(revision) + R"("},"watch_id":")" + std::to_string(id) + '"';
    }
    void hear(const std::string& lines) {
        std::istringstream in(lines);
        for (std::string line; std::getline(in, line);) {
            const auto message = nlohmann::json::parse(line);
            if (message.contains("cancel_request")) {
                canceled.push_back(message["cancel_request"]["watch_id"].get<long long>());
            }
            if (!message.contains("create_request")) {
                continue;
            }
            const auto& create = message["create_request"];
            const auto number = [&](const char* name) {
                return create.contains(name) ? create[name].get<long long>() : 0;
            };
            ids.push_back(number("watch_id"));
            starts.push_back(number("start_revision"));
            if (confirms) {
                stream_->push(R"({"result":)" + head(ids.back(), 99) + R"(,"created":true}})");
            }
        }
    }

    world& world_;
    std::shared_ptr<scripted_env::server_stream> stream_;
};

coetcd::watch_options from(std::int64_t revision) {
    coetcd::watch_options options;
    options.start_revision = revision;
    return options;
}

} // namespace

static_assert(std::is_trivially_destructible_v<coetcd::watch_options>);

TEST_CASE("a watch tells of changes from its start on", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    put(w, client, "a", "0");
    coetcd::watcher seen = w.await(client.watch("a"));
    put(w, client, "a", "1");
    put(w, client, "b", "x");
    (void)w.await(client.erase("a"));
    w.env->pass(10ms);
    REQUIRE(values(w.await(seen.next()).events) == strings{"1", "-"});
    auto waiting = w.start(seen.next());
    w.env->pass(1s);
    REQUIRE_FALSE(waiting.ended());
    put(w, client, "a", "2");
    w.env->pass(10ms);
    REQUIRE(values(waiting.get().events) == strings{"2"});
}

TEST_CASE("a watch reads no more than one key, however many it is for", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    std::string read;
    w.env->decide = [&](const call_request& r) {
        if (r.what == coetcd::detail::rpc::range) {
            read = r.body;
        }
        return scripted_env::fate();
    };
    for (const coetcd::key_range& keys : {coetcd::key_range::prefix("p/"),
                                          coetcd::key_range::from("p/"),
                                          coetcd::key_range("p/")}) {
        read.clear();
        (void)w.await(client.watch(keys));
        CHECK(read == R"({"key":"cC8=","keys_only":true})");
    }
    (void)w.await(client.watch(coetcd::key_range::all()));
    CHECK(read == R"({"key":"AA==","keys_only":true})");
}

TEST_CASE("a watch tells of history from its start revision on", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    for (const char* v : {"1", "2", "3"}) {
        put(w, client, "p/a", v);
    }
    coetcd::watcher seen = w.await(client.watch(coetcd::key_range::prefix("p/"), from(3)));
    w.env->pass(10ms);
    const std::vector<event> events = w.await(seen.next()).events;
    REQUIRE(values(events) == strings{"2", "3"});
    REQUIRE(events[0].kv.mod_revision == 3);
}

TEST_CASE("what happens while a watch is being created is told", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    const auto listen = w.env->on_open;
    w.env->on_open = [&](const call_request& r, std::shared_ptr<scripted_env::server_stream> s) {
        w.etcd->write("a", "1"); // after the call began, before etcd knows of the watch
        listen(r, s);
    };
    coetcd::watcher seen = w.await(client.watch("a"));
    w.env->pass(10ms);
    auto reading = w.start(seen.next());
    w.env->pass(10ms);
    REQUIRE(reading.ended());
    REQUIRE(values(reading.get().events) == strings{"1"});
}

TEST_CASE("a watch whose member stands still goes on elsewhere", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::watcher seen = w.await(client.watch("a"));
    const auto serve = w.env->on_message;
    w.env->on_message = [](std::shared_ptr<scripted_env::server_stream>, const std::string&) {};
    w.etcd->tells = false;
    w.etcd->write("a", "1");
    w.etcd->tells = true;
    w.env->pass(9s);
    REQUIRE(w.env->opened.size() == 1);
    w.env->pass(4s); // it was asked, and did not answer
    REQUIRE(w.env->opened.size() == 2);
    auto reading = w.start(seen.next());
    w.env->pass(10ms);
    REQUIRE(values(reading.get().events) == strings{"1"});
    w.env->on_message = serve;
    w.env->pass(10min); // one that answers is left in peace
    REQUIRE(w.env->opened.size() == 2);
    REQUIRE(w.etcd->watches() == 1);
}

TEST_CASE("a large message on a slow line is waited for, but not one that comes in drops",
          "[watch]") {
    for (const bool drops : {false, true}) {
        CAPTURE(drops);
        world w;
        const coetcd::client client = w.client();
        script etcd(w);
        coetcd::watcher seen = w.await(client.watch("a", from(10)));
        etcd.confirms = false;
        for (int i = 0; i != 100; ++i) {
            etcd.trickle(drops ? 1000 : 20'000);
        }
        CHECK((etcd.starts.size() > 1) == drops);
        if (!drops) {
            etcd.events(1, 99, {11});
            CHECK(revisions_of(now(w, seen).events) == revisions{11});
        }
    }
}

TEST_CASE("filters leave out what is not wanted", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::watch_options only;
    only.no_put = true;
    coetcd::watcher erases = w.await(client.watch("a", only));
    only = {};
    only.no_erase = true;
    coetcd::watcher puts = w.await(client.watch("a", only));
    put(w, client, "a", "1");
    (void)w.await(client.erase("a"));
    w.env->pass(10ms);
    REQUIRE(values(w.await(erases.next()).events) == strings{"-"});
    REQUIRE(values(w.await(puts.next()).events) == strings{"1"});
}

TEST_CASE("a watch goes on after a break, without gap or duplicate", "[watch]") {
    // The stream breaks at every moment relative to a series of puts.
    for (auto when = 0ms; when < 40ms; ++when) {
        world w;
        const coetcd::client client = w.client();
        coetcd::watcher seen = w.await(client.watch("a"));
        auto writing = w.start([](coetcd::client c) -> asio::awaitable<bool> {
            for (int i = 0; i < 20; ++i) {
                (void)co_await c.put("a", std::to_string(i));
            }
            co_return true;
        }(client));
        w.env->pass(when);
        w.env->break_streams();
        w.env->pass(2s);
        REQUIRE(writing.get());
        const std::vector<event> events = w.await(seen.next()).events;
        INFO("after " << when.count() << " ms");
        REQUIRE(events.size() == 20);
        for (std::size_t i = 0; i < events.size(); ++i) {
            REQUIRE(events[i].kv.value == std::to_string(i));
        }
    }
}

TEST_CASE("a stream that lasted is begun again at once, however many broke before", "[watch]") {
    world w;
    script etcd(w);
    const coetcd::client client = w.client();
    coetcd::watcher seen = w.await(client.watch("a", from(10)));
    const auto break_it = [&] {
        const std::size_t before = etcd.starts.size();
        const auto began = w.env->now();
        w.env->break_streams();
        while (etcd.starts.size() == before) {
            w.env->pass(1ms);
        }
        return w.env->now() - began;
    };
    std::chrono::nanoseconds last{0};
    for (int i = 0; i != 8; ++i) {
        last = break_it();
    }
    CHECK(last > 400ms); // it is in no hurry where they break at once
    w.env->pass(2s);
    CHECK(break_it() < 60ms);
}

TEST_CASE("the pause after a break ends with the last watch", "[watch]") {
    world w;
    script etcd(w);
    const coetcd::client client = w.client();
    std::optional<coetcd::watcher> seen = w.await(client.watch("a", from(10)));
    for (std::size_t i = 1; i != 9; ++i) {
        w.env->break_streams();
        while (etcd.starts.size() == i) {
            w.env->pass(1ms);
        }
    }
    w.env->break_streams(); // the pause is 400 ms at the least now
    const std::size_t before = etcd.starts.size();
    w.env->pass(10ms);
    CHECK(etcd.starts.size() == before);
    seen.reset();
    w.env->pass(1ms);
    const auto next = w.start(client.watch("a", from(10)));
    w.env->pass(10ms); // it does not wait for the rest
    CHECK(etcd.starts.size() == before + 1);
}

TEST_CASE("many watches are created again piece by piece", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    std::vector<coetcd::watcher> many;
    for (int i = 0; i < 1000; ++i) {
        many.push_back(w.await(client.watch("k" + std::to_string(i))));
    }
    constexpr std::size_t most = 16 * 1024; // what a slow line carries in a second or two
    std::size_t pieces = 0;
    std::size_t largest = 0;
    const auto count = [&](const std::string& piece) {
        ++pieces;
        largest = std::max(largest, piece.size());
    };
    w.env->on_open = [&, open = w.env->on_open](const call_request& r, auto stream) {
        count(r.body);
        open(r, std::move(stream));
    };
    w.env->on_message = [&, hear = w.env->on_message](auto stream, const std::string& lines) {
        count(lines);
        hear(std::move(stream), lines);
    };
    w.env->break_streams();
    w.env->pass(5s);
    REQUIRE(w.env->opened.size() == 2);
    REQUIRE(w.etcd->watches() == 1000);
    CHECK(largest <= most);
    CHECK(pieces < 20);
    put(w, client, "k0", "first");
    put(w, client, "k999", "last");
    w.env->pass(10ms);
    CHECK(values(now(w, many.front()).events) == strings{"first"});
    CHECK(values(now(w, many.back()).events) == strings{"last"});

    // One message may be larger.
    const std::string huge(most * 2, 'k');
    coetcd::watcher large = w.await(client.watch(huge));
    put(w, client, huge, "x");
    w.env->pass(10ms);
    CHECK(values(now(w, large).events) == strings{"x"});
}

TEST_CASE("all watches of a client share one stream, and leave nothing behind", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    std::vector<coetcd::watcher> many;
    for (int i = 0; i < 20; ++i) {
        many.push_back(w.await(client.watch("k" + std::to_string(i))));
    }
    REQUIRE(w.env->opened.size() == 1);
    REQUIRE(w.etcd->watches() == 20);
    put(w, client, "k7", "x");
    w.env->pass(10ms);
    REQUIRE(values(w.await(many[7].next()).events) == strings{"x"});
    many.erase(many.begin(), many.begin() + 10);
    w.env->pass(10ms);
    REQUIRE(w.etcd->watches() == 10);
    many.clear();
    w.env->pass(10ms);
    REQUIRE(w.etcd->watches() == 0);
    // The stream was closed with the last one; the next watch opens another.
    coetcd::watcher next = w.await(client.watch("k1"));
    REQUIRE(w.env->opened.size() == 2);
}

TEST_CASE("a watch whose history was compacted says so, and from where there is some", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    for (int i = 0; i < 9; ++i) {
        put(w, client, "a", std::to_string(i));
    }
    w.etcd->compacted = 7;
    coetcd::watcher seen = w.await(client.watch("a", from(3)));
    auto reading = w.start(seen.next());
    w.env->pass(10ms);
    REQUIRE(reading.code() == errc::watch_compacted);
    try {
        (void)reading.get();
    } catch (const coetcd::compacted_error& e) {
        REQUIRE(e.compact_revision() == 7);
        REQUIRE_THAT(e.what(), support::contains("begins at revision 7"));
    }
    auto again = w.start(seen.next());
    w.env->pass(10ms);
    REQUIRE(again.code() == errc::watch_compacted);
}

TEST_CASE("next() can be cancelled, and loses nothing", "[watch][cancellation]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::watcher seen = w.await(client.watch("a"));
    auto reading = w.start(seen.next());
    w.env->pass(10ms);
    reading.cancel();
    w.env->pass(0ms);
    REQUIRE(reading.code() == asio::error::operation_aborted);
    put(w, client, "a", "1");
    w.env->pass(10ms);
    REQUIRE(values(w.await(seen.next()).events) == strings{"1"});
}

TEST_CASE("next() || timer loses nothing if the timer wins", "[watch][cancellation]") {
    constexpr int most_hops = 24;
    for (const bool elsewhere : {false, true}) {
        int lost = 0;
        for (int hops = 0; hops != most_hops; ++hops) {
            INFO("elsewhere " << elsewhere << ", " << hops << " handlers later");
            world w;
            const coetcd::client client = w.client();
            script etcd(w);
            coetcd::watch_options small = from(10);
            small.buffer = 1; // so that it pauses, too
            coetcd::watcher seen = w.await(client.watch("a", small));
            support::race<coetcd::watch_batch> first(w, seen.next(), elsewhere);
            w.env->pass(10ms);
            etcd.events_now(1, {10, 11});
            first.ring_after(hops);
            w.env->pass(10ms);
            const auto told = first.result();
            if (told) {
                REQUIRE(revisions_of(told->events) == revisions{10, 11});
                continue;
            }
            ++lost;
            const auto batch = w.await(seen.next());
            REQUIRE(revisions_of(batch.events) == revisions{10, 11});
            REQUIRE(batch.revision == 11);
            w.env->pass(10ms);
            etcd.events(etcd.ids.back(), 99, {12});
            REQUIRE(revisions_of(now(w, seen).events) == revisions{12});
            REQUIRE(etcd.starts.back() == 12);
        }
        CHECK(lost > 0);
        CHECK(lost < most_hops);
    }
}

TEST_CASE("next() ends when its watcher is destroyed", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    std::optional<coetcd::watcher> seen = w.await(client.watch("a"));
    auto reading = w.start(seen->next());
    w.env->pass(10ms);
    seen.reset();
    w.env->pass(10ms);
    REQUIRE(reading.code() == asio::error::operation_aborted);
    REQUIRE(w.etcd->watches() == 0);
    coetcd::watcher one = w.await(client.watch("a"));
    coetcd::watcher two = w.await(client.watch("b"));
    one = std::move(two);
    w.env->pass(10ms);
    REQUIRE(w.etcd->watches() == 1);
}

TEST_CASE("watch() that is cancelled at any moment leaves no watch", "[watch][cancellation]") {
    for (auto when = 0ms; when < 10ms; ++when) {
        world w;
        const coetcd::client client = w.client();
        auto starting = w.start(client.watch("a"));
        w.env->pass(when);
        starting.cancel();
        w.env->pass(0ms);
        REQUIRE(starting.ended());
        w.env->pass(20ms);
        REQUIRE(w.etcd->watches() == (starting.succeeded() ? 1 : 0));
    }
}

TEST_CASE("watch() fails at its deadline if no endpoint confirms it", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    w.env->decide = [](const call_request& r) {
        scripted_env::fate f;
        f.arrives = r.what != coetcd::detail::rpc::watch;
        return f;
    };
    auto starting = w.start(client.watch("a"));
    w.env->pass(5010ms);
    REQUIRE(starting.code() == errc::timed_out);
    REQUIRE(w.env->opened.size() >= 2); // it did not wait for the first one all the time
}

TEST_CASE("arguments that cannot be right are refused before anything is sent", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    REQUIRE_THROWS_WITH(client.watch(""), support::contains("key"));
    coetcd::watch_options bad;
    bad.start_revision = -1;
    REQUIRE_THROWS_WITH(client.watch("a", bad), support::contains("start_revision"));
    REQUIRE(w.env->calls.empty());
}

TEST_CASE("a watch goes on with another token when etcd refuses the old one", "[watch][auth]") {
    world w;
    w.etcd->require_user("root", "secret");
    coetcd::client_options options;
    options.credentials.emplace("root", std::string("secret"));
    options.insecure_plain_text_credentials = true;
    const coetcd::client client = w.client(options);
    coetcd::watcher seen = w.await(client.watch("a"));
    w.etcd->write("a", "1");
    REQUIRE(values(w.await(seen.next()).events) == strings{"1"});
    w.etcd->expire_tokens();
    w.env->break_streams();
    w.env->pass(1s);
    w.etcd->write("a", "2");
    REQUIRE(values(w.await(seen.next()).events) == strings{"2"});
    // One that is created on a stream whose token has expired meanwhile.
    w.etcd->expire_tokens();
    coetcd::watcher other = w.await(client.watch("b"));
    w.etcd->write("b", "3");
    REQUIRE(values(w.await(other.next()).events) == strings{"3"});
}

TEST_CASE("a refusal ends the watch that it is for, with etcd's code", "[watch]") {
    const auto [reason, code] = GENERATE(table<std::string, coetcd::error_code>(
        {{"rpc error: code = PermissionDenied desc = etcdserver: permission denied",
          coetcd::server_errc::permission_denied},
         {"rpc error: code = Unauthenticated desc = etcdserver: invalid auth token",
          coetcd::server_errc::unauthenticated},
         {"mvcc: watcher range is empty", errc::watch_canceled}}));
    INFO(reason);
    world w;
    const coetcd::client client = w.client();
    script etcd(w);
    coetcd::watcher good = w.await(client.watch("a", from(10)));
    etcd.confirms = false;
    auto starting = w.start(client.watch("secret", from(10)));
    w.env->pass(10ms);
    etcd.say(
        R"({"header":{"cluster_id":"14841639068965178418"},"watch_id":"-1","created":true,"canceled":true,"cancel_reason":")" +
        reason + R"("})");
    REQUIRE(starting.code() == code);
    try {
        (void)starting.get();
    } catch (const coetcd::error& e) {
        REQUIRE_THAT(e.what(), support::contains(reason.substr(reason.rfind(':'))));
    }
    etcd.events(1, 20, {15});
    REQUIRE(revisions_of(now(w, good).events) == revisions{15});
    REQUIRE(w.env->opened.size() == 1);
}

TEST_CASE("a watch that has told of more than there is ends, and does not wait for it", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    for (int i = 0; i != 5; ++i) {
        w.etcd->write("a", std::to_string(i));
    }
    coetcd::watcher ahead = w.await(client.watch("a", from(2)));
    const coetcd::watch_batch told = now(w, ahead);
    REQUIRE(told.revision == w.etcd->revision);
    coetcd::watcher waiting = w.await(client.watch("a", from(100)));
    auto reading = w.start(ahead.next());
    auto patient = w.start(waiting.next());

    SECTION("it was restored from a snapshot") {
        w.etcd->revision = 3;
        w.env->break_streams();
        w.env->pass(5s);
        REQUIRE(reading.code() == errc::revision_regressed);
        try {
            (void)reading.get();
        } catch (const coetcd::error& e) {
            REQUIRE_THAT(e.what(), support::contains("at revision 3, and revision 6 was told of"));
        }
        REQUIRE(w.etcd->watches() == 1); // nothing of it is left in etcd
    }
    SECTION("only one read says so") {
        w.etcd->revision = 3;
        w.env->break_streams();
        int reads = 0;
        w.env->decide = [&](const coetcd::detail::call_request& r) {
            if (r.what == coetcd::detail::rpc::range && ++reads == 2) {
                w.etcd->revision = 6;
            }
            CHECK_THAT(r.body, support::contains(R"("YQ==")")); // what the user may read
            return scripted_env::fate();
        };
        w.env->pass(5s);
        REQUIRE(reads == 2);
        REQUIRE_FALSE(reading.ended());
    }
    SECTION("a watch that has begun in the older store is not meant") {
        w.etcd->revision = 3;
        w.env->break_streams();
        int reads = 0;
        w.env->decide = [&](const coetcd::detail::call_request& r) {
            reads += r.what == coetcd::detail::rpc::range ? 1 : 0;
            return scripted_env::fate();
        };
        while (reads != 2) {
            w.env->pass(10ms);
        }
        coetcd::watcher young = w.await(client.watch("b", from(4)));
        w.etcd->write("b", ""); // revision 4
        w.env->pass(10ms);
        REQUIRE(now(w, young).revision == 4);
        auto next = w.start(young.next());
        w.env->pass(5s);
        REQUIRE(reading.code() == errc::revision_regressed);
        REQUIRE_FALSE(next.ended());
    }
    SECTION("nor is one that is told more while the last read is on its way") {
        coetcd::watcher young = w.await(client.watch("b", from(3)));
        w.etcd->revision = 2;
        w.env->break_streams();
        int reads = 0;
        w.env->on_call = [&, serve = w.env->on_call](const auto& r, auto& answer) {
            serve(r, answer);
            if (++reads == 2) {
                w.etcd->write("b", "1"); // revision 3
            }
        };
        auto next = w.start(young.next());
        w.env->pass(5s);
        REQUIRE(reads == 2);
        REQUIRE(reading.code() == errc::revision_regressed);
        REQUIRE(next.get().revision == 3);
        auto after = w.start(young.next());
        w.env->pass(5s);
        REQUIRE_FALSE(after.ended());
    }
    SECTION("etcd refuses to say so") {
        w.etcd->revision = 3;
        w.env->break_streams();
        int reads = 0;
        w.env->on_call = [&](const coetcd::detail::call_request&, coetcd::detail::reply& r) {
            ++reads;
            r.status = 403;
            r.body = R"({"error":"etcdserver: permission denied","code":7})";
        };
        w.env->pass(10s);
        REQUIRE(reads == 1);
        REQUIRE_FALSE(reading.ended());
    }
    SECTION("no member can say so") {
        w.etcd->revision = 3;
        w.env->break_streams();
        bool answers = false;
        w.env->decide = [&](const coetcd::detail::call_request&) {
            scripted_env::fate f;
            f.answered = answers;
            return f;
        };
        w.env->pass(30s);
        REQUIRE_FALSE(reading.ended());
        answers = true;
        w.env->pass(5s);
        REQUIRE(reading.code() == errc::revision_regressed);
    }
    REQUIRE_FALSE(patient.ended()); // for it has told of nothing
}

TEST_CASE("that etcd was restored is seen where each answer takes long, too", "[watch]") {
    world w;
    coetcd::client_options o;
    o.attempt_timeout = 5s;
    const coetcd::client client = w.client(o);
    w.etcd->write("a", "");
    w.etcd->write("a", "");
    w.env->round_trip = 1500ms;
    coetcd::watcher ahead = w.await(client.watch("a", from(2)));
    (void)now(w, ahead);
    auto reading = w.start(ahead.next());
    w.etcd->revision = 1;
    w.env->break_streams();
    w.env->pass(20s);
    REQUIRE(reading.code() == errc::revision_regressed);
}

TEST_CASE("what a watch has told of counts from its first read on, and after a pause", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    for (int i = 0; i != 5; ++i) {
        w.etcd->write("a", std::to_string(i));
    }
    REQUIRE(w.etcd->revision == 6);
    coetcd::watch_options options;

    SECTION("nothing has happened since it read where to begin") {
        coetcd::watcher seen = w.await(client.watch("a"));
        auto reading = w.start(seen.next());
        w.etcd->revision = 3;
        w.env->break_streams();
        w.env->pass(5s);
        REQUIRE(reading.code() == errc::revision_regressed);
    }
    SECTION("it was told to stop, and went on") {
        options.buffer = 1;
        options.start_revision = 6;
        coetcd::watcher seen = w.await(client.watch("a", options));
        w.env->pass(10ms);
        REQUIRE(w.etcd->watches() == 0);
        REQUIRE(now(w, seen).revision == 6);
        auto reading = w.start(seen.next());
        w.env->pass(10ms);
        REQUIRE(w.etcd->watches() == 1);
        w.etcd->revision = 3;
        w.env->break_streams();
        w.env->pass(5s);
        REQUIRE(reading.code() == errc::revision_regressed);
    }
    SECTION("it was told to stop, and goes on after the restore") {
        options.buffer = 1;
        options.start_revision = 6;
        coetcd::watcher seen = w.await(client.watch("a", options));
        w.env->pass(10ms);
        REQUIRE(w.etcd->watches() == 0);
        w.etcd->revision = 3;
        REQUIRE(now(w, seen).revision == 6);
        auto reading = w.start(seen.next());
        w.env->pass(5s);
        REQUIRE(reading.code() == errc::revision_regressed);
    }
    SECTION("it begins in the future, and has told of nothing") {
        coetcd::watcher seen = w.await(client.watch("a", from(100)));
        auto reading = w.start(seen.next());
        w.etcd->revision = 3;
        w.env->break_streams();
        w.env->pass(5s);
        REQUIRE_FALSE(reading.ended());
    }
}

TEST_CASE("of all watches the one that has told of the most counts", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    w.etcd->write("b", "");
    coetcd::watcher behind = w.await(client.watch("b", from(2)));
    REQUIRE(now(w, behind).revision == 2);
    for (int i = 0; i != 4; ++i) {
        w.etcd->write("a", std::to_string(i));
    }
    coetcd::watch_options options = from(6);
    int reads = 0;
    bool answers = true;
    w.env->decide = [&](const coetcd::detail::call_request& r) {
        if (r.what == coetcd::detail::rpc::range) {
            ++reads;
            w.etcd->revision = 4; // others go on: it is as far again as `behind` has told of
        }
        scripted_env::fate f;
        f.answered = answers;
        return f;
    };

    SECTION("of those that are there") {
        coetcd::watcher ahead = w.await(client.watch("a", options));
        w.env->pass(10ms);
        REQUIRE(now(w, ahead).revision == 6);
        auto reading = w.start(ahead.next());
        w.etcd->revision = 1;
        w.env->break_streams();
        w.env->pass(5s);
        REQUIRE(reading.code() == errc::revision_regressed);
        REQUIRE(reads == 2);
    }
    SECTION("of those that come while etcd is asked, too") {
        options.buffer = 1;
        coetcd::watcher slow = w.await(client.watch("a", options));
        w.env->pass(10ms);
        REQUIRE(w.etcd->watches() == 1); // it was told to stop
        w.etcd->revision = 1;
        answers = false;
        w.env->break_streams();
        w.env->pass(2s);
        REQUIRE(reads != 0);
        REQUIRE(now(w, slow).revision == 6);
        auto reading = w.start(slow.next());
        w.env->pass(10ms);
        REQUIRE(w.etcd->watches() == 2);
        answers = true;
        w.env->pass(5s);
        REQUIRE(reading.code() == errc::revision_regressed);
    }
}

TEST_CASE("a watch resumes after the last event or progress, whatever headers say", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    script etcd(w);
    coetcd::watcher seen = w.await(client.watch("a", from(10)));
    const auto resumes_at = [&](std::int64_t revision) {
        etcd.breaks();
        return etcd.starts.back() == revision;
    };
    CHECK(etcd.starts == revisions{10});
    CHECK(resumes_at(10)); // "created" says 99
    etcd.events(1, 99, {12});
    CHECK(resumes_at(13));
    etcd.events(1, 2816, {13, 14, 20}); // a batch, with the revision of the store
    CHECK(resumes_at(21));
    etcd.progress(-1, 90); // the answer to a request for progress
    CHECK(resumes_at(21));
    etcd.progress(1, 50);
    CHECK(resumes_at(51));
    etcd.events(1, 99, {49, 50, 51}); // some that were told already
    CHECK(resumes_at(52));
    etcd.progress(1, 51); // late
    CHECK(resumes_at(52));
    const coetcd::watch_batch batch = now(w, seen);
    CHECK(revisions_of(batch.events) == revisions{12, 13, 14, 20, 51});
    CHECK(batch.revision == 51);
}

TEST_CASE("pieces of a revision are put together, and come again if one was lost", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    script etcd(w);
    coetcd::watcher seen = w.await(client.watch("a", from(10)));
    etcd.events(1, 99, {10, 11, 12, 12}, true);
    const coetcd::watch_batch early = now(w, seen);
    CHECK(revisions_of(early.events) == revisions{10, 11}); // 12 may go on
    CHECK(early.revision == 11);
    etcd.events(1, 99, {12}, true);
    auto reading = w.start(seen.next());
    w.env->pass(10ms);
    CHECK_FALSE(reading.ended());
    etcd.breaks();
    CHECK(etcd.starts.back() == 12);
    etcd.events(1, 99, {12, 12}, true);
    etcd.events(1, 99, {12, 12, 13});
    CHECK(revisions_of(reading.get().events) == revisions{12, 12, 12, 12, 13});
}

TEST_CASE("a piece without events is no progress", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    script etcd(w);
    coetcd::watch_options options = from(10);
    options.progress_notify = true;
    coetcd::watcher seen = w.await(client.watch("a", options));
    etcd.events(1, 99, {10}, true);
    etcd.events(1, 99, {}, true);
    etcd.events(1, 99, {});
    const coetcd::watch_batch batch = now(w, seen);
    CHECK(revisions_of(batch.events) == revisions{10});
    CHECK(batch.revision == 10);
    etcd.events(1, 50, {});
    CHECK(now(w, seen).revision == 50);
}

TEST_CASE("no watch asks etcd for fragments", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    std::string asked;
    w.env->on_open = [&, serve = w.env->on_open](const call_request& r, auto stream) {
        asked += r.body;
        serve(r, std::move(stream));
    };
    (void)w.await(client.watch("a"));
    CHECK_THAT(asked, support::contains("create_request"));
    CHECK_THAT(asked, !support::contains("fragment"));
}

TEST_CASE("large transactions come in pieces, and are told whole", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    w.env->piece = GENERATE(1U, 300U, 700U, 1300U);
    coetcd::watcher seen = w.await(client.watch(coetcd::key_range::prefix("p/")));
    auto many = coetcd::txn();
    for (int i = 0; i < 10; ++i) {
        many.success.push_back(coetcd::op::put("p/" + std::to_string(i), "x"));
    }
    const auto done = w.await(client.txn(std::move(many)));
    w.env->pass(10ms);
    const coetcd::watch_batch batch = now(w, seen);
    CHECK(batch.events.size() == 10);
    CHECK(batch.revision == done.header.revision);
}

TEST_CASE("what etcd still sends for a watch that has ended is not told", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    script etcd(w);
    std::optional<coetcd::watcher> gone = w.await(client.watch("a", from(10)));
    coetcd::watcher stays = w.await(client.watch("a", from(10)));
    gone.reset();
    etcd.events(1, 99, {11});
    coetcd::watcher next = w.await(client.watch("a", from(10)));
    etcd.events(1, 99, {12});
    CHECK(etcd.ids == revisions{1, 2, 3}); // none is used twice
    for (coetcd::watcher* each : {&stays, &next}) {
        auto reading = w.start(each->next());
        w.env->pass(10ms);
        CHECK_FALSE(reading.ended());
    }
}

TEST_CASE("a batch tells from where on another watch can take over", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    std::optional<coetcd::watcher> first = w.await(client.watch("a"));
    put(w, client, "a", "1");
    put(w, client, "b", "x");
    w.env->pass(10ms);
    const coetcd::watch_batch batch = now(w, *first);
    CHECK(batch.revision == batch.events.back().kv.mod_revision);
    first.reset();
    put(w, client, "a", "2");
    coetcd::watcher second = w.await(client.watch("a", from(batch.revision + 1)));
    w.env->pass(10ms);
    CHECK(values(now(w, second).events) == strings{"2"});
}

TEST_CASE("progress is told to the watchers that want to know, and kept for all", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::watch_options options;
    options.progress_notify = true;
    coetcd::watcher wants = w.await(client.watch("a", options));
    coetcd::watcher does_not = w.await(client.watch("a"));
    for (int i = 0; i < 5; ++i) {
        put(w, client, "b", "x");
    }
    auto reading = w.start(wants.next());
    auto waiting = w.start(does_not.next());
    w.etcd->tell_progress();
    w.env->pass(10ms);
    const coetcd::watch_batch batch = reading.get();
    CHECK(batch.events.empty());
    CHECK(batch.revision == w.etcd->revision);
    CHECK_FALSE(waiting.ended());
    // Neither falls behind what is compacted.
    w.etcd->compacted = w.etcd->revision;
    w.env->break_streams();
    w.env->pass(1s);
    put(w, client, "a", "1");
    w.env->pass(10ms);
    CHECK(values(waiting.get().events) == strings{"1"});
    // What is unread and a notice are told together.
    put(w, client, "b", "x");
    w.etcd->tell_progress();
    w.env->pass(10ms);
    const coetcd::watch_batch both = now(w, wants);
    CHECK(values(both.events) == strings{"1"});
    CHECK(both.revision == w.etcd->revision);
}

TEST_CASE("sec.limits: a slow reader holds little, misses nothing, and slows no other", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::watch_options small;
    small.buffer = 10'000;
    coetcd::watcher slow = w.await(client.watch("a", small));
    coetcd::watcher quick = w.await(client.watch("a"));
    int written = 0;
    int read = 0;
    const auto write = [&](int n) {
        for (; n != 0; --n) {
            put(w, client, "a", std::to_string(++written) + std::string(1000, 'x'));
            w.env->pass(10ms);
            CHECK(now(w, quick).events.size() == 1);
        }
    };
    const auto read_some = [&] {
        const coetcd::watch_batch batch = now(w, slow);
        std::size_t bytes = 0;
        for (const event& e : batch.events) {
            CHECK(std::stoi(e.kv.value) == ++read);
            bytes += e.kv.value.size();
        }
        CHECK(bytes <= small.buffer + 2000); // and one message
        w.env->pass(10ms);
    };
    write(5);
    CHECK(w.etcd->watches() == 2);
    write(15);
    CHECK(w.etcd->watches() == 1); // it was told to stop
    read_some();
    CHECK(read < 15);
    CHECK(w.etcd->watches() == 2); // from now on it has a stream of its own,
    w.env->pass(9s);
    CHECK(w.etcd->watches() == 2); // on which it is waited for a while
    w.env->pass(2s);
    CHECK(w.etcd->watches() == 1);
    read_some();
    write(30);
    while (read < written) {
        read_some();
    }
    auto reading = w.start(slow.next());
    write(1);
    CHECK(reading.ended());
    CHECK(w.env->opened.size() == 3);
}

TEST_CASE("a stream is kept for a reader that is away for a moment", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::watch_options small;
    small.buffer = 1;
    coetcd::watcher slow = w.await(client.watch("a", small));
    int written = 0;
    const auto write = [&](int n) {
        for (; n != 0; --n) {
            w.etcd->write("a", std::to_string(++written));
        }
        w.env->pass(10ms);
    };
    write(1);
    CHECK(values(now(w, slow).events) == strings{"1"}); // it was full, and parts from the others
    write(20);
    const auto opened = w.env->opened.size();
    for (int i = 2; i != 22; ++i) {
        w.env->pass(9s);
        CHECK(w.etcd->watches() == 1);
        CHECK(values(now(w, slow).events) == strings{std::to_string(i)});
    }
    CHECK(w.env->opened.size() == opened); // nor was it asked whether it is still there
    w.env->pass(1min);
    write(2);
    w.env->pass(10s);
    CHECK(w.etcd->watches() == 0);
    write(2);
    w.env->pass(1h);
    const auto given_up = w.env->opened.size();
    for (int i = 22; i != 26; ++i) {
        CHECK(values(now(w, slow).events) == strings{std::to_string(i)});
        w.env->pass(10ms);
    }
    CHECK(w.env->opened.size() == given_up + 1);
    CHECK(w.etcd->watches() == 1);
    auto reading = w.start(slow.next());
    w.env->pass(1h); // one that waits is not given up
    CHECK(w.etcd->watches() == 1);
    write(1);
    CHECK(values(reading.get().events) == strings{"26"});
}

TEST_CASE("a watch that brings much has a stream of its own, and is told all, once", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::watcher much = w.await(client.watch("a"));
    coetcd::watcher little = w.await(client.watch("b"));
    REQUIRE(w.env->opened.size() == 1);
    int read = 0;
    const auto write = [&](std::size_t bytes) {
        static int written = 0;
        w.etcd->write("a", std::to_string(++written) + std::string(bytes, 'x'));
        w.etcd->write("b", std::to_string(written));
        w.env->pass(10ms);
        CHECK(values(now(w, little).events) == strings{std::to_string(written)});
        auto reading = w.start(much.next());
        w.env->pass(200ms);
        for (const event& e : reading.get().events) {
            CHECK(std::stoi(e.kv.value) == ++read);
        }
        CHECK(read == written);
    };
    for (int i = 0; i != 4; ++i) {
        write(40'000);
    }
    CHECK(w.env->opened.size() == 1);
    for (int i = 0; i != 4; ++i) {
        write(40'000);
    }
    CHECK(w.env->opened.size() == 2);
    CHECK(w.etcd->watching_streams() == 2);
    w.env->break_streams();
    w.env->pass(1s);
    for (int i = 0; i != 30; ++i) {
        write(40'000);
    }
    CHECK(w.env->opened.size() == 4);
    CHECK(w.etcd->watches() == 2);
}

TEST_CASE("a large message is told as it comes, and the rest of it is dropped if it comes again",
          "[watch]") {
    world w;
    const coetcd::client client = w.client();
    w.etcd->batch = 1000;
    for (int i = 0; i != 500; ++i) {
        w.etcd->write("a", std::to_string(i) + std::string(10'000, 'x'));
    }
    coetcd::watch_options options = from(2);
    options.buffer = GENERATE(1U, 100'000U, 100'000'000U);
    CAPTURE(options.buffer);
    coetcd::watcher seen = w.await(client.watch("a", options));
    int read = 0;
    while (read != 500) {
        const coetcd::watch_batch batch = w.await(seen.next());
        std::size_t bytes = 0;
        for (const event& e : batch.events) {
            REQUIRE(std::stoi(e.kv.value) == read++);
            bytes += e.kv.value.size();
        }
        REQUIRE(bytes < options.buffer + 80'000); // a piece of the message
    }
    auto reading = w.start(seen.next());
    w.env->pass(10s);
    CHECK_FALSE(reading.ended());
    CHECK(w.env->opened.size() == 2);
    CHECK(w.etcd->watches() == 1);
}

TEST_CASE("what locks watch shares no stream with watches of users", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::watcher seen = w.await(client.watch("a"));
    CHECK(w.env->opened.size() == 1);
    const coetcd::value stored(client, "v");
    coetcd::value_feed changes = stored.changes();
    (void)w.await(changes.next());
    CHECK(w.env->opened.size() == 2);
    CHECK(w.etcd->watching_streams() == 2);
    coetcd::watcher other = w.await(client.watch("b"));
    CHECK(w.env->opened.size() == 2);
    CHECK(w.etcd->watches() == 3);
}

TEST_CASE("a watch with a stream of its own goes on where something comes in its way",
          "[watch][proxy]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::watch_options small;
    small.buffer = 1;
    coetcd::watcher seen = w.await(client.watch("a", small));
    w.etcd->write("a", "1");
    w.env->pass(10ms);
    CHECK(values(now(w, seen).events) == strings{"1"});
    w.env->pass(10ms);
    CHECK(w.etcd->watches() == 1);
    for (const auto path :
         {scripted_env::way::buffered, scripted_env::way::direct, scripted_env::way::refused}) {
        w.env->duplex = path;
        w.env->break_streams();
        w.etcd->write("a", "2");
        w.env->pass(10s);
        CHECK(values(now(w, seen).events) == strings{"2"});
        CHECK(w.etcd->watches() == 1);
    }
}

TEST_CASE("sec.limits: a watch holds as much as its buffer, to the byte", "[watch][security]") {
    // How much two events take is found out, and then is a bit too much.
    const auto stops = [](std::size_t buffer) {
        world w;
        const coetcd::client client = w.client();
        coetcd::watch_options options;
        options.buffer = buffer;
        coetcd::watcher slow = w.await(client.watch("a", options));
        for (const char* value : {"1", "2"}) {
            put(w, client, "a", value);
            w.env->pass(10ms);
        }
        return w.etcd->watches() == 0;
    };
    std::size_t enough = 1;
    while (stops(enough)) {
        REQUIRE(++enough < 2000);
    }
    // The same again, and one byte more in one of them.
    coetcd::watch_options exact;
    exact.buffer = enough;
    for (const bool more : {false, true}) {
        world w;
        const coetcd::client client = w.client();
        coetcd::watcher slow = w.await(client.watch("a", exact));
        put(w, client, "a", "1");
        put(w, client, "a", more ? "22" : "2");
        w.env->pass(10ms);
        CHECK(w.etcd->watches() == (more ? 0 : 1));
        CHECK(values(now(w, slow).events) == strings{"1", more ? "22" : "2"});
    }
}

TEST_CASE("a slow reader that history does not wait for is told so, after what it has", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::watch_options small;
    small.buffer = 1;
    coetcd::watcher slow = w.await(client.watch("a", small));
    for (const char* v : {"1", "2", "3"}) {
        put(w, client, "a", v);
        w.env->pass(10ms);
    }
    w.etcd->compacted = w.etcd->revision;
    CHECK(values(now(w, slow).events) == strings{"1"});
    w.env->pass(10ms);
    auto reading = w.start(slow.next());
    w.env->pass(10ms);
    REQUIRE(reading.code() == errc::watch_compacted);
    REQUIRE_THROWS_AS(reading.get(), coetcd::compacted_error);
    CHECK(w.etcd->watches() == 0);
    // It may be destroyed while it is told to stop.
    std::optional<coetcd::watcher> other = w.await(client.watch("a", small));
    put(w, client, "a", "4");
    w.env->pass(10ms);
    CHECK(w.etcd->watches() == 0);
    other.reset();
    w.env->pass(10ms);
    CHECK(w.etcd->watches() == 0);
}

TEST_CASE("a watcher may be destroyed at any moment while it is told to stop", "[watch]") {
    bool told = false;
    bool aborted = false;
    for (int steps = 0; steps < 12; ++steps) {
        world w;
        const coetcd::client client = w.client();
        script etcd(w);
        coetcd::watch_options small = from(10);
        small.buffer = 1;
        std::optional<coetcd::watcher> seen = w.await(client.watch("a", small));
        auto reading = w.start(seen->next());
        w.env->pass(10ms);
        etcd.events_now(1, {10});
        w.context->restart();
        for (int i = 0; i < steps; ++i) {
            w.context->poll_one();
        }
        seen.reset();
        w.env->pass(1s);
        REQUIRE(reading.ended());
        told = told || reading.succeeded();
        aborted = aborted || !reading.succeeded();
        etcd.events(1, 99, {11}); // should there be another
        const auto opened = w.env->opened.size();
        w.env->pass(1min);
        REQUIRE(w.env->opened.size() == opened);
    }
    CHECK(told);
    CHECK(aborted);
}

TEST_CASE("sec.limits: a message that is too large ends the watch that it is for", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    script etcd(w);
    coetcd::watcher bad = w.await(client.watch("a", from(10)));
    coetcd::watcher good = w.await(client.watch("b", from(10)));
    etcd.events(2, 99, {12});
    etcd.fail(
        errc::too_large,
        R"({"result":{"header":{"cluster_id":"14841639068965178418","revision":"9"},"watch_id":"1","events":[{"kv":{"key":"YQ==","mod_revision":"14","value":"YQ)");
    w.env->pass(1s);
    auto reading = w.start(bad.next());
    w.env->pass(10ms);
    REQUIRE(reading.code() == errc::too_large);
    try {
        (void)reading.get();
    } catch (const coetcd::oversized_error& e) {
        CHECK(e.revision() == 14);
        CHECK_THAT(e.what(), support::contains("revision 14 is over the limit"));
    }
    CHECK(etcd.ids == revisions{1, 2, 2}); // only the other one was resumed
    CHECK(etcd.starts.back() == 13);
    etcd.events(2, 99, {14});
    CHECK(revisions_of(now(w, good).events) == revisions{12, 14});

    // A watch that has ended meanwhile ends no other.
    etcd.fail(
        errc::too_large,
        R"({"result":{"header":{"cluster_id":"14841639068965178418","revision":"9"},"watch_id":"1","events":[{)");
    w.env->pass(1s);
    etcd.events(2, 99, {15});
    CHECK(revisions_of(now(w, good).events) == revisions{15});

    // One that is not etcd's, either.
    etcd.fail(errc::too_large, "<html><title>\"watch_id\":\"2\", \"watch_id\":2 </title>");
    w.env->pass(1s);
    etcd.events(2, 99, {16});
    CHECK(revisions_of(now(w, good).events) == revisions{16});

    // If it is not known which watch it is for, then it ends all of them.
    etcd.fail(
        errc::too_large,
        R"({"result":{"header":{"cluster_id":"14841639068965178418","revision":"9"},"events":[{)");
    auto ended = w.start(good.next());
    w.env->pass(10ms);
    CHECK(ended.code() == errc::too_large);
}

TEST_CASE("sec.limits: a revision that has no end ends the watch that it is for",
          "[watch][security]") {
    world w;
    coetcd::client_options options;
    options.max_answer = 10'000;
    const coetcd::client client = w.client(options);
    script etcd(w);
    coetcd::watcher bad = w.await(client.watch("a", from(10)));
    coetcd::watcher good = w.await(client.watch("b", from(10)));
    auto reading = w.start(bad.next());
    int pieces = 0;
    etcd.events(1, 99, {11, 12}, true); // 11 is complete with that
    for (; pieces != 1000 && !reading.ended(); ++pieces) {
        etcd.events(1, 99, {12}, true);
    }
    CHECK(revisions_of(reading.get().events) == revisions{11});
    auto end = w.start(bad.next());
    for (; pieces != 1000 && !end.ended(); ++pieces) {
        etcd.events(1, 99, {12}, true);
    }
    REQUIRE(end.code() == errc::too_large);
    CHECK(pieces > 50);
    CHECK(pieces < 100);
    // It is named.
    try {
        (void)end.get();
    } catch (const coetcd::oversized_error& e) {
        CHECK(e.revision() == 12);
        CHECK_THAT(e.what(), support::contains("revision 12 is over the limit"));
    }
    // etcd is told to stop, the others are not disturbed, and what still comes is dropped.
    CHECK(etcd.canceled == revisions{1});
    for (int i = 0; i != 10; ++i) {
        etcd.events(1, 99, {12}, true);
    }
    etcd.events(2, 99, {12});
    CHECK(revisions_of(now(w, good).events) == revisions{12});
    CHECK(w.env->opened.size() == 1);
}

TEST_CASE("pieces of a stream that broke do not count", "[watch]") {
    world w;
    coetcd::client_options options;
    options.max_answer = 10'000;
    const coetcd::client client = w.client(options);
    script etcd(w);
    coetcd::watcher seen = w.await(client.watch("a", from(10)));
    for (int i = 0; i != 10; ++i) {
        etcd.events(1, 99, {12}, true);
        etcd.events(1, 99, revisions(20, 12), true);
        etcd.breaks();
        w.env->pass(2s);
    }
    etcd.events(1, 99, revisions(20, 12));
    CHECK(now(w, seen).events.size() == 20);
}

using way = scripted_env::way;
using coetcd::detail::sending;

namespace {

std::size_t count(const world& w, sending how) {
    return static_cast<std::size_t>(std::count(w.env->opened.begin(), w.env->opened.end(), how));
}

} // namespace

TEST_CASE("behind a proxy that completes requests each watch has a stream of its own",
          "[watch][proxy]") {
    world w;
    w.env->duplex = GENERATE(way::buffered, way::refused);
    const coetcd::client client = w.client();
    const auto began = w.env->now();
    coetcd::watcher one = w.await(client.watch("a"));
    CHECK(w.env->now() - began < 4s);
    coetcd::watcher two = w.await(client.watch("b"));
    std::optional<coetcd::watcher> three = w.await(client.watch("a"));
    CHECK(w.etcd->watches() == 3);
    CHECK(w.etcd->watching_streams() == 3);
    CHECK(count(w, sending::duplex) == 2); // the first, and a question to be sure
    put(w, client, "a", "1");
    put(w, client, "b", "2");
    w.env->pass(10ms);
    CHECK(values(now(w, one).events) == strings{"1"});
    CHECK(values(now(w, two).events) == strings{"2"});
    CHECK(values(now(w, *three).events) == strings{"1"});
    three.reset();
    w.env->pass(10ms);
    CHECK(w.etcd->watches() == 2);

    // One that breaks is resumed.
    for (int i = 0; i < 20; ++i) {
        w.env->break_streams();
        w.etcd->write("a", std::to_string(i));
        w.env->pass(2s);
        CHECK(values(now(w, one).events) == strings{std::to_string(i)});
    }
    CHECK(w.etcd->watching_streams() == 2);
    CHECK(count(w, sending::duplex) == 2);
}

TEST_CASE("a proxy that is gone is noticed, at once if there is no watch", "[watch][proxy]") {
    world w;
    w.env->duplex = way::buffered;
    const coetcd::client client = w.client();
    std::optional<coetcd::watcher> one = w.await(client.watch("a"));
    std::optional<coetcd::watcher> two = w.await(client.watch("a"));
    w.env->pass(4min + 50s);
    CHECK(count(w, sending::duplex) == 2);
    w.env->pass(15s);
    CHECK(count(w, sending::duplex) == 3);
    CHECK(w.etcd->watching_streams() == 2); // which goes on meanwhile
    w.env->duplex = way::direct;
    w.env->pass(9min);
    CHECK(count(w, sending::duplex) == 3);
    CHECK(w.etcd->watching_streams() == 2);
    w.etcd->write("a", "1"); // may be told on the old stream, or on the new one
    w.env->pass(65s);
    CHECK(w.etcd->watching_streams() == 1);
    CHECK(w.etcd->watches() == 2);
    put(w, client, "a", "2");
    w.env->pass(10ms);
    CHECK(values(now(w, *one).events) == strings{"1", "2"});
    CHECK(values(now(w, *two).events) == strings{"1", "2"});

    w.env->duplex = way::buffered;
    w.env->break_streams();
    w.env->pass(10s);
    CHECK(w.etcd->watching_streams() == 2);
    one.reset();
    two.reset();
    w.env->pass(10ms);
    CHECK(w.etcd->watches() == 0);
    w.env->duplex = way::direct;
    one = w.await(client.watch("a"));
    two = w.await(client.watch("a"));
    CHECK(w.etcd->watching_streams() == 1);
}

TEST_CASE("watches that go alone may all end at once, when the password is refused",
          "[watch][proxy][auth]") {
    world w;
    w.etcd->require_user("shop", "pw");
    w.env->duplex = way::buffered;
    coetcd::client_options o;
    o.credentials = coetcd::credentials("shop", "pw");
    o.insecure_plain_text_credentials = true;
    const coetcd::client client = w.client(o);
    auto one = w.start(client.watch("a", from(1)));
    auto two = w.start(client.watch("b", from(1)));
    // They find out that they cannot go together, just when the password is not good any more.
    w.env->pass(2300ms);
    w.etcd->require_user("shop", "another");
    w.etcd->expire_tokens();
    std::vector<background<std::optional<coetcd::key_value>>> reads;
    for (int i = 0; i != 100; ++i) {
        reads.push_back(w.start(client.get("x")));
        w.env->pass(10ms);
    }
    CHECK(reads.back().code() == errc::login_failed);
    REQUIRE(one.code() == errc::login_failed);
    REQUIRE(two.code() == errc::login_failed);
}

TEST_CASE("a watch that is refused at once tells nobody before it has begun", "[watch][auth]") {
    struct ends final : coetcd::detail::watch_sink {
        void on_created(std::int64_t) override {}
        void on_events(std::vector<event>&) override {}
        void on_ended(coetcd::error_code ec, std::string, std::int64_t) override { reason = ec; }
        coetcd::error_code reason;
    } sink;
    world w;
    w.etcd->require_user("shop", "another");
    coetcd::client_options o;
    o.credentials = coetcd::credentials("shop", "pw");
    o.insecure_plain_text_credentials = true;
    const coetcd::client client = w.client(o);
    for (int i = 0; i != 8; ++i) {
        auto reading = w.start(client.get("x"));
        w.env->pass(2s);
        REQUIRE(reading.code() == errc::login_failed);
    }
    auto last = w.start(client.get("x"));
    w.env->pass(10ms);
    REQUIRE(last.code() == errc::login_failed); // and that is remembered for a while
    bool is_told_at_once = false;
    coetcd::detail::post(w.env->executor(), [&] {
        coetcd::detail::wire::watch_create_request one{coetcd::key_range("k")};
        (void)coetcd::detail::access::impl(client)->hub->add(std::move(one), sink);
        is_told_at_once = bool(sink.reason);
    });
    w.env->pass(300ms);
    CHECK_FALSE(is_told_at_once);
    CHECK(sink.reason == errc::login_failed);
}

TEST_CASE("an endpoint that is at fault is no proxy", "[watch][proxy]") {
    world w;
    const coetcd::client client = w.client();
    // It stands still, and is back when it is asked a second time.
    int answered = 0;
    int silent = GENERATE(1, 2);
    const auto serve = w.env->on_open;
    w.env->on_open = [&](const call_request& r, std::shared_ptr<scripted_env::server_stream> s) {
        if (silent-- <= 0) {
            ++answered;
            serve(r, s);
        }
    };
    coetcd::watcher one = w.await(client.watch("a", from(1)));
    coetcd::watcher two = w.await(client.watch("a", from(1)));
    CHECK(answered > 0);
    CHECK(w.etcd->watching_streams() == 1);
}

TEST_CASE("a refusal by something that is not etcd ends no watch", "[watch][proxy]") {
    const auto status = GENERATE(401U, 403U, 404U, 411U, 429U, 502U);
    CAPTURE(status);
    world w;
    const coetcd::client client =
        w.client(coetcd::endpoints("http://a:2379", "http://b:2379", "http://c:2379"));
    coetcd::watcher seen = w.await(client.watch("a", from(1)));
    // A member restarts, and where the stream goes next a proxy says no.
    std::string bad;
    int refused = 0;
    const auto serve = w.env->on_open;
    w.env->on_open = [&](const call_request& q, std::shared_ptr<scripted_env::server_stream> s) {
        bad = bad.empty() ? q.to.host : bad;
        if (q.to.host != bad) {
            serve(q, s);
            return;
        }
        ++refused;
        coetcd::detail::reply no;
        no.status = status;
        no.body = "<html>no</html>";
        s->push(std::move(no));
    };
    w.env->break_streams();
    w.env->pass(1s);
    w.etcd->write("a", "1");
    w.env->pass(10ms);
    CHECK(values(now(w, seen).events) == strings{"1"});
    CHECK(refused >= 1);
    CHECK(refused <= 2); // once, and whether it merely dislikes streams
}

TEST_CASE("a stream that goes on does not excuse a member whose calls fail", "[watch]") {
    world w;
    coetcd::client_options options;
    options.request_timeout = 2s;
    const coetcd::client client =
        w.client(coetcd::endpoints("http://a:2379", "http://b:2379"), options);
    std::string near;
    const auto serve = w.env->on_open;
    w.env->on_open = [&](const call_request& r, std::shared_ptr<scripted_env::server_stream> s) {
        near = r.to.host;
        serve(r, s);
    };
    const coetcd::watcher seen = w.await(client.watch("k", from(1)));
    // Both fail; then the one that has the stream is back, and is preferred.
    bool near_works = false;
    w.env->decide = [&](const call_request& r) {
        scripted_env::fate f;
        f.refused = r.to.host != near || !near_works;
        return f;
    };
    auto failing = w.start(client.get("a"));
    w.env->pass(3s);
    REQUIRE(failing.ended());
    near_works = true;
    (void)w.await(client.get("a"));
    w.env->pass(6s); // no endpoint is shunned any more
    w.etcd->write("k", "0");
    w.env->pass(10ms);
    // It does not answer a request that is not made elsewhere, and its stream goes on.
    w.env->decide = [&](const call_request& r) {
        scripted_env::fate f;
        f.answered = r.to.host != near;
        return f;
    };
    auto lost = w.start(client.put("a", "1"));
    w.env->pass(3s);
    REQUIRE(lost.code() == errc::outcome_unknown);
    REQUIRE(w.env->calls.back().to.host == near);
    w.etcd->write("k", "1");
    w.env->pass(10ms);
    const std::size_t before = w.env->calls.size();
    (void)w.await(client.get("a"));
    CHECK(w.env->calls.at(before).to.host != near);
    CHECK(w.env->opened.size() == 1);
}

TEST_CASE("where nothing is etcd a watch is not in force in time", "[watch][proxy]") {
    world w;
    const coetcd::client client = w.client();
    const auto serve = w.env->on_open;
    w.env->on_open = [&](const call_request&, std::shared_ptr<scripted_env::server_stream> s) {
        coetcd::detail::reply no;
        no.status = 404;
        no.body = "404 page not found";
        s->push(std::move(no));
    };
    auto starting = w.start(client.watch("a", from(1)));
    w.env->pass(4s);
    REQUIRE_FALSE(starting.ended());
    SECTION("and that is told at the deadline") {
        w.env->pass(1s);
        REQUIRE(starting.code() == errc::timed_out);
    }
    SECTION("unless etcd comes back") {
        w.env->on_open = serve;
        w.env->pass(1s);
        REQUIRE(starting.succeeded());
    }
}

TEST_CASE("a stream on which no question can be sent is asked about by other requests",
          "[watch][proxy]") {
    world w;
    w.env->duplex = way::buffered;
    const coetcd::client client = w.client();
    coetcd::watcher seen = w.await(client.watch("a"));
    const auto opened = count(w, sending::once);
    w.env->pass(59s);
    CHECK(count(w, sending::once) == opened);
    w.env->pass(2s);
    CHECK(count(w, sending::once) == opened + 1); // asked
    CHECK(w.etcd->watching_streams() == 1);
    w.etcd->tells = false; // so that the next change comes by a resumed watch only
    w.etcd->write("a", "1");
    w.etcd->tells = true;
    // As long as it answers, it is trusted; but not for ever.
    w.env->pass(10min);
    auto reading = w.start(seen.next());
    w.env->pass(10ms);
    CHECK_FALSE(reading.ended());
    w.env->pass(2min);
    CHECK(values(reading.get().events) == strings{"1"});
}

TEST_CASE("a stream on which no question can be sent is resumed if etcd has fallen silent",
          "[watch][proxy]") {
    world w;
    w.env->duplex = way::buffered;
    const coetcd::client client = w.client();
    coetcd::watcher seen = w.await(client.watch("a"));
    w.etcd->tells = false;
    w.etcd->write("a", "1");
    w.etcd->tells = true;
    const auto serve = w.env->on_open;
    int silent = 1;
    w.env->on_open = [&](const call_request& r, std::shared_ptr<scripted_env::server_stream> s) {
        if (silent-- <= 0) {
            serve(r, s);
        }
    };
    w.env->pass(65s);
    CHECK(values(now(w, seen).events) == strings{"1"});
    CHECK(w.etcd->watching_streams() == 1);
}

TEST_CASE("a slow reader behind a proxy is told to stop, too", "[watch][proxy]") {
    world w;
    w.env->duplex = way::buffered;
    const coetcd::client client = w.client();
    coetcd::watch_options small;
    small.buffer = 1;
    coetcd::watcher slow = w.await(client.watch("a", small));
    coetcd::watcher other = w.await(client.watch("a"));
    for (int i = 0; i < 5; ++i) {
        put(w, client, "a", std::to_string(i));
    }
    w.env->pass(9s);
    CHECK(w.etcd->watches() == 2); // it is waited for
    w.env->pass(2s);
    CHECK(w.etcd->watches() == 1);
    for (int i = 0; i < 5; ++i) {
        CHECK(values(now(w, slow).events) == strings{std::to_string(i)});
        w.env->pass(10ms);
    }
    CHECK(w.etcd->watches() == 2);
    CHECK(count(w, sending::duplex) == 2);
}

TEST_CASE("a pause of the only watch is no end", "[watch][proxy]") {
    world w;
    w.env->duplex = GENERATE(way::direct, way::buffered);
    const coetcd::client client = w.client();
    coetcd::watch_options small;
    small.buffer = 1;
    std::optional<coetcd::watcher> slow = w.await(client.watch("a", small));
    for (int i = 0; i < 3; ++i) {
        w.etcd->write("a", "x");
        w.env->pass(11s);
        CHECK(w.etcd->watches() == 0);
        CHECK(w.etcd->streams() == 0);
        CHECK(now(w, *slow).events.size() == 1);
        w.env->pass(10ms);
        CHECK(w.etcd->watches() == 1);
        CHECK(w.etcd->streams() == 1);
    }
    // But its end is, also during a pause: then nothing goes on.
    w.etcd->write("a", "x");
    w.env->pass(GENERATE(1s, 20s));
    slow.reset();
    w.env->pass(10s);
    const auto streams = w.env->opened.size();
    slow = w.await(client.watch("a", small));
    CHECK(w.env->opened.size() > streams);
}

TEST_CASE("behind a proxy nothing is left, whenever a watch is cancelled or destroyed",
          "[watch][proxy][cancellation]") {
    for (auto when = 0ms; when < 3100ms; when += (when < 1990ms ? 100ms : 1ms)) {
        world w;
        w.env->duplex = way::buffered;
        std::optional<coetcd::client> client = w.client();
        auto starting = w.start(client->watch("a"));
        w.env->pass(when);
        starting.cancel();
        client.reset();
        w.env->pass(0ms);
        REQUIRE(starting.ended());
        w.env->pass(20ms);
        REQUIRE(w.etcd->watches() == (starting.succeeded() ? 1 : 0));
        if (when % 10ms == 0ms) {
            w.env->pass(10s);
            const auto opened = w.env->opened.size();
            w.env->pass(10s);
            REQUIRE(w.env->opened.size() == opened);
        }
    }
}

TEST_CASE("the whole world may end under a watch", "[watch]") {
    for (const way path : {way::direct, way::buffered}) {
        for (auto when = 0ms; when < 3050ms; when += (when < 10ms || when > 1995ms ? 1ms : 100ms)) {
            world w;
            w.env->duplex = path;
            const coetcd::client client = w.client();
            const auto starting = w.start(client.watch("a"));
            w.env->pass(when);
        }
    }
    SUCCEED("no leak, no access to what is gone");
}
