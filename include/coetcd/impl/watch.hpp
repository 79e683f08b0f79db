// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/notifier.hpp>
#include <coetcd/detail/router.hpp>
#include <coetcd/detail/watch_hub.hpp>
#include <coetcd/watch.hpp>

#include <iterator>
#include <string>
#include <utility>

namespace coetcd {

namespace detail {

class watcher_impl final : public watch_sink {
public:
    watcher_impl(std::shared_ptr<router> r, std::shared_ptr<watch_hub> hub)
        : router_(std::move(r))
        , hub_(std::move(hub))
        , changed_(*router_->world()) {}
    ~watcher_impl() { end(); }
    watcher_impl(const watcher_impl&) = delete;
    watcher_impl& operator=(const watcher_impl&) = delete;

    /// Waits until the watch is in force.
    static asio::awaitable<void> start(std::shared_ptr<watcher_impl> self,
                                       wire::watch_create_request request,
                                       std::int64_t resume_revision,
                                       time_point deadline) {
        self->id_ = self->hub_->add(std::move(request), *self, resume_revision);
        while (!self->created_ && !self->over_) {
            const bool in_time = co_await self->changed_.wait(deadline);
            if (!in_time) {
                throw error(errc::timed_out, "watch: no endpoint confirmed it before the deadline");
            }
        }
        self->check();
    }

    static asio::awaitable<std::vector<event>> next(std::shared_ptr<watcher_impl> self) {
        while (self->events_.empty()) {
            self->check();
            (void)co_await self->changed_.wait();
        }
        co_return std::exchange(self->events_, {});
    }

    /// Ends the watch; whoever waits is told that it was aborted.
    void end() {
        if (!over_) {
            hub_->remove(id_);
            on_ended(asio::error::operation_aborted, "the watcher was destroyed", 0);
        }
    }

    std::int64_t compact_revision() const { return compact_revision_; }

private:
    void check() const {
        if (over_) {
            throw error(over_, text_);
        }
    }

    void on_created() override {
        created_ = true;
        changed_.notify_all();
    }
    void on_events(std::vector<event>& events) override {
        events_.insert(events_.end(),
                       std::make_move_iterator(events.begin()),
                       std::make_move_iterator(events.end()));
        changed_.notify_all();
    }
    void on_ended(error_code ec, std::string text, std::int64_t compact_revision) override {
        over_ = ec;
        text_ = "watch: " + text;
        compact_revision_ = compact_revision;
        changed_.notify_all();
    }

    const std::shared_ptr<router> router_;
    const std::shared_ptr<watch_hub> hub_;
    std::int64_t id_ = 0;
    bool created_ = false;
    std::vector<event> events_; // not taken yet
    error_code over_;           // set once the watch has ended
    std::string text_;
    std::int64_t compact_revision_ = 0;
    notifier changed_;
};

} // namespace detail

inline watcher::watcher(std::shared_ptr<detail::watcher_impl> impl)
    : impl_(std::move(impl)) {}

inline watcher& watcher::operator=(watcher&& other) noexcept {
    watcher old(std::move(*this)); // ends the watch that this one was
    impl_ = std::move(other.impl_);
    return *this;
}

inline watcher::~watcher() {
    if (impl_) {
        impl_->end();
    }
}

inline boost::asio::awaitable<std::vector<event>> watcher::next() {
    return detail::watcher_impl::next(impl_);
}

inline std::int64_t watcher::compact_revision() const noexcept {
    return impl_->compact_revision();
}

} // namespace coetcd
