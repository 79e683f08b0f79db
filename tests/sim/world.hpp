// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/testing/process.hpp>
#include <coetcd/detail/testing/world.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/between.hpp"
#include "sim/common.hpp"

namespace sim {

namespace asio = boost::asio;
using coetcd::error_code;
using coetcd::detail::time_point;
using coetcd::detail::testing::fate;
using coetcd::detail::testing::line_fate;
using coetcd::detail::testing::process;
using coetcd::detail::testing::suspension;
using coetcd::detail::testing::wiretap;
using std::chrono::nanoseconds;

/// What goes wrong in a world.
enum class fault : std::size_t {
    request_lost,
    answer_lost,
    doubted,        // etcd answers that it timed out, and has done what it was asked for
    doubted_late,   // the same, but it does that seconds later
    duplicated,     // the request arrives twice, and only the second time is there an answer
    late_duplicate, // the same, but it arrives seconds later
    very_late,      // a transaction gets no answer, and arrives, maybe again, in the very end
    delayed,        // by up to some seconds
    refused,        // no connection
    broken,         // the connection ends instead of the answer
    interrupted,    // something in between answers in etcd's place
    stream_dropped,
    stream_silent, // it stays open, and carries nothing any more
    event_lost,    // by the server
    stale_read,    // by a member that has stalled
    early_revoke,
    leader_change,
    compaction,
    member_paused,
    member_cut,    // off from the other members
    member_lags,   // applies nothing for a while
    member_hidden, // for a while something in between answers in its place
    client_paused,
    client_cut, // off from the cluster
    client_crashed,
    clock_rate,
    token_expired,
    locked_out, // the user has another password for a while
    no_space,
    operator_delete,
    silent_delete,    // an operator deletes, and no event tells
    member_refuses,   // for a while what others do
    ttl_overstated,   // by the answers to grants, or by those to renewals
    member_strays,    // for a while its endpoint leads to another cluster
    cluster_replaced, // all endpoints lead to another cluster, for good
    end_invented,     // a watch that begins is told of the end of a key that is there
    rights_revoked,   // for a while, to keys with one prefix; leases are renewed
};
inline constexpr std::size_t fault_kinds = 37;
std::string_view name(fault f);

/// How often what goes wrong: a swarm, in which each seed has a subset of its own.
struct weather {
    std::array<std::uint32_t, fault_kinds> ppm{}; ///< Of each occasion; 0: never.
    std::uint32_t operator[](fault f) const { return ppm[static_cast<std::size_t>(f)]; }
    bool calm() const { return ppm == decltype(ppm){}; }
    std::uint32_t& operator[](fault f) { return ppm[static_cast<std::size_t>(f)]; }
};

/// The virtual world, with all that goes wrong in it.
class world final : public coetcd::detail::testing::world {
public:
    world(std::uint64_t seed, options o);
    ~world() override { shut_down(); }

    /// From now on, until `heal`.
    void set_weather(const weather& w);
    const weather& now_weather() const { return weather_; }
    /// Nothing goes wrong any more; what is on its way arrives, late as it may be.
    void heal();
    bool healed() const { return healed_; }
    /// Whether a fault strikes now; counts it.
    bool strikes(fault f);
    /// Asked for each that would.
    std::function<bool(fault)> averts;
    /// Told that an answer has come, before its process runs.
    std::function<void(const process&)> on_answer;
    /// One call of a process, that with this number, fails.
    void fail_call(const process& of, std::uint64_t number, fault how) {
        failing_[of.number()] = {number, how};
    }
    static constexpr std::uint64_t most_crashes = 3;
    static constexpr int most_stale = 6; ///< Revisions, of a state that is read.
    /// The latest that a message is on its way.
    static constexpr std::chrono::seconds longest_delay{8};

    void count(fault f) { ++counts_[static_cast<std::size_t>(f)]; }
    std::uint64_t count_of(fault f) const { return counts_[static_cast<std::size_t>(f)]; }
    bool had_lost_events() const {
        return count_of(fault::event_lost) != 0 || count_of(fault::silent_delete) != 0;
    }
    const std::array<std::uint64_t, fault_kinds>& counts() const { return counts_; }
    bool had_foreign_answers() const {
        const bool at_a_point = std::any_of(failing_.begin(), failing_.end(), [](const auto& each) {
            return each.second.second == fault::interrupted;
        });
        return at_a_point || count_of(fault::interrupted) != 0 ||
               count_of(fault::member_hidden) != 0;
    }
    bool had_refusals() const {
        return count_of(fault::member_refuses) != 0 || count_of(fault::rights_revoked) != 0;
    }
    /// Since when the user has had no rights to this key.
    std::optional<nanoseconds> denied_since(const std::string& key) const {
        const bool is_denied = store.denied && key.starts_with(*store.denied);
        return is_denied ? std::optional(denied_since_) : std::nullopt;
    }
    /// Called before it has them again.
    std::function<void()> before_rights_return;
    /// A waiter for permits was told of an end that was none.
    bool had_false_ends_of_permits() const { return had_false_ends_of_permits_; }
    bool had_other_clusters() const {
        return count_of(fault::member_strays) != 0 || count_of(fault::cluster_replaced) != 0;
    }
    /// Whether the answer to the request that was served last may be of no account to its client.
    bool went_astray() const { return went_astray_; }
    /// When the cluster was replaced, if it was.
    std::optional<nanoseconds> replaced_at() const { return replaced_at_; }
    /// The keys that an operator may delete begin with one of them.
    std::vector<std::string> operator_prefixes{"/"};

private:
    fate judge(process& by, const coetcd::detail::call_request& what) override;
    line_fate judge_line(const process& to, bool once) override;
    fate judge_stream(process& by, const coetcd::detail::call_request& what) override;
    etcd& store_of(const coetcd::detail::call_request& what) override {
        return member_of(what) == stray_ && !newcomers_.contains(&what) ? other_ : store;
    }
    etcd::answer
    serve(int member, const coetcd::detail::call_request& what, etcd::answer so_far) override;
    coetcd::detail::reply receive(const coetcd::detail::call_request& what,
                                  const etcd::answer& a) override;
    void accept(const std::shared_ptr<coetcd::detail::testing::link>& from,
                const coetcd::detail::call_request& what) override;
    std::optional<etcd::answer> answered_between(int member) override;
    bool crashes(process& which) override;
    bool pauses(process& which) override;

    const foreign_answer* draw_answer_between(int member, bool chosen);
    bool is_hidden(int member) const {
        return hiding_[static_cast<std::size_t>(member)] != nullptr;
    }
    void overstate_ttl(etcd::answer& a);
    void delete_by_hand();
    void revoke_rights();
    void return_rights();
    void stray(int member);
    void come_back();
    void replace_cluster();
    void chaos();

    /// What a member says to some requests, in etcd's words.
    struct refusal {
        bool of_all = false; ///< Requests, else of one kind.
        rpc what = rpc::txn;
        int code = 8;
        std::string_view text = "etcdserver: too many requests";
        bool applied = false; ///< What it refuses.
    };
    static refusal draw_refusal(chance& c);
    void refuse(const refusal& no, process& by, const coetcd::detail::call_request& what, fate& f);

    std::vector<const foreign_answer*> hiding_;    // each member; null: nothing
    std::vector<std::optional<refusal>> refusals_; // by each member
    rpc overstates_ = rpc::lease_grant;            // in the answers to these
    int ill_member_ = -1;
    etcd other_;     // of no account here
    int stray_ = -1; // the member whose endpoint leads to that one
    bool went_astray_ = false;
    nanoseconds denied_since_{0};
    bool had_false_ends_of_permits_ = false;
    std::optional<nanoseconds> replaced_at_;
    /// Which processes were answered by ours, each by which member.
    std::set<std::pair<std::size_t, int>> settled_;
    /// Requests of the others, and whose they are. They arrive where they should.
    std::map<const coetcd::detail::call_request*, std::size_t> newcomers_;
    std::map<const coetcd::detail::call_request*, process*> askers_; // of what is under way
    std::map<std::size_t, std::pair<std::uint64_t, fault>> failing_; // process: its call, how
    weather weather_;
    bool healed_ = true;
    std::array<std::uint64_t, fault_kinds> counts_{};
};

} // namespace sim
