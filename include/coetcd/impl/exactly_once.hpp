// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/recipe/exactly_once.hpp>
#include <coetcd/exactly_once.hpp>

#include <memory>
#include <utility>

namespace coetcd {

COETCD_DECL exactly_once::exactly_once(const session& owner, std::string name)
    : impl_(std::make_shared<const detail::named_recipe>(
          "exactly_once", detail::access::impl(owner), std::move(name))) {}

COETCD_DECL exactly_once::executor_type exactly_once::get_executor() const {
    return impl_->session->world.executor();
}

COETCD_DECL const std::string& exactly_once::name() const {
    return impl_->name;
}

COETCD_DECL boost::asio::awaitable<txn_outcome> exactly_once::txn(coetcd::txn what) const {
    detail::require_fit_within(what);
    return detail::go_home(get_executor(), detail::carry_out_once(impl_, std::move(what)));
}

} // namespace coetcd
