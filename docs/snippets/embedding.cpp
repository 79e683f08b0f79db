// SPDX-License-Identifier: BSL-1.0
// What docs/pages/embedding.md shows.
#include <coetcd/client.hpp>
#include <coetcd/error.hpp>
#include <coetcd/log_observer.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/observer.hpp>
#include <coetcd/observers.hpp>
#include <coetcd/prometheus.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_future.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <future>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace manual {

namespace {

asio::awaitable<void> ship_order(const std::string& order) {
    std::cout << order << '\n';
    co_return;
}

} // namespace

void embedding_one_thread(const std::string& url) {
    asio::io_context context; // one thread runs it
    const coetcd::client client(context.get_executor(), url);
    context.run();
}

void embedding_several_threads(const std::string& url) {
    asio::io_context context; // several threads run it
    const coetcd::client client(asio::make_strand(context), url);
    context.run();
}

void embedding_pool(const std::string& url) {
    asio::thread_pool pool(4);
    {
        const coetcd::client client(pool.get_executor(), url); // makes a strand there
    }
    pool.join();
}

std::string embedding_from_a_thread(const coetcd::client& client) {
    auto answer = asio::co_spawn(client.get_executor(), client.get("prices/42"), asio::use_future);
    const std::optional<coetcd::key_value> price = answer.get(); // not on a thread of the client's
    return price ? price->value : "none";
}

void embedding_callback(coetcd::client client, coetcd::mutex& mutex) {
    asio::co_spawn(client.get_executor(), mutex.lock(), [](std::exception_ptr failure) {
        std::cout << (failure ? "failed\n" : "locked\n");
    });
}

void embedding_cancel(coetcd::client client,
                      coetcd::mutex& mutex,
                      asio::cancellation_signal& stop) {
    auto at_end = [](std::exception_ptr failure) {
        std::cout << (failure ? "cancelled, or failed\n" : "locked\n");
    };
    auto token = asio::bind_cancellation_slot(stop.slot(), std::move(at_end));
    asio::co_spawn(client.get_executor(), mutex.lock(), std::move(token));
    // And on the same executor: stop.emit(asio::cancellation_type::terminal);
}

asio::awaitable<void> embedding_named_first(coetcd::mutex& mutex, std::string order) {
    auto body = [order] { return ship_order(order); }; // named, not in the expression below
    co_await coetcd::with_lock(mutex, std::move(body));

    const bool got = co_await mutex.try_lock();
    if (got) {
        co_await mutex.unlock();
    }
}

/// Counts what an operator wants to know. For clients of any number of threads.
class embedding_counters final : public coetcd::observer {
public:
    void on_renewal(const coetcd::renewal_report& r) override {
        renewals_failed += r.outcome ? 1 : 0;
    }
    void on_session_end(const coetcd::session_report& r) override {
        const bool meant =
            r.reason == coetcd::session_end::closed || r.reason == coetcd::session_end::orphaned;
        sessions_lost += meant ? 0 : 1;
    }
    void on_lock_hold(const coetcd::lock_hold_report& r) override {
        locks_lost += r.lost() ? 1 : 0;
    }

    std::atomic<long> renewals_failed{0}, sessions_lost{0}, locks_lost{0};
};

namespace {

std::string begin_span(std::uint64_t id, std::string_view) {
    return std::to_string(id);
}
void end_span(std::uint64_t, const coetcd::error_code&) {}

} // namespace

class embedding_tracer final : public coetcd::observer {
public:
    void on_request_begin(const coetcd::request_begin_report& r,
                          coetcd::request_headers& more) override {
        const std::string parent = begin_span(r.id, r.rpc); // your tracing library's
        more.add("traceparent", parent);                    // for proxies
        more.add("Grpc-Metadata-traceparent", parent);      // for etcd
    }
    void on_request(const coetcd::request_report& r) override { end_span(r.id, r.outcome); }
};

coetcd::client embedding_observed(asio::io_context& context,
                                  const std::string& url,
                                  std::shared_ptr<embedding_counters> counters) {
    coetcd::client_options options;
    options.observer = std::move(counters);
    coetcd::client client(context.get_executor(), url, options);
    return client;
}

coetcd::client_options embedding_ready_to_use() {
    coetcd::client_options options;
    auto metrics = std::make_shared<coetcd::prometheus_observer>();
    auto log = std::make_shared<coetcd::log_observer>(
        [](std::string_view line) { std::clog << "etcd: " << line << '\n'; });
    options.observer = std::make_shared<coetcd::observers>(std::move(log), metrics);
    return options;
}

} // namespace manual
