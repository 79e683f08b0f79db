// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/loss.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/error.hpp>

namespace coetcd::detail {

/// What is held until it is given back or lost, as far as those who act under it need to know.
class ownership {
public:
    virtual bool held() const = 0;
    /// It was not lost, but is not wanted any more.
    virtual bool is_given_up() const = 0;
    /// Why it was lost.
    virtual error loss() const = 0;
    /// Ends it here and now; etcd is told in the background.
    virtual void abandon() = 0;
    virtual env& world() const = 0;

    /// Tells when it is lost while it is held.
    loss_source losses;

protected:
    ~ownership() = default;
};

} // namespace coetcd::detail
