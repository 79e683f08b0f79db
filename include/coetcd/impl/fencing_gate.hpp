// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/logic/fencing_gate.hpp>
#include <coetcd/detail/recipe/fencing_gate.hpp>
#include <coetcd/fencing_gate.hpp>

#include <utility>

namespace coetcd {

COETCD_DECL fencing_gate::fencing_gate(client by, std::string key)
    : client_(std::move(by))
    , key_(std::move(key)) {
    detail::require_key(key_);
}

COETCD_DECL fencing_gate::executor_type fencing_gate::get_executor() const {
    return client_.get_executor();
}

COETCD_DECL const std::string& fencing_gate::key() const {
    return key_;
}

COETCD_DECL boost::asio::awaitable<bool> fencing_gate::admit(std::int64_t token) const {
    detail::logic::require_token(token);
    const auto& impl = detail::access::impl(client_);
    const detail::call_terms how = impl->within(detail::access::timeout(client_));
    return impl->home(detail::come_through(impl, how, key_, token));
}

COETCD_DECL boost::asio::awaitable<std::optional<txn_response>>
fencing_gate::admit(std::int64_t token, txn work) const {
    detail::logic::require_token(token);
    const auto& impl = detail::access::impl(client_);
    const detail::call_terms how = impl->within(detail::access::timeout(client_));
    return impl->home(detail::work_behind(impl, how, key_, token, std::move(work)));
}

} // namespace coetcd
