// A service of several instances, as a team would begin one: HTTP on a pool of threads, a lock for
// each order, one leader among the instances, metrics, and an orderly end on SIGTERM or SIGINT.
//
//     POST /orders/42   ships an order once, however many requests for it arrive at the same time
//     GET  /health      200 if there is a session, and whether its renewals fail; else 503, and why
//     GET  /metrics     numbers
//
// While etcd is away requests wait for as long as their patience lasts; the service keeps running.
//
// Run: service [http://127.0.0.1:2379 [PORT]]
//
// It prints the port, which is a free one if none is given.
#include <coetcd.hpp>

#include <boost/asio.hpp>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "http.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using web::status;

namespace {

constexpr auto ttl = 5s;          // what an instance that dies leaves locked is free after that
constexpr auto patience = 20s;    // of a request, for a session and its lock together
constexpr auto last_moment = 10s; // for requests that are under way at the end

/// What the library tells, and the service adds, as numbers. For all threads.
class metrics final : public coetcd::observer {
public:
    void on_session_end(const coetcd::session_report&) override { ++sessions_ended; }
    void on_lock_wait(const coetcd::lock_wait_report& r) override {
        ++(r.acquired ? locks : locks_missed);
    }
    void on_lock_hold(const coetcd::lock_hold_report& r) override {
        locks_lost += r.lost() ? 1 : 0;
    }

    std::string text() const {
        std::ostringstream out;
        out << "sessions_ended " << sessions_ended << "\nlocks " << locks << "\nlocks_missed "
            << locks_missed << "\nlocks_lost " << locks_lost << "\nleads " << leads;
        return out.str();
    }

    std::atomic<long> sessions_ended{0}, locks{0}, locks_missed{0}, locks_lost{0}, leads{0};
};

coetcd::client_options observed_by(std::shared_ptr<coetcd::observer> observer) {
    coetcd::client_options options;
    options.observer = std::move(observer);
    return options;
}

class service {
public:
    service(asio::any_io_executor pool, const std::string& url, int port)
        : pool_(std::move(pool))
        , strand_(asio::make_strand(pool_))
        , acceptor_(strand_, web::loopback(port))
        , name_("instance " + std::to_string(acceptor_.local_endpoint().port()))
        , client_(pool_, url, observed_by(metrics_))
        , sessions_(client_, coetcd::session_keeper_options(ttl, name_))
        , requests_(client_)
        , duties_(client_) {
        std::cout << "listening on " << acceptor_.local_endpoint() << std::endl;
    }

    /// Serves until a signal comes.
    void run() { asio::co_spawn(strand_, serve(), asio::use_future).get(); }

private:
    asio::awaitable<void> serve() {
        auto handler = [this](web::request r) { return handle(std::move(r)); };
        requests_.spawn(strand_, web::serve_all(acceptor_, pool_, requests_, handler));
        duties_.spawn(asio::make_strand(pool_), lead());
        asio::signal_set signals(strand_, SIGTERM, SIGINT);
        co_await signals.async_wait(asio::use_awaitable);

        acceptor_.close();
        const std::size_t cut_off = co_await requests_.shutdown(last_moment);
        co_await duties_.shutdown(0s); // resigns: another instance leads at once
        const auto closed = co_await coetcd::as_result(sessions_.close());
        say("ends; requests cut off: " + std::to_string(cut_off));
        if (!closed) {
            say("etcd is away, its locks end by themselves: " + closed.error().text());
        }
    }

    void say(const std::string& what) const { std::clog << name_ + ": " + what + "\n"; }

    asio::awaitable<web::response> handle(web::request r) {
        const std::string target(r.target());
        if (target == "/health") {
            const std::optional<coetcd::error> trouble = sessions_.trouble();
            if (trouble) {
                co_return web::reply(status::service_unavailable, trouble->what());
            }
            const std::shared_ptr<const coetcd::session> session = sessions_.current();
            const bool well = session && session->state() == coetcd::session_state::active;
            co_return web::reply(status::ok, well ? "well" : "degraded: renewals fail");
        }
        if (target == "/metrics") {
            co_return web::reply(status::ok, metrics_->text());
        }
        const std::string id = target.starts_with("/orders/") ? target.substr(8) : "";
        if (r.method() != web::http::verb::post || id.empty()) {
            co_return web::reply(status::not_found, "POST /orders/<id>");
        }
        std::string why = "others have the lock";
        auto body = [this, id](const coetcd::held_lock& held) { return ship(id, held); };
        try {
            std::optional<web::response> answer = co_await coetcd::with_lock_for(
                sessions_, coetcd::lock_name("orders", id), patience, std::move(body));
            if (answer) {
                co_return std::move(*answer);
            }
        } catch (const coetcd::error& e) {
            why = e.what(); // whether the order is shipped or not, the next request will tell
        }
        say("order " + coetcd::printable(id) + ": " + why);
        co_return web::reply(status::service_unavailable, "please try again: " + why);
    }

    asio::awaitable<web::response> ship(std::string id, const coetcd::held_lock& held) {
        const std::string key = coetcd::lock_name("shipped", id);
        const std::optional<coetcd::key_value> before = co_await client_.get(key);
        if (before) {
            co_return web::reply(status::ok, "shipped before, by " + before->value);
        }
        co_await web::pause(500ms); // it is packed, which does no harm should it happen twice
        coetcd::txn note = coetcd::txn().when(held.is_owner()).then(coetcd::op::put(key, name_));
        const coetcd::txn_response noted = co_await client_.txn(std::move(note));
        co_return noted.succeeded
            ? web::reply(status::created, "shipped by " + name_)
            : web::reply(status::service_unavailable, "please try again: the lock was lost");
    }

    /// Campaigns, leads, and campaigns again, until it is cancelled.
    asio::awaitable<void> lead() {
        coetcd::lead_options how;
        how.ttl = ttl;
        how.again = coetcd::again::always;
        auto duty = [this](const coetcd::leadership& term) { return sweep(term); };
        for (;;) {
            auto leading = coetcd::lead(client_, "service/leader", name_, duty, how);
            const auto ended = co_await coetcd::as_result(std::move(leading));
            say("does not campaign: " + ended.error().text()); // etcd refuses, or we end
            co_await web::pause(5s);
        }
    }

    /// What one instance does for all.
    asio::awaitable<void> sweep(const coetcd::leadership& term) {
        const std::shared_ptr<void> at_end(nullptr, [this](void*) { metrics_->leads = 0; });
        metrics_->leads = 1;
        say("leads, term " + std::to_string(term.term()));
        for (;;) {
            coetcd::txn note =
                coetcd::txn().when(term.is_leader()).then(coetcd::op::put("service/swept", name_));
            (void)co_await coetcd::as_result(client_.txn(std::move(note))); // or the next time
            co_await web::pause(1s);
        }
    }

    const asio::any_io_executor pool_;
    const asio::any_io_executor strand_; // of the acceptor and of the end
    web::tcp::acceptor acceptor_;
    const std::string name_;
    const std::shared_ptr<metrics> metrics_ = std::make_shared<metrics>();
    coetcd::client client_;
    coetcd::session_keeper sessions_; // one session for all requests; a new one when it is lost
    coetcd::task_group requests_;
    coetcd::task_group duties_;
};

} // namespace

int main(int argc, char** argv) {
    asio::thread_pool pool(4);
    {
        const char* const url = argc > 1 ? argv[1] : "http://127.0.0.1:2379";
        service one(pool.get_executor(), url, argc > 2 ? std::atoi(argv[2]) : 0);
        one.run();
    }
    pool.join();
}

// Prints:
//   listening on 127.0.0.1:*
