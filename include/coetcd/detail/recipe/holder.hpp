// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/logic/admin.hpp>
#include <coetcd/detail/logic/lock_value.hpp>
#include <coetcd/detail/logic/rule.hpp>
#include <coetcd/detail/recipe/keeping.hpp>
#include <coetcd/detail/recipe/place_wait.hpp>
#include <coetcd/detail/recipe/resume.hpp>
#include <coetcd/lock_entry.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/this_coro.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace coetcd::detail {

/// The state that a public lock object shares with the operations under way on it: what it holds
/// now.
class holder {
public:
    holder(std::shared_ptr<session_impl> s,
           const recipe& h,
           std::string n,
           const lock_options& o = {})
        : holder(std::move(s), h, one_name(std::move(n), h, delay_of(o)), o) {}
    holder(std::shared_ptr<session_impl> s,
           const recipe& h,
           std::vector<wanted_name> w,
           const lock_options& o = {})
        : session(std::move(s))
        , how(h)
        , wanted(std::move(w))
        , name(wanted.front().name)
        , options(checked(o)) {}

    const std::shared_ptr<session_impl> session;
    const recipe& how;
    const std::vector<wanted_name> wanted;
    const std::string name; ///< The first of its names.
    const lock_options options;

    /// The place that was granted last, until it is unlocked.
    std::shared_ptr<place> current() const {
        const std::lock_guard alone(access_);
        return current_;
    }
    std::shared_ptr<place> require_held() const {
        std::shared_ptr<place> held = current();
        if (!held || !held->held()) {
            throw error(errc::not_owner,
                        std::string(how.word) + " \"" + wire::printable(name) + "\"");
        }
        return held;
    }
    /// Returns what is held; from now on a `held_lock` answers for it.
    std::shared_ptr<place> guard() {
        std::shared_ptr<place> held = require_held();
        const std::lock_guard alone(access_);
        guarded_ = current_ == held;
        return held;
    }

    /// From now on this object answers for `taken`. If the user's object is gone, nobody would give
    /// it back, so it ends here.
    /// @param guarded Whether a `held_lock` answers for it.
    bool take(std::shared_ptr<place> taken, bool guarded = false) {
        if (!taken) {
            return false;
        }
        const std::lock_guard alone(access_);
        if (guarded || !dropped_) {
            guarded_ = guarded;
            current_.swap(taken); // `alone` goes before what was there
        }
        return true;
    }

    /// Forgets `a`, so that this object does not answer for it any more.
    void forget(std::shared_ptr<place> a) {
        const std::lock_guard alone(access_);
        if (current_ == a) {
            current_.reset(); // `a` is still there
            guarded_ = false;
        }
    }
    /// Called when the user's object is gone: gives up what nobody else answers for.
    void drop() {
        std::shared_ptr<place> dropped;
        const std::lock_guard alone(access_);
        dropped_ = true;
        if (!guarded_) {
            current_.swap(dropped);
        }
    }

    static asio::awaitable<void> lock(std::shared_ptr<holder> self) {
        auto taking = granted(self, time_point::max());
        return keep<void>(std::move(self), std::move(taking));
    }
    static asio::awaitable<bool> try_lock_until(std::shared_ptr<holder> self, time_point deadline) {
        auto taking = granted(self, deadline);
        return keep<bool>(std::move(self), std::move(taking));
    }
    static asio::awaitable<bool> try_lock(std::shared_ptr<holder> self) {
        return try_lock_for(std::move(self), std::chrono::nanoseconds(0));
    }
    static asio::awaitable<bool> try_lock_for(std::shared_ptr<holder> self,
                                              std::chrono::nanoseconds patience) {
        auto taking = granted_within(self, patience);
        return keep<bool>(std::move(self), std::move(taking));
    }
    static asio::awaitable<bool> resume(std::shared_ptr<holder> self) {
        auto taking = as_wanted(self, detail::resume(self->session, self->wanted.front()));
        return keep<bool>(std::move(self), std::move(taking));
    }
    /// As `lock`, at home, for an object that gives the lock back.
    template<class Held>
    static asio::awaitable<Held> scoped_lock(std::shared_ptr<holder> self) {
        auto taking = granted(self, time_point::max());
        std::shared_ptr<place> taken = co_await std::move(taking);
        self->take(taken, true);
        co_return access::make<Held>(std::move(self), std::move(taken));
    }
    /// As `try_lock_for`, at home, for an object that gives the lock back.
    template<class Held>
    static asio::awaitable<std::optional<Held>> scoped_lock_for(std::shared_ptr<holder> self,
                                                                std::chrono::nanoseconds patience) {
        auto taking = granted_within(self, patience);
        std::shared_ptr<place> taken = co_await std::move(taking);
        std::optional<Held> held;
        if (self->take(taken, true)) {
            held.emplace(access::make<Held>(std::move(self), std::move(taken)));
        }
        co_return held;
    }

    /// Returns what is known already.
    static asio::awaitable<bool> settled(bool value) { co_return value; }

    /// Lets go of `a` at once; await it to know that etcd knows.
    static asio::awaitable<bool> unlock(const std::shared_ptr<holder>& self,
                                        std::shared_ptr<place> a) {
        if (!a) {
            return settled(false);
        }
        self->forget(a);
        return a->release();
    }

    static asio::awaitable<std::vector<lock_entry>> entries(std::shared_ptr<holder> self,
                                                            std::int64_t limit) {
        range_options oldest_first;
        oldest_first.limit = limit;
        oldest_first.order = sort_order::ascend;
        oldest_first.target = sort_target::create;
        const range_request queue(key_range::prefix(self->name + "/"), oldest_first);
        const std::shared_ptr<client_impl>& owner = self->session->owner;
        outcome<range_response> r =
            co_await call(owner, queue, owner->within(self->session->request_timeout));
        r.check();
        std::vector<lock_entry> found;
        for (key_value& kv : r.response.kvs) {
            lock_entry& e = found.emplace_back();
            e.key = std::move(kv.key);
            e.label = std::move(kv.value);
            e.lease = kv.lease;
            e.fencing_token = kv.create_revision;
        }
        co_return found;
    }
    static asio::awaitable<std::optional<lock_entry>> first_entry(std::shared_ptr<holder> self) {
        std::vector<lock_entry> first = co_await entries(std::move(self), 1);
        std::optional<lock_entry> found;
        if (!first.empty()) {
            found = std::move(first.front());
        }
        co_return found;
    }
    /// @param most 0 for all.
    static asio::awaitable<std::vector<lock_entry>> later_entries(std::shared_ptr<holder> self,
                                                                  std::size_t most) {
        constexpr std::size_t enough = 1'000'000'000;
        constexpr std::size_t most_keys = std::size(logic::lines_of_a_slot);
        const std::size_t limit = most == 0 ? 0 : most_keys * (std::min(most, enough) + 1);
        std::vector<lock_entry> all = co_await entries(self, static_cast<std::int64_t>(limit));
        logic::each_place_once(all, self->name);
        if (!all.empty()) {
            all.erase(all.begin());
        }
        if (most != 0 && all.size() > most) {
            all.resize(most);
        }
        co_return all;
    }
    /// How many places are ahead of the session's own.
    static asio::awaitable<std::optional<std::size_t>> position(std::shared_ptr<holder> self) {
        session_impl& s = *self->session;
        const range_request queue =
            logic::whole_queue(self->name, logic::transactions::keys_only());
        const outcome<range_response> r =
            co_await call(s.owner, queue, s.owner->within(s.request_timeout));
        r.check();
        const std::shared_ptr<place> held = self->current();
        std::string ours;
        if (held && held->held()) {
            ours = held->key(); // it may have been resumed, and not look like the session's
        }
        co_return logic::position_in(r.response.kvs, self->name, s.lease(), s.nonce(), ours);
    }

private:
    /// That of one attempt; null for the plain one.
    std::shared_ptr<logic::rule> rule() const {
        return options.value ? std::make_shared<logic::valued_rule>(name) : nullptr;
    }

    using taking = asio::awaitable<std::shared_ptr<place>>;

    static taking granted(const std::shared_ptr<holder>& self, time_point deadline) {
        return as_wanted(
            self,
            place_wait::lock(
                self->session, self->how, self->wanted, deadline, std::nullopt, self->rule()));
    }
    static taking granted_within(const std::shared_ptr<holder>& self,
                                 std::chrono::nanoseconds patience) {
        if (patience.count() > 0) {
            return granted(self, after(self->session->world.now(), patience));
        }
        return as_wanted(self,
                         place_wait::try_lock(
                             self->session, self->how, self->wanted, std::nullopt, self->rule()));
    }
    /// What is taken is held as the options say, from the grant on, whenever the caller learns of
    /// it. Without options this returns `work` itself, so most waiters have no frame for this.
    static taking as_wanted(const std::shared_ptr<holder>& self, taking work) {
        return asks_for_care(self->options) ? kept_as_wanted(self, std::move(work))
                                            : std::move(work);
    }
    static taking kept_as_wanted(std::shared_ptr<holder> self, taking work) {
        std::shared_ptr<place> taken = co_await std::move(work);
        if (taken) {
            keep_to(self->options, taken);
        }
        co_return taken;
    }

    /// Awaits at home what `granting` takes, and keeps it, unless we were cancelled while the
    /// result was on its way to us: a composition such as `lock() || timer` then drops it. Every
    /// waiter has this frame, so a public call has no other.
    /// @returns Whether anything was taken.
    template<class Result>
    static asio::awaitable<Result> keep(std::shared_ptr<holder> self, taking granting) {
        const asio::cancellation_state stop = co_await asio::this_coro::cancellation_state;
        const asio::cancellation_type before = stop.cancelled();
        const asio::any_io_executor here = co_await asio::this_coro::executor;
        auto work = from_here(here, self->session->world.executor(), std::move(granting));
        std::shared_ptr<place> taken = co_await std::move(work);
        if (taken && stop.cancelled() != before) {
            taken->leave_resumed();
            throw_aborted();
        }
        const bool kept = self->take(std::move(taken));
        if constexpr (!std::is_void_v<Result>) {
            co_return kept;
        }
    }

    mutable std::mutex access_; // from anywhere
    std::shared_ptr<place> current_;
    bool guarded_ = false; // a `held_lock` answers for it
    bool dropped_ = false; // the user's object is gone
};

} // namespace coetcd::detail
