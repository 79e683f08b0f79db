// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/testing/json.hpp>
#include <coetcd/kv.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace coetcd::detail::testing {

/// Why a request is refused: a gRPC code, and a message.
struct etcd_refusal {
    int code;
    std::string message;
};

/// The keys of an etcd in memory, with their history. What a request changes is there at once; when
/// it is committed, it is a revision and is told to others.
class etcd_store {
public:
    struct record {
        std::string value;
        std::int64_t create_revision = 0;
        std::int64_t mod_revision = 0;
        std::int64_t version = 0;
        lease_id lease = 0;
    };
    struct change {
        bool deleted = false;
        std::string key;
        std::int64_t revision = 0;
        record now;    ///< Unless deleted.
        record before; ///< Its version is 0 if there was none.
    };
    /// What one request changes.
    struct edit {
        std::int64_t at;
        std::vector<change> changes;
    };
    using store_map = std::map<std::string, record>;

    store_map keys;
    std::int64_t revision = 1;
    std::int64_t compacted = 0;
    /// Whether a range that reads only keys tells their leases, as before 3.7.
    bool tells_leases_of_keys = false;

    /// All changes so far, including those that were compacted.
    const std::vector<change>& history() const { return history_; }
    /// The keys that begin with `prefix`.
    std::vector<std::string> under(const std::string& prefix) const;
    bool has_any(std::string_view prefix) const {
        const auto first = keys.lower_bound(std::string(prefix));
        return first != keys.end() && first->first.starts_with(prefix);
    }

    // Changes.

    edit next_edit() const { return {revision + 1, {}}; }
    /// @param out Receives the answer to the request, except its header.
    void put(json::value request, edit& e, json_writer& out);
    void put_value(const std::string& key, const std::string& value, edit& e);
    /// @param out As for `put`; may be null.
    /// @returns The number of keys that it has erased.
    std::int64_t erase_range(json::value request, edit& e, json_writer* out);
    void erase_key(const std::string& key, edit& e);
    void erase_with(lease_id lease, edit& e);
    void commit(const edit& e);
    /// Takes over what there is in another store, and keeps nothing else.
    void take_over(const etcd_store& from);

    // Reads.

    /// @param pending The changes of the same transaction, so far.
    store_map keys_at(std::int64_t then, const std::vector<change>& pending) const;
    /// Writes the answer, except its header.
    /// @param pending As for `keys_at`.
    /// @throws etcd_refusal
    void range(json::value request,
               std::int64_t now,
               const std::vector<change>& pending,
               json_writer& out) const;
    void write_kv(json_writer& out, const std::string& key, const record& r, bool keys_only) const;

private:
    std::vector<change> history_;
};

inline bool in_range(const std::string& key, const std::string& first, const std::string& end) {
    if (end.empty()) {
        return key == first;
    }
    return key >= first && (end == std::string_view("\0", 1) || key < end);
}

/// Calls `take` with each entry of `keys` in the range.
template<class Keys, class F>
void each_in(Keys& keys, const std::string& first, const std::string& end, F take) {
    for (auto k = keys.lower_bound(first); k != keys.end() && in_range(k->first, first, end);) {
        const auto here = k++;
        take(*here);
    }
}

} // namespace coetcd::detail::testing
