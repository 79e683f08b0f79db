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
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace coetcd::detail {

/// All keys of a range at one revision, or why they could not be read.
struct mirror_reading {
    error_code ec;
    std::string text;
    logic::found_entries found;
    std::int64_t revision = 0;
    std::uint64_t cluster = 0;
};

/// @param timeout For each page.
/// @param size Must live as long as `wanted` does.
/// @param known What there was before: likewise.
/// @param wanted Whether anybody still wants it.
inline asio::awaitable<mirror_reading> read_pages(std::shared_ptr<client_impl> by,
                                                  std::chrono::nanoseconds timeout,
                                                  key_range keys,
                                                  logic::page_size* size,
                                                  const logic::mirror_entries* known,
                                                  std::function<bool()> wanted) {
    logic::paged_read pages(std::move(keys), *size, *known);
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

inline void add_part(range_response& to, range_response part) {
    to.count += part.count;
    for (key_value& kv : part.kvs) {
        to.kvs.push_back(std::move(kv));
    }
}

/// Looks at a range, a part at a time, all at one revision. See `logic::look_since`.
/// @param timeout For each part.
/// @param known The keys of the mirror, which may go on. Must live as long as `wanted` does.
/// @param wanted Whether anybody still wants it.
inline asio::awaitable<mirror_look> look_at_mirror(std::shared_ptr<client_impl> by,
                                                   std::chrono::nanoseconds timeout,
                                                   key_range keys,
                                                   const logic::mirror_entries* known,
                                                   logic::mirror_mark mark,
                                                   bool is_check,
                                                   std::function<bool()> wanted) {
    mirror_look all;
    key_range part = keys;
    for (bool more = true; more;) {
        const std::optional<std::string> bound =
            logic::key_after(*known, part.key, logic::most_looked_at);
        part.range_end = bound.value_or(keys.range_end);
        call_terms how = by->within(timeout).as(impact::none);
        how.attempt_timeout = timeout; // etcd goes through all keys
        how.wanted = &wanted;
        auto asking = call(by, logic::look_since(part, mark, is_check, all.revision), how);
        outcome<txn_response> said = co_await std::move(asking);
        all.ec = said.ec;
        all.text = std::move(said.text);
        if (all.revision == 0) {
            all.revision = said.response.header.revision;
        }
        if (all.ec || all.revision < mark.revision) {
            break;
        }
        try {
            add_part(all.now, logic::answers::range_at(said.response, 0));
            if (is_check) {
                add_part(all.then, logic::answers::range_at(said.response, 1));
            }
        } catch (const error& e) { // it is not etcd's
            all.ec = e.code();
            all.text = logic::words_of(e);
            break;
        }
        more = bound.has_value();
        part.key = bound.value_or(std::string());
    }
    co_return all;
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
