// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/wire/watch.hpp>
#include <coetcd/kv.hpp>

#include <functional>
#include <optional>
#include <string>

namespace coetcd::detail::logic {

/// A question about some keys, whose answer is to be kept current. Pure: `feed` does the asking.
template<class T>
struct question {
    std::string title;  ///< For messages.
    range_request read; ///< The read that asks it.
    /// The changes that may change the answer.
    wire::watch_create_request signs;
    /// What an answer means.
    std::function<T(const range_response&)> from;
    /// The answer after a change, if nothing that concerns it has happened since the last answer,
    /// `now`. Nothing if only a look can tell.
    std::function<std::optional<T>(const T& now, const event&)> follow;
};

} // namespace coetcd::detail::logic
