// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <boost/asio/any_io_executor.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace support {

/// An HTTP/1.1 reverse proxy on loopback that passes a request on only when it has all of it, as
/// nginx does unless told otherwise; answers it passes on as they come. It works on the executor,
/// which must be run by one thread. Its destruction closes all connections.
class buffering_proxy {
public:
    buffering_proxy(const boost::asio::any_io_executor& executor, std::uint16_t server_port);
    buffering_proxy(const buffering_proxy&) = delete;
    buffering_proxy& operator=(const buffering_proxy&) = delete;
    ~buffering_proxy();

    std::string url() const;

    void cut(); ///< Closes all connections.

    std::size_t accepted() const;  ///< Connections so far.
    std::size_t passed_on() const; ///< Requests so far.

private:
    struct state;
    std::shared_ptr<state> state_;
};

} // namespace support
