// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/logic/election.hpp>
#include <coetcd/detail/recipe/candidate.hpp>
#include <coetcd/detail/recipe/feed.hpp>
#include <coetcd/detail/recipe/lead.hpp>
#include <coetcd/detail/recipe/leading.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/detail/service/lease.hpp>
#include <coetcd/election.hpp>
#include <coetcd/impl/feed.hpp>

#include <functional>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace coetcd {

namespace detail {

COETCD_DECL std::shared_ptr<ownership> ownership_of(const leadership& held) {
    return access::impl(held)->held;
}

COETCD_DECL boost::asio::awaitable<void>
lead_terms(const client& c,
           std::string name,
           std::string value,
           std::function<boost::asio::awaitable<void>(const leadership&)> body,
           const lead_options& how) {
    logic::require_name(name);
    require_ttl(how.ttl);
    if (how.pause.count() <= 0) {
        throw std::invalid_argument("pause: must be positive");
    }
    auto who = std::make_shared<candidate>(
        access::impl(c), access::timeout(c), std::move(name), std::move(value), how);
    std::shared_ptr<ownership> (*const owned)(const leadership&) = &ownership_of;
    return lead_on(std::move(who), owned, how.again, std::move(body));
}

/// A term that an earlier object led. If it does not reach the caller, it stays as it is.
inline boost::asio::awaitable<std::optional<leadership>>
resumed_term(boost::asio::any_io_executor home,
             boost::asio::awaitable<std::shared_ptr<place>> resuming) {
    using term = std::shared_ptr<leading>;
    const auto leave = [](const term& dropped) {
        if (dropped) {
            dropped->held->leave_resumed();
        }
    };
    return as_handle_if_any<leadership>(
        go_home_and_back<term>(std::move(home), leading::begin(std::move(resuming), true), leave));
}

inline leader_feed make_leader_feed(const std::shared_ptr<client_impl>& c,
                                    std::chrono::nanoseconds timeout,
                                    const std::string& name) {
    return access::make<leader_feed>(make_at_home<detail::feed<std::optional<leader>>>(
        c->world, c, timeout, logic::who_leads(name)));
}

} // namespace detail

COETCD_DECL leadership::leadership(std::shared_ptr<detail::leading> impl)
    : impl_(std::move(impl)) {}

COETCD_DECL leadership& leadership::operator=(leadership&& other) noexcept {
    leadership old(std::move(*this)); // resigns what this one led
    impl_ = std::move(other.impl_);
    return *this;
}

COETCD_DECL leadership::~leadership() {
    if (impl_) {
        impl_->held->abandon();
    }
}

COETCD_DECL leadership::executor_type leadership::get_executor() const {
    return impl_->held->world().executor();
}

COETCD_DECL bool leadership::leads() const {
    return impl_ && impl_->held->held();
}

COETCD_DECL std::int64_t leadership::term() const {
    return impl_->held->create_revision();
}

COETCD_DECL compare leadership::is_leader() const {
    return compare::create_revision(key()) == term();
}

COETCD_DECL std::string leadership::key() const {
    return impl_->held->key();
}

COETCD_DECL boost::asio::awaitable<void> leadership::proclaim(std::string value) const {
    return detail::go_home(get_executor(), detail::leading::proclaim(impl_, std::move(value)));
}

COETCD_DECL boost::asio::awaitable<bool> leadership::resign() {
    return detail::leading::resign(impl_ ? impl_.get() : nullptr);
}

COETCD_DECL boost::asio::awaitable<error_code> leadership::wait_lost() const {
    return detail::go_home(get_executor(),
                           detail::place::wait_lost(impl_->held->shared_from_this()));
}

COETCD_DECL boost::asio::awaitable<std::chrono::nanoseconds> leadership::wait_suspect() const {
    return detail::go_home(get_executor(),
                           detail::session_impl::wait_suspect(impl_->held->session));
}

COETCD_DECL boost::asio::awaitable<void> leadership::wait_active() const {
    return detail::go_home(
        get_executor(),
        detail::session_impl::wait_for(impl_->held->session, session_state::active));
}

COETCD_DECL election::election(const session& owner, std::string name) {
    detail::logic::require_name(name);
    impl_ = std::make_shared<detail::election_impl>(detail::access::impl(owner), std::move(name));
}

COETCD_DECL election::executor_type election::get_executor() const {
    return impl_->session->world.executor();
}

COETCD_DECL const std::string& election::name() const {
    return impl_->name;
}

COETCD_DECL boost::asio::awaitable<leadership> election::campaign(std::string value) {
    auto work =
        detail::campaign(impl_->session, impl_->name, std::move(value), detail::time_point::max());
    return detail::go_home(get_executor(), detail::as_handle<leadership>(std::move(work)));
}

COETCD_DECL boost::asio::awaitable<std::optional<leadership>>
election::try_campaign(std::string value) {
    auto work = detail::try_campaign(impl_->session, impl_->name, std::move(value));
    return detail::go_home(get_executor(), detail::as_handle_if_any<leadership>(std::move(work)));
}

COETCD_DECL boost::asio::awaitable<std::optional<leadership>>
election::campaign_for(std::string value, std::chrono::nanoseconds patience) {
    if (patience.count() <= 0) {
        return try_campaign(std::move(value));
    }
    const auto until = detail::after(impl_->session->world.now(), patience);
    auto work = detail::campaign(impl_->session, impl_->name, std::move(value), until);
    return detail::go_home(get_executor(), detail::as_handle_if_any<leadership>(std::move(work)));
}

COETCD_DECL boost::asio::awaitable<std::optional<leadership>> election::resume() {
    return detail::resumed_term(
        get_executor(), detail::resume(impl_->session, {impl_->name, &detail::election_recipe}));
}

COETCD_DECL boost::asio::awaitable<std::optional<leadership>> election::resume(std::string key,
                                                                               std::int64_t term) {
    const std::string queue = name() + "/";
    if (!std::string_view(key).starts_with(queue) || key.size() == queue.size()) {
        throw std::invalid_argument("key: is not one of this election");
    }
    if (term <= 0) {
        throw std::invalid_argument("term: must be positive");
    }
    auto work = detail::resume_life(
        impl_->session, detail::election_recipe, impl_->name, std::move(key), term);
    return detail::resumed_term(get_executor(), std::move(work));
}

COETCD_DECL boost::asio::awaitable<std::optional<leader>> election::leader() const {
    const auto& s = impl_->session;
    return s->owner->home(detail::read_leader(s->owner, impl_->name, s->request_timeout));
}

COETCD_DECL leader_feed election::observe() const {
    const auto& s = impl_->session;
    return detail::make_leader_feed(s->owner, s->request_timeout, impl_->name);
}

COETCD_DECL leader_feed observe(const client& c, std::string name) {
    detail::logic::require_name(name);
    return detail::make_leader_feed(detail::access::impl(c), detail::access::timeout(c), name);
}

COETCD_DECL boost::asio::awaitable<std::optional<leader>> leader_of(const client& c,
                                                                    std::string name) {
    detail::logic::require_name(name);
    const auto& impl = detail::access::impl(c);
    return impl->home(detail::read_leader(impl, std::move(name), detail::access::timeout(c)));
}

} // namespace coetcd
