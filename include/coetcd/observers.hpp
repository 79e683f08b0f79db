// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/config.hpp>
#include <coetcd/observer.hpp>

#include <memory>
#include <utility>
#include <vector>

namespace coetcd {

/// Several observers as one: each is told everything, in the order in which they are named.
///
///     options.observer = std::make_shared<coetcd::observers>(log, metrics);
///
/// @par Thread safety
/// As safe as the least safe observer in it.
class observers final : public observer {
public:
    /// Those that are null are left out.
    explicit observers(std::vector<std::shared_ptr<observer>> all);
    template<class... Observer>
    explicit observers(std::shared_ptr<Observer>... all)
        : observers(std::vector<std::shared_ptr<observer>>{std::move(all)...}) {}

    void on_request_begin(const request_begin_report& r, request_headers& more) override;
    void on_request(const request_report& r) override;
    void on_connection(const connection_report& r) override;
    void on_renewal(const renewal_report& r) override;
    void on_session_open(const session_open_report& r) override;
    void on_session_end(const session_report& r) override;
    void on_lock_wait_begin(const lock_wait_begin_report& r) override;
    void on_lock_wait(const lock_wait_report& r) override;
    void on_lock_hold(const lock_hold_report& r) override;
    void on_overrun(const overrun_report& r) override;
    void on_watch_stream(const watch_stream_report& r) override;

private:
    std::vector<std::shared_ptr<observer>> all_;
};

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/observers.hpp>
#endif
