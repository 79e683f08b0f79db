// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <sys/types.h>
#include <vector>

namespace bench {

/// The same clock in all processes, so that their times can be compared.
using clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

/// Seconds since `began`.
double seconds_since(clock::time_point began);

/// A time as processes report it to each other.
std::int64_t microseconds(clock::time_point when);

/// Seconds of processor time that this process has used, all threads, user and system.
double own_cpu();
/// The same of another process, in steps of a clock tick (10 ms); 0 for no process.
double cpu_of(pid_t process);

/// Bytes of memory that this process occupies. Gives free memory back to the system first.
std::size_t resident();
/// The most that it has ever occupied.
std::size_t most_resident();
/// KiB for each of `count` items, since `resident` was `before`.
double per_item_kib(std::size_t before, std::size_t count);

/// How many sockets this process has open.
std::size_t open_sockets();

/// Raises the limit of open files as far as the system allows.
void raise_file_limit();

/// A set of durations.
class durations {
public:
    void add(nanoseconds d) { all_.push_back(d); }
    std::size_t count() const { return all_.size(); }
    /// In milliseconds; `fraction` 0.5 is the median, 1 the longest. 0 if there are none.
    double milliseconds_at(double fraction) const;

private:
    mutable std::vector<nanoseconds> all_;
};

/// The middle one; the mean of the middle two of an even number. 0 of none.
double median(std::vector<double> values);

/// Measures a stretch of time, and the processor time of this process and of a server in it.
class stretch {
public:
    explicit stretch(pid_t server);
    double seconds() const { return seconds_since(began_); }
    double client_cpu() const { return own_cpu() - client_; }
    double server_cpu() const { return cpu_of(server_) - at_server_; }

private:
    pid_t server_;
    double at_server_;
    double client_;
    clock::time_point began_;
};

} // namespace bench
