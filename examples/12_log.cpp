// A log of what a client does: two sessions contend for a lock, one of them loses its lease.
//
// Run: 12_log [http://127.0.0.1:2379]
#include <coetcd.hpp>

#include <boost/asio.hpp>

#include <chrono>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

double ms(std::chrono::nanoseconds time) {
    return std::chrono::duration<double, std::milli>(time).count();
}

/// Writes a line for what an operator wants to know: failures, and whatever ends. For one thread.
class logger final : public coetcd::observer {
public:
    void on_request(const coetcd::request_report& r) override {
        note(r.endpoint, std::string(r.rpc) + " failed", r.outcome);
    }
    void on_connection(const coetcd::connection_report& r) override {
        if (r.what == coetcd::connection_report::failed) {
            note(r.endpoint, "no connection", r.reason);
        } else {
            std::clog << "etcd: " << r.endpoint << ": connection " << coetcd::to_string(r.what)
                      << '\n';
        }
    }
    void on_session_end(const coetcd::session_report& r) override {
        std::clog << "etcd: session " << std::hex << r.lease << std::dec
                  << " has ended: " << coetcd::describe(r.reason) << '\n';
    }
    void on_lock_wait(const coetcd::lock_wait_report& r) override {
        std::clog << "etcd: " << (r.acquired ? "got" : "did not get") << " lock " << r.name
                  << " after " << ms(r.waited) << " ms\n";
    }
    void on_lock_hold(const coetcd::lock_hold_report& r) override {
        std::clog << "etcd: " << (r.lost ? "LOST" : "gave back") << " lock " << r.name << " after "
                  << ms(r.held) << " ms\n";
    }

private:
    /// Of an endpoint that fails and fails: the first time, and at the end how often.
    void note(std::string_view endpoint, const std::string& what, coetcd::error_code outcome) {
        long& failures = failures_[std::string(endpoint)];
        if (outcome && ++failures == 1) {
            std::clog << "etcd: " << endpoint << ": " << what << ": " << outcome.message() << '\n';
        }
        const long ended = outcome ? 0 : std::exchange(failures, 0);
        if (ended > 1) {
            std::clog << "etcd: " << endpoint << ": answers again, after " << ended
                      << " failures\n";
        }
    }

    std::map<std::string, long> failures_; // of each endpoint, in a row
};

asio::awaitable<void> run(std::string url) {
    coetcd::client_options options;
    options.observer = std::make_shared<logger>();
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
//   etcd: http://127.0.0.1:*: connection opened
//   ...
//   etcd: got lock locks/log after * ms
//   ...
//   etcd: did not get lock locks/log after * ms
//   ...
//   etcd: session * has ended: its lease expired or was revoked
//   etcd: LOST lock locks/log after * ms
//   ...
//   etcd: gave back lock locks/log after * ms
//   etcd: session * has ended: it was closed
//   ...
