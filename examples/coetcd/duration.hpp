// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <map>
#include <string>

namespace tool {

/// Reads `90`, `90s`, `1.5m`, `250ms`, `1h30m`: a time in seconds, as a number.
inline CLI::Validator as_duration() {
    const auto read = [](std::string& text) -> std::string {
        static const std::map<std::string, double> units{
            {"", 1}, {"ms", 0.001}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
        double total = 0;
        std::string rest = text;
        do {
            std::size_t used = 0;
            double number = 0;
            try {
                number = std::stod(rest, &used);
            } catch (const std::exception&) {
                return "not a time: '" + text + "'; write 90s, 1.5m, 1h30m, 250ms";
            }
            const std::size_t end = rest.find_first_of("0123456789.", used);
            const auto unit = units.find(rest.substr(used, end - used));
            if (unit == units.end() || !std::isfinite(number) || number < 0 || number > 1e9) {
                return "not a time: '" + text + "'; write 90s, 1.5m, 1h30m, 250ms";
            }
            total += number * unit->second;
            rest = end == rest.npos ? "" : rest.substr(end);
        } while (!rest.empty());
        text = std::to_string(total);
        return "";
    };
    return CLI::Validator(read, "TIME");
}

inline std::chrono::milliseconds milliseconds(double seconds) {
    return std::chrono::milliseconds(std::llround(seconds * 1000));
}

} // namespace tool
