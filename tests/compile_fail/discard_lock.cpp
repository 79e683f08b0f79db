// SPDX-License-Identifier: BSL-1.0
// Nothing is locked without co_await.
// error: nodiscard
#include <coetcd/mutex.hpp>

boost::asio::awaitable<void> f(coetcd::mutex& m) {
#ifdef COETCD_SHOULD_FAIL
    m.scoped_lock();
#else
    auto held = co_await m.scoped_lock();
#endif
    co_await m.unlock();
}
