// SPDX-License-Identifier: BSL-1.0
#pragma once

// What most programs use. These have headers of their own, which are not included here:
// <coetcd/auth.hpp>, <coetcd/barrier.hpp>, <coetcd/bulk.hpp>, <coetcd/cluster.hpp>,
// <coetcd/cyclic_barrier.hpp>, <coetcd/dns_srv.hpp>, <coetcd/double_barrier.hpp>,
// <coetcd/ephemeral.hpp>, <coetcd/group.hpp>, <coetcd/keeper_locks.hpp>, <coetcd/latch.hpp>,
// <coetcd/log_observer.hpp>, <coetcd/maintenance.hpp>, <coetcd/mirror.hpp>, <coetcd/observers.hpp>,
// <coetcd/pages.hpp>, <coetcd/priority_queue.hpp>, <coetcd/queue.hpp>, <coetcd/registry.hpp>,
// <coetcd/testing.hpp>, <coetcd/tls.hpp>, <coetcd/work_queue.hpp>.

#include <coetcd/admin.hpp>
#include <coetcd/as_result.hpp>
#include <coetcd/client.hpp>
#include <coetcd/counter.hpp>
#include <coetcd/election.hpp>
#include <coetcd/error.hpp>
#include <coetcd/exactly_once.hpp>
#include <coetcd/feed.hpp>
#include <coetcd/fencing_gate.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/lease.hpp>
#include <coetcd/lock_mode.hpp>
#include <coetcd/lock_name.hpp>
#include <coetcd/lock_options.hpp>
#include <coetcd/member_status.hpp>
#include <coetcd/multi_lock.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/observer.hpp>
#include <coetcd/permit_entry.hpp>
#include <coetcd/printable.hpp>
#include <coetcd/prometheus.hpp>
#include <coetcd/semaphore.hpp>
#include <coetcd/sequence.hpp>
#include <coetcd/sequencer.hpp>
#include <coetcd/session.hpp>
#include <coetcd/session_keeper.hpp>
#include <coetcd/shared_mutex.hpp>
#include <coetcd/stm.hpp>
#include <coetcd/task_group.hpp>
#include <coetcd/timed_claim.hpp>
#include <coetcd/value.hpp>
#include <coetcd/verify.hpp>
#include <coetcd/version.hpp>
#include <coetcd/watch.hpp>
