// What a client does, as metrics for Prometheus: GET /metrics on the port that it prints.
//
// Meanwhile it takes and gives back a lock, ten times a second. Ends on SIGTERM or SIGINT.
//
// Run: prometheus [http://127.0.0.1:2379]
#include <coetcd.hpp>

#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include <chrono>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using namespace std::chrono_literals;
using asio::ip::tcp;

namespace {

double seconds(std::chrono::nanoseconds time) {
    return std::chrono::duration<double>(time).count();
}

/// Sums up what it is told. For clients of one thread.
class metrics final : public coetcd::observer {
public:
    void on_request(const coetcd::request_report& r) override {
        const std::string labels = "{rpc=\"" + std::string(r.rpc) + "\",endpoint=\"" +
                                   std::string(r.endpoint) + "\",outcome=\"" +
                                   (r.outcome ? "failure" : "success") + "\"}";
        add("coetcd_request_seconds", labels, seconds(r.latency));
        counters_["coetcd_retries_total"] += r.attempt > 0 ? 1 : 0;
    }
    void on_connection(const coetcd::connection_report& r) override {
        counters_["coetcd_connections_opened_total"] += r.what == r.opened ? 1 : 0;
        counters_["coetcd_connections_failed_total"] += r.what == r.failed ? 1 : 0;
        gauges_["coetcd_connections"] += r.what == r.opened ? 1 : r.what == r.closed ? -1 : 0;
    }
    void on_renewal(const coetcd::renewal_report& r) override {
        gauges_["coetcd_renewal_margin_seconds"] = seconds(r.margin);
        counters_["coetcd_renewals_failed_total"] += r.outcome ? 1 : 0;
    }
    void on_session_end(const coetcd::session_report& r) override {
        counters_["coetcd_sessions_lost_total"] += r.reason == coetcd::session_end::closed ? 0 : 1;
    }
    void on_lock_wait(const coetcd::lock_wait_report& r) override {
        const char* const labels = r.acquired ? "{outcome=\"acquired\"}" : "{outcome=\"not\"}";
        add("coetcd_lock_wait_seconds", labels, seconds(r.waited));
    }
    void on_lock_hold(const coetcd::lock_hold_report& r) override {
        add("coetcd_lock_hold_seconds", "", seconds(r.held));
        counters_["coetcd_locks_lost_total"] += r.lost ? 1 : 0;
    }

    /// In Prometheus' text format.
    std::string text() const {
        std::ostringstream out;
        for (const auto& [name, series] : sums_) {
            out << "# TYPE " << name << " summary\n";
            for (const auto& [labels, s] : series) {
                out << name << "_sum" << labels << ' ' << s.sum << '\n';
                out << name << "_count" << labels << ' ' << s.count << '\n';
            }
        }
        for (const auto& [name, value] : counters_) {
            out << "# TYPE " << name << " counter\n" << name << ' ' << value << '\n';
        }
        for (const auto& [name, value] : gauges_) {
            out << "# TYPE " << name << " gauge\n" << name << ' ' << value << '\n';
        }
        return out.str();
    }

private:
    struct sum {
        double sum = 0;
        long count = 0;
    };
    void add(const std::string& name, const std::string& labels, double value) {
        sum& s = sums_[name][labels];
        s.sum += value;
        ++s.count;
    }
    std::map<std::string, std::map<std::string, sum>> sums_; // by name and labels
    std::map<std::string, long> counters_;
    std::map<std::string, double> gauges_;
};

asio::awaitable<void> answer(tcp::socket peer, std::shared_ptr<const metrics> shown) {
    beast::flat_buffer buffer;
    http::request<http::empty_body> request;
    co_await http::async_read(peer, buffer, request, asio::use_awaitable);
    const bool known = request.target() == "/metrics";
    http::response<http::string_body> response(known ? http::status::ok : http::status::not_found,
                                               request.version());
    response.set(http::field::content_type, "text/plain; version=0.0.4");
    response.body() = known ? shown->text() : "GET /metrics\n";
    response.keep_alive(false);
    response.prepare_payload();
    co_await http::async_write(peer, response, asio::use_awaitable);
}

asio::awaitable<void> serve(tcp::acceptor& acceptor, std::shared_ptr<const metrics> shown) {
    for (;;) {
        tcp::socket peer = co_await acceptor.async_accept(asio::use_awaitable);
        asio::co_spawn(acceptor.get_executor(), answer(std::move(peer), shown), asio::detached);
    }
}

asio::awaitable<void> work(std::string url, std::shared_ptr<coetcd::observer> observer) {
    coetcd::client_options options;
    options.observer = std::move(observer);
    coetcd::client client(co_await asio::this_coro::executor, url, options);
    coetcd::session session = co_await coetcd::session::open(client, 5s);
    coetcd::mutex mutex(session, "locks/prometheus");
    asio::steady_timer pause(client.get_executor());
    for (;;) {
        co_await mutex.lock();
        pause.expires_after(100ms);
        co_await pause.async_wait(asio::use_awaitable);
        co_await mutex.unlock();
    }
}

} // namespace

int main(int argc, char** argv) {
    asio::io_context context;
    const auto shown = std::make_shared<metrics>();
    tcp::acceptor acceptor(context, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    std::cout << "listening on 127.0.0.1:" << acceptor.local_endpoint().port() << std::endl;

    asio::cancellation_signal stop;
    asio::signal_set signals(context, SIGTERM, SIGINT);
    signals.async_wait([&](auto, int) {
        acceptor.close();
        stop.emit(asio::cancellation_type::terminal);
    });
    asio::co_spawn(context, serve(acceptor, shown), asio::detached);
    asio::co_spawn(context,
                   work(argc > 1 ? argv[1] : "http://127.0.0.1:2379", shown),
                   asio::bind_cancellation_slot(stop.slot(), [&](std::exception_ptr failure) {
                       try {
                           std::rethrow_exception(failure);
                       } catch (const std::exception& e) {
                           std::clog << "the work has ended: " << e.what() << '\n';
                       }
                   }));
    context.run();
}
