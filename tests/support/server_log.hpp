// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <filesystem>
#include <string>

namespace support {

/// The log file of a server, which is printed if a test fails while this exists, or ends it.
class server_log {
public:
    server_log(std::string title, std::filesystem::path file);
    server_log(const server_log&) = delete;
    server_log& operator=(const server_log&) = delete;
    ~server_log();

    static std::string text(const std::filesystem::path& file);
    static std::string
    tail(const std::filesystem::path& file); ///< Enough of its end for a message.

private:
    friend std::string take_server_logs();
    const std::string title_;
    const std::filesystem::path file_;
};

/// The ends of the logs of all servers since the last call, for a test that failed.
std::string take_server_logs();

} // namespace support
