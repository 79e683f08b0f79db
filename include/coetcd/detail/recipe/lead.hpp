// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/recipe/candidate.hpp>
#include <coetcd/detail/recipe/guarded.hpp>
#include <coetcd/detail/recipe/guarding.hpp>
#include <coetcd/detail/recipe/leading.hpp>
#include <coetcd/detail/recipe/ownership.hpp>
#include <coetcd/error.hpp>
#include <coetcd/lead_options.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/this_coro.hpp>

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace coetcd::detail {

/// What leads, term by term, and how its last term ended.
template<class Held>
struct office {
    std::function<asio::awaitable<void>(const Held&)> body;
    std::exception_ptr failure;
};

/// One term. What the body throws is kept, so that any other exception is a loss.
template<class Held>
asio::awaitable<void> serve(std::shared_ptr<office<Held>> in, const Held& held) {
    try {
        auto work = in->body(held);
        co_await std::move(work);
    } catch (...) {
        in->failure = std::current_exception();
    }
}

/// Campaigns, runs the body while it leads, and does so again and again.
template<class Held>
asio::awaitable<void> lead_on(std::shared_ptr<candidate> who,
                              std::shared_ptr<ownership> (*owned)(const Held&),
                              again when,
                              std::function<asio::awaitable<void>(const Held&)> body) {
    const asio::any_io_executor home = who->client->world->executor();
    const auto in = std::make_shared<office<Held>>();
    in->body = std::move(body);
    const asio::cancellation_state stop = co_await asio::this_coro::cancellation_state;
    const asio::cancellation_type earlier = stop.cancelled(); // not meant for us
    for (;;) {
        auto winning = who->client->home(as_handle<Held>(candidate::win(who)));
        Held won = co_await std::move(winning);
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
        const bool cancelled = stop.cancelled() != earlier;
        const bool may_go_on = lost ? when != again::never : when == again::always && !in->failure;
        if (may_go_on && !cancelled) {
            auto resting = who->client->home(candidate::rest(who, lost.has_value()));
            co_await std::move(resting);
            continue;
        }
        if (!cancelled) {
            auto withdrawing = who->client->home(candidate::withdraw(who));
            co_await std::move(withdrawing);
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
