// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "go_client.hpp"
#include "support/async.hpp"

/// A list in etcd, to which each owner of a lock adds its token, in a round trip to read it and
/// another one to write it: if two own the lock at a time, one of their tokens gets lost.
namespace interop {

awaitable<void> add_turn(coetcd::client c, std::string list, std::int64_t token);
awaitable<std::vector<std::int64_t>> turns_of(coetcd::client c, std::string list);
bool grow(const std::vector<std::int64_t>& turns);

/// A session of the Go client takes so many turns. The list is `<name>-list`.
/// @param what `mutex`, `election` or `write`; or `look`, which reads and sees that nothing is
/// written.
awaitable<void> go_turns(const go_client& go, std::string what, std::string name, int times);
/// `etcdctl lock` runs a command that takes a turn.
awaitable<void> etcdctl_turn(std::string name);

} // namespace interop
