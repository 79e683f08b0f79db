// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <map>
#include <memory>

#include "sim/etcd.hpp"
#include "support/scripted_env.hpp"

namespace support {

/// The simulator's etcd behind a `scripted_env`. It has one member, leases end and history is sent
/// without delay, and it has no failures of its own: those are the env's.
class fake_etcd : public sim::etcd {
public:
    /// Serves `world` from now on. Must live until that is idle.
    explicit fake_etcd(std::shared_ptr<scripted_env> world);

    bool renews = true; ///< Else renewals are refused.

private:
    void serve(const coetcd::detail::call_request& request, coetcd::detail::reply& reply);
    void listen(const std::shared_ptr<scripted_env::server_stream>& from, const std::string& lines);

    std::shared_ptr<scripted_env> world_;
    std::map<const scripted_env::server_stream*, std::uint64_t> streams_;
};

} // namespace support
