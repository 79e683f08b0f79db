// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/membership.hpp>
#include <coetcd/detail/logic/names.hpp>
#include <coetcd/detail/logic/question.hpp>
#include <coetcd/detail/wire/json.hpp>
#include <coetcd/detail/wire/watch.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/service_endpoint.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

/// Endpoints of services as Go's naming/endpoints stores them: below `<service>/`, as
/// `{"Op":0,"Addr":"host:port","Metadata":null}`.
namespace coetcd::detail::logic {

/// `name` in JSON.
/// @throws std::invalid_argument if it is not UTF-8.
inline std::string quoted(const std::string& text, const char* what) {
    try {
        return nlohmann::json(text).dump();
    } catch (const nlohmann::json::exception&) {
        throw std::invalid_argument(std::string(what) + ": is not UTF-8");
    }
}

/// @throws std::invalid_argument if it cannot be registered.
inline std::string endpoint_key(const std::string& service, const std::string& address) {
    require_name(service);
    if (address.empty()) {
        throw std::invalid_argument("address: is empty");
    }
    std::string key = service + "/" + address;
    if (key.size() > 512) {
        throw std::invalid_argument("address: is longer than 512 bytes, together with the service");
    }
    return key;
}

/// The value of its key.
/// @throws std::invalid_argument if it is none.
inline std::string endpoint_value(const std::string& address, const std::string& metadata) {
    constexpr std::size_t most_levels = 12;
    const std::string text = std::string(wire::max_json_depth - most_levels, '[') + metadata +
                             std::string(wire::max_json_depth - most_levels, ']');
    if (!wire::try_parse(text) || !wire::try_parse(metadata)) {
        throw std::invalid_argument("metadata: is not JSON, or more than 12 levels deep");
    }
    return R"({"Op":0,"Addr":)" + quoted(address, "address") + R"(,"Metadata":)" + metadata + "}";
}

/// What a key stands for; nothing if it is no endpoint.
inline std::optional<service_endpoint> endpoint_in(const key_value& kv) {
    std::optional<service_endpoint> found;
    if (!wire::try_parse(kv.value)) { // or it is too deep for what follows
        return found;
    }
    const nlohmann::json value = nlohmann::json::parse(kv.value, nullptr, false);
    if (!value.is_object()) {
        return found;
    }
    const auto address = value.find("Addr");
    if (address == value.end() || !address->is_string()) {
        return found;
    }
    service_endpoint& e = found.emplace();
    e.key = kv.key;
    e.address = address->get<std::string>();
    const auto metadata = value.find("Metadata");
    e.metadata = metadata == value.end() ? "null" : metadata->dump();
    e.revision = kv.mod_revision;
    e.lease = kv.lease;
    return found;
}

using endpoint_list = std::vector<service_endpoint>;

/// What the answer means: in the order of their keys.
inline endpoint_list endpoints_in(const range_response& read) {
    endpoint_list all;
    for (const key_value& kv : read.kvs) {
        if (std::optional<service_endpoint> e = endpoint_in(kv)) {
            all.push_back(std::move(*e));
        }
    }
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
    return all;
}

/// The endpoints after a change. An event tells all that there is to know of its key.
inline std::optional<endpoint_list> endpoints_after(const endpoint_list& now, const event& e) {
    endpoint_list next = now;
    const auto place = std::lower_bound(
        next.begin(), next.end(), e.kv.key, [](const service_endpoint& one, const std::string& k) {
            return one.key < k;
        });
    const bool is_known = place != next.end() && place->key == e.kv.key;
    std::optional<service_endpoint> put;
    if (e.type == event_type::put) {
        put = endpoint_in(e.kv);
    }
    if (put && is_known) {
        *place = std::move(*put);
    } else if (put) {
        next.insert(place, std::move(*put));
    } else if (is_known) {
        next.erase(place);
    }
    return next;
}

/// The endpoints of a service, and each change.
inline question<endpoint_list> who_serves(const std::string& title, const std::string& service) {
    wire::watch_create_request signs(below(service));
    return {title + ", resolve",
            range_request(below(service)),
            std::move(signs),
            &endpoints_in,
            &endpoints_after};
}

} // namespace coetcd::detail::logic
