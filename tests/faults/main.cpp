// SPDX-License-Identifier: BSL-1.0
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "harness.hpp"
#include "support/network.hpp"
#include "support/test_program.hpp"

int main(int argc, char** argv) {
    if (argc == 3 && std::string(argv[1]) == "--client") {
        return faults::run_client(argv[2]);
    }
    if (argc >= 3 && std::string(argv[1]) == "--writer") {
        return faults::run_writer({argv + 2, argv + argc});
    }
    std::vector<char*> arguments;
    for (int i = 0; i < argc; ++i) {
        if (std::strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) {
            ::setenv("COETCD_FAULTS_SECONDS", argv[++i], 1);
        } else {
            arguments.push_back(argv[i]);
        }
    }
    if (!support::enter_private_network()) {
        std::cout << "skipped: faults: it needs root, for a network of its own\n";
        return 0;
    }
    faults::enter_private_names();
    arguments.push_back(nullptr);
    const int status =
        support::run_test_program(static_cast<int>(arguments.size()) - 1, arguments.data());
    faults::print_table();
    faults::drop_shared_cluster();
    return status;
}
