// SPDX-License-Identifier: BSL-1.0
// What docs/pages/recipes/election.md shows.
#include <coetcd/client.hpp>
#include <coetcd/election.hpp>
#include <coetcd/printable.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <utility>

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace manual {

namespace {

asio::awaitable<void> schedule_jobs() {
    co_return;
}

} // namespace

asio::awaitable<void> election_smallest(coetcd::client client) {
    co_await coetcd::lead(client, "scheduler", "10.0.0.7", schedule_jobs);
}

asio::awaitable<void> election_options(coetcd::client client) {
    const coetcd::lead_options how{.ttl = 5s, .again = coetcd::again::always, .pause = 1s};
    co_await coetcd::lead(client, "scheduler", "10.0.0.7", schedule_jobs, how);
}

asio::awaitable<void> election_own_session(coetcd::session& session) {
    coetcd::election election(session, "scheduler");
    co_await coetcd::lead(election, "10.0.0.7", schedule_jobs); // one term
}

asio::awaitable<void> election_term(coetcd::election& election) {
    coetcd::leadership leadership = co_await election.campaign("10.0.0.7"); // waits its turn
    co_await leadership.proclaim("10.0.0.7, ready");                        // what observers see
    co_await leadership.resign();
}

asio::awaitable<bool> election_patience(coetcd::election& election) {
    const std::optional<coetcd::leadership> term = co_await election.campaign_for("10.0.0.7", 2s);
    if (!term) {
        const auto leader = co_await election.leader();
        std::cout << (leader ? coetcd::printable(leader->value) : "nobody") << " leads\n";
    }
    co_return term.has_value();
}

asio::awaitable<bool> election_guard(coetcd::client client, const coetcd::leadership& leadership) {
    coetcd::txn job =
        coetcd::txn().when(leadership.is_leader()).then(coetcd::op::put("jobs/last", "42"));
    const coetcd::txn_response answer = co_await client.txn(std::move(job));
    co_return answer.succeeded;
}

asio::awaitable<void> election_listen(coetcd::client client) {
    coetcd::leader_feed leaders = coetcd::observe(client, "scheduler");
    for (;;) {
        // The present one at once, then each change.
        const std::optional<coetcd::leader> leader = co_await leaders.next();
        std::cout << (leader ? coetcd::printable(leader->value) : "nobody") << " leads\n";
    }
}

asio::awaitable<bool>
election_successor(coetcd::session& adopted, std::string key, std::int64_t term) {
    coetcd::election election(adopted, "scheduler");
    std::optional<coetcd::leadership> ours = co_await election.resume(); // the term of our lease
    if (!ours) {
        ours = co_await election.resume(key, term); // one term that was written down
    }
    co_return ours.has_value();
}

} // namespace manual
