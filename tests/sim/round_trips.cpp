// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/counter.hpp>
#include <coetcd/detail/testing/chance.hpp>
#include <coetcd/detail/testing/json.hpp>
#include <coetcd/detail/testing/world.hpp>
#include <coetcd/election.hpp>
#include <coetcd/exactly_once.hpp>
#include <coetcd/fencing_gate.hpp>
#include <coetcd/multi_lock.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/semaphore.hpp>
#include <coetcd/sequence.hpp>
#include <coetcd/session.hpp>
#include <coetcd/shared_mutex.hpp>
#include <coetcd/value.hpp>
#include <coetcd/verify.hpp>

#include <boost/asio/co_spawn.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/stories.hpp"
#include "sim/story.hpp"

namespace sim {

namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;
namespace asio = boost::asio;
namespace in_memory = coetcd::detail::testing;
using coetcd::detail::call_request;
using coetcd::detail::rpc;
using in_memory::chance;
using in_memory::etcd;
using in_memory::json;
using in_memory::process;

constexpr int members = 3;
constexpr int most_clients = 4;
constexpr int limit = 3; // of the permits

/// Requests of a client. Those that look at members are not counted.
struct spending {
    std::size_t writes = 0; ///< What can change the store, or compares something.
    std::size_t looks = 0;  ///< Else.
    std::size_t renewals = 0;
    std::array<std::size_t, members> to{};
    std::size_t all() const { return writes + looks; }
    friend spending operator-(spending a, const spending& b) {
        a.writes -= b.writes;
        a.looks -= b.looks;
        a.renewals -= b.renewals;
        for (std::size_t m = 0; m != members; ++m) {
            a.to[m] -= b.to[m];
        }
        return a;
    }
};

/// A waiter in a queue.
struct waiting {
    std::string queue; ///< The prefix of its keys.
    coetcd::lease_id lease;
    std::size_t process;
    std::size_t turns = 0; ///< How often the key just before its own has ended.
    // As soon as they are known:
    std::optional<nanoseconds> next_since{}; ///< One place was before it from then on.
    std::optional<nanoseconds> first_since{};
    std::size_t writes = 0; ///< Of its process, until it was the first.
};

bool only_reads(json::value txn) {
    bool reads = txn["compare"].size() == 0;
    for (const char* branch : {"success", "failure"}) {
        txn[branch].each([&](json::value op) {
            const json::value part = op["request_txn"];
            reads = reads && (part ? only_reads(part) : bool(op["request_range"]));
        });
    }
    return reads;
}

/// Members that are near or far, a storm, and one member that is ill later on.
class weighed_world final : public in_memory::world,
                            public in_memory::wiretap,
                            public etcd::witness {
public:
    weighed_world(std::uint64_t seed, options o)
        : in_memory::world(chance::derive(seed, 41), o)
        , draw_(chance::derive(seed, 42))
        , near_(draw_.between(0, members - 1)) {
        listening = this;
        store.told = this;
        const nanoseconds shortest = draw_.within(200us, 2ms);
        for (int m = 0; m != members; ++m) {
            distance_[index(m)] = m == near_ ? shortest : 4 * shortest + draw_.within(5ms, 40ms);
        }
    }
    ~weighed_world() { shut_down(); }

    void begin_storm() { stormy_ = true; }
    void end_storm() { stormy_ = false; }
    void begin_illness(int member) {
        ill_ = member;
        symptom_ = draw_.below(3);
    }
    void end_illness() { ill_ = -1; }
    int nearest() const { return near_; }
    /// The longest round trip, with a connection that has to be made first.
    nanoseconds longest() const {
        return 6 * *std::max_element(distance_.begin(), distance_.end()) + 1ms;
    }
    spending of(const process& p) const {
        const auto found = spent_.find(p.number());
        return found == spent_.end() ? spending() : found->second;
    }

    std::list<waiting> queued;

private:
    static std::size_t index(int m) { return static_cast<std::size_t>(m); }

    nanoseconds latency() override { return draw_.within(1us, 50us); } // beside the distance

    in_memory::fate judge(process& by, const call_request& what) override {
        const int m = member_of(what);
        in_memory::fate f = in_memory::world::judge(by, what);
        f.there = distance_[index(m)];
        f.back = distance_[index(m)];
        if (met_.insert({by.number(), m}).second) {
            f.there += 4 * distance_[index(m)]; // it has to connect, by TLS
        }
        if (m == ill_) {
            fall_ill(f);
        } else if (stormy_ && draw_.one_in(3)) {
            strike(f);
        }
        return f;
    }
    in_memory::fate judge_stream(process& by, const call_request& what) override {
        in_memory::fate f = in_memory::world::judge_stream(by, what);
        f.refused = f.refused || member_of(what) == ill_ || (stormy_ && draw_.one_in(4));
        return f;
    }
    static etcd::answer refusal(const char* why, int code) {
        etcd::answer a;
        a.status = 503;
        a.body = std::string(R"({"error":")") + why + R"(","code":)" + std::to_string(code) +
                 R"(,"message":")" + why + "\"}";
        return a;
    }
    void fall_ill(in_memory::fate& f) const {
        if (symptom_ == 0) {
            f.refused = true;
        } else if (symptom_ == 1) {
            f.lost = true;
        } else {
            f.instead = refusal("etcdserver: no leader", 14);
        }
    }
    void strike(in_memory::fate& f) {
        switch (draw_.below(6)) {
        case 0:
            f.lost = true;
            break;
        case 1:
            f.answer_lost = true;
            break;
        case 2:
            f.refused = true;
            break;
        case 3:
            f.breaks = f.there + draw_.within(0ms, 5ms);
            break;
        case 4:
            f.doubt = refusal("etcdserver: request timed out", 14);
            break;
        default:
            f.there += draw_.skewed(0ms, 3s);
        }
    }

    void sent(const process& by, std::uint64_t, const call_request& what) override {
        bool reads = false;
        if (what.what == rpc::lease_keep_alive) {
            ++spent_[by.number()].renewals;
        }
        if (what.what == rpc::txn) {
            const json request(what.body);
            reads = only_reads(request.root());
        } else if (what.what == rpc::range) {
            if (what.body.find("count_only") != what.body.npos) {
                return; // how far is it?
            }
            reads = true;
        } else if (what.what != rpc::put && what.what != rpc::delete_range) {
            return;
        }
        spending& s = spent_[by.number()];
        ++(reads ? s.looks : s.writes);
        ++s.to[index(member_of(what))];
    }

    void changed(const std::vector<etcd::change>& changes, etcd::cause) override {
        for (const etcd::change& c : changes) {
            for (waiting& w : queued) {
                if (c.deleted && c.key.starts_with(w.queue) && was_before(w, c)) {
                    ++w.turns;
                }
            }
        }
        for (waiting& w : queued) {
            look_at(w);
        }
    }
    void look_at(waiting& w) const {
        std::int64_t own = 0;
        for (const std::string& key : store.under(w.queue)) {
            if (store.keys.at(key).lease == w.lease) {
                own = store.keys.at(key).create_revision;
            }
        }
        std::size_t older = 0;
        for (const std::string& key : store.under(w.queue)) {
            older += store.keys.at(key).create_revision < own ? std::size_t{1} : 0;
        }
        if (own != 0 && older <= 1 && !w.next_since) {
            w.next_since = now();
        }
        if (own != 0 && older == 0 && !w.first_since) {
            w.first_since = now();
            w.writes = spent_.contains(w.process) ? spent_.at(w.process).writes : 0;
        }
    }
    /// Whether it was the last one before the key of the waiter.
    bool was_before(const waiting& w, const etcd::change& gone) const {
        std::int64_t own = 0;
        std::int64_t last = gone.before.create_revision;
        for (const std::string& key : store.under(w.queue)) {
            if (store.keys.at(key).lease == w.lease) {
                own = store.keys.at(key).create_revision;
            }
        }
        for (const std::string& key : store.under(w.queue)) {
            const std::int64_t other = store.keys.at(key).create_revision;
            last = other < own ? std::max(last, other) : last;
        }
        return last == gone.before.create_revision && last < own;
    }

    chance draw_;
    const int near_;
    std::array<nanoseconds, members> distance_{};
    bool stormy_ = false;
    int ill_ = -1;
    std::uint64_t symptom_ = 0;
    std::set<std::pair<std::size_t, int>> met_; // processes and members that are connected
    std::map<std::size_t, spending> spent_;
};

/// What a client has and keeps.
struct kit {
    kit(coetcd::session s, const coetcd::client& c, const std::string& own)
        : session(std::move(s))
        , common{coetcd::mutex(session, "lock/0"), coetcd::mutex(session, "lock/1")}
        , rw(session, "rw/" + own)
        , several(session,
                  {coetcd::exclusive("several/a" + own), coetcd::exclusive("several/b" + own)})
        , permits(session, "permits/" + own, limit)
        , office(session, "office/" + own)
        , value(session, "value/" + own)
        , numbers(session, "numbers/" + own)
        , visits(session, "visits/" + own)
        , writer(session, "once/" + own)
        , gate(c, "gate/" + own) {}

    coetcd::session session;
    std::array<coetcd::mutex, 2> common;
    coetcd::shared_mutex rw;
    coetcd::multi_lock several;
    coetcd::semaphore permits;
    coetcd::election office;
    coetcd::value value;
    coetcd::sequence numbers;
    coetcd::counter visits;
    coetcd::exactly_once writer;
    coetcd::fencing_gate gate;
    bool took_last = false; ///< Of the permits.
};

/// What all share.
struct scene {
    scene(std::uint64_t seed, in_memory::world::options o)
        : w(seed, o) {}
    weighed_world w;
    std::chrono::seconds ttl{5};
    nanoseconds storm{0}; ///< When it ends.
    nanoseconds calm{0};  ///< When nothing is late any more.
    std::size_t clients = 0;
    std::array<std::size_t, 4> arrived{}; ///< At each place where all wait for each other.
    bool judges = false;                  ///< Each call is counted.
    int ill = 0;                          ///< This member is.
    nanoseconds illness{0};               ///< Until then.
    /// The users of each common name, and how often one has come.
    std::array<int, 2> inside{};
    std::array<std::size_t, 2> visits{};
};

class user {
public:
    user(scene& s, std::uint64_t seed, std::size_t number)
        : s_(s)
        , w_(s.w)
        , taste_(seed)
        , own_(std::to_string(number))
        , p_(w_.add_process()) {
        client_.emplace(client_of_all(p_, members));
        auto at_end = [this](std::exception_ptr failure) {
            finished_ = true;
            if (failure) {
                fail(failure);
            }
        };
        asio::co_spawn(p_->executor(), live(), std::move(at_end));
    }

    bool finished() const { return finished_; }
    void drop() {
        kit_.reset();
        client_.reset();
    }

private:
    static constexpr int kinds = 12;

    /// What was spent since it was made.
    class bill {
    public:
        explicit bill(const user& u)
            : of_(u)
            , before_(u.w_.of(*u.p_))
            , began_(u.w_.now()) {}
        spending spent() const { return of_.w_.of(*of_.p_) - before_; }
        nanoseconds took() const { return of_.w_.now() - began_; }
        /// Looks of the background: at what is held, with each renewal; and of waiters.
        std::size_t background() const {
            const nanoseconds often = std::min<nanoseconds>(of_.s_.ttl / 4, 7s);
            return 1 + static_cast<std::size_t>(took() / often);
        }

    private:
        const user& of_;
        const spending before_;
        const nanoseconds began_;
    };

    /// Is where a name is used.
    class visitor {
    public:
        visitor(scene& s, std::size_t name)
            : s_(s)
            , name_(name)
            , nobody_(++s_.inside[name_] == 1)
            , number_(++s_.visits[name_]) {}
        ~visitor() { --s_.inside[name_]; }
        visitor(const visitor&) = delete;
        visitor& operator=(const visitor&) = delete;
        /// Until now.
        bool was_alone() const { return nobody_ && s_.visits[name_] == number_; }

    private:
        scene& s_;
        const std::size_t name_;
        const bool nobody_;
        const std::size_t number_;
    };

    class place_in_queue {
    public:
        place_in_queue(weighed_world& w, waiting who)
            : all_(w.queued)
            , place_(all_.insert(all_.end(), std::move(who))) {}
        ~place_in_queue() { all_.erase(place_); }
        place_in_queue(const place_in_queue&) = delete;
        place_in_queue& operator=(const place_in_queue&) = delete;
        std::size_t turns() const { return place_->turns; }
        /// How many requests that write its process has sent since it was the first, if it was the
        /// next one for so long before that.
        std::size_t writes_at_turn(nanoseconds prepared, const spending& now) const {
            const bool is_prepared = place_->next_since && place_->first_since &&
                                     *place_->first_since - *place_->next_since > prepared;
            return is_prepared ? now.writes - place_->writes : 0;
        }

    private:
        std::list<waiting>& all_;
        const std::list<waiting>::iterator place_;
    };

    void fail(const std::exception_ptr& failure) {
        try {
            std::rethrow_exception(failure);
        } catch (const std::exception& e) {
            w_.fail(std::string("a call fails although nothing goes wrong: ") + e.what());
        }
    }
    void expect(bool holds, const char* what, const spending& s) {
        if (!holds && s_.judges) {
            w_.fail(std::string("more round trips than it costs: ") + what + " took " +
                    std::to_string(s.writes) + " and " + std::to_string(s.looks) + " looks");
        }
    }
    /// What looks besides while it is awaited.
    enum class beside : std::size_t {
        nothing,
        hold, ///< Which is looked at with each renewal.
        term, ///< Likewise, and once when its watch begins.
    };
    /// Its transactions.
    asio::awaitable<void>
    costs(const char* what, std::size_t writes, beside whose, asio::awaitable<void> call) {
        const bill b(*this);
        co_await std::move(call);
        const spending s = b.spent();
        const auto looks = static_cast<std::size_t>(whose);
        expect(s.writes == writes && s.looks <= (looks == 0 ? 0 : b.background() + looks - 1),
               what,
               s);
        if (s_.judges && b.took() > w_.longest() * static_cast<int>(writes)) {
            w_.fail(std::string("it takes longer than its round trips: ") + what);
        }
    }
    template<class T>
    static asio::awaitable<void> into(std::optional<T>& result, asio::awaitable<T> call) {
        T made = co_await std::move(call);
        result.emplace(std::move(made));
    }
    template<class T>
    static asio::awaitable<void> ignoring(asio::awaitable<T> call) {
        (void)co_await std::move(call);
    }

    asio::awaitable<void> have_kit() {
        while (!kit_ || kit_->session.state() == coetcd::session_state::lost) {
            kit_.reset();
            try {
                const coetcd::session_options how(s_.ttl);
                coetcd::session made = co_await coetcd::session::open(*client_, how);
                kit_ = std::make_unique<kit>(std::move(made), *client_, own_);
            } catch (const boost::system::system_error&) {
                if (w_.now() >= s_.calm) {
                    throw;
                }
            }
            if (!kit_) {
                (void)co_await p_->sleep(100ms);
            }
        }
    }

    asio::awaitable<void> rest(nanoseconds longest) {
        (void)co_await p_->sleep(taste_.within(1us, longest));
    }
    asio::awaitable<void> until(nanoseconds when) {
        if (w_.now() < when) {
            (void)co_await p_->sleep(when - w_.now());
        }
    }
    asio::awaitable<void> meet(std::size_t place) {
        ++s_.arrived[place];
        while (s_.arrived[place] != s_.clients) {
            (void)co_await p_->sleep(10ms);
        }
    }

    asio::awaitable<void> live() {
        co_await have_kit();
        while (w_.now() < s_.storm) {
            co_await have_kit();
            co_await try_in_storm();
            co_await rest(200ms);
        }
        co_await until(s_.calm);
        co_await have_kit();
        for (int kind = 0; kind != kinds; ++kind) { // a call after a fault may cost more
            co_await use(kind);
        }
        co_await meet(0);
        s_.judges = true;
        co_await use_often(20);
        co_await meet(1);
        s_.judges = false;
        co_await bear_illness();
        co_await meet(2);
        // It looks around each 30 s, while it is used. Meanwhile it renews its lease.
        const bill idle(*this);
        (void)co_await p_->sleep(36s);
        const auto due = static_cast<std::size_t>(36s / (s_.ttl * 95 / 300)) + 2;
        if (idle.spent().all() != 0 || idle.spent().renewals > due) {
            w_.fail("a session that is not used asks for " + std::to_string(idle.spent().all()) +
                    " things, and " + std::to_string(idle.spent().renewals) + " times for renewal");
        }
        co_await use_often(3);
        (void)co_await p_->sleep(3s);
        co_await meet(3);
        s_.judges = true;
        const bill b(*this);
        co_await use_often(8);
        const spending s = b.spent();
        if (s.to[static_cast<std::size_t>(w_.nearest())] != s.all()) {
            w_.fail("a member that is near and well is not used");
        }
    }

    /// Whatever comes of it. Some are cancelled.
    asio::awaitable<void> try_in_storm() {
        auto work = use(taste_.between(0, kinds - 1));
        std::optional<nanoseconds> cancelled;
        if (taste_.one_in(2)) {
            cancelled = taste_.skewed(0ms, 500ms);
        }
        std::function<void(std::exception_ptr)> ignored = [](std::exception_ptr) {};
        co_await await_any_end(p_, std::move(work), cancelled, std::move(ignored));
        co_await give_back();
    }

    asio::awaitable<void> use_often(int times) {
        for (; times != 0; --times) {
            co_await use(taste_.between(0, kinds - 1));
            co_await rest(60ms);
        }
    }

    /// A member falls ill, most often the one that they use.
    asio::awaitable<void> bear_illness() {
        if (s_.illness == 0s) {
            s_.ill = taste_.one_in(4) ? taste_.between(0, members - 1) : w_.nearest();
            s_.illness = w_.now() + taste_.within(3s, 15s);
            w_.begin_illness(s_.ill);
        }
        const bill b(*this);
        while (w_.now() < s_.illness) {
            co_await use(taste_.between(0, kinds - 1));
            co_await rest(200ms);
        }
        w_.end_illness();
        const std::size_t asked = b.spent().to[static_cast<std::size_t>(s_.ill)];
        if (asked > 8) { // the pauses double, from 100 ms on
            w_.fail("a member that fails is asked again and again: " + std::to_string(asked));
        }
    }

    asio::awaitable<void> use(int kind) {
        switch (kind) {
        case 0:
        case 1:
        case 2:
        case 3:
            return lock_common(static_cast<std::size_t>(kind % 2), kind < 2);
        case 4:
            return read_and_write();
        case 5:
            return lock_several();
        case 6:
            return take_permits();
        case 7:
            return lead();
        case 8:
            return costs("value::set", 1, beside::nothing, ignoring(kit_->value.set(number())));
        case 9:
            return costs("sequence::next", 1, beside::nothing, ignoring(kit_->numbers.next()));
        case 10:
            return costs("counter::add", 1, beside::nothing, ignoring(kit_->visits.add()));
        default:
            return write_once();
        }
    }
    std::string number() { return std::to_string(++writes_); }

    asio::awaitable<void> lock_common(std::size_t name, bool waits) {
        coetcd::mutex& m = kit_->common[name];
        const visitor here(s_, name);
        bool taken = true;
        {
            const place_in_queue place(
                w_, {"lock/" + std::to_string(name) + "/", kit_->session.lease(), p_->number()});
            const bill b(*this);
            if (waits) {
                co_await m.lock();
            } else {
                taken = co_await m.try_lock();
            }
            const spending s = b.spent();
            if (!waits) {
                expect(s.writes == 1 && s.looks == 0, "try_lock", s);
            } else if (here.was_alone()) {
                expect(s.writes == 1 && s.looks == 0, "lock of a free name", s);
            } else {
                // It enters, by two transactions at most; looks at the keys before it, later at its
                // own key, too; and asks, and maybe looks again, when one of those has gone.
                const std::size_t most = 4 + 2 * place.turns() + b.background() - 1;
                expect(s.all() <= most, "lock of a name that others have", s);
                expect(place.writes_at_turn(w_.longest(), w_.of(*p_)) == 0,
                       "the turn of a waiter that has proved it ahead",
                       s);
            }
        }
        if (taken) {
            co_await rest(taste_.one_in(3) ? 600ms : 40ms); // those behind prepare for their turn
            co_await costs("unlock", 1, beside::hold, ignoring(m.unlock()));
        }
    }
    asio::awaitable<void> read_and_write() {
        coetcd::shared_mutex& m = kit_->rw;
        co_await costs("lock_shared", 1, beside::nothing, m.lock_shared());
        co_await costs("unlock_shared", 1, beside::hold, ignoring(m.unlock_shared()));
        std::optional<coetcd::held_lock> l;
        co_await costs("lock, to write", 1, beside::nothing, into(l, m.scoped_lock()));
        const coetcd::sequencer proof = l->sequencer();
        const bill b(*this);
        (void)co_await coetcd::verify_of_any_lock(*client_, proof);
        expect(b.spent().all() <= 1 + b.background(), "verify", b.spent());
        co_await costs("downgrade", 1, beside::hold, l->downgrade());
        co_await costs("try_upgrade", 1, beside::hold, ignoring(l->try_upgrade()));
        co_await costs("unlock, of who writes", 1, beside::hold, ignoring(l->unlock()));
    }
    asio::awaitable<void> lock_several() {
        std::optional<coetcd::held_locks> l;
        co_await costs(
            "lock, of several", 1, beside::nothing, into(l, kit_->several.scoped_lock()));
        co_await costs("unlock, of several", 1, beside::hold, ignoring(l->unlock()));
    }
    asio::awaitable<void> take_permits() {
        std::optional<coetcd::permit> p;
        const std::int64_t n = taste_.between(1, limit);
        // After it took the last permit it asks first whether there is room.
        const std::size_t asks = std::exchange(kit_->took_last, n == limit) ? 2 : 1;
        co_await costs("acquire", asks, beside::nothing, into(p, kit_->permits.acquire(n)));
        co_await costs("release", 1, beside::hold, ignoring(p->release()));
    }
    asio::awaitable<void> lead() {
        std::optional<coetcd::leadership> l;
        co_await costs("campaign", 1, beside::term, into(l, kit_->office.campaign(number())));
        co_await costs("proclaim", 1, beside::term, l->proclaim(number()));
        co_await costs("proclaim again", 1, beside::term, l->proclaim(number()));
        co_await costs("resign", 1, beside::term, ignoring(l->resign()));
    }
    asio::awaitable<void> write_once() {
        coetcd::txn put = coetcd::txn().then(coetcd::op::put("data/" + own_, number()));
        auto writing = kit_->writer.txn(std::move(put));
        co_await costs("exactly_once::txn", 1, beside::nothing, ignoring(std::move(writing)));
        const std::int64_t token = ++writes_;
        co_await costs("admit", 1, beside::nothing, ignoring(kit_->gate.admit(token)));
    }

    /// Gives back what an operation that was cancelled still has: the objects stay.
    asio::awaitable<void> give_back() {
        for (coetcd::mutex& m : kit_->common) {
            if (m.owns_lock()) {
                co_await whatever_comes(m.unlock());
            }
        }
        if (kit_->rw.owns_lock()) {
            co_await whatever_comes(kit_->rw.unlock_shared());
        }
    }
    /// Giving back goes on by itself.
    static asio::awaitable<void> whatever_comes(asio::awaitable<bool> call) {
        try {
            (void)co_await std::move(call);
        } catch (const boost::system::system_error&) {
        }
    }

    scene& s_;
    weighed_world& w_;
    chance taste_;
    const std::string own_;
    const std::shared_ptr<process> p_;
    std::optional<coetcd::client> client_;
    std::unique_ptr<kit> kit_;
    int writes_ = 0;
    bool finished_ = false;
};

} // namespace

std::string count_round_trips(std::uint64_t seed) {
    chance luck(chance::derive(seed, 43));
    in_memory::world::options o;
    o.members = members;
    o.speaks = luck.one_in(2) ? in_memory::dialect::v1 : in_memory::dialect::v2;
    scene s(seed, o);
    s.ttl = std::chrono::seconds(luck.between(5, 10));
    if (luck.one_in(2)) {
        s.storm = luck.within(1s, 6s);
        s.w.begin_storm();
    }
    // What was shunned is not any more, what was left behind has gone with its lease.
    s.calm = s.storm + s.ttl + 8s;
    s.w.at(s.storm, [&s] { s.w.end_storm(); });
    s.clients = static_cast<std::size_t>(luck.between(1, most_clients));
    std::vector<std::unique_ptr<user>> users;
    for (std::size_t i = 0; i != s.clients; ++i) {
        users.push_back(std::make_unique<user>(s, luck.next(), i));
    }
    const auto finished = [&] {
        return std::all_of(users.begin(), users.end(), [](const auto& u) { return u->finished(); });
    };
    while (s.w.failure().empty() && !finished() && s.w.step()) {
        if (s.w.now() > 1000s) {
            s.w.fail("no progress although nothing goes wrong");
        }
    }
    std::string failure = s.w.failure();
    for (const auto& u : users) {
        u->drop();
    }
    s.w.shut_down();
    return failure;
}

} // namespace sim
