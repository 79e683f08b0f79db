// SPDX-License-Identifier: BSL-1.0
#include "queues.hpp"

#include <coetcd/printable.hpp>

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

namespace tool {

namespace {

/// What a key is to its queue.
struct position {
    enum class part { plain, read, write, hold, wait };
    std::string_view name;
    part of = part::plain;
    std::int64_t permits = 0;
};

/// `<lease>` or `<lease>-<nonce>-<slot>`, in hexadecimal digits: whose lease it has shows that it
/// is no other key.
bool is_place(std::string_view last, coetcd::lease_id lease) {
    std::uint64_t id = 0;
    const auto [end, wrong] = std::from_chars(last.data(), last.data() + last.size(), id, 16);
    return wrong == std::errc() && id == static_cast<std::uint64_t>(lease) && lease != 0 &&
           (end == last.data() + last.size() || *end == '-');
}

/// Takes the last part of a path away.
std::string_view split(std::string_view& path) {
    const std::size_t slash = path.rfind('/');
    if (slash == path.npos) {
        return std::exchange(path, {});
    }
    const std::string_view last = path.substr(slash + 1);
    path = path.substr(0, slash);
    return last;
}

std::optional<position> position_of(const coetcd::key_value& kv) {
    using part = position::part;
    std::string_view path = kv.key;
    if (!is_place(split(path), kv.lease)) {
        return std::nullopt;
    }
    position found{path, part::plain, 0};
    const std::string_view parent = split(path);
    if (parent == "read" || parent == "write" || parent == "wait") {
        found.name = path;
        found.of = parent == "read" ? part::read : parent == "write" ? part::write : part::wait;
    } else if (parent.size() == 2 && split(path) == "hold") {
        int bit = 0;
        std::from_chars(parent.data(), parent.data() + 2, bit, 16);
        found.name = path;
        found.of = part::hold;
        found.permits = std::int64_t{1} << bit;
    }
    if (found.name.empty()) {
        return std::nullopt;
    }
    return found;
}

bool is_older(const entry& a, const entry& b) {
    return a.token < b.token;
}

/// Who of those that lock has it: the oldest one; and with a reader all until the next writer.
void let_the_oldest_hold(queue& q) {
    std::sort(q.waiters.begin(), q.waiters.end(), &is_older);
    auto end = q.waiters.begin();
    while (end != q.waiters.end() &&
           (end == q.waiters.begin() || (end->shared && q.waiters.front().shared))) {
        ++end;
    }
    q.holders.insert(q.holders.end(), q.waiters.begin(), end);
    q.waiters.erase(q.waiters.begin(), end);
}

} // namespace

std::vector<queue> queues_of(const all_keys& keys) {
    using part = position::part;
    std::map<std::string, queue, std::less<>> all;
    for (const auto& [key, kv] : keys) {
        const std::optional<position> p = position_of(kv);
        if (!p) {
            continue;
        }
        queue& q = all[std::string(p->name)];
        entry e{key, kv.value, kv.lease, kv.create_revision, p->permits, p->of == part::read};
        const auto same = std::find_if(q.holders.begin(), q.holders.end(), [&](const entry& other) {
            return other.permits != 0 && other.token == e.token;
        });
        if (p->of != part::hold) {
            q.waiters.push_back(std::move(e));
        } else if (same != q.holders.end()) { // another bit of its weight
            same->permits += e.permits;
        } else {
            q.holders.push_back(std::move(e));
        }
    }
    std::vector<queue> result;
    for (auto& [name, q] : all) {
        q.name = name;
        const bool counts = keys.contains(name + ".limit") || !q.holders.empty();
        std::sort(q.holders.begin(), q.holders.end(), &is_older);
        std::sort(q.waiters.begin(), q.waiters.end(), &is_older);
        if (!counts) {
            let_the_oldest_hold(q);
        }
        result.push_back(std::move(q));
    }
    return result;
}

boost::asio::awaitable<std::vector<queue>>
read_queues(coetcd::client c, std::string prefix, bool exact) {
    const std::string below = exact ? prefix + "." : prefix;
    auto range = exact ? coetcd::key_range(below, prefix + "0") : coetcd::key_range::prefix(below);
    const auto found = co_await c.range(std::move(range));
    all_keys keys;
    for (const coetcd::key_value& kv : found.kvs) {
        keys.emplace(kv.key, kv);
    }
    std::vector<queue> all = queues_of(keys);
    if (exact) {
        std::erase_if(all, [&](const queue& q) { return q.name != prefix; });
    }
    co_return all;
}

std::string describe(const entry& e) {
    if (!e.label.empty()) {
        return coetcd::printable(e.label);
    }
    std::ostringstream text;
    text << "lease " << std::hex << e.lease;
    return text.str();
}

} // namespace tool
