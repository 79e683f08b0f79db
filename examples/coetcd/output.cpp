// SPDX-License-Identifier: BSL-1.0
#include "output.hpp"

#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iomanip>
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
    text << std::hex << std::setfill('0') << std::setw(16) << lease;
    return text.str();
}

std::string text_of(const nlohmann::json& j) {
    return j.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

} // namespace tool
