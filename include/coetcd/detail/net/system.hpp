// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/env.hpp>

#include <boost/asio/ip/tcp.hpp>
#include <boost/system/error_code.hpp>

#include <chrono>
#include <cstdint>
#include <ctime>
#include <random>

#ifdef _WIN32
#include <winsock2.h>
#include <ws2tcpip.h>
#else
#include <cerrno>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>
#if __has_include(<sys/random.h>)
#include <sys/random.h>
#endif
#endif

/// What systems call by different names. No other file but new_file.hpp includes system headers.
namespace coetcd::detail::net::system {

using asio::ip::tcp;

/// A random number from the system: what a processor gives by itself has been a constant after a
/// suspend. The system is asked each time, so that a forked process does not draw its parent's
/// numbers.
inline std::uint64_t random() {
    std::uint64_t number = 0;
#ifdef _WIN32
    std::random_device device; // RtlGenRandom
#else
#if __has_include(<sys/random.h>)
    if (::getentropy(&number, sizeof number) == 0) { // getrandom(2), on Linux
        return number;
    }
#endif
    std::random_device device("/dev/urandom");
#endif
    number = device();
    return (number << 32) | device();
}

/// The time since some moment in the past; where there is such a clock, it includes all suspends.
inline std::chrono::nanoseconds uptime() noexcept {
#ifdef CLOCK_BOOTTIME
    std::timespec t{};
    if (::clock_gettime(CLOCK_BOOTTIME, &t) == 0) { // not in every sandbox
        return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
    }
#endif
    return std::chrono::steady_clock::now().time_since_epoch();
}

template<class Socket>
void set_int(Socket& socket, int level, int name, int value) {
#ifdef _WIN32
    const char* const bytes = reinterpret_cast<const char*>(&value);
#else
    const int* const bytes = &value;
#endif
    // A system that lacks the option is no reason to fail: deadlines hold without it.
    (void)::setsockopt(socket.native_handle(), level, name, bytes, sizeof value);
}

/// Opens a socket that programs started by the user, perhaps at this very moment, do not inherit:
/// they would keep our connections open.
template<class Socket>
error_code open(Socket& socket, const typename Socket::protocol_type& protocol) {
    error_code ec;
#if defined(_WIN32)
    const SOCKET made = ::WSASocketW(protocol.family(),
                                     protocol.type(),
                                     protocol.protocol(),
                                     nullptr,
                                     0,
                                     WSA_FLAG_OVERLAPPED | WSA_FLAG_NO_HANDLE_INHERIT);
    if (made == INVALID_SOCKET) {
        return error_code(::WSAGetLastError(), boost::system::system_category());
    }
    socket.assign(protocol, made, ec);
    if (ec) {
        ::closesocket(made);
    }
#elif defined(SOCK_CLOEXEC)
    const int made =
        ::socket(protocol.family(), protocol.type() | SOCK_CLOEXEC, protocol.protocol());
    if (made < 0) {
        return error_code(errno, boost::system::system_category());
    }
    socket.assign(protocol, made, ec);
    if (ec) {
        ::close(made);
    }
#else
    socket.open(protocol, ec);
    if (!ec) {
        (void)::fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
    }
#endif
#ifdef SO_NOSIGPIPE
    set_int(socket, SOL_SOCKET, SO_NOSIGPIPE, 1);
#endif
    return ec;
}

/// Lets the system notice within seconds that a peer has vanished, even while nothing is sent.
inline void tune(tcp::socket& socket) {
    set_int(socket, IPPROTO_TCP, TCP_NODELAY, 1);
    set_int(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
#ifdef TCP_USER_TIMEOUT
    set_int(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 10'000); // milliseconds
#endif
#ifdef TCP_KEEPIDLE
    set_int(socket, IPPROTO_TCP, TCP_KEEPIDLE, 4); // seconds
    set_int(socket, IPPROTO_TCP, TCP_KEEPINTVL, 2);
    set_int(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
#endif
}

} // namespace coetcd::detail::net::system
