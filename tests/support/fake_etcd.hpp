// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/testing/etcd.hpp>
#include <coetcd/testing.hpp> // what is defined of it

#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "support/scripted_env.hpp"

namespace support {

/// The simulator's etcd behind a `scripted_env`. It has one member, leases end and history is sent
/// without delay, and it has no failures of its own: those are the env's.
class fake_etcd : public coetcd::detail::testing::etcd {
public:
    /// Serves `world` from now on. Must live until that is idle.
    explicit fake_etcd(std::shared_ptr<scripted_env> world);

    bool renews = true; ///< Else renewals are refused.

    /// What a stream with messages in both directions meets on its way.
    enum class way {
        direct,
        buffered, ///< A proxy that waits for the end of the request.
        refused,  ///< A proxy that wants to know the length of the request.
    };
    way duplex = way::direct;

    /// Those that have a watch.
    std::size_t streams() const { return watching_streams(); }

private:
    void serve(const coetcd::detail::call_request& request, coetcd::detail::reply& reply);
    void hear(const std::shared_ptr<scripted_env::server_stream>& from, const std::string& lines);

    std::shared_ptr<scripted_env> world_;
    std::map<const scripted_env::server_stream*, std::uint64_t> streams_;
};

} // namespace support
