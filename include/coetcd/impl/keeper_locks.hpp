// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/logic/names.hpp>
#include <coetcd/detail/recipe/in_session.hpp>
#include <coetcd/detail/recipe/keeping.hpp>
#include <coetcd/impl/multi_lock.hpp>
#include <coetcd/impl/semaphore.hpp>
#include <coetcd/impl/session_keeper.hpp>
#include <coetcd/impl/shared_mutex.hpp>
#include <coetcd/keeper_locks.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

/// How each kind is taken in a session: see `in_session`.
struct take_shared {
    boost::asio::awaitable<std::optional<held_lock>>
    operator()(const session& in, std::chrono::nanoseconds patience) const {
        shared_mutex m(in, name, options);
        return how == lock_mode::exclusive ? m.scoped_lock_for(patience)
                                           : m.scoped_lock_shared_for(patience);
    }
    std::string name;
    lock_mode how;
    shared_mutex_options options;
};
struct take_all {
    boost::asio::awaitable<std::optional<held_locks>>
    operator()(const session& in, std::chrono::nanoseconds patience) const {
        multi_lock m(in, parts, options);
        return m.scoped_lock_for(patience);
    }
    std::vector<lock_part> parts;
    multi_lock_options options;
};
struct take_permits {
    boost::asio::awaitable<std::optional<permit>>
    operator()(const session& in, std::chrono::nanoseconds patience) const {
        return semaphore(in, name).acquire_for(n, patience);
    }
    std::string name;
    std::int64_t n;
};

COETCD_DECL boost::asio::awaitable<std::optional<held_lock>>
lock_shared_in(const session_keeper& keeper,
               std::string name,
               lock_mode how,
               const shared_mutex_options& options,
               std::chrono::nanoseconds patience) {
    logic::require_name(name);
    (void)checked(as_lock_options(options));
    return within<held_lock>(keeper, patience, take_shared{std::move(name), how, options});
}

COETCD_DECL boost::asio::awaitable<std::optional<held_locks>>
lock_all_in(const session_keeper& keeper,
            std::vector<lock_part> parts,
            const multi_lock_options& options,
            std::chrono::nanoseconds patience) {
    (void)wanted_by(logic::each_once(parts));
    (void)checked(as_lock_options(options));
    return within<held_locks>(keeper, patience, take_all{std::move(parts), options});
}

COETCD_DECL boost::asio::awaitable<std::optional<permit>>
acquire_in(const session_keeper& keeper,
           std::string name,
           std::int64_t n,
           std::chrono::nanoseconds patience) {
    logic::require_name(name);
    require_weight(n);
    return within<permit>(keeper, patience, take_permits{std::move(name), n});
}

} // namespace coetcd::detail
