// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/testing/etcd_members.hpp>
#include <coetcd/detail/testing/etcd_store.hpp>
#include <coetcd/detail/testing/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace coetcd::detail::testing {

/// The watches of an etcd in memory, and the streams that carry them.
class etcd_watches {
public:
    /// Where the lines of a stream go to.
    struct listener {
        std::function<void(std::string line)> on_line;
        std::function<void()> on_end;
    };
    struct ways {
        /// @throws etcd_refusal if who has this token may not watch these keys.
        std::function<void(const std::string& token, json::value range)> check_access;
        /// Called for each watch that begins, with its stream, its number, and its start revision,
        /// or 0.
        std::function<void(std::uint64_t, std::int64_t, std::int64_t, const std::string&)> watched;
        std::function<bool()> loses_event; ///< Asked for each message of events.
        /// Asked for each watch of a key that begins: whether it is told an end that is none.
        std::function<bool(const std::string&)> invents_end;
    };
    etcd_watches(const etcd_store& s, const etcd_members& m, ways how)
        : store_(s)
        , members_(m)
        , how_(std::move(how)) {}

    std::uint64_t open(int at, listener to, std::string token);
    /// @param messages One or more, one after the other.
    void listen(std::uint64_t stream, std::string_view messages);
    void close(std::uint64_t stream);
    /// @param why A last line, if there is one.
    void end_streams(int at, const std::optional<std::string>& why);

    /// Tells the changes of one revision.
    void tell(const etcd_store::change* first,
              const etcd_store::change* last,
              std::optional<int> only_at = {});
    /// Tells a member's watches what happened since a revision.
    void catch_up(int member, std::int64_t applied);
    /// Sends history to watches that began in the past.
    /// @param batch How many revisions at a time.
    void sync(std::size_t batch);
    void tell_progress();

    bool has_unsynced() const { return unsynced_ != 0; }
    std::size_t watches() const { return watches_.size(); }
    std::size_t watches_of(std::string_view key) const {
        return static_cast<std::size_t>(std::count_if(
            watches_.begin(), watches_.end(), [&](const watch& w) { return w.key == key; }));
    }
    std::size_t streams() const { return streams_.size(); }
    std::size_t watching_streams() const;

private:
    struct stream {
        int at;
        listener to;
        std::string token;
    };
    struct watch {
        std::uint64_t stream;
        int at;
        std::int64_t id;
        std::string key;
        std::string range_end;
        bool no_put;
        bool no_delete;
        bool prev_kv;
        bool wants_progress;
        bool synced;
        std::int64_t next; // the first revision that was not sent
    };

    std::int64_t how_far(int m) const { return members_.applied(m, store_.revision); }
    std::int64_t compacted(int m) const { return members_.compacted_at(m, store_.compacted); }
    void create_watch(std::uint64_t id, json::value request);
    /// @param before Lines that arrive with it.
    void send_events(const watch& w,
                     const std::vector<const etcd_store::change*>& changes,
                     const std::string& before = {});

    const etcd_store& store_;
    const etcd_members& members_;
    const ways how_;
    std::map<std::uint64_t, stream> streams_;
    std::uint64_t last_stream_ = 0;
    std::vector<watch> watches_;
    std::size_t unsynced_ = 0;
};

} // namespace coetcd::detail::testing
