// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string>

#include "support/async.hpp"
#include "support/etcd_server.hpp"
#include "support/process.hpp"

namespace interop {

using support::awaitable;

/// Whether the programs are there that tests/run builds with Go: COETCD_GO_CLIENT and COETCD_JUDGE
/// name them.
bool can_run();

/// A process with etcd's Go client, which does what it is told: see tests/interop/go/main.go.
class go_client {
public:
    explicit go_client(const support::etcd_server& etcd);

    /// Waits for the end of a call, as `lock?session=a&name=m`. A cancellation cancels the call.
    /// @returns What the program answers.
    /// @throws std::runtime_error if the call failed, with what Go says.
    awaitable<std::string> call(std::string what) const { return call(port_, std::move(what)); }

    /// What one of its observers is told next.
    awaitable<std::string> told();

private:
    static awaitable<std::string> call(std::uint16_t port, std::string what);

    support::background_process process_;
    std::uint16_t port_ = 0;
};

/// The answer to a call that took something.
class entry {
public:
    /// @param text A key and its create_revision.
    explicit entry(const std::string& text);
    std::string key;
    std::int64_t token = 0;
};

} // namespace interop
