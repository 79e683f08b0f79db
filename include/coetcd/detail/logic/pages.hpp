// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/page_size.hpp>
#include <coetcd/detail/logic/ranges.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/page_options.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

/// Reads of a range in pages: what to ask for next, and what an answer means.
namespace coetcd::detail::logic {

/// The keys of a range that come after `key`.
inline key_range rest_after(const key_range& all, const std::string& key) {
    return {key + '\0', all.range_end};
}

/// @throws error if this is no answer to a read of these keys, in their order, so many at most.
inline void require_page(const range_response& said, const key_range& keys, std::int64_t at_most) {
    bool fits = said.header.revision > 0 && (!said.more || !said.kvs.empty()) &&
                static_cast<std::int64_t>(said.kvs.size()) <= at_most;
    const std::string* before = nullptr;
    for (const key_value& kv : said.kvs) {
        fits = fits && contains(keys, kv.key) && (!before || *before < kv.key);
        before = &kv.key;
    }
    if (!fits) {
        throw error(errc::protocol_error, "range: the answer is not one to this request");
    }
}

/// Where a reader of pages is.
class page_cursor {
public:
    page_cursor(key_range keys, const page_options& how, std::size_t room)
        : rest_(std::move(keys))
        , size_(how.size, room)
        , revision_(how.revision)
        , keys_only_(how.keys_only) {}

    bool is_over() const { return over_; }
    /// Whether a page was read: all further ones are of its revision.
    bool has_begun() const { return begun_; }
    std::int64_t revision() const { return revision_; }
    bool halve() { return size_.halve(); }

    range_request next() const {
        range_options how;
        how.limit = size_.now();
        how.revision = revision_;
        how.keys_only = keys_only_;
        return {rest_, how};
    }
    /// Takes the answer to `next`.
    /// @throws error if it is none.
    key_page take(range_response said) {
        require_page(said, rest_, size_.now());
        if (revision_ == 0) {
            revision_ = said.header.revision;
        }
        begun_ = true;
        over_ = !said.more || rest_.range_end.empty();
        if (!over_) {
            rest_ = rest_after(rest_, said.kvs.back().key);
        }
        size_.fitted(json_size(said.kvs));
        key_page page;
        page.revision = revision_;
        page.left =
            std::max<std::int64_t>(0, said.count - static_cast<std::int64_t>(said.kvs.size()));
        page.kvs = std::move(said.kvs);
        return page;
    }

private:
    key_range rest_;
    page_size size_;
    std::int64_t revision_;
    bool keys_only_;
    bool begun_ = false;
    bool over_ = false;
};

/// Why a read of a page failed.
enum class page_failure {
    other,
    too_large, ///< Fewer keys may fit.
    compacted, ///< The revision cannot be read any more.
    no_such,   ///< The store has not come to that revision.
};

inline page_failure why_no_page(const error_code& ec, std::string_view text) {
    const auto has = [&](std::string_view words) { return text.find(words) != text.npos; };
    if (is_too_large(ec, text)) {
        return page_failure::too_large;
    }
    if (ec == server_errc::out_of_range) {
        return has("compacted")         ? page_failure::compacted
               : has("future revision") ? page_failure::no_such
                                        : page_failure::other;
    }
    return page_failure::other;
}

} // namespace coetcd::detail::logic
