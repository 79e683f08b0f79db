// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/logic/membership.hpp>
#include <coetcd/detail/logic/names.hpp>
#include <coetcd/detail/recipe/keep.hpp>
#include <coetcd/detail/recipe/kept_key.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/detail/service/lease.hpp>
#include <coetcd/detail/wire/printable.hpp>
#include <coetcd/group.hpp>
#include <coetcd/impl/feed.hpp>
#include <coetcd/session_keeper.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace coetcd {

namespace detail {

/// The state that a `group` shares with the operations under way on it.
struct group_impl {
    group_impl(key_home w, std::string n)
        : where(std::move(w))
        , name(std::move(n)) {
        logic::require_name(name);
    }
    const key_home where;
    const std::string name;
};

inline std::string group_title(const std::string& name) {
    return "group \"" + wire::printable(name) + "\"";
}

inline boost::asio::awaitable<std::vector<member_entry>>
read_members(std::shared_ptr<client_impl> c, std::string name, std::chrono::nanoseconds timeout) {
    const range_request all(logic::below(name));
    const range_response read = co_await ask(c, all, c->within(timeout));
    co_return logic::members_in(read);
}

inline members_feed make_members_feed(const std::shared_ptr<client_impl>& c,
                                      std::chrono::nanoseconds timeout,
                                      const std::string& name) {
    return access::make<members_feed>(make_at_home<detail::feed<std::vector<member_entry>>>(
        c->world, c, timeout, logic::who_is_in(group_title(name), name)));
}

} // namespace detail

COETCD_DECL membership::membership(std::shared_ptr<detail::kept_key> impl)
    : impl_(std::move(impl)) {}

COETCD_DECL membership& membership::operator=(membership&& other) noexcept {
    membership old(std::move(*this)); // leaves
    impl_ = std::move(other.impl_);
    return *this;
}

COETCD_DECL membership::~membership() {
    if (impl_) {
        impl_->give_up();
    }
}

COETCD_DECL membership::executor_type membership::get_executor() const {
    return impl_->world().executor();
}

COETCD_DECL std::string membership::key() const {
    return impl_->key();
}

COETCD_DECL bool membership::is_member() const {
    return impl_ && impl_->exists();
}

COETCD_DECL boost::asio::awaitable<void> membership::update(std::string value) const {
    return detail::go_home(get_executor(), detail::kept_key::update(impl_, std::move(value)));
}

COETCD_DECL boost::asio::awaitable<bool> membership::leave() {
    return detail::remove_if_any(impl_ ? impl_.get() : nullptr);
}

COETCD_DECL boost::asio::awaitable<error_code> membership::wait_lost() const {
    return detail::go_home(get_executor(), detail::kept_key::wait_lost(impl_));
}

COETCD_DECL group::group(const session& owner, std::string name)
    : impl_(std::make_shared<const detail::group_impl>(detail::home_in(owner), std::move(name))) {}

COETCD_DECL group::group(const session_keeper& owner, std::string name)
    : impl_(std::make_shared<const detail::group_impl>(detail::home_in(owner), std::move(name))) {}

COETCD_DECL group::executor_type group::get_executor() const {
    return impl_->where.world().executor();
}

COETCD_DECL const std::string& group::name() const {
    return impl_->name;
}

COETCD_DECL boost::asio::awaitable<membership> group::join(std::string value) {
    detail::logic::kept_terms terms;
    terms.name = impl_->name;
    auto work = detail::keep_key(
        impl_->where, std::move(terms), detail::group_title(impl_->name), std::move(value));
    return detail::go_home(get_executor(), detail::as_handle<membership>(std::move(work)));
}

COETCD_DECL boost::asio::awaitable<std::vector<member_entry>> group::members() const {
    const detail::key_home& where = impl_->where;
    return where.owner()->home(detail::read_members(where.owner(), impl_->name, where.timeout()));
}

COETCD_DECL members_feed group::changes() const {
    const detail::key_home& where = impl_->where;
    return detail::make_members_feed(where.owner(), where.timeout(), impl_->name);
}

COETCD_DECL boost::asio::awaitable<std::vector<member_entry>> members_of(const client& c,
                                                                         std::string name) {
    detail::logic::require_name(name);
    const auto& impl = detail::access::impl(c);
    return impl->home(detail::read_members(impl, std::move(name), detail::access::timeout(c)));
}

COETCD_DECL members_feed watch_members(const client& c, std::string name) {
    detail::logic::require_name(name);
    return detail::make_members_feed(detail::access::impl(c), detail::access::timeout(c), name);
}

#ifdef COETCD_SEPARATE_COMPILATION
template class feed<std::vector<member_entry>>;
#endif

} // namespace coetcd
