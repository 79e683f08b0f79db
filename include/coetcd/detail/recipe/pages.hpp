// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/turns.hpp>
#include <coetcd/detail/logic/pages.hpp>
#include <coetcd/detail/service/call.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/page_options.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

/// A range that is read in pages. Lives and ends at home.
class pages_impl {
public:
    pages_impl(std::shared_ptr<client_impl> c,
               std::chrono::nanoseconds t,
               key_range keys,
               const page_options& how)
        : client(std::move(c))
        , timeout_(t)
        , cursor_(std::move(keys), how, client->options.max_answer)
        , turns_(*client->world) {}

    const std::shared_ptr<client_impl> client;

    static asio::awaitable<std::optional<key_page>> next(std::shared_ptr<pages_impl> self) {
        const turns::turn until_the_end = co_await self->turns_.take();
        if (!self->dropped_.empty()) {
            std::optional<key_page> page(std::move(self->dropped_.front()));
            self->dropped_.erase(self->dropped_.begin());
            co_return page;
        }
        while (!self->cursor_.is_over()) {
            self->check();
            const range_request asked = self->cursor_.next();
            outcome<range_response> a =
                co_await call(self->client, asked, self->client->within(self->timeout_));
            if (!a.ec) {
                std::optional<key_page> page(self->cursor_.take(std::move(a.response)));
                co_return page;
            }
            self->heed(a);
        }
        co_return std::nullopt;
    }

    /// What `next` has returned did not reach its caller.
    void put_back(std::optional<key_page> page) {
        if (page) {
            dropped_.insert(dropped_.begin(), std::move(*page));
        }
    }

private:
    void check() const {
        if (failure_) {
            throw error(*failure_);
        }
    }
    /// @throws error unless there is another read to try.
    void heed(const answer& failed) {
        switch (logic::why_no_page(failed.ec, failed.text)) {
        case logic::page_failure::too_large:
            if (cursor_.halve()) {
                return;
            }
            throw error(errc::too_large,
                        "pages: a single key with its value is over the limit; raise "
                        "client_options::max_answer, or read keys_only: " +
                            failed.text);
        case logic::page_failure::compacted:
            failure_.emplace(failed.ec,
                             "pages: revision " + std::to_string(cursor_.revision()) +
                                 ", at which they are read, was compacted; begin again at the "
                                 "newest one: " +
                                 failed.text);
            break;
        case logic::page_failure::no_such:
            failure_.emplace(
                cursor_.has_begun() ? make_error_code(errc::revision_regressed) : failed.ec,
                "pages: etcd has no revision " + std::to_string(cursor_.revision()) +
                    (cursor_.has_begun() ? ", although pages of it were read: " : ": ") +
                    failed.text);
            break;
        case logic::page_failure::other:
            throw error(failed.ec, "pages: " + failed.text);
        }
        check();
    }

    const std::chrono::nanoseconds timeout_;
    logic::page_cursor cursor_;
    std::vector<key_page> dropped_;
    std::optional<error> failure_; // for good
    turns turns_;
};

} // namespace coetcd::detail
