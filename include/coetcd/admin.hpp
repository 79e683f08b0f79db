// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/awaitable.hpp>

#include <cstdint>
#include <optional>
#include <string>

// What programs other than its holder can do about a lock.

namespace coetcd {

/// Ends one ownership of a lock, whether it is this program's or not: of a mutex, a shared_mutex,
/// an election, or a permit of a semaphore. It ends the one with this fencing token, and never the
/// next one, however late the request arrives. Two round trips; one if there is no such ownership;
/// three if a writer becomes a reader at the same moment, or up to four if its session ends.
///
/// The holder notices it as if its key was deleted by hand: with the next renewal, or at once with
/// `lock_options::watch_while_held`. Until then it continues, and what it does is not undone; its
/// fencing token and its guarded writes are refused. It cannot come back, even if a request of its
/// own is still on its way. With the token of a waiter, from `mutex::waiters`, it ends that wait
/// with `errc::lock_lost`.
///
/// It leaves one key in etcd that blocks nobody, and goes with the holder's lease. It also ends the
/// ownership of Go's client and of `etcdctl lock`, which do not notice.
///
/// @param token From `mutex::holder`, `request_release` or the holder's log.
/// @returns False if it had ended already: there is nothing left to do.
/// @throws std::invalid_argument if `name` is empty or longer than 512 bytes, or `token` is not
///   positive.
/// @throws error as `client`. It retries while there is time, and a repeated call does no harm.
/// @par Cancellation
/// `terminal`. The ownership may have been ended.
boost::asio::awaitable<bool> force_unlock(const client& by, std::string name, std::int64_t token);

/// Asks the holder of a lock to give it back. Two round trips; one if nobody holds it.
///
/// A holder receives it by awaiting `held_lock::release_requested`, before or after the request.
/// Nothing forces a holder: see `force_unlock`.
///
/// The request is meant for one ownership. In etcd it is one key for each session and name, which
/// the next request of the session replaces. It blocks nobody, and goes when the session ends.
///
/// @returns The fencing token of the holder; nothing if there is none.
/// @throws std::invalid_argument if `name` is empty or longer than 512 bytes.
/// @throws error as `client`; with `errc::session_lost` or `errc::session_closed` if `by` has
///   ended.
/// @par Cancellation
/// `terminal`. The request may have been made.
boost::asio::awaitable<std::optional<std::int64_t>> request_release(const session& by,
                                                                    std::string name);

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/admin.hpp>
#endif
