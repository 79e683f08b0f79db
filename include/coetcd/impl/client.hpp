// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/detail/access.hpp>
#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/logic/key_space.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/detail/service/lease.hpp>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace coetcd {

COETCD_DECL client::client(executor_type executor, endpoints cluster, client_options options)
    : client(detail::make_default_env(std::move(executor), detail::checked(options)),
             std::move(cluster),
             options) {}

COETCD_DECL
client::client(std::shared_ptr<detail::env> world, endpoints cluster, client_options options)
    : client(detail::make_at_home<detail::client_impl>(
                 world, world, detail::parse(cluster, options), detail::checked(options)),
             detail::bounded(options.request_timeout)) {}

COETCD_DECL client::client(std::shared_ptr<detail::client_impl> impl,
                           std::chrono::nanoseconds timeout)
    : impl_(std::move(impl))
    , timeout_(timeout) {}

COETCD_DECL client::executor_type client::get_executor() const {
    return impl_->world->executor();
}

COETCD_DECL client client::with_timeout(std::chrono::milliseconds timeout) const {
    if (timeout.count() <= 0) {
        throw std::invalid_argument("timeout: must be positive");
    }
    return {impl_, detail::bounded(timeout)};
}

COETCD_DECL client client::in_namespace(const std::string& prefix) const {
    const std::shared_ptr<detail::client_impl>& whole = impl_.get();
    if (prefix.empty()) {
        return *this;
    }
    auto keys = std::make_shared<const detail::logic::key_space>(whole->in_etcd(prefix));
    return {detail::make_at_home<detail::client_impl>(whole->world, *whole, std::move(keys)),
            timeout_};
}

COETCD_DECL void client::set_endpoints(endpoints cluster) const {
    const std::shared_ptr<detail::client_impl>& impl = impl_.get();
    auto change = [impl, named = detail::parse(cluster, impl->options)] {
        impl->cluster_router->set_endpoints(named);
    };
    detail::at_home(*impl->world, std::move(change));
}

COETCD_DECL boost::asio::awaitable<std::optional<key_value>> client::get(std::string key) const {
    detail::require_key(key);
    return impl_->home(
        detail::first_of(detail::ask_for_user(impl_, range_request(std::move(key)), timeout_)));
}

COETCD_DECL boost::asio::awaitable<range_response> client::range(key_range keys,
                                                                 range_options options) const {
    detail::require_key(keys.key);
    return impl_->home(
        detail::ask(impl_, range_request(std::move(keys), options), impl_->within(timeout_)));
}

COETCD_DECL boost::asio::awaitable<put_response>
client::put(std::string key, std::string value, put_options options) const {
    detail::require_key(key);
    return impl_->home(detail::ask_for_user(
        impl_, put_request(std::move(key), std::move(value), options), timeout_));
}

COETCD_DECL boost::asio::awaitable<erase_response> client::erase(key_range keys,
                                                                 erase_options options) const {
    detail::require_key(keys.key);
    return impl_->home(
        detail::ask_for_user(impl_, erase_request(std::move(keys), options), timeout_));
}

COETCD_DECL boost::asio::awaitable<txn_response> client::txn(coetcd::txn transaction) const {
    return impl_->home(detail::ask_for_user(impl_, std::move(transaction), timeout_));
}

COETCD_DECL boost::asio::awaitable<compaction_response> client::compact(std::int64_t revision,
                                                                        bool physical) const {
    const detail::wire::compaction_request request{revision, physical};
    return impl_->home(detail::ask(impl_, request, impl_->within(timeout_)));
}

COETCD_DECL boost::asio::awaitable<lease_grant_response>
client::lease_grant(std::chrono::seconds ttl, lease_id id) const {
    detail::require_ttl(ttl);
    if (id < 0) {
        throw std::invalid_argument("id: must be positive, or 0 to have one chosen");
    }
    return impl_->home(detail::lease_grant(impl_, impl_->within(timeout_), ttl, id));
}

COETCD_DECL boost::asio::awaitable<std::optional<lease_revoke_response>>
client::lease_revoke(lease_id id) const {
    detail::require_lease(id);
    return impl_->home(detail::lease_revoke(impl_, impl_->within(timeout_), id));
}

COETCD_DECL boost::asio::awaitable<std::optional<lease_keep_alive_response>>
client::lease_keep_alive_once(lease_id id) const {
    detail::require_lease(id);
    return impl_->home(detail::renew_once(impl_, impl_->within(timeout_), id));
}

COETCD_DECL boost::asio::awaitable<std::optional<lease_time_to_live_response>>
client::lease_time_to_live(lease_id id, bool keys) const {
    detail::require_lease(id);
    const detail::wire::lease_time_to_live_request request{id, keys};
    return impl_->home(detail::if_there(detail::ask(impl_, request, impl_->within(timeout_))));
}

COETCD_DECL boost::asio::awaitable<lease_leases_response> client::lease_leases() const {
    return impl_->home(
        detail::ask(impl_, detail::wire::lease_leases_request(), impl_->within(timeout_)));
}

COETCD_DECL boost::asio::awaitable<member_status> client::status() const {
    return impl_->home(detail::ask(impl_, detail::wire::status_request(), impl_->within(timeout_)));
}

COETCD_DECL boost::asio::awaitable<watcher> client::watch(key_range keys,
                                                          watch_options options) const {
    detail::require_key(keys.key);
    if (options.start_revision < 0) {
        throw std::invalid_argument("start_revision: must not be negative");
    }
    if (options.buffer == 0) {
        throw std::invalid_argument("buffer: must be positive");
    }
    detail::wire::watch_create_request request(std::move(keys));
    request.start_revision = options.start_revision;
    request.prev_kv = options.prev_kv;
    request.no_put = options.no_put;
    request.no_delete = options.no_erase;
    return impl_->home(detail::as_handle<watcher>(
        detail::watch(impl_, impl_->within(timeout_), std::move(request), options)));
}

} // namespace coetcd
