// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace tool_tests {

/// A program on a terminal of its own, in which keys are typed. The destructor kills it.
class typed_session {
public:
    typed_session(std::vector<std::string> argv, std::vector<std::string> environment) {
        for (char** entry = environ; *entry != nullptr; ++entry) {
            if (!std::string(*entry).starts_with("ETCD")) {
                environment.insert(environment.begin(), *entry);
            }
        }
        std::vector<char*> all, variables;
        for (std::string& word : argv) {
            all.push_back(word.data());
        }
        for (std::string& variable : environment) { // the last of a name is the one that counts
            variables.push_back(variable.data());
        }
        all.push_back(nullptr);
        variables.push_back(nullptr);
        winsize size{};
        size.ws_col = 120;
        size.ws_row = 30;
        pid_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
        if (pid_ == 0) {
            ::execvpe(all[0], all.data(), variables.data());
            ::_exit(127);
        }
        if (pid_ < 0) {
            throw std::runtime_error("forkpty");
        }
    }
    typed_session(const typed_session&) = delete;
    typed_session& operator=(const typed_session&) = delete;
    ~typed_session() {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
        ::close(terminal_);
    }

    void type(const std::string& keys) {
        if (::write(terminal_, keys.data(), keys.size()) != static_cast<ssize_t>(keys.size())) {
            throw std::runtime_error("nothing can be typed");
        }
    }

    /// Reads on until this is shown, after what was read before; all that was shown until then.
    /// @throws std::runtime_error with what was shown instead.
    std::string read_until(const std::string& text,
                           std::chrono::milliseconds patience = std::chrono::seconds(20)) {
        const auto limit = std::chrono::steady_clock::now() + patience;
        for (;;) {
            if (const std::size_t at = shown_.find(text); at != shown_.npos) {
                const std::string read = shown_.substr(0, at + text.size());
                shown_.erase(0, read.size());
                return read;
            }
            pollfd input{terminal_, POLLIN, 0};
            (void)::poll(&input, 1, 100);
            char some[4096];
            const ssize_t n = input.revents != 0 ? ::read(terminal_, some, sizeof(some)) : 0;
            if (n > 0) {
                shown_.append(some, static_cast<std::size_t>(n));
            } else if (n < 0 || std::chrono::steady_clock::now() > limit) {
                throw std::runtime_error("not shown: " + text + "; but: " + shown_);
            }
        }
    }

private:
    pid_t pid_ = -1;
    int terminal_ = -1;
    std::string shown_;
};

} // namespace tool_tests
