// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/recipe/pages.hpp>
#include <coetcd/pages.hpp>

#include <memory>
#include <stdexcept>
#include <utility>

namespace coetcd {

COETCD_DECL pages::pages(const client& by, key_range keys, page_options options) {
    detail::require_key(keys.key);
    if (options.size <= 0) {
        throw std::invalid_argument("page_options::size: must be positive");
    }
    if (options.revision < 0) {
        throw std::invalid_argument("page_options::revision: must not be negative");
    }
    const auto& owner = detail::access::impl(by);
    impl_ = detail::make_at_home<detail::pages_impl>(
        owner->world, owner, detail::access::timeout(by), std::move(keys), options);
}

COETCD_DECL pages::executor_type pages::get_executor() const {
    return impl_->client->world->executor();
}

COETCD_DECL boost::asio::awaitable<std::optional<key_page>> pages::next() {
    const std::shared_ptr<detail::pages_impl>& self = impl_.get();
    return detail::go_home_and_back<std::optional<key_page>>(
        get_executor(), detail::pages_impl::next(self), [self](std::optional<key_page> dropped) {
            self->put_back(std::move(dropped));
        });
}

} // namespace coetcd
