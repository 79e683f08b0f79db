// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/async/home_executor.hpp>
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/endpoint.hpp>
#include <coetcd/detail/logic/members.hpp>
#include <coetcd/detail/logic/srv.hpp>
#include <coetcd/detail/net/name_servers.hpp>
#include <coetcd/detail/net/srv_lookup.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/dns_srv.hpp>
#include <coetcd/error.hpp>

#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/this_coro.hpp>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace coetcd {

namespace detail {

/// A discovery, with options that are valid.
class srv_discovery {
public:
    /// @throws std::invalid_argument
    srv_discovery(const std::string& domain, const srv_options& o)
        : names_(logic::srv_names_of(domain, o.service_name))
        , scheme_(o.scheme)
        , servers_(net::read_name_servers(o.name_servers))
        , patience_(positive(o.attempt_timeout, "attempt_timeout"))
        , timeout_(positive(o.timeout, "timeout"))
        , refresh_(positive(o.refresh, "refresh")) {}

    std::chrono::nanoseconds refresh() const { return refresh_; }

    /// @param executor Runs one handler at a time.
    static asio::awaitable<std::vector<logic::endpoint>>
    run(asio::any_io_executor executor, std::shared_ptr<const srv_discovery> self) {
        const time_point deadline = net::lookup_deadline(self->timeout_);
        std::vector<net::name_server> servers = self->servers_;
        if (servers.empty()) {
            servers = net::system_name_servers();
        }
        std::vector<logic::endpoint> found;
        std::string said;
        for (const bool tls : {true, false}) {
            if (!found.empty() || self->scheme_ == (tls ? srv_scheme::http : srv_scheme::https)) {
                continue;
            }
            net::srv_lookup answer = co_await net::look_up_srv(
                executor, servers, self->names_.of(tls), self->patience_, deadline);
            if (answer.ec) {
                const auto state = co_await asio::this_coro::cancellation_state;
                if (state.cancelled() != asio::cancellation_type::none) {
                    throw_aborted();
                }
                self->fail(answer.ec, tls, answer.text);
            }
            // The root as a target says that there is no such service (RFC 2782).
            std::erase_if(answer.records, [](const auto& r) { return r.target.empty(); });
            const bool none = answer.records.empty();
            found = logic::srv_endpoints(std::move(answer.records), tls);
            if (!none && found.empty()) {
                self->fail_without_hosts(tls, answer.text);
            }
            said = answer.text;
        }
        if (found.empty()) {
            self->fail_without_records(said);
        }
        co_return found;
    }

private:
    static std::chrono::nanoseconds positive(std::chrono::milliseconds d, const char* field) {
        if (d.count() <= 0) {
            throw std::invalid_argument(std::string(field) + ": must be positive");
        }
        return bounded(d);
    }
    [[noreturn]] void fail(error_code ec, bool tls, const std::string& what) const {
        throw error(ec,
                    "SRV records " + names_.of(tls) + ": no name server could tell: " +
                        (what.empty() ? "no time was left to ask" : what) +
                        "; set srv_options::name_servers to others, or raise its timeout");
    }
    [[noreturn]] void fail_without_hosts(bool tls, const std::string& by) const {
        throw error(errc::unavailable,
                    "SRV records " + names_.of(tls) + ": none names a host and a port, says " + by +
                        "; correct them, or name the endpoints yourself");
    }
    [[noreturn]] void fail_without_records(const std::string& by) const {
        const bool both = scheme_ == srv_scheme::either;
        throw error(errc::unavailable,
                    "SRV records " + names_.of(scheme_ != srv_scheme::http) +
                        (both ? " and " + names_.http : "") + ": there are none, says " + by +
                        "; create them, or name the endpoints yourself");
    }

    const logic::srv_names names_;
    const srv_scheme scheme_;
    const std::vector<net::name_server> servers_; ///< Empty: the system's.
    const std::chrono::nanoseconds patience_;
    const std::chrono::nanoseconds timeout_;
    const std::chrono::nanoseconds refresh_;
};

/// Awaits a discovery, wherever this is awaited.
inline asio::awaitable<std::vector<std::string>>
discover(std::shared_ptr<const srv_discovery> what) {
    const asio::any_io_executor here = co_await asio::this_coro::executor;
    const home_executor home(here);
    auto there = from_here(here, home.get(), srv_discovery::run(home.get(), std::move(what)));
    const std::vector<logic::endpoint> found = co_await std::move(there);
    std::vector<std::string> urls;
    for (const logic::endpoint& each : found) {
        urls.push_back(each.text());
    }
    co_return urls;
}

/// Whether a client that was made with these options may use an endpoint of a scheme that it has.
inline bool may_use(const logic::endpoint& e, const client_options& o) {
    return !has_secrets(o) || logic::may_get_secrets(e, o.insecure_plain_text_credentials);
}

/// Names the endpoints of a client again and again. At its home.
inline asio::awaitable<void> follow(std::shared_ptr<client_impl> c,
                                    std::shared_ptr<const srv_discovery> what) {
    std::vector<logic::endpoint> last;
    for (;;) {
        std::vector<logic::endpoint> found;
        try {
            found = co_await srv_discovery::run(c->world->executor(), what);
        } catch (const error&) {
            // The endpoints that there are still serve.
        }
        std::erase_if(found, [&](const logic::endpoint& e) { return !may_use(e, c->options); });
        if (!found.empty() && found != last) {
            c->cluster_router->set_endpoints(found);
            last = std::move(found);
        }
        co_await sleep_until(*c->world, after(c->world->now(), what->refresh()));
    }
}

} // namespace detail

COETCD_DECL boost::asio::awaitable<std::vector<std::string>>
discover_endpoints(std::string domain, srv_options options) {
    return detail::discover(std::make_shared<const detail::srv_discovery>(domain, options));
}

COETCD_DECL boost::asio::awaitable<void>
follow_endpoints(const client& c, std::string domain, srv_options options) {
    const auto& impl = detail::access::impl(c);
    const bool tls = impl->options.tls != nullptr;
    if (options.scheme == srv_scheme::either) {
        options.scheme = tls ? srv_scheme::https : srv_scheme::http;
    } else if (options.scheme == srv_scheme::https && !tls) {
        throw std::invalid_argument("scheme: https needs client_options::tls of the client");
    }
    auto what = std::make_shared<const detail::srv_discovery>(domain, options);
    return impl->home(detail::follow(impl, std::move(what)));
}

} // namespace coetcd
