// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace support {

/// Whether there is a test of this name, in any program.
inline bool has_test(const std::string& name) {
    static const std::string sources = [] {
        std::string all;
        const std::filesystem::path tests = COETCD_TESTS_DIRECTORY;
        for (const auto& entry : std::filesystem::recursive_directory_iterator(tests)) {
            if (entry.path().extension() == ".cpp") {
                std::ifstream in(entry.path());
                all.append(std::istreambuf_iterator<char>(in), {});
            }
        }
        return all;
    }();
    return sources.find("TEST_CASE(\"" + name + '"') != std::string::npos;
}

} // namespace support
