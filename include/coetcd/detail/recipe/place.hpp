// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/loss.hpp>
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/logic/lock.hpp>
#include <coetcd/detail/recipe/ownership.hpp>
#include <coetcd/detail/service/session.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace coetcd::detail {

/// One attempt to hold one lock, from the first request to the last. Whatever ends it, nothing of
/// it stays in etcd: what was not released in an orderly way is cleaned up in the background.
class acquisition final : public ownership, public held_key, private loss_listener {
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

    bool held() const override { return phase_ == phase::held && !missing_ && session->alive(); }

    /// @throws error with `errc::session_lost`.
    void require_session() const { session->require_alive(title()); }

    /// Why it is lost: the session is, or else the key was deleted.
    error loss() const override {
        if (!session->alive()) {
            return error(errc::session_lost, title() + ": " + to_string(session->reason()));
        }
        return error(errc::lock_lost, title());
    }

    /// For messages.
    std::string title() const { return "mutex \"" + wire::printable(name) + "\""; }

    env& world() const override { return session->world; }

    const std::string& key() const override { return keys.key; }
    std::int64_t create_revision() const override { return create_revision_; }
    void on_missing() override {
        if (!std::exchange(missing_, true) && left_ == logic::effect::unresolved) {
            session->clean_up(keys, true); // a late request must not put it again
        }
        on_loss();
    }

    /// Ends it here and now; etcd is told in the background.
    void abandon() override {
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

} // namespace coetcd::detail
