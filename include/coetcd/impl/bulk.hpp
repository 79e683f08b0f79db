// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/bulk.hpp>
#include <coetcd/detail/access.hpp>
#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/recipe/bulk.hpp>

#include <memory>
#include <stdexcept>
#include <utility>

namespace coetcd {

COETCD_DECL bulk::bulk(std::shared_ptr<detail::bulk_impl> impl)
    : impl_(std::move(impl)) {}

COETCD_DECL bulk::executor_type bulk::get_executor() const {
    return impl_->client->world->executor();
}

COETCD_DECL boost::asio::awaitable<std::optional<bulk_step>> bulk::next() {
    return detail::go_home(get_executor(), detail::bulk_impl::next(impl_));
}

COETCD_DECL boost::asio::awaitable<std::size_t> bulk::run() {
    return detail::go_home(get_executor(), detail::bulk_impl::run(impl_));
}

COETCD_DECL std::size_t bulk::total() const {
    return impl_->total();
}

COETCD_DECL bulk put_all(const client& by, std::vector<put_request> all, bulk_options options) {
    detail::logic::require_bulk(options);
    std::vector<op> ops;
    ops.reserve(all.size());
    for (put_request& each : all) {
        detail::require_key(each.key);
        if (each.options.prev_kv) {
            throw std::invalid_argument("put_all: prev_kv: nobody would get them");
        }
        ops.emplace_back(std::move(each));
    }
    const auto& owner = detail::access::impl(by);
    return detail::access::make<bulk>(detail::make_at_home<detail::bulk_impl>(
        owner->world, owner, detail::access::timeout(by), "put_all", std::move(ops), options));
}

COETCD_DECL bulk erase_all(const client& by, std::vector<std::string> keys, bulk_options options) {
    detail::logic::require_bulk(options);
    std::vector<op> ops;
    ops.reserve(keys.size());
    for (std::string& each : keys) {
        detail::require_key(each);
        ops.push_back(op::erase(std::move(each)));
    }
    const auto& owner = detail::access::impl(by);
    return detail::access::make<bulk>(detail::make_at_home<detail::bulk_impl>(
        owner->world, owner, detail::access::timeout(by), "erase_all", std::move(ops), options));
}

COETCD_DECL bulk erase_range(const client& by, key_range keys, bulk_options options) {
    detail::logic::require_bulk(options);
    detail::require_key(keys.key);
    const auto& owner = detail::access::impl(by);
    return detail::access::make<bulk>(detail::make_at_home<detail::bulk_impl>(
        owner->world, owner, detail::access::timeout(by), std::move(keys), options));
}

} // namespace coetcd
