// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <list>
#include <utility>

namespace coetcd::detail {

/// Who wants to know of a loss. Told once, on the executor; must not wait.
class loss_listener {
public:
    virtual void on_loss() = 0;

protected:
    ~loss_listener() = default;
};

/// Tells of one loss.
class loss_source {
public:
    /// Listens for as long as it lives.
    class subscription {
    public:
        subscription(loss_source& source, loss_listener& listener)
            : source_(source) {
            place_ = source_.listeners_.insert(source_.listeners_.end(), &listener);
        }
        ~subscription() { source_.listeners_.erase(place_); }
        subscription(const subscription&) = delete;
        subscription& operator=(const subscription&) = delete;

    private:
        loss_source& source_;
        std::list<loss_listener*>::iterator place_;
    };

    /// Only the first time.
    void tell() {
        if (std::exchange(told_, true)) {
            return;
        }
        // A listener may end its own subscription when it is told, but no other.
        for (auto next = listeners_.begin(); next != listeners_.end();) {
            (*next++)->on_loss();
        }
    }

private:
    std::list<loss_listener*> listeners_;
    bool told_ = false;
};

} // namespace coetcd::detail
