// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/recipe/sequence.hpp>
#include <coetcd/sequence.hpp>

#include <memory>
#include <utility>

namespace coetcd {

COETCD_DECL sequence::sequence(const session& owner, std::string name)
    : impl_(std::make_shared<const detail::named_recipe>(
          "sequence", detail::access::impl(owner), std::move(name))) {}

COETCD_DECL sequence::executor_type sequence::get_executor() const {
    return impl_->session->world.executor();
}

COETCD_DECL const std::string& sequence::name() const {
    return impl_->name;
}

COETCD_DECL boost::asio::awaitable<std::int64_t> sequence::next() {
    return detail::go_home(get_executor(), detail::next_number(impl_));
}

COETCD_DECL boost::asio::awaitable<std::int64_t> sequence::last() const {
    return detail::go_home(get_executor(), detail::last_number(impl_));
}

} // namespace coetcd
