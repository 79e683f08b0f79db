// SPDX-License-Identifier: BSL-1.0
#include <cstring>

#include "bench/report.hpp"
#include "bench/worker.hpp"

int main(int argc, char** argv) {
    if (argc == 3 && std::strcmp(argv[1], "--worker") == 0) {
        return bench::work(argv[2]);
    }
    return bench::run_all({argv + 1, argv + argc});
}
