// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/async/loss.hpp>
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/logic/kept_key.hpp>
#include <coetcd/detail/logic/names.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/recipe/feed.hpp>
#include <coetcd/detail/recipe/key_home.hpp>
#include <coetcd/detail/recipe/once.hpp>
#include <coetcd/detail/service/session.hpp>
#include <coetcd/detail/service/session_keeper.hpp>
#include <coetcd/detail/wire/printable.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

namespace coetcd::detail {

/// A key that exists while its session does, or while there is one: see logic/kept_key.hpp. One
/// coroutine does all that is done in etcd; callers say what they want, and wait until it is so.
class kept_key final : public std::enable_shared_from_this<kept_key>, private loss_listener {
public:
    kept_key(key_home where, logic::kept_terms terms, std::string title, std::string value)
        : where_(std::move(where))
        , terms_(std::move(terms))
        , title_(std::move(title))
        , value_(std::move(value))
        , changed_(where_.world()) {}
    kept_key(const kept_key&) = delete;
    kept_key& operator=(const kept_key&) = delete;

    env& world() const { return where_.world(); }
    const std::string& key() const { return terms_.key; }

    // These may be called from anywhere.

    /// Whether it is there, as far as can be known without asking etcd.
    bool exists() const {
        const lease_id in = there_in_;
        return in != 0 && !given_up_ && in == where_.live();
    }
    /// Takes effect at once; etcd is told in the background.
    void give_up() noexcept {
        given_up_ = true;
        try {
            at_home(world(), [self = shared_from_this()] { self->leave(); });
        } catch (const std::bad_alloc&) {
            // It is noticed with the next thing that happens, at the latest at the end of the
            // lease.
        }
    }
    /// The same, and waits until etcd knows.
    /// @returns Whether it was still there; false if it was given up before.
    static asio::awaitable<bool> remove(std::shared_ptr<kept_key> self) {
        const bool is_first = !self->given_up_;
        self->give_up();
        env& world = self->world();
        return go_home(world.executor(), until_removed(std::move(self), is_first));
    }

    // At home.

    /// Puts the key, and keeps it from then on.
    static asio::awaitable<std::shared_ptr<kept_key>> keep(std::shared_ptr<kept_key> self) {
        struct given_up_unless_there {
            kept_key& of;
            bool there = false;
            ~given_up_unless_there() {
                if (!there) {
                    of.leave();
                }
            }
        };
        given_up_unless_there end{*self};
        spawn(self->world(), run(self));
        co_await until_settled(self, self->asked_);
        end.there = true;
        co_return self;
    }

    /// Changes the value, and waits until it is there.
    static asio::awaitable<void> update(std::shared_ptr<kept_key> self, std::string value) {
        self->require_wanted();
        self->value_ = std::move(value);
        const std::uint64_t number = ++self->asked_;
        self->changed_.notify_all();
        co_await until_settled(self, number);
    }

    /// Waits until it is lost.
    /// @returns Why. Throws `operation_aborted` if it is given up before.
    static asio::awaitable<error_code> wait_lost(std::shared_ptr<kept_key> self) {
        while (!self->end_) {
            if (self->given_up_ || self->phase_ != phase::wanted) {
                throw_aborted();
            }
            (void)co_await self->changed_.wait();
        }
        co_return self->end_->code();
    }

private:
    enum class phase {
        wanted,
        leaving, // what may be in etcd is to go
        over,
    };

    /// A call that waits until etcd has the value that was asked for with a number, or a later one.
    class call {
    public:
        call(kept_key& of, std::uint64_t n)
            : number(n)
            , of_(of)
            , place_(of.calls_.insert(of.calls_.end(), this)) {}
        ~call() { of_.calls_.erase(place_); }
        call(const call&) = delete;
        call& operator=(const call&) = delete;

        const std::uint64_t number;
        bool over = false;
        std::optional<error> failure;

    private:
        kept_key& of_;
        const std::list<call*>::iterator place_;
    };

    /// Its entry among those who keep keys in a session, and its ear for the end of that.
    class tenancy {
    public:
        tenancy(std::shared_ptr<session_impl> s, kept_key& of)
            : in_(std::move(s))
            , of_(of)
            , hears_(in_->losses, of) {
            of_.lives_in_ = true;
        }
        ~tenancy() {
            if (claimed) {
                in_->kept.erase(of_.key());
            }
            of_.there_in_ = 0;
            of_.lives_in_ = false;
            of_.changed_.notify_all();
        }
        tenancy(const tenancy&) = delete;
        tenancy& operator=(const tenancy&) = delete;
        /// @returns Null if it has the entry now, otherwise who has it.
        kept_key* claim() {
            const auto [at, is_free] = in_->kept.emplace(of_.key(), &of_);
            claimed = claimed || is_free;
            return is_free ? nullptr : at->second;
        }
        bool claimed = false;

    private:
        const std::shared_ptr<session_impl> in_;
        kept_key& of_;
        const loss_source::subscription hears_;
    };

    void on_loss() override { changed_.notify_all(); }

    // What callers are told.

    /// @throws error if it is not to be there any more.
    void require_wanted() const {
        if (end_) {
            const error why = *end_;
            throw why;
        }
        if (given_up_ || phase_ != phase::wanted) {
            throw error(errc::not_owner, title_ + ": it was removed");
        }
        if (where_.session) {
            where_.session->require_alive(title_);
        }
    }
    static asio::awaitable<void> until_settled(std::shared_ptr<kept_key> self,
                                               std::uint64_t number) {
        const call mine(*self, number);
        while (!mine.over) {
            self->require_wanted();
            const auto& only = self->where_.session;
            const time_point until = only ? only->certain_until() : time_point::max();
            (void)co_await self->changed_.wait(until);
        }
        if (mine.failure) {
            const error why = *mine.failure;
            throw why;
        }
    }
    static asio::awaitable<bool> until_removed(std::shared_ptr<kept_key> self, bool is_first) {
        const time_point deadline = after(self->world().now(), self->where_.timeout());
        for (bool in_time = true; self->phase_ != phase::over;) {
            if (self->not_removed_) {
                const error why = *self->not_removed_;
                throw why;
            }
            if (!in_time) {
                throw error(errc::timed_out, self->title_ + ": it is removed in the background");
            }
            in_time = co_await self->changed_.wait(deadline);
        }
        co_return is_first && self->was_there_;
    }

    /// Ends calls for the values up to this one.
    void answer_calls(std::uint64_t number, const std::optional<error>& failure) {
        for (call* c : calls_) {
            if (c->number <= number && !c->over) {
                c->over = true;
                c->failure = failure;
            }
        }
        changed_.notify_all();
    }
    void leave() {
        given_up_ = true;
        if (phase_ == phase::wanted) {
            phase_ = phase::leaving;
            changed_.notify_all();
            if (!lives_in_) { // nothing of it is left but what goes with an earlier lease
                finish();
            }
        }
    }
    void lose(error why) {
        end_.emplace(std::move(why));
        if (phase_ == phase::wanted) {
            phase_ = phase::leaving;
        }
        changed_.notify_all();
    }

    // The coroutine.

    /// What fails for lack of memory is tried again.
    static asio::awaitable<void> run(std::shared_ptr<kept_key> self);
    static asio::awaitable<void> go_on(std::shared_ptr<kept_key> self);
    void finish() {
        phase_ = phase::over;
        if (feed_) {
            feed_->end();
        }
        changed_.notify_all();
    }

    static asio::awaitable<void> find_session(std::shared_ptr<kept_key> self);

    void begin_with(lease_id lease) {
        if (terms_.lease != 0) {
            terms_.former.push_back(terms_.lease);
        }
        if (terms_.former.size() > most_former) {
            terms_.former.erase(terms_.former.begin());
        }
        terms_.lease = lease;
        may_be_there_ = false;
    }

    /// Keeps the key in this session until that ends, or until it is no longer wanted.
    static asio::awaitable<void> live_in(std::shared_ptr<kept_key> self,
                                         std::shared_ptr<session_impl> s);

    /// Does what is to be done next, or waits until there is something to do.
    static asio::awaitable<void> step(std::shared_ptr<kept_key> self,
                                      std::shared_ptr<session_impl> s);

    /// The value that was asked for with this number is there.
    void settle(std::uint64_t number, const std::string& value) {
        settled_ = std::max(settled_, number);
        confirmed_ = value;
        terms_.life = seen_->kv->create_revision;
        there_in_ = terms_.lease;
        answer_calls(number, std::nullopt);
        if (!feed_) {
            feed_ = std::make_shared<feed<logic::key_state>>(
                where_.owner(), where_.timeout(), logic::key_and_changes(title_, key()));
            spawn(world(), follow(shared_from_this(), feed_));
        }
    }

    /// @returns False if it is no answer of etcd's.
    bool take_answer(const txn_response& a, const std::string& value, const key_value* change) {
        try {
            logic::key_state now = logic::after_put(a, terms_, value, change);
            if (!seen_ || now.as_of >= seen_->as_of) {
                seen_ = std::move(now);
                failures_ = 0;
                return true;
            }
        } catch (const error&) {
            seen_.reset(); // ask again
        }
        return false;
    }

    static asio::awaitable<void> take_failure(std::shared_ptr<kept_key> self,
                                              std::shared_ptr<session_impl> s,
                                              std::uint64_t number,
                                              answer failed);
    void refuse(const answer& failed, std::uint64_t number) {
        const bool in_doubt = failed.left != logic::effect::none;
        std::string text = title_ + ": " + failed.text;
        if (failed.ec == server_errc::permission_denied) {
            text += "; besides the key itself, " +
                    logic::needed_permission(wire::printable(where_.owner()->in_etcd(terms_.name)));
        }
        const error why(in_doubt ? make_error_code(errc::outcome_unknown) : failed.ec, text);
        if (settled_ == 0) {
            lose(why);
            return;
        }
        if (asked_ == number) {
            value_ = confirmed_;
            settled_ = number; // no call waits any more: what is left to do is healing
        }
        answer_calls(number, why);
    }

    static asio::awaitable<void> erase(std::shared_ptr<kept_key> self,
                                       std::shared_ptr<session_impl> s);

    /// Sends a transaction for as long as the session lives, and what is wanted does not change.
    static asio::awaitable<outcome<txn_response>>
    ask(std::shared_ptr<kept_key> self, std::shared_ptr<session_impl> s, txn what);

    /// Tells what becomes of the key.
    static asio::awaitable<void> follow(std::shared_ptr<kept_key> self,
                                        std::shared_ptr<feed<logic::key_state>> news);

    /// Waits for something to do, or for a while that doubles each time.
    asio::awaitable<void>
    pause(time_point end, std::chrono::milliseconds shortest, std::chrono::milliseconds longest) {
        const auto wait = logic::backoff(failures_++, world().random(), shortest, longest);
        (void)co_await changed_.wait(std::min(after(world().now(), wait), end));
    }
    /// Somebody may undo each healing: it is not done ever faster.
    void note_healing() {
        const time_point now = world().now();
        healings_ = now < calm_at_ ? healings_ + 1 : 0;
        next_healing_ = after(now, logic::backoff(healings_, world().random(), first, most));
        calm_at_ = after(next_healing_, calm);
    }

    static constexpr std::chrono::milliseconds first{25};
    static constexpr std::chrono::milliseconds most{1000};
    static constexpr std::chrono::milliseconds retry_first{1000};
    static constexpr std::chrono::milliseconds retry_most{30'000};
    static constexpr std::chrono::seconds calm{10};
    static constexpr std::chrono::milliseconds moment{100};
    static constexpr std::size_t most_former = 4;

    const key_home where_;
    logic::kept_terms terms_;
    const std::string title_;

    // What is wanted.
    phase phase_ = phase::wanted;
    std::atomic<bool> given_up_ = false;
    std::string value_;
    std::uint64_t asked_ = 1; // the number of `value_`
    std::list<call*> calls_;

    // What is known.
    bool lives_in_ = false; // in a session
    std::optional<logic::key_state> seen_;
    bool doubtful_ = false;     // a copy that puts the key may come late, in any session
    bool may_be_there_ = false; // in this session
    std::uint64_t settled_ = 0; // the newest number that was there, or refused
    std::string confirmed_;     // the newest value that was there
    std::atomic<lease_id> there_in_ = 0;
    std::shared_ptr<feed<logic::key_state>> feed_;

    unsigned failures_ = 0; // in a row
    logic::lease_refusals refusals_;
    unsigned healings_ = 0;
    time_point next_healing_ = time_point::min();
    time_point calm_at_ = time_point::min(); // a healing after that is the first one again

    // How it ended.
    std::optional<error> end_;
    std::optional<error> not_removed_;
    bool was_there_ = false;

    notifier changed_;
};

} // namespace coetcd::detail

#include <coetcd/detail/recipe/kept_key_run.hpp>
