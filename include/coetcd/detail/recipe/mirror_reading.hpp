// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/mirror_map.hpp>
#include <coetcd/detail/logic/mirror_read.hpp>
#include <coetcd/detail/logic/places.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/rpc.hpp>
#include <coetcd/detail/service/call.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace coetcd::detail {

/// All keys of a range at one revision, or why they could not be read.
struct mirror_reading {
    error_code ec;
    std::string text;
    logic::mirror_entries found;
    std::int64_t revision = 0;
    std::uint64_t cluster = 0;
};

/// @param timeout For each page.
/// @param size Must live as long as `wanted` does.
/// @param wanted Whether anybody still wants it.
inline asio::awaitable<mirror_reading> read_pages(std::shared_ptr<client_impl> by,
                                                  std::chrono::nanoseconds timeout,
                                                  key_range keys,
                                                  logic::page_size* size,
                                                  std::function<bool()> wanted) {
    logic::paged_read pages(std::move(keys), *size);
    mirror_reading result;
    while (!pages.is_complete()) {
        call_terms how = by->within(timeout);
        how.wanted = &wanted;
        auto asking = call(by, pages.request(), how);
        outcome<range_response> page = co_await std::move(asking);
        if (!page.ec) {
            try {
                pages.came(std::move(page.response));
                continue;
            } catch (const error& e) { // it is not etcd's
                page.ec = e.code();
                page.text = logic::words_of(e);
            }
        }
        if (!pages.failed(page.ec, page.text)) {
            result.ec = page.ec;
            result.text = std::move(page.text);
            co_return result;
        }
    }
    result.found = std::move(pages.found());
    result.revision = pages.revision();
    result.cluster = pages.cluster();
    co_return result;
}

/// What a look has seen, or why it has seen nothing.
struct mirror_look {
    error_code ec;
    std::string text;
    std::int64_t revision = 0;
    range_response now;
    range_response then; ///< If it was asked for.
};

/// @param question See `logic::look_since`.
/// @param wanted Whether anybody still wants it.
inline asio::awaitable<mirror_look> look_at_mirror(std::shared_ptr<client_impl> by,
                                                   std::chrono::nanoseconds timeout,
                                                   txn question,
                                                   std::function<bool()> wanted) {
    call_terms how = by->within(timeout).as(impact::none);
    how.attempt_timeout = timeout; // etcd goes through all keys
    how.wanted = &wanted;
    auto asking = call(by, question, how);
    outcome<txn_response> said = co_await std::move(asking);
    mirror_look result;
    result.ec = said.ec;
    result.text = std::move(said.text);
    result.revision = said.response.header.revision;
    if (result.ec) {
        co_return result;
    }
    try {
        result.now = logic::answers::range_at(said.response, 0);
        if (question.success.size() > 1) {
            result.then = logic::answers::range_at(said.response, 1);
        }
    } catch (const error& e) { // it is not etcd's
        result.ec = e.code();
        result.text = logic::words_of(e);
    }
    co_return result;
}

inline void require_revision(std::int64_t revision) {
    if (revision < 0) {
        throw std::invalid_argument("revision: must not be negative");
    }
}

inline asio::awaitable<void> discard_result(asio::awaitable<bool> work) {
    (void)co_await std::move(work);
}

} // namespace coetcd::detail
