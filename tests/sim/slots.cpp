// SPDX-License-Identifier: BSL-1.0
#include "sim/slots.hpp"

#include <coetcd/detail/logic/permits.hpp>

#include <algorithm>
#include <cctype>

#include "sim/permits.hpp"
#include "sim/tenure.hpp"

namespace sim {

using namespace std::chrono_literals;

namespace {

constexpr std::string_view all_locks = "lock/";

bool is_hex(std::string_view text) {
    return !text.empty() && text.size() <= 16 && std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    });
}

bool is_point(json::value request) {
    return request["range_end"].text().empty();
}

} // namespace

std::optional<lock_key> lock_key::parse(std::string_view key) {
    std::optional<lock_key> found;
    if (!key.starts_with(all_locks)) {
        return found;
    }
    const std::size_t mark = key.find_first_of("./", all_locks.size());
    if (mark == key.npos || key.substr(mark) == ".own" || key.substr(mark) == ".value" ||
        key.substr(mark).starts_with(".ask/")) {
        return found;
    }
    found.emplace();
    found->name = key.substr(0, mark);
    found->queued = key[mark] == '/';
    const std::string_view id = key.substr(mark + 1);
    const std::size_t first = id.find('-');
    const std::size_t second = first == id.npos ? id.npos : id.find('-', first + 1);
    if (second != id.npos && is_hex(id.substr(0, first)) &&
        is_hex(id.substr(first + 1, second - first - 1))) {
        found->object = id.substr(0, second);
        found->slot = id.substr(second + 1);
    }
    found->claimed = first != id.npos && is_hex(id.substr(0, first)) && id.substr(first) == "-0";
    return found;
}

std::string lock_key::beside(const std::string& key) {
    std::string other = key;
    const std::size_t mark = key.find_first_of("./", all_locks.size());
    other[mark] = key[mark] == '/' ? '.' : '/';
    return other;
}

std::optional<queue_key> queue_key::parse(std::string_view key) {
    std::optional<queue_key> found;
    std::string name = lock_of(key);
    if (name.empty() || name.size() == key.size() || key[name.size()] != '/') {
        return found;
    }
    const std::string_view rest = key.substr(name.size() + 1);
    const std::size_t last = rest.rfind('/');
    found.emplace();
    found->name = std::move(name);
    found->line = rest.substr(0, std::min(last, rest.find('/')));
    found->id = rest.substr(last + 1); // of all, if there is no slash
    if (last == rest.npos) {
        found->line.clear();
    }
    return found;
}

// What is sent.

void lock_requests::read(std::string_view body) {
    const json request(body);
    read_part(request.root());
}

void lock_requests::read_part(json::value t) {
    std::map<std::string, std::int64_t> compared; // keys by themselves; their revisions, or 0
    std::set<std::string> empty;                  // queues that are to be
    bool compares = false;
    t["compare"].each([&](json::value c) {
        compares = true;
        if (!is_point(c) && c["create_revision"].number() == 0) {
            empty.insert(c["key"].bytes());
        }
        if (is_point(c)) {
            std::int64_t& revision = compared[c["key"].bytes()];
            revision = std::max(revision,
                                c["create_revision"] ? c["create_revision"].number()
                                                     : c["mod_revision"].number());
        }
    });
    bool elsewhere = false; // it is about more than locks
    bool asks = false;      // which keys are in a queue
    bool requests = false;  // that an owner gives its lock back
    std::set<std::pair<std::string, std::string>> entered;
    std::vector<std::string> read;
    std::set<std::string> written;
    for (const char* branch : {"success", "failure"}) {
        t[branch].each([&](json::value op) {
            if (const json::value part = op["request_txn"]) {
                read_part(part);
                return;
            }
            const json::value put = op["request_put"];
            const json::value erase = op["request_delete_range"];
            const json::value what = put ? put : erase ? erase : op["request_range"];
            std::string key = what["key"].bytes();
            const std::optional<lock_key> k = lock_key::parse(key);
            const std::optional<queue_key> q = queue_key::parse(key);
            if (q && put && q->line != "hold" && compared[key] == 0) {
                entered.insert({q->name, q->id});
            }
            asks = asks || (q && !put && !erase && !is_point(what));
            requests = requests || (put && key.starts_with(lock_of(key) + ".ask/"));
            if (!k) {
                elsewhere = elsewhere || lock_of(key).empty();
                if (q && is_point(what) && (put || erase)) {
                    written.insert(std::move(key));
                } else if (q && is_point(what) && std::string_view(branch) == "success") {
                    read.push_back(std::move(key));
                }
            } else if (!k->queued || !is_point(what)) {
                elsewhere = elsewhere || what["ignore_value"].flag();
            } else if (put && !put["ignore_value"].flag()) {
                const auto epoch = compared.find(lock_key::beside(key));
                const auto life = compared.find(key);
                if (life == compared.end() || life->second == 0) { // else it proclaims something
                    puts.push_back({key, epoch == compared.end() ? -1 : epoch->second});
                }
                written.insert(std::move(key));
            } else if (erase && compared.contains(key) && compared[key] == 0) {
                return; // of what is not there
            } else if (erase) {
                if (std::find(erases.begin(), erases.end(), key) == erases.end()) {
                    erases.push_back(key);
                }
                written.insert(std::move(key));
            } else if (!put && std::string_view(branch) == "success") {
                read.push_back(std::move(key));
            }
        });
    }
    entries += entered.size();
    for (const std::string& key : written) {
        const std::optional<lock_key> k = lock_key::parse(key);
        contradicts = contradicts || (k && empty.contains(k->name + "/") && compared[key] > 0 &&
                                      std::any_of(puts.begin(), puts.end(), [&](const entry& e) {
                                          return !k->object.empty() && e.key != key &&
                                                 e.key.starts_with(k->name + "/" + k->object);
                                      }));
    }
    if (elsewhere) {
        return;
    }
    for (const auto& [key, revision] : compared) {
        const std::optional<queue_key> q = queue_key::parse(key);
        if (revision > 0 && asks && !requests && entered.empty() && q && q->line != "hold" &&
            !written.contains(key)) {
            confirms[key] = revision;
        }
    }
    for (std::size_t i = 0; i != read.size() && !compares; ++i) {
        const std::optional<queue_key> q = queue_key::parse(read[i]);
        const std::optional<queue_key> next =
            i + 1 != read.size() ? queue_key::parse(read[i + 1]) : std::nullopt;
        if (q && next && q->name == next->name && q->id != next->id) {
            ahead.emplace(read[i], read[i + 1]);
        }
        looks.insert(read[i]);
    }
}

// Slots.

void slot_rules::sent(std::uint64_t number, const process&, const lock_requests& what) {
    if (what.contradicts) {
        world_.fail("a request is sent whose conditions exclude each other");
    }
    if (what.puts.empty() && what.erases.empty()) {
        return;
    }
    call& c = calls_[number];
    for (const std::string& key : what.erases) {
        use& u = uses_[key];
        u.erasing = true;
        c.erases.push_back({key, u.attempt});
    }
    for (const lock_requests::entry& e : what.puts) {
        use& u = uses_[e.key];
        std::uint64_t& attempt = u.attempts[e.epoch];
        // With the same epoch it is sent again, unless the attempt is known to be over.
        const bool again = attempt != 0 && !(u.erased && attempt == u.attempt);
        if (!again) {
            if (u.erasing && !u.erased) {
                world_.fail("a key is used again before its end was answered: " + e.key);
            }
            attempt = ++u.attempt;
            u.erasing = false;
            u.erased = false;
        }
        c.puts.push_back({e.key, attempt});
    }
}

void slot_rules::served() {
    if (const auto found = calls_.find(serving_); found != calls_.end()) {
        call& c = found->second;
        c.erased.clear();
        for (const entry& e : c.erases) {
            if (!world_.store.keys.contains(e.key)) {
                c.erased.push_back(e.key);
            }
        }
        for (const entry& e : c.puts) {
            const use& u = uses_[e.key];
            late_entries += e.attempt < u.attempt || e.attempt <= u.over ? 1 : 0;
        }
    }
    for (const std::string& epoch : bumped_) {
        const std::string key = lock_key::beside(epoch);
        if (!world_.store.keys.contains(key)) {
            use& u = uses_[key];
            u.over = u.attempt;
        }
    }
    bumped_.clear();
    serving_ = 0;
}

void slot_rules::answered(std::uint64_t number) {
    if (const auto found = calls_.find(number); found != calls_.end()) {
        for (const std::string& key : found->second.erased) {
            use& u = uses_[key];
            u.erased = u.erasing;
        }
    }
}

void slot_rules::changed(const etcd::change& c, bool lease_returned) {
    const std::optional<lock_key> k = lock_key::parse(c.key);
    if (!k) {
        return;
    }
    if (keys_return) {
        count(c, *k);
    }
    if (!k->queued) {
        if (!c.deleted && serving_ != 0) {
            bumped_.push_back(c.key);
        }
        return;
    }
    const auto by = calls_.find(serving_);
    if (by == calls_.end() || lease_returned) {
        return; // an operator's
    }
    if (c.deleted) {
        for (const entry& e : by->second.erases) {
            if (e.key == c.key && e.attempt < uses_[e.key].attempt) {
                world_.fail("what was to end an attempt that is over has erased " + c.key);
            }
        }
        return;
    }
    if (c.before.version != 0) {
        return;
    }
    // A life begins.
    for (const entry& e : by->second.puts) {
        const use& u = uses_[e.key];
        if (e.key == c.key && (e.attempt < u.attempt || e.attempt <= u.over)) {
            world_.fail("a ghost: what an attempt sent that is over has put " + c.key);
        }
    }
}

void slot_rules::count(const etcd::change& c, const lock_key& k) {
    if (k.slot == "void" && !k.queued) {
        world_.fail("the key that nobody puts was put: " + c.key);
    }
    if (k.claimed) {
        return;
    }
    if (k.object.empty() || !is_hex(k.slot)) {
        world_.fail("a key of a lock that is no slot's: " + c.key);
        return;
    }
    stock& s = stocks_[{k.name, k.object}];
    const std::size_t where = k.queued ? 0 : 1;
    if (c.deleted) {
        s.live[where].erase(c.key);
        return;
    }
    s.live[where].insert(c.key);
    s.ever[where].insert(c.key);
    if (world_.had_refusals() || world_.had_foreign_answers()) {
        return; // where what ends a key was refused, others take its place
    }
    if (s.live[where].size() > 2) {
        world_.fail("a session has more than two keys at once for a name: " + c.key);
    }
    if (s.ever[where].size() > 2) {
        world_.fail("a session has had more than two keys for a name: " + c.key);
    }
}

// Rates.

void rate_meter::sent(const process& by) {
    // Where all fails, each coroutine that tries pauses for longer and longer: from 25 ms to a
    // second. After all of a cluster's leases have gone, each is looked for at each member.
    constexpr std::uint64_t base = 100;
    const std::uint64_t each = world_.had_other_clusters() ? 45 : 30;
    client& c = clients_[&by];
    if (world_.now() >= c.since + 1s) {
        c.since = world_.now();
        c.requests = 0;
    }
    const std::uint64_t most = base + each * static_cast<std::uint64_t>(c.coroutines);
    busiest = std::max(busiest, static_cast<double>(++c.requests) / static_cast<double>(most));
    if (c.requests > most) {
        world_.fail("a client is busy with nothing: " + std::to_string(c.requests) +
                    " requests in a second");
    }
}

// Herds.

void herd_counter::told(const process& who, std::string_view line) {
    if (line.find("\"created\":true") != line.npos) {
        ++watches_[&who];
    }
    if (line.find("DELETE") == line.npos) {
        return;
    }
    const json message(line);
    news& n = news_[&who];
    if (n.at != world_.now()) {
        n.at = world_.now();
        n.ends.clear();
    }
    message["result"]["events"].each([&](json::value e) {
        if (e["type"].text() == "DELETE") {
            std::string key = e["kv"]["key"].bytes();
            if (queue_key::parse(key)) {
                ++events;
                n.ends.push_back({std::move(key), e["kv"]["mod_revision"].number()});
            }
        }
    });
}

void herd_counter::changed(const etcd::change& c) {
    if (const std::string name = lock_of(c.key); !name.empty()) {
        ++changes_[name];
        if (c.deleted) {
            lives_[{c.key, c.revision}] = c.before.create_revision;
        }
    }
}

void herd_counter::served(std::uint64_t number) {
    if (const auto found = asking_.find(number); found != asking_.end()) {
        std::uint64_t state = watches_[found->second.by];
        for (const std::string& key : found->second.keys) {
            state += changes_[lock_of(key)];
        }
        found->second.state = state;
    }
}

void herd_counter::answered(std::uint64_t number) {
    const auto found = asking_.find(number);
    if (found == asking_.end()) {
        return;
    }
    const std::optional<std::uint64_t> state = found->second.state;
    for (const std::string& key : found->second.keys) {
        if (!state) {
            break; // what is not etcd has answered in its place
        }
        question& q = asked_[key];
        const bool again = q.state == *state && world_.now() < q.at + 500ms;
        q = {world_.now(), *state, again ? q.repeated + 1 : 0};
        if (q.repeated > most_repeated) {
            world_.fail("a waiter asks again and again, and nothing has happened: " + key);
        }
    }
    asking_.erase(found);
}

void herd_counter::sent(std::uint64_t number, const process& by, const lock_requests& what) {
    if (!what.confirms.empty()) {
        asking_[number].by = &by;
    }
    for (const auto& [key, life] : what.confirms) {
        asking_[number].keys.insert(key);
    }
    entries += what.entries;
    requests += what.confirms.size() + (what.looks.size() + 1) / 2;
    const auto found = news_.find(&by);
    // Only where nothing else has happened to this process at this moment.
    if (found == news_.end() || found->second.at != world_.now() || !by.heard_one_line()) {
        return;
    }
    for (const end& e : found->second.ends) {
        const queue_key ended = *queue_key::parse(e.key);
        const std::string& name = ended.name;
        const auto there = world_.store.keys.find(e.key);
        if (there != world_.store.keys.end() && there->second.create_revision < e.revision) {
            continue; // an end that was invented may be invented again, and told to others
        }
        const bool others = std::any_of(
            found->second.ends.begin(), found->second.ends.end(), [&](const end& other) {
                const std::optional<queue_key> q = queue_key::parse(other.key);
                return q->name == name && q->id != ended.id;
            });
        if (others) {
            continue;
        }
        // One whose own key has gone has its own reason to ask. All readers behind one writer are
        // woken by its end.
        const auto asks = [&](const std::string& key) {
            const std::optional<queue_key> q = queue_key::parse(key);
            const bool all_readers = q->reads() && !ended.reads();
            return key != e.key && q->name == name && q->line != "keep" && !all_readers &&
                   world_.store.keys.contains(key);
        };
        // An older one was behind an earlier life of that key, whose end was not told.
        const auto confirming =
            std::count_if(what.confirms.begin(), what.confirms.end(), [&](const auto& c) {
                return asks(c.first) && c.second > lives_[e] &&
                       c.second == world_.store.keys.at(c.first).create_revision;
            });
        if (ended.reads() &&
            std::any_of(what.confirms.begin(), what.confirms.end(), [&](const auto& c) {
                const std::optional<queue_key> q = queue_key::parse(c.first);
                return q->reads() && asks(c.first);
            })) {
            world_.fail("a reader waits for a reader: " + e.key);
        }
        // Other looks were to be sent before.
        const auto [first, last] = what.ahead.equal_range(e.key);
        // A look behind a grant reads other keys besides.
        const bool looks = std::any_of(first, last, [&](const auto& pair) {
            const auto own = world_.store.keys.find(pair.second);
            return own != world_.store.keys.end() && has_lease_(by, own->second.lease);
        });
        const auto woken = static_cast<std::uint64_t>(confirming) + (looks ? 1 : 0);
        wakes += woken;
        woken_[e] += woken;
        // The next one, and the one behind that, which asks ahead of its turn. For permits: those
        // who count what comes before them, once their watch is in force, and the one behind them.
        const bool counts = e.key.starts_with(semaphore_prefix);
        if (woken_[e] > (counts ? coetcd::detail::logic::permits::most_counting + 1 : 2)) {
            world_.fail("the end of one key wakes too many waiters: " + e.key);
        }
    }
}

} // namespace sim
