// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/recipe/latch.hpp>
#include <coetcd/latch.hpp>

#include <utility>

namespace coetcd {

COETCD_DECL latch::latch(const session& owner, std::string name, std::int64_t count) {
    detail::logic::require_count(count);
    const auto& s = detail::access::impl(owner);
    impl_ = detail::make_at_home<detail::latch_impl>(s->owner->world, s, std::move(name), count);
}

COETCD_DECL latch::executor_type latch::get_executor() const {
    return impl_->about.session->world.executor();
}

COETCD_DECL const std::string& latch::name() const {
    return impl_->about.name;
}

COETCD_DECL boost::asio::awaitable<std::int64_t> latch::count_down() {
    return detail::go_home(get_executor(), detail::latch_impl::count_down(impl_));
}

COETCD_DECL boost::asio::awaitable<std::int64_t> latch::remaining() const {
    return detail::go_home(get_executor(), detail::latch_impl::remaining(impl_));
}

COETCD_DECL boost::asio::awaitable<void> latch::wait() const {
    return detail::go_home(get_executor(), detail::latch_impl::wait(impl_));
}

COETCD_DECL boost::asio::awaitable<bool> latch::wait_for(std::chrono::nanoseconds patience) const {
    const detail::time_point deadline = detail::after(impl_->about.session->world.now(), patience);
    return detail::go_home(get_executor(), detail::latch_impl::wait_until(impl_, deadline));
}

} // namespace coetcd
