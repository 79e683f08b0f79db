// SPDX-License-Identifier: BSL-1.0
// What docs/pages/recipes/transactions.md shows.
#include <coetcd/client.hpp>
#include <coetcd/counter.hpp>
#include <coetcd/exactly_once.hpp>
#include <coetcd/sequence.hpp>
#include <coetcd/session.hpp>
#include <coetcd/stm.hpp>
#include <coetcd/value.hpp>

#include <boost/asio/awaitable.hpp>

#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace asio = boost::asio;

namespace manual {

asio::awaitable<void> transactions_smallest(coetcd::session& session) {
    auto transfer = [](coetcd::transaction& t) -> asio::awaitable<void> {
        const auto from = co_await t.get("accounts/a");
        const auto to = co_await t.get("accounts/b");
        t.put("accounts/a", std::to_string(std::stoi(*from) - 30));
        t.put("accounts/b", std::to_string(std::stoi(*to) + 30));
    };
    co_await coetcd::stm(session, transfer); // run again if somebody was faster; paid once
}

asio::awaitable<int> transactions_result(coetcd::client client) {
    auto total = [](coetcd::transaction& t) -> asio::awaitable<int> {
        int sum = 0;
        const auto accounts = coetcd::key_range::prefix("accounts/");
        const std::vector<coetcd::key_value> found = co_await t.range(accounts);
        for (const coetcd::key_value& account : found) {
            sum += std::stoi(account.value);
        }
        co_return sum;
    };
    const int all = co_await coetcd::stm(client, total); // it writes nothing: no session needed
    co_return all;
}

asio::awaitable<void> transactions_options(coetcd::session& session) {
    auto transfer = [](coetcd::transaction& t) -> asio::awaitable<void> {
        const auto from = co_await t.get("accounts/a");
        t.put("accounts/b", from.value_or("0"));
    };
    coetcd::stm_options options(coetcd::isolation::serializable);
    options.prefetch = {"accounts/a", "accounts/b"}; // one round trip for both
    options.attempts = 50;
    co_await coetcd::stm(session, transfer, options);
}

asio::awaitable<void> transactions_sequence(coetcd::session& session) {
    coetcd::sequence invoices(session, "invoices");
    const std::int64_t number = co_await invoices.next(); // 1, 2, 3 ... by whichever process
    std::cout << "invoice " << number << '\n';
}

asio::awaitable<void> transactions_counter(coetcd::session& session) {
    coetcd::counter visitors(session, "visitors");
    const std::int64_t sum = co_await visitors.add(); // or add(-1)
    std::cout << sum << " visitors\n";
}

asio::awaitable<void> transactions_value(coetcd::session& session) {
    coetcd::value theme(session, "theme");
    const std::optional<coetcd::key_value> now = co_await theme.get();
    const std::int64_t seen = now ? now->mod_revision : 0;
    const auto written = co_await theme.compare_exchange(seen, "dark");
    if (!written) {
        std::cout << "somebody else has written meanwhile\n";
    }

    coetcd::value_feed changes = theme.changes();
    const std::optional<coetcd::key_value> first = co_await changes.next(); // at once
    const std::optional<coetcd::key_value> next = co_await changes.next();  // with the next change
    std::cout << (first ? first->value : "") << ", " << (next ? next->value : "") << '\n';
}

asio::awaitable<bool> transactions_exactly_once(coetcd::session& session) {
    coetcd::exactly_once writer(session, "shop");
    coetcd::txn sale = coetcd::txn()
                           .when(coetcd::compare::value("stock") == "7")
                           .then(coetcd::op::put("stock", "6"));
    const coetcd::txn_outcome sold = co_await writer.txn(std::move(sale));
    co_return sold.succeeded; // its condition held
}

} // namespace manual
