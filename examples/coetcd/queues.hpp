// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/kv.hpp>

#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tool {

/// Something in a queue that has a name: it has what is locked, or waits for it.
struct entry {
    std::string key;
    std::string label; ///< As it is stored.
    coetcd::lease_id lease = 0;
    std::int64_t token = 0;   ///< Its create_revision.
    std::int64_t permits = 0; ///< Of a semaphore: those that it has, or waits for.
    /// When it was taken, by its holder's clock. Only `coetcd` stores that.
    std::optional<std::chrono::system_clock::time_point> since{};
    bool shared = false;
};

/// Keys below a name that are nobody's place, each with the create_revision of its life.
using strays = std::map<std::string, std::int64_t>;

/// What all keys of one name tell.
struct queue {
    std::string name;
    std::vector<entry> holders; ///< The oldest first.
    std::vector<entry> waiters; ///< The next one first.
    tool::strays strays;        ///< A lock of this name waits for those that are older, too.
};

/// All keys below a prefix, by key.
using all_keys = std::map<std::string, coetcd::key_value>;

/// The locks, elections and semaphores among them, in order of their names: those of this library,
/// of Go's `concurrency` and `recipe.RWMutex`, of `etcdctl lock` and `elect`. Other keys are left
/// out.
std::vector<queue> queues_of(const all_keys& keys);

/// The key that says since when a session has the lock of a name, and what is in it. It is no key
/// of a queue, nor of any other name that ends with no dot and a lease.
std::string since_key(const std::string& name, coetcd::lease_id lease);
std::string since_value(std::int64_t token, std::chrono::system_clock::time_point now);

/// How much to ask for at a time, so that the answer is not too large.
struct page {
    std::int64_t keys = 1000;
    bool without_values = false;
};
/// What to ask for after an answer that was too large; nothing, if there is no less.
std::optional<page> smaller(page p);
/// What to ask for after one that was not.
page larger(page p);

struct all_keys_read {
    all_keys keys;             ///< A value that is too large even alone is empty.
    std::int64_t revision = 0; ///< As of which they are.
};
/// Drops a value that says nothing of a lock, with its memory.
void drop_plain_value(coetcd::key_value& kv);

/// Reads them, in pages, without plain values.
/// @throws coetcd::error with `errc::too_large` beyond 64 MiB of what is left.
boost::asio::awaitable<all_keys_read> read_keys(coetcd::client c, coetcd::key_range range);

/// Reads one, with its strays.
boost::asio::awaitable<queue> read_queue(coetcd::client c, std::string name);

/// Why nobody can be asked to give it back; nothing if somebody can. The library asks the one that
/// the oldest key of the queue belongs to.
std::optional<std::string> why_not_asked(const queue& q);

/// All keys that are put together with this one, itself the first: by who writes under a lock, and
/// for so many permits.
std::vector<std::string> keys_of_writer(const std::string& name, const std::string& key);
std::vector<std::string>
keys_of_permits(const std::string& name, const std::string& key, std::int64_t permits);

/// What there is to say of a stray of a name.
std::string in_the_way(const std::string& name, const std::string& key);

/// Whether a key is that of a candidate, or a lock of `etcdctl`, in an election of this name.
bool is_candidate(const std::string& name, const std::string& key, coetcd::lease_id lease);

/// The label, fit for a terminal; or the lease, if there is none.
std::string describe(const entry& e);

} // namespace tool
