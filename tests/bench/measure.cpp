// SPDX-License-Identifier: BSL-1.0
#include "bench/measure.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <malloc.h>
#include <sstream>
#include <stdexcept>
#include <sys/resource.h>
#include <system_error>
#include <unistd.h>

namespace bench {
namespace {

double seconds_of(const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
}

} // namespace

double seconds_since(clock::time_point began) {
    return std::chrono::duration<double>(clock::now() - began).count();
}

std::int64_t microseconds(clock::time_point when) {
    return std::chrono::duration_cast<std::chrono::microseconds>(when.time_since_epoch()).count();
}

double own_cpu() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

double cpu_of(pid_t process) {
    if (process == 0) {
        return 0;
    }
    std::ifstream file("/proc/" + std::to_string(process) + "/stat");
    const std::string text(std::istreambuf_iterator<char>(file), {});
    const auto name_end = text.rfind(')'); // the name may contain anything
    if (name_end == std::string::npos) {
        throw std::runtime_error("no process " + std::to_string(process));
    }
    std::istringstream fields(text.substr(name_end + 1));
    std::string skipped;
    for (int field = 3; field < 14; ++field) { // see proc(5)
        fields >> skipped;
    }
    double user = 0;
    double system = 0;
    fields >> user >> system;
    return (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

std::size_t resident() {
    ::malloc_trim(0);
    std::size_t all = 0;
    std::size_t in_memory = 0;
    std::ifstream("/proc/self/statm") >> all >> in_memory;
    return in_memory * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

std::size_t most_resident() {
    // Not getrusage, which counts what this process was before exec.
    std::ifstream status("/proc/self/status");
    std::string field;
    std::size_t kib = 0;
    while (status >> field) {
        if (field == "VmHWM:" && status >> kib) {
            break;
        }
    }
    return kib * 1024;
}

double per_item_kib(std::size_t before, std::size_t count) {
    const auto more = static_cast<double>(resident()) - static_cast<double>(before);
    return more / 1024 / static_cast<double>(count);
}

std::size_t open_sockets() {
    std::size_t count = 0;
    for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code gone; // the directory's own
        const auto target = std::filesystem::read_symlink(file, gone).string();
        count += target.starts_with("socket:") ? 1U : 0U;
    }
    return count;
}

void raise_file_limit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        ::setrlimit(RLIMIT_NOFILE, &limit);
    }
}

double durations::milliseconds_at(double fraction) const {
    if (all_.empty()) {
        return 0;
    }
    const auto last = static_cast<double>(all_.size() - 1);
    const auto at = all_.begin() + static_cast<std::ptrdiff_t>(fraction * last);
    std::nth_element(all_.begin(), at, all_.end());
    return std::chrono::duration<double, std::milli>(*at).count();
}

double median(std::vector<double> values) {
    if (values.empty()) {
        return 0;
    }
    std::sort(values.begin(), values.end());
    const std::size_t middle = values.size() / 2;
    return values.size() % 2 != 0 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

stretch::stretch(pid_t server)
    : server_(server)
    , at_server_(cpu_of(server))
    , client_(own_cpu())
    , began_(clock::now()) {}

} // namespace bench
