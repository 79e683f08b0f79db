// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/net/default_env.hpp>
#include <coetcd/detail/service/router.hpp>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#ifndef _WIN32
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>
#endif

#include "support/catch.hpp"
#include "support/run_test.hpp"

using namespace coetcd;
using namespace coetcd::detail;
using namespace coetcd::detail::net;
using namespace std::chrono_literals;
using support::run_test;

namespace {

using loopback = asio::ip::address_v4;

/// Lets others run until a condition holds; `run_test` ends a test that waits for too long.
asio::awaitable<void> until(std::function<bool()> holds) {
    const auto ex = co_await asio::this_coro::executor;
    while (!holds()) {
        co_await asio::post(ex, asio::use_awaitable);
    }
}

/// A server's end of a connection.
class peer {
public:
    explicit peer(tcp::socket s)
        : socket_(std::move(s)) {}

    /// Reads until it has seen `end`, and takes all up to it.
    asio::awaitable<std::string> read_until(std::string end) {
        std::string out;
        while (!failed_ && seen_.find(end) == seen_.npos) {
            co_await read();
        }
        if (const auto at = seen_.find(end); at != seen_.npos) {
            out = seen_.substr(0, at + end.size());
            seen_.erase(0, at + end.size());
        }
        co_return out;
    }
    /// Whether the client closes the connection, and sends no more before that.
    asio::awaitable<bool> closes() {
        while (!failed_) {
            co_await read();
        }
        co_return seen_.empty();
    }
    asio::awaitable<void> send(std::string bytes) {
        error_code ec;
        co_await asio::async_write(
            socket_, asio::buffer(bytes), asio::redirect_error(asio::use_awaitable, ec));
    }
    asio::awaitable<void> answer(std::string body, std::string more = "") {
        return send("HTTP/1.1 200 OK\r\n" + more +
                    "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    }
    void close() { socket_.close(); }

private:
    asio::awaitable<void> read() {
        char piece[4096];
        error_code ec;
        const std::size_t n = co_await socket_.async_read_some(
            asio::buffer(piece), asio::redirect_error(asio::use_awaitable, ec));
        seen_.append(piece, n);
        failed_ = failed_ || ec;
    }

    tcp::socket socket_;
    std::string seen_;
    bool failed_ = false;
};

/// A server on a free port, which does what the test says, and the env under test.
class world {
public:
    explicit world(const asio::any_io_executor& ex, net_options o = {})
        : env(std::make_shared<default_env>(ex, o))
        , executor_(ex)
        , acceptor_(ex, tcp::endpoint(loopback::loopback(), 0)) {}

    const std::shared_ptr<default_env> env;

    call_request request(std::chrono::nanoseconds timeout = 30s, rpc what = rpc::range) const {
        logic::endpoint to;
        to.host = "127.0.0.1";
        to.port = acceptor_.local_endpoint().port();
        return {to, what, "{}", after(env->now(), timeout)};
    }
    asio::awaitable<std::shared_ptr<peer>> accept() {
        tcp::socket socket = co_await acceptor_.async_accept(asio::use_awaitable);
        co_return std::make_shared<peer>(std::move(socket));
    }
    /// Whether a client waits to be accepted.
    bool knocks() {
        acceptor_.non_blocking(true);
        error_code ec;
        tcp::socket socket(executor_);
        acceptor_.accept(socket, ec);
        return !ec;
    }
    void stop_listening() { acceptor_.close(); }
    std::uint16_t port() const { return acceptor_.local_endpoint().port(); }

private:
    const asio::any_io_executor executor_;
    tcp::acceptor acceptor_;
};

/// Something that runs beside the test, and can be cancelled.
template<class T>
class background {
public:
    background(std::shared_ptr<default_env> env, asio::awaitable<T> work)
        : state_(std::make_shared<state>()) {
        asio::co_spawn(env->executor(),
                       std::move(work),
                       asio::bind_cancellation_slot(
                           state_->stop.slot(), [env, s = state_](std::exception_ptr e, T result) {
                               s->failure = e;
                               s->result = std::move(result);
                               s->ended = true;
                           }));
    }
    bool ended() const { return state_->ended; }
    void cancel(asio::cancellation_type how = asio::cancellation_type::terminal) {
        state_->stop.emit(how);
    }
    asio::awaitable<void> done() {
        return until([s = state_] { return s->ended; });
    }
    /// What it returned. Throws what it threw.
    T take() {
        REQUIRE(state_->ended);
        if (state_->failure) {
            std::rethrow_exception(state_->failure);
        }
        return std::move(state_->result);
    }
    /// Whether it was cancelled.
    bool aborted() {
        try {
            if constexpr (std::is_same_v<T, error_code>) {
                return take() == asio::error::operation_aborted;
            } else {
                return take().ec == asio::error::operation_aborted;
            }
        } catch (const boost::system::system_error& e) {
            return e.code() == asio::error::operation_aborted;
        }
    }

private:
    struct state {
        asio::cancellation_signal stop;
        std::exception_ptr failure;
        T result{};
        bool ended = false;
    };
    std::shared_ptr<state> state_;
};

/// A server's queue that is full: an attempt to connect waits for ever.
class deaf {
public:
    deaf(const asio::any_io_executor& ex, const tcp::endpoint& where)
        : acceptor_(ex, where) {
        acceptor_.listen(0);
        for (int i = 0; i != 4; ++i) {
            crowd_.push_back(std::make_unique<tcp::socket>(ex));
            crowd_.back()->async_connect(acceptor_.local_endpoint(), [](const error_code&) {});
        }
    }
    std::uint16_t port() const { return acceptor_.local_endpoint().port(); }

private:
    tcp::acceptor acceptor_;
    std::vector<std::unique_ptr<tcp::socket>> crowd_;
};

const std::string request_end = "\r\n\r\n{}"; // of each `world::request`

} // namespace

TEST_CASE("a request has its answer, and the connection serves the next one",
          "[net][default_env]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        world w(ex);
        std::shared_ptr<peer> server;
        for (int i = 0; i != 3; ++i) {
            background<reply> call(w.env, w.env->call(w.request()));
            if (!server) {
                server = co_await w.accept();
            }
            const std::string text = co_await server->read_until(request_end);
            CHECK(text.starts_with("POST /v3/kv/range HTTP/1.1\r\n"));
            CHECK_THAT(text, support::contains("\r\nGrpc-Timeout: "));
            co_await server->answer("{\"n\":" + std::to_string(i) + "}");
            co_await call.done();
            const reply r = call.take();
            CHECK_FALSE(r.ec);
            CHECK(r.sent);
            CHECK(r.status == 200);
            CHECK(r.body == "{\"n\":" + std::to_string(i) + "}");
        }
        CHECK_FALSE(w.knocks());
    });
}

TEST_CASE("what is not there refuses, and nothing was sent", "[net][default_env]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        world w(ex);
        call_request call = w.request();
        call_request open = w.request();
        w.stop_listening();
        const reply r = co_await w.env->call(std::move(call));
        CHECK(r.ec == asio::error::connection_refused);
        CHECK_FALSE(r.sent);
        const open_result o = co_await w.env->open(std::move(open));
        CHECK(o.ec == asio::error::connection_refused);
        CHECK_FALSE(o.opened);
    });
}

TEST_CASE("a server that accepts no connection costs the time to connect", "[net][default_env]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        net_options o;
        o.connect_timeout = 100ms;
        world w(ex, o);
        const deaf server(ex, tcp::endpoint(loopback::loopback(), 0));
        call_request request = w.request();
        request.to.port = server.port();
        const time_point start = w.env->now();
        const reply r = co_await w.env->call(std::move(request));
        CHECK(r.ec == errc::timed_out);
        CHECK_FALSE(r.sent);
        CHECK(w.env->now() - start >= 100ms);
        CHECK(w.env->now() - start < 10s);
    });
}

TEST_CASE("a server that does not answer costs the time of the request", "[net][default_env]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        world w(ex);
        const time_point start = w.env->now();
        background<reply> call(w.env, w.env->call(w.request(50ms)));
        const std::shared_ptr<peer> silent = co_await w.accept();
        co_await call.done();
        const reply r = call.take();
        CHECK(r.ec == errc::timed_out);
        CHECK(r.sent);
        CHECK(w.env->now() - start >= 50ms);
        // A late answer cannot be taken for that of another request.
        const std::string text = co_await silent->read_until(request_end);
        CHECK_FALSE(text.empty());
        const bool closed = co_await silent->closes();
        CHECK(closed);
        background<reply> next(w.env, w.env->call(w.request()));
        const std::shared_ptr<peer> server = co_await w.accept();
        co_await server->answer("{}");
        co_await next.done();
        CHECK_FALSE(next.take().ec);
    });
}

TEST_CASE("after a silence, what was kept before it is not used", "[net][default_env]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        for (const bool was_kept : {true, false}) { // the connection that is silent
            CAPTURE(was_kept);
            world here(ex);
            world there(ex); // another endpoint, on the same way
            const auto ask = [&](const world& of, std::chrono::nanoseconds timeout = 30s) {
                return background<reply>(here.env, here.env->call(of.request(timeout)));
            };
            std::vector<std::shared_ptr<peer>> kept;
            for (world* w : {&here, &there}) {
                background<reply> first = ask(*w);
                kept.push_back(co_await w->accept());
                (void)co_await kept.back()->read_until(request_end);
                co_await kept.back()->answer("{}");
                co_await first.done();
                CHECK_FALSE(first.take().ec);
            }
            std::shared_ptr<peer> silent = kept.front();
            if (!was_kept) {
                silent->close();
            }
            background<reply> second = ask(here, 50ms);
            if (!was_kept) {
                silent = co_await here.accept();
            }
            (void)co_await silent->read_until(request_end);
            co_await second.done();
            CHECK(second.take().ec == errc::timed_out);

            background<reply> elsewhere = ask(there);
            std::shared_ptr<peer> heard = kept.back();
            if (was_kept) {
                heard = co_await there.accept();
                const bool closed = co_await kept.back()->closes();
                CHECK(closed);
            }
            (void)co_await heard->read_until(request_end);
            co_await heard->answer("{}");
            co_await elsewhere.done();
            CHECK_FALSE(elsewhere.take().ec);

            background<reply> again = ask(there); // on what has been heard since
            (void)co_await heard->read_until(request_end);
            co_await heard->answer("{}");
            co_await again.done();
            CHECK_FALSE(again.take().ec);
        }
    });
}

TEST_CASE("a request that is late already is not kept", "[net][default_env]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        world w(ex);
        const reply r = co_await w.env->call(w.request(-1s));
        CHECK(r.ec == errc::timed_out);
    });
}

TEST_CASE("a connection that the server closed while idle is not used", "[net][default_env]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        world w(ex);
        for (const bool talks : {false, true}) {
            CAPTURE(talks);
            background<reply> first(w.env, w.env->call(w.request()));
            const std::shared_ptr<peer> old = co_await w.accept();
            (void)co_await old->read_until(request_end);
            co_await old->answer("{}");
            co_await first.done();
            CHECK_FALSE(first.take().ec);
            if (talks) { // what was not asked for
                co_await old->send("HTTP/1.1 408 Request Timeout\r\n\r\n");
            } else {
                old->close();
            }
            background<reply> second(w.env, w.env->call(w.request()));
            const std::shared_ptr<peer> fresh = co_await w.accept();
            co_await fresh->answer("{\"fresh\":true}", "Connection: close\r\n");
            co_await second.done();
            const reply r = second.take();
            CHECK_FALSE(r.ec);
            CHECK(r.body == "{\"fresh\":true}");
        }
    });
}

TEST_CASE("sec.smuggling: a connection is dropped after an answer that was not in order",
          "[net][default_env]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        net_options o;
        o.most.body = 10;
        world w(ex, o);
        struct row {
            const char* answer;
            error_code ec;
        };
        const row rows[] = {
            {"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n12345678901", errc::too_large},
            {"SSH-2.0-x\r\n\r\n", errc::protocol_error},
            {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", {}},
            {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nmore", {}},
        };
        for (const row& each : rows) {
            CAPTURE(each.answer);
            background<reply> call(w.env, w.env->call(w.request()));
            const std::shared_ptr<peer> server = co_await w.accept();
            (void)co_await server->read_until(request_end);
            co_await server->send(each.answer);
            co_await call.done();
            const reply r = call.take();
            CHECK(r.ec == each.ec);
            CHECK(r.sent);
            const bool closed = co_await server->closes();
            CHECK(closed);
        }
    });
}

TEST_CASE("a server that closes instead of an answer leaves the outcome open",
          "[net][default_env]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        world w(ex);
        background<reply> call(w.env, w.env->call(w.request()));
        const std::shared_ptr<peer> server = co_await w.accept();
        (void)co_await server->read_until(request_end);
        server->close();
        co_await call.done();
        const reply r = call.take();
        CHECK(r.ec == asio::error::eof);
        CHECK(r.sent);
        CHECK_THAT(r.text, support::contains("https://")); // which it may want
    });
}

TEST_CASE("sec.smuggling: two requests at once do not get each other's answer",
          "[net][default_env]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        world w(ex);
        call_request of_a = w.request();
        call_request of_b = w.request();
        of_a.body = "{a}";
        of_b.body = "{b}";
        background<reply> a(w.env, w.env->call(std::move(of_a)));
        background<reply> b(w.env, w.env->call(std::move(of_b)));
        std::vector<std::shared_ptr<peer>> servers;
        std::vector<std::string> wanted;
        for (int i = 0; i != 2; ++i) {
            const std::shared_ptr<peer> server = co_await w.accept();
            const std::string text = co_await server->read_until("}");
            servers.push_back(server);
            wanted.push_back(text.substr(text.size() - 3));
        }
        for (std::size_t i = 2; i-- != 0;) { // the last one first
            co_await servers[i]->answer(wanted[i]);
        }
        co_await a.done();
        co_await b.done();
        CHECK(a.take().body == "{a}");
        CHECK(b.take().body == "{b}");
    });
}

TEST_CASE("sec.limits: there are no more connections to an endpoint than allowed",
          "[net][default_env]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        net_options o;
        o.connections = 2;
        world w(ex, o);
        background<reply> first(w.env, w.env->call(w.request()));
        background<reply> second(w.env, w.env->call(w.request()));
        const std::shared_ptr<peer> one = co_await w.accept();
        const std::shared_ptr<peer> two = co_await w.accept();
        background<reply> third(w.env, w.env->call(w.request()));
        background<reply> hurried(w.env, w.env->call(w.request(50ms)));
        co_await hurried.done();
        const reply late = hurried.take();
        CHECK(late.ec == errc::timed_out);
        CHECK_FALSE(late.sent);
        CHECK_FALSE(third.ended());
        CHECK_FALSE(w.knocks());

        // A renewal does not wait for others, nor does a transaction of a lock.
        for (const connection_kind way : {connection_kind::renewal, connection_kind::locks}) {
            call_request pressing = w.request();
            pressing.way = way;
            background<reply> at_once(w.env, w.env->call(std::move(pressing)));
            const std::shared_ptr<peer> own = co_await w.accept();
            (void)co_await own->read_until(request_end);
            co_await own->answer("{}");
            co_await at_once.done();
            CHECK_FALSE(at_once.take().ec);
            CHECK_FALSE(third.ended());
        }

        // Nor do others take its connection.
        for (const auto& server : {one, two}) {
            (void)co_await server->read_until(request_end);
        }
        CHECK_FALSE(third.ended());
        co_await one->answer("{1}");
        (void)co_await one->read_until(request_end); // of the third one
        co_await one->answer("{3}");
        co_await two->answer("{2}");
        co_await first.done();
        co_await second.done();
        co_await third.done();
        CHECK_FALSE(first.take().ec);
        CHECK_FALSE(second.take().ec);
        CHECK(third.take().body == "{3}");
        CHECK_FALSE(w.knocks());
    });
}

TEST_CASE("what a request waits for others of ours is not the endpoint's time",
          "[net][default_env]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        net_options o;
        o.connections = 1;
        world w(ex, o);
        background<reply> first(w.env, w.env->call(w.request()));
        const std::shared_ptr<peer> server = co_await w.accept();
        (void)co_await server->read_until(request_end);
        call_request queued = w.request(50ms);
        queued.latest = queued.deadline + 30s;
        queued.patience = 30s;
        const time_point deadline = queued.deadline;
        background<reply> second(w.env, w.env->call(std::move(queued)));
        co_await until([&] { return w.env->now() > deadline; });
        CHECK_FALSE(second.ended());
        co_await server->answer("{1}");
        (void)co_await server->read_until(request_end);
        co_await server->answer("{2}");
        co_await second.done();
        CHECK_FALSE(first.take().ec);
        const reply waited = second.take();
        CHECK(waited.body == "{2}");
        REQUIRE(waited.departed);
        CHECK(*waited.departed >= deadline);
        CHECK(*waited.departed <= w.env->now());
    });
}

TEST_CASE("connections of a crowd are closed once it has gone", "[net][default_env]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        net_options o;
        o.longest_idle = 1ms;
        world w(ex, o);
        std::vector<std::unique_ptr<background<reply>>> crowd;
        std::vector<std::shared_ptr<peer>> servers;
        for (int i = 0; i != 5; ++i) {
            crowd.push_back(std::make_unique<background<reply>>(w.env, w.env->call(w.request())));
            servers.push_back(co_await w.accept());
        }
        for (const auto& server : servers) { // so the last two were used last
            (void)co_await server->read_until(request_end);
            co_await server->answer("{}");
            co_await crowd.front()->done();
            crowd.erase(crowd.begin());
        }
        const time_point idle = w.env->now() + 1ms;
        co_await until([&] { return w.env->now() > idle; });
        background<reply> next(w.env, w.env->call(w.request()));
        (void)co_await servers.back()->read_until(request_end);
        co_await servers.back()->answer("{}");
        co_await next.done();
        CHECK_FALSE(next.take().ec);
        for (int i = 0; i != 3; ++i) {
            CHECK(co_await servers.at(static_cast<std::size_t>(i))->closes());
        }
        background<reply> last(w.env, w.env->call(w.request()));
        background<reply> beside(w.env, w.env->call(w.request()));
        for (int i = 3; i != 5; ++i) { // on what was kept
            const auto& server = servers.at(static_cast<std::size_t>(i));
            (void)co_await server->read_until(request_end);
            co_await server->answer("{}");
        }
        co_await last.done();
        co_await beside.done();
        CHECK_FALSE(w.knocks());
    });
}

TEST_CASE("a call queued behind an endpoint that stands still leaves unsent, and blames it",
          "[net][default_env]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        net_options o;
        o.connections = 1;
        world w(ex, o);
        background<reply> first(w.env, w.env->call(w.request()));
        const std::shared_ptr<peer> silent = co_await w.accept();
        (void)co_await silent->read_until(request_end);
        const time_point began = w.env->now();
        call_request queued = w.request(30s, rpc::put);
        queued.patience = 50ms;
        background<reply> second(w.env, w.env->call(std::move(queued)));
        co_await second.done();
        CHECK(w.env->now() - began < 10s);
        const reply r = second.take();
        CHECK(r.ec == errc::timed_out);
        CHECK_FALSE(r.sent);
        CHECK_FALSE(r.crowded);
        CHECK_FALSE(first.ended());
        first.cancel();
        co_await first.done();
    });
}

TEST_CASE("what is nearly due when its turn comes is not sent", "[net][default_env]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        net_options o;
        o.connections = 1;
        world w(ex, o);
        background<reply> first(w.env, w.env->call(w.request()));
        const std::shared_ptr<peer> server = co_await w.accept();
        (void)co_await server->read_until(request_end);
        background<reply> second(w.env, w.env->call(w.request(1s)));
        const time_point late = w.env->now() + 950ms;
        co_await until([&] { return w.env->now() > late; });
        co_await server->answer("{1}");
        co_await second.done();
        const reply r = second.take();
        CHECK(r.ec == errc::timed_out);
        CHECK_FALSE(r.sent);
        // The next one finds the connection as it was.
        background<reply> third(w.env, w.env->call(w.request()));
        (void)co_await server->read_until(request_end);
        co_await server->answer("{3}");
        co_await third.done();
        CHECK(third.take().body == "{3}");
    });
}

TEST_CASE("sec.smuggling: a request that is cancelled closes its connection",
          "[net][default_env][cancellation]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        world w(ex);
        background<reply> call(w.env, w.env->call(w.request()));
        const std::shared_ptr<peer> server = co_await w.accept();
        (void)co_await server->read_until(request_end);
        call.cancel();
        co_await call.done();
        CHECK(call.aborted());
        const bool closed = co_await server->closes();
        CHECK(closed);
        background<reply> next(w.env, w.env->call(w.request()));
        const std::shared_ptr<peer> fresh = co_await w.accept();
        co_await fresh->answer("{}");
        co_await next.done();
        CHECK_FALSE(next.take().ec);
    });
}

namespace {

/// As `call`, in a coroutine that reacts to every kind of cancellation.
asio::awaitable<reply> call_with_all_filters_open(std::shared_ptr<default_env> env,
                                                  call_request request) {
    co_await asio::this_coro::reset_cancellation_state(asio::enable_total_cancellation());
    reply r = co_await env->call(std::move(request));
    co_return r;
}

} // namespace

TEST_CASE(
    "sec.smuggling: a call that lets weaker cancellations through leaves no connection behind",
    "[net][default_env][cancellation]") {
    // Whatever part of a request was sent, it is never left on a connection that is used again.
    const auto how = GENERATE(asio::cancellation_type::total, asio::cancellation_type::partial);
    const bool writing = GENERATE(true, false);
    run_test([&]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        world w(ex);
        call_request request = w.request(writing ? 200ms : 30s);
        if (writing) {
            request.body.assign(std::size_t{32} * 1024 * 1024, ' '); // more than sockets take
        }
        background<reply> call(w.env, call_with_all_filters_open(w.env, std::move(request)));
        const std::shared_ptr<peer> server = co_await w.accept();
        const std::string begun = writing ? "\r\n\r\n" : request_end;
        (void)co_await server->read_until(begun);
        call.cancel(how);
        co_await call.done();
        bool failed = false;
        try {
            failed = bool(call.take().ec);
        } catch (const boost::system::system_error& e) {
            failed = e.code() == asio::error::operation_aborted;
        }
        CHECK(failed);
        background<reply> next(w.env, w.env->call(w.request()));
        const std::shared_ptr<peer> fresh = co_await w.accept(); // another connection
        (void)co_await fresh->read_until(request_end);
        co_await fresh->answer("{}");
        co_await next.done();
        CHECK_FALSE(next.take().ec);
    });
}

TEST_CASE("a request can be cancelled before it is sent", "[net][default_env][cancellation]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        net_options o;
        o.connections = 1;
        world w(ex, o);
        for (const char* host : {"127.0.0.1", "localhost"}) {
            for (int steps = 0; steps != 3; ++steps) {
                CAPTURE(host, steps);
                call_request r = w.request();
                r.to.host = host;
                background<reply> call(w.env, w.env->call(std::move(r)));
                for (int i = 0; i != steps; ++i) {
                    co_await asio::post(ex, asio::use_awaitable);
                }
                call.cancel();
                co_await call.done();
                CHECK(call.aborted());
            }
        }
        while (w.knocks()) {
        }
        // Nor is the place lost.
        background<reply> holds(w.env, w.env->call(w.request()));
        const std::shared_ptr<peer> server = co_await w.accept();
        background<reply> waits(w.env, w.env->call(w.request()));
        co_await asio::post(ex, asio::use_awaitable);
        waits.cancel();
        co_await waits.done();
        CHECK(waits.aborted());
        co_await server->answer("{}");
        co_await holds.done();
        CHECK_FALSE(holds.take().ec);
    });
}

TEST_CASE("a request may name its host", "[net][default_env]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        world w(ex);
        call_request r = w.request();
        r.to.host = "localhost";
        background<reply> call(w.env, w.env->call(std::move(r)));
        const std::shared_ptr<peer> server = co_await w.accept();
        const std::string text = co_await server->read_until(request_end);
        CHECK_THAT(text, support::contains("\r\nHost: localhost:"));
        co_await server->answer("{}");
        co_await call.done();
        CHECK_FALSE(call.take().ec);
    });
}

namespace {

/// Any name has these addresses.
lookup_function always(std::vector<const char*> all) {
    return [all](const std::string&, std::function<void(error_code, addresses)> tell) {
        addresses found;
        for (const char* each : all) {
            found.push_back(asio::ip::make_address(each));
        }
        tell({}, found);
    };
}

} // namespace

TEST_CASE(
    "an address that accepts no connection is passed by, and the one that works is remembered",
    "[net][default_env]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        net_options o;
        o.connect_timeout = 20s;
        o.lookup = always({"127.0.0.2", "127.0.0.1"});
        world w(ex, o);
        const deaf other(ex, tcp::endpoint(asio::ip::make_address("127.0.0.2"), w.port()));
        for (const bool known : {false, true}) {
            CAPTURE(known);
            call_request r = w.request();
            r.to.host = "two.example";
            const logic::endpoint of = r.to;
            const time_point start = w.env->now();
            background<reply> call(w.env, w.env->call(std::move(r)));
            const std::shared_ptr<peer> server = co_await w.accept();
            const auto took = w.env->now() - start;
            CHECK(took < 10s);
            CHECK((known || took >= 250ms));
            (void)co_await server->read_until(request_end);
            co_await server->answer("{}", "Connection: close\r\n");
            co_await call.done();
            const reply end = call.take();
            CHECK_FALSE(end.ec);
            CHECK(end.addresses == 2);
            w.env->rate(of, end.by, true);
        }
    });
}

TEST_CASE("an address that accepts connections and answers nothing is left for another",
          "[net][default_env]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        net_options o;
        o.lookup = always({"127.0.0.2", "127.0.0.1"});
        world w(ex, o);
        const tcp::acceptor stopped(ex,
                                    tcp::endpoint(asio::ip::make_address("127.0.0.2"), w.port()));
        call_request first = w.request(50ms);
        first.to.host = "two.example";
        call_request second = w.request();
        second.to.host = "two.example";
        const reply late = co_await w.env->call(std::move(first));
        CHECK(late.ec == errc::timed_out);
        background<reply> call(w.env, w.env->call(std::move(second)));
        const std::shared_ptr<peer> server = co_await w.accept();
        co_await server->answer("{}");
        co_await call.done();
        CHECK_FALSE(call.take().ec);
    });
}

TEST_CASE("an address whose answer was of no use is left for another, with what is kept to it",
          "[net][default_env]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        const asio::ip::address bad = asio::ip::make_address("127.0.0.2");
        net_options o;
        o.lookup = always({"127.0.0.2", "127.0.0.1"});
        world w(ex, o);
        tcp::acceptor other(ex, tcp::endpoint(bad, w.port()));
        const auto ask = [&](connection_kind way) {
            call_request r = w.request();
            r.to.host = "two.example";
            r.way = way;
            return background<reply>(w.env, w.env->call(std::move(r)));
        };
        std::vector<std::shared_ptr<peer>> kept;
        for (const connection_kind way : {connection_kind::shared, connection_kind::locks}) {
            background<reply> call = ask(way);
            tcp::socket socket = co_await other.async_accept(asio::use_awaitable);
            kept.push_back(std::make_shared<peer>(std::move(socket)));
            (void)co_await kept.back()->read_until(request_end);
            co_await kept.back()->answer("<html>hello</html>");
            co_await call.done();
            const reply r = call.take();
            CHECK(r.by == bad);
            CHECK(r.addresses == 2);
        }
        logic::endpoint named = w.request().to;
        named.host = "two.example";
        w.env->rate(named, bad, false);
        for (const auto& each : kept) {
            const bool closed = co_await each->closes();
            CHECK(closed);
        }
        for (const connection_kind way :
             {connection_kind::shared, connection_kind::locks, connection_kind::renewal}) {
            background<reply> call = ask(way);
            const std::shared_ptr<peer> server = co_await w.accept();
            (void)co_await server->read_until(request_end);
            co_await server->answer("{}");
            co_await call.done();
            const reply r = call.take();
            CHECK(r.by == loopback::loopback());
            w.env->rate(named, r.by, true);
        }
    });
}

namespace {

/// A server at another address of the same port that answers each request alike.
class stranger {
public:
    stranger(const asio::any_io_executor& ex, const tcp::endpoint& where, std::string answer)
        : acceptor_(ex, where)
        , answer_(std::move(answer)) {}
    asio::awaitable<void> run() {
        for (;;) {
            error_code ec;
            tcp::socket socket =
                co_await acceptor_.async_accept(asio::redirect_error(asio::use_awaitable, ec));
            if (ec) {
                co_return;
            }
            asio::co_spawn(acceptor_.get_executor(), serve(std::move(socket)), asio::detached);
        }
    }
    void stop() { acceptor_.close(); }
    int asked() const { return *asked_; }

private:
    asio::awaitable<void> serve(tcp::socket socket) {
        const std::string answer = answer_;
        const std::shared_ptr<int> asked = asked_;
        peer client(std::move(socket));
        for (;;) {
            const std::string text = co_await client.read_until("\r\n\r\n{");
            if (text.empty()) {
                co_return;
            }
            ++*asked;
            co_await client.send(answer);
        }
    }

    tcp::acceptor acceptor_;
    const std::string answer_;
    const std::shared_ptr<int> asked_ = std::make_shared<int>(0);
};

std::string page(const std::string& status, const std::string& body) {
    return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) +
           "\r\n\r\n" + body;
}

} // namespace

TEST_CASE("one bad address of a name is of no account", "[net][default_env]") {
    const char* const none = R"({"code":5,"message":"Not Found","details":[]})";
    const std::string pages[] = {
        page("404 Not Found", "404 page not found\n"),
        page("404 Not Found", none), // no member knows the call, it seems
        page("200 OK", "<html>hello</html>"),
        page("403 Forbidden", "<html>403 Forbidden</html>"),
        page("503 Service Unavailable", R"({"code":14,"message":"etcdserver: no leader"})"),
        "HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n<html>",
    };
    for (const std::string& each : pages) {
        CAPTURE(each);
        run_test([&]() -> asio::awaitable<void> {
            const auto ex = co_await asio::this_coro::executor;
            net_options o;
            o.lookup = always({"127.0.0.2", "127.0.0.3", "127.0.0.1"});
            world w(ex, o);
            std::vector<std::unique_ptr<stranger>> bad;
            for (const char* address : {"127.0.0.2", "127.0.0.3"}) {
                const tcp::endpoint where(asio::ip::make_address(address), w.port());
                bad.push_back(std::make_unique<stranger>(ex, where, each));
                asio::co_spawn(ex, bad.back()->run(), asio::detached);
            }
            std::vector<logic::endpoint> cluster;
            cluster.push_back(w.request().to);
            cluster.back().host = "three.example";
            const auto way = std::make_shared<router>(w.env, cluster);
            std::shared_ptr<peer> server;
            for (int i = 0; i != 3; ++i) {
                range_options few;
                few.count_only = true;
                const range_request read("k", few);
                call_terms how{after(w.env->now(), 20s)};
                how.known = impact::none;
                auto reading = call(way, read, how);
                background<outcome<range_response>> got(w.env, std::move(reading));
                if (!server) {
                    server = co_await w.accept();
                }
                (void)co_await server->read_until("\r\n\r\n{");
                co_await server->answer(
                    R"({"header":{"cluster_id":"14841639068965178418","revision":"7"}})");
                co_await got.done();
                CHECK_FALSE(got.take().ec);
            }
            for (const auto& one : bad) {
                CHECK(one->asked() == 1); // and then where it worked
                one->stop();
            }
        });
    }
}

TEST_CASE("sec.token.plain_http: what must stay here goes to no name that leads elsewhere",
          "[net][default_env][security]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        struct row {
            std::vector<const char*> leads_to;
            bool served;
        };
        const row rows[] = {
            {{"192.0.2.2"}, false},
            {{"192.0.2.2", "2001:db8::1", "::ffff:192.0.2.2", "::"}, false},
            {{"127.0.0.1"}, true},
            {{"192.0.2.2", "::ffff:192.0.2.2", "127.0.0.1"}, true},
        };
        for (const row& each : rows) {
            net_options o;
            o.plain_stays_here = true;
            o.lookup = always(each.leads_to);
            world w(ex, o);
            call_request r = w.request(20s);
            r.to.host = "localhost";
            background<reply> call(w.env, w.env->call(std::move(r)));
            if (each.served) {
                const std::shared_ptr<peer> server = co_await w.accept();
                co_await server->answer("{}");
            }
            co_await call.done();
            const reply end = call.take();
            CHECK((end.ec == errc::tls_failed) == !each.served);
            CHECK(end.sent == each.served);
            if (!each.served) {
                CHECK_THAT(end.text, support::contains("insecure_plain_text_credentials"));
            }
        }
    });
}

TEST_CASE("an answer that comes before all of the request was sent is read", "[net][default_env]") {
    const bool closes = GENERATE(true, false);
    run_test([&]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        world w(ex);
        call_request request = w.request(20s, rpc::put);
        request.body.assign(std::size_t{32} * 1024 * 1024, ' '); // more than sockets take
        const time_point start = w.env->now();
        background<reply> call(w.env, w.env->call(std::move(request)));
        const std::shared_ptr<peer> server = co_await w.accept();
        (void)co_await server->read_until("\r\n\r\n");
        co_await server->send(page("413 Payload Too Large", "too large"));
        if (closes) {
            server->close(); // most was not read: it is a reset
        }
        co_await call.done();
        const reply r = call.take();
        CHECK_FALSE(r.ec);
        CHECK(r.status == 413);
        CHECK(r.body == "too large");
        CHECK(w.env->now() - start < 10s);
        background<reply> next(w.env, w.env->call(w.request()));
        const std::shared_ptr<peer> fresh = co_await w.accept(); // another connection
        co_await fresh->answer("{}");
        co_await next.done();
        CHECK_FALSE(next.take().ec);
    });
}

TEST_CASE("a request that was cut off is not taken for a lack of TLS", "[net][default_env]") {
    const bool large = GENERATE(true, false);
    run_test([&]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        world w(ex);
        call_request request = w.request(20s, rpc::put);
        if (large) {
            request.body.assign(std::size_t{32} * 1024 * 1024, ' ');
        }
        background<reply> call(w.env, w.env->call(std::move(request)));
        const std::shared_ptr<peer> server = co_await w.accept();
        (void)co_await server->read_until("\r\n\r\n");
        server->close();
        co_await call.done();
        const reply r = call.take();
        CHECK(r.ec);
        CHECK(r.sent);
        CHECK_THAT(r.text, support::contains(large ? "before it had all" : "write https://"));
    });
}

TEST_CASE("a lease is granted on the connection that will renew it", "[net][default_env]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        world w(ex);
        const auto start = [&](rpc what, connection_kind way) {
            call_request r = w.request(30s, what);
            r.way = way;
            return background<reply>(w.env, w.env->call(std::move(r)));
        };
        const auto serve = [&](background<reply> call,
                               std::shared_ptr<peer> by) -> asio::awaitable<void> {
            (void)co_await by->read_until(request_end);
            co_await by->answer("{}");
            co_await call.done();
            CHECK_FALSE(call.take().ec);
        };
        background<reply> grant = start(rpc::lease_grant, connection_kind::shared);
        const std::shared_ptr<peer> first = co_await w.accept();
        // Others do not wait for it.
        background<reply> another = start(rpc::lease_grant, connection_kind::shared);
        const std::shared_ptr<peer> second = co_await w.accept();
        co_await serve(std::move(another), second);
        co_await serve(std::move(grant), first);
        background<reply> renewal = start(rpc::lease_keep_alive, connection_kind::renewal);
        co_await serve(std::move(renewal), first);
        background<reply> later = start(rpc::lease_grant, connection_kind::shared);
        co_await serve(std::move(later), second);
        CHECK_FALSE(w.knocks());
    });
}

#ifndef _WIN32
namespace {

/// As long as it lives, this process can open nothing more.
class no_descriptors {
public:
    no_descriptors() {
        ::getrlimit(RLIMIT_NOFILE, &before_);
        const int next = ::dup(0);
        ::close(next);
        rlimit now = before_;
        now.rlim_cur = static_cast<rlim_t>(next);
        ::setrlimit(RLIMIT_NOFILE, &now);
    }
    ~no_descriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
    no_descriptors(const no_descriptors&) = delete;
    no_descriptors& operator=(const no_descriptors&) = delete;

private:
    rlimit before_{};
};

} // namespace

TEST_CASE("without descriptors what is pressing takes an idle connection of others",
          "[net][default_env]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        world w(ex);
        const auto start = [&](connection_kind way) {
            call_request r = w.request();
            r.way = way;
            return background<reply>(w.env, w.env->call(std::move(r)));
        };
        const auto serve = [&](background<reply> call,
                               std::shared_ptr<peer> by) -> asio::awaitable<void> {
            (void)co_await by->read_until(request_end);
            co_await by->answer("{}");
            co_await call.done();
            CHECK_FALSE(call.take().ec);
        };
        background<reply> shared = start(connection_kind::shared);
        const std::shared_ptr<peer> kept = co_await w.accept();
        co_await serve(std::move(shared), kept);

        const no_descriptors from_here;
        background<reply> lock = start(connection_kind::locks);
        co_await serve(std::move(lock), kept);
        background<reply> renewal = start(connection_kind::renewal);
        co_await serve(std::move(renewal), kept);
        // What is less pressing takes nothing from it.
        for (const connection_kind way : {connection_kind::locks, connection_kind::shared}) {
            background<reply> none = start(way);
            co_await none.done();
            const reply r = none.take();
            CHECK(r.ec == asio::error::no_descriptors);
            CHECK_FALSE(r.sent);
        }
        background<reply> next = start(connection_kind::renewal);
        co_await serve(std::move(next), kept);
    });
}

TEST_CASE("a socket is never one of a program that is started", "[net][default_env]") {
    const auto open_now = [] {
        std::set<int> all;
        for (int i = 0; i != 1024; ++i) {
            if (::fcntl(i, F_GETFD) != -1) {
                all.insert(i);
            }
        }
        return all;
    };
    run_test([&]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        world w(ex);
        const deaf server(ex, tcp::endpoint(loopback::loopback(), 0));
        const std::set<int> before = open_now();
        call_request r = w.request();
        r.to.port = server.port();
        background<reply> call(w.env, w.env->call(std::move(r)));
        co_await until([&] { return open_now().size() > before.size(); });
        for (const int each : open_now()) { // it is being connected
            CHECK((before.contains(each) || (::fcntl(each, F_GETFD) & FD_CLOEXEC) != 0));
        }
        CHECK_FALSE(call.ended());
        call.cancel();
        co_await call.done();
    });
}
#endif

TEST_CASE("connections to an endpoint that is not used any more are closed", "[net][default_env]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        world w(ex);
        std::shared_ptr<peer> server;
        for (int i = 0; i != 2; ++i) {
            background<reply> call(w.env, w.env->call(w.request()));
            if (!server) {
                server = co_await w.accept();
            }
            (void)co_await server->read_until(request_end);
            co_await server->answer("{}");
            co_await call.done();
            CHECK_FALSE(call.take().ec);
            std::vector<logic::endpoint> used;
            if (i == 0) {
                used.push_back(w.request().to);
            }
            w.env->keep_only(used);
        }
        const bool closed = co_await server->closes();
        CHECK(closed);
    });
}

TEST_CASE("a stream carries messages both ways", "[net][default_env][stream]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        world w(ex);
        background<open_result> opening(w.env, w.env->open(w.request(30s, rpc::watch)));
        const std::shared_ptr<peer> server = co_await w.accept();
        co_await opening.done();
        open_result opened = opening.take();
        CHECK_FALSE(opened.ec);
        REQUIRE(opened.opened);
        const std::string text = co_await server->read_until("2\r\n{}\r\n");
        CHECK(text.starts_with("POST /v3/watch HTTP/1.1\r\n"));
        CHECK_THAT(text, support::contains("\r\nConnection: close\r\n"));
        CHECK_THAT(text, !support::contains("Grpc-Timeout"));

        background<reply> reading(w.env, opened.opened->read());
        const error_code written =
            co_await opened.opened->write("{more}", after(w.env->now(), 30s));
        CHECK_FALSE(written);
        const std::string more = co_await server->read_until("}\r\n");
        CHECK(more == "6\r\n{more}\r\n");
        CHECK_FALSE(reading.ended());
        co_await server->send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                              "8\r\n{1}\n{2}\n\r\n");
        co_await reading.done();
        const reply first = reading.take();
        CHECK_FALSE(first.ec);
        CHECK(first.status == 200);
        CHECK(first.body == "{1}");
        const reply second = co_await opened.opened->read();
        CHECK(second.body == "{2}");
        co_await server->send("0\r\n\r\n");
        const reply end = co_await opened.opened->read();
        CHECK(end.ec == asio::error::eof);
        opened.opened.reset();
        const bool closed = co_await server->closes();
        CHECK(closed);
    });
}

TEST_CASE("a stream may be opened with a request that is complete", "[net][default_env][stream]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        world w(ex);
        call_request request = w.request(30s, rpc::watch);
        request.how = sending::once;
        background<open_result> opening(w.env, w.env->open(std::move(request)));
        const std::shared_ptr<peer> server = co_await w.accept();
        co_await opening.done();
        const open_result opened = opening.take();
        REQUIRE(opened.opened);
        const std::string text = co_await server->read_until(request_end);
        CHECK(text.starts_with("POST /v3/watch HTTP/1.1\r\n"));
        CHECK_THAT(text, support::contains("\r\nContent-Length: 2\r\n"));
        CHECK_THAT(text, !support::contains("Transfer-Encoding"));
        CHECK_THAT(text, !support::contains("Connection"));
        CHECK_THAT(text, !support::contains("Grpc-Timeout"));
        co_await server->send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                              "8\r\n{1}\n{2}\n\r\n");
        const reply first = co_await opened.opened->read();
        CHECK(first.body == "{1}");
        const reply second = co_await opened.opened->read();
        CHECK(second.body == "{2}");
        opened.opened->close();
        const bool closed = co_await server->closes();
        CHECK(closed);
    });
}

TEST_CASE("a stream whose beginning is refused early tells so", "[net][default_env][stream]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        world w(ex);
        call_request request = w.request(30s, rpc::watch);
        request.body.assign(std::size_t{32} * 1024 * 1024, ' '); // more than sockets take
        background<open_result> opening(w.env, w.env->open(std::move(request)));
        const std::shared_ptr<peer> server = co_await w.accept();
        (void)co_await server->read_until("\r\n\r\n");
        co_await server->send(page("413 Payload Too Large", "too large"));
        server->close(); // most was not read: it is a reset
        co_await opening.done();
        const open_result opened = opening.take();
        CHECK_FALSE(opened.ec);
        REQUIRE(opened.opened);
        const reply r = co_await opened.opened->read();
        CHECK_FALSE(r.ec);
        CHECK(r.status == 413);
        CHECK(r.body == "too large");
        CHECK(r.by == loopback::loopback());
    });
}

TEST_CASE("a stream that is closed ends what is under way", "[net][default_env][stream]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        world w(ex);
        background<open_result> opening(w.env, w.env->open(w.request(30s, rpc::watch)));
        const std::shared_ptr<peer> server = co_await w.accept();
        co_await opening.done();
        const std::shared_ptr<stream> opened = opening.take().opened;
        REQUIRE(opened);
        background<reply> reading(w.env, opened->read());
        co_await asio::post(ex, asio::use_awaitable);
        CHECK_FALSE(reading.ended());
        opened->close();
        co_await reading.done();
        CHECK(reading.take().ec);
        const error_code written = co_await opened->write("{}", after(w.env->now(), 30s));
        CHECK(written);
        opened->close(); // again
        (void)co_await server->read_until("2\r\n{}\r\n");
        const bool closed = co_await server->closes();
        CHECK(closed);
    });
}

TEST_CASE("a stream that breaks is told", "[net][default_env][stream]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        world w(ex);
        background<open_result> opening(w.env, w.env->open(w.request(30s, rpc::watch)));
        const std::shared_ptr<peer> server = co_await w.accept();
        co_await opening.done();
        const std::shared_ptr<stream> opened = opening.take().opened;
        REQUIRE(opened);
        (void)co_await server->read_until("2\r\n{}\r\n");
        server->close();
        const reply r = co_await opened->read();
        CHECK(r.ec == asio::error::eof);
    });
}

TEST_CASE("a stream's reading can be cancelled", "[net][default_env][stream][cancellation]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        world w(ex);
        background<open_result> opening(w.env, w.env->open(w.request(30s, rpc::watch)));
        const std::shared_ptr<peer> server = co_await w.accept();
        co_await opening.done();
        const std::shared_ptr<stream> opened = opening.take().opened;
        REQUIRE(opened);
        background<reply> reading(w.env, opened->read());
        co_await asio::post(ex, asio::use_awaitable);
        reading.cancel();
        co_await reading.done();
        CHECK(reading.aborted());
    });
}

TEST_CASE("a message that the server does not take is late", "[net][default_env][stream]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        world w(ex);
        const std::string huge(32 * 1024 * 1024, 'x'); // more than the system keeps
        {
            background<open_result> opening(w.env, w.env->open(w.request(30s, rpc::watch)));
            const std::shared_ptr<peer> silent = co_await w.accept();
            co_await opening.done();
            const std::shared_ptr<stream> opened = opening.take().opened;
            REQUIRE(opened);
            const time_point start = w.env->now();
            const error_code ec = co_await opened->write(huge, start + 50ms);
            CHECK(ec == errc::timed_out);
            CHECK(w.env->now() - start >= 50ms);
            const reply r = co_await opened->read();
            CHECK(r.ec);
        }
        call_request first = w.request(30s, rpc::watch);
        first.patience = 50ms; // this counts
        first.body = huge;
        const time_point start = w.env->now();
        background<open_result> opening(w.env, w.env->open(std::move(first)));
        const std::shared_ptr<peer> silent = co_await w.accept();
        co_await opening.done();
        const open_result r = opening.take();
        CHECK(r.ec == errc::timed_out);
        CHECK_FALSE(r.opened);
        CHECK(w.env->now() - start < 15s);
    });
}

TEST_CASE("streams do not use up the connections of requests", "[net][default_env][stream]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        net_options o;
        o.connections = 1;
        world w(ex, o);
        std::vector<std::shared_ptr<stream>> streams;
        std::vector<std::shared_ptr<peer>> servers;
        for (int i = 0; i != 3; ++i) {
            background<open_result> opening(w.env, w.env->open(w.request(30s, rpc::watch)));
            servers.push_back(co_await w.accept());
            co_await opening.done();
            streams.push_back(opening.take().opened);
            REQUIRE(streams.back());
        }
        background<reply> call(w.env, w.env->call(w.request()));
        const std::shared_ptr<peer> server = co_await w.accept();
        co_await server->answer("{}");
        co_await call.done();
        CHECK_FALSE(call.take().ec);
    });
}

TEST_CASE("a sleep ends in time, by a wake, or by a cancellation",
          "[net][default_env][cancellation]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        world w(ex);
        const std::unique_ptr<sleeper> due = w.env->make_sleeper();
        const error_code in_time = co_await due->sleep_until(w.env->now());
        CHECK_FALSE(in_time);

        const std::shared_ptr<sleeper> woken = w.env->make_sleeper();
        background<error_code> sleeping(w.env, woken->sleep_until(time_point::max()));
        co_await asio::post(ex, asio::use_awaitable);
        CHECK_FALSE(sleeping.ended());
        woken->wake();
        co_await sleeping.done();
        CHECK_FALSE(sleeping.take());

        const std::shared_ptr<sleeper> cancelled = w.env->make_sleeper();
        background<error_code> other(w.env, cancelled->sleep_until(time_point::max()));
        co_await asio::post(ex, asio::use_awaitable);
        other.cancel();
        co_await other.done();
        CHECK(other.aborted());
    });
}

TEST_CASE("chance does not repeat itself", "[net][default_env]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        world w(ex);
        std::uint64_t any = 0;
        std::uint64_t all = ~any;
        for (int i = 0; i != 100; ++i) {
            const std::uint64_t n = w.env->random();
            CHECK(n != w.env->random());
            any |= n;
            all &= n;
        }
        CHECK(any == std::numeric_limits<std::uint64_t>::max()); // each bit was set once
        CHECK(all == 0);
        CHECK(w.env->executor() == ex);
    });
}
