// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/endpoint.hpp>
#include <coetcd/detail/wire/dns.hpp>
#include <coetcd/detail/wire/printable.hpp>

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

/// What the SRV records of an etcd cluster are called, and what they say.
namespace coetcd::detail::logic {

/// The names of the records of one cluster, without a dot at their ends.
struct srv_names {
    std::string domain;
    std::string https;
    std::string http;

    const std::string& of(bool tls) const { return tls ? https : http; }
};

/// Whether a name consists of labels that `wire::srv_query` can write.
inline bool is_dns_name(std::string_view name) {
    if (name.empty() || name.size() > wire::dns::longest_name) {
        return false;
    }
    for (;;) {
        const std::string_view label = name.substr(0, name.find('.'));
        const bool fits = label.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-_") ==
                          std::string_view::npos;
        if (label.empty() || label.size() > wire::dns::longest_label || !fits) {
            return false;
        }
        if (label.size() == name.size()) {
            return true;
        }
        name.remove_prefix(label.size() + 1);
    }
}

/// @param service What etcdctl's --discovery-srv-name says; empty for nothing.
/// @throws std::invalid_argument that names the argument.
inline srv_names srv_names_of(std::string_view domain, std::string_view service) {
    srv_names out;
    out.domain =
        in_small_letters(domain.substr(0, domain.size() - (domain.ends_with('.') ? 1 : 0)));
    std::string end;
    if (!service.empty()) {
        end = "-" + in_small_letters(service);
        if (end.find('.') != end.npos || !is_dns_name("_etcd-client-ssl" + end)) {
            throw std::invalid_argument("service_name: \"" + wire::printable(service) +
                                        "\" is no part of a name in DNS; expected letters, digits, "
                                        "'-' and '_', at most 46 of them");
        }
    }
    out.https = "_etcd-client-ssl" + end + "._tcp." + out.domain;
    out.http = "_etcd-client" + end + "._tcp." + out.domain;
    if (!is_dns_name(out.domain) || !is_dns_name(out.https)) {
        throw std::invalid_argument("domain: \"" + wire::printable(domain) +
                                    "\" is no domain, or too long; expected one such as "
                                    "\"example.com\"");
    }
    return out;
}

/// The most endpoints of a cluster that are used: no cluster has so many.
inline constexpr std::size_t most_srv_endpoints = 64;

/// The endpoints that records name, each once: by priority, then the greater weight first, then by
/// name, so that the same records give the same list. Targets that are no hosts are left out.
inline std::vector<endpoint> srv_endpoints(std::vector<wire::srv_record> records, bool tls) {
    std::sort(records.begin(), records.end(), [](const auto& a, const auto& b) {
        return std::tie(a.priority, b.weight, a.target, a.port) <
               std::tie(b.priority, a.weight, b.target, b.port);
    });
    std::vector<endpoint> out;
    for (wire::srv_record& r : records) {
        if (r.port == 0 || !is_host(r.target, false)) {
            continue;
        }
        endpoint e;
        e.tls = tls;
        e.host = std::move(r.target); // in small letters
        e.port = r.port;
        if (std::find(out.begin(), out.end(), e) == out.end()) {
            out.push_back(std::move(e));
        }
        if (out.size() == most_srv_endpoints) {
            break;
        }
    }
    return out;
}

} // namespace coetcd::detail::logic
