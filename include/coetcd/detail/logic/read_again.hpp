// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/places.hpp>
#include <coetcd/detail/logic/ranges.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

/// What the operations of an applied transaction answered, when that answer was lost. The history
/// tells, until it is compacted.
namespace coetcd::detail::logic {

/// Whether an operation changes keys of a range.
inline bool touches(const op& o, const key_range& keys) {
    if (const auto* p = std::get_if<put_request>(&o)) {
        return contains(keys, p->key);
    }
    const auto* e = std::get_if<erase_request>(&o);
    return e && overlap(e->range, keys);
}

inline bool any_touches(std::span<const op> ops, const key_range& keys) {
    return std::any_of(ops.begin(), ops.end(), [&](const op& o) { return touches(o, keys); });
}

/// The reads that tell the lost answer: one for each operation that says anything.
/// @param at The revision that the transaction made.
/// @returns Nothing if it cannot be told any more: for nested transactions, for reads between two
///   changes of the same keys, and for erases after a change of theirs.
inline std::optional<txn> read_again(const std::vector<op>& ops, std::int64_t at) {
    txn reads;
    for (std::size_t i = 0; i != ops.size(); ++i) {
        const std::span<const op> earlier(ops.data(), i);
        const std::span<const op> later(ops.data() + i + 1, ops.size() - i - 1);
        range_options before;
        before.revision = at - 1;
        if (const auto* r = std::get_if<range_request>(&ops[i])) {
            range_options how = r->options;
            how.serializable = false;
            if (how.revision == 0) {
                const bool sees_changes = any_touches(earlier, r->range);
                if (sees_changes && any_touches(later, r->range)) {
                    return std::nullopt;
                }
                how.revision = sees_changes ? at : at - 1;
            }
            reads.success.push_back(op::range(r->range, how));
        } else if (const auto* p = std::get_if<put_request>(&ops[i])) {
            if (p->options.prev_kv) {
                reads.success.push_back(op::range(p->key, before));
            }
        } else if (const auto* e = std::get_if<erase_request>(&ops[i])) {
            if (any_touches(earlier, e->range)) {
                return std::nullopt;
            }
            before.count_only = !e->options.prev_kv;
            reads.success.push_back(op::range(e->range, before));
        } else {
            return std::nullopt;
        }
    }
    return reads;
}

/// What the operations answered, from the answer to the reads of `read_again`.
inline std::vector<op_response>
as_answered(const std::vector<op>& ops, const txn_response& reads, std::int64_t at) {
    std::vector<op_response> result;
    std::size_t next = 0;
    response_header header = reads.header;
    header.revision = at;
    for (const op& o : ops) {
        if (const auto* p = std::get_if<put_request>(&o)) {
            put_response said;
            said.header = header;
            if (p->options.prev_kv) {
                const range_response& was = answers::range_at(reads, next++);
                if (!was.kvs.empty()) {
                    said.prev_kv = was.kvs.front();
                }
            }
            result.emplace_back(std::move(said));
        } else if (std::holds_alternative<erase_request>(o)) {
            const range_response& was = answers::range_at(reads, next++);
            erase_response said;
            said.header = header;
            said.deleted = was.count;
            said.prev_kvs = was.kvs;
            result.emplace_back(std::move(said));
        } else {
            range_response said = answers::range_at(reads, next++);
            said.header = header;
            result.emplace_back(std::move(said));
        }
    }
    return result;
}

} // namespace coetcd::detail::logic
