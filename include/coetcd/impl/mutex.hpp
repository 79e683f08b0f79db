// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/impl/session.hpp>
#include <coetcd/mutex.hpp>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/this_coro.hpp>

#include <algorithm>
#include <exception>
#include <functional>
#include <stdexcept>
#include <variant>

namespace coetcd {

namespace detail {

/// One attempt to hold one lock, from the first request to the last. Whatever ends it, nothing of
/// it stays in etcd: what was not released in an orderly way is cleaned up in the background.
class acquisition final : public held_key, private loss_listener {
public:
    /// Takes the last place in the session's own queue; `wake` is notified when the turn has come.
    acquisition(std::shared_ptr<session_impl> s, std::string lock_name, notifier& wake)
        : session(std::move(s))
        , name(std::move(lock_name))
        , keys(session->next_keys(name))
        , turn_(std::in_place, session, name, wake) {}
    ~acquisition() { abandon(); }
    acquisition(const acquisition&) = delete;
    acquisition& operator=(const acquisition&) = delete;

    const std::shared_ptr<session_impl> session;
    const std::string name;
    const logic::lock_keys keys;

    bool turn_has_come() const { return turn_->has_come(); }

    /// A request to enter is about to be sent.
    void entering() {
        phase_ = phase::entered;
        left_ = logic::effect::unresolved;
    }
    /// The request to enter has failed, or void repetitions of it have.
    void settle(logic::effect left) { left_ = left; }
    /// Our key was seen.
    void queued(std::int64_t create_revision) { create_revision_ = create_revision; }
    /// Our key is not there, and no request that could put it is under way.
    void nothing_there() {
        if (left_ != logic::effect::unresolved) {
            phase_ = phase::over;
        }
    }

    /// From here on the lock is ours, if the session still is.
    /// @throws error with `errc::session_lost`: the answer may have waited for us while the process
    ///   stood still.
    void grant() {
        require_session();
        phase_ = phase::held;
        granted_ = session->world.now();
        session->hold(*this);
        loss_of_session_.emplace(session->losses, static_cast<loss_listener&>(*this));
    }

    bool held() const { return phase_ == phase::held && !missing_ && session->alive(); }

    /// @throws error with `errc::session_lost`.
    void require_session() const { session->require_alive(title()); }

    /// Why it is lost: the session is, or else the key was deleted.
    error loss() const {
        if (!session->alive()) {
            return error(errc::session_lost, title() + ": " + to_string(session->reason()));
        }
        return error(errc::lock_lost, title());
    }

    /// For messages.
    std::string title() const { return "mutex \"" + wire::printable(name) + "\""; }

    /// Tells when the lock is lost while it is held.
    loss_source losses;

    const std::string& key() const override { return keys.key; }
    std::int64_t create_revision() const override { return create_revision_; }
    void on_missing() override {
        if (!std::exchange(missing_, true) && left_ == logic::effect::unresolved) {
            session->clean_up(keys, true); // a late request must not put it again
        }
        on_loss();
    }

    /// Ends it here and now; etcd is told in the background.
    void abandon() {
        const phase was = stop();
        if (was == phase::entered || was == phase::held) {
            session->clean_up(keys, left_ == logic::effect::unresolved);
        }
    }

    /// Gives the lock back.
    /// @returns Whether it was there to be given back.
    static asio::awaitable<bool> release(std::shared_ptr<acquisition> self);

private:
    enum class phase {
        waiting, // nothing was sent yet
        entered, // our key may be there
        held,    // it is, and it is the owner
        over,    // nothing is left to do
    };

    void on_loss() override {
        report_end(true);
        losses.tell();
    }
    /// Tells the observer, once.
    void report_end(bool lost) {
        const auto& observer = session->owner->options.observer;
        if (granted_ && observer) {
            observer->on_lock_hold({name, session->world.now() - *granted_, lost});
        }
        granted_.reset();
    }

    phase stop() {
        if (phase_ == phase::held) {
            // Without a look at the session that might end it here and now.
            report_end(missing_ || session->reason() != session_end::none ||
                       session->world.now() >= session->certain_until());
            session->drop(*this);
            loss_of_session_.reset();
        }
        return std::exchange(phase_, phase::over);
    }

    phase phase_ = phase::waiting;
    std::int64_t create_revision_ = 0;
    logic::effect left_ = logic::effect::none; // of requests to enter
    bool missing_ = false;                     // somebody deleted the key
    std::optional<time_point> granted_;        // for the observer
    std::optional<loss_source::subscription> loss_of_session_;
    std::optional<session_impl::turn> turn_;
};

inline asio::awaitable<bool> acquisition::release(std::shared_ptr<acquisition> self) {
    if (self->phase_ != phase::held) {
        co_return false;
    }
    // However this ends, what is left to do then is done in the background.
    struct end {
        acquisition& of;
        ~end() {
            of.abandon();
            of.turn_.reset();
        }
    };
    const end at_end{*self};
    if (!self->session->alive()) {
        co_return false;
    }
    self->stop();
    self->phase_ = phase::entered;
    const bool unresolved = self->left_ == logic::effect::unresolved;
    std::string body = wire::encode(logic::release(self->keys, self->create_revision_, unresolved));
    const client_impl& owner = *self->session->owner;
    const call_spec spec = owner.spec(rpc::txn, owner.options.request_timeout, true, true);
    txn_response response;
    decoder decode = decode_into(response);
    const answer a = co_await owner.cluster_router->call(spec, std::move(body), std::move(decode));
    if (a.ec == server_errc::not_found) { // the lease of the tombstone; the key has gone with it
        self->phase_ = phase::over;
        self->session->lose(session_end::expired);
        co_return false;
    }
    if (a.ec) {
        throw error(a.ec, self->title() + ", unlock: " + a.text);
    }
    self->phase_ = phase::over;
    // If an answer was lost, it may have been our own first attempt that deleted the key.
    co_return !self->missing_ && (response.succeeded || a.left == logic::effect::unresolved);
}

/// A watch of one key, for its end.
class key_watch final : public watch_sink {
public:
    key_watch(std::shared_ptr<watch_hub> hub, std::string key, notifier& wake)
        : hub_(std::move(hub))
        , key_(std::move(key))
        , wake_(wake) {
        start();
    }
    ~key_watch() {
        if (!ended_) {
            hub_->remove(id_);
        }
    }
    key_watch(const key_watch&) = delete;
    key_watch& operator=(const key_watch&) = delete;

    bool erased = false; ///< The key was deleted.
    bool fresh = false;  ///< In force, and the key was not looked at since.
    bool in_force() const { return in_force_; }

    /// The key is being looked at. Starts anew, should etcd have ended it.
    void look_taken() {
        fresh = false;
        if (ended_) {
            start();
        }
    }

private:
    void start() {
        ended_ = false;
        in_force_ = false;
        wire::watch_create_request request{key_range(key_)};
        request.no_put = true;
        id_ = hub_->add(std::move(request), *this);
    }
    void on_created() override {
        in_force_ = true;
        fresh = true;
        wake_.notify_all();
    }
    void on_events(std::vector<event>&) override {
        erased = true;
        wake_.notify_all();
    }
    void on_ended(error_code, std::string, std::int64_t) override {
        ended_ = true;
        in_force_ = false;
    }

    const std::shared_ptr<watch_hub> hub_;
    const std::string key_;
    notifier& wake_;
    std::int64_t id_ = 0;
    bool in_force_ = false;
    bool ended_ = false;
};

/// The wait for one lock. `lock` and `try_lock` tell the protocol, the functions below its steps.
class lock_wait final : private loss_listener {
public:
    lock_wait(std::shared_ptr<session_impl> s, std::string name, time_point deadline)
        : session_(std::move(s))
        , wake_(session_->world)
        , deadline_(deadline)
        , loss_of_session_(session_->losses, static_cast<loss_listener&>(*this))
        , attempt_(std::make_shared<acquisition>(session_, std::move(name), wake_)) {}

    /// Takes the lock.
    /// @returns Nothing if the deadline came first.
    static asio::awaitable<std::shared_ptr<acquisition>>
    lock(std::shared_ptr<session_impl> s, std::string name, time_point deadline) {
        auto work = follow_protocol(s, name, deadline);
        return observed(std::move(s), std::move(name), std::move(work));
    }

    /// Takes the lock if it is free.
    /// @returns Nothing if it is not.
    static asio::awaitable<std::shared_ptr<acquisition>> try_lock(std::shared_ptr<session_impl> s,
                                                                  std::string name) {
        auto work = take_if_free(s, name);
        return observed(std::move(s), std::move(name), std::move(work));
    }

private:
    using result = asio::awaitable<std::shared_ptr<acquisition>>;

    /// Tells the observer, if there is one, how `work` ends.
    static result observed(std::shared_ptr<session_impl> s, std::string name, result work) {
        if (!s->owner->options.observer) {
            return work;
        }
        return observe(std::move(s), std::move(name), std::move(work));
    }
    static result observe(std::shared_ptr<session_impl> s, std::string name, result work) {
        coetcd::observer& to = *s->owner->options.observer;
        const time_point began = s->world.now();
        std::shared_ptr<acquisition> taken;
        try {
            taken = co_await std::move(work);
        } catch (const boost::system::system_error& e) {
            to.on_lock_wait({name, s->world.now() - began, false, e.code()});
            throw;
        }
        to.on_lock_wait({name, s->world.now() - began, taken != nullptr, {}});
        co_return taken;
    }

    static result
    follow_protocol(std::shared_ptr<session_impl> s, std::string name, time_point deadline) {
        using place = logic::standing::place;
        lock_wait wait(std::move(s), std::move(name), deadline);
        std::shared_ptr<acquisition> taken;
        const bool turn = co_await wait.queue_here();
        if (!turn) {
            co_return taken;
        }
        std::optional<logic::standing> now = co_await wait.enter();
        while (now && now->at != place::owner) {
            if (now->at == place::gone) {
                co_await wait.explain_missing_key();
            }
            if (now->at == place::behind) {
                const logic::predecessor ahead = *now->ahead;
                const bool moved = co_await wait.until_moved(ahead);
                if (!moved) {
                    co_return taken;
                }
            }
            now = co_await wait.confirm();
        }
        if (now) {
            wait.attempt_->grant();
            taken = wait.attempt_;
        }
        co_return taken;
    }

    static result take_if_free(std::shared_ptr<session_impl> s, std::string name) {
        std::shared_ptr<acquisition> taken;
        const time_point deadline = after(s->world.now(), s->owner->options.request_timeout);
        const bool free_here = s->is_free_here(name);
        lock_wait wait(std::move(s), std::move(name), deadline);
        wait.attempt_->require_session();
        if (!free_here) {
            co_return taken;
        }
        const logic::standing now = co_await wait.enter_if_free();
        if (now.at == logic::standing::place::owner) {
            wait.attempt_->grant();
            taken = wait.attempt_;
        }
        co_return taken;
    }

    /// The end of a transaction of ours.
    struct outcome {
        std::optional<txn_response> response; ///< Nothing: see `failure`.
        answer failure;
        logic::effect left = logic::effect::none; ///< Of the attempts that failed.
        bool late = false;                        ///< The deadline came first.
    };

    void on_loss() override { wake_.notify_all(); }

    /// 1. The coroutines of one session queue up here; only the first of them goes to etcd.
    asio::awaitable<bool> queue_here() {
        for (;;) {
            attempt_->require_session();
            if (attempt_->turn_has_come()) {
                co_return true;
            }
            if (session_->world.now() >= deadline_) {
                co_return false;
            }
            (void)co_await wake_.wait(deadline_);
        }
    }

    /// 2. Put our key, and learn who is next before us.
    asio::awaitable<std::optional<logic::standing>> enter() {
        std::string body = wire::encode(logic::enter(attempt_->keys, session_->label()));
        const outcome o = co_await send_entry(std::move(body));
        std::optional<logic::standing> now;
        if (o.response) {
            now = logic::after_enter(*o.response, attempt_->keys);
            attempt_->queued(now->create_revision);
        }
        co_return now;
    }

    /// 2 and 4 in one, for `try_lock`.
    asio::awaitable<logic::standing> enter_if_free() {
        std::string body = wire::encode(logic::enter_if_free(attempt_->keys, session_->label()));
        const outcome o = co_await send_entry(std::move(body));
        if (o.late) {
            throw error(errc::timed_out, attempt_->title() + ", try_lock: " + o.failure.text);
        }
        const logic::standing now = logic::after_enter_if_free(*o.response, attempt_->keys);
        if (now.at == logic::standing::place::gone) {
            attempt_->nothing_there();
        } else {
            attempt_->queued(now.create_revision);
        }
        co_return now;
    }

    asio::awaitable<outcome> send_entry(std::string body) {
        attempt_->entering();
        const outcome o = co_await transact(std::move(body));
        attempt_->settle(o.left);
        if (!o.response && o.left == logic::effect::none) {
            attempt_->nothing_there();
        }
        check(o);
        co_return o;
    }

    /// 3. Wait until the key ahead of ours is gone, or ours is.
    /// @returns False if the deadline came first.
    asio::awaitable<bool> until_moved(logic::predecessor ahead) {
        if (!own_) {
            own_.emplace(session_->owner->hub, attempt_->keys.key, wake_);
        }
        key_watch theirs(session_->owner->hub, ahead.key, wake_);
        const std::string look = wire::encode(logic::look(attempt_->keys, ahead));
        time_point recheck = next_recheck();
        for (;;) {
            attempt_->require_session();
            if (own_->erased || theirs.erased) {
                co_return true;
            }
            const time_point now = session_->world.now();
            if (now >= deadline_) {
                co_return false;
            }
            // A watch tells only what happens from when it is in force. And servers have lost
            // events, so that it is not relied upon alone.
            const bool both = own_->in_force() && theirs.in_force();
            if ((both && (own_->fresh || theirs.fresh)) || now >= recheck) {
                own_->look_taken();
                theirs.look_taken();
                recheck = next_recheck();
                const outcome o = co_await transact(look);
                check(o);
                if (o.late) {
                    co_return false;
                }
                if (logic::has_moved(
                        *o.response, attempt_->keys, attempt_->create_revision(), ahead)) {
                    co_return true;
                }
                continue;
            }
            (void)co_await wake_.wait(std::min(deadline_, recheck));
        }
    }

    /// 4. Prove that nobody is before us.
    asio::awaitable<std::optional<logic::standing>> confirm() {
        const std::int64_t revision = attempt_->create_revision();
        std::string body = wire::encode(logic::confirm(attempt_->keys, revision));
        const outcome o = co_await transact(std::move(body));
        check(o);
        std::optional<logic::standing> now;
        if (o.response) {
            now = logic::after_confirm(*o.response, attempt_->keys, revision);
        }
        co_return now;
    }

    /// Our key is not there: either the lease is gone, or somebody deleted the key. Throws.
    asio::awaitable<void> explain_missing_key() {
        (void)co_await session_impl::renew(session_);
        attempt_->nothing_there();
        throw attempt_->loss();
    }

    time_point next_recheck() const {
        env& world = session_->world;
        return after(world.now(), logic::recheck_interval(session_->ttl(), world.random()));
    }

    /// Sends a transaction of ours until it is answered, for as long as the session lives: all of
    /// them may be repeated.
    asio::awaitable<outcome> transact(std::string body) {
        outcome o;
        const client_impl& owner = *session_->owner;
        while (session_->alive()) {
            if (session_->world.now() >= deadline_) {
                o.late = true;
                break;
            }
            call_spec spec = owner.spec(rpc::txn, owner.options.request_timeout, true, true);
            spec.deadline = std::min({spec.deadline, deadline_, session_->certain_until()});
            txn_response response;
            decoder decode = decode_into(response);
            o.failure = co_await owner.cluster_router->call(spec, body, std::move(decode));
            o.left = std::max(o.left, o.failure.left);
            if (!o.failure.ec) {
                o.response = std::move(response);
                break;
            }
            if (o.failure.ec == server_errc::not_found) { // the lease, with which we would put
                session_->lose(session_end::expired);
            } else if (!logic::is_passing(o.failure.ec)) {
                break;
            }
        }
        co_return o;
    }

    /// Throws, unless there is a response or the deadline came first.
    void check(const outcome& o) const {
        if (!o.response) {
            attempt_->require_session();
            if (!o.late) {
                throw error(o.failure.ec, attempt_->title() + ": " + o.failure.text);
            }
        }
    }

    const std::shared_ptr<session_impl> session_;
    notifier wake_; // notified of everything that may end a wait
    const time_point deadline_;
    const loss_source::subscription loss_of_session_;
    const std::shared_ptr<acquisition> attempt_;
    std::optional<key_watch> own_;
};

/// What a `mutex` and the operations under way on it share.
class mutex_impl {
public:
    mutex_impl(std::shared_ptr<session_impl> s, std::string n)
        : session(std::move(s))
        , name(std::move(n)) {}

    const std::shared_ptr<session_impl> session;
    const std::string name;

    std::shared_ptr<acquisition> current; ///< The one that was granted last, until unlocked.
    bool guarded = false;                 ///< A `held_lock` answers for it.

    const acquisition& require_held() const {
        if (!current || !current->held()) {
            throw error(errc::not_owner, "mutex \"" + wire::printable(name) + "\"");
        }
        return *current;
    }

    bool take(std::shared_ptr<acquisition> taken) {
        if (!taken) {
            return false;
        }
        current = std::move(taken);
        guarded = false;
        return true;
    }

    /// Forgets `a`, so that this object does not answer for it any more.
    void forget(const std::shared_ptr<acquisition>& a) {
        if (current == a) {
            current = nullptr;
            guarded = false;
        }
    }

    static asio::awaitable<void> lock(std::shared_ptr<mutex_impl> self) {
        std::shared_ptr<acquisition> taken =
            co_await lock_wait::lock(self->session, self->name, time_point::max());
        self->take(std::move(taken));
    }
    static asio::awaitable<bool> try_lock(std::shared_ptr<mutex_impl> self) {
        std::shared_ptr<acquisition> taken =
            co_await lock_wait::try_lock(self->session, self->name);
        co_return self->take(std::move(taken));
    }
    static asio::awaitable<bool> try_lock_until(std::shared_ptr<mutex_impl> self,
                                                time_point deadline) {
        std::shared_ptr<acquisition> taken =
            co_await lock_wait::lock(self->session, self->name, deadline);
        co_return self->take(std::move(taken));
    }
    static asio::awaitable<held_lock> scoped_lock(std::shared_ptr<mutex_impl> self);

    static asio::awaitable<bool> unlock(std::shared_ptr<mutex_impl> self,
                                        std::shared_ptr<acquisition> a) {
        if (!a) {
            co_return false;
        }
        self->forget(a);
        co_return co_await acquisition::release(std::move(a));
    }

    static asio::awaitable<std::vector<lock_entry>> entries(std::shared_ptr<mutex_impl> self,
                                                            std::int64_t limit) {
        range_options oldest_first;
        oldest_first.limit = limit;
        oldest_first.order = sort_order::ascend;
        oldest_first.target = sort_target::create;
        const client_impl& owner = *self->session->owner;
        const call_spec spec = owner.spec(rpc::range, owner.options.request_timeout, true, false);
        const range_request queue(key_range::prefix(self->name + "/"), oldest_first);
        std::string body = wire::encode(queue);
        range_response r =
            co_await unary<range_response>(self->session->owner, spec, std::move(body));
        std::vector<lock_entry> found;
        for (key_value& kv : r.kvs) {
            lock_entry& e = found.emplace_back();
            e.key = std::move(kv.key);
            e.label = std::move(kv.value);
            e.lease = kv.lease;
            e.create_revision = kv.create_revision;
        }
        co_return found;
    }
    static asio::awaitable<std::optional<lock_entry>> holder(std::shared_ptr<mutex_impl> self) {
        std::vector<lock_entry> first = co_await entries(std::move(self), 1);
        std::optional<lock_entry> found;
        if (!first.empty()) {
            found = std::move(first.front());
        }
        co_return found;
    }
    static asio::awaitable<std::vector<lock_entry>> waiters(std::shared_ptr<mutex_impl> self) {
        std::vector<lock_entry> all = co_await entries(std::move(self), 0);
        if (!all.empty()) {
            all.erase(all.begin());
        }
        co_return all;
    }
};

/// What the public handles let the library's own code do.
class mutex_access {
public:
    static const std::shared_ptr<mutex_impl>& impl(const mutex& m) { return m.impl_; }
    static held_lock guard(std::shared_ptr<mutex_impl> m, std::shared_ptr<acquisition> a) {
        return held_lock(std::move(m), std::move(a));
    }
    static const std::shared_ptr<acquisition>& held(const held_lock& l) { return l.held_; }
};

inline asio::awaitable<held_lock> mutex_impl::scoped_lock(std::shared_ptr<mutex_impl> self) {
    std::shared_ptr<acquisition> taken =
        co_await lock_wait::lock(self->session, self->name, time_point::max());
    self->take(taken);
    self->guarded = true;
    co_return mutex_access::guard(std::move(self), std::move(taken));
}

/// What `body()`, or `body(held)` if that is what it takes, returns.
template<class Body>
auto start(Body& body, const held_lock& held) {
    if constexpr (std::is_invocable_v<Body&, const held_lock&>) {
        return body(held);
    } else {
        return body();
    }
}

/// A body that runs under a lock. Shared with the handler of its end, which may come later than
/// the end of whoever waits for it.
template<class Body>
struct guarded_body final : loss_listener {
    using value_type = typename decltype(start(std::declval<Body&>(),
                                               std::declval<const held_lock&>()))::value_type;
    using stored_type = std::conditional_t<std::is_void_v<value_type>, std::monostate, value_type>;

    guarded_body(Body b, held_lock l, env& world)
        : body(std::move(b))
        , held(std::move(l))
        , done(world) {}

    void on_loss() override { stop.emit(asio::cancellation_type::terminal); }

    Body body;
    held_lock held;
    asio::cancellation_signal stop;
    notifier done;
    bool ended = false;
    std::exception_ptr failure;
    std::optional<stored_type> value;
};

template<class Body>
asio::awaitable<void> run(std::shared_ptr<guarded_body<Body>> guarded) {
    try {
        auto work = start(guarded->body, guarded->held);
        if constexpr (std::is_void_v<typename guarded_body<Body>::value_type>) {
            co_await std::move(work);
        } else {
            guarded->value.emplace(co_await std::move(work));
        }
    } catch (...) {
        guarded->failure = std::current_exception();
    }
    // Asio 1.26 awaits once more behind a coroutine that never waited; cancelled by its own doing,
    // as one that closes its session is, that would throw into the event loop.
    co_await asio::this_coro::throw_if_cancelled(false);
}

/// Reports that the lock was lost under a body, and how the body ended.
[[noreturn]] inline void throw_loss(const acquisition& lost, const std::exception_ptr& failure) {
    if (!failure) {
        throw lost.loss();
    }
    try {
        std::rethrow_exception(failure);
    } catch (...) {
        std::throw_with_nested(lost.loss());
    }
}

template<class Body>
asio::awaitable<typename guarded_body<Body>::value_type> with_lock(std::shared_ptr<mutex_impl> m,
                                                                   Body body) {
    held_lock taken = co_await mutex_impl::scoped_lock(m);
    const std::shared_ptr<acquisition> held = mutex_access::held(taken);
    const auto guarded =
        std::make_shared<guarded_body<Body>>(std::move(body), std::move(taken), m->session->world);
    const loss_source::subscription listening(held->losses, *guarded);

    auto at_end = [guarded](std::exception_ptr defect) {
        guarded->failure = defect ? defect : guarded->failure;
        guarded->ended = true;
        guarded->done.notify_all();
    };
    asio::any_io_executor executor = co_await asio::this_coro::executor;
    asio::co_spawn(executor,
                   run(guarded),
                   asio::bind_cancellation_slot(guarded->stop.slot(), std::move(at_end)));

    // A cancellation of ours goes on to the body, whose end is then still to be awaited.
    const bool throws = co_await asio::this_coro::throw_if_cancelled();
    co_await asio::this_coro::throw_if_cancelled(false);
    while (!guarded->ended) {
        try {
            (void)co_await guarded->done.wait();
        } catch (const boost::system::system_error&) {
            guarded->stop.emit(asio::cancellation_type::terminal);
        }
    }
    const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
    co_await asio::this_coro::throw_if_cancelled(throws);

    if (!held->held()) {
        throw_loss(*held, guarded->failure);
    }
    if (state.cancelled() == asio::cancellation_type::none) {
        bool was_ours = true;
        try {
            was_ours = co_await guarded->held.unlock();
        } catch (const boost::system::system_error&) {
            // It is being cleaned up; what `body` did stands.
        }
        if (!was_ours) {
            throw_loss(*held, guarded->failure);
        }
    } else {
        held->abandon();
    }
    if (guarded->failure) {
        std::rethrow_exception(guarded->failure);
    }
    if constexpr (!std::is_void_v<typename guarded_body<Body>::value_type>) {
        co_return std::move(*guarded->value);
    }
}

} // namespace detail

template<class Body>
auto with_lock(mutex& m, Body body) {
    return detail::with_lock(detail::mutex_access::impl(m), std::move(body));
}

inline held_lock::held_lock(std::shared_ptr<detail::mutex_impl> m,
                            std::shared_ptr<detail::acquisition> a)
    : mutex_(std::move(m))
    , held_(std::move(a)) {}

inline held_lock::held_lock(mutex& m, std::adopt_lock_t)
    : mutex_(detail::mutex_access::impl(m)) {
    (void)mutex_->require_held();
    mutex_->guarded = true;
    held_ = mutex_->current;
}

inline held_lock& held_lock::operator=(held_lock&& other) noexcept {
    held_lock old(std::move(*this)); // gives back what this one held
    mutex_ = std::move(other.mutex_);
    held_ = std::move(other.held_);
    return *this;
}

inline held_lock::~held_lock() {
    if (held_) {
        mutex_->forget(held_);
        held_->abandon();
    }
}

inline bool held_lock::owns_lock() const {
    return held_ && held_->held();
}

inline std::int64_t held_lock::fencing_token() const {
    return held_->create_revision();
}

inline compare held_lock::is_owner() const {
    return compare::create_revision(held_->key()) == held_->create_revision();
}

inline const std::string& held_lock::key() const {
    return held_->key();
}

inline boost::asio::awaitable<bool> held_lock::unlock() {
    return detail::mutex_impl::unlock(mutex_, held_);
}

inline mutex::mutex(const session& owner, std::string name) {
    if (name.empty()) {
        throw std::invalid_argument("name: is empty");
    }
    if (name.size() > 512) {
        throw std::invalid_argument("name: is longer than 512 bytes");
    }
    impl_ = std::make_shared<detail::mutex_impl>(detail::session_impl::of(owner), std::move(name));
}

inline mutex& mutex::operator=(mutex&& other) noexcept {
    mutex old(std::move(*this)); // gives back what this one held
    impl_ = std::move(other.impl_);
    return *this;
}

inline mutex::~mutex() {
    if (impl_ && !impl_->guarded) {
        impl_->current = nullptr;
    }
}

inline boost::asio::awaitable<void> mutex::lock() {
    return detail::mutex_impl::lock(impl_);
}

inline boost::asio::awaitable<bool> mutex::try_lock() {
    return detail::mutex_impl::try_lock(impl_);
}

inline boost::asio::awaitable<bool> mutex::try_lock_for(std::chrono::nanoseconds patience) {
    if (patience.count() <= 0) {
        return try_lock();
    }
    return detail::mutex_impl::try_lock_until(impl_,
                                              detail::after(impl_->session->world.now(), patience));
}

inline boost::asio::awaitable<held_lock> mutex::scoped_lock() {
    return detail::mutex_impl::scoped_lock(impl_);
}

inline boost::asio::awaitable<bool> mutex::unlock() {
    return detail::mutex_impl::unlock(impl_, impl_->current);
}

inline bool mutex::owns_lock() const {
    return impl_->current && impl_->current->held();
}

inline std::int64_t mutex::fencing_token() const {
    return impl_->require_held().create_revision();
}

inline compare mutex::is_owner() const {
    const detail::acquisition& a = impl_->require_held();
    return compare::create_revision(a.key()) == a.create_revision();
}

inline const std::string& mutex::key() const {
    return impl_->require_held().key();
}

inline const std::string& mutex::name() const {
    return impl_->name;
}

inline boost::asio::awaitable<std::optional<lock_entry>> mutex::holder() const {
    return detail::mutex_impl::holder(impl_);
}

inline boost::asio::awaitable<std::vector<lock_entry>> mutex::waiters() const {
    return detail::mutex_impl::waiters(impl_);
}

} // namespace coetcd
