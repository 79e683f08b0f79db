// A write that is refused because it comes too late: for whatever must not happen twice.
//
// A holder stands still for longer than its lock lasts, and then continues. Here its lease is
// revoked instead, behind its back. It still believes that it has the lock. What it writes is
// guarded by is_owner(): etcd refuses it.
//
// Run: 03_guard [http://127.0.0.1:2379]
#include <coetcd.hpp>

#include <boost/asio.hpp>

#include <chrono>
#include <iostream>
#include <string>
#include <utility>

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

asio::awaitable<void>
write_down(coetcd::client client, const coetcd::held_lock& held, std::string who) {
    coetcd::txn note =
        coetcd::txn().when(held.is_owner()).then(coetcd::op::put("examples/shipped", who));
    const coetcd::txn_response answer = co_await client.txn(std::move(note));
    std::cout << who << (answer.succeeded ? " has written\n" : " was refused\n");
}

asio::awaitable<void> run(std::string url) {
    coetcd::client client(co_await asio::this_coro::executor, url);
    coetcd::session slow = co_await coetcd::session::open(client, 60s);
    coetcd::session quick = co_await coetcd::session::open(client, 60s);
    coetcd::mutex first(slow, "examples/order");
    coetcd::mutex second(quick, "examples/order");

    const coetcd::held_lock late = co_await first.scoped_lock();
    co_await client.lease_revoke(slow.lease());
    const coetcd::held_lock next = co_await second.scoped_lock();
    std::cout << (late.owns_lock() && next.owns_lock() ? "both believe that they have the lock\n"
                                                       : "one knows better\n");
    co_await write_down(client, next, "the next holder");
    co_await write_down(client, late, "the late one");

    // Elsewhere a resource compares tokens: they grow from owner to owner.
    std::cout << "its token is " << (late.fencing_token() < next.fencing_token() ? "" : "not ")
              << "smaller\n";
    co_await quick.close();
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
//   both believe that they have the lock
//   the next holder has written
//   the late one was refused
//   its token is smaller
