// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/kv.hpp>

#include <boost/asio/awaitable.hpp>

#include <string_view>

// A sequencer is one ownership of a lock as text, from `held_lock::sequencer`. Send it along with a
// request; the receiver can ask whether that ownership still lasts, or have etcd refuse what comes
// too late.
//
// It protects from callers that are late, not from callers that lie: it is neither secret nor
// signed, and a program that can read a lock's queue can write one. Its bytes are checked before
// they are used, so that it may come from anywhere.

namespace coetcd {

/// Asks whether the ownership still lasts, by a request that goes through etcd's consensus. One
/// round trip; none if the text is not a sequencer. Nothing is changed in etcd.
///
/// The ownership may end as soon as this has returned. For writes to etcd, `guard` leaves no gap.
///
/// The client's etcd user must be allowed to read and write the lock's keys.
///
/// @returns False also if the text is not a sequencer.
/// @throws error as `client`.
/// @par Cancellation
/// `terminal`.
boost::asio::awaitable<bool> verify(const client& by, std::string_view sequencer);

/// Accepts only sequencers of lock `name`. The overload without a name accepts those of any lock:
/// use this one where the text comes from a caller that may hold a lock of its own.
boost::asio::awaitable<bool>
verify(const client& by, std::string_view name, std::string_view sequencer);

/// A condition for a transaction, true only as long as the ownership lasts.
/// @throws std::invalid_argument if the text is not a sequencer.
compare guard(std::string_view sequencer);

/// The same; accepts only sequencers of lock `name`.
/// @throws std::invalid_argument also if it belongs to another lock.
compare guard(std::string_view name, std::string_view sequencer);

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/sequencer.hpp>
#endif
