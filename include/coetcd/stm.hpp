// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/detail/recipe/run_stm.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/session.hpp>
#include <coetcd/stm_options.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coetcd {

class transaction;

namespace detail {
class access;
class stm_run;
std::shared_ptr<stm_run> make_stm_run(const session& owner, stm_options options);
std::shared_ptr<stm_run> make_stm_run(const client& by, stm_options options);
} // namespace detail

/// What the body of `stm` reads and writes with. Valid until the body ends. Reads show its own
/// writes.
///
/// @par Thread safety
/// A body that runs on a strand may read several keys at the same time.
class transaction {
public:
    using executor_type = boost::asio::any_io_executor;

    transaction(const transaction&) = delete;
    transaction& operator=(const transaction&) = delete;

    /// The client's executor.
    executor_type get_executor() const;

    /// The value of a key. One round trip; none if the key was prefetched, or read or written
    /// before.
    ///
    /// @returns Nothing if it does not exist.
    /// @throws std::invalid_argument at once if `key` is empty.
    /// @throws error with `errc::conflict` if etcd has compacted the history that this run reads.
    ///   Let it pass: the body is run again, whatever it does then. Also as `client`, and with
    ///   `errc::session_lost` or `errc::session_closed`.
    boost::asio::awaitable<std::optional<std::string>> get(std::string key);

    /// The keys of a range, in order, with their values. One round trip; none if this very range
    /// was read before. The commit then requires that nobody has added, changed or erased a key of
    /// it: this takes one condition, and one more for each key. See `stm`.
    ///
    /// Keys that this transaction has put do not have their new revisions yet.
    /// @throws As `get`.
    boost::asio::awaitable<std::vector<key_value>> range(key_range keys);

    /// The revision at which a key was written last, as it was read; 0 if it does not exist. What
    /// this transaction writes does not count. Costs and throws as `get`.
    boost::asio::awaitable<std::int64_t> revision(std::string key);

    /// Writes a key with the commit. The last call for a key counts.
    /// @throws std::invalid_argument if `key` is empty, or with `prev_kv` or `ignore_value`.
    void put(std::string key, std::string value, put_options options = {});

    /// Erases a key with the commit. The last call for a key counts.
    /// @throws std::invalid_argument if `key` is empty.
    void erase(std::string key);

private:
    friend class detail::access;
    explicit transaction(std::shared_ptr<detail::stm_run> run);

    const std::shared_ptr<detail::stm_run> run_;
};

/// Runs `body(transaction&)`, which returns an awaitable, and writes what it has put and erased,
/// all or nothing, if nobody has changed what it counts on: see `stm_options::level`. Otherwise
/// `body` is run again, after a pause. So it must have no effects elsewhere, and must not keep what
/// a run has read.
///
///     auto transfer = [](coetcd::transaction& t) -> asio::awaitable<void> {
///         const auto from = co_await t.get("accounts/a");
///         ...
///         t.put("accounts/a", "70");
///         t.put("accounts/b", "130");
///     };
///     co_await coetcd::stm(session, transfer);
///
/// The commit is applied once, however often it is sent: a key of the session records whether it
/// was applied, in case an answer is lost.
///
/// Costs one round trip for each key or range that is read and was not prefetched, and one for the
/// commit. A body that only reads needs no commit, except at `repeatable_reads`, if it has read
/// more than one key or range. A conflict costs one round trip, which also reads for the next run
/// what this one has read.
///
/// etcd accepts at most 128 conditions and 128 operations. Each key that was read takes one
/// condition; each range one more than it has keys. Each key that was written takes one operation,
/// and, if it was not read, one condition at `serializable_snapshot`. The session takes one of
/// each.
///
/// @returns What the last run of `body` returned.
/// @throws What `body` throws, unchanged; nothing was written then.
/// @throws error with
/// - `errc::conflict` if others were faster in each of `stm_options::attempts` runs;
/// - `errc::outcome_unknown` if the commit was sent and no answer came in time, or the session was
///   lost meanwhile: it may have been applied, or may still be until a later commit of the session
///   with the same marker is;
/// - `errc::session_lost` or `errc::session_closed` if the session had already ended;
/// - otherwise as `client`: nothing was written.
/// @throws std::invalid_argument at once if an option is invalid; before the commit is sent, if it
///   has more conditions or operations than etcd accepts.
/// @par Cancellation
/// `terminal`, at once. During the body, or before it, nothing is written. A commit that was sent
/// may or may not be applied.
/// @par Executors
/// `body` runs on the executor of the caller.
template<class Body>
auto stm(const session& owner, Body body, stm_options options = {}) {
    return detail::run_stm<transaction>(detail::make_stm_run(owner, std::move(options)),
                                        std::move(body));
}

/// The same without a session: a commit is not sent again once it may have been applied.
/// @throws error with `errc::outcome_unknown` if its answer was lost; never if `body` writes
///   nothing.
template<class Body>
auto stm(const client& by, Body body, stm_options options = {}) {
    return detail::run_stm<transaction>(detail::make_stm_run(by, std::move(options)),
                                        std::move(body));
}

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/stm.hpp>
#endif
