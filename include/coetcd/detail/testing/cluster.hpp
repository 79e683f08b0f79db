// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/client_options.hpp>
#include <coetcd/detail/access.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/rpc.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/detail/testing/etcd.hpp>
#include <coetcd/detail/testing/process.hpp>
#include <coetcd/detail/testing/world.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/system/system_error.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail::testing {

/// Later than the end of any test.
inline constexpr std::chrono::hours never{100'000};

/// A world in which only what a test asks for goes wrong.
class cluster_world : public world {
public:
    cluster_world(int members, std::uint64_t seed, nanoseconds round_trip)
        : world(seed, options_for(members, round_trip)) {
        most_handlers = 100'000'000;
    }
    ~cluster_world() override { shut_down(); }

    client make_client(client_options how) {
        std::vector<std::string> members;
        for (int m = 0; m != store.members(); ++m) {
            members.push_back("http://m" + std::to_string(m));
        }
        return access::make<client>(add_process(), endpoints(std::move(members)), std::move(how));
    }
    process& process_of(const client& one) const {
        const env* const its = access::impl(one)->world.get();
        for (const auto& p : processes()) {
            if (p.get() == its) {
                return *p;
            }
        }
        throw std::invalid_argument("testing::cluster: this client is not one of it");
    }

    /// As `world::pass`.
    void go_on(nanoseconds time) {
        if (is_running()) {
            throw std::logic_error("testing::cluster: time passes already; code in a process may "
                                   "await `sleep`");
        }
        pass(time);
        if (!failure().empty()) {
            throw std::runtime_error("testing::cluster: " + failure());
        }
    }

    /// Runs everything until `done`, or until an hour has passed.
    void go_on_until(const std::function<bool()>& done) {
        const nanoseconds limit = now() + std::chrono::hours(1);
        for (go_on(nanoseconds(0)); !done(); go_on(std::chrono::milliseconds(1))) {
            if (now() > limit) {
                throw std::runtime_error("testing::cluster: the code has not ended in an hour; a "
                                         "timer of Asio would stand still, use `sleep`");
            }
        }
    }
    static asio::awaitable<void> sleep(process& in, nanoseconds time) {
        const error_code ec = co_await in.sleep(time);
        if (ec) {
            throw boost::system::system_error(ec);
        }
    }

    static void kill(process& one) {
        if (one.is_running()) {
            one.crash_soon();
        } else {
            one.crash();
        }
    }
    void lose_answer(const process& of) { losing_.insert(of.number()); }
    void change_leader() {
        if (store.leader() >= 0) {
            store.depose();
        }
        elect();
    }
    void stop(int member) {
        require(member);
        down_.insert(member);
        pause_member(member, never);
        store.end_streams(member, false);
        miss(member);
    }
    void start(int member) {
        require(member);
        if (ill_ == member) {
            ill_.reset();
        }
        down_.erase(member);
        pause_member(member, now());
        elect();
    }

protected:
    /// Besides those that were stopped, one member may be ill.
    bool may_fall_ill(int member) const { return !ill_ && !down_.contains(member); }
    /// @param gone Whether it refuses connections; otherwise it stands still, and answers late.
    void fall_ill(int member, nanoseconds until, bool gone) {
        ill_ = member;
        ill_is_gone_ = gone;
        pause_member(member, until);
        if (gone) {
            store.end_streams(member, false);
        }
        miss(member);
        at(until, [this, illness = ++illnesses_] {
            if (illness == illnesses_) {
                recover();
            }
        });
    }
    void recover() {
        if (ill_) {
            if (!down_.contains(*ill_)) {
                pause_member(*ill_, now());
            }
            ill_.reset();
            elect();
        }
    }
    fate judge(process& by, const call_request& what) override {
        fate f = world::judge(by, what);
        f.refused = is_down(member_of(what));
        const bool may_change =
            changes_keys(what) || what.what == rpc::lease_grant || what.what == rpc::lease_revoke;
        if (!f.refused && !f.lost && may_change && losing_.erase(by.number()) != 0) {
            f.answer_lost = true;
            f.breaks = 2 * f.there;
        }
        return f;
    }
    fate judge_stream(process& by, const call_request& what) override {
        fate f = world::judge_stream(by, what);
        f.refused = f.refused || is_down(member_of(what));
        return f;
    }
    static bool changes_keys(const call_request& what) {
        return what.what == rpc::put || what.what == rpc::delete_range || what.what == rpc::txn;
    }

private:
    static options options_for(int members, nanoseconds round_trip) {
        if (members < 1 || members > 3) {
            throw std::invalid_argument("testing::cluster: members must be 1, 2 or 3");
        }
        if (round_trip < nanoseconds(0)) {
            throw std::invalid_argument("testing::cluster: round_trip must not be negative");
        }
        options o;
        o.members = members;
        o.latency_low = o.latency_high = round_trip / 2;
        return o;
    }
    void require(int member) const {
        if (member < 0 || member >= store.members()) {
            throw std::invalid_argument("testing::cluster: no member " + std::to_string(member));
        }
    }
    bool is_down(int member) const {
        return down_.contains(member) || (ill_is_gone_ && ill_ == member);
    }
    bool has_majority() const {
        const std::size_t missing = down_.size() + (ill_ && !down_.contains(*ill_) ? 1 : 0);
        return static_cast<int>(missing) * 2 < store.members();
    }
    void miss(int member) {
        if (store.leader() == member || (store.leader() >= 0 && !has_majority())) {
            change_leader();
        }
    }
    void elect() {
        after(luck.within(etcd::election_timeout, 2 * etcd::election_timeout), [this] {
            if (store.leader() < 0 && has_majority()) {
                new_leader();
            }
        });
    }

    std::set<int> down_;
    std::optional<int> ill_;
    bool ill_is_gone_ = false;
    std::uint64_t illnesses_ = 0;
    std::set<std::size_t> losing_; ///< The processes whose next answer is lost.
};

} // namespace coetcd::detail::testing
