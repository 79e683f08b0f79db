// SPDX-License-Identifier: BSL-1.0
#define CATCH_CONFIG_RUNNER // Catch2 v2
#include "support/test_program.hpp"

#include "support/catch.hpp"
#include "support/server_log.hpp"

#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
#endif

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>

#if __has_include(<sys/resource.h>)
#include <sys/resource.h>
#endif

namespace {

#if __has_include(<catch2/catch_session.hpp>)
using listener_base = Catch::EventListenerBase;
#else
using listener_base = Catch::TestEventListenerBase;
#endif

class listener : public listener_base {
public:
    using listener_base::listener_base;

    void testCaseEnded(const Catch::TestCaseStats& stats) override {
        const auto logs = support::take_server_logs();
        if (!stats.totals.assertions.allOk() && !logs.empty()) {
            std::cerr << "What the etcd servers of this test logged:\n" << logs << std::flush;
        }
        ++ended_;
        const auto now = clock::now();
        if (now - told_ >= std::chrono::seconds(30)) { // for whoever wonders
            told_ = now;
            std::cout << ended_ << " tests so far" << std::endl;
        }
    }

    // For tests/run. Not written by a process that crashed.
    void testRunEnded(const Catch::TestRunStats& stats) override {
        if (const char* file = std::getenv("COETCD_TALLY")) {
            const auto& cases = stats.totals.testCases;
            std::ofstream(file) << cases.passed << ' ' << cases.failed << '\n';
        }
    }

private:
    using clock = std::chrono::steady_clock;
    clock::time_point told_ = clock::now();
    int ended_ = 0;
};

CATCH_REGISTER_LISTENER(listener)

} // namespace

int support::run_test_program(int argc, char** argv) {
#if __has_include(<sys/resource.h>)
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max; // thousands of connections in one test
        ::setrlimit(RLIMIT_NOFILE, &limit);
    }
#endif
    return Catch::Session().run(argc, argv);
}
