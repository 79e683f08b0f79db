// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/endpoint.hpp>
#include <coetcd/detail/wire/encode.hpp>
#include <coetcd/detail/wire/status.hpp>
#include <coetcd/detail/wire/watch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace coetcd::detail {

/// One stream of watches, from before it is opened until it has ended: what was sent on it, and
/// what was heard.
struct watch_link {
    static constexpr std::int64_t everybody = 0; ///< Carries all watches.
    static constexpr std::int64_t nobody = -1;   ///< Only asks whether etcd answers.

    /// @param whose The id of the one watch that it carries, or one of the above.
    watch_link(env& w, logic::endpoint endpoint, sending how_sent, std::int64_t whose)
        : world(w)
        , where(std::move(endpoint))
        , how(how_sent)
        , only(whose)
        , began(w.now())
        , outgoing(w) {}

    void send(std::string json) {
        if (!unsent.empty()) {
            unsent += '\n';
        }
        unsent += json;
        outgoing.notify_all();
    }
    /// Begins a watch on it.
    void create(const wire::watch_create_request& request) {
        if (unanswered.empty()) {
            heard = world.now();
        }
        unanswered.push_back(request.watch_id);
        send(wire::encode(request));
    }
    /// Ends a watch that is on it.
    void cancel(std::int64_t id) {
        if (how == sending::duplex) {
            send(wire::encode(wire::watch_cancel_request{id}));
        } else {
            close();
        }
    }
    /// Begins and ends a watch of nothing, to which etcd answers at once.
    void ask() {
        wire::watch_create_request nothing(std::string(1, '\0'));
        nothing.watch_id = --next_question;
        nothing.no_put = true;
        nothing.no_delete = true;
        create(nothing);
        send(wire::encode(wire::watch_cancel_request{nothing.watch_id}));
    }
    /// etcd answered to the creation of a watch. It does so in order.
    void created(std::int64_t id) {
        if (!unanswered.empty() && unanswered.front() == id) {
            unanswered.pop_front();
        } else {
            std::erase(unanswered, id);
        }
    }
    /// By us: it has not broken.
    void close() {
        closed = true;
        if (channel) {
            channel->close();
        }
        if (beside) {
            beside->close();
        }
        outgoing.notify_all();
    }
    /// Whether etcd has not said a word on it although it was open.
    bool mute() const { return channel && !answered; }

    env& world;
    const logic::endpoint where;
    const sending how;
    const std::int64_t only;
    const time_point began;

    std::unique_ptr<stream> channel;
    std::string unsent;                  // requests, one to a line
    std::deque<std::int64_t> unanswered; // creates, in the order in which etcd answers them
    std::int64_t next_question = std::numeric_limits<std::int64_t>::max(); // ids that no watch has
    notifier outgoing;

    time_point heard = time_point::min(); // when there was last an answer, or a question
    time_point told = time_point::min();  // when there was last a message on this very stream
    bool answered = false;                // by etcd, at least once
    std::optional<wire::status> failure;  // of the stream as a whole
    std::shared_ptr<watch_link> beside;   // asks for one on which nobody can
    std::uint64_t token_number = 0;       // of the user's token that it was opened with
    bool token_refused = false;
    bool closed = false;
};

} // namespace coetcd::detail
