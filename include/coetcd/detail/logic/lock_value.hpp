// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/places.hpp>
#include <coetcd/detail/logic/rule.hpp>
#include <coetcd/detail/logic/standing.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

// The value of a lock: a key without a lease, which each owner may read and write. A write names
// the change that it follows: a copy that comes late finds a later one, or another owner.
namespace coetcd::detail::logic {

/// A grant carries the value, and 60 grants may share an answer.
inline constexpr std::size_t longest_lock_value = 16 * 1024;

inline std::string lock_value_key(const std::string& name) {
    return name + ".value";
}
inline void require_lock_value(const std::string& value) {
    if (value.size() > longest_lock_value) {
        throw std::invalid_argument("value: is longer than 16 KiB");
    }
}

/// What a lock's value was.
struct lock_value {
    std::optional<std::string> text; ///< Nothing: nobody has set it.
    std::int64_t revision = 0;       ///< That of its last change.
    std::int64_t as_of = 0;          ///< That of the answer that tells of it.
};

/// @param index Of the read in the transaction.
inline lock_value
lock_value_in(const txn_response& response, std::size_t index, const std::string& key) {
    const range_response& read = answers::range_at(response, index);
    lock_value found;
    found.as_of = answers::require_revision(response.header.revision);
    if (!read.kvs.empty()) {
        const key_value& kv = read.kvs.front();
        if (kv.key != key) {
            throw error(errc::protocol_error, "txn: the answer has another key than the one read");
        }
        found.text = kv.value;
        found.revision = answers::require_revision(kv.mod_revision);
    }
    return found;
}

/// What an owner knows of the value. What it was at the grant, it is until the owner changes it.
class known_value {
public:
    /// Nothing: that is not known.
    const std::optional<lock_value>& now() const { return now_; }
    /// Counts what makes older answers useless.
    std::uint64_t turn() const { return turn_; }

    /// The place asks etcd for the lock: nothing of an earlier hold can come after the grant.
    void ask() {
        now_.reset();
        is_certain_ = true;
    }
    /// @param since The turn when etcd was asked.
    void learn(const lock_value& told, std::uint64_t since) {
        if (is_certain_ && since == turn_) {
            now_ = told;
        }
    }
    /// A change begins. Until one has succeeded, it may come at any moment.
    std::uint64_t change() {
        now_.reset();
        is_certain_ = false;
        return ++turn_;
    }
    /// etcd has made a change: no copy of an earlier one can come.
    void changed(const lock_value& told, std::uint64_t change) {
        if (change == turn_) {
            now_ = told;
            is_certain_ = true;
            ++turn_;
        }
    }

private:
    std::optional<lock_value> now_;
    std::uint64_t turn_ = 0;
    bool is_certain_ = false; // no change of ours is under way, perhaps without our knowledge
};

/// The rule of a plain queue, which reads the lock's value as well.
class valued_rule final : public rule {
public:
    explicit valued_rule(const std::string& name)
        : key_(lock_value_key(name)) {}

    known_value* value() override { return &known_; }

    txn enter(const attempt_keys& a, const std::string& label) const override {
        return and_read(rule::enter(a, label));
    }
    standing after_enter(const txn_response& response, attempt_keys& a) override {
        return learn_from(response, rule::after_enter(response, a));
    }
    txn take(const attempt_keys& a, const std::string& label) const override {
        return and_read(rule::take(a, label));
    }
    standing after_take(const txn_response& response, attempt_keys& a) override {
        return learn_from(response, rule::after_take(response, a));
    }
    txn confirm(const attempt_keys& a, std::int64_t create_revision) const override {
        return and_read(rule::confirm(a, create_revision));
    }
    standing after_confirm(const txn_response& response,
                           attempt_keys& a,
                           std::int64_t create_revision) override {
        return learn_from(response, rule::after_confirm(response, a, create_revision));
    }

private:
    txn and_read(txn t) const {
        t.success.push_back(op::range(key_));
        return t;
    }
    /// If it is the ends of other keys that make it the owner, the value may change until then.
    standing learn_from(const txn_response& response, standing now) {
        known_.ask();
        if (response.succeeded && now.at == standing::where::owner) {
            const std::size_t last = response.responses.size() - 1;
            known_.learn(lock_value_in(response, last, key_), known_.turn());
        }
        return now;
    }

    const std::string key_;
    known_value known_;
};

inline txn read_lock_value(const held_life& by, const std::string& key) {
    return txn().when(compare::create_revision(by.key) == by.create_revision).then(op::range(key));
}
/// @returns Nothing if the lock has another owner, or none.
inline std::optional<lock_value> after_reading_lock_value(const txn_response& response,
                                                          const std::string& key) {
    std::optional<lock_value> now;
    if (response.succeeded) {
        now = lock_value_in(response, 0, key);
    }
    return now;
}

inline txn write_lock_value(const held_life& by,
                            const std::string& key,
                            const lock_value& last,
                            const std::string& text) {
    return txn()
        .when(compare::create_revision(by.key) == by.create_revision,
              compare::mod_revision(key) == last.revision)
        .then(op::put(key, text))
        .otherwise(op::range(by.key, transactions::keys_only()), op::range(key));
}
/// @returns What the value is now, by this owner; nothing if the lock has another one, or none.
inline std::optional<lock_value> after_writing_lock_value(const txn_response& response,
                                                          const held_life& by,
                                                          const std::string& key,
                                                          const std::string& text) {
    std::optional<lock_value> now;
    if (response.succeeded) {
        const std::int64_t revision = answers::require_revision(response.header.revision);
        now = lock_value{text, revision, revision};
    } else if (answers::holds(answers::range_at(response, 0), by.key, by.create_revision)) {
        now = lock_value_in(response, 1, key);
    }
    return now;
}

} // namespace coetcd::detail::logic
