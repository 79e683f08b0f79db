// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/testing/etcd_requests.hpp>
#include <coetcd/detail/testing/etcd_store.hpp>
#include <coetcd/detail/testing/etcd_txn.hpp>
#include <coetcd/detail/testing/etcd_watches.hpp>
#include <coetcd/detail/testing/network.hpp>
#include <coetcd/detail/testing/process_run.hpp>
#include <coetcd/detail/testing/world_run.hpp>
