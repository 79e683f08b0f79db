// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/logic/arrival.hpp>
#include <coetcd/detail/recipe/double_barrier.hpp>
#include <coetcd/double_barrier.hpp>

#include <utility>

namespace coetcd {

COETCD_DECL double_barrier::double_barrier(const session& owner, std::string name, int parties) {
    detail::logic::require_parties(parties, detail::logic::gathers::to_stay);
    const auto& s = detail::access::impl(owner);
    impl_ = detail::make_at_home<detail::double_barrier_impl>(
        s->owner->world, s, std::move(name), parties);
}

COETCD_DECL double_barrier::executor_type double_barrier::get_executor() const {
    return impl_->about.session->world.executor();
}

COETCD_DECL const std::string& double_barrier::name() const {
    return impl_->about.name;
}

COETCD_DECL boost::asio::awaitable<void> double_barrier::enter() {
    return detail::go_home(get_executor(), detail::double_barrier_impl::enter(impl_));
}

COETCD_DECL boost::asio::awaitable<bool>
double_barrier::enter_for(std::chrono::nanoseconds patience) {
    const detail::time_point deadline = detail::after(impl_->about.session->world.now(), patience);
    return detail::go_home(get_executor(),
                           detail::double_barrier_impl::enter_until(impl_, deadline));
}

COETCD_DECL boost::asio::awaitable<void> double_barrier::leave() {
    return detail::go_home(get_executor(), detail::double_barrier_impl::leave(impl_));
}

COETCD_DECL boost::asio::awaitable<bool>
double_barrier::leave_for(std::chrono::nanoseconds patience) {
    const detail::time_point deadline = detail::after(impl_->about.session->world.now(), patience);
    return detail::go_home(get_executor(),
                           detail::double_barrier_impl::leave_until(impl_, deadline));
}

} // namespace coetcd
