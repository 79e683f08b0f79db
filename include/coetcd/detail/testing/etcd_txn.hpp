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

/// One transaction of an etcd in memory: whether it is allowed, which branches it takes, and what
/// these do to the store.
class etcd_txn {
public:
    struct ways {
        dialect speaks;
        /// If false, a transaction without space may put in a nested transaction, as in 3.4.23.
        bool counts_inner_puts;
        /// @throws etcd_refusal if this put is not allowed, for a reason other than its shape.
        std::function<void(json::value put)> check_put;
    };
    etcd_txn(etcd_store& s, json::value request, ways how)
        : store_(s)
        , request_(request)
        , how_(std::move(how)) {}

    /// Whether it is not an entry of the raft log. A transaction that holds others always is one,
    /// even if all of them only read; and so is one that erases what is not there.
    static bool only_reads(json::value request);

    /// Checks all of it, whichever branches are taken.
    /// @throws etcd_refusal
    void check() const;
    bool puts() const { return puts(request_); }
    /// Decides which branches are taken, of it and of those in it.
    void decide(const etcd_store::store_map& in);
    /// Checks the branches that are taken.
    /// @throws etcd_refusal
    void check_taken() const;
    /// Carries out the branches that are taken, and writes the answer, except its header.
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
