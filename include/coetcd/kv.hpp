// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace coetcd {

/// The id of a lease. Zero means "no lease".
using lease_id = std::int64_t;

/// Sent by etcd with every answer.
struct response_header {
    std::uint64_t cluster_id = 0;
    std::uint64_t member_id = 0;
    std::int64_t revision = 0; ///< The store's revision when the request was applied.
    std::uint64_t raft_term = 0;
};

/// A key as etcd stores it. Keys and values are bytes, not text.
struct key_value {
    std::string key;
    std::string value;
    std::int64_t create_revision = 0; ///< Identifies this life of the key: stable until deleted.
    std::int64_t mod_revision = 0;
    std::int64_t version = 0; ///< 1 when created, one more with each put.
    lease_id lease = 0;       ///< The key is deleted with this lease; 0 for none.

    bool operator==(const key_value&) const = default;
};

enum class event_type { put, erase };

/// A change of one key. An erase carries only `kv.key` and `kv.mod_revision`.
struct event {
    event_type type = event_type::put;
    key_value kv;
    std::optional<key_value> prev_kv; ///< Only if the watch asked for it.
};

/// One key, or a half-open range of keys in byte order.
struct key_range {
    /// One key. Converts implicitly, so that a key may stand where a range is asked for.
    key_range(std::string one_key)
        : key(std::move(one_key)) {}
    key_range(const char* one_key)
        : key(one_key) {}
    /// All keys in `[first, last)`.
    key_range(std::string first, std::string last)
        : key(std::move(first))
        , range_end(std::move(last)) {}

    /// All keys that start with `prefix`; all keys if it is empty.
    static key_range prefix(std::string prefix);
    /// All keys from `first` on.
    static key_range from(std::string first);
    static key_range all() { return prefix({}); }

    std::string key;
    std::string range_end; ///< Empty for one key; a single zero byte for "to the last key".
};

enum class sort_order { none, ascend, descend };
enum class sort_target { key, version, create, mod, value };

/// Options of a range read. Trivially destructible, so that a call may spell them in braces.
struct range_options {
    std::int64_t limit = 0;    ///< Maximum number of keys; 0 for all; never negative.
    std::int64_t revision = 0; ///< Read as of this revision; 0 for the newest; never negative.
    sort_order order = sort_order::none;
    sort_target target = sort_target::key;
    bool serializable = false; ///< Answer from one member's memory: faster, possibly stale.
    bool keys_only = false;
    bool count_only = false;
    std::int64_t min_mod_revision = 0;
    std::int64_t max_mod_revision = 0;
    std::int64_t min_create_revision = 0;
    std::int64_t max_create_revision = 0;
};

/// Options of a put.
struct put_options {
    lease_id lease = 0;        ///< The key is deleted with this lease.
    bool prev_kv = false;      ///< Return the key as it was.
    bool ignore_value = false; ///< Keep the value; the key must exist.
    bool ignore_lease = false; ///< Keep the lease; the key must exist.
};

/// Options of an erase.
struct erase_options {
    bool prev_kv = false; ///< Return the erased keys.
};

struct range_request {
    range_request(key_range which, range_options how = {})
        : range(std::move(which))
        , options(how) {}
    key_range range;
    range_options options;
};

struct put_request {
    put_request(std::string k, std::string v, put_options how = {})
        : key(std::move(k))
        , value(std::move(v))
        , options(how) {}
    std::string key;
    std::string value;
    put_options options;
};

struct erase_request {
    erase_request(key_range which, erase_options how = {})
        : range(std::move(which))
        , options(how) {}
    key_range range;
    erase_options options;
};

/// A condition of a transaction: one attribute of a key against a number or bytes. Written as
/// `compare::version("k") == 0`. A key that does not exist has zero revisions, version and lease,
/// and no value at all. On a range, every key must meet the condition.
class compare {
public:
    enum class target { version, create, mod, value, lease };
    enum class result { equal, greater, less, not_equal };

    /// The left side of a comparison.
    template<class Operand>
    class subject {
    public:
        subject(target which, key_range keys)
            : which_(which)
            , keys_(std::move(keys)) {}
        compare operator==(Operand v) && { return make(result::equal, std::move(v)); }
        compare operator!=(Operand v) && { return make(result::not_equal, std::move(v)); }
        compare operator>(Operand v) && { return make(result::greater, std::move(v)); }
        compare operator<(Operand v) && { return make(result::less, std::move(v)); }

    private:
        compare make(result relation, Operand v) {
            return compare(which_, relation, std::move(keys_), std::move(v));
        }
        target which_;
        key_range keys_;
    };

    static subject<std::int64_t> version(key_range keys) {
        return {target::version, std::move(keys)};
    }
    static subject<std::int64_t> create_revision(key_range keys) {
        return {target::create, std::move(keys)};
    }
    static subject<std::int64_t> mod_revision(key_range keys) {
        return {target::mod, std::move(keys)};
    }
    static subject<std::string> value(key_range keys) { return {target::value, std::move(keys)}; }
    static subject<std::int64_t> lease(key_range keys) { return {target::lease, std::move(keys)}; }

    compare(target t, result r, key_range keys, std::variant<std::int64_t, std::string> v)
        : what(t)
        , how(r)
        , range(std::move(keys))
        , operand(std::move(v)) {}

    target what;
    result how;
    key_range range;
    std::variant<std::int64_t, std::string> operand; ///< Bytes exactly if `what` is `value`.
};

struct op;

/// A transaction: if all conditions hold, do one list of operations, else the other; atomically.
///
///     auto sale = coetcd::txn()
///         .when(mutex.is_owner(), compare::value("stock") == "7")
///         .then(op::put("stock", "6"))
///         .otherwise(op::range("stock"));
///
/// etcd accepts at most 128 conditions or operations per list, by default.
class txn {
public:
    /// Adds conditions, each a `compare` or a vector of them. All of them must hold; without any,
    /// `then` is always carried out.
    template<class... Compare>
    txn& when(Compare... conditions) & {
        (add(compares, std::move(conditions)), ...);
        return *this;
    }
    template<class... Compare>
    txn&& when(Compare... conditions) && {
        return std::move(when(std::move(conditions)...));
    }
    /// Adds operations to do if all conditions hold, each an `op` or a vector of them.
    template<class... Op>
    txn& then(Op... ops) & {
        (add(success, std::move(ops)), ...);
        return *this;
    }
    template<class... Op>
    txn&& then(Op... ops) && {
        return std::move(then(std::move(ops)...));
    }
    /// Adds operations to do otherwise.
    template<class... Op>
    txn& otherwise(Op... ops) & {
        (add(failure, std::move(ops)), ...);
        return *this;
    }
    template<class... Op>
    txn&& otherwise(Op... ops) && {
        return std::move(otherwise(std::move(ops)...));
    }

    txn(); // user-provided, so that this is no aggregate

    std::vector<compare> compares;
    std::vector<op> success;
    std::vector<op> failure;

private:
    template<class T, class One>
    static void add(std::vector<T>& to, One&& one) {
        to.push_back(std::forward<One>(one));
    }
    template<class T>
    static void add(std::vector<T>& to, std::vector<T>&& several) {
        for (T& one : several) {
            to.push_back(std::move(one));
        }
    }
};

/// One operation of a transaction.
struct op : std::variant<range_request, put_request, erase_request, txn> {
    using variant::variant;

    static op range(key_range keys, range_options how = {}) {
        return range_request(std::move(keys), how);
    }
    static op put(std::string key, std::string value, put_options how = {}) {
        return put_request(std::move(key), std::move(value), how);
    }
    static op erase(key_range keys, erase_options how = {}) {
        return erase_request(std::move(keys), how);
    }
    static op nested(txn inner) { return op(std::move(inner)); }
};

inline txn::txn() {}

struct range_response {
    response_header header;
    std::vector<key_value> kvs;
    bool more = false;      ///< `limit` cut the list.
    std::int64_t count = 0; ///< How many keys there are, whatever `limit` says.
};

struct put_response {
    response_header header;
    std::optional<key_value> prev_kv;
};

struct erase_response {
    response_header header;
    std::int64_t deleted = 0;
    std::vector<key_value> prev_kvs;
};

struct op_response;

struct txn_response {
    response_header header;
    bool succeeded = false;             ///< Which list was carried out.
    std::vector<op_response> responses; ///< One for each operation of that list.
};

/// The answer to one operation of a transaction; `std::get` a type that was not asked for throws.
struct op_response : std::variant<range_response, put_response, erase_response, txn_response> {
    using variant::variant;

    const range_response& range() const { return std::get<range_response>(*this); }
    const put_response& put() const { return std::get<put_response>(*this); }
    const erase_response& erase() const { return std::get<erase_response>(*this); }
    const txn_response& nested() const { return std::get<txn_response>(*this); }
};

struct compaction_response {
    response_header header;
};

// The names of the enumerators; "unknown" for any other value.

inline const char* to_string(event_type e) noexcept {
    switch (e) {
    case event_type::put:
        return "put";
    case event_type::erase:
        return "erase";
    }
    return "unknown";
}

inline const char* to_string(sort_order o) noexcept {
    switch (o) {
    case sort_order::none:
        return "none";
    case sort_order::ascend:
        return "ascend";
    case sort_order::descend:
        return "descend";
    }
    return "unknown";
}

inline const char* to_string(sort_target t) noexcept {
    switch (t) {
    case sort_target::key:
        return "key";
    case sort_target::version:
        return "version";
    case sort_target::create:
        return "create";
    case sort_target::mod:
        return "mod";
    case sort_target::value:
        return "value";
    }
    return "unknown";
}

inline const char* to_string(compare::target t) noexcept {
    switch (t) {
    case compare::target::version:
        return "version";
    case compare::target::create:
        return "create";
    case compare::target::mod:
        return "mod";
    case compare::target::value:
        return "value";
    case compare::target::lease:
        return "lease";
    }
    return "unknown";
}

inline const char* to_string(compare::result r) noexcept {
    switch (r) {
    case compare::result::equal:
        return "equal";
    case compare::result::greater:
        return "greater";
    case compare::result::less:
        return "less";
    case compare::result::not_equal:
        return "not_equal";
    }
    return "unknown";
}

inline key_range key_range::from(std::string first) {
    if (first.empty()) {
        first.assign(1, '\0');
    }
    return {std::move(first), std::string(1, '\0')};
}

inline key_range key_range::prefix(std::string prefix) {
    // The end of the range is the prefix with its last byte below 0xff raised by one.
    std::string end = prefix;
    while (!end.empty() && static_cast<unsigned char>(end.back()) == 0xff) {
        end.pop_back();
    }
    if (end.empty()) {
        return from(std::move(prefix));
    }
    end.back() = static_cast<char>(static_cast<unsigned char>(end.back()) + 1);
    return {std::move(prefix), std::move(end)};
}

} // namespace coetcd
