// Work under a lock that stops when the lock is lost, and writes that etcd refuses from then on.
//
// A job raises a counter, step by step, under the lock. The first job is left alone. During the
// second one its lease is revoked, as if the process had been cut off from etcd: with_lock cancels
// the job and reports the loss. What the job writes is guarded with is_owner(), so that even a job
// that does not notice could not write any more.
//
// Run: with_lock [http://127.0.0.1:2379]
#include <coetcd.hpp>

#include <boost/asio.hpp>

#include <chrono>
#include <iostream>
#include <string>

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

const std::string counter = "examples/counter";

asio::awaitable<int> read_counter(coetcd::client client) {
    const auto found = co_await client.get(counter);
    co_return found ? std::stoi(found->value) : 0;
}

/// One step: written only as long as this very ownership of the lock lasts.
asio::awaitable<bool> raise_counter(coetcd::client client, const coetcd::held_lock& held) {
    const int seen = co_await read_counter(client);
    coetcd::txn step = coetcd::txn()
                           .when(held.is_owner())
                           .then(coetcd::op::put(counter, std::to_string(seen + 1)));
    const coetcd::txn_response answer = co_await client.txn(std::move(step));
    co_return answer.succeeded;
}

/// The work. It does not look whether it still has the lock: it need not. A cancelled co_await
/// throws operation_aborted, which ends it wherever it is.
asio::awaitable<int> job(coetcd::client client, const coetcd::held_lock& held, int steps) {
    std::cout << "  it runs, fencing token " << held.fencing_token() << std::endl;
    asio::steady_timer pause(client.get_executor());
    bool refused = false;
    for (int step = 0; step < steps; ++step) {
        const bool written = co_await raise_counter(client, held);
        if (!written && !refused) {
            std::cout << "  etcd refuses what it writes" << std::endl;
            refused = true;
        }
        pause.expires_after(20ms);
        co_await pause.async_wait(asio::use_awaitable);
    }
    co_return co_await read_counter(client);
}

/// Waits until the job is at work, then ends its lease.
asio::awaitable<void> sabotage(coetcd::client client, coetcd::lease_id lease, int start) {
    asio::steady_timer pause(client.get_executor());
    int now = start;
    while (now < start + 3) {
        pause.expires_after(10ms);
        co_await pause.async_wait(asio::use_awaitable);
        now = co_await read_counter(client);
    }
    std::cout << "  somebody revokes its lease" << std::endl;
    co_await client.lease_revoke(lease);
}

asio::awaitable<bool> run(std::string url) {
    coetcd::client client(co_await asio::this_coro::executor, url);
    co_await client.erase(counter);

    std::cout << "A job under a lock that holds:" << std::endl;
    coetcd::session session = co_await coetcd::session::open(client);
    coetcd::mutex mutex(session, "locks/counter");
    auto five_steps = [&](const coetcd::held_lock& held) { return job(client, held, 5); };
    const int counted = co_await coetcd::with_lock(mutex, five_steps);
    std::cout << "  it counted to " << counted << '\n';
    co_await session.close();

    std::cout << "A job whose lock is lost:" << std::endl;
    const coetcd::session_options brief(2s, "the job");
    coetcd::session doomed = co_await coetcd::session::open(client, brief);
    coetcd::mutex again(doomed, "locks/counter");
    asio::co_spawn(client.get_executor(),
                   sabotage(client, doomed.lease(), counted),
                   [](std::exception_ptr failure) {
                       if (failure) {
                           std::rethrow_exception(failure);
                       }
                   });
    bool told = false;
    auto endless = [&](const coetcd::held_lock& held) { return job(client, held, 1'000'000); };
    try {
        co_await coetcd::with_lock(again, endless);
    } catch (const coetcd::error& lost) {
        if (lost.code() != coetcd::condition::ownership_lost) {
            throw;
        }
        told = true;
        std::cout << "  it is cancelled: " << lost.what() << '\n';
    }
    co_await client.erase(counter);
    co_return counted == 5 && told;
}

} // namespace

int main(int argc, char** argv) {
    asio::io_context context;
    auto all = run(argc > 1 ? argv[1] : "http://127.0.0.1:2379");
    auto ended = asio::co_spawn(context, std::move(all), asio::use_future);
    context.run();
    return ended.get() ? 0 : 1;
}
