// SPDX-License-Identifier: BSL-1.0
#include "sim/scenario.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "sim/faults.hpp"
#include "sim/sidelines.hpp"
#include "sim/stage.hpp"
#include "sim/users.hpp"

namespace sim {

using namespace std::chrono_literals;

outcome run(const plan& p) {
    chance luck(chance::derive(p.seed, 4));
    world::options o;
    o.members = luck.one_in(4) ? 1 : 3;
    o.speaks = luck.one_in(2) ? dialect::v1 : dialect::v2;
    o.latency_high = std::chrono::milliseconds(luck.between(1, 30));
    if (luck.one_in(2)) {
        o.progress_interval = luck.within(200ms, 10s);
    }
    const bool random = p.what == plan::kind::random;
    chance pools(chance::derive(p.seed, 64));
    if (random && pools.one_in(4)) {
        o.connections = static_cast<std::size_t>(pools.between(1, 8));
    }

    outcome result;
    stage s(p, o);
    world& w = s.w;
    w.keep_notes(p.notes);
    w.averts = [&](fault f) {
        result.strikes.push_back(f);
        return p.without.faults.contains(result.strikes.size() - 1);
    };
    const auto takes_part = [&] { return !p.without.users.contains(result.users++); };
    s.crowded = random && luck.one_in(40);
    const bool many_sessions = luck.one_in(2); // in a crowd, else many coroutines of few
    s.locks = !s.crowded && luck.one_in(8) ? luck.between(3, 8) : luck.between(1, 2);
    w.operator_prefixes.clear();
    for (int lock = 0; lock != std::max(2, s.locks); ++lock) {
        w.operator_prefixes.push_back(name_of(lock) + "/");
    }
    s.shares = chance(chance::derive(p.seed, 5)).one_in(3);
    for (int lock = 0; s.shares && lock != 3; ++lock) {
        w.operator_prefixes.push_back(shared_name_of(lock) + "/");
    }
    chance permits(chance::derive(p.seed, 6));
    s.semaphores = permits.one_in(3) ? permits.between(1, 2) : 0;
    if (s.crowded && chance(chance::derive(p.seed, 41)).one_in(3)) {
        s.semaphores = 1;
        s.only_permits = true;
    }
    for (int number = 0; number != s.semaphores; ++number) {
        w.operator_prefixes.push_back(semaphore_name(number) + "/");
    }
    constexpr int ttls[] = {2, 2, 3, 3, 5, 5, 10, 30};
    s.ttl = std::chrono::seconds(ttls[luck.below(std::size(ttls))]);
    s.judge.slots.keys_return = p.keys_return;
    s.judge.one_fails = p.what == plan::kind::fail_at;
    w.store.batch = luck.one_in(2) || s.crowded ? 1000 : 2;
    if (luck.one_in(2)) {
        w.piece = chance(chance::derive(p.seed, 26)).below(1500); // often of one or two events
    }
    w.store.tells_leases_of_keys = chance(chance::derive(p.seed, 7)).one_in(2);
    sky above = random ? draw_sky(luck) : sky::clear;
    if (s.crowded && above != sky::clear) {
        // In clear weather it is seen at once if one of a crowd does not count what it should.
        const bool clears = s.only_permits && chance(chance::derive(p.seed, 42)).one_in(2);
        above = clears ? sky::clear : sky::mixed;
    }
    if (above == sky::mixed && !s.crowded) {
        chance rare(chance::derive(p.seed, 28));
        above = draw_rare_sky(rare);
    }
    if (above == sky::orphaning) {
        s.ttl = 30s; // longer than a request may take, so that it is unknown for a while
    }
    s.judge.longest_ttl = s.ttl;
    weather faults = draw_weather(luck, above);
    if (above == sky::mixed) {
        chance wrong(chance::derive(p.seed, 21));
        add_wrong_answers(wrong, faults);
    }
    if (above == sky::mixed && !s.crowded) {
        chance others(chance::derive(p.seed, 22));
        add_other_clusters(others, faults);
    }
    if (chance(chance::derive(p.seed, 5)).one_in(4)) {
        s.judge.book.open();
    }
    chance offers(chance::derive(p.seed, 9));
    const bool forces = random && !s.crowded && offers.one_in(4);
    s.limits = !s.crowded && offers.one_in(3);
    s.lying = above == sky::lying && !s.crowded;
    s.claims = (!s.crowded && offers.one_in(4)) || s.lying; // they end by the clock alone
    s.outlasting = s.claims && chance(chance::derive(p.seed, 57210)).one_in(12);
    s.proves = !s.crowded && offers.one_in(3);
    if (!s.crowded && offers.one_in(2)) {
        s.delay = std::chrono::milliseconds(offers.between(1000, 6000));
    }
    s.retains = !s.crowded && chance(chance::derive(p.seed, 31)).one_in(3);
    s.valued = random && !s.crowded && chance(chance::derive(p.seed, 80)).one_in(16);
    chance besides(chance::derive(p.seed, 11));
    s.asks = s.proves && besides.one_in(4);
    s.works = s.proves && besides.one_in(4);
    const bool serves = random && !s.crowded && besides.one_in(8);
    const bool clear = above == sky::clear && p.what != plan::kind::fail_at;
    const bool calm = clear && !forces; // nothing is taken away from any client
    const bool prompt = clear || above == sky::deaf || above == sky::robbed;
    s.judge.prompt = prompt;
    s.calm_since = clear ? nanoseconds(0) : nanoseconds::max();
    s.judge.only_refused = above == sky::refusing && o.members > 1;
    s.sluggish = above == sky::sluggish;
    s.judge.only_denied = above == sky::disowning;
    w.before_rights_return = [&s] { s.judge.look_for_unseen(); };
    s.lingering = above == sky::deaf || above == sky::robbed || above == sky::replaced ||
                  above == sky::disowning;
    s.hasty = !s.crowded && chance(chance::derive(p.seed, 8)).one_in(4);
    s.elects = luck.one_in(3);
    if (s.elects) {
        s.delay.reset(); // all that use the lock have to have it, and an election has none
    }
    s.judge.tenure.delay = s.delay.value_or(std::chrono::milliseconds(0));
    // Their locks have no options.
    s.impatient = random && !s.crowded && !s.delay &&
                  chance(chance::derive(p.seed, 25)).one_in(clear ? 2U : 8U);
    chance moments(chance::derive(p.seed, 30));
    if (random && moments.one_in(4)) {
        s.moments = moments;
    }
    if (s.moments || p.what == plan::kind::answer_at) {
        w.on_answer = [&s](const process& to) {
            for (const auto& tell : s.at_answers) {
                tell(to);
            }
        };
    }
    s.cancel_ppm = random && luck.one_in(2) ? 400'000 : 0;

    coetcd::client_options options;
    if (luck.one_in(6)) {
        options.credentials.emplace("root", std::string("secret"));
        options.insecure_plain_text_credentials = true;
        w.store.require_user("root", "secret");
    }
    if (luck.one_in(4)) {
        options.member_refresh = std::chrono::seconds(luck.between(1, 10));
    }
    if (s.judge.only_refused) {
        options.member_refresh.reset(); // they know only one, at first
    }

    chance calling(chance::derive(p.seed, 40));
    const bool calls = random && !s.crowded && calling.one_in(8);
    options.combine_calls = calls && !calling.one_in(4);

    chance joining(chance::derive(p.seed, 70));
    const bool joins = random && !s.crowded && joining.one_in(12);
    if (joins) {
        w.operator_prefixes.emplace_back(group_prefix);
    }
    sidelines others(s, p.seed, random && !s.crowded);

    const int clients = random ? luck.between(2, 4) : 2;
    std::vector<std::unique_ptr<actor>> actors;
    const auto begin = [&](actor& who, int jobs, int rounds, bool sound_clock) {
        result.rounds = std::max(result.rounds, rounds);
        who.start(takes_part() ? jobs : 0, std::min(rounds, p.without.rounds), sound_clock);
    };
    const auto add_actor = [&]() -> actor& {
        std::shared_ptr<process> of = w.add_process();
        bool sound_clock = true;
        if (random && luck.one_in(6)) {
            const bool wild = luck.one_in(3) && !prompt; // beyond what the margin allows for
            of->set_rate(luck.between(wild ? -300'000 : -45'000, wild ? 300'000 : 45'000));
            sound_clock = !wild;
            w.count(fault::clock_rate);
        }
        actors.push_back(std::make_unique<actor>(s, of, options));
        actor& added = *actors.back();
        if (actors.size() == 1 && p.what == plan::kind::cancel_at) {
            added.cancel_at(p.point);
        }
        if (actors.size() == 1 && p.what == plan::kind::answer_at) {
            added.cancel_with_answer(p.point);
        }
        if (actors.size() == 1 && p.what == plan::kind::crash_at) {
            added.crash_at(p.point);
        }
        if (actors.size() == 1 && p.what == plan::kind::fail_at) {
            w.fail_call(*of, p.point, p.how);
        }
        if (s.crowded) {
            const int guests = many_sessions ? 100 / clients : 0;
            const int jobs = many_sessions ? 1 : 300 / clients;
            for (int guest = 0; guest != guests; ++guest) {
                actors.push_back(std::make_unique<actor>(s, added));
                begin(*actors.back(), jobs, 1, sound_clock);
            }
            begin(added, jobs, 1, sound_clock);
            return added;
        }
        const int jobs = luck.one_in(4)    ? luck.between(2, 3)
                         : luck.one_in(12) ? luck.between(4, 12)
                                           : 1;
        if (s.judge.book.is_open()) { // what conflicts is tried again soon
            s.judge.rates.expect(*of, 4 * jobs);
        }
        begin(added, jobs, luck.one_in(6) ? luck.between(4, 12) : luck.between(1, 3), sound_clock);
        for (int guests = random && luck.one_in(6) ? luck.between(1, 6) : 0; guests != 0;
             --guests) {
            actors.push_back(std::make_unique<actor>(s, added));
            begin(*actors.back(), 1, luck.between(1, 3), sound_clock);
        }
        return added;
    };
    chance keeping(chance::derive(p.seed, 10));
    chance crowding(chance::derive(p.seed, 12));
    chance lagging(chance::derive(p.seed, 27));
    const bool crowds = random && !s.crowded && crowding.one_in(clear ? 8 : 256);
    const bool keeps = random && !s.crowded && !s.delay; // its locks have no options
    for (int i = 0; i != clients; ++i) {
        actor& added = add_actor();
        const bool lags = random && !s.crowded && lagging.one_in(clear ? 4 : 12);
        // Beside a reader that lags another one is told.
        const bool watches = luck.one_in(6) || lags || above == sky::straying;
        if (watches && takes_part()) {
            added.start_watch();
        }
        if (lags && takes_part()) {
            added.start_lagging(lagging.next());
        }
        if (luck.one_in(6) && takes_part()) {
            added.start_observing();
        }
        if (s.proves && offers.one_in(4) && takes_part()) {
            added.start_following();
        }
        if (keeps && keeping.one_in(16) && takes_part()) {
            added.start_keeping(keeping.next());
        }
        if (s.asks && besides.one_in(2) && takes_part()) {
            added.start_asking(besides.next());
        }
        if (serves && besides.one_in(2) && takes_part()) {
            added.start_serving(besides.next());
        }
        if (calls && calling.one_in(2) && takes_part()) {
            added.start_calling(calling.next());
        }
        if (crowds && i == 0 && takes_part()) {
            const std::uint64_t how = crowding.next();
            added.start_crowding(how, (crowding.one_in(2) ? 400 : 50) * s.latency);
        }
        if (joins && takes_part()) {
            added.start_joining(joining.next());
        }
        if (joins && joining.one_in(2) && takes_part()) {
            added.start_listing();
        }
        others.start(added, takes_part);
    }
    if (forces && takes_part()) {
        actors.push_back(std::make_unique<actor>(s, w.add_process(), options));
        actors.back()->start_operating(offers.within(1s, 8s));
    }
    w.set_weather(faults);

    // It goes wrong, for a while.
    std::uint64_t crashes = 0;
    int coming_back = 0; // Half of the clients that crash do.
    bool ending = false;
    const auto finished = [&] {
        return coming_back == 0 && std::all_of(actors.begin(), actors.end(), [](const auto& a) {
                   return a->finished();
               });
    };
    const auto step = [&] {
        const bool more = w.step();
        s.judge.look_at_states();
        s.judge.look_at_holds();
        for (const auto& a : actors) {
            if (clear && !a->is_guest()) {
                a->look_at_lane();
            }
        }
        for (; crashes != s.crashes; ++crashes) {
            if (!ending && luck.one_in(2)) {
                ++coming_back;
                w.after(luck.within(0ms, 3s), [&] {
                    --coming_back;
                    add_actor();
                });
            }
        }
        return more && w.failure().empty();
    };
    const nanoseconds storm = luck.within(500ms, 8s) * (above == sky::disowning ? 5 : 1);
    bool more = true;
    const nanoseconds recheck = std::min<nanoseconds>(s.ttl / 2, 10s);
    // A client that was silenced in the storm finds out by and by. A lease that is not renewed
    // ends. Where no client is robbed, a lock is handed over by an event, not by a look: two ways
    // there and back.
    const nanoseconds at_once = 8 * s.latency + 100ms;
    const nanoseconds bound = !prompt ? 2 * nanoseconds(s.ttl) + 2s + recheck + 15s
                              : p.what == plan::kind::crash_at ? nanoseconds(s.ttl) + 2s
                              : calm                           ? at_once
                                                               : recheck * 17 / 16 + 1500ms;
    // A watch whose stream fell silent asks after 10 s. Where none does, etcd looks each 100 ms
    // for watches that are behind.
    const nanoseconds patience = calm ? at_once + 2 * etcd::sync_interval : 40s;
    nanoseconds next_look = w.now();
    nanoseconds healed_at{0};
    const auto look = [&] {
        if (w.now() >= next_look) {
            next_look = w.now() + (calm ? 20ms : 250ms);
            s.judge.look_for_stuck(prompt ? 0s : healed_at, bound);
            s.judge.look_for_untold(healed_at, patience);
            s.judge.tenure.look_for_unheard(healed_at, patience);
            const nanoseconds since = prompt ? 0s : healed_at;
            const nanoseconds longest = std::max(bound, patience) + 1s;
            s.judge.jobs.look_for_idle(since, longest);
            s.judge.queues.look_for_idle(since, longest);
            s.judge.parcels.look_for_idle(since, longest);
            s.judge.turnstile.look_for_stuck(since, longest + recheck);
            s.judge.hall.look_for_stuck(since, longest + recheck);
            s.judge.latches.look_for_stuck(since, longest + recheck);
            s.judge.barriers.look_for_stuck(since, longest + recheck);
        }
    };
    while (more && !finished() && w.now() < storm && !faults.calm()) {
        more = step();
        if (prompt) {
            look();
        }
    }

    // Nothing goes wrong any more: all must come to an end.
    w.heal();
    healed_at = w.now();
    s.calm_since = std::min<nanoseconds>(s.calm_since, healed_at + world::longest_delay + 5s);
    const nanoseconds limit = w.now() + 3000s; // some sleep for 150 s, again and again
    while (more && !finished()) {
        more = step();
        look();
        if (w.now() > limit) {
            w.fail("no progress although nothing goes wrong");
        }
    }

    if (calm && s.crowded && s.cancel_ppm == 0) {
        // Each waiter looks once and is woken once or twice; besides, each looks now and then.
        const auto rounds = static_cast<std::uint64_t>(w.now() / (recheck / 2)) + 1;
        const std::uint64_t most = 4 * s.judge.herd.entries + rounds * actors.size();
        if (s.judge.herd.requests > most) {
            w.fail("a herd: waiters asked " + std::to_string(s.judge.herd.requests) +
                   " times, of " + std::to_string(s.judge.herd.entries) + " that entered");
        }
    }

    // Nothing may stay behind of them, though their sessions live on. What is beside a queue may:
    // it goes with its session.
    w.let_late_ones_come();
    const nanoseconds finished_at = w.all_awake();
    ending = true;
    const auto left_behind = [&] {
        std::vector<std::string> keys = w.store.under(std::string(queue_prefix));
        std::erase_if(keys, [&s](const std::string& key) {
            const std::size_t name = lock_of(key).size();
            return name == key.size() || key[name] != '/' || s.judge.is_retained(key);
        });
        for (std::string& key : s.judge.sharing.left_behind()) {
            keys.push_back(std::move(key));
        }
        for (std::string& key : s.judge.permits.left_behind()) {
            keys.push_back(std::move(key));
        }
        return keys;
    };
    const auto dirty = [&] {
        return w.in_flight() != 0 || s.judge.has_unnoticed() || s.judge.awaits_expiry() ||
               s.judge.owes_changes() || !left_behind().empty();
    };
    while (more && dirty()) {
        more = step();
        look();
        const nanoseconds waited = w.now() - finished_at;
        if (waited < world::longest_delay + 1s) {
            continue;
        }
        for (const std::string& key : left_behind()) {
            const lease_id lease = w.store.keys.at(key).lease;
            const bool live = std::any_of(actors.begin(), actors.end(), [&](const auto& a) {
                return a->has_live_session(lease);
            });
            if (live || waited > world::longest_delay + 2 * nanoseconds(s.ttl) + 5s) {
                w.fail("a key was left behind: " + key);
            }
        }
        if (waited > world::longest_delay + 2 * nanoseconds(s.ttl) + patience + 6s) {
            break;
        }
    }

    if (more) {
        s.judge.book.settle();
    }

    // The end, in good order or not.
    for (const auto& a : actors) {
        a->close(luck.one_in(2));
    }
    const nanoseconds closing_at = w.now();
    const auto busy = [&] {
        for (const auto& a : actors) {
            if (!a->closed() || a->in().waiting() != 0) {
                return true;
            }
        }
        return w.store.streams() != 0;
    };
    while (more && busy()) {
        more = step();
        if (w.now() > closing_at + 40s) {
            w.fail("work goes on although all is closed");
        }
    }
    for (const auto& a : actors) {
        if (more && !a->counts_match()) {
            w.fail("the observer was not told once of each beginning and end, in order");
        }
    }

    result.failure = w.failure();
    result.reached = s.reached;
    for (const auto& of : w.processes()) {
        result.calls += of->calls;
        if (p.what == plan::kind::fail_at && of->number() == 0) {
            result.reached = of->calls >= p.point;
        }
    }
    result.trace = w.trace();
    result.faults = w.counts();
    result.cancellations = s.cancellations;
    result.grants = s.judge.grants;
    result.shared_grants = s.judge.sharing.grants;
    result.resumed = s.judge.resumptions;
    result.upgrades = s.judge.sharing.upgrades;
    result.downgrades = s.judge.sharing.downgrades;
    result.permits = s.judge.permits.grants;
    result.forced = s.judge.tenure.forced_ends;
    result.retentions = s.judge.retentions;
    result.claims = s.judge.tenure.claims;
    result.outlasting = s.judge.tenure.outlasting;
    result.delays = s.judge.tenure.delays;
    result.proofs = s.judge.tenure.verified;
    result.heard = s.judge.tenure.requests_heard;
    result.works = s.judge.tenure.works;
    result.tasks = s.tasks;
    result.late_entries = s.judge.slots.late_entries;
    result.ends_told = s.judge.herd.events;
    result.wakes = s.judge.herd.wakes;
    result.busiest = s.judge.rates.busiest;
    result.told = s.judge.told_changes;
    result.compactions = s.judge.told_compactions;
    result.states = s.judge.leaders.told_states;
    result.proclaimed = s.judge.leaders.proclaimed;
    result.handed_out = s.judge.queues.handed_out + s.judge.parcels.handed_out;
    result.put_back = s.judge.queues.put_back + s.judge.parcels.put_back;
    result.gathered = s.judge.turnstile.groups + s.judge.hall.groups;
    result.latches = s.judge.latches.opened;
    result.closings = s.judge.barriers.closings;
    result.duration = w.now();
    result.notes = w.notes();
    w.shut_down(); // before the actors go
    return result;
}

} // namespace sim
