// What README.md shows, so that it is compiled and run: the test readme.snippets compares the two.
// Run: readme [http://127.0.0.1:2379]
#include <coetcd.hpp>

#include <boost/asio.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <iostream>
#include <optional>
#include <string>
#include <utility>

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

int shipped = 0;

asio::awaitable<void> ship_order() {
    ++shipped;
    co_return;
}

asio::awaitable<void> three_shapes(coetcd::mutex& mutex) {
    // 1. Like std::mutex.
    co_await mutex.lock();
    co_await ship_order();
    co_await mutex.unlock();

    // 2. Like std::unique_lock: given back in the background at the end of the block.
    {
        const coetcd::held_lock held = co_await mutex.scoped_lock();
        co_await ship_order();
    }

    // 3. The safest: ship_order is cancelled if the lock is lost.
    co_await coetcd::with_lock(mutex, ship_order);

    // And if somebody else has the lock for longer than that, ship_order does not run.
    const bool ran = co_await coetcd::with_lock_for(mutex, 2s, ship_order);
    shipped -= ran ? 1 : 0;
}

int prices = 0;

asio::awaitable<void> read_prices() {
    ++prices;
    co_return;
}

asio::awaitable<void> write_prices() {
    return read_prices();
}

asio::awaitable<void> readers_and_writers(coetcd::session& session) {
    coetcd::shared_mutex catalog(session, "catalog");
    co_await coetcd::with_lock_shared(catalog, read_prices); // beside any number of others
    {
        coetcd::held_lock held = co_await catalog.scoped_lock(); // alone
        co_await write_prices();
        co_await held.downgrade(); // the others may read now, and nobody has written in between
        co_await read_prices();
    }
}

bool moved = false;

asio::awaitable<void> move_money() {
    moved = true;
    co_return;
}

asio::awaitable<void> several(coetcd::session& session) {
    coetcd::multi_lock both(session,
                            {coetcd::exclusive("accounts/1"), coetcd::exclusive("accounts/2")});
    co_await coetcd::with_lock(both, move_money);
}

asio::awaitable<void> timer() {
    asio::steady_timer wait(co_await asio::this_coro::executor, 5s);
    co_await wait.async_wait(asio::use_awaitable);
}

asio::awaitable<void> composed(coetcd::mutex& mutex) {
    using namespace asio::experimental::awaitable_operators;
    auto how = co_await (coetcd::as_result(coetcd::with_lock(mutex, ship_order)) || timer());

    const coetcd::held_lock held = co_await mutex.scoped_lock();
    auto end = co_await (ship_order() || held.wait_lost());
    shipped -= how.index() == 0 && end.index() == 0 ? 2 : 0;
}

asio::awaitable<void> patience(coetcd::mutex& mutex) {
    const bool locked = co_await mutex.try_lock_for(500ms);
    if (!locked) {
        const auto holder = co_await mutex.holder();
        std::cout << (holder ? coetcd::printable(holder->label) : "nobody") << " has it\n";
    }
}

asio::awaitable<void> permits(coetcd::session& session) {
    coetcd::semaphore imports(session, "imports", 3); // three at a time, in the whole cluster
    {
        const coetcd::permit one = co_await imports.acquire(); // given back at the end of the block
        co_await ship_order();
    }
    co_await coetcd::with_permits(imports, 2, ship_order); // cancelled if the permits are lost

    const auto soon = co_await imports.acquire_for(1, 500ms);
    if (!soon) {
        const coetcd::semaphore_state now = co_await imports.state();
        std::cout << now.used << " of " << now.limit << " are out\n";
    }
    shipped -= soon ? 2 : 0;
}

asio::awaitable<void> guarded(coetcd::client client, coetcd::mutex& mutex) {
    coetcd::txn note =
        coetcd::txn().when(mutex.is_owner()).then(coetcd::op::put("shipped/42", "by us"));
    const coetcd::txn_response answer = co_await client.txn(std::move(note));
    if (!answer.succeeded) {
        std::cout << "the lock is not ours any more, and nothing was written\n";
    }
}

asio::awaitable<void> pack(const coetcd::held_lock& held) {
    co_await coetcd::with_lock(held, ship_order);
}

asio::awaitable<bool> passed_on(coetcd::client client, coetcd::mutex& mutex) {
    const coetcd::held_lock held = co_await mutex.scoped_lock();
    co_await pack(held);                          // takes a const held_lock&
    co_await coetcd::with_lock(held, ship_order); // cancelled if the lock is lost; held afterwards
    const coetcd::held_lock another = held.share(); // the last handle gives the lock back
    shipped -= 2;

    const std::string sequencer = held.sequencer(); // for those who work on behalf of the holder

    const bool lasts = co_await coetcd::verify(client, "orders/42", sequencer);
    coetcd::txn note = coetcd::txn()
                           .when(coetcd::guard("orders/42", sequencer))
                           .then(coetcd::op::put("shipped/42", "for the holder"));
    const coetcd::txn_response answer = co_await client.txn(std::move(note));

    const coetcd::fencing_gate gate(client, "shipped-gate");
    const bool admitted = co_await gate.admit(held.fencing_token());
    co_await client.erase("shipped-gate");
    co_return lasts&& answer.succeeded&& admitted;
}

asio::awaitable<void> stuck(coetcd::client client, coetcd::session& session) {
    const coetcd::mutex mutex(session, "orders/42");
    const auto holder = co_await mutex.holder();
    if (holder) {
        co_await coetcd::request_release(session, "orders/42"); // see yield_on_request
        co_await coetcd::force_unlock(client, "orders/42", holder->create_revision);
    }
}

asio::awaitable<void> bounded(coetcd::session& session) {
    coetcd::mutex mutex(session, "orders/42", {.max_hold = 30s, .watch_while_held = true});
    co_await coetcd::with_lock(mutex, ship_order, coetcd::yield_on_request(5s));
    --shipped;
}

asio::awaitable<void> once_an_hour(coetcd::client client) {
    std::optional<coetcd::timed_claim> claim = co_await coetcd::try_claim(client, "report", 3600s);
    if (claim) {
        claim->keep(); // until the hour is over, whatever becomes of us
        co_await ship_order();
    }
    shipped -= claim ? 1 : 0;
}

asio::awaitable<void> failures(coetcd::mutex& mutex) {
    try {
        co_await coetcd::with_lock(mutex, ship_order);
    } catch (const coetcd::error& e) {
        if (e.code() == coetcd::condition::ownership_lost) {
            std::cout << "lost: open a new session and begin again\n";
        } else if (e.code() == coetcd::condition::retryable) {
            std::cout << "nothing was changed: try again later\n";
        } else {
            std::cout << e.what() << '\n';
        }
    }
}

asio::awaitable<void> without_exceptions(coetcd::mutex& mutex) {
    const auto locked = co_await coetcd::as_result(mutex.try_lock_for(500ms));
    if (!locked) {
        std::cout << locked.error().text() << '\n'; // and code() for the program
    } else if (*locked) {
        co_await mutex.unlock();
    }
}

asio::awaitable<bool> successor(coetcd::client client, coetcd::lease_id lease) {
    std::optional<coetcd::session> session = co_await coetcd::session::adopt(client, lease);
    if (!session) {
        co_return false; // it has ended
    }
    coetcd::mutex mutex(*session, "orders/42");
    const bool held = co_await mutex.resume(); // with the same fencing token
    co_await session->close();
    co_return held;
}

asio::awaitable<void> schedule_jobs() {
    ++shipped;
    co_return;
}

asio::awaitable<void> elections(coetcd::client client, coetcd::session& session) {
    coetcd::election election(session, "scheduler");
    coetcd::leadership leadership = co_await election.campaign("10.0.0.7"); // waits its turn
    co_await leadership.proclaim("10.0.0.7, ready"); // what the others are told
    co_await leadership.resign();

    // Cancels schedule_jobs if the term is lost, as with_lock does.
    co_await coetcd::lead(election, "10.0.0.7", schedule_jobs);

    // With sessions of its own: leads again whenever it has lost a term, until schedule_jobs ends.
    co_await coetcd::lead(client, "scheduler", "10.0.0.7", schedule_jobs);
    shipped -= 2;
}

asio::awaitable<void> listen(coetcd::client client) {
    coetcd::leader_feed leaders = coetcd::observe(client, "scheduler");
    for (;;) {
        // The present one at once, then each change.
        const std::optional<coetcd::leader> leader = co_await leaders.next();
        std::cout << (leader ? coetcd::printable(leader->value) : "nobody") << " leads\n";
    }
}

asio::awaitable<void> watched_elections(coetcd::client client, coetcd::session& session) {
    using namespace asio::experimental::awaitable_operators;
    auto how = co_await (listen(client) || elections(client, session));
    shipped -= how.index() == 1 ? 0 : 1;
}

asio::awaitable<void> server(coetcd::client client) {
    coetcd::session_keeper sessions(client);
    const bool ran = co_await coetcd::with_lock_for(sessions, "orders/42", 2s, ship_order);

    coetcd::task_group requests(client);
    requests.spawn(client.get_executor(), ship_order());
    // And when SIGTERM has come:
    co_await requests.shutdown(10s); // takes no more, lets them finish, then cancels the rest
    co_await sessions.close();
    shipped -= ran ? 2 : 0;
}

bool followed = false;

asio::awaitable<void> follow(coetcd::client client) {
    const auto orders = coetcd::key_range::prefix("shipped/");
    const coetcd::range_response now = co_await client.range(orders);
    coetcd::watch_options from;
    from.start_revision = now.header.revision + 1; // what has happened since
    coetcd::watcher changes = co_await client.watch(orders, from);
    for (bool gone = false; !gone;) {
        const coetcd::watch_batch batch = co_await changes.next();
        for (const coetcd::event& e : batch.events) {
            gone = e.type == coetcd::event_type::erase;
            std::cout << e.kv.key << (gone ? " is gone\n" : " has changed\n");
        }
    }
    followed = true;
}

asio::awaitable<void> transfer_30(coetcd::session& session) {
    auto transfer = [](coetcd::transaction& t) -> asio::awaitable<void> {
        const auto from = co_await t.get("accounts/a");
        const auto to = co_await t.get("accounts/b");
        t.put("accounts/a", std::to_string(std::stoi(*from) - 30));
        t.put("accounts/b", std::to_string(std::stoi(*to) + 30));
    };
    co_await coetcd::stm(session, transfer); // run again if somebody was faster; paid once
}

asio::awaitable<bool> once(coetcd::client client, coetcd::session& session) {
    co_await client.put("accounts/a", "100");
    co_await client.put("accounts/b", "0");
    co_await transfer_30(session);
    const auto b = co_await client.get("accounts/b");

    coetcd::sequence invoices(session, "invoices");
    const std::int64_t number = co_await invoices.next(); // 1, 2, 3 ... by whichever process

    coetcd::counter visitors(session, "visitors");
    co_await visitors.add();

    coetcd::exactly_once writer(session, "shop");
    coetcd::txn sale = coetcd::txn()
                           .when(coetcd::compare::value("stock") == "7")
                           .then(coetcd::op::put("stock", "6"));
    const coetcd::txn_outcome sold = co_await writer.txn(std::move(sale));
    for (const char* key : {"accounts/a", "accounts/b", "invoices", "visitors"}) {
        co_await client.erase(key);
    }
    co_return b->value == "30" && number == 1 && !sold.succeeded;
}

void callback(coetcd::client client, coetcd::mutex& mutex) {
    asio::co_spawn(client.get_executor(), mutex.lock(), [](std::exception_ptr failure) {
        std::cout << (failure ? "failed\n" : "locked\n");
    });
}

std::string read_password() {
    return "from a file, say";
}

asio::awaitable<void> user(std::string url) {
    const auto executor = co_await asio::this_coro::executor;
    coetcd::client_options options;
    options.credentials = coetcd::credentials("shop", [] { return read_password(); });
    const coetcd::client client(executor, url, options);
    (void)co_await client.get("orders");
}

asio::awaitable<bool> run(std::string url) {
    const auto client = coetcd::client(co_await asio::this_coro::executor, url);
    const coetcd::session_options options(10s, "the README");
    coetcd::session session = co_await coetcd::session::open(client, options);
    coetcd::mutex mutex(session, "orders/42");
    coetcd::mutex other(session, "orders/43");

    asio::co_spawn(client.get_executor(), follow(client), [](std::exception_ptr failure) {
        if (failure) {
            std::rethrow_exception(failure);
        }
    });
    co_await three_shapes(mutex);
    co_await composed(mutex);
    co_await readers_and_writers(session);
    co_await several(session);
    co_await patience(mutex);
    co_await patience(mutex);
    co_await permits(session);
    co_await guarded(client, mutex);
    const auto note = co_await client.get("shipped/42");
    co_await mutex.unlock();
    const bool proved = co_await passed_on(client, mutex);
    co_await stuck(client, session);
    co_await bounded(session);
    co_await once_an_hour(client);
    const auto report = coetcd::key_range::prefix("report/");
    co_await client.erase(report); // its lease would keep it for an hour
    co_await failures(mutex);
    co_await without_exceptions(mutex);
    coetcd::session earlier = co_await coetcd::session::open(client, options);
    coetcd::mutex handed_over(earlier, "orders/42");
    co_await handed_over.lock();
    const bool resumed = co_await successor(client, earlier.orphan());
    const bool paid = co_await once(client, session);
    co_await watched_elections(client, session);
    co_await server(client);
    callback(client, other);
    co_await user(url);

    asio::steady_timer pause(client.get_executor(), 200ms);
    co_await pause.async_wait(asio::use_awaitable);
    const bool locked = other.owns_lock();
    co_await client.erase("shipped/42");
    co_await session.close();
    const coetcd::session_end why = co_await session.wait_lost();
    const bool all_done = paid && shipped == 4 && prices == 3 && moved && proved;
    co_return resumed&& all_done&& locked&& note&& why == coetcd::session_end::closed;
}

} // namespace

int main(int argc, char** argv) {
    asio::io_context context;
    auto all = run(argc > 1 ? argv[1] : "http://127.0.0.1:2379");
    auto ended = asio::co_spawn(context, std::move(all), asio::use_future);
    context.run();
    return ended.get() && followed ? 0 : 1;
}
