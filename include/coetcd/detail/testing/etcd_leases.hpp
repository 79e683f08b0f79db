// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/testing/etcd_store.hpp>
#include <coetcd/kv.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace coetcd::detail::testing {

/// The leases of an etcd in memory, and when they end.
class etcd_leases {
public:
    struct lease {
        std::chrono::seconds ttl;
        std::chrono::nanoseconds ends;
        std::uint64_t term; ///< The term in which it was granted.
    };

    std::size_t size() const { return all_.size(); }
    const std::map<lease_id, lease>& all() const { return all_; }
    /// Null if there is none.
    const lease* find(lease_id id) const {
        const auto found = all_.find(id);
        return found != all_.end() ? &found->second : nullptr;
    }
    std::vector<lease_id> ids() const {
        std::vector<lease_id> some;
        for (const auto& [id, l] : all_) {
            some.push_back(id);
        }
        return some;
    }
    std::vector<lease_id> over(std::chrono::nanoseconds now) const {
        std::vector<lease_id> some;
        for (const auto& [id, l] : all_) {
            if (l.ends <= now) {
                some.push_back(id);
            }
        }
        return some;
    }

    /// @param id 0 for any free one.
    /// @returns Its number.
    /// @throws etcd_refusal if there is one of that number.
    lease_id
    grant(lease_id id, std::chrono::seconds ttl, std::chrono::nanoseconds now, std::uint64_t term) {
        const bool is_drawn = id == 0;
        while (id == 0 || (is_drawn && all_.contains(id))) {
            id = ++last_;
        }
        if (all_.contains(id)) {
            throw etcd_refusal{9, "etcdserver: lease already exists"};
        }
        all_[id] = {ttl, now + ttl, term};
        return id;
    }
    void renew(lease_id id, std::chrono::nanoseconds now) {
        lease& l = all_.at(id);
        l.ends = now + l.ttl;
    }
    /// Gives all leases their whole time again, and some more.
    void renew_all(std::chrono::nanoseconds now, std::chrono::nanoseconds more) {
        for (auto& [id, l] : all_) {
            l.ends = now + l.ttl + more;
        }
    }
    /// @returns Whether there was such a lease.
    bool end(lease_id id) { return all_.erase(id) != 0; }

private:
    std::map<lease_id, lease> all_;
    lease_id last_ = 7587000000000000000;
};

} // namespace coetcd::detail::testing
