// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/net/default_env.hpp>
#include <coetcd/detail/router.hpp>
#include <coetcd/detail/secret.hpp>
#include <coetcd/detail/watch_hub.hpp>
#include <coetcd/detail/wire/decode.hpp>
#include <coetcd/detail/wire/encode.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <variant>

namespace coetcd {

namespace detail {

/// Makes requests for a token.
class password_source {
public:
    explicit password_source(credentials who)
        : who_(std::move(who)) {}

    std::string operator()() const {
        std::string password = who_.password_();
        const wipe_at_end no_trace(password);
        return wire::encode_authenticate(who_.user_, password);
    }

private:
    credentials who_;
};

/// What all handles of one client share, and its sessions and watchers with them.
class client_impl {
public:
    client_impl(std::shared_ptr<env> w,
                const std::vector<logic::endpoint>& cluster,
                const client_options& o)
        : world(std::move(w))
        , cluster_router(std::make_shared<router>(world, cluster, to_router_options(cluster, o)))
        , hub(std::make_shared<watch_hub>(cluster_router))
        , options(o) {}

    static const std::shared_ptr<client_impl>& of(const client& handle) { return handle.impl_; }

    const std::shared_ptr<env> world;
    const std::shared_ptr<router> cluster_router;
    const std::shared_ptr<watch_hub> hub;
    const client_options options;

    call_spec
    spec(rpc what, std::chrono::nanoseconds timeout, bool idempotent, bool changes) const {
        call_spec s{what, after(world->now(), timeout), idempotent, changes};
        s.attempt_timeout = options.attempt_timeout;
        return s;
    }

private:
    static router_options to_router_options(const std::vector<logic::endpoint>& cluster,
                                            const client_options& o) {
        router_options r;
        if (o.credentials) {
            r.login = password_source(*o.credentials);
        }
        r.login_timeout = o.request_timeout;
        r.member_refresh = o.member_refresh;
        r.observer = o.observer;
        r.rules.tls = o.tls != nullptr;
        r.rules.plain = std::any_of(
            cluster.begin(), cluster.end(), [](const logic::endpoint& e) { return !e.tls; });
        r.rules.secrets = o.credentials.has_value();
        r.rules.secrets_in_the_clear = o.insecure_plain_text_credentials;
        return r;
    }
};

/// A decoder that puts the answer where it is wanted.
template<class Response>
decoder decode_into(Response& out) {
    return [&out](const std::string& body) -> std::optional<wire::status> {
        out = wire::decode<Response>(body);
        return std::nullopt;
    };
}

/// The same for a call whose answer is a stream of one message.
template<class Response>
decoder decode_stream_into(Response& out) {
    return [&out](const std::string& body) -> std::optional<wire::status> {
        auto message = wire::decode_stream<Response>(body);
        if (auto* failure = std::get_if<wire::status>(&message)) {
            return std::move(*failure);
        }
        out = std::get<Response>(std::move(message));
        return std::nullopt;
    };
}

/// One call: what every unary service comes down to.
template<class Response>
asio::awaitable<Response>
unary(std::shared_ptr<client_impl> impl, call_spec spec, std::string body) {
    Response response;
    decoder decode = decode_into(response);
    const answer a = co_await impl->cluster_router->call(spec, std::move(body), std::move(decode));
    a.check();
    co_return response;
}

inline asio::awaitable<std::optional<key_value>>
get(std::shared_ptr<client_impl> impl, call_spec spec, std::string body) {
    range_response r = co_await unary<range_response>(std::move(impl), spec, std::move(body));
    std::optional<key_value> found;
    if (!r.kvs.empty()) {
        found = std::move(r.kvs.front());
    }
    co_return found;
}

/// A lease that was granted, although the answer of the attempt that did it was lost: to us, or to
/// a proxy that tried again by itself. Nobody else has chosen the same number at random.
inline bool is_ours_already(const answer& a, bool random_id) {
    return a.ec == server_errc::failed_precondition &&
           (random_id || a.left == logic::effect::unresolved) &&
           a.text.find("lease already exists") != std::string::npos;
}

/// An answer, and when the request that brought it was sent.
template<class Response>
struct timed {
    Response response;
    time_point sent;
};

/// The answer alone.
template<class Response>
asio::awaitable<Response> untimed(asio::awaitable<timed<Response>> call) {
    timed<Response> result = co_await std::move(call);
    co_return std::move(result.response);
}

inline asio::awaitable<timed<lease_keep_alive_response>>
lease_keep_alive(std::shared_ptr<client_impl> impl, call_spec spec, lease_id id) {
    timed<lease_keep_alive_response> result;
    std::string body = wire::encode_lease_keep_alive(id);
    decoder decode = decode_stream_into(result.response);
    const answer a = co_await impl->cluster_router->call(spec, std::move(body), std::move(decode));
    a.check();
    result.sent = a.sent;
    co_return result;
}

inline asio::awaitable<timed<lease_grant_response>> lease_grant(std::shared_ptr<client_impl> impl,
                                                                call_spec spec,
                                                                std::chrono::seconds ttl,
                                                                lease_id id,
                                                                bool random_id = false) {
    // The id is ours to choose, so that the grant can be repeated. Positive, as etcd's own.
    if (id == 0) {
        random_id = true;
        id = static_cast<lease_id>(impl->world->random() >> 1) | 1;
    }
    timed<lease_grant_response> result;
    lease_grant_response& response = result.response;
    std::string body = wire::encode_lease_grant(ttl, id);
    decoder decode = decode_into(response);
    const answer a = co_await impl->cluster_router->call(spec, std::move(body), std::move(decode));
    if (is_ours_already(a, random_id)) {
        // What its ttl is, another call has to tell.
        spec.what = rpc::lease_keep_alive;
        try {
            const timed<lease_keep_alive_response> renewed =
                co_await lease_keep_alive(std::move(impl), spec, id);
            response.header = renewed.response.header;
            response.id = renewed.response.id;
            response.ttl = renewed.response.ttl;
            result.sent = renewed.sent;
        } catch (const error& e) {
            throw error(errc::outcome_unknown, e.what());
        }
        if (response.ttl.count() <= 0) {
            throw error(server_errc::not_found, "lease_grant: the lease has ended already");
        }
        co_return result;
    }
    a.check();
    result.sent = a.sent;
    co_return result;
}

inline asio::awaitable<lease_revoke_response>
lease_revoke(std::shared_ptr<client_impl> impl, call_spec spec, std::string body) {
    lease_revoke_response response;
    decoder decode = decode_into(response);
    const answer a = co_await impl->cluster_router->call(spec, std::move(body), std::move(decode));
    // It was there, if an attempt of ours may have ended it.
    const bool done = a.ec == server_errc::not_found && a.left == logic::effect::unresolved;
    if (!done) {
        a.check();
    }
    co_return response;
}

inline asio::awaitable<watcher> watch(std::shared_ptr<client_impl> impl,
                                      call_spec spec,
                                      wire::watch_create_request request,
                                      watch_options options) {
    // Not from when etcd registers it: what happens until then would be missed. If nothing does,
    // its events come at once; else the first ones come up to 100 ms late.
    if (request.start_revision == 0) {
        std::string body = wire::encode(wire::least_of(request));
        const range_response r = co_await unary<range_response>(impl, spec, std::move(body));
        request.start_revision = r.header.revision + 1;
    }
    auto started = std::make_shared<watcher_impl>(
        impl->cluster_router, impl->hub, std::move(request), options);
    co_await watcher_impl::start(started, spec.deadline);
    co_return watcher(std::move(started));
}

inline void require_key(const std::string& key) {
    if (key.empty()) {
        throw std::invalid_argument("key: is empty");
    }
}

inline void require_ttl(std::chrono::seconds ttl) {
    constexpr std::chrono::seconds longest(9'000'000'000); // etcd's
    if (ttl.count() <= 0 || ttl > longest) {
        throw std::invalid_argument("ttl: must be from one second to 9,000,000,000");
    }
}

inline void require_lease(lease_id id) {
    if (id == 0) {
        throw std::invalid_argument("lease: 0 is no lease");
    }
}

/// Whether a transaction changes nothing, whatever it comes to.
inline bool is_read_only(const std::vector<op>& ops) {
    return std::all_of(ops.begin(), ops.end(), [](const op& o) {
        if (const auto* inner = std::get_if<txn>(&o)) {
            return is_read_only(inner->success) && is_read_only(inner->failure);
        }
        return std::holds_alternative<range_request>(o);
    });
}

inline std::vector<logic::endpoint> parse(const endpoints& cluster, const client_options& o) {
    std::vector<logic::endpoint> parsed;
    for (const std::string& url : cluster.urls()) {
        parsed.push_back(logic::parse_endpoint(url));
        if (parsed.back().tls && !o.tls) {
            throw std::invalid_argument("endpoints: \"" + parsed.back().text() +
                                        "\" needs TLS: include <coetcd/tls.hpp>, link coetcd::tls "
                                        "(OpenSSL), and set client_options::tls to "
                                        "coetcd::make_tls()");
        }
        if (o.credentials &&
            !logic::may_get_secrets(parsed.back(), o.insecure_plain_text_credentials)) {
            throw std::invalid_argument(
                "endpoints: \"" + parsed.back().text() +
                "\" would carry the password in the clear; use https, or set "
                "insecure_plain_text_credentials");
        }
    }
    if (parsed.empty()) {
        throw std::invalid_argument("endpoints: there are none; expected http://host:port");
    }
    return parsed;
}

inline const client_options& checked(const client_options& o) {
    const auto require = [](bool holds, const char* field) {
        if (!holds) {
            throw std::invalid_argument(std::string(field) + ": must be positive");
        }
    };
    require(o.request_timeout.count() > 0, "request_timeout");
    require(o.attempt_timeout.count() > 0, "attempt_timeout");
    require(o.connect_timeout.count() > 0, "connect_timeout");
    require(o.max_answer > 0, "max_answer");
    require(o.connections > 0, "connections");
    require(!o.member_refresh || o.member_refresh->count() > 0, "member_refresh");
    return o;
}

inline std::shared_ptr<env> make_default_env(asio::any_io_executor executor,
                                             const client_options& o) {
    net::net_options n;
    n.connect_timeout = o.connect_timeout;
    n.connections = o.connections;
    n.most.body = o.max_answer;
    n.tls = o.tls;
    n.observer = o.observer;
    return std::make_shared<net::default_env>(std::move(executor), std::move(n));
}

} // namespace detail

inline credentials::credentials(std::string user, std::string password)
    : user_(std::move(user)) {
    if (user_.empty()) {
        throw std::invalid_argument("user: is empty");
    }
    const auto kept = std::make_shared<const detail::secret>(std::move(password));
    password_ = [kept] { return kept->copy(); };
}

inline credentials::credentials(std::string user, std::function<std::string()> password)
    : user_(std::move(user))
    , password_(std::move(password)) {
    if (user_.empty()) {
        throw std::invalid_argument("user: is empty");
    }
    if (!password_) {
        throw std::invalid_argument("password: is an empty function");
    }
}

inline client::client(executor_type executor, endpoints cluster, client_options options)
    : client(detail::make_default_env(std::move(executor), detail::checked(options)),
             std::move(cluster),
             options) {}

inline client::client(std::shared_ptr<detail::env> world, endpoints cluster, client_options options)
    : client(std::make_shared<detail::client_impl>(
                 std::move(world), detail::parse(cluster, options), detail::checked(options)),
             options.request_timeout) {}

inline client::client(std::shared_ptr<detail::client_impl> impl, std::chrono::nanoseconds timeout)
    : impl_(std::move(impl))
    , timeout_(timeout) {}

inline client::executor_type client::get_executor() const {
    return impl_->world->executor();
}

inline client client::with_timeout(std::chrono::milliseconds timeout) const {
    if (timeout.count() <= 0) {
        throw std::invalid_argument("timeout: must be positive");
    }
    return {impl_, timeout};
}

inline boost::asio::awaitable<std::optional<key_value>> client::get(std::string key) const {
    detail::require_key(key);
    return detail::get(impl_,
                       impl_->spec(detail::rpc::range, timeout_, true, false),
                       detail::wire::encode(range_request(std::move(key))));
}

inline boost::asio::awaitable<range_response> client::range(key_range keys,
                                                            range_options options) const {
    detail::require_key(keys.key);
    return detail::unary<range_response>(
        impl_,
        impl_->spec(detail::rpc::range, timeout_, true, false),
        detail::wire::encode(range_request(std::move(keys), options)));
}

inline boost::asio::awaitable<put_response>
client::put(std::string key, std::string value, put_options options) const {
    detail::require_key(key);
    return detail::unary<put_response>(
        impl_,
        impl_->spec(detail::rpc::put, timeout_, false, true),
        detail::wire::encode(put_request(std::move(key), std::move(value), options)));
}

inline boost::asio::awaitable<delete_range_response> client::erase(key_range keys,
                                                                   erase_options options) const {
    detail::require_key(keys.key);
    return detail::unary<delete_range_response>(
        impl_,
        impl_->spec(detail::rpc::delete_range, timeout_, false, true),
        detail::wire::encode(delete_range_request(std::move(keys), options)));
}

inline boost::asio::awaitable<txn_response> client::txn(coetcd::txn transaction) const {
    const bool reads =
        detail::is_read_only(transaction.success) && detail::is_read_only(transaction.failure);
    return detail::unary<txn_response>(impl_,
                                       impl_->spec(detail::rpc::txn, timeout_, reads, !reads),
                                       detail::wire::encode(transaction));
}

inline boost::asio::awaitable<compaction_response> client::compact(std::int64_t revision,
                                                                   bool physical) const {
    return detail::unary<compaction_response>(
        impl_,
        impl_->spec(detail::rpc::compact, timeout_, false, true),
        detail::wire::encode_compaction(revision, physical));
}

inline boost::asio::awaitable<lease_grant_response> client::lease_grant(std::chrono::seconds ttl,
                                                                        lease_id id) const {
    detail::require_ttl(ttl);
    if (id < 0) {
        throw std::invalid_argument("id: must be positive, or 0 to have one chosen");
    }
    return detail::untimed(detail::lease_grant(
        impl_, impl_->spec(detail::rpc::lease_grant, timeout_, true, true), ttl, id));
}

inline boost::asio::awaitable<lease_revoke_response> client::lease_revoke(lease_id id) const {
    detail::require_lease(id);
    return detail::lease_revoke(impl_,
                                impl_->spec(detail::rpc::lease_revoke, timeout_, true, true),
                                detail::wire::encode_lease_revoke(id));
}

inline boost::asio::awaitable<lease_keep_alive_response>
client::lease_keep_alive_once(lease_id id) const {
    detail::require_lease(id);
    return detail::untimed(detail::lease_keep_alive(
        impl_, impl_->spec(detail::rpc::lease_keep_alive, timeout_, true, false), id));
}

inline boost::asio::awaitable<lease_time_to_live_response>
client::lease_time_to_live(lease_id id, bool keys) const {
    detail::require_lease(id);
    return detail::unary<lease_time_to_live_response>(
        impl_,
        impl_->spec(detail::rpc::lease_time_to_live, timeout_, true, false),
        detail::wire::encode_lease_time_to_live(id, keys));
}

inline boost::asio::awaitable<lease_leases_response> client::lease_leases() const {
    return detail::unary<lease_leases_response>(
        impl_,
        impl_->spec(detail::rpc::lease_leases, timeout_, true, false),
        detail::wire::encode_lease_leases());
}

inline boost::asio::awaitable<watcher> client::watch(key_range keys, watch_options options) const {
    detail::require_key(keys.key);
    if (options.start_revision < 0) {
        throw std::invalid_argument("start_revision: must not be negative");
    }
    if (options.buffer == 0) {
        throw std::invalid_argument("buffer: must be positive");
    }
    detail::wire::watch_create_request request(std::move(keys));
    request.start_revision = options.start_revision;
    request.prev_kv = options.prev_kv;
    request.no_put = options.no_put;
    request.no_delete = options.no_delete;
    request.fragment = true;
    return detail::watch(
        impl_, impl_->spec(detail::rpc::range, timeout_, true, false), std::move(request), options);
}

} // namespace coetcd
