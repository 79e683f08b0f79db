// SPDX-License-Identifier: BSL-1.0
#pragma once

// All definitions. Define COETCD_SEPARATE_COMPILATION for the whole program, and include this in
// one of its translation units; the CMake target coetcd::compiled does both.

#ifndef COETCD_SEPARATE_COMPILATION
#error "define COETCD_SEPARATE_COMPILATION for the whole program"
#endif

#include <coetcd/impl/admin.hpp>
#include <coetcd/impl/auth.hpp>
#include <coetcd/impl/barrier.hpp>
#include <coetcd/impl/bulk.hpp>
#include <coetcd/impl/client.hpp>
#include <coetcd/impl/client_options.hpp>
#include <coetcd/impl/cluster.hpp>
#include <coetcd/impl/counter.hpp>
#include <coetcd/impl/cyclic_barrier.hpp>
#include <coetcd/impl/dns_srv.hpp>
#include <coetcd/impl/double_barrier.hpp>
#include <coetcd/impl/election.hpp>
#include <coetcd/impl/ephemeral.hpp>
#include <coetcd/impl/error.hpp>
#include <coetcd/impl/exactly_once.hpp>
#include <coetcd/impl/feed.hpp>
#include <coetcd/impl/fencing_gate.hpp>
#include <coetcd/impl/group.hpp>
#include <coetcd/impl/guarded.hpp>
#include <coetcd/impl/keeper_locks.hpp>
#include <coetcd/impl/latch.hpp>
#include <coetcd/impl/lock_value.hpp>
#include <coetcd/impl/log_observer.hpp>
#include <coetcd/impl/maintenance.hpp>
#include <coetcd/impl/mirror.hpp>
#include <coetcd/impl/multi_lock.hpp>
#include <coetcd/impl/mutex.hpp>
#include <coetcd/impl/observer.hpp>
#include <coetcd/impl/observers.hpp>
#include <coetcd/impl/pages.hpp>
#include <coetcd/impl/printable.hpp>
#include <coetcd/impl/priority_queue.hpp>
#include <coetcd/impl/prometheus.hpp>
#include <coetcd/impl/queue.hpp>
#include <coetcd/impl/registry.hpp>
#include <coetcd/impl/semaphore.hpp>
#include <coetcd/impl/sequence.hpp>
#include <coetcd/impl/session.hpp>
#include <coetcd/impl/session_keeper.hpp>
#include <coetcd/impl/session_options.hpp>
#include <coetcd/impl/shared_mutex.hpp>
#include <coetcd/impl/stm.hpp>
#include <coetcd/impl/task_group.hpp>
#include <coetcd/impl/timed_claim.hpp>
#include <coetcd/impl/value.hpp>
#include <coetcd/impl/verify.hpp>
#include <coetcd/impl/watch.hpp>
#include <coetcd/impl/work_queue.hpp>
