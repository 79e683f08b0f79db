// SPDX-License-Identifier: BSL-1.0
#include "sim/values.hpp"

#include <algorithm>

namespace sim {

namespace {

constexpr std::string_view all_values = "value/";

} // namespace

void value_rules::changed(const std::vector<etcd::change>& changes,
                          const std::function<bool(lease_id)>& has_returned) {
    for (const bool markers : {true, false}) { // they tell how to read the rest
        for (const etcd::change& c : changes) {
            const bool is_marker = c.key.find('.') != c.key.npos;
            if (c.deleted || !c.key.starts_with(all_values) || is_marker != markers) {
                continue;
            }
            if (is_marker) {
                returned_ = returned_ || has_returned(c.now.lease);
            } else {
                put(c);
            }
        }
    }
}

void value_rules::put(const etcd::change& c) {
    const auto found = writes_.find(c.now.value);
    if (found == writes_.end()) {
        world_.fail("a value was written that nobody wrote: " + c.now.value);
        return;
    }
    write& w = found->second;
    // With a lease that is revoked by hand goes what makes late copies void.
    const bool was_robbed = world_.count_of(fault::early_revoke) != 0;
    if (!w.at.empty() && w.once && !returned_ && !was_robbed) {
        world_.fail("a value was written twice: " + c.now.value);
    }
    if (w.refused && !returned_ && !was_robbed) {
        world_.fail("a value was written that was refused: " + c.now.value);
    }
    w.at.push_back(c.revision);
    w.before = c.before.mod_revision;
    now_.emplace();
    now_->key = c.key;
    now_->value = c.now.value;
    now_->create_revision = c.now.create_revision;
    now_->mod_revision = c.now.mod_revision;
    now_->version = c.now.version;
    since_ = world_.now();
}

void value_rules::written(const std::string& what, std::int64_t at, std::int64_t expected) {
    const write& w = writes_[what];
    if (std::find(w.at.begin(), w.at.end(), at) == w.at.end() && !returned_) {
        world_.fail("a value is said to be written that was not: " + what);
    }
    if (expected >= 0 && w.once && w.before != expected && !returned_) {
        world_.fail("a value was written in the place of another one than was read: " + what);
    }
}

void value_rules::refused(const std::string& what) {
    write& w = writes_[what];
    w.refused = true;
    const bool was_robbed = world_.count_of(fault::early_revoke) != 0;
    if (!w.at.empty() && !returned_ && !was_robbed) {
        world_.fail("a value is said to be refused that was written: " + what);
    }
}

void value_rules::told(following& f, const state& now) {
    ++told_states;
    if (f.last && *f.last == now) {
        world_.fail("who follows a value is told the same again");
    }
    const std::int64_t revision = now ? now->mod_revision : 0;
    if (revision < f.revision) {
        world_.fail("who follows a value is told what was before");
    }
    const auto found = now ? writes_.find(now->value) : writes_.end();
    const auto is_one = [&](const write& w) {
        return std::find(w.at.begin(), w.at.end(), now->mod_revision) != w.at.end();
    };
    if (now && (found == writes_.end() || !is_one(found->second))) {
        world_.fail("who follows a value is told what never was: " + now->value);
    }
    f.revision = revision;
    f.last = now;
}

bool value_rules::is_untold(const following& f) const {
    return !f.last || f.revision != (now_ ? now_->mod_revision : 0);
}

bool value_rules::owes_states() const {
    return std::any_of(
        followers_.begin(), followers_.end(), [&](const following& f) { return is_untold(f); });
}

void value_rules::look_for_untold(nanoseconds healed_at, nanoseconds bound) const {
    for (const following& f : followers_) {
        if (is_untold(f) && world_.now() > std::max({since_, healed_at, f.since}) + bound) {
            world_.fail("who follows a value is not told what it is");
        }
    }
}

} // namespace sim
