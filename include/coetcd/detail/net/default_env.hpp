// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/home_executor.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/lane_width.hpp>
#include <coetcd/detail/logic/renewal_groups.hpp>
#include <coetcd/detail/net/clock.hpp>
#include <coetcd/detail/net/connection.hpp>
#include <coetcd/detail/net/dialer.hpp>
#include <coetcd/detail/net/http_connection.hpp>
#include <coetcd/detail/net/http_request.hpp>
#include <coetcd/detail/net/pool.hpp>
#include <coetcd/detail/net/system.hpp>
#include <coetcd/detail/secret.hpp>
#include <coetcd/observer.hpp>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail::net {

namespace detail_env {

/// The key of the connections for one kind of calls to an endpoint.
inline std::string pool_key(const logic::endpoint& to, connection_kind way) {
    switch (way) {
    case connection_kind::renewal:
        return to.text() + " renewal";
    case connection_kind::locks:
        return to.text() + " locks";
    case connection_kind::shared:
        break;
    }
    return to.text();
}

/// Whether calls on `one` must not wait for those on `other`.
inline bool is_more_pressing(connection_kind one, connection_kind other) {
    const auto rank = [](connection_kind of) {
        return of == connection_kind::renewal ? 2 : of == connection_kind::locks ? 1 : 0;
    };
    return rank(one) > rank(other);
}

} // namespace detail_env

/// The real world: the machine's clock, timers and random device, and TCP.
class default_env final : public env {
public:
    default_env(asio::any_io_executor ex, net_options options)
        : home_(std::move(ex))
        , executor_(home_.get())
        , options_(std::move(options))
        , dialer_(*this, options_)
        , pool_(*this) {}

    asio::any_io_executor executor() const override { return executor_; }
    bool is_home() const override { return home_.runs_here(); }
    time_point now() const override { return boot_clock::now(); }

    std::uint64_t random() override { return system::random(); }

    std::unique_ptr<sleeper> make_sleeper() override;
    asio::awaitable<reply> call(call_request request) override;
    asio::awaitable<open_result> open(call_request request) override;
    void rate(const logic::endpoint& of, const asio::ip::address& by, bool serves) override;
    void keep_only(const std::vector<logic::endpoint>& used) override;

private:
    class http_stream;

    /// The most connections for the transactions of locks: as many as may be under way.
    static constexpr std::size_t lock_connections = logic::lane_width<time_point>::most;

    /// A crowd opens as many connections as it needs. When it has gone, they are closed, but for a
    /// few of each kind: each call looks.
    static constexpr std::size_t kept_connections = 2;
    void close_idle() {
        const time_point at = now();
        if (at < next_look_) {
            return;
        }
        next_look_ = at + options_.longest_idle / 8;
        pool_.shrink(kept_connections,
                     [&](const connection& c) { return c.heard < at - options_.longest_idle; });
    }

    std::size_t cap(connection_kind way) const {
        switch (way) {
        case connection_kind::renewal:
            return logic::renewal_connections;
        case connection_kind::locks:
            return lock_connections;
        case connection_kind::shared:
            break;
        }
        return options_.connections;
    }

    /// The kind of connection that a request takes. If there is none for renewals yet, a lease is
    /// granted, or adopted, on a new one, which will renew it: when it is needed, it may be too
    /// late to make one.
    connection_kind way_of(const call_request& request) const {
        const bool begins =
            request.what == rpc::lease_grant || request.what == rpc::lease_keep_alive;
        const bool first =
            begins && !pool_.has_any(detail_env::pool_key(request.to, connection_kind::renewal));
        return first ? connection_kind::renewal : request.way;
    }
    /// When no new connection can be made: an idle one whose use is less pressing, or null.
    template<class Alive>
    std::unique_ptr<connection>
    idle_of_others(const logic::endpoint& to, connection_kind way, Alive alive) {
        std::unique_ptr<connection> found;
        for (const connection_kind other : {connection_kind::shared, connection_kind::locks}) {
            if (!found && detail_env::is_more_pressing(way, other)) {
                found = pool_.take_from(detail_env::pool_key(to, other), alive);
            }
        }
        return found;
    }
    asio::awaitable<connect_result> connect(logic::endpoint to, time_point deadline);
    /// Tells the observer how a connection was made, and later of its end.
    void report(const std::string& endpoint, time_point began, const connect_result& made) const;

    const home_executor home_;
    const asio::any_io_executor executor_;
    const net_options options_;
    dialer dialer_;
    pool<connection> pool_;
    /// When the last request without an answer on a kept connection was sent. Something on the way
    /// may have forgotten all connections: those that were not heard from since are not used again.
    time_point silent_since_{};
    time_point next_look_ = time_point::min(); ///< For connections that are idle.
};

namespace detail_env {

class timer_sleeper final : public sleeper {
public:
    explicit timer_sleeper(const asio::any_io_executor& ex)
        : timer_(ex) {}

    asio::awaitable<error_code> sleep_until(time_point when) override {
        error_code ec;
        timer_.expires_at(when);
        co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, ec));
        co_return woken_ ? error_code() : ec;
    }
    void wake() override {
        woken_ = true;
        timer_.cancel();
    }

private:
    timer timer_;
    bool woken_ = false;
};

} // namespace detail_env

class default_env::http_stream final : public stream {
public:
    http_stream(asio::any_io_executor ex, std::unique_ptr<connection> c)
        : executor_(std::move(ex))
        , connection_(std::move(c)) {}

    asio::awaitable<error_code> write(std::string json, time_point deadline) override {
        return send(chunk(json), deadline);
    }
    /// Sends bytes as they are: the header, or a chunk.
    asio::awaitable<error_code> send(std::string bytes, time_point deadline) {
        watchdog limit(executor_, deadline, [this] { close(); });
        const error_code ec = co_await connection_->write(std::move(bytes));
        if (limit.fired()) {
            co_return error_code(errc::timed_out);
        }
        // What the server said before that can still be read, and tells more.
        co_return is_hang_up(ec) ? error_code() : ec;
    }
    asio::awaitable<reply> read() override {
        reply r = co_await connection_->read_line();
        r.by = connection_->peer;
        r.addresses = connection_->addresses;
        co_return r;
    }
    std::uint64_t received() const override { return connection_->received(); }
    void close() override { connection_->close(); }

private:
    const asio::any_io_executor executor_;
    const std::unique_ptr<connection> connection_;
};

inline std::unique_ptr<sleeper> default_env::make_sleeper() {
    return std::make_unique<detail_env::timer_sleeper>(executor_);
}

inline void default_env::report(const std::string& endpoint,
                                time_point began,
                                const connect_result& made) const {
    using kind = connection_report;
    const time_point then = boot_clock::now();
    options_.observer->on_connection(
        {made.ec ? kind::failed : kind::opened, endpoint, then - began, made.ec, made.text});
    if (!made.ec) {
        made.connected->end =
            std::shared_ptr<const void>(nullptr, [o = options_.observer, endpoint, then](auto) {
                o->on_connection({kind::closed, endpoint, boot_clock::now() - then, {}});
            });
    }
}

inline asio::awaitable<connect_result> default_env::connect(logic::endpoint to,
                                                            time_point deadline) {
    const time_point began = now();
    const std::string endpoint = to.text();
    connect_result made = co_await dialer_.connect(std::move(to), deadline);
    if (options_.observer) {
        report(endpoint, began, made);
    }
    co_return made;
}

inline asio::awaitable<reply> default_env::call(call_request request) {
    const wipe_at_end no_trace(request.body); // it may hold a password
    close_idle();
    reply result;
    auto is_alive = [this](connection& c) { return c.heard >= silent_since_ && c.is_quiet(); };
    const connection_kind way = way_of(request);
    std::string key = detail_env::pool_key(request.to, way);
    auto taking = take_place(*this, pool_, std::move(key), cap(way), request, result, is_alive);
    pool<connection>::loan place = co_await std::move(taking);
    if (result.ec) {
        co_return result;
    }
    bool is_new = !place.connection;
    if (is_new) {
        connect_result fresh = co_await connect(request.to, request.deadline);
        if (fresh.connected) {
            fresh.connected->heard = now();
        } else if (logic::is_lack(fresh.ec)) {
            fresh.connected = idle_of_others(request.to, way, is_alive);
            is_new = false;
        }
        if (!fresh.connected) {
            result.ec = fresh.ec;
            result.text = std::move(fresh.text);
            co_return result;
        }
        place.connection = std::move(fresh.connected);
    }
    const time_point sent = now();
    if (sent >= request.deadline) {
        result.ec = errc::timed_out;
        co_return result;
    }
    connection& used = *place.connection;
    watchdog limit(executor_, request.deadline, [&used] { used.close(); });
    std::string text = http_request(request, framing::whole, request.deadline - sent);
    result = co_await used.exchange(std::move(text));
    result.departed = sent;
    result.addresses = used.addresses;
    if (is_new && result.ec == errc::tls_failed && options_.observer) {
        // Our part of a handshake is over before the server has looked at our certificate.
        const std::string endpoint = request.to.text();
        options_.observer->on_connection(
            {connection_report::failed, endpoint, now() - sent, result.ec, result.text});
    }
    if (limit.fired()) {
        result.ec = errc::timed_out;
        result.text.clear();
        silent_since_ = is_new ? silent_since_ : std::max(silent_since_, sent);
    } else if (is_new && !request.to.tls && is_hang_up(result.ec) && result.text.empty()) {
        // An etcd that wants TLS does so, too.
        result.text = "closed instead of an answer; if the endpoint wants TLS, write https://";
    }
    if (result.ec && result.ec != asio::error::operation_aborted) {
        dialer_.names().avoid(request.to.host, used.peer);
    }
    if (!result.ec || result.ec == errc::too_large) {
        result.by = used.peer;
    }
    if (result.ec) {
        place.connection.reset();
    } else {
        used.heard = now();
    }
    co_return result;
}

inline void default_env::rate(const logic::endpoint& of, const asio::ip::address& by, bool serves) {
    if (serves) {
        dialer_.names().prefer(of.host, by);
        return;
    }
    if (!dialer_.names().avoid(of.host, by)) {
        return;
    }
    // Kept connections to the address are dropped, too. One in use is rated by its own answer.
    for (const connection_kind way :
         {connection_kind::shared, connection_kind::renewal, connection_kind::locks}) {
        pool_.drop(detail_env::pool_key(of, way),
                   [&](const connection& c) { return c.peer == by; });
    }
}

inline void default_env::keep_only(const std::vector<logic::endpoint>& used) {
    std::set<std::string> hosts;
    std::set<std::string> keys;
    for (const logic::endpoint& e : used) {
        hosts.insert(e.host);
        for (const connection_kind way :
             {connection_kind::shared, connection_kind::renewal, connection_kind::locks}) {
            keys.insert(detail_env::pool_key(e, way));
        }
    }
    dialer_.names().keep_only([&](const std::string& host) { return hosts.contains(host); });
    pool_.keep_only([&](const std::string& key) { return keys.contains(key); });
}

inline asio::awaitable<open_result> default_env::open(call_request request) {
    open_result result;
    connect_result fresh = co_await connect(request.to, time_point::max()); // it has its own limit
    if (fresh.ec) {
        result.ec = fresh.ec;
        result.text = std::move(fresh.text);
        co_return result;
    }
    const asio::ip::address peer = fresh.connected->peer;
    auto opened = std::make_unique<http_stream>(executor_, std::move(fresh.connected));
    const framing how = request.how == sending::once ? framing::whole : framing::chunked;
    std::string text = http_request(request, how, std::nullopt);
    result.ec = co_await opened->send(std::move(text), after(now(), request.patience));
    if (!result.ec) {
        result.opened = std::move(opened);
    } else if (result.ec != asio::error::operation_aborted) {
        dialer_.names().avoid(request.to.host, peer);
    }
    co_return result;
}

} // namespace coetcd::detail::net
