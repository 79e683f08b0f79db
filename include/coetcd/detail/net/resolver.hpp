// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/addresses.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/system/system_error.hpp>

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
using logic::addresses;

/// Looks up one name, and tells the addresses later.
using lookup_function =
    std::function<void(const std::string& host, std::function<void(error_code, addresses)>)>;

/// The lookup of the system.
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

/// Looks up names, and remembers them. A lookup in the system's resolver cannot be stopped, so it
/// runs by itself: a waiter can be cancelled or time out, and a later call finds its result.
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
        const logic::name_record<time_point>& state = entry->state;
        const time_point until = state.patience(env_.now(), deadline);
        while (state.pending() && env_.now() < until) {
            (void)co_await entry->done.wait(until);
        }
        if (state.known().empty()) {
            found.ec = state.pending() ? make_error_code(errc::timed_out) : entry->failure;
        }
        for (const asio::ip::address& a : state.known()) {
            found.addresses.emplace_back(a, port);
        }
        co_return found;
    }

    /// An address of a name works: it comes first from now on.
    void prefer(const std::string& host, const asio::ip::address& one) {
        if (const auto found = records_.find(host); found != records_.end()) {
            found->second->state.prefer(one);
        }
    }
    /// An address does not work: it comes last.
    /// @returns Whether there may be another address: a known one, or one that a lookup would tell.
    bool avoid(const std::string& host, const asio::ip::address& one) {
        const auto found = records_.find(host);
        if (found == records_.end()) {
            return false;
        }
        logic::name_record<time_point>& state = found->second->state;
        state.avoid(one);
        return state.is_due(env_.now()) || (!state.known().empty() && state.known().front() != one);
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
        logic::name_record<time_point> state;
        error_code failure; // of the last lookup
        notifier done;
    };

    /// The record of a host, with a lookup under way if one is due.
    std::shared_ptr<record> refresh(const std::string& host) {
        std::shared_ptr<record>& entry = records_[host];
        if (!entry) {
            entry = std::make_shared<record>(env_);
        }
        if (entry->state.is_due(env_.now())) {
            entry->state.begin(env_.now());
            const auto tell = [entry](const error_code& ec, const addresses& found) {
                entry->failure = !ec && found.empty() ? asio::error::host_not_found : ec;
                if (entry->failure) {
                    entry->state.failed();
                } else {
                    entry->state.found(found);
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
