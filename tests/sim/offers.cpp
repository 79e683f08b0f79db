// SPDX-License-Identifier: BSL-1.0
// What clients do besides taking locks: claim a name for a time, and ask whether an ownership
// lasts; and what operators do.
#include <coetcd/admin.hpp>
#include <coetcd/detail/recipe/leading.hpp>
#include <coetcd/fencing_gate.hpp>
#include <coetcd/timed_claim.hpp>
#include <coetcd/value.hpp>
#include <coetcd/verify.hpp>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/this_coro.hpp>

#include "sim/users.hpp"

namespace sim {

using namespace std::chrono_literals;
using coetcd::errc;

coetcd::lock_options actor::draw_options(const std::string& name, chance& taste) const {
    coetcd::lock_options drawn;
    drawn.value = s_.valued;
    if (s_.limits && taste.one_in(2)) {
        const nanoseconds most = taste.skewed(20ms, 3s);
        drawn.max_hold = std::chrono::duration_cast<std::chrono::milliseconds>(most);
    }
    drawn.watch_while_held = s_.limits && taste.one_in(2);
    if (s_.delay && name == name_of(0)) {
        drawn.delay = *s_.delay;
    } else if (s_.retains && !name.empty() && !taste.one_in(4)) {
        const nanoseconds most = taste.skewed(20ms, 60s);
        drawn.retain = std::chrono::duration_cast<std::chrono::milliseconds>(most);
    }
    return drawn;
}

void actor::start_operating(nanoseconds until) {
    jobs_ = 0;
    ++watches_;
    s_.judge.rates.expect(*p_, 1);
    s_.judge.tenure.operates(*p_);
    auto at_end = [this](std::exception_ptr failure) {
        --watches_;
        if (failure) {
            fail("an operator", failure);
        }
    };
    asio::co_spawn(p_->executor(), operate(until), std::move(at_end));
}

asio::awaitable<void> actor::operate(nanoseconds until) {
    chance taste(s_.taste.next());
    tenure_rules& rules = s_.judge.tenure;
    while (client_ && s_.w.now() < until) {
        (void)co_await p_->sleep(taste.skewed(10ms, 800ms));
        const auto target = rules.draw_ownership(taste);
        if (!client_ || !target) {
            continue;
        }
        const auto [name, token] = *target;
        rules.forces(name, token);
        try {
            asio::awaitable<bool> forcing = coetcd::force_unlock(*client_, name, token);
            const bool ended = co_await std::move(forcing);
            rules.forced(name, token, ended);
        } catch (const boost::system::system_error&) {
            judge(std::current_exception());
        }
    }
}

asio::awaitable<void> actor::claim(std::string name, chance& taste) {
    const std::chrono::seconds hold(taste.between(1, static_cast<int>(s_.ttl.count())));
    std::chrono::seconds min_hold{0};
    std::optional<coetcd::timed_claim> c;
    try {
        const nanoseconds patience = taste.one_in(2) ? 0s : taste.skewed(1ms, 4s);
        if (s_.outlasting && hold > 1s) {
            min_hold = std::chrono::seconds(taste.between(1, static_cast<int>(hold.count()) - 1));
        }
        auto trying = patience == 0s && min_hold == 0s
                          ? coetcd::try_claim(*client_, name, hold)
                          : coetcd::claim_for(*client_, name, {hold, patience, min_hold});
        c = co_await std::move(trying);
    } catch (const coetcd::error& e) {
        if (e.code() == errc::outcome_unknown) {
            s_.w.fail("a claim may have been made, or not");
        }
        throw;
    }
    if (!c) {
        co_return;
    }
    if (!c->owns_lock()) {
        s_.w.fail("a claim was granted that is over already");
    }
    const lease_id lease = c->lease();
    const bool keeps = taste.one_in(4);
    {
        struct until_the_end {
            tenure_rules& rules;
            std::list<timed_hold>::iterator held;
            ~until_the_end() { rules.gives_back(held); }
        };
        timed_hold h{name,
                     c->key(),
                     c->fencing_token(),
                     lease,
                     [&c] { return c->owns_lock(); },
                     sound_clock_};
        const until_the_end counted{s_.judge.tenure, s_.judge.claimed(std::move(h))};
        if (min_hold != 0s) {
            s_.judge.tenure.outlasts(*counted.held, min_hold);
        }
        if (keeps) {
            s_.judge.tenure.keeps(*counted.held);
            c->keep();
        }
        const nanoseconds longest = taste.one_in(3) ? nanoseconds(2 * hold) : 60ms;
        const nanoseconds for_now =
            s_.lying ? taste.within(0ms, 2 * nanoseconds(hold)) : taste.skewed(0ms, longest);
        (void)co_await p_->sleep(for_now);
    }
    if (keeps || taste.one_in(2)) {
        co_return; // it lasts, or goes with its object
    }
    asio::awaitable<bool> releasing = c->release();
    if (c->owns_lock()) {
        s_.w.fail("release() has been called, and the claim is valid");
    }
    (void)co_await std::move(releasing);
    if (min_hold == 0s) { // else the key has another one, and this one ends in the background
        s_.judge.tenure.released(lease, s_.judge.has_ended(lease));
    }
}

asio::awaitable<void> actor::ask_for_proof(chance& taste) {
    tenure_rules& rules = s_.judge.tenure;
    const tenure_rules::known_sequencer* const drawn = rules.draw_sequencer(taste);
    if (!drawn) {
        co_return;
    }
    const tenure_rules::known_sequencer one = *drawn;
    const coetcd::sequencer said(one.text);
    const bool lasted = rules.lasts(one);
    bool lasts = false;
    try {
        auto asking = taste.one_in(2) ? coetcd::verify_of_any_lock(*client_, said)
                                      : coetcd::verify(*client_, one.name, said);
        lasts = co_await std::move(asking);
    } catch (const coetcd::error&) {
        judge(std::current_exception());
        co_return;
    }
    ++rules.verified;
    if (lasts && !lasted) {
        s_.w.fail("verify() says that an ownership lasts that was over: " + one.text);
    }
    if (!lasts && rules.lasts(one)) {
        s_.w.fail("verify() says that an ownership is over that lasts: " + one.text);
    }
}

/// Lets a token through a gate: that of its own lock, or one from before.
asio::awaitable<void> actor::pass_gate(const std::string& name, std::int64_t own, chance& taste) {
    tenure_rules& rules = s_.judge.tenure;
    std::int64_t token = own;
    if (const auto* const drawn = rules.draw_sequencer(taste); drawn && drawn->name == name) {
        token = drawn->fence;
    }
    const coetcd::fencing_gate gate(*client_, "gate/" + name);
    if (s_.works && taste.one_in(2)) {
        co_await work_behind(gate, token, taste);
        co_return;
    }
    const std::int64_t before = rules.admitted(gate.key());
    asio::awaitable<bool> passing = gate.admit(token);
    bool passed = false;
    try {
        passed = co_await std::move(passing);
    } catch (const coetcd::error&) {
        judge(std::current_exception());
        co_return;
    }
    const std::int64_t after = rules.admitted(gate.key());
    if (passed && (token < before || token > after)) {
        s_.w.fail("a gate has admitted " + std::to_string(token) + " after " +
                  std::to_string(before));
    }
    if (!passed && token >= after) {
        s_.w.fail("a gate has refused " + std::to_string(token) + " after " +
                  std::to_string(after));
    }
}

/// Does something behind a gate, or does it only if something is so that is not.
asio::awaitable<void>
actor::work_behind(coetcd::fencing_gate gate, std::int64_t token, chance& taste) {
    tenure_rules& rules = s_.judge.tenure;
    const bool holds = !taste.one_in(4);
    const std::string value = std::to_string(token) + " " + std::to_string(++s_.writes);
    coetcd::txn work;
    work.compares.push_back(coetcd::compare::create_revision(gate.key() + "/nothing") ==
                            (holds ? 0 : 1));
    work.success.push_back(coetcd::op::put(tenure_rules::work_behind(gate.key()), value));
    const std::int64_t before = rules.admitted(gate.key());
    const std::uint64_t repeated = p_->repeated_calls;
    std::optional<coetcd::txn_response> did;
    auto working = gate.admit(token, std::move(work));
    try {
        did = co_await std::move(working);
    } catch (const coetcd::error& e) {
        // Another cluster, which takes the place of ours, may have done it.
        if (e.code() != errc::outcome_unknown && e.code() != errc::wrong_cluster &&
            p_->repeated_calls == repeated) {
            rules.reported_undone(value);
        }
        judge(std::current_exception());
        co_return;
    }
    if (did && did->succeeded != holds) {
        s_.w.fail("a gate tells another outcome than that of the work behind it: " + value);
    }
    if (did && holds) {
        rules.reported_done(value);
    } else if (p_->repeated_calls == repeated) { // else a copy may have found the gate as it was
        rules.reported_undone(value);
    }
    const std::int64_t after = rules.admitted(gate.key());
    if (did && (token < before || token > after)) {
        s_.w.fail("a gate has admitted what is done with " + std::to_string(token) + " after " +
                  std::to_string(before));
    }
    if (!did && token >= after) {
        s_.w.fail("a gate has refused what is done with " + std::to_string(token) + " after " +
                  std::to_string(after));
    }
}

asio::awaitable<void> actor::ask_for_release(std::string name) {
    asio::awaitable<std::optional<std::int64_t>> asking = coetcd::request_release(*session_, name);
    const std::optional<std::int64_t> token = co_await std::move(asking);
    if (token && !s_.judge.was_first(name, *token)) {
        s_.w.fail("somebody was asked for a lock that he never had: " + name);
    }
}

asio::awaitable<void>
actor::look_at_position(const std::string& key, std::int64_t fence, const coetcd::mutex& m) {
    const auto is_there = [&] {
        const auto now = s_.w.store.keys.find(key);
        return now != s_.w.store.keys.end() && now->second.create_revision == fence;
    };
    std::optional<std::size_t> position;
    asio::awaitable<std::optional<std::size_t>> asking = m.position();
    try {
        position = co_await std::move(asking);
    } catch (const coetcd::error&) {
        judge(std::current_exception());
        co_return;
    }
    if (is_there() && position != std::size_t{0} && m.owns_lock() &&
        s_.w.count_of(fault::stale_read) == 0) {
        s_.w.fail("the holder of a lock is not the first in its queue: " + key);
    }
}

/// Writes a value, whatever is there, or in the place of what it has read.
asio::awaitable<void> actor::keep_value(chance& taste) {
    value_rules& rules = s_.judge.values;
    const std::string name = "value/0";
    const bool once = !taste.one_in(4);
    coetcd::value shared = once ? coetcd::value(*session_, name) : coetcd::value(*client_, name);
    std::int64_t expected = -1; // nothing is
    if (taste.one_in(2)) {
        const std::optional<coetcd::key_value> now = co_await shared.get();
        expected = now ? now->mod_revision : 0;
        if (taste.one_in(3)) {
            (void)co_await p_->sleep(taste.skewed(0ms, 60ms));
        }
    }
    const std::string desired = std::to_string(++s_.writes);
    rules.writes(desired, once);
    // Of a copy that the network made, the answer may be that of the second one.
    const std::uint64_t repeated = p_->repeated_calls;
    const auto certain = [&] { return once || p_->repeated_calls == repeated; };
    try {
        std::optional<std::int64_t> written;
        if (expected < 0) {
            asio::awaitable<std::int64_t> setting = shared.set(desired);
            const std::int64_t at = co_await std::move(setting);
            written = at;
        } else {
            auto exchanging = shared.compare_exchange(expected, desired);
            written = co_await std::move(exchanging);
        }
        if (written) {
            rules.written(desired, *written, expected);
        } else if (certain()) {
            rules.refused(desired);
        }
    } catch (const coetcd::error& e) {
        // Another cluster may have it, which takes the place of ours.
        if (was_not_made(e.code(), repeated) && e.code() != errc::wrong_cluster && certain()) {
            rules.refused(desired);
        }
        throw;
    }
}

/// The terms of a candidate that leads again and again.
class actor::terms {
public:
    explicit terms(std::string of, std::uint64_t seed)
        : name(std::move(of))
        , taste(seed) {}
    const std::string name;
    chance taste;
    int running = 0; ///< Bodies.
    int served = 0;  ///< Bodies that have begun.
};

asio::awaitable<void>
actor::lead_in_terms(std::shared_ptr<operation> o, std::string name, chance& taste) {
    s_.judge.rates.expect(*p_, 1); // it opens sessions, one after the other
    o->may_linger = true;
    const auto all = std::make_shared<terms>(name, taste.next());
    coetcd::lead_options how;
    how.ttl = s_.ttl;
    how.again = taste.one_in(3) ? coetcd::again::never : coetcd::again::on_loss;
    auto body = [this, all](const coetcd::leadership& l) { return serve_term(all, l); };
    std::string value = std::to_string(++s_.writes);
    asio::awaitable<void> leading =
        coetcd::lead(*client_, std::move(name), std::move(value), std::move(body), how);
    co_await std::move(leading);
}

/// Its end is awaited before anything else is done, also if it takes its time.
asio::awaitable<void> actor::serve_term(std::shared_ptr<terms> of, const coetcd::leadership& l) {
    struct running {
        explicit running(terms& t)
            : in(t) {
            ++in.running;
        }
        ~running() { --in.running; }
        terms& in;
    };
    const running until_the_end(*of);
    if (of->running != 1) {
        s_.w.fail("the terms of one who leads overlap: " + of->name);
    }
    const auto place = coetcd::detail::access::impl(l)->held;
    const auto session = place->session;
    struct served {
        referee& judge;
        std::list<hold>::iterator held;
        ~served() { judge.gives_back(held); }
    };
    hold h{p_.get(),
           of->name,
           l.key(),
           l.term(),
           session->lease(),
           session,
           [place] { return place->held(); },
           sound_clock_,
           false};
    h.watched = true; // a leader is told at once
    h.granted_at = s_.w.now();
    const served counted{s_.judge, s_.judge.resumed(std::move(h))};
    const error_code ec =
        co_await p_->sleep(of->taste.skewed(0ms, of->taste.one_in(4) ? 4000ms : 60ms));
    if (ec) { // it was cancelled
        (void)co_await asio::this_coro::throw_if_cancelled(false);
        (void)co_await p_->sleep(of->taste.skewed(0ms, 400ms));
    }
}

void actor::start_following() {
    start_besides("who follows a value", follow_value());
}

asio::awaitable<void> actor::follow_value() {
    chance taste(s_.taste.next());
    while (client_) {
        const coetcd::value shared(*client_, "value/0");
        value_feed_.emplace(shared.changes());
        const value_rules::entry seen(s_.judge.values);
        const auto told = [&](const std::optional<coetcd::key_value>& next) {
            s_.judge.values.told(*seen, next);
        };
        co_await follow(value_feed_, taste, told);
    }
}

void actor::start_keeping(std::uint64_t seed) {
    start_besides("who keeps sessions", keep_sessions(seed));
}

asio::awaitable<void> actor::keep_sessions(std::uint64_t seed) {
    chance taste(seed);
    const coetcd::session_keeper_options how(s_.ttl);
    keeper_.emplace(*client_, how);
    for (int rounds = taste.between(1, 6); keeper_ && rounds != 0; --rounds) {
        std::string name =
            name_of(static_cast<int>(taste.below(static_cast<std::uint64_t>(s_.locks))));
        const auto work = std::make_shared<terms>(name, taste.next());
        auto body = [this, work](const coetcd::held_lock& l) { return serve_kept(work, l); };
        try {
            if (taste.one_in(2)) {
                asio::awaitable<void> serving =
                    coetcd::with_lock(*keeper_, std::move(name), std::move(body));
                co_await std::move(serving);
            } else {
                const nanoseconds patience = taste.skewed(0ms, 3s);
                asio::awaitable<bool> serving =
                    coetcd::with_lock_for(*keeper_, std::move(name), patience, std::move(body));
                const bool served = co_await std::move(serving);
                if (served != (work->served != 0)) {
                    s_.w.fail("with_lock_for() does not know whether its body has run");
                }
            }
        } catch (const boost::system::system_error& e) {
            if (work->served == 0 && e.code() == errc::session_lost) {
                s_.w.fail("who keeps sessions has not waited for the next one: " + work->name);
            }
            judge(std::current_exception());
        }
        if (work->running != 0) {
            s_.w.fail("with_lock() has ended, and its body has not: " + work->name);
        }
        if (keeper_) {
            (void)co_await p_->sleep(taste.skewed(0ms, taste.one_in(4) ? 4000ms : 60ms));
        }
    }
    keeper_.reset();
}

/// Its end is awaited, and it is not run again, whatever becomes of the session.
asio::awaitable<void> actor::serve_kept(std::shared_ptr<terms> of, const coetcd::held_lock& l) {
    if (++of->served != 1) {
        s_.w.fail("a body is run again: " + of->name);
    }
    struct served {
        terms& in;
        referee& judge;
        std::list<hold>::iterator held;
        ~served() {
            judge.gives_back(held);
            --in.running;
        }
    };
    ++of->running;
    const auto place = coetcd::detail::access::held(l);
    const auto session = place->session;
    hold h{p_.get(),
           of->name,
           l.key(),
           l.fencing_token(),
           session->lease(),
           session,
           [place] { return place->held(); },
           sound_clock_,
           true};
    h.granted_at = s_.w.now();
    h.pauses = p_->pauses;
    const served counted{*of, s_.judge, s_.judge.resumed(std::move(h))};
    (void)co_await p_->sleep(of->taste.skewed(0ms, of->taste.one_in(4) ? 4000ms : 60ms));
}

/// Each call changes it once, or not at all.
asio::awaitable<void>
actor::change_limit(std::shared_ptr<operation> o, coetcd::semaphore& s, chance& taste) {
    permit_rules& rules = s_.judge.permits;
    const bool relative = taste.one_in(2);
    const std::int64_t by = !relative ? taste.between(1, 4) : taste.one_in(2) ? 1 : -1;
    const std::size_t call = rules.changes_limit(s.name(), relative, by);
    const std::uint64_t repeated = p_->repeated_calls;
    try {
        std::int64_t now = by;
        bool interrupted = false;
        if (relative) {
            auto changing = into(now, s.adjust_limit(by));
            interrupted = co_await is_interrupted(o, std::move(changing));
        } else {
            asio::awaitable<void> changing = s.set_limit(by);
            interrupted = co_await is_interrupted(o, std::move(changing));
        }
        if (!interrupted) {
            rules.changed_limit(call, now);
        }
    } catch (const coetcd::error& e) {
        if (was_not_made(e.code(), repeated)) {
            rules.refused_limit(call);
        }
        // Its process may have stood still until it was too late to try again.
        if (e.code() != errc::conflict) {
            judge(std::current_exception()); // the permits are ours all the same
        }
    }
}

asio::awaitable<void> actor::write_by_sequencer(chance& taste) {
    const tenure_rules::known_sequencer* const drawn = s_.judge.tenure.draw_sequencer(taste);
    if (!drawn) {
        co_return;
    }
    const coetcd::sequencer said(drawn->text);
    coetcd::txn write;
    write.compares.push_back(taste.one_in(2) ? coetcd::guard_of_any_lock(said)
                                             : coetcd::guard(drawn->name, said));
    write.success.push_back(
        coetcd::op::put(std::string(resource_prefix) + drawn->name.substr(queue_prefix.size()),
                        std::to_string(drawn->fence)));
    asio::awaitable<coetcd::txn_response> writing = client_->txn(std::move(write));
    try {
        (void)co_await std::move(writing);
    } catch (const coetcd::error&) {
        judge(std::current_exception());
    }
}

} // namespace sim
