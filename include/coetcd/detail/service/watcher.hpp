// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/logic/watch_history.hpp>
#include <coetcd/detail/service/router.hpp>
#include <coetcd/detail/service/watch_hub.hpp>
#include <coetcd/watch_options.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

class watcher_impl final : public watch_sink {
public:
    /// @param told The last revision that etcd is known to have had; 0 if none is.
    /// @param of The cluster that had it; 0 for the client's.
    watcher_impl(const std::shared_ptr<router>& r,
                 std::shared_ptr<watch_hub> hub,
                 wire::watch_create_request request,
                 std::int64_t told,
                 std::uint64_t of,
                 const watch_options& options)
        : world_(r->world())
        , hub_(std::move(hub))
        , request_(std::move(request))
        , told_(told)
        , cluster_(of != 0 ? of : r->cluster())
        , buffer_(options.buffer)
        , tells_progress_(options.progress_notify)
        , changed_(*world_) {
        unread_.revision = request_.start_revision - 1;
    }
    ~watcher_impl() { end(); }
    watcher_impl(const watcher_impl&) = delete;
    watcher_impl& operator=(const watcher_impl&) = delete;

    env& world() const { return *world_; }

    /// Waits until the watch is in force. `next` tells what ends it after that.
    static asio::awaitable<void> start(std::shared_ptr<watcher_impl> self, time_point deadline) {
        self->id_ = self->hub_->add(self->request_, *self, self->told_, self->cluster_);
        while (!self->created_ && !self->over_) {
            const bool in_time = co_await self->changed_.wait(deadline);
            if (!in_time) {
                throw error(errc::timed_out, "watch: no endpoint confirmed it before the deadline");
            }
        }
        if (!self->created_) {
            self->check();
        }
    }

    static asio::awaitable<watch_batch> next(std::shared_ptr<watcher_impl> self) {
        while (!self->news_) {
            self->check();
            (void)co_await self->changed_.wait();
        }
        co_return self->take();
    }
    /// Call it when what `next` returned did not reach its caller: the next call returns it.
    void put_back(watch_batch batch) {
        for (const event& e : batch.events) {
            held_ += logic::footprint(e);
        }
        const auto first = unread_.events.begin();
        unread_.events.insert(first,
                              std::make_move_iterator(batch.events.begin()),
                              std::make_move_iterator(batch.events.end()));
        news_ = true;
        changed_.notify_all();
    }

    /// Ends the watch; a waiter is told that it was aborted.
    void end() {
        if (!over_) {
            hub_->remove(id_);
            on_ended(asio::error::operation_aborted, "the watcher was destroyed", 0);
        }
    }

private:
    void check() const {
        if (over_ == errc::watch_compacted) {
            throw compacted_error(revision_,
                                  "watch: history begins at revision " + std::to_string(revision_));
        }
        if (over_ == errc::too_large) {
            throw oversized_error(revision_, "watch: " + text_);
        }
        if (over_) {
            throw error(over_, "watch: " + text_);
        }
    }

    watch_batch take() {
        const bool was_full = is_full();
        watch_batch taken = std::exchange(unread_, {});
        unread_.revision = taken.revision;
        held_ = 0;
        news_ = false;
        if (was_full) {
            hub_->go_on(id_);
        }
        return taken;
    }

    void on_created(std::int64_t) override {
        created_ = true;
        changed_.notify_all();
    }
    void on_events(std::vector<event>& events) override {
        unread_.revision = events.back().kv.mod_revision;
        for (event& e : events) {
            held_ += logic::footprint(e);
            unread_.events.push_back(std::move(e));
        }
        news_ = true;
        changed_.notify_all();
    }
    bool is_full() const override { return held_ > buffer_; }
    void on_progress(std::int64_t revision) override {
        unread_.revision = revision;
        if (tells_progress_) {
            news_ = true;
            changed_.notify_all();
        }
    }
    void on_ended(error_code ec, std::string text, std::int64_t revision) override {
        over_ = ec;
        text_ = std::move(text);
        revision_ = revision;
        changed_.notify_all();
    }

    const std::shared_ptr<env> world_;
    const std::shared_ptr<watch_hub> hub_;
    const wire::watch_create_request request_;
    const std::int64_t told_; // of what, when it begins
    const std::uint64_t cluster_;
    const std::size_t buffer_;
    const bool tells_progress_;
    std::int64_t id_ = 0;
    bool created_ = false;
    watch_batch unread_;
    std::size_t held_ = 0; // bytes in `unread_`
    bool news_ = false;    // `unread_` is worth telling
    error_code over_;      // set once the watch has ended
    std::string text_;
    std::int64_t revision_ = 0; // what it was about
    notifier changed_;
};

} // namespace coetcd::detail
