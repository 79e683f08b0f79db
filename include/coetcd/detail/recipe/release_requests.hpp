// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/logic/admin.hpp>
#include <coetcd/detail/recipe/feed.hpp>
#include <coetcd/detail/recipe/place.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace coetcd::detail {

/// Listens for requests to give a place back while somebody wants to know.
class release_requests {
    struct passkey {};

public:
    release_requests(passkey, std::shared_ptr<place> who)
        : who_(std::move(who))
        , requests_(make_at_home<feed<bool>>(
              who_->session->owner->world,
              who_->session->owner,
              who_->session->request_timeout,
              logic::is_asked_for(who_->name(), who_->create_revision()))) {}

    /// Waits until somebody asks.
    /// @param wanted Becomes false once nobody waits for it any more; `changed` of the place then
    ///   notifies.
    static asio::awaitable<void> wait(std::shared_ptr<place> who,
                                      std::shared_ptr<const bool> wanted = nullptr) {
        const auto self = std::make_shared<release_requests>(passkey(), who);
        struct until_the_end {
            release_requests& of;
            ~until_the_end() { of.requests_->end(); }
        };
        const until_the_end stopping{*self};
        spawn(who->session->world, listen(self));
        while (who->is_kept() && !self->asked_ && !self->failure_ && (!wanted || *wanted)) {
            if (who->held()) { // if it has just ended, it tells us
                (void)co_await who->changed.wait(
                    std::min(who->session->certain_until(), who->held_until()));
            } else if (who->is_kept()) {
                (void)co_await who->changed.wait();
            }
        }
        if (who->is_lost()) {
            throw who->loss();
        }
        if (self->asked_) {
            co_return;
        }
        if (self->failure_) {
            throw error(*self->failure_);
        }
        throw_aborted();
    }

private:
    static asio::awaitable<void> listen(std::shared_ptr<release_requests> self) {
        while (!self->asked_ && !self->failure_) {
            try {
                const bool asked = co_await feed<bool>::next(self->requests_);
                self->asked_ = asked;
            } catch (const error& e) {
                if (e.code() != errc::revision_regressed) { // after which it begins anew
                    self->failure_ = e;
                }
            }
        }
        self->who_->changed.notify_all();
    }

    const std::shared_ptr<place> who_;
    const std::shared_ptr<feed<bool>> requests_;
    bool asked_ = false;
    std::optional<error> failure_;
};

/// Cancels a body, some time after somebody has asked for what it runs under.
class yielding {
public:
    yielding(std::shared_ptr<place> who,
             std::chrono::nanoseconds grace,
             std::function<void()> cancel)
        : who_(std::move(who))
        , wanted_(std::make_shared<bool>(true)) {
        spawn(who_->session->world, yield(who_, wanted_, grace, std::move(cancel)));
    }
    ~yielding() {
        *wanted_ = false;
        who_->changed.notify_all();
    }
    yielding(const yielding&) = delete;
    yielding& operator=(const yielding&) = delete;

private:
    static asio::awaitable<void> yield(std::shared_ptr<place> who,
                                       std::shared_ptr<const bool> wanted,
                                       std::chrono::nanoseconds grace,
                                       std::function<void()> cancel) {
        try {
            co_await release_requests::wait(who, wanted);
        } catch (const error&) {
            co_return; // a loss cancels the body anyway; without a right to listen, nobody can ask
        }
        const time_point due = after(who->session->world.now(), grace);
        while (*wanted && who->is_kept() && who->session->world.now() < due) {
            (void)co_await who->changed.wait(due);
        }
        if (*wanted) {
            cancel();
        }
    }

    const std::shared_ptr<place> who_;
    const std::shared_ptr<bool> wanted_;
};

} // namespace coetcd::detail
