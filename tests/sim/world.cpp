// SPDX-License-Identifier: BSL-1.0
#include "sim/world.hpp"

#include <coetcd/detail/testing/link.hpp>

#include <algorithm>
#include <iterator>

#include "sim/permits.hpp"
#include "sim/slots.hpp"

namespace sim {

using namespace std::chrono_literals;
using coetcd::detail::call_request;

std::string_view name(fault f) {
    constexpr std::string_view names[] = {
        "request_lost",   "answer_lost",    "doubted",        "doubted_late",  "duplicated",
        "late_duplicate", "very_late",      "delayed",        "refused",       "broken",
        "interrupted",    "stream_dropped", "stream_silent",  "event_lost",    "stale_read",
        "early_revoke",   "leader_change",  "compaction",     "member_paused", "member_cut",
        "member_lags",    "member_hidden",  "client_paused",  "client_cut",    "client_crashed",
        "clock_rate",     "token_expired",  "locked_out",     "no_space",      "operator_delete",
        "silent_delete",  "member_refuses", "ttl_overstated", "member_strays", "cluster_replaced",
        "end_invented",   "rights_revoked"};
    static_assert(std::size(names) == fault_kinds);
    return names[static_cast<std::size_t>(f)];
}

namespace {

/// Whether all members have to agree to it, so that one can give up waiting for that.
bool is_proposed(rpc what) {
    return what == rpc::txn || what == rpc::put || what == rpc::delete_range ||
           what == rpc::lease_grant || what == rpc::lease_revoke;
}

/// Whether a process knows its cluster by two of its members. A process that does not,
/// or has only one endpoint, could not know better than to belong to another one that answers.
bool is_settled(const std::set<std::pair<std::size_t, int>>& all, std::size_t number) {
    const auto first = all.lower_bound({number, 0});
    return first != all.end() && first->first == number && std::next(first) != all.end() &&
           std::next(first)->first == number;
}

etcd::answer answer_of(const foreign_answer& drawn) {
    etcd::answer a;
    a.status = drawn.status;
    a.body = drawn.body;
    return a;
}

} // namespace

world::world(std::uint64_t seed, options o)
    : coetcd::detail::testing::world(seed, o)
    , hiding_(static_cast<std::size_t>(o.members))
    , refusals_(static_cast<std::size_t>(o.members))
    , other_([this] { return now(); }, o.members, o.speaks) {
    other_.cluster = 4711;
    store.loses_event = [this] { return strikes(fault::event_lost); };
    // Of one that waits: a holder that watches its key believes it, and stops. Or of a permit,
    // which only those watch who wait.
    store.invents_end = [this](const std::string& key) {
        if (const std::optional<permit_key> permit = permit_key::parse(key);
            permit && permit->held) {
            const bool hit = strikes(fault::end_invented);
            had_false_ends_of_permits_ = had_false_ends_of_permits_ || hit;
            return hit;
        }
        const std::optional<queue_key> place = queue_key::parse(key);
        const std::int64_t own = store.keys.at(key).create_revision;
        return place &&
               std::any_of(store.keys.lower_bound(place->name + "/"),
                           store.keys.lower_bound(place->name + "0"),
                           [own](const auto& k) { return k.second.create_revision < own; }) &&
               strikes(fault::end_invented);
    };
}

bool world::strikes(fault f) {
    const bool hit = luck.ppm(weather_[f]) && !(averts && averts(f));
    if (hit) {
        count(f);
        note(name(f));
    }
    return hit;
}

const foreign_answer* world::draw_answer_between(int member, bool chosen) {
    if (is_hidden(member)) {
        return hiding_[static_cast<std::size_t>(member)];
    }
    return chosen || strikes(fault::interrupted) ? draw_foreign_answer(luck, false) : nullptr;
}

std::optional<etcd::answer> world::answered_between(int member) {
    const foreign_answer* const drawn = draw_answer_between(member, false);
    return drawn ? std::optional(answer_of(*drawn)) : std::nullopt;
}

bool world::crashes(process&) {
    return count_of(fault::client_crashed) < most_crashes && strikes(fault::client_crashed);
}

bool world::pauses(process& which) {
    const bool hit = strikes(fault::client_paused);
    if (hit) {
        const bool long_one = luck.one_in(4);
        which.pause(now() + luck.within(1ms, long_one ? 12s : 1s));
    }
    return hit;
}

coetcd::detail::reply world::receive(const call_request& what, const etcd::answer& a) {
    if (const auto asker = askers_.extract(&what); asker && on_answer) {
        on_answer(*asker.mapped());
    }
    if (const auto newcomer = newcomers_.extract(&what);
        newcomer && a.body.find("cluster_id") != a.body.npos) {
        settled_.insert({newcomer.mapped(), member_of(what)});
    }
    return coetcd::detail::testing::world::receive(what, a);
}

/// A process that no member has answered yet would belong to the cluster that a stream leads to.
void world::accept(const std::shared_ptr<coetcd::detail::testing::link>& from,
                   const call_request& what) {
    if (from->member == stray_ && !is_settled(settled_, from->by().number())) {
        from->end(boost::asio::error::eof);
    } else {
        coetcd::detail::testing::world::accept(from, what);
    }
}

line_fate world::judge_line(const process& to, bool once) {
    const bool lost = to.is_cut_off() || strikes(fault::stream_silent);
    if (lost && !once) {
        return line_fate::swallowed;
    }
    // Without a question the other way, silence would be noticed after minutes only.
    return lost || strikes(fault::stream_dropped) ? line_fate::broken : line_fate::arrives;
}

fate world::judge_stream(process& by, const call_request& request) {
    fate f;
    const bool lost = member_of(request) == stray_ && !is_settled(settled_, by.number());
    f.refused = by.is_cut_off() || lost || strikes(fault::refused);
    return f;
}

fate world::judge(process& by, const call_request& request) {
    fate f;
    const auto point = failing_.find(by.number());
    const bool chosen = point != failing_.end() && point->second.first == by.calls;
    const auto hits = [&](fault one) {
        return (chosen && point->second.second == one) || strikes(one);
    };
    if (on_answer) {
        askers_[&request] = &by;
    }
    newcomers_.erase(&request); // there may have been another one in its place
    if (!is_settled(settled_, by.number())) {
        newcomers_[&request] = by.number();
    }
    f.refused = hits(fault::refused);
    if (f.refused) {
        f.there = latency();
        return f;
    }
    const bool cut = by.is_cut_off();
    const bool very_late = request.what == rpc::txn && !cut && hits(fault::very_late);
    f.lost = cut || hits(fault::request_lost) || (very_late && luck.one_in(2));
    const bool breaks = hits(fault::broken);
    f.answer_lost = hits(fault::answer_lost) || very_late;
    const bool proposed = is_proposed(request.what);
    const bool doubted = proposed && hits(fault::doubted);
    const bool doubted_late = proposed && hits(fault::doubted_late);
    const int to = member_of(request);
    const foreign_answer* const foreign =
        draw_answer_between(to, chosen && point->second.second == fault::interrupted);
    if (to == stray_) {
        ++by.failed_calls;
    }
    f.there = latency();
    if (hits(fault::delayed)) {
        // Often by so much that a renewal still succeeds.
        const nanoseconds longest = luck.one_in(2) ? 600ms : 4s;
        (luck.one_in(2) ? f.there : f.back) += luck.within(10ms, longest);
    }
    // A second copy is made by what stands between and tries again, because it got no answer to
    // the first: then that is the one that may be answered. It does not overtake the first.
    const bool twice = !cut && hits(fault::duplicated);
    const bool twice_late = !cut && hits(fault::late_duplicate);
    if (very_late) {
        f.held_back = luck.within(longest_delay, 200s);
    }
    if (doubted || doubted_late) {
        constexpr std::string_view texts[] = {"etcdserver: request timed out",
                                              "etcdserver: server stopped",
                                              "error reading from server: EOF"};
        f.doubt = store.failure(request.what, 14, texts[luck.below(std::size(texts))]);
        ++by.failed_calls;
    }
    if (twice || twice_late) {
        ++by.repeated_calls;
        f.again = twice_late ? luck.within(100ms, longest_delay) : latency();
    }
    if (breaks) {
        f.breaks = luck.within(0s, 2 * (f.there + f.again.value_or(0s)));
    }
    if (foreign && !f.lost) {
        ++by.failed_calls;
        f.instead = answer_of(*foreign);
        f.passes_on = foreign->passes_on && luck.one_in(2) && !is_hidden(to);
    } else if (doubted_late && !f.lost) {
        // A lease that is granted so late may not outlive the session that wants it.
        const nanoseconds latest =
            request.what == rpc::lease_grant ? nanoseconds(1500ms) : longest_delay;
        f.later = luck.within(0ms, latest);
    }
    if (!doubted && !f.later) {
        f.doubt.reset();
    }
    const std::optional<refusal>& no = refusals_[static_cast<std::size_t>(to)];
    const bool refuses = no && (no->of_all || no->what == request.what);
    // What users ask for, and may not be done twice, ends with the first refusal.
    // And what ends a place is not refused: one request for that, and one more, are all there is.
    const bool of_engine = request.way != coetcd::detail::connection_kind::shared &&
                           request.body.find("request_delete_range") == request.body.npos;
    if (refuses && (of_engine || no->of_all) && !f.instead && !f.doubt && !f.lost) {
        refuse(*no, by, request, f);
    }
    return f;
}

void world::refuse(const refusal& no, process& by, const call_request& request, fate& f) {
    etcd::answer a = store.failure(request.what, no.code, no.text);
    (no.applied ? f.doubt : f.instead) = std::move(a);
    ++by.failed_calls;
}

world::refusal world::draw_refusal(chance& c) {
    struct kind {
        int code;
        std::string_view text;
    };
    constexpr kind any[] = {
        {8, "etcdserver: too many requests"},
        {3, "etcdserver: request is odd"},
        {6, "etcdserver: there is one"},
        {7, "etcdserver: permission denied"},
        {8, "etcdserver: no room"},
        {9, "etcdserver: not now"},
        {11, "etcdserver: too far"},
        {16, "etcdserver: invalid auth token"},
        {5, "no route matched"},
    };
    refusal no;
    const std::uint64_t which = c.below(8);
    const kind& drawn = any[c.below(std::size(any))];
    if (which == 0) {
        no.of_all = true; // too many requests
    } else if (which == 1) {
        no.code = 5;
        no.text = "etcdserver: requested lease not found"; // with which something would be put
    } else {
        no.what = which < 5 ? rpc::lease_keep_alive : rpc::txn;
        no.code = drawn.code;
        no.text = drawn.text;
        // A member that has too many requests says so before it proposes one.
        no.applied = which >= 6 && !no.text.ends_with("too many requests");
    }
    return no;
}

etcd::answer world::serve(int member, const call_request& what, etcd::answer so_far) {
    etcd::answer a = coetcd::detail::testing::world::serve(member, what, std::move(so_far));
    const bool strayed = &store_of(what) == &other_;
    went_astray_ = strayed || replaced_at_.has_value();
    if (strayed && !a.wait && a.status != 200) {
        // Errors name no cluster. What a single one can do, to an unlock or a revocation, before it
        // is known that this endpoint has strayed, is no matter of this fault.
        a = store.failure(what.what, 14, "etcdserver: request timed out");
    }
    if (what.what == overstates_) {
        overstate_ttl(a);
    }
    return a;
}

/// Most answers say what is; some that a lease lasts for longer.
void world::overstate_ttl(etcd::answer& a) {
    constexpr std::string_view field = "\"TTL\":\"";
    const auto at = a.body.rfind(field);
    if (a.wait || at == a.body.npos || !strikes(fault::ttl_overstated)) {
        return;
    }
    const auto begin = at + field.size();
    const auto end = a.body.find('"', begin);
    const std::int64_t ttl = std::stoll(a.body.substr(begin, end - begin));
    const std::int64_t said[] = {ttl + 1, 2 * ttl, 3600, 9'000'000'000};
    a.body.replace(begin, end - begin, std::to_string(said[luck.below(std::size(said))]));
}

void world::delete_by_hand() {
    const std::string& queue = operator_prefixes[luck.below(operator_prefixes.size())];
    if (const auto all = store.under(queue); !all.empty()) {
        store.erase(all[luck.below(all.size())]);
    }
}

void world::revoke_rights() {
    std::vector<std::string> held;
    for (const auto& [key, kv] : store.keys) {
        if (kv.lease != 0) {
            held.push_back(key);
        }
    }
    if (held.empty()) {
        return;
    }
    const std::string& one = held[luck.below(held.size())];
    store.denied = one.substr(0, luck.one_in(4) ? 0 : one.rfind('/') + 1);
    denied_since_ = now();
    after(luck.within(100ms, 20s), [this, since = now()] {
        if (store.denied && denied_since_ == since) {
            return_rights();
        }
    });
}

void world::return_rights() {
    if (store.denied && before_rights_return) {
        before_rights_return();
    }
    store.denied.reset();
}

/// What is open there already stays where it is, or breaks.
void world::stray(int member) {
    stray_ = member;
    if (luck.one_in(2)) { // it was made of the same snapshot, or is another one altogether
        other_.restore(store);
    } else {
        other_.restore(etcd([this] { return now(); }));
    }
    if (luck.one_in(2)) {
        store.end_streams(member, false);
    }
    for (const auto& p : processes()) {
        ++p->failed_calls; // what is on its way
    }
}

/// Streams to the other one stay open: connections do not know where a name leads by now.
void world::come_back() {
    stray_ = -1;
    for (const auto& p : processes()) {
        ++p->failed_calls;
    }
}

/// All that the new one has is what the old one had, but perhaps the leases, and it tells all from
/// where that one ended: so it is still this store that counts, under another id.
void world::replace_cluster() {
    replaced_at_ = now();
    ++store.cluster;
    for (int m = 0; m != store.members(); ++m) {
        store.end_streams(m, false);
    }
    store.expire_tokens();
    if (luck.one_in(2)) {
        for (const lease_id id : store.lease_ids()) {
            store.revoke(id);
        }
    }
    for (const auto& p : processes()) {
        ++p->failed_calls;
    }
}

void world::set_weather(const weather& w) {
    weather_ = w;
    healed_ = false;
    if (w[fault::ttl_overstated] != 0) { // two answers that agree are believed
        overstates_ = luck.one_in(2) ? rpc::lease_grant : rpc::lease_keep_alive;
    }
    chaos();
}

/// What goes wrong by itself. Occasions come every 100 ms.
void world::chaos() {
    if (healed_) {
        return;
    }
    after(100ms, [this] { chaos(); });
    // No member is elected while the old leader may still be heard of, or answer renewals.
    const auto lead = [this] {
        after(luck.within(etcd::election_timeout, 2s), [this] {
            if (store.leader() < 0) {
                new_leader();
            }
        });
    };
    // A grant that is on its way would let the lease return, without what it held.
    if (grants_in_flight() == 0 && strikes(fault::early_revoke)) {
        if (const auto all = store.lease_ids(); !all.empty()) {
            store.revoke(all[luck.below(all.size())]);
        }
    }
    if (strikes(fault::operator_delete)) {
        delete_by_hand();
    }
    if (strikes(fault::silent_delete)) {
        store.tells = false;
        delete_by_hand();
        store.tells = true;
    }
    if (strikes(fault::client_cut)) {
        process& one = *processes()[luck.below(processes().size())];
        one.cut_off(now() + luck.within(100ms, 15s));
    }
    if (strikes(fault::compaction)) {
        store.compact(store.revision);
    }
    if (!replaced_at_ && grants_in_flight() == 0 && strikes(fault::cluster_replaced)) {
        replace_cluster();
    }
    if (strikes(fault::token_expired)) {
        store.expire_tokens();
    }
    if (strikes(fault::locked_out)) {
        store.locked_out = true;
        store.expire_tokens();
        after(luck.within(100ms, 4s), [this] { store.locked_out = false; });
    }
    if (!store.denied && strikes(fault::rights_revoked)) {
        revoke_rights();
    }
    if (strikes(fault::no_space)) {
        store.no_space = true;
        after(luck.within(100ms, 4s), [this] { store.no_space = false; });
    }
    if (strikes(fault::stale_read)) {
        store.stale_by = static_cast<std::int64_t>(luck.between(1, most_stale));
        after(luck.within(10ms, 2s), [this] { store.stale_by = 0; });
    }
    if (store.leader() >= 0 && strikes(fault::leader_change)) {
        store.depose();
        lead();
    }
    if (store.members() > 1 && ill_member_ < 0) {
        const int m = static_cast<int>(luck.below(static_cast<std::uint64_t>(store.members())));
        if (strikes(fault::member_paused)) {
            ill_member_ = m;
            const nanoseconds until = now() + luck.within(100ms, 8s);
            pause_member(m, until);
            at(until, [this] { ill_member_ = -1; });
            after(1s, [this, m, lead] {
                if (store.leader() == m && awake(m) > now()) {
                    store.depose();
                    lead();
                }
            });
        } else if (strikes(fault::member_cut)) {
            ill_member_ = m;
            if (store.leader() == m) {
                lead();
            }
            store.cut(m, true);
            const nanoseconds off = luck.within(500ms, 8s);
            let_lag(m, now() + off);
            after(3100ms, [this, m] {
                if (store.is_cut(m)) {
                    store.end_streams(m);
                }
            });
            after(off, [this, m] {
                store.cut(m, false);
                ill_member_ = -1;
            });
        } else if (store.leader() != m && strikes(fault::member_lags)) {
            ill_member_ = m;
            const nanoseconds until = now() + luck.within(10ms, luck.one_in(4) ? 8s : 1s);
            let_lag(m, until);
            at(until, [this] { ill_member_ = -1; });
        } else if (strikes(fault::member_strays)) {
            ill_member_ = m;
            stray(m);
            // Who knows its cluster by one name only follows that name after a second, if nobody
            // else answers meanwhile.
            after(luck.within(100ms, m == 0 ? 900ms : 8s), [this] {
                if (stray_ >= 0) {
                    come_back();
                }
                ill_member_ = -1;
            });
        } else if (strikes(fault::member_hidden)) {
            ill_member_ = m;
            hiding_[static_cast<std::size_t>(m)] = draw_foreign_answer(luck, true);
            store.end_streams(m, false);
            after(luck.within(100ms, 8s), [this, m] {
                hiding_[static_cast<std::size_t>(m)] = nullptr;
                ill_member_ = -1;
            });
        }
    }
    if (ill_member_ < 0 && strikes(fault::member_refuses)) {
        const int m = static_cast<int>(luck.below(static_cast<std::uint64_t>(store.members())));
        ill_member_ = m;
        refusals_[static_cast<std::size_t>(m)] = draw_refusal(luck);
        after(luck.within(100ms, 12s), [this, m] {
            refusals_[static_cast<std::size_t>(m)].reset();
            ill_member_ = -1;
        });
    }
}

void world::heal() {
    healed_ = true;
    weather_ = weather();
    store.no_space = false;
    store.locked_out = false;
    return_rights();
    store.stale_by = 0;
    for (const auto& p : processes()) {
        p->cut_off(now());
    }
    if (stray_ >= 0) {
        come_back();
    }
    for (int m = 0; m != store.members(); ++m) {
        pause_member(m, now());
        hiding_[static_cast<std::size_t>(m)] = nullptr;
        refusals_[static_cast<std::size_t>(m)].reset();
        store.lag(m, false);
        if (store.is_cut(m)) {
            store.cut(m, false);
        }
    }
    if (store.leader() < 0) {
        new_leader();
    }
    note("healed");
}

} // namespace sim
