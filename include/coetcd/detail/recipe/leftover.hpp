// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/loss.hpp>
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/logic/places.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/service/call.hpp>
#include <coetcd/detail/service/session.hpp>
#include <coetcd/error.hpp>
#include <coetcd/session_options.hpp>

#include <chrono>
#include <memory>
#include <new>
#include <utility>

namespace coetcd::detail {

/// Keys that are not there, by all that etcd has said: it has refused to put them, and then to
/// erase them. But what stands between may have sent the first request twice, and etcd may have
/// refused only the second copy. So they are erased as soon as etcd allows that, in the background,
/// for as long as the session lives.
class leftover final : private loss_listener {
public:
    leftover(std::shared_ptr<session_impl> of, logic::name_keys what)
        : session_(std::move(of))
        , what_(std::move(what))
        , changed_(session_->world)
        , losses_(session_->losses, static_cast<loss_listener&>(*this)) {
        ++session_->leftovers;
    }
    ~leftover() { --session_->leftovers; }
    leftover(const leftover&) = delete;
    leftover& operator=(const leftover&) = delete;

    static void erase(const std::shared_ptr<session_impl>& of, logic::name_keys what) noexcept {
        if (of->leftovers == most) {
            return; // a user without rights, and not such an accident
        }
        try {
            spawn(of->world, run(std::make_shared<leftover>(of, std::move(what))));
        } catch (const std::bad_alloc&) {
            // They go with the session.
        }
    }

private:
    static constexpr int most = 16; // of a session, at once
    static constexpr std::chrono::milliseconds first_pause{500};
    static constexpr std::chrono::milliseconds longest_pause{10'000};

    void on_loss() override { changed_.notify_all(); }

    static asio::awaitable<void> run(std::shared_ptr<leftover> self) {
        session_impl& s = *self->session_;
        for (unsigned tries = 0; s.reason() == session_end::none; ++tries) {
            const auto pause = logic::backoff(tries, s.world.random(), first_pause, longest_pause);
            const bool lost = co_await self->changed_.wait(after(s.world.now(), pause));
            if (lost) {
                co_return;
            }
            txn request = logic::end(self->what_, s.lease());
            const outcome<txn_response> told =
                co_await call(s.owner, std::move(request), s.owner->within(s.request_timeout));
            if (self->is_over(told)) {
                co_return;
            }
        }
    }
    /// Whether nothing of them is there, and nothing can come.
    bool is_over(const outcome<txn_response>& told) {
        if (told.ec) {
            return false;
        }
        try {
            const logic::left_place now = logic::after_leaving(told.response, what_, 0, true);
            what_.epoch = now.epoch;
            return now.over;
        } catch (const error&) {
            return false; // the answer is not etcd's
        }
    }

    const std::shared_ptr<session_impl> session_;
    logic::name_keys what_;
    notifier changed_; ///< When the session has ended.
    const loss_source::subscription losses_;
};

} // namespace coetcd::detail
