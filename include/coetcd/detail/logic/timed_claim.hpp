// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/admin.hpp>
#include <coetcd/detail/logic/places.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

/// Claims for a fixed time: a key in a lock's queue, with a lease of its own that nobody renews.
///
/// The lease takes the place of the epoch: a copy of the request that comes after the end of the
/// lease is refused. While the lease lives, a copy that comes after `force_unlock` finds the epoch
/// that `force_unlock` put.
namespace coetcd::detail::logic {

inline std::string claim_id(lease_id lease) {
    return hex(static_cast<std::uint64_t>(lease)) + "-0";
}
inline std::string claim_key(const std::string& name, lease_id lease) {
    return name + "/" + claim_id(lease);
}

/// Takes a name if nobody is there. Otherwise asks whether we are, by an earlier copy, and who is.
inline txn take_for_a_time(const std::string& name, lease_id lease) {
    const std::string key = claim_key(name, lease);
    const range_request oldest = oldest_key_of(name);
    put_options with_lease;
    with_lease.lease = lease;
    txn t;
    t.compares.push_back(compare::create_revision(name + "." + claim_id(lease)) == 0);
    t.compares.push_back(compare::create_revision(oldest.range) == 0);
    t.success.push_back(op::put(key, "", with_lease));
    t.failure.push_back(op::range(key, transactions::keys_only()));
    t.failure.push_back(op::range(oldest.range, oldest.options));
    return t;
}

struct claiming {
    std::int64_t token = 0;             ///< That of the claim; 0: somebody else is there.
    std::optional<predecessor> ahead{}; ///< The key of that one, if it is still there.
};

/// What the answer to `take_for_a_time` means.
inline claiming
after_taking_for_a_time(const txn_response& response, const std::string& name, lease_id lease) {
    claiming result;
    if (response.succeeded) {
        result.token = answers::require_revision(response.header.revision);
        return result;
    }
    const range_response& own = answers::range_at(response, 0);
    if (answers::holds(own, claim_key(name, lease), 0)) {
        result.token = answers::require_revision(own.kvs.front().create_revision);
    } else {
        result.ahead = first_in(answers::range_at(response, 1));
    }
    return result;
}

/// @throws std::invalid_argument
inline void require_min_hold(std::chrono::seconds min_hold, std::chrono::seconds hold) {
    if (min_hold.count() < 0 || min_hold >= hold) {
        throw std::invalid_argument("min_hold: must not be negative, and less than hold");
    }
}

/// The ttl of a lease that lasts until the minimum has passed; nothing if it has.
template<class TimePoint>
std::optional<std::chrono::seconds> rest_of_min_hold(TimePoint now, TimePoint until) {
    if (until <= now) { // it may be far in the past: no difference of it
        return std::nullopt;
    }
    return std::chrono::ceil<std::chrono::seconds>(until - now);
}

/// Lets a claim last with another lease. A copy that comes late finds this life of the key, or
/// changes nothing.
inline txn change_lease(const std::string& key, std::int64_t token, lease_id to) {
    put_options with_lease;
    with_lease.lease = to;
    with_lease.ignore_value = true;
    txn t;
    t.compares.push_back(compare::create_revision(key) == token);
    t.success.push_back(op::put(key, "", with_lease));
    return t;
}

/// How long to wait before trying a name that has just become free, so that the waiters do not all
/// come at the same moment.
inline std::chrono::nanoseconds before_a_try(std::uint64_t random) {
    constexpr std::uint64_t most = 50'000'000;
    return std::chrono::nanoseconds(static_cast<std::int64_t>(random % (most + 1)));
}

} // namespace coetcd::detail::logic
