// SPDX-License-Identifier: BSL-1.0
// What holders of locks leave to the next.
#include "sim/lock_values.hpp"

#include <coetcd/lock_value.hpp>

#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "sim/users.hpp"

namespace sim {

void lock_value_rules::changed(const std::vector<etcd::change>& changes) {
    for (const etcd::change& c : changes) {
        if (!c.key.starts_with(queue_prefix) || !c.key.ends_with(".value") || c.deleted) {
            continue;
        }
        ++counted;
        const std::int64_t number = std::stoll(c.now.value);
        std::int64_t& last = last_[c.key];
        if (number != last + 1 && !world_.had_other_clusters()) {
            world_.fail("the value of a lock goes from " + std::to_string(last) + " to " +
                        c.now.value);
        }
        last = number;
    }
}

void lock_value_rules::told(const std::string& lock,
                            const std::string& key,
                            std::int64_t life,
                            std::int64_t number) {
    const auto held = world_.store.keys.find(key);
    const bool holds = held != world_.store.keys.end() && held->second.create_revision == life;
    if (holds && number != last_[key_of(lock)] && !world_.had_other_clusters()) {
        world_.fail("the holder of a lock is told that its value is " + std::to_string(number) +
                    ", and it is " + std::to_string(last_[key_of(lock)]));
    }
}

asio::awaitable<void>
actor::count_up(const coetcd::held_lock& l, const std::string& name, std::int64_t fence) {
    const std::string key = l.key();
    try {
        for (int times = 3; times != 0; --times) {
            const std::optional<std::string> last = co_await coetcd::get_value(l);
            const std::int64_t number = last ? std::stoll(*last) : 0;
            s_.judge.lock_values.told(name, key, fence, number);
            co_await coetcd::set_value(l, std::to_string(number + 1));
        }
    } catch (const coetcd::error&) {
        judge(std::current_exception()); // the lock may be ours all the same
    }
}

} // namespace sim
