// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/kv.hpp>

#include <boost/asio/awaitable.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tool {

/// Something in a queue that has a name: it has what is locked, or waits for it.
struct entry {
    std::string key;
    std::string label; ///< As it is stored.
    coetcd::lease_id lease = 0;
    std::int64_t token = 0;   ///< Its create_revision.
    std::int64_t permits = 0; ///< Of a semaphore.
    bool shared = false;
};

/// What all keys of one name tell.
struct queue {
    std::string name;
    std::vector<entry> holders; ///< The oldest first.
    std::vector<entry> waiters; ///< The next one first.
    /// Keys below the name that are nobody's place: a lock of this name waits for them, too.
    std::vector<std::string> strays;
};

/// All keys below a prefix, by key.
using all_keys = std::map<std::string, coetcd::key_value>;

/// The locks, elections and semaphores among them, in order of their names: those of this library,
/// of Go's `concurrency` and `recipe.RWMutex`, of `etcdctl lock` and `elect`. Other keys are left
/// out.
std::vector<queue> queues_of(const all_keys& keys);

/// Reads one, with its strays.
boost::asio::awaitable<queue> read_queue(coetcd::client c, std::string name);

/// The label, fit for a terminal; or the lease, if there is none.
std::string describe(const entry& e);

} // namespace tool
