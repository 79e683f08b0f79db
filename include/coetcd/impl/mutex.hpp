// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/logic/delay.hpp>
#include <coetcd/detail/logic/sequencer.hpp>
#include <coetcd/detail/recipe/holder.hpp>
#include <coetcd/detail/recipe/release_requests.hpp>
#include <coetcd/mutex.hpp>

#include <functional>
#include <memory>
#include <utility>

namespace coetcd {

namespace detail {

inline constexpr recipe mutex_recipe{"mutex", &logic::exclusive_keys};

COETCD_DECL std::shared_ptr<ownership> ownership_of(const held_lock& held) {
    return access::answers(held) ? access::held(held) : nullptr;
}

COETCD_DECL boost::asio::any_io_executor home_of(const held_lock& held) {
    return held.get_executor();
}

COETCD_DECL body_watch<held_lock> yields_after(std::chrono::nanoseconds grace) {
    return [grace](const held_lock& held, std::function<void()> cancel) -> std::shared_ptr<void> {
        return std::make_shared<yielding>(
            access::held(held)->shared_from_this(), grace, std::move(cancel));
    };
}

COETCD_DECL held_lock another_handle(const held_lock& held) {
    return access::another(held);
}

} // namespace detail

COETCD_DECL held_lock::held_lock(std::shared_ptr<detail::holder> m,
                                 std::shared_ptr<detail::place> a)
    : mutex_(std::move(m))
    , held_(std::move(a))
    , answers_(true) {
    ++held_->handles;
}

COETCD_DECL held_lock::held_lock(mutex& m, std::adopt_lock_t)
    : held_lock(detail::access::impl(m), detail::access::impl(m)->guard()) {}

COETCD_DECL held_lock& held_lock::operator=(held_lock&& other) noexcept {
    held_lock old(std::move(*this)); // gives back what this one held
    mutex_ = std::move(other.mutex_);
    held_ = std::move(other.held_);
    answers_ = other.answers_;
    return *this;
}

COETCD_DECL held_lock::~held_lock() {
    if (held_ && answers_) {
        held_->was_dropped = true;
        if (is_last()) {
            mutex_->forget(held_);
            held_->abandon();
        }
    }
}

/// Lets go of the handle. Returns whether it was the last one that answered for the lock.
COETCD_DECL bool held_lock::is_last() {
    return std::exchange(answers_, false) && --held_->handles == 0;
}

COETCD_DECL held_lock held_lock::another() const {
    if (!answers_) {
        held_lock none;
        none.held_ = held_.get(); // which it does not answer for
        return none;
    }
    return held_lock(mutex_, held_);
}

COETCD_DECL held_lock held_lock::share() const {
    if (!owns_lock()) {
        throw error(errc::not_owner, held_->title());
    }
    return another();
}

COETCD_DECL held_lock::executor_type held_lock::get_executor() const {
    return held_->world().executor();
}

COETCD_DECL bool held_lock::owns_lock() const {
    return held_ && answers_ && held_->held();
}

COETCD_DECL boost::asio::awaitable<error_code> held_lock::wait_lost() const {
    return detail::go_home(get_executor(), detail::place::wait_lost(held_->shared_from_this()));
}

COETCD_DECL boost::asio::awaitable<std::chrono::nanoseconds> held_lock::wait_suspect() const {
    return detail::go_home(get_executor(), detail::session_impl::wait_suspect(held_->session));
}

COETCD_DECL boost::asio::awaitable<void> held_lock::wait_active() const {
    return detail::go_home(get_executor(),
                           detail::session_impl::wait_for(held_->session, session_state::active));
}

COETCD_DECL boost::asio::awaitable<void> held_lock::release_requested() const {
    return detail::go_home(get_executor(),
                           detail::release_requests::wait(held_->shared_from_this()));
}

COETCD_DECL std::int64_t held_lock::fencing_token() const {
    return held_->create_revision();
}

COETCD_DECL compare held_lock::is_owner() const {
    const detail::logic::held_life life = held_->proof().front();
    return compare::create_revision(life.key) == life.create_revision;
}

COETCD_DECL std::string held_lock::key() const {
    return held_->key();
}

COETCD_DECL coetcd::sequencer held_lock::sequencer() const {
    detail::logic::held_life life = held_->proof().front();
    return coetcd::sequencer(detail::logic::write_sequencer(
        {held_->mode() == lock_mode::shared, life.create_revision, std::move(life.key)}));
}

COETCD_DECL lock_mode held_lock::mode() const {
    return held_->mode();
}

COETCD_DECL boost::asio::awaitable<void> held_lock::downgrade() {
    return held_->downgrade();
}

COETCD_DECL boost::asio::awaitable<bool> held_lock::try_upgrade() {
    return held_->upgrade();
}

COETCD_DECL boost::asio::awaitable<bool> held_lock::unlock() {
    const bool was_held = owns_lock();
    if (!held_ || !is_last()) {
        return detail::holder::settled(was_held);
    }
    return detail::holder::unlock(mutex_, held_);
}

COETCD_DECL mutex::mutex(const session& owner, std::string name, lock_options options) {
    detail::logic::require_name(name);
    impl_ = std::make_shared<detail::holder>(
        detail::access::impl(owner), detail::mutex_recipe, std::move(name), options);
}

COETCD_DECL mutex& mutex::operator=(mutex&& other) noexcept {
    mutex old(std::move(*this)); // gives back what this one held
    impl_ = std::move(other.impl_);
    return *this;
}

COETCD_DECL mutex::~mutex() {
    if (impl_) {
        impl_->drop();
    }
}

COETCD_DECL mutex::executor_type mutex::get_executor() const {
    return impl_->session->world.executor();
}

COETCD_DECL boost::asio::awaitable<void> mutex::lock() {
    return detail::holder::lock(impl_);
}

COETCD_DECL boost::asio::awaitable<bool> mutex::try_lock() {
    return detail::holder::try_lock(impl_);
}

COETCD_DECL boost::asio::awaitable<bool> mutex::try_lock_for(std::chrono::nanoseconds patience) {
    return detail::holder::try_lock_for(impl_, patience);
}

COETCD_DECL boost::asio::awaitable<held_lock> mutex::scoped_lock() {
    return detail::go_home(get_executor(), detail::holder::scoped_lock<held_lock>(impl_));
}

COETCD_DECL boost::asio::awaitable<std::optional<held_lock>> mutex::scoped_try_lock() {
    return scoped_lock_for(std::chrono::nanoseconds(0));
}

COETCD_DECL boost::asio::awaitable<std::optional<held_lock>>
mutex::scoped_lock_for(std::chrono::nanoseconds patience) {
    return detail::go_home(get_executor(),
                           detail::holder::scoped_lock_for<held_lock>(impl_, patience));
}

COETCD_DECL boost::asio::awaitable<bool> mutex::resume() {
    return detail::holder::resume(impl_);
}

COETCD_DECL boost::asio::awaitable<bool> mutex::unlock() {
    return detail::holder::unlock(impl_, impl_->current());
}

COETCD_DECL bool mutex::owns_lock() const {
    const auto current = impl_->current();
    return current && current->held();
}

COETCD_DECL std::int64_t mutex::fencing_token() const {
    return impl_->require_held()->create_revision();
}

COETCD_DECL compare mutex::is_owner() const {
    const detail::logic::held_life life = impl_->require_held()->proof().front();
    return compare::create_revision(life.key) == life.create_revision;
}

COETCD_DECL std::string mutex::key() const {
    return impl_->require_held()->key();
}

COETCD_DECL const std::string& mutex::name() const {
    return impl_->name;
}

COETCD_DECL boost::asio::awaitable<std::optional<lock_entry>> mutex::holder() const {
    return detail::go_home(get_executor(), detail::holder::first_entry(impl_));
}

COETCD_DECL boost::asio::awaitable<std::vector<lock_entry>>
mutex::waiters(std::size_t limit) const {
    return detail::go_home(get_executor(), detail::holder::later_entries(impl_, limit));
}

COETCD_DECL boost::asio::awaitable<std::optional<std::size_t>> mutex::position() const {
    return detail::go_home(get_executor(), detail::holder::position(impl_));
}

} // namespace coetcd
