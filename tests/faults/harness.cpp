// SPDX-License-Identifier: BSL-1.0
#include "harness.hpp"

#include <coetcd/error.hpp>
#include <coetcd/session_options.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <map>
#include <sched.h>
#include <set>
#include <signal.h>
#include <sstream>
#include <stdexcept>
#include <sys/mount.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/etcd_tools.hpp"
#include "support/run_test.hpp"

namespace faults {

using namespace std::chrono_literals;
using boost::system::system_error;
using coetcd::client;
using support::etcd_cluster;
using support::eventually;
using support::ms_between;
using support::sleep_for;
using support::task;
using support::tcp_proxy;

namespace {

constexpr std::uint16_t client_port = 2379;

std::unique_ptr<etcd_cluster>& the_cluster() {
    static std::unique_ptr<etcd_cluster> cluster;
    return cluster;
}

// The table, as it is printed.
struct table_row {
    std::string name;
    std::array<std::string, operations> cells;
    bool good;
};

std::vector<table_row>& table() {
    static std::vector<table_row> rows;
    return rows;
}

constexpr int name_width = 28;
constexpr int cell_width = 24;

void print_head() {
    std::cout << std::left << std::setw(name_width) << "fault";
    for (std::size_t i = 0; i < operations; ++i) {
        std::cout << std::setw(cell_width) << to_string(static_cast<operation>(i));
    }
    std::cout << '\n';
}

void print_row(const table_row& row) {
    // A cell that is too long for its column goes on below.
    std::vector<std::array<std::string, operations>> lines(1);
    for (std::size_t i = 0; i < operations; ++i) {
        std::istringstream words(row.cells[i]);
        std::size_t n = 0;
        for (std::string w; words >> w;) {
            if (lines[n][i].size() + w.size() + 2 > cell_width) {
                ++n;
                if (n == lines.size()) {
                    lines.emplace_back();
                }
            }
            lines[n][i] += (lines[n][i].empty() ? "" : " ") + w;
        }
    }
    for (std::size_t n = 0; n < lines.size(); ++n) {
        const std::string title = (row.good ? "" : "! ") + row.name;
        std::cout << std::left << std::setw(name_width) << (n == 0 ? title : "");
        for (const auto& text : lines[n]) {
            std::cout << std::setw(cell_width) << text;
        }
        std::cout << '\n';
    }
    std::cout << std::flush;
}

std::string seconds(double ms) {
    char text[16];
    std::snprintf(text, sizeof text, ms < 1000 ? "%.2f" : "%.1f", ms / 1000);
    return text;
}

std::vector<std::string> urls_of(const std::vector<std::unique_ptr<tcp_proxy>>& proxies) {
    std::vector<std::string> all;
    for (const auto& p : proxies) {
        all.push_back(p->url());
    }
    return all;
}

constexpr std::size_t voters = 3; // others come and go

std::vector<std::unique_ptr<tcp_proxy>> proxies_of(const boost::asio::any_io_executor& executor,
                                                   const etcd_cluster& etcd,
                                                   const std::string& source) {
    std::vector<std::unique_ptr<tcp_proxy>> all;
    for (std::size_t i = 0; i < voters; ++i) {
        all.push_back(std::make_unique<tcp_proxy>(executor, etcd.address(i), client_port, source));
    }
    return all;
}

// The locks' keys begin with a multiple of three bytes, which base64 does not mix with others.
std::string new_prefix() {
    auto name = support::unique_name("f");
    name.append((3 - name.size() % 3) % 3, '-');
    return name + "/";
}

std::string describe(const attempt& a, clock::time_point since) {
    std::ostringstream out;
    out << to_string(a.what) << ' ' << word(a.outcome) << " from "
        << ms_between(since, a.began) / 1000 << " s to " << ms_between(since, a.over) / 1000
        << " s after the fault began: " << a.text;
    return out.str();
}

} // namespace

etcd_cluster& shared_cluster() {
    auto& cluster = the_cluster();
    if (!cluster) {
        cluster = std::make_unique<etcd_cluster>(voters);
    }
    return *cluster;
}

void drop_shared_cluster() {
    the_cluster().reset();
}

void add_row(const std::string& name, const std::string& text) {
    table_row row{name, {}, true};
    row.cells[0] = text;
    std::cout << std::left << std::setw(name_width) << name << text << std::endl;
    table().push_back(row);
}

void print_table() {
    if (table().size() < 2) {
        return;
    }
    std::cout
        << "\nEach cell: how the attempts during the fault ended; the seconds that the first "
           "one after its beginning took, and the longest one.\n*: its client was using a member "
           "that was not struck.\n\n";
    print_head();
    for (const auto& row : table()) {
        if (row.cells[1].empty()) {
            std::cout << std::left << std::setw(name_width) << row.name << row.cells[0] << '\n';
        } else {
            print_row(row);
        }
    }
    std::cout << std::endl;
}

// The arena

arena::arena(boost::asio::any_io_executor executor,
             const fault& what,
             etcd_cluster& cluster,
             std::vector<std::string>& problems)
    : etcd(cluster)
    , victim(what.victim == role::leader ? cluster.leader() : (cluster.leader() + 1) % voters)
    , prefix(new_prefix())
    , proxies(what.proxied ? proxies_of(executor, cluster, {}) : decltype(proxies)())
    , clean(executor, cluster.urls())
    , fault_(what)
    , executor_(executor)
    , clean_proxies_(proxies_of(executor, cluster, cluster.address_of_questions()))
    , problems_(problems) {
    auto options = what.work.client;
    options.attempt_timeout = 1s;
    clean = client(executor, urls_of(clean_proxies_), options);
}

void arena::expect(bool yes, const std::string& what) {
    if (!yes) {
        problem("not so: " + what);
    }
}

// At the least the first one after the strike.
bool arena::overlaps(const attempt& a) const {
    if (a.over < struck_) {
        return false;
    }
    return a.began <= healed_ ||
           std::none_of(tells.attempts.begin(), tells.attempts.end(), [&](const attempt& b) {
               return b.what == a.what && b.over >= struck_ && b.began < a.began;
           });
}

std::size_t arena::seen(operation what, char outcome) const {
    return static_cast<std::size_t>(
        std::count_if(tells.attempts.begin(), tells.attempts.end(), [&](const attempt& a) {
            return a.what == what && a.outcome == outcome && a.over >= struck_;
        }));
}

bool arena::most_use_the_victim() {
    for (std::size_t i = 0; i < operations; ++i) {
        elsewhere_[i] =
            work_ && !fault_.strikes_all && work_->used_by(static_cast<operation>(i)) != preferred_;
    }
    return std::count(elsewhere_.begin(), elsewhere_.end(), true) <= 3;
}

void arena::strike() {
    struck_ = clock::now();
    expect(most_use_the_victim(), "most clients use the member that is struck");
}

awaitable<void>
arena::until(operation what, std::string outcomes, std::chrono::milliseconds within) {
    auto there = [this, what, outcomes]() -> awaitable<bool> {
        co_return std::any_of(tells.attempts.begin(), tells.attempts.end(), [&](const attempt& a) {
            const char as = a.outcome == ended::retried ? ended::well : a.outcome;
            return a.what == what && a.began >= struck_ && outcomes.find(as) != outcomes.npos;
        });
    };
    std::string text = std::string(to_string(what)) + " ends as one of " + outcomes;
    co_await eventually(there, within, std::move(text));
}

void arena::answers(const support::toxics& t) {
    for (const auto& p : proxies) {
        p->answers(t);
    }
}

void arena::requests(const support::toxics& t) {
    for (const auto& p : proxies) {
        p->requests(t);
    }
}

std::size_t arena::count(std::size_t tcp_proxy::counters::*which) const {
    std::size_t sum = 0;
    for (const auto& p : proxies) {
        sum += p->count().*which;
    }
    return sum;
}

awaitable<std::vector<coetcd::lease_id>> arena::leases() {
    const auto all = co_await clean.lease_leases();
    co_return all.leases;
}

// Takes the lock that is held throughout.
awaitable<void> arena::hold() {
    coetcd::session opened = co_await support::open_session(clean, long_ttl);
    lease_.emplace(std::move(opened));
    held_.emplace(*lease_, prefix + "l/held");
    co_await held_->lock();
}

awaitable<void> arena::give_back() {
    expect(held_->owns_lock(), "a lock counts as held throughout");
    const bool ours = co_await held_->unlock();
    expect(ours, "a lock is held throughout");
    co_await lease_->close();
}

// Puts and deletes some keys until told to stop.
awaitable<void> arena::write() {
    const client c = clean.with_timeout(1s);
    for (int i = 1; !stop_writing_; ++i) {
        written w;
        w.key = prefix + "w/" + std::to_string(i % 5);
        try {
            if (i % 7 == 0) {
                const auto r = co_await c.erase(w.key);
                w.outcome = r.deleted != 0 ? ended::well : ended::refused;
                w.revision = r.header.revision;
            } else {
                w.value = std::to_string(i);
                const auto r = co_await c.put(w.key, *w.value);
                w.outcome = ended::well;
                w.revision = r.header.revision;
            }
        } catch (const system_error& e) {
            w.outcome = outcome_of(e);
        }
        tells.add(std::move(w));
        co_await sleep_for(25ms);
    }
}

awaitable<void> arena::listen() {
    for (;;) {
        const auto line = co_await process->async_read_line();
        if (!line) {
            break;
        }
        if (*line == "stopped") {
            client_stopped_ = true;
        } else {
            tells.read(*line);
        }
    }
}

awaitable<void> arena::begin() {
    const auto first = co_await clean.put(prefix + "w/begin", "");
    first_revision_ = first.header.revision + 1;
    if (fault_.held) {
        co_await hold();
    }

    workload_options options = fault_.work;
    options.prefix = prefix;
    options.first_revision = first_revision_;
    for (std::size_t i = 0; i < voters; ++i) {
        options.urls.push_back(fault_.proxied   ? proxies[i]->url()
                               : fault_.by_name ? "http://member-" + std::to_string(i + 1) + ":" +
                                                      std::to_string(client_port)
                                                : etcd.url(i));
    }
    options.preferred = options.urls[victim];
    preferred_ = options.preferred;
    if (fault_.separate) {
        const nlohmann::json how{{"urls", options.urls},
                                 {"prefix", prefix},
                                 {"ttl", options.ttl.count()},
                                 {"preferred", options.preferred},
                                 {"first_revision", first_revision_}};
        support::process_options of_process;
        of_process.capture = true;
        const auto self = std::filesystem::read_symlink("/proc/self/exe").string();
        process.emplace(std::vector<std::string>{self, "--client", how.dump()},
                        std::move(of_process));
        listening_.emplace(executor_, listen());
    } else {
        work_.emplace(executor_, options, tells);
        work_->start();
    }
    writing_.emplace(executor_, write());

    auto under_way = [this]() -> awaitable<bool> {
        for (std::size_t i = 0; i < operations; ++i) {
            const auto what = static_cast<operation>(i);
            const auto done = [what](const attempt& a) { return a.what == what; };
            if (std::count_if(tells.attempts.begin(), tells.attempts.end(), done) <
                (what == operation::keepalive ? 1 : 3)) {
                co_return false;
            }
        }
        const bool well = most_use_the_victim();
        if (!well) { // on a busy machine another one may be nearer for a while
            work_->use_preferred();
        }
        co_return well;
    };
    co_await eventually(under_way, 30s, "all operations are under way");
    for (const attempt& a : tells.attempts) {
        const bool canceled = fault_.work.cancels && a.outcome == ended::canceled;
        if (!is_well(a.outcome) && a.outcome != ended::busy && !canceled) {
            problem("before the fault: " + describe(a, clock::now()));
        }
    }
}

bool arena::recovered(operation what) const {
    return std::any_of(tells.attempts.begin(), tells.attempts.end(), [&](const attempt& a) {
        return a.what == what && a.began >= healed_ && is_well(a.outcome);
    });
}

awaitable<void> arena::stop() {
    if (process) {
        process->signal(SIGTERM);
    } else {
        co_await work_->stop();
    }
}

awaitable<void> arena::end() {
    if (healed_ == clock::time_point::max()) {
        heal();
    }
    if (fault_.held) {
        co_await give_back();
    }
    std::string missing;
    auto all_recovered = [&]() -> awaitable<bool> {
        missing.clear();
        for (std::size_t i = 0; i < operations; ++i) {
            const auto what = static_cast<operation>(i);
            const bool well = recovered(what) || fault_.work.cancels;
            missing += well ? std::string() : std::string(" ") + to_string(what);
        }
        co_return missing.empty();
    };
    try {
        co_await eventually(all_recovered, fault_.recovery, "recovery");
    } catch (const std::runtime_error&) {
        problem("after the fault these do not succeed:" + missing);
    }

    // Each completes what it is at. No key of theirs stays, although the sessions live.
    task<void> stopping(executor_, stop());
    auto stopped = [&]() -> awaitable<bool> {
        co_return stopping.done() && (!process || client_stopped_);
    };
    try {
        co_await eventually(stopped, 15s, "the operations end");
    } catch (const std::runtime_error& e) {
        std::string text = e.what();
        for (const auto& each :
             work_.has_value() ? work_->unfinished() : std::vector<std::string>()) {
            text += ' ' + each;
        }
        throw std::runtime_error(text);
    }
    std::int64_t keys = 0;
    auto no_keys = [&]() -> awaitable<bool> {
        keys = 0;
        for (const std::string lock : {"L", "T", "U"}) { // what was given up in doubt is elsewhere
            keys += co_await support::count(clean, prefix + "l/" + lock + '/');
        }
        co_return keys == 0;
    };
    try {
        co_await eventually(no_keys, fault_.work.ttl, "no key");
    } catch (const std::runtime_error&) {
        problem(std::to_string(keys) + " keys are left in the locks' queues");
    }

    stop_writing_ = true;
    co_await writing_->result();
    const auto last = co_await clean.put(prefix + "w/end", "");
    auto all_told = [&]() -> awaitable<bool> {
        co_return !tells.told.empty() && tells.told.back().revision >= last.header.revision;
    };
    try {
        co_await eventually(all_told, 15s, "told");
    } catch (const std::runtime_error&) {
        problem("the watch has not told of revision " + std::to_string(last.header.revision));
    }
    if (process) {
        process->signal(SIGTERM);
        co_await listening_->result();
        const int code = co_await process->async_wait();
        expect(code == 0, "the client ends with status 0, not " + std::to_string(code));
    } else {
        co_await work_->close();
        work_.reset();
    }

    auto no_leases = [&]() -> awaitable<bool> {
        const auto all = co_await leases();
        co_return all.empty();
    };
    const auto bound = fault_.work.ttl * 2 + 5s;
    try {
        co_await eventually(no_leases, bound, "no leases");
    } catch (const std::runtime_error&) {
        problem("leases are left");
    }
    const auto left = co_await support::count(clean, prefix + "l");
    expect(left == 0, "no key is left");
    co_await validate(last.header.revision);
    co_await support::erase_all(clean, prefix);
    check_outcomes();
}

awaitable<void> arena::validate(std::int64_t last) {
    for (const auto& text : tells.complaints) {
        problem(text);
    }
    for (const attempt& a : tells.attempts) {
        // A process that stands still tells it when it goes on.
        if (!fault_.separate && a.what == operation::keepalive && a.outcome == ended::lost &&
            a.text == to_string(coetcd::session_end::deadline)) {
            const auto took = a.over - a.began;
            expect(took <= fault_.work.ttl + 500ms,
                   "a session is over a ttl after its last renewal was sent: " +
                       describe(a, struck_));
        }
    }
    if (!fault_.history) {
        const auto missed =
            std::count_if(tells.writes.begin(), tells.writes.end(), [&](const written& w) {
                const auto is_it = [&](const change& c) {
                    return c.key == w.key && c.value == w.value;
                };
                return w.outcome == ended::well && w.key.starts_with(prefix + "w/") &&
                       std::none_of(tells.told.begin(), tells.told.end(), is_it);
            });
        std::cout << fault_.name << ": of " << tells.writes.size() << " changes the watch has not "
                  << "told of " << missed << std::endl;
        co_return;
    }
    std::vector<change> all;
    try {
        all = co_await history(clean, prefix + "w/", first_revision_, last);
    } catch (const coetcd::error&) {
        // Compacted: then all that is known is what was acknowledged and told.
        for (const written& w : tells.writes) {
            if (w.outcome == ended::well && w.key != prefix + "w/end") {
                change c;
                c.revision = w.revision;
                c.key = w.key;
                c.value = w.value;
                all.push_back(c);
            }
        }
        std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
            return a.revision < b.revision;
        });
        std::size_t missing = 0;
        for (const change& c : all) {
            missing += std::count(tells.told.begin(), tells.told.end(), c) != 1;
        }
        const bool sorted =
            std::is_sorted(tells.told.begin(), tells.told.end(), [](const auto& a, const auto& b) {
                return a.revision < b.revision;
            });
        expect(sorted, "the watch tells in order");
        expect(fault_.cells.back().required.find(ended::compacted) != std::string::npos ||
                   missing == 0,
               "the watch tells of all; it does not of " + std::to_string(missing));
        for (const auto& text : falling_fences(tells.told)) {
            problem(text);
        }
        co_return;
    }
    if (tells.told != all) {
        std::ostringstream out;
        const auto [a, b] =
            std::mismatch(tells.told.begin(), tells.told.end(), all.begin(), all.end());
        out << "the watch told of " << tells.told.size() << " changes, there were " << all.size()
            << "; the first difference: told ";
        if (a == tells.told.end()) {
            out << "nothing";
        } else {
            out << *a;
        }
        out << ", was ";
        if (b == all.end()) {
            out << "nothing";
        } else {
            out << *b;
        }
        problem(out.str());
    }
    expect(all.size() > 20, "much was written");
    for (const auto& text : falling_fences(all)) {
        problem(text);
    }
    // Acknowledged: it is there. Refused: it is not.
    std::map<std::int64_t, const change*> at;
    std::set<std::pair<std::string, std::string>> values;
    for (const change& c : all) {
        at[c.revision] = &c;
        if (c.value) {
            values.emplace(c.key, *c.value);
        }
    }
    for (const written& w : tells.writes) {
        if (w.outcome == ended::well) {
            const auto found = at.find(w.revision);
            const bool there =
                found != at.end() && found->second->key == w.key && found->second->value == w.value;
            expect(there,
                   "an acknowledged write is in the history: " + std::to_string(w.revision) + ' ' +
                       w.key + '=' + w.value.value_or("(deleted)"));
        } else if (w.outcome != ended::unknown && w.value) {
            expect(!values.contains({w.key, *w.value}),
                   "a write that failed (" + word(w.outcome) + ") was not applied: " + w.key + '=' +
                       *w.value);
        }
    }
}

void arena::check_outcomes() {
    const auto before = problems_.size();
    for (std::size_t i = 0; i < operations; ++i) {
        const auto what = static_cast<operation>(i);
        const cell& c = fault_.cells.at(i);
        std::set<char> all;
        for (const attempt& a : tells.attempts) {
            if (a.what != what || !overlaps(a)) {
                continue;
            }
            all.insert(a.outcome);
            const char as = a.outcome == ended::retried ? ended::well : a.outcome;
            if (c.allowed.find(a.outcome) == std::string::npos &&
                c.allowed.find(as) == std::string::npos) {
                problem("this may not be: " + describe(a, struck_));
            }
            if (ms_between(std::max(struck_, a.began), a.over) > double(c.bound.count())) {
                problem("this took too long: " + describe(a, struck_));
            }
        }
        if (all.empty()) {
            problem(std::string("nothing was tried: ") + to_string(what));
        }
        for (const char r : c.required) {
            const bool there = all.contains(r) || (r == ended::well && all.contains('R'));
            expect(there, std::string(to_string(what)) + " also ends as: " + word(r));
        }
    }
    if (problems_.size() == before) {
        return;
    }
    std::set<std::string> known;
    for (const attempt& a : tells.attempts) {
        if (overlaps(a) && !a.text.empty() &&
            known.insert(std::string(to_string(a.what)) + a.text).second) {
            problem("besides: " + describe(a, struck_));
        }
    }
}

std::array<std::string, operations> arena::row() const {
    std::array<std::string, operations> cells;
    for (std::size_t i = 0; i < operations; ++i) {
        std::string letters;
        double first = -1;
        double worst = 0;
        for (const attempt& a : tells.attempts) {
            if (a.what != static_cast<operation>(i) || !overlaps(a)) {
                continue;
            }
            if (letters.find(a.outcome) == letters.npos) {
                letters += a.outcome;
            }
            const auto took = ms_between(a.began, a.over);
            if (first < 0 && a.began >= struck_) {
                first = took;
            }
            worst = std::max(worst, took);
        }
        std::string& text = cells[i];
        for (const char c : letters) {
            text += (text.empty() ? "" : ", ") + word(c);
        }
        text += elsewhere_[i] ? "*" : "";
        text += ' ' + (first < 0 ? std::string("-") : seconds(first)) + '/' + seconds(worst);
    }
    return cells;
}

namespace {

awaitable<void> drive(std::shared_ptr<arena> a,
                      std::function<awaitable<void>(arena&)> body,
                      std::vector<std::string>& problems) {
    try {
        co_await a->begin();
        co_await body(*a);
        co_await a->end();
    } catch (const std::exception& e) {
        problems.push_back(e.what());
        for (const auto& p : a->tells.complaints) {
            problems.push_back(p);
        }
        const auto cells = a->row();
        for (std::size_t i = 0; i < operations; ++i) {
            problems.push_back(std::string(to_string(static_cast<operation>(i))) + ": " + cells[i]);
        }
        throw;
    }
}

} // namespace

void run_fault(const fault& what, std::function<awaitable<void>(arena&)> body) {
    if (what.fresh_cluster) {
        drop_shared_cluster();
        the_cluster() = std::make_unique<etcd_cluster>(voters, what.program, what.extra_arguments);
    }
    etcd_cluster& etcd = shared_cluster();
    if (what.prepare) {
        what.prepare(etcd);
    }
    std::vector<std::string> problems;
    // What is at work may refer to it until the io_context is gone, also if the test fails.
    std::shared_ptr<arena> a;
    bool completed = false;
    try {
        support::run_test(
            [&]() -> awaitable<void> {
                const auto executor = co_await boost::asio::this_coro::executor;
                a = std::make_shared<arena>(executor, what, etcd, problems);
                co_await drive(a, body, problems);
                const auto cells = a->row();
                table().push_back({what.name, cells, problems.empty()});
                a.reset();
                completed = true;
            },
            {200s, 25s});
    } catch (const std::exception& e) {
        if (problems.empty()) {
            problems.push_back(e.what());
        }
    } catch (...) {
        // run_test has told Catch.
        problems.push_back("it did not end");
    }
    if (!completed) {
        // It outlives what it has started, and that the io_context: it is left as it is.
        (void)new std::shared_ptr<arena>(std::move(a));
        table().push_back({what.name, {}, false});
        table().back().cells.fill("failed");
    }
    if (table().size() == 1) {
        print_head();
    }
    print_row(table().back());
    constexpr std::size_t most = 20;
    for (std::size_t i = 0; i < problems.size() && i < most; ++i) {
        FAIL_CHECK(problems[i]);
    }
    if (problems.size() > most) {
        FAIL_CHECK(problems.size() << " problems in all");
    }
    CHECK(completed);
    if (!problems.empty() || what.fresh_cluster) {
        drop_shared_cluster();
    }
}

awaitable<std::vector<change>>
history(client c, std::string prefix, std::int64_t first, std::int64_t last) {
    std::vector<change> all;
    std::map<std::string, coetcd::key_value> before;
    for (std::int64_t revision = first - 1; revision <= last; ++revision) {
        coetcd::range_options as_of;
        as_of.revision = revision;
        auto keys = coetcd::key_range::prefix(prefix);
        const auto r = co_await c.range(std::move(keys), as_of);
        std::map<std::string, coetcd::key_value> now;
        change found;
        found.revision = revision;
        for (const coetcd::key_value& kv : r.kvs) {
            now[kv.key] = kv;
            if (kv.mod_revision == revision && revision >= first) {
                found.key = kv.key;
                found.value = kv.value;
                all.push_back(found);
            }
        }
        for (const auto& [key, kv] : before) {
            if (!now.contains(key)) {
                found.key = key;
                found.value.reset();
                all.push_back(found);
            }
        }
        before = std::move(now);
    }
    co_return all;
}

std::vector<std::string> falling_fences(const std::vector<change>& all) {
    std::vector<std::string> found;
    std::map<std::string, std::int64_t> highest;
    for (const change& c : all) {
        if (!c.value || c.value->find('.') == std::string::npos) {
            continue;
        }
        const auto fence = std::stoll(*c.value);
        auto& before = highest[c.key];
        if (fence < before) {
            std::ostringstream out;
            out << "an older holder wrote after fence " << before << ": " << c;
            found.push_back(out.str());
        }
        before = std::max<std::int64_t>(before, fence);
    }
    return found;
}

// The client process

namespace {

awaitable<void> serve_client(workload_options options) {
    journal tells;
    tells.print_to(std::cout);
    const auto executor = co_await boost::asio::this_coro::executor;
    workload work(executor, std::move(options), tells);
    boost::asio::signal_set told(executor, SIGTERM);
    work.start();
    (void)co_await told.async_wait(boost::asio::use_awaitable);
    co_await work.stop();
    std::cout << "stopped" << std::endl;
    (void)co_await told.async_wait(boost::asio::use_awaitable);
    co_await work.close();
}

} // namespace

int run_client(const std::string& text) {
    const auto how = nlohmann::json::parse(text);
    workload_options options;
    options.urls = how.at("urls").get<std::vector<std::string>>();
    options.prefix = how.at("prefix").get<std::string>();
    options.ttl = std::chrono::seconds(how.at("ttl").get<int>());
    options.preferred = how.at("preferred").get<std::string>();
    options.first_revision = how.at("first_revision").get<std::int64_t>();
    boost::asio::io_context context{1};
    int status = 0;
    boost::asio::co_spawn(context, serve_client(std::move(options)), [&](std::exception_ptr e) {
        status = e ? 1 : 0;
    });
    context.run();
    return status;
}

std::chrono::seconds duration(std::chrono::seconds otherwise) {
    const std::string text = support::environment("COETCD_FAULTS_SECONDS");
    return text.empty() ? otherwise : std::chrono::seconds(std::stoi(text));
}

// Names

namespace {

std::string& names_directory() {
    static std::string directory;
    return directory;
}

void bind_over(const std::string& file, const std::string& text) {
    const auto own = names_directory() + '/' + std::filesystem::path(file).filename().string();
    std::ofstream(own) << text;
    if (::mount(own.c_str(), file.c_str(), nullptr, MS_BIND, nullptr) != 0) {
        throw std::system_error(errno, std::generic_category(), "mount over " + file);
    }
}

} // namespace

void enter_private_names() {
    auto pattern = (std::filesystem::temp_directory_path() / "coetcd-names-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr || ::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
        throw std::system_error(errno, std::generic_category(), "a mount namespace");
    }
    names_directory() = pattern;
    bind_over("/etc/hosts", "127.0.0.1 localhost\n");
    // No server answers there: a lookup takes a second, and fails.
    bind_over("/etc/resolv.conf", "nameserver 127.0.0.99\noptions timeout:1 attempts:1\n");
    if (std::filesystem::exists("/etc/nsswitch.conf")) {
        bind_over("/etc/nsswitch.conf", "hosts: files dns\n");
    }
    std::filesystem::remove_all(pattern); // what is mounted stays
}

void set_hosts(const std::string& text) {
    std::ofstream("/etc/hosts", std::ios::trunc) << "127.0.0.1 localhost\n" << text;
}

} // namespace faults
