// Work for many consumers, any of which may die: an item is erased only when its work is done.
//
// Run: 18_work_queue [http://127.0.0.1:2379]
#include <coetcd.hpp>
#include <coetcd/work_queue.hpp>

#include <boost/asio.hpp>

#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace asio = boost::asio;

namespace {

asio::awaitable<void> run(std::string url) {
    coetcd::client client(co_await asio::this_coro::executor, url);
    coetcd::session fragile = co_await coetcd::session::open(client);
    coetcd::session session = co_await coetcd::session::open(client);
    coetcd::work_queue dying(fragile, "examples/mails");
    coetcd::work_queue mails(session, "examples/mails");
    std::vector<std::string> addresses = {"ada@example.com", "bob@example.com"};
    co_await mails.enqueue(std::move(addresses));

    const coetcd::job orphan = co_await dying.take();
    std::cout << "one consumer takes " << orphan.value() << ", and dies\n";
    co_await fragile.close();
    for (int i = 0; i != 2;) {
        coetcd::job next = co_await mails.take();
        if (next.value() == "bob@example.com" && next.attempt() == 1) {
            std::cout << "another one fails with " << next.value() << "\n";
            co_await next.retry();
            continue;
        }
        // The mark that it was sent, and its acknowledgement, are one transaction.
        auto sent = coetcd::txn().then(coetcd::op::put("examples/sent/" + next.value(), ""));
        const bool done = co_await next.ack(std::move(sent));
        std::cout << next.value() << ", attempt " << next.attempt() << ": "
                  << (done ? "sent\n" : "somebody else has it\n");
        ++i;
    }
    const coetcd::work_state now = co_await mails.state();
    std::cout << now.ready + now.busy + now.dead << " are left\n";
    co_await client.erase(coetcd::key_range::prefix("examples/sent/"));
    co_await session.close();
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
//   one consumer takes ada@example.com, and dies
//   another one fails with bob@example.com
//   bob@example.com, attempt 2: sent
//   ada@example.com, attempt 2: sent
//   0 are left
