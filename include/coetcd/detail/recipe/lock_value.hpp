// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/lock_value.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/recipe/place.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/detail/service/session.hpp>
#include <coetcd/error.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace coetcd::detail {

/// The value of the lock that a place holds.
class held_value {
public:
    explicit held_value(std::shared_ptr<place> by)
        : by_(std::move(by))
        , key_(logic::lock_value_key(by_->name())) {}

    static asio::awaitable<std::optional<std::string>> get(std::shared_ptr<held_value> self) {
        logic::lock_value now = co_await current(self);
        co_return std::move(now.text);
    }

    static asio::awaitable<void> set(std::shared_ptr<held_value> self, std::string text) {
        logic::lock_value last = co_await current(self);
        const std::uint64_t change = self->known().change();
        const call_terms how = self->terms();
        for (bool is_set = false; !is_set;) {
            const logic::held_life life = self->by_->proof().front();
            const txn asks = logic::write_lock_value(life, self->key_, last, text);
            const txn_response said = co_await ask(self->owner(), asks, how);
            last =
                self->require_told(logic::after_writing_lock_value(said, life, self->key_, text));
            // If it is not set, another coroutine that shares the lock has changed it meanwhile.
            is_set = last.text == text;
        }
        session_impl& s = *self->by_->session;
        s.value_changed = std::max(s.value_changed, last.revision);
        self->known().changed(last, change);
    }

private:
    /// What it is. A member that has stalled may still answer with what it was before the lock was
    /// ours, or before a change of ours in an earlier hold, if that was in the same life of the
    /// key: see `retaining`. Such an answer is none.
    static asio::awaitable<logic::lock_value> current(std::shared_ptr<held_value> self) {
        self->require_held();
        if (self->known().now()) {
            co_return *self->known().now();
        }
        const call_terms how = self->terms();
        for (unsigned tries = 0;; ++tries) {
            if (tries != 0) {
                co_await pause(self, tries - 1, how.deadline);
            }
            const std::uint64_t since = self->known().turn();
            const std::int64_t oldest = self->oldest_that_counts();
            const txn asks = logic::read_lock_value(self->by_->proof().front(), self->key_);
            const txn_response said = co_await ask(self->owner(), asks, how);
            self->require_held();
            if (said.header.revision >= oldest) {
                logic::lock_value now =
                    self->require_told(logic::after_reading_lock_value(said, self->key_));
                self->known().learn(now, since);
                co_return now;
            }
        }
    }
    std::int64_t oldest_that_counts() const {
        return std::max({by_->there.as_of(), by_->create_revision(), by_->session->value_changed});
    }
    static asio::awaitable<void>
    pause(std::shared_ptr<held_value> self, unsigned tries, time_point deadline) {
        env& world = self->by_->world();
        const time_point then = after(world.now(), logic::backoff(tries, world.random()));
        if (then >= deadline) {
            throw error(errc::timed_out,
                        self->by_->title() + ", value: etcd answers with an older one");
        }
        co_await sleep_until(world, then);
    }

    const std::shared_ptr<client_impl>& owner() const { return by_->session->owner; }
    /// A write that is sent again changes nothing: see `logic::write_lock_value`.
    call_terms terms() const {
        return owner()->within(by_->session->request_timeout).as(impact::idempotent);
    }
    void require_held() const {
        if (by_->is_given_up()) {
            throw error(errc::not_owner, by_->title());
        }
        if (!by_->held()) {
            throw by_->loss();
        }
    }
    /// @throws error if the lock is lost, or etcd says that it has another owner, or none.
    logic::lock_value require_told(std::optional<logic::lock_value> told) const {
        require_held();
        if (!told) {
            throw error(errc::lock_lost, by_->title());
        }
        return std::move(*told);
    }

    /// Outlasts the call, if the lock was taken with `lock_options::value`.
    logic::known_value& known() {
        logic::known_value* const lasting = by_->entering.rule().value();
        return lasting ? *lasting : own_;
    }

    std::shared_ptr<place> by_;
    std::string key_;
    logic::known_value own_;
};

} // namespace coetcd::detail
