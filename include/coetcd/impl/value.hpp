// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/recipe/value.hpp>
#include <coetcd/impl/feed.hpp>
#include <coetcd/value.hpp>

#include <memory>
#include <stdexcept>
#include <utility>

namespace coetcd {

COETCD_DECL value::value(const client& by, std::string name)
    : impl_(std::make_shared<const detail::value_impl>(
          detail::access::impl(by), nullptr, detail::access::timeout(by), std::move(name))) {}

COETCD_DECL value::value(const session& owner, std::string name) {
    const auto& s = detail::access::impl(owner);
    impl_ = std::make_shared<const detail::value_impl>(
        s->owner, s, s->request_timeout, std::move(name));
}

COETCD_DECL value::executor_type value::get_executor() const {
    return impl_->owner->world->executor();
}

COETCD_DECL const std::string& value::name() const {
    return impl_->name;
}

COETCD_DECL boost::asio::awaitable<std::optional<key_value>> value::get() const {
    return detail::go_home(get_executor(), detail::get_value(impl_));
}

COETCD_DECL boost::asio::awaitable<std::int64_t> value::set(std::string desired) {
    return detail::go_home(get_executor(), detail::set_value(impl_, std::move(desired)));
}

COETCD_DECL boost::asio::awaitable<std::optional<std::int64_t>>
value::compare_exchange(std::int64_t expected, std::string desired) {
    if (expected < 0) {
        throw std::invalid_argument("expected: must not be negative");
    }
    return detail::go_home(get_executor(),
                           detail::exchange_value(impl_, expected, std::move(desired)));
}

COETCD_DECL value_feed value::changes() const {
    return detail::access::make<value_feed>(
        detail::make_at_home<detail::feed<std::optional<key_value>>>(
            impl_->owner->world, impl_->owner, impl_->timeout, detail::value_now(*impl_.get())));
}

} // namespace coetcd
