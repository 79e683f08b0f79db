// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/endpoint.hpp>
#include <coetcd/detail/wire/line_splitter.hpp>

#include <boost/asio/error.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace coetcd::detail::net {

/// The most bytes that an answer may have.
struct limits {
    std::uint32_t header = 8 * 1024;
    /// For a whole answer, or a message of a stream; if that has many events, for one of them.
    std::size_t body = 4 * 1024 * 1024;
    /// A message with more is read in pieces.
    std::size_t piece = wire::line_splitter::usual_piece;
};

/// Whether the peer ended a connection without saying more.
inline bool is_hang_up(const error_code& ec) {
    return ec == asio::error::eof || ec == asio::error::connection_reset ||
           ec == asio::error::broken_pipe || ec == asio::error::connection_aborted;
}

/// One connection to an endpoint, plain or secure: for requests one after the other, or for one
/// that stays open. After any failure it is of no further use. Outlives its operations.
class connection {
public:
    virtual ~connection() = default;
    /// Sends one request and reads the whole answer, even one that comes before the request is out.
    virtual asio::awaitable<reply> exchange(std::string request) = 0;
    /// Whether `exchange` may be called again.
    virtual bool reusable() const = 0;
    /// Whether an idle connection is still open, and silent as it should be. Only while it is idle.
    virtual bool is_quiet() = 0;
    /// Sends bytes of a request that stays open.
    virtual asio::awaitable<error_code> write(std::string bytes) = 0;
    /// Reads the next message of an answer that stays open: one line, or a piece of one. The end is
    /// `asio::error::eof`; an unterminated last line comes before it. If a line is too large, only
    /// its beginning is there.
    virtual asio::awaitable<reply> read_line() = 0;
    /// The bytes that have come so far.
    virtual std::uint64_t received() const = 0;
    /// Ends what is under way. Does not wait, and says nothing to the peer.
    virtual void close() = 0;

    asio::ip::address peer;          ///< Where it leads.
    std::size_t addresses = 1;       ///< How many addresses its host had.
    time_point heard{};              ///< When it was made, or brought its last answer.
    std::shared_ptr<const void> end; ///< Destroyed with the connection.
};

struct connect_result {
    error_code ec;
    std::string text;                      ///< Details of `ec`, besides its message.
    std::unique_ptr<connection> connected; ///< Not null if `ec` is clear.
};

} // namespace coetcd::detail::net

namespace coetcd {

/// Makes connections secure. The only implementation comes from <coetcd/tls.hpp>, so that nothing
/// else needs OpenSSL.
class tls_context {
public:
    virtual ~tls_context() = default;
    /// Takes a connected socket, which must not block, and verifies the peer at its other end.
    /// @param to The endpoint to expect there.
    virtual boost::asio::awaitable<detail::net::connect_result>
    secure(boost::asio::ip::tcp::socket socket,
           detail::logic::endpoint to,
           detail::net::limits most,
           detail::time_point deadline) const = 0;
};

} // namespace coetcd
