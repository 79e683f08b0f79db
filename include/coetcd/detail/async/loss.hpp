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
        ~subscription() {
            if (source_.next_ == place_) {
                ++source_.next_;
            }
            source_.listeners_.erase(place_);
        }
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
        // Whoever is told may end any subscription: its own, or that of who comes next.
        next_ = listeners_.begin();
        while (next_ != listeners_.end()) {
            (*next_++)->on_loss();
        }
    }

private:
    std::list<loss_listener*> listeners_;
    std::list<loss_listener*>::iterator next_ = listeners_.end(); // to be told
    bool told_ = false;
};

} // namespace coetcd::detail
