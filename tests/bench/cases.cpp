// SPDX-License-Identifier: BSL-1.0
#include "bench/cases.hpp"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <stdexcept>
#include <utility>

#include "bench/measure.hpp"

namespace bench {
namespace {

using std::chrono::seconds;

const std::vector<std::string> everybody{"coetcd", "go", "redis"};
const std::vector<std::string> with_floor{"coetcd", "go", "redis", "raw"};

/// What is measured both with a disk and with a distance. `where` begins the names.
void add_to(std::vector<bench_case>& all,
            const bench_case& where,
            std::size_t owners,
            double hold) {
    bench_case c = where;
    const std::string held = hold != 0 ? "-held" : "";
    c.id += "-hand-over-" + std::to_string(owners) + held;
    c.title += ", hand-over, " + std::to_string(owners) + (hold != 0 ? ", held 20 ms" : "");
    c.kind = "hand-over";
    c.count = owners;
    c.hold = hold;
    all.push_back(c);
}
void add_to(std::vector<bench_case>& all,
            const bench_case& where,
            const std::string& kind,
            std::size_t count) {
    bench_case c = where;
    c.id += "-" + kind + "-" + std::to_string(count);
    c.title += ", " + kind + ", " + std::to_string(count);
    c.kind = kind;
    c.count = count;
    all.push_back(c);
}

/// What Go's client does not have.
void add_others(std::vector<bench_case>& all, bench_case where) {
    where.subjects = {"coetcd"};
    bench_case crowd = where;
    crowd.hold = 0.02;
    crowd.once = true;
    crowd.slice = 16;
    add_to(all, crowd, "permits-clients", 24);
    crowd.slice = 100;
    add_to(all, crowd, "permits-session", 200);
    for (const char* kind : {"hand-over-shared", "hand-over-permit", "several"}) {
        add_to(all, where, kind, 8);
    }
}

void add_pairs(std::vector<bench_case>& all, bool in_short) {
    const std::vector<std::size_t> counts =
        in_short ? std::vector<std::size_t>{1, 64} : std::vector<std::size_t>{1, 8, 64, 512};
    for (const std::size_t n : counts) {
        bench_case c;
        c.id = "uncontended-" + std::to_string(n);
        c.title = "uncontended, " + std::to_string(n);
        c.kind = "uncontended";
        c.subjects = n <= 8 ? with_floor : everybody;
        c.count = n;
        c.turns = in_short ? 2 : 3;
        c.seconds = in_short ? 0.4 : 0.8;
        all.push_back(c);
    }
    if (!in_short) {
        bench_case here;
        here.id = "memory";
        here.title = "memory";
        here.subjects = {"coetcd", "go"};
        here.seconds = 0.8;
        here.turns = 3;
        for (const char* kind : {"puts", "puts-combined"}) {
            add_to(all, here, kind, 512);
        }
        add_others(all, here);
    }
    bench_case c;
    c.id = "one-name-32";
    c.title = "one name, 32";
    c.kind = "one-name";
    c.subjects = with_floor;
    c.count = 32;
    c.turns = in_short ? 2 : 3;
    c.seconds = in_short ? 0.4 : 0.8;
    all.push_back(c);
}

/// Locks that their session takes again and again.
void add_again(std::vector<bench_case>& all, bool in_short) {
    bench_case c;
    c.seconds = in_short ? 0.4 : 0.8;
    c.turns = in_short ? 2 : 3;
    c.kind = "with-lock";
    c.subjects = {"coetcd", "go"};
    for (const std::size_t coroutines : {1U, 8U}) {
        c.id = "with-lock-" + std::to_string(coroutines);
        c.title = "with_lock, " + std::to_string(coroutines);
        c.count = coroutines;
        all.push_back(c);
    }
    c.kind = "in-turn";
    c.id = "retained-64";
    c.title = "64 names in turn, retained";
    c.count = 64;
    all.push_back(c);
    c.subjects = {"coetcd", "plain"};
    c.count = 1;
    c.slice = 2;
    c.id = "retained-alternating";
    c.title = "2 clients in turn, retained";
    all.push_back(c);
    c.slice = 10;
    c.id = "retained-mostly";
    c.title = "9 of 10 by one client, retained";
    all.push_back(c);
}

void add_hand_overs(std::vector<bench_case>& all, bool in_short) {
    const std::vector<std::size_t> counts =
        in_short ? std::vector<std::size_t>{8} : std::vector<std::size_t>{2, 8, 32};
    for (const std::size_t writes : {0U, 500U}) {
        for (const std::size_t n : counts) {
            if (in_short && writes != 0) {
                continue;
            }
            bench_case c;
            c.id = (writes != 0 ? "hand-over-busy-" : "hand-over-") + std::to_string(n);
            c.title = "hand-over, " + std::to_string(n) + (writes != 0 ? ", 500 writes/s" : "");
            c.kind = "hand-over";
            c.subjects = everybody;
            if (writes != 0) {
                c.subjects.pop_back(); // they go to etcd
            }
            c.count = n;
            c.writes = writes;
            c.seconds = in_short ? 1 : 3;
            all.push_back(c);
        }
    }
}

/// etcd's log on a disk that takes 2 ms for each write.
void add_disks(std::vector<bench_case>& all, bool in_short) {
    bench_case disk;
    disk.id = "disk";
    disk.title = "disk 2 ms";
    disk.subjects = {"coetcd", "go"};
    disk.fsync_ms = 2;
    disk.seconds = in_short ? 1 : 3;
    add_to(all, disk, 8, 0);
    if (in_short) {
        return;
    }
    add_to(all, disk, 32, 0);
    add_to(all, disk, 8, 0.02);
    add_to(all, disk, 32, 0.02);
    for (const std::size_t coroutines : {1U, 64U, 512U}) {
        add_to(all, disk, "uncontended", coroutines);
    }
    for (const char* kind : {"puts", "puts-combined", "guarded-combined"}) {
        add_to(all, disk, kind, 512);
    }
    add_others(all, disk);
}

/// etcd at the other end of a long cable.
void add_distances(std::vector<bench_case>& all, bool in_short) {
    bench_case far;
    far.subjects = {"coetcd", "go"};
    far.seconds = in_short ? 1 : 3;
    far.limit = 60;
    const auto at = [&](int ms) -> const bench_case& {
        far.id = "far-" + std::to_string(ms) + "ms";
        far.title = std::to_string(ms) + " ms away";
        far.delay_ms = ms;
        return far;
    };
    add_to(all, at(10), 8, 0);
    if (!in_short) {
        add_to(all, at(10), 32, 0);
        add_to(all, at(10), 8, 0.02);
        add_to(all, at(10), 32, 0.02);
        for (const std::size_t coroutines : {1U, 64U}) {
            add_to(all, at(20), "uncontended", coroutines);
        }
    }
    add_to(all, at(20), "uncontended", 512);
    if (!in_short) {
        add_others(all, at(10));
        for (const char* kind : {"puts", "puts-combined"}) {
            add_to(all, at(20), kind, 512);
        }
        bench_case opening = at(20);
        opening.ttl = 30;
        opening.slice = 1000;
        add_to(all, opening, "sessions", 1000);
        for (const std::size_t coroutines : {512U, 4096U}) {
            add_to(all, at(100), "uncontended", coroutines);
        }
        opening = at(100);
        opening.subjects = {"coetcd"};
        opening.ttl = 10;
        opening.slice = 10000;
        opening.seconds = 10;
        opening.once = true;
        add_to(all, opening, "sessions", 10000);
    }
}

/// Three members, each with a disk of its own, at some distance.
void add_cluster(std::vector<bench_case>& all, bool in_short) {
    if (in_short) {
        return;
    }
    bench_case cluster;
    cluster.id = "cluster";
    cluster.title = "3 slow members";
    cluster.subjects = {"coetcd", "go"};
    cluster.members = 3;
    cluster.fsync_ms = 2;
    cluster.delay_ms = 10;
    cluster.seconds = 3;
    add_to(all, cluster, 8, 0);
    for (const std::size_t coroutines : {1U, 64U, 512U}) {
        add_to(all, cluster, "uncontended", coroutines);
    }
}

void add_scale(std::vector<bench_case>& all, bool in_short) {
    for (const std::size_t n : {1000U, 10000U}) {
        if (in_short && n != 1000) {
            continue;
        }
        bench_case c;
        c.id = "waiters-" + std::to_string(n);
        c.title = std::to_string(n) + " waiters";
        c.kind = "waiters";
        c.subjects = n == 1000 && !in_short ? everybody : std::vector<std::string>{"coetcd"};
        c.count = n;
        c.ttl = 30;
        c.seconds = in_short ? 1 : 5;
        all.push_back(c);
    }
    for (const std::size_t n : {1U, 1000U, 10000U}) {
        if (in_short && n != 1000) {
            continue;
        }
        bench_case c;
        c.id = "sessions-" + std::to_string(n);
        c.title = std::to_string(n) + (n == 1 ? " session" : " sessions");
        c.kind = "sessions";
        c.subjects = in_short ? std::vector<std::string>{"coetcd"}
                              : std::vector<std::string>{"coetcd", "go"};
        c.count = n;
        c.ttl = in_short ? 9 : 30;
        c.seconds = in_short ? 3 : 10; // each is renewed once
        all.push_back(c);
    }
    bench_case million;
    million.id = "million";
    million.title = in_short ? "20,000 acquisitions" : "1,000,000 acquisitions";
    million.kind = "million";
    million.subjects = {"coetcd"};
    million.count = in_short ? 20000 : 1000000;
    million.slice = in_short ? 2000 : 10000;
    million.seconds = in_short ? 15 : 900;
    million.once = true;
    all.push_back(million);
    if (in_short) {
        return;
    }
    for (const int delay : {0, 20}) {
        bench_case names;
        names.id = "names-" + std::to_string(delay) + "ms";
        names.title = "10,000 names of one session, " + std::to_string(delay) + " ms";
        names.kind = "names";
        names.subjects = {"coetcd"};
        names.count = 10000;
        names.slice = 200;
        names.delay_ms = delay;
        names.seconds = 20;
        names.once = true;
        bench_case crowd = names;
        crowd.id = "crowd-" + std::to_string(delay) + "ms";
        crowd.title = "5,000 sessions on one name, " + std::to_string(delay) + " ms";
        crowd.kind = "crowd";
        crowd.count = 5000;
        crowd.ttl = 60;
        crowd.seconds = 30;
        crowd.limit = 120 + 12 * delay; // each hand-over takes two round trips
        all.push_back(names);
        all.push_back(crowd);
    }
}

void add_queues(std::vector<bench_case>& all, bool in_short) {
    bench_case c;
    c.ttl = 60;
    const auto add = [&](const char* kind, std::size_t items, std::vector<std::string> subjects) {
        c.kind = kind;
        c.id = c.kind + "-" + std::to_string(items);
        c.title = c.kind + ", " + std::to_string(items) + " items";
        c.subjects = std::move(subjects);
        c.count = items;
        c.slice = items / 10;
        all.push_back(c);
    };
    c.seconds = in_short ? 2 : 10;
    c.once = in_short;
    add("queue", 1000, {"coetcd", "go"});
    add("work-queue", 1000, {"coetcd"});
    if (!in_short) {
        add("queue", 10000, {"coetcd", "go"});
        c.seconds = 300;
        c.limit = 300;
        c.once = true;
        add("queue", 100000, {"coetcd"});
        add("work-queue", 100000, {"coetcd"});
    }
}

void add_watches(std::vector<bench_case>& all, bool in_short) {
    bench_case flood;
    flood.kind = "flood";
    flood.count = in_short ? 64000 : 192000;
    flood.subjects = {"coetcd", "go", "raw"};
    const std::string events = in_short ? "64,000 events" : "192,000 events";
    if (in_short) {
        flood.subjects = {"coetcd", "raw"};
    } else {
        flood.id = "flood";
        flood.title = events + ", reader keeps up";
        all.push_back(flood);
    }
    flood.id = "flood-stall";
    flood.stall = in_short ? 2 : 4;
    flood.title = events + ", reader stalls " + (in_short ? "2 s" : "4 s");
    all.push_back(flood);

    if (!in_short) {
        bench_case locks;
        locks.id = "hand-over-flooded";
        locks.title = "hand-over beside 96,000 events";
        locks.kind = "beside";
        locks.subjects = {"coetcd", "alone"};
        locks.count = 96000;
        locks.seconds = 8;
        locks.ttl = 60;
        all.push_back(locks);
    }

    bench_case small;
    small.id = "watches-1000";
    small.title = "1,000 watches of a key each";
    small.kind = "watches";
    small.subjects =
        in_short ? std::vector<std::string>{"coetcd"} : std::vector<std::string>{"coetcd", "go"};
    small.count = 1000;
    small.seconds = in_short ? 0.4 : 2;
    all.push_back(small);
}

json task_of(const bench_case& c, const std::string& subject, servers& with, int number) {
    json task;
    task["case"] = c.kind;
    task["subject"] = subject;
    task["count"] = c.count;
    task["seconds"] = c.seconds;
    task["limit"] = c.limit;
    task["slice"] = c.slice;
    task["ttl"] = c.ttl;
    task["hold"] = c.hold;
    task["stall"] = c.stall;
    task["name"] = "bench/" + c.id + "/" + std::to_string(number);
    if (subject == "redis") {
        task["url"] = std::to_string(with.redis().port());
        task["server"] = with.redis().pid();
    } else {
        task["url"] = with.urls(std::chrono::milliseconds(c.delay_ms));
        task["direct"] = with.etcd_url();
        task["server"] = with.etcd_pid();
    }
    return task;
}

seconds patience(const bench_case& c) {
    return seconds(static_cast<long>(c.seconds + 3 * c.limit) + 60);
}

sample numbers_of(const json& result) {
    sample s;
    for (const auto& [name, value] : result.items()) {
        if (value.is_number()) {
            s[name] = value.get<double>();
        }
    }
    return s;
}

struct ownership {
    std::int64_t taken;
    std::int64_t left;
    std::size_t owner;
};

/// Merges the reports of all owners. Only a change of the owner is a hand-over.
/// @throws std::runtime_error if two had the lock at once.
sample evaluate(std::vector<ownership> all, double length) {
    std::sort(all.begin(), all.end(), [](const ownership& a, const ownership& b) {
        return a.taken < b.taken;
    });
    durations each;
    double changes = 0;
    double in_time = 0;
    for (std::size_t i = 1; i < all.size(); ++i) {
        const ownership& before = all[i - 1];
        if (all[i].taken < before.left) {
            throw std::runtime_error("two processes had the lock at once");
        }
        if (all[i].owner != before.owner) {
            ++changes;
            in_time += static_cast<double>(all[i].taken - all.front().taken) < length * 1e6;
            each.add(std::chrono::microseconds(all[i].taken - before.left));
        }
    }
    sample result;
    result["operations"] = changes;
    result["rate"] = in_time / length;
    result["p50_ms"] = each.milliseconds_at(0.5);
    result["p99_ms"] = each.milliseconds_at(0.99);
    return result;
}

/// Lets several processes hand a lock to each other.
sample run_hand_over(const bench_case& c, const programs& all, servers& with, json task) {
    start_gate gate;
    task["gate"] = gate.path();
    std::deque<worker_process> workers;
    for (std::size_t i = 0; i < c.count; ++i) {
        workers.emplace_back(all, task);
    }
    for (worker_process& w : workers) {
        (void)w.next(patience(c));
    }
    if (c.writes != 0) {
        with.start_writes(c.writes);
    }
    const stretch measured(task.at("server"));
    gate.open();
    std::vector<ownership> ownerships;
    double client_cpu = 0;
    double server_cpu = 0;
    for (std::size_t i = 0; i < workers.size(); ++i) {
        const json result = workers[i].next(patience(c));
        client_cpu += result.at("cpu").get<double>();
        for (const json& each : result.at("ownerships")) {
            ownerships.push_back({each.at(0), each.at(1), i});
        }
        server_cpu = measured.server_cpu();
    }
    with.stop_writes();
    sample s = evaluate(std::move(ownerships), c.seconds);
    const double changes = std::max(s["operations"], 1.0);
    s["client_us"] = client_cpu * 1e6 / changes;
    s["server_us"] = server_cpu * 1e6 / changes;
    return s;
}

/// Measures a subject while another process makes events, once the subject is ready.
sample run_flooded(const bench_case& c, const programs& all, json task) {
    start_gate gate;
    task["gate"] = gate.path();
    worker_process subject(all, task);
    task["subject"] = "flood";
    worker_process flood(all, task);
    (void)subject.next(patience(c));
    (void)flood.next(patience(c));
    const stretch measured(task.at("server"));
    const auto began = static_cast<double>(microseconds(clock::now()));
    gate.open();
    const json result = subject.next(patience(c));
    const double server_cpu = measured.server_cpu();
    const json made = flood.next(patience(c));
    sample s = numbers_of(result);
    s["put_s"] = made.at("put_s");
    if (c.kind != "flood") {
        return s;
    }
    if (result.contains("revision") && result.at("revision") != made.at("revision")) {
        throw std::runtime_error("that many events, and not the last one: some came twice");
    }
    const auto events = static_cast<double>(c.count);
    const double ended = s.at("ended");
    s["all_s"] = (ended - began) * 1e-6;
    s["late_ms"] = (ended - made.at("ended").get<double>()) * 1e-3;
    s["rate"] = events / s["all_s"];
    s["client_us"] = s.at("cpu") * 1e6 / events;
    s["server_us"] = server_cpu * 1e6 / events;
    s.erase("ended");
    s.erase("revision");
    return s;
}

} // namespace

std::vector<bench_case> all_cases(bool in_short) {
    std::vector<bench_case> all;
    add_disks(all, in_short);
    add_distances(all, in_short);
    add_cluster(all, in_short);
    add_pairs(all, in_short);
    add_again(all, in_short);
    add_hand_overs(all, in_short);
    add_scale(all, in_short);
    add_queues(all, in_short);
    add_watches(all, in_short);
    return all;
}

sample run_case(const bench_case& c,
                const std::string& subject,
                const programs& all,
                servers& with,
                int number,
                std::string& remark) {
    const json task = task_of(c, subject, with, number);
    if (c.kind.starts_with("hand-over")) {
        return run_hand_over(c, all, with, task);
    }
    if (c.kind == "flood" || c.kind == "beside") {
        return run_flooded(c, all, task);
    }
    worker_process worker(all, task);
    const json result = worker.next(patience(c));
    remark = result.value("failure", "");
    return numbers_of(result);
}

} // namespace bench
