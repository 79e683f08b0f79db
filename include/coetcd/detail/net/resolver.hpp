// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/env.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/system/system_error.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail::net {

using tcp = asio::ip::tcp;
using addresses = std::vector<asio::ip::address>;

/// Looks one name up, and tells the addresses later.
using lookup_function =
    std::function<void(const std::string& host, std::function<void(error_code, addresses)>)>;

/// As the system does it.
inline lookup_function system_lookup(asio::any_io_executor executor) {
    return [executor](const std::string& host, std::function<void(error_code, addresses)> tell) {
        auto lookup = std::make_shared<tcp::resolver>(executor);
        lookup->async_resolve(
            host,
            "",
            [lookup, tell](const error_code& ec, const tcp::resolver::results_type& found) {
                addresses all;
                for (const auto& f : found) {
                    all.push_back(f.endpoint().address());
                }
                tell(ec, std::move(all));
            });
    };
}

/// What was found now, in the order in which it is known already, and then what is new.
inline addresses in_known_order(const addresses& known, addresses found) {
    const auto rank = [&](const asio::ip::address& a) {
        return std::find(known.begin(), known.end(), a) - known.begin();
    };
    std::stable_sort(found.begin(), found.end(), [&](const auto& a, const auto& b) {
        return rank(a) < rank(b);
    });
    return found;
}

/// Looks names up, and remembers. A lookup in the system's resolver cannot be stopped, so it runs
/// by itself: a waiter can be cancelled or time out, and a later call finds its result.
class resolver {
public:
    struct result {
        error_code ec;
        std::vector<tcp::endpoint> addresses; ///< Not empty if `ec` is clear.
    };

    /// @param how Empty: as the system does it.
    explicit resolver(env& world, lookup_function how = {})
        : env_(world)
        , look_up_(how ? std::move(how) : system_lookup(world.executor())) {}

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
        while (entry->pending && entry->known.empty()) {
            const bool in_time = co_await entry->done.wait(deadline);
            if (!in_time) {
                found.ec = errc::timed_out;
                co_return found;
            }
        }
        found.ec = entry->known.empty() ? entry->failure : error_code();
        for (const asio::ip::address& a : entry->known) {
            found.addresses.emplace_back(a, port);
        }
        co_return found;
    }

    /// An address of a name works: it comes first from now on.
    void prefer(const std::string& host, const asio::ip::address& one) {
        if (const auto found = records_.find(host); found != records_.end()) {
            addresses& all = found->second->known;
            if (!all.empty() && all.front() == one) {
                return; // as a rule
            }
            std::stable_partition(all.begin(), all.end(), [&](const auto& a) { return a == one; });
        }
    }
    /// It does not: it comes last.
    /// @returns Whether there is another one.
    bool avoid(const std::string& host, const asio::ip::address& one) {
        const auto found = records_.find(host);
        if (found == records_.end()) {
            return false;
        }
        addresses& all = found->second->known;
        std::stable_partition(all.begin(), all.end(), [&](const auto& a) { return a != one; });
        return !all.empty() && all.front() != one;
    }

    /// Forgets all names that are not `wanted`.
    template<class Wanted>
    void keep_only(Wanted wanted) {
        std::erase_if(records_, [&](const auto& r) { return !wanted(r.first); });
    }

private:
    struct record {
        explicit record(env& world)
            : done(world) {}
        addresses known; // of the last lookup that found some; the best first
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
        const bool stale = entry->looked_up == time_point::min() || entry->known.empty() ||
                           env_.now() - entry->looked_up > fresh;
        if (stale && !entry->pending) {
            entry->pending = true;
            entry->looked_up = env_.now();
            const auto tell = [entry](const error_code& ec, addresses found) {
                entry->pending = false;
                entry->failure = ec;
                if (!ec) {
                    entry->known = in_known_order(entry->known, std::move(found));
                }
                entry->done.notify_all();
            };
            try {
                look_up_(host, tell);
            } catch (const boost::system::system_error& e) { // Asio can start no thread for it
                tell(e.code(), {});
            } catch (const std::bad_alloc&) {
                tell(asio::error::no_memory, {});
            }
        }
        return entry;
    }

    env& env_;
    const lookup_function look_up_;
    std::map<std::string, std::shared_ptr<record>> records_;
};

} // namespace coetcd::detail::net
