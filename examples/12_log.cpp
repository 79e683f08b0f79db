// A log of what a client does, for whoever has to explain it later: two sessions contend for a
// lock, one of them loses its lease.
//
// Run: 12_log [http://127.0.0.1:2379]
#include <coetcd.hpp>
#include <coetcd/log_observer.hpp>

#include <boost/asio.hpp>

#include <chrono>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

asio::awaitable<void> run(std::string url) {
    const auto write = [](std::string_view line) { std::clog << "etcd: " << line << '\n'; };
    coetcd::log_options which;
    which.every_lock = true; // besides the faults: this program has few locks
    coetcd::client_options options;
    options.observer = std::make_shared<coetcd::log_observer>(write, which);
    coetcd::client client(co_await asio::this_coro::executor, url, options);

    coetcd::session doomed = co_await coetcd::session::open(client, 2s);
    coetcd::session heir = co_await coetcd::session::open(client, 2s);
    coetcd::mutex first(doomed, "locks/log");
    coetcd::mutex second(heir, "locks/log");
    co_await first.lock();
    (void)co_await second.try_lock_for(50ms);
    co_await client.lease_revoke(doomed.lease()); // by an operator, say
    co_await second.lock();
    (void)co_await doomed.wait_lost();
    co_await second.unlock();
    co_await heir.close();
}

} // namespace

int main(int argc, char** argv) {
    asio::io_context context;
    auto all = run(argc > 1 ? argv[1] : "http://127.0.0.1:2379");
    auto ended = asio::co_spawn(context, std::move(all), asio::use_future);
    context.run();
    ended.get();
}

// Prints:
//   etcd: session *: opened, with a ttl of 2 s
//   etcd: session *: opened, with a ttl of 2 s
//   etcd: mutex "locks/log": got after * ms
//   etcd: mutex "locks/log": not got after * ms
//   ...
//   etcd: session *: ended: its lease expired or was revoked
//   etcd: mutex "locks/log": LOST, session_lost, after * ms; token *, session *
//   ...
//   etcd: mutex "locks/log": given back after * ms; token *, session *
//   etcd: session *: ended: it was closed
//   ...
