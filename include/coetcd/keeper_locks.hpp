// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/multi_lock.hpp>
#include <coetcd/semaphore.hpp>
#include <coetcd/session_keeper.hpp>
#include <coetcd/shared_mutex.hpp>

#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// What `with_lock` of a `session_keeper` is for a `mutex`, these are for the other kinds of locks:
// each waits for a session, takes what it is to take in it, runs `body`, and gives it back. What is
// said there holds here, too: for a session that is lost, for time limits, errors and cancellation.

namespace coetcd {

namespace detail {
boost::asio::awaitable<std::optional<held_lock>>
lock_shared_in(const session_keeper& keeper,
               std::string name,
               lock_mode how,
               const shared_mutex_options& options,
               std::chrono::nanoseconds patience = std::chrono::nanoseconds::max());
boost::asio::awaitable<std::optional<held_locks>>
lock_all_in(const session_keeper& keeper,
            std::vector<lock_part> parts,
            const multi_lock_options& options,
            std::chrono::nanoseconds patience = std::chrono::nanoseconds::max());
boost::asio::awaitable<std::optional<permit>>
acquire_in(const session_keeper& keeper,
           std::string name,
           std::int64_t n,
           std::chrono::nanoseconds patience = std::chrono::nanoseconds::max());
} // namespace detail

/// Runs `body` while a session of `keeper` holds the `shared_mutex` of that name to write. As
/// `with_lock` of a `session_keeper` for a lost session, time limits, errors and cancellation.
/// @throws std::invalid_argument as the constructor of `shared_mutex`.
template<class Body>
auto with_lock_exclusive(const session_keeper& keeper,
                         std::string name,
                         Body body,
                         shared_mutex_options options = {}) {
    auto taking = detail::lock_shared_in(keeper, std::move(name), lock_mode::exclusive, options);
    return detail::run_guarded(keeper.get_executor(),
                               detail::the_one(std::move(taking)),
                               &detail::ownership_of,
                               std::move(body));
}

/// The same, if it can be had within `patience`. As `with_lock_for` of a `session_keeper`.
template<class Body>
auto with_lock_exclusive_for(const session_keeper& keeper,
                             std::string name,
                             std::chrono::nanoseconds patience,
                             Body body,
                             shared_mutex_options options = {}) {
    auto taking =
        detail::lock_shared_in(keeper, std::move(name), lock_mode::exclusive, options, patience);
    return detail::run_guarded_if(
        keeper.get_executor(), std::move(taking), &detail::ownership_of, std::move(body));
}

/// The same, held to read.
/// @throws std::invalid_argument as the constructor of `shared_mutex`.
template<class Body>
auto with_lock_shared(const session_keeper& keeper,
                      std::string name,
                      Body body,
                      shared_mutex_options options = {}) {
    auto taking = detail::lock_shared_in(keeper, std::move(name), lock_mode::shared, options);
    return detail::run_guarded(keeper.get_executor(),
                               detail::the_one(std::move(taking)),
                               &detail::ownership_of,
                               std::move(body));
}

/// The same, if it can be had within `patience`. As `with_lock_for` of a `session_keeper`.
template<class Body>
auto with_lock_shared_for(const session_keeper& keeper,
                          std::string name,
                          std::chrono::nanoseconds patience,
                          Body body,
                          shared_mutex_options options = {}) {
    auto taking =
        detail::lock_shared_in(keeper, std::move(name), lock_mode::shared, options, patience);
    return detail::run_guarded_if(
        keeper.get_executor(), std::move(taking), &detail::ownership_of, std::move(body));
}

/// The same, under several locks at once: `body()` or `body(const held_locks&)`.
/// @throws std::invalid_argument as the constructor of `multi_lock`.
template<class Body>
auto with_lock(const session_keeper& keeper,
               std::vector<lock_part> parts,
               Body body,
               multi_lock_options options = {}) {
    auto taking = detail::lock_all_in(keeper, std::move(parts), options);
    return detail::run_guarded(keeper.get_executor(),
                               detail::the_one(std::move(taking)),
                               &detail::ownership_of_all,
                               std::move(body));
}

/// The same, if they can be had within `patience`. As `with_lock_for` of a `session_keeper`.
template<class Body>
auto with_lock_for(const session_keeper& keeper,
                   std::vector<lock_part> parts,
                   std::chrono::nanoseconds patience,
                   Body body,
                   multi_lock_options options = {}) {
    auto taking = detail::lock_all_in(keeper, std::move(parts), options, patience);
    return detail::run_guarded_if(
        keeper.get_executor(), std::move(taking), &detail::ownership_of_all, std::move(body));
}

/// The same, with `n` permits of the semaphore of that name: `body()` or `body(const permit&)`.
/// @throws error with `errc::exceeds_limit` if no limit is stored, or it is less than `n`.
/// @throws std::invalid_argument as the constructor of `semaphore`, or if `n` is not from 1 to
///   `semaphore::max_weight`.
template<class Body>
auto with_permits(const session_keeper& keeper, std::string name, std::int64_t n, Body body) {
    auto taking = detail::acquire_in(keeper, std::move(name), n);
    return detail::run_guarded(keeper.get_executor(),
                               detail::the_one(std::move(taking)),
                               &detail::ownership_of_permit,
                               std::move(body));
}

/// The same, if they can be had within `patience`. As `with_lock_for` of a `session_keeper`.
template<class Body>
auto with_permits_for(const session_keeper& keeper,
                      std::string name,
                      std::int64_t n,
                      std::chrono::nanoseconds patience,
                      Body body) {
    auto taking = detail::acquire_in(keeper, std::move(name), n, patience);
    return detail::run_guarded_if(
        keeper.get_executor(), std::move(taking), &detail::ownership_of_permit, std::move(body));
}

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/keeper_locks.hpp>
#endif
