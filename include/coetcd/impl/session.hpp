// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/service/session.hpp>
#include <coetcd/session.hpp>

#include <optional>
#include <utility>

namespace coetcd {

COETCD_DECL boost::asio::awaitable<session> session::open(const client& owner,
                                                          session_options options) {
    detail::require_ttl(options.ttl);
    const auto& impl = detail::access::impl(owner);
    return impl->home(detail::as_handle<session>(
        detail::session_impl::open(impl, detail::access::timeout(owner), std::move(options))));
}

COETCD_DECL boost::asio::awaitable<std::optional<session>>
session::adopt(const client& owner, lease_id lease, session_options options) {
    detail::require_lease(lease);
    const auto& impl = detail::access::impl(owner);
    using adopted = std::shared_ptr<detail::session_impl>;
    auto adopting = detail::session_impl::adopt(
        impl, detail::access::timeout(owner), lease, std::move(options));
    const auto hand_over = [](const adopted& dropped) {
        if (dropped) {
            dropped->lose(session_end::orphaned);
        }
    };
    return detail::as_handle_if_any<session>(
        detail::go_home_and_back<adopted>(impl->world->executor(), std::move(adopting), hand_over));
}

COETCD_DECL session::session(std::shared_ptr<detail::session_impl> impl)
    : impl_(std::move(impl)) {}

COETCD_DECL session& session::operator=(session&& other) noexcept {
    session old(std::move(*this)); // closes what this one was
    impl_ = std::move(other.impl_);
    return *this;
}

COETCD_DECL session::~session() {
    if (impl_ && impl_->reason() == session_end::none) {
        impl_->lose(session_end::closed);
        impl_->revoke();
    }
}

COETCD_DECL session::executor_type session::get_executor() const {
    return impl_->world.executor();
}

COETCD_DECL lease_id session::lease() const {
    return impl_->lease();
}

COETCD_DECL std::chrono::seconds session::ttl() const {
    return impl_->ttl();
}

COETCD_DECL session_state session::state() const {
    return impl_->state();
}

COETCD_DECL session_end session::reason() const {
    (void)impl_->alive();
    return impl_->reason();
}

COETCD_DECL std::chrono::nanoseconds session::remaining() const {
    return impl_->remaining();
}

COETCD_DECL boost::asio::awaitable<session_end> session::wait_lost() const {
    return impl_->owner->home(detail::session_impl::wait_lost(impl_));
}

COETCD_DECL boost::asio::awaitable<std::chrono::nanoseconds> session::wait_suspect() const {
    return impl_->owner->home(detail::session_impl::wait_suspect(impl_));
}

COETCD_DECL boost::asio::awaitable<void> session::wait_active() const {
    return impl_->owner->home(detail::session_impl::wait_for(impl_, session_state::active));
}

COETCD_DECL boost::asio::awaitable<void> session::close() {
    return detail::session_impl::close(impl_);
}

COETCD_DECL lease_id session::orphan() {
    impl_->lose(session_end::orphaned);
    return impl_->lease();
}

} // namespace coetcd
