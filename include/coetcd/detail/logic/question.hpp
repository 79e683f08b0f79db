// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/wire/watch.hpp>
#include <coetcd/kv.hpp>

#include <functional>
#include <optional>
#include <string>

namespace coetcd::detail::logic {

/// What somebody wants to know about some keys, and to go on knowing. Pure: `feed` does the asking.
template<class T>
struct question {
    std::string title;  ///< For messages.
    range_request read; ///< Asks it.
    /// The changes that may change the answer.
    wire::watch_create_request signs;
    /// What an answer means.
    std::function<T(const range_response&)> from;
    /// What a change makes of the last answer, where nothing has happened in between that concerns
    /// it. Nothing: only a look can tell.
    std::function<std::optional<T>(const T& now, const event&)> follow;
};

} // namespace coetcd::detail::logic
