// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/detail/access.hpp>
#include <coetcd/detail/net/default_env.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "integration/common.hpp"
#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/etcd_server.hpp"
#include "support/etcd_tools.hpp"
#include "support/run_test.hpp"
#include "support/tcp_proxy.hpp"

using namespace std::chrono_literals;
using namespace support;
namespace asio = boost::asio;
using coetcd::client;
using coetcd::errc;
using coetcd::server_errc;
using coetcd::session;
using coetcd::session_end;
using coetcd::session_state;
using integration::connect;

namespace {

/// Answers whatever comes with a page of its own, and keeps its connections.
awaitable<void> serve_page(asio::ip::tcp::socket client) {
    const std::string page = "HTTP/1.1 404 Not Found\r\nContent-Length: 6\r\n\r\nwhat?\n";
    std::string piece(64 * 1024, ' '); // a request comes whole
    coetcd::error_code ec;
    while (!ec) {
        const std::size_t n = co_await client.async_read_some(
            asio::buffer(piece), asio::redirect_error(asio::use_awaitable, ec));
        if (n != 0) {
            co_await asio::async_write(
                client, asio::buffer(page), asio::redirect_error(asio::use_awaitable, ec));
        }
    }
}
awaitable<void> serve_pages(std::shared_ptr<asio::ip::tcp::acceptor> at) {
    coetcd::error_code ec;
    while (!ec) {
        asio::ip::tcp::socket client =
            co_await at->async_accept(asio::redirect_error(asio::use_awaitable, ec));
        if (!ec) {
            asio::co_spawn(at->get_executor(), serve_page(std::move(client)), asio::detached);
        }
    }
}

/// Waits until etcd has no such lease any more.
awaitable<void> until_gone(client c, coetcd::lease_id lease, std::chrono::milliseconds within) {
    auto gone = [c, lease]() -> awaitable<bool> {
        const auto left = co_await c.lease_time_to_live(lease);
        co_return !left;
    };
    co_await eventually(gone, within, "the lease has gone");
}

} // namespace

TEST_CASE("A session is a lease, and closing it revokes that", "[session]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        session s = co_await session::open(c);
        CHECK(s.ttl() == 10s);
        CHECK(s.state() == session_state::active);
        CHECK(s.reason() == session_end::none);
        CHECK(s.remaining() > 8s);
        CHECK(s.remaining() <= 9s);
        CHECK(lists_lease(shared_etcd(), s.lease()));

        const std::string key = unique_name("of-session");
        coetcd::put_options with_lease;
        with_lease.lease = s.lease();
        (void)co_await c.put(key, "v", with_lease);
        task<session_end> waiting(executor, s.wait_lost());
        co_await yield(5);
        CHECK(!waiting.done());

        co_await s.close();
        CHECK(shared_etcd().etcdctl({"get", key}).output.empty());
        CHECK(!lists_lease(shared_etcd(), s.lease()));
        CHECK(s.state() == session_state::lost);
        CHECK(s.reason() == session_end::closed);
        CHECK(s.remaining() == 0s);
        const auto why = co_await waiting.result();
        CHECK(why == session_end::closed);
        const auto again = co_await s.wait_lost();
        CHECK(again == session_end::closed);
        co_await s.close(); // nothing is left to do
    });
}

TEST_CASE("A session lives on for as long as it is renewed", "[session]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        session s = co_await open_session(c, 1s);
        CHECK(s.ttl() == 1s);
        const auto start = clock::now();
        auto least = s.remaining();
        while (clock::now() - start < 6s) {
            co_await sleep_for(20ms);
            least = std::min(least, s.remaining());
        }
        CHECK(s.state() == session_state::active);
        CHECK(s.ttl() == 2s); // raised to etcd's minimum, as renewals have said
        CHECK(lists_lease(shared_etcd(), s.lease()));
        CHECK(least > 0s);
        co_await s.close();
    });
}

TEST_CASE("A session that is destroyed is revoked in the background", "[session]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        std::optional<session> s;
        {
            session opened = co_await open_session(c, 60s);
            s.emplace(std::move(opened));
        }
        const auto lease = s->lease();
        task<session_end> waiting(executor, s->wait_lost());
        co_await yield(5);
        s.reset();
        const auto why = co_await waiting.result();
        CHECK(why == session_end::closed);
        co_await until_gone(c, lease, 5s);

        // So is one that another is assigned to.
        session one = co_await open_session(c, 60s);
        session other = co_await open_session(c, 60s);
        const auto first = one.lease();
        const auto second = other.lease();
        one = std::move(other);
        CHECK(one.lease() == second);
        CHECK(one.state() == session_state::active);
        co_await until_gone(c, first, 5s);
        CHECK(lists_lease(shared_etcd(), second));
        co_await one.close();
    });
}

TEST_CASE("A session can be orphaned and adopted", "[session]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        session first = co_await open_session(c, 30s);
        task<session_end> waiting(executor, first.wait_lost());
        co_await yield(5);
        const auto lease = first.orphan();
        CHECK(lease == first.lease());
        CHECK(first.reason() == session_end::orphaned);
        const auto why = co_await waiting.result();
        CHECK(why == session_end::orphaned);
        co_await first.close(); // does not touch the lease
        CHECK(lists_lease(shared_etcd(), lease));

        auto adopted = co_await session::adopt(c, lease);
        session second = std::move(adopted.value());
        CHECK(second.lease() == lease);
        CHECK(second.ttl() == 30s);
        CHECK(second.state() == session_state::active);
        co_await second.close();
        CHECK(!lists_lease(shared_etcd(), lease));
        const auto gone = co_await session::adopt(c, lease);
        CHECK(!gone);
    });
}

TEST_CASE("A session whose lease is revoked is lost with the next renewal", "[session]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        session s = co_await open_session(c, 6s);
        revoke_by_hand(shared_etcd(), s.lease());
        const auto before = clock::now();
        const auto why = co_await s.wait_lost();
        CHECK(why == session_end::expired);
        CHECK(s.state() == session_state::lost);
        CHECK(s.remaining() == 0s);
        CHECK(ms_between(before, clock::now()) < 2000 + 1000); // ttl/3, and a busy machine
        co_await s.close();                                    // nothing is left to do
    });
}

TEST_CASE("A session is suspect while etcd stands still, and recovers", "[session]") {
    etcd_server etcd;
    const auto body = [&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, etcd.url());
        session s = co_await open_session(c, 9s);
        etcd.pause();
        auto suspect = [&]() -> awaitable<bool> { co_return s.state() == session_state::suspect; };
        co_await eventually(suspect, 8s, "the session is suspect");
        CHECK(s.remaining() > 0s);
        etcd.resume();
        auto active = [&]() -> awaitable<bool> { co_return s.state() == session_state::active; };
        co_await eventually(active, 8s, "the session is active again");
        co_await s.close();
    };
    run_test(body);
}

TEST_CASE("A session is lost before its lease can have ended", "[session]") {
    etcd_server etcd;
    const auto body = [&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, etcd.url());
        session s = co_await open_session(c, 4s);
        task<session_end> waiting(executor, s.wait_lost());
        co_await sleep_for(1500ms); // some renewals
        etcd.pause();
        const auto paused = clock::now();
        const auto remaining = s.remaining();
        CHECK(remaining <= 3600ms); // a margin of a tenth
        auto suspect = [&]() -> awaitable<bool> {
            co_return s.state() == session_state::suspect || waiting.done();
        };
        co_await eventually(suspect, 4s, "the session is suspect");
        CHECK(!waiting.done());
        const auto why = co_await waiting.result();
        CHECK(why == session_end::deadline);
        CHECK(s.state() == session_state::lost);
        // The last renewal was sent before the pause.
        CHECK(waiting.ended() - paused < 4s);
        CHECK(waiting.ended() - paused > remaining - 100ms);
        etcd.resume();
        co_await s.close();
        CHECK(s.reason() == session_end::deadline); // the first reason counts
        CHECK(!lists_lease(etcd, s.lease()));
    };
    run_test(body);
}

TEST_CASE("A session survives a restart of etcd that is shorter than its ttl", "[session]") {
    etcd_server etcd;
    const auto body = [&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, etcd.url());
        session s = co_await open_session(c, 12s);
        coetcd::mutex m(s, "survivor");
        co_await m.lock();
        const std::function<void()> restart = [&] {
            etcd.kill();
            etcd.start();
        };
        co_await in_thread(restart);
        const auto renewed_after = s.remaining();
        auto renewed = [&]() -> awaitable<bool> {
            co_return s.remaining() > renewed_after&& s.state() == session_state::active;
        };
        co_await eventually(renewed, 15s, "the session is renewed");
        CHECK(m.owns_lock());
        const bool ours = co_await m.unlock();
        CHECK(ours);
        co_await s.close();
    };
    run_test(body);
}

TEST_CASE("A session is renewed on another endpoint if one fails", "[session]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        tcp_proxy one(executor, shared_etcd().port());
        tcp_proxy other(executor, shared_etcd().port());
        const client c(executor, coetcd::endpoints(one.url(), other.url()));
        session s = co_await open_session(c, 3s);
        task<session_end> waiting(executor, s.wait_lost());
        const std::vector<tcp_proxy*> in_turn{&one, &other};
        for (tcp_proxy* mute : in_turn) {
            mute->requests(traffic::hold);
            co_await sleep_for(4s); // longer than the ttl
            CHECK(!waiting.done());
            mute->requests(traffic::pass);
        }
        co_await s.close();
        (void)co_await waiting.result();
    });
}

TEST_CASE("A crowd of other calls does not hold up renewals", "[session]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        coetcd::client_options options;
        options.connections = 1;
        options.request_timeout = 30s;
        const client c(executor, shared_etcd().url(), options);
        session s = co_await open_session(c, 2s);
        task<session_end> waiting(executor, s.wait_lost());
        const std::string name = unique_name("crowd") + '/';
        const std::string value(100'000, 'x');
        const auto start = clock::now();
        const auto busy = [&](int i) -> awaitable<void> {
            while (clock::now() - start < 4s) {
                (void)co_await c.put(name + std::to_string(i), value);
            }
        };
        std::vector<awaitable<void>> all;
        for (int i = 0; i < 100; ++i) {
            all.push_back(busy(i));
        }
        co_await run_all(std::move(all));
        CHECK(!waiting.done());
        co_await s.close();
        (void)co_await waiting.result();
        co_await erase_all(c, name);
    });
}

TEST_CASE("Opening a session that is cancelled leaves no lease", "[session]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client direct = connect(executor);
        const auto before = co_await direct.lease_leases();
        const auto leases = [&](bool more) -> awaitable<bool> {
            const auto now = co_await direct.lease_leases();
            co_return now.leases.size() > before.leases.size() == more;
        };
        auto one_more = [&]() -> awaitable<bool> { co_return co_await leases(true); };
        auto as_before = [&]() -> awaitable<bool> { co_return co_await leases(false); };

        tcp_proxy proxy(executor, shared_etcd().port());
        const client c(executor, proxy.url());
        proxy.answers(traffic::hold);
        task<session> granted(executor, open_session(c, 60s));
        co_await eventually(one_more, 5s, "etcd has granted it");
        CHECK(!granted.done());
        granted.cancel();
        const auto e = co_await granted.how_it_ended();
        CHECK(e.code == asio::error::operation_aborted);
        proxy.answers(traffic::pass);
        co_await eventually(as_before, 10s, "the lease is revoked");

        // At any moment. A grant that etcd carries out after the revoke ends by itself.
        for (int i = 0; i < 40; ++i) {
            task<session> opening(executor, open_session(c, 2s));
            co_await yield(i);
            opening.cancel();
            (void)co_await opening.how_it_ended();
        }
        co_await eventually(as_before, 10s, "no lease is left");
    });
}

TEST_CASE("Waiting for the loss of a session can be cancelled without effect on it", "[session]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        session s = co_await session::open(c);
        task<session_end> waiting(executor, s.wait_lost());
        co_await yield(5);
        waiting.cancel();
        const auto e = co_await waiting.how_it_ended();
        CHECK(e.code == asio::error::operation_aborted);
        CHECK(s.state() == session_state::active);
        co_await s.close();
    });
}

TEST_CASE("One address of a name that does not lead to etcd costs no session", "[session]") {
    run_test([]() -> awaitable<void> {
        namespace net = coetcd::detail::net;
        const auto executor = co_await asio::this_coro::executor;
        const auto bad = asio::ip::make_address("127.0.0.2");
        const asio::ip::tcp::endpoint where(bad, shared_etcd().port());
        const auto stranger = std::make_shared<asio::ip::tcp::acceptor>(executor, where);
        asio::co_spawn(executor, serve_pages(stranger), asio::detached);
        net::net_options how;
        how.lookup = [bad](const std::string&,
                           std::function<void(coetcd::error_code, net::addresses)> tell) {
            net::addresses both;
            both.push_back(bad);
            both.push_back(asio::ip::make_address("127.0.0.1"));
            tell({}, both);
        };
        {
            const auto world = std::make_shared<net::default_env>(executor, how);
            const std::string url = "http://two.example:" + std::to_string(shared_etcd().port());
            const client c =
                coetcd::detail::access::make<client>(world, url, coetcd::client_options());
            session s = co_await open_session(c, 5s);
            coetcd::mutex m(s, "session/address");
            for (int i = 0; i != 3; ++i) {
                co_await m.lock();
                const bool held = co_await m.unlock();
                CHECK(held);
            }
            coetcd::watcher w = co_await c.watch("session/address/key");
            (void)co_await c.put("session/address/key", "1");
            const auto seen = co_await w.next();
            CHECK(seen.events.size() == 1);
            (void)co_await c.erase("session/address/key");
            CHECK(s.state() == session_state::active);
            co_await s.close();
        }
        stranger->close();
    });
}
