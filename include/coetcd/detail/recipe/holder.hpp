// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/recipe/place_wait.hpp>
#include <coetcd/lock_entry.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

/// What a `mutex` and the operations under way on it share.
class mutex_impl {
public:
    mutex_impl(std::shared_ptr<session_impl> s, std::string n)
        : session(std::move(s))
        , name(std::move(n)) {}

    const std::shared_ptr<session_impl> session;
    const std::string name;

    std::shared_ptr<acquisition> current; ///< The one that was granted last, until unlocked.
    bool guarded = false;                 ///< A `held_lock` answers for it.

    const acquisition& require_held() const {
        if (!current || !current->held()) {
            throw error(errc::not_owner, "mutex \"" + wire::printable(name) + "\"");
        }
        return *current;
    }

    bool take(std::shared_ptr<acquisition> taken) {
        if (!taken) {
            return false;
        }
        current = std::move(taken);
        guarded = false;
        return true;
    }

    /// Forgets `a`, so that this object does not answer for it any more.
    void forget(const std::shared_ptr<acquisition>& a) {
        if (current == a) {
            current = nullptr;
            guarded = false;
        }
    }

    static asio::awaitable<void> lock(std::shared_ptr<mutex_impl> self) {
        std::shared_ptr<acquisition> taken =
            co_await lock_wait::lock(self->session, self->name, time_point::max());
        self->take(std::move(taken));
    }
    static asio::awaitable<bool> try_lock(std::shared_ptr<mutex_impl> self) {
        std::shared_ptr<acquisition> taken =
            co_await lock_wait::try_lock(self->session, self->name);
        co_return self->take(std::move(taken));
    }
    static asio::awaitable<bool> try_lock_until(std::shared_ptr<mutex_impl> self,
                                                time_point deadline) {
        std::shared_ptr<acquisition> taken =
            co_await lock_wait::lock(self->session, self->name, deadline);
        co_return self->take(std::move(taken));
    }
    /// As `lock`, for an object that gives the lock back.
    template<class Held>
    static asio::awaitable<Held> scoped_lock(std::shared_ptr<mutex_impl> self) {
        std::shared_ptr<acquisition> taken =
            co_await lock_wait::lock(self->session, self->name, time_point::max());
        self->take(taken);
        self->guarded = true;
        co_return access::make<Held>(std::move(self), std::move(taken));
    }

    static asio::awaitable<bool> unlock(std::shared_ptr<mutex_impl> self,
                                        std::shared_ptr<acquisition> a) {
        if (!a) {
            co_return false;
        }
        self->forget(a);
        co_return co_await acquisition::release(std::move(a));
    }

    static asio::awaitable<std::vector<lock_entry>> entries(std::shared_ptr<mutex_impl> self,
                                                            std::int64_t limit) {
        range_options oldest_first;
        oldest_first.limit = limit;
        oldest_first.order = sort_order::ascend;
        oldest_first.target = sort_target::create;
        const client_impl& owner = *self->session->owner;
        const call_spec spec = owner.spec(rpc::range, owner.options.request_timeout, true, false);
        const range_request queue(key_range::prefix(self->name + "/"), oldest_first);
        std::string body = wire::encode(queue);
        range_response r =
            co_await unary<range_response>(self->session->owner, spec, std::move(body));
        std::vector<lock_entry> found;
        for (key_value& kv : r.kvs) {
            lock_entry& e = found.emplace_back();
            e.key = std::move(kv.key);
            e.label = std::move(kv.value);
            e.lease = kv.lease;
            e.create_revision = kv.create_revision;
        }
        co_return found;
    }
    static asio::awaitable<std::optional<lock_entry>> holder(std::shared_ptr<mutex_impl> self) {
        std::vector<lock_entry> first = co_await entries(std::move(self), 1);
        std::optional<lock_entry> found;
        if (!first.empty()) {
            found = std::move(first.front());
        }
        co_return found;
    }
    static asio::awaitable<std::vector<lock_entry>> waiters(std::shared_ptr<mutex_impl> self) {
        std::vector<lock_entry> all = co_await entries(std::move(self), 0);
        if (!all.empty()) {
            all.erase(all.begin());
        }
        co_return all;
    }
};

} // namespace coetcd::detail
