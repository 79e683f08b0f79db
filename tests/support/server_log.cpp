// SPDX-License-Identifier: BSL-1.0
#include "support/server_log.hpp"

#include <cstddef>
#include <fstream>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

namespace support {
namespace {

// Servers now alive, and the logs of those that ended meanwhile.
struct log_registry {
    std::mutex mutex;
    std::vector<const server_log*> alive;
    std::string ended;
};

log_registry& registry() {
    static log_registry instance;
    return instance;
}

} // namespace

server_log::server_log(std::string title, std::filesystem::path file)
    : title_(std::move(title))
    , file_(std::move(file)) {
    const std::lock_guard lock(registry().mutex);
    registry().alive.push_back(this);
}

server_log::~server_log() {
    const std::lock_guard lock(registry().mutex);
    std::erase(registry().alive, this);
    registry().ended += "--- " + title_ + " (ended)\n" + tail(file_);
}

std::string server_log::text(const std::filesystem::path& file) {
    std::ifstream stream(file);
    return {std::istreambuf_iterator<char>(stream), {}};
}

std::string server_log::tail(const std::filesystem::path& file) {
    constexpr std::size_t limit = 4000;
    const auto all = text(file);
    return all.size() <= limit ? all : "...\n" + all.substr(all.size() - limit);
}

std::string take_server_logs() {
    const std::lock_guard lock(registry().mutex);
    auto result = std::exchange(registry().ended, {});
    for (const auto* log : registry().alive) {
        result += "--- " + log->title_ + '\n' + server_log::tail(log->file_);
    }
    return result;
}

} // namespace support
