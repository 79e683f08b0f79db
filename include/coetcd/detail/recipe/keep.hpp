// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/logic/kept_key.hpp>
#include <coetcd/detail/recipe/kept_key.hpp>
#include <coetcd/session.hpp>
#include <coetcd/session_keeper.hpp>

#include <memory>
#include <string>
#include <utility>

namespace coetcd::detail {

inline key_home home_in(const session& owner) {
    return {access::impl(owner), nullptr};
}
inline key_home home_in(const session_keeper& owner) {
    return {nullptr, access::impl(owner)};
}

/// What no other object has: it was chosen by chance.
inline std::string make_id(env& world) {
    const std::string first = logic::hex(world.random());
    return first + logic::hex(world.random());
}

/// Puts a key in a session, and keeps it there.
/// @param terms If it names no key, that is `<name>/<id>`, which nobody else has.
inline asio::awaitable<std::shared_ptr<kept_key>>
keep_key(key_home where, logic::kept_terms terms, std::string title, std::string value) {
    const std::string id = make_id(where.world());
    if (terms.key.empty()) {
        terms.key = terms.name + '/' + id;
    }
    terms.tombstone = terms.name + '.' + id;
    auto kept = make_at_home<kept_key>(
        where.owner()->world, where, std::move(terms), std::move(title), std::move(value));
    auto keeping = kept_key::keep(std::move(kept));
    co_return co_await std::move(keeping);
}

inline asio::awaitable<bool> no_key() {
    co_return false;
}
/// @param kept May be null.
inline asio::awaitable<bool> remove_if_any(const std::shared_ptr<kept_key>& kept) {
    return kept ? kept_key::remove(kept) : no_key();
}

} // namespace coetcd::detail
