// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/mutex.hpp>

#include <boost/asio/awaitable.hpp>

#include <optional>
#include <string>

namespace coetcd {

/// The value of a lock: what each holder leaves to the next, such as how far it came.
///
///     coetcd::mutex mutex(session, "import", {.value = true});
///     const coetcd::held_lock held = co_await mutex.scoped_lock();
///     const std::optional<std::string> last = co_await coetcd::get_value(held);
///     const std::string next = co_await import_from(last.value_or("the beginning"));
///     co_await coetcd::set_value(held, next);
///
/// With `lock_options::value`, a lock that is free brings its value with the grant. So does one
/// that was waited for, if etcd had to be asked once more; as a rule it is granted by the end of
/// its last holder, and then `get_value` asks. A holder that has set the value knows it.
///
/// The value is the key `<name>.value`, without a lease: it outlives each holder, and its session.
/// It stays there until somebody deletes it; nobody may do that while the lock is held.
///
/// @returns What the last holder has left; nothing if nobody has set it. No round trip if it is
///   known; else one, and more if a member answers with what it was before this session has changed
///   it. No other holder has changed it meanwhile.
/// @throws error with `errc::not_owner` if the lock was given back; with the code of its loss, as
///   `held_lock::wait_lost`; otherwise as `client`.
/// @par Cancellation
/// `terminal`.
boost::asio::awaitable<std::optional<std::string>> get_value(const held_lock& held);

/// Sets the value, if the lock is still held when etcd carries it out: a holder that was overtaken
/// changes nothing. One round trip; two if the value is not known, and one more for each coroutine
/// that changes it at the same time by the same hold.
/// @throws std::invalid_argument if it is longer than 16 KiB: 60 grants may share an answer.
/// @throws std::logic_error if the lock is only held to read.
/// @throws error as `get_value`; with `errc::outcome_unknown` if the answer is lost: then it may
///   change until the next `set_value`, or the next holder has the lock.
/// @par Cancellation
/// `terminal`. As with `errc::outcome_unknown`.
boost::asio::awaitable<void> set_value(const held_lock& held, std::string value);

/// What the last holder of that lock has left, for anybody. It may change at any moment. One round
/// trip.
/// @throws std::invalid_argument if `name` is empty or longer than 512 bytes.
/// @throws error as `client`.
/// @par Cancellation
/// `terminal`.
boost::asio::awaitable<std::optional<std::string>> get_value(const client& by,
                                                             const std::string& name);

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/lock_value.hpp>
#endif
