// SPDX-License-Identifier: BSL-1.0
// For each scenario, and each allocation in it: what becomes of it all if that one fails. Each is
// tried in a process of its own, which has the state before it from its parent.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <map>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "memory/stage.hpp"

namespace {

using memory::scenario;

enum result : int { well = 0, wrong = 1, not_reached = 2, terminated = 3 };

struct options {
    std::vector<std::string> names;
    long from = 0;
    long to = 100'000;
    long then = 0;
    bool trace = false;
};

struct trial {
    pid_t process;
    long number;
    int output;
};

bool traces = false;

[[noreturn]] void leave(result how) {
    if (traces && how != well && how != not_reached) {
        scarce::show();
    }
    std::fflush(nullptr);
    ::_exit(how);
}

[[noreturn]] void on_terminate() {
    leave(terminated);
}

[[noreturn]] void
try_one(const scenario& what, memory::stage& s, long number, long then, int output) {
    std::set_terminate(on_terminate);
    ::alarm(60);
    scarce::fail_after(number, then);
    memory::verdict said = what.run(s);
    scarce::enough();
    if (!scarce::has_failed()) {
        leave(not_reached);
    }
    const auto add = [&said](const memory::verdict& more) {
        said += (said.empty() || more.empty() ? "" : "; ") + more;
    };
    add(what.check(s));
    add(memory::look_back(s));
    if (::write(output, said.data(), said.size()) < 0) {
        said += "; it could not be told";
    }
    leave(said.empty() ? well : wrong);
}

trial begin(const scenario& what, memory::stage& s, long number, long then) {
    int ends[2] = {-1, -1};
    if (::pipe(ends) != 0) {
        std::perror("pipe");
        std::exit(1);
    }
    std::cout.flush();
    const pid_t child = ::fork();
    if (child == 0) {
        ::close(ends[0]);
        try_one(what, s, number, then, ends[1]);
    }
    ::close(ends[1]);
    return {child, number, ends[0]};
}

/// @returns How it ended: what is wrong, or nothing; `reached` is cleared if no allocation failed.
std::string end(const trial& t, bool& reached) {
    std::string said;
    char buffer[1000];
    for (ssize_t n = 0; (n = ::read(t.output, buffer, sizeof buffer)) > 0;) {
        said.append(buffer, static_cast<std::size_t>(n));
    }
    ::close(t.output);
    int status = 0;
    ::waitpid(t.process, &status, 0);
    if (WIFSIGNALED(status)) {
        return WTERMSIG(status) == SIGALRM ? "it runs for ever"
                                           : "signal " + std::to_string(WTERMSIG(status));
    }
    switch (WEXITSTATUS(status)) {
    case well:
        return {};
    case wrong:
        return said;
    case not_reached:
        reached = false;
        return {};
    case terminated:
        return "std::terminate";
    default:
        return "it ended with " + std::to_string(WEXITSTATUS(status));
    }
}

/// @returns How many points it has, and of how many something is wrong.
std::pair<long, long> run(const scenario& what, const options& how) {
    memory::stage s;
    what.prepare(s);
    const std::size_t side_by_side = std::max(1U, std::thread::hardware_concurrency());
    std::vector<trial> running;
    bool reached = true;
    long tried = 0;
    long failed = 0;
    const auto finish_first = [&] {
        const trial first = running.front();
        running.erase(running.begin());
        bool has_failed = true;
        const std::string said = end(first, has_failed);
        reached = reached && has_failed;
        tried += has_failed ? 1 : 0;
        if (!said.empty()) {
            ++failed;
            std::cout << what.name << " " << first.number << ": " << said << "\n";
        }
    };
    for (long n = how.from; n <= how.to && reached; ++n) {
        running.push_back(begin(what, s, n, how.then));
        if (running.size() == side_by_side) {
            finish_first();
        }
    }
    while (!running.empty()) {
        finish_first();
    }
    std::cout << what.name << ": " << tried << " allocations, " << failed << " failures"
              << std::endl;
    return {tried, failed};
}

int usage() {
    std::cout
        << "memory [SCENARIO]... [--from N] [--to N] [--then K] [--trace]\n"
           "For each N, the N-th allocation of a scenario fails, and another one once K were made\n"
           "after it, if K is not 0. --trace: shows where the first was, if something is wrong.\n";
    for (const scenario& each : memory::scenarios()) {
        std::cout << "  " << each.name << "\n";
    }
    return 2;
}

} // namespace

int main(int argc, char** argv) {
    options how;
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (word == "--trace") {
            traces = how.trace = true;
        } else if (word == "--from" && i + 1 < argc) {
            how.from = std::atol(argv[++i]);
        } else if (word == "--to" && i + 1 < argc) {
            how.to = std::atol(argv[++i]);
        } else if (word == "--then" && i + 1 < argc) {
            how.then = std::atol(argv[++i]);
        } else if (word.substr(0, 1) == "-") {
            return usage();
        } else {
            how.names.emplace_back(word);
        }
    }
    long passed = 0;
    long failed = 0;
    bool any = false;
    for (const scenario& each : memory::scenarios()) {
        if (!how.names.empty() &&
            std::find(how.names.begin(), how.names.end(), each.name) == how.names.end()) {
            continue;
        }
        any = true;
        // In a process of its own, so that none has anything of the one before.
        std::pair<long, long> counted = run(each, how);
        passed += counted.first - counted.second;
        failed += counted.second;
    }
    if (!any) {
        return usage();
    }
    std::cout << passed << " passed, " << failed << " failed" << std::endl;
    return failed == 0 ? 0 : 1;
}
