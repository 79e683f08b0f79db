// SPDX-License-Identifier: BSL-1.0
// What the members of a group do, and its followers.
#include <coetcd/group.hpp>
#include <coetcd/session_keeper.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "sim/members.hpp"
#include "sim/users.hpp"

namespace sim {

using namespace std::chrono_literals;
using coetcd::errc;

namespace {

std::string group_name() {
    return std::string(group_prefix.substr(0, group_prefix.size() - 1));
}

} // namespace

void actor::start_joining(std::uint64_t seed) {
    start_besides("a member of a group", join_again(seed));
}

asio::awaitable<void> actor::join_again(std::uint64_t seed) {
    chance taste(seed);
    const coetcd::session_keeper_options how(s_.ttl);
    member_keeper_.emplace(*client_, how);
    for (int rounds = taste.between(1, 5); member_keeper_ && rounds != 0; --rounds) {
        const auto o = std::make_shared<operation>(*p_);
        coetcd::group g(*member_keeper_, group_name());
        asio::awaitable<void> all = be_member(std::move(g), taste.next());
        co_await perform(o, std::move(all));
        if (member_keeper_) {
            (void)co_await p_->sleep(taste.skewed(0ms, taste.one_in(4) ? 4000ms : 60ms));
        }
    }
    member_keeper_.reset();
}

asio::awaitable<void> actor::be_member(coetcd::group g, std::uint64_t seed) {
    chance taste(seed);
    member_rules& rules = s_.judge.members;
    std::string value = std::to_string(++s_.writes);
    asio::awaitable<coetcd::membership> joining = g.join(value);
    coetcd::membership m = co_await std::move(joining);
    rules.has_put(m.key(), value);
    const auto lives = [&m] { return m.is_member(); };
    std::optional<member_rules::seat> seat;
    seat.emplace(rules, member_rules::membership{m.key(), value, lives, s_.w.now()});
    for (int changes = taste.between(0, 3); changes != 0; --changes) {
        (void)co_await p_->sleep(taste.skewed(0ms, taste.one_in(3) ? 4000ms : 60ms));
        (void)co_await asio::this_coro::throw_if_cancelled(true);
        value = std::to_string(++s_.writes);
        seat.reset(); // either value may be there
        asio::awaitable<void> updating = m.update(value);
        co_await std::move(updating);
        rules.has_put(m.key(), value);
        seat.emplace(rules, member_rules::membership{m.key(), value, lives, s_.w.now()});
    }
    (void)co_await p_->sleep(taste.skewed(0ms, taste.one_in(4) ? 12s : 2s));
    seat.reset();
    if (taste.one_in(3)) {
        co_return; // the destructor does it
    }
    const std::string key = m.key();
    asio::awaitable<bool> leaving = m.leave();
    const bool was_there = co_await std::move(leaving);
    if (was_there) {
        rules.has_left(key);
    }
}

void actor::start_listing() {
    start_besides("who follows a group", list_members());
}

asio::awaitable<void> actor::list_members() {
    chance taste(s_.taste.next());
    while (client_) {
        members_feed_.emplace(coetcd::watch_members(*client_, group_name()));
        const member_rules::entry seen(s_.judge.members);
        const auto told = [&](const member_rules::list& next) {
            s_.judge.members.told(*seen, next);
        };
        co_await follow(members_feed_, taste, told);
    }
}

} // namespace sim
