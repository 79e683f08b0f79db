// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <boost/asio/any_io_executor.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace support {

/// A proxy on loopback whose traffic can be held up, lost and cut. It works on the executor, which
/// must be run by one thread. Its destruction closes all connections.
class tcp_proxy {
public:
    enum class traffic {
        pass,
        hold, ///< Kept; passed on later, even if its sender is gone by then.
        lose,
    };

    tcp_proxy(const boost::asio::any_io_executor& executor, std::uint16_t server_port);
    tcp_proxy(const tcp_proxy&) = delete;
    tcp_proxy& operator=(const tcp_proxy&) = delete;
    ~tcp_proxy();

    std::string url() const;

    // Of all connections, also of those to come.
    void requests(traffic t);
    void answers(traffic t);
    // Only of the connections that there are.
    void present_requests(traffic t);

    void cut();            ///< Closes all connections.
    void refuse(bool yes); ///< Connections to come.

    std::size_t accepted() const;         ///< Connections so far.
    std::size_t held_requests() const;    ///< Bytes held now.
    std::size_t passed_requests() const;  ///< Bytes so far.
    std::size_t received_answers() const; ///< Bytes so far, lost ones included.

private:
    struct state;
    std::shared_ptr<state> state_;
};

} // namespace support
