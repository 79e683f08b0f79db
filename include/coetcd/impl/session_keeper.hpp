// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/logic/places.hpp>
#include <coetcd/detail/logic/reopening.hpp>
#include <coetcd/detail/recipe/in_session.hpp>
#include <coetcd/detail/recipe/keeping.hpp>
#include <coetcd/detail/service/lease.hpp>
#include <coetcd/detail/service/session_keeper.hpp>
#include <coetcd/session_keeper.hpp>

#include <stdexcept>
#include <utility>

namespace coetcd {

namespace detail {

/// Takes something in whichever session there is, within `patience`.
/// @param take See `in_session`.
template<class Held, class Take>
boost::asio::awaitable<std::optional<Held>>
within(const session_keeper& keeper, std::chrono::nanoseconds patience, Take take) {
    const auto& impl = access::impl(keeper);
    const time_point deadline = after(impl->world.now(), patience);
    return in_session<Held>(impl, std::move(take), deadline);
}

struct take_mutex {
    boost::asio::awaitable<std::optional<held_lock>>
    operator()(const session& in, std::chrono::nanoseconds patience) const {
        mutex m(in, name, options);
        return m.scoped_lock_for(patience);
    }
    std::string name;
    lock_options options;
};

COETCD_DECL boost::asio::awaitable<std::optional<held_lock>>
lock_in(const session_keeper& keeper,
        std::string name,
        const lock_options& options,
        std::chrono::nanoseconds patience) {
    logic::require_name(name);
    return within<held_lock>(keeper, patience, take_mutex{std::move(name), checked(options)});
}

inline session_keeper_options checked(session_keeper_options o) {
    require_ttl(o.ttl);
    if (o.pause.count() <= 0) {
        throw std::invalid_argument("pause: must be positive");
    }
    if (o.max_pause < o.pause) {
        throw std::invalid_argument("max_pause: must not be less than pause");
    }
    o.pause = bounded(o.pause);
    o.max_pause = bounded(o.max_pause);
    return o;
}

} // namespace detail

COETCD_DECL session_keeper::session_keeper(const client& owner, session_keeper_options options) {
    options = detail::checked(std::move(options));
    const detail::logic::reopening openings(options.pause, options.max_pause);
    const auto& c = detail::access::impl(owner);
    impl_ = detail::make_at_home<detail::session_keeper_impl>(
        c->world, c, detail::access::timeout(owner), std::move(options), openings);
    impl_->begin();
}

COETCD_DECL session_keeper& session_keeper::operator=(session_keeper&& other) noexcept {
    session_keeper old(std::move(*this)); // closes what this one was
    impl_ = std::move(other.impl_);
    return *this;
}

COETCD_DECL session_keeper::~session_keeper() {
    if (impl_) {
        if (const auto last = impl_->stop()) {
            detail::session_keeper_impl::end(*last);
        }
    }
}

COETCD_DECL session_keeper::executor_type session_keeper::get_executor() const {
    return impl_->world.executor();
}

COETCD_DECL std::shared_ptr<const session> session_keeper::current() const {
    return impl_->current();
}

COETCD_DECL boost::asio::awaitable<std::shared_ptr<const session>>
session_keeper::wait_live(std::chrono::nanoseconds patience) const {
    const auto deadline = detail::after(impl_->world.now(), patience);
    return impl_->owner->home(detail::session_keeper_impl::wait_live(impl_, deadline));
}

COETCD_DECL boost::asio::awaitable<std::shared_ptr<const session>>
session_keeper::wait_changed(std::shared_ptr<const session> seen) const {
    return impl_->owner->home(detail::session_keeper_impl::wait_changed(impl_, std::move(seen)));
}

COETCD_DECL boost::asio::awaitable<std::chrono::nanoseconds> session_keeper::wait_suspect() const {
    return impl_->owner->home(detail::session_keeper_impl::wait_suspect(impl_));
}

COETCD_DECL boost::asio::awaitable<void> session_keeper::wait_active() const {
    return impl_->owner->home(detail::session_keeper_impl::wait_active(impl_));
}

COETCD_DECL std::optional<error> session_keeper::trouble() const {
    return impl_->trouble();
}

COETCD_DECL boost::asio::awaitable<void> session_keeper::close() {
    using impl = detail::session_keeper_impl;
    const auto last = impl_->stop();
    auto ending = last ? detail::session_impl::close(last) : impl::nothing();
    return impl_->owner->home(impl::until_ended(impl_, std::move(ending)));
}

} // namespace coetcd
