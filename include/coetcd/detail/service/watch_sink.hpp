// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace coetcd::detail {

/// Receives what a watch brings. Called on the client's executor; may call the hub to begin and end
/// watches.
class watch_sink {
public:
    /// The watch is in force. Called again each time a broken stream was replaced.
    /// @param revision Without a start revision, it tells all that comes after this one.
    virtual void on_created(std::int64_t revision) = 0;
    /// It is on no stream for now: that has ended, or the watch gets one of its own. `on_created`
    /// follows. Must not begin or end a watch.
    virtual void on_broken() {}
    /// Events of whole revisions, in order. `events` may be taken.
    virtual void on_events(std::vector<event>& events) = 0;
    /// All changes up to `revision` were told.
    virtual void on_progress(std::int64_t /*revision*/) {}
    /// Whether it can take no more for now. What etcd sends then waits on its way, or in etcd: see
    /// `watch_hub::go_on`.
    virtual bool is_full() const { return false; }
    /// The watch is over, and already removed.
    /// @param revision The revision that was too large, or the first that was not compacted; 0 for
    ///   none.
    virtual void on_ended(error_code ec, std::string text, std::int64_t revision) = 0;

protected:
    ~watch_sink() = default;
};

} // namespace coetcd::detail
