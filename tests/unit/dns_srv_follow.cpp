// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/detail/access.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/dns_srv.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/this_coro.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/name_server.hpp"
#include "support/run_test.hpp"

namespace dns_follow_tests {

using namespace std::chrono_literals;
using namespace support;
using coetcd::client;
using coetcd::client_options;
using coetcd::follow_endpoints;
using coetcd::srv_options;
using coetcd::srv_scheme;

namespace {

const std::string tls_records = "_etcd-client-ssl._tcp.example.com";
const std::string plain_records = "_etcd-client._tcp.example.com";

/// The endpoints that a client has now.
std::string endpoints_of(const client& c) {
    std::string out;
    for (const auto& e : coetcd::detail::access::impl(c)->cluster_router->endpoints()) {
        out += (out.empty() ? "" : " ") + e.text();
    }
    return out;
}

awaitable<void> until_at(client c, std::string wanted) {
    auto there = [c, wanted]() -> awaitable<bool> { co_return endpoints_of(c) == wanted; };
    co_await eventually(there, 20s, "endpoints as DNS names them");
}

dns_zone http_at(const std::vector<std::string>& hosts) {
    dns_zone zone;
    for (const std::string& host : hosts) {
        zone[plain_records].push_back(dns_srv{0, 0, 2379, host});
    }
    return zone;
}

/// A client that follows a name server.
class following {
public:
    following(asio::any_io_executor ex, name_server::rule how, client_options o = {})
        : names(ex, std::move(how))
        , c(ex, "http://127.0.0.1:1", std::move(o))
        , executor_(std::move(ex)) {
        options.name_servers = names.servers();
        options.refresh = 1ms;
        options.attempt_timeout = 20ms;
        options.timeout = 40ms;
    }

    void begin() { work.emplace_back(executor_, follow_endpoints(c, "example.com", options)); }
    void begin_when_cancelled() {
        auto late = once_cancelled(follow_endpoints(c, "example.com", options));
        work.emplace_back(executor_, std::move(late));
    }
    /// Waits until what it is told from now on has had its effect.
    awaitable<void> settle() { return names.until_asked(names.asked().size() + 8); }
    awaitable<void> end() {
        CHECK_FALSE(work.back().done());
        work.back().cancel();
        const ending e = co_await work.back().how_it_ended();
        CHECK(e.code == asio::error::operation_aborted);
    }

    name_server names;
    client c;
    srv_options options;
    std::vector<task<void>> work;

private:
    asio::any_io_executor executor_;
};

/// TLS of a client that connects to nobody.
class no_tls final : public coetcd::tls_context {
public:
    awaitable<coetcd::detail::net::connect_result>
    secure(asio::ip::tcp::socket,
           coetcd::detail::logic::endpoint,
           coetcd::detail::net::limits,
           coetcd::detail::time_point) const override {
        throw std::logic_error("nothing is to be connected");
    }
};

} // namespace

TEST_CASE("A client follows its records", "[dns][follow]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const auto f = std::make_shared<following>(executor, dns_from(http_at({"a", "b"})));
        f->begin();
        co_await until_at(f->c, "http://a:2379 http://b:2379");
        f->names.answer_by(dns_from(http_at({"b", "c", "d"})));
        co_await until_at(f->c, "http://b:2379 http://c:2379 http://d:2379");
        for (const name_question& q : f->names.asked()) {
            CHECK(q.name == plain_records);
        }
        co_await f->end();
        CHECK(endpoints_of(f->c) == "http://b:2379 http://c:2379 http://d:2379");
    });
}

TEST_CASE("Endpoints are named only when the answer has changed", "[dns][follow]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const auto f = std::make_shared<following>(executor, dns_from(http_at({"a", "b"})));
        f->begin();
        co_await until_at(f->c, "http://a:2379 http://b:2379");
        f->c.set_endpoints("http://by-hand:1");
        f->names.answer_by(dns_from(http_at({"b", "a"}))); // the same
        co_await f->settle();
        CHECK(endpoints_of(f->c) == "http://by-hand:1");
        f->names.answer_by(dns_from(http_at({"a"})));
        co_await until_at(f->c, "http://a:2379");
        co_await f->end();
    });
}

TEST_CASE("A client keeps its endpoints while DNS names none", "[dns][follow]") {
    struct row {
        const char* name;
        name_server::rule how;
    };
    const auto garbage = [](const name_question& q) {
        return name_server::answers{dns_reply(q.bytes, dns_says, {"x"})};
    };
    dns_zone only_tls;
    only_tls[tls_records] = {dns_srv{0, 0, 1, "s"}};
    const std::vector<row> rows{
        {"NXDOMAIN", dns_from({})},
        {"no records", dns_from(http_at({}))},
        {"SERVFAIL", dns_with_flags(dns_servfail)},
        {"silence", dns_silent},
        {"garbage", garbage},
        {"no hosts", dns_from(http_at({"a b", "1.2"}))},
        {"none that it may use", dns_from(only_tls)},
    };
    for (const row& r : rows) {
        run_test([&]() -> awaitable<void> {
            INFO(r.name);
            const auto executor = co_await asio::this_coro::executor;
            const auto f = std::make_shared<following>(executor, r.how);
            f->begin();
            co_await f->settle();
            CHECK(endpoints_of(f->c) == "http://127.0.0.1:1");
            f->names.answer_by(dns_from(http_at({"a"})));
            co_await until_at(f->c, "http://a:2379");
            f->names.answer_by(r.how);
            co_await f->settle();
            CHECK(endpoints_of(f->c) == "http://a:2379");
            co_await f->end();
        });
    }
}

TEST_CASE("sec.dns: a client with TLS follows to https alone", "[dns][follow][security]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        client_options o;
        o.tls = std::make_shared<const no_tls>();
        const auto f = std::make_shared<following>(executor, dns_from(http_at({"evil"})), o);
        f->begin();
        co_await f->settle();
        CHECK(endpoints_of(f->c) == "http://127.0.0.1:1");
        dns_zone both = http_at({"evil"});
        both[tls_records] = {dns_srv{0, 0, 1, "s"}};
        f->names.answer_by(dns_from(both));
        co_await until_at(f->c, "https://s:1");
        for (const name_question& q : f->names.asked()) {
            CHECK(q.name == tls_records);
        }
        co_await f->end();
        f->options.scheme = srv_scheme::http; // the user says so
        f->begin();
        co_await until_at(f->c, "http://evil:2379");
        co_await f->end();
    });
}

TEST_CASE("sec.dns: a password follows no record to http elsewhere", "[dns][follow][security]") {
    for (const bool allowed : {false, true}) {
        run_test([&]() -> awaitable<void> {
            const auto executor = co_await asio::this_coro::executor;
            client_options o;
            o.credentials = coetcd::credentials("root", "secret");
            o.insecure_plain_text_credentials = allowed;
            const auto f =
                std::make_shared<following>(executor, dns_from(http_at({"evil", "localhost"})), o);
            f->begin();
            std::string wanted = "http://localhost:2379";
            if (allowed) {
                wanted = "http://evil:2379 http://localhost:2379";
            }
            co_await until_at(f->c, wanted);
            f->names.answer_by(dns_from(http_at({"evil"})));
            if (allowed) {
                co_await until_at(f->c, "http://evil:2379");
            } else {
                co_await f->settle();
                CHECK(endpoints_of(f->c) == wanted);
            }
            co_await f->end();
        });
    }
}

TEST_CASE("Following is cancelled at once, asking or waiting", "[dns][follow][cancellation]") {
    for (const bool asking : {true, false}) {
        run_test([&]() -> awaitable<void> {
            const auto executor = co_await asio::this_coro::executor;
            const auto f = std::make_shared<following>(
                executor, asking ? name_server::rule(dns_silent) : dns_from(http_at({"a"})));
            f->options.refresh = 1h;
            f->options.attempt_timeout = 1h;
            f->options.timeout = 1h;
            f->begin_when_cancelled();
            co_await f->end();
            CHECK(f->names.asked().empty());
            f->begin();
            co_await f->names.until_asked(1);
            if (!asking) {
                co_await until_at(f->c, "http://a:2379");
            }
            co_await f->end();
            CHECK(f->names.asked().size() == 1);
        });
    }
}

TEST_CASE("A client may be destroyed while it follows", "[dns][follow]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        name_server names(executor, dns_from(http_at({"a"})));
        srv_options options;
        options.name_servers = names.servers();
        options.refresh = 1ms;
        std::vector<task<void>> work;
        {
            const client c(executor, "http://127.0.0.1:1");
            work.emplace_back(executor, follow_endpoints(c, "example.com", options));
        }
        co_await names.until_asked(3);
        work.back().cancel();
        const ending e = co_await work.back().how_it_ended();
        CHECK(e.code == asio::error::operation_aborted);
    });
}

} // namespace dns_follow_tests
