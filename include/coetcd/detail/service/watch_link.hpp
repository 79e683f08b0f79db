// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/endpoint.hpp>
#include <coetcd/detail/logic/key_space.hpp>
#include <coetcd/detail/logic/watch_stream.hpp>
#include <coetcd/detail/wire/encode.hpp>
#include <coetcd/detail/wire/status.hpp>
#include <coetcd/detail/wire/watch.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

namespace coetcd::detail {

/// Which watches a stream carries.
struct watch_load {
    logic::stream_kind kind;
    std::int64_t watch = 0; ///< The watch's id, if it carries one.
};

/// One stream of watches, from before it is opened until it has ended.
struct watch_link {
    watch_link(env& w,
               logic::endpoint endpoint,
               sending how_sent,
               watch_load whose,
               std::shared_ptr<const logic::key_space> which)
        : world(w)
        , where(std::move(endpoint))
        , how(how_sent)
        , load(whose)
        , keys(std::move(which))
        , state(whose.kind, how_sent == sending::duplex, w.now())
        , outgoing(w) {}

    bool is_for(logic::stream_kind kind) const { return load.kind == kind; }

    void send(std::string json) {
        unsent.push_back(std::move(json));
        outgoing.notify_all();
    }
    /// Takes what to send next, one message per line: no more than a slow link carries in the time
    /// that one write has. etcd answers meanwhile what it has received.
    std::string next_piece() {
        constexpr std::size_t most = 16 * 1024; // bytes, unless one message is larger
        std::string piece;
        while (!unsent.empty() && (piece.empty() || piece.size() + unsent.front().size() < most)) {
            if (!piece.empty()) {
                piece += '\n';
            }
            piece += unsent.front();
            unsent.pop_front();
        }
        return piece;
    }
    /// Begins a watch on it.
    void create(const wire::watch_create_request& request) {
        state.asked(request.watch_id, world.now());
        send(logic::encode(keys.get(), request));
    }
    /// Ends a watch that is on it.
    void cancel(std::int64_t id) noexcept {
        try {
            if (is_for(logic::stream_kind::everybody)) {
                send(wire::encode(wire::watch_cancel_request{id}));
                return;
            }
        } catch (const std::bad_alloc&) {
            // The watch ends with the stream; the others go on with the next one.
        }
        close();
    }
    /// Begins and ends a watch of nothing, which etcd answers at once.
    void ask() {
        wire::watch_create_request nothing(std::string(1, '\0'));
        nothing.watch_id = state.ask(world.now());
        nothing.no_put = true;
        nothing.no_delete = true;
        send(wire::encode(nothing));
        send(wire::encode(wire::watch_cancel_request{nothing.watch_id}));
    }
    /// Ended by us: it has not broken.
    void close() {
        closed = true;
        if (channel) {
            channel->close();
        }
        if (beside) {
            beside->close();
        }
        outgoing.notify_all();
        if (room) {
            room->notify_all();
        }
    }

    env& world;
    const logic::endpoint where;
    const sending how;
    const watch_load load;
    const std::shared_ptr<const logic::key_space> keys; // null: all there are
    logic::watch_stream<time_point> state;

    std::unique_ptr<stream> channel;
    std::deque<std::string> unsent; // requests
    notifier outgoing;
    std::shared_ptr<notifier> room; // of the watch that has the stream for itself

    std::optional<wire::status> failure; // of the stream as a whole
    std::shared_ptr<watch_link> beside;  // asks for a stream on which nobody can ask
    std::uint64_t token_number = 0;      // of the user's token that it was opened with
    bool token_refused = false;
    bool goes_on = false; // what was read last was a piece
    bool closed = false;
};

} // namespace coetcd::detail
