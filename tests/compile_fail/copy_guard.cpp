// SPDX-License-Identifier: BSL-1.0
// A lock that is held has one owner.
// error: deleted (function|(copy )?constructor)
#include <coetcd/mutex.hpp>

#include <utility>

boost::asio::awaitable<void> f(coetcd::mutex& m) {
    auto held = co_await m.scoped_lock();
#ifdef COETCD_SHOULD_FAIL
    auto other = held;
#else
    auto other = std::move(held);
#endif
}
