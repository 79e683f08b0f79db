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
namespace net {
class secure_layer;
}
} // namespace detail

/// Where the members of one etcd cluster listen for clients: `http://host:port`, of which scheme
/// and port may be left out, or `https://host:port`, for which `client_options::tls` must be set.
/// Converts from one string, from several, or from a vector of them.
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

/// Who the client is to etcd: a user, by name and password. Both are UTF-8.
///
/// The client logs in when it first needs to, and again whenever etcd wants it to, as after five
/// minutes without a request. Copies of the password are wiped after use.
class credentials {
public:
    /// Keeps the password in memory for as long as a client, or a copy of this, exists.
    credentials(std::string user, std::string password);
    /// Asks for the password each time that it is needed, on the client's executor, and keeps
    /// nothing of it. If `password` throws, calls fail with `errc::login_failed`.
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

    /// The user to log in, if etcd's authentication is on; where it is off this has no effect.
    std::optional<coetcd::credentials> credentials;
    /// Whether password and token may be sent to another host in the clear: over http. Without
    /// this, `credentials` and such an endpoint are an error. Anybody in between can read them.
    bool insecure_plain_text_credentials = false;
    /// How often to ask the cluster for its members, and use the endpoints that they advertise
    /// instead of those named; empty to use those named for ever. Learners are left out, and so is
    /// what advertises http where only https was named. At least one second. Only for clusters
    /// whose members advertise addresses that serve the gateway, and that can be reached from here.
    std::optional<std::chrono::seconds> member_refresh{};
    /// How long a call may take, all attempts together; a watch, until it is in force. What waits
    /// for somebody else, as `mutex::lock` and `watcher::next`, waits longer. Must be positive.
    std::chrono::milliseconds request_timeout{5000};
    /// The largest answer accepted, or message of a watch, in bytes of JSON: about 4/3 of the bytes
    /// of its keys and values. Raise it for ranges that are larger. Must be positive.
    std::size_t max_answer = 4 * 1024 * 1024;
    /// What the endpoints with https need: `options.tls = coetcd::make_tls(...)`, which takes
    /// <coetcd/tls.hpp>. It does nothing to those with http.
    std::shared_ptr<const detail::net::secure_layer> tls;

    /// Who is told what the client does; nobody if null.
    std::shared_ptr<coetcd::observer> observer;

    // These affect performance.

    /// How long one endpoint may take to answer what can safely be asked again, before the next one
    /// is tried. Must be positive.
    std::chrono::milliseconds attempt_timeout{2000};
    /// How long a connection may take to be made, name lookup included. Must be positive.
    std::chrono::milliseconds connect_timeout{1000};
    /// The most connections to one endpoint for calls; further calls wait for one. Renewals of
    /// sessions and the watches have their own. Must be positive.
    std::size_t connections = 8;
};

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/client_options.hpp>
#endif
