// SPDX-License-Identifier: BSL-1.0
#include <iostream>

#include "support/network.hpp"
#include "support/test_program.hpp"

int main(int argc, char** argv) {
    if (!support::enter_private_network()) {
        std::cout << "skipped: cluster: it needs root, for a network of its own\n";
        return 0;
    }
    return support::run_test_program(argc, argv);
}
