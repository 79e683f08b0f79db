// SPDX-License-Identifier: BSL-1.0
// A body that is no coroutine, or takes something else, is told so in one sentence.
// error: the body is to be a coroutine
// errors: 5
#include <coetcd.hpp>

#include <chrono>
#include <utility>

#ifdef COETCD_SHOULD_FAIL
using nothing = void;
inline nothing plain() {}
inline int number(const coetcd::held_lock&) {
    return 1;
}
inline boost::asio::awaitable<void> takes_another(int) {
    co_return;
}
inline boost::asio::awaitable<void> changes_it(coetcd::held_lock&) {
    co_return;
}
#else
inline boost::asio::awaitable<void> plain() {
    co_return;
}
inline boost::asio::awaitable<int> number(const coetcd::held_lock&) {
    co_return 1;
}
inline boost::asio::awaitable<void> takes_another(const coetcd::permit&) {
    co_return;
}
inline boost::asio::awaitable<void> changes_it(const coetcd::held_lock&) {
    co_return;
}
#endif

boost::asio::awaitable<void> f(coetcd::client& c,
                               coetcd::session_keeper& k,
                               coetcd::mutex& m,
                               coetcd::semaphore& s,
                               coetcd::election& e) {
    co_await coetcd::with_lock(m, plain);
    (void)co_await coetcd::with_lock_for(m, std::chrono::seconds(1), number);
    (void)co_await coetcd::with_permits_for(s, 1, std::chrono::seconds(1), takes_another);
    co_await coetcd::with_lock(k, "m", changes_it);
    co_await coetcd::lead(e, "me", plain);
    co_await coetcd::lead(c, "name", "me", plain);
}
