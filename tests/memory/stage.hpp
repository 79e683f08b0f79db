// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "memory/scarce.hpp"
#include "support/world.hpp"

namespace memory {

namespace asio = boost::asio;
using namespace std::chrono_literals;

/// An operation of the user's. It has ended when its handler was called; and when its handler has
/// gone, as Asio drops it if it cannot begin to wait: the loop's `run` has thrown then.
struct operation {
    bool called = false;
    bool dropped = false;
    std::exception_ptr failure;
    asio::cancellation_signal stop;

    bool ended() const { return called || dropped; }
    bool succeeded() const { return called && !failure; }
};

/// A client with a session, in a world in which an allocation fails: none of the world's own.
class stage {
public:
    stage();

    support::world world;
    coetcd::client client;
    std::optional<coetcd::session> session;
    std::optional<coetcd::mutex> mutex; ///< Of the session.
    std::shared_ptr<operation> lost;    ///< Waits for the end of the session.
    int escaped = 0;                    ///< Exceptions that have left the event loop.

    /// Lets time pass until `done`.
    /// @returns Whether it came to that.
    bool until(const std::function<bool()>& done, std::chrono::nanoseconds most = 5min);
    void pass(std::chrono::nanoseconds time);

    /// Begins an operation in a handler, so that its beginning may fail, too.
    std::shared_ptr<operation> start(std::function<asio::awaitable<void>()> make);
    /// Calls `f` in a handler. What it throws is taken.
    void call(std::function<void()> f);
    /// Waits for an operation that nothing is to keep from its end.
    void must(std::function<asio::awaitable<void>()> make);

    /// What others do, at once.
    void put(const std::string& key);
    void erase(const std::string& key);
    /// The key of another owner, which was there before.
    void put_key_of_others();
    void erase_key_of_others();
    /// Ends the lease of the session.
    void revoke_lease();
    bool is_alive() { return session->state() != coetcd::session_state::lost; }

    static const std::string name;
};

/// What is wrong; empty if nothing is.
using verdict = std::string;

struct scenario {
    const char* name;
    /// Before memory is short.
    std::function<void(stage&)> prepare;
    /// While it is. @returns What is wrong.
    std::function<verdict(stage&)> run;
    /// After that, besides what holds for all.
    std::function<verdict(stage&)> check;
};

const std::vector<scenario>& scenarios();
/// That nothing is in the way of others, that the session can be used if it lives, and closed; that
/// nothing waits any more when all is gone.
verdict look_back(stage& s);

} // namespace memory
