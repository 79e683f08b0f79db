// SPDX-License-Identifier: BSL-1.0
#include "bench/report.hpp"

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <sstream>

#include "bench/measure.hpp"

namespace bench {
namespace {

struct column {
    const char* name;    ///< Of the number in a sample.
    const char* heading; ///< For people.
    int digits;          ///< Behind the point.
};

/// The columns for a kind of case.
std::vector<column> columns_of(const std::string& kind) {
    if (kind == "waiters") {
        return {{"waiter_kib", "KiB each", 1},
                {"client_percent", "client %", 1},
                {"server_percent", "server %", 1},
                {"drain_s", "all had it s", 2},
                {"rate", "rate/s", 0},
                {"p50_ms", "p50 ms", 2},
                {"p99_ms", "p99 ms", 2},
                {"lost", "lost", 0}};
    }
    if (kind == "sessions") {
        return {{"open_s", "opened s", 2},
                {"session_kib", "KiB each", 1},
                {"client_percent", "client %", 1},
                {"server_percent", "server %", 1},
                {"client_us", "client us", 0},
                {"server_us", "server us", 0},
                {"lost", "lost", 0}};
    }
    if (kind == "million" || kind == "queue" || kind == "work-queue") {
        return {{"operations", "made", 0},
                {"first_rate", "first/s", 0},
                {"last_rate", "last/s", 0},
                {"p50_ms", "p50 ms", 2},
                {"p99_ms", "p99 ms", 2},
                {"client_us", "client us", 0},
                {"server_us", "server us", 0}};
    }
    if (kind == "names" || kind == "crowd") {
        return {{"queue_s", "queued s", 1},
                {"client_percent", "client %", 1},
                {"server_percent", "server %", 1},
                {"p50_ms", "p50 ms", 1},
                {"p99_ms", "p99 ms", 1},
                {"longest_ms", "longest ms", 0},
                {"unlock_ms", "unlock ms", 0},
                {"rate", "rate/s", 0},
                {"drain_s", "ended s", 1},
                {"client_us", "client us", 0},
                {"server_us", "server us", 0},
                {"missed", "missed", 0},
                {"failed", "failed", 0},
                {"lost", "lost", 0}};
    }
    if (kind == "flood") {
        return {{"all_s", "all s", 2},
                {"late_ms", "late ms", 0},
                {"rate", "events/s", 0},
                {"more_mib", "more MiB", 1},
                {"client_us", "client us", 1},
                {"server_us", "server us", 1}};
    }
    if (kind == "beside") {
        return {{"operations", "made", 0},
                {"p50_ms", "p50 ms", 2},
                {"p99_ms", "p99 ms", 2},
                {"longest_ms", "longest ms", 0},
                {"events", "events", 0},
                {"put_s", "put s", 2}};
    }
    if (kind == "watches") {
        return {{"open_s", "opened s", 2},
                {"watch_kib", "KiB each", 1},
                {"sockets", "sockets", 0},
                {"rate", "rate/s", 0},
                {"p50_ms", "p50 ms", 2},
                {"p99_ms", "p99 ms", 2},
                {"client_us", "client us", 0},
                {"server_us", "server us", 0}};
    }
    if (kind.starts_with("permits")) {
        return {{"rate", "rate/s", 0},
                {"idle_ms", "idle ms", 1},
                {"client_us", "client us", 0},
                {"server_us", "server us", 0}};
    }
    if (kind == "several") {
        return {{"operations", "made", 0}, {"p50_ms", "p50 ms", 2}, {"p99_ms", "p99 ms", 2}};
    }
    return {{"rate", "rate/s", 0},
            {"p50_ms", "p50 ms", 2},
            {"p99_ms", "p99 ms", 2},
            {"client_us", "client us", 0},
            {"server_us", "server us", 0}};
}

/// The heading of the table for a kind of case.
const char* legend_of(const std::string& kind) {
    if (kind == "waiters") {
        return "Waiters of one session for one name (Go: a session each): processor time while "
               "they wait, then the time until all had it";
    }
    if (kind == "sessions") {
        return "Idle sessions: processor time of all renewals, and of each";
    }
    if (kind == "million") {
        return "One name, locked again and again: its first and last acquisitions";
    }
    if (kind == "queue") {
        return "A queue that is full, and 8 consumers: the first and last tenth of its items";
    }
    if (kind == "work-queue") {
        return "A work queue that is full, and 8 consumers that take and acknowledge";
    }
    if (kind == "names" || kind == "crowd") {
        return "Hand-overs at scale, and the longest unlock; missed: waiters that never had it, "
               "failed: locks lost and calls failed, lost: sessions";
    }
    if (kind == "flood") {
        return "A watch of events that 64 connections make, 50 in a transaction, as fast as etcd "
               "takes them: time until the last one came, how long after the last transaction, "
               "and the most memory above that before; processor time for each";
    }
    if (kind == "beside") {
        return "A lock that two sessions of a client hand to each other, held for 5 ms, while "
               "etcd takes those events; its client watches them, or is alone";
    }
    if (kind == "watches") {
        return "Small watches; a key of one is put, and its watch tells, by 8 at a time";
    }
    if (kind == "several") {
        return "That many names, each of another client, are given back at once: the time until "
               "one "
               "that waits for all has them";
    }
    if (kind.starts_with("permits")) {
        return "Permits, each held for 20 ms: 16 among 24 clients, or 100 among 200 coroutines of "
               "a "
               "session; idle: between two holders";
    }
    if (kind.starts_with("puts")) {
        return "Keys put by that many coroutines, each its own; combined: they may share requests";
    }
    if (kind.starts_with("guarded")) {
        return "That many coroutines, each with a lock of its own: lock, write if it is held, "
               "unlock";
    }
    return "Lock and unlock by that many coroutines; hand-overs between that many processes. "
           "Processor time is per operation";
}

std::string fixed(double value, int digits) {
    std::ostringstream out;
    out << std::fixed << std::setprecision(digits) << value;
    return out.str();
}

bool is_from_3_6_on(const std::string& version) {
    int major = 0;
    int minor = 0;
    char point = 0;
    std::istringstream(version) >> major >> point >> minor;
    return major > 3 || (major == 3 && minor >= 6);
}

std::vector<double> all_of(const std::vector<sample>& rounds, const std::string& name) {
    std::vector<double> values;
    for (const sample& each : rounds) {
        const auto found = each.find(name);
        if (found != each.end()) {
            values.push_back(found->second);
        }
    }
    return values;
}

/// Collects the bounds of what was measured.
class bound_list {
public:
    explicit bound_list(const results& r)
        : results_(r) {}

    /// A number of coetcd's, as a multiple of another subject's.
    void multiple(const std::string& id,
                  const std::string& other,
                  const std::string& name,
                  const std::string& text,
                  double limit,
                  bool at_least = false) {
        const row* ours = results_.find(id, "coetcd");
        const row* theirs = results_.find(id, other);
        if (ours != nullptr && theirs != nullptr && theirs->median_of(name) > 0) {
            all_.push_back({ours->what.title + ": " + text + ", against " + other,
                            ours->median_of(name) / theirs->median_of(name),
                            limit,
                            at_least,
                            false});
        }
    }
    /// coetcd's rate, as a multiple of another subject's.
    void ratio(const std::string& id, const std::string& other, double limit) {
        multiple(id, other, "rate", "rate", limit, true);
    }
    /// A number of coetcd's own.
    void own(const std::string& id,
             const std::string& name,
             const std::string& text,
             double limit,
             bool at_least = false,
             double scale = 1) {
        const row* ours = results_.find(id, "coetcd");
        if (ours != nullptr && !ours->rounds.empty()) {
            const double value = ours->median_of(name) * scale;
            all_.push_back({ours->what.title + ": " + text, value, limit, at_least, false});
        }
    }
    /// What there must be none of, in any round.
    void none(const std::string& id, const std::string& name, const std::string& text) {
        const row* ours = results_.find(id, "coetcd");
        if (ours != nullptr && !ours->rounds.empty()) {
            all_.push_back({ours->what.title + ": " + text, ours->most(name), 0, false, true});
        }
    }

    std::vector<bound> take() { return std::move(all_); }

private:
    const results& results_;
    std::vector<bound> all_;
};

} // namespace

double row::median_of(const std::string& name) const {
    return median(all_of(rounds, name));
}

double row::most(const std::string& name) const {
    const std::vector<double> values = all_of(rounds, name);
    return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

const row* results::find(const std::string& id, const std::string& subject) const {
    const auto found = std::find_if(rows.begin(), rows.end(), [&](const row& r) {
        return r.what.id == id && r.subject == subject && !r.rounds.empty();
    });
    return found == rows.end() ? nullptr : &*found;
}

std::vector<bound> bounds_of(const results& r) {
    bound_list all(r);
    const double many = is_from_3_6_on(r.version) ? 2 : 1.5;
    for (const std::string where : {"disk-hand-over-", "far-10ms-hand-over-"}) {
        const bool is_far = where.starts_with("far");
        all.ratio(where + "8", "go", is_far ? 2.3 : 1.8);
        all.ratio(where + "32", "go", is_far ? 2.3 : 1.15);
    }
    const double way = 10; // ms, there and back
    for (const std::string owners : {"8", "32"}) {
        const std::string id = "hand-over-" + owners + "-held";
        all.multiple("disk-" + id, "go", "p50_ms", "median from leaving to taking", 1 / 1.7);
        all.own("far-10ms-" + id, "p50_ms", "median, against the way", 1.4, false, 1 / way);
    }
    all.own("far-10ms-several-8", "p50_ms", "median, against the way", 1.4, false, 1 / way);
    // A release, its event, and one request to be admitted, are two ways there and back.
    all.own("far-10ms-permits-clients-24", "idle_ms", "idle, against the way", 4, false, 1 / way);
    all.own("far-10ms-permits-session-200", "idle_ms", "idle, against the way", 8, false, 1 / way);
    all.ratio("far-20ms-uncontended-512", "go", 1.4);
    all.ratio("far-100ms-uncontended-512", "go", 1);
    all.ratio("far-100ms-uncontended-4096", "go", 1.7);
    all.ratio("disk-puts-512", "go", 0.4);
    all.ratio("far-20ms-puts-512", "go", 0.3);
    all.ratio("memory-puts-512", "go", 0.5);
    for (const std::string where : {"disk-", "far-20ms-", "memory-"}) {
        all.ratio(where + "puts-combined-512", "go", 1);
    }
    all.ratio("disk-guarded-combined-512", "go", 1.2);
    all.multiple("far-20ms-sessions-1000", "go", "open_s", "time to open them", 3);
    for (const std::string id : {"far-20ms-sessions-1000", "far-100ms-sessions-10000"}) {
        all.none(id, "lost", "sessions lost");
    }
    all.ratio("uncontended-64", "go", many);
    all.ratio("uncontended-512", "go", many);
    all.ratio("uncontended-8", "go", 1);
    all.ratio("uncontended-1", "raw", 0.95);
    all.ratio("one-name-32", "raw", 0.9);
    all.ratio("with-lock-1", "go", 1.1);
    all.ratio("retained-64", "go", 100);
    all.ratio("retained-alternating", "plain", 0.9);
    all.ratio("retained-mostly", "plain", 5);
    for (const std::string load : {"hand-over-", "hand-over-busy-"}) {
        all.ratio(load + "2", "go", 10);
        all.ratio(load + "8", "go", 4);
        all.ratio(load + "32", "go", 1.5);
    }
    for (const char* processes : {"2", "8", "32"}) {
        const std::string id = std::string("hand-over-") + processes;
        all.own(id, "client_us", "client's processor time, ms", 0.2, false, 1e-3);
    }
    all.own("waiters-10000", "waiter_kib", "memory each, KiB", 4);
    all.own("million", "last_to_first", "the last ones' rate, against the first ones'", 0.9, true);
    for (const std::string id : {"waiters-1000", "waiters-10000"}) {
        all.none(id, "lost", "locks lost and calls failed");
    }
    for (const std::string id : {"sessions-1", "sessions-1000", "sessions-10000"}) {
        all.none(id, "lost", "sessions lost");
    }
    for (const std::string id : {"names-0ms", "crowd-0ms", "names-20ms", "crowd-20ms"}) {
        all.none(id, "lost", "sessions lost");
        all.none(id, "failed", "locks lost and calls failed");
        all.none(id, "missed", "waiters that never had it");
        all.own(id, "longest_ms", "longest hand-over, s", 1, false, 1e-3);
        all.own(id, "unlock_ms", "longest unlock, s", 5, false, 1e-3); // client_options' default
    }
    for (const std::string id : {"names-0ms", "names-20ms"}) {
        all.own(id, "longest_at_once_ms", "longest of all at once, s", 1, false, 1e-3);
    }
    for (const std::string id : {"flood", "flood-stall"}) {
        all.multiple(id, "raw", "all_s", "time", id == "flood" ? 1.3 : 1.5);
        all.multiple(id, "raw", "server_us", "etcd's processor time", 1.2);
        all.own(id, "more_mib", "memory above that before, MiB", 16);
    }
    all.multiple("hand-over-flooded", "alone", "longest_ms", "longest", 3);
    all.multiple("hand-over-flooded", "alone", "operations", "number", 0.6, true);
    return all.take();
}

void print_table(const results& r) {
    constexpr int first = 38;
    constexpr int second = 8;
    constexpr int other = 14;
    std::string legend;
    std::ostream& out = std::cout;
    for (const row& each : r.rows) {
        const auto columns = columns_of(each.what.kind);
        if (legend_of(each.what.kind) != legend) {
            legend = legend_of(each.what.kind);
            out << '\n' << legend << ". etcd " << r.version << ":\n";
            out << std::left << std::setw(first) << "case" << std::setw(second) << "who"
                << std::right;
            for (const column& c : columns) {
                out << std::setw(other) << c.heading;
            }
            out << '\n';
        }
        out << std::left << std::setw(first) << each.what.title << std::setw(second) << each.subject
            << std::right;
        if (each.rounds.empty()) {
            out << "  " << each.remark << '\n';
            continue;
        }
        for (const column& c : columns) {
            const bool known = each.rounds.front().contains(c.name);
            out << std::setw(other) << (known ? fixed(each.median_of(c.name), c.digits) : "-");
        }
        out << '\n';
        if (!each.remark.empty()) {
            out << "    " << each.remark << '\n';
        }
    }
}

void print_bounds(const std::vector<bound>& all) {
    if (all.empty()) {
        return;
    }
    std::cout << "\nBounds:\n";
    for (const bound& b : all) {
        std::cout << (b.holds() ? "  holds   " : "  BROKEN  ") << std::left << std::setw(64)
                  << b.text << std::right << std::setw(10) << fixed(b.value, 2)
                  << (b.at_least ? "  at least " : "  at most ") << b.limit << '\n';
    }
}

json to_json(const results& r, const std::vector<bound>& all) {
    json object;
    object["etcd"] = r.version;
    json cases = json::array();
    for (const row& each : r.rows) {
        json entry;
        entry["case"] = each.what.id;
        entry["subject"] = each.subject;
        entry["rounds"] = each.rounds;
        if (!each.remark.empty()) {
            entry["remark"] = each.remark;
        }
        json medians = json::object();
        if (!each.rounds.empty()) {
            for (const auto& [name, value] : each.rounds.front()) {
                medians[name] = each.median_of(name);
            }
        }
        entry["median"] = std::move(medians);
        cases.push_back(std::move(entry));
    }
    object["cases"] = std::move(cases);
    json bounds = json::array();
    for (const bound& b : all) {
        json entry;
        entry["text"] = b.text;
        entry["value"] = b.value;
        entry[b.at_least ? "at_least" : "at_most"] = b.limit;
        entry["holds"] = b.holds();
        bounds.push_back(std::move(entry));
    }
    object["bounds"] = std::move(bounds);
    return object;
}

} // namespace bench
