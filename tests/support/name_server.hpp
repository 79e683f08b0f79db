// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/udp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/system/error_code.hpp>
#include <boost/system/system_error.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/async.hpp"
#include "support/dns_message.hpp"

namespace support {

/// What a name server was asked.
struct name_question {
    std::string bytes; ///< The message.
    std::string name;
    bool tcp = false;
    bool extended = false;
    std::uint16_t port = 0; ///< The asker's.
};

/// A name server on a free port of loopback, by UDP and TCP, which answers as the test says. It
/// ends when it is destroyed.
class name_server {
public:
    /// The datagrams to send in answer, or what to send by TCP before the connection is closed.
    using answers = std::vector<std::string>;
    using rule = std::function<answers(const name_question&)>;

    name_server(const asio::any_io_executor& executor, rule how)
        : state_(make(executor)) {
        state_->how = std::move(how);
        asio::co_spawn(executor, serve_udp(state_), asio::detached);
        asio::co_spawn(executor, serve_tcp(state_), asio::detached);
    }
    name_server(const name_server&) = delete;
    name_server& operator=(const name_server&) = delete;
    ~name_server() { stop(); }

    /// For `srv_options::name_servers`.
    std::string address() const { return "127.0.0.1:" + std::to_string(state_->port); }
    std::vector<std::string> servers() const { return {address()}; }
    const std::vector<name_question>& asked() const { return state_->asked; }
    void answer_by(rule how) { state_->how = std::move(how); }

    /// Waits until it was asked so many questions.
    awaitable<void> until_asked(std::size_t n) {
        auto there = [s = state_, n]() -> awaitable<bool> { co_return s->asked.size() >= n; };
        return eventually(there, std::chrono::seconds(20), std::to_string(n) + " questions");
    }

    /// Nobody listens on its port any more.
    void stop() {
        boost::system::error_code ignored;
        state_->udp.close(ignored);
        state_->acceptor.close(ignored);
        for (auto& each : state_->guests) {
            each->close(ignored);
        }
    }

private:
    using tcp = asio::ip::tcp;
    using udp = asio::ip::udp;

    struct state {
        explicit state(const asio::any_io_executor& ex)
            : udp(ex)
            , acceptor(ex) {}
        asio::ip::udp::socket udp;
        tcp::acceptor acceptor;
        std::uint16_t port = 0;
        rule how;
        std::vector<name_question> asked;
        std::vector<std::shared_ptr<tcp::socket>> guests;
    };

    /// A port that is free for both.
    static std::shared_ptr<state> make(const asio::any_io_executor& ex) {
        const auto here = asio::ip::address_v4::loopback();
        const udp::endpoint any(here, 0);
        for (int i = 0;; ++i) {
            auto s = std::make_shared<state>(ex);
            s->udp.open(any.protocol());
            s->udp.bind(any);
            s->port = s->udp.local_endpoint().port();
            const tcp::endpoint same(here, s->port);
            boost::system::error_code ec;
            s->acceptor.open(same.protocol());
            s->acceptor.bind(same, ec);
            if (!ec) {
                s->acceptor.listen();
                return s;
            }
            if (i == 100) {
                throw boost::system::system_error(ec);
            }
        }
    }

    static answers answers_to(state& s, std::string bytes, bool by_tcp, std::uint16_t port) {
        name_question q;
        const dns_question parsed(bytes);
        q.name = parsed.name;
        q.tcp = by_tcp;
        q.extended = bytes.size() > parsed.end;
        q.bytes = std::move(bytes);
        q.port = port;
        s.asked.push_back(q);
        return s.how(q);
    }

    static awaitable<void> serve_udp(std::shared_ptr<state> s) {
        std::string buffer(4096, '\0');
        while (s->udp.is_open()) {
            boost::system::error_code ec;
            udp::endpoint from;
            const std::size_t n = co_await s->udp.async_receive_from(
                asio::buffer(buffer), from, asio::redirect_error(asio::use_awaitable, ec));
            if (ec) {
                continue;
            }
            const answers all = answers_to(*s, buffer.substr(0, n), false, from.port());
            for (const std::string& each : all) {
                s->udp.send_to(asio::buffer(each), from, 0, ec);
            }
        }
    }

    static awaitable<void> serve_tcp(std::shared_ptr<state> s) {
        while (s->acceptor.is_open()) {
            boost::system::error_code ec;
            tcp::socket accepted =
                co_await s->acceptor.async_accept(asio::redirect_error(asio::use_awaitable, ec));
            if (!ec) {
                auto guest = std::make_shared<tcp::socket>(std::move(accepted));
                s->guests.push_back(guest);
                asio::co_spawn(s->acceptor.get_executor(), converse(s, guest), asio::detached);
            }
        }
    }
    static awaitable<void> converse(std::shared_ptr<state> s, std::shared_ptr<tcp::socket> guest) {
        boost::system::error_code ec;
        std::string text(2, '\0');
        co_await asio::async_read(
            *guest, asio::buffer(text), asio::redirect_error(asio::use_awaitable, ec));
        text.resize(static_cast<unsigned char>(text[0]) * 256U +
                    static_cast<unsigned char>(text[1]));
        co_await asio::async_read(
            *guest, asio::buffer(text), asio::redirect_error(asio::use_awaitable, ec));
        if (ec) {
            co_return;
        }
        const std::uint16_t port = guest->remote_endpoint(ec).port();
        const answers all = answers_to(*s, std::move(text), true, port);
        for (const std::string& each : all) {
            co_await asio::async_write(
                *guest, asio::buffer(each), asio::redirect_error(asio::use_awaitable, ec));
        }
        if (!all.empty()) {
            guest->close(ec); // else it stays open, and silent
        }
    }

    const std::shared_ptr<state> state_;
};

/// The records that there are, by name.
using dns_zone = std::map<std::string, std::vector<dns_srv>>;

/// What a name server with these records says.
inline std::string dns_reply_from(const dns_zone& zone, const name_question& q) {
    const auto found = zone.find(q.name);
    if (found == zone.end()) {
        return dns_reply(q.bytes, dns_says | dns_nxdomain);
    }
    std::vector<std::string> records;
    for (const dns_srv& r : found->second) {
        records.push_back(r.record());
    }
    std::string whole = dns_reply(q.bytes, dns_says, records);
    if (!q.tcp && whole.size() > (q.extended ? 1232U : 512U)) {
        return dns_reply(q.bytes, dns_says | dns_truncated);
    }
    return q.tcp ? dns_number(static_cast<unsigned>(whole.size())) + whole : whole;
}

inline name_server::rule dns_from(dns_zone zone) {
    return [zone = std::move(zone)](const name_question& q) {
        return name_server::answers{dns_reply_from(zone, q)};
    };
}
inline name_server::answers dns_silent(const name_question&) {
    return {};
}
inline name_server::rule dns_with_flags(unsigned flags) {
    return [flags](const name_question& q) {
        return name_server::answers{dns_reply(q.bytes, dns_says | flags)};
    };
}

/// Work that begins when it is cancelled already.
template<class T>
awaitable<T> once_cancelled(awaitable<T> work) {
    co_await asio::this_coro::throw_if_cancelled(false);
    asio::steady_timer never(co_await asio::this_coro::executor, clock::time_point::max());
    boost::system::error_code ignored;
    co_await never.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    co_await asio::this_coro::throw_if_cancelled(true);
    co_return co_await std::move(work);
}

} // namespace support
