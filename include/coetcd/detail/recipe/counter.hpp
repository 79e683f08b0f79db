// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/turns.hpp>
#include <coetcd/detail/logic/counter.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/recipe/once.hpp>
#include <coetcd/detail/service/call.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace coetcd::detail {

/// A number in etcd, and what is known of it. Its users take turns: otherwise they would only make
/// each other fail.
class counter_impl {
public:
    counter_impl(std::shared_ptr<session_impl> s, std::string n)
        : about("counter", std::move(s), std::move(n))
        , turns_(about.session->world) {}

    const named_recipe about;

    static asio::awaitable<std::int64_t> add(std::shared_ptr<counter_impl> self, std::int64_t by) {
        const call_terms in_time = self->about.within();
        const auto until_the_end = co_await self->turns_.take_until(in_time.deadline);
        if (!until_the_end) {
            throw error(errc::timed_out, self->about.title + ": behind other adds of this object");
        }
        once_writer writer(self->about.session, self->about.name, self->about.title);
        if (!logic::sum(self->known_.value, by)) { // what we know may be old
            const outcome<range_response> now =
                co_await call(self->about.session->owner, range_request(self->about.name), in_time);
            now.check();
            self->learn(now.response);
        }
        std::int64_t next = 0;
        std::function<txn()> count = [&] {
            next = self->raised(by);
            return logic::count(self->about.name, self->known_, next);
        };
        std::function<void(const range_response&)> learn = [&](const range_response& now) {
            self->learn(now);
        };
        const once_end end = co_await writer.change(
            std::move(count), std::move(learn), once_writer::knowledge::perhaps_old, in_time);
        self->known_ = {next, end.revision};
        co_return next;
    }

    static asio::awaitable<std::int64_t> get(std::shared_ptr<counter_impl> self) {
        const range_request request(self->about.name);
        const outcome<range_response> a =
            co_await call(self->about.session->owner, request, self->about.within());
        a.check();
        const std::optional<logic::counted> now = self->read(a.response);
        co_return now->value;
    }

private:
    std::int64_t raised(std::int64_t by) const {
        const std::optional<std::int64_t> next = logic::sum(known_.value, by);
        if (!next) {
            throw std::overflow_error(about.title + ": the sum does not fit 64 bits");
        }
        return *next;
    }
    std::optional<logic::counted> read(const range_response& r) const {
        const std::optional<logic::counted> now = logic::to_counted(r);
        if (!now) {
            throw error(errc::wrong_kind, about.title + ": the key holds no number");
        }
        return now;
    }
    void learn(const range_response& r) { known_ = *read(r); }

    logic::counted known_; // at first: that it does not exist
    turns turns_;
};

} // namespace coetcd::detail
