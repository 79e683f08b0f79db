// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/counter.hpp>
#include <coetcd/detail/access.hpp>
#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/recipe/counter.hpp>

#include <utility>

namespace coetcd {

COETCD_DECL counter::counter(const session& owner, std::string name) {
    const auto& s = detail::access::impl(owner);
    impl_ = detail::make_at_home<detail::counter_impl>(s->owner->world, s, std::move(name));
}

COETCD_DECL counter::executor_type counter::get_executor() const {
    return impl_->about.session->world.executor();
}

COETCD_DECL const std::string& counter::name() const {
    return impl_->about.name;
}

COETCD_DECL boost::asio::awaitable<std::int64_t> counter::add(std::int64_t by) {
    return detail::go_home(get_executor(), detail::counter_impl::add(impl_, by));
}

COETCD_DECL boost::asio::awaitable<std::int64_t> counter::get() const {
    return detail::go_home(get_executor(), detail::counter_impl::get(impl_));
}

} // namespace coetcd
