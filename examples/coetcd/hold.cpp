// SPDX-License-Identifier: BSL-1.0
#include "hold.hpp"

#include <coetcd/election.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/printable.hpp>
#include <coetcd/semaphore.hpp>
#include <coetcd/session.hpp>
#include <coetcd/shared_mutex.hpp>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <nlohmann/json.hpp>

#include <array>
#include <cmath>
#include <cstdlib>
#include <unistd.h>
#include <utility>

#include "child.hpp"
#include "duration.hpp"
#include "output.hpp"
#include "queues.hpp"

namespace tool {

namespace asio = boost::asio;
using asio::awaitable;
using coetcd::client;
using coetcd::session;

namespace {

std::string default_label() {
    std::array<char, 256> host{};
    (void)::gethostname(host.data(), host.size() - 1);
    const char* user = std::getenv("USER");
    return std::string(user != nullptr ? user : "uid " + std::to_string(::getuid())) + "@" +
           host.data() + " " + std::to_string(::getpid());
}

awaitable<session> open(client c, const hold_options& how) {
    const auto ttl = std::chrono::seconds(std::llround(std::ceil(how.ttl)));
    coetcd::session_options options(ttl, how.label.empty() ? default_label() : how.label);
    return session::open(c, std::move(options));
}

/// What is held, for the command's environment.
struct grip {
    std::string key;
    std::int64_t token = 0;
};

/// Runs the command; or shows the key, and waits to be cancelled.
awaitable<int> use(const hold_options& how, coetcd::lease_id lease, grip what) {
    const auto executor = co_await asio::this_coro::executor;
    if (how.command.empty()) {
        say(what.key);
        asio::steady_timer never(executor, asio::steady_timer::time_point::max());
        (void)co_await never.async_wait(asio::as_tuple(asio::use_awaitable)); // a signal, or a loss
        co_return well;
    }
    child::variables more{{"COETCD_LOCK_KEY", what.key},
                          {"COETCD_FENCING_TOKEN", std::to_string(what.token)},
                          {"COETCD_LEASE", hex(lease)}};
    child running(executor, how.command, more);
    co_return co_await child::run(running, milliseconds(how.grace));
}

/// Tells who is before us.
awaitable<void> tell_queue(client c, const hold_options& how) {
    if (!how.verbose) {
        co_return;
    }
    const queue q = co_await read_queue(c, how.name);
    const std::string name = coetcd::printable(how.name);
    for (const entry& e : q.holders) {
        note(name + ": " + describe(e) + " has it");
    }
    for (const entry& e : q.waiters) {
        note(name + ": " + describe(e) + " waits");
    }
}

} // namespace

awaitable<int> lock(client c, lock_flags how) {
    co_await tell_queue(c, how);
    session s = co_await open(c, how);
    const coetcd::lease_id lease = s.lease();
    auto body = [&](const coetcd::held_lock& held) -> awaitable<int> {
        grip what{held.key(), held.fencing_token()};
        return use(how, lease, std::move(what));
    };
    coetcd::lock_options options;
    options.watch_while_held = true; // `coetcd unlock` is to end it at once
    if (how.max_hold) {
        options.max_hold = milliseconds(*how.max_hold);
    }
    coetcd::shared_mutex m(s, how.name, options);
    std::optional<int> status;
    if (how.shared && how.timeout) {
        status = co_await coetcd::with_lock_shared_for(m, milliseconds(*how.timeout), body);
    } else if (how.shared) {
        status = co_await coetcd::with_lock_shared(m, body);
    } else if (how.timeout) {
        status = co_await coetcd::with_lock_for(m, milliseconds(*how.timeout), body);
    } else {
        status = co_await coetcd::with_lock(m, body);
    }
    co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    co_await s.close(); // also after a signal
    co_return status.value_or(not_had);
}

awaitable<int> elect(client c, elect_flags how) {
    co_await tell_queue(c, how);
    session s = co_await open(c, how);
    const coetcd::lease_id lease = s.lease();
    auto body = [&](const coetcd::leadership& term) -> awaitable<int> {
        grip what{term.key(), term.term()};
        return use(how, lease, std::move(what));
    };
    coetcd::election e(s, how.name);
    const int status = co_await coetcd::lead(e, how.value, body);
    co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    co_await s.close(); // also after a signal
    co_return status;
}

awaitable<int> take_permits(client c, semaphore_flags how) {
    co_await tell_queue(c, how);
    session s = co_await open(c, how);
    const coetcd::lease_id lease = s.lease();
    auto body = [&](const coetcd::permit& held) -> awaitable<int> {
        grip what{held.key(), held.token()};
        return use(how, lease, std::move(what));
    };
    coetcd::semaphore permits(s, how.name, how.limit);
    std::optional<int> status;
    if (how.timeout) {
        const auto patience = milliseconds(*how.timeout);
        status = co_await coetcd::with_permits_for(permits, how.permits, patience, body);
    } else {
        status = co_await coetcd::with_permits(permits, how.permits, body);
    }
    co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    co_await s.close(); // also after a signal
    co_return status.value_or(not_had);
}

awaitable<int> listen(client c, std::string name, bool as_json) {
    coetcd::leader_feed news = coetcd::observe(c, name);
    for (;;) {
        const auto now = co_await news.next();
        if (as_json) {
            nlohmann::json line{{"leader", nullptr}};
            if (now) {
                line = {{"leader", coetcd::printable(now->value)},
                        {"key", now->key},
                        {"term", now->term}};
            }
            say(line.dump());
        } else {
            say(now ? coetcd::printable(now->value) : "nobody");
        }
    }
}

} // namespace tool
