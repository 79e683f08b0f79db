// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/detail/wire/base64.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <netdb.h>
#include <signal.h>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "harness.hpp"
#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/etcd_tools.hpp"
#include "support/network.hpp"

using namespace std::chrono_literals;
using namespace faults;
using support::etcd_cluster;
using support::tcp_proxy;
using support::toxics;

// Each fault, and what becomes of each operation under it. Letters: see `faults::ended`.
// An etcd that changes its leader, or stands still, may end leases early: a legal outcome.

namespace {

using counters = tcp_proxy::counters;

/// @param cells In order of the operations; that of `with_lock` is that of `campaign`, too.
fault fault_of(const std::string& name, std::vector<cell> cells, role victim = role::leader) {
    fault f;
    f.name = name;
    f.cells = std::move(cells);
    constexpr auto campaign = static_cast<std::ptrdiff_t>(operation::campaign);
    const cell as_with_lock = f.cells.at(static_cast<std::size_t>(operation::with_lock));
    f.cells.insert(f.cells.begin() + campaign, as_with_lock);
    f.victim = victim;
    return f;
}

/// All members, from all clients.
void cut_clients(etcd_cluster& etcd) {
    for (std::size_t i = 0; i < 3; ++i) {
        etcd.cut_client(i);
    }
}

/// Something happens to the member that all use, and is made good again.
void strike_member(const fault& f,
                   std::chrono::milliseconds time,
                   std::function<void(etcd_cluster&, std::size_t)> begin,
                   std::function<void(arena&)> bites,
                   std::function<void(etcd_cluster&, std::size_t)> end) {
    const auto body = [&](arena& a) -> awaitable<void> {
        const std::function<void()> strike = [&] { begin(a.etcd, a.victim); };
        const std::function<void()> check = [&] { bites(a); };
        const std::function<void()> undo = [&] {
            end(a.etcd, a.victim);
            a.etcd.wait_healthy();
        };
        a.strike();
        co_await a.blocking(strike);
        co_await a.last(time);
        co_await a.blocking(check);
        co_await a.blocking(undo);
        a.heal();
    };
    run_fault(f, body);
}

void is_out(arena& a) {
    a.expect(!a.etcd.healthy(a.victim), "the member is out of service");
}

void is_deposed(arena& a) {
    is_out(a);
    a.expect(a.etcd.leader_after(a.victim) != a.victim, "another one leads");
}

void has_dropped(arena& a) {
    a.expect(a.etcd.dropped(a.victim) > 0, "packets were dropped");
}

// The outcomes that most faults have in common.
constexpr auto quick = 6000ms;
// A stream that is silent is given up after ten seconds, unless etcd is busy answering.
constexpr auto silence = 13s;

std::vector<cell> ridden_out() {
    return {cell("O", "O", quick),
            cell("OS", "O"),
            cell("O", "O"),
            cell("OF", "O", quick),
            cell("O", "O", quick),
            cell("O", "O"),
            cell("O", "O")};
}

std::vector<cell> ridden_out_or_lease_lost() {
    return {cell("O", "O", quick),
            cell("OSL", "O"),
            cell("OL", "O"),
            cell("OFTL", "O", quick),
            cell("ONTL", "O", quick),
            cell("OL", "O"),
            cell("O", "O")};
}

// How long the longest attempt took that ended since then, in ms.
double longest(const arena& a, operation what, clock::time_point since) {
    double ms = 0;
    for (const attempt& each : a.tells.attempts) {
        if (each.what == what && each.over >= since) {
            ms = std::max(ms, support::ms_between(each.began, each.over));
        }
    }
    return ms;
}

} // namespace

// The members

TEST_CASE("leader killed", "[faults][short]") {
    strike_member(fault_of("leader killed", ridden_out_or_lease_lost()),
                  4s,
                  &etcd_cluster::kill,
                  is_deposed,
                  &etcd_cluster::start);
}

TEST_CASE("follower killed", "[faults]") {
    strike_member(fault_of("follower killed", ridden_out(), role::follower),
                  3s,
                  &etcd_cluster::kill,
                  is_out,
                  &etcd_cluster::start);
}

TEST_CASE("leader stopped", "[faults]") {
    auto f = fault_of("leader stopped", ridden_out_or_lease_lost());
    f.cells.back().bound = silence;
    strike_member(f, 8s, &etcd_cluster::pause, is_deposed, &etcd_cluster::resume);
}

TEST_CASE("follower stopped", "[faults]") {
    auto f = fault_of("follower stopped", ridden_out(), role::follower);
    f.cells.back().bound = silence;
    strike_member(f, 15s, &etcd_cluster::pause, is_out, &etcd_cluster::resume);
}

TEST_CASE("rolling restart", "[faults]") {
    const auto body = [](arena& a) -> awaitable<void> {
        a.strike();
        for (std::size_t i = 0; i < 3; ++i) {
            const auto before = a.etcd.pid(i);
            const std::function<void()> restart = [&] {
                a.etcd.stop(i);
                a.etcd.start(i);
                a.etcd.wait_healthy();
            };
            co_await a.blocking(restart);
            a.expect(a.etcd.pid(i) != before, "the member is another process");
            co_await a.last(500ms);
        }
        a.heal();
    };
    run_fault(fault_of("rolling restart", ridden_out_or_lease_lost()), body);
}

TEST_CASE("member replaced", "[faults]") {
    auto f = fault_of("member replaced", ridden_out(), role::follower);
    f.fresh_cluster = true;
    f.held = true;
    const auto body = [](arena& a) -> awaitable<void> {
        const auto leader = a.etcd.leader();
        const auto ask = [&](const std::string& what, const nlohmann::json& of) {
            return nlohmann::json::parse(
                a.etcd.post(leader, "/v3/cluster/member/" + what, of.dump()), nullptr, false);
        };
        a.strike();
        std::size_t added = 0;
        const std::function<void()> add = [&] { added = a.etcd.add_learner(); };
        co_await a.blocking(add);
        a.expect(added == 3 && a.etcd.healthy(added), "there is another member");
        nlohmann::json learner;
        const auto list = ask("list", nlohmann::json::object());
        for (const auto& m : list.at("members")) {
            if (m.value("isLearner", false)) {
                learner["ID"] = m.at("ID");
            }
        }
        std::string answer;
        const auto promoted = [&]() -> awaitable<bool> {
            const auto r = ask("promote", learner);
            answer = r.dump();
            co_return r.contains("members");
        };
        try {
            co_await support::eventually(promoted, 10s, "promotion");
        } catch (const std::runtime_error&) {
            a.expect(false, "the new member votes: " + answer);
        }
        const std::function<void()> remove = [&] { a.etcd.remove(a.victim); };
        co_await a.blocking(remove);
        a.expect(!a.etcd.healthy(a.victim), "the old member is gone");
        co_await a.last(3s);
        a.heal();
    };
    run_fault(f, body);
}

namespace {

// Has a member write all of its database anew. @returns How long that took.
std::chrono::milliseconds defragment(const etcd_cluster& etcd, std::size_t i) {
    const auto began = clock::now();
    support::run_script("ETCDCTL_API=3 " + support::etcdctl_program() +
                        " --command-timeout=30s --endpoints " + etcd.url(i) + " defrag");
    return std::chrono::ceil<std::chrono::milliseconds>(clock::now() - began);
}

// Stores so much that this takes some time, on whatever machine.
void grow(etcd_cluster& etcd) {
    constexpr auto visible = 1500ms;
    constexpr int most = 1500; // etcd takes up to 2 GB
    const std::string million(1333336, 'A');
    for (int i = 0; i < most; ++i) {
        if (i % 50 == 0 && defragment(etcd, 0) > visible) {
            return;
        }
        std::string key;
        coetcd::detail::wire::append_base64(key, "large/" + std::to_string(i));
        etcd.post(0, "/v3/kv/put", nlohmann::json{{"key", key}, {"value", million}}.dump());
    }
    throw std::runtime_error("a defragmentation takes no time");
}

void strike_by_defragmentation(fault f) {
    f.prepare = grow;
    f.held = true;
    const auto body = [&f](arena& a) -> awaitable<void> {
        std::chrono::milliseconds took{};
        const std::function<void()> write_anew = [&] { took = defragment(a.etcd, a.victim); };
        a.strike();
        co_await a.blocking(write_anew);
        std::cout << f.name << ": " << took.count() << " ms" << std::endl;
        if (f.victim == role::leader) { // etcd renews nothing meanwhile
            for (cell& c : f.cells) {
                c.allowed += took * 2 > f.work.ttl ? "LNTA" : "";
                c.bound += took;
            }
            f.held = took * 2 < long_ttl;
        }
        a.expect(took > 300ms, "that takes some time");
        const auto stood_still = [&]() -> awaitable<bool> {
            double most = 0;
            for (std::size_t i = 0; i < operations; ++i) {
                most = std::max(most, longest(a, static_cast<operation>(i), a.struck()));
            }
            co_return most * 2 > double(took.count());
        };
        co_await support::eventually(stood_still, silence, "calls stood still meanwhile");
        for (std::size_t i = 0; i < operations; ++i) {
            co_await a.until(static_cast<operation>(i), "O", silence);
        }
        a.heal();
    };
    run_fault(f, body);
}

} // namespace

TEST_CASE("members defragmented", "[faults]") {
    auto f = fault_of("leader defragmented", ridden_out());
    drop_shared_cluster();
    strike_by_defragmentation(f);
    f.name = "follower defragmented";
    f.victim = role::follower;
    f.cells.back().bound = silence;
    strike_by_defragmentation(f);
    drop_shared_cluster(); // it is large
}

// The versions

namespace {

// Restarts each member as an etcd of another version, while the others serve.
awaitable<void> roll(arena& a, std::string minor) {
    const auto began = clock::now();
    const auto before = static_cast<std::ptrdiff_t>(a.tells.writes.size());
    const auto program = support::etcd_of(minor);
    for (std::size_t i = 0; i < 3; ++i) {
        const std::function<void()> restart = [&] {
            a.etcd.stop(i);
            a.etcd.replace_program(i, program);
            a.etcd.start(i);
            a.etcd.wait_healthy();
            a.expect(a.etcd.version(i).starts_with(minor), "the member is etcd " + minor);
        };
        co_await a.blocking(restart);
    }
    const std::function<void()> agree = [&] { a.etcd.wait_version(minor); };
    co_await a.blocking(agree);
    std::cout << "etcd " << a.etcd.version(0) << " after "
              << std::llround(support::ms_between(began, clock::now())) << " ms; the longest:";
    for (std::size_t i = 0; i < operations; ++i) {
        const auto what = static_cast<operation>(i);
        std::cout << ' ' << to_string(what) << ' ' << std::llround(longest(a, what, began));
    }
    const auto doubtful = [](const written& w) { return w.outcome == ended::unknown; };
    std::cout << "; writes in doubt: "
              << std::count_if(a.tells.writes.begin() + before, a.tells.writes.end(), doubtful)
              << std::endl;
}

// A row that says so if an etcd of one of these versions is not here.
bool are_here(const std::string& name, const std::vector<std::string>& minors) {
    for (const auto& minor : minors) {
        if (support::etcd_of(minor).empty()) {
            add_row(name, "skipped: no etcd " + minor + "; tests/run versions builds it");
            return false;
        }
    }
    return true;
}

fault change_of_versions(const std::string& name, const std::string& first) {
    auto f = fault_of(name, ridden_out());
    f.strikes_all = true;
    f.held = true;
    f.fresh_cluster = true;
    f.program = support::etcd_of(first);
    // As if it had been at work for long. An etcd ends at what older versions may leave in the log,
    // and a 3.5 that finds its members nowhere but there has 3.6 take them for removed ones.
    f.extra_arguments = {"--snapshot-count=100"};
    return f;
}

} // namespace

TEST_CASE("rolling upgrade", "[faults]") {
    if (!are_here("rolling upgrade", {"3.4", "3.5", "3.6", "3.7"})) {
        return;
    }
    const auto body = [](arena& a) -> awaitable<void> {
        a.strike();
        for (const std::string minor : {"3.5", "3.6", "3.7"}) {
            const std::function<void()> store = [&] { a.etcd.wait_snapshots(); };
            co_await a.blocking(store);
            co_await roll(a, minor);
        }
        a.heal();
    };
    run_fault(change_of_versions("rolling upgrade", "3.4"), body);
}

TEST_CASE("downgrade", "[faults]") {
    if (!are_here("downgrade", {"3.5", "3.6", "3.7"})) {
        return;
    }
    const auto body = [](arena& a) -> awaitable<void> {
        a.strike();
        for (const std::string minor : {"3.6", "3.5"}) {
            const std::function<void()> enable = [&] { a.etcd.downgrade(minor); };
            co_await a.blocking(enable);
            co_await roll(a, minor);
        }
        a.heal();
    };
    run_fault(change_of_versions("downgrade", "3.7"), body);
}

TEST_CASE("snapshot restored", "[faults]") {
    auto f = fault_of("snapshot restored",
                      {cell("OTAX", "O"),
                       cell("OSL", "L"),
                       cell("OLK"),
                       cell("OFTALX", "O"),
                       cell("ONTL", "O"),
                       cell("OLK"),
                       cell("OWV", "")});
    f.fresh_cluster = true;
    f.history = false; // that is the fault
    const auto file =
        std::filesystem::temp_directory_path() / support::unique_name("coetcd-snapshot");
    f.prepare = [&](etcd_cluster& etcd) {
        support::run_script("ETCDCTL_API=3 " + support::etcdctl_program() + " --endpoints " +
                            etcd.url(0) + " snapshot save " + file.string());
    };
    const auto body = [&](arena& a) -> awaitable<void> {
        co_await a.last(2s);
        const auto before = co_await a.clean.put(a.prefix + "w/before", "");
        a.strike();
        const std::function<void()> restore = [&] {
            a.etcd.restore(file);
            a.etcd.wait_healthy();
        };
        co_await a.blocking(restore);
        const auto after = co_await a.clean.put(a.prefix + "w/after", "");
        a.expect(after.header.revision < before.header.revision, "the revision has fallen");
        for (const operation each :
             {operation::keepalive, operation::try_lock, operation::unlock}) {
            co_await a.until(each, "O", 10s);
        }
        a.heal();
    };
    run_fault(f, body);
    std::filesystem::remove(file);
}

TEST_CASE("no space", "[faults][short]") {
    auto f = fault_of("no space",
                      {cell("OX", "X"),
                       cell("O"),
                       cell("OXL", "X"),
                       cell("OFXL", "X"),
                       cell("O", "O"),
                       cell("OXL", "X"),
                       cell("O")});
    const auto body = [](arena& a) -> awaitable<void> {
        const auto s = co_await support::open_session(a.clean, 5s);
        coetcd::mutex m(s, a.prefix + "l/held");
        co_await m.lock();
        nlohmann::json alarm{{"action", "ACTIVATE"}, {"memberID", 1}, {"alarm", "NOSPACE"}};
        const std::string path = "/v3/maintenance/alarm";
        a.strike();
        a.etcd.post(a.victim, path, alarm.dump());
        co_await a.last(4s);
        bool refused = false;
        try {
            (void)co_await a.clean.put(a.prefix + "w/more", "");
        } catch (const coetcd::error& e) {
            refused = e.code() == coetcd::server_errc::resource_exhausted;
        }
        a.expect(refused, "etcd refuses to store anything");
        const bool ours = co_await m.unlock();
        a.expect(ours, "a lock can be given back without space");
        alarm["action"] = "DEACTIVATE";
        a.etcd.post(a.victim, path, alarm.dump());
        const std::function<void()> healthy = [&] { a.etcd.wait_healthy(); };
        co_await a.blocking(healthy);
        a.heal();
    };
    run_fault(f, body);
}

// The network

TEST_CASE("clients cut off briefly", "[faults]") {
    const auto f = fault_of("clients cut off briefly",
                            {cell("OT", "O"),
                             cell("OS", "O"),
                             cell("O", "O"),
                             cell("OFT", "O"),
                             cell("OT", "O"),
                             cell("O", "O"),
                             cell("O", "O")});
    const auto body = [](arena& a) -> awaitable<void> {
        a.strike();
        cut_clients(a.etcd);
        co_await a.last(1500ms);
        has_dropped(a);
        a.etcd.heal();
        for (std::size_t i = 0; i < operations; ++i) {
            co_await a.until(static_cast<operation>(i), "O", 5s);
        }
        a.heal();
    };
    run_fault(f, body);
}

TEST_CASE("leader killed beside a flooded watch", "[faults]") {
    fault f = fault_of("leader killed beside a flooded watch", ridden_out_or_lease_lost());
    f.work.flooded = true;
    strike_member(f, 4s, &etcd_cluster::kill, is_deposed, &etcd_cluster::start);
}

TEST_CASE("leader isolated beside a flooded watch", "[faults]") {
    fault f = fault_of("leader isolated beside a flooded watch", ridden_out_or_lease_lost());
    f.work.flooded = true;
    strike_member(
        f, 6s, &etcd_cluster::isolate, is_deposed, [](etcd_cluster& c, std::size_t) { c.heal(); });
}

TEST_CASE("clients cut off for long", "[faults][short]") {
    const auto f = fault_of("clients cut off for long",
                            {cell("OTA"),
                             cell("OS", "L"),
                             cell("O", "L"),
                             cell("OFTAL"),
                             cell("ONTAL"),
                             cell("O", "L"),
                             cell("O", "", 15s)});
    const auto body = [](arena& a) -> awaitable<void> {
        a.strike();
        cut_clients(a.etcd);
        co_await a.last(9s);
        has_dropped(a);
        a.etcd.heal();
        a.heal();
    };
    run_fault(f, body);
}

TEST_CASE("leader isolated", "[faults]") {
    strike_member(
        fault_of("leader isolated", ridden_out_or_lease_lost()),
        8s,
        &etcd_cluster::isolate,
        [](arena& a) {
            is_deposed(a);
            has_dropped(a);
        },
        [](etcd_cluster& etcd, std::size_t) { etcd.heal(); });
}

TEST_CASE("follower isolated", "[faults][short]") {
    strike_member(
        fault_of("follower isolated", ridden_out(), role::follower),
        6s,
        &etcd_cluster::isolate,
        [](arena& a) {
            is_out(a);
            has_dropped(a);
        },
        [](etcd_cluster& etcd, std::size_t) { etcd.heal(); });
}

TEST_CASE("answers lost", "[faults]") {
    strike_member(fault_of("answers lost", ridden_out()),
                  6s,
                  &etcd_cluster::cut_client_answers,
                  has_dropped,
                  [](etcd_cluster& etcd, std::size_t) { etcd.heal(); });
}

TEST_CASE("slow link", "[faults]") {
    auto f = fault_of("slow link",
                      {cell("OTA", "", 30s),
                       cell("OSL", "", 30s),
                       cell("OTL", "", 60s),
                       cell("OFTAL", "", 30s),
                       cell("ONTAL", "", 30s),
                       cell("OTL", "", 60s),
                       cell("O", "", 60s)});
    f.proxied = true;
    f.recovery = 20s;
    const auto body = [](arena& a) -> awaitable<void> {
        toxics slow;
        slow.latency = 1s;
        slow.bytes_per_second = 8000;
        a.strike();
        a.requests(slow);
        a.answers(slow);
        co_await a.last(12s);
        a.expect(a.count(&counters::delayed) > 1000, "bytes were late");
        a.answers({});
        a.requests({});
        a.heal();
    };
    run_fault(f, body);
}

TEST_CASE("sluggish link", "[faults]") {
    auto f = fault_of("sluggish link", ridden_out());
    f.proxied = true;
    for (cell& c : f.cells) {
        c.allowed = "OF";
    }
    const auto body = [](arena& a) -> awaitable<void> {
        toxics slow;
        slow.latency = 100ms;
        slow.jitter = 50ms;
        slow.slice = 7;
        slow.bytes_per_second = 64000;
        a.strike();
        a.requests(slow);
        a.answers(slow);
        co_await a.last(5s);
        a.expect(a.count(&counters::delayed) > 1000, "bytes were late");
        a.expect(a.count(&counters::sliced) > 100, "bytes came in pieces");
        a.answers({});
        a.requests({});
        a.heal();
    };
    run_fault(f, body);
}

TEST_CASE("broken at any byte", "[faults][short]") {
    auto f = fault_of("broken at any byte",
                      {cell("OT", "O"),
                       cell("OS", "O"),
                       cell("O", "O"),
                       cell("OFT", "O"),
                       cell("OT", "O"),
                       cell("O", "O"),
                       cell("O", "O")});
    f.proxied = true;
    const auto body = [](arena& a) -> awaitable<void> {
        // Each connection breaks after other number of bytes, in one of four ways.
        const auto broken = [](std::size_t n, bool of_requests) {
            toxics t;
            const std::size_t bytes = 1 + n * 37 % 1500;
            if ((n % 2 == 0) == of_requests) {
                (n / 2 % 2 == 0 ? t.reset_after : t.limit_data) = bytes;
            }
            return t;
        };
        a.strike();
        for (const auto& p : a.proxies) {
            p->future_requests([=](std::size_t n) { return broken(n, true); });
            p->future_answers([=](std::size_t n) { return broken(n, false); });
            p->cut();
        }
        co_await a.last(8s);
        a.expect(a.count(&counters::closed) > 20, "connections ended");
        a.expect(a.count(&counters::reset) > 20, "connections were reset");
        for (const auto& p : a.proxies) {
            p->heal();
            p->cut();
        }
        a.heal();
    };
    run_fault(f, body);
}

TEST_CASE("garbled answers", "[faults]") {
    auto f = fault_of("garbled answers",
                      {cell("OTP", "O"),
                       cell("OS", "O"),
                       cell("OP", "O"),
                       cell("OFTP", "O"),
                       cell("OTP", "O"),
                       cell("OP", "O"),
                       cell("O", "O")});
    f.proxied = true;
    const auto body = [](arena& a) -> awaitable<void> {
        toxics garble;
        garble.corrupt_every = 1009;
        a.strike();
        a.answers(garble);
        co_await a.last(6s);
        a.expect(a.count(&counters::corrupted) > 20, "bytes were changed");
        for (const auto& p : a.proxies) {
            p->heal();
            p->cut();
        }
        a.heal();
    };
    run_fault(f, body);
}

TEST_CASE("huge answers", "[faults]") {
    auto f = fault_of("huge answers",
                      {cell("OTAB"), // the lease may have been granted
                       cell("OSL"),
                       cell("OBL"),
                       cell("OFTABL"),
                       cell("ONTABL"),
                       cell("OBL"),
                       cell("OTBP")});
    f.proxied = true;
    f.work.client.max_answer = 64 * 1024;
    const auto body = [](arena& a) -> awaitable<void> {
        toxics flood;
        flood.flood = 100 * 1000;
        a.strike();
        for (const auto& p : a.proxies) {
            p->answers(flood);
            p->cut();
        }
        co_await a.last(3s);
        a.expect(a.count(&counters::floods) > 5, "there were huge answers");
        for (const auto& p : a.proxies) {
            p->heal();
            p->cut();
        }
        a.heal();
    };
    run_fault(f, body);
}

TEST_CASE("half-open connections", "[faults]") {
    auto f = fault_of("half-open connections", ridden_out());
    // The stream that tells waiters of a release is one of them.
    for (const auto what :
         {operation::lock, operation::with_lock, operation::campaign, operation::watch}) {
        f.cells.at(static_cast<std::size_t>(what)).bound = silence;
    }
    f.proxied = true;
    const auto body = [](arena& a) -> awaitable<void> {
        toxics gone;
        gone.blackhole = true;
        a.strike();
        for (const auto& p : a.proxies) {
            p->present_requests(gone);
            p->present_answers(gone);
        }
        co_await a.last(6s);
        a.expect(a.count(&counters::swallowed) > 0, "bytes were lost");
        co_await a.until(operation::watch, "O", silence); // they stay as they are
        a.heal();
    };
    run_fault(f, body);
}

TEST_CASE("event lost by the server", "[faults]") {
    auto f = fault_of("event lost by the server", ridden_out());
    f.proxied = true;
    const auto body = [](arena& a) -> awaitable<void> {
        // What a key of the locks' begins with, in a message.
        std::string encoded;
        coetcd::detail::wire::append_base64(encoded, a.prefix + "l/");
        toxics deaf;
        deaf.drop_chunks = "\"type\":\"DELETE\",\"kv\":{\"key\":\"" + encoded;
        a.strike();
        for (const auto& p : a.proxies) {
            p->answers(deaf);
            p->cut();
        }
        co_await a.last(10s);
        a.expect(a.count(&counters::dropped_chunks) > 0, "events were lost");
        a.answers({});
        for (const auto& p : a.proxies) {
            p->cut();
        }
        a.heal();
    };
    run_fault(f, body);
}

TEST_CASE("names not resolved", "[faults]") {
    auto f = fault_of("names not resolved",
                      {cell("OT", "T"),
                       cell("OS", "O"),
                       cell("O", "O"),
                       cell("OF", "O"),
                       cell("O", "O"),
                       cell("O", "O"),
                       cell("O", "O")});
    f.by_name = true;
    f.work.fresh_clients = true;
    f.prepare = [](etcd_cluster& etcd) {
        std::string hosts;
        for (std::size_t i = 0; i < 3; ++i) {
            hosts += etcd.address(i) + " member-" + std::to_string(i + 1) + '\n';
        }
        set_hosts(hosts);
    };
    const auto body = [&](arena& a) -> awaitable<void> {
        int found = 0;
        const std::function<void()> look_up = [&] {
            addrinfo* list = nullptr;
            found = ::getaddrinfo("member-1", nullptr, nullptr, &list);
            if (found == 0) {
                ::freeaddrinfo(list);
            }
        };
        co_await a.blocking(look_up);
        a.expect(found == 0, "names are resolved before");
        a.strike();
        set_hosts("");
        // Clients that know an address need it again.
        const std::function<void()> restart = [&] {
            a.etcd.kill(a.victim);
            a.etcd.start(a.victim);
        };
        co_await a.blocking(restart);
        co_await a.last(9s);
        co_await a.blocking(look_up);
        a.expect(found != 0, "names are not resolved");
        f.prepare(a.etcd);
        const std::function<void()> healthy = [&] { a.etcd.wait_healthy(); };
        co_await a.blocking(healthy);
        a.heal();
    };
    for (cell& c : f.cells) {
        c.allowed += "L"; // the member that is restarted may lead
    }
    run_fault(f, body);
}

// The clients

TEST_CASE("client stopped", "[faults][short]") {
    auto f = fault_of("client stopped",
                      {cell("OTA", "", 12s),
                       cell("OS", "L", 12s),
                       cell("O", "L", 12s),
                       cell("OFTL", "", 12s),
                       cell("OTL", "N", 12s),
                       cell("O", "L", 12s),
                       cell("O", "", 12s)});
    f.separate = true;
    const auto body = [](arena& a) -> awaitable<void> {
        // The moment when it has got the lock that it is about to give back.
        const auto written = a.tells.writes.size();
        const auto held = [&]() -> awaitable<bool> {
            const auto from = a.tells.writes.begin() + static_cast<std::ptrdiff_t>(written);
            co_return std::any_of(from, a.tells.writes.end(), [&](const auto& w) {
                return w.key == a.prefix + "w/U";
            });
        };
        co_await support::eventually(held, 5s, "it gets a lock");
        a.strike();
        a.process->signal(SIGSTOP);
        co_await a.last(8s);
        std::ifstream status("/proc/" + std::to_string(a.process->pid()) + "/stat");
        std::string pid, name, state;
        status >> pid >> name >> state;
        a.expect(state == "T", "the client stands still");
        const auto before = a.tells.attempts.size();
        a.process->signal(SIGCONT);
        co_await a.until(operation::lock, "O", 10s);
        a.expect(a.tells.attempts.size() > before, "it goes on");
        a.heal();
    };
    run_fault(f, body);
}

TEST_CASE("virtual machine suspended", "[faults]") {
    add_row("vm suspended", "not possible here; the simulator's client_paused does it");
}

TEST_CASE("wall clock moved", "[faults][short]") {
    auto f = fault_of("wall clock moved", ridden_out());
    for (cell& c : f.cells) {
        c = cell("OF", "O", 3s);
    }
    const auto body = [](arena& a) -> awaitable<void> {
        const auto before = std::chrono::system_clock::now();
        a.strike();
        shift_wall_clock(1h);
        a.expect(std::chrono::system_clock::now() - before > 59min, "the clock was put forward");
        co_await a.last(2s);
        shift_wall_clock(-1h);
        a.expect(before - std::chrono::system_clock::now() > 59min, "the clock was put back");
        co_await a.last(2s);
        shift_wall_clock(0s);
        a.heal();
    };
    run_fault(f, body);
}

TEST_CASE("cancelled at any moment", "[faults][short]") {
    auto f = fault_of("cancelled at any moment",
                      {cell("O", "C"),
                       cell("O"),
                       cell("O", "C"),
                       cell("OF", "C"),
                       cell("ON", "C"),
                       cell("O", "C"),
                       cell("O", "O")});
    f.work.cancels = true;
    const auto body = [](arena& a) -> awaitable<void> {
        a.strike();
        const auto many = [&]() -> awaitable<bool> {
            const auto all = {operation::create,
                              operation::lock,
                              operation::try_lock,
                              operation::unlock,
                              operation::with_lock,
                              operation::campaign};
            co_return std::all_of(all.begin(), all.end(), [&](operation what) {
                return a.seen(what, ended::canceled) > 10;
            });
        };
        co_await a.last(4s);
        co_await support::eventually(many, 30s, "many of all are cancelled");
        a.heal();
    };
    run_fault(f, body);
}

// The operator

TEST_CASE("leases revoked", "[faults][short]") {
    const auto f = fault_of("leases revoked",
                            {cell("O", "O"),
                             cell("O", "L"),
                             cell("OLK"), // the key's absence may be seen before the lease's
                             cell("OFL", "O"),
                             cell("ONL", "O"),
                             cell("OLK"),
                             cell("O", "O")});
    const auto body = [](arena& a) -> awaitable<void> {
        const auto all = co_await a.leases();
        a.strike();
        std::size_t revoked = 0;
        for (const auto lease : all) {
            try {
                (void)co_await a.clean.lease_revoke(lease);
                ++revoked;
            } catch (const coetcd::error&) {
                // One that `create` has closed meanwhile.
            }
        }
        a.expect(revoked >= 5, "leases were revoked");
        // A third of the ttl, and twice as long as a renewal may take.
        co_await a.until(operation::create, "O", 2s);
        const auto told = [&]() -> awaitable<bool> {
            co_return a.seen(operation::keepalive, ended::lost) > 0;
        };
        co_await support::eventually(told, 1667ms + 2500ms, "the session is told of its loss");
        const auto locks_told = [&]() -> awaitable<bool> {
            std::size_t told_of = 0;
            for (const auto what : {operation::lock, operation::with_lock, operation::campaign}) {
                told_of += a.seen(what, ended::lost) + a.seen(what, ended::key_lost) > 0 ? 1U : 0U;
            }
            co_return told_of == 3;
        };
        co_await support::eventually(locks_told, 8s, "the locks are told of their loss");
        a.heal();
    };
    run_fault(f, body);
}

TEST_CASE("lock keys deleted", "[faults][short]") {
    const auto f = fault_of("lock keys deleted",
                            {cell("O", "O"),
                             cell("O"),
                             cell("OK"),
                             cell("OFK", "O"),
                             cell("O", "N"),
                             cell("O", "K"),
                             cell("O", "O")});
    const auto body = [](arena& a) -> awaitable<void> {
        a.strike();
        std::int64_t deleted = 0;
        const auto all_seen = [&]() -> awaitable<bool> {
            auto keys = coetcd::key_range::prefix(a.prefix + "l/");
            const auto r = co_await a.clean.erase(std::move(keys));
            deleted += r.deleted;
            co_await support::sleep_for(100ms);
            co_return a.seen(operation::unlock, ended::not_owner) > 3 &&
                a.seen(operation::with_lock, ended::key_lost) > 1;
        };
        co_await support::eventually(all_seen, 15s, "the loss of the keys is noticed");
        a.expect(deleted > 5, "keys were deleted");
        a.heal();
    };
    run_fault(f, body);
}

TEST_CASE("predecessor's key deleted", "[faults]") {
    auto f = fault_of("predecessor's key deleted", ridden_out());
    const auto body = [](arena& a) -> awaitable<void> {
        const std::string stray = a.prefix + "l/L/stray";
        (void)co_await a.clean.put(stray, "");
        co_await support::sleep_for(500ms); // all that came before it have had the lock
        a.strike();
        co_await a.last(2s);
        a.expect(a.seen(operation::lock, ended::well) == 0, "the key blocks the lock");
        const auto deleted = clock::now();
        (void)co_await a.clean.erase(stray);
        co_await a.until(operation::lock, "O", 1s);
        a.expect(clock::now() - deleted < 1s, "it is handed over at once");
        a.heal();
    };
    run_fault(f, body);
}

TEST_CASE("compacted during a watch", "[faults]") {
    auto f = fault_of("compacted during a watch",
                      {cell("OT", "O"),
                       cell("OS"),
                       cell("O", "O"),
                       cell("OFT", "O"),
                       cell("OT", "O"),
                       cell("O", "O"),
                       cell("O", "W")});
    f.proxied = true;
    const auto body = [](arena& a) -> awaitable<void> {
        toxics gone;
        gone.blackhole = true;
        a.strike();
        a.requests(gone);
        a.answers(gone);
        co_await a.last(500ms); // much is written meanwhile
        const auto now = co_await a.clean.put(a.prefix + "w/more", "");
        (void)co_await a.clean.compact(now.header.revision);
        for (const auto& p : a.proxies) {
            p->heal();
            p->cut();
        }
        const auto told = [&]() -> awaitable<bool> {
            co_return a.seen(operation::watch, ended::compacted) > 0;
        };
        co_await support::eventually(told, 10s, "the watch tells that history is gone");
        co_await a.until(operation::try_lock, "O", 10s); // most find it locked
        a.heal();
    };
    run_fault(f, body);
}

TEST_CASE("password changed", "[faults]") {
    auto f = fault_of("password changed", ridden_out_or_lease_lost());
    f.fresh_cluster = true;
    auto password = std::make_shared<std::string>("one");
    f.work.client.insecure_plain_text_credentials = true;
    f.work.client.credentials.emplace("root", [password] { return *password; });
    const std::string etcdctl = "ETCDCTL_API=3 " + support::etcdctl_program();
    f.prepare = [&](etcd_cluster& etcd) {
        const auto ctl = etcdctl + " --endpoints " + etcd.url(0) + ' ';
        support::run_script(ctl + "user add root:one\n" + ctl + "role add root\n" + ctl +
                            "user grant-role root root");
    };
    const auto body = [&](arena& a) -> awaitable<void> {
        const auto ctl = etcdctl + " --endpoints " + a.etcd.url(a.victim) + " --user root:";
        // Until now it was off.
        const std::function<void()> enable = [&] {
            support::run_script(etcdctl + " --endpoints " + a.etcd.url(a.victim) + " auth enable");
        };
        const std::function<void()> change = [&] {
            support::run_script("echo two | " + ctl + "one user passwd root --interactive=false");
        };
        const std::function<void()> is_changed = [&] {
            bool refused = false;
            try {
                support::run_script(ctl + "one get any");
            } catch (const std::runtime_error&) {
                refused = true;
            }
            a.expect(refused, "the old password is not accepted");
        };
        a.strike();
        co_await a.blocking(enable);
        co_await a.last(1s);
        *password = "two"; // not asked for before the tokens are void
        co_await a.blocking(change);
        co_await a.blocking(is_changed);
        co_await a.last(2s);
        // Members that are started again know no token.
        const std::function<void()> restart = [&] {
            a.etcd.kill(a.victim);
            a.etcd.start(a.victim);
        };
        co_await a.blocking(restart);
        co_await a.last(2s);
        a.heal();
    };
    run_fault(f, body);
}
