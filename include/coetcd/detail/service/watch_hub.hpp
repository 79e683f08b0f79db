// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/endpoint.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/logic/watch_path.hpp>
#include <coetcd/detail/service/router.hpp>
#include <coetcd/detail/service/watch_link.hpp>
#include <coetcd/detail/service/watch_sink.hpp>
#include <coetcd/detail/service/watch_streams.hpp>
#include <coetcd/detail/wire/watch.hpp>

#include <cstdint>
#include <memory>
#include <new>
#include <utility>

namespace coetcd::detail {

/// Watches that share one stream to one endpoint. When the stream ends, it is opened anew,
/// elsewhere if need be, and every watch is resumed there.
///
/// A watch that brings much, or whose user is slow, has streams of its own from then on, so no
/// other watch waits for it. While its user takes nothing, nothing is read; after a while its
/// stream is given up, and opened again when there is room.
///
/// A watch with a start revision is resumed after the last event that it delivered, without gap or
/// duplicate. A watch without one is resumed from the present: when its sink is told `on_created`
/// again, the sink has to find out for itself what it missed.
///
/// Behind a proxy that passes on only complete requests, etcd receives nothing of such a stream, so
/// each watch has a stream of its own.
class watch_hub final : public watch_streams {
public:
    /// @param most How many bytes a revision may have.
    watch_hub(route r, std::size_t most)
        : watch_streams(std::move(r), most)
        , wanted_(env_) {}

    /// Starts a watch. `sink` must live until `remove`, or until it is told of the end.
    /// @param told The last revision that etcd is known to have had; 0 if none is. Not the revision
    ///   before the start revision, which may be in the future.
    /// @param of The cluster that `told` and the start revision belong to; 0 for the client's.
    /// @returns The watch's id.
    std::int64_t add(wire::watch_create_request request,
                     watch_sink& sink,
                     std::int64_t told = 0,
                     std::uint64_t of = 0) {
        const std::int64_t id = ++last_id_; // never used twice: etcd may flush old events into it
        request.watch_id = id;
        // Asked for even where nothing happens, so that the watch does not fall behind what is
        // compacted.
        request.progress_notify = request.start_revision != 0;
        const std::uint64_t cluster = of != 0 ? of : router_->cluster();
        watch& added =
            watches_.try_emplace(id, std::move(request), sink, told, cluster).first->second;
        try {
            if (path_.alone()) {
                start_alone(added);
            } else if (link_ && link_->is_for(kind::everybody)) {
                added.place(link_);
            }
            start();
        } catch (...) {
            remove(id); // nobody can be told of it
            throw;
        }
        wanted_.notify_all();
        return id;
    }

    /// Ends a watch without telling its sink. An unknown id has no effect.
    void remove(std::int64_t id) noexcept {
        if (const auto found = watches_.find(id); found != watches_.end()) {
            const std::shared_ptr<watch_link> on = std::move(found->second.on);
            const std::shared_ptr<notifier> room = std::move(found->second.room);
            take_out(found);
            if (on) {
                on->cancel(id);
            }
            if (room) {
                room->notify_all();
            }
        }
        end_if_idle();
    }

    /// Call it when the sink of this watch is no longer full.
    void go_on(std::int64_t id) {
        if (const auto found = watches_.find(id); found != watches_.end() && found->second.room) {
            found->second.room->notify_all();
        }
    }

    /// Keeps the stream open while there are no watches, so that the next one starts at once.
    void hold() { ++holds_; }
    void release() {
        --holds_;
        end_if_idle();
    }

private:
    std::shared_ptr<watch_hub> shared() {
        return std::static_pointer_cast<watch_hub>(shared_from_this());
    }

    void on_removed() override { end_if_idle(); }
    void on_parted(watch& w) override {
        start_alone(w);
        end_if_idle();
    }

    bool idle() const { return watches_.empty() && holds_ == 0; }
    void end_if_idle() {
        if (holds_ == 0 && link_ && !any_together()) {
            link_->close();
        }
        if (idle()) {
            wanted_.notify_all();
        }
    }

    /// Lasts from the start on, whether the coroutine ever begins or not.
    struct running {
        explicit running(std::shared_ptr<watch_hub> h)
            : hub(std::move(h)) {
            hub->running_ = true;
        }
        ~running() {
            hub->running_ = false;
            hub->path_ = {};
            if (!hub->idle()) {
                hub->start_again();
            }
        }
        running(const running&) = delete;
        running& operator=(const running&) = delete;
        const std::shared_ptr<watch_hub> hub;
    };
    /// Not before the running handler has ended: see `start_alone`.
    void start() {
        if (!running_) {
            auto until_the_end = std::make_shared<running>(shared());
            defer(env_, [all = std::move(until_the_end)] { spawn(all->hub->env_, run(all)); });
        }
    }

    /// Starts again after it has ended for lack of memory, except in a context that ends. If there
    /// is no memory even for that, the watches end.
    void start_again() noexcept {
        try {
            defer(env_, [weak = std::weak_ptr(shared())] {
                const auto self = weak.lock();
                if (self && !self->idle()) {
                    self->start_or_end();
                }
            });
        } catch (const std::bad_alloc&) {
            end_for_want_of_memory();
        }
    }
    void start_or_end() noexcept {
        try {
            start();
        } catch (const std::bad_alloc&) {
            end_for_want_of_memory();
        }
    }
    void end_for_want_of_memory() noexcept {
        while (!watches_.empty()) {
            end_for_want_of_memory(watches_.begin());
        }
    }
    void end_for_want_of_memory(watch_map::iterator one) noexcept {
        const auto over = take_out(one);
        if (over.mapped().on) {
            over.mapped().on->cancel(over.key());
        }
        end_if_idle();
        over.mapped().sink->on_ended(no_memory(), {}, 0);
    }

    /// Runs as long as there are watches, or somebody holds the hub.
    static asio::awaitable<void> run(std::shared_ptr<running> until_the_end) {
        const std::shared_ptr<watch_hub> self = until_the_end->hub;
        unsigned breaks = 0; // of streams that did not last
        while (!self->idle()) {
            for (auto& [id, w] : self->watches_) {
                if (w.apart || self->path_.alone()) {
                    self->start_alone(w);
                }
            }
            if (!self->any_together()) {
                (void)co_await self->wanted_.wait();
            } else if (self->path_.alone()) {
                co_await self->stay_alone();
            } else {
                co_await self->go_together(breaks);
            }
        }
    }

    /// Serves all watches on one stream until it ends.
    asio::awaitable<void> go_together(unsigned& breaks) {
        const auto all = make_link(router_->pick(), sending::duplex, {kind::everybody});
        const bool broke = co_await serve_all(all);
        if (!broke) {
            breaks = 0;
            co_return;
        }
        bool in_the_way = false;
        if (all->state.mute()) {
            in_the_way = co_await is_in_the_way(all->where);
        }
        if (in_the_way) {
            path_.broken(env_.now());
            co_return;
        }
        end_if_refused(*all);
        co_await pause(*all, breaks);
    }

    /// Whether etcd receives requests at an endpoint only once they are complete.
    asio::awaitable<bool> is_in_the_way(logic::endpoint where) {
        const auto complete = make_link(where, sending::once, {kind::question});
        (void)co_await serve_all(complete);
        if (!complete->state.answered()) {
            co_return false;
        }
        // The endpoint may merely have stood still, and be back now.
        const auto open = make_link(where, sending::duplex, {kind::question});
        const bool broke = co_await serve_all(open);
        co_return open->state.mute() && broke;
    }

    /// Waits while each watch has its own stream, and checks whether that is still necessary.
    asio::awaitable<void> stay_alone() {
        const bool changed = co_await wanted_.wait(path_.retry_at());
        if (changed) {
            co_return;
        }
        const auto open = make_link(router_->pick(), sending::duplex, {kind::question});
        (void)co_await serve_all(open);
        if (!open->state.answered()) {
            path_.broken(env_.now());
            co_return;
        }
        path_.mended();
        for (auto& [id, w] : watches_) {
            if (w.on) {
                w.on->close();
            }
        }
    }

    /// Starts it, but not before the running handler has ended: a watch may end as soon as it is
    /// tried, such as when the user's password is refused, and the caller may be going through all
    /// of them.
    void start_alone(watch& w) {
        if (!w.room) {
            w.room = std::make_shared<notifier>(env_);
        }
        if (!w.runs_alone) {
            auto one = std::make_shared<lone>(shared(), w.request.watch_id);
            defer(env_, [one = std::move(one)] { spawn(one->hub->env_, run_alone(one)); });
            w.runs_alone = true;
        }
    }
    /// Lasts from the start on, whether the coroutine ever begins or not.
    struct lone {
        lone(std::shared_ptr<watch_hub> h, std::int64_t watch)
            : hub(std::move(h))
            , id(watch) {}
        ~lone() { hub->end_of_lone(id); }
        lone(const lone&) = delete;
        lone& operator=(const lone&) = delete;
        const std::shared_ptr<watch_hub> hub;
        const std::int64_t id;
    };

    /// Starts it again after it has ended for lack of memory; if there is none even for that, the
    /// watch ends.
    void end_of_lone(std::int64_t id) noexcept {
        const auto found = watches_.find(id);
        if (found == watches_.end()) {
            return;
        }
        found->second.runs_alone = false;
        try {
            if (find_lone(id)) {
                defer(env_, [weak = std::weak_ptr(shared()), id] {
                    if (const auto self = weak.lock()) {
                        self->start_alone_or_end(id);
                    }
                });
            }
        } catch (const std::bad_alloc&) {
            end_for_want_of_memory(found);
        }
    }
    void start_alone_or_end(std::int64_t id) noexcept {
        try {
            if (watch* const w = find_lone(id)) {
                start_alone(*w);
            }
        } catch (const std::bad_alloc&) {
            if (const auto found = watches_.find(id); found != watches_.end()) {
                end_for_want_of_memory(found);
            }
        }
    }

    /// Serves one watch on streams of its own, for as long as that is necessary.
    static asio::awaitable<void> run_alone(std::shared_ptr<lone> one) {
        const std::shared_ptr<watch_hub> self = one->hub;
        const std::int64_t id = one->id;
        unsigned breaks = 0;
        sending usual = sending::duplex;
        for (watch* w = self->find_lone(id); w; w = self->find_lone(id)) {
            if (w->sink->is_full()) {
                const std::shared_ptr<notifier> room = w->room;
                (void)co_await room->wait();
                continue;
            }
            const sending how = self->path_.alone() ? sending::once : usual;
            const auto own = self->make_link(self->router_->pick(), how, {kind::one_watch, id});
            const bool broke = co_await self->serve(own);
            if (broke) {
                if (own->state.mute()) { // something may be in the way of one of them
                    usual = how == sending::duplex ? sending::once : sending::duplex;
                }
                self->end_if_refused(*own);
                co_await self->pause(*own, breaks);
            }
        }
    }
    /// The watch, if it is to have a stream of its own; otherwise null.
    watch* find_lone(std::int64_t id) {
        const auto found = watches_.find(id);
        const bool is_lone = found != watches_.end() && (found->second.apart || path_.alone());
        return is_lone ? &found->second : nullptr;
    }

    /// As `serve`; ends when the hub is idle, and takes watches that are added meanwhile.
    asio::awaitable<bool> serve_all(std::shared_ptr<watch_link> on) {
        struct attached {
            watch_hub& hub;
            ~attached() { hub.link_ = nullptr; }
        };
        link_ = on;
        const attached until_the_end{*this};
        co_return co_await serve(on);
    }

    /// Waits for a moment after a stream broke; longer if it broke soon, but only while somebody
    /// wants one.
    asio::awaitable<void> pause(const watch_link& broken, unsigned& breaks) {
        const time_point now = env_.now();
        breaks = broken.state.has_lasted(now) ? 0 : breaks + 1;
        const time_point then = after(now, logic::backoff(breaks, env_.random()));
        while (!idle() && env_.now() < then) {
            (void)co_await wanted_.wait(then);
        }
    }

    std::int64_t last_id_ = 0;
    int holds_ = 0;
    bool running_ = false;
    logic::watch_path<time_point> path_;
    std::shared_ptr<watch_link> link_; // the one for all, or a question that decides about it
    notifier wanted_;
};

} // namespace coetcd::detail
