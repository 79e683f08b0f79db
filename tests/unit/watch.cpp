// SPDX-License-Identifier: BSL-1.0
#include <coetcd/watch.hpp>

#include <vector>

#include "support/catch.hpp"
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

} // namespace

TEST_CASE("a watch tells of changes from its start on", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    put(w, client, "a", "0");
    coetcd::watcher seen = w.await(client.watch("a"));
    put(w, client, "a", "1");
    put(w, client, "b", "x");
    (void)w.await(client.erase("a"));
    w.env->pass(10ms);
    REQUIRE(values(w.await(seen.next())) == strings{"1", "-"});
    auto waiting = w.start(seen.next());
    w.env->pass(1s);
    REQUIRE_FALSE(waiting.ended());
    put(w, client, "a", "2");
    w.env->pass(10ms);
    REQUIRE(values(waiting.get()) == strings{"2"});
}

TEST_CASE("a watch tells of history from its start revision on", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    for (const char* v : {"1", "2", "3"}) {
        put(w, client, "p/a", v);
    }
    coetcd::watch_options from;
    from.start_revision = 3;
    coetcd::watcher seen = w.await(client.watch(coetcd::key_range::prefix("p/"), from));
    w.env->pass(10ms);
    const std::vector<event> events = w.await(seen.next());
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
    REQUIRE(values(reading.get()) == strings{"1"});
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
    REQUIRE(w.env->opened == 1);
    w.env->pass(4s); // it was asked, and did not answer
    REQUIRE(w.env->opened == 2);
    auto reading = w.start(seen.next());
    w.env->pass(10ms);
    REQUIRE(values(reading.get()) == strings{"1"});
    w.env->on_message = serve;
    w.env->pass(10min); // one that answers is left in peace
    REQUIRE(w.env->opened == 2);
    REQUIRE(w.etcd->watches() == 1);
}

TEST_CASE("filters leave out what is not wanted", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::watch_options only;
    only.no_put = true;
    coetcd::watcher erases = w.await(client.watch("a", only));
    only = {};
    only.no_delete = true;
    coetcd::watcher puts = w.await(client.watch("a", only));
    put(w, client, "a", "1");
    (void)w.await(client.erase("a"));
    w.env->pass(10ms);
    REQUIRE(values(w.await(erases.next())) == strings{"-"});
    REQUIRE(values(w.await(puts.next())) == strings{"1"});
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
        const std::vector<event> events = w.await(seen.next());
        INFO("after " << when.count() << " ms");
        REQUIRE(events.size() == 20);
        for (std::size_t i = 0; i < events.size(); ++i) {
            REQUIRE(events[i].kv.value == std::to_string(i));
        }
    }
}

TEST_CASE("all watches of a client share one stream, and leave nothing behind", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    std::vector<coetcd::watcher> many;
    for (int i = 0; i < 20; ++i) {
        many.push_back(w.await(client.watch("k" + std::to_string(i))));
    }
    REQUIRE(w.env->opened == 1);
    REQUIRE(w.etcd->watches() == 20);
    put(w, client, "k7", "x");
    w.env->pass(10ms);
    REQUIRE(values(w.await(many[7].next())) == strings{"x"});
    many.erase(many.begin(), many.begin() + 10);
    w.env->pass(10ms);
    REQUIRE(w.etcd->watches() == 10);
    many.clear();
    w.env->pass(10ms);
    REQUIRE(w.etcd->watches() == 0);
    // The stream was closed with the last one; the next watch opens another.
    coetcd::watcher next = w.await(client.watch("k1"));
    REQUIRE(w.env->opened == 2);
}

TEST_CASE("a watch whose history was compacted says so, and from where there is some", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    for (int i = 0; i < 9; ++i) {
        put(w, client, "a", std::to_string(i));
    }
    w.etcd->compacted = 7;
    coetcd::watch_options from;
    from.start_revision = 3;
    coetcd::watcher seen = w.await(client.watch("a", from));
    auto reading = w.start(seen.next());
    w.env->pass(10ms);
    REQUIRE(reading.code() == errc::watch_compacted);
    REQUIRE(seen.compact_revision() == 7);
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
    REQUIRE(values(w.await(seen.next())) == strings{"1"});
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
    REQUIRE(w.env->opened >= 2); // it did not wait for the first one all the time
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
    REQUIRE(values(w.await(seen.next())) == strings{"1"});
    w.etcd->expire_tokens();
    w.env->break_streams();
    w.env->pass(1s);
    w.etcd->write("a", "2");
    REQUIRE(values(w.await(seen.next())) == strings{"2"});
    // One that is created on a stream whose token has expired meanwhile.
    w.etcd->expire_tokens();
    coetcd::watcher other = w.await(client.watch("b"));
    w.etcd->write("b", "3");
    REQUIRE(values(w.await(other.next())) == strings{"3"});
}

TEST_CASE("a refusal ends the watch that it is for", "[watch]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::watcher good = w.await(client.watch("a"));
    const auto listen = w.env->on_message;
    w.env->on_message = [&](std::shared_ptr<scripted_env::server_stream> from,
                            const std::string& lines) {
        if (lines.find("create_request") == std::string::npos) {
            return listen(from, lines);
        }
        w.env->push(from,
                    R"({"result":{"header":{"revision":"1"},"watch_id":"-1","created":true,)"
                    R"("canceled":true,"cancel_reason":"PermissionDenied"}})");
    };
    auto starting = w.start(client.watch("secret"));
    w.env->pass(20ms);
    REQUIRE(starting.code() == errc::watch_canceled);
    try {
        (void)starting.get();
    } catch (const coetcd::error& e) {
        REQUIRE_THAT(e.what(), support::contains("PermissionDenied"));
    }
    put(w, client, "a", "1");
    w.env->pass(10ms);
    REQUIRE(values(w.await(good.next())) == strings{"1"});
}

TEST_CASE("the whole world may end under a watch", "[watch]") {
    for (auto when = 0ms; when < 10ms; ++when) {
        world w;
        const coetcd::client client = w.client();
        const auto starting = w.start(client.watch("a"));
        w.env->pass(when);
    }
    SUCCEED("no leak, no access to what is gone");
}
