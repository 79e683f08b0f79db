// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/logic/names.hpp>
#include <coetcd/detail/recipe/keep.hpp>
#include <coetcd/detail/recipe/kept_key.hpp>
#include <coetcd/detail/wire/printable.hpp>
#include <coetcd/ephemeral.hpp>
#include <coetcd/session_keeper.hpp>

#include <memory>
#include <string>
#include <utility>

namespace coetcd {

namespace detail {

inline boost::asio::awaitable<ephemeral>
create_ephemeral(key_home where, std::string key, std::string value) {
    logic::require_name(key);
    const auto home = where.world().executor();
    std::string title = "ephemeral \"" + wire::printable(key) + "\"";
    logic::kept_terms terms;
    terms.name = key;
    terms.key = std::move(key);
    auto work = keep_key(std::move(where), std::move(terms), std::move(title), std::move(value));
    return go_home(home, as_handle<ephemeral>(std::move(work)));
}

} // namespace detail

COETCD_DECL boost::asio::awaitable<ephemeral>
ephemeral::create(const session& owner, std::string key, std::string value) {
    return detail::create_ephemeral(detail::home_in(owner), std::move(key), std::move(value));
}

COETCD_DECL boost::asio::awaitable<ephemeral>
ephemeral::create(const session_keeper& owner, std::string key, std::string value) {
    return detail::create_ephemeral(detail::home_in(owner), std::move(key), std::move(value));
}

COETCD_DECL ephemeral::ephemeral(std::shared_ptr<detail::kept_key> impl)
    : impl_(std::move(impl)) {}

COETCD_DECL ephemeral& ephemeral::operator=(ephemeral&& other) noexcept {
    ephemeral old(std::move(*this)); // removes the key that this one had
    impl_ = std::move(other.impl_);
    return *this;
}

COETCD_DECL ephemeral::~ephemeral() {
    if (impl_) {
        impl_->give_up();
    }
}

COETCD_DECL ephemeral::executor_type ephemeral::get_executor() const {
    return impl_->world().executor();
}

COETCD_DECL std::string ephemeral::key() const {
    return impl_->key();
}

COETCD_DECL bool ephemeral::exists() const {
    return impl_ && impl_->exists();
}

COETCD_DECL boost::asio::awaitable<void> ephemeral::update(std::string value) const {
    return detail::go_home(get_executor(), detail::kept_key::update(impl_, std::move(value)));
}

COETCD_DECL boost::asio::awaitable<bool> ephemeral::remove() {
    return detail::remove_if_any(impl_ ? impl_.get() : nullptr);
}

COETCD_DECL boost::asio::awaitable<error_code> ephemeral::wait_lost() const {
    return detail::go_home(get_executor(), detail::kept_key::wait_lost(impl_));
}

} // namespace coetcd
