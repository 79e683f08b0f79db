// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/net/clock.hpp>
#include <coetcd/detail/net/name_servers.hpp>
#include <coetcd/detail/net/system.hpp>
#include <coetcd/detail/wire/dns.hpp>
#include <coetcd/error.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/udp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Asks name servers. Not the system's resolver, which knows no SRV records and cannot be stopped.
/// All functions run on an executor that runs one handler at a time. Cancelled: they throw
/// `operation_aborted`.
namespace coetcd::detail::net {

/// How one question to one server ended.
struct dns_reply {
    error_code ec; ///< If set, no answer came.
    wire::dns_answer answer;
};

/// A number that nobody else knows.
inline std::uint16_t question_id() {
    return static_cast<std::uint16_t>(system::random());
}

namespace detail_dns {

/// Ends what waits on a socket, when its time is over.
template<class Socket>
watchdog closer(const asio::any_io_executor& executor, time_point deadline, Socket& socket) {
    return watchdog(executor, deadline, [&socket] {
        error_code ignored;
        socket.close(ignored);
    });
}

/// Ends a question: what failed because of the time limit has timed out.
inline void finish(dns_reply& r, const watchdog& limit) {
    if (r.ec && limit.fired()) {
        r.ec = errc::timed_out;
    } else if (r.ec == asio::error::operation_aborted) {
        throw_aborted();
    }
}

} // namespace detail_dns

/// One question in a datagram, from a port of its own. Datagrams that are no answer to it are
/// ignored.
inline asio::awaitable<dns_reply> ask_by_udp(asio::any_io_executor executor,
                                             name_server server,
                                             std::string name,
                                             bool extended,
                                             time_point deadline) {
    dns_reply result;
    asio::ip::udp::socket socket(executor);
    const asio::ip::udp::endpoint to(server.address, server.port);
    result.ec = system::open(socket, to.protocol());
    if (!result.ec) {
        socket.connect(to, result.ec); // it receives from nobody else then; nothing is sent
    }
    if (result.ec) {
        co_return result;
    }
    const watchdog limit = detail_dns::closer(executor, deadline, socket);
    const std::uint16_t id = question_id();
    const std::string query = wire::srv_query(name, id, extended);
    co_await socket.async_send(asio::buffer(query),
                               asio::redirect_error(asio::use_awaitable, result.ec));
    std::string datagram(4096, '\0'); // more than was asked for
    while (!result.ec && result.answer.what == wire::dns_answer::unrelated) {
        const std::size_t n = co_await socket.async_receive(
            asio::buffer(datagram), asio::redirect_error(asio::use_awaitable, result.ec));
        if (!result.ec) {
            result.answer = wire::srv_answer(std::string_view(datagram).substr(0, n), name, id);
        }
    }
    detail_dns::finish(result, limit);
    co_return result;
}

/// One question by TCP, for an answer of any size.
inline asio::awaitable<dns_reply> ask_by_tcp(asio::any_io_executor executor,
                                             name_server server,
                                             std::string name,
                                             time_point deadline) {
    dns_reply result;
    asio::ip::tcp::socket socket(executor);
    const asio::ip::tcp::endpoint to(server.address, server.port);
    result.ec = system::open(socket, to.protocol());
    if (result.ec) {
        co_return result;
    }
    const watchdog limit = detail_dns::closer(executor, deadline, socket);
    const std::uint16_t id = question_id();
    const std::string query = wire::srv_query(name, id, false);
    std::string text;
    wire::dns::put16(text, static_cast<std::uint16_t>(query.size()));
    text += query;
    co_await socket.async_connect(to, asio::redirect_error(asio::use_awaitable, result.ec));
    if (!result.ec) {
        co_await asio::async_write(
            socket, asio::buffer(text), asio::redirect_error(asio::use_awaitable, result.ec));
    }
    if (!result.ec) {
        text.resize(2);
        co_await asio::async_read(
            socket, asio::buffer(text), asio::redirect_error(asio::use_awaitable, result.ec));
    }
    if (!result.ec) {
        wire::dns_reader size(text);
        text.resize(size.read16());
        co_await asio::async_read(
            socket, asio::buffer(text), asio::redirect_error(asio::use_awaitable, result.ec));
    }
    if (!result.ec) {
        result.answer = wire::srv_answer(text, name, id);
    }
    detail_dns::finish(result, limit);
    co_return result;
}

/// When a lookup that begins now has to end.
inline time_point lookup_deadline(std::chrono::nanoseconds timeout) {
    return after(boot_clock::now(), timeout);
}

/// What the servers say of a name.
struct srv_lookup {
    error_code ec;    ///< If set, none of them has told: `errc::timed_out` or `errc::unavailable`.
    std::string text; ///< Who has answered, or what became of each server in the last round.
    std::vector<wire::srv_record> records; ///< Empty without an error: there are none.
};

namespace detail_dns {

/// Why a reply is of no use; empty if it is.
inline std::string trouble(const dns_reply& r) {
    using kind = wire::dns_answer;
    if (r.ec) {
        return r.ec == errc::timed_out ? "did not answer in time" : r.ec.message();
    }
    switch (r.answer.what) {
    case kind::found:
    case kind::absent:
        return "";
    case kind::refused:
        return std::string(wire::dns::words_of(r.answer.code));
    case kind::unrelated:
    case kind::malformed:
    case kind::truncated:
        break;
    }
    return "sent an answer that cannot be read";
}

} // namespace detail_dns

/// Asks one server after the other, several times.
/// @param patience For one question to one server.
inline asio::awaitable<srv_lookup> look_up_srv(asio::any_io_executor executor,
                                               std::vector<name_server> servers,
                                               std::string name,
                                               std::chrono::nanoseconds patience,
                                               time_point deadline) {
    constexpr int rounds = 3;
    srv_lookup result;
    for (int round = 0; round != rounds; ++round) {
        std::string told;
        for (const name_server& server : servers) {
            const time_point now = boot_clock::now();
            if (now >= deadline) {
                result.ec = errc::timed_out;
                co_return result;
            }
            // Few old servers do not understand an extended question: the next one is plain.
            const time_point limit = std::min(deadline, after(now, patience));
            dns_reply r = co_await ask_by_udp(executor, server, name, round == 0, limit);
            if (r.answer.what == wire::dns_answer::truncated) {
                const time_point then = after(boot_clock::now(), patience);
                r = co_await ask_by_tcp(executor, server, name, std::min(deadline, then));
            }
            const std::string trouble = detail_dns::trouble(r);
            if (trouble.empty()) {
                result.ec = {};
                result.text = server.text();
                result.records = std::move(r.answer.records);
                co_return result;
            }
            if (result.ec != errc::timed_out) {
                result.ec = r.ec == errc::timed_out ? errc::timed_out : errc::unavailable;
            }
            told += (told.empty() ? "" : ", ") + server.text() + " " + trouble;
            result.text = told;
        }
    }
    co_return result;
}

} // namespace coetcd::detail::net
