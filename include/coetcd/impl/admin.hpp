// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/admin.hpp>
#include <coetcd/detail/access.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/logic/fencing_gate.hpp>
#include <coetcd/detail/logic/names.hpp>
#include <coetcd/detail/recipe/admin.hpp>

#include <utility>

namespace coetcd {

COETCD_DECL boost::asio::awaitable<bool>
force_unlock(const client& by, std::string name, std::int64_t token) {
    detail::logic::require_name(name);
    detail::logic::require_token(token);
    const auto& impl = detail::access::impl(by);
    const detail::call_terms how = impl->within(detail::access::timeout(by));
    return impl->home(detail::force_unlock(impl, how, std::move(name), token));
}

COETCD_DECL boost::asio::awaitable<std::optional<std::int64_t>> request_release(const session& by,
                                                                                std::string name) {
    detail::logic::require_name(name);
    const auto& impl = detail::access::impl(by);
    return impl->owner->home(detail::request_release(impl, std::move(name)));
}

} // namespace coetcd
