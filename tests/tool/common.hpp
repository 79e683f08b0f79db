// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <nlohmann/json.hpp>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/etcd_server.hpp"
#include "support/process.hpp"

// The command of examples/coetcd, as a shell sees it.

namespace tool_tests {

using clock_type = std::chrono::steady_clock;
using words = std::vector<std::string>;

inline words command(const words& arguments) {
    words all{COETCD_TOOL};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return all;
}

inline support::process_options
with_etcd(const support::etcd_server& etcd = support::shared_etcd()) {
    support::process_options options;
    options.environment = {"ETCDCTL_ENDPOINTS=" + etcd.url()};
    options.capture = true;
    return options;
}

inline support::process_result run(const words& arguments) {
    return support::run_process(command(arguments), with_etcd());
}

/// What it writes to both outputs.
inline support::process_result run_all(const std::string& arguments) {
    const std::string tool = COETCD_TOOL;
    return support::run_process({"sh", "-c", tool + ' ' + arguments + " 2>&1"}, with_etcd());
}

inline support::background_process start(const words& arguments) {
    return support::background_process(command(arguments), with_etcd());
}

inline std::string next_line(support::background_process& p) {
    const auto line = p.read_line(std::chrono::seconds(10));
    REQUIRE(line);
    return *line;
}

inline void until(const std::string& what,
                  const std::function<bool()>& there,
                  std::chrono::seconds patience = std::chrono::seconds(15)) {
    const auto limit = clock_type::now() + patience;
    while (!there()) {
        if (clock_type::now() > limit) {
            FAIL("not in time: " << what);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
}

inline nlohmann::json who(const std::string& name) {
    return nlohmann::json::parse(run({"who", name, "--json"}).output);
}

inline std::size_t waiting_for(const std::string& name) {
    return who(name)["waiters"].size();
}

/// Whether a process has ended, even if its parent has not waited for it yet.
inline bool has_ended(int pid) {
    std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
    std::string number, program, state;
    return !(in >> number >> program >> state) || state == "Z" || state == "X";
}

/// A lease that lives for as long as any test.
inline std::string granted_lease(const std::string& ttl = "3600") {
    std::istringstream said(support::shared_etcd().etcdctl({"lease", "grant", ttl}).output);
    std::string word, lease;
    said >> word >> lease;
    REQUIRE(lease.size() == 16);
    return lease;
}

/// Puts what any client may put: a place in the queue of a lock.
inline void put_place(const std::string& name, const std::string& lease, const std::string& label) {
    std::string id = lease;
    id.erase(0, id.find_first_not_of('0'));
    const auto put =
        support::shared_etcd().etcdctl({"put", "--lease=" + lease, "--", name + "/" + id, label});
    REQUIRE(put.exit_code == 0);
}

} // namespace tool_tests
