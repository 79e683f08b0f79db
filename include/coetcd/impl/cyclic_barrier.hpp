// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/cyclic_barrier.hpp>
#include <coetcd/detail/access.hpp>
#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/logic/arrival.hpp>
#include <coetcd/detail/recipe/gathering.hpp>

#include <memory>
#include <utility>

namespace coetcd {

namespace detail {

inline boost::asio::awaitable<bool> pass_with_group_until(std::shared_ptr<gathering> through,
                                                          time_point deadline) {
    const auto mine = co_await gathering::gather_until(std::move(through), deadline);
    if (mine) {
        mine->over = true; // its key has gone
    }
    co_return mine != nullptr;
}
inline boost::asio::awaitable<void> pass_with_group(std::shared_ptr<gathering> through) {
    (void)co_await pass_with_group_until(std::move(through), time_point::max());
}

} // namespace detail

COETCD_DECL cyclic_barrier::cyclic_barrier(const session& owner, std::string name, int parties) {
    constexpr auto how = detail::logic::gathers::to_pass;
    detail::logic::require_parties(parties, how);
    const auto& s = detail::access::impl(owner);
    impl_ = detail::make_at_home<detail::gathering>(
        s->owner->world, "cyclic_barrier", s, std::move(name), parties, how);
}

COETCD_DECL cyclic_barrier::executor_type cyclic_barrier::get_executor() const {
    return impl_->about.session->world.executor();
}

COETCD_DECL const std::string& cyclic_barrier::name() const {
    return impl_->about.name;
}

COETCD_DECL boost::asio::awaitable<void> cyclic_barrier::arrive_and_wait() {
    return detail::go_home(get_executor(), detail::pass_with_group(impl_));
}

COETCD_DECL boost::asio::awaitable<bool>
cyclic_barrier::arrive_and_wait_for(std::chrono::nanoseconds patience) {
    const detail::time_point deadline = detail::after(impl_->about.session->world.now(), patience);
    return detail::go_home(get_executor(), detail::pass_with_group_until(impl_, deadline));
}

} // namespace coetcd
