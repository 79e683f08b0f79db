// SPDX-License-Identifier: BSL-1.0
#include "sim/ledger.hpp"

#include <algorithm>
#include <sstream>

namespace sim {

void ledger::open() {
    open_ = true;
    for (int i = 0; i != accounts; ++i) {
        world_.store.write(account(i), std::to_string(capital));
    }
    for (int i = 0; i != world::most_stale; ++i) {
        world_.store.write("bank", ""); // no state from before can be read
    }
}

std::uint64_t ledger::begin() {
    entry e;
    e.changes_before = changes_;
    entries_.push_back(e);
    return entries_.size() - 1;
}

void ledger::ended(std::uint64_t id, verdict v) {
    entry& e = entries_[id];
    e.end = v;
    if (v == verdict::done && e.applied == 0) {
        world_.fail("a transaction is reported done that was not applied");
    }
    // With a lease that is revoked by hand goes what tells that an earlier copy was applied.
    const bool was_robbed = world_.count_of(fault::early_revoke) != 0;
    if (v == verdict::refused && e.applied != 0 && !was_robbed) {
        world_.fail("a transaction is reported refused that was applied");
    }
}

void ledger::conflicted(std::uint64_t id, unsigned attempts) {
    if (changes_ < entries_[id].changes_before + attempts / 2) {
        world_.fail("a transaction gave way to others that were not there");
    }
    ended(id, verdict::refused);
}

void ledger::drew(std::int64_t number) {
    ++numbers;
    if (number <= 0 || number > version_) {
        world_.fail("a number was told that was not drawn");
    }
    if (!numbers_.insert(number).second && !excused_) {
        world_.fail("a number was told twice");
    }
}

void ledger::counted(std::int64_t sum) {
    if (!sums_.insert(sum).second && !excused_) {
        world_.fail("two counted to the same number");
    }
}

void ledger::audited(int sum) {
    if (sum != accounts * capital) {
        world_.fail("a transaction has seen what never was: the accounts had " +
                    std::to_string(sum));
    }
}

void ledger::check_reads(std::string_view text) {
    std::istringstream lines{std::string(text)};
    std::string line;
    bool holds = true;
    while (std::getline(lines, line)) {
        std::istringstream words(line.substr(1));
        std::string key;
        words >> key;
        if (line[0] == '*') {
            std::vector<std::string> expected;
            for (std::string k; words >> k;) {
                expected.push_back(k);
            }
            std::vector<std::string> now;
            for (auto d = data_.lower_bound(key); d != data_.end() && d->first.starts_with(key);
                 ++d) {
                now.push_back(d->first);
            }
            holds = holds && now == expected;
            continue;
        }
        std::string value;
        words >> value;
        const auto found = data_.find(key);
        holds = holds && (line[0] == '!' ? found == data_.end()
                                         : found != data_.end() && found->second == value);
    }
    if (!holds) {
        world_.fail("a transaction was committed although what it read had changed");
    }
}

void ledger::changed(const std::vector<etcd::change>& changes,
                     const std::function<bool(lease_id)>& lease_returned) {
    if (!open_) {
        return;
    }
    const bool concerns = std::any_of(changes.begin(), changes.end(), [](const auto& c) {
        return c.key.starts_with("bank/") || c.key.starts_with("pool/");
    });
    changes_ += concerns ? 1 : 0;
    changes_ += world_.store.compacted != compacted_ ? 1 : 0;
    compacted_ = world_.store.compacted;
    for (const etcd::change& c : changes) { // first: some of what follows is excused by it
        const bool is_marker = c.key.find("-w") != c.key.npos && !c.key.starts_with("note/");
        if (is_marker && !c.deleted) {
            if (c.now.lease == 0) {
                world_.fail("a marker has no lease");
            }
            excused_ = excused_ || lease_returned(c.now.lease);
        }
    }
    for (const etcd::change& c : changes) {
        if (c.deleted || !c.key.starts_with("note/")) {
            continue;
        }
        entry& e = entries_.at(std::stoull(c.key.substr(5)));
        ++applied;
        if (++e.applied > 1 && !excused_) {
            world_.fail("a transaction was applied twice");
        }
        if (e.end == verdict::refused && !excused_) {
            world_.fail("a transaction that was refused was applied later");
        }
        check_reads(c.now.value);
    }
    for (const etcd::change& c : changes) {
        if (c.key.starts_with("bank/") || c.key.starts_with("pool/")) {
            if (c.deleted) {
                data_.erase(c.key);
            } else {
                data_[c.key] = c.now.value;
            }
        } else if (c.key.starts_with("loose/")) {
            loose_.insert({c.key, c.now.value});
        } else if (c.key == "numbers") {
            version_ = c.now.version;
        } else if (c.key == "tally") {
            sum_ = std::stoll(c.now.value);
        }
    }
}

void ledger::settle() {
    if (!open_) {
        return;
    }
    int total = 0;
    for (int i = 0; i != accounts; ++i) {
        total += std::stoi(data_.at(account(i)));
    }
    audited(total);
    if (excused_) {
        return;
    }
    if (version_ > draws_) {
        world_.fail("a number was drawn twice: " + std::to_string(version_) + " for " +
                    std::to_string(draws_) + " calls");
    }
    const auto told = static_cast<std::int64_t>(sums_.size());
    if (sum_ < told || sum_ > counts_) {
        world_.fail("a counter has " + std::to_string(sum_) + " of " + std::to_string(counts_) +
                    " counts, and told " + std::to_string(told));
    }
}

} // namespace sim
