// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/logic/login.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/logic/watch_history.hpp>
#include <coetcd/detail/logic/watch_path.hpp>
#include <coetcd/detail/service/router.hpp>
#include <coetcd/detail/service/watch_link.hpp>
#include <coetcd/detail/wire/decode.hpp>
#include <coetcd/detail/wire/encode.hpp>
#include <coetcd/detail/wire/status.hpp>
#include <coetcd/detail/wire/watch.hpp>
#include <coetcd/error.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace coetcd::detail {

/// Who is told of a watch. Called on the client's executor; may call the hub to begin and end
/// watches.
class watch_sink {
public:
    /// The watch is in force. Told again each time that a broken stream was replaced.
    virtual void on_created() = 0;
    /// Events of whole revisions, in order. `events` may be taken.
    virtual void on_events(std::vector<event>& events) = 0;
    /// All changes up to `revision` were told.
    virtual void on_progress(std::int64_t /*revision*/) {}
    /// The watch is over; it is removed already.
    virtual void on_ended(error_code ec, std::string text, std::int64_t compact_revision) = 0;

protected:
    ~watch_sink() = default;
};

/// All watches of one client, on one stream to one endpoint. When the stream ends it is opened
/// anew, elsewhere if need be, and every watch is resumed there.
///
/// A watch with a start revision is resumed after the last event that it delivered, without gap or
/// duplicate. One without is resumed from now on: when its sink is told `on_created` again, it has
/// to look for itself what it missed.
///
/// Where a proxy passes requests on only when they are complete, so that etcd hears nothing of such
/// a stream, each watch has a stream of its own.
class watch_hub : public std::enable_shared_from_this<watch_hub> {
public:
    explicit watch_hub(std::shared_ptr<router> r)
        : router_(std::move(r))
        , env_(*router_->world())
        , wanted_(env_) {}

    /// Starts a watch. `sink` must live until `remove`, or until it is told of the end.
    /// @returns The watch's id.
    std::int64_t add(wire::watch_create_request request, watch_sink& sink) {
        const std::int64_t id = ++last_id_; // never used twice: etcd may flush old events into it
        request.watch_id = id;
        // Even where nothing happens, so that it does not fall behind what is compacted.
        request.progress_notify = request.start_revision != 0;
        watch& added = watches_.try_emplace(id, std::move(request), sink).first->second;
        if (path_.alone()) {
            start_alone(added);
        } else if (link_ && link_->only == watch_link::everybody) {
            place(added, link_);
        }
        if (!running_) {
            running_ = true;
            spawn(env_, run(shared_from_this()));
        }
        wanted_.notify_all();
        return id;
    }

    /// Ends a watch without a word to its sink. An unknown id is none.
    void remove(std::int64_t id) {
        if (const auto found = watches_.find(id); found != watches_.end()) {
            const std::shared_ptr<watch_link> on = std::move(found->second.on);
            watches_.erase(found);
            if (on) {
                on->cancel(id);
            }
        }
        end_if_idle();
    }

    /// Keeps the stream open while there are no watches, so that the next one starts at once.
    void hold() { ++holds_; }
    void release() {
        --holds_;
        end_if_idle();
    }

private:
    struct watch {
        watch(wire::watch_create_request r, watch_sink& s)
            : request(std::move(r))
            , sink(&s)
            , history(request.start_revision) {}
        wire::watch_create_request request;
        watch_sink* sink;
        logic::watch_history history;
        std::shared_ptr<watch_link> on; // the last stream that it was created on
        bool runs_alone = false;
    };
    using watch_map = std::map<std::int64_t, watch>;

    // How long etcd may take to answer a create, or to accept a request.
    static constexpr std::chrono::seconds patience{2};
    // The same for a question that decides how to go on.
    static constexpr std::chrono::seconds short_patience{1};
    // After how long a silence it is asked whether it is still there: a member that stands still
    // keeps its connections. On a stream that carries one watch, by a request of its own.
    static constexpr std::chrono::seconds silence{10};
    static constexpr std::chrono::seconds silence_alone{60};
    // How long a stream on which nobody can ask may be silent although etcd is there. By default it
    // tells of progress every 10 minutes, up to a tenth later.
    static constexpr std::chrono::minutes silence_of_one{12};

    bool idle() const { return watches_.empty() && holds_ == 0; }

    void end_if_idle() {
        if (idle()) {
            wanted_.notify_all();
            if (link_) {
                link_->close();
            }
        }
    }

    void place(watch& w, const std::shared_ptr<watch_link>& on) {
        w.on = on;
        w.history.restart();
        w.request.start_revision = w.history.next();
        on->create(w.request);
    }

    /// Lives as long as there are watches, or somebody holds the hub.
    static asio::awaitable<void> run(std::shared_ptr<watch_hub> self) {
        struct running {
            watch_hub& hub;
            ~running() {
                hub.running_ = false;
                hub.path_ = {};
            }
        };
        const running until_the_end{*self};
        unsigned breaks = 0; // of streams that did not last
        while (!self->idle()) {
            if (self->watches_.empty()) {
                (void)co_await self->wanted_.wait();
            } else if (self->path_.alone()) {
                co_await self->stay_alone();
            } else {
                co_await self->go_together(breaks);
            }
        }
    }

    /// Has all watches on one stream until it ends.
    asio::awaitable<void> go_together(unsigned& breaks) {
        const auto all = make_link(router_->pick(), sending::duplex, watch_link::everybody);
        const bool broke = co_await serve_all(all);
        if (!broke) {
            breaks = 0;
            co_return;
        }
        bool in_the_way = false;
        if (all->mute()) {
            in_the_way = co_await is_in_the_way(all->where);
        }
        if (in_the_way) {
            path_.broken(env_.now());
            for (auto& [id, w] : watches_) {
                start_alone(w);
            }
            co_return;
        }
        end_if_refused(*all);
        co_await pause(*all, breaks);
    }

    /// Whether etcd hears requests at an endpoint only if they are complete.
    asio::awaitable<bool> is_in_the_way(logic::endpoint where) {
        const auto complete = make_link(where, sending::once, watch_link::nobody);
        (void)co_await serve_all(complete);
        if (!complete->answered) {
            co_return false;
        }
        // It may merely have stood still, and be back now.
        const auto open = make_link(where, sending::duplex, watch_link::nobody);
        const bool broke = co_await serve_all(open);
        co_return open->mute() && broke;
    }

    /// Waits while each watch has its own stream, and tries whether that is still necessary.
    asio::awaitable<void> stay_alone() {
        const bool changed = co_await wanted_.wait(path_.retry_at());
        if (changed) {
            co_return;
        }
        const auto open = make_link(router_->pick(), sending::duplex, watch_link::nobody);
        (void)co_await serve_all(open);
        if (!open->answered) {
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

    void start_alone(watch& w) {
        if (!std::exchange(w.runs_alone, true)) {
            spawn(env_, run_alone(shared_from_this(), w.request.watch_id));
        }
    }

    /// Has one watch on streams of its own, for as long as that is necessary.
    static asio::awaitable<void> run_alone(std::shared_ptr<watch_hub> self, std::int64_t id) {
        unsigned breaks = 0;
        while (self->path_.alone() && self->watches_.contains(id)) {
            const auto own = self->make_link(self->router_->pick(), sending::once, id);
            const bool broke = co_await self->serve(own);
            if (broke) {
                self->end_if_refused(*own);
                co_await self->pause(*own, breaks);
            }
        }
        if (const auto found = self->watches_.find(id); found != self->watches_.end()) {
            found->second.runs_alone = false;
        }
    }

    std::shared_ptr<watch_link> make_link(logic::endpoint where, sending how, std::int64_t whose) {
        return std::make_shared<watch_link>(env_, std::move(where), how, whose);
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

    /// Opens a stream with the watches that it carries, and reads until it ends.
    /// @returns Whether it broke: false if it was closed by us.
    asio::awaitable<bool> serve(std::shared_ptr<watch_link> on) {
        if (on->only == watch_link::everybody) {
            for (auto& [id, w] : watches_) {
                place(w, on);
            }
        } else if (const auto one = watches_.find(on->only); one != watches_.end()) {
            place(one->second, on);
        } else {
            on->ask();
        }
        authorization who = co_await router_->authorize(after(env_.now(), patience));
        if (who.ec || on->closed) {
            if (who.ec && !logic::is_passing(who.ec)) {
                end_all(*on, who.ec, who.text);
            }
            co_return !on->closed;
        }
        on->token_number = who.number;
        call_request request(on->where,
                             rpc::watch,
                             std::exchange(on->unsent, {}),
                             after(env_.now(), patience_with(*on)));
        request.how = on->how;
        request.token = std::move(who.token);
        open_result opened = co_await env_.open(std::move(request));
        if (opened.ec) {
            router_->failed(on->where);
            co_return !on->closed;
        }
        on->channel = std::move(opened.opened);
        report(*on, true);
        on->heard = on->told = env_.now();
        spawn(env_, attend(shared_from_this(), on));

        while (!on->closed) {
            reply r = co_await on->channel->read();
            on->heard = on->told = env_.now();
            if (!dispatch(*on, r)) {
                break;
            }
            router_->succeeded(on->where);
            if (on->only == watch_link::nobody) {
                on->close(); // it has its answer
            }
        }
        const bool broke = !on->closed;
        report(*on, false);
        if (broke && !on->token_refused) {
            router_->failed(on->where);
        }
        on->close();
        co_return broke;
    }

    void report(const watch_link& of, bool opened) const {
        if (router_->observer() && of.only != watch_link::nobody) {
            const std::size_t carried = of.only == watch_link::everybody ? watches_.size() : 1;
            router_->observer()->on_watch_stream({of.where.text(), opened, carried});
        }
    }

    static std::chrono::seconds patience_with(const watch_link& on) {
        return on.only == watch_link::nobody ? short_patience : patience;
    }

    /// Sends what there is to send; ends a stream on which etcd does not answer.
    static asio::awaitable<void> attend(std::shared_ptr<watch_hub> self,
                                        std::shared_ptr<watch_link> on) {
        env& world = self->env_;
        while (!on->closed) {
            if (!on->unsent.empty()) {
                std::string batch = std::exchange(on->unsent, {});
                const time_point until = after(world.now(), patience);
                const error_code ec = co_await on->channel->write(std::move(batch), until);
                if (ec) {
                    break;
                }
                continue;
            }
            const bool asked = !on->unanswered.empty();
            const bool duplex = on->how == sending::duplex;
            const time_point until = after(on->heard,
                                           asked    ? patience_with(*on)
                                           : duplex ? silence
                                                    : silence_alone);
            if (world.now() < until) {
                (void)co_await on->outgoing.wait(until);
            } else if (asked) {
                break;
            } else if (duplex) {
                on->ask();
            } else {
                const bool there = co_await self->ask_beside(on);
                if (!there) {
                    break;
                }
            }
        }
        on->channel->close(); // the reader does the rest
    }

    /// Asks whether etcd is still there, for a stream on which nobody can ask.
    asio::awaitable<bool> ask_beside(std::shared_ptr<watch_link> silent) {
        if (env_.now() - silent->told >= silence_of_one) {
            co_return false; // it is there, but does not tell us
        }
        const auto question = make_link(silent->where, sending::once, watch_link::nobody);
        silent->beside = question;
        (void)co_await serve(question);
        silent->beside = nullptr;
        silent->heard = env_.now();
        co_return question->answered;
    }

    /// Waits for a moment after a stream broke, longer if it broke soon.
    asio::awaitable<void> pause(const watch_link& broken, unsigned& breaks) {
        const time_point now = env_.now();
        breaks = now - broken.began < std::chrono::seconds(1) ? breaks + 1 : 0;
        notifier moment(env_);
        (void)co_await moment.wait(after(now, logic::backoff(breaks, env_.random())));
    }

    /// Handles one message of a stream.
    /// @returns Whether the stream may go on.
    bool dispatch(watch_link& from, reply& r) {
        if (r.ec == errc::too_large) {
            from.answered = true;
            end_oversized(from, r.body);
        }
        if (r.ec) {
            return false;
        }
        wire::stream_message<wire::watch_response> message;
        try {
            if (r.status == 200) {
                message = wire::decode_stream<wire::watch_response>(r.body);
            } else {
                message = wire::decode_status(r.status, r.body);
            }
        } catch (const error&) {
            return false;
        }
        // A proxy's refusal is no answer of etcd.
        from.answered = from.answered || r.status == 200 || wire::is_status(r.body);
        if (auto* failure = std::get_if<wire::status>(&message)) {
            if (!refuses_token(from, *failure)) {
                from.failure = std::move(*failure);
            }
            return false;
        }
        return dispatch(from, std::get<wire::watch_response>(message));
    }

    /// Whether it was the user's token that etcd did not like: a stream with another one may do.
    bool refuses_token(watch_link& on, const wire::status& s) {
        const bool refused = router_->logs_in() && logic::wants_token(s);
        if (refused) {
            on.token_refused = true;
            router_->rejected(on.token_number);
        }
        return refused;
    }

    // A sink may add and remove watches when it is told something, so that telling it comes last.
    bool dispatch(watch_link& from, wire::watch_response& m) {
        const auto refusal = wire::decode_cancel_reason(m.cancel_reason);
        if (m.canceled && refusal && refuses_token(from, *refusal)) {
            return false; // all watches go on with another token
        }
        if (m.created && m.canceled && !from.unanswered.empty()) {
            m.watch_id = from.unanswered.front(); // a refusal names no watch
        }
        if (m.created) {
            from.created(m.watch_id);
            router_->accepted(from.token_number);
        }
        const auto found = find(m.watch_id, from);
        if (found == watches_.end()) {
            return true; // removed, or moved, meanwhile
        }
        watch& w = found->second;
        if (m.canceled) {
            const error_code ec = m.compact_revision != 0 ? make_error_code(errc::watch_compacted)
                                  : refusal               ? logic::code_of(*refusal)
                                                          : errc::watch_canceled;
            end(found, ec, std::move(m.cancel_reason), m.compact_revision);
        } else if (m.created) {
            if (w.history.told() > m.header.revision && !looks_back_) {
                looks_back_ = true;
                spawn(env_,
                      look_back(shared_from_this(), wire::least_of(w.request), w.history.told()));
            }
            w.sink->on_created();
        } else if (!m.events.empty()) {
            std::vector<event> complete = w.history.take(m.events, m.fragment);
            if (!complete.empty()) {
                w.sink->on_events(complete);
            }
        } else if (w.request.progress_notify) {
            w.history.reached(m.header.revision);
            w.sink->on_progress(w.history.next() - 1);
        }
        return true;
    }

    /// A member has not got as far as some watch has told of. It may be behind the others, and
    /// catch up; or the store is another one, restored from a snapshot, and a watch that goes on
    /// would be silent until that one is as far again. Asks twice: a member that stood still may
    /// answer a read with what it had then. A read that is refused tells nothing; the next stream
    /// gives another occasion.
    static asio::awaitable<void>
    look_back(std::shared_ptr<watch_hub> self, range_request read, std::int64_t told) {
        struct looking {
            watch_hub& hub;
            ~looking() { hub.looks_back_ = false; }
        };
        const looking until_the_end{*self};
        env& world = self->env_;
        std::int64_t revision = 0;
        for (int agreed = 0; agreed != 2 && !self->watches_.empty();) {
            const when how{after(world.now(), short_patience)};
            const outcome<range_response> seen = co_await call(self->router_, read, how);
            revision = seen.response.header.revision;
            if (seen.ec ? !logic::is_passing(seen.ec) : revision >= told) {
                co_return;
            }
            agreed += seen.ec ? 0 : 1;
            notifier pause(world);
            (void)co_await pause.wait(after(world.now(), short_patience));
        }
        // Telling a sink may remove others.
        for (;;) {
            const auto ahead =
                std::find_if(self->watches_.begin(), self->watches_.end(), [&](const auto& w) {
                    return w.second.on && w.second.history.told() > revision;
                });
            if (ahead == self->watches_.end()) {
                break;
            }
            self->end(ahead,
                      errc::revision_regressed,
                      "etcd is at revision " + std::to_string(revision) + ", and revision " +
                          std::to_string(ahead->second.history.told()) + " was told of");
        }
    }

    /// The watch of this name, if it is on that stream.
    watch_map::iterator find(std::int64_t id, const watch_link& on) {
        const auto found = watches_.find(id);
        return found != watches_.end() && found->second.on.get() == &on ? found : watches_.end();
    }

    void end(watch_map::iterator one,
             error_code ec,
             std::string text,
             std::int64_t compact_revision = 0) {
        watch_sink& sink = *one->second.sink;
        const std::shared_ptr<watch_link> on = std::move(one->second.on);
        watches_.erase(one);
        if (on->only != watch_link::everybody) {
            on->close();
        }
        end_if_idle();
        sink.on_ended(ec, std::move(text), compact_revision);
    }

    /// Ends the watch for which a message was too large: it would come again. If nobody knows which
    /// one that is, then all of them.
    void end_oversized(const watch_link& from, std::string_view beginning) {
        const error_code ec = errc::too_large;
        const std::string text = "a message was over the limit of max_answer";
        const auto id = wire::find_watch_id(beginning);
        if (!id) {
            end_all(from, ec, text);
        } else if (const auto found = find(*id, from); found != watches_.end()) {
            end(found, ec, text);
        }
    }

    /// Ends the watches of a stream that etcd will not have.
    void end_if_refused(const watch_link& from) {
        if (from.failure && !logic::judge(*from.failure).transient) {
            end_all(from, logic::code_of(*from.failure), from.failure->message);
        }
    }

    void end_all(const watch_link& on, error_code ec, const std::string& text) {
        watch_map over;
        if (on.only == watch_link::everybody) {
            over.swap(watches_);
        } else {
            over.insert(watches_.extract(on.only));
        }
        end_if_idle();
        for (auto& [id, w] : over) {
            w.sink->on_ended(ec, text, 0);
        }
    }

    const std::shared_ptr<router> router_;
    env& env_;
    watch_map watches_;
    std::int64_t last_id_ = 0;
    int holds_ = 0;
    bool running_ = false;
    bool looks_back_ = false;
    logic::watch_path<time_point> path_;
    std::shared_ptr<watch_link> link_; // the one for all, or a question that decides about it
    notifier wanted_;
};

} // namespace coetcd::detail
