// SPDX-License-Identifier: BSL-1.0
#include "hold.hpp"

#include <coetcd/admin.hpp>
#include <coetcd/as_result.hpp>
#include <coetcd/election.hpp>
#include <coetcd/error.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/observer.hpp>
#include <coetcd/printable.hpp>
#include <coetcd/semaphore.hpp>
#include <coetcd/session.hpp>
#include <coetcd/shared_mutex.hpp>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/experimental/parallel_group.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <nlohmann/json.hpp>

#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <sys/types.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "child.hpp"
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

awaitable<session> open(client c, double ttl, std::string label) {
    const auto whole = std::chrono::seconds(std::llround(std::ceil(ttl)));
    coetcd::session_options options(whole, label.empty() ? default_label() : std::move(label));
    return session::open(c, std::move(options));
}

/// What is held, for the command's environment; and whether it still is.
struct grip {
    std::vector<std::string> keys; ///< By which it is held; the first one stands for it.
    std::int64_t token = 0;        ///< Their create_revision.
    std::function<bool()> lasts;
};

/// How a command has ended by itself.
struct end {
    std::optional<int> status;    ///< If that was held then, as far as we knew.
    std::optional<bool> was_held; ///< What etcd says of that, if it answers.
    std::optional<pid_t> group;   ///< Of the command.
};

awaitable<void> ask_etcd(client c, grip what, std::optional<bool>& is_held) {
    coetcd::txn look;
    for (const std::string& key : what.keys) {
        look.compares.push_back(coetcd::compare::create_revision(key) == what.token);
    }
    const coetcd::txn_response found = co_await c.txn(std::move(look));
    is_held = found.succeeded;
}

/// Whether etcd says that it is held. It has a second to answer.
awaitable<std::optional<bool>> is_held(client c, grip what) {
    const auto executor = co_await asio::this_coro::executor;
    std::optional<bool> answer;
    asio::steady_timer patience(executor, std::chrono::seconds(1));
    auto either = asio::experimental::make_parallel_group(
        asio::co_spawn(executor, ask_etcd(std::move(c), std::move(what), answer), asio::deferred),
        patience.async_wait(asio::deferred));
    (void)co_await either.async_wait(asio::experimental::wait_for_one(),
                                     asio::as_tuple(asio::use_awaitable));
    co_return answer;
}

/// The password is not the command's, if it is not asked to be.
void hide_password(child::variables& environment) {
    environment.emplace_back("ETCDCTL_PASSWORD", std::nullopt);
    if (const char* const user = std::getenv("ETCDCTL_USER"); user != nullptr) {
        const std::string both = user; // `name`, or `name:password`
        environment.emplace_back("ETCDCTL_USER", both.substr(0, both.find(':')));
    }
}

/// Stores for `top` and `who`, beside what else is done, since when it is held. If that fails, they
/// do not know; it goes with the lease.
class since_now {
public:
    since_now(client c, asio::any_io_executor on, const std::string& name, const entry& what) {
        coetcd::put_options options;
        options.lease = what.lease;
        const auto now = std::chrono::system_clock::now();
        auto storing = c.put(since_key(name, what.lease), since_value(what.token, now), options);
        asio::co_spawn(on,
                       std::move(storing),
                       asio::bind_cancellation_slot(stop_->slot(), [stop = stop_](auto&&...) {}));
    }
    ~since_now() { stop_->emit(asio::cancellation_type::terminal); }
    since_now(const since_now&) = delete;
    since_now& operator=(const since_now&) = delete;

private:
    std::shared_ptr<asio::cancellation_signal> stop_ =
        std::make_shared<asio::cancellation_signal>();
};

int over(const std::string& name) {
    note(coetcd::printable(name) + ": --max-hold is over");
    return child::has_escaped() ? lost_and_runs : lost;
}

/// Runs the command; or shows the key, and waits to be cancelled.
/// @param ended If the command has ended by itself while this was held, what fails then changes
///   nothing about its status.
awaitable<int>
use(client c, const hold_options& how, coetcd::lease_id lease, grip what, end& ended) {
    const auto executor = co_await asio::this_coro::executor;
    entry held;
    held.lease = lease;
    held.token = what.token;
    const since_now storing(c, executor, how.name, held);
    asio::steady_timer limit(executor, asio::steady_timer::time_point::max());
    if (how.max_hold > 0) {
        limit.expires_after(milliseconds(how.max_hold));
    }
    if (how.command.empty()) {
        const std::string& key = what.keys.front();
        auto saying = tell((::isatty(STDOUT_FILENO) != 0 ? coetcd::printable(key) : key) + '\n');
        auto either = asio::experimental::make_parallel_group(
            asio::co_spawn(executor, std::move(saying), asio::deferred),
            limit.async_wait(asio::deferred));
        const auto how_it_went =
            co_await either.async_wait(asio::experimental::wait_for_one(), asio::use_awaitable);
        const auto& [first, unsaid, limited] = how_it_went;
        const asio::cancellation_state stop = co_await asio::this_coro::cancellation_state;
        if (stop.cancelled() != asio::cancellation_type::none) {
            co_return well; // a signal, or a loss; perhaps before it began to write
        }
        if (first[0] == 0 && unsaid) {
            std::rethrow_exception(unsaid);
        }
        const auto [unlimited] = co_await limit.async_wait(asio::as_tuple(asio::use_awaitable));
        co_return unlimited ? well : over(how.name);
    }
    child::variables more{{"COETCD_LOCK_KEY", what.keys.front()},
                          {"COETCD_FENCING_TOKEN", std::to_string(what.token)},
                          {"COETCD_LEASE", hex(lease)}};
    if (!how.keep_password) {
        hide_password(more);
    }
    child running(executor, how.command, more, what.lasts);
    auto to_its_end = child::run(running, milliseconds(how.grace));
    // The limit stops the command as a loss does: what is held is not given back before.
    auto both = asio::experimental::make_parallel_group(
        asio::co_spawn(executor, std::move(to_its_end), asio::deferred),
        limit.async_wait(asio::deferred));
    const auto how_it_ended =
        co_await both.async_wait(asio::experimental::wait_for_one(), asio::use_awaitable);
    const auto& [order, failure, status, unlimited] = how_it_ended;
    if (failure) {
        std::rethrow_exception(failure);
    }
    if (!running.was_stopped()) {
        ended.group = running.group();
    }
    if (!running.was_stopped() && what.lasts()) { // we may have stood still
        ended.status = status;
        co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
        ended.was_held = co_await is_held(c, what);
        if (ended.was_held == false) { // a signal could keep us from finding that out
            throw coetcd::error(coetcd::errc::lock_lost, coetcd::printable(how.name));
        }
    }
    co_return order[0] == 0 || unlimited || !running.was_stopped() ? status : over(how.name);
}

class troubles final : public coetcd::observer {
public:
    void on_connection(const coetcd::connection_report& r) override {
        std::set<std::string>& told = told_[std::string(r.endpoint)];
        if (r.what == coetcd::connection_report::failed) {
            const std::string more = r.text.empty() ? "" : ": " + std::string(r.text);
            std::string why = in_flags(r.reason.message() + more);
            if (told.size() < most_told && told.insert(why).second) {
                note(coetcd::printable(r.endpoint) + ": " + why);
            }
        }
    }
    void on_request(const coetcd::request_report& r) override {
        if (!r.outcome) {
            told_.erase(std::string(r.endpoint));
        }
    }

private:
    static constexpr std::size_t most_told = 10; ///< Of each endpoint, until it can be reached.
    std::map<std::string, std::set<std::string>> told_;
};

/// Tells who is before us, if that can be known.
awaitable<void> tell_queue(client c, const std::string& whole_name) {
    const std::string name = coetcd::printable(whole_name);
    queue q;
    try {
        q = co_await read_queue(c, whole_name);
    } catch (const coetcd::error& e) {
        note(name + ": who has it is not known: " + in_flags(e.what()));
    }
    for (const entry& e : q.holders) {
        note(name + ": " + describe(e) + " has it");
    }
    for (const entry& e : q.waiters) {
        note(name + ": " + describe(e) + " waits");
    }
    for (const auto& [key, revision] : q.strays) {
        note(in_the_way(q.name, key));
    }
}

/// Waits until a timer has expired, though that may be put off meanwhile.
awaitable<void> wait_until_expired(asio::steady_timer& timer) {
    while (timer.expiry() > std::chrono::steady_clock::now()) {
        (void)co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
    }
}

/// As `tell_queue`, until a timer has expired. One that has expired at the beginning of time says
/// that nobody wants it any more.
awaitable<void> tell_queue_until(asio::steady_timer& timer, client c, const std::string& name) {
    const auto executor = co_await asio::this_coro::executor;
    auto either = asio::experimental::make_parallel_group(
        asio::co_spawn(executor, tell_queue(std::move(c), name), asio::deferred),
        asio::co_spawn(executor, wait_until_expired(timer), asio::deferred));
    const auto how_it_ended =
        co_await either.async_wait(asio::experimental::wait_for_one(), asio::use_awaitable);
    const auto& [order, untold, cancelled] = how_it_ended;
    const bool is_over = timer.expiry() == asio::steady_timer::time_point::min();
    if (order[0] == 0 && untold) {
        std::rethrow_exception(untold);
    }
    if (order[0] == 1 && !cancelled && !is_over) {
        note(coetcd::printable(name) + ": who has it is not known: etcd has not told it in time");
    }
}

/// Opens the session, and with `-v` tells meanwhile who is before us: so it takes no longer to find
/// out that etcd does not answer. That has a second more than the session.
awaitable<session> begin(client c, const hold_options& how) {
    if (!how.verbose) {
        co_return co_await open(c, how.ttl, how.label);
    }
    const auto executor = co_await asio::this_coro::executor;
    asio::steady_timer patience(executor, asio::steady_timer::time_point::max());
    std::optional<session> opened;
    auto opening = [&]() -> awaitable<void> {
        try {
            session s = co_await open(c, how.ttl, how.label);
            opened.emplace(std::move(s));
        } catch (...) {
            patience.expires_at(asio::steady_timer::time_point::min());
            throw;
        }
        patience.expires_after(std::chrono::seconds(1));
    };
    auto both = asio::experimental::make_parallel_group(
        asio::co_spawn(executor, tell_queue_until(patience, c, how.name), asio::deferred),
        asio::co_spawn(executor, opening(), asio::deferred));
    const auto how_they_ended =
        co_await both.async_wait(asio::experimental::wait_for_all(), asio::use_awaitable);
    const auto& [order, untold, failure] = how_they_ended;
    for (const std::exception_ptr& each : {failure, untold}) {
        if (each) {
            std::rethrow_exception(each);
        }
    }
    co_return std::move(*opened);
}

/// To be called by the handler of this error.
/// @returns The status of a command that had ended before. Without one, the error goes on, and what
///   a command has left does not.
int status_in_spite(const coetcd::error& e, const std::string& name, const end& ended) {
    const bool was_held = ended.was_held == true;
    // That may be known only now; else what is on the way may have asked twice to give it back.
    const bool was_lost =
        ended.was_held == false || (e.code() == coetcd::errc::lock_lost && !was_held);
    if (!ended.status || was_lost) {
        if (ended.group) {
            child::kill_the_rest_of(*ended.group);
        }
        throw;
    }
    if (!was_held || e.code() != coetcd::condition::ownership_lost) {
        note(coetcd::printable(name) +
             ": is not given back, and lasts for its ttl at most: " + in_flags(e.what()));
    }
    return *ended.status;
}

/// Ends a session in the end. All is done then: that this fails is told, and changes no status.
awaitable<void> give_back(session s, std::string name) {
    try {
        co_await s.close();
    } catch (const coetcd::error& e) {
        note(coetcd::printable(name) +
             ": its lease is not given back, and lasts for its ttl: " + in_flags(e.what()));
    }
}

/// What it comes to: the status of the command, or that there was no place for us.
int outcome(const hold_options& how, const std::optional<int>& status) {
    if (!status && how.timeout && *how.timeout > 0) {
        note(coetcd::printable(how.name) + ": was not to be had within --timeout");
    }
    return status.value_or(not_had);
}

} // namespace

std::shared_ptr<coetcd::observer> troubles_if(bool told) {
    return told ? std::make_shared<troubles>() : nullptr;
}

awaitable<int> lock(client c, lock_flags how) {
    session s = co_await begin(c, how);
    const coetcd::lease_id lease = s.lease();
    end ended;
    auto body = [&](const coetcd::held_lock& held) -> awaitable<int> {
        std::vector<std::string> keys{held.key()};
        if (!how.shared) {
            keys = keys_of_writer(how.name, held.key());
        }
        grip what{keys, held.fencing_token(), [&held] { return held.owns_lock(); }};
        return use(c, how, lease, std::move(what), ended);
    };
    coetcd::shared_mutex_options options;
    options.watch_while_held = true; // `coetcd unlock` is to end it at once
    coetcd::shared_mutex m(s, how.name, options);
    std::optional<int> status;
    try {
        if (how.shared && how.timeout) {
            status = co_await coetcd::with_lock_shared_for(m, milliseconds(*how.timeout), body);
        } else if (how.shared) {
            status = co_await coetcd::with_lock_shared(m, body);
        } else if (how.timeout) {
            status = co_await coetcd::with_lock_for(m, milliseconds(*how.timeout), body);
        } else {
            status = co_await coetcd::with_lock(m, body);
        }
    } catch (const coetcd::error& e) {
        status = status_in_spite(e, how.name, ended);
    }
    co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    const int result = outcome(how, status);
    co_await give_back(std::move(s), how.name); // also after a signal
    co_return result;
}

awaitable<int> elect(client c, elect_flags how) {
    session s = co_await begin(c, how);
    const coetcd::lease_id lease = s.lease();
    end ended;
    auto body = [&](const coetcd::leadership& term) -> awaitable<int> {
        grip what{{term.key()}, term.term(), [&term] { return term.leads(); }};
        return use(c, how, lease, std::move(what), ended);
    };
    coetcd::election office(s, how.name);
    int status = 0;
    try {
        status = co_await coetcd::lead(office, how.value, body);
    } catch (const coetcd::error& e) {
        status = status_in_spite(e, how.name, ended);
    }
    co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    co_await give_back(std::move(s), how.name); // also after a signal
    co_return status;
}

awaitable<int> take_permits(client c, semaphore_flags how) {
    session s = co_await begin(c, how);
    const coetcd::lease_id lease = s.lease();
    end ended;
    auto body = [&](const coetcd::permit& held) -> awaitable<int> {
        grip what{keys_of_permits(how.name, held.key(), how.permits), held.token(), [&held] {
                      return held.owns_lock();
                  }};
        return use(c, how, lease, std::move(what), ended);
    };
    coetcd::semaphore permits(s, how.name, how.limit);
    std::optional<int> status;
    if (how.permits > how.limit) { // that would store a limit for which it is refused
        const coetcd::semaphore_state now = co_await permits.state();
        if (how.permits > now.limit) {
            note(coetcd::printable(how.name) + ": --permits " + std::to_string(how.permits) +
                 " is more than the limit, " + std::to_string(now.limit) +
                 ": raise it, with --limit if none is stored yet, else with --set-limit");
            co_await give_back(std::move(s), how.name);
            co_return unavailable;
        }
    }
    try {
        if (how.timeout) {
            const auto patience = milliseconds(*how.timeout);
            status = co_await coetcd::with_permits_for(permits, how.permits, patience, body);
        } else {
            status = co_await coetcd::with_permits(permits, how.permits, body);
        }
    } catch (const coetcd::error& e) {
        status = status_in_spite(e, how.name, ended);
    }
    co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    const int result = outcome(how, status);
    co_await give_back(std::move(s), how.name); // also after a signal
    co_return result;
}

awaitable<int> set_limit(client c, std::string name, std::int64_t limit) {
    session s = co_await open(c, 10, "");
    coetcd::semaphore permits(s, name, limit);
    co_await permits.set_limit(limit);
    co_await give_back(std::move(s), name);
    co_return well;
}

awaitable<int> ask(client c, std::string name, double ttl) {
    const queue found = co_await read_queue(c, name);
    if (const std::optional<std::string> why = why_not_asked(found)) {
        note(*why);
        co_return not_had;
    }
    session s = co_await open(c, ttl, "");
    const std::optional<std::int64_t> token = co_await coetcd::request_release(s, name);
    if (!token) {
        note(coetcd::printable(name) + ": nobody has it");
        co_await give_back(std::move(s), name);
        co_return not_had;
    }
    (void)s.orphan(); // the request stands until the lease ends
    co_await tell(std::to_string(*token) + '\n');
    co_return well;
}

/// A feed waits as long as it takes, whatever answers: something that is no etcd, perhaps.
awaitable<void> say_if_no_answer(client c, std::string name) {
    coetcd::range_options any;
    any.limit = 1;
    any.keys_only = true;
    const auto queue = coetcd::key_range::prefix(name + "/");
    const auto asked = co_await coetcd::as_result(c.range(queue, any));
    if (asked) {
        co_return;
    }
    const coetcd::failure& why = asked.error();
    if (why.is_cancelled()) {
        why.rethrow();
    }
    // Otherwise the feed ends, too, and says why.
    if (why.code() == coetcd::condition::retryable || why.code() == coetcd::errc::protocol_error) {
        note(in_flags(why.text()) + "; still waiting");
    }
}

awaitable<int> listen(client c, std::string name, bool as_json) {
    co_await say_if_no_answer(c, name);
    coetcd::leader_feed news = coetcd::observe(c, name);
    bool was_nobody = false;
    for (;;) {
        auto now = co_await news.next();
        if (now && !is_candidate(name, now->key, now->lease)) {
            now.reset(); // candidates wait for that key
        }
        if (std::exchange(was_nobody, !now) && !now) {
            continue;
        }
        std::string line = now ? coetcd::printable(now->value) : "nobody";
        if (as_json) {
            nlohmann::json j{{"leader", nullptr}};
            if (now) {
                j = {{"leader", now->value}, {"key", now->key}, {"term", now->term}};
            }
            line = text_of(j);
        }
        co_await tell(line + '\n');
    }
}

} // namespace tool
