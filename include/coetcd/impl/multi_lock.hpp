// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/logic/parts.hpp>
#include <coetcd/detail/recipe/shared_holds.hpp>
#include <coetcd/impl/mutex.hpp>
#include <coetcd/multi_lock.hpp>

#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace coetcd {

namespace detail {

/// A writer waits for all keys of its name, so that it excludes a `mutex`, too.
inline constexpr recipe multi_recipe{"multi_lock", &logic::writer_keys};

inline std::vector<wanted_name> wanted_by(const std::vector<lock_part>& parts) {
    if (parts.empty()) {
        throw std::invalid_argument("parts: there is none");
    }
    if (parts.size() > logic::most_parts) {
        throw std::invalid_argument("parts: more than 32 names");
    }
    std::vector<wanted_name> wanted;
    for (const lock_part& p : parts) {
        logic::require_name(p.name);
        switch (p.mode) {
        case lock_mode::exclusive:
            wanted.push_back({p.name, &writer_recipe});
            continue;
        case lock_mode::shared:
            wanted.push_back({p.name, &reader_recipe});
            continue;
        }
        throw std::invalid_argument("parts: a mode is neither exclusive nor shared");
    }
    return wanted;
}

inline std::vector<compare> conditions(const place& of) {
    std::vector<compare> all;
    for (const logic::held_life& life : of.proof()) {
        all.push_back(compare::create_revision(life.key) == life.create_revision);
    }
    return all;
}

COETCD_DECL std::shared_ptr<ownership> ownership_of_all(const held_locks& held) {
    return ownership_of(held.all_);
}

COETCD_DECL boost::asio::any_io_executor home_of(const held_locks& held) {
    return held.get_executor();
}

COETCD_DECL held_locks another_handle(const held_locks& held) {
    return access::another(held);
}

} // namespace detail

COETCD_DECL held_locks::held_locks(std::shared_ptr<detail::holder> m,
                                   std::shared_ptr<detail::place> a)
    : all_(detail::access::make<held_lock>(std::move(m), std::move(a))) {}

COETCD_DECL held_locks::executor_type held_locks::get_executor() const {
    return all_.get_executor();
}

COETCD_DECL bool held_locks::owns_lock() const {
    return all_.owns_lock();
}

COETCD_DECL boost::asio::awaitable<error_code> held_locks::wait_lost() const {
    return all_.wait_lost();
}

COETCD_DECL boost::asio::awaitable<std::chrono::nanoseconds> held_locks::wait_suspect() const {
    return all_.wait_suspect();
}

COETCD_DECL boost::asio::awaitable<void> held_locks::wait_active() const {
    return all_.wait_active();
}

COETCD_DECL held_locks held_locks::another() const {
    return held_locks(detail::access::another(all_));
}

COETCD_DECL held_locks held_locks::share() const {
    return held_locks(all_.share());
}

COETCD_DECL std::int64_t held_locks::fencing_token() const {
    return all_.fencing_token();
}

COETCD_DECL std::vector<compare> held_locks::is_owner() const {
    return detail::conditions(*detail::access::held(all_));
}

COETCD_DECL boost::asio::awaitable<bool> held_locks::unlock() {
    return all_.unlock();
}

COETCD_DECL
multi_lock::multi_lock(const session& owner,
                       std::vector<lock_part> parts,
                       multi_lock_options options)
    : parts_(detail::logic::each_once(std::move(parts))) {
    impl_ = std::make_shared<detail::holder>(detail::access::impl(owner),
                                             detail::multi_recipe,
                                             detail::wanted_by(parts_),
                                             detail::as_lock_options(options));
}

COETCD_DECL multi_lock& multi_lock::operator=(multi_lock&& other) noexcept {
    multi_lock old(std::move(*this)); // gives back what this one held
    impl_ = std::move(other.impl_);
    parts_ = std::move(other.parts_);
    return *this;
}

COETCD_DECL multi_lock::~multi_lock() {
    if (impl_) {
        impl_->drop();
    }
}

COETCD_DECL multi_lock::executor_type multi_lock::get_executor() const {
    return impl_->session->world.executor();
}

COETCD_DECL boost::asio::awaitable<void> multi_lock::lock() {
    return detail::holder::lock(impl_);
}

COETCD_DECL boost::asio::awaitable<bool> multi_lock::try_lock() {
    return detail::holder::try_lock(impl_);
}

COETCD_DECL boost::asio::awaitable<bool>
multi_lock::try_lock_for(std::chrono::nanoseconds patience) {
    return detail::holder::try_lock_for(impl_, patience);
}

COETCD_DECL boost::asio::awaitable<held_locks> multi_lock::scoped_lock() {
    return detail::go_home(get_executor(), detail::holder::scoped_lock<held_locks>(impl_));
}

COETCD_DECL boost::asio::awaitable<std::optional<held_locks>> multi_lock::scoped_try_lock() {
    return scoped_lock_for(std::chrono::nanoseconds(0));
}

COETCD_DECL boost::asio::awaitable<std::optional<held_locks>>
multi_lock::scoped_lock_for(std::chrono::nanoseconds patience) {
    return detail::go_home(get_executor(),
                           detail::holder::scoped_lock_for<held_locks>(impl_, patience));
}

COETCD_DECL boost::asio::awaitable<bool> multi_lock::unlock() {
    return detail::holder::unlock(impl_, impl_->current());
}

COETCD_DECL bool multi_lock::owns_lock() const {
    const auto current = impl_->current();
    return current && current->held();
}

COETCD_DECL std::int64_t multi_lock::fencing_token() const {
    return impl_->require_held()->create_revision();
}

COETCD_DECL std::vector<compare> multi_lock::is_owner() const {
    return detail::conditions(*impl_->require_held());
}

COETCD_DECL const std::vector<lock_part>& multi_lock::parts() const {
    static_cast<void>(impl_.get()); // throws if there is none
    return parts_;
}

} // namespace coetcd
