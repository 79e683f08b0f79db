// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/recipe/guarded.hpp>
#include <coetcd/detail/recipe/ownership.hpp>
#include <coetcd/error.hpp>
#include <coetcd/lead_options.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/this_coro.hpp>

#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace coetcd::detail {

class candidate;

/// A pause, after a failure or not.
asio::awaitable<void> rest(std::shared_ptr<candidate> who, bool failed);
/// The end of its session.
asio::awaitable<void> withdraw(std::shared_ptr<candidate> who);

/// What leads, term by term, and how its last term ended.
template<class Body>
struct office {
    explicit office(Body b)
        : body(std::move(b)) {}
    Body body;
    std::exception_ptr failure;
};

/// One term. What the body throws is kept, so that what else comes of it is a loss.
template<class Body, class Held>
asio::awaitable<void> serve(std::shared_ptr<office<Body>> in, const Held& held) {
    using result = typename decltype(start(in->body, held))::value_type;
    static_assert(std::is_void_v<result>, "the body of lead() returns awaitable<void>");
    try {
        auto work = start(in->body, held);
        co_await std::move(work);
    } catch (...) {
        in->failure = std::current_exception();
    }
}

/// Campaigns, runs the body while it leads, and does so again and again.
/// @param home Where the elections are.
/// @param win Waits for the next term.
template<class Held, class Body>
asio::awaitable<void> lead_on(std::shared_ptr<candidate> who,
                              asio::any_io_executor home,
                              asio::awaitable<Held> (*win)(std::shared_ptr<candidate>),
                              std::shared_ptr<ownership> (*owned)(const Held&),
                              again when,
                              Body body) {
    const auto in = std::make_shared<office<Body>>(std::move(body));
    for (;;) {
        Held won = co_await win(who);
        const std::shared_ptr<ownership> term = owned(won);
        in->failure = nullptr;
        auto entry = [in](const Held& held) { return serve(in, held); };
        auto work = run_guarded(home, brought(std::move(won)), owned, std::move(entry));
        std::optional<error> lost;
        try {
            co_await std::move(work);
        } catch (const error&) {
            lost = term->loss();
        }
        const asio::cancellation_state stop = co_await asio::this_coro::cancellation_state;
        const bool cancelled = stop.cancelled() != asio::cancellation_type::none;
        const bool may_go_on = lost ? when != again::never : when == again::always && !in->failure;
        if (may_go_on && !cancelled) {
            co_await rest(who, lost.has_value());
            continue;
        }
        if (!cancelled) {
            co_await withdraw(who);
        }
        if (lost) {
            throw_loss(*lost, in->failure);
        }
        if (in->failure) {
            std::rethrow_exception(in->failure);
        }
        co_return;
    }
}

} // namespace coetcd::detail
