// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/env.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace support {

using coetcd::detail::time_point;

/// A world in which nothing happens by itself: time goes on only when all is idle, then straight to
/// the next event, and the network does what the test says. No sockets, no sleeps, no threads.
class scripted_env final : public coetcd::detail::env,
                           public std::enable_shared_from_this<scripted_env> {
public:
    /// What becomes of one request.
    struct fate {
        bool arrives = true;  ///< Else it is lost on the way.
        bool answered = true; ///< Else its answer is lost on the way.
        bool breaks = false;  ///< The connection ends when the answer should come; no answer.
        bool refused = false; ///< No connection: it is not even sent.
        std::chrono::nanoseconds late{0}; ///< It arrives that much later than usual.
    };

    /// A stream as the server sees it.
    class server_stream {
    public:
        explicit server_stream(coetcd::detail::env& world)
            : changed(world) {}
        std::deque<coetcd::detail::reply> messages; ///< For the client to read.
        std::uint64_t received = 0; ///< Bytes that have come to the client, as it counts them.
        bool ended = false;
        coetcd::detail::notifier changed;
        std::function<void()> on_close; ///< The client is gone.
    };

    /// `where` must outlive this object, and is run by nobody else.
    explicit scripted_env(boost::asio::io_context& where)
        : context(where) {}

    // The script.
    /// Serves a request that has arrived: sets status and body.
    std::function<void(const coetcd::detail::call_request&, coetcd::detail::reply&)> on_call;
    /// Serves a stream: its first message is in the request.
    std::function<void(const coetcd::detail::call_request&, std::shared_ptr<server_stream>)>
        on_open;
    /// Serves a further message of a stream.
    std::function<void(std::shared_ptr<server_stream>, const std::string&)> on_message;
    /// Decides over a request, before it leaves.
    std::function<fate(const coetcd::detail::call_request&)> decide;
    std::chrono::nanoseconds latency = std::chrono::milliseconds(2); ///< There and back.
    std::optional<std::uint64_t> always; ///< What chance says, each time, if it is broken.

    // The record.
    std::vector<coetcd::detail::call_request> calls;
    std::vector<coetcd::detail::sending> opened; ///< Streams, refused ones included.
    std::vector<std::vector<coetcd::detail::logic::endpoint>> kept; ///< See `keep_only`.

    /// Sends a line to the client.
    void push(const std::shared_ptr<server_stream>& to, std::string line);
    /// Sends something else.
    void push(const std::shared_ptr<server_stream>& to, coetcd::detail::reply message);
    /// Breaks all streams.
    void break_streams();

    /// Calls `fire` at a time. The returned number cancels it.
    std::uint64_t at(time_point when, std::function<void()> fire);
    void cancel(std::uint64_t event);

    /// Runs `body` to its end and rethrows what it throws. Fails if it can never end, or takes more
    /// than an hour of this world's time.
    void run(boost::asio::awaitable<void> body);
    /// Lets time pass.
    void pass(std::chrono::nanoseconds time);
    /// The process is stopped: the clock goes on, and nothing else does.
    void stall(std::chrono::nanoseconds time) { now_ += time; }

    boost::asio::io_context& context;

    boost::asio::any_io_executor executor() const override { return context.get_executor(); }
    time_point now() const override { return now_; }
    std::uint64_t random() override { return always ? *always : chance_(); }
    std::unique_ptr<coetcd::detail::sleeper> make_sleeper() override;
    boost::asio::awaitable<coetcd::detail::reply>
    call(coetcd::detail::call_request request) override;
    boost::asio::awaitable<coetcd::detail::open_result>
    open(coetcd::detail::call_request request) override;
    void keep_only(const std::vector<coetcd::detail::logic::endpoint>& used) override {
        kept.push_back(used);
    }

private:
    class virtual_sleeper;
    class client_stream;

    /// Runs handlers until all wait.
    void settle();
    /// Goes on to the next event.
    /// @returns False if there is none until `limit`.
    bool next_event(time_point limit);

    time_point now_ = time_point(std::chrono::hours(1000));
    /// By time, and then in the order in which they were made.
    std::map<std::pair<time_point, std::uint64_t>, std::function<void()>> events_;
    std::map<std::uint64_t, time_point> times_; ///< Of the events.
    std::uint64_t last_event_ = 0;
    std::mt19937_64 chance_{42};
    std::vector<std::weak_ptr<server_stream>> streams_;
};

} // namespace support
