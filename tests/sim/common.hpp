// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/rpc.hpp>
#include <coetcd/detail/testing/chance.hpp>
#include <coetcd/detail/testing/etcd.hpp>
#include <coetcd/detail/testing/json.hpp>
#include <coetcd/kv.hpp>

namespace sim {

using coetcd::lease_id;
using coetcd::detail::rpc;
using coetcd::detail::testing::chance;
using coetcd::detail::testing::dialect;
using coetcd::detail::testing::etcd;
using coetcd::detail::testing::json;

} // namespace sim
