// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/places.hpp>
#include <coetcd/kv.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace coetcd::detail::logic {

/// Keys whose changes may make room.
struct sign {
    key_range keys;
    bool puts = false; ///< Not only when they are erased.
};

/// What one attempt asks of etcd, and what the answers mean. This one is that of a plain queue: the
/// first one in it owns. Others are derived from it, and ask for room as well; they may then
/// remember what etcd has told them.
///
/// The functions that tell a standing may change the keys of the names: `keys` are the ones that
/// the standing speaks of.
class rule {
public:
    rule() = default;
    virtual ~rule() = default;
    rule(const rule&) = delete;
    rule& operator=(const rule&) = delete;

    /// Several may hold at once: the next one of the session goes on as soon as this one holds.
    virtual bool admits() const { return false; }
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

    // Only of those that tell `room` or `no_room`.

    /// Makes us the owner, if there is still room.
    virtual txn admit(const attempt_keys&, std::int64_t, const std::string&) const {
        throw std::logic_error("a rule that admits nobody");
    }
    virtual standing after_admit(const txn_response&, attempt_keys&, std::int64_t) {
        throw std::logic_error("a rule that admits nobody");
    }
    virtual std::vector<sign> signs_of_room() const { return {}; }
    /// Reads whether there is room, and our keys.
    virtual txn look(const attempt_keys&) const { return {}; }
    /// Whether the answer to that calls for a `confirm`.
    virtual bool has_moved(const txn_response&, const attempt_keys&, std::int64_t) const {
        return false;
    }
    /// If `exceeds`, for messages.
    virtual std::string why_not() const { return {}; }
};

/// What a request to enter asks for.
enum class asking {
    enter, ///< A place in the queue.
    take,  ///< To own it, if nobody is there.
    admit, ///< To own it, with the place that we have.
};

/// @param create_revision Of our keys, if they are there.
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
