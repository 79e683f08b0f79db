// SPDX-License-Identifier: BSL-1.0
#include "support/test_program.hpp"

int main(int argc, char** argv) {
    return support::run_test_program(argc, argv);
}
