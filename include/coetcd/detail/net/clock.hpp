// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/env.hpp>
#include <coetcd/detail/net/system.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/basic_waitable_timer.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>

namespace coetcd::detail::net {

/// The clock behind the default env: where there is one, a clock that runs through a suspend.
struct boot_clock : env_clock {
    static time_point now() noexcept { return time_point(system::uptime()); }
};

/// The kernel timer under Asio stops during a suspend. To fire in time after one, a wait takes at
/// most a second at a time, unless it is longer than a day, and so practically endless.
struct boot_wait_traits {
    static boot_clock::duration to_wait_duration(const boot_clock::duration& d) {
        return d > std::chrono::hours(24)
                   ? d
                   : std::min<boot_clock::duration>(d, std::chrono::seconds(1));
    }
    static boot_clock::duration to_wait_duration(const boot_clock::time_point& t) {
        return to_wait_duration(t - boot_clock::now());
    }
};

using timer = asio::basic_waitable_timer<boot_clock, boot_wait_traits>;

/// Ends something at a deadline, unless destroyed before.
class watchdog {
public:
    watchdog(const asio::any_io_executor& ex, time_point deadline, std::function<void()> end)
        : state_(std::make_shared<state>(ex, std::move(end))) {
        state_->alarm.expires_at(deadline);
        state_->alarm.async_wait([s = state_](const error_code& ec) {
            if (!ec && s->end) {
                s->fired = true;
                s->end();
            }
        });
    }
    ~watchdog() {
        state_->end = nullptr; // its handler may be on its way already
        state_->alarm.cancel();
    }
    watchdog(const watchdog&) = delete;
    watchdog& operator=(const watchdog&) = delete;

    bool fired() const { return state_->fired; }

private:
    struct state {
        state(const asio::any_io_executor& ex, std::function<void()> f)
            : alarm(ex)
            , end(std::move(f)) {}
        timer alarm;
        std::function<void()> end;
        bool fired = false;
    };
    std::shared_ptr<state> state_;
};

} // namespace coetcd::detail::net
