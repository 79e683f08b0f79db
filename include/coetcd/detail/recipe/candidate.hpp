// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/logic/election.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/recipe/leading.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/detail/service/session.hpp>
#include <coetcd/lead_options.hpp>
#include <coetcd/session.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace coetcd::detail {

/// A candidate that uses as many sessions as it takes: what `lead` does between two terms. All of
/// it runs at home.
class candidate {
public:
    candidate(std::shared_ptr<client_impl> c,
              std::chrono::nanoseconds timeout,
              std::string name,
              std::string value,
              const lead_options& how)
        : client(std::move(c))
        , timeout_(timeout)
        , name_(std::move(name))
        , value_(std::move(value))
        , how_(how) {}

    const std::shared_ptr<client_impl> client;

    /// Waits until it leads, and tries again after any failure that may pass.
    static asio::awaitable<std::shared_ptr<leading>> win(std::shared_ptr<candidate> self) {
        for (;;) {
            try {
                if (!self->session_ || self->session_->state() == session_state::lost) {
                    self->session_.reset();
                    coetcd::session opened = co_await open(self);
                    self->session_.emplace(std::move(opened));
                }
                std::shared_ptr<leading> won = co_await campaign(
                    access::impl(*self->session_), self->name_, self->value_, time_point::max());
                self->won_ = self->client->world->now();
                co_return won;
            } catch (const error& e) {
                if (!logic::may_campaign_again(e.code())) {
                    throw;
                }
            }
            co_await rest(self, true);
        }
    }

    /// Waits for a while before the next campaign.
    /// @param failed The wait is then longer each time, unless a term has lasted.
    static asio::awaitable<void> rest(std::shared_ptr<candidate> self, bool failed) {
        env& world = *self->client->world;
        const time_point now = world.now();
        const bool lasted = self->won_ && now - *self->won_ >= self->how_.ttl;
        self->won_.reset();
        const unsigned attempt = failed && !lasted ? self->failures_ : 0;
        self->failures_ = failed ? attempt + 1 : 0;
        const auto first = bounded(self->how_.pause);
        const auto longest = std::max<std::chrono::milliseconds>(first, self->how_.ttl);
        const auto pause = logic::backoff(attempt, world.random(), first, longest);
        co_await sleep_until(world, after(now, pause));
    }

    /// Ends the session, as well as possible now.
    static asio::awaitable<void> withdraw(std::shared_ptr<candidate> self) {
        if (!self->session_) {
            co_return;
        }
        const auto last = access::impl(*self->session_);
        try {
            co_await session_impl::close(last);
        } catch (const boost::system::system_error&) {
            // It ends by itself, within its ttl.
        }
    }

private:
    static asio::awaitable<coetcd::session> open(std::shared_ptr<candidate> self) {
        session_options options(self->how_.ttl);
        return as_handle<coetcd::session>(
            session_impl::open(self->client, self->timeout_, std::move(options)));
    }

    const std::chrono::nanoseconds timeout_;
    const std::string name_;
    const std::string value_;
    const lead_options how_;
    std::optional<coetcd::session> session_;
    std::optional<time_point> won_; // when it led last
    unsigned failures_ = 0;         // in a row
};

} // namespace coetcd::detail
