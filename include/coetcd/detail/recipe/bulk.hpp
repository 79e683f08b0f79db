// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/bulk_options.hpp>
#include <coetcd/detail/async/turns.hpp>
#include <coetcd/detail/logic/bulk.hpp>
#include <coetcd/detail/logic/pages.hpp>
#include <coetcd/detail/service/call.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

/// Many writes, one transaction after the other. Lives and ends at home.
class bulk_impl {
public:
    bulk_impl(std::shared_ptr<client_impl> c,
              std::chrono::nanoseconds t,
              const char* title,
              std::vector<op> all,
              const bulk_options& how)
        : bulk_impl(std::move(c), t, title, how) {
        ops_ = std::move(all);
    }
    bulk_impl(std::shared_ptr<client_impl> c,
              std::chrono::nanoseconds t,
              key_range keys,
              const bulk_options& how)
        : bulk_impl(std::move(c), t, "erase_range", how) {
        rest_.emplace(std::move(keys));
    }

    const std::shared_ptr<client_impl> client;

    std::size_t total() const { return total_; } // from anywhere

    static asio::awaitable<std::optional<bulk_step>> next(std::shared_ptr<bulk_impl> self) {
        const turns::turn until_the_end = co_await self->turns_.take();
        std::optional<bulk_step> done = co_await step(self);
        co_return done;
    }
    static asio::awaitable<std::size_t> run(std::shared_ptr<bulk_impl> self) {
        const turns::turn until_the_end = co_await self->turns_.take();
        for (bool over = false; !over;) {
            const std::optional<bulk_step> done = co_await step(self);
            over = !done;
        }
        co_return self->total();
    }

private:
    bulk_impl(std::shared_ptr<client_impl> c,
              std::chrono::nanoseconds t,
              const char* title,
              const bulk_options& how)
        : client(std::move(c))
        , timeout_(t)
        , title_(title)
        , how_(how)
        , size_(static_cast<std::int64_t>(how.keys), client->options.max_answer)
        , turns_(*client->world) {}

    static asio::awaitable<std::optional<bulk_step>> step(std::shared_ptr<bulk_impl> self) {
        if (self->rest_) {
            return erase_next(std::move(self));
        }
        return write_next(std::move(self));
    }

    static asio::awaitable<std::optional<bulk_step>> write_next(std::shared_ptr<bulk_impl> self) {
        const std::size_t end = logic::end_of_batch(self->ops_, self->next_, self->how_);
        std::optional<bulk_step> done;
        if (end == self->next_) {
            co_return done;
        }
        const auto first = self->ops_.begin();
        txn batch;
        batch.success.assign(first + static_cast<std::ptrdiff_t>(self->next_),
                             first + static_cast<std::ptrdiff_t>(end));
        const outcome<txn_response> a = co_await call(self->client, batch, self->writing());
        self->check(a);
        const std::optional<std::size_t> changed = logic::keys_changed(batch, a.response);
        if (!changed) {
            self->throw_unknown();
        }
        done = self->count(*changed, a.response.header.revision);
        self->next_ = end;
        co_return done;
    }

    static asio::awaitable<std::optional<bulk_step>> erase_next(std::shared_ptr<bulk_impl> self) {
        std::optional<bulk_step> done;
        if (self->over_) {
            co_return done;
        }
        const range_response found = co_await look(self);
        if (found.kvs.empty()) {
            self->over_ = true;
            co_return done;
        }
        key_range step = *self->rest_;
        if (found.more) {
            step = key_range(step.key, found.kvs.back().key + '\0');
        }
        const erase_request erases(step);
        const outcome<erase_response> a = co_await call(self->client, erases, self->writing());
        self->check(a);
        if (a.response.header.revision <= 0 || a.response.deleted < 0) {
            self->throw_unknown();
        }
        if (found.more) {
            self->rest_->key = step.range_end;
        }
        self->over_ = !found.more;
        done =
            self->count(static_cast<std::size_t>(a.response.deleted), a.response.header.revision);
        co_return done;
    }

    /// The next keys of the range.
    static asio::awaitable<range_response> look(std::shared_ptr<bulk_impl> self) {
        range_options how;
        how.keys_only = true;
        for (;;) {
            how.limit = self->size_.now();
            const range_request asked(*self->rest_, how);
            outcome<range_response> a =
                co_await call(self->client, asked, self->client->within(self->timeout_));
            const bool too_large =
                logic::why_no_page(a.ec, a.text) == logic::page_failure::too_large;
            if (too_large && self->size_.halve()) {
                continue;
            }
            self->check(a);
            logic::require_page(a.response, *self->rest_, how.limit);
            self->size_.fitted(logic::json_size(a.response.kvs));
            co_return std::move(a.response);
        }
    }

    call_terms writing() const {
        return client->within(timeout_).as(how_.repeat ? impact::idempotent : impact::once);
    }
    /// @throws error that says how far it came.
    void check(const answer& a) const {
        if (a.ec) {
            throw_after(a.ec, a.text);
        }
    }
    [[noreturn]] void throw_unknown() const {
        throw_after(errc::outcome_unknown, "the answer is not one to this request");
    }
    [[noreturn]] void throw_after(error_code ec, const std::string& why) const {
        throw error(ec,
                    std::string(title_) + ": after " + std::to_string(total()) + " keys: " + why);
    }
    bulk_step count(std::size_t keys, std::int64_t revision) {
        total_ += keys;
        return {.revision = revision, .keys = keys, .total = total()};
    }

    const std::chrono::nanoseconds timeout_;
    const char* const title_; // for messages
    const bulk_options how_;
    std::vector<op> ops_;
    std::size_t next_ = 0;          // of `ops_`
    std::optional<key_range> rest_; // of a range, if one is erased
    bool over_ = false;             // it is erased
    logic::page_size size_;
    std::atomic<std::size_t> total_ = 0;
    turns turns_;
};

} // namespace coetcd::detail
