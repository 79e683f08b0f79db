// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/logic/sequencer.hpp>
#include <coetcd/detail/recipe/sequencer.hpp>
#include <coetcd/verify.hpp>

#include <optional>
#include <stdexcept>
#include <utility>

namespace coetcd {

namespace detail {

inline std::optional<logic::sequencer> sequencer_of(std::string_view name, std::string_view text) {
    std::optional<logic::sequencer> found = logic::read_sequencer(text);
    if (found && !logic::is_of(*found, name)) {
        found.reset();
    }
    return found;
}

inline boost::asio::awaitable<bool> verify(const client& by,
                                           std::optional<logic::sequencer> claimed) {
    const auto& impl = access::impl(by);
    return impl->home(is_proved(impl, impl->within(access::timeout(by)), std::move(claimed)));
}

} // namespace detail

COETCD_DECL boost::asio::awaitable<bool>
verify(const client& by, std::string_view name, const sequencer& which) {
    return detail::verify(by, detail::sequencer_of(name, which.text()));
}

COETCD_DECL boost::asio::awaitable<bool> verify_of_any_lock(const client& by,
                                                            const sequencer& which) {
    return detail::verify(by, detail::logic::read_sequencer(which.text()));
}

COETCD_DECL compare guard(std::string_view name, const sequencer& which) {
    const auto found = detail::sequencer_of(name, which.text());
    if (!found) {
        throw std::invalid_argument("sequencer: is not one of this lock");
    }
    return detail::logic::still_holds(*found);
}

COETCD_DECL compare guard_of_any_lock(const sequencer& which) {
    const auto found = detail::logic::read_sequencer(which.text());
    if (!found) {
        throw std::invalid_argument("sequencer: is not valid");
    }
    return detail::logic::still_holds(*found);
}

} // namespace coetcd
