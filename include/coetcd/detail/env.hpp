// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/endpoint.hpp>
#include <coetcd/detail/rpc.hpp>
#include <coetcd/error.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/address.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// The seam. All code above it sees the world through an `env`: time, sleep, chance and the
/// network. The default one, net/default_env.hpp, alone touches a clock, a timer, a random device
/// or a socket, but for net/srv_lookup.hpp; tests put a scripted or a simulated one in its place.
namespace coetcd::detail {

namespace asio = boost::asio;

/// Time that only an `env` can tell. It goes on while the machine is suspended.
struct env_clock {
    using duration = std::chrono::nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<env_clock>;
    static constexpr bool is_steady = true;
};
using time_point = env_clock::time_point;

/// `now + wait`, or the last time there is if that would overflow.
inline time_point after(time_point now, std::chrono::nanoseconds wait) {
    return wait > time_point::max() - now ? time_point::max() : now + wait;
}

/// The part of a user's duration that is ever waited for: it fits into nanoseconds.
template<class Duration>
Duration bounded(Duration d) {
    constexpr std::chrono::hours hundred_years(24 * 365 * 100);
    return std::min(d, std::chrono::duration_cast<Duration>(hundred_years));
}

/// Which connections a call may use. Renewals and the transactions of locks have their own: no
/// crowd of other calls can hold them up.
enum class connection_kind { shared, renewal, locks };

/// How the messages of a stream are sent.
enum class sending {
    duplex, ///< At any time, while the answers come.
    once    ///< Only the first one: what any proxy understands.
};

struct call_request {
    call_request(logic::endpoint where, rpc w, std::string json, time_point until)
        : to(std::move(where))
        , what(w)
        , body(std::move(json))
        , deadline(until)
        , latest(until) {}
    logic::endpoint to;
    rpc what;
    std::string body;
    time_point deadline; ///< For the answer, if it can be sent at once.
    /// For the answer, if the request has to wait for a connection of ours first: the endpoint is
    /// not to blame for that time.
    time_point latest;
    /// How long the request waits for a connection while none comes back from the endpoint. For a
    /// stream: how long sending may take, once there is a connection.
    std::chrono::nanoseconds patience = std::chrono::nanoseconds::max();
    connection_kind way = connection_kind::shared;
    sending how = sending::duplex; ///< For a stream.
    std::string token;             ///< The user's; empty for none. Not to be logged.
    std::string headers;           ///< More of them, each with the end of its line.
};

/// How a call, or the reading of one message of a stream, ended.
struct reply {
    error_code ec;     ///< Why no full answer came. `operation_aborted`: the caller was cancelled.
    std::string text;  ///< Details of `ec`, besides its message.
    bool sent = false; ///< Some of the request may have reached the server.
    /// When its first byte was about to leave, after all waits for a connection. Nothing: when the
    /// call began.
    std::optional<time_point> departed{};
    /// It was not sent because other calls of ours were in the way, and they were answered.
    bool crowded = false;
    unsigned status = 0; ///< HTTP; 0 if it is not known.
    std::string body;
    bool more = false;         ///< `body` is a piece of a message, with some of its events.
    asio::ip::address by;      ///< The address that answered and may be rated; else unspecified.
    std::size_t addresses = 1; ///< How many addresses of the endpoint may answer.
};

/// A request that stays open, with messages in both directions. Destruction closes it.
class stream {
public:
    virtual ~stream() = default;
    /// Sends a message. One caller at a time.
    virtual asio::awaitable<error_code> write(std::string json, time_point deadline) = 0;
    /// Waits for the next message, or a piece of one. A piece is a message by itself, with
    /// everything that comes before the events. One caller at a time. `asio::error::eof` is the
    /// regular end. If a message is `errc::too_large`, the body is its beginning; it is the last
    /// one.
    virtual asio::awaitable<reply> read() = 0;
    /// The bytes that have come so far, including those of an incomplete message; 0 if they are not
    /// counted.
    virtual std::uint64_t received() const { return 0; }
    /// Ends both directions: a `read` or `write` under way fails.
    virtual void close() = 0;
};

struct open_result {
    error_code ec;
    std::string text;               ///< Details of `ec`, besides its message.
    std::unique_ptr<stream> opened; ///< Not null if `ec` is clear.
};

/// A sleep that can be cut short.
class sleeper {
public:
    virtual ~sleeper() = default;
    /// Waits until `when`, a `wake`, or a cancellation; only the last gives `operation_aborted`.
    virtual asio::awaitable<error_code> sleep_until(time_point when) = 0;
    virtual void wake() = 0;
};

class env {
public:
    virtual ~env() = default;
    /// Where all handlers run. Not to be used from two threads at once.
    virtual asio::any_io_executor executor() const = 0;
    /// Whether this thread is in one of its handlers. Callable from anywhere.
    virtual bool is_home() const { return true; }
    /// Callable from anywhere.
    virtual time_point now() const = 0;
    virtual std::uint64_t random() = 0;
    virtual std::unique_ptr<sleeper> make_sleeper() = 0;
    /// One request, one answer, before the request's deadline. Cancelled: the connection is closed.
    virtual asio::awaitable<reply> call(call_request request) = 0;
    /// Opens a stream with its first message. It has no deadline, only the request's `patience`.
    virtual asio::awaitable<open_result> open(call_request request) = 0;
    /// Tells whether an answer was of use. If not, another address of that endpoint is preferred.
    virtual void
    rate(const logic::endpoint& /*of*/, const asio::ip::address& /*by*/, bool /*serves*/) {}
    /// Only these endpoints will be used, for now: what is kept for others may go.
    virtual void keep_only(const std::vector<logic::endpoint>& /*used*/) {}
};

} // namespace coetcd::detail
