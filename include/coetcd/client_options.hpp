// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/observer.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coetcd {

namespace detail {
class password_source;
}

/// Which servers to trust, and our certificate, from `make_tls`. Clients and threads may share it.
class tls_context;

/// Where the members of one etcd cluster listen for clients: `http://host:port`, whose scheme and
/// port may be omitted, or `https://host:port`, for which `client_options::tls` must be set.
/// Converts from one string, from several, or from a vector of them: one endpoint per string.
class endpoints {
public:
    template<std::convertible_to<std::string>... Url>
    requires(sizeof...(Url) > 0) endpoints(Url&&... urls) {
        (urls_.push_back(std::forward<Url>(urls)), ...);
    }
    endpoints(std::vector<std::string> urls)
        : urls_(std::move(urls)) {}

    const std::vector<std::string>& urls() const { return urls_; }

private:
    std::vector<std::string> urls_;
};

/// A user of etcd: name and password, both UTF-8.
///
/// The client logs in when it first needs to, and again whenever etcd demands it, such as after
/// five minutes without a request. Copies of the password are wiped after use.
class credentials {
public:
    /// Keeps the password in memory for as long as a client, or a copy of this, exists.
    credentials(std::string user, std::string password);
    /// Calls `password` whenever it is needed, on the client's executor, and keeps nothing of its
    /// result. If `password` throws, calls fail with `errc::login_failed`.
    credentials(std::string user, std::function<std::string()> password);

    const std::string& user() const { return user_; }

private:
    friend class detail::password_source;
    std::string user_;
    std::function<std::string()> password_; // returns a copy, to be wiped
};

/// Options of a client.
class client_options {
public:
    client_options() {} // user-provided, so that this is no aggregate

    // These affect behaviour.

    /// The user to log in. No effect where etcd's authentication is off.
    std::optional<coetcd::credentials> credentials;
    /// Gives the token that requests carry, in place of `credentials`: for an etcd whose tokens
    /// come from elsewhere (`--auth-token jwt`). It is called on the client's executor when the
    /// first request needs one, and again when etcd has refused the last one; with pauses that
    /// grow up to 5 s while etcd refuses all of them. It must not block: fetch the next token in
    /// the background. If it throws, or what it returns cannot be a token, calls fail with
    /// `errc::login_failed`.
    std::function<std::string()> token;
    /// Allows password and token to be sent to another host in the clear: over http, where anybody
    /// in between can read them. Otherwise `credentials` or `token` with such an endpoint are an
    /// error, even if only the lookup of `localhost` shows that it is one (`errc::tls_failed`).
    bool insecure_plain_text_credentials = false;
    /// How often to ask the cluster for its members, and use the endpoints that they advertise
    /// besides those named; empty to use only those named. At most 64 of them; learners are
    /// omitted, and so are members that advertise http where only https was named. Those named are
    /// asked first. At least one second. Only for clusters whose members advertise addresses that
    /// serve the gateway and can be reached from here.
    std::optional<std::chrono::seconds> member_refresh{};
    /// Allows members that were learned, not named, to name further members, to which password and
    /// token then go. Otherwise a client with `credentials` or `token` takes lists only from the
    /// endpoints that were named, so that no list can lead it away from them. Set it if all of
    /// those may be replaced while the client runs.
    bool trust_learned_members = false;
    /// Total time for a call, including retries; for `watch`, until it is established. It does not
    /// limit waits for others, such as `mutex::lock` and `watcher::next`. Must be positive.
    std::chrono::milliseconds request_timeout{5000};
    /// The largest answer, or revision of a watch, that is accepted, in bytes of JSON: about 4/3 of
    /// the bytes of its keys and values, plus 100 for each key. Raise it for larger ranges or
    /// transactions. Must be positive.
    std::size_t max_answer = 4 * 1024 * 1024;
    /// Required by endpoints with https: `options.tls = coetcd::make_tls(...)`, from
    /// <coetcd/tls.hpp>. No effect on endpoints with http.
    std::shared_ptr<const tls_context> tls;

    /// Receives the client's events; null disables reporting.
    std::shared_ptr<coetcd::observer> observer;
    /// For how long the body of a `with_lock` may run on after it lost its lock, before the
    /// observer is told: see `overrun_report`. Must be positive.
    std::chrono::milliseconds overrun{1000};

    // These affect performance.

    /// Lets `put`, `erase`, `get` and `txn` calls that wait at the same time travel together, in
    /// one transaction of etcd: for servers that make many of them at once, since etcd then commits
    /// one entry of its log for up to 60. Each is carried out, answered and refused as by itself,
    /// but those that change something share a revision, and so perhaps the `create_revision` and
    /// `mod_revision` of their keys, and come to a watch at once. Leave it off if anything decides
    /// by these whose key is older, as recipes of one's own for locks do; those of this library do
    /// not use such calls. Calls that touch a key which another one may change are not in the same
    /// request. One that is cancelled leaves its request to the others. These go by themselves:
    /// `range`, transactions with others nested in them, and what changes something and returns
    /// keys or values.
    bool combine_calls = false;

    /// How long one endpoint may take to answer a request that can safely be repeated, before the
    /// next one is tried. Waiting for a free connection does not count; making one does. Must be
    /// positive.
    std::chrono::milliseconds attempt_timeout{2000};
    /// Maximum time to connect, including name lookup, for all addresses of the name together. Must
    /// be positive.
    std::chrono::milliseconds connect_timeout{1000};
    /// Maximum connections per endpoint for calls. Each is opened when a call finds none free. A
    /// later call, or renewal, closes those that were idle for 10 s, but for two. Further calls
    /// queue, and go to another endpoint if this one answers none of them for as long as
    /// `attempt_timeout`. Renewals of sessions, transactions of locks, and watches have connections
    /// of their own. Must be positive.
    std::size_t connections = 64;
};

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/client_options.hpp>
#endif
