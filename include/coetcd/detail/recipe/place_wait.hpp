// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/recipe/place.hpp>
#include <coetcd/detail/recipe/vigil.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace coetcd::detail {

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

} // namespace coetcd::detail
