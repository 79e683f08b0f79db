// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/first_number.hpp>
#include <coetcd/detail/logic/places.hpp>
#include <coetcd/detail/logic/question.hpp>
#include <coetcd/detail/wire/watch.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

/// Groups of those who arrive: each arrival is a key with the session's lease, and the oldest ones,
/// as many as there are parties, are a group. Whoever sees a whole group *trips* it: one
/// transaction compares all of their keys, and erases them.
///
/// It leaves a *proof*, by which a member knows that it went through. That is the *bound* for a
/// cyclic barrier: the create_revision of the last arrival that went through, which only grows. For
/// a double barrier it is another key of the member, with the member's lease, until the member
/// leaves. Those of a group have one create_revision, and no other group has it.
namespace coetcd::detail::logic {

enum class gathers {
    to_pass, ///< Through a cyclic barrier.
    to_stay  ///< In a double barrier, until all of them leave.
};

/// etcd accepts 128 conditions, and 128 operations, in a transaction.
inline constexpr std::int64_t most_parties(gathers how) {
    return how == gathers::to_pass ? 100 : 60;
}

/// @throws std::invalid_argument
inline void require_parties(int parties, gathers how) {
    if (parties < 1 || parties > most_parties(how)) {
        throw std::invalid_argument("parties: must be from 1 to " +
                                    std::to_string(most_parties(how)));
    }
}

inline std::string parties_key(const std::string& name) {
    return name + ".parties";
}
inline std::string bound_key(const std::string& name) {
    return name + ".bound";
}
inline std::string arrivals(const std::string& name) {
    return name + "/";
}
inline std::string insiders(const std::string& name) {
    return name + ".in/";
}

/// One arrival. Its keys are used once.
struct arrival {
    arrival(gathers h, std::string n, const std::string& id, std::string m)
        : how(h)
        , name(std::move(n))
        , key(arrivals(name) + id)
        , proof(how == gathers::to_pass ? bound_key(name) : insiders(name) + id)
        , marker(std::move(m)) {}

    gathers how;
    std::string name; ///< The barrier's.
    std::string key;
    std::string proof;
    std::string marker;               ///< Of the writer that has put the key: see `once`.
    std::int64_t create_revision = 0; ///< Once it is known.
};

/// Arrives; to be written once. Counts who is there then.
inline txn arrive(const arrival& a, lease_id lease) {
    put_options with_lease;
    with_lease.lease = lease;
    range_options count;
    count.count_only = true;
    return txn().then(op::put(a.key, std::string(), with_lease),
                      op::range(key_range::prefix(arrivals(a.name)), count));
}

/// Leaves again, if it has not gone through; to be written once. Otherwise reads the proof.
inline txn withdraw(const arrival& a) {
    return txn()
        .when(compare::create_revision(a.key) == a.create_revision)
        .then(op::erase(a.key))
        .otherwise(op::range(a.proof));
}

/// Leaves, wherever it is.
inline txn abandon(const arrival& a) {
    txn t;
    t.then(op::erase(a.key));
    if (a.how == gathers::to_stay) {
        t.then(op::erase(a.proof));
    }
    return t;
}

/// Asks what has become of an arrival.
inline txn look_at(const arrival& a) {
    range_options count;
    count.count_only = true;
    return txn().then(op::range(a.key, transactions::keys_only()),
                      op::range(a.proof),
                      op::range(a.marker, transactions::keys_only()),
                      op::range(key_range::prefix(arrivals(a.name)), count));
}

struct arrived {
    enum class where {
        waiting,
        full,    ///< There is a whole group: somebody has to trip it.
        through, ///< It went through with its group.
        gone,    ///< Its lease has ended, and its key with it.
        deleted  ///< Somebody else has deleted its key.
    };
    where at = where::waiting;
    std::int64_t group = 0; ///< If `through`, in a double barrier: what its members have in common.
};

/// Whether it went through, as the proof says.
inline std::optional<arrived> is_through(const range_response& proof, const arrival& a) {
    if (a.how == gathers::to_pass) {
        const bool within = number_in(proof).value_or(0) >= a.create_revision;
        return within ? std::optional(arrived{arrived::where::through}) : std::nullopt;
    }
    if (proof.kvs.empty()) {
        return std::nullopt;
    }
    return arrived{arrived::where::through,
                   answers::require_revision(proof.kvs.front().create_revision)};
}

/// What the answer to `look_at` means. That the key has gone proves nothing: only the proof does.
/// The bound needs the marker, too, which shows that the lease has not taken the key along.
inline arrived after_look(const txn_response& said, const arrival& a, std::int64_t parties) {
    if (said.header.revision < a.create_revision) {
        return {}; // by a member that is behind
    }
    if (answers::holds(answers::range_at(said, 0), a.key, a.create_revision)) {
        const bool full = answers::range_at(said, 3).count >= parties;
        return {full ? arrived::where::full : arrived::where::waiting};
    }
    if (answers::range_at(said, 2).kvs.empty()) {
        return {arrived::where::gone};
    }
    return is_through(answers::range_at(said, 1), a).value_or(arrived{arrived::where::deleted});
}

/// Reads a group. Not only its keys: etcd 3.7 would not tell their leases.
inline range_request oldest_arrivals(const std::string& name, std::int64_t parties) {
    range_options how;
    how.limit = parties;
    how.order = sort_order::ascend;
    how.target = sort_target::create;
    return {key_range::prefix(arrivals(name)), how};
}

/// Lets a group through, if all of it is still there.
/// @param of The arrival of any member.
/// @param group As it was read.
/// @returns Nothing if it is not whole.
inline std::optional<txn>
trip(const arrival& of, const std::vector<key_value>& group, std::int64_t parties) {
    if (static_cast<std::int64_t>(group.size()) != parties) {
        return std::nullopt;
    }
    txn t;
    std::int64_t bound = 0;
    for (const key_value& kv : group) {
        const std::int64_t r = answers::require_revision(kv.create_revision);
        t.when(compare::create_revision(kv.key) == r).then(op::erase(kv.key));
        if (of.how == gathers::to_stay) {
            put_options with_lease;
            with_lease.lease = kv.lease;
            t.then(op::put(insiders(of.name) + kv.key.substr(arrivals(of.name).size()),
                           std::string(),
                           with_lease));
        }
        bound = std::max(bound, r);
    }
    if (of.how == gathers::to_pass) {
        t.then(op::put(of.proof, std::to_string(bound)));
    }
    return t;
}

inline bool is_among(const std::vector<key_value>& group, const arrival& a) {
    return std::any_of(group.begin(), group.end(), [&](const key_value& kv) {
        return kv.key == a.key && kv.create_revision == a.create_revision;
    });
}

/// Leaves a double barrier, and reads who is still in it. A copy that comes late changes nothing.
inline txn leave(const arrival& a, std::int64_t group) {
    const op who = op::range(key_range::prefix(insiders(a.name)), transactions::keys_only());
    return txn()
        .when(compare::create_revision(a.proof) == group)
        .then(op::erase(a.proof), who)
        .otherwise(op::range(a.marker, transactions::keys_only()), who);
}
/// Whether its lease may have ended before it left: then the others may have left without it.
inline bool was_lost(const txn_response& left) {
    return !left.succeeded && answers::range_at(left, 0).kvs.empty();
}

/// The keys of a group that are still there.
using member_keys = std::set<std::string>;

inline member_keys those_inside(const range_response& read, std::int64_t group) {
    member_keys result;
    for (const key_value& kv : read.kvs) {
        if (kv.create_revision == group) {
            result.insert(kv.key);
        }
    }
    return result;
}

/// Who of a group is still inside. An event says it without a read.
inline question<member_keys>
inside_now(const std::string& title, const std::string& name, std::int64_t group) {
    const key_range keys = key_range::prefix(insiders(name));
    const auto from = [group](const range_response& read) { return those_inside(read, group); };
    const auto follow = [](const member_keys& now, const event& e) {
        std::optional<member_keys> next(now);
        if (e.type == event_type::erase) {
            next->erase(e.kv.key);
        }
        return next;
    };
    return {title + ", leave",
            range_request(keys, transactions::keys_only()),
            wire::watch_create_request(keys),
            from,
            follow};
}

} // namespace coetcd::detail::logic
