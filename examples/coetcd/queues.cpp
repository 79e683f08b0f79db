// SPDX-License-Identifier: BSL-1.0
#include "queues.hpp"

#include <coetcd/error.hpp>
#include <coetcd/printable.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "arguments.hpp"
#include "output.hpp"

namespace tool {

namespace {

/// What a key is to its queue. Of those that are one place in it, the last of these tells how it
/// is.
enum class kind { waits, reads, keeps, plain, writes, holds };

struct position {
    std::string_view name;
    std::string_view id; ///< Of the place.
    kind of = kind::plain;
    std::int64_t permits = 0;
};

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

/// `<lease>`, `<lease>-<nonce>-<slot>` or, of a claim, `<lease>-0`, in hexadecimal digits: whose
/// lease it has shows that it is no other key.
bool is_place(std::string_view id, coetcd::lease_id lease) {
    std::uint64_t number = 0;
    const auto [end, wrong] = std::from_chars(id.data(), id.data() + id.size(), number, 16);
    if (wrong != std::errc() || number != static_cast<std::uint64_t>(lease) || lease == 0) {
        return false;
    }
    const std::string_view rest = id.substr(static_cast<std::size_t>(end - id.data()));
    return rest.empty() || rest == "-0" || (rest[0] == '-' && rest.find('-', 1) != rest.npos);
}

/// Those of Go's `recipe.RWMutex`: nanoseconds.
bool is_time(std::string_view id) {
    return id.size() == 19 && id.find_first_not_of("0123456789") == id.npos;
}

/// Since when it is held, if that is stored, and of this ownership: anybody may have written it.
std::optional<std::chrono::system_clock::time_point>
since(const all_keys& keys, const std::string& name, const entry& e) {
    const auto stored = keys.find(since_key(name, e.lease));
    if (stored == keys.end() || stored->second.lease != e.lease) {
        return std::nullopt;
    }
    const std::string_view text = stored->second.value;
    const std::size_t space = std::min(text.find(' '), text.size());
    const std::optional<std::int64_t> token = number_in(text.substr(0, space));
    const std::optional<std::int64_t> time =
        number_in(text.substr(std::min(space + 1, text.size())));
    using moment = std::chrono::system_clock::time_point;
    constexpr std::int64_t latest = // of what the clock can tell
        std::chrono::floor<std::chrono::milliseconds>(moment::max()).time_since_epoch().count();
    if (token != e.token || !time || *time < 0 || *time > latest) {
        return std::nullopt;
    }
    return moment(std::chrono::milliseconds(*time));
}

/// Of a number of permits; in keys, with a 0 before it.
constexpr std::string_view bits = "0123456789abcdef";

std::optional<int> bit_in(std::string_view digits) {
    if (digits.size() != 2 || digits[0] != '0' || bits.find(digits[1]) == bits.npos) {
        return std::nullopt;
    }
    return static_cast<int>(bits.find(digits[1]));
}

/// Names that may end as the lines of a lock or a semaphore do, and are known to be whole.
using whole_names = std::set<std::string, std::less<>>;

/// Those of which a session has stored since when it has them.
whole_names stored_in(const all_keys& keys) {
    whole_names all;
    for (const auto& [key, kv] : keys) {
        const std::size_t end = key.rfind(".since.");
        if (end != key.npos && key == since_key(key.substr(0, end), kv.lease)) {
            all.insert(key.substr(0, end));
        }
    }
    return all;
}

std::optional<position> position_of(const coetcd::key_value& kv, const whole_names& whole) {
    std::string_view path = kv.key;
    position found;
    found.id = split(path);
    found.name = path;
    const std::string_view parent = split(path);
    // What has no number of its own is in no line: `etcdctl lock` has put it.
    const bool has_line = !whole.contains(found.name) &&
                          (is_time(found.id) || found.id.find('-') != found.id.rfind('-'));
    if (!has_line) {
        // It is a lock or an election, whatever its name ends with.
    } else if (parent == "read" || parent == "write" || parent == "keep" || parent == "wait") {
        found.name = path;
        found.of = parent == "read"    ? kind::reads
                   : parent == "write" ? kind::writes
                   : parent == "keep"  ? kind::keeps
                                       : kind::waits;
    } else if (const std::optional<int> bit = bit_in(parent); bit && split(path) == "hold") {
        found.name = path;
        found.of = kind::holds;
        found.permits = std::int64_t{1} << *bit;
    }
    const bool may_be_go = (found.of == kind::reads || found.of == kind::writes) && kv.lease != 0;
    if (found.name.empty() || !(is_place(found.id, kv.lease) || (may_be_go && is_time(found.id)))) {
        return std::nullopt;
    }
    return found;
}

/// Something in a queue, as its keys tell together: what writes may have two, what has permits
/// several.
struct place {
    entry what;
    kind of = kind::waits;
    std::int64_t turn = 0; ///< The create_revision of its oldest key.
    std::int64_t permits = 0;

    void add(const coetcd::key_value& kv, const position& p) {
        const bool first = turn == 0;
        turn = first ? kv.create_revision : std::min(turn, kv.create_revision);
        if (first || p.of > of) {
            of = p.of;
            what.key = kv.key;
            what.label = kv.value;
            what.lease = kv.lease;
            what.token = kv.create_revision;
            what.shared = of == kind::reads || of == kind::keeps;
            if (of == kind::waits) { // how many it waits for, a space, the label
                const std::size_t space = std::min(kv.value.find(' '), kv.value.size());
                const auto wanted = number_in(std::string_view(kv.value).substr(0, space));
                what.permits = std::max<std::int64_t>(wanted.value_or(0), 0);
                what.label = kv.value.substr(std::min(space + 1, kv.value.size()));
            }
        }
    }
};

/// The keys below a name that are no place of it.
strays strays_of(const all_keys& keys, const std::string& name, const whole_names& whole) {
    strays found;
    for (auto at = keys.lower_bound(name + "/"); at != keys.lower_bound(name + "0"); ++at) {
        const std::optional<position> p = position_of(at->second, whole);
        if (!p || p->name != name) {
            found.emplace(at->first, at->second.create_revision);
        }
    }
    return found;
}

/// @returns The create_revision of the oldest of those that begin so; if there is none, the
///   greatest number.
std::int64_t oldest_of(const strays& all, const std::string& beginning) {
    std::int64_t oldest = std::numeric_limits<std::int64_t>::max();
    for (const auto& [key, revision] : all) {
        oldest = key.starts_with(beginning) ? std::min(oldest, revision) : oldest;
    }
    return oldest;
}

/// Who has it, each by what it waits for itself: permits for no lock, a reader for older keys of
/// writers, and any other place for whatever is older. One name may be used for all of these at
/// once.
queue queue_of(std::string name, std::vector<place> places, strays others) {
    std::sort(places.begin(), places.end(), [](const place& a, const place& b) {
        return a.turn < b.turn;
    });
    const std::int64_t stray = oldest_of(others, name);
    const std::int64_t stray_of_writer = oldest_of(others, name + "/write/");
    queue q;
    q.name = std::move(name);
    q.strays = std::move(others);
    bool behind_writer = false;
    for (place& p : places) {
        const bool is_first = q.holders.empty() && q.waiters.empty() && p.turn < stray;
        behind_writer = behind_writer || p.turn > stray_of_writer;
        const bool has = p.of == kind::holds ||
                         (p.what.shared ? !behind_writer : p.of != kind::waits && is_first);
        behind_writer = behind_writer || p.of == kind::writes;
        (has ? q.holders : q.waiters).push_back(std::move(p.what));
    }
    return q;
}

std::vector<queue> queues_with(const all_keys& keys, const whole_names& whole) {
    std::map<std::string, std::map<std::string, place, std::less<>>, std::less<>> all;
    for (const auto& [key, kv] : keys) {
        if (const std::optional<position> p = position_of(kv, whole)) {
            place& at = all[std::string(p->name)][std::string(p->id)];
            at.add(kv, *p);
            at.permits += p->permits;
        }
    }
    std::vector<queue> result;
    for (auto& [name, by_id] : all) {
        std::vector<place> places;
        for (auto& [id, p] : by_id) {
            p.what.permits = p.of == kind::holds ? p.permits : p.what.permits;
            p.what.since = since(keys, name, p.what);
            places.push_back(std::move(p));
        }
        result.push_back(queue_of(name, std::move(places), strays_of(keys, name, whole)));
    }
    return result;
}

} // namespace

std::vector<queue> queues_of(const all_keys& keys) {
    return queues_with(keys, stored_in(keys));
}

std::string since_key(const std::string& name, coetcd::lease_id lease) {
    return name + ".since." + hex(lease);
}

std::string since_value(std::int64_t token, std::chrono::system_clock::time_point now) {
    const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch());
    return std::to_string(token) + " " + std::to_string(time.count());
}

std::optional<page> smaller(page p) {
    if (p.without_values) {
        return std::nullopt;
    }
    p.without_values = p.keys == 1;
    p.keys = std::max<std::int64_t>(p.keys / 2, 1);
    return p;
}

page larger(page p) {
    p.keys = p.without_values ? 1 : std::min(p.keys * 2, page().keys);
    p.without_values = false;
    return p;
}

namespace {

/// @returns Nothing if the page is too large, and can be smaller.
boost::asio::awaitable<std::optional<coetcd::range_response>>
read_page(coetcd::client c, coetcd::key_range range, page how, std::int64_t revision) {
    coetcd::range_options options;
    options.limit = how.keys;
    options.keys_only = how.without_values;
    options.revision = revision;
    std::optional<coetcd::range_response> found;
    try {
        found = co_await c.range(range, options);
    } catch (const coetcd::error& e) {
        if (e.code() != coetcd::errc::too_large || !smaller(how)) {
            throw;
        }
    }
    co_return found;
}

} // namespace

void drop_plain_value(coetcd::key_value& kv) {
    if (kv.lease == 0) { // it is nobody's place
        std::string().swap(kv.value);
    }
}

boost::asio::awaitable<all_keys_read> read_keys(coetcd::client c, coetcd::key_range range) {
    constexpr std::size_t most_read = std::size_t{64} << 20;
    constexpr std::size_t of_each = 200; // beside its key and value
    std::size_t size = 0;
    all_keys_read all;
    page next;
    for (bool more = true; more;) {
        std::optional<coetcd::range_response> found =
            co_await read_page(c, range, next, all.revision);
        if (!found) {
            next = *smaller(next);
            continue;
        }
        next = larger(next);
        all.revision = all.revision == 0 ? found->header.revision : all.revision;
        more = found->more && !found->kvs.empty();
        if (more && found->kvs.back().key < range.key) { // it would have no end
            throw coetcd::error(coetcd::errc::protocol_error,
                                "range: the keys of one answer do not follow those of the last");
        }
        if (more) {
            range.key = found->kvs.back().key + '\0';
        }
        for (coetcd::key_value& kv : found->kvs) {
            drop_plain_value(kv);
            size += of_each + 2 * kv.key.size() + kv.value.size();
            std::string key = kv.key;
            all.keys.emplace(std::move(key), std::move(kv));
        }
        if (size > most_read) { // what answers may invent them
            throw coetcd::error(coetcd::errc::too_large,
                                "range: more than 64 MiB of keys and labels");
        }
    }
    co_return all;
}

boost::asio::awaitable<queue> read_queue(coetcd::client c, std::string name) {
    all_keys_read found = co_await read_keys(c, coetcd::key_range::prefix(name + "/"));
    all_keys keys;
    try { // who may not read these does not know since when it is held
        all_keys_read more = co_await read_keys(c, coetcd::key_range::prefix(name + ".since."));
        for (auto& [key, kv] : more.keys) {
            if (key == since_key(name, kv.lease)) { // else it is another lock's, which is called so
                keys.emplace(key, std::move(kv));
            }
        }
    } catch (const coetcd::error&) {
    }
    whole_names whole = stored_in(found.keys);
    whole.insert(name);
    keys.merge(std::move(found.keys));
    queue result;
    result.name = std::move(name);
    result.strays = strays_of(keys, result.name, whole); // there may be nothing else
    for (queue& q : queues_with(keys, whole)) {
        if (q.name == result.name) {
            result = std::move(q);
        }
    }
    co_return result;
}

std::vector<std::string> keys_of_writer(const std::string& name, const std::string& key) {
    return {key, name + "/keep" + key.substr(key.rfind('/'))};
}

std::vector<std::string>
keys_of_permits(const std::string& name, const std::string& key, std::int64_t permits) {
    std::vector<std::string> keys{key};
    for (std::size_t bit = 0; bit != bits.size(); ++bit) {
        const std::string each = name + "/hold/0" + bits[bit] + key.substr(key.rfind('/'));
        if ((permits >> bit) % 2 != 0 && each != key) {
            keys.push_back(each);
        }
    }
    return keys;
}

std::string in_the_way(const std::string& name, const std::string& key) {
    const std::string_view line = std::string_view(key).substr(name.size());
    const bool is_permit = line.starts_with("/hold/") && line.size() > 8 && line[8] == '/' &&
                           bit_in(line.substr(6, 2));
    std::string whoever = "wants the lock alone";
    if (line.starts_with("/write/")) {
        whoever = "wants no permits";
    } else if (line.starts_with("/wait/")) {
        whoever = "wants the lock alone, or permits,";
    } else if (is_permit) {
        whoever = "wants the lock alone, or more permits than it leaves,";
    }
    return printed(key) + ": is nobody's place here; a later waiter that " + whoever +
           " waits until that key is deleted";
}

bool is_candidate(const std::string& name, const std::string& key, coetcd::lease_id lease) {
    coetcd::key_value kv;
    kv.key = key;
    kv.lease = lease;
    const std::optional<position> p = position_of(kv, {name});
    return p && p->name == name && p->of == kind::plain;
}

std::optional<std::string> why_not_asked(const queue& q) {
    const std::string name = coetcd::printable(q.name);
    if (q.holders.empty()) {
        const bool is_clear = q.strays.empty();
        return name + ": nobody has it" +
               (is_clear ? "" : "; " + in_the_way(q.name, q.strays.begin()->first));
    }
    if (q.holders.front().permits != 0) {
        return name + ": is a semaphore, whose holders hear no request";
    }
    for (const auto& [key, revision] : q.strays) {
        if (revision < q.holders.front().token) {
            return in_the_way(q.name, key) +
                   ", and is older than the holder, which cannot be asked";
        }
    }
    return std::nullopt;
}

std::string describe(const entry& e) {
    const std::string label = single_spaced(coetcd::printable(e.label));
    return label.empty() ? "lease " + hex(e.lease) : label;
}

} // namespace tool
