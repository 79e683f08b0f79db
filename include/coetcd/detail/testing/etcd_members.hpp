// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/testing/json.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace coetcd::detail::testing {

inline constexpr std::string_view member_ids[] = {
    "10276657743932975437", "9372538179322589801", "13803658152347727308"};

/// The members of an etcd cluster in memory: who leads, who is cut off, and who is behind.
class etcd_members {
public:
    static constexpr std::chrono::seconds election_timeout{1};

    explicit etcd_members(int number)
        : all_(static_cast<std::size_t>(number)) {}

    std::uint64_t term = 2;
    /// Which cluster it is. Only this distinguishes it from another cluster.
    std::uint64_t cluster = 14841639068965178418u;

    int members() const { return static_cast<int>(all_.size()); }
    int leader() const { return leader_; } ///< -1 if there is none.
    bool is_cut(int member) const { return of(member).cut; }
    bool lags(int member) const { return of(member).lagging; }
    /// The revision that a member has applied.
    /// @param now The revision of the cluster.
    std::int64_t applied(int member, std::int64_t now) const {
        return lags(member) ? of(member).applied : now;
    }
    std::int64_t compacted_at(int member, std::int64_t now) const {
        return lags(member) ? of(member).compacted : now;
    }
    /// Whether it was the leader just now, and still believes it is.
    bool still_leads(int member, std::chrono::nanoseconds now) const {
        return member == deposed_ && now < deposed_until_;
    }
    /// Since when a member knows no leader, because it is cut off or there is none.
    std::chrono::nanoseconds stranded_since(int member) const { return of(member).since; }
    std::string_view id(int member) const {
        return member_ids[static_cast<std::size_t>(member) % std::size(member_ids)];
    }
    /// @param at_revision 0: none.
    void header(json_writer& out, int member, std::int64_t at_revision) const {
        out.name("header").open();
        out.word("cluster_id", std::to_string(cluster));
        out.word("member_id", id(member));
        out.number("revision", at_revision);
        out.number("raft_term", static_cast<std::int64_t>(term));
        out.close();
    }

protected:
    void set_cut(int member, bool off, std::chrono::nanoseconds now) {
        of(member).cut = off;
        of(member).since = now;
    }
    void set_lag(int member, bool on, std::int64_t revision, std::int64_t compacted) {
        of(member).lagging = on;
        if (on) {
            of(member).applied = revision;
            of(member).compacted = compacted;
        }
    }
    void lose_leader(std::chrono::nanoseconds now) {
        deposed_ = leader_;
        deposed_until_ = now + election_timeout;
        leader_ = -1;
        for (peer& m : all_) {
            m.since = now;
        }
    }
    void set_leader(int member) {
        leader_ = member;
        deposed_ = deposed_ == member ? -1 : deposed_;
        ++term;
    }

private:
    struct peer {
        bool cut = false;
        std::chrono::nanoseconds since{0};
        bool lagging = false;
        std::int64_t applied = 0;   // if it lags
        std::int64_t compacted = 0; // if it lags
    };
    const peer& of(int member) const { return all_[static_cast<std::size_t>(member)]; }
    peer& of(int member) { return all_[static_cast<std::size_t>(member)]; }

    std::vector<peer> all_;
    int leader_ = 0;
    int deposed_ = -1;
    std::chrono::nanoseconds deposed_until_{0};
};

} // namespace coetcd::detail::testing
