// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/logic/stm.hpp>
#include <coetcd/detail/recipe/once.hpp>
#include <coetcd/detail/service/call.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/detail/service/session.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/stm_options.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

/// One call of `stm`: what the runs of its body have read, and the commits. Lives at home; a body
/// may call from elsewhere the functions that say so.
class stm_run {
public:
    /// @param s If null, what is in doubt stays in doubt.
    stm_run(std::shared_ptr<client_impl> c,
            std::shared_ptr<session_impl> s,
            std::chrono::nanoseconds timeout,
            stm_options o)
        : owner(std::move(c))
        , session_(std::move(s))
        , timeout_(timeout)
        , options_(std::move(o))
        , view_(options_.level)
        , changed_(*owner->world) {}

    const std::shared_ptr<client_impl> owner;

    /// Prepares a run of the body.
    static asio::awaitable<void> begin(std::shared_ptr<stm_run> self) {
        self->require_session();
        if (self->runs_ == self->options_.attempts) {
            throw error(errc::conflict, "stm: after " + std::to_string(self->runs_) + " attempts");
        }
        if (self->runs_++ != 0) {
            const auto moment = logic::backoff(self->runs_ - 2,
                                               self->owner->world->random(),
                                               first_pause,
                                               self->options_.max_pause);
            env& world = *self->owner->world;
            co_await sleep_until(world, after(world.now(), moment));
        }
        const bool anew = self->is_void_.exchange(false);
        if (anew) {
            const std::lock_guard alone(self->access_);
            self->view_ = logic::stm_view(self->options_.level);
        }
        if ((anew || self->runs_ == 1) && !self->options_.prefetch.empty()) {
            std::vector<key_range> keys(self->options_.prefetch.begin(),
                                        self->options_.prefetch.end());
            co_await fetch(self, std::move(keys));
        }
    }

    static asio::awaitable<std::optional<std::string>> get(std::shared_ptr<stm_run> self,
                                                           std::string key) {
        std::optional<std::string> value;
        bool written = false;
        {
            const std::lock_guard alone(self->access_);
            if (const auto* own = self->view_.own(key)) {
                value = own->value;
                written = true;
            }
        }
        if (!written) {
            std::optional<key_value> kv = co_await look_up(self, std::move(key));
            if (kv) {
                value = std::move(kv->value);
            }
        }
        co_return value;
    }

    /// The revision at which the key was last written, before our own writes.
    static asio::awaitable<std::int64_t> revision(std::shared_ptr<stm_run> self, std::string key) {
        const std::optional<key_value> kv = co_await look_up(self, std::move(key));
        co_return kv ? kv->mod_revision : 0;
    }

    static asio::awaitable<std::vector<key_value>> range(std::shared_ptr<stm_run> self,
                                                         key_range keys) {
        std::optional<std::vector<key_value>> all;
        for (;;) {
            {
                const std::lock_guard alone(self->access_);
                all = self->view_.find_range(keys);
            }
            if (all) {
                break;
            }
            std::vector<key_range> what(1, keys);
            co_await fetch(self, std::move(what));
        }
        co_return std::move(*all);
    }

    // These may be called from anywhere.

    void put(std::string key, std::string value, put_options how) {
        const std::lock_guard alone(access_);
        view_.put(std::move(key), std::move(value), how);
    }
    void erase(std::string key) {
        const std::lock_guard alone(access_);
        view_.erase(std::move(key));
    }
    /// What this run has read can no longer be read, so the body is run again, whatever it did.
    bool is_void() const { return is_void_; }

    /// Writes what the body has written.
    /// @returns False if others have changed what it counts on.
    static asio::awaitable<bool> commit(std::shared_ptr<stm_run> self) {
        txn all;
        bool writes = false;
        {
            const std::lock_guard alone(self->access_);
            if (!self->view_.needs_commit()) {
                co_return true;
            }
            all = self->view_.commit();
            writes = self->view_.writes();
        }
        const bool once = writes && self->session_;
        logic::require_fit(all, once ? 1 : 0, "stm");
        txn_response refused;
        if (once) {
            if (!self->writer_) {
                self->writer_.emplace(self->session_, self->options_.marker, "stm");
            }
            once_end end = co_await self->writer_->apply(
                std::move(all), once_writer::form::plain, self->within());
            if (end.applied) {
                co_return true;
            }
            refused = std::move(*end.answered);
        } else {
            const call_terms in_time = self->within().as(writes ? impact::once : impact::none);
            outcome<txn_response> a = co_await ask_alone(self->owner, std::move(all), in_time);
            a.check();
            if (a.response.succeeded) {
                co_return true;
            }
            refused = std::move(a.response);
        }
        const std::lock_guard alone(self->access_);
        self->view_ = self->view_.after(refused);
        co_return false;
    }

private:
    call_terms within() const { return owner->within(timeout_); }

    void require_session() {
        if (session_) {
            session_->require_alive("stm");
        }
    }

    static asio::awaitable<std::optional<key_value>> look_up(std::shared_ptr<stm_run> self,
                                                             std::string key) {
        std::optional<logic::stm_view::known> found;
        for (;;) {
            {
                const std::lock_guard alone(self->access_);
                found = self->view_.find(key);
            }
            if (found) {
                break;
            }
            std::vector<key_range> what(1, key_range(key));
            co_await fetch(self, std::move(what));
        }
        co_return std::move(found->kv);
    }

    /// Reads keys and ranges together. The first read of a run may decide at which revision the
    /// others are made: if that read is under way, this only waits until it is over.
    static asio::awaitable<void> fetch(std::shared_ptr<stm_run> self, std::vector<key_range> what) {
        struct first_read {
            stm_run& run;
            const bool is;
            ~first_read() {
                if (is) {
                    run.pinning_ = false;
                    run.changed_.notify_all();
                }
            }
        };
        self->require_session();
        if (self->pinning_) {
            (void)co_await self->changed_.wait();
            co_return;
        }
        range_options how;
        {
            const std::lock_guard alone(self->access_);
            how.revision = self->view_.read_at();
            self->pinning_ = self->view_.pins() && how.revision == 0;
        }
        const first_read until_the_end{*self, self->pinning_};
        txn reads;
        for (const key_range& each : what) {
            reads.success.push_back(op::range(each, how));
        }
        const outcome<txn_response> a =
            co_await ask_alone(self->owner, std::move(reads), self->within().as(impact::none));
        if (a.ec == server_errc::out_of_range) { // the revision is compacted
            self->is_void_ = true;
            throw error(errc::conflict, "stm: " + a.text);
        }
        a.check();
        const std::lock_guard alone(self->access_);
        for (std::size_t i = 0; i != what.size(); ++i) {
            self->view_.learn(
                what[i], logic::answers::range_at(a.response, i), a.response.header.revision);
        }
    }

    static constexpr std::chrono::milliseconds first_pause{1};

    const std::shared_ptr<session_impl> session_;
    const std::chrono::nanoseconds timeout_;
    const stm_options options_;
    unsigned runs_ = 0;
    std::atomic<bool> is_void_ = false;
    std::optional<once_writer> writer_;
    std::mutex access_; // to what a body uses from anywhere
    logic::stm_view view_;
    bool pinning_ = false; // a read is under way that decides for the others
    notifier changed_;
};

/// @throws std::invalid_argument naming the field.
inline stm_options checked(stm_options o) {
    if (o.attempts == 0) {
        throw std::invalid_argument("attempts: must be positive");
    }
    if (o.max_pause.count() < 0) {
        throw std::invalid_argument("max_pause: must not be negative");
    }
    if (o.prefetch.size() > logic::most_in_txn) {
        throw std::invalid_argument("prefetch: has more than 128 keys");
    }
    std::for_each(o.prefetch.begin(), o.prefetch.end(), require_key);
    o.marker = named_recipe::checked(std::move(o.marker));
    o.max_pause = bounded(o.max_pause);
    return o;
}

} // namespace coetcd::detail
