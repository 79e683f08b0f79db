// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/rpc.hpp>
#include <coetcd/detail/testing/cluster.hpp>
#include <coetcd/detail/testing/faults.hpp>
#include <coetcd/detail/testing/process.hpp>
#include <coetcd/detail/testing/world.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace coetcd::detail::testing {

/// A world in which things also go wrong by chance, for a while.
class random_world : public cluster_world {
public:
    random_world(int members, std::uint64_t seed, nanoseconds round_trip)
        : cluster_world(members, seed, round_trip)
        , dice_(chance::derive(seed, 3)) {}
    ~random_world() override { shut_down(); }

    void begin_faults(const fault_rates& rates) {
        dice_.rates = rates;
        each_second(++weather_);
    }
    void end_faults() {
        dice_.rates = fault_rates();
        ++weather_;
        for (const auto& [number, until] : cuts_) {
            process& one = *processes()[number];
            if (one.cut_off_until() == until) { // otherwise the test has cut it off, or joined it
                one.cut_off(now());
            }
        }
        cuts_.clear();
        recover();
        let_late_ones_come();
    }
    const std::vector<std::string>& faults() const { return dice_.recorded(); }

private:
    /// The most by which a request or its answer is delayed.
    static constexpr std::chrono::seconds longest_delay{4};

    static std::string client(const process& one) {
        return "client " + std::to_string(one.number());
    }
    /// @param whom Returns what it strikes; called if it does.
    template<class Whom>
    bool strikes(fault f, const Whom& whom) {
        const bool hit = dice_.strikes(f);
        if (hit) {
            dice_.record(now(), f, whom());
        }
        return hit;
    }
    bool strikes(fault f, const process& whom) {
        return strikes(f, [&] { return client(whom); });
    }

    fate judge(process& by, const call_request& what) override {
        fate f = cluster_world::judge(by, what);
        if (!f.refused && !f.lost && !f.answer_lost) {
            strike(f, by, what);
        }
        return f;
    }
    void strike(fate& f, const process& by, const call_request& what) {
        const auto whom = [&] {
            return std::string(name(what.what)) + " of " + client(by) + " to member " +
                   std::to_string(member_of(what));
        };
        const auto hits = [&](fault one) { return strikes(one, whom); };
        if (hits(fault::connection_refused)) {
            f.refused = true;
        } else if (hits(fault::request_lost)) {
            f.lost = true;
        } else if (changes_keys(what) && hits(fault::request_late)) {
            make_late(f);
        } else {
            let_arrive(f, what, hits);
        }
    }
    void make_late(fate& f) {
        f.lost = true;
        f.held_back = dice_.while_it_lasts();
        if (dice_.luck.one_in(2)) { // otherwise the client waits until the deadline
            f.breaks = dice_.luck.within(nanoseconds(0), 2 * f.there);
        }
    }
    template<class Hits>
    void let_arrive(fate& f, const call_request& what, const Hits& hits) {
        if (hits(fault::delayed)) {
            (dice_.luck.one_in(2) ? f.there : f.back) +=
                dice_.luck.skewed(std::chrono::milliseconds(10), longest_delay);
        }
        if (what.what == rpc::txn && hits(fault::request_repeated)) {
            f.again = dice_.luck.skewed(nanoseconds(0), longest_delay);
        }
        f.answer_lost = hits(fault::answer_lost);
        if (!f.answer_lost && hits(fault::connection_broken)) {
            f.lost = dice_.luck.one_in(2);
            f.breaks = dice_.luck.within(nanoseconds(0), 2 * f.there + f.back);
        }
    }
    fate judge_stream(process& by, const call_request& what) override {
        fate f = cluster_world::judge_stream(by, what);
        f.refused = f.refused || strikes(fault::connection_refused, by);
        return f;
    }
    line_fate judge_line(const process& to, bool once) override {
        const line_fate f = cluster_world::judge_line(to, once);
        if (f != line_fate::arrives) {
            return f;
        }
        if (!once && strikes(fault::stream_silent, to)) {
            return line_fate::swallowed;
        }
        return strikes(fault::stream_dropped, to) ? line_fate::broken : f;
    }
    bool pauses(process& which) override {
        if (awake_.erase(which.number()) != 0 || !strikes(fault::client_stalled, which)) {
            return false;
        }
        which.pause(now() + dice_.while_it_lasts());
        awake_.insert(which.number()); // so it takes at least one step
        return true;
    }

    /// In each second, each fault that needs no request strikes at some moment, or not.
    void each_second(std::uint64_t weather) {
        constexpr std::chrono::seconds second(1);
        bool any = false;
        for (const fault f : {fault::client_cut,
                              fault::lease_ended,
                              fault::leader_changed,
                              fault::member_stopped,
                              fault::compacted}) {
            any = any || dice_.rates[f] != 0;
            if (dice_.strikes(f)) {
                after(dice_.luck.within(nanoseconds(0), second), [this, f, weather] {
                    if (weather == weather_) {
                        befall(f);
                    }
                });
            }
        }
        if (any) {
            after(second, [this, weather] {
                if (weather == weather_) {
                    each_second(weather);
                }
            });
        }
    }
    void befall(fault f) {
        const std::string whom = f == fault::client_cut       ? cut_a_client()
                                 : f == fault::lease_ended    ? end_a_lease()
                                 : f == fault::leader_changed ? depose_the_leader()
                                 : f == fault::member_stopped ? stop_a_member()
                                                              : compact_all();
        if (!whom.empty()) {
            dice_.record(now(), f, whom);
        }
    }
    // Each returns what it has struck; nothing if there was nothing to strike.
    std::string cut_a_client() {
        if (processes().empty()) {
            return {};
        }
        process& one = *processes()[dice_.luck.below(processes().size())];
        if (one.is_cut_off() || one.has_crashed()) {
            return {};
        }
        const nanoseconds until = now() + dice_.while_it_lasts();
        one.cut_off(until);
        cuts_[one.number()] = until;
        return client(one);
    }
    std::string end_a_lease() {
        const std::vector<lease_id> all = store.lease_ids();
        // A grant that is on its way would let the lease return, without what it held.
        if (all.empty() || grants_in_flight() != 0) {
            return {};
        }
        const lease_id one = all[dice_.luck.below(all.size())];
        store.revoke(one);
        return "lease " + std::to_string(one);
    }
    std::string depose_the_leader() {
        const int old = store.leader();
        if (old < 0) {
            return {};
        }
        change_leader();
        return "member " + std::to_string(old);
    }
    std::string stop_a_member() {
        const auto of = static_cast<std::uint64_t>(store.members());
        const int one = static_cast<int>(dice_.luck.below(of));
        if (!may_fall_ill(one)) {
            return {};
        }
        const bool gone = dice_.luck.one_in(2);
        fall_ill(one, now() + dice_.while_it_lasts(), gone);
        return "member " + std::to_string(one) + (gone ? ", gone" : ", stands still");
    }
    std::string compact_all() {
        store.compact(store.revision);
        return "revision " + std::to_string(store.revision);
    }

    fault_dice dice_;
    std::uint64_t weather_ = 0;               ///< Each period of faults has its own seconds.
    std::map<std::size_t, nanoseconds> cuts_; ///< Those by chance: the process, and until when.
    std::set<std::size_t> awake_; ///< Those that have stood still, without a step since then.
};

} // namespace coetcd::detail::testing
