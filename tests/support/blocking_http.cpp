// SPDX-License-Identifier: BSL-1.0
#include "support/blocking_http.hpp"

#include <arpa/inet.h>
#include <array>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

namespace support {

sockaddr_in ipv4(const std::string& address, std::uint16_t port) {
    sockaddr_in result{};
    result.sin_family = AF_INET;
    result.sin_port = htons(port);
    ::inet_pton(AF_INET, address.c_str(), &result.sin_addr);
    return result;
}

tcp_socket::tcp_socket()
    : handle_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}

tcp_socket::~tcp_socket() {
    ::close(handle_);
}

bool tcp_socket::bind(const sockaddr_in& address) {
    const int on = 1; // as etcd does: connections in TIME_WAIT are no obstacle
    ::setsockopt(handle_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    return ::bind(handle_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

std::string blocking_http(const blocking_request& request) {
    tcp_socket socket;
    const timeval timeout{1, 0}; // also for connect
    ::setsockopt(socket.handle(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    ::setsockopt(socket.handle(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
    if (!request.source.empty() && !socket.bind(ipv4(request.source, 0))) {
        return {};
    }
    // HTTP/1.0, so that the answer is not sent in chunks.
    const auto text =
        (request.body.empty() ? "GET " : "POST ") + request.path +
        " HTTP/1.0\r\nHost: localhost\r\nContent-Length: " + std::to_string(request.body.size()) +
        "\r\n\r\n" + request.body;
    std::string answer;
    if (::connect(socket.handle(),
                  reinterpret_cast<const sockaddr*>(&request.server),
                  sizeof(request.server)) == 0 &&
        ::send(socket.handle(), text.data(), text.size(), MSG_NOSIGNAL) > 0) {
        std::array<char, 4096> block;
        ssize_t n = 0;
        while ((n = ::recv(socket.handle(), block.data(), block.size(), 0)) > 0) {
            answer.append(block.data(), static_cast<std::size_t>(n));
        }
    }
    return answer;
}

} // namespace support
