// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/common.hpp"
#include "sim/world.hpp"

namespace sim {

/// A key that belongs to a lock: `<name>/<id>` in its queue, or `<name>.<id>` beside it. The id of
/// a slot is `<lease>-<nonce>-<slot>`, each in hexadecimal.
struct lock_key {
    std::string name;
    bool queued = false; ///< In the queue.
    std::string object;  ///< `<lease>-<nonce>`: of which session object; empty if it is no slot's.
    std::string slot;
    bool claimed = false; ///< For a time: the id is `<lease>-0`.

    /// @returns Nothing if it belongs to no lock, or is no place in its queue: `<name>.own` and
    /// `<name>.ask/` are notes.
    static std::optional<lock_key> parse(std::string_view key);
    /// The other key of the same id.
    static std::string beside(const std::string& queued);
};

/// A key of a queue of any kind: `<name>/<id>` of a lock, `<name>/<line>/<id>` of a shared lock or
/// a semaphore.
struct queue_key {
    std::string name;
    std::string line; ///< `read`, `write`, `keep`, `wait`, `hold`; empty of a lock.
    std::string id;

    /// @returns Nothing if it is none.
    static std::optional<queue_key> parse(std::string_view key);
    /// Whether its owner is a reader, or has become one.
    bool reads() const { return line == "read"; }
};

/// What a transaction does with locks.
struct lock_requests {
    struct entry {
        std::string key;
        std::int64_t epoch; ///< It is compared with; -1 if it is not.
    };
    std::vector<entry> puts;         ///< Of keys of queues of locks.
    std::vector<std::string> erases; ///< Of keys of queues of locks, too.
    std::size_t entries = 0;         ///< Places in queues of all kinds that it takes.
    /// Keys, with the create_revisions of their lives, that it asks etcd to prove the first ones.
    /// Of all kinds of locks, as what follows.
    std::map<std::string, std::int64_t> confirms;
    std::set<std::string> looks; ///< Keys that it only reads.
    /// Those of them that are read before another one of their queue, and that one: a waiter looks
    /// at the key that it waits for, and at its own.
    std::multimap<std::string, std::string> ahead;
    /// It puts a key only if its queue is empty, and erases another one there of the same object.
    bool contradicts = false;
    void read(std::string_view body);

private:
    void read_part(json::value txn);
};

/// The rules of keys that are used again, as far as they can be seen from outside: in what is sent,
/// and in what etcd does.
class slot_rules {
public:
    explicit slot_rules(world& w)
        : world_(w) {}

    bool keys_return = true; ///< Else each attempt may have a key of its own.

    void sent(std::uint64_t number, const process& by, const lock_requests& what);
    void arrives(std::uint64_t number) { serving_ = number; }
    void served();
    void answered(std::uint64_t number);
    /// @param lease_returned Its lease has ended before, and a late copy of its grant brought it
    /// back:
    ///   with the lease went what would make late copies void, so that they may come through.
    void changed(const etcd::change& c, bool lease_returned);

    std::uint64_t late_entries = 0; ///< Copies of attempts that were over; void, all of them.

private:
    /// Whether a key of a queue is in use.
    struct use {
        std::uint64_t attempt = 0; ///< The last one.
        std::uint64_t over = 0; ///< All until this one are: nothing that they sent may put a key.
        bool erasing = false;   ///< A request to erase it was sent since it began.
        bool erased = false;    ///< And answered.
        std::map<std::int64_t, std::uint64_t> attempts; ///< The last one, by epoch.
    };
    struct entry {
        std::string key;
        std::uint64_t attempt;
    };
    struct call {
        std::vector<entry> puts;
        std::vector<entry> erases;
        std::vector<std::string> erased; ///< What was not there any more when it was served.
    };
    /// The keys of a session object for a name.
    struct stock {
        std::set<std::string> live[2]; ///< In the queue, and beside it.
        std::set<std::string> ever[2];
    };

    void count(const etcd::change& c, const lock_key& k);

    world& world_;
    std::map<std::string, use> uses_;
    std::map<std::uint64_t, call> calls_;
    std::uint64_t serving_ = 0;
    std::vector<std::string> bumped_; ///< By the request that is served.
    std::map<std::pair<std::string, std::string>, stock> stocks_;
};

/// How many requests each client makes in a second: one that goes round in circles makes many.
class rate_meter {
public:
    explicit rate_meter(world& w)
        : world_(w) {}

    /// So many coroutines of a client take locks, have sessions or watch.
    void expect(const process& of, int coroutines) { clients_[&of].coroutines += coroutines; }
    void sent(const process& by);

    double busiest = 0; ///< Second of a client: what part it had of what a client may send.

private:
    struct client {
        int coroutines = 0;
        nanoseconds since{0};
        std::uint64_t requests = 0; ///< Since then.
    };

    world& world_;
    std::map<const process*, client> clients_;
};

/// What wakes a waiter: the end of a key wakes the one behind it and the next one, and no other.
class herd_counter {
public:
    /// @param has_lease Tells whether a session of this process has a lease.
    herd_counter(world& w, std::function<bool(const process&, coetcd::lease_id)> has_lease)
        : world_(w)
        , has_lease_(std::move(has_lease)) {}

    /// A line of a stream reaches a client.
    void told(const process& who, std::string_view line);
    void sent(std::uint64_t number, const process& by, const lock_requests& what);
    void served(std::uint64_t number);
    void answered(std::uint64_t number);
    /// Of a queue of any kind, or beside it.
    void changed(const etcd::change& c);
    /// A user, who may have cancelled a call about this key, makes the next one.
    void is_called_anew(const std::string& key) { asked_.erase(key); }

    std::uint64_t events = 0;   ///< Ends of keys, as often as they were told.
    std::uint64_t wakes = 0;    ///< Waiters that asked at once because of one.
    std::uint64_t entries = 0;  ///< Requests for a key in a queue.
    std::uint64_t requests = 0; ///< Of waiters, whatever the cause.

private:
    struct end {
        std::string key;
        std::int64_t revision;
        bool operator<(const end& other) const {
            return std::tie(revision, key) < std::tie(other.revision, other.key);
        }
    };
    struct news {
        nanoseconds at{-1};
        std::vector<end> ends;
    };
    /// Whether a key comes first was asked, and answered.
    struct question {
        nanoseconds at{0};      ///< The last time.
        std::uint64_t state{0}; ///< Of what could make it ask, then.
        int repeated = 0;       ///< Soon after each other, and in the same state.
    };
    struct request {
        const process* by = nullptr;
        /// How much there had been when etcd served it: changes of the queue, and watches of
        /// this client that began. What happened before a watch began, it does not tell.
        std::set<std::string> keys;
        std::optional<std::uint64_t> state;
    };

    static constexpr int most_repeated = 4;

    world& world_;
    const std::function<bool(const process&, coetcd::lease_id)> has_lease_;
    std::map<const process*, news> news_;
    std::map<end, std::uint64_t> woken_;
    std::map<end, std::int64_t> lives_;               // when they began
    std::map<std::string, std::uint64_t> changes_;    // of each queue
    std::map<const process*, std::uint64_t> watches_; // that began
    std::map<std::uint64_t, request> asking_;
    std::map<std::string, question> asked_;
};

} // namespace sim
