// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/net/default_env.hpp>
#include <coetcd/detail/tls/connection.hpp>
#include <coetcd/tls.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <openssl/ssl.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/certificates.hpp"
#include "support/run_test.hpp"

using namespace coetcd;
using namespace coetcd::detail;
using namespace std::chrono_literals;
using net::default_env;
using net::net_options;
using support::awaitable;
using support::certificate;
using support::certificate_maker;
using support::run_test;
using support::task;
using support::yield;
using tcp = asio::ip::tcp;
namespace ssl = asio::ssl;

namespace {

struct identities {
    certificate_maker maker;
    certificate ca = maker.authority("the CA");
    certificate server = maker.issued_by(ca, {});
};
identities& ids() {
    static identities all;
    return all;
}

tls_options trusting() {
    tls_options o;
    o.ca_file = ids().ca.file;
    return o;
}

/// A server's end of a connection.
class peer {
public:
    peer(tcp::socket s, ssl::context& how)
        : stream_(std::move(s), how) {}

    awaitable<error_code> handshake() {
        error_code ec;
        co_await stream_.async_handshake(ssl::stream_base::server,
                                         asio::redirect_error(asio::use_awaitable, ec));
        co_return ec;
    }
    /// Reads until it has seen `end`, and takes all up to it; nothing if the client ends before.
    awaitable<std::string> read_until(std::string end) {
        std::string out;
        auto at = seen_.find(end);
        while (!ended_ && at == seen_.npos) {
            const auto known = seen_.size() - std::min(seen_.size(), end.size());
            co_await read();
            at = seen_.find(end, known);
        }
        if (at != seen_.npos) {
            out = seen_.substr(0, at + end.size());
            seen_.erase(0, at + end.size());
        }
        co_return out;
    }
    /// Whether the client ends the connection, and sends no more before that.
    awaitable<bool> ends() {
        while (!ended_) {
            co_await read();
        }
        co_return seen_.empty();
    }
    awaitable<void> send(std::string bytes) {
        error_code ec;
        co_await asio::async_write(
            stream_, asio::buffer(bytes), asio::redirect_error(asio::use_awaitable, ec));
    }
    awaitable<void> answer(std::string body) {
        return send("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) +
                    "\r\n\r\n" + body);
    }
    /// Sends what OpenSSL has to send of its own accord.
    awaitable<void> flush() {
        const error_code ec = co_await handshake();
        CHECK_FALSE(ec);
    }
    /// Ends the connection, as TLS wants it.
    awaitable<void> say_goodbye() {
        SSL_set_shutdown(native(), SSL_RECEIVED_SHUTDOWN); // so that it waits for no answer
        error_code ec;
        co_await stream_.async_shutdown(asio::redirect_error(asio::use_awaitable, ec));
        close();
    }
    /// Ends it without a word.
    void close() {
        error_code ignored;
        stream_.next_layer().shutdown(tcp::socket::shutdown_send, ignored);
    }
    SSL* native() { return stream_.native_handle(); }

private:
    awaitable<void> read() {
        char piece[4096];
        error_code ec;
        const std::size_t n = co_await stream_.async_read_some(
            asio::buffer(piece), asio::redirect_error(asio::use_awaitable, ec));
        seen_.append(piece, n);
        ended_ = ended_ || ec;
    }

    ssl::stream<tcp::socket> stream_;
    std::string seen_;
    bool ended_ = false;
};

/// A server on a free port, which does what the test says, and the env under test.
class world {
public:
    explicit world(const asio::any_io_executor& ex,
                   const tls_options& tls = trusting(),
                   const certificate& shown = ids().server)
        : env(make_env(ex, tls))
        , context(ssl::context::tls_server)
        , acceptor_(ex, tcp::endpoint(asio::ip::address_v4::loopback(), 0)) {
        context.use_certificate_file(shown.file, ssl::context::pem);
        context.use_private_key_file(shown.key_file, ssl::context::pem);
    }

    call_request request(std::chrono::nanoseconds timeout = 30s, rpc what = rpc::range) const {
        logic::endpoint to;
        to.tls = true;
        to.host = "127.0.0.1";
        to.port = acceptor_.local_endpoint().port();
        return {to, what, "{}", after(env->now(), timeout)};
    }
    task<reply> call(call_request r) { return {env->executor(), env->call(std::move(r))}; }
    task<reply> call() { return call(request()); }
    task<open_result> open() { return {env->executor(), env->open(request(30s, rpc::watch))}; }
    /// A client, before it shakes hands.
    awaitable<std::shared_ptr<peer>> meet() {
        tcp::socket socket = co_await acceptor_.async_accept(asio::use_awaitable);
        socket.set_option(tcp::no_delay(true)); // as etcd's, so that what is sent is there
        co_return std::make_shared<peer>(std::move(socket), context);
    }
    /// A client that shook hands.
    awaitable<std::shared_ptr<peer>> accept() {
        const std::shared_ptr<peer> guest = co_await meet();
        const error_code ec = co_await guest->handshake();
        CHECK_FALSE(ec);
        co_return guest;
    }
    awaitable<tcp::socket> accept_plain() { return acceptor_.async_accept(asio::use_awaitable); }
    /// Whether a client waits to be accepted.
    bool knocks() {
        acceptor_.non_blocking(true);
        error_code ec;
        tcp::socket socket(env->executor());
        acceptor_.accept(socket, ec);
        return !ec;
    }

    const std::shared_ptr<default_env> env;
    ssl::context context; // the server's

private:
    static std::shared_ptr<default_env> make_env(const asio::any_io_executor& ex,
                                                 const tls_options& tls) {
        net_options o;
        o.connect_timeout = 20s;
        o.tls = make_tls(tls);
        return std::make_shared<default_env>(ex, o);
    }
    tcp::acceptor acceptor_;
};

/// Whether an operation that was cancelled ended by that: it throws, or returns the code.
template<class T>
awaitable<bool> aborted(task<T> cancelled) {
    error_code ec;
    try {
        const T result = co_await cancelled.result();
        ec = result.ec;
    } catch (const boost::system::system_error& e) {
        ec = e.code();
    }
    co_return ec == asio::error::operation_aborted;
}

const std::string request_end = "\r\n\r\n{}"; // of each `world::request`

} // namespace

TEST_CASE("requests go over TLS, on one connection", "[tls][connection]") {
    run_test([]() -> awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        world w(ex);
        std::shared_ptr<peer> server;
        for (int i = 0; i != 3; ++i) {
            task<reply> call = w.call();
            if (!server) {
                server = co_await w.accept();
                CHECK(SSL_version(server->native()) >= TLS1_2_VERSION);
            }
            const std::string text = co_await server->read_until(request_end);
            CHECK(text.starts_with("POST /v3/kv/range HTTP/1.1\r\n"));
            const std::string body(static_cast<std::size_t>(i) * 50'000, 'x'); // several records
            co_await server->answer(body);
            const reply r = co_await call.result();
            CHECK_FALSE(r.ec);
            CHECK(r.sent);
            CHECK(r.status == 200);
            CHECK(r.body == body);
        }
        CHECK_FALSE(w.knocks());
    });
}

TEST_CASE("sec.tls.truncated: an answer that is cut off is none, even where HTTP cannot tell",
          "[tls][connection]") {
    const std::string answers[] = {
        "HTTP/1.0 200 OK\r\n\r\n{\"a\":1}", // up to the end
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"a\":1}",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n{\"a\":1}\r\n",
        "HTTP/1.1 200 OK\r\n",
        "",
    };
    for (const std::string& answer : answers) {
        for (const bool cut : {false, true}) {
            CAPTURE(answer, cut);
            run_test([&]() -> awaitable<void> {
                const auto ex = co_await asio::this_coro::executor;
                world w(ex);
                task<reply> call = w.call();
                const std::shared_ptr<peer> server = co_await w.accept();
                (void)co_await server->read_until(request_end);
                co_await server->send(answer);
                if (cut) {
                    server->close();
                } else {
                    co_await server->say_goodbye();
                }
                const reply r = co_await call.result();
                CHECK(r.sent);
                if (cut) {
                    CHECK(r.ec == ssl::error::stream_truncated);
                    CHECK(r.body.empty());
                } else if (&answer == &answers[0]) {
                    CHECK_FALSE(r.ec);
                    CHECK(r.body == "{\"a\":1}");
                } else {
                    CHECK(r.ec == asio::error::eof);
                }
            });
        }
    }
}

TEST_CASE("sec.tls.truncated: a stream that is cut off has no regular end",
          "[tls][connection][stream]") {
    for (const bool cut : {false, true}) {
        CAPTURE(cut);
        run_test([&]() -> awaitable<void> {
            const auto ex = co_await asio::this_coro::executor;
            world w(ex);
            task<open_result> opening = w.open();
            const std::shared_ptr<peer> server = co_await w.accept();
            const open_result opened = co_await opening.result();
            REQUIRE(opened.opened);
            (void)co_await server->read_until("2\r\n{}\r\n");
            co_await server->send("HTTP/1.0 200 OK\r\n\r\n{1}\n{2}\n");
            if (cut) {
                server->close();
            } else {
                co_await server->say_goodbye();
            }
            for (const char* line : {"{1}", "{2}"}) {
                const reply r = co_await opened.opened->read();
                CHECK(r.body == line);
            }
            const reply end = co_await opened.opened->read();
            CHECK(end.ec ==
                  (cut ? error_code(ssl::error::stream_truncated) : error_code(asio::error::eof)));
        });
    }
}

TEST_CASE("sec.smuggling: an idle connection is used again only if it is in order",
          "[tls][connection]") {
    using action = std::function<awaitable<void>(peer&)>;
    struct row {
        const char* what;
        action meanwhile;
        bool good;
    };
    const row rows[] = {
        {"nothing", [](peer&) -> awaitable<void> { co_return; }, true},
        {"tickets to resume it",
         [](peer& p) -> awaitable<void> {
             CHECK(SSL_new_session_ticket(p.native()) == 1);
             CHECK(SSL_new_session_ticket(p.native()) == 1);
             return p.flush();
         },
         false}, // though harmless: to read them may have no end
        {"another key, and the wish for one",
         [](peer& p) -> awaitable<void> {
             CHECK(SSL_key_update(p.native(), SSL_KEY_UPDATE_REQUESTED) == 1);
             return p.flush();
         },
         false},
        {"other keys, again and again",
         [](peer& p) -> awaitable<void> {
             for (int i = 0; i != 1000; ++i) {
                 CHECK(SSL_key_update(p.native(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1);
                 co_await p.flush();
             }
         },
         false},
        {"an end", [](peer& p) { return p.say_goodbye(); }, false},
        {"an end without a word",
         [](peer& p) -> awaitable<void> {
             p.close();
             co_return;
         },
         false},
        {"what nobody asked for",
         [](peer& p) { return p.send("HTTP/1.1 408 Request Timeout\r\n\r\n"); },
         false},
    };
    for (const row& each : rows) {
        CAPTURE(each.what);
        run_test([&]() -> awaitable<void> {
            const auto ex = co_await asio::this_coro::executor;
            world w(ex);
            task<reply> first = w.call();
            const std::shared_ptr<peer> server = co_await w.accept();
            (void)co_await server->read_until(request_end);
            co_await server->answer("{}");
            const reply one = co_await first.result();
            CHECK_FALSE(one.ec);
            co_await each.meanwhile(*server);

            task<reply> second = w.call();
            std::shared_ptr<peer> next = server;
            if (!each.good) {
                next = co_await w.accept();
            }
            const std::string text = co_await next->read_until(request_end);
            CHECK_FALSE(text.empty());
            co_await next->answer("{}");
            const reply two = co_await second.result();
            CHECK_FALSE(two.ec);
            CHECK_FALSE(w.knocks());
        });
    }
}

TEST_CASE("sec.tls.wrong_host: a server must have the name, and hears it unless it is an address",
          "[tls][connection]") {
    struct row {
        std::string host;
        std::string names;
        bool right;
        std::string hears; ///< If it is right.
    };
    const row rows[] = {
        {"etcd.example", "DNS:etcd.example", true, "etcd.example"},
        {"ETCD.example", "DNS:etcd.EXAMPLE", true, "ETCD.example"},
        {"etcd.example.", "DNS:etcd.example", true, "etcd.example"},
        {"one_1", "DNS:other,DNS:one_1", true, "one_1"},
        {"a.etcd.example", "DNS:*.etcd.example", true, "a.etcd.example"},
        {"a.b.etcd.example", "DNS:*.etcd.example", false, ""},
        {"etcd.example", "DNS:*.etcd.example", false, ""},
        {"abc.etcd.example", "DNS:a*.etcd.example", false, ""},
        {"etcd.example", "DNS:etcd.example.org", false, ""},
        {"etcd.example", "email:a@etcd.example", false, ""},
        {"127.0.0.1", "IP:127.0.0.1", true, ""},
        {"127.0.0.1", "DNS:127.0.0.1", false, ""},
        {"127.0.0.2", "IP:127.0.0.1", false, ""},
        {"fe80::1", "IP:fe80::1", true, ""},
        {"fe80:0::0001%eth0", "IP:fe80::1", true, ""},
        {"fe80::2%eth0", "IP:fe80::1", false, ""},
        {"localhost", "", false, ""}, // it is the common name
        {".", "DNS:etcd.example", false, ""},
    };
    for (const row& each : rows) {
        CAPTURE(each.host, each.names);
        const certificate shown =
            ids().maker.issued_by(ids().ca, {.names = each.names, .subject = "/CN=localhost"});
        run_test([&]() -> awaitable<void> {
            const auto ex = co_await asio::this_coro::executor;
            world w(ex, trusting(), shown);
            const std::shared_ptr<const coetcd::tls_context> layer = make_tls(trusting());
            const call_request r = w.request();
            logic::endpoint to = r.to;
            tcp::socket socket(ex);
            const tcp::endpoint server(asio::ip::address_v4::loopback(), to.port);
            co_await socket.async_connect(server, asio::use_awaitable);
            to.host = each.host;
            task<net::connect_result> secure(
                ex, layer->secure(std::move(socket), to, net::limits(), r.deadline));
            const std::shared_ptr<peer> guest = co_await w.meet();
            const error_code shaken = co_await guest->handshake();
            const net::connect_result result = co_await secure.result();
            if (each.right) {
                CHECK_FALSE(shaken);
                CHECK_FALSE(result.ec);
                CHECK(result.connected);
                const char* const name =
                    SSL_get_servername(guest->native(), TLSEXT_NAMETYPE_host_name);
                CHECK(std::string(name ? name : "") == each.hears);
            } else {
                CHECK(result.ec == errc::tls_failed);
                CHECK_FALSE(result.connected);
                CHECK_THAT(result.text, support::contains("mismatch"));
                CHECK_THAT(result.text, support::contains("not for " + each.host.substr(0, 6)));
            }
        });
    }
}

TEST_CASE("sec.tls.version: old versions of TLS are not spoken", "[tls][connection]") {
    run_test([]() -> awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        for (const int version : {TLS1_1_VERSION, TLS1_2_VERSION, TLS1_3_VERSION}) {
            CAPTURE(version);
            world w(ex);
            SSL_CTX_set_cipher_list(w.context.native_handle(), "ALL:@SECLEVEL=0");
            SSL_CTX_set_min_proto_version(w.context.native_handle(), TLS1_VERSION);
            SSL_CTX_set_max_proto_version(w.context.native_handle(), version);
            task<reply> call = w.call();
            const std::shared_ptr<peer> guest = co_await w.meet();
            const error_code shaken = co_await guest->handshake();
            if (version < TLS1_2_VERSION) {
                CHECK(shaken);
                const reply r = co_await call.result();
                CHECK(r.ec == errc::tls_failed);
                CHECK_FALSE(r.sent);
                CHECK_THAT(r.text, support::contains("no TLS 1.2 or later"));
            } else {
                CHECK_FALSE(shaken);
                co_await guest->answer("{}");
                const reply r = co_await call.result();
                CHECK_FALSE(r.ec);
            }
        }
    });
}

TEST_CASE("sec.tls.plain_server: a server without TLS is told apart from one that ends",
          "[tls][connection]") {
    run_test([]() -> awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        world w(ex);
        const std::string greetings[] = {"HTTP/1.1 400 Bad Request\r\n\r\n", "220 ESMTP\r\n", ""};
        for (const std::string& greeting : greetings) {
            CAPTURE(greeting);
            task<reply> call = w.call();
            {
                tcp::socket guest = co_await w.accept_plain();
                char piece[4096]; // it speaks when it is spoken to
                (void)co_await guest.async_read_some(asio::buffer(piece), asio::use_awaitable);
                co_await asio::async_write(guest, asio::buffer(greeting), asio::use_awaitable);
            }
            const reply r = co_await call.result();
            CHECK_FALSE(r.sent);
            CHECK_THAT(r.text, support::contains("does not speak TLS"));
            CHECK((r.ec == errc::tls_failed) == !greeting.empty());
            CHECK(r.ec);
        }
    });
}

TEST_CASE("a server that wants a certificate of ours says so, and has read nothing",
          "[tls][connection]") {
    run_test([]() -> awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
            for (const std::size_t size : {2U, 3'000'000U}) {
                CAPTURE(version, size);
                world w(ex);
                w.context.set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert);
                SSL_CTX_set_max_proto_version(w.context.native_handle(), version);
                call_request r = w.request();
                r.body.assign(size, ' ');
                task<reply> call = w.call(std::move(r));
                {
                    const std::shared_ptr<peer> guest = co_await w.meet();
                    const error_code shaken = co_await guest->handshake();
                    CHECK(shaken);
                } // closed, with most of the request unread
                const reply end = co_await call.result();
                CHECK(end.ec == errc::tls_failed);
                CHECK_FALSE(end.sent);
                CHECK_THAT(end.text, support::contains("client certificate"));
            }
        }
    });
}

TEST_CASE("a stream over TLS carries both directions at once", "[tls][connection][stream]") {
    run_test([]() -> awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        world w(ex);
        task<open_result> opening = w.open();
        const std::shared_ptr<peer> server = co_await w.accept();
        const open_result opened = co_await opening.result();
        REQUIRE(opened.opened);
        (void)co_await server->read_until("2\r\n{}\r\n");
        co_await server->send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");

        const std::string large(2'000'000, 'x'); // more than either end keeps
        const std::string line = large + '\n';
        task<reply> reading(ex, opened.opened->read());
        task<error_code> writing(ex, opened.opened->write(large, after(w.env->now(), 30s)));
        co_await yield(10);
        CHECK_FALSE(reading.done());
        CHECK_FALSE(writing.done());
        task<void> sending(ex, server->send(net::chunk(line)));
        const std::string received = co_await server->read_until("x\r\n");
        CHECK(received == net::chunk(large));
        const error_code written = co_await writing.result();
        CHECK_FALSE(written);
        const reply r = co_await reading.result();
        CHECK_FALSE(r.ec);
        CHECK(r.body == large);
        co_await sending.result();

        task<reply> more(ex, opened.opened->read());
        co_await yield(3);
        opened.opened->close();
        const reply closed = co_await more.result();
        CHECK(closed.ec);
        const bool ended = co_await server->ends();
        CHECK(ended);
    });
}

TEST_CASE("a stream over TLS can be cancelled", "[tls][connection][stream][cancellation]") {
    run_test([]() -> awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        world w(ex);
        task<open_result> opening = w.open();
        const std::shared_ptr<peer> server = co_await w.accept();
        open_result opened = co_await opening.result();
        REQUIRE(opened.opened);
        (void)co_await server->read_until("2\r\n{}\r\n");
        task<reply> reading(ex, opened.opened->read());
        co_await yield(3);
        reading.cancel();
        const bool cancelled = co_await aborted(reading);
        CHECK(cancelled);
        opened.opened.reset();
        const bool ended = co_await server->ends();
        CHECK(ended);
    });
}

TEST_CASE("a handshake without an answer ends at the deadline", "[tls][connection]") {
    run_test([]() -> awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        world w(ex);
        const auto before = support::clock::now();
        task<reply> call = w.call(w.request(50ms));
        const tcp::socket silent = co_await w.accept_plain();
        const reply r = co_await call.result();
        CHECK(r.ec == errc::timed_out);
        CHECK_FALSE(r.sent);
        CHECK(support::clock::now() - before >= 50ms);
        CHECK(support::clock::now() - before < 10s);
    });
}

TEST_CASE("a request over TLS is cancelled at any moment", "[tls][connection][cancellation]") {
    run_test([]() -> awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        bool cancelled_all = false;
        for (int steps = 0; !cancelled_all; ++steps) {
            CAPTURE(steps);
            world w(ex);
            const auto serve = [&]() -> awaitable<void> {
                const std::shared_ptr<peer> guest = co_await w.meet();
                (void)co_await guest->handshake();
                const std::string text = co_await guest->read_until(request_end);
                if (!text.empty()) {
                    co_await guest->answer("{}");
                }
            };
            task<reply> call = w.call();
            task<void> server(ex, serve());
            for (int i = 0; i != steps && !call.done(); ++i) {
                co_await yield();
            }
            const bool too_late = call.done();
            call.cancel();
            const bool cancelled = co_await aborted(call);
            CHECK(cancelled == !too_late);
            if (too_late) {
                CHECK(steps > 5);
                cancelled_all = true;
            }
            server.cancel();
            co_await server.how_it_ended();
        }
    });
}

TEST_CASE("all may be destroyed in the middle of a handshake", "[tls][connection]") {
    for (int steps = 1; steps != 30; ++steps) {
        asio::io_context context;
        world w(context.get_executor());
        task<reply> call = w.call();
        const auto serve = [&]() -> awaitable<void> {
            const std::shared_ptr<peer> guest = co_await w.meet();
            (void)co_await guest->handshake();
        };
        task<void> server(context.get_executor(), serve());
        for (int i = 0; i != steps; ++i) {
            context.poll_one();
        }
    }
}

TEST_CASE("sec.tls.no_fall_back: without TLS set an https endpoint is refused, and nothing sent",
          "[tls][connection]") {
    run_test([]() -> awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        world w(ex);
        const auto plain = std::make_shared<default_env>(ex, net_options());
        const reply r = co_await plain->call(w.request());
        CHECK(r.ec == errc::tls_failed);
        CHECK_FALSE(r.sent);
        const open_result o = co_await plain->open(w.request());
        CHECK(o.ec == errc::tls_failed);
        CHECK_FALSE(w.knocks());
    });
}
