// SPDX-License-Identifier: BSL-1.0
#include <coetcd/as_result.hpp>
#include <coetcd/client.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/observer.hpp>
#include <coetcd/session.hpp>
#include <coetcd/tls.hpp>
#include <coetcd/watch.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <atomic>
#include <chrono>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdlib.h>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/certificates.hpp"
#include "support/etcd_server.hpp"
#include "support/etcd_tools.hpp"
#include "support/run_test.hpp"
#include "support/tcp_proxy.hpp"

using namespace std::chrono_literals;
using namespace support;
namespace asio = boost::asio;
using coetcd::client;
using coetcd::client_options;
using coetcd::errc;
using coetcd::make_tls;
using coetcd::session;
using coetcd::tls_options;
using tcp = asio::ip::tcp;

namespace {

/// The authority and the certificates of these tests.
struct identities {
    certificate_maker maker;
    certificate ca = maker.authority("coetcd test CA");
    certificate other_ca = maker.authority("some other CA");
    certificate server = maker.issued_by(ca, {});
    certificate program = maker.issued_by(ca, {.names = "", .usage = "clientAuth"});
    certificate stranger = maker.issued_by(other_ca, {.names = "", .usage = "clientAuth"});
};

identities& ids() {
    static identities all;
    return all;
}

/// Tests that show another certificate show the right one again.
etcd_server& tls_etcd() {
    static etcd_server server({}, server_tls{ids().server});
    return server;
}

/// One that wants client certificates.
etcd_server& strict_etcd() {
    static etcd_server server({}, server_tls{ids().server, ids().ca.file});
    return server;
}

tls_options trusting(const certificate& ca) {
    tls_options o;
    o.ca_file = ca.file;
    return o;
}

/// Trusts the CA of the tests, and shows a certificate.
tls_options showing(const certificate& own) {
    tls_options o = trusting(ids().ca);
    o.certificate_file = own.file;
    o.key_file = own.key_file;
    return o;
}

client connect_tls(const asio::any_io_executor& executor,
                   coetcd::endpoints cluster,
                   tls_options tls,
                   std::chrono::milliseconds timeout = 5s) {
    client_options options;
    options.request_timeout = timeout;
    options.tls = make_tls(std::move(tls));
    return client(executor, std::move(cluster), options);
}

awaitable<void> check_that_it_works(client c) {
    const std::string key = unique_name("tls");
    (void)co_await c.put(key, "v");
    const auto read = co_await c.get(key);
    REQUIRE(read);
    CHECK(read->value == "v");
    const auto erased = co_await c.erase(key);
    CHECK(erased.deleted == 1);
}

/// A listener that accepts nothing, so that it never answers: the system completes connections.
class silent_server {
public:
    explicit silent_server(const asio::any_io_executor& executor)
        : acceptor_(executor, tcp::endpoint(asio::ip::address_v4::loopback(), 0)) {}
    std::string url() const {
        return "https://127.0.0.1:" + std::to_string(acceptor_.local_endpoint().port());
    }
    /// Reads what the next client sends first.
    awaitable<std::string> hear() {
        tcp::socket guest = co_await acceptor_.async_accept(asio::use_awaitable);
        char piece[4096];
        const std::size_t n =
            co_await guest.async_read_some(asio::buffer(piece), asio::use_awaitable);
        guests_.push_back(std::move(guest));
        co_return std::string(piece, n);
    }

private:
    tcp::acceptor acceptor_;
    std::vector<tcp::socket> guests_;
};

/// Whether bytes begin a handshake of TLS.
bool is_client_hello(const std::string& bytes) {
    return bytes.size() > 5 && bytes[0] == 22 && bytes[1] == 3 && bytes[5] == 1;
}

/// A variable of this process, for a while.
class environment_variable {
public:
    environment_variable(std::string name, const std::string& value)
        : name_(std::move(name)) {
        ::setenv(name_.c_str(), value.c_str(), 1);
    }
    environment_variable(const environment_variable&) = delete;
    environment_variable& operator=(const environment_variable&) = delete;
    ~environment_variable() { ::unsetenv(name_.c_str()); }

private:
    const std::string name_;
};

/// An etcd shows another certificate, for a while.
class other_certificate {
public:
    other_certificate(etcd_server& etcd, const certificate& shown)
        : etcd_(etcd) {
        etcd_.show(shown);
    }
    other_certificate(const other_certificate&) = delete;
    other_certificate& operator=(const other_certificate&) = delete;
    ~other_certificate() { etcd_.show(ids().server); }

private:
    etcd_server& etcd_;
};

} // namespace

TEST_CASE("A server whose CA is known is talked to, wherever the CA comes from", "[tls]") {
    const certificate_maker elsewhere;
    elsewhere.file("README", "not a certificate");
    elsewhere.file("other.crt", text_of(ids().other_ca.file));
    elsewhere.file("the one.pem", text_of(ids().ca.file));
    const environment_variable system("SSL_CERT_FILE", ids().ca.file);
    struct row {
        const char* where;
        tls_options options;
    };
    std::vector<row> rows(7);
    rows[0].where = "system";
    rows[1].where = "file";
    rows[1].options.ca_file = ids().ca.file;
    rows[2].where = "directory";
    rows[2].options.ca_directory = elsewhere.directory().string();
    rows[3].where = "memory";
    rows[3].options.ca = text_of(ids().ca.file);
    rows[4].where = "file of several";
    rows[4].options.ca_file = elsewhere.file(
        "several.pem", text_of(ids().other_ca.file) + "\nin words\n" + text_of(ids().ca.file));
    rows[5].where = "one of several places";
    rows[5].options.ca_file = ids().other_ca.file;
    rows[5].options.ca = text_of(ids().ca.file);
    rows[6].where = "the server's own certificate";
    rows[6].options.ca_file = ids().server.file;
    for (const row& each : rows) {
        INFO(each.where);
        run_test([&]() -> awaitable<void> {
            const auto executor = co_await asio::this_coro::executor;
            co_await check_that_it_works(connect_tls(executor, tls_etcd().url(), each.options));
            co_await check_that_it_works(
                connect_tls(executor, tls_etcd().url_by_name(), each.options));
        });
    }
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        client_options by_default;
        by_default.tls = make_tls();
        co_await check_that_it_works(client(executor, tls_etcd().url(), by_default));
    });
}

TEST_CASE("sec.tls.authorities: The system's CAs do not count where others are given", "[tls]") {
    const environment_variable system("SSL_CERT_FILE", ids().ca.file);
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect_tls(executor, tls_etcd().url(), trusting(ids().other_ca));
        const auto e = co_await ending_of(c.get("k"));
        CHECK(e.code == errc::tls_failed);
    });
}

TEST_CASE("Clients of several threads may share what they trust", "[tls]") {
    client_options options;
    options.tls = make_tls(showing(ids().program));
    const std::string url = strict_etcd().url();
    const std::string name = unique_name("tls-threads");
    std::vector<std::thread> threads;
    std::atomic<int> failures = 0;
    for (int t = 0; t != 4; ++t) {
        threads.emplace_back([&, t] {
            asio::io_context context;
            const auto work = [&]() -> awaitable<void> {
                for (int i = 0; i != 10; ++i) {
                    const client c(context.get_executor(), url, options);
                    (void)co_await c.put(name + std::to_string(t), "v");
                }
            };
            asio::co_spawn(context, work(), [&](std::exception_ptr e) { failures += e ? 1 : 0; });
            context.run();
        });
    }
    for (std::thread& each : threads) {
        each.join();
    }
    CHECK(failures == 0);
    run_test([&]() -> awaitable<void> {
        const client c(co_await asio::this_coro::executor, url, options);
        co_await until_count(c, name, 4);
        co_await erase_all(c, name);
    });
}

TEST_CASE("Sessions, locks and watches work over TLS, from end to end", "[tls]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect_tls(executor, strict_etcd().url(), showing(ids().program));
        const client other =
            connect_tls(executor, strict_etcd().url_by_name(), showing(ids().program));
        const std::string name = unique_name("tls-lock");

        session one = co_await open_session(c, 2s);
        session two = co_await open_session(other, 2s);
        coetcd::mutex mine(one, name);
        coetcd::mutex theirs(two, name);
        co_await mine.lock();
        const auto mine_token = mine.fencing_token();
        task<void> waits(executor, theirs.lock());
        co_await until_count(c, name + '/', 2);
        const session* const both[] = {&one, &two};
        for (const session* each : both) { // renewed, on connections of their own
            auto last = each->remaining();
            const auto renewed = [&]() -> awaitable<bool> {
                const auto before = std::exchange(last, each->remaining());
                co_return last > before;
            };
            co_await eventually(renewed, 10s, "a lease is renewed");
        }
        CHECK(mine.owns_lock());
        CHECK_FALSE(waits.done());

        const std::string key = unique_name("tls-watch");
        coetcd::watcher w = co_await c.watch(key);
        co_await mine.unlock();
        co_await waits.result(); // told by a watch
        CHECK(theirs.fencing_token() > mine_token);
        for (int i = 0; i != 20; ++i) {
            std::string value(static_cast<std::size_t>(i) * 5000, 'x'); // several records
            (void)co_await other.put(key, value);
            const auto seen = co_await w.next();
            REQUIRE(seen.events.size() == 1);
            CHECK(seen.events.front().kv.value == value);
        }
        co_await theirs.unlock();
        (void)co_await c.erase(key);
        co_await one.close();
        co_await two.close();
    });
}

TEST_CASE("sec.tls.wrong_server: A server that shows a wrong certificate is not talked to",
          "[tls]") {
    certificate_maker& maker = ids().maker;
    const auto wrong = [&](const certificate_request& r) { return maker.issued_by(ids().ca, r); };
    struct row {
        const char* what;
        certificate shown;
        bool by_name;
        std::string says;
    };
    const row rows[] = {
        {"wrong host", wrong({.names = "DNS:elsewhere.example"}), true, "elsewhere.example"},
        {"wrong IP", wrong({.names = "DNS:localhost,IP:127.0.0.2"}), false, "127.0.0.2"},
        {"an IP for a name", wrong({.names = "IP:127.0.0.1"}), true, "hostname mismatch"},
        {"an IP as a name", wrong({.names = "DNS:127.0.0.1"}), false, "IP address mismatch"},
        {"a common name alone",
         wrong({.names = "", .subject = "/CN=localhost"}),
         true,
         "no subject alternative name"},
        {"expired", wrong({.days = -1}), true, "certificate has expired"},
        {"self-signed", maker.self_signed({}), true, "self-signed certificate"},
        {"unknown CA", maker.issued_by(ids().other_ca, {}), true, "some other CA"},
        {"a client's", wrong({.usage = "clientAuth"}), true, "purpose"},
    };
    for (const row& each : rows) {
        INFO(each.what);
        run_test([&]() -> awaitable<void> {
            const auto executor = co_await asio::this_coro::executor;
            const other_certificate shown(tls_etcd(), each.shown);
            const std::string url = each.by_name ? tls_etcd().url_by_name() : tls_etcd().url();
            const std::string key = unique_name("tls-wrong");
            const client c = connect_tls(executor, url, trusting(ids().ca));
            const auto before = clock::now();
            const auto put = co_await ending_of(c.put(key, "v"));
            CHECK(put.code == errc::tls_failed);
            CHECK_THAT(put.text, contains("certificate verify failed"));
            CHECK_THAT(put.text, contains(each.says));
            CHECK_THAT(put.text, contains(url));
            CHECK(ms_between(before, put.when) < 2000); // it does not try for ever
            const auto opened = co_await ending_of(session::open(c));
            CHECK(opened.code == errc::tls_failed);

            // There is one way to talk to it all the same.
            tls_options careless;
            careless.insecure_skip_verify = true;
            const client any = connect_tls(executor, url, careless);
            const auto read = co_await any.get(key);
            CHECK_FALSE(read);
        });
    }
}

TEST_CASE("sec.tls.wrong_host: A server may be known by another name than its endpoint's",
          "[tls]") {
    certificate_maker& maker = ids().maker;
    const certificate by_name = maker.issued_by(ids().ca, {.names = "DNS:*.etcd.example"});
    const certificate by_ip = maker.issued_by(ids().ca, {.names = "IP:fd00::1"});
    struct row {
        const certificate* shown;
        const char* name;
        bool right;
    };
    const row rows[] = {
        {&by_name, "one.etcd.example", true},
        {&by_name, "one.etcd.example.", true},
        {&by_name, "etcd.example", false},
        {&by_name, "two.one.etcd.example", false},
        {&by_ip, "fd00::1", true},
        {&by_ip, "fd00:0::1%eth0", true},
        {&by_ip, "fd00::2", false},
    };
    for (const row& each : rows) {
        INFO(each.name);
        run_test([&]() -> awaitable<void> {
            const auto executor = co_await asio::this_coro::executor;
            const other_certificate shown(tls_etcd(), *each.shown);
            tls_options o = trusting(ids().ca);
            o.server_name = each.name;
            const client c = connect_tls(executor, tls_etcd().url(), o);
            const auto e = co_await ending_of(c.get("k"));
            CHECK(e.code == (each.right ? coetcd::error_code() : errc::tls_failed));
        });
    }
}

TEST_CASE("sec.tls.client_certificate: A server that wants a client certificate gets the right one",
          "[tls]") {
    certificate_maker& maker = ids().maker;
    const certificate locked =
        maker.issued_by(ids().ca, {.usage = "clientAuth", .passphrase = "open sesame"});
    std::vector<tls_options> rows;
    rows.push_back(showing(ids().program));
    rows.push_back(trusting(ids().ca));
    rows.back().certificate = text_of(ids().program.file);
    rows.back().key = text_of(ids().program.key_file);
    rows.push_back(showing(locked));
    rows.back().passphrase = "open sesame";
    rows.push_back(showing(locked));
    rows.back().ask_passphrase = [] { return "open sesame"; };
    for (const tls_options& each : rows) {
        run_test([&]() -> awaitable<void> {
            const auto executor = co_await asio::this_coro::executor;
            co_await check_that_it_works(connect_tls(executor, strict_etcd().url(), each));
        });
    }
}

TEST_CASE(
    "sec.tls.client_certificate: A server that does not trust us says why, and nothing was changed",
    "[tls]") {
    certificate_maker& maker = ids().maker;
    const certificate old = maker.issued_by(ids().ca, {.usage = "clientAuth", .days = -1});
    struct row {
        const char* what;
        tls_options options;
        std::string says;
    };
    const row rows[] = {
        {"missing", trusting(ids().ca), "the server wants a client certificate"},
        {"unknown CA", showing(ids().stranger), "the server refuses the client certificate: "},
        {"expired", showing(old), "the server refuses the client certificate: "},
    };
    for (const row& each : rows) {
        INFO(each.what);
        run_test([&]() -> awaitable<void> {
            const auto executor = co_await asio::this_coro::executor;
            const client c = connect_tls(executor, strict_etcd().url(), each.options);
            const auto before = clock::now();
            const auto read = co_await ending_of(c.get("k"));
            CHECK(read.code == errc::tls_failed);
            CHECK_THAT(read.text, contains(each.says));
            // With TLS 1.3 we hear of it only after the request was sent; it cannot have been read.
            const auto put = co_await ending_of(c.put("k", "v"));
            CHECK(put.code == errc::tls_failed);
            const auto large = co_await ending_of(c.put("k", std::string(1'000'000, 'v')));
            CHECK(large.code == errc::tls_failed);
            CHECK_THAT(large.text, contains(each.says));
            CHECK(ms_between(before, large.when) < 4000);
        });
    }
}

TEST_CASE(
    "sec.tls.no_fall_back: https to a server without TLS, and http to one with it, fail and say so",
    "[tls]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const std::string plain = "127.0.0.1:" + std::to_string(shared_etcd().port());
        const client secure = connect_tls(executor, "https://" + plain, trusting(ids().ca), 500ms);
        const auto put = co_await ending_of(secure.put("k", "v"));
        CHECK(put.code == errc::unavailable); // it may have been a server that was just ending
        CHECK(put.code == coetcd::condition::retryable);
        CHECK_THAT(put.text, contains("does not speak TLS"));
        const client there(executor, shared_etcd().url());
        const auto nothing = co_await there.get("k");
        CHECK_FALSE(nothing); // no fall-back

        const std::string tls = "127.0.0.1:" + std::to_string(tls_etcd().port());
        client_options options;
        options.tls = make_tls(trusting(ids().ca)); // for other endpoints
        options.request_timeout = 500ms;
        const client open(executor, "http://" + tls, options);
        const auto get = co_await ending_of(open.get("k"));
        CHECK(get.code == errc::unavailable);
        CHECK_THAT(get.text, contains("https://"));
    });
}

TEST_CASE("http and https endpoints may stand side by side", "[tls]") {
    etcd_server plain;
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const coetcd::endpoints both(plain.url(), tls_etcd().url());
        const client c = connect_tls(executor, both, trusting(ids().ca));
        const std::string key = unique_name("tls-both");
        (void)co_await c.put(key, "v"); // by one of them, whichever
        const client one(executor, plain.url());
        const client other = connect_tls(executor, tls_etcd().url(), trusting(ids().ca));
        const auto here = co_await one.get(key);
        const auto there = co_await other.get(key);
        CHECK(here.has_value() != there.has_value());
        (void)co_await one.erase(key);
        (void)co_await other.erase(key);
    });
}

TEST_CASE("A cluster of which one member is not to be trusted serves by the others", "[tls]") {
    certificate_maker& maker = ids().maker;
    etcd_server bad({}, server_tls{maker.issued_by(ids().other_ca, {})});
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        tcp_proxy second(executor, tls_etcd().port());
        const std::string by_proxy = "https" + second.url().substr(4);
        for (int i = 0; i != 8; ++i) { // whichever it begins with
            const coetcd::endpoints three(bad.url(), tls_etcd().url(), by_proxy);
            co_await check_that_it_works(connect_tls(executor, three, trusting(ids().ca)));
        }
        const client c = connect_tls(
            executor, coetcd::endpoints(bad.url(), by_proxy, tls_etcd().url()), trusting(ids().ca));
        session s = co_await open_session(c, 5s);
        coetcd::mutex m(s, unique_name("tls-three"));
        co_await m.lock();
        co_await m.unlock();
        co_await s.close();
    });
}

TEST_CASE("What was connected over TLS is connected again after a restart", "[tls]") {
    etcd_server etcd({}, server_tls{ids().server});
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect_tls(executor, etcd.url(), trusting(ids().ca), 20s);
        const std::string key = unique_name("tls-restart");
        session s = co_await open_session(c, 20s);
        coetcd::mutex m(s, key + "-lock");
        co_await m.lock();
        coetcd::watcher w = co_await c.watch(key);
        for (const bool orderly : {true, false}) {
            const auto again = [&] {
                orderly ? etcd.stop() : etcd.kill();
                etcd.start();
            };
            co_await in_thread(again);
            const auto works = [&]() -> awaitable<bool> {
                const auto e = co_await ending_of(c.put(key, "v"));
                co_return !e.code;
            };
            co_await eventually(works, 20s, "a put succeeds again");
            const auto seen = co_await w.next();
            CHECK(seen.events.back().kv.value == "v");
            CHECK(m.owns_lock());
        }
        co_await m.unlock();
        co_await s.close();
    });
}

TEST_CASE("Files that change are read again for new connections, under held locks", "[tls]") {
    run_test([]() -> awaitable<void> {
        /// Keeps what is wrong with files that have changed.
        struct troubles final : coetcd::observer {
            void on_connection(const coetcd::connection_report& r) override {
                if (r.what == coetcd::connection_report::opened) {
                    last = std::string(r.text);
                }
            }
            std::string last;
        };
        const auto executor = co_await asio::this_coro::executor;
        etcd_server etcd({}, server_tls{ids().server, ids().ca.file});
        const auto replace = [](const std::string& file, const std::string& text) {
            const std::string now = ids().maker.file("next", text);
            std::filesystem::rename(now, file);
        };
        const certificate own{ids().maker.file("own.pem", text_of(ids().program.file)),
                              ids().maker.file("own-key.pem", text_of(ids().program.key_file))};
        tls_options files = showing(own);
        const std::string trusted = ids().maker.file("trusted.pem", text_of(ids().ca.file));
        files.ca_file = trusted;
        client_options options;
        const auto told = std::make_shared<troubles>();
        options.observer = told;
        options.tls = make_tls(std::move(files));
        const client first(executor, etcd.url(), options);
        session s = co_await open_session(first, 30s);
        coetcd::mutex m(s, "m");
        co_await m.lock();
        const auto with_new_connections = [&]() -> awaitable<bool> {
            const client c(executor, etcd.url(), options);
            const auto answer = co_await coetcd::as_result(c.get("k"));
            co_return answer.has_value();
        };

        // Another authority for the server's certificate: it is not trusted before its file is
        // there.
        const certificate other = ids().maker.issued_by(ids().other_ca, {});
        etcd.show(other);
        const auto is_refused = [&]() -> awaitable<bool> {
            const bool works = co_await with_new_connections();
            co_return !works;
        };
        co_await eventually(is_refused, 10s, "the new certificate is shown");
        CHECK(m.owns_lock());
        replace(trusted, text_of(ids().other_ca.file) + text_of(ids().ca.file));
        co_await eventually(with_new_connections, 10s, "the new authority is trusted");

        // A key that is not that of the certificate keeps what was there before.
        replace(own.key_file, text_of(ids().stranger.key_file));
        const auto is_told = [&]() -> awaitable<bool> {
            const bool works = co_await with_new_connections();
            co_return works && told->last.find("is not the key of") != std::string::npos;
        };
        co_await eventually(is_told, 10s, "the observer is told");
        CHECK_THAT(told->last, contains("what was read before is used"));
        replace(own.key_file, text_of(ids().program.key_file));
        const auto is_well = [&]() -> awaitable<bool> {
            const bool works = co_await with_new_connections();
            co_return works && told->last.empty();
        };
        co_await eventually(is_well, 10s, "all is well again");

        CHECK(m.owns_lock());
        const auto holder = co_await m.holder();
        CHECK(holder);
        co_await m.unlock();
        co_await s.close();
    });
}

TEST_CASE("A server that never answers a handshake costs the time to connect", "[tls]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        silent_server silent(executor);
        client_options options;
        options.tls = make_tls(trusting(ids().ca));
        options.connect_timeout = 200ms;
        options.request_timeout = 500ms;
        const client alone(executor, silent.url(), options);
        const auto before = clock::now();
        const auto e = co_await ending_of(alone.put("k", "v"));
        CHECK(e.code == errc::timed_out); // and not outcome_unknown
        CHECK(ms_between(before, e.when) < 2000);

        // Another endpoint is tried in good time.
        options.request_timeout = 20s;
        for (int i = 0; i != 4; ++i) {
            const coetcd::endpoints both(silent.url(), tls_etcd().url());
            const auto start = clock::now();
            co_await check_that_it_works(client(executor, both, options));
            CHECK(ms_between(start, clock::now()) < 3000);
        }
    });
}

TEST_CASE("A call is cancelled at once while it shakes hands", "[tls][cancellation]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        silent_server silent(executor);
        client_options options;
        options.tls = make_tls(trusting(ids().ca));
        options.connect_timeout = 60s;
        options.request_timeout = 60s;
        options.attempt_timeout = 60s;
        const client c(executor, silent.url(), options);
        task<void> call(executor, discard(c.get("k")));
        const std::string hello = co_await silent.hear();
        CHECK(is_client_hello(hello));
        const auto before = clock::now();
        call.cancel();
        const auto e = co_await call.how_it_ended();
        CHECK(e.code == asio::error::operation_aborted);
        CHECK(ms_between(before, e.when) < 1000);

        task<void> watch(executor,
                         discard(c.watch("k", coetcd::watch_options{.start_revision = 1})));
        const std::string another = co_await silent.hear();
        CHECK(is_client_hello(another));
        watch.cancel();
        const auto w = co_await watch.how_it_ended();
        CHECK(w.code == asio::error::operation_aborted);
    });
}

TEST_CASE("Everything may be destroyed while it shakes hands", "[tls]") {
    {
        // The io_context goes, with all that is under way.
        asio::io_context context;
        silent_server silent(context.get_executor());
        auto c = std::make_unique<client>(
            connect_tls(context.get_executor(), silent.url(), trusting(ids().ca)));
        asio::co_spawn(context, discard(c->get("k")), [](std::exception_ptr) {});
        bool heard = false;
        const auto hear = [&]() -> awaitable<void> {
            const std::string hello = co_await silent.hear();
            heard = is_client_hello(hello);
        };
        asio::co_spawn(context, hear(), [](std::exception_ptr) {});
        while (!heard) {
            REQUIRE(context.run_one_for(20s) == 1);
        }
        c.reset();
    }
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        std::optional<client> c(connect_tls(executor, tls_etcd().url(), trusting(ids().ca)));
        task<void> call(executor, discard(c->get("k")));
        c.reset();
        co_await call.result();
    });
}

TEST_CASE("A lock that is cancelled over TLS at any moment leaves nothing behind",
          "[tls][cancellation]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const std::string name = unique_name("tls-cancel");
        const client c = connect_tls(executor, strict_etcd().url(), showing(ids().program));
        session s = co_await open_session(c, 10s);
        for (int rounds = 0; rounds < 60; rounds += 3) {
            const client fresh = connect_tls(executor, strict_etcd().url(), showing(ids().program));
            session mine = co_await open_session(fresh, 10s);
            coetcd::mutex m(mine, name);
            task<void> locking(executor, m.lock());
            co_await yield(rounds);
            locking.cancel();
            const auto e = co_await locking.how_it_ended();
            if (!e.code) {
                co_await m.unlock();
            } else {
                CHECK(e.code == asio::error::operation_aborted);
            }
            co_await until_count(c, name + '/', 0);
            co_await mine.close();
        }
        co_await s.close();
    });
}

TEST_CASE("A client certificate that names a user is refused by etcd's gateway, and that is told",
          "[tls][auth]") {
    const certificate named = ids().maker.issued_by(
        ids().ca, {.names = "", .subject = "/CN=root", .usage = "clientAuth"});
    etcd_server server({}, server_tls{ids().server, ids().ca.file});
    const std::string password = "canary-root";
    REQUIRE(server.etcdctl({"user", "add", "root:" + password}).exit_code == 0);
    REQUIRE(server.etcdctl({"user", "grant-role", "root", "root"}).exit_code == 0);
    REQUIRE(server.etcdctl({"auth", "enable"}).exit_code == 0);
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        client_options o;
        o.credentials = coetcd::credentials("root", password);
        o.tls = make_tls(showing(named));
        const client refused(executor, server.url(), o);
        const auto e = co_await ending_of(refused.put("k", "v"));
        CHECK(e.code == errc::cn_auth_unsupported);
        CHECK_THAT(e.text, !contains("canary"));

        o.tls = make_tls(showing(ids().program));
        const client welcome(executor, server.url(), o);
        (void)co_await welcome.put("k", "v");
        coetcd::watcher w = co_await welcome.watch("k");
        (void)co_await welcome.put("k", "w");
        const auto seen = co_await w.next();
        CHECK(seen.events.back().kv.value == "w");
    });
}
