// SPDX-License-Identifier: BSL-1.0
// Runs a fuzz target over files that exist: with compilers that have no fuzzer of their own.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int main(int argc, char** argv) {
    std::size_t count = 0;
    for (int i = 1; i < argc; ++i) {
        for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
            if (entry.is_regular_file()) {
                std::ifstream file(entry.path(), std::ios::binary);
                const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
                (void)LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                             bytes.size());
                ++count;
            }
        }
    }
    std::cout << count << " inputs\n";
    return count == 0;
}
