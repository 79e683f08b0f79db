// For servers, which outlive their sessions: a session_keeper opens the next one, and requests wait
// for it.
//
// Run: 09_session_keeper [http://127.0.0.1:2379]
#include <coetcd.hpp>

#include <boost/asio.hpp>

#include <chrono>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

asio::awaitable<void> ship_order() {
    std::cout << "shipped\n";
    co_return;
}

asio::awaitable<void> run(std::string url) {
    coetcd::client client(co_await asio::this_coro::executor, url);
    coetcd::session_keeper sessions(client);
    co_await coetcd::with_lock(sessions, "examples/42", ship_order);

    const std::shared_ptr<const coetcd::session> lost = co_await sessions.wait_live(2s);
    co_await client.lease_revoke(lost->lease()); // as after an outage of etcd
    const auto next = co_await sessions.wait_changed(lost);
    std::cout << (next != lost ? "the session is lost\n" : "the session lives on\n");

    const bool ran = co_await coetcd::with_lock_for(sessions, "examples/43", 5s, ship_order);
    std::cout << (ran ? "in another session\n" : "not shipped in time\n");
    co_await sessions.close();
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
//   shipped
//   the session is lost
//   shipped
//   in another session
