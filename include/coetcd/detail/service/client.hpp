// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client_options.hpp>
#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/net/default_env.hpp>
#include <coetcd/detail/secret.hpp>
#include <coetcd/detail/service/call.hpp>
#include <coetcd/detail/service/combined_calls.hpp>
#include <coetcd/detail/service/lane.hpp>
#include <coetcd/detail/service/renewals.hpp>
#include <coetcd/detail/service/router.hpp>
#include <coetcd/detail/service/watch_hub.hpp>
#include <coetcd/detail/service/watcher.hpp>
#include <coetcd/detail/wire/auth.hpp>
#include <coetcd/detail/wire/decode.hpp>
#include <coetcd/detail/wire/encode.hpp>
#include <coetcd/detail/wire/requests.hpp>
#include <coetcd/detail/wire/watch.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace coetcd::detail {

/// Makes requests for a token.
class password_source {
public:
    explicit password_source(credentials who)
        : who_(std::move(who)) {}

    wire::authenticate_request operator()() const {
        return wire::authenticate_request(who_.user_, secret(who_.password_()));
    }

private:
    credentials who_;
};

/// Whether requests carry a password or a token.
inline bool has_secrets(const client_options& o) {
    return o.credentials || o.token;
}

/// The state that all handles of one client share with its sessions and watchers.
class client_impl {
public:
    client_impl(const std::shared_ptr<env>& w,
                const std::vector<logic::endpoint>& cluster,
                const client_options& o)
        : client_impl(w, std::make_shared<router>(w, cluster, to_router_options(cluster, o)), o) {}
    /// One for some of the keys. It has watches and lanes of its own, and shares all else.
    client_impl(const client_impl& whole, std::shared_ptr<const logic::key_space> keys)
        : client_impl(whole.world,
                      route(whole.cluster_router.by, std::move(keys)),
                      whole.options,
                      whole.lease_renewals) {}

    const std::shared_ptr<env> world;
    const route cluster_router;
    const std::shared_ptr<watch_hub> hub;       ///< For what the recipes watch.
    const std::shared_ptr<watch_hub> users_hub; ///< For users' watches: no others wait for them.
    const std::shared_ptr<transaction_lane> transactions; ///< The engine's.
    const std::shared_ptr<renewals> lease_renewals;       ///< For all sessions.
    std::optional<combined_calls> combined;               ///< Users' calls that share requests.
    const client_options options;

    /// What a name, or the beginning of some keys, is in etcd.
    std::string in_etcd(const std::string& name) const {
        return cluster_router.keys ? cluster_router.keys->prefix() + name : name;
    }

    /// The usual terms.
    call_terms within(std::chrono::nanoseconds timeout) const {
        return cluster_router->within(timeout);
    }

    /// Makes what a user awaits, from any executor.
    template<class T>
    asio::awaitable<T> home(asio::awaitable<T> work) const {
        return go_home(world->executor(), std::move(work));
    }

private:
    client_impl(std::shared_ptr<env> w,
                route way,
                const client_options& o,
                std::shared_ptr<renewals> shared = nullptr)
        : world(std::move(w))
        , cluster_router(std::move(way))
        , hub(std::make_shared<watch_hub>(cluster_router, o.max_answer))
        , users_hub(std::make_shared<watch_hub>(cluster_router, o.max_answer))
        , transactions(std::make_shared<transaction_lane>(
              cluster_router, o.request_timeout, o.attempt_timeout))
        , lease_renewals(shared ? std::move(shared) : std::make_shared<renewals>(cluster_router.by))
        , options(o) {
        if (o.combine_calls) {
            combined.emplace(cluster_router, o);
        }
    }

    static router_options to_router_options(const std::vector<logic::endpoint>& cluster,
                                            const client_options& o) {
        router_options r;
        if (o.credentials) {
            r.login = password_source(*o.credentials);
        }
        r.token = o.token;
        // A login keeps the event loop busy, and its last attempt does so even if nobody waits for
        // it any more, so it must be short. A call that still waits after it has another login
        // made.
        const std::chrono::nanoseconds enough =
            std::max<std::chrono::nanoseconds>(r.login_timeout, o.attempt_timeout);
        r.login_timeout = std::min<std::chrono::nanoseconds>(o.request_timeout, enough);
        r.attempt_timeout = o.attempt_timeout;
        r.member_refresh = o.member_refresh;
        r.observer = o.observer;
        r.rules.tls = o.tls != nullptr;
        r.rules.plain = logic::any_plain(cluster);
        r.rules.secrets = has_secrets(o);
        r.rules.secrets_in_the_clear = o.insecure_plain_text_credentials;
        r.lists_from_learned = !has_secrets(o) || o.trust_learned_members;
        return r;
    }
};

template<class Request>
asio::awaitable<outcome<wire::response_of<Request>>>
call(std::shared_ptr<client_impl> by, const Request& request, call_terms how) {
    return call(by->cluster_router, request, how);
}

/// Returns the answer alone; throws the error that a user is to see.
template<class Response>
asio::awaitable<Response> response_in(asio::awaitable<outcome<Response>> work) {
    outcome<Response> result = co_await std::move(work);
    result.check();
    co_return std::move(result.response);
}

/// One call: what every unary service comes down to.
template<class Request>
asio::awaitable<wire::response_of<Request>>
ask(const std::shared_ptr<client_impl>& by, const Request& request, call_terms how) {
    return response_in(call(by, request, how));
}

/// Whether operations change nothing, whatever their outcome.
inline bool is_read_only(const std::vector<op>& ops) {
    return std::all_of(ops.begin(), ops.end(), [](const op& o) {
        if (const auto* inner = std::get_if<txn>(&o)) {
            return is_read_only(inner->success) && is_read_only(inner->failure);
        }
        return std::holds_alternative<range_request>(o);
    });
}

/// What a user's transaction may change, as far as that can be told.
inline impact impact_of(const txn& transaction) {
    const bool reads = is_read_only(transaction.success) && is_read_only(transaction.failure);
    return reads ? impact::none : impact::once;
}

/// A user's transaction, which shares a request with others if the client's options say so.
/// @throws std::invalid_argument if it cannot be written, at once.
inline asio::awaitable<txn_response>
ask_for_user(const std::shared_ptr<client_impl>& by, txn what, std::chrono::nanoseconds timeout) {
    const impact does = impact_of(what);
    const call_terms how = by->within(timeout).as(does);
    auto lane = by->combined ? by->combined->lane_for(what, does) : nullptr;
    if (!lane) {
        return ask(by, what, how);
    }
    (void)wire::encode(what); // it throws
    return ask_in_company(by->cluster_router, std::move(lane), std::move(what), how);
}
/// Another call of a user.
template<class Request>
asio::awaitable<wire::response_of<Request>> ask_for_user(const std::shared_ptr<client_impl>& by,
                                                         Request what,
                                                         std::chrono::nanoseconds timeout) {
    if (!by->combined) {
        return ask(by, what, by->within(timeout));
    }
    auto asking = ask_for_user(by, txn().then(op(std::move(what))), timeout);
    return only_answer<wire::response_of<Request>>(std::move(asking));
}

/// The first key of an answer, if there is one.
inline asio::awaitable<std::optional<key_value>> first_of(asio::awaitable<range_response> reading) {
    range_response r = co_await std::move(reading);
    std::optional<key_value> found;
    if (!r.kvs.empty()) {
        found = std::move(r.kvs.front());
    }
    co_return found;
}

inline asio::awaitable<std::shared_ptr<watcher_impl>> watch(std::shared_ptr<client_impl> impl,
                                                            call_terms how,
                                                            wire::watch_create_request request,
                                                            watch_options options) {
    // The watch does not begin when etcd registers it: what happens until then would be missed. If
    // nothing happens until then, its events come at once; otherwise the first ones come up to 100
    // ms late.
    std::int64_t told = 0;
    std::uint64_t of = 0;
    if (request.start_revision == 0) {
        const range_response r = co_await ask(impl, wire::least_of(request), how);
        told = r.header.revision;
        of = r.header.cluster_id;
        request.start_revision = told + 1;
    }
    auto started = make_at_home<watcher_impl>(impl->world,
                                              impl->cluster_router.by,
                                              impl->users_hub,
                                              std::move(request),
                                              told,
                                              of,
                                              options);
    co_await watcher_impl::start(started, how.deadline);
    co_return started;
}

inline void require_key(const std::string& key) {
    if (key.empty()) {
        throw std::invalid_argument("key: is empty");
    }
}

/// Reads an endpoint that a user has named.
inline logic::endpoint parse(const std::string& url, const client_options& o) {
    logic::endpoint parsed = logic::parse_endpoint(url);
    if (parsed.tls && !o.tls) {
        throw std::invalid_argument("endpoints: \"" + parsed.text() +
                                    "\" needs TLS: include <coetcd/tls.hpp>, link coetcd::tls "
                                    "(OpenSSL), and set client_options::tls to "
                                    "coetcd::make_tls()");
    }
    if (has_secrets(o) && !logic::may_get_secrets(parsed, o.insecure_plain_text_credentials)) {
        throw std::invalid_argument(
            "endpoints: \"" + parsed.text() +
            "\" would carry the password or token in the clear; use https, or set "
            "insecure_plain_text_credentials");
    }
    return parsed;
}

inline std::vector<logic::endpoint> parse(const endpoints& cluster, const client_options& o) {
    std::vector<logic::endpoint> parsed;
    for (const std::string& url : cluster.urls()) {
        parsed.push_back(parse(url, o));
    }
    if (parsed.empty()) {
        throw std::invalid_argument("endpoints: there are none; expected http://host:port");
    }
    return parsed;
}

inline client_options checked(client_options o) {
    const auto require = [](bool holds, const char* field) {
        if (!holds) {
            throw std::invalid_argument(std::string(field) + ": must be positive");
        }
    };
    require(o.request_timeout.count() > 0, "request_timeout");
    require(o.attempt_timeout.count() > 0, "attempt_timeout");
    require(o.overrun.count() > 0, "overrun");
    require(o.connect_timeout.count() > 0, "connect_timeout");
    require(o.max_answer > 0, "max_answer");
    require(o.connections > 0, "connections");
    if (o.credentials && o.token) {
        throw std::invalid_argument("token: is set beside credentials; set one of them");
    }
    require(!o.member_refresh || o.member_refresh->count() > 0, "member_refresh");
    o.request_timeout = bounded(o.request_timeout);
    o.attempt_timeout = bounded(o.attempt_timeout);
    o.overrun = bounded(o.overrun);
    o.connect_timeout = bounded(o.connect_timeout);
    if (o.member_refresh) {
        o.member_refresh = bounded(*o.member_refresh);
    }
    return o;
}

inline std::shared_ptr<env> make_default_env(asio::any_io_executor executor,
                                             const client_options& o) {
    net::net_options n;
    n.connect_timeout = o.connect_timeout;
    n.connections = o.connections;
    n.most.body = o.max_answer;
    n.tls = o.tls;
    n.plain_stays_here = has_secrets(o) && !o.insecure_plain_text_credentials;
    n.observer = o.observer;
    return std::make_shared<net::default_env>(std::move(executor), std::move(n));
}

} // namespace coetcd::detail
