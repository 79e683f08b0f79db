// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/env.hpp>

#include <functional>
#include <memory>
#include <new>
#include <utility>

namespace coetcd::detail {

/// Calls something at a time, unless it is destroyed before.
class alarm final {
public:
    /// @param what Called at home.
    alarm(std::shared_ptr<env> world, std::function<void()> what)
        : world_(std::move(world))
        , what_(std::make_shared<call>(call{std::move(what), false})) {}
    alarm(const alarm&) = delete;
    alarm& operator=(const alarm&) = delete;

    /// Does nothing if it is set already, or if there is no memory for it.
    void set(time_point then) noexcept {
        try {
            if (!what_->is_set) {
                spawn(*world_, wait(what_, world_, then));
                what_->is_set = true;
            }
        } catch (const std::bad_alloc&) {
        }
    }

private:
    struct call {
        std::function<void()> what;
        bool is_set;
    };
    static asio::awaitable<void>
    wait(std::weak_ptr<call> of, std::shared_ptr<env> world, time_point then) {
        co_await sleep_until(*world, then);
        if (const auto self = of.lock()) {
            self->is_set = false;
            self->what();
        }
    }

    const std::shared_ptr<env> world_;
    const std::shared_ptr<call> what_;
};

} // namespace coetcd::detail
