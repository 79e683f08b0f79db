// SPDX-License-Identifier: BSL-1.0
#include "support/process.hpp"

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <future>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdexcept>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace support {
namespace {

namespace asio = boost::asio;

[[noreturn]] void fail(const std::string& what) {
    throw std::runtime_error(what + ": " + std::generic_category().message(errno));
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
    std::vector<char*> result;
    for (auto& string : strings) {
        result.push_back(string.data());
    }
    result.push_back(nullptr);
    return result;
}

std::vector<std::string> environment(const std::vector<std::string>& added) {
    std::vector<std::string> result = added;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string text = *entry;
        const auto same_name = [&](const std::string& other) {
            return other.compare(0, other.find('=') + 1, text, 0, text.find('=') + 1) == 0;
        };
        if (!text.starts_with("ETCD") && std::none_of(added.begin(), added.end(), same_name)) {
            result.push_back(text);
        }
    }
    return result;
}

// Waits until a descriptor is readable; false after `timeout`.
bool readable(int descriptor, std::chrono::milliseconds timeout) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    for (;;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(
            deadline - std::chrono::steady_clock::now());
        pollfd entry{descriptor, POLLIN, 0};
        const int n = ::poll(&entry, 1, static_cast<int>(std::max<long>(left.count(), 0)));
        if (n >= 0) {
            return n > 0;
        }
        if (errno != EINTR) {
            fail("poll");
        }
    }
}

asio::awaitable<void> async_readable(int descriptor) {
    asio::posix::stream_descriptor waiter(co_await asio::this_coro::executor, ::dup(descriptor));
    co_await waiter.async_wait(asio::posix::stream_descriptor::wait_read, asio::use_awaitable);
}

// Only async-signal-safe calls: other threads may hold any lock.
[[noreturn]] void become(char* const* argv,
                         char* const* env,
                         int output,
                         int error,
                         int network,
                         pid_t parent,
                         int report) {
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::signal(SIGPIPE, SIG_DFL);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int null = ::open("/dev/null", O_RDONLY);
    if (::getppid() == parent && null >= 0 && ::dup2(null, STDIN_FILENO) >= 0 &&
        (output < 0 || ::dup2(output, STDOUT_FILENO) >= 0) &&
        (error < 0 || ::dup2(error, STDERR_FILENO) >= 0) &&
        (network < 0 || ::setns(network, CLONE_NEWNET) == 0)) {
        ::close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
        ::execvpe(argv[0], argv, env);
    }
    const int code = errno;
    [[maybe_unused]] auto written = ::write(report, &code, sizeof(code));
    ::_exit(127);
}

// All children are started by one thread that lives as long as this process: the signal of
// PR_SET_PDEATHSIG comes when the *thread* that forked ends.
template<class Function>
auto on_spawner_thread(Function function) {
    static asio::thread_pool spawner(1);
    std::packaged_task<decltype(function())()> task(std::move(function));
    auto result = task.get_future();
    asio::post(spawner, [&task] { task(); });
    return result.get();
}

struct descriptor {
    int value = -1;
    ~descriptor() {
        if (value >= 0) {
            ::close(value);
        }
    }
};

} // namespace

background_process::background_process(const std::vector<std::string>& argv,
                                       process_options options) {
    auto arguments = argv;
    auto variables = environment(options.environment);
    const auto argument_pointers = pointers(arguments);
    const auto variable_pointers = pointers(variables);

    descriptor log, read_end, write_end, report_read, report_write;
    if (!options.output_file.empty()) {
        log.value =
            ::open(options.output_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (log.value < 0) {
            fail(options.output_file);
        }
    }
    std::array<int, 2> pipe{};
    if (options.capture) {
        if (::pipe2(pipe.data(), O_CLOEXEC) != 0) {
            fail("pipe");
        }
        read_end.value = pipe[0];
        write_end.value = pipe[1];
    }
    if (::pipe2(pipe.data(), O_CLOEXEC) != 0) {
        fail("pipe");
    }
    report_read.value = pipe[0];
    report_write.value = pipe[1];

    const int output = options.capture ? write_end.value : log.value;
    pid_ = on_spawner_thread([&] {
        const pid_t parent = ::getpid();
        const pid_t child = ::fork();
        if (child == 0) {
            become(argument_pointers.data(),
                   variable_pointers.data(),
                   output,
                   log.value,
                   options.network,
                   parent,
                   report_write.value);
        }
        return child;
    });
    if (pid_ < 0) {
        fail("fork");
    }
    ::close(std::exchange(report_write.value, -1));
    int code = 0;
    if (::read(report_read.value, &code, sizeof(code)) > 0) { // else: closed by exec
        ::waitpid(pid_, nullptr, 0);
        errno = code;
        fail("cannot start " + argv.front());
    }
    pidfd_ = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)); // glibc 2.36 cannot be linked
    if (pidfd_ < 0) {
        fail("pidfd_open");
    }
    output_ = std::exchange(read_end.value, -1);
}

background_process::background_process(background_process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1))
    , pidfd_(std::exchange(other.pidfd_, -1))
    , output_(std::exchange(other.output_, -1))
    , buffer_(std::move(other.buffer_))
    , status_(other.status_) {}

background_process& background_process::operator=(background_process&& other) noexcept {
    background_process old(std::move(*this));
    pid_ = std::exchange(other.pid_, -1);
    pidfd_ = std::exchange(other.pidfd_, -1);
    output_ = std::exchange(other.output_, -1);
    buffer_ = std::move(other.buffer_);
    status_ = other.status_;
    return *this;
}

background_process::~background_process() {
    if (pid_ > 0 && !reap(false)) {
        ::kill(pid_, SIGKILL);
        reap(true);
    }
    for (const int open : {pidfd_, output_}) {
        if (open >= 0) {
            ::close(open);
        }
    }
}

bool background_process::reap(bool block) {
    int status = 0;
    while (!status_) {
        const pid_t ended = ::waitpid(pid_, &status, block ? 0 : WNOHANG);
        if (ended == 0) {
            return false;
        }
        if (ended == pid_) {
            status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        } else if (errno != EINTR) {
            status_ = -1;
        }
    }
    return true;
}

bool background_process::running() {
    return !reap(false);
}

void background_process::signal(int number) {
    if (!reap(false)) {
        ::kill(pid_, number);
    }
}

std::optional<int> background_process::wait_for(std::chrono::milliseconds timeout) {
    if (!reap(false) && readable(pidfd_, timeout)) {
        reap(true);
    }
    return status_;
}

int background_process::wait() {
    reap(true);
    return *status_;
}

asio::awaitable<int> background_process::async_wait() {
    while (!reap(false)) {
        co_await async_readable(pidfd_);
    }
    co_return *status_;
}

bool background_process::fill() {
    std::array<char, 4096> block;
    for (;;) {
        const auto n = ::read(output_, block.data(), block.size());
        if (n >= 0) {
            buffer_.append(block.data(), static_cast<std::size_t>(n));
            return n > 0;
        }
        if (errno != EINTR) {
            fail("read");
        }
    }
}

std::optional<std::string> background_process::take_line() {
    const auto end = buffer_.find('\n');
    if (end == std::string::npos) {
        return std::nullopt;
    }
    auto line = buffer_.substr(0, end);
    buffer_.erase(0, end + 1);
    return line;
}

std::optional<std::string> background_process::read_line(std::chrono::milliseconds timeout) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    auto line = take_line();
    while (!line) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(
            deadline - std::chrono::steady_clock::now());
        if (!readable(output_, left)) {
            throw std::runtime_error("no line of output in time, only: " + buffer_);
        }
        if (!fill()) {
            break;
        }
        line = take_line();
    }
    return line;
}

asio::awaitable<std::optional<std::string>> background_process::async_read_line() {
    auto line = take_line();
    while (!line) {
        co_await async_readable(output_);
        if (!fill()) {
            break;
        }
        line = take_line();
    }
    co_return line;
}

std::string background_process::read_all() {
    while (fill()) {
    }
    return std::exchange(buffer_, {});
}

process_result run_process(const std::vector<std::string>& argv,
                           process_options options,
                           std::chrono::milliseconds timeout) {
    options.capture = true;
    background_process process(argv, std::move(options));
    process_result result;
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    const auto left = [&] {
        return std::chrono::ceil<std::chrono::milliseconds>(deadline -
                                                            std::chrono::steady_clock::now());
    };
    while (auto line = process.read_line(left())) {
        result.output += *line + '\n';
    }
    result.output += process.read_all();
    const auto status = process.wait_for(left());
    if (!status) {
        throw std::runtime_error(argv.front() + " has not ended in time");
    }
    result.exit_code = *status;
    return result;
}

} // namespace support
