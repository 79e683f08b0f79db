// SPDX-License-Identifier: BSL-1.0
#include <iostream>

#include "go_client.hpp"
#include "support/test_program.hpp"

int main(int argc, char** argv) {
    if (!interop::can_run()) {
        std::cout << "skipped: interop: it needs programs in Go, which tests/run builds\n";
        return 0;
    }
    return support::run_test_program(argc, argv);
}
