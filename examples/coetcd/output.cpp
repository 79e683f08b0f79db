// SPDX-License-Identifier: BSL-1.0
#include "output.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <string>

namespace tool {

void say(std::string_view line) {
    const bool written = std::fwrite(line.data(), 1, line.size(), stdout) == line.size() &&
                         std::fputc('\n', stdout) != EOF && std::fflush(stdout) == 0;
    if (!written) {
        throw output_error(std::string("standard output: ") + std::strerror(errno));
    }
}

void note(std::string_view line) {
    std::fprintf(stderr, "coetcd: %.*s\n", static_cast<int>(line.size()), line.data());
}

std::string hex(std::int64_t lease) {
    std::ostringstream text;
    text << std::hex << lease;
    return text.str();
}

} // namespace tool
