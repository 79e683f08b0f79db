// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/latch.hpp>
#include <coetcd/detail/logic/names.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/recipe/first_number.hpp>
#include <coetcd/detail/recipe/once.hpp>
#include <coetcd/detail/recipe/until_told.hpp>
#include <coetcd/detail/service/call.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace coetcd::detail {

/// A number that is counted down once. Lives and ends at home.
class latch_impl {
public:
    latch_impl(std::shared_ptr<session_impl> s, std::string n, std::int64_t count)
        : about("latch", std::move(s), std::move(n))
        , count_(count) {}

    const named_recipe about;

    static asio::awaitable<std::int64_t> count_down(std::shared_ptr<latch_impl> self) {
        session_impl& session = *self->about.session;
        session.require_alive(self->about.title);
        // Nobody else has such an id, not even another latch object of this session.
        const std::string id = logic::hex(static_cast<std::uint64_t>(session.lease())) + "-" +
                               logic::hex(session.nonce()) + "-" +
                               logic::hex(session.world.random());
        const call_terms in_time = self->about.within();
        const std::int64_t total = co_await find_total(self, in_time);
        const txn counts = logic::count_down(self->about.name, id);
        outcome<txn_response> a =
            co_await call(client_of(*self), counts, in_time.as(impact::idempotent));
        // A refusal says nothing of a copy that was sent before; and etcd may find after the write
        // that it has no space.
        if (a.ec && a.left != logic::effect::none) {
            a.ec = errc::outcome_unknown;
        }
        a.check();
        co_return logic::remaining(total, logic::counted_after(a.response));
    }

    static asio::awaitable<std::int64_t> remaining(std::shared_ptr<latch_impl> self) {
        const call_terms in_time = self->about.within();
        const std::int64_t total = co_await find_total(self, in_time);
        const range_request asks(logic::latch_counts(self->about.name), logic::only_count());
        const outcome<range_response> a = co_await call(client_of(*self), asks, in_time);
        a.check();
        co_return logic::remaining(total, a.response.count);
    }

    static asio::awaitable<bool> wait_until(std::shared_ptr<latch_impl> self, time_point deadline) {
        const std::int64_t total = co_await find_total(self, self->about.within());
        std::function<bool(const std::int64_t&)> all = [total](const std::int64_t& counted) {
            return counted >= total;
        };
        auto question = logic::counted_now(self->about.title, self->about.name);
        auto waiting = until_told(client_of(*self),
                                  self->about.session->request_timeout,
                                  std::move(question),
                                  std::move(all),
                                  deadline);
        const bool open = co_await std::move(waiting);
        co_return open;
    }

    static asio::awaitable<void> wait(std::shared_ptr<latch_impl> self) {
        (void)co_await wait_until(std::move(self), time_point::max());
    }

private:
    static const std::shared_ptr<client_impl>& client_of(const latch_impl& l) {
        return l.about.session->owner;
    }

    /// The number that counts. It does not change.
    static asio::awaitable<std::int64_t> find_total(std::shared_ptr<latch_impl> self,
                                                    call_terms in_time) {
        if (!self->total_) {
            self->total_ = co_await find_first_number(client_of(*self),
                                                      self->about.title,
                                                      logic::latch_total(self->about.name),
                                                      self->count_,
                                                      std::numeric_limits<std::int64_t>::max(),
                                                      in_time);
        }
        co_return *self->total_;
    }

    const std::int64_t count_;
    std::optional<std::int64_t> total_; // once it is known
};

} // namespace coetcd::detail
