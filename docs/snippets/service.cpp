// SPDX-License-Identifier: BSL-1.0
// What docs/pages/service.md shows.
#include <coetcd/as_result.hpp>
#include <coetcd/client.hpp>
#include <coetcd/election.hpp>
#include <coetcd/error.hpp>
#include <coetcd/lock_name.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session_keeper.hpp>
#include <coetcd/task_group.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>

#include <chrono>
#include <csignal>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace manual {

namespace {

asio::awaitable<void> ship_order() {
    co_return;
}

asio::awaitable<void> sleep_for(std::chrono::nanoseconds length) {
    asio::steady_timer timer(co_await asio::this_coro::executor, length);
    co_await timer.async_wait(asio::use_awaitable);
}

/// Stands for what uses a processor, or blocks.
asio::awaitable<std::string> render(std::string invoice) {
    co_return invoice;
}

} // namespace

class service_shop {
public:
    service_shop(asio::any_io_executor pool, const std::string& url)
        : pool_(std::move(pool))
        , client_(pool_, url) // makes a strand of its own on the pool
        , sessions_(client_, coetcd::session_keeper_options(10s, "shop@web-1"))
        , requests_(client_) {}

    /// For each request that comes, from any thread.
    /// @returns False at the end: no more are taken.
    bool take(std::string order) { return requests_.spawn(pool_, serve(std::move(order))); }

    /// Waits for a signal, and ends in order.
    asio::awaitable<void> run() {
        asio::signal_set signals(co_await asio::this_coro::executor, SIGTERM, SIGINT);
        co_await signals.async_wait(asio::use_awaitable);
        // Here the acceptor is closed.
        co_await requests_.shutdown(10s); // takes no more, lets them finish, cancels the rest
        const auto closed = co_await coetcd::as_result(sessions_.close());
        if (!closed) { // etcd is away: the lease ends by itself, within its ttl
            std::clog << closed.error().text() + "\n";
        }
    }

private:
    asio::awaitable<void> serve(std::string order) {
        const std::string lock = coetcd::lock_name("orders", order);
        auto body = [this, order](const coetcd::held_lock& held) { return ship(order, held); };
        std::string answer = "503 others have the lock";
        try {
            const std::optional<std::string> shipped =
                co_await coetcd::with_lock_for(sessions_, lock, 5s, std::move(body));
            answer = shipped.value_or(answer);
        } catch (const coetcd::error& e) {
            answer = std::string("503 ") + e.what();
        }
        std::clog << answer + "\n";
    }

    asio::awaitable<std::string> ship(std::string order, const coetcd::held_lock& held) {
        const std::string key = coetcd::lock_name("shipped", order);
        coetcd::txn note = coetcd::txn()
                               .when(held.is_owner(), coetcd::compare::version(key) == 0)
                               .then(coetcd::op::put(key, "by web-1"));
        const coetcd::txn_response noted = co_await client_.txn(std::move(note));
        co_return noted.succeeded ? "201 shipped" : "503 shipped before, or the lock was lost";
    }

    const asio::any_io_executor pool_;
    coetcd::client client_;
    coetcd::session_keeper sessions_; // one session for all requests; the next one when it is lost
    coetcd::task_group requests_;
};

void service_main(const std::string& url) {
    asio::thread_pool pool(4);
    {
        service_shop shop(pool.get_executor(), url);
        auto end = asio::co_spawn(asio::make_strand(pool), shop.run(), asio::use_future);
        end.get();
    } // all that uses the pool goes before the pool
    pool.join();
}

asio::awaitable<void> service_one_mutex_each(const coetcd::session_keeper& sessions) {
    const std::shared_ptr<const coetcd::session> session = co_await sessions.wait_live(2s);
    coetcd::mutex mutex(*session, "orders/42"); // of this coroutine
    co_await coetcd::with_lock(mutex, ship_order);
}

asio::awaitable<std::string> service_on_workers(asio::thread_pool& workers, std::string invoice) {
    // What computes cannot be cancelled. So it gets no cancellation slot, and its end is awaited.
    auto token = asio::bind_cancellation_slot(asio::cancellation_slot(), asio::use_awaitable);
    auto work = asio::co_spawn(workers, render(std::move(invoice)), token);
    std::string rendered = co_await std::move(work);
    co_return rendered;
}

void service_own_thread(const std::string& url) {
    asio::thread_pool etcd(1); // for the client alone
    { const coetcd::client client(etcd.get_executor(), url); }
    etcd.join();
}

asio::awaitable<bool> service_deadline(coetcd::mutex& mutex) {
    using namespace asio::experimental::awaitable_operators;
    auto end = co_await (coetcd::as_result(coetcd::with_lock(mutex, ship_order)) || sleep_for(30s));
    if (end.index() == 1) {
        co_return false; // the time was over: ship_order was cancelled, and has ended
    }
    const coetcd::result<void>& how = std::get<0>(end);
    if (!how) {
        how.error().rethrow(); // the loss, or what ship_order has thrown
    }
    co_return true;
}

asio::awaitable<void> service_short_call(coetcd::client client) {
    const coetcd::client brief = client.with_timeout(500ms); // the same connections
    const auto price = co_await brief.get("prices/42");
    std::cout << (price ? price->value : "none") << '\n';
}

std::string service_health(const coetcd::session_keeper& sessions) {
    const std::optional<coetcd::error> trouble = sessions.trouble();
    if (trouble) {
        return std::string("503 ") + trouble->what();
    }
    const std::shared_ptr<const coetcd::session> session = sessions.current();
    const bool well = session && session->state() == coetcd::session_state::active;
    return well ? "200 well" : "200 degraded: renewals fail";
}

asio::awaitable<void> service_lead(coetcd::client client) {
    coetcd::lead_options how;
    how.again = coetcd::again::always;
    auto duty = [client](const coetcd::leadership& term) -> asio::awaitable<void> {
        for (;;) {
            coetcd::txn note =
                coetcd::txn().when(term.is_leader()).then(coetcd::op::put("swept", "by web-1"));
            (void)co_await coetcd::as_result(client.txn(std::move(note))); // or the next time
            co_await sleep_for(1s);
        }
    };
    co_await coetcd::lead(client, "shop/leader", "web-1", std::move(duty), how);
}

} // namespace manual
