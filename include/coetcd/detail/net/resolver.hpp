// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/env.hpp>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace coetcd::detail::net {

using tcp = asio::ip::tcp;

/// Looks names up, and remembers. A lookup in the system's resolver cannot be stopped, so it runs
/// by itself: a waiter can be cancelled or time out, and a later call finds its result.
class resolver {
public:
    struct result {
        error_code ec;
        std::vector<tcp::endpoint> addresses; ///< Not empty if `ec` is clear.
    };

    explicit resolver(env& world)
        : env_(world) {}

    asio::awaitable<result> lookup(std::string host, std::uint16_t port, time_point deadline) {
        result found;
        error_code not_numeric;
        const asio::ip::address address = asio::ip::make_address(host, not_numeric);
        if (!not_numeric) {
            found.addresses.emplace_back(address, port);
            co_return found;
        }
        const std::shared_ptr<record> entry = refresh(host);
        // An old answer is better than none: it serves while the name is looked up anew.
        while (entry->pending && entry->addresses.empty()) {
            const bool in_time = co_await entry->done.wait(deadline);
            if (!in_time) {
                found.ec = errc::timed_out;
                co_return found;
            }
        }
        found.ec = entry->addresses.empty() ? entry->failure : error_code();
        for (const asio::ip::address& a : entry->addresses) {
            found.addresses.emplace_back(a, port);
        }
        co_return found;
    }

private:
    struct record {
        explicit record(env& world)
            : done(world) {}
        std::vector<asio::ip::address> addresses; // of the last lookup that found some
        error_code failure;
        time_point looked_up = time_point::min();
        bool pending = false;
        notifier done;
    };

    static constexpr std::chrono::seconds fresh{10};

    /// The record of a host, with a lookup under way if it is not fresh.
    std::shared_ptr<record> refresh(const std::string& host) {
        std::shared_ptr<record>& entry = records_[host];
        if (!entry) {
            entry = std::make_shared<record>(env_);
        }
        const bool stale = entry->looked_up == time_point::min() || entry->addresses.empty() ||
                           env_.now() - entry->looked_up > fresh;
        if (stale && !entry->pending) {
            entry->pending = true;
            entry->looked_up = env_.now();
            auto lookup = std::make_shared<tcp::resolver>(env_.executor());
            lookup->async_resolve(
                host, "", [lookup, entry](const error_code& ec, tcp::resolver::results_type found) {
                    entry->pending = false;
                    entry->failure = ec;
                    if (!ec) {
                        entry->addresses.clear();
                        for (const auto& f : found) {
                            entry->addresses.push_back(f.endpoint().address());
                        }
                    }
                    entry->done.notify_all();
                });
        }
        return entry;
    }

    env& env_;
    std::map<std::string, std::shared_ptr<record>> records_;
};

} // namespace coetcd::detail::net
