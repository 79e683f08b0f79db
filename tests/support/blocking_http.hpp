// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <netinet/in.h>
#include <string>

namespace support {

/// An IPv4 address, in dots, and a port.
sockaddr_in ipv4(const std::string& address, std::uint16_t port);

/// A TCP socket of one's own that blocks.
class tcp_socket {
public:
    tcp_socket();
    tcp_socket(const tcp_socket&) = delete;
    tcp_socket& operator=(const tcp_socket&) = delete;
    ~tcp_socket();
    int handle() const { return handle_; }
    bool bind(const sockaddr_in& address);

private:
    int handle_;
};

/// A request of which the caller's thread awaits the answer, for a second at most between any two
/// bytes: a GET, or with a body a POST.
struct blocking_request {
    sockaddr_in server{};
    std::string path{};
    std::string body{};
    std::string source{}; ///< The address to send it from; empty: the kernel's choice.
};

/// @returns The answer with its header; what there is of it if it breaks off, so perhaps nothing.
std::string blocking_http(const blocking_request& request);

} // namespace support
