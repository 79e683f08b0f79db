// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/loss.hpp>
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/logic/lease_clock.hpp>
#include <coetcd/detail/logic/lock.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/detail/service/lease.hpp>
#include <coetcd/session_options.hpp>

#include <algorithm>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace coetcd::detail {

/// A key that the session holds a lock by; each round of renewal looks whether it is still there.
class held_key {
public:
    virtual const std::string& key() const = 0;
    virtual std::int64_t create_revision() const = 0;
    virtual void on_missing() = 0;

protected:
    ~held_key() = default;
};

class session_impl : public std::enable_shared_from_this<session_impl> {
public:
    session_impl(std::shared_ptr<client_impl> c,
                 lease_id lease,
                 std::chrono::seconds ttl,
                 std::string label,
                 time_point sent)
        : owner(std::move(c))
        , world(*owner->world)
        , lease_(lease)
        , label_(std::move(label))
        , serial_(world.random() >> 16)
        , changed_(world) {
        renewed(sent, ttl);
        owner->hub->hold();
    }
    ~session_impl() {
        if (reason_ == session_end::none) {
            owner->hub->release();
        }
    }
    session_impl(const session_impl&) = delete;
    session_impl& operator=(const session_impl&) = delete;

    static asio::awaitable<std::shared_ptr<session_impl>> open(std::shared_ptr<client_impl> c,
                                                               session_options options);
    static asio::awaitable<std::shared_ptr<session_impl>>
    adopt(std::shared_ptr<client_impl> c, lease_id lease, session_options options);

    const std::shared_ptr<client_impl> owner;
    env& world;

    lease_id lease() const { return lease_; }
    std::chrono::seconds ttl() const { return ttl_; }
    const std::string& label() const { return label_; }
    time_point certain_until() const { return certain_until_; }
    session_end reason() const { return reason_; }

    /// Whether the lease is certain to exist now. A deadline that has passed ends the session here
    /// and now, whichever handler comes to look first.
    bool alive() {
        if (reason_ == session_end::none && world.now() >= certain_until_) {
            lose(session_end::deadline);
        }
        return reason_ == session_end::none;
    }
    /// @throws error with `errc::session_lost` that begins with `who`.
    void require_alive(const std::string& who) {
        if (!alive()) {
            throw error(errc::session_lost, who + ": " + to_string(reason_));
        }
    }
    session_state state() {
        return !alive() ? session_state::lost
                        : (suspect_ ? session_state::suspect : session_state::active);
    }

    /// The first reason counts.
    void lose(session_end why) {
        if (reason_ == session_end::none) {
            reason_ = why;
            if (const auto& observer = owner->options.observer) {
                observer->on_session_end({lease_, why});
            }
            owner->hub->release(); // who still waits has watches of his own
            changed_.notify_all();
            losses.tell();
        }
    }
    loss_source losses;

    static asio::awaitable<session_end> lost(std::shared_ptr<session_impl> self) {
        while (self->alive()) {
            (void)co_await self->changed_.wait(self->certain_until_);
        }
        co_return self->reason_;
    }

    static asio::awaitable<void> close(std::shared_ptr<session_impl> self) {
        const bool nothing_to_do = self->revoked_ || self->reason_ == session_end::expired ||
                                   self->reason_ == session_end::orphaned;
        self->lose(session_end::closed);
        if (!nothing_to_do) {
            co_await revoke(self->owner, self->lease_, self->ttl_);
            self->revoked_ = true;
        }
    }

    /// Asks etcd to end the lease, and does not wait.
    void revoke_in_background() { revoke_in_background(owner, lease_, ttl_); }

    /// Renews the lease, with as many attempts as there is time for.
    /// @returns False if the session is lost.
    static asio::awaitable<bool> renew(std::shared_ptr<session_impl> self);

    logic::lock_keys next_keys(const std::string& name) {
        return logic::make_lock_keys(name, lease_, ++serial_);
    }

    /// Sees to it that nothing of an attempt stays in etcd, in the background. If that cannot be
    /// achieved the session gives its lease up: a stray key would block everybody else for as long
    /// as the session lives.
    void clean_up(logic::lock_keys keys, bool unresolved) {
        spawn(world, clean_up(shared_from_this(), std::move(keys), unresolved));
    }

    void hold(held_key& k) { held_.push_back(&k); }
    void drop(held_key& k) { held_.remove(&k); }

    /// Who of this session wants a lock, by its name, in order of arrival. The first has, or is to
    /// have, a key in etcd; the others wait for their turn here.
    class turn;
    bool is_free_here(const std::string& name) const { return !turns_.contains(name); }

private:
    void renewed(time_point sent, std::chrono::seconds ttl) {
        if (sent < last_sent_) {
            return; // a later one was answered earlier
        }
        ttl_ = ttl;
        last_sent_ = sent;
        certain_until_ = after(sent, logic::certain(ttl));
        suspect_ = false;
    }

    /// One attempt.
    /// @returns Whether the lease was renewed, or is known to be lost.
    static asio::awaitable<bool> try_renew(std::shared_ptr<session_impl> self);
    static asio::awaitable<void> keep_alive(std::shared_ptr<session_impl> self);
    static asio::awaitable<void> look_after_held(std::shared_ptr<session_impl> self);
    static asio::awaitable<void>
    clean_up(std::shared_ptr<session_impl> self, logic::lock_keys keys, bool unresolved);
    static asio::awaitable<void>
    revoke(std::shared_ptr<client_impl> c, lease_id lease, std::chrono::seconds ttl);
    static void
    revoke_in_background(std::shared_ptr<client_impl> c, lease_id lease, std::chrono::seconds ttl);

    const lease_id lease_;
    const std::string label_;
    std::uint64_t serial_; // begins at random: another session may have had the same lease
    std::chrono::seconds ttl_{0};
    time_point last_sent_ = time_point::min(); // when the last renewal that succeeded was sent
    time_point certain_until_;                 // follows from it
    bool suspect_ = false;
    session_end reason_ = session_end::none;
    bool revoked_ = false; // by `close`
    notifier changed_;
    std::list<held_key*> held_;
    std::map<std::string, std::list<turn*>> turns_;
};

class session_impl::turn {
public:
    /// Takes the last place. `wake` is notified when it has become the first.
    turn(std::shared_ptr<session_impl> s, std::string name, notifier& wake)
        : session_(std::move(s))
        , name_(std::move(name))
        , wake_(&wake) {
        std::list<turn*>& line = session_->turns_[name_];
        place_ = line.insert(line.end(), this);
    }
    ~turn() {
        const auto found = session_->turns_.find(name_);
        std::list<turn*>& line = found->second;
        const bool was_first = line.front() == this;
        line.erase(place_);
        if (line.empty()) {
            session_->turns_.erase(found);
        } else if (was_first) {
            line.front()->wake_->notify_all();
        }
    }
    turn(const turn&) = delete;
    turn& operator=(const turn&) = delete;

    bool has_come() const { return session_->turns_.find(name_)->second.front() == this; }

private:
    const std::shared_ptr<session_impl> session_;
    const std::string name_;
    notifier* const wake_; // not touched once the turn has come
    std::list<turn*>::iterator place_;
};

inline asio::awaitable<bool> session_impl::try_renew(std::shared_ptr<session_impl> self) {
    const time_point sent = self->world.now();
    const auto timeout = logic::renewal_timeout(self->ttl_);
    const time_point deadline = std::min(after(sent, timeout), self->certain_until_);
    call_spec spec{rpc::lease_keep_alive, deadline, true, false};
    spec.way = lane::renewal;
    spec.attempt_timeout = timeout;
    lease_keep_alive_response response;
    std::string body = wire::encode_lease_keep_alive(self->lease_);
    decoder decode = decode_stream_into(response);
    const answer a =
        co_await self->owner->cluster_router->call(spec, std::move(body), std::move(decode));
    if (const auto& observer = self->owner->options.observer) {
        const time_point now = self->world.now();
        observer->on_renewal({self->lease_, now - sent, self->certain_until_ - now, a.ec});
    }
    if (a.ec) {
        co_return false;
    }
    if (response.ttl.count() > 0) {
        self->renewed(sent, response.ttl);
    } else {
        self->lose(session_end::expired);
    }
    co_return true;
}

inline asio::awaitable<bool> session_impl::renew(std::shared_ptr<session_impl> self) {
    while (self->alive()) {
        const bool settled = co_await try_renew(self);
        if (settled) {
            break;
        }
        self->suspect_ = true;
        const auto pause = logic::renewal_pause(self->world.random());
        const time_point next = std::min(after(self->world.now(), pause), self->certain_until_);
        (void)co_await self->changed_.wait(next);
    }
    co_return self->alive();
}

/// Runs from the first renewal to the end of the session.
inline asio::awaitable<void> session_impl::keep_alive(std::shared_ptr<session_impl> self) {
    while (self->alive()) {
        const auto pause = logic::renewal_interval(self->ttl_, self->world.random());
        const time_point next = std::min(after(self->last_sent_, pause), self->certain_until_);
        if (self->world.now() < next) {
            (void)co_await self->changed_.wait(next);
            continue;
        }
        const bool alive = co_await renew(self);
        if (alive) {
            co_await look_after_held(self);
        }
    }
}

/// A lock whose key was deleted by hand is lost, although the lease lives.
inline asio::awaitable<void> session_impl::look_after_held(std::shared_ptr<session_impl> self) {
    constexpr std::size_t at_once = 64; // etcd allows 128 operations
    struct seen {
        std::string key;
        std::int64_t create_revision;
    };
    std::vector<seen> all;
    for (const held_key* k : self->held_) {
        all.push_back(seen{k->key(), k->create_revision()});
    }
    for (std::size_t from = 0; from < all.size(); from += at_once) {
        const std::size_t to = std::min(all.size(), from + at_once);
        range_options keys_only;
        keys_only.keys_only = true;
        txn look;
        for (std::size_t i = from; i < to; ++i) {
            look.success.push_back(op::get(all[i].key, keys_only));
        }
        const auto timeout = logic::renewal_timeout(self->ttl_);
        call_spec spec{rpc::txn, after(self->world.now(), timeout), true, false};
        spec.way = lane::renewal;
        txn_response response;
        std::string body = wire::encode(look);
        decoder decode = decode_into(response);
        const answer a =
            co_await self->owner->cluster_router->call(spec, std::move(body), std::move(decode));
        if (a.ec || response.responses.size() != to - from) {
            co_return; // the next round looks again
        }
        for (std::size_t i = from; i < to; ++i) {
            const seen& s = all[i];
            const auto* read = std::get_if<range_response>(&response.responses[i - from]);
            if (!read) {
                co_return; // not an answer to this; the next round looks again
            }
            if (!logic::is_gone(response, *read, s.key, s.create_revision)) {
                continue;
            }
            // It may have been released while the answer was on its way.
            const auto found = std::find_if(self->held_.begin(),
                                            self->held_.end(),
                                            [&](const held_key* k) { return k->key() == s.key; });
            if (found != self->held_.end()) {
                (*found)->on_missing();
            }
        }
    }
}

inline asio::awaitable<void>
session_impl::clean_up(std::shared_ptr<session_impl> self, logic::lock_keys keys, bool unresolved) {
    const time_point give_up = after(self->world.now(), std::chrono::nanoseconds(self->ttl_) / 2);
    const txn leave = logic::leave(keys, unresolved);
    for (;;) {
        if (self->reason_ == session_end::closed || self->reason_ == session_end::expired) {
            co_return; // the keys go, or have gone, with the lease
        }
        const time_point now = self->world.now();
        if (now >= give_up) {
            break;
        }
        call_spec spec = self->owner->spec(rpc::txn, give_up - now, true, true);
        txn_response response;
        std::string body = wire::encode(leave);
        decoder decode = decode_into(response);
        const answer a =
            co_await self->owner->cluster_router->call(spec, std::move(body), std::move(decode));
        if (!a.ec) {
            co_return;
        }
        if (a.ec == server_errc::not_found) {
            co_return; // no lease for the tombstone: then no late request can enter either
        }
        if (a.ec == errc::login_failed) { // there may be another password soon
            notifier pause(self->world);
            const time_point next = after(self->world.now(), std::chrono::milliseconds(100));
            (void)co_await pause.wait(std::min(next, give_up));
        } else if (!logic::is_passing(a.ec)) {
            break; // refused, for good
        }
    }
    if (self->reason_ == session_end::none || self->reason_ == session_end::deadline ||
        self->reason_ == session_end::cleanup_failed) {
        self->lose(session_end::cleanup_failed);
        self->revoke_in_background();
    }
}

inline asio::awaitable<void>
session_impl::revoke(std::shared_ptr<client_impl> c, lease_id lease, std::chrono::seconds ttl) {
    const auto patience = std::min<std::chrono::nanoseconds>(ttl, std::chrono::seconds(5));
    call_spec spec = c->spec(rpc::lease_revoke, patience, true, true);
    lease_revoke_response response;
    std::string body = wire::encode_lease_revoke(lease);
    decoder decode = decode_into(response);
    const answer a = co_await c->cluster_router->call(spec, std::move(body), std::move(decode));
    if (a.ec != server_errc::not_found) {
        a.check();
    }
}

inline void session_impl::revoke_in_background(std::shared_ptr<client_impl> c,
                                               lease_id lease,
                                               std::chrono::seconds ttl) {
    auto quietly = [](std::shared_ptr<client_impl> by,
                      lease_id id,
                      std::chrono::seconds patience) -> asio::awaitable<void> {
        try {
            co_await revoke(std::move(by), id, patience);
        } catch (const error&) {
            // Nobody is there to be told; the lease ends by itself.
        }
    };
    env& world = *c->world;
    spawn(world, quietly(std::move(c), lease, ttl));
}

inline asio::awaitable<std::shared_ptr<session_impl>>
session_impl::open(std::shared_ptr<client_impl> c, session_options options) {
    // Until the session exists, whatever ends this gives back the lease that may have been granted.
    struct grant_guard {
        std::shared_ptr<client_impl> client;
        lease_id lease;
        std::chrono::seconds ttl;
        bool pending = false;
        ~grant_guard() {
            if (pending) {
                revoke_in_background(client, lease, ttl);
            }
        }
    };
    grant_guard guard{c, static_cast<lease_id>(c->world->random() >> 1) | 1, options.ttl};
    const call_spec spec = c->spec(rpc::lease_grant, c->options.request_timeout, true, true);
    guard.pending = true;
    timed<lease_grant_response> granted;
    try {
        granted = co_await lease_grant(c, spec, options.ttl, guard.lease, true);
    } catch (const error& e) {
        guard.pending = e.code() == errc::outcome_unknown;
        throw;
    }
    guard.pending = false;
    const auto impl = std::make_shared<session_impl>(
        std::move(c), guard.lease, granted.response.ttl, std::move(options.label), granted.sent);
    spawn(impl->world, keep_alive(impl));
    co_return impl;
}

inline asio::awaitable<std::shared_ptr<session_impl>>
session_impl::adopt(std::shared_ptr<client_impl> c, lease_id lease, session_options options) {
    const call_spec spec = c->spec(rpc::lease_keep_alive, c->options.request_timeout, true, false);
    const timed<lease_keep_alive_response> renewed = co_await lease_keep_alive(c, spec, lease);
    if (renewed.response.ttl.count() <= 0) {
        throw error(server_errc::not_found, "session::adopt: there is no such lease");
    }
    const auto impl = std::make_shared<session_impl>(
        std::move(c), lease, renewed.response.ttl, std::move(options.label), renewed.sent);
    spawn(impl->world, keep_alive(impl));
    co_return impl;
}

} // namespace coetcd::detail
