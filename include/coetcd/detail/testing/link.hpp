// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/config.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/testing/process.hpp>
#include <coetcd/detail/testing/world.hpp>
#include <coetcd/error.hpp>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>

namespace coetcd::detail::testing {

/// A stream, with both of its ends.
class link : public std::enable_shared_from_this<link> {
public:
    link(process& by, int to, sending how);
    const process& by() const { return of_; }

    // For the server.
    /// Sends a message to the client, after all before it.
    void push(std::string line);
    /// The same, in pieces if it is large.
    void push(reply message);
    /// Ends the stream, after all messages before it.
    void drop();
    /// The server's number for it; 0 for none.
    std::uint64_t server = 0;
    etcd* with = nullptr; ///< The etcd that has this number.
    /// Whether the server wants to receive what comes.
    bool accepted = false;
    const int member;
    const bool once; ///< Whether the client has sent everything.

    // For the network.
    /// The client reads a message.
    void arrive(reply message);
    /// The client reads that the stream is over; nothing more comes.
    void end(error_code ec);
    std::uint64_t received = 0; ///< Bytes, if they are counted.

private:
    friend class process;
    nanoseconds next(nanoseconds last);
    void push_whole(reply message);
    void send(std::string messages);
    void close_at_server();

    world& in_;
    process& of_;
    std::deque<reply> lines_;
    std::shared_ptr<suspension> reader_;
    bool over_ = false;
    bool silent_ = false;
    error_code why_;
    nanoseconds down_{0};
    nanoseconds up_{0};
};

} // namespace coetcd::detail::testing
