// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdlib>
#include <string>

namespace support {

/// A variable of this process's environment; if it is empty, or there is none, `otherwise`.
inline std::string environment(const char* variable, const char* otherwise = "") {
    const char* value = std::getenv(variable);
    return value != nullptr && *value != '\0' ? value : otherwise;
}

/// The program that is run as etcdctl.
inline std::string etcdctl_program() {
    return environment("COETCD_ETCDCTL", "etcdctl");
}

} // namespace support
