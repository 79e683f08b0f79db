// SPDX-License-Identifier: BSL-1.0
// A guard that is not kept lets the lock go at once.
// error: nodiscard
// compiler: clang
#include <coetcd/mutex.hpp>

boost::asio::awaitable<void> f(coetcd::mutex& m) {
#ifdef COETCD_SHOULD_FAIL
    co_await m.scoped_lock();
#else
    auto held = co_await m.scoped_lock();
#endif
}
