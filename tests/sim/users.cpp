// SPDX-License-Identifier: BSL-1.0
#include "sim/users.hpp"

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/recipe/shared_holds.hpp>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>

#include <algorithm>

namespace sim {

using namespace std::chrono_literals;
using coetcd::errc;

void actor::start(int jobs, int rounds, bool sound_clock) {
    sound_clock_ = sound_clock;
    jobs_ = jobs;
    s_.judge.rates.expect(*p_, s_.impatient ? 5 * jobs + 1 : jobs + 1);
    for (int i = 0; i != jobs; ++i) {
        auto at_end = [this](std::exception_ptr failure) {
            --jobs_;
            if (failure) {
                fail("a client", failure);
            }
        };
        asio::co_spawn(p_->executor(), job(rounds), std::move(at_end));
    }
}

void actor::start_besides(const char* who, asio::awaitable<void> work) {
    ++watches_;
    s_.judge.rates.expect(*p_, 1);
    auto at_end = [this, who](std::exception_ptr failure) {
        --watches_;
        if (failure) {
            fail(who, failure);
        }
    };
    asio::co_spawn(p_->executor(), std::move(work), std::move(at_end));
}

void actor::start_watch() {
    start_besides("a watcher", watch(watcher_, s_.taste.next(), false));
}

void actor::start_lagging(std::uint64_t seed) {
    start_besides("a slow watcher", watch(laggard_, seed, true));
    chance taste(chance::derive(seed, 1));
    if (taste.one_in(2)) {
        start_besides("who writes what the slow watch", write_steadily(taste.next()));
    }
}

void actor::start_observing() {
    start_besides("an observer", observe());
}

void actor::crash_at(std::uint64_t n) {
    p_->on_suspension = [this, n] {
        if (++seen_ == n) {
            s_.reached = true;
            p_->crash_soon();
        }
    };
}

void actor::cancel_at(std::uint64_t n) {
    p_->on_suspension = [this, n] {
        if (current_ && ++seen_ == n) {
            s_.reached = true;
            emit(current_);
        }
    };
}

void actor::cancel_with_answer(std::uint64_t n) {
    s_.at_answers.push_back([this, n](const process& to) {
        const std::uint64_t nth = (n + 1) / 2;
        if (&to == p_.get() && current_ && ++seen_ == nth) {
            s_.reached = true;
            emit(current_, n % 2 == 1 ? 0 : 1 + nth % 6);
        }
    });
}

/// Cancels an operation with one of the answers that come while it lives, or soon after.
class actor::moment {
public:
    moment(actor& a, std::shared_ptr<operation> o, chance& taste, int latest)
        : all_(a.s_.at_answers) {
        const std::uint64_t hops = taste.one_in(2) ? 0 : taste.below(8);
        auto count = [&a, hops, o = std::move(o), left = taste.between(1, latest)](
                         const process& to) mutable {
            if (&to == a.p_.get() && --left == 0) {
                a.emit(o, hops);
            }
        };
        all_.push_front(std::move(count));
        place_ = all_.begin();
    }
    ~moment() { all_.erase(place_); }
    moment(const moment&) = delete;
    moment& operator=(const moment&) = delete;

private:
    std::list<std::function<void(const process&)>>& all_;
    std::list<std::function<void(const process&)>>::iterator place_;
};

void actor::close(bool orderly) {
    if (orderly && session_) {
        asio::co_spawn(p_->executor(), close_session(), [](std::exception_ptr) {});
    } else {
        drop();
    }
}

bool actor::has_live_session(lease_id id) const {
    if (!session_) {
        return false;
    }
    const session_impl& impl = *coetcd::detail::access::impl(*session_);
    return impl.lease() == id && impl.is_certain();
}

void actor::drop() {
    semaphores_.clear();
    session_.reset();
    watcher_.reset();
    laggard_.reset();
    feed_.reset();
    value_feed_.reset();
    keeper_.reset();
    member_keeper_.reset();
    members_feed_.reset();
    mirror_changes_.reset();
    mirror_.reset();
    jobs_queue_.reset();
    work_session_.reset();
    mail_.queue.reset();
    mail_.session.reset();
    parcels_.queue.reset();
    parcels_.session.reset();
    for (const own_session& own : own_sessions_) {
        own->reset();
    }
    for (const std::shared_ptr<operation>& o : lasting_) {
        emit(o);
    }
    group_.reset();
    client_.reset();
}

void actor::crashed() {
    p_->on_suspension = nullptr;
    jobs_ = 0;
    watches_ = 0;
    mourners_ = 0;
    current_ = nullptr;
    if (session_) {
        s_.judge.crashed(session_->lease());
    }
    drop();
    s_.crashes += is_guest_ ? 0 : 1;
}

asio::awaitable<void> actor::close_session() {
    const lease_id lease = session_->lease();
    const bool is_calm = s_.w.healed();            // else fault after fault may use up all its time
    const std::uint64_t failed = p_->failed_calls; // it may wait for what was sent before
    const std::uint64_t cluster =
        coetcd::detail::access::impl(*session_)->owner->cluster_router->cluster();
    try {
        co_await session_->close();
        if (s_.w.store.has_lease(lease) && !s_.judge.has_ended(lease)) {
            s_.w.fail("close() returned, and the lease lives");
        }
    } catch (const boost::system::system_error& e) {
        // After a login that was refused there may be no time for another one.
        const bool no_login = was_locked_out(e.code()) || (e.code() == errc::timed_out &&
                                                           s_.w.count_of(fault::locked_out) != 0);
        // Nor may there be for one that learns only now that its cluster was replaced.
        const bool no_cluster =
            coetcd::detail::logic::is_transient(e.code()) && cluster != s_.w.store.cluster;
        // Calls that were lost before may take up all connections, until their time is over.
        const bool no_place = s_.has_pools && e.code() == errc::timed_out;
        if (is_calm && p_->failed_calls == failed && !no_place &&
            s_.what.what != plan::kind::fail_at && !no_login && !no_cluster) {
            s_.w.fail(std::string("close() failed although nothing goes wrong: ") + e.what());
        }
    }
    drop();
}

void actor::fail(const std::string& who, const std::exception_ptr& failure) {
    try {
        std::rethrow_exception(failure);
    } catch (const std::exception& e) {
        s_.w.fail(who + " met an unexpected exception: " + e.what());
    }
}

void actor::emit(const std::shared_ptr<operation>& o, std::uint64_t hops) {
    auto now = [this, o, hops] {
        if (hops != 0) {
            emit(o, hops - 1);
            return;
        }
        if (o->completions == 0 && !o->cancelled_at) {
            ++s_.cancellations;
            s_.w.note("cancel", p_->number());
            o->cancelled_at = s_.w.now();
            if (o->wants) {
                (*o->wants)->cancelled = true;
            }
            o->stop.emit(asio::cancellation_type::terminal);
        }
    };
    asio::post(p_->executor(), std::move(now));
}

asio::awaitable<void> actor::perform(std::shared_ptr<operation> o, asio::awaitable<void> work) {
    auto at_end = [this, o](std::exception_ptr failure) {
        o->failure = failure;
        if (++o->completions != 1) {
            s_.w.fail("an operation completed twice");
        }
        o->done->resume();
    };
    asio::co_spawn(p_->executor(),
                   std::move(work),
                   asio::bind_cancellation_slot(o->stop.slot(), std::move(at_end)));
    const std::uint64_t pauses = p_->pauses;
    if (s_.taste.ppm(s_.cancel_ppm)) {
        const nanoseconds when = s_.taste.skewed(0ms, s_.taste.one_in(4) ? 2000ms : 100ms);
        s_.w.after(when, [this, o] { emit(o); });
    }
    std::optional<moment> at_an_answer;
    if (s_.moments && s_.moments->one_in(3)) {
        at_an_answer.emplace(*this, o, *s_.moments, 12);
    }
    (void)co_await suspension::wait(o->done);
    at_an_answer.reset();
    if (o->cancelled_at && !o->may_linger && p_->pauses == pauses &&
        s_.w.now() - *o->cancelled_at > 1ms) {
        s_.w.fail("a cancelled operation did not end at once");
    }
    if (o->failure) {
        judge(o->failure);
    }
}

asio::awaitable<bool> actor::is_interrupted(std::shared_ptr<operation> o,
                                            asio::awaitable<void> call) {
    std::optional<moment> at_an_answer;
    if (s_.moments && s_.moments->one_in(2)) {
        at_an_answer.emplace(*this, o, *s_.moments, 3);
    }
    bool was_cancelled = false;
    try {
        co_await std::move(call);
    } catch (const boost::system::system_error& e) {
        was_cancelled =
            at_an_answer && o->cancelled_at && e.code() == asio::error::operation_aborted;
        if (!was_cancelled) {
            throw;
        }
    }
    at_an_answer.reset();
    if (was_cancelled) {
        o->cancelled_at.reset();
        co_await asio::this_coro::reset_cancellation_state(asio::enable_terminal_cancellation());
    }
    co_return was_cancelled;
}

/// Whether the user was not let in, or not to these keys. A login that was refused is not tried
/// again at once: also if something in between refused it, in etcd's words, and there is no other
/// member to ask.
bool actor::was_locked_out(const error_code& ec) const {
    return (ec == errc::login_failed && s_.w.count_of(fault::locked_out) != 0) ||
           (ec == coetcd::server_errc::permission_denied &&
            s_.w.count_of(fault::rights_revoked) != 0) ||
           (ec == coetcd::server_errc::unimplemented && knows_one_ && s_.w.had_foreign_answers());
}

/// Whether a write that failed like this was not made. Of two copies of it etcd may have refused
/// the second one only, since the user had lost its rights meanwhile.
/// @param repeated `repeated_calls` before it.
bool actor::was_not_made(const error_code& ec, std::uint64_t repeated) const {
    const bool is_known = ec != errc::outcome_unknown && ec != asio::error::operation_aborted;
    return is_known &&
           (ec != coetcd::server_errc::permission_denied ||
            s_.w.count_of(fault::rights_revoked) == 0 || p_->repeated_calls == repeated);
}

bool actor::was_misled(const error_code& ec) const {
    return ec == errc::revision_regressed &&
           (s_.w.count_of(fault::stale_read) != 0 || s_.w.replaced_at());
}

void actor::judge(const std::exception_ptr& failure) {
    try {
        std::rethrow_exception(failure);
    } catch (const boost::system::system_error& e) {
        const error_code ec = e.code();
        s_.w.note("threw", static_cast<std::uint64_t>(ec.value()));
        const bool expected =
            ec == errc::timed_out || ec == errc::unavailable || ec == errc::outcome_unknown ||
            ec == errc::session_lost || ec == errc::session_closed || ec == errc::lock_lost ||
            ec == errc::not_owner || ec == errc::exceeds_limit ||
            (ec == errc::hold_expired && s_.limits) || ec == asio::error::operation_aborted ||
            (ec == errc::conflict && s_.judge.book.is_open()) ||
            ec == coetcd::server_errc::resource_exhausted ||
            ec == coetcd::server_errc::unauthenticated || was_locked_out(ec) ||
            // The last one of a call that had a deadline.
            (ec == errc::protocol_error && s_.w.had_foreign_answers()) ||
            // There was no other member to ask, or all of them say so.
            (ec.category() == coetcd::server_category() && s_.w.had_refusals() &&
             !s_.judge.only_refused) ||
            (ec == errc::wrong_cluster && s_.w.had_other_clusters()) ||
            // Each number that was drawn for a lease was granted twice.
            (ec == coetcd::server_errc::failed_precondition && p_->repeated_calls >= 10);
        if (!expected) {
            s_.w.fail(std::string("an unexpected error: ") + e.what());
        }
    } catch (const std::exception& e) {
        s_.w.fail(std::string("an unexpected exception: ") + e.what());
    }
}

asio::awaitable<void> actor::job(int rounds) {
    chance taste(s_.taste.next());
    for (int round = 0; round != rounds; ++round) {
        co_await have_session();
        if (s_.impatient && taste.one_in(2)) {
            std::string one = name_of(static_cast<int>(taste.below(2)) % s_.locks);
            co_await wait_together(std::move(one), taste);
            continue;
        }
        const auto o = std::make_shared<operation>(*p_);
        const way how = static_cast<way>(taste.below(s_.elects ? all_ways : ways_of_locks));
        std::string name =
            name_of(static_cast<int>(taste.below(static_cast<std::uint64_t>(s_.locks))));
        current_ = p_->number() == 0 ? o : nullptr;
        asio::awaitable<void> work = one_call(o, std::move(name), how, taste);
        co_await perform(o, std::move(work));
        current_ = nullptr;
        if (!s_.crowded && taste.one_in(16)) { // a session that is not used
            (void)co_await p_->sleep(taste.skewed(0s, 3 * s_.ttl));
        } else if (!s_.hasty && taste.one_in(2)) { // else at once
            (void)co_await p_->sleep(taste.skewed(0ms, 300ms));
        }
    }
}

asio::awaitable<std::optional<coetcd::session>> actor::open_session() {
    std::optional<coetcd::session> opened;
    const coetcd::session_options how(s_.ttl);
    try {
        if (s_.taste.one_in(2)) {
            coetcd::session made = co_await coetcd::session::open(*client_, how);
            opened.emplace(std::move(made));
        } else { // of a lease that is there already
            const coetcd::lease_grant_response granted = co_await client_->lease_grant(s_.ttl);
            opened = co_await coetcd::session::adopt(*client_, granted.id, how);
        }
    } catch (const boost::system::system_error& e) {
        // A lease may end before its grant is answered.
        if (e.code() != coetcd::server_errc::not_found) {
            throw;
        }
    }
    co_return opened;
}

asio::awaitable<void> actor::have_session() {
    for (;;) {
        if (opening_) {
            (void)co_await p_->sleep(20ms);
            continue;
        }
        if (session_ && session_->state() != coetcd::session_state::lost) {
            co_return;
        }
        opening_ = true;
        semaphores_.clear();
        session_.reset();
        try {
            std::optional<coetcd::session> opened = co_await open_session();
            if (opened) { // else its lease has ended already
                session_.emplace(std::move(*opened));
                s_.judge.opened(coetcd::detail::access::impl(*session_), *p_, sound_clock_);
                mourn();
            }
        } catch (const boost::system::system_error&) {
            judge(std::current_exception());
        }
        opening_ = false;
        if (!session_) {
            (void)co_await p_->sleep(200ms);
        }
    }
}

void actor::mourn() {
    ++mourners_;
    auto at_end = [this, id = session_->lease()](std::exception_ptr failure, session_end why) {
        --mourners_;
        if (failure) {
            fail("who waits for lost()", failure);
        } else {
            s_.judge.told_of_loss(id, why);
        }
    };
    asio::co_spawn(p_->executor(), session_->wait_lost(), std::move(at_end));
}

watching actor::draw_watch(chance& taste, std::int64_t revision) {
    watching v;
    const std::uint64_t what = taste.below(5);
    if (what == 0) {
        v.key = "data/0";
    } else if (what == 1) {
        v.key = name_of(0) + "/";
        v.range_end = name_of(0) + "0";
    } else if (what == 2) {
        v.key = "a";
        v.range_end = "z";
    } else {
        v.key = data_prefix;
        v.range_end = "data0";
    }
    if (taste.one_in(2)) {
        v.how.start_revision = std::max<std::int64_t>(1, revision + taste.between(-12, 4));
    }
    v.how.prev_kv = taste.one_in(3);
    v.how.no_put = taste.one_in(8);
    v.how.no_erase = !v.how.no_put && taste.one_in(8);
    v.how.progress_notify = taste.one_in(3);
    v.how.buffer = taste.one_in(3) ? 1 : 1'000'000;
    return v;
}

/// A watch in the referee's books, until its user does not count on it any more.
class actor::watch_entry {
public:
    watch_entry(referee& judge, const watching& v)
        : judge_(judge)
        , place_(judge.watches(v)) {}
    ~watch_entry() { judge_.watches_no_more(place_); }
    watch_entry(const watch_entry&) = delete;
    watch_entry& operator=(const watch_entry&) = delete;
    watching& operator*() const { return *place_; }

private:
    referee& judge_;
    const std::list<watching>::iterator place_;
};

asio::awaitable<void> actor::sleep_on(watching& v, nanoseconds time) {
    const nanoseconds began = s_.w.now();
    const nanoseconds first = std::min<nanoseconds>(time, 14s);
    v.sleeps = true;
    (void)co_await p_->sleep(first);
    if (client_ && first != time && s_.calm_since == 0s) {
        s_.judge.look_at_sleeper(v, began);
    }
    (void)co_await p_->sleep(time - first);
    v.sleeps = false;
    v.told = s_.w.now();
}

/// Some other program, of which nothing else is known.
asio::awaitable<void> actor::write_steadily(std::uint64_t seed) {
    chance taste(seed);
    const auto longest = std::chrono::milliseconds(taste.between(20, 800));
    for (int n = taste.between(50, 200); n != 0 && client_; --n) {
        s_.w.store.write("data.~", std::to_string(++s_.writes));
        (void)co_await p_->sleep(taste.within(1ms, longest));
    }
}

asio::awaitable<void>
actor::watch(std::optional<coetcd::watcher>& seat, std::uint64_t seed, bool lags) {
    chance taste(seed);
    const std::string own_key = "data." + std::to_string(lags ? ++s_.laggards : 0); // before all
    std::int64_t start = -1;
    while (client_) {
        watching v = draw_watch(taste, s_.w.store.revision);
        if (lags) {
            v.key = own_key;
            v.range_end = "data0";
            v.how.buffer = taste.one_in(4) ? 3000 : 1;
        }
        if (start >= 0) {
            v.how.start_revision = start;
        }
        start = -1;
        int naps = lags || taste.one_in(2) ? 8 : 0;
        std::optional<watch_entry> seen;
        bool again = false;
        try {
            coetcd::key_range range(v.key);
            range.range_end = v.range_end;
            coetcd::watcher began = co_await client_->watch(std::move(range), v.how);
            if (!client_) {
                co_return;
            }
            seat.emplace(std::move(began));
            seen.emplace(s_.judge, v);
            for (;;) {
                const coetcd::watch_batch batch = co_await seat->next();
                s_.judge.told(**seen, batch);
                if (naps > 0 && taste.one_in(2)) {
                    --naps;
                    if (lags) {
                        const bool is_long = taste.one_in(2); // its stream is given up
                        const nanoseconds nap =
                            is_long ? taste.within(11s, 25s) : taste.skewed(0s, 9s);
                        co_await sleep_on(**seen, nap);
                    } else {
                        (void)co_await p_->sleep(taste.skewed(0ms, 200ms));
                    }
                }
                if (!seat) {
                    break;
                }
            }
        } catch (const coetcd::compacted_error& e) {
            if (seen) {
                s_.judge.told_of_compaction(**seen, e.compact_revision());
            }
            start = e.compact_revision();
        } catch (const boost::system::system_error& e) {
            if (e.code() != asio::error::operation_aborted && seen && !was_locked_out(e.code()) &&
                !was_misled(e.code())) {
                s_.w.fail(std::string("a watch ended: ") + e.what());
            } else if (!seen || was_locked_out(e.code())) {
                if (!was_misled(e.code())) { // as it may be before it has begun, too
                    judge(std::current_exception());
                }
                again = true;
            }
        }
        seen.reset();
        seat.reset();
        if (again) {
            (void)co_await p_->sleep(200ms);
        }
    }
}

/// An observer, in the referee's books.
class actor::observer_entry {
public:
    observer_entry(leader_rules& rules, std::string name)
        : rules_(rules)
        , place_(rules.observes(std::move(name))) {}
    ~observer_entry() { rules_.observes_no_more(place_); }
    observer_entry(const observer_entry&) = delete;
    observer_entry& operator=(const observer_entry&) = delete;
    leader_rules::observing& operator*() const { return *place_; }

private:
    leader_rules& rules_;
    const std::list<leader_rules::observing>::iterator place_;
};

asio::awaitable<void> actor::observe() {
    chance taste(s_.taste.next());
    while (client_) {
        std::string name = name_of(taste.between(0, s_.locks - 1));
        feed_.emplace(coetcd::observe(*client_, name));
        const observer_entry seen(s_.judge.leaders, std::move(name));
        const auto told = [&](const std::optional<coetcd::leader>& next) {
            s_.judge.leaders.told(*seen, next);
        };
        co_await follow(feed_, taste, told);
    }
}

/// From the request for a lock to the end of its use, in the referee's books.
class actor::visit {
public:
    visit(actor& a, std::shared_ptr<operation> o, const std::string& name, way how)
        : visit(a, std::move(o), name, how, *a.session_) {}
    visit(actor& a,
          std::shared_ptr<operation> o,
          const std::string& name,
          way how,
          const coetcd::session& by)
        : actor_(a)
        , session_(coetcd::detail::access::impl(by))
        , operation_(std::move(o))
        , how_(how)
        , request_(a.s_.judge.wants({a.p_.get(),
                                     name,
                                     session_->lease(),
                                     0,
                                     how != way::try_lock && how != way::try_campaign,
                                     operation_->cancelled_at.has_value()})) {
        operation_->wants = &*request_;
    }
    ~visit() {
        give_back();
        no_more();
    }
    visit(const visit&) = delete;
    visit& operator=(const visit&) = delete;

    template<class Lock>
    void granted(const Lock& l) {
        const bool guards_body = how_ == way::with_lock || how_ == way::lead;
        if (operation_->cancelled_at && !guards_body) { // else it is the body's to end
            actor_.s_.w.fail("a wait that was cancelled has ended with a lock");
        }
        key = l.key();
        fence = l.fencing_token();
        hold h{actor_.p_.get(),
               (*request_)->name,
               key,
               fence,
               session_->lease(),
               session_,
               [&l] { return l.owns_lock(); },
               actor_.sound_clock_,
               guards_body};
        granted_at_ = session_->world.now();
        h.retained = options.retain.value_or(0ms);
        if (options.max_hold) {
            h.until = session_->world.now() + *options.max_hold;
        }
        const bool leads = static_cast<std::uint64_t>(how_) >= ways_of_locks;
        h.watched = leads || options.watch_while_held;
        h.granted_at = actor_.s_.w.now();
        h.pauses = actor_.p_->pauses;
        hold_ = actor_.s_.judge.granted(*request_, std::move(h));
        if (options.delay) {
            actor_.s_.judge.tenure.took_over(
                (*request_)->name, key, fence, *options.delay, actor_.sound_clock_);
        }
        no_more();
    }
    /// @param clean It is the holder who gives it back, and has nothing under way.
    void give_back(bool clean = false) {
        if (hold_) {
            (*hold_)->clean = clean;
            actor_.s_.judge.gives_back(*hold_);
            hold_.reset();
            if (!actor_.p_->has_crashed()) {
                actor_.s_.judge.tenure.let_go(key, fence);
            }
        }
    }
    lease_id lease() const { return session_->lease(); }
    const std::shared_ptr<operation>& of() const { return operation_; }
    /// What has ended a body must have happened.
    void check_end(const error_code& ec) {
        const bool over = granted_at_ && options.max_hold &&
                          session_->world.now() >= *granted_at_ + *options.max_hold;
        if (ec == errc::hold_expired && !over) {
            actor_.s_.w.fail("the time of a lock is called over, and it is not: " + key);
        }
    }
    /// Ends when the session is renewed, or lost. Then it looks after what it holds.
    asio::awaitable<void> renewed() {
        const auto before = session_->certain_until();
        while (session_->reason() == session_end::none && session_->certain_until() == before) {
            (void)co_await actor_.p_->sleep(10ms);
        }
    }
    /// From now on what runs is cancelled when the lock is lost; or not any more.
    void guards(bool now) {
        if (hold_) {
            (*hold_)->guards_body = now;
        }
    }
    std::string key;
    std::int64_t fence = 0;
    coetcd::lock_options options; ///< Of the lock.

private:
    void no_more() {
        if (request_) {
            operation_->wants = nullptr;
            actor_.s_.judge.wants_no_more(*request_);
            request_.reset();
        }
    }
    actor& actor_;
    const std::shared_ptr<session_impl> session_;
    const std::shared_ptr<operation> operation_;
    const way how_;
    std::optional<coetcd::detail::time_point> granted_at_;
    std::optional<std::list<request>::iterator> request_;
    std::optional<std::list<hold>::iterator> hold_;
};

asio::awaitable<void>
actor::one_call(std::shared_ptr<operation> o, std::string name, way how, chance& taste) {
    if (s_.only_permits) {
        return use_permits(std::move(o), taste);
    }
    if (s_.shares && taste.one_in(2)) {
        return share(std::move(o), taste);
    }
    if (s_.semaphores != 0 && taste.one_in(2)) {
        return use_permits(std::move(o), taste);
    }
    if (s_.judge.book.is_open() && taste.one_in(2)) {
        return write_once(taste);
    }
    if (s_.asks && taste.one_in(3)) {
        return ask_for_release(std::move(name));
    }
    if (s_.proves && taste.one_in(6)) {
        return taste.one_in(2) ? ask_for_release(std::move(name)) : keep_value(taste);
    }
    if (s_.claims && taste.one_in(3)) {
        return claim(std::move(name), taste);
    }
    if (s_.elects && !s_.crowded && taste.one_in(8)) {
        return lead_in_terms(std::move(o), std::move(name), taste);
    }
    if (!s_.crowded && taste.one_in(12)) {
        return hand_on(std::move(o), std::move(name), taste);
    }
    return attempt(std::move(o), std::move(name), how, taste);
}

asio::awaitable<void>
actor::attempt(std::shared_ptr<operation> o, std::string name, way how, chance& taste) {
    const lease_id lease = session_->lease();
    try {
        auto work = static_cast<std::uint64_t>(how) < ways_of_locks
                        ? take_and_use(o, name, how, taste)
                        : campaign(o, name, how, taste);
        co_await std::move(work);
    } catch (const boost::system::system_error& e) {
        if (e.code() == errc::lock_lost) {
            s_.judge.lock_lost(lease, name, p_->repeated_calls != 0);
        }
        throw;
    }
}

asio::awaitable<void>
actor::take_and_use(std::shared_ptr<operation> o, std::string name, way how, chance& taste) {
    const coetcd::lock_options options = draw_options(name, taste);
    coetcd::mutex m(*session_, name, options);
    const lease_id lease = session_->lease();
    bool goes_on = true;
    for (int times = options.retain ? taste.between(1, 6) : 1; goes_on && times != 0; --times) {
        const bool given_back = co_await take_once(o, m, options, name, how, taste);
        goes_on = given_back && session_ && session_->lease() == lease;
    }
}

asio::awaitable<bool> actor::take_once(std::shared_ptr<operation> o,
                                       coetcd::mutex& m,
                                       coetcd::lock_options options,
                                       const std::string& name,
                                       way how,
                                       chance& taste) {
    visit v(*this, o, name, how);
    v.options = options;
    if (how == way::with_lock) {
        co_await take_under_guard(v, m, name, taste);
        co_return true;
    }
    if (how == way::scoped_lock) {
        coetcd::held_lock l = co_await m.scoped_lock();
        must_own(l);
        if (s_.proves && taste.one_in(2)) {
            co_await use_together(v, l, name, taste);
            co_return true;
        }
        v.granted(l);
        if (s_.valued) {
            co_await count_up(l, name, v.fence);
        }
        co_await use(v, l, name, taste);
        const bool clean = taste.one_in(2);
        v.give_back(clean);
        if (clean) {
            co_await unlock(v, l);
        }
        co_return true;
    }
    bool taken = true;
    if (how == way::lock) {
        co_await m.lock();
    } else if (how == way::try_lock) {
        taken = co_await m.try_lock();
    } else {
        const nanoseconds patience = taste.skewed(1ms, 3s);
        const auto began = p_->now();
        const std::uint64_t pauses = p_->pauses;
        const auto ends = [&] {
            if (p_->now() > began + patience + 1ms && p_->pauses == pauses) {
                s_.w.fail("try_lock_for() takes longer than it may");
            }
        };
        try {
            taken = co_await m.try_lock_for(patience);
        } catch (const boost::system::system_error&) {
            ends();
            throw;
        }
        ends();
    }
    if (!taken) {
        co_return true;
    }
    must_own(m);
    v.granted(m);
    if (s_.proves && taste.one_in(4)) {
        co_await look_at_position(v.key, v.fence, m);
    }
    co_await use(v, m, name, taste);
    const bool clean = !taste.one_in(8);
    v.give_back(clean);
    if (clean) { // else it goes with the mutex
        co_await unlock(v, m);
    }
    co_return clean;
}

asio::awaitable<void> actor::wait_together(std::string name, chance& taste) {
    // Beside a crowd that keeps the lane busy an answer takes longer; see `look_at_lane`.
    const nanoseconds busy = s_.busy ? 60 * s_.latency : nanoseconds(0);
    const nanoseconds patience = busy + taste.skewed(100ms, 1500ms);
    const nanoseconds apart = taste.one_in(2) ? nanoseconds(0) : taste.skewed(1us, 10ms);
    const auto left = std::make_shared<int>(taste.between(2, 5));
    for (int i = *left; i != 0; --i) {
        const auto o = std::make_shared<operation>(*p_);
        const nanoseconds use_for =
            taste.one_in(3) ? taste.skewed(1s, 4s) : taste.skewed(0ms, 60ms);
        auto at_end = [this, left](std::exception_ptr failure) {
            --*left;
            if (failure) {
                fail("who has little patience", failure);
            }
        };
        auto work = perform(o, wait_once(o, name, patience, use_for));
        asio::co_spawn(p_->executor(), std::move(work), std::move(at_end));
        if (apart.count() != 0) {
            (void)co_await p_->sleep(apart);
        }
    }
    while (*left != 0) {
        (void)co_await p_->sleep(5ms);
    }
}

asio::awaitable<void> actor::wait_once(std::shared_ptr<operation> o,
                                       std::string name,
                                       nanoseconds patience,
                                       nanoseconds use_for) {
    if (!session_) {
        co_return;
    }
    const lease_id lease = session_->lease();
    coetcd::mutex m(*session_, name);
    visit v(*this, o, name, way::try_lock_for);
    const nanoseconds began = s_.w.now();
    const std::uint64_t pauses = p_->pauses;
    bool taken = false;
    try {
        taken = co_await m.try_lock_for(patience);
    } catch (const boost::system::system_error& e) {
        if (e.code() == errc::timed_out && began >= s_.calm_since && p_->pauses == pauses) {
            s_.w.fail("a patience that is over is called a failure, and nothing goes wrong");
        }
        if (e.code() == errc::lock_lost) {
            s_.judge.lock_lost(lease, name, p_->repeated_calls != 0);
        }
        throw;
    }
    if (!taken) {
        co_return;
    }
    must_own(m);
    v.granted(m);
    (void)co_await p_->sleep(use_for);
    v.give_back();
    co_await unlock(v, m);
}

/// As with_lock does it.
asio::awaitable<void>
actor::take_under_guard(visit& v, coetcd::mutex& m, const std::string& name, chance& taste) {
    auto body = [this, &v, &name, &taste](const coetcd::held_lock& l) {
        return guarded_body(v, l, name, taste);
    };
    try {
        co_await coetcd::with_lock(m, body);
    } catch (const boost::system::system_error& e) {
        v.check_end(e.code());
        throw;
    }
}

asio::awaitable<void>
actor::use_together(visit& v, coetcd::held_lock& l, const std::string& name, chance& taste) {
    coetcd::held_lock other = l.share();
    v.granted(other);
    if (taste.one_in(2)) {
        auto body = [this, &v, &name, &taste](const coetcd::held_lock& held) {
            v.guards(true);
            return use(v, held, name, taste);
        };
        try {
            co_await coetcd::with_lock(l, body); // it stays held
        } catch (const boost::system::system_error& e) {
            v.check_end(e.code());
            throw;
        }
        v.guards(false);
    }
    if (taste.one_in(2)) {
        (void)co_await p_->sleep(taste.skewed(0ms, 60ms));
    }
    if (taste.one_in(2)) {
        (void)co_await l.unlock();
    } else {
        l = coetcd::held_lock();
    }
    co_await use(v, other, name, taste);
    const bool clean = taste.one_in(2);
    v.give_back(clean);
    if (clean) {
        co_await unlock(v, other);
    }
}

class actor::office {
public:
    explicit office(const coetcd::leadership& l)
        : term_(l) {}
    explicit office(coetcd::leadership& l)
        : term_(l)
        , own_(&l) {}
    std::string key() const { return term_.key(); }
    std::int64_t fencing_token() const { return term_.term(); }
    bool owns_lock() const { return term_.leads(); }
    coetcd::compare is_owner() const { return term_.is_leader(); }
    asio::awaitable<bool> unlock() const { return own_->resign(); }
    asio::awaitable<void> proclaim(std::string value) const {
        return term_.proclaim(std::move(value));
    }

private:
    const coetcd::leadership& term_;
    coetcd::leadership* const own_ = nullptr;
};

template<class Lock>
asio::awaitable<void> actor::go_on(const coetcd::session& by,
                                   Lock& resumed,
                                   std::string name,
                                   coetcd::lock_options options,
                                   bool given_back_before,
                                   chance& taste) {
    const auto session = coetcd::detail::access::impl(by);
    must_own(resumed);
    struct until_the_end {
        referee& judge;
        std::list<hold>::iterator held;
        ~until_the_end() { judge.gives_back(held); }
    };
    {
        hold h{p_.get(),
               std::move(name),
               resumed.key(),
               resumed.fencing_token(),
               session->lease(),
               session,
               [&resumed] { return resumed.owns_lock(); },
               sound_clock_,
               false};
        h.given_back_before = given_back_before;
        if (options.max_hold) {
            h.until = session->world.now() + *options.max_hold;
        }
        const until_the_end counted{s_.judge, s_.judge.resumed(std::move(h))};
        (void)co_await p_->sleep(taste.skewed(0ms, taste.one_in(8) ? 4000ms : 60ms));
    }
    if (!taste.one_in(4)) { // else it goes with its object
        asio::awaitable<bool> unlocking = resumed.unlock();
        (void)co_await std::move(unlocking);
    }
}

asio::awaitable<void>
actor::hand_on(std::shared_ptr<operation> o, std::string name, chance& taste) {
    s_.judge.rates.expect(*p_, 1); // it makes many requests, one after the other
    std::optional<coetcd::session> first = co_await open_session();
    if (!first) {
        co_return;
    }
    s_.judge.opened(coetcd::detail::access::impl(*first), *p_, sound_clock_);
    std::int64_t fence = 0;
    std::string key;
    bool stays = false; // it is held to the end
    const bool leads = s_.elects && taste.one_in(2);
    const coetcd::lock_options options = draw_options(name, taste);
    {
        coetcd::mutex m(*first, name, options);
        coetcd::election e(*first, name);
        std::optional<coetcd::leadership> term;
        std::optional<office> own;
        visit v(*this, o, name, leads ? way::campaign : way::lock, *first);
        v.options = leads ? coetcd::lock_options() : options;
        if (leads) {
            coetcd::leadership won = co_await e.campaign(std::to_string(++s_.writes));
            term.emplace(std::move(won));
            own.emplace(*term);
            v.granted(*own);
        } else {
            co_await m.lock();
            v.granted(m);
        }
        (void)co_await p_->sleep(taste.skewed(0ms, 60ms));
        v.give_back();
        key = v.key;
        fence = v.fence;
        stays = leads ? own->owns_lock() : m.owns_lock();
        s_.judge.orphaned(first->orphan());
    }
    const lease_id lease = first->lease();
    first.reset();
    if (taste.one_in(2)) {
        (void)co_await p_->sleep(taste.skewed(0ms, 500ms));
    }
    const coetcd::session_options how(s_.ttl);
    std::optional<coetcd::session> second = co_await coetcd::session::adopt(*client_, lease, how);
    if (!second) {
        co_return;
    }
    s_.judge.opened(coetcd::detail::access::impl(*second), *p_, sound_clock_);
    coetcd::mutex m(*second, name, options);
    coetcd::election e(*second, name);
    if (leads) {
        std::optional<coetcd::leadership> term;
        for (bool again = true; again;) { // one that is cancelled leaves all as it is
            auto resuming = into(term, taste.one_in(2) ? e.resume() : e.resume(key, fence));
            again = co_await is_interrupted(o, std::move(resuming));
            s_.judge.herd.is_called_anew(key);
        }
        if (term) {
            office own(*term);
            const coetcd::lock_options none;
            co_await go_on(*second, own, std::move(name), none, !stays, taste);
            co_return;
        }
    } else {
        bool ours = false;
        for (bool again = true; again;) {
            auto resuming = into(ours, m.resume());
            again = co_await is_interrupted(o, std::move(resuming));
            s_.judge.herd.is_called_anew(key);
        }
        if (ours) {
            co_await go_on(*second, m, std::move(name), options, !stays, taste);
            co_return;
        }
    }
    s_.judge.not_resumed(key, fence, stays);
}

/// From the request for shared locks to the end of their use, in the referee's books.
class actor::sharer {
public:
    sharer(actor& a, std::shared_ptr<operation> o, std::vector<std::string> names)
        : actor_(a)
        , operation_(std::move(o))
        , session_(coetcd::detail::access::impl(*a.session_))
        , names_(std::move(names)) {
        touch();
    }
    ~sharer() {
        give_back();
        touch();
    }
    sharer(const sharer&) = delete;
    sharer& operator=(const sharer&) = delete;

    void touch() { actor_.s_.judge.sharing.touch(session_->lease(), names_); }

    /// @param place What the library knows of it.
    template<class Lock>
    void granted(const Lock& l,
                 std::shared_ptr<coetcd::detail::place> place,
                 std::function<coetcd::lock_mode(std::size_t)> mode) {
        if (operation_->cancelled_at) {
            actor_.s_.w.fail("a wait that was cancelled has ended with a shared lock");
        }
        shared_hold h{actor_.p_.get(),
                      session_->lease(),
                      session_,
                      actor_.sound_clock_,
                      names_,
                      [&l] { return l.owns_lock(); },
                      std::move(mode),
                      [place] { return place->proof(); },
                      [place] { return place->held_by(); },
                      just_reads_};
        if (most) {
            h.until = session_->world.now() + *most;
        }
        h.watched = watched;
        hold_ = actor_.s_.judge.sharing.granted(std::move(h));
    }
    std::optional<std::chrono::milliseconds> most; ///< That it is held.
    bool watched = false;                          ///< Its keys are, while it is held.
    const std::shared_ptr<operation>& of() const { return operation_; }
    void raised() { actor_.s_.judge.sharing.raised(**hold_); }
    void just_reads(bool now) { *just_reads_ = now; }
    void give_back() {
        if (hold_) {
            actor_.s_.judge.sharing.gives_back(*hold_);
            hold_.reset();
        }
    }

private:
    actor& actor_;
    const std::shared_ptr<operation> operation_;
    const std::shared_ptr<session_impl> session_;
    const std::vector<std::string> names_;
    const std::shared_ptr<bool> just_reads_ = std::make_shared<bool>(false);
    std::optional<std::list<shared_hold>::iterator> hold_;
};

asio::awaitable<void> actor::share(std::shared_ptr<operation> o, chance& taste) {
    if (taste.one_in(4)) {
        co_await share_several(std::move(o), taste);
    } else {
        std::string name = shared_name_of(static_cast<int>(taste.below(2)));
        co_await share_one(std::move(o), std::move(name), taste);
    }
}

asio::awaitable<void>
actor::share_one(std::shared_ptr<operation> o, std::string name, chance& taste) {
    const coetcd::lock_options drawn = draw_options("", taste);
    const coetcd::shared_mutex_options options{drawn.max_hold, drawn.watch_while_held};
    coetcd::shared_mutex m(*session_, name, options);
    std::vector<std::string> names(1, name);
    sharer v(*this, std::move(o), std::move(names));
    const bool reads = !taste.one_in(3);
    std::optional<coetcd::held_lock> l;
    if (taste.one_in(2)) {
        asio::awaitable<coetcd::held_lock> taking =
            reads ? m.scoped_lock_shared() : m.scoped_lock();
        coetcd::held_lock taken = co_await std::move(taking);
        l.emplace(std::move(taken));
    } else {
        const nanoseconds patience = taste.one_in(2) ? 0s : taste.skewed(1ms, 3s);
        asio::awaitable<std::optional<coetcd::held_lock>> trying =
            reads ? m.scoped_lock_shared_for(patience) : m.scoped_lock_for(patience);
        l = co_await std::move(trying);
    }
    if (!l) {
        co_return;
    }
    must_own(*l);
    v.watched = options.watch_while_held;
    v.most = options.max_hold;
    v.granted(*l, coetcd::detail::access::held(*l), [&l](std::size_t) { return l->mode(); });
    // Some change their mode again and again, and then outlast late copies of what did that.
    const bool wavers = s_.hasty && taste.one_in(2);
    const int steps = wavers ? 6 : taste.between(0, s_.crowded ? 1 : 3);
    for (int i = 0; i != steps && l->owns_lock(); ++i) {
        const nanoseconds longest = s_.crowded || wavers ? 5ms : taste.one_in(4) ? 4000ms : 60ms;
        const nanoseconds time = taste.skewed(0ms, longest);
        (void)co_await p_->sleep(time);
        co_await change_mode(v, *l, taste);
    }
    if (wavers) {
        (void)co_await p_->sleep(taste.skewed(0s, 10s));
    }
    v.give_back();
    if (taste.one_in(2)) {
        (void)co_await l->unlock();
    }
}

asio::awaitable<void> actor::change_mode(sharer& v, coetcd::held_lock& l, chance& taste) {
    if (taste.one_in(3) || !l.owns_lock()) {
        co_return;
    }
    v.touch();
    try {
        if (l.mode() == coetcd::lock_mode::exclusive) {
            ++s_.judge.sharing.downgrades;
            asio::awaitable<void> lowering = l.downgrade();
            if (l.mode() != coetcd::lock_mode::shared) {
                s_.w.fail("downgrade() has been called, and the lock is exclusive");
            }
            const bool interrupted = co_await is_interrupted(v.of(), std::move(lowering));
            v.just_reads(!interrupted);
        } else {
            v.just_reads(false);
            bool raised = false;
            auto raising = into(raised, l.try_upgrade());
            const bool interrupted = co_await is_interrupted(v.of(), std::move(raising));
            const bool writes = l.owns_lock() && l.mode() == coetcd::lock_mode::exclusive;
            if (writes && (interrupted || v.of()->cancelled_at)) {
                s_.w.fail("an upgrade that was cancelled has made a writer of a reader");
            }
            if (raised && l.mode() == coetcd::lock_mode::exclusive) {
                v.raised();
            }
        }
    } catch (const coetcd::error&) {
        judge(std::current_exception()); // it is ours all the same, or lost
    }
    v.touch();
}

asio::awaitable<void> actor::share_several(std::shared_ptr<operation> o, chance& taste) {
    std::vector<coetcd::lock_part> parts;
    std::vector<std::string> names;
    std::vector<coetcd::lock_mode> modes;
    const int first = taste.between(0, 1);
    for (int i = first; i <= 2; ++i) {
        const bool reads = taste.one_in(2);
        parts.push_back(reads ? coetcd::shared(shared_name_of(i))
                              : coetcd::exclusive(shared_name_of(i)));
        names.push_back(parts.back().name);
        modes.push_back(parts.back().mode);
    }
    const coetcd::multi_lock_options options{draw_options("", taste).max_hold};
    // Their order does not matter.
    if (std::exchange(backwards_, !backwards_)) {
        std::reverse(parts.begin(), parts.end());
    }
    coetcd::multi_lock m(*session_, std::move(parts), options);
    sharer v(*this, std::move(o), std::move(names));
    std::optional<coetcd::held_locks> l;
    if (taste.one_in(2)) {
        coetcd::held_locks taken = co_await m.scoped_lock();
        l.emplace(std::move(taken));
    } else {
        const nanoseconds patience = taste.one_in(3) ? 0s : taste.skewed(1ms, 3s);
        l = co_await m.scoped_lock_for(patience);
    }
    if (!l) {
        co_return;
    }
    must_own(*l);
    const std::shared_ptr<coetcd::detail::place> place = coetcd::detail::access::impl(m)->current();
    v.most = options.max_hold;
    v.granted(*l, place, [modes](std::size_t i) { return modes[i]; });
    (void)co_await p_->sleep(taste.skewed(0ms, s_.crowded ? 5ms : 60ms));
    v.give_back();
    if (taste.one_in(2)) {
        (void)co_await l->unlock();
    }
}

/// @param shared One that other operations use, too.
std::shared_ptr<coetcd::semaphore> actor::semaphore_of(const std::string& name, bool shared) {
    if (!shared) {
        return std::make_shared<coetcd::semaphore>(*session_, name, 2);
    }
    std::shared_ptr<coetcd::semaphore>& kept = semaphores_[name];
    if (!kept) {
        kept = std::make_shared<coetcd::semaphore>(*session_, name, 2);
    }
    return kept;
}

asio::awaitable<void> actor::use_permits(std::shared_ptr<operation> o, chance& taste) {
    const std::string name = semaphore_name(taste.between(0, s_.semaphores - 1));
    const std::shared_ptr<coetcd::semaphore> object = semaphore_of(name, taste.one_in(2));
    coetcd::semaphore& s = *object;
    const auto session = coetcd::detail::access::impl(*session_);
    const std::int64_t n = taste.one_in(3) ? taste.between(2, 3) : 1;
    struct wish {
        permit_rules& rules;
        lease_id lease;
        const std::string& name;
        ~wish() { rules.touch(lease, name); }
    };
    const wish until_its_end{s_.judge.permits, session->lease(), name};
    s_.judge.permits.touch(session->lease(), name);
    std::optional<coetcd::permit> p;
    const std::uint64_t how = taste.below(4);
    if (how == 0) {
        p = co_await s.try_acquire(n);
    } else if (how == 1) {
        const nanoseconds patience = taste.skewed(1ms, 3s);
        const auto began = p_->now();
        const std::uint64_t pauses = p_->pauses;
        p = co_await s.acquire_for(n, patience);
        if (p_->now() > began + patience + 1ms && p_->pauses == pauses) {
            s_.w.fail("acquire_for() takes longer than it may");
        }
    } else {
        coetcd::permit taken = co_await s.acquire(n);
        p.emplace(std::move(taken));
    }
    if (!p) {
        co_return;
    }
    if (o->cancelled_at) {
        s_.w.fail("a wait that was cancelled has ended with permits");
    }
    if (!p->owns_lock()) {
        s_.w.fail("a permit was granted that is lost already");
    }
    struct counted_hold {
        permit_rules& rules;
        std::list<permit_hold>::iterator held;
        ~counted_hold() { rules.gives_back(held); }
    };
    {
        permit_hold h{name,
                      p->key(),
                      p->token(),
                      n,
                      session->lease(),
                      session,
                      [&p] { return p->owns_lock(); },
                      sound_clock_};
        const counted_hold until_the_end{s_.judge.permits, s_.judge.permits.granted(std::move(h))};
        // Where a crowd counts for long, the limit seldom changes: that makes all of it ask again.
        const bool is_long = !s_.only_permits && taste.one_in(8);
        const nanoseconds use = taste.skewed(0ms, is_long ? 4000ms : 60ms);
        (void)co_await p_->sleep(use);
        if (taste.one_in(s_.only_permits ? 32 : 3)) {
            co_await change_limit(o, s, taste);
            // What is given back soon would wake those who have not heard of a limit that was
            // raised.
            const bool stays = !s_.only_permits && taste.one_in(4);
            const nanoseconds time = stays ? nanoseconds(1s) : taste.skewed(0ms, 60ms);
            (void)co_await p_->sleep(time);
        }
    }
    if (!taste.one_in(4)) { // else they go with the handle
        asio::awaitable<bool> releasing = p->release();
        if (p->owns_lock()) {
            s_.w.fail("release() has been called, and the permits are owned");
        }
        (void)co_await std::move(releasing);
    }
}

asio::awaitable<void>
actor::campaign(std::shared_ptr<operation> o, std::string name, way how, chance& taste) {
    coetcd::election e(*session_, name);
    const lease_id lease = session_->lease();
    visit v(*this, o, name, how);
    std::string value = std::to_string(++s_.writes);
    if (how == way::lead) {
        auto body = [this, &v, &name, &taste](const coetcd::leadership& l) {
            return serve(v, l, name, taste);
        };
        co_await coetcd::lead(e, std::move(value), body);
        co_return;
    }
    std::optional<coetcd::leadership> mine;
    if (how == way::campaign) {
        coetcd::leadership won = co_await e.campaign(std::move(value));
        mine.emplace(std::move(won));
    } else if (how == way::try_campaign) {
        mine = co_await e.try_campaign(std::move(value));
    } else {
        const nanoseconds patience = taste.skewed(1ms, 3s);
        const auto began = p_->now();
        const std::uint64_t pauses = p_->pauses;
        mine = co_await e.campaign_for(std::move(value), patience);
        if (p_->now() > began + patience + 1ms && p_->pauses == pauses) {
            s_.w.fail("campaign_for() takes longer than it may");
        }
    }
    if (!mine) {
        co_return;
    }
    co_await serve(v, *mine, name, taste);
    if (!taste.one_in(8)) { // else it goes with its object
        const office own(*mine);
        co_await unlock(v, own);
    }
    if (taste.one_in(4)) {
        co_await usurp(e, lease);
    }
}

asio::awaitable<void>
actor::serve(visit& v, const coetcd::leadership& l, const std::string& name, chance& taste) {
    const office own(l);
    must_own(own);
    v.granted(own);
    struct end {
        visit& of;
        ~end() { of.give_back(); }
    };
    const end at_end{v};
    for (int i = taste.between(0, 3); i != 0; --i) {
        co_await proclaim(v, own);
    }
    co_await use(v, own, name, taste);
    if (taste.one_in(2)) {
        co_await proclaim(v, own);
    }
}

asio::awaitable<void> actor::proclaim(visit& v, const office& l) {
    const std::string value = std::to_string(++s_.writes);
    auto proclaiming = l.proclaim(value);
    const std::uint64_t failed = p_->failed_calls;
    try {
        const bool interrupted = co_await is_interrupted(v.of(), std::move(proclaiming));
        if (interrupted) {
            co_return;
        }
    } catch (const coetcd::error& e) {
        // It may be refused while a copy is under way; and so what it asks then. A request logs in
        // anew once: etcd refuses it if that token expires, too. What is between may refuse it
        // after passing it on, and counts if no other member can be reached.
        const bool may_stay_unknown =
            s_.w.count_of(fault::locked_out) != 0 || s_.w.count_of(fault::no_space) != 0 ||
            s_.w.count_of(fault::rights_revoked) != 0 || s_.w.count_of(fault::token_expired) > 1 ||
            ((s_.w.had_foreign_answers() || s_.w.had_refusals()) && p_->failed_calls > failed) ||
            (knows_one_ && (s_.w.had_foreign_answers() || s_.w.had_refusals()));
        if ((e.code() == errc::outcome_unknown && !may_stay_unknown) ||
            e.code() == coetcd::condition::retryable) {
            s_.w.fail(std::string("proclaim() gave up: ") + e.what());
        }
        throw;
    }
    s_.judge.leaders.has_proclaimed(v.key, v.fence, value);
}

asio::awaitable<void> actor::usurp(coetcd::election& e, lease_id own) {
    const std::optional<coetcd::leader> now = co_await e.leader();
    if (!now || now->lease == own) {
        co_return;
    }
    const std::optional<coetcd::leadership> stolen = co_await e.resume(now->key, now->term);
    if (stolen) {
        s_.w.fail("a term was resumed with another lease");
    }
}

template<class Lock>
void actor::must_own(const Lock& l) {
    if (!l.owns_lock()) {
        s_.w.fail("a lock was granted that is lost already");
    }
}

asio::awaitable<void>
actor::guarded_body(visit& v, const coetcd::held_lock& l, const std::string& name, chance& taste) {
    v.granted(l);
    struct end {
        visit& of;
        bool clean = false;
        ~end() { of.give_back(clean); }
    };
    end at_end{v};
    if (s_.valued) {
        co_await count_up(l, name, v.fence);
    }
    co_await use(v, l, name, taste);
    at_end.clean = true;
}

template<class Lock>
asio::awaitable<void> actor::unlock(visit& v, Lock& l) {
    const std::uint64_t failed = p_->failed_calls;
    asio::awaitable<bool> unlocking = l.unlock();
    if (l.owns_lock()) {
        s_.w.fail("unlock() has been called, and the lock is owned");
    }
    const bool was_ours = co_await std::move(unlocking);
    const bool stays = v.options.retain.has_value();
    s_.judge.unlocked(v.key, v.fence, was_ours, p_->failed_calls == failed && !stays);
}

coetcd::txn actor::draw_data(chance& taste) {
    coetcd::txn t;
    const std::string value = std::to_string(++s_.writes);
    for (int i = 0; i != 6; ++i) {
        const std::string key = std::string(data_prefix) + std::to_string(i);
        const std::uint64_t what = taste.below(4);
        if (what == 0) {
            t.success.push_back(coetcd::op::erase(key));
        } else if (what != 1) {
            t.success.push_back(coetcd::op::put(key, value));
        }
    }
    return t;
}

template<class Lock>
asio::awaitable<void> actor::use(visit& v, const Lock& l, const std::string& name, chance& taste) {
    if (s_.hasty && taste.one_in(2)) {
        co_await v.renewed();
        co_return;
    }
    const int steps = taste.between(0, s_.crowded ? 1 : 3);
    for (int i = 0; i != steps && l.owns_lock(); ++i) {
        if constexpr (requires { l.release_requested(); }) {
            if (s_.asks && taste.one_in(2)) {
                co_await listen(l, name, taste);
                continue;
            }
        }
        const std::uint64_t what = taste.below(s_.proves ? 6 : 4);
        if (what >= 4) {
            if constexpr (requires { l.sequencer(); }) {
                s_.judge.tenure.keeps({name, l.sequencer().text(), v.key, v.fence});
            }
            if (what == 4) {
                co_await ask_for_proof(taste);
            } else if (taste.one_in(2)) {
                co_await pass_gate(name, v.fence, taste);
            } else {
                co_await write_by_sequencer(taste);
            }
        } else if (what == 3) {
            asio::awaitable<coetcd::txn_response> writing = client_->txn(draw_data(taste));
            try {
                (void)co_await std::move(writing);
            } catch (const coetcd::error&) {
                judge(std::current_exception()); // the lock is ours all the same
            }
        } else if (what == 0) {
            const nanoseconds longest = s_.crowded        ? 5ms
                                        : s_.lingering    ? 8000ms
                                        : taste.one_in(8) ? 4000ms
                                                          : 60ms;
            const nanoseconds time = taste.skewed(0ms, longest);
            const bool very_long = !s_.crowded && taste.one_in(128);
            (void)co_await p_->sleep(very_long ? time + 25s : time);
        } else if (what == 1) {
            coetcd::txn write;
            write.compares.push_back(l.is_owner());
            write.success.push_back(
                coetcd::op::put(std::string(resource_prefix) + name.substr(queue_prefix.size()),
                                std::to_string(v.fence)));
            asio::awaitable<coetcd::txn_response> writing = client_->txn(std::move(write));
            try {
                (void)co_await std::move(writing);
            } catch (const coetcd::error&) {
                judge(std::current_exception()); // the lock is ours all the same
            }
        } else {
            const nanoseconds way_there = taste.skewed(1ms, 2s);
            s_.w.after(way_there, [&judge = s_.judge, name, fence = v.fence] {
                judge.write_resource(name, fence);
            });
        }
    }
    if (s_.sluggish) {
        (void)co_await p_->sleep(taste.skewed(0s, 10s));
        if (!l.owns_lock()) {
            (void)co_await p_->sleep(150s); // no other may have to wait for that
        }
    }
}

} // namespace sim
