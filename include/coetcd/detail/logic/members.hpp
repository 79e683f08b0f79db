// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/endpoint.hpp>
#include <coetcd/detail/wire/cluster.hpp>

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

namespace coetcd::detail::logic {

/// Which endpoints a client may talk to, besides those that its user named.
struct member_rules {
    bool tls = false;                  ///< https can be spoken.
    bool plain = true;                 ///< http is wanted: the user named such an endpoint.
    bool secrets = false;              ///< Requests carry passwords and tokens.
    bool secrets_in_the_clear = false; ///< They may be sent over http to another host.
};

/// Whether plain http is wanted: the user named such an endpoint.
inline bool any_plain(const std::vector<endpoint>& named) {
    return std::any_of(named.begin(), named.end(), [](const endpoint& e) { return !e.tls; });
}

/// Whether a password or a token may be sent there.
inline bool may_get_secrets(const endpoint& e, bool in_the_clear) {
    return e.tls || is_local(e) || in_the_clear;
}

/// The most URLs of a list that are looked at: no cluster has so many.
inline constexpr std::size_t most_member_urls = 64;

/// The endpoints of the members that serve requests: no learners, no members that were not started
/// yet, and nothing that the rules forbid.
inline std::vector<endpoint> usable_endpoints(const std::vector<wire::member>& members,
                                              const member_rules& rules) {
    std::vector<endpoint> out;
    std::size_t seen = 0;
    for (const wire::member& m : members) {
        if (m.is_learner) {
            continue;
        }
        for (const std::string& url : m.client_urls) {
            if (++seen > most_member_urls) {
                return out;
            }
            try {
                endpoint e = parse_endpoint(url);
                const bool allowed =
                    (e.tls ? rules.tls : rules.plain) &&
                    (!rules.secrets || may_get_secrets(e, rules.secrets_in_the_clear));
                if (allowed && std::find(out.begin(), out.end(), e) == out.end()) {
                    out.push_back(std::move(e));
                }
            } catch (const std::invalid_argument&) {
                // A socket of another kind, for instance: of no use to us.
            }
        }
    }
    return out;
}

} // namespace coetcd::detail::logic
