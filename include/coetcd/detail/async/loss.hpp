// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <list>
#include <new>
#include <utility>

namespace coetcd::detail {

/// A listener for a loss. It is told once, on the executor, and must not wait.
class loss_listener {
public:
    /// @throws std::bad_alloc if it has to be told again.
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
            if (source_.now_ == place_) {
                source_.now_ = source_.listeners_.end();
            }
            source_.listeners_.erase(place_);
        }
        subscription(const subscription&) = delete;
        subscription& operator=(const subscription&) = delete;

    private:
        loss_source& source_;
        std::list<loss_listener*>::iterator place_;
    };

    /// Tells each listener once. If a lack of memory cuts this short, the next call goes on from
    /// there.
    void tell() {
        if (now_ != listeners_.end()) {
            return; // somebody is being told
        }
        if (!std::exchange(told_, true)) {
            next_ = listeners_.begin();
        }
        // A listener may end any subscription: its own, or that of the next one.
        while (next_ != listeners_.end()) {
            now_ = next_++;
            try {
                (*now_)->on_loss();
            } catch (const std::bad_alloc&) {
                if (now_ != listeners_.end()) { // it still listens
                    next_ = std::exchange(now_, listeners_.end());
                }
                throw;
            }
            now_ = listeners_.end();
        }
    }

private:
    std::list<loss_listener*> listeners_;
    std::list<loss_listener*>::iterator next_ = listeners_.end(); // to be told
    std::list<loss_listener*>::iterator now_ = listeners_.end();  // being told
    bool told_ = false;
};

} // namespace coetcd::detail
