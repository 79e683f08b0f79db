// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string>

namespace support {

/// Leaves the network of the machine for one of this process's own, which holds loopback alone.
/// Nothing of what is done there is seen outside, or stays. Called before there is any thread.
/// @returns False if only root may do that.
bool enter_private_network();

/// Another network, for child processes: see `process_options`. It lives for as long as this object
/// or a process in it, and has no name.
class network_namespace {
public:
    network_namespace();
    network_namespace(network_namespace&& other) noexcept;
    network_namespace& operator=(network_namespace&&) = delete;
    ~network_namespace();
    int descriptor() const { return descriptor_; }

private:
    int descriptor_ = -1;
};

/// Runs a shell script: `ip`, `nft`.
/// @param network See `network_namespace::descriptor`; -1: this process's.
/// @returns What it printed.
/// @throws std::runtime_error with its text if it fails.
std::string run_script(const std::string& script, int network = -1);

} // namespace support
