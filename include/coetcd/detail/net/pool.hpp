// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/time_left.hpp>
#include <coetcd/error.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail::net {

/// Open connections, kept for the next request; up to a limit for each key.
template<class Connection>
class pool {
    struct waiter;
    struct bucket {
        explicit bucket(std::size_t most)
            : cap(most) {}
        std::vector<std::unique_ptr<Connection>> idle; // the most recently used last
        std::size_t taken = 0; // loans that exist, or are on their way to a waiter
        const std::size_t cap;
        std::uint64_t returned = 0; // connections that came back in order
        std::list<waiter*> waiting; // in order of arrival

        /// Takes an idle connection, and drops dead ones on the way.
        template<class Alive>
        std::unique_ptr<Connection> take_idle(Alive& alive) {
            while (!idle.empty()) {
                std::unique_ptr<Connection> candidate = std::move(idle.back());
                idle.pop_back();
                if (alive(*candidate)) {
                    return candidate;
                }
            }
            return nullptr;
        }
        /// The place goes to the next waiter, so that nobody can get in before it.
        void free_place() {
            if (waiting.empty()) {
                --taken;
                return;
            }
            waiter& next = *waiting.front();
            waiting.pop_front();
            next.has_place = true;
            next.changed.notify_all();
        }
    };
    struct waiter {
        waiter(env& world, bucket& b)
            : at(b)
            , changed(world) {
            place = at.waiting.insert(at.waiting.end(), this);
        }
        ~waiter() {
            if (!has_place) {
                at.waiting.erase(place);
            }
        }
        waiter(const waiter&) = delete;
        waiter& operator=(const waiter&) = delete;

        bucket& at;
        notifier changed;
        bool has_place = false;
        typename std::list<waiter*>::iterator place;
    };

public:
    explicit pool(env& world)
        : env_(world) {}

    /// A place in the pool, with a connection or to be filled with a new one. Its destruction
    /// returns a connection that is in order and drops one that is not.
    class loan {
    public:
        loan() = default;
        explicit loan(bool was_crowded)
            : waited(true)
            , crowded(was_crowded) {}
        loan(std::shared_ptr<bucket> from, std::unique_ptr<Connection> c, bool has_waited)
            : connection(std::move(c))
            , waited(has_waited)
            , bucket_(std::move(from)) {}
        loan(loan&&) = default;
        loan& operator=(loan&&) = delete;
        ~loan() {
            if (!bucket_) {
                return;
            }
            if (connection && connection->reusable()) {
                bucket_->idle.push_back(std::move(connection));
                ++bucket_->returned;
            }
            bucket_->free_place();
        }

        explicit operator bool() const { return bucket_ != nullptr; }

        std::unique_ptr<Connection> connection; ///< Null: the place is free for a new one.
        bool waited = false;                    ///< There was no place at once.
        /// If the loan is empty: while it waited, others gave connections back.
        bool crowded = false;

    private:
        std::shared_ptr<bucket> bucket_;
    };

    /// Waits for a place, in order of arrival. The loan is empty if `deadline` comes first, or if
    /// no connection has come back for as long as `patience`: the other end stands still. `alive`
    /// tells whether an idle connection is still good.
    template<class Alive>
    asio::awaitable<loan>
    take(std::string key,
         std::size_t cap,
         time_point deadline,
         Alive alive,
         std::chrono::nanoseconds patience = std::chrono::nanoseconds::max()) {
        std::shared_ptr<bucket>& found = buckets_[std::move(key)];
        if (!found) {
            found = std::make_shared<bucket>(cap);
        }
        const std::shared_ptr<bucket> place = found;
        const bool waits = place->taken == place->cap;
        if (!waits) {
            ++place->taken;
        } else {
            waiter self(env_, *place);
            const std::uint64_t before = place->returned;
            std::uint64_t seen = before;
            time_point look = after(env_.now(), patience);
            while (!self.has_place) {
                const time_point now = env_.now();
                const bool stuck = now >= look && place->returned == seen;
                if (stuck || now >= deadline) {
                    co_return loan(!stuck && place->returned != before);
                }
                if (now >= look) {
                    seen = place->returned;
                    look = after(now, patience);
                }
                (void)co_await self.changed.wait(std::min(look, deadline));
            }
        }
        co_return loan(place, place->take_idle(alive), waits);
    }

    /// Takes an idle connection of a key, for a place of another key. Null if there is none.
    template<class Alive>
    std::unique_ptr<Connection> take_from(const std::string& key, Alive alive) {
        const auto found = buckets_.find(key);
        return found == buckets_.end() ? nullptr : found->second->take_idle(alive);
    }
    /// Whether a key has a connection, or will have one soon.
    bool has_any(const std::string& key) const {
        const auto found = buckets_.find(key);
        return found != buckets_.end() &&
               (!found->second->idle.empty() || found->second->taken != 0);
    }

    /// Drops the idle connections of a key that are `unwanted`.
    template<class Unwanted>
    void drop(const std::string& key, Unwanted unwanted) {
        if (const auto found = buckets_.find(key); found != buckets_.end()) {
            std::erase_if(found->second->idle, [&](const auto& c) { return unwanted(*c); });
        }
    }
    /// Drops the idle connections of all keys that are `unwanted`, but for `keep` of each key:
    /// those that were used last.
    template<class Unwanted>
    void shrink(std::size_t keep, Unwanted unwanted) {
        for (const auto& [key, place] : buckets_) {
            auto& idle = place->idle;
            const auto most = idle.end() - static_cast<std::ptrdiff_t>(std::min(keep, idle.size()));
            idle.erase(
                std::remove_if(idle.begin(), most, [&](const auto& c) { return unwanted(*c); }),
                most);
        }
    }
    /// Drops the connections of all keys that are not `wanted`; those in use are dropped when they
    /// are given back.
    template<class Wanted>
    void keep_only(Wanted wanted) {
        std::erase_if(buckets_, [&](const auto& b) { return !wanted(b.first); });
    }

private:
    env& env_;
    std::map<std::string, std::shared_ptr<bucket>> buckets_;
};

/// Takes a place for a request. If the request has to wait for others of ours, the endpoint is not
/// to blame: it has as much time for its answer as at first.
/// @param result Tells why the request is not to be sent, if there is no place in time.
template<class Connection, class Alive>
asio::awaitable<typename pool<Connection>::loan> take_place(env& world,
                                                            pool<Connection>& from,
                                                            std::string key,
                                                            std::size_t cap,
                                                            call_request& request,
                                                            reply& result,
                                                            Alive alive) {
    const time_point asked = world.now();
    const std::chrono::nanoseconds allowed = request.deadline - asked;
    auto taking = from.take(std::move(key), cap, request.latest, alive, request.patience);
    typename pool<Connection>::loan place = co_await std::move(taking);
    const time_point begins = world.now();
    bool late = false;
    if (place.waited) {
        request.deadline = std::min(request.latest, after(begins, allowed));
        late = logic::is_nearly_due(request.latest, asked, begins);
    }
    if (!place || late || begins >= request.deadline) {
        result.ec = errc::timed_out;
        result.crowded = place || place.crowded;
        result.text = place.waited ? "all connections to it were in use" : "it was not sent";
    }
    co_return place;
}

} // namespace coetcd::detail::net
