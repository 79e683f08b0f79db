// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <boost/asio/any_io_executor.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace support {

/// What is done to the bytes that a connection carries in one direction. In the words of toxiproxy,
/// where it has one. All at once, in this order.
class toxics {
public:
    toxics() {} // user-provided, so that this is no aggregate

    bool blackhole = false; ///< Bytes are lost, and the connection stays open.
    /// A request is passed on only when all of it is there, as by nginx unless told otherwise.
    bool whole_requests = false;
    bool hold = false; ///< Bytes are kept, and passed on later, even if their sender has gone.
    std::size_t corrupt_every = 0; ///< One byte in so many becomes zero; 0: none.
    std::string drop_chunks{};     ///< Chunks of a chunked answer that hold this are lost.
    std::size_t flood = 0;         ///< An HTTP answer of so many spaces instead; 0: no.
    std::optional<std::size_t> limit_data{};  ///< After so many bytes the connection is closed.
    std::optional<std::size_t> reset_after{}; ///< After so many bytes it is reset.
    std::chrono::milliseconds latency{0};
    std::chrono::milliseconds jitter{0};     ///< Up to so much is added. The order is kept.
    std::size_t slice = 0;                   ///< Passed on in pieces of this size; 0: whole.
    std::size_t bytes_per_second = 0;        ///< 0: no limit.
    std::chrono::milliseconds slow_close{0}; ///< An end is passed on so much later.
};

namespace traffic {

inline const toxics pass;
inline const toxics hold = [] {
    toxics t;
    t.hold = true;
    return t;
}();
inline const toxics whole = [] {
    toxics t;
    t.whole_requests = true;
    return t;
}();
inline const toxics lose = [] {
    toxics t;
    t.blackhole = true;
    return t;
}();

} // namespace traffic

/// A TCP proxy on loopback that does its traffic harm, as `toxics` says. It works on the executor,
/// which must be run by one thread. Its destruction closes all connections.
class tcp_proxy {
public:
    /// @param port Of the server, on loopback.
    tcp_proxy(const boost::asio::any_io_executor& executor, std::uint16_t port);
    /// @param address, port Of the server.
    /// @param source The address to reach it from; empty: the kernel's choice.
    tcp_proxy(const boost::asio::any_io_executor& executor,
              const std::string& address,
              std::uint16_t port,
              const std::string& source = {});
    tcp_proxy(const tcp_proxy&) = delete;
    tcp_proxy& operator=(const tcp_proxy&) = delete;
    ~tcp_proxy();

    std::string url() const;

    // Of all connections, also of those to come. What they carried before does not count.
    void requests(const toxics& t);
    void answers(const toxics& t);
    // Only of the connections that there are.
    void present_requests(const toxics& t);
    void present_answers(const toxics& t);

    /// The toxics of a connection to come, from how many there have been before it.
    using toxics_of = std::function<toxics(std::size_t)>;
    void future_requests(toxics_of f);
    void future_answers(toxics_of f);

    void refuse(bool yes); ///< Connections to come.
    void cut();            ///< Closes all connections.
    void heal();           ///< No more toxics; connections that have lost something are closed.

    // What has happened so far.
    class counters {
    public:
        counters() {}
        std::size_t accepted = 0;  ///< Connections.
        std::size_t swallowed = 0; ///< Bytes, by `blackhole` or for a flood.
        std::size_t corrupted = 0; ///< Bytes.
        std::size_t dropped_chunks = 0;
        std::size_t floods = 0;
        std::size_t closed = 0;           ///< Connections, by `limit_data`.
        std::size_t reset = 0;            ///< Connections, by `reset_after`.
        std::size_t delayed = 0;          ///< Bytes, by `latency` or `bytes_per_second`.
        std::size_t sliced = 0;           ///< Pieces.
        std::size_t passed = 0;           ///< Bytes.
        std::size_t passed_requests = 0;  ///< Bytes of requests, among these.
        std::size_t received_answers = 0; ///< Bytes, lost ones included.
        std::size_t whole_requests = 0;   ///< Requests passed on, by `whole_requests`.
    };
    const counters& count() const;
    /// Bytes that are kept now, by `hold`.
    std::size_t held_requests() const;

private:
    struct state;
    std::shared_ptr<state> state_;
};

} // namespace support
