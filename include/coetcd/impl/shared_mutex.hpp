// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/recipe/shared_holds.hpp>
#include <coetcd/impl/mutex.hpp>
#include <coetcd/shared_mutex.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace coetcd {

COETCD_DECL
shared_mutex::shared_mutex(const session& owner, std::string name, shared_mutex_options options) {
    detail::logic::require_name(name);
    impl_ = std::make_shared<detail::shared_holds>(
        detail::access::impl(owner), std::move(name), detail::as_lock_options(options));
}

COETCD_DECL shared_mutex& shared_mutex::operator=(shared_mutex&& other) noexcept {
    shared_mutex old(std::move(*this)); // gives back what this one held
    impl_ = std::move(other.impl_);
    return *this;
}

COETCD_DECL shared_mutex::~shared_mutex() {
    if (impl_) {
        impl_->drop();
    }
}

COETCD_DECL shared_mutex::executor_type shared_mutex::get_executor() const {
    return impl_->writing->session->world.executor();
}

COETCD_DECL boost::asio::awaitable<void> shared_mutex::lock() {
    return detail::holder::lock(impl_->writing);
}

COETCD_DECL boost::asio::awaitable<bool> shared_mutex::try_lock() {
    return detail::holder::try_lock(impl_->writing);
}

COETCD_DECL boost::asio::awaitable<bool>
shared_mutex::try_lock_for(std::chrono::nanoseconds patience) {
    return detail::holder::try_lock_for(impl_->writing, patience);
}

COETCD_DECL boost::asio::awaitable<held_lock> shared_mutex::scoped_lock() {
    return detail::go_home(get_executor(), detail::holder::scoped_lock<held_lock>(impl_->writing));
}

COETCD_DECL boost::asio::awaitable<std::optional<held_lock>> shared_mutex::scoped_try_lock() {
    return scoped_lock_for(std::chrono::nanoseconds(0));
}

COETCD_DECL boost::asio::awaitable<std::optional<held_lock>>
shared_mutex::scoped_lock_for(std::chrono::nanoseconds patience) {
    return detail::go_home(get_executor(),
                           detail::holder::scoped_lock_for<held_lock>(impl_->writing, patience));
}

COETCD_DECL boost::asio::awaitable<bool> shared_mutex::unlock() {
    return detail::holder::unlock(impl_->writing, impl_->writing->current());
}

COETCD_DECL bool shared_mutex::owns_lock() const {
    const auto current = impl_->writing->current();
    return current && current->held() && current->mode() == lock_mode::exclusive;
}

COETCD_DECL std::int64_t shared_mutex::fencing_token() const {
    return impl_->writing->require_held()->create_revision();
}

COETCD_DECL compare shared_mutex::is_owner() const {
    const detail::logic::held_life life = impl_->writing->require_held()->proof().front();
    return compare::create_revision(life.key) == life.create_revision;
}

COETCD_DECL boost::asio::awaitable<void> shared_mutex::lock_shared() {
    return detail::shared_holds::lock_shared(impl_);
}

COETCD_DECL boost::asio::awaitable<bool> shared_mutex::try_lock_shared() {
    return try_lock_shared_for(std::chrono::nanoseconds(0));
}

COETCD_DECL boost::asio::awaitable<bool>
shared_mutex::try_lock_shared_for(std::chrono::nanoseconds patience) {
    auto reader = impl_->new_reader();
    auto trying = detail::holder::try_lock_for(reader, patience);
    return detail::shared_holds::kept(impl_, std::move(reader), std::move(trying));
}

COETCD_DECL boost::asio::awaitable<held_lock> shared_mutex::scoped_lock_shared() {
    return detail::go_home(get_executor(),
                           detail::holder::scoped_lock<held_lock>(impl_->new_reader()));
}

COETCD_DECL boost::asio::awaitable<std::optional<held_lock>>
shared_mutex::scoped_try_lock_shared() {
    return scoped_lock_shared_for(std::chrono::nanoseconds(0));
}

COETCD_DECL boost::asio::awaitable<std::optional<held_lock>>
shared_mutex::scoped_lock_shared_for(std::chrono::nanoseconds patience) {
    const std::shared_ptr<detail::holder> by = impl_->new_reader();
    return detail::go_home(get_executor(),
                           detail::holder::scoped_lock_for<held_lock>(by, patience));
}

COETCD_DECL boost::asio::awaitable<bool> shared_mutex::unlock_shared() {
    const std::shared_ptr<detail::holder> reader = impl_->take_reader();
    return detail::holder::unlock(reader, reader ? reader->current() : nullptr);
}

COETCD_DECL bool shared_mutex::owns_lock_shared() const {
    return impl_->reads();
}

COETCD_DECL const std::string& shared_mutex::name() const {
    return impl_->writing->name;
}

COETCD_DECL boost::asio::awaitable<std::optional<std::size_t>> shared_mutex::position() const {
    return detail::go_home(get_executor(), detail::holder::position(impl_->writing));
}

} // namespace coetcd
