// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/barrier.hpp>
#include <coetcd/client.hpp>
#include <coetcd/cyclic_barrier.hpp>
#include <coetcd/detail/access.hpp>
#include <coetcd/double_barrier.hpp>
#include <coetcd/election.hpp>
#include <coetcd/fencing_gate.hpp>
#include <coetcd/group.hpp>
#include <coetcd/latch.hpp>
#include <coetcd/lock_options.hpp>
#include <coetcd/mirror.hpp>
#include <coetcd/multi_lock.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/priority_queue.hpp>
#include <coetcd/queue.hpp>
#include <coetcd/semaphore.hpp>
#include <coetcd/session.hpp>
#include <coetcd/session_keeper.hpp>
#include <coetcd/shared_mutex.hpp>
#include <coetcd/task_group.hpp>
#include <coetcd/value.hpp>
#include <coetcd/watch.hpp>
#include <coetcd/work_queue.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/system/system_error.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/stage.hpp"

namespace sim {

/// A client and what it does.
class actor {
public:
    actor(stage& s, std::shared_ptr<process> p, coetcd::client_options options)
        : s_(s)
        , p_(std::move(p))
        , report_(std::make_shared<reporter>(s.judge))
        , jobs_(1) {
        options.observer = report_;
        std::vector<std::string> urls;
        const int known = options.member_refresh ? 1 : s.w.store.members();
        knows_one_ = known == 1;
        for (int m = 0; m != known; ++m) {
            urls.push_back("http://m" + std::to_string(m));
        }
        client_.emplace(coetcd::detail::access::make<coetcd::client>(
            p_, coetcd::endpoints(std::move(urls)), options));
        p_->on_crash = [this] { crashed(); };
    }

    /// Another one in the process of `host`, with a session of its own of the same client.
    actor(stage& s, const actor& host)
        : s_(s)
        , p_(host.p_)
        , report_(host.report_)
        , client_(host.client_)
        , is_guest_(true)
        , knows_one_(host.knows_one_)
        , jobs_(1) {
        p_->on_crash = [this, others = std::move(p_->on_crash)] {
            others();
            crashed();
        };
    }

    void start(int jobs, int rounds, bool sound_clock);
    bool finished() const { return jobs_ == 0; }

    /// Watches something, besides, until the end.
    void start_watch();
    /// Watches something likewise, and now and then takes nothing for long.
    void start_lagging(std::uint64_t seed);
    /// Observes an election likewise.
    void start_observing();

    /// Follows a value likewise.
    void start_following();
    /// Is a member of a group besides, again and again.
    void start_joining(std::uint64_t seed);
    /// Follows that group likewise.
    void start_listing();
    /// Appends items to a work queue besides, and takes and ends them until the end.
    void start_working(std::uint64_t seed);
    /// Appends values to a queue besides, and takes them until the end.
    void start_queueing(std::uint64_t seed);
    /// The same with a queue of priorities.
    void start_ranking(std::uint64_t seed);
    /// Meets others at barriers besides, again and again.
    void start_passing(std::uint64_t seed);
    void start_staying(std::uint64_t seed);
    /// Counts latches down besides, and waits for them.
    void start_latching(std::uint64_t seed);
    /// Closes and opens barriers besides, and waits at them.
    void start_holding(std::uint64_t seed);
    /// Has a mirror besides, reads its changes, and changes what is mirrored.
    void start_mirroring(std::uint64_t seed);
    /// Takes locks besides, in whichever session a keeper has.
    void start_keeping(std::uint64_t seed);
    /// Runs groups of tasks besides, one after the other.
    void start_serving(std::uint64_t seed);
    /// Keeps the client's lane busy besides, until then.
    void start_crowding(std::uint64_t seed, nanoseconds until);
    /// Makes single calls besides, many at once.
    void start_calling(std::uint64_t seed);
    /// Checks that nothing waits in the lane for long. It is called where nothing goes wrong.
    void look_at_lane();
    bool is_guest() const { return is_guest_; }
    /// Asks the holders of the locks to give them back, besides, again and again until the end.
    void start_asking(std::uint64_t seed);
    /// It is an operator, and ends ownerships by force until then.
    void start_operating(nanoseconds until);

    /// Crashes at its n-th suspension.
    void crash_at(std::uint64_t n);
    /// Cancels what is under way at the n-th suspension of this client.
    void cancel_at(std::uint64_t n);

    /// Cancels that in the moment of an answer to it: of the first one with 1 and 2, and so on.
    void cancel_with_answer(std::uint64_t n);

    /// Ends the session and the client; what is left behind is to be nothing.
    void close(bool orderly);
    bool closed() const { return !client_ && watches_ == 0 && mourners_ == 0; }
    /// Whether the observer was told of each beginning and of each end.
    bool counts_match() const {
        const reporter& told = *report_;
        const bool match = told.taken == told.given_back && told.waits == 0 && told.in_order;
        return match || p_->has_crashed();
    }
    process& in() { return *p_; }
    bool has_live_session(lease_id id) const;

private:
    void drop();
    void crashed();
    asio::awaitable<void> close_session();

    void fail(const std::string& who, const std::exception_ptr& failure);

    /// Cancels it, so many handlers later.
    void emit(const std::shared_ptr<operation>& o, std::uint64_t hops = 0);
    class moment;
    /// Awaits a call of an operation that may be cancelled in the moment of an answer; what it is
    /// about goes on then.
    asio::awaitable<bool> is_interrupted(std::shared_ptr<operation> o, asio::awaitable<void> call);
    template<class T>
    static asio::awaitable<void> into(T& result, asio::awaitable<T> call) {
        result = co_await std::move(call);
    }

    /// Runs `work`, whose end is none of the caller's.
    asio::awaitable<void> perform(std::shared_ptr<operation> o, asio::awaitable<void> work);

    bool was_locked_out(const error_code& ec) const;
    bool was_not_made(const error_code& ec, std::uint64_t repeated) const;
    /// Whether etcd seemed to have gone back: reads of a member that stalled were answered.
    bool was_misled(const error_code& ec) const;

    /// Whether an operation may have ended so.
    void judge(const std::exception_ptr& failure);

    asio::awaitable<void> job(int rounds);

    /// @returns Nothing if its lease has ended already.
    asio::awaitable<std::optional<coetcd::session>> open_session();

    /// Opens a session if there is none that lives.
    asio::awaitable<void> have_session();

    /// Waits for the end of the session.
    void mourn();

    /// What a watch is of, drawn at random.
    static watching draw_watch(chance& taste, std::int64_t revision);

    class watch_entry;
    class observer_entry;
    /// Watches, and starts anew if history was compacted.
    /// @param seat Where its watcher is.
    asio::awaitable<void>
    watch(std::optional<coetcd::watcher>& seat, std::uint64_t seed, bool lags);
    /// What a reader that lags does instead of reading.
    asio::awaitable<void> sleep_on(watching& v, nanoseconds time);
    asio::awaitable<void> write_steadily(std::uint64_t seed);
    asio::awaitable<void> observe();
    /// Reads a feed to its end, at all paces, and rests then.
    template<class Feed, class Told>
    asio::awaitable<void> follow(std::optional<Feed>& feed, chance& taste, Told told);

    /// One of the following.
    asio::awaitable<void>
    one_call(std::shared_ptr<operation> o, std::string name, way how, chance& taste);

    class visit;
    asio::awaitable<void>
    attempt(std::shared_ptr<operation> o, std::string name, way how, chance& taste);

    asio::awaitable<void>
    take_and_use(std::shared_ptr<operation> o, std::string name, way how, chance& taste);
    /// @returns Whether the lock is given back.
    asio::awaitable<bool> take_once(std::shared_ptr<operation> o,
                                    coetcd::mutex& m,
                                    coetcd::lock_options options,
                                    const std::string& name,
                                    way how,
                                    chance& taste);
    /// Several of this session want one lock, none of them for long.
    asio::awaitable<void> wait_together(std::string name, chance& taste);
    asio::awaitable<void> wait_once(std::shared_ptr<operation> o,
                                    std::string name,
                                    nanoseconds patience,
                                    nanoseconds use_for);
    asio::awaitable<void>
    take_under_guard(visit& v, coetcd::mutex& m, const std::string& name, chance& taste);
    /// Two answer for one ownership, and one of them lets go of it; or a body runs under it.
    asio::awaitable<void>
    use_together(visit& v, coetcd::held_lock& l, const std::string& name, chance& taste);
    coetcd::lock_options draw_options(const std::string& name, chance& taste) const;

    /// Does something besides, until the end.
    void start_besides(const char* who, asio::awaitable<void> work);
    /// What is offered besides. See offers.cpp.
    asio::awaitable<void> operate(nanoseconds until);
    asio::awaitable<void> claim(std::string name, chance& taste);
    asio::awaitable<void> ask_for_proof(chance& taste);
    asio::awaitable<void> write_by_sequencer(chance& taste);
    asio::awaitable<void> pass_gate(const std::string& name, std::int64_t own, chance& taste);
    asio::awaitable<void> work_behind(coetcd::fencing_gate gate, std::int64_t token, chance& taste);
    asio::awaitable<void> ask_for_release(std::string name);
    /// The position is that of the lock's holder.
    asio::awaitable<void>
    look_at_position(const std::string& key, std::int64_t fence, const coetcd::mutex& m);
    asio::awaitable<void> keep_value(chance& taste);
    /// Leads again and again, with sessions that are opened for that.
    asio::awaitable<void>
    lead_in_terms(std::shared_ptr<operation> o, std::string name, chance& taste);
    class terms;
    asio::awaitable<void> serve_term(std::shared_ptr<terms> of, const coetcd::leadership& l);
    /// Takes locks in whichever session its keeper has, besides, a few times.
    asio::awaitable<void> keep_sessions(std::uint64_t seed);
    asio::awaitable<void> serve_kept(std::shared_ptr<terms> of, const coetcd::held_lock& l);
    /// What a server does with its requests. See serving.cpp.
    class tally;
    asio::awaitable<void> run_groups(std::uint64_t seed);
    asio::awaitable<void> run_group(std::shared_ptr<tally> all, chance& taste);
    asio::awaitable<void> serve_one(std::shared_ptr<tally> all, std::uint64_t seed);
    /// Listens, for a while, for requests to give a lock back.
    asio::awaitable<void>
    listen(const coetcd::held_lock& l, const std::string& name, chance& taste);
    asio::awaitable<void> hear(asio::awaitable<void> listening, listening_holder who);
    asio::awaitable<void> ask_again(std::uint64_t seed);
    struct crowd;
    asio::awaitable<void> begin_crowd(std::uint64_t seed, nanoseconds until);
    asio::awaitable<void> lock_again(std::shared_ptr<crowd> with, coetcd::multi_lock m);
    asio::awaitable<void> acquire_again(std::shared_ptr<crowd> with);
    asio::awaitable<void> lock_in_vain(std::shared_ptr<crowd> with);
    /// Single calls. See calls.cpp.
    asio::awaitable<void> make_calls(std::uint64_t seed);
    asio::awaitable<void> make_call(chance& taste);
    asio::awaitable<void> watch_over_put(std::string value, asio::awaitable<std::int64_t> call);
    asio::awaitable<void> put_once(coetcd::client by, std::string key);
    asio::awaitable<void> read_once(coetcd::client by, std::string key);
    asio::awaitable<void> read_both(coetcd::client by, std::string key, std::string other);
    asio::awaitable<void> erase_once(coetcd::client by, coetcd::key_range keys);
    asio::awaitable<void> put_in_vain(coetcd::client by, bool without_lease);
    asio::awaitable<void>
    put_if(coetcd::client by, std::string key, std::string other, bool puts_both, bool asks_why);
    /// Follows a value, besides, until the end.
    asio::awaitable<void> follow_value();
    /// Counts the value of a lock. See lock_values.cpp.
    asio::awaitable<void>
    count_up(const coetcd::held_lock& l, const std::string& name, std::int64_t fence);
    /// A group. See joining.cpp.
    asio::awaitable<void> join_again(std::uint64_t seed);
    asio::awaitable<void> be_member(coetcd::group g, std::uint64_t seed);
    asio::awaitable<void> list_members();
    /// A work queue. See working.cpp.
    asio::awaitable<std::shared_ptr<coetcd::work_queue>> have_jobs();
    asio::awaitable<void> produce(std::uint64_t seed);
    asio::awaitable<void> append_jobs(std::shared_ptr<coetcd::work_queue> q, int n);
    asio::awaitable<void> consume(std::uint64_t seed);
    asio::awaitable<void> work_once(std::shared_ptr<coetcd::work_queue> q, std::uint64_t seed);
    asio::awaitable<void> end_job(coetcd::job& j, job_rules::attempt a, job_rules::verdict how);
    asio::awaitable<void> look_at_dead(std::shared_ptr<coetcd::work_queue> q, std::uint64_t seed);
    asio::awaitable<void> close_work(coetcd::session last);
    /// A queue. See queueing.cpp.
    template<class Queue>
    struct mailbox {
        queue_rules& rules;
        const std::string_view name;
        std::optional<coetcd::session> session{};
        std::shared_ptr<Queue> queue{}; // of that session
        bool opening = false;
    };
    template<class Queue>
    void start_queueing(mailbox<Queue>& box, chance& taste);
    template<class Queue>
    asio::awaitable<std::shared_ptr<Queue>> have_mail(mailbox<Queue>& box);
    template<class Queue>
    asio::awaitable<void> send_mail(mailbox<Queue>& box, std::uint64_t seed);
    asio::awaitable<void> append_mail(std::shared_ptr<coetcd::queue> q, int n);
    asio::awaitable<void> append_mail(std::shared_ptr<coetcd::priority_queue> q, int urgency);
    template<class Queue>
    asio::awaitable<void> receive_mail(mailbox<Queue>& box, std::uint64_t seed);
    template<class Queue>
    asio::awaitable<void>
    take_mail(std::shared_ptr<Queue> q, queue_rules& rules, lease_id by, std::uint64_t seed);
    template<class Queue>
    asio::awaitable<void> count_mail(std::shared_ptr<Queue> q, queue_rules& rules);
    /// Barriers. See meeting.cpp.
    using own_session = std::shared_ptr<std::optional<coetcd::session>>;
    own_session add_own();
    asio::awaitable<bool> have_own(own_session seat);
    asio::awaitable<void> end_own(own_session seat, chance& taste);
    asio::awaitable<void> pass_turnstile(std::uint64_t seed);
    asio::awaitable<void>
    pass_once(std::shared_ptr<coetcd::cyclic_barrier> gate, lease_id by, std::uint64_t seed);
    asio::awaitable<void> stay_in_hall(std::uint64_t seed);
    asio::awaitable<void> enter_hall(coetcd::double_barrier& hall,
                                     std::optional<meeting_rules::member>& inside,
                                     lease_id by,
                                     std::uint64_t seed);
    asio::awaitable<void> leave_hall(coetcd::double_barrier& hall,
                                     std::int64_t group,
                                     bool& has_left,
                                     std::uint64_t seed);
    /// Latches. See latching.cpp.
    asio::awaitable<void> count_latches(std::uint64_t seed);
    asio::awaitable<void> count_latch(std::shared_ptr<coetcd::latch> l, int which, lease_id by);
    asio::awaitable<void> wait_for_latches(std::uint64_t seed);
    asio::awaitable<void>
    wait_for_latch(std::shared_ptr<coetcd::latch> l, int which, std::uint64_t seed);
    /// Barriers that anybody closes and opens. See holding.cpp.
    asio::awaitable<void> hold_barriers(std::uint64_t seed);
    asio::awaitable<void>
    hold_barrier(std::shared_ptr<coetcd::barrier> b, int which, lease_id by, bool for_good);
    asio::awaitable<void> release_barrier(std::shared_ptr<coetcd::barrier> b, int which);
    asio::awaitable<void> wait_at_barriers(std::uint64_t seed);
    asio::awaitable<void>
    wait_at_barrier(std::shared_ptr<coetcd::barrier> b, int which, std::uint64_t seed);
    /// A mirror. See mirroring.cpp.
    asio::awaitable<void> have_mirror(std::uint64_t seed);
    asio::awaitable<void> open_mirror();
    asio::awaitable<void> read_mirror(std::uint64_t seed);
    asio::awaitable<void> read_batch(mirror_rules::follower& f, bool& goes_on);
    asio::awaitable<void> write_and_wait(std::uint64_t seed);
    asio::awaitable<void> write_rows(std::uint64_t seed);
    void overtake_watches(chance& taste);

    /// A session of its own is orphaned while it holds a lock, or leads; another one adopts its
    /// lease, and goes on.
    asio::awaitable<void> hand_on(std::shared_ptr<operation> o, std::string name, chance& taste);
    template<class Lock>
    asio::awaitable<void> go_on(const coetcd::session& by,
                                Lock& resumed,
                                std::string name,
                                coetcd::lock_options options,
                                bool given_back_before,
                                chance& taste);

    class sharer;
    /// Takes a lock to read or to write, and goes from one to the other; or several at once.
    asio::awaitable<void> share(std::shared_ptr<operation> o, chance& taste);
    asio::awaitable<void> share_one(std::shared_ptr<operation> o, std::string name, chance& taste);
    asio::awaitable<void> share_several(std::shared_ptr<operation> o, chance& taste);
    asio::awaitable<void> change_mode(sharer& v, coetcd::held_lock& l, chance& taste);

    /// Permits of a semaphore, whose limit goes up and down.
    std::shared_ptr<coetcd::semaphore> semaphore_of(const std::string& name, bool shared);
    asio::awaitable<void> use_permits(std::shared_ptr<operation> o, chance& taste);
    asio::awaitable<void>
    change_limit(std::shared_ptr<operation> o, coetcd::semaphore& s, chance& taste);

    /// A term as a lock, which the leader holds.
    class office;
    asio::awaitable<void>
    campaign(std::shared_ptr<operation> o, std::string name, way how, chance& taste);
    asio::awaitable<void>
    serve(visit& v, const coetcd::leadership& l, const std::string& name, chance& taste);
    /// Tries to go on with a term that another one has.
    asio::awaitable<void> usurp(coetcd::election& e, lease_id own);
    asio::awaitable<void> proclaim(visit& v, const office& l);

    /// Something that is to be written once. See writers.cpp.
    asio::awaitable<void> write_once(chance& taste);
    asio::awaitable<void> transact(chance& taste);
    asio::awaitable<void> transact_loosely(chance& taste);
    asio::awaitable<void> audit(chance& taste);
    asio::awaitable<void> draw_number();
    asio::awaitable<void> count_up();
    asio::awaitable<void> carry_out(chance& taste);

    /// In the instruction after the one that took it.
    template<class Lock>
    void must_own(const Lock& l);

    asio::awaitable<void>
    guarded_body(visit& v, const coetcd::held_lock& l, const std::string& name, chance& taste);

    template<class Lock>
    asio::awaitable<void> unlock(visit& v, Lock& l);

    /// A change of several keys, for watches.
    coetcd::txn draw_data(chance& taste);

    /// What a lock is for.
    template<class Lock>
    asio::awaitable<void> use(visit& v, const Lock& l, const std::string& name, chance& taste);

    stage& s_;
    const std::shared_ptr<process> p_;
    const std::shared_ptr<reporter> report_;
    std::optional<coetcd::client> client_;
    std::optional<coetcd::session> session_;
    std::map<std::string, std::shared_ptr<coetcd::semaphore>> semaphores_; // of that session
    const bool is_guest_ = false;
    bool knows_one_ = false; ///< Member, at first.
    bool opening_ = false;
    bool sound_clock_ = true;
    int jobs_;
    std::optional<coetcd::watcher> watcher_;
    std::optional<coetcd::watcher> laggard_;
    std::optional<coetcd::leader_feed> feed_;
    std::optional<coetcd::value_feed> value_feed_;
    std::optional<coetcd::session_keeper> keeper_;
    std::optional<coetcd::session_keeper> member_keeper_;
    std::optional<coetcd::members_feed> members_feed_;
    std::optional<coetcd::session> work_session_;
    std::shared_ptr<coetcd::work_queue> jobs_queue_; // of that session
    bool opening_work_ = false;
    mailbox<coetcd::queue> mail_{s_.judge.queues, mail_name};
    mailbox<coetcd::priority_queue> parcels_{s_.judge.parcels, parcels_name};
    std::vector<own_session> own_sessions_;
    /// Such as wait on when all is closed, unless they are cancelled.
    std::vector<std::shared_ptr<operation>> lasting_;
    std::optional<coetcd::mirror> mirror_;
    std::size_t mirror_buffer_ = 0;
    std::optional<coetcd::mirror_changes> mirror_changes_;
    std::optional<coetcd::task_group> group_;
    int watches_ = 0;  ///< Feeds, and what keeps sessions or runs groups, too.
    int mourners_ = 0; ///< Coroutines that wait for the end of a session.
    std::shared_ptr<operation> current_;
    std::uint64_t seen_ = 0;
    std::size_t most_waiting_ = 0; ///< In the client's lane, since it was empty.
    bool backwards_ = false;       ///< The next lock of several names has them so.
};

template<class Feed, class Told>
asio::awaitable<void> actor::follow(std::optional<Feed>& feed, chance& taste, Told told) {
    constexpr std::chrono::milliseconds longest_nap(200);
    int naps = taste.one_in(2) ? 8 : 0;
    try {
        while (feed) {
            const auto next = co_await feed->next();
            told(next);
            if (naps > 0 && taste.one_in(2)) {
                --naps;
                (void)co_await p_->sleep(taste.skewed(std::chrono::milliseconds(0), longest_nap));
            }
        }
    } catch (const boost::system::system_error& e) {
        if (!was_misled(e.code())) {
            judge(std::current_exception());
        }
    }
    feed.reset();
    if (client_) {
        (void)co_await p_->sleep(longest_nap);
    }
}

} // namespace sim
