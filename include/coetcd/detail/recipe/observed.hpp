// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/recipe/place.hpp>
#include <coetcd/observer.hpp>

#include <memory>
#include <string>
#include <utility>

namespace coetcd::detail {

inline asio::awaitable<std::shared_ptr<place>>
observe(std::shared_ptr<session_impl> s,
        std::string name,
        asio::awaitable<std::shared_ptr<place>> work) {
    coetcd::observer& to = *s->owner->options.observer;
    const time_point began = s->world.now();
    std::shared_ptr<place> taken;
    try {
        taken = co_await std::move(work);
    } catch (const boost::system::system_error& e) {
        to.on_lock_wait({name, s->world.now() - began, false, e.code()});
        throw;
    }
    to.on_lock_wait({name, s->world.now() - began, taken != nullptr, {}});
    co_return taken;
}

/// Tells the observer, if there is one, how `work`, which takes a place, ends. `place::report_end`
/// tells the observer how the hold ends.
inline asio::awaitable<std::shared_ptr<place>>
observed(std::shared_ptr<session_impl> s,
         std::string name,
         asio::awaitable<std::shared_ptr<place>> work) {
    if (!s->owner->options.observer) {
        return work;
    }
    return observe(std::move(s), std::move(name), std::move(work));
}

} // namespace coetcd::detail
