// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/logic/names.hpp>
#include <coetcd/detail/logic/service_endpoint.hpp>
#include <coetcd/detail/recipe/keep.hpp>
#include <coetcd/detail/recipe/kept_key.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/detail/service/lease.hpp>
#include <coetcd/detail/wire/printable.hpp>
#include <coetcd/impl/feed.hpp>
#include <coetcd/registry.hpp>
#include <coetcd/session_keeper.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace coetcd {

namespace detail {

inline std::string service_title(const std::string& service) {
    return "service \"" + wire::printable(service) + "\"";
}

inline boost::asio::awaitable<registration>
registered(boost::asio::awaitable<std::shared_ptr<kept_key>> work, std::string address) {
    std::shared_ptr<kept_key> kept = co_await std::move(work);
    co_return access::make<registration>(std::move(kept), std::move(address));
}

inline boost::asio::awaitable<registration>
register_in(key_home where, std::string service, std::string address, const std::string& metadata) {
    logic::kept_terms terms;
    terms.key = logic::endpoint_key(service, address);
    terms.takes_over = true;
    std::string value = logic::endpoint_value(address, metadata);
    std::string title = service_title(service) + ", \"" + wire::printable(address) + "\"";
    terms.name = std::move(service);
    const auto home = where.world().executor();
    auto work = keep_key(std::move(where), std::move(terms), std::move(title), std::move(value));
    return go_home(home, registered(std::move(work), std::move(address)));
}

inline boost::asio::awaitable<std::vector<service_endpoint>> read_endpoints(
    std::shared_ptr<client_impl> c, std::string service, std::chrono::nanoseconds timeout) {
    const range_request all(logic::below(service));
    const range_response read = co_await ask(c, all, c->within(timeout));
    co_return logic::endpoints_in(read);
}

} // namespace detail

COETCD_DECL registration::registration(std::shared_ptr<detail::kept_key> impl, std::string address)
    : impl_(std::move(impl))
    , address_(std::move(address)) {}

COETCD_DECL registration& registration::operator=(registration&& other) noexcept {
    registration old(std::move(*this)); // removes the endpoint that this one had
    impl_ = std::move(other.impl_);
    address_ = std::move(other.address_);
    return *this;
}

COETCD_DECL registration::~registration() {
    if (impl_) {
        impl_->give_up();
    }
}

COETCD_DECL registration::executor_type registration::get_executor() const {
    return impl_->world().executor();
}

COETCD_DECL std::string registration::key() const {
    return impl_->key();
}

COETCD_DECL bool registration::exists() const {
    return impl_ && impl_->exists();
}

COETCD_DECL boost::asio::awaitable<void> registration::update(std::string metadata) const {
    std::string value = detail::logic::endpoint_value(address_, metadata);
    return detail::go_home(get_executor(), detail::kept_key::update(impl_, std::move(value)));
}

COETCD_DECL boost::asio::awaitable<bool> registration::remove() {
    return detail::remove_if_any(impl_ ? impl_.get() : nullptr);
}

COETCD_DECL boost::asio::awaitable<error_code> registration::wait_lost() const {
    return detail::go_home(get_executor(), detail::kept_key::wait_lost(impl_));
}

COETCD_DECL boost::asio::awaitable<registration> register_service(const session& owner,
                                                                  std::string service,
                                                                  std::string address,
                                                                  std::string metadata) {
    return detail::register_in(
        detail::home_in(owner), std::move(service), std::move(address), metadata);
}

COETCD_DECL boost::asio::awaitable<registration> register_service(const session_keeper& owner,
                                                                  std::string service,
                                                                  std::string address,
                                                                  std::string metadata) {
    return detail::register_in(
        detail::home_in(owner), std::move(service), std::move(address), metadata);
}

COETCD_DECL endpoints_feed resolve(const client& c, std::string service) {
    detail::logic::require_name(service);
    const auto& impl = detail::access::impl(c);
    const std::string title = detail::service_title(service);
    return detail::access::make<endpoints_feed>(
        detail::make_at_home<detail::feed<std::vector<service_endpoint>>>(
            impl->world,
            impl,
            detail::access::timeout(c),
            detail::logic::who_serves(title, service)));
}

COETCD_DECL boost::asio::awaitable<std::vector<service_endpoint>>
endpoints_of(const client& c, std::string service) {
    detail::logic::require_name(service);
    const auto& impl = detail::access::impl(c);
    return impl->home(detail::read_endpoints(impl, std::move(service), detail::access::timeout(c)));
}

#ifdef COETCD_SEPARATE_COMPILATION
template class feed<std::vector<service_endpoint>>;
#endif

} // namespace coetcd
