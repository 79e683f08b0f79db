// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/logic/staggering.hpp>
#include <coetcd/detail/net/clock.hpp>
#include <coetcd/detail/net/connection.hpp>
#include <coetcd/detail/net/http_connection.hpp>
#include <coetcd/detail/net/resolver.hpp>
#include <coetcd/detail/net/system.hpp>
#include <coetcd/error.hpp>
#include <coetcd/observer.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail::net {

/// What `client_options` tell the default env.
struct net_options {
    std::chrono::nanoseconds connect_timeout = std::chrono::seconds(1);
    std::size_t connections = 64; ///< The most for each endpoint, besides renewals and streams.
    std::chrono::nanoseconds longest_idle = std::chrono::seconds(10); ///< Of those of a crowd.
    limits most;
    std::shared_ptr<const tls_context> tls; ///< For https; null: such endpoints are refused.
    /// Requests over http hold secrets: they must not leave this machine.
    bool plain_stays_here = false;
    lookup_function lookup; ///< Looks up host names; empty: as the system does it.
    std::shared_ptr<coetcd::observer> observer;
};

/// Connects to one address.
class connector {
public:
    virtual ~connector() = default;
    /// Ends by the deadline.
    /// @param answered To be called when the peer has answered, but more is to be done.
    virtual asio::awaitable<connect_result> connect(tcp::endpoint address,
                                                    logic::endpoint to,
                                                    time_point deadline,
                                                    std::function<void()> answered) const = 0;
};

/// Connects by TCP, and then TLS if the endpoint wants that.
class tcp_connector final : public connector {
public:
    tcp_connector(asio::any_io_executor ex, limits most, std::shared_ptr<const tls_context> tls)
        : executor_(std::move(ex))
        , most_(most)
        , tls_(std::move(tls)) {}

    asio::awaitable<connect_result> connect(tcp::endpoint address,
                                            logic::endpoint to,
                                            time_point deadline,
                                            std::function<void()> answered) const override {
        connect_result result;
        tcp::socket socket(executor_);
        result.ec = system::open(socket, address.protocol());
        if (!result.ec) {
            watchdog limit(executor_, deadline, [&socket] {
                error_code ignored;
                socket.close(ignored);
            });
            co_await socket.async_connect(address,
                                          asio::redirect_error(asio::use_awaitable, result.ec));
            if (limit.fired()) {
                result.ec = errc::timed_out;
            }
        }
        if (!result.ec) {
            system::tune(socket);
            socket.non_blocking(true, result.ec);
        }
        if (result.ec) {
            co_return result;
        }
        if (to.tls) {
            answered();
            auto securing = tls_->secure(std::move(socket), std::move(to), most_, deadline);
            co_return co_await std::move(securing);
        }
        using plain = http_connection<tcp::socket>;
        result.connected = std::make_unique<plain>(std::move(socket), most_);
        co_return result;
    }

private:
    const asio::any_io_executor executor_;
    const limits most_;
    const std::shared_ptr<const tls_context> tls_;
};

/// Whether what is sent to an address stays on this machine.
inline bool is_here(const asio::ip::address& a) {
    if (a.is_v6() && a.to_v6().is_v4_mapped()) {
        return asio::ip::make_address_v4(asio::ip::v4_mapped, a.to_v6()).is_loopback();
    }
    return a.is_loopback();
}

/// Connects to an endpoint, at whichever of its addresses answers first.
class dialer {
public:
    dialer(env& world, const net_options& o)
        : dialer(world, o, std::make_shared<tcp_connector>(world.executor(), o.most, o.tls)) {}
    dialer(env& world, const net_options& o, std::shared_ptr<const connector> how)
        : env_(world)
        , names_(world, o.lookup)
        , connector_(std::move(how))
        , timeout_(o.connect_timeout)
        , has_tls_(o.tls != nullptr)
        , plain_stays_here_(o.plain_stays_here) {}

    /// Cancelled: throws `operation_aborted`.
    asio::awaitable<connect_result> connect(logic::endpoint to, time_point deadline) {
        connect_result result;
        if (to.tls && !has_tls_) {
            result.ec = errc::tls_failed;
            result.text = "client_options::tls is not set";
            co_return result;
        }
        deadline = std::min(deadline, after(env_.now(), timeout_));
        resolver::result found = co_await names_.lookup(to.host, to.port, deadline);
        if (found.ec) {
            result.ec = found.ec;
            co_return result;
        }
        if (!to.tls && plain_stays_here_) {
            std::erase_if(found.addresses, [&](const tcp::endpoint& a) {
                const bool far = !is_here(a.address());
                if (far) {
                    (void)names_.avoid(to.host, a.address());
                }
                return far;
            });
            if (found.addresses.empty()) {
                result.ec = errc::tls_failed;
                result.text =
                    "it is not this machine, and the password would go there in the clear; "
                    "use https, or set insecure_plain_text_credentials";
                co_return result;
            }
        }
        const auto all = std::make_shared<race>(env_, found.addresses.size(), deadline);
        // Attempts end by themselves at the deadline, but for one that Asio drops without a word,
        // for lack of memory.
        const time_point late = after(deadline, std::chrono::milliseconds(100));
        try {
            while (!all->best.connected && !all->order.is_over(env_.now()) && env_.now() < late) {
                if (const auto next = all->order.begin(env_.now())) {
                    begin(all, to, found.addresses[*next], deadline);
                } else {
                    (void)co_await all->changed.wait(std::min(all->order.until(), late));
                }
            }
        } catch (...) {
            all->stop();
            throw;
        }
        all->stop();
        for (const asio::ip::address& each : all->failed) {
            (void)names_.avoid(to.host, each);
        }
        if (all->best.connected) {
            all->best.connected->addresses = found.addresses.size();
        }
        co_return std::move(all->best);
    }

    resolver& names() { return names_; }

private:
    /// The attempts to connect to the addresses of one endpoint. Attempts that go on after its end
    /// use nothing else.
    struct race {
        race(env& world, std::size_t count, time_point deadline)
            : clock(&world)
            , order(count, world.now(), deadline)
            , changed(world) {
            best.ec = errc::timed_out; // should there be no time for an attempt
        }

        void ended(const asio::ip::address& by, connect_result how) {
            if (!clock || best.connected) {
                return;
            }
            if (how.connected) {
                best = std::move(how);
                best.connected->peer = by;
            } else {
                if (!logic::is_lack(how.ec)) {
                    failed.push_back(by);
                }
                if (best.ec != errc::tls_failed) { // which tells more than the others
                    best = std::move(how);
                }
                order.failed(clock->now());
            }
            changed.notify_all();
        }
        void answered() {
            if (clock) {
                order.answered(clock->now());
            }
        }
        void stop() {
            clock = nullptr;
            for (const auto& each : attempts) {
                each->emit(asio::cancellation_type::terminal);
            }
        }

        env* clock; // null: nobody waits any more
        logic::staggering<time_point> order;
        notifier changed;
        std::vector<std::shared_ptr<asio::cancellation_signal>> attempts;
        std::vector<asio::ip::address> failed;
        connect_result best;
    };

    void begin(const std::shared_ptr<race>& in,
               const logic::endpoint& to,
               const tcp::endpoint& address,
               time_point deadline) {
        const auto stop = std::make_shared<asio::cancellation_signal>();
        in->attempts.push_back(stop);
        auto at_end = [in, stop, by = address.address()](std::exception_ptr failure) {
            if (failure) {
                connect_result none;
                none.ec = asio::error::no_memory;
                in->ended(by, std::move(none));
            }
        };
        asio::awaitable<void> trying = attempt(in, connector_, address, to, deadline);
        spawn(env_.executor(), std::move(trying), stop->slot(), std::move(at_end));
    }

    static asio::awaitable<void> attempt(std::shared_ptr<race> in,
                                         std::shared_ptr<const connector> how,
                                         tcp::endpoint address,
                                         logic::endpoint to,
                                         time_point deadline) {
        std::function<void()> answered = [in] { in->answered(); };
        auto connecting = how->connect(address, std::move(to), deadline, std::move(answered));
        connect_result made = co_await std::move(connecting);
        in->ended(address.address(), std::move(made));
    }

    env& env_;
    resolver names_;
    const std::shared_ptr<const connector> connector_;
    const std::chrono::nanoseconds timeout_;
    const bool has_tls_;
    const bool plain_stays_here_;
};

} // namespace coetcd::detail::net
