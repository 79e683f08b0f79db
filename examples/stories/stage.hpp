// The processes of an example: how they are started, directed, stopped, killed and cut off. Nothing
// here knows etcd; Linux only.
#pragma once

#include <boost/asio.hpp>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <deque>
#include <fcntl.h>
#include <functional>
#include <memory>
#include <optional>
#include <poll.h>
#include <spawn.h>
#include <stdexcept>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace stage {

namespace asio = boost::asio;

inline void check(bool ok, const char* what) {
    if (!ok) {
        throw std::system_error(errno, std::generic_category(), what);
    }
}

// --- For the processes ----------------------------------------------------------------------

inline const std::string process_flag = "--process";

/// Makes sure that none is left behind.
inline void die_with_parent() {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/// Tells the stage something: `kind` is for the program, `text` for people.
inline void report(const std::string& who, const std::string& kind, const std::string& text) {
    const std::string line = who + " " + kind + " " + text + "\n";
    // All write to one pipe, which keeps the lines whole and in the order in which they happened.
    check(::write(STDOUT_FILENO, line.data(), line.size()) == static_cast<ssize_t>(line.size()),
          "write");
}

/// What the director says to this process: "hold", "go", "end".
class script {
public:
    explicit script(const asio::any_io_executor& executor)
        : lines_(executor, ::dup(STDIN_FILENO))
        , cue_(executor, asio::steady_timer::time_point::max()) {}

    std::function<void()> on_end; ///< What "end" means.

    /// Reads it to its end.
    asio::awaitable<void> follow() {
        std::string text;
        boost::system::error_code end;
        while (!end) {
            const std::size_t size =
                co_await asio::async_read_until(lines_,
                                                asio::dynamic_buffer(text),
                                                '\n',
                                                asio::redirect_error(asio::use_awaitable, end));
            const std::string line = text.substr(0, size);
            text.erase(0, size);
            if (line == "hold\n") {
                hold_ = true;
            } else if (line == "go\n") {
                hold_ = false;
                cue_.cancel();
            } else if (line == "end\n") {
                on_end();
            }
        }
    }
    void close() { lines_.close(); }

    /// Whether to wait here, so that the process can be struck at the worst moment. Once.
    bool holds() { return std::exchange(hold_, false); }
    /// Until "go" is read.
    asio::awaitable<void> wait_for_cue() {
        boost::system::error_code cancelled;
        co_await cue_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
    }

private:
    asio::posix::stream_descriptor lines_;
    asio::steady_timer cue_;
    bool hold_ = false;
};

// --- For who directs them -------------------------------------------------------------------

/// What a process told.
struct event {
    std::string who;
    std::string kind;
    std::string text;
};

struct pipe_ends {
    int in;
    int out;
};

inline pipe_ends make_pipe() {
    int ends[2];
    check(::pipe2(ends, O_CLOEXEC) == 0, "pipe2");
    return {ends[1], ends[0]};
}

/// This program once more, as a process of its own. The destructor kills it.
class process {
public:
    process(std::string name, std::vector<std::string> arguments, int output)
        : name_(std::move(name)) {
        const pipe_ends script = make_pipe();
        std::vector<char*> argv;
        for (std::string& each : arguments) {
            argv.push_back(each.data());
        }
        argv.push_back(nullptr);
        posix_spawn_file_actions_t files;
        ::posix_spawn_file_actions_init(&files);
        ::posix_spawn_file_actions_adddup2(&files, script.out, STDIN_FILENO);
        ::posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
        errno = ::posix_spawn(&pid_, "/proc/self/exe", &files, nullptr, argv.data(), environ);
        const bool started = errno == 0;
        ::posix_spawn_file_actions_destroy(&files);
        ::close(script.out);
        script_ = script.in;
        running_ = started;
        check(started, "posix_spawn");
    }
    ~process() {
        if (running_) {
            ::kill(pid_, SIGKILL);
            ::waitpid(pid_, nullptr, 0);
        }
        ::close(script_);
    }
    process(const process&) = delete;
    process& operator=(const process&) = delete;

    const std::string& name() const { return name_; }
    pid_t pid() const { return pid_; }
    bool running() const { return running_; }

    void say(const std::string& line) {
        const std::string text = line + "\n";
        (void)!::write(script_, text.data(), text.size()); // it may have ended
    }

    /// Returns when it has stopped.
    void stop() {
        check(::kill(pid_, SIGSTOP) == 0, "kill");
        check(::waitpid(pid_, nullptr, WUNTRACED) == pid_, "waitpid");
    }
    void resume() { check(::kill(pid_, SIGCONT) == 0, "kill"); }

    /// Returns when it is dead.
    void kill() {
        check(::kill(pid_, SIGKILL) == 0, "kill");
        (void)wait();
    }
    /// Returns when it has ended. @returns Whether it succeeded.
    bool wait() {
        int status = 0;
        check(::waitpid(pid_, &status, 0) == pid_, "waitpid");
        running_ = false;
        return status == 0;
    }

private:
    std::string name_;
    pid_t pid_ = -1;
    bool running_ = false;
    int script_ = -1;
};

/// Some processes, three as a rule, and the time line of what happens to them.
class company {
public:
    /// Returns when all of them are ready.
    explicit company(const std::vector<std::string>& arguments,
                     const std::vector<std::string>& names = {"A", "B", "C"}) {
        std::signal(SIGPIPE, SIG_IGN);
        const pipe_ends told = make_pipe();
        told_ = told.out;
        for (const std::string& name : names) {
            std::vector<std::string> argv = {"example", process_flag};
            argv.insert(argv.end(), arguments.begin(), arguments.end());
            argv.push_back(name);
            all_.emplace_back(name, std::move(argv), told.in);
        }
        ::close(told.in); // so that the output ends with the last process
        for (std::size_t ready = 0; ready < all_.size(); ++ready) {
            (void)wait_for("ready");
        }
    }
    ~company() { ::close(told_); }
    company(const company&) = delete;
    company& operator=(const company&) = delete;

    void begin() {
        began_ = clock::now();
        go();
    }

    /// What happens next; nothing when all processes have ended.
    /// @throws std::runtime_error if nothing happens for long.
    std::optional<event> next_or_end() {
        while (events_.empty()) {
            pollfd ready = {told_, POLLIN, 0};
            if (::poll(&ready, 1, 20'000) != 1) {
                throw std::runtime_error("nothing happens any more");
            }
            char some[4096];
            const ssize_t size = ::read(told_, some, sizeof some);
            check(size >= 0, "read");
            if (size == 0) {
                return std::nullopt;
            }
            told_text_.append(some, static_cast<std::size_t>(size));
            parse();
        }
        event e = std::move(events_.front());
        events_.pop_front();
        return e;
    }

    /// What happens next.
    event next() {
        std::optional<event> e = next_or_end();
        if (!e) {
            throw std::runtime_error("all processes ended too early");
        }
        return std::move(*e);
    }

    /// Makes the next one that is selling wait in the middle of it; any but `except`.
    event hold_one(const std::string& except = {}) {
        for (process& p : all_) {
            if (p.name() != except) {
                p.say("hold");
            }
        }
        return wait_for("inside");
    }
    event wait_for(const std::string& kind) {
        for (;;) {
            event e = next();
            if (e.kind == kind) {
                return e;
            }
        }
    }
    /// Lets all go on, those that can.
    void go() { say("go"); }
    void say(const std::string& line) {
        for (process& p : all_) {
            p.say(line);
        }
    }

    void stop(const std::string& name) { find(name).stop(); }
    void resume(const std::string& name) { find(name).resume(); }
    void kill(const std::string& name) { find(name).kill(); }

    /// After the end: whether all that were not killed succeeded.
    bool wait() {
        bool all_well = true;
        for (process& p : all_) {
            all_well = (!p.running() || p.wait()) && all_well;
        }
        return all_well;
    }

    /// A line of the time line, about all or one of them.
    void note(const std::string& text) { note("", "", text); }
    void note(const std::string& who, const std::string& text) {
        note(who, std::to_string(find(who).pid()), text);
    }

private:
    using clock = std::chrono::steady_clock;

    void note(const std::string& who, const std::string& pid, const std::string& text) const {
        const std::chrono::duration<double> t = clock::now() - began_;
        std::printf("  %6.2f s  %1s %7s  %s\n", t.count(), who.c_str(), pid.c_str(), text.c_str());
        std::fflush(stdout);
    }

    void parse() {
        for (;;) {
            const auto end = told_text_.find('\n');
            if (end == told_text_.npos) {
                return;
            }
            const auto kind = told_text_.find(' ') + 1;
            const auto text = told_text_.find(' ', kind) + 1;
            events_.push_back(event{told_text_.substr(0, kind - 1),
                                    told_text_.substr(kind, text - 1 - kind),
                                    told_text_.substr(text, end - text)});
            told_text_.erase(0, end + 1);
        }
    }

    process& find(const std::string& name) {
        for (process& p : all_) {
            if (p.name() == name) {
                return p;
            }
        }
        throw std::logic_error("there is no process " + name);
    }

    std::deque<process> all_;
    int told_ = -1;
    std::string told_text_;
    std::deque<event> events_;
    clock::time_point began_ = clock::now();
};

/// A cable to a server that can be cut: a proxy on a loopback port, in a thread of its own.
class cable {
public:
    explicit cable(const asio::ip::tcp::endpoint& server)
        : server_(server)
        , door_(context_, asio::ip::tcp::endpoint(asio::ip::address_v4::loopback(), 0)) {
        asio::co_spawn(context_, accept(), asio::detached);
        thread_ = std::thread([this] { context_.run(); });
    }
    ~cable() {
        context_.stop();
        thread_.join();
    }
    cable(const cable&) = delete;
    cable& operator=(const cable&) = delete;

    std::uint16_t port() const { return door_.local_endpoint().port(); }

    /// From now on nothing gets through, in either direction, and nobody is told.
    void cut() { cut_ = true; }
    /// Connections that were cut end; new ones get through.
    void mend() {
        asio::post(context_, [this] {
            for (const std::weak_ptr<connection>& each : all_) {
                if (const auto c = each.lock()) {
                    c->client.close();
                    c->server.close();
                }
            }
            all_.clear();
            cut_ = false;
        });
    }

private:
    using socket = asio::ip::tcp::socket;
    struct connection {
        explicit connection(socket from)
            : client(std::move(from))
            , server(client.get_executor()) {}
        socket client;
        socket server;
    };

    asio::awaitable<void> accept() {
        for (;;) {
            socket from = co_await door_.async_accept(asio::use_awaitable);
            auto c = std::make_shared<connection>(std::move(from));
            all_.push_back(c);
            asio::co_spawn(context_, carry(std::move(c)), asio::detached);
        }
    }
    asio::awaitable<void> carry(std::shared_ptr<connection> c) {
        co_await c->server.async_connect(server_, asio::use_awaitable);
        asio::co_spawn(context_, copy(c, c->client, c->server), asio::detached);
        co_await copy(c, c->server, c->client);
    }
    asio::awaitable<void> copy(std::shared_ptr<connection> c, socket& from, socket& to) {
        char some[8192];
        for (boost::system::error_code end; !end;) {
            const std::size_t size = co_await from.async_read_some(
                asio::buffer(some), asio::redirect_error(asio::use_awaitable, end));
            if (!end && !cut_) {
                co_await asio::async_write(
                    to, asio::buffer(some, size), asio::redirect_error(asio::use_awaitable, end));
            }
        }
        c->client.close();
        c->server.close();
    }

    const asio::ip::tcp::endpoint server_;
    asio::io_context context_;
    asio::ip::tcp::acceptor door_;
    std::vector<std::weak_ptr<connection>> all_;
    std::atomic<bool> cut_ = false;
    std::thread thread_;
};

} // namespace stage
