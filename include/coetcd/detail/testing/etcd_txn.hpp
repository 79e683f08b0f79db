// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/testing/etcd_store.hpp>
#include <coetcd/detail/testing/json.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace coetcd::detail::testing {

/// The two dialects of JSON that gateways speak.
enum class dialect { v1, v2 };

/// One transaction of an etcd in memory: whether it may be, what it takes, and what that does to
/// the store.
class etcd_txn {
public:
    struct ways {
        dialect speaks;
        /// Else a transaction without space may put in a transaction that it holds, as in 3.4.23.
        bool counts_inner_puts;
        /// @throws etcd_refusal if this put may not be, for more than its shape.
        std::function<void(json::value put)> check_put;
    };
    etcd_txn(etcd_store& s, json::value request, ways how)
        : store_(s)
        , request_(request)
        , how_(std::move(how)) {}

    /// Whether it is no entry of the raft log. One that holds others always is, even if all of them
    /// only read; and so is one that erases what is not there.
    static bool only_reads(json::value request);

    /// Looks at all of it, whatever is taken.
    /// @throws etcd_refusal
    void check() const;
    bool puts() const { return puts(request_); }
    /// Which branches are taken, of it and of those in it.
    void decide(const etcd_store::store_map& in);
    /// Looks at what is taken.
    /// @throws etcd_refusal
    void check_taken() const;
    /// Does what is taken, and writes what the answer holds, but for its header.
    /// @param before The revision that reads show until something is changed.
    void carry_out(etcd_store::edit& e, std::int64_t before, json_writer& out);

private:
    bool puts(json::value t) const;
    void decide(json::value t, const etcd_store::store_map& in);
    void check_branches(json::value t, std::size_t& at, std::string_view& unreadable) const;
    void carry_out(
        json::value t, std::size_t& at, etcd_store::edit& e, std::int64_t before, json_writer& out);

    etcd_store& store_;
    const json::value request_;
    const ways how_;
    std::vector<bool> taken_; // in the order of a walk
};

} // namespace coetcd::detail::testing
