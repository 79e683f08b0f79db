// SPDX-License-Identifier: BSL-1.0
#include "workload.hpp"

#include <coetcd/observer.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "support/etcd_tools.hpp"

namespace faults {

using namespace std::chrono_literals;
using boost::system::system_error;
using coetcd::client;
using coetcd::op;
using coetcd::session;
using coetcd::session_state;
using support::sleep_for;
using support::task;

const char* to_string(operation what) {
    constexpr std::array<const char*, operations> names{
        "create", "keepalive", "lock", "try_lock", "unlock", "with_lock", "campaign", "watch"};
    return names[static_cast<std::size_t>(what)];
}

bool is_well(char outcome) {
    return outcome == ended::well || outcome == ended::retried;
}

std::string word(char outcome) {
    switch (outcome) {
    case ended::well:
        return "ok";
    case ended::retried:
        return "retried";
    case ended::busy:
        return "busy";
    case ended::timed_out:
        return "timeout";
    case ended::unknown:
        return "unknown";
    case ended::suspended:
        return "suspect";
    case ended::lost:
        return "lost";
    case ended::key_lost:
        return "key lost";
    case ended::not_owner:
        return "not owner";
    case ended::compacted:
        return "compacted";
    case ended::regressed:
        return "regressed";
    case ended::protocol:
        return "protocol";
    case ended::too_large:
        return "too large";
    case ended::refused:
        return "refused";
    case ended::canceled:
        return "canceled";
    default:
        return "?";
    }
}

char outcome_of(const system_error& e) {
    using coetcd::errc;
    const auto code = e.code();
    if (code == boost::asio::error::operation_aborted) {
        return ended::canceled;
    }
    if (code == errc::timed_out || code == errc::unavailable) {
        return ended::timed_out;
    }
    if (code == errc::session_lost || code == errc::session_closed) {
        return ended::lost;
    }
    if (code == errc::lock_lost) {
        return ended::key_lost;
    }
    if (code == errc::not_owner) {
        return ended::not_owner;
    }
    if (code == errc::watch_compacted) {
        return ended::compacted;
    }
    if (code == errc::revision_regressed) {
        return ended::regressed;
    }
    if (code == errc::too_large) {
        return ended::too_large;
    }
    if (code == errc::protocol_error) {
        return ended::protocol;
    }
    if (code == coetcd::condition::outcome_unknown) {
        return ended::unknown;
    }
    if (code == errc::login_failed || code == errc::watch_canceled ||
        code.category() == coetcd::server_category()) {
        return ended::refused;
    }
    return ended::other;
}

std::ostream& operator<<(std::ostream& out, const change& c) {
    return out << c.revision << ' ' << c.key << '=' << c.value.value_or("(deleted)");
}

// The journal

namespace {

using nlohmann::json;

json to_json(const std::optional<std::string>& value) {
    return value ? json(*value) : json();
}

std::optional<std::string> to_optional(const json& value) {
    return value.is_null() ? std::nullopt : std::optional(value.get<std::string>());
}

std::int64_t number(clock::time_point t) {
    return t.time_since_epoch().count();
}

clock::time_point moment(const json& n) {
    return clock::time_point(clock::duration(n.get<std::int64_t>()));
}

} // namespace

void journal::add(attempt a) {
    if (out_ != nullptr) {
        const json line{
            "a", int(a.what), std::string(1, a.outcome), number(a.began), number(a.over), a.text};
        *out_ << line.dump(-1, ' ', false, json::error_handler_t::replace) << std::endl;
    }
    attempts.push_back(std::move(a));
}

void journal::add(written w) {
    if (out_ != nullptr) {
        const json line{"w", w.key, to_json(w.value), std::string(1, w.outcome), w.revision};
        *out_ << line.dump() << std::endl;
    }
    writes.push_back(std::move(w));
}

void journal::add(change c) {
    if (out_ != nullptr) {
        const json line{"c", c.revision, c.key, to_json(c.value)};
        *out_ << line.dump() << std::endl;
    }
    told.push_back(std::move(c));
}

void journal::complain(std::string text) {
    if (out_ != nullptr) {
        const json line{"!", text};
        *out_ << line.dump() << std::endl;
    }
    complaints.push_back(std::move(text));
}

void journal::read(const std::string& line) {
    const json all = json::parse(line, nullptr, false);
    if (!all.is_array()) {
        complain("the client said: " + line);
    } else if (all[0] == "a") {
        attempt a;
        a.what = static_cast<operation>(all[1].get<int>());
        a.outcome = all[2].get<std::string>().front();
        a.began = moment(all[3]);
        a.over = moment(all[4]);
        a.text = all[5].get<std::string>();
        add(std::move(a));
    } else if (all[0] == "w") {
        written w;
        w.key = all[1].get<std::string>();
        w.value = to_optional(all[2]);
        w.outcome = all[3].get<std::string>().front();
        w.revision = all[4].get<std::int64_t>();
        add(std::move(w));
    } else if (all[0] == "c") {
        change c;
        c.revision = all[1].get<std::int64_t>();
        c.key = all[2].get<std::string>();
        c.value = to_optional(all[3]);
        add(std::move(c));
    } else {
        complain(all[1].get<std::string>());
    }
}

// The workload

// What the client of one operation tells.
class workload::ears : public coetcd::observer {
public:
    ears(workload& owner, operation what)
        : owner_(owner)
        , what_(what) {}

    std::size_t failures() const { return failures_; }
    void ignore(bool yes) { ignored_ = yes; } ///< What comes while a session ends.
    clock::time_point last_renewal() const { return last_renewal_; }
    void session_opened() { last_renewal_ = clock::now(); }

    const std::string& used() const { return used_; }

    void on_request(const coetcd::request_report& r) override {
        failures_ += r.outcome ? 1U : 0U;
        if (!r.outcome && (what_ != operation::watch || r.rpc == "range")) {
            used_ = r.endpoint;
        }
    }
    void on_watch_stream(const coetcd::watch_stream_report& r) override {
        failures_ += r.opened ? 0 : 1;
        if (r.opened) {
            used_ = r.endpoint;
        }
    }
    void on_renewal(const coetcd::renewal_report& r) override {
        if (what_ != operation::keepalive || ignored_) {
            return;
        }
        const auto sent = clock::now() - r.latency;
        char outcome = failures_ == before_ ? ended::well : ended::retried;
        if (r.outcome) {
            outcome = ended::suspended;
        } else {
            last_renewal_ = sent;
        }
        before_ = failures_;
        owner_.record(what_, outcome, sent, r.outcome ? r.outcome.message() : std::string());
    }

private:
    workload& owner_;
    const operation what_;
    std::size_t failures_ = 0;
    std::size_t before_ = 0; // the last renewal
    bool ignored_ = false;
    clock::time_point last_renewal_{};
    std::string used_;
};

// A client that locks.
struct workload::party {
    explicit party(client c)
        : owner(std::move(c)) {}
    client owner;
    std::optional<session> lease;
    std::optional<coetcd::mutex> lock;
    void reset() {
        lock.reset();
        lease.reset();
    }
};

workload::workload(boost::asio::any_io_executor executor, workload_options options, journal& tells)
    : executor_(std::move(executor))
    , options_(std::move(options))
    , journal_(tells)
    , next_revision_(options_.first_revision) {}

void workload::start() {
    for (std::size_t i = 0; i < operations; ++i) {
        ears_[i] = std::make_shared<ears>(*this, static_cast<operation>(i));
    }
    for (std::size_t i = 0; i < operations; ++i) {
        tasks_[i].emplace(executor_, run(static_cast<operation>(i)));
    }
}

std::vector<std::string> workload::unfinished() const {
    std::vector<std::string> all;
    for (std::size_t i = 0; i < operations; ++i) {
        if (tasks_[i] && !tasks_[i]->done() && static_cast<operation>(i) != operation::watch) {
            all.push_back(to_string(static_cast<operation>(i)));
        }
    }
    return all;
}

std::string workload::used_by(operation what) const {
    return ears_[static_cast<std::size_t>(what)]->used();
}

awaitable<void> workload::stop() {
    stop_ = true;
    for (std::size_t i = 0; i < operations; ++i) {
        if (static_cast<operation>(i) != operation::watch) {
            co_await tasks_[i]->result();
        }
    }
}

awaitable<void> workload::close() {
    auto& last = *tasks_[static_cast<std::size_t>(operation::watch)];
    last.cancel();
    (void)co_await last.how_it_ended();
    for (auto& each : besides_) {
        each.cancel();
        (void)co_await each.how_it_ended();
    }
    if (options_.flooded && last_of_flood_ == 0) {
        journal_.complain("a flooded watch has told nothing");
    }
    for (const auto& p : parties_) {
        p->lock.reset();
        if (p->lease) {
            try {
                co_await p->lease->close();
            } catch (const system_error&) {
                // It ends by itself.
            }
            p->lease.reset();
        }
    }
    parties_.clear();
}

bool workload::ends(operation what) const {
    return stop_ || moves_[static_cast<std::size_t>(what)];
}

void workload::use_preferred() {
    for (std::size_t i = 0; i < operations; ++i) {
        moves_[i] = moves_[i] || used_by(static_cast<operation>(i)) != options_.preferred;
    }
}

awaitable<void> workload::run(operation what) {
    do {
        moves_[static_cast<std::size_t>(what)] = false;
        co_await run_with_one_client(what);
    } while (!stop_ && ends(what));
}

awaitable<void> workload::run_with_one_client(operation what) {
    const auto start = clock::now();
    try {
        switch (what) {
        case operation::create:
            co_await create();
            break;
        case operation::keepalive:
            co_await keepalive();
            break;
        case operation::lock:
            co_await lock();
            break;
        case operation::try_lock:
            co_await try_lock();
            break;
        case operation::unlock:
            co_await unlock();
            break;
        case operation::with_lock:
        case operation::campaign:
            co_await run_held(what);
            break;
        case operation::watch:
            co_await watch();
            break;
        }
    } catch (const std::exception& e) {
        record(what, ended::other, start, e.what());
    }
}

void workload::record(operation what, char outcome, clock::time_point began, std::string text) {
    attempt a;
    a.what = what;
    a.outcome = outcome;
    a.began = began;
    a.over = clock::now();
    a.text = std::move(text);
    journal_.add(std::move(a));
}

client workload::new_client(operation what) {
    auto options = options_.client;
    options.observer = ears_[static_cast<std::size_t>(what)];
    return client(executor_, options_.urls, options);
}

awaitable<client> workload::client_of(operation what) {
    const auto preferred = options_.preferred;
    for (;;) {
        client c = new_client(what);
        if (preferred.empty()) {
            co_return c;
        }
        // At its first request it looks around, and may move to an endpoint that is nearer.
        for (int i = 0; i < 5; ++i) {
            (void)co_await c.get(options_.prefix);
            co_await sleep_for(20ms);
        }
        if (used_by(what) == preferred) {
            co_return c;
        }
    }
}

awaitable<char> workload::await_attempt(operation what, awaitable<char> work) {
    const auto& heard = *ears_[static_cast<std::size_t>(what)];
    const auto before = heard.failures();
    const auto began = clock::now();
    char outcome = ended::other;
    std::string text;
    try {
        if (options_.cancels && !stop_) {
            task<char> running(executor_, std::move(work));
            const bool brief = what != operation::lock && what != operation::with_lock &&
                               what != operation::campaign;
            const int most = brief ? (random_() % 2 == 0 ? 300 : 3000) : 15000;
            std::uniform_int_distribution<int> choice(0, most);
            co_await sleep_for(std::chrono::microseconds(choice(random_)));
            running.cancel();
            outcome = co_await running.result();
        } else {
            outcome = co_await std::move(work);
        }
    } catch (const system_error& e) {
        outcome = outcome_of(e);
        text = e.what();
    }
    if (outcome == ended::well && heard.failures() != before) {
        outcome = ended::retried;
    }
    record(what, outcome, began, std::move(text));
    co_return outcome;
}

namespace {

constexpr auto pause = 20ms;

awaitable<char> open(client c, std::chrono::seconds ttl, std::optional<session>& s) {
    session opened = co_await support::open_session(c, ttl);
    s.emplace(std::move(opened));
    co_return ended::well;
}

awaitable<char> take(coetcd::mutex& m) {
    co_await m.lock();
    co_return ended::well;
}

awaitable<char> try_to_take(coetcd::mutex& m) {
    const bool taken = co_await m.try_lock();
    co_return taken ? ended::well : ended::busy;
}

awaitable<char> give_back(coetcd::mutex& m) {
    const bool ours = co_await m.unlock();
    co_return ours ? ended::well : ended::not_owner;
}

template<class T>
awaitable<void> quietly(awaitable<T> work) {
    try {
        (void)co_await std::move(work);
    } catch (const system_error&) {
        // It is of no concern.
    }
}

// The session, or the lock's place, is gone: another session is due.
bool is_over(char outcome) {
    return outcome == ended::lost || outcome == ended::key_lost;
}

} // namespace

awaitable<void> workload::create() {
    client c = co_await client_of(operation::create);
    while (!ends(operation::create)) {
        if (options_.fresh_clients) {
            c = new_client(operation::create);
        }
        std::optional<session> s;
        (void)co_await await_attempt(operation::create, open(c, options_.ttl, s));
        if (s) {
            try {
                co_await s->close();
            } catch (const system_error&) {
                // It ends by itself.
            }
        }
        co_await sleep_for(pause);
    }
}

awaitable<void> workload::keepalive() {
    client c = co_await client_of(operation::keepalive);
    auto& heard = *ears_[static_cast<std::size_t>(operation::keepalive)];
    while (!ends(operation::keepalive)) {
        std::optional<session> s;
        co_await quietly(open(c, options_.ttl, s));
        if (!s) {
            co_await sleep_for(pause);
            continue;
        }
        heard.session_opened();
        while (!ends(operation::keepalive) && s->state() != session_state::lost) {
            co_await sleep_for(5ms);
        }
        if (s->state() == session_state::lost) {
            const auto reason = s->reason();
            record(
                operation::keepalive, ended::lost, heard.last_renewal(), coetcd::to_string(reason));
            task<coetcd::session_end> told(executor_, s->wait_lost());
            co_await sleep_for(50ms);
            if (!told.done()) {
                journal_.complain("lost() does not tell of the loss");
                told.cancel();
            }
            (void)co_await told.how_it_ended();
            if (s->state() != session_state::lost || s->remaining() > 0s) {
                journal_.complain("a session that was lost came back");
            }
        } else {
            heard.ignore(true);
            try {
                co_await s->close();
            } catch (const system_error&) {
                // It ends by itself.
            }
            heard.ignore(false);
        }
    }
}

awaitable<bool> workload::ready(operation what, party& p, std::string name) {
    while (!p.lock) {
        if (ends(what)) {
            co_return false;
        }
        try {
            (void)co_await open(p.owner, options_.ttl, p.lease);
            p.lock.emplace(*p.lease, lock_name(name));
        } catch (const system_error&) {
            // It is tried again.
        }
        if (!p.lock) {
            co_await sleep_for(pause);
        }
    }
    co_return !ends(what);
}

// Nothing if it was lost meanwhile.
template<class Held>
std::optional<workload::claim> workload::claim_of(const Held& held) {
    try {
        if constexpr (requires { held.is_leader(); }) {
            return claim{held.is_leader(), held.term()};
        } else {
            return claim{held.is_owner(), held.fencing_token()};
        }
    } catch (const system_error&) {
        return std::nullopt;
    }
}

awaitable<void> workload::write_guarded(client c, std::string name, std::optional<claim> by) {
    if (!by) {
        co_return;
    }
    written w;
    w.key = options_.prefix + "w/" + name;
    w.value = std::to_string(by->fence) + '.' + std::to_string(++writes_);
    bool aborted = false;
    try {
        auto guarded = coetcd::txn().when(by->owner).then(op::put(w.key, *w.value));
        const auto r = co_await c.txn(std::move(guarded));
        w.outcome = r.succeeded ? ended::well : ended::not_owner;
        w.revision = r.header.revision;
    } catch (const system_error& e) {
        w.outcome = outcome_of(e);
        aborted = w.outcome == ended::canceled;
        if (aborted || w.outcome == ended::protocol || w.outcome == ended::too_large) {
            w.outcome = ended::unknown; // it was sent
        }
    }
    journal_.add(std::move(w));
    if (aborted) {
        throw system_error(boost::asio::error::operation_aborted);
    }
}

// Looks at the lock after each step: also after a stall.
awaitable<void> workload::hold(coetcd::mutex& m, std::chrono::milliseconds wait) {
    const auto until = clock::now() + wait;
    while (clock::now() < until) {
        const auto before = clock::now();
        co_await sleep_for(5ms);
        const bool stalled = clock::now() - before > options_.ttl;
        if (stalled && m.owns_lock()) {
            journal_.complain("after a stall of more than the ttl the lock counts as held");
        }
    }
}

awaitable<void> workload::lock() {
    client c = co_await client_of(operation::lock);
    const auto p = parties_.emplace_back(std::make_shared<party>(c));
    if (options_.flooded && besides_.empty()) {
        besides_.emplace_back(executor_, flood());
        besides_.emplace_back(executor_, read_slowly(c));
    }
    for (;;) {
        const bool go_on = co_await ready(operation::lock, *p, "L");
        if (!go_on) {
            break;
        }
        const char outcome = co_await await_attempt(operation::lock, take(*p->lock));
        if (is_over(outcome)) {
            p->reset();
            continue;
        }
        if (is_well(outcome)) {
            co_await write_guarded(c, "L", claim_of(*p->lock));
            co_await hold(*p->lock, 30ms);
            co_await quietly(give_back(*p->lock));
        }
        co_await sleep_for(pause);
    }
}

awaitable<void> workload::try_lock() {
    client c = co_await client_of(operation::try_lock);
    const auto own = parties_.emplace_back(std::make_shared<party>(c));
    const auto shared = parties_.emplace_back(std::make_shared<party>(c));
    for (int i = 0;; ++i) {
        const bool of_own = i % 2 == 0;
        const std::string name = of_own ? "T" : "L";
        const auto p = of_own ? own : shared;
        const bool go_on = co_await ready(operation::try_lock, *p, name);
        if (!go_on) {
            break;
        }
        const char outcome = co_await await_attempt(operation::try_lock, try_to_take(*p->lock));
        if (is_over(outcome)) {
            p->reset();
        } else if (is_well(outcome)) {
            co_await write_guarded(c, name, claim_of(*p->lock));
            co_await quietly(give_back(*p->lock));
        }
        co_await sleep_for(pause);
    }
}

awaitable<void> workload::unlock() {
    client c = co_await client_of(operation::unlock);
    const auto p = parties_.emplace_back(std::make_shared<party>(c));
    for (;;) {
        const bool go_on = co_await ready(operation::unlock, *p, "U");
        if (!go_on) {
            break;
        }
        try {
            (void)co_await take(*p->lock);
        } catch (const system_error&) {
            p->reset();
            continue;
        }
        co_await write_guarded(c, "U", claim_of(*p->lock));
        co_await hold(*p->lock, options_.cancels ? 5ms : 60ms);
        (void)co_await await_attempt(operation::unlock, give_back(*p->lock));
        co_await sleep_for(5ms);
    }
}

awaitable<void> workload::run_held(operation what) {
    client c = co_await client_of(what);
    const auto p = parties_.emplace_back(std::make_shared<party>(c));
    const auto body = [this, p, c](const auto& held) -> awaitable<char> {
        co_await write_guarded(c, "L", claim_of(held)); // a loss is told to our caller
        co_await sleep_for(40ms);
        co_return ended::well;
    };
    for (;;) {
        const bool go_on = co_await ready(what, *p, "L");
        if (!go_on) {
            break;
        }
        coetcd::election e(*p->lease, lock_name("L"));
        awaitable<char> work = what == operation::campaign ? coetcd::lead(e, "faults", body)
                                                           : coetcd::with_lock(*p->lock, body);
        const char outcome = co_await await_attempt(what, std::move(work));
        if (is_over(outcome)) {
            p->reset();
        }
        co_await sleep_for(pause);
    }
}

awaitable<char> workload::next_changes(client c, std::optional<coetcd::watcher>& w) {
    if (!w) {
        coetcd::watch_options how;
        how.start_revision = next_revision_;
        auto keys = coetcd::key_range::prefix(options_.prefix + "w/");
        coetcd::watcher opened = co_await c.watch(std::move(keys), how);
        w.emplace(std::move(opened));
    }
    const coetcd::watch_batch batch = co_await w->next();
    for (const coetcd::event& e : batch.events) {
        change told;
        told.revision = e.kv.mod_revision;
        told.key = e.kv.key;
        if (e.type == coetcd::event_type::put) {
            told.value = e.kv.value;
        }
        journal_.add(std::move(told));
    }
    next_revision_ = batch.revision + 1;
    co_return ended::well;
}

/// Up to two megabytes a second.
awaitable<void> workload::flood() {
    client c(executor_, coetcd::endpoints(options_.urls), options_.client);
    const std::string value(1000, 'x');
    for (;;) {
        coetcd::txn t;
        for (int i = 0; i < 20; ++i) {
            t.success.push_back(op::put(options_.prefix + "f/" + std::to_string(i), value));
        }
        auto writing = c.txn(std::move(t));
        co_await quietly(std::move(writing));
        co_await sleep_for(10ms);
    }
}

/// Nothing that is told may be older than what was told before.
awaitable<void> workload::read_slowly(client c) {
    for (;;) {
        try {
            coetcd::watcher w = co_await c.watch(coetcd::key_range::prefix(options_.prefix + "f/"));
            for (;;) {
                const coetcd::watch_batch batch = co_await w.next();
                for (const coetcd::event& e : batch.events) {
                    if (e.kv.mod_revision < last_of_flood_) {
                        journal_.complain("a flooded watch has gone back");
                    }
                    last_of_flood_ = e.kv.mod_revision;
                }
                co_await sleep_for(50ms);
            }
        } catch (const system_error& e) {
            if (outcome_of(e) == ended::canceled) {
                throw;
            }
        }
        co_await sleep_for(pause);
    }
}

awaitable<void> workload::watch() {
    client c = co_await client_of(operation::watch);
    std::optional<coetcd::watcher> w;
    while (stop_ || !ends(operation::watch)) { // it goes on when the others stop
        char outcome = ended::other;
        const auto began = clock::now();
        const auto& heard = *ears_[static_cast<std::size_t>(operation::watch)];
        const auto before = heard.failures();
        std::string text;
        try {
            outcome = co_await next_changes(c, w);
        } catch (const coetcd::compacted_error& e) {
            outcome = ended::compacted;
            text = e.what();
            next_revision_ = e.compact_revision();
        } catch (const system_error& e) {
            outcome = outcome_of(e);
            text = e.what();
            if (outcome == ended::canceled) {
                co_return;
            }
            if (outcome == ended::regressed) {
                next_revision_ = 0; // from now on
            }
        }
        if (outcome == ended::well && heard.failures() != before) {
            outcome = ended::retried;
        }
        record(operation::watch, outcome, began, text);
        if (outcome != ended::well && outcome != ended::retried) {
            w.reset();
            co_await sleep_for(pause);
        }
    }
}

} // namespace faults
