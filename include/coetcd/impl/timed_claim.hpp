// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/logic/names.hpp>
#include <coetcd/detail/recipe/timed_claim.hpp>
#include <coetcd/timed_claim.hpp>

#include <chrono>
#include <utility>

namespace coetcd {

COETCD_DECL timed_claim::timed_claim(std::shared_ptr<detail::claim_impl> impl)
    : impl_(std::move(impl)) {}

COETCD_DECL timed_claim::executor_type timed_claim::get_executor() const {
    return impl_->owner->world->executor();
}

COETCD_DECL bool timed_claim::owns_lock() const {
    return impl_ && impl_->valid();
}

COETCD_DECL std::chrono::nanoseconds timed_claim::left() const {
    return impl_->left();
}

COETCD_DECL std::int64_t timed_claim::fencing_token() const {
    return impl_->token;
}

COETCD_DECL compare timed_claim::is_owner() const {
    return compare::create_revision(impl_->key) == impl_->token;
}

COETCD_DECL std::string timed_claim::key() const {
    return impl_->key;
}

COETCD_DECL lease_id timed_claim::lease() const {
    return impl_->lease;
}

COETCD_DECL boost::asio::awaitable<bool> timed_claim::release() {
    return detail::claim_impl::release(impl_);
}

COETCD_DECL void timed_claim::keep() {
    impl_->keep();
}

COETCD_DECL boost::asio::awaitable<std::optional<timed_claim>>
try_claim(const client& by, std::string name, std::chrono::seconds hold) {
    claim_times times;
    times.hold = hold;
    return claim_for(by, std::move(name), times);
}

COETCD_DECL boost::asio::awaitable<std::optional<timed_claim>>
claim_for(const client& by, std::string name, claim_times times) {
    detail::logic::require_name(name);
    detail::require_ttl(times.hold, "hold");
    detail::logic::require_min_hold(times.min_hold, times.hold);
    const auto& impl = detail::access::impl(by);
    const std::chrono::nanoseconds timeout = detail::access::timeout(by);
    if (times.wait.count() <= 0) {
        return impl->home(detail::as_handle_if_any<timed_claim>(
            detail::claim_now(impl, timeout, std::move(name), times)));
    }
    const detail::time_point deadline = detail::after(impl->world->now(), times.wait);
    return impl->home(detail::as_handle_if_any<timed_claim>(
        detail::claim_until(impl, timeout, std::move(name), times, deadline)));
}

} // namespace coetcd
