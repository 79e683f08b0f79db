// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/session.hpp>

#include <charconv>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "support/async.hpp"
#include "support/etcd_server.hpp"

namespace support {

/// A lease as etcdctl writes it.
inline std::string hex(coetcd::lease_id lease) {
    char digits[16];
    const auto end = std::to_chars(digits, digits + sizeof digits, lease, 16).ptr;
    return std::string(digits, end);
}

inline bool lists_lease(const etcd_server& etcd, coetcd::lease_id lease) {
    return etcd.etcdctl({"lease", "list"}).output.find(hex(lease)) != std::string::npos;
}

inline void revoke_by_hand(const etcd_server& etcd, coetcd::lease_id lease) {
    const auto r = etcd.etcdctl({"lease", "revoke", hex(lease)});
    if (r.exit_code != 0) {
        throw std::runtime_error("etcdctl lease revoke failed");
    }
}

/// How many keys begin with this.
inline awaitable<std::int64_t> count(coetcd::client c, std::string prefix) {
    coetcd::range_options how;
    how.count_only = true;
    auto keys = coetcd::key_range::prefix(std::move(prefix));
    const auto r = co_await c.range(std::move(keys), how);
    co_return r.count;
}

/// Waits until so many keys begin with this. If that takes too long, tells the first that do.
inline awaitable<void> until_count(coetcd::client c,
                                   std::string prefix,
                                   std::int64_t n,
                                   std::chrono::milliseconds within = std::chrono::seconds(5)) {
    std::string found;
    auto there = [c, prefix, n, &found]() -> awaitable<bool> {
        coetcd::range_options first;
        first.limit = 5;
        auto keys = coetcd::key_range::prefix(prefix);
        const auto r = co_await c.range(std::move(keys), first);
        found = "there are " + std::to_string(r.count);
        for (const auto& kv : r.kvs) {
            found += "\n" + kv.key + " = " + kv.value + ", lease " + hex(kv.lease) +
                     ", created at " + std::to_string(kv.create_revision);
        }
        co_return r.count == n;
    };
    const std::string what = std::to_string(n) + " keys begin with " + prefix;
    try {
        co_await eventually(there, within, what);
    } catch (const std::runtime_error& e) {
        throw std::runtime_error(std::string(e.what()) + ": " + found);
    }
}

inline awaitable<void> erase_all(coetcd::client c, std::string prefix) {
    auto keys = coetcd::key_range::prefix(std::move(prefix));
    (void)co_await c.erase(std::move(keys));
}

inline awaitable<coetcd::session>
open_session(coetcd::client c, std::chrono::seconds ttl, std::string label = {}) {
    coetcd::session_options options(ttl, std::move(label));
    co_return co_await coetcd::session::open(c, std::move(options));
}

} // namespace support
