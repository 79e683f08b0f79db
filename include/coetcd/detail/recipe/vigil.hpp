// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/service/watch_hub.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

/// A watch of one key, for its end.
class key_watch final : public watch_sink {
public:
    key_watch(std::shared_ptr<watch_hub> hub, std::string key, notifier& wake)
        : hub_(std::move(hub))
        , key_(std::move(key))
        , wake_(wake) {
        start();
    }
    ~key_watch() {
        if (!ended_) {
            hub_->remove(id_);
        }
    }
    key_watch(const key_watch&) = delete;
    key_watch& operator=(const key_watch&) = delete;

    bool erased = false; ///< The key was deleted.
    bool fresh = false;  ///< In force, and the key was not looked at since.
    bool in_force() const { return in_force_; }

    /// The key is being looked at. Starts anew, should etcd have ended it.
    void look_taken() {
        fresh = false;
        if (ended_) {
            start();
        }
    }

private:
    void start() {
        ended_ = false;
        in_force_ = false;
        wire::watch_create_request request{key_range(key_)};
        request.no_put = true;
        id_ = hub_->add(std::move(request), *this);
    }
    void on_created() override {
        in_force_ = true;
        fresh = true;
        wake_.notify_all();
    }
    void on_events(std::vector<event>&) override {
        erased = true;
        wake_.notify_all();
    }
    void on_ended(error_code, std::string, std::int64_t) override {
        ended_ = true;
        in_force_ = false;
    }

    const std::shared_ptr<watch_hub> hub_;
    const std::string key_;
    notifier& wake_;
    std::int64_t id_ = 0;
    bool in_force_ = false;
    bool ended_ = false;
};

} // namespace coetcd::detail
