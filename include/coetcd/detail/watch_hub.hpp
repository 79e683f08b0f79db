// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/notifier.hpp>
#include <coetcd/detail/router.hpp>
#include <coetcd/detail/spawn.hpp>
#include <coetcd/detail/wire/decode.hpp>
#include <coetcd/detail/wire/encode.hpp>
#include <coetcd/detail/wire/watch.hpp>
#include <coetcd/error.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace coetcd::detail {

/// Who is told of a watch. Called on the client's executor; must not call back into the hub other
/// than to add or remove watches.
class watch_sink {
public:
    /// The watch is in force. Told again each time that a broken stream was replaced.
    virtual void on_created() = 0;
    /// Events of whole revisions, in order. `events` may be taken.
    virtual void on_events(std::vector<event>& events) = 0;
    /// The watch is over; it is removed already.
    virtual void on_ended(error_code ec, std::string text, std::int64_t compact_revision) = 0;

protected:
    ~watch_sink() = default;
};

/// All watches of one client, on one stream to one endpoint. When the stream ends it is opened
/// anew, elsewhere if need be, and every watch is resumed there.
///
/// A watch with a revision to resume from is resumed after the last event that it delivered,
/// without gap or duplicate. One without is resumed from now on: when its sink is told
/// `on_created` again, it has to look for itself what it missed.
class watch_hub : public std::enable_shared_from_this<watch_hub> {
public:
    explicit watch_hub(std::shared_ptr<router> r)
        : router_(std::move(r))
        , env_(*router_->world())
        , wanted_(env_) {}

    /// Starts a watch. `sink` must live until `remove`, or until it is told of the end.
    /// @param resume_revision Where to resume before there was any event. 0: from now on, always.
    /// @returns The watch's id.
    std::int64_t
    add(wire::watch_create_request request, watch_sink& sink, std::int64_t resume_revision = 0) {
        const std::int64_t id = ++last_id_; // never used twice: etcd may flush old events into it
        request.watch_id = id;
        const auto added = watches_.try_emplace(id, std::move(request), sink, resume_revision);
        if (link_) {
            place(added.first->second, *link_);
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
        if (watches_.erase(id) != 0 && link_) {
            link_->send(wire::encode_watch_cancel(id));
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
        watch(wire::watch_create_request r, watch_sink& s, std::int64_t resume)
            : request(std::move(r))
            , sink(&s)
            , resume_revision(resume) {}
        wire::watch_create_request request;
        watch_sink* sink;
        std::int64_t resume_revision;
        bool placed = false;          // on some stream, once or more
        std::vector<event> fragments; // of a message that is not complete yet
    };

    /// One stream, from before it is opened until it has ended.
    struct link {
        explicit link(env& world)
            : outgoing(world) {}

        void send(std::string json) {
            if (!unsent.empty()) {
                unsent += '\n';
            }
            unsent += json;
            outgoing.notify_all();
        }
        void close() {
            closed = true;
            if (channel) {
                channel->close();
            }
            outgoing.notify_all();
        }

        std::unique_ptr<stream> channel;
        std::string unsent;     // requests, one to a line
        bool has_token = false; // of the user
        std::uint64_t token_number = 0;
        std::deque<std::int64_t> unanswered;  // creates, in the order in which etcd answers them
        time_point heard = time_point::min(); // when there was last a message, or a question
        bool closed = false;                  // by us
        notifier outgoing;
    };

    // How long etcd may take to answer a create, or to accept a request.
    static constexpr std::chrono::seconds patience{2};
    // After how long a silence it is asked whether it is still there. A member that stands still
    // keeps its connections.
    static constexpr std::chrono::seconds silence{10};

    bool idle() const { return watches_.empty() && holds_ == 0; }

    void end_if_idle() {
        if (idle()) {
            wanted_.notify_all();
            if (link_) {
                link_->close();
            }
        }
    }

    void place(watch& w, link& on) {
        if (w.placed && w.resume_revision != 0) {
            w.request.start_revision = w.resume_revision;
        }
        w.placed = true;
        w.fragments.clear();
        if (on.unanswered.empty()) {
            on.heard = env_.now();
        }
        on.unanswered.push_back(w.request.watch_id);
        on.send(wire::encode(w.request));
    }

    /// Lives as long as there are watches, or somebody holds the hub.
    static asio::awaitable<void> run(std::shared_ptr<watch_hub> self) {
        struct running {
            watch_hub& hub;
            ~running() { hub.running_ = false; }
        };
        const running until_the_end{*self};
        unsigned breaks = 0; // of streams that did not last
        while (!self->idle()) {
            if (self->watches_.empty()) {
                (void)co_await self->wanted_.wait();
                continue;
            }
            const time_point began = self->env_.now();
            const bool broke = co_await self->serve();
            if (!broke) {
                breaks = 0;
                continue;
            }
            breaks = self->env_.now() - began < std::chrono::seconds(1) ? breaks + 1 : 0;
            const auto wait = logic::backoff(breaks, self->env_.random());
            notifier pause(self->env_);
            (void)co_await pause.wait(after(self->env_.now(), wait));
        }
    }

    /// Opens a stream with all watches on it, and reads until it ends.
    /// @returns Whether it broke: false if it was closed by us.
    asio::awaitable<bool> serve() {
        const auto current = std::make_shared<link>(env_);
        struct attached {
            watch_hub& hub;
            ~attached() { hub.link_ = nullptr; }
        };
        link_ = current;
        const attached until_the_end{*this};

        for (auto& [id, w] : watches_) {
            place(w, *current);
        }
        const authorization who = co_await router_->authorize(after(env_.now(), patience));
        if (who.ec || current->closed) {
            co_return !current->closed;
        }
        current->has_token = !who.token.empty();
        current->token_number = who.number;
        const logic::endpoint where = router_->pick();
        call_request request(
            where, rpc::watch, std::exchange(current->unsent, {}), after(env_.now(), patience));
        request.token = who.token;
        open_result opened = co_await env_.open(std::move(request));
        if (opened.ec) {
            router_->failed(where);
            co_return !current->closed;
        }
        current->channel = std::move(opened.opened);
        current->heard = env_.now();
        spawn(env_, write(shared_from_this(), current));

        while (!current->closed) {
            reply r = co_await current->channel->read();
            current->heard = env_.now();
            if (!dispatch(*current, r)) {
                break;
            }
            router_->succeeded(where);
        }
        const bool broke = !current->closed;
        if (broke) {
            router_->failed(where);
        }
        current->close();
        co_return broke;
    }

    /// Begins and ends a watch of nothing, to which etcd answers at once.
    void ask(link& on) {
        wire::watch_create_request nothing(std::string(1, '\0'));
        nothing.watch_id = ++last_id_;
        nothing.no_put = true;
        nothing.no_delete = true;
        on.heard = env_.now();
        on.unanswered.push_back(nothing.watch_id);
        on.send(wire::encode(nothing));
        on.send(wire::encode_watch_cancel(nothing.watch_id));
    }

    /// Sends what there is to send; ends a stream on which etcd does not answer.
    static asio::awaitable<void> write(std::shared_ptr<watch_hub> self,
                                       std::shared_ptr<link> current) {
        env& world = self->env_;
        while (!current->closed) {
            if (!current->unsent.empty()) {
                std::string batch = std::exchange(current->unsent, {});
                const time_point until = after(world.now(), patience);
                const error_code ec = co_await current->channel->write(std::move(batch), until);
                if (ec) {
                    break;
                }
                continue;
            }
            const bool asked = !current->unanswered.empty();
            const time_point until = after(current->heard, asked ? patience : silence);
            if (world.now() >= until) {
                if (asked) {
                    break;
                }
                self->ask(*current);
                continue;
            }
            (void)co_await current->outgoing.wait(until);
        }
        current->channel->close(); // the reader does the rest
    }

    /// Handles one message of the stream.
    /// @returns Whether the stream may go on.
    bool dispatch(link& from, reply& r) {
        if (r.ec == errc::too_large) {
            // Nobody knows which watch it was for, and it would come again.
            end_all(r.ec, "a message of a watch was over the limit of max_answer");
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
        if (const auto* failure = std::get_if<wire::status>(&message)) {
            if (from.has_token && logic::wants_token(*failure)) {
                router_->rejected(from.token_number);
            } else if (!logic::judge(*failure).transient) {
                end_all(failure->code, failure->message);
            }
            return false;
        }
        auto& m = std::get<wire::watch_response>(message);
        if (m.created && m.canceled && from.has_token && logic::wants_token(m.cancel_reason)) {
            // All of them are resumed on a stream with another one.
            router_->rejected(from.token_number);
            return false;
        }
        dispatch(from, m);
        return true;
    }

    // A sink may add and remove watches when it is told something, so that telling it comes last.
    void dispatch(link& from, wire::watch_response& m) {
        if (m.created && m.canceled && !from.unanswered.empty()) {
            m.watch_id = from.unanswered.front(); // a refusal names no watch
        }
        if (m.created) {
            router_->accepted(from.token_number);
            std::erase(from.unanswered, m.watch_id);
        }
        const auto found = watches_.find(m.watch_id);
        if (found == watches_.end()) {
            return; // removed meanwhile
        }
        watch& w = found->second;
        watch_sink& sink = *w.sink;
        if (m.canceled) {
            watches_.erase(found);
            end_if_idle();
            const bool compacted = m.compact_revision != 0;
            sink.on_ended(compacted ? errc::watch_compacted : errc::watch_canceled,
                          std::move(m.cancel_reason),
                          m.compact_revision);
        } else if (m.created) {
            sink.on_created();
        } else if (!m.events.empty()) {
            take_events(w, m);
        } else if (w.resume_revision != 0) { // progress
            w.resume_revision = std::max(w.resume_revision, m.header.revision + 1);
        }
    }

    void take_events(watch& w, wire::watch_response& m) {
        std::vector<event>& all = w.fragments;
        for (event& e : m.events) {
            // A stream that was resumed never shows again what was seen.
            if (e.kv.mod_revision >= w.resume_revision) {
                all.push_back(std::move(e));
            }
        }
        if (m.fragment || all.empty()) {
            return;
        }
        std::vector<event> complete = std::exchange(all, {});
        if (w.resume_revision != 0) {
            w.resume_revision = complete.back().kv.mod_revision + 1;
        }
        w.sink->on_events(complete);
    }

    void end_all(error_code ec, const std::string& text) {
        std::map<std::int64_t, watch> over = std::exchange(watches_, {});
        for (auto& [id, w] : over) {
            w.sink->on_ended(ec, text, 0);
        }
    }

    const std::shared_ptr<router> router_;
    env& env_;
    std::map<std::int64_t, watch> watches_;
    std::int64_t last_id_ = 0;
    int holds_ = 0;
    bool running_ = false;
    std::shared_ptr<link> link_; // the current one, if any
    notifier wanted_;
};

} // namespace coetcd::detail
