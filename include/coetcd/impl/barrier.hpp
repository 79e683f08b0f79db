// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/barrier.hpp>
#include <coetcd/detail/access.hpp>
#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/recipe/barrier.hpp>

#include <memory>
#include <utility>

namespace coetcd {

COETCD_DECL barrier::barrier(const session& owner, std::string name)
    : impl_(std::make_shared<const detail::named_recipe>(
          "barrier", detail::access::impl(owner), std::move(name))) {}

COETCD_DECL barrier::executor_type barrier::get_executor() const {
    return impl_->session->world.executor();
}

COETCD_DECL const std::string& barrier::name() const {
    return impl_->name;
}

COETCD_DECL boost::asio::awaitable<bool> barrier::hold() {
    return detail::go_home(get_executor(), detail::hold_barrier(impl_, 0));
}

COETCD_DECL boost::asio::awaitable<bool> barrier::hold_while_alive() {
    const lease_id lease = impl_->session->lease();
    return detail::go_home(get_executor(), detail::hold_barrier(impl_, lease));
}

COETCD_DECL boost::asio::awaitable<bool> barrier::release() {
    return detail::go_home(get_executor(), detail::release_barrier(impl_));
}

COETCD_DECL boost::asio::awaitable<void> barrier::wait() const {
    return detail::go_home(get_executor(), detail::wait_at_barrier(impl_));
}

COETCD_DECL boost::asio::awaitable<bool>
barrier::wait_for(std::chrono::nanoseconds patience) const {
    const detail::time_point deadline = detail::after(impl_->session->world.now(), patience);
    return detail::go_home(get_executor(), detail::wait_at_barrier_until(impl_, deadline));
}

} // namespace coetcd
