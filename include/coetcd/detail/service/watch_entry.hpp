// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/watch_history.hpp>
#include <coetcd/detail/logic/watch_traffic.hpp>
#include <coetcd/detail/service/watch_link.hpp>
#include <coetcd/detail/service/watch_sink.hpp>
#include <coetcd/detail/wire/watch.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace coetcd::detail {

/// A watch, on whichever stream it is.
struct watch_entry {
    watch_entry(wire::watch_create_request r, watch_sink& s, std::int64_t told, std::uint64_t of)
        : request(std::move(r))
        , sink(&s)
        , history(request.start_revision, told)
        , cluster(of) {}

    /// Begins it on a stream, after what it has already told.
    void place(const std::shared_ptr<watch_link>& link) {
        on = link;
        on->room = on->is_for(logic::stream_kind::everybody) ? nullptr : room;
        history.restart();
        request.start_revision = history.next();
        on->create(request);
    }

    /// Whether it has told the history of another cluster than the one that answers.
    bool is_of_another(std::uint64_t now) {
        const bool tells_history = request.start_revision != 0;
        if (cluster == 0 || !tells_history) {
            cluster = now;
        }
        return cluster != now;
    }

    wire::watch_create_request request;
    watch_sink* sink;
    logic::watch_history history;
    std::uint64_t cluster;          ///< Of that history; 0: not known yet.
    std::shared_ptr<watch_link> on; ///< The last stream that it was created on.
    logic::watch_traffic<time_point> traffic;
    bool apart = false;             ///< It has streams of its own, from now on.
    bool runs_alone = false;        ///< It has them now.
    std::shared_ptr<notifier> room; ///< For one that has, or had: notified when there may be some.
};
using watch_map = std::map<std::int64_t, watch_entry>;

/// What to say of a message that is too large.
/// @param revision 0 if it is not known.
inline std::string oversized(std::int64_t revision) {
    const std::string what =
        revision > 0 ? "revision " + std::to_string(revision) : std::string("a message");
    return what + " is over the limit of client_options::max_answer";
}

/// Tells those that a stream carried that it has ended.
inline void tell_of_end(const watch_link& of, const watch_map& all) {
    for (const auto& [id, w] : all) {
        if (w.on.get() == &of) {
            w.sink->on_broken();
        }
    }
}

} // namespace coetcd::detail
