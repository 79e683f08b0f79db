// SPDX-License-Identifier: BSL-1.0
#pragma once

// The coroutine that keeps a key: see kept_key.hpp.

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/logic/kept_key.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/recipe/feed.hpp>
#include <coetcd/detail/recipe/kept_key.hpp>
#include <coetcd/detail/recipe/once.hpp>
#include <coetcd/detail/service/session.hpp>
#include <coetcd/detail/service/session_keeper.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

namespace coetcd::detail {

inline asio::awaitable<void> kept_key::run(std::shared_ptr<kept_key> self) {
    struct over_at_end {
        kept_key& of;
        ~over_at_end() { of.finish(); }
    };
    const over_at_end in_any_case{*self};
    while (self->phase_ != phase::over) {
        bool lacks_memory = false;
        try {
            co_await go_on(self);
        } catch (const std::bad_alloc&) {
            lacks_memory = true; // there may be more in a moment
        }
        if (lacks_memory) {
            co_await sleep_until(self->world(), after(self->world().now(), moment));
        }
    }
}

inline asio::awaitable<void> kept_key::go_on(std::shared_ptr<kept_key> self) {
    if (self->where_.session) {
        co_await live_in(self, self->where_.session);
        if (self->phase_ == phase::wanted) {
            self->lose(self->where_.session->loss(self->title_));
        }
    } else {
        co_await find_session(self);
    }
    if (self->phase_ != phase::wanted) {
        self->finish();
    }
}

inline asio::awaitable<void> kept_key::find_session(std::shared_ptr<kept_key> self) {
    std::shared_ptr<const session> found;
    std::optional<error> trouble;
    try {
        found = co_await session_keeper_impl::wait_live(self->where_.keeper, time_point::max());
    } catch (const error& e) {
        trouble.emplace(e);
    }
    if (self->phase_ == phase::over) {
        co_return;
    }
    if (found) {
        const std::shared_ptr<session_impl> s = access::impl(*found);
        found.reset(); // the keeper ends it
        co_await live_in(self, s);
    } else if (trouble->code() == errc::session_closed || self->settled_ == 0) {
        self->lose(*trouble);
    } else { // the keeper goes on trying
        co_await self->pause(time_point::max(), retry_first, retry_most);
    }
}

inline asio::awaitable<void> kept_key::live_in(std::shared_ptr<kept_key> self,
                                               std::shared_ptr<session_impl> s) {
    tenancy here(s, *self);
    if (self->terms_.lease != s->lease()) {
        self->begin_with(s->lease());
    }
    while (!here.claimed && self->phase_ == phase::wanted && s->alive()) {
        if (kept_key* const by = here.claim()) {
            const std::shared_ptr<kept_key> other = by->shared_from_this();
            if (other->phase_ == phase::wanted) {
                self->lose(error(errc::already_exists,
                                 self->title_ + ": this session has the key already"));
            } else {
                (void)co_await other->changed_.wait(s->certain_until());
            }
        }
    }
    while (self->phase_ == phase::wanted && s->alive()) {
        if (self->given_up_) {
            self->leave();
        } else {
            co_await step(self, s);
        }
    }
    if (self->phase_ == phase::leaving && self->may_be_there_) {
        co_await erase(self, s);
    }
}

inline asio::awaitable<void> kept_key::step(std::shared_ptr<kept_key> self,
                                            std::shared_ptr<session_impl> s) {
    const std::uint64_t number = self->asked_;
    const std::string value = self->value_;
    const logic::key_step next = logic::next_step(self->seen_, value, self->terms_);
    if (next == logic::key_step::none) {
        self->settle(number, value);
        (void)co_await self->changed_.wait(s->certain_until());
        co_return;
    }
    if (next == logic::key_step::give_up) {
        self->may_be_there_ = self->doubtful_;
        const bool at_first = self->settled_ == 0;
        self->lose(error(at_first ? errc::already_exists : errc::lock_lost,
                         self->title_ + ": " + logic::whose_key(*self->seen_->kv)));
        co_return;
    }
    const bool heals = number == self->settled_ && self->there_in_ != 0;
    if (heals && self->world().now() < self->next_healing_) {
        (void)co_await self->changed_.wait(std::min(self->next_healing_, s->certain_until()));
        co_return;
    }
    const bool creates = next == logic::key_step::create;
    std::optional<key_value> before;
    if (!creates) {
        before = self->seen_->kv;
    }
    const key_value* const change = before ? &*before : nullptr;
    txn what = logic::put_kept(self->terms_, value, change);
    const outcome<txn_response> a = co_await ask(self, s, std::move(what));
    self->doubtful_ = self->doubtful_ || (creates && a.left == logic::effect::unresolved);
    self->may_be_there_ = self->may_be_there_ || !a.ec || a.left != logic::effect::none;
    if (a.ec) {
        answer failed = a;
        co_await take_failure(self, s, number, std::move(failed));
        co_return;
    }
    const bool is_clear = self->take_answer(a.response, value, change);
    if (!is_clear) {
        co_await self->pause(s->certain_until(), first, most);
    } else if (heals) {
        self->note_healing();
    }
}

inline asio::awaitable<void> kept_key::take_failure(std::shared_ptr<kept_key> self,
                                                    std::shared_ptr<session_impl> s,
                                                    std::uint64_t number,
                                                    answer failed) {
    if (logic::is_lease_gone(failed.ec, failed.text)) {
        const auto gone =
            co_await session_impl::look_for_lease(s, s->owner->within(s->request_timeout));
        self->refusals_.add(gone);
        if (!s->alive() || !self->refusals_.are_final()) {
            co_return;
        }
    }
    self->refusals_.end_row();
    const bool heals = number == self->settled_;
    if (logic::is_transient(failed.ec)) {
        co_await self->pause(s->certain_until(), first, most);
    } else if (heals) { // nobody can be told
        co_await self->pause(s->certain_until(), retry_first, retry_most);
    } else {
        self->refuse(failed, number);
    }
}

inline asio::awaitable<void> kept_key::erase(std::shared_ptr<kept_key> self,
                                             std::shared_ptr<session_impl> s) {
    std::optional<key_value> shown;
    bool in_doubt = false;
    bool has_room = true;
    self->failures_ = 0;
    while (s->alive()) {
        const bool makes_void = self->doubtful_ && has_room;
        txn what = logic::erase_kept(self->terms_, shown, makes_void);
        const outcome<txn_response> a = co_await ask(self, s, std::move(what));
        in_doubt = in_doubt || a.left != logic::effect::none;
        if (a.ec) {
            const bool refused = !logic::is_transient(a.ec);
            if (logic::is_lease_gone(a.ec, a.text)) {
                (void)co_await session_impl::look_for_lease(s,
                                                            s->owner->within(s->request_timeout));
            } else if (refused) {
                has_room = has_room && !logic::is_no_space(a.ec, a.text);
                self->not_removed_.emplace(a.ec, self->title_ + ": " + a.text);
                self->changed_.notify_all();
            }
            const auto long_one = refused && has_room;
            co_await self->pause(
                s->certain_until(), long_one ? retry_first : first, long_one ? retry_most : most);
            continue;
        }
        if (a.response.succeeded) {
            self->was_there_ = true;
            co_return;
        }
        const range_response& read = logic::answers::range_at(a.response, 0);
        if (read.kvs.empty() || !logic::is_ours(read.kvs.front(), self->terms_)) {
            self->was_there_ = in_doubt && read.kvs.empty();
            co_return;
        }
        shown = read.kvs.front();
    }
}

inline asio::awaitable<outcome<txn_response>>
kept_key::ask(std::shared_ptr<kept_key> self, std::shared_ptr<session_impl> s, txn what) {
    const std::function<bool()> wanted = [of = self.get(), in = s.get(), as = self->phase_] {
        return in->alive() && of->phase_ == as;
    };
    call_terms how = s->owner->within(s->request_timeout).as(impact::idempotent);
    how.wanted = &wanted;
    co_return co_await ask_alone(s->owner, std::move(what), how);
}

inline asio::awaitable<void> kept_key::follow(std::shared_ptr<kept_key> self,
                                              std::shared_ptr<feed<logic::key_state>> news) {
    while (self->phase_ != phase::over) {
        bool is_older = false;
        try {
            logic::key_state now = co_await feed<logic::key_state>::next(news);
            if (!self->seen_ || now.as_of > self->seen_->as_of) {
                self->seen_ = std::move(now);
            }
        } catch (const error& e) { // it asks again
            is_older = e.code() == errc::revision_regressed;
        }
        if (is_older) {
            self->seen_.reset();
        }
        self->changed_.notify_all();
    }
}

} // namespace coetcd::detail
