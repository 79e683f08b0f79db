// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/logic/names.hpp>
#include <coetcd/detail/logic/permits.hpp>
#include <coetcd/detail/recipe/place.hpp>
#include <coetcd/detail/recipe/semaphore.hpp>
#include <coetcd/semaphore.hpp>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace coetcd {

namespace detail {

static_assert(semaphore::max_weight == logic::most_permits);
static_assert(semaphore::max_limit == logic::most_limit);

/// @throws std::invalid_argument if `n` permits cannot be asked for.
inline void require_weight(std::int64_t n) {
    if (n < 1 || n > logic::most_permits) {
        throw std::invalid_argument("n: must be from 1 to 65535");
    }
}

/// @throws std::invalid_argument if there can be no such limit.
inline void require_limit(const std::string& argument, std::int64_t limit) {
    if (limit < 0 || limit > logic::most_limit) {
        throw std::invalid_argument(argument + ": must be from 0 to 2^40");
    }
}

COETCD_DECL std::shared_ptr<ownership> ownership_of_permit(const permit& held) {
    return access::held(held);
}

} // namespace detail

COETCD_DECL permit::permit(std::shared_ptr<detail::place> a, std::int64_t weight)
    : held_(std::move(a))
    , weight_(weight) {}

COETCD_DECL permit::permit(permit&& other) noexcept
    : held_(std::move(other.held_))
    , weight_(std::exchange(other.weight_, 0)) {}

COETCD_DECL permit& permit::operator=(permit&& other) noexcept {
    permit old(std::move(*this)); // gives back what this one held
    held_ = std::move(other.held_);
    weight_ = std::exchange(other.weight_, 0);
    return *this;
}

COETCD_DECL permit::~permit() {
    if (held_) {
        held_->abandon();
    }
}

COETCD_DECL permit::executor_type permit::get_executor() const {
    return held_->world().executor();
}

COETCD_DECL bool permit::owns_lock() const {
    return held_ && held_->held();
}

COETCD_DECL boost::asio::awaitable<error_code> permit::wait_lost() const {
    return detail::go_home(get_executor(), detail::place::wait_lost(held_->shared_from_this()));
}

COETCD_DECL boost::asio::awaitable<std::chrono::nanoseconds> permit::wait_suspect() const {
    return detail::go_home(get_executor(), detail::session_impl::wait_suspect(held_->session));
}

COETCD_DECL boost::asio::awaitable<void> permit::wait_active() const {
    return detail::go_home(get_executor(),
                           detail::session_impl::wait_for(held_->session, session_state::active));
}

COETCD_DECL std::int64_t permit::token() const {
    return held_->create_revision();
}

COETCD_DECL compare permit::is_owner() const {
    return compare::create_revision(held_->key()) == held_->create_revision();
}

COETCD_DECL std::string permit::key() const {
    return held_->key();
}

COETCD_DECL boost::asio::awaitable<bool> permit::release() {
    return detail::semaphore_impl::release(held_ ? held_.get() : nullptr);
}

COETCD_DECL
semaphore::semaphore(const session& owner, std::string name, std::int64_t initial_limit) {
    detail::logic::require_name(name);
    detail::require_limit("initial_limit", initial_limit);
    impl_ = std::make_shared<detail::semaphore_impl>(
        detail::access::impl(owner), std::move(name), initial_limit);
}

COETCD_DECL semaphore::semaphore(const session& owner, std::string name) {
    detail::logic::require_name(name);
    impl_ = std::make_shared<detail::semaphore_impl>(
        detail::access::impl(owner), std::move(name), std::nullopt);
}

COETCD_DECL semaphore::executor_type semaphore::get_executor() const {
    return impl_->session->world.executor();
}

COETCD_DECL boost::asio::awaitable<permit> semaphore::acquire(std::int64_t n) {
    detail::require_weight(n);
    return detail::go_home(get_executor(), detail::semaphore_impl::acquire<permit>(impl_, n));
}

COETCD_DECL boost::asio::awaitable<std::optional<permit>> semaphore::try_acquire(std::int64_t n) {
    detail::require_weight(n);
    return detail::go_home(get_executor(), detail::semaphore_impl::try_acquire<permit>(impl_, n));
}

COETCD_DECL boost::asio::awaitable<std::optional<permit>>
semaphore::acquire_for(std::int64_t n, std::chrono::nanoseconds patience) {
    if (patience.count() <= 0) {
        return try_acquire(n);
    }
    detail::require_weight(n);
    const auto deadline = detail::after(impl_->session->world.now(), patience);
    return detail::go_home(get_executor(),
                           detail::semaphore_impl::acquire_until<permit>(impl_, n, deadline));
}

COETCD_DECL const std::string& semaphore::name() const {
    return impl_->name;
}

COETCD_DECL boost::asio::awaitable<semaphore_state> semaphore::state() const {
    return detail::go_home(get_executor(), detail::semaphore_impl::state<semaphore_state>(impl_));
}

COETCD_DECL boost::asio::awaitable<std::int64_t> semaphore::ensure_limit(std::int64_t limit) {
    detail::require_limit("limit", limit);
    return detail::go_home(get_executor(), detail::semaphore_impl::ensure_limit(impl_, limit));
}

COETCD_DECL boost::asio::awaitable<void> semaphore::set_limit(std::int64_t limit) {
    detail::require_limit("limit", limit);
    auto changing = detail::semaphore_impl::change_limit(impl_, {false, limit});
    return detail::go_home(get_executor(), detail::semaphore_impl::drop(std::move(changing)));
}

COETCD_DECL boost::asio::awaitable<std::int64_t> semaphore::adjust_limit(std::int64_t by) {
    auto changing = detail::semaphore_impl::change_limit(impl_, {true, by});
    return detail::go_home(get_executor(), std::move(changing));
}

COETCD_DECL boost::asio::awaitable<std::vector<permit_entry>> semaphore::holders() const {
    return detail::go_home(get_executor(), detail::semaphore_impl::holders(impl_));
}

COETCD_DECL boost::asio::awaitable<std::vector<permit_entry>>
semaphore::waiters(std::size_t limit) const {
    return detail::go_home(get_executor(), detail::semaphore_impl::waiters(impl_, limit));
}

} // namespace coetcd
