// SPDX-License-Identifier: BSL-1.0
#include <coetcd/dns_srv.hpp>
#include <coetcd/error.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_future.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/name_server.hpp"
#include "support/run_test.hpp"

namespace dns_tests {

using namespace std::chrono_literals;
using namespace support;
using coetcd::discover_endpoints;
using coetcd::errc;
using coetcd::srv_options;
using coetcd::srv_scheme;

namespace {

using urls = std::vector<std::string>;
using test_of_names = std::function<awaitable<void>(name_server&, srv_options)>;

const std::string with_tls = "_etcd-client-ssl._tcp.example.com";
const std::string plain = "_etcd-client._tcp.example.com";

dns_srv place(std::string host, unsigned port = 2379) {
    return dns_srv{0, 0, port, std::move(host)};
}

awaitable<void> with_names(name_server::rule how, test_of_names body) {
    const auto executor = co_await asio::this_coro::executor;
    name_server names(executor, std::move(how));
    srv_options options;
    options.name_servers = names.servers();
    auto work = body(names, options);
    co_await std::move(work);
}

/// Runs a test with a name server.
void test_names(name_server::rule how, test_of_names body) {
    run_test([=] { return with_names(how, body); });
}

std::vector<std::string> names_of(const std::vector<name_question>& asked) {
    std::vector<std::string> out;
    for (const name_question& q : asked) {
        out.push_back(q.name + (q.tcp ? " tcp" : ""));
    }
    return out;
}

/// How a discovery fails, which has to be soon.
awaitable<ending> failure(srv_options options) {
    auto work = discover_endpoints("example.com", std::move(options));
    ending e = co_await ending_of(std::move(work));
    co_return e;
}

} // namespace

TEST_CASE("Endpoints with https are found by one question", "[dns]") {
    dns_zone zone;
    zone[with_tls] = {dns_srv{10, 0, 2379, "c.example.com"},
                      dns_srv{5, 1, 1, "B.example.com"},
                      dns_srv{5, 9, 65535, "a.example.com"},
                      dns_srv{6, 9, 65535, "a.example.com"}};
    zone[plain] = {place("plain.example.com")};
    test_names(dns_from(zone), [](name_server& names, srv_options options) -> awaitable<void> {
        const urls found = co_await discover_endpoints("example.com", options);
        CHECK(found == urls{"https://a.example.com:65535",
                            "https://b.example.com:1",
                            "https://c.example.com:2379"});
        CHECK(names_of(names.asked()) == urls{with_tls});
        CHECK(names.asked()[0].extended);
        const urls dotted = co_await discover_endpoints("Example.COM.", options);
        CHECK(dotted == found);
    });
}

TEST_CASE("Endpoints with http are found where there are none with https", "[dns]") {
    dns_zone zone;
    zone[plain] = {place("a.example.com"), place("b.example.com", 1)};
    const urls all{"http://a.example.com:2379", "http://b.example.com:1"};
    const auto find = [all](name_server& names, srv_options options) -> awaitable<void> {
        const urls found = co_await discover_endpoints("example.com", options);
        CHECK(found == all);
        CHECK(names_of(names.asked()) == urls{with_tls, plain});
    };
    test_names(dns_from(zone), find); // NXDOMAIN
    zone[with_tls] = {};
    test_names(dns_from(zone), find);
    zone[with_tls] = {place("", 0)}; // "no such service"
    test_names(dns_from(zone), find);
}

TEST_CASE("Only endpoints of the scheme that is wanted are asked for", "[dns]") {
    dns_zone zone;
    zone[with_tls] = {place("s.example.com")};
    zone[plain] = {place("p.example.com")};
    test_names(dns_from(zone), [](name_server& names, srv_options options) -> awaitable<void> {
        options.scheme = srv_scheme::http;
        const urls http = co_await discover_endpoints("example.com", options);
        CHECK(http == urls{"http://p.example.com:2379"});
        options.scheme = srv_scheme::https;
        const urls https = co_await discover_endpoints("example.com", options);
        CHECK(https == urls{"https://s.example.com:2379"});
        CHECK(names_of(names.asked()) == urls{plain, with_tls});
        names.answer_by(dns_from({{plain, {place("p.example.com")}}}));
        const ending e = co_await failure(options);
        CHECK(e.code == errc::unavailable);
        CHECK(names.asked().size() == 3);
    });
}

TEST_CASE("The name of the service is part of what is asked", "[dns]") {
    dns_zone zone;
    zone["_etcd-client-orders._tcp.example.com"] = {place("a.example.com")};
    test_names(dns_from(zone), [](name_server& names, srv_options options) -> awaitable<void> {
        options.service_name = "orders";
        const urls found = co_await discover_endpoints("example.com", options);
        CHECK(found == urls{"http://a.example.com:2379"});
        CHECK(names.asked()[0].name == "_etcd-client-ssl-orders._tcp.example.com");
    });
}

TEST_CASE("A domain without records is named in the error", "[dns]") {
    test_names(dns_from({}), [](name_server& names, srv_options options) -> awaitable<void> {
        const ending e = co_await failure(options);
        CHECK(e.code == errc::unavailable);
        CHECK(e.code == coetcd::condition::retryable);
        CHECK_THAT(e.text, contains("SRV records " + with_tls + " and " + plain));
        CHECK_THAT(e.text, contains("there are none, says " + names.address()));
        CHECK(names.asked().size() == 2);
    });
}

TEST_CASE("Records that name no host are none, and http is no substitute", "[dns]") {
    dns_zone zone;
    zone[with_tls] = {place("a b"), place("a", 0), place("1.2.3")};
    zone[plain] = {place("a.example.com")};
    test_names(dns_from(zone), [](name_server& names, srv_options options) -> awaitable<void> {
        const ending e = co_await failure(options);
        CHECK(e.code == errc::unavailable);
        CHECK_THAT(e.text,
                   contains(with_tls + ": none names a host and a port, says " + names.address()));
        CHECK(names.asked().size() == 1);
    });
}

TEST_CASE("An answer that is too large for a datagram is asked for by TCP", "[dns]") {
    dns_zone zone;
    for (int i = 0; i != 1000; ++i) {
        zone[with_tls].push_back(place("a" + std::to_string(i) + "x.example.com"));
    }
    test_names(dns_from(zone), [](name_server& names, srv_options options) -> awaitable<void> {
        const urls found = co_await discover_endpoints("example.com", options);
        CHECK(found.size() == 64);
        CHECK(found.front() == "https://a0x.example.com:2379");
        CHECK(names_of(names.asked()) == urls{with_tls, with_tls + " tcp"});
        // Another question, so that nobody who saw the first can answer it.
        CHECK(names.asked()[0].bytes.substr(0, 2) != names.asked()[1].bytes.substr(0, 2));
    });
}

TEST_CASE("Each question has a port and a number of its own", "[dns]") {
    dns_zone zone;
    zone[with_tls] = {place("a.example.com")};
    test_names(dns_from(zone), [](name_server& names, srv_options options) -> awaitable<void> {
        for (int i = 0; i != 20; ++i) {
            (void)co_await discover_endpoints("example.com", options);
        }
        std::set<std::string> ids;
        std::set<std::uint16_t> ports;
        for (const name_question& q : names.asked()) {
            ids.insert(q.bytes.substr(0, 2));
            ports.insert(q.port);
        }
        CHECK(ids.size() > 15);
        CHECK(ports.size() > 5);
    });
}

TEST_CASE("sec.dns: what is no answer to the question is ignored", "[dns][security]") {
    const auto how = [](const name_question& q) {
        const std::string bad = place("evil.example.org").record();
        std::string other_id = dns_reply(q.bytes, dns_says, {bad});
        other_id[0] = static_cast<char>(other_id[0] ^ 1);
        std::string other_name = dns_reply(q.bytes, dns_says, {bad});
        other_name[13] = 'x';
        name_server::answers all{"", "x", std::string(12, '\0'), q.bytes, other_id, other_name};
        all.push_back(dns_reply(q.bytes, dns_says, {place("a.example.com").record()}));
        return all;
    };
    test_names(how, [](name_server& names, srv_options options) -> awaitable<void> {
        const urls found = co_await discover_endpoints("example.com", options);
        CHECK(found == urls{"https://a.example.com:2379"});
        CHECK(names.asked().size() == 1);
    });
}

TEST_CASE("The next name server is asked when one cannot tell", "[dns]") {
    struct row {
        const char* name;
        name_server::rule how;
        errc code = errc::unavailable;
    };
    const auto garbage = [](const name_question& q) {
        std::string cut = dns_reply(q.bytes, dns_says, {place("a").record()});
        cut.pop_back();
        return name_server::answers{cut};
    };
    const std::vector<row> rows{{"SERVFAIL", dns_with_flags(dns_servfail)},
                                {"REFUSED", dns_with_flags(dns_refused)},
                                {"garbage", garbage},
                                {"silence", dns_silent, errc::timed_out}};
    for (const row& r : rows) {
        INFO(r.name);
        dns_zone zone;
        zone[with_tls] = {place("a.example.com")};
        test_names(r.how, [&](name_server& bad, srv_options options) -> awaitable<void> {
            const auto executor = co_await asio::this_coro::executor;
            name_server good(executor, dns_from(zone));
            options.name_servers.push_back(good.address());
            const bool silent = r.code == errc::timed_out;
            options.attempt_timeout = silent ? 50ms : 1h;
            options.timeout = 1h;
            const urls found = co_await discover_endpoints("example.com", options);
            CHECK(found == urls{"https://a.example.com:2379"});
            if (!silent) { // else it takes as long as it takes
                CHECK(bad.asked().size() == 1);
                CHECK(good.asked().size() == 1);
            }
        });
    }
}

TEST_CASE("Where no name server listens, the next one is asked at once", "[dns]") {
    dns_zone zone;
    zone[with_tls] = {place("a.example.com")};
    test_names(dns_from(zone), [](name_server& good, srv_options options) -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        name_server gone(executor, dns_silent);
        gone.stop();
        options.name_servers = {gone.address(), good.address()};
        options.attempt_timeout = 1h;
        options.timeout = 1h;
        const urls found = co_await discover_endpoints("example.com", options);
        CHECK(found == urls{"https://a.example.com:2379"});
        options.name_servers = gone.servers();
        const ending e = co_await failure(options);
        CHECK(e.code == errc::unavailable);
        CHECK_THAT(e.text, contains("no name server could tell: " + gone.address() + " "));
    });
}

TEST_CASE("A refusal by all is an error after each was asked three times", "[dns]") {
    dns_zone zone; // http is no substitute for https that cannot be asked for
    zone[plain] = {place("a.example.com")};
    const auto how = [zone](const name_question& q) {
        return q.name == plain ? dns_from(zone)(q) : dns_with_flags(dns_servfail)(q);
    };
    test_names(how, [](name_server& names, srv_options options) -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        name_server other(executor, dns_with_flags(dns_refused));
        options.name_servers.push_back(other.address());
        const ending e = co_await failure(options);
        CHECK(e.code == errc::unavailable);
        CHECK_THAT(e.text,
                   contains(with_tls + ": no name server could tell: " + names.address() +
                            " has failed (SERVFAIL), " + other.address() +
                            " refuses (REFUSED); set srv_options::name_servers to others"));
        CHECK(names_of(names.asked()) == urls{with_tls, with_tls, with_tls});
        CHECK(other.asked().size() == 3);
    });
}

TEST_CASE("A name server that knows no EDNS is asked without it", "[dns]") {
    const auto how = [](const name_question& q) {
        if (q.extended) {
            return name_server::answers{q.bytes.substr(0, 2) + "\x81\x81" + std::string(8, '\0')};
        }
        return name_server::answers{
            dns_reply(q.bytes, dns_says, {place("a.example.com").record()})};
    };
    test_names(how, [](name_server& names, srv_options options) -> awaitable<void> {
        const urls found = co_await discover_endpoints("example.com", options);
        CHECK(found == urls{"https://a.example.com:2379"});
        CHECK(names.asked().size() == 2);
    });
}

TEST_CASE("Silence is a time-out, after three times or at the end of the time", "[dns]") {
    test_names(dns_silent, [](name_server& names, srv_options options) -> awaitable<void> {
        options.attempt_timeout = 20ms;
        options.timeout = 1h;
        const ending thrice = co_await failure(options);
        CHECK(thrice.code == errc::timed_out);
        CHECK_THAT(thrice.text, contains(names.address() + " did not answer in time; "));
        co_await names.until_asked(3);
        CHECK(names.asked().size() == 3);
        options.attempt_timeout = 1h;
        options.timeout = 100ms;
        const auto began = support::clock::now();
        const ending once = co_await failure(options);
        CHECK(once.code == errc::timed_out);
        CHECK_THAT(once.text, contains(names.address() + " did not answer in time; "));
        CHECK(once.when - began < 20s);
        co_await names.until_asked(4);
        CHECK(names.asked().size() == 4);
    });
}

TEST_CASE("The time that is left is less for the second question", "[dns]") {
    const auto how = [](const name_question& q) {
        return q.name == plain ? dns_silent(q) : dns_with_flags(dns_nxdomain)(q);
    };
    test_names(how, [](name_server& names, srv_options options) -> awaitable<void> {
        options.attempt_timeout = 1h;
        options.timeout = 300ms;
        const ending e = co_await failure(options);
        CHECK(e.code == errc::timed_out);
        CHECK_THAT(e.text, contains(plain + ": no name server could tell"));
        CHECK(names_of(names.asked()) == urls{with_tls, plain});
    });
}

TEST_CASE("By TCP, too, a server may be silent, close, or send anything", "[dns]") {
    struct row {
        const char* name;
        std::function<std::string(const std::string&)> sent;
        errc code;
    };
    const std::vector<row> rows{
        {"silence", [](const std::string&) { return ""; }, errc::timed_out},
        {"half of the size", [](const std::string&) { return "\1"; }, errc::unavailable},
        {"less than the size",
         [](const std::string& a) { return dns_number(60'000) + a; },
         errc::unavailable},
        {"nothing", [](const std::string&) { return dns_number(0); }, errc::unavailable},
        {"garbage", [](const std::string&) { return dns_number(5) + "abcde"; }, errc::unavailable},
    };
    for (const row& r : rows) {
        INFO(r.name);
        const auto how = [&](const name_question& q) {
            if (!q.tcp) {
                return dns_with_flags(dns_truncated)(q);
            }
            const std::string sent = r.sent(dns_reply(q.bytes, dns_says));
            return sent.empty() ? name_server::answers() : name_server::answers{sent};
        };
        test_names(how, [&](name_server& names, srv_options options) -> awaitable<void> {
            const bool silent = r.code == errc::timed_out;
            options.attempt_timeout = silent ? 50ms : 1h;
            options.timeout = 1h;
            const ending e = co_await failure(options);
            CHECK(e.code == r.code);
            if (!silent) {
                CHECK(names.asked().size() == 6);
            }
        });
    }
}

TEST_CASE("A discovery is cancelled at once, wherever it is", "[dns][cancellation]") {
    const auto by_tcp = [](const name_question& q) {
        return q.tcp ? dns_silent(q) : dns_with_flags(dns_truncated)(q);
    };
    const auto second = [](const name_question& q) {
        return q.name == plain ? dns_silent(q) : dns_with_flags(dns_nxdomain)(q);
    };
    struct row {
        name_server::rule how;
        std::size_t after;
    };
    for (const row& r : {row{dns_silent, 0}, row{dns_silent, 1}, row{by_tcp, 2}, row{second, 2}}) {
        test_names(r.how, [r](name_server& names, srv_options options) -> awaitable<void> {
            const auto executor = co_await asio::this_coro::executor;
            options.attempt_timeout = 1h;
            options.timeout = 1h;
            auto finding = discover_endpoints("example.com", options);
            if (r.after == 0) { // before its first step
                finding = once_cancelled(std::move(finding));
            }
            task<urls> work(executor, std::move(finding));
            co_await names.until_asked(r.after);
            work.cancel(asio::cancellation_type::partial);
            work.cancel(asio::cancellation_type::total);
            co_await yield(3);
            CHECK_FALSE(work.done());
            work.cancel();
            const ending e = co_await work.how_it_ended();
            CHECK(e.code == asio::error::operation_aborted);
            CHECK(names.asked().size() == r.after);
        });
    }
}

TEST_CASE("A discovery works on an executor that many threads run", "[dns]") {
    asio::io_context context;
    dns_zone zone;
    zone[plain] = {place("a.example.com")};
    name_server names(context.get_executor(), dns_from(zone));
    srv_options options;
    options.name_servers = names.servers();
    asio::thread_pool pool(2);
    std::thread server([&] { context.run(); });
    for (int i = 0; i != 20; ++i) {
        std::future<urls> found =
            asio::co_spawn(pool, discover_endpoints("example.com", options), asio::use_future);
        CHECK(found.get() == urls{"http://a.example.com:2379"});
    }
    asio::post(context, [&] { names.stop(); });
    server.join();
    pool.join();
}

TEST_CASE("Arguments of a discovery are checked at once", "[dns]") {
    struct row {
        std::string domain;
        std::function<void(srv_options&)> change;
        const char* text;
    };
    const std::vector<row> rows{
        {"", [](srv_options&) {}, "domain: \"\""},
        {"a\nb", [](srv_options&) {}, "domain: \"a b\""},
        {"a", [](srv_options& o) { o.service_name = "a.b"; }, "service_name: \"a.b\""},
        {"a", [](srv_options& o) { o.name_servers = {"ns"}; }, "name_servers: \"ns\""},
        {"a", [](srv_options& o) { o.attempt_timeout = 0ms; }, "attempt_timeout: must be positive"},
        {"a", [](srv_options& o) { o.timeout = -1ms; }, "timeout: must be positive"},
        {"a", [](srv_options& o) { o.refresh = 0ms; }, "refresh: must be positive"},
    };
    asio::io_context context;
    const coetcd::client client(context.get_executor(), "http://127.0.0.1:1");
    for (const row& r : rows) {
        srv_options options;
        r.change(options);
        CHECK_THROWS_AS(discover_endpoints(r.domain, options), std::invalid_argument);
        CHECK_THROWS_WITH(discover_endpoints(r.domain, options), contains(r.text));
        CHECK_THROWS_WITH(follow_endpoints(client, r.domain, options), contains(r.text));
    }
    srv_options options;
    options.scheme = srv_scheme::https;
    CHECK_THROWS_WITH(follow_endpoints(client, "example.com", options), contains("scheme: https"));
    options.attempt_timeout = std::chrono::milliseconds::max();
    options.timeout = std::chrono::milliseconds::max();
    CHECK_NOTHROW(discover_endpoints("example.com", options));
}

} // namespace dns_tests
