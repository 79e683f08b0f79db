// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/places.hpp>
#include <coetcd/kv.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace coetcd::detail::logic {

/// What a request to enter asks for.
enum class asking {
    enter, ///< A place in the queue.
    take,  ///< Ownership, if nobody is there.
    admit, ///< Ownership, in exchange for our place.
};

class known_value;

/// What one attempt asks of etcd, and what the answers mean. This class is the rule of a plain
/// queue: the first in it owns. Other rules derive from it, ask for room as well, and may remember
/// what etcd has told them.
///
/// The functions that return a standing may change `keys` of each name: they are then the keys that
/// the standing speaks of.
class rule {
public:
    rule() = default;
    virtual ~rule() = default;
    rule(const rule&) = delete;
    rule& operator=(const rule&) = delete;

    /// Several may hold at once, and several of a session may wait in etcd's queue abreast.
    virtual bool admits() const { return false; }
    /// What is known of the lock's value; null if the rule does not ask for it.
    virtual known_value* value() { return nullptr; }
    /// Completes the keys of an attempt, before anything is sent.
    virtual void prepare(attempt_keys&) {}

    virtual txn enter(const attempt_keys& a, const std::string& label) const {
        return logic::enter(a, label);
    }
    virtual standing after_enter(const txn_response& response, attempt_keys& a) {
        return logic::after_enter(response, a);
    }
    virtual txn take(const attempt_keys& a, const std::string& label) const {
        return logic::take(a, label);
    }
    virtual standing after_take(const txn_response& response, attempt_keys& a) {
        return logic::after_take(response, a);
    }
    virtual txn confirm(const attempt_keys& a, std::int64_t create_revision) const {
        return logic::confirm(a, create_revision);
    }
    virtual standing
    after_confirm(const txn_response& response, attempt_keys& a, std::int64_t create_revision) {
        return logic::after_confirm(response, a, create_revision);
    }

    // Only for rules that tell `room` or `no_room`.

    /// Makes us the owner, if there is still room.
    virtual txn admit(const attempt_keys&, std::int64_t, const std::string&) const {
        throw std::logic_error("a rule that admits nobody");
    }
    virtual standing after_admit(const txn_response&, attempt_keys&, std::int64_t) {
        throw std::logic_error("a rule that admits nobody");
    }
    /// Keys whose changes may make room.
    virtual std::vector<key_range> signs_of_room() const { return {}; }
    /// Which requests of others go before, if they share one with ours: those with lower numbers.
    virtual int turn(enum asking) const { return 0; }
    /// A request that tells where we stand is about to be made: it tells of all changes so far.
    virtual void asking() {}
    /// Told of changes of the signs, from the first watch on, in order.
    virtual void heed(const std::vector<event>&) {}
    /// Whether there is room for us, by all that was told.
    virtual bool has_room() const { return false; }
    /// Whether it takes a `confirm` to know that.
    virtual bool is_in_doubt() const { return false; }
    /// Reads whether there is room, and our keys.
    virtual txn look(const attempt_keys&, std::int64_t) const { return {}; }
    /// Whether the answer to `look` calls for a `confirm`.
    virtual bool has_moved(const txn_response&, const attempt_keys&, std::int64_t) const {
        return false;
    }
    /// The reason for `exceeds`, for messages.
    virtual std::string why_not() const { return {}; }
};

/// @param create_revision That of our keys, if they are there.
inline txn to_ask(const rule& by,
                  asking what,
                  const attempt_keys& a,
                  std::int64_t create_revision,
                  const std::string& label) {
    switch (what) {
    case asking::enter:
        break;
    case asking::take:
        return by.take(a, label);
    case asking::admit:
        return by.admit(a, create_revision, label);
    }
    return by.enter(a, label);
}
inline standing after_asking(rule& by,
                             asking what,
                             const txn_response& response,
                             attempt_keys& a,
                             std::int64_t create_revision) {
    switch (what) {
    case asking::enter:
        break;
    case asking::take:
        return by.after_take(response, a);
    case asking::admit:
        return by.after_admit(response, a, create_revision);
    }
    return by.after_enter(response, a);
}

/// The rule of a plain queue, which remembers nothing.
inline rule& plain_rule() {
    static rule plain;
    return plain;
}

} // namespace coetcd::detail::logic
