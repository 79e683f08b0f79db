// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/recipe/stm.hpp>
#include <coetcd/stm.hpp>

#include <stdexcept>
#include <utility>

namespace coetcd {

namespace detail {

COETCD_DECL std::shared_ptr<stm_run> make_stm_run(const session& owner, stm_options options) {
    const std::shared_ptr<session_impl>& s = access::impl(owner);
    return make_at_home<stm_run>(
        s->owner->world, s->owner, s, s->request_timeout, checked(std::move(options)));
}

COETCD_DECL std::shared_ptr<stm_run> make_stm_run(const client& by, stm_options options) {
    const std::shared_ptr<client_impl>& c = access::impl(by);
    return make_at_home<stm_run>(c->world,
                                 c,
                                 std::shared_ptr<session_impl>(),
                                 access::timeout(by),
                                 checked(std::move(options)));
}

COETCD_DECL asio::awaitable<void> begin_stm_run(std::shared_ptr<stm_run> run) {
    const asio::any_io_executor home = run->owner->world->executor();
    return go_home(home, stm_run::begin(std::move(run)));
}

COETCD_DECL asio::awaitable<bool> commit_stm_run(std::shared_ptr<stm_run> run) {
    const asio::any_io_executor home = run->owner->world->executor();
    return go_home(home, stm_run::commit(std::move(run)));
}

COETCD_DECL bool is_void(const stm_run& run) {
    return run.is_void();
}

} // namespace detail

COETCD_DECL transaction::transaction(std::shared_ptr<detail::stm_run> run)
    : run_(std::move(run)) {}

COETCD_DECL transaction::executor_type transaction::get_executor() const {
    return run_->owner->world->executor();
}

COETCD_DECL boost::asio::awaitable<std::optional<std::string>> transaction::get(std::string key) {
    detail::require_key(key);
    return detail::go_home(get_executor(), detail::stm_run::get(run_, std::move(key)));
}

COETCD_DECL boost::asio::awaitable<std::vector<key_value>> transaction::range(key_range keys) {
    detail::require_key(keys.key);
    return detail::go_home(get_executor(), detail::stm_run::range(run_, std::move(keys)));
}

COETCD_DECL boost::asio::awaitable<std::int64_t> transaction::revision(std::string key) {
    detail::require_key(key);
    return detail::go_home(get_executor(), detail::stm_run::revision(run_, std::move(key)));
}

COETCD_DECL void transaction::put(std::string key, std::string value, put_options options) {
    detail::require_key(key);
    if (options.prev_kv || options.ignore_value) {
        throw std::invalid_argument("put_options: stm takes neither prev_kv nor ignore_value");
    }
    run_->put(std::move(key), std::move(value), options);
}

COETCD_DECL void transaction::erase(std::string key) {
    detail::require_key(key);
    run_->erase(std::move(key));
}

} // namespace coetcd
