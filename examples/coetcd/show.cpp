// SPDX-License-Identifier: BSL-1.0
#include "show.hpp"

#include <coetcd/admin.hpp>
#include <coetcd/as_result.hpp>
#include <coetcd/printable.hpp>
#include <coetcd/watch.hpp>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/experimental/parallel_group.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <ctime>
#include <exception>
#include <iomanip>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "output.hpp"
#include "queues.hpp"
#include "terminal.hpp"

namespace tool {

namespace asio = boost::asio;
using asio::awaitable;
using coetcd::client;
using nlohmann::json;
using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;

namespace {

/// All keys below a prefix, as they are and as they change.
class view {
public:
    explicit view(std::string prefix)
        : prefix_(std::move(prefix)) {}

    all_keys keys;
    /// When a key was seen to be put; a key that was there already is not in it.
    std::map<std::string, clock::time_point> since;
    clock::time_point began = clock::now(); ///< When all was read.

    awaitable<void> read(client c) {
        keys.clear();
        since.clear();
        began = clock::now();
        all_keys_read found = co_await read_keys(c, coetcd::key_range::prefix(prefix_));
        keys = std::move(found.keys);
        revision_ = found.revision;
    }

    /// Applies the next changes.
    awaitable<void> follow(client c) {
        if (!changes_) {
            coetcd::watch_options options;
            options.start_revision = revision_ + 1;
            coetcd::watcher opened = co_await c.watch(coetcd::key_range::prefix(prefix_), options);
            changes_ = std::make_unique<coetcd::watcher>(std::move(opened));
        }
        const coetcd::watch_batch batch = co_await changes_->next();
        revision_ = batch.revision;
        for (const coetcd::event& e : batch.events) {
            if (e.type == coetcd::event_type::put) {
                if (!keys.contains(e.kv.key)) {
                    since[e.kv.key] = clock::now();
                }
                coetcd::key_value kv = e.kv;
                drop_plain_value(kv);
                keys[e.kv.key] = std::move(kv);
            } else {
                keys.erase(e.kv.key);
                since.erase(e.kv.key);
            }
        }
    }
    /// The locks whose names begin with the prefix: a key of another one may begin so, too.
    std::vector<queue> queues() const {
        std::vector<queue> all = queues_of(keys);
        std::erase_if(all, [this](const queue& q) { return !q.name.starts_with(prefix_); });
        return all;
    }
    bool follows() const { return changes_ != nullptr; }
    /// After a failure all begins anew.
    void forget() {
        changes_.reset();
        revision_ = 0;
    }

private:
    const std::string prefix_;
    std::int64_t revision_ = 0;
    std::unique_ptr<coetcd::watcher> changes_;
};

std::string seconds(std::chrono::nanoseconds time) {
    const auto s = std::chrono::duration_cast<std::chrono::seconds>(time).count();
    if (s < 120) {
        return std::to_string(s) + "s";
    }
    return s < 7200 ? std::to_string(s / 60) + "m" : std::to_string(s / 3600) + "h";
}

std::string with_unit(double number, const char* unit) {
    std::ostringstream text;
    text << std::fixed << std::setprecision(1) << number << ' ' << unit;
    return text.str();
}

std::string size_text(std::int64_t bytes) {
    const double kib = static_cast<double>(bytes) / 1024;
    return kib < 1024 ? with_unit(kib, "KiB") : with_unit(kib / 1024, "MiB");
}

/// By two clocks, which may differ.
std::string held_for(std::chrono::system_clock::time_point since) {
    const auto time = std::chrono::system_clock::now() - since;
    return seconds(std::max<std::chrono::nanoseconds>(time, 0ns));
}

/// How long somebody has had it, as that says; else as far as it was seen, or at least so long, if
/// it was there before us.
std::string age(const view& v, const entry& e) {
    if (e.since) {
        return held_for(*e.since);
    }
    if (!v.follows()) {
        return "-";
    }
    const auto seen = v.since.find(e.key);
    return seen != v.since.end() ? seconds(clock::now() - seen->second)
                                 : ">" + seconds(clock::now() - v.began);
}

void sort(std::vector<queue>& all, const std::string& order) {
    if (order == "waiters") {
        std::stable_sort(all.begin(), all.end(), [](const queue& a, const queue& b) {
            return a.waiters.size() > b.waiters.size();
        });
    } else if (order == "token") {
        std::stable_sort(all.begin(), all.end(), [](const queue& a, const queue& b) {
            const auto token = [](const queue& q) {
                return q.holders.empty() ? 0 : q.holders.front().token;
            };
            return token(a) < token(b);
        });
    }
}

/// What is left of leases, asked for as it is needed.
class leases {
public:
    /// Eight at a time.
    awaitable<void> ask(client c, std::set<coetcd::lease_id> wanted) {
        using namespace asio::experimental::awaitable_operators;
        std::map<coetcd::lease_id, std::chrono::seconds> now;
        std::optional<coetcd::failure> trouble; // of any: several would be another exception
        auto next = wanted.begin();
        const auto some = [&]() -> awaitable<void> {
            while (next != wanted.end() && !trouble) {
                const coetcd::lease_id id = *next++;
                const auto found = co_await coetcd::as_result(c.lease_time_to_live(id));
                if (!found) {
                    trouble = found.error();
                } else if (*found) {
                    now[id] = (*found)->ttl;
                }
            }
        };
        const auto two = [&] { return some() && some(); };
        const auto four = [&] { return two() && two(); };
        co_await (four() && four());
        if (trouble) {
            trouble->rethrow();
        }
        left_ = std::move(now);
    }
    std::string left(coetcd::lease_id id) const {
        const auto found = left_.find(id);
        return found != left_.end() ? seconds(found->second) : "-";
    }

private:
    std::map<coetcd::lease_id, std::chrono::seconds> left_;
};

json as_json(const entry& e) {
    json j{{"label", e.label}, {"key", e.key}, {"lease", hex(e.lease)}, {"token", e.token}};
    if (e.since) {
        const std::time_t time = std::chrono::system_clock::to_time_t(*e.since);
        std::ostringstream text;
        text << std::put_time(std::gmtime(&time), "%FT%TZ");
        j["since"] = text.str();
    }
    if (e.permits != 0) {
        j["permits"] = e.permits;
    }
    if (e.shared) {
        j["shared"] = true;
    }
    return j;
}

json as_json(const queue& q) {
    json j{{"name", q.name}, {"holders", json::array()}, {"waiters", json::array()}};
    for (const entry& e : q.holders) {
        j["holders"].push_back(as_json(e));
    }
    for (const entry& e : q.waiters) {
        j["waiters"].push_back(as_json(e));
    }
    for (const auto& [key, revision] : q.strays) {
        j["strays"].push_back(key);
    }
    return j;
}

constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

std::string shown_name(const queue& q) {
    return single_spaced(printed(q.name));
}

struct widths {
    std::size_t name = 4;
    std::size_t holder = 6;
    std::size_t longest = unlimited; ///< Of a name, what is shown.
};

/// A column of what is not cut: a number would be made another one.
std::string uncut(const std::string& text, std::size_t columns) {
    return column(text, std::max(columns, width(text)));
}

std::string heading(const widths& w) {
    return column("NAME", w.name) + "  " + column("HOLDER", w.holder) + "  " + uncut("SINCE", 6) +
           "  " + uncut("TOKEN", 10) + "  " + uncut("TTL", 5) + "  WAITERS";
}

/// Who has it, and how many more; of the first one no more than there is room for.
std::string holder_of(const queue& q, std::size_t columns) {
    if (q.holders.empty()) {
        return "-";
    }
    const std::string more =
        q.holders.size() > 1 ? " +" + std::to_string(q.holders.size() - 1) : "";
    return cut(describe(q.holders.front()), columns - std::min(columns, more.size())) + more;
}

/// What both columns get: all, or the longer one what the other leaves, or each the half.
widths shared_out(widths wanted, std::size_t room) {
    if (wanted.name + wanted.holder > room) {
        const std::size_t half = room / 2;
        const std::size_t name =
            std::min(wanted.name, std::max(half, room - std::min(room, wanted.holder)));
        wanted.holder = std::min(wanted.holder, room - name);
        wanted.name = name;
    }
    return wanted;
}

/// As wide as its texts, but for one that is out of all proportion; less if that is more than there
/// is room for.
widths fitting(const std::vector<queue>& all, std::size_t shown, std::size_t columns) {
    widths w;
    for (std::size_t i = 0; i != std::min(shown, all.size()); ++i) {
        w.name = std::max(w.name, std::min<std::size_t>(width(shown_name(all[i])), 256));
        w.holder = std::max(w.holder, width(holder_of(all[i], columns)));
    }
    const std::size_t others = width(heading({0, 0}));
    const std::size_t room = columns > others + 28 ? columns - others : 28;
    if (columns != unlimited) {
        w = shared_out(w, room);
        w.longest = w.name;
    }
    return w;
}

std::string row(const view& v, const leases& l, const queue& q, const widths& w) {
    std::string holder = "-", since = "-", token = "-", ttl = "-";
    if (!q.holders.empty()) {
        const entry& e = q.holders.front();
        holder = holder_of(q, w.holder);
        since = age(v, e);
        token = std::to_string(e.token);
        ttl = l.left(e.lease);
    }
    return uncut(cut(shown_name(q), w.longest), w.name) + "  " + column(holder, w.holder) + "  " +
           uncut(since, 6) + "  " + uncut(token, 10) + "  " + uncut(ttl, 5) + "  " +
           std::to_string(q.waiters.size());
}

std::set<coetcd::lease_id> leases_of(const std::vector<queue>& all, std::size_t shown) {
    std::set<coetcd::lease_id> result;
    for (std::size_t i = 0; i != std::min(shown, all.size()); ++i) {
        if (!all[i].holders.empty()) {
            result.insert(all[i].holders.front().lease);
        }
    }
    return result;
}

awaitable<int> top_once(client c, const top_flags& how) {
    view v(how.prefix);
    co_await v.read(c);
    std::vector<queue> all = v.queues();
    sort(all, how.order);
    std::string lines;
    if (how.as_json) {
        for (const queue& q : all) {
            lines += text_of(as_json(q)) + '\n';
        }
    } else {
        leases l;
        co_await l.ask(c, leases_of(all, all.size()));
        const widths w = fitting(all, all.size(), unlimited);
        lines = heading(w) + '\n';
        for (const queue& q : all) {
            lines += row(v, l, q, w) + '\n';
        }
    }
    co_await tell(std::move(lines));
    co_return well;
}

/// What the coroutines of a live table share.
struct live {
    live(asio::any_io_executor executor, const top_flags& flags)
        : how(flags)
        , shown(flags.prefix)
        , screen(executor)
        , changed(executor) {}
    top_flags how;
    view shown;
    std::set<coetcd::lease_id> in_sight; ///< Of the holders that the table shows.
    leases left;
    std::string trouble;       ///< Why the table is not up to date.
    std::string lease_trouble; ///< Why the times are not.
    bool filled = false;
    terminal screen;
    asio::steady_timer changed;
};

/// Keeps the table up to date, through failures.
awaitable<void> keep_up(std::shared_ptr<live> l, client c) {
    for (;;) {
        try {
            if (!l->filled) {
                co_await l->shown.read(c);
                l->filled = true;
            } else {
                co_await l->shown.follow(c);
            }
            l->trouble.clear();
        } catch (const coetcd::error& e) {
            l->trouble = in_flags(e.what());
            l->filled = false;
            l->shown.forget();
        }
        l->changed.cancel();
        if (!l->trouble.empty()) {
            asio::steady_timer pause(l->changed.get_executor(), 1s);
            co_await pause.async_wait(asio::use_awaitable);
        }
    }
}

/// Keeps the times of the leases up to date, beside the table: an answer may take seconds.
awaitable<void> keep_times(std::shared_ptr<live> l, client c) {
    asio::steady_timer pause(l->changed.get_executor());
    for (;;) {
        if (l->filled) {
            try {
                co_await l->left.ask(c, l->in_sight);
                l->lease_trouble.clear();
            } catch (const coetcd::error& e) {
                l->lease_trouble = in_flags(e.what());
            }
            l->changed.cancel();
        }
        pause.expires_after(1s);
        co_await pause.async_wait(asio::use_awaitable);
    }
}

/// Shows it, four times a second at the most, and once at the least.
awaitable<void> draw(std::shared_ptr<live> l) {
    for (;;) {
        std::vector<queue> all = l->shown.queues();
        sort(all, l->how.order);
        const terminal::extent room = terminal::size();
        const std::size_t rows = room.rows > 3 ? room.rows - 3 : 1;
        const widths w = fitting(all, rows, room.columns);
        std::vector<std::string> lines{heading(w)};
        std::size_t waiters = 0;
        for (std::size_t i = 0; i != all.size(); ++i) {
            waiters += all[i].waiters.size();
            if (i < rows) {
                lines.push_back(row(l->shown, l->left, all[i], w));
            }
        }
        lines.resize(rows + 1);
        const std::string& trouble = l->trouble.empty() ? l->lease_trouble : l->trouble;
        lines.push_back(trouble.empty() ? "" : "! " + trouble);
        lines.push_back(std::to_string(all.size()) + " locks, " + std::to_string(waiters) +
                        " waiters.  q: quit  n, w, t: by name, waiters, token");
        l->screen.show(lines);
        l->in_sight = leases_of(all, rows);
        asio::steady_timer pause(l->changed.get_executor(), 250ms);
        co_await pause.async_wait(asio::use_awaitable);
        l->changed.expires_after(750ms);
        co_await l->changed.async_wait(asio::as_tuple(asio::use_awaitable));
        co_await asio::this_coro::throw_if_cancelled(true);
    }
}

} // namespace

awaitable<int> top(client c, top_flags how) {
    if (how.once || how.as_json || !terminal::is_there()) {
        co_return co_await top_once(c, how);
    }
    const auto executor = co_await asio::this_coro::executor;
    const auto l = std::make_shared<live>(executor, how);
    const auto keys = [l]() -> awaitable<void> {
        for (;;) {
            const std::optional<char> typed = co_await l->screen.key();
            if (!typed || typed == 'q') {
                co_return;
            }
            std::string& order = l->how.order;
            order = typed == 'n'   ? "name"
                    : typed == 'w' ? "waiters"
                    : typed == 't' ? "token"
                                   : order;
            l->changed.cancel();
        }
    };
    const auto stops = [l]() -> awaitable<void> {
        for (;;) {
            co_await l->screen.continued();
            l->changed.cancel();
        }
    };
    // Whichever ends first, by a key or by what fails, ends the others.
    auto all = asio::experimental::make_parallel_group(
        asio::co_spawn(executor, keys(), asio::deferred),
        asio::co_spawn(executor, stops(), asio::deferred),
        asio::co_spawn(executor, keep_up(l, c), asio::deferred),
        asio::co_spawn(executor, keep_times(l, c), asio::deferred),
        asio::co_spawn(executor, draw(l), asio::deferred));
    const auto [order, typing, standing_still, keeping_up, timing, drawing] =
        co_await all.async_wait(asio::experimental::wait_for_one(), asio::use_awaitable);
    const std::exception_ptr failures[] = {typing, standing_still, keeping_up, timing, drawing};
    if (failures[order[0]]) {
        std::rethrow_exception(failures[order[0]]);
    }
    co_return well;
}

awaitable<int> who(client c, std::string name, bool in_json) {
    const queue found = co_await read_queue(c, std::move(name));
    const int result = found.holders.empty() ? not_had : well;
    if (in_json) {
        co_await tell(text_of(as_json(found)) + '\n');
        co_return result;
    }
    if (found.holders.empty()) {
        note(coetcd::printable(found.name) + ": nobody has it");
    }
    leases l;
    std::set<coetcd::lease_id> wanted;
    for (const auto* list : {&found.holders, &found.waiters}) {
        for (const entry& e : *list) {
            wanted.insert(e.lease);
        }
    }
    co_await l.ask(c, std::move(wanted));
    std::string lines;
    const auto line = [&](const char* what, const entry& e) {
        std::string text = column(what, 6) + "  " + describe(e) + "  token " +
                           std::to_string(e.token) + "  ttl " + l.left(e.lease);
        text += e.since ? "  for " + held_for(*e.since) : "";
        text += e.shared ? "  shared" : "";
        text += e.permits != 0 ? "  permits " + std::to_string(e.permits) : "";
        lines += text + '\n';
    };
    for (const entry& e : found.holders) {
        line("has", e);
    }
    for (const entry& e : found.waiters) {
        line("waits", e);
    }
    if (!lines.empty()) {
        co_await tell(std::move(lines));
    }
    for (const auto& [key, revision] : found.strays) {
        note(in_the_way(found.name, key));
    }
    co_return result;
}

namespace {

/// What a member says of itself, or why it does not.
struct report {
    coetcd::member_status status;
    std::chrono::duration<double, std::milli> took{0};
    std::string failure;
};

awaitable<report> ask(connection::member m) {
    const auto began = clock::now();
    report r;
    try {
        r.status = co_await m.client.status();
    } catch (const coetcd::error& e) {
        r.failure = in_flags(e.what());
    }
    r.took = clock::now() - began;
    co_return r;
}

} // namespace

awaitable<int> status(std::vector<connection::member> members, bool in_json) {
    std::size_t longest = 8;
    for (const connection::member& m : members) {
        longest = std::max(longest, m.endpoint.size());
    }
    std::string lines;
    const auto line = [&](const std::string& endpoint,
                          const std::string& version,
                          const std::string& role,
                          const std::string& size,
                          const std::string& latency,
                          const std::string& trouble) {
        std::string text = column(endpoint, longest) + "  " + uncut(version, 8) + "  " +
                           column(role, 8) + "  " + uncut(size, 9) + "  " + uncut(latency, 8) +
                           "  " + trouble;
        text.erase(text.find_last_not_of(' ') + 1);
        lines += text + '\n';
    };
    if (!in_json) {
        line("ENDPOINT", "VERSION", "ROLE", "DB SIZE", "LATENCY", "TROUBLE");
    }
    // All at once: one that does not answer holds up nobody but the end.
    const auto here = co_await asio::this_coro::executor;
    using asked = decltype(asio::co_spawn(here, ask(members.front()), asio::deferred));
    std::vector<asked> questions;
    for (const connection::member& m : members) {
        questions.push_back(asio::co_spawn(here, ask(m), asio::deferred));
    }
    auto all = asio::experimental::make_parallel_group(std::move(questions));
    const auto [order, failures, reports] =
        co_await all.async_wait(asio::experimental::wait_for_all(), asio::use_awaitable);
    int result = well;
    for (std::size_t i = 0; i != members.size(); ++i) {
        if (failures[i]) {
            std::rethrow_exception(failures[i]);
        }
        const report& r = reports[i];
        json j{{"endpoint", members[i].endpoint}};
        if (!r.failure.empty()) {
            result = unavailable;
            j["errors"] = {r.failure};
            if (!in_json) {
                line(members[i].endpoint, "-", "-", "-", "-", r.failure);
            }
        } else {
            const coetcd::member_status& s = r.status;
            const std::string role = s.is_learner    ? "learner"
                                     : s.is_leader() ? "leader"
                                     : s.leader == 0 ? "-"
                                                     : "follower";
            std::string trouble;
            for (const std::string& text : s.errors) {
                trouble += (trouble.empty() ? "" : "; ") + coetcd::printable(text);
            }
            j["version"] = s.version;
            j["role"] = role;
            j["db_size"] = s.db_size;
            j["latency_ms"] = r.took.count();
            j["errors"] = s.errors;
            if (!in_json) {
                line(members[i].endpoint,
                     coetcd::printable(s.version),
                     role,
                     size_text(s.db_size),
                     with_unit(r.took.count(), "ms"),
                     trouble);
            }
        }
        if (in_json) {
            lines += text_of(j) + '\n';
        }
    }
    co_await tell(std::move(lines));
    co_return result;
}

namespace {

/// How the key with this token ends, whatever line of the queue it is in.
std::optional<std::string> place_of(const queue& q, std::int64_t token) {
    for (const auto* all : {&q.holders, &q.waiters}) {
        for (const entry& e : *all) {
            if (e.token == token) {
                return e.key.substr(e.key.rfind('/'));
            }
        }
    }
    return std::nullopt;
}
bool has_place(const queue& q, const std::string& place) {
    const auto is_it = [&](const entry& e) { return e.key.ends_with(place); };
    return std::any_of(q.holders.begin(), q.holders.end(), is_it) ||
           std::any_of(q.waiters.begin(), q.waiters.end(), is_it);
}

} // namespace

awaitable<int> unlock(client c, std::string name, std::int64_t token, bool without_asking) {
    const queue found = co_await read_queue(c, name);
    for (const auto& [key, revision] : found.strays) {
        if (revision == token) { // the library would delete it, too
            note(printed(key) + ": is nobody's place in this lock; etcdctl del deletes it");
            co_return not_had;
        }
    }
    if (!without_asking && terminal::is_typed_in()) {
        const std::string answer =
            ask("End the ownership of " + coetcd::printable(name) + " with token " +
                    std::to_string(token) + "? Its holder goes on until it notices. [y/N] ",
                echo::on);
        const std::set<std::string> agreed{"y", "Y", "yes", "Yes", "YES"};
        if (!agreed.contains(answer)) {
            note("nothing was done");
            co_return not_had;
        }
    }
    bool ended = co_await coetcd::force_unlock(c, name, token);
    const std::optional<std::string> place = place_of(found, token);
    if (!ended && place) { // it may have ended by itself, or what is on the way has asked twice
        const queue left = co_await read_queue(c, name);
        ended = !has_place(left, *place); // a waiter for permits gets another token with them
    }
    if (!ended) {
        note(coetcd::printable(name) + ": nobody has it with token " + std::to_string(token));
    }
    co_return ended ? well : not_had;
}

} // namespace tool
