// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/logic/names.hpp>
#include <coetcd/detail/logic/permit_rule.hpp>
#include <coetcd/detail/logic/permits.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/recipe/once.hpp>
#include <coetcd/detail/recipe/place_wait.hpp>
#include <coetcd/detail/service/call.hpp>
#include <coetcd/detail/wire/printable.hpp>
#include <coetcd/error.hpp>
#include <coetcd/permit_entry.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

inline constexpr recipe semaphore_recipe{
    "semaphore", &logic::permit_keys, "acquire_for", "try_acquire", "release"};

/// The state that a public semaphore shares with the operations under way on it. It holds no
/// permits: these are handles of their own.
class semaphore_impl {
public:
    /// @param i The limit to store if none is; empty to store none.
    semaphore_impl(std::shared_ptr<session_impl> s, std::string n, std::optional<std::int64_t> i)
        : session(std::move(s))
        , name(std::move(n))
        , initial(i) {}

    const std::shared_ptr<session_impl> session;
    const std::string name;
    const std::optional<std::int64_t> initial;

    template<class Permit>
    static asio::awaitable<Permit> acquire(std::shared_ptr<semaphore_impl> self, std::int64_t n) {
        auto waiting = place_wait::lock(self->session,
                                        semaphore_recipe,
                                        self->wanted(),
                                        time_point::max(),
                                        std::nullopt,
                                        self->rule(n));
        std::shared_ptr<place> taken = co_await std::move(waiting);
        co_return access::make<Permit>(std::move(taken), n);
    }
    template<class Permit>
    static asio::awaitable<std::optional<Permit>>
    acquire_until(std::shared_ptr<semaphore_impl> self, std::int64_t n, time_point deadline) {
        auto waiting = place_wait::lock(
            self->session, semaphore_recipe, self->wanted(), deadline, std::nullopt, self->rule(n));
        return if_any<Permit>(std::move(waiting), n);
    }
    template<class Permit>
    static asio::awaitable<std::optional<Permit>> try_acquire(std::shared_ptr<semaphore_impl> self,
                                                              std::int64_t n) {
        auto trying = place_wait::try_lock(
            self->session, semaphore_recipe, self->wanted(), std::nullopt, self->rule(n));
        return if_any<Permit>(std::move(trying), n);
    }

    /// @tparam State Limit, used, waiting.
    template<class State>
    static asio::awaitable<State> state(std::shared_ptr<semaphore_impl> self) {
        const txn question = logic::permits::ask_state(self->name);
        const call_terms in_time = self->within().as(impact::none);
        const outcome<txn_response> a = co_await call(self->session->owner, question, in_time);
        a.check();
        const logic::room now = logic::permits::room_in(a.response, 0, self->name, self->initial);
        State result;
        result.limit = now.limit;
        result.used = now.used;
        result.waiting = logic::permits::waiting_in(a.response);
        co_return result;
    }

    static asio::awaitable<void> drop(asio::awaitable<std::int64_t> work) {
        (void)co_await std::move(work);
    }
    /// Changes the limit once, however often a request is sent.
    /// @returns The new limit.
    static asio::awaitable<std::int64_t> change_limit(std::shared_ptr<semaphore_impl> self,
                                                      logic::permits::limit_change how) {
        const std::shared_ptr<session_impl> s = self->session;
        const std::string title = self->title();
        const call_terms in_time = self->within();
        s->require_alive(title);
        const range_request question(logic::permits::limit_key(self->name));
        const outcome<range_response> read = co_await call(s->owner, question, in_time);
        read.check();
        logic::room known = logic::permits::limit_in(read.response, self->name, self->initial);
        std::optional<std::int64_t> next;
        std::function<txn()> store = [&] {
            next = logic::permits::changed(how, known);
            if (!next) {
                throw error(errc::exceeds_limit,
                            title + ": " + logic::permits::why_not_changed(known));
            }
            return logic::permits::store_limit(self->name, known, *next);
        };
        std::function<void(const range_response&)> learn = [&](const range_response& now) {
            known = logic::permits::limit_in(now, self->name, self->initial);
        };
        once_writer writer(s, self->name, title);
        (void)co_await writer.change(
            std::move(store), std::move(learn), once_writer::knowledge::fresh, in_time);
        co_return *next;
    }

    /// Stores the limit unless one is stored. May be sent again, so it needs no `once_writer`.
    /// @returns The limit that is stored then.
    static asio::awaitable<std::int64_t> ensure_limit(std::shared_ptr<semaphore_impl> self,
                                                      std::int64_t limit) {
        const std::shared_ptr<session_impl> s = self->session;
        s->require_alive(self->title());
        const std::function<bool()> alive = [&s = *s] { return s.alive(); };
        call_terms in_time = self->within().as(impact::idempotent);
        in_time.wanted = &alive;
        txn stores = logic::permits::ensure_limit(self->name, limit);
        const outcome<txn_response> a = co_await ask_alone(s->owner, std::move(stores), in_time);
        if (a.ec) {
            self->throw_not_stored(a);
        }
        co_return logic::permits::after_ensure(a.response, self->name, limit);
    }

    static asio::awaitable<std::vector<permit_entry>>
    holders(std::shared_ptr<semaphore_impl> self) {
        const range_request all(logic::permits::all_held(self->name));
        outcome<range_response> a = co_await call(self->session->owner, all, self->within());
        a.check();
        co_return logic::permits::owners(std::move(a.response.kvs), self->name);
    }
    /// @param most 0 for all.
    static asio::awaitable<std::vector<permit_entry>> waiters(std::shared_ptr<semaphore_impl> self,
                                                              std::size_t most) {
        constexpr std::size_t enough = 1'000'000'000;
        range_options oldest_first;
        oldest_first.limit = static_cast<std::int64_t>(std::min(most, enough));
        oldest_first.order = sort_order::ascend;
        oldest_first.target = sort_target::create;
        const range_request queue(logic::permits::all_waiting(self->name), oldest_first);
        outcome<range_response> a = co_await call(self->session->owner, queue, self->within());
        a.check();
        std::vector<permit_entry> all;
        for (key_value& kv : a.response.kvs) {
            all.push_back(logic::permits::waiter(std::move(kv)));
        }
        co_return all;
    }

    /// Lets go of `held` at once; await it to know that etcd knows.
    /// @param held Null if there is nothing to give back.
    static asio::awaitable<bool> release(const std::shared_ptr<place>& held) {
        return held ? held->release() : nothing();
    }

private:
    [[noreturn]] void throw_not_stored(const answer& failed) const {
        if (!session->alive()) {
            if (failed.left != logic::effect::unresolved) {
                session->require_alive(title());
            }
            throw error(errc::outcome_unknown, title() + ": " + describe(session->reason()));
        }
        throw error(
            failed.ec,
            title() + ": " + failed.text +
                logic::if_denied(failed.ec, wire::printable(session->owner->in_etcd(name))));
    }

    static asio::awaitable<bool> nothing() { co_return false; }
    template<class Permit>
    static asio::awaitable<std::optional<Permit>>
    if_any(asio::awaitable<std::shared_ptr<place>> trying, std::int64_t n) {
        std::shared_ptr<place> taken = co_await std::move(trying);
        std::optional<Permit> result;
        if (taken) {
            result.emplace(access::make<Permit>(std::move(taken), n));
        }
        co_return result;
    }

    std::string title() const { return "semaphore \"" + wire::printable(name) + "\""; }
    std::vector<wanted_name> wanted() const { return one_name(name, semaphore_recipe); }
    std::shared_ptr<logic::rule> rule(std::int64_t n) const {
        return std::make_shared<logic::permit_rule>(name, n, initial);
    }
    call_terms within() const { return session->owner->within(session->request_timeout); }
};

} // namespace coetcd::detail
