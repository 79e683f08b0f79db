// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/logic/lock_value.hpp>
#include <coetcd/detail/logic/names.hpp>
#include <coetcd/detail/recipe/lock_value.hpp>
#include <coetcd/lock_value.hpp>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace coetcd {

namespace detail {

inline asio::awaitable<std::optional<std::string>>
value_in(asio::awaitable<std::optional<key_value>> reading) {
    std::optional<key_value> found = co_await std::move(reading);
    std::optional<std::string> value;
    if (found) {
        value = std::move(found->value);
    }
    co_return value;
}

} // namespace detail

COETCD_DECL boost::asio::awaitable<std::optional<std::string>> get_value(const held_lock& held) {
    auto value =
        std::make_shared<detail::held_value>(detail::access::held(held)->shared_from_this());
    return detail::go_home(held.get_executor(), detail::held_value::get(std::move(value)));
}

COETCD_DECL boost::asio::awaitable<void> set_value(const held_lock& held, std::string value) {
    detail::logic::require_lock_value(value);
    if (held.mode() == lock_mode::shared) {
        throw std::logic_error("set_value: the lock is only held to read");
    }
    auto kept =
        std::make_shared<detail::held_value>(detail::access::held(held)->shared_from_this());
    return detail::go_home(held.get_executor(),
                           detail::held_value::set(std::move(kept), std::move(value)));
}

COETCD_DECL boost::asio::awaitable<std::optional<std::string>> get_value(const client& by,
                                                                         const std::string& name) {
    detail::logic::require_name(name);
    return detail::value_in(by.get(detail::logic::lock_value_key(name)));
}

} // namespace coetcd
