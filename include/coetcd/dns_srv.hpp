// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>

#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <string>
#include <vector>

// Finds the endpoints of a cluster by SRV records in DNS, as etcdctl does with --discovery-srv:
// _etcd-client-ssl._tcp.<domain> for https, _etcd-client._tcp.<domain> for http.
//
// Anyone who can forge DNS answers can name endpoints. With http that makes them the cluster. With
// https the certificate must be that of the target, but the same answer names the target: so trust
// no authority but the cluster's own, or set `tls_options::server_name`.

namespace coetcd {

/// Which endpoints are of use.
enum class srv_scheme {
    /// Those with https, and only if there are no such records, those with http; never both. For
    /// `follow_endpoints`: those with https if the client has `client_options::tls`, else those
    /// with http.
    either,
    https, ///< Only those with https: no forged answer leads to http.
    http,  ///< Only those with http.
};

/// Options of `discover_endpoints` and `follow_endpoints`.
class srv_options {
public:
    srv_options() {} // user-provided, so that this is no aggregate

    /// What etcdctl's --discovery-srv-name says: with "orders" the records are those of
    /// `_etcd-client-ssl-orders._tcp.<domain>`. Letters, digits, `-` and `_`, at most 46.
    std::string service_name;
    srv_scheme scheme = srv_scheme::either;
    /// The name servers to ask, in this order: "10.0.0.2", "10.0.0.2:53" or "[fd00::2]:53". They
    /// have to look elsewhere for what they do not know. If empty, those of /etc/resolv.conf, which
    /// is read anew each time; if there is none, as on Windows, 127.0.0.1.
    std::vector<std::string> name_servers;
    /// How long one name server may take to answer, before the next one is asked. Each is asked up
    /// to three times. Must be positive.
    std::chrono::milliseconds attempt_timeout{1000};
    /// Total time for a discovery. Must be positive.
    std::chrono::milliseconds timeout{5000};
    /// For `follow_endpoints`: how long to wait between two discoveries, whatever time DNS allows
    /// to keep the records. Must be positive.
    std::chrono::milliseconds refresh{60'000};
};

/// Finds the endpoints that DNS names for a cluster: at most 64 of them, each once, such as
/// "https://a.example.com:2379". They are in the order of their priorities, those of one priority
/// with the greater weight first. The order is for people: a client spreads itself over all of its
/// endpoints, and prefers near ones. What is not the name of a host is left out.
///
/// Costs one question, or two with `srv_scheme::either` where there are no records for https. A
/// question goes by UDP, and again by TCP if the answer is too large. It is not what the system's
/// resolver does: there are no search lists, no /etc/hosts, no cache.
///
/// @param domain Whole, such as "example.com", with or without a dot at its end.
/// @throws std::invalid_argument that names the argument or option that is invalid, at once.
/// @throws error with `errc::unavailable` if there are no such records, or all name servers refuse,
///   and `errc::timed_out` if none answers in time. That also holds if only the question for https
///   has no answer: http is no substitute then.
/// @par Cancellation
/// `terminal`, at once.
/// @par Executors
/// All work is done on the caller's executor; where that is no strand, and not that of an
/// `io_context`, on a strand of its own there.
boost::asio::awaitable<std::vector<std::string>> discover_endpoints(std::string domain,
                                                                    srv_options options = {});

/// Keeps a client's endpoints as DNS names them: discovers them at once, and again after each
/// `srv_options::refresh`, and calls `client::set_endpoints` when they have changed. Ends only by
/// cancellation, and keeps what it needs of the client.
///
/// If a discovery fails, the client keeps its endpoints. It also keeps them if it may use none of
/// those found: for https it needs `client_options::tls`; and with a password or a token it does
/// not use http, except as `client_options::insecure_plain_text_credentials` says. What somebody
/// else names with `set_endpoints` stays until the answer of DNS changes.
/// @throws std::invalid_argument as `discover_endpoints`, and if the client cannot use the scheme.
/// @par Cancellation
/// `terminal`, at once. The client keeps the endpoints that it has then.
boost::asio::awaitable<void>
follow_endpoints(const client& c, std::string domain, srv_options options = {});

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/dns_srv.hpp>
#endif
