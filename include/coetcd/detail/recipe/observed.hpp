// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/recipe/place.hpp>
#include <coetcd/observer.hpp>

#include <boost/system/errc.hpp>
#include <boost/system/system_error.hpp>

#include <memory>
#include <new>
#include <string>
#include <utility>

namespace coetcd::detail {

/// What is being handled.
inline error_code code_of_failure() {
    namespace codes = boost::system::errc;
    try {
        throw;
    } catch (const boost::system::system_error& e) {
        return e.code();
    } catch (const std::bad_alloc&) {
        return codes::make_error_code(codes::not_enough_memory);
    } catch (...) {
        return codes::make_error_code(codes::invalid_argument);
    }
}

inline asio::awaitable<std::shared_ptr<place>>
observe(std::shared_ptr<session_impl> s,
        const recipe& how,
        std::string name,
        asio::awaitable<std::shared_ptr<place>> work) {
    coetcd::observer& to = *s->owner->options.observer;
    const time_point began = s->world.now();
    std::shared_ptr<place> taken;
    to.on_lock_wait_begin({name, how.word});
    try {
        taken = co_await std::move(work);
    } catch (...) {
        to.on_lock_wait({name, s->world.now() - began, false, code_of_failure(), how.word});
        throw;
    }
    if (taken) {
        taken->tell_end();
    }
    to.on_lock_wait({name, s->world.now() - began, taken != nullptr, {}, how.word});
    co_return taken;
}

/// Tells the observer, if there is one, how `work`, which takes a place, ends. `place::report_end`
/// tells the observer how the hold ends.
inline asio::awaitable<std::shared_ptr<place>>
observed(std::shared_ptr<session_impl> s,
         const recipe& how,
         std::string name,
         asio::awaitable<std::shared_ptr<place>> work) {
    if (!s->owner->options.observer) {
        return work;
    }
    return observe(std::move(s), how, std::move(name), std::move(work));
}

} // namespace coetcd::detail
