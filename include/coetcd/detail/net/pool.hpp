// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail::net {

/// Open connections, kept for the next request; up to a limit for each key.
template<class Connection>
class pool {
    struct bucket {
        bucket(env& world, std::size_t most)
            : cap(most)
            , freed(world) {}
        std::vector<std::unique_ptr<Connection>> idle; // the most recently used last
        std::size_t taken = 0; // loans that exist, or are on their way to who waited for one
        const std::size_t cap;
        notifier freed;
    };

public:
    explicit pool(env& world)
        : env_(world) {}

    /// A place in the pool, with a connection or to be filled with a new one. Its destruction
    /// returns a connection that is in order and drops one that is not.
    class loan {
    public:
        loan() = default;
        loan(std::shared_ptr<bucket> from, std::unique_ptr<Connection> c)
            : connection(std::move(c))
            , bucket_(std::move(from)) {}
        loan(loan&&) = default;
        loan& operator=(loan&&) = delete;
        ~loan() {
            if (!bucket_) {
                return;
            }
            if (connection && connection->reusable()) {
                bucket_->idle.push_back(std::move(connection));
            }
            // The place goes to the next waiter, so that nobody can get in before it.
            if (!bucket_->freed.notify_one()) {
                --bucket_->taken;
            }
        }

        explicit operator bool() const { return bucket_ != nullptr; }

        std::unique_ptr<Connection> connection; ///< Null: the place is free for a new one.

    private:
        std::shared_ptr<bucket> bucket_;
    };

    /// Waits for a place, in order of arrival; an empty loan if `deadline` comes first.
    /// `alive` tells whether an idle connection is still good.
    template<class Alive>
    asio::awaitable<loan> take(std::string key, std::size_t cap, time_point deadline, Alive alive) {
        std::shared_ptr<bucket>& found = buckets_[std::move(key)];
        if (!found) {
            found = std::make_shared<bucket>(env_, cap);
        }
        const std::shared_ptr<bucket> place = found;
        if (place->taken < place->cap) {
            ++place->taken;
        } else {
            const bool in_time = co_await place->freed.wait(deadline);
            if (!in_time) {
                co_return loan();
            }
        }
        while (!place->idle.empty()) {
            std::unique_ptr<Connection> candidate = std::move(place->idle.back());
            place->idle.pop_back();
            if (alive(*candidate)) {
                co_return loan(place, std::move(candidate));
            }
        }
        co_return loan(place, nullptr);
    }

private:
    env& env_;
    std::map<std::string, std::shared_ptr<bucket>> buckets_;
};

} // namespace coetcd::detail::net
