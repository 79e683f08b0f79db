// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/common.hpp"
#include "sim/world.hpp"

namespace sim {

/// Watches over what is to be written once, and over what transactions count on.
///
/// Each transaction leaves a note that says what it has read. The note shows how often it was
/// applied, and that nothing it read had changed by then.
class ledger {
public:
    static constexpr int accounts = 3;
    static constexpr int capital = 100; // of each at first

    explicit ledger(world& w)
        : world_(w) {}

    /// Opens the accounts.
    void open();
    bool is_open() const { return open_; }

    static std::string account(int i) { return "bank/" + std::to_string(i); }
    static std::string note(std::uint64_t id) { return "note/" + std::to_string(id); }

    /// What a transaction has read, for its note.
    class reads {
    public:
        void key(const std::string& key, const std::string* value) {
            text_ += (value ? "=" + key + " " + *value : "!" + key) + "\n";
        }
        /// All keys with a prefix.
        void range(const std::string& prefix, const std::vector<std::string>& keys) {
            text_ += "*" + prefix;
            for (const std::string& k : keys) {
                text_ += " " + k;
            }
            text_ += "\n";
        }
        const std::string& text() const { return text_; }

    private:
        std::string text_;
    };

    // What clients do.

    /// Begins a transaction. Unless it ends it may have been applied or not.
    std::uint64_t begin();
    enum class verdict {
        done,
        refused, ///< It was not applied, and will not be.
        in_doubt,
    };
    void ended(std::uint64_t id, verdict v);
    /// Others were before it so many times: they must have been there.
    void conflicted(std::uint64_t id, unsigned attempts);
    void drawing() { ++draws_; }
    void drew(std::int64_t number);
    void not_drawn() { --draws_; }
    void counting() { ++counts_; }
    void counted(std::int64_t sum);
    void not_counted() { --counts_; }
    /// Whether such a value was ever there.
    bool was_loose(const std::string& key, const std::string& value) const {
        return loose_.contains({key, value});
    }
    /// What a read of all accounts added up to.
    void audited(int sum);

    // What etcd does.

    /// @param lease_returned The lease had ended before, and a late copy of its grant brought it
    ///   back: with it went what would make late copies void.
    void changed(const std::vector<etcd::change>& changes,
                 const std::function<bool(lease_id)>& lease_returned);

    /// Once nothing can come any more.
    void settle();

    std::uint64_t applied = 0; ///< Transactions.
    std::uint64_t numbers = 0; ///< That were drawn and told.

private:
    struct entry {
        int applied = 0;
        verdict end = verdict::in_doubt;
        std::uint64_t changes_before = 0;
    };

    void check_reads(std::string_view text);

    world& world_;
    bool open_ = false;
    std::map<std::string, std::string> data_; // accounts and the pool, as they are
    std::vector<entry> entries_;
    std::uint64_t changes_ = 0; ///< Requests that changed something, and compactions.
    std::int64_t compacted_ = 0;
    std::set<std::int64_t> numbers_;
    std::int64_t version_ = 0; ///< Of the sequence.
    std::int64_t draws_ = 0;   ///< That may have been made.
    std::set<std::pair<std::string, std::string>> loose_;
    std::set<std::int64_t> sums_;
    std::int64_t sum_ = 0; ///< Of the counter.
    std::int64_t counts_ = 0;
    bool excused_ = false; ///< A lease has returned.
};

} // namespace sim
