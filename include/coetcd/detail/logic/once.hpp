// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/places.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

/// Writes that are applied once, however often they are sent: the transactions, and what their
/// answers mean.
///
/// A *marker* is a key of the session whose value is the number of the last write that was made
/// with it. Each write compares the value that was there before, and puts its own number. So the
/// marker tells whether a write whose answer was lost was applied. Once a later write was applied,
/// or the lease has ended, no copy of an earlier write can be applied any more.
namespace coetcd::detail::logic {

struct marker {
    std::string name; ///< The name of what it serves.
    std::string key;
    lease_id lease = 0;
    std::string value;        ///< As last known; empty: the key does not exist.
    std::uint64_t number = 0; ///< That of the write under way, or of the last one.
    /// No copy of a write that expects the key not to exist can come late.
    bool erasable = true;
};

/// The markers of one session object. Each serves one write at a time, and is used again.
class marker_table {
public:
    /// @param nonce That of the session object: another one may have had the same lease.
    marker take(const std::string& name, lease_id lease, std::uint64_t nonce) {
        const auto found = std::find_if(
            idle_.begin(), idle_.end(), [&](const marker& m) { return m.name == name; });
        if (found == idle_.end()) {
            return fresh(name, lease, nonce);
        }
        marker m = std::move(*found);
        idle_.erase(found);
        return m;
    }
    /// A marker that no write has used yet. No slot has such a key: `w` is no digit.
    marker fresh(const std::string& name, lease_id lease, std::uint64_t nonce) {
        marker m;
        m.name = name;
        m.key = name + "." + hex(static_cast<std::uint64_t>(lease)) + "-" + hex(nonce) + "-w" +
                hex(made_++);
        m.lease = lease;
        return m;
    }
    /// @returns A marker to be erased, since it has not been used for long.
    std::optional<marker> give_back(marker m) {
        idle_.push_front(std::move(m));
        std::optional<marker> oldest;
        if (idle_.size() > most_idle) {
            if (idle_.back().erasable && !idle_.back().value.empty()) {
                oldest.emplace(std::move(idle_.back()));
            } // else it goes with the lease
            idle_.pop_back();
        }
        return oldest;
    }

    static constexpr std::size_t most_idle = 64;

private:
    std::list<marker> idle_; // the last used one first
    std::uint64_t made_ = 0;
};

namespace marks {

inline constexpr std::string_view then = "+";
inline constexpr std::string_view otherwise = "-";

/// The value that the marker gets: the number and, if there are two branches, the one taken.
inline std::string of(std::uint64_t number, std::string_view branch = {}) {
    return hex(number).append(branch);
}
/// The number in a mark; 0 if it is no mark.
inline std::uint64_t number_of(std::string_view mark) {
    std::uint64_t number = 0;
    const char* const end = mark.data() + mark.size();
    const auto [stop, failure] = std::from_chars(mark.data(), end, number, 16);
    const std::string_view branch(stop, static_cast<std::size_t>(end - stop));
    const bool whole = branch.empty() || branch == then || branch == otherwise;
    return failure == std::errc() && whole ? number : 0;
}

} // namespace marks

namespace transactions {

/// The condition that no write has been made since the one that we know of.
inline compare marker_holds(const marker& m) {
    return m.value.empty() ? compare::create_revision(m.key) == 0
                           : compare::value(m.key) == m.value;
}
inline op put_mark(const marker& m, std::string_view branch = {}) {
    put_options with_lease;
    with_lease.lease = m.lease;
    return op::put(m.key, marks::of(m.number, branch), with_lease);
}

} // namespace transactions

/// Adds the marker to `what`, which writes if its conditions hold, and otherwise only reads.
inline txn write_once(const marker& m, txn what) {
    what.compares.insert(what.compares.begin(), transactions::marker_holds(m));
    what.success.push_back(transactions::put_mark(m));
    what.failure.insert(what.failure.begin(), op::range(m.key));
    return what;
}

/// The same for a transaction that does something in either case: the mark tells which branch was
/// taken.
inline txn write_either_once(const marker& m, txn what) {
    what.success.push_back(transactions::put_mark(m, marks::then));
    what.failure.push_back(transactions::put_mark(m, marks::otherwise));
    txn t;
    t.compares.push_back(transactions::marker_holds(m));
    t.success.push_back(op::nested(std::move(what)));
    t.failure.push_back(op::range(m.key));
    return t;
}

/// Reads the marker. It changes nothing, but erases a key that does not exist, and so goes through
/// consensus like a write: a member that has stalled cannot answer from memory.
inline txn read_marker(const marker& m) {
    txn t;
    t.success.push_back(op::range(m.key));
    t.success.push_back(op::erase(m.key + "-void"));
    return t;
}

/// Erases a marker that is not used any more.
inline txn erase_marker(const marker& m) {
    txn t;
    t.compares.push_back(transactions::marker_holds(m));
    t.success.push_back(op::erase(m.key));
    return t;
}

/// Whether these are answers to these operations, and to those within them.
inline bool fits(const txn& asked, const txn_response& said) {
    const std::vector<op>& ops = said.succeeded ? asked.success : asked.failure;
    return std::equal(said.responses.begin(),
                      said.responses.end(),
                      ops.begin(),
                      ops.end(),
                      [](const op_response& s, const op& o) {
                          if (s.index() != o.index()) { // both list the kinds in the same order
                              return false;
                          }
                          const auto* inner = std::get_if<txn>(&o);
                          return !inner || fits(*inner, std::get<txn_response>(s));
                      });
}

/// What the answer to a write means.
struct written {
    enum class how {
        applied,   ///< It was applied, and this is the answer to the copy that was.
        told,      ///< It was applied, by a copy whose answer was lost.
        refused,   ///< A condition of its own does not hold.
        overtaken, ///< An earlier write of this marker was applied late: `mark` counts now.
        vanished,  ///< The marker is not there any more.
    };
    how end = how::refused;
    std::string mark;          ///< The marker's value.
    std::int64_t revision = 0; ///< The revision of the write, if it was applied.
};

/// What a read of the marker says of the write that is under way.
inline written after_look(const range_response& read, const marker& m) {
    written result;
    if (!answers::holds(read, m.key, 0)) {
        result.end = m.value.empty() ? written::how::refused : written::how::vanished;
        return result;
    }
    const key_value& kv = read.kvs.front();
    result.mark = kv.value;
    if (kv.value == m.value) {
        result.end = written::how::refused;
    } else if (marks::number_of(kv.value) == m.number) {
        result.end = written::how::told;
        result.revision = answers::require_revision(kv.mod_revision);
    } else {
        result.end = written::how::overtaken;
    }
    return result;
}

/// @param response An answer that fits the request.
inline written after_write(const txn_response& response, const marker& m) {
    if (!response.succeeded) {
        return after_look(answers::range_at(response, 0), m);
    }
    written result;
    result.end = written::how::applied;
    result.revision = answers::require_revision(response.header.revision);
    std::string_view branch;
    if (const auto* either = std::get_if<txn_response>(&response.responses.back())) {
        branch = either->succeeded ? marks::then : marks::otherwise;
    }
    result.mark = marks::of(m.number, branch);
    return result;
}

/// The answer to `what` of `write_once` or `write_either_once`, without the marker's.
inline txn_response without_marker(txn_response response) {
    if (!response.succeeded) {
        response.responses.erase(response.responses.begin());
        return response;
    }
    if (auto* either = std::get_if<txn_response>(&response.responses.back())) {
        txn_response inner = std::move(*either);
        inner.header = response.header; // that of a nested one is empty
        response = std::move(inner);
    }
    response.responses.pop_back();
    return response;
}

} // namespace coetcd::detail::logic
