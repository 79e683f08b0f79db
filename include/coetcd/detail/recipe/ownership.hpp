// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/loss.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/error.hpp>

#include <chrono>
#include <optional>
#include <string>

namespace coetcd::detail {

/// What is held until it is given back or lost, as far as code that acts under it needs to know.
class ownership {
public:
    virtual bool held() const = 0;
    /// It was not lost, but is no longer wanted.
    virtual bool is_given_up() const = 0;
    /// Why it was lost.
    virtual error loss() const = 0;
    /// Ends it here and now; etcd is told in the background.
    virtual void abandon() = 0;
    virtual env& world() const = 0;
    /// For messages.
    virtual std::string title() const = 0;
    /// How long a body may go on after the loss before that is reported; nothing: for ever.
    virtual std::optional<std::chrono::nanoseconds> overrun_to_report() const = 0;
    /// Tells the observer for how long a body has run on after the loss.
    virtual void report_overrun(std::chrono::nanoseconds overrun) const = 0;

    /// Tells if it is lost while it is held.
    loss_source losses;

protected:
    ~ownership() = default;
};

} // namespace coetcd::detail
