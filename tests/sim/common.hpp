// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/rpc.hpp>
#include <coetcd/detail/testing/chance.hpp>
#include <coetcd/detail/testing/etcd.hpp>
#include <coetcd/detail/testing/json.hpp>
#include <coetcd/kv.hpp>

#include <chrono>
#include <functional>
#include <string>

namespace sim {

using coetcd::lease_id;
using coetcd::detail::rpc;
using coetcd::detail::testing::chance;
using coetcd::detail::testing::dialect;
using coetcd::detail::testing::etcd;
using coetcd::detail::testing::json;

/// Whether a holder has had time to notice that this key had gone, at that time, with that ttl.
using late_end = std::function<bool(
    const std::string& key, std::chrono::nanoseconds when, std::chrono::seconds ttl)>;

} // namespace sim
