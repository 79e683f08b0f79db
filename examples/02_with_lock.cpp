// Work that stops when its lock is lost: for jobs that take longer than a moment.
//
// The first job is left alone. During the second one its lease is revoked, as if the process had
// been cut off from etcd: with_lock cancels the job, waits for its end, and reports the loss.
//
// Run: 02_with_lock [http://127.0.0.1:2379]
#include <coetcd.hpp>

#include <boost/asio.hpp>

#include <chrono>
#include <iostream>
#include <string>
#include <utility>

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

/// A cancelled co_await throws operation_aborted: that ends the job wherever it is.
asio::awaitable<int> count_to(int end) {
    asio::steady_timer pause(co_await asio::this_coro::executor);
    int now = 0;
    while (now != end) {
        ++now;
        pause.expires_after(10ms);
        co_await pause.async_wait(asio::use_awaitable);
    }
    co_return now;
}

asio::awaitable<void> run(std::string url) {
    coetcd::client client(co_await asio::this_coro::executor, url);
    coetcd::session session = co_await coetcd::session::open(client);
    coetcd::mutex mutex(session, "examples/counter");

    const int counted = co_await coetcd::with_lock(mutex, [] { return count_to(5); });
    std::cout << "the first job counted to " << counted << '\n';

    const coetcd::lease_id lease = session.lease();
    auto endless = [&](const coetcd::held_lock&) -> asio::awaitable<int> {
        co_await client.lease_revoke(lease); // by an operator, say
        const int never = co_await count_to(1'000'000);
        co_return never;
    };
    try {
        co_await coetcd::with_lock(mutex, endless);
    } catch (const coetcd::error& lost) {
        const bool ours = lost.code() == coetcd::condition::ownership_lost;
        std::cout << "the second one was cancelled: " << (ours ? "its lock was lost" : lost.what())
                  << '\n';
    }
}

} // namespace

int main(int argc, char** argv) {
    asio::io_context context;
    auto story = run(argc > 1 ? argv[1] : "http://127.0.0.1:2379");
    auto ended = asio::co_spawn(context, std::move(story), asio::use_future);
    context.run();
    ended.get();
}

// Prints:
//   the first job counted to 5
//   the second one was cancelled: its lock was lost
