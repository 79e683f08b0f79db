// SPDX-License-Identifier: BSL-1.0
#include "harness.hpp"

int faults::run_writer(const std::vector<std::string>&) {
    return 0;
}
