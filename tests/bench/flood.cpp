// SPDX-License-Identifier: BSL-1.0
// Very many events, and a bare request to watch them: the floor.
#include <coetcd/detail/wire/encode.hpp>

#include <boost/asio/this_coro.hpp>

#include <algorithm>
#include <string_view>
#include <utility>

#include "bench/connection.hpp"
#include "bench/worker.hpp"

namespace bench {
namespace {

namespace wire = coetcd::detail::wire;

constexpr std::size_t in_a_txn = 50;

/// A transaction of events below `prefix`, always of the same keys.
std::string puts_below(const std::string& prefix) {
    const std::string value(100, '\0');
    coetcd::txn all;
    for (std::size_t i = 0; i < in_a_txn; ++i) {
        all.success.push_back(coetcd::op::put(prefix + std::to_string(i), value));
    }
    return wire::encode(all);
}

struct flood_state {
    std::size_t left; ///< Transactions.
    std::int64_t revision = 0;
};

awaitable<void> put_some(connection& c, std::string prefix, flood_state& all) {
    const std::string body = puts_below(prefix);
    while (all.left != 0) {
        --all.left;
        co_await c.txn(body);
        all.revision = std::max<std::int64_t>(all.revision, std::stoll(c.revision));
    }
}

/// Counts the events in a stream of messages, which may be cut anywhere.
class event_count {
public:
    void add(std::string_view part) {
        text_.append(part);
        std::size_t from = 0;
        for (auto at = text_.find(mark); at != std::string::npos; at = text_.find(mark, from)) {
            ++count_;
            from = at + mark.size();
        }
        text_.erase(0, std::max(from, text_.size() - std::min(text_.size(), mark.size() - 1)));
    }
    std::size_t count() const { return count_; }

private:
    static constexpr std::string_view mark = "\"kv\":{"; // no key or value has a quotation mark
    std::string text_;
    std::size_t count_ = 0;
};

} // namespace

awaitable<json> run_flood(task t) {
    constexpr std::size_t writers = 64;
    const auto connections = co_await open_connections(t.url, writers);
    flood_state state{t.count / in_a_txn};
    co_await pass_gate(t.gate);
    const auto began = clock::now();
    crew all(co_await asio::this_coro::executor);
    for (std::size_t i = 0; i < writers; ++i) {
        all.start(put_some(*connections[i], t.name + "/" + std::to_string(i) + "/", state));
    }
    (void)co_await all.joined();
    json result;
    result["ended"] = microseconds(clock::now());
    result["put_s"] = seconds_since(began);
    result["revision"] = state.revision;
    co_return result;
}

awaitable<json> run_raw_watch(task t) {
    connection c(co_await asio::this_coro::executor, t.url);
    co_await c.open();
    const auto keys = coetcd::key_range::prefix(t.name + "/");
    wire::watch_create_request request{keys};
    const std::string body = wire::encode(request);
    co_await c.begin_stream("/v3/watch", body);
    std::string_view part = co_await c.next_part();
    while (part.find("\"created\":true") == std::string_view::npos) {
        part = co_await c.next_part();
    }
    co_await pass_gate(t.gate);
    consumption measured;
    event_count events;
    while (events.count() < t.count) {
        part = co_await c.next_part();
        events.add(part);
        co_await measured.pause_once(t, events.count());
    }
    co_return measured.to_json(events.count());
}

} // namespace bench
