// SPDX-License-Identifier: BSL-1.0
#include "child.hpp"

#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

namespace tool {

namespace asio = boost::asio;
using boost::system::system_error;

namespace {

constexpr std::array passed_on{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

/// In the new process. Never returns.
[[noreturn]] void become(const std::vector<std::string>& command,
                         const child::variables& more,
                         pid_t parent,
                         const sigset_t& mask) {
#ifdef __linux__
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) {
        ::_exit(128 + SIGKILL); // it has ended meanwhile
    }
#else
    (void)parent;
#endif
    ::setpgid(0, 0);
    for (const int number : passed_on) {
        ::signal(number, SIG_DFL);
    }
    for (const int number : {SIGCHLD, SIGCONT, SIGPIPE, SIGTTOU}) {
        ::signal(number, SIG_DFL);
    }
    ::sigprocmask(SIG_SETMASK, &mask, nullptr);
    for (const auto& [name, value] : more) {
        ::setenv(name.c_str(), value.c_str(), 1);
    }
    std::vector<char*> words;
    for (const std::string& word : command) {
        words.push_back(const_cast<char*>(word.c_str()));
    }
    words.push_back(nullptr);
    ::execvp(words.front(), words.data());
    const int why = errno;
    std::fprintf(stderr, "coetcd: %s: %s\n", words.front(), std::strerror(why));
    ::_exit(why == ENOENT ? 127 : 126);
}

} // namespace

child::child(asio::any_io_executor executor,
             const std::vector<std::string>& command,
             const variables& more)
    : signals_(std::move(executor), SIGCHLD, SIGCONT) {
    for (const int number : passed_on) {
        signals_.add(number);
    }
    has_terminal_ = ::isatty(STDIN_FILENO) != 0 && ::tcgetpgrp(STDIN_FILENO) == ::getpgrp();
    const pid_t parent = ::getpid();
    sigset_t all, before; // until the child has handlers of its own, it must not run ours
    ::sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, &before);
    pid_ = ::fork();
    const int why = errno;
    if (pid_ == 0) {
        become(command, more, parent, before);
    }
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    if (pid_ < 0) {
        throw std::system_error(why, std::generic_category(), "fork");
    }
    ::setpgid(pid_, pid_); // whoever comes first
    ++running_;
    give_terminal(pid_);
}

child::~child() {
    if (status_ < 0) {
        signal(SIGKILL);
        while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
        }
    }
    give_terminal(::getpgrp());
    --running_;
}

void child::give_terminal(pid_t group) const {
    if (has_terminal_) {
        ::signal(SIGTTOU, SIG_IGN); // else it would stop us, in the background
        ::tcsetpgrp(STDIN_FILENO, group);
    }
}

void child::signal(int number) const {
    ::kill(-pid_, number); // nobody, if all of its group have ended
}

bool child::reap() {
    int how = 0;
    while (status_ < 0 && ::waitpid(pid_, &how, WNOHANG | WUNTRACED) == pid_) {
        if (WIFSTOPPED(how)) {
            stand_still();
        } else {
            status_ = WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
        }
    }
    return status_ >= 0;
}

void child::stand_still() {
    if (has_terminal_) { // the shell that waits for us is to notice
        give_terminal(::getpgrp());
        ::raise(SIGSTOP);
        give_terminal(pid_);
        signal(SIGCONT);
    }
}

asio::awaitable<int> child::wait() {
    while (!reap()) {
        const int number = co_await signals_.async_wait(asio::use_awaitable);
        if (number != SIGCHLD) {
            signal(number);
        }
    }
    co_return status_;
}

asio::awaitable<int> child::stop(std::chrono::milliseconds grace) {
    using namespace asio::experimental::awaitable_operators;
    signal(SIGTERM);
    signal(SIGCONT); // should it stand still
    asio::steady_timer patience(signals_.get_executor(), grace);
    (void)co_await (wait() || patience.async_wait(asio::use_awaitable));
    // Also what is left of its group.
    signal(SIGKILL);
    co_return co_await wait();
}

asio::awaitable<int> child::run(child& self, std::chrono::milliseconds grace) {
    int status = -1;
    try {
        status = co_await self.wait();
    } catch (const system_error& e) {
        if (e.code() != asio::error::operation_aborted) {
            throw;
        }
    }
    if (status < 0) {
        co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
        status = co_await self.stop(grace);
    }
    co_return status;
}

} // namespace tool
