// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/key_space.hpp>
#include <coetcd/detail/logic/touched_keys.hpp>
#include <coetcd/detail/wire/encode.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <cstddef>
#include <list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace coetcd::detail::logic {

/// Several transactions in one request. They are applied in order; each does what it would do
/// alone, or nothing.
///
/// etcd evaluates all conditions before it does anything, and gives all keys that one request puts
/// the same create_revision. So no two transactions that put a key into one queue may share a
/// request: neither would see the other. What a refused transaction does instead may only read; it
/// sees what the earlier ones have done.
class group {
public:
    /// How a transaction is written.
    enum class form {
        alone,  ///< As it is, the only one of its request.
        flat,   ///< Merged with the other flat ones: one false condition refuses all.
        nested, ///< As a transaction of its own, with what to do if it is refused.
    };

    static constexpr std::size_t most_members = 60;

    /// @param of_users Whether the transactions are users', who know nothing of each other: then
    ///   none shares a request with another one that could tell; see `touched_keys`.
    explicit group(bool of_users = false) {
        if (of_users) {
            touched_.emplace();
        }
    }

    /// @param puts The names in whose queues it puts keys.
    /// @returns False if it does not fit into this request.
    bool add(const txn& what, const std::vector<std::string>& puts, form how) {
        const bool first = members_.empty();
        if (!first && (how == form::alone || members_.front().how == form::alone)) {
            return false;
        }
        count next = size_;
        next.add(what, how);
        const auto may = [this](const std::string& name) { return may_put(name); };
        is_full_ = is_full_ || (!first && next.over());
        if (!first && (next.over() || members_.size() == most_members ||
                       !std::all_of(puts.begin(), puts.end(), may))) {
            return false;
        }
        if (touched_ && !touched_->add(what)) {
            is_full_ = true;
            return false;
        }
        size_ = next;
        for (const std::string& name : puts) {
            put(name);
        }
        members_.push_back({&what, how});
        return true;
    }
    std::size_t size() const { return members_.size(); }
    /// Whether one was too large to be added, or would have met another one's keys.
    bool is_full() const { return is_full_; }

    /// The request. The transactions that were added must still exist.
    /// @param in Where their keys are; null for all there are.
    std::string body(const key_space* in = nullptr) const;

    /// The answers to all of them, in order; nothing if the flat ones, and with them all, were
    /// refused.
    /// @throws error with `errc::protocol_error` if `all` is no answer to this request.
    std::optional<std::vector<txn_response>> split(txn_response&& all) const;

private:
    static constexpr std::size_t most_operations = 120; // of 128, etcd's default
    static constexpr std::size_t most_bytes = std::size_t{256} * 1024;

    struct member {
        const txn* what;
        form how;
    };
    struct count {
        std::size_t compares = 0;
        std::size_t operations = 0;
        std::size_t longest = 0; ///< The longest list of a nested one.
        std::size_t bytes = 0;

        void add(const txn& what, form how) {
            bytes += estimate(what);
            if (how == form::flat) {
                compares += what.compares.size();
                operations += what.success.size();
            } else {
                bytes += estimate(what.failure);
                operations += 1;
                longest = std::max(
                    {longest, what.compares.size(), what.success.size(), what.failure.size()});
            }
        }
        bool over() const {
            return compares > most_operations || operations + longest > most_operations ||
                   bytes > most_bytes;
        }
    };

    static constexpr std::size_t overhead = 64;

    static std::size_t text(const key_range& r) {
        return (r.key.size() + r.range_end.size()) * 4 / 3 + overhead;
    }
    /// Without the transaction's own ELSE.
    static std::size_t estimate(const txn& what) {
        std::size_t bytes = overhead + estimate(what.success);
        for (const compare& c : what.compares) {
            const auto* const value = std::get_if<std::string>(&c.operand);
            bytes += text(c.range) + (value ? value->size() * 4 / 3 : 0);
        }
        return bytes;
    }
    static std::size_t estimate(const std::vector<op>& all) {
        std::size_t bytes = 0;
        for (const op& o : all) {
            bytes += estimate(o);
        }
        return bytes;
    }
    static std::size_t estimate(const op& o) {
        if (const auto* p = std::get_if<put_request>(&o)) {
            return (p->key.size() + p->value.size()) * 4 / 3 + overhead;
        }
        if (const auto* g = std::get_if<range_request>(&o)) {
            return text(g->range);
        }
        if (const auto* d = std::get_if<erase_request>(&o)) {
            return text(d->range);
        }
        const txn& inner = std::get<txn>(o);
        return estimate(inner) + estimate(inner.failure);
    }

    /// Whether these are answers to these operations.
    static bool fit(const std::vector<op_response>& said, const std::vector<op>& asked) {
        return std::equal(
            said.begin(), said.end(), asked.begin(), asked.end(), [](const auto& s, const auto& a) {
                return s.index() == a.index(); // both list the kinds in the same order
            });
    }

    /// Calls `f` with each name in whose queue the queue of `name` lies.
    template<class F>
    static void for_each_above(std::string_view name, F f) {
        for (auto slash = name.find('/'); slash != name.npos; slash = name.find('/', slash + 1)) {
            f(name.substr(0, slash));
        }
    }
    bool may_put(std::string_view name) const {
        bool free = !names_.contains(name) && !above_.contains(name);
        for_each_above(name, [&](std::string_view n) { free = free && !names_.contains(n); });
        return free;
    }
    void put(std::string_view name) {
        names_.emplace(name);
        for_each_above(name, [&](std::string_view n) { above_.emplace(n); });
    }

    std::vector<member> members_;
    count size_;
    bool is_full_ = false;
    std::optional<touched_keys> touched_;
    std::set<std::string, std::less<>> names_;
    std::set<std::string, std::less<>> above_;
};

inline std::string group::body(const key_space* in) const {
    if (in) {
        std::list<txn> inside;
        group as_etcd_sees_it;
        for (const member& m : members_) {
            in->enter(inside.emplace_back(*m.what));
            as_etcd_sees_it.members_.push_back({&inside.back(), m.how});
        }
        return as_etcd_sees_it.body();
    }
    if (members_.front().how == form::alone) {
        return wire::encode(*members_.front().what);
    }
    std::string out;
    out.reserve(size_.bytes);
    wire::object_writer object(out);
    wire::list_writer compares(object, out, "compare");
    for (const member& m : members_) {
        if (m.how == form::flat) {
            for (const compare& c : m.what->compares) {
                wire::append(compares.next(), c);
            }
        }
    }
    compares.end();
    wire::list_writer operations(object, out, "success");
    for (const member& m : members_) {
        if (m.how == form::flat) {
            for (const op& o : m.what->success) {
                wire::append(operations.next(), o, 0);
            }
        } else {
            wire::object_writer kind(operations.next());
            kind.start("request_txn");
            wire::append(out, *m.what);
            kind.end();
        }
    }
    operations.end();
    object.end();
    return out;
}

inline std::optional<std::vector<txn_response>> group::split(txn_response&& all) const {
    std::optional<std::vector<txn_response>> result(std::in_place);
    const auto require = [](bool holds) {
        if (!holds) {
            throw error(errc::protocol_error, "txn: the answer is not one to this request");
        }
    };
    require(all.header.revision > 0);
    if (members_.front().how == form::alone) {
        const txn& only = *members_.front().what;
        require(fit(all.responses, all.succeeded ? only.success : only.failure));
        result->push_back(std::move(all));
        return result;
    }
    if (!all.succeeded) {
        return std::nullopt;
    }
    std::size_t at = 0;
    for (const member& m : members_) {
        txn_response& part = result->emplace_back();
        if (m.how == form::flat) {
            part.succeeded = true;
            require(at + m.what->success.size() <= all.responses.size());
            for (std::size_t i = 0; i != m.what->success.size(); ++i) {
                part.responses.push_back(std::move(all.responses[at++]));
            }
        } else {
            require(at < all.responses.size() &&
                    std::holds_alternative<txn_response>(all.responses[at]));
            part = std::move(std::get<txn_response>(all.responses[at++]));
        }
        require(fit(part.responses, part.succeeded ? m.what->success : m.what->failure));
        part.header = all.header; // that of a nested one is empty
    }
    require(at == all.responses.size());
    return result;
}

} // namespace coetcd::detail::logic
