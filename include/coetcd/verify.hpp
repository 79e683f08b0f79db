// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/sequencer.hpp>

#include <boost/asio/awaitable.hpp>

#include <string_view>

namespace coetcd {

/// Asks whether an ownership of lock `name` still lasts, by a request that goes through etcd's
/// consensus. One round trip; none if `which` is not a sequencer of that lock. Nothing is changed
/// in etcd.
///
/// The ownership may end as soon as this has returned. For writes to etcd, `guard` leaves no gap.
///
/// The client's etcd user must be allowed to read and write the lock's keys.
///
/// @returns False also if `which` is not a sequencer, or is one of another lock.
/// @throws error as `client`.
/// @par Cancellation
/// `terminal`.
boost::asio::awaitable<bool>
verify(const client& by, std::string_view name, const sequencer& which);

/// The same for any lock. A caller can pass a sequencer of some other lock: if that matters, use
/// `verify`.
boost::asio::awaitable<bool> verify_of_any_lock(const client& by, const sequencer& which);

/// A condition for a transaction, true only as long as that ownership of lock `name` lasts.
/// @throws std::invalid_argument if the text is not a sequencer, or is one of another lock.
compare guard(std::string_view name, const sequencer& which);

/// The same for any lock: see `verify_of_any_lock`.
/// @throws std::invalid_argument if the text is not a sequencer.
compare guard_of_any_lock(const sequencer& which);

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/verify.hpp>
#endif
