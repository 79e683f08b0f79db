// The processes of the flash sale: how they are started, directed, stopped and killed. Nothing here
// knows etcd; Linux only.
#pragma once

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <deque>
#include <fcntl.h>
#include <optional>
#include <poll.h>
#include <spawn.h>
#include <stdexcept>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

namespace stage {

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

/// Three processes, and the time line of what happens to them.
class company {
public:
    /// Returns when all of them are ready.
    explicit company(const std::vector<std::string>& arguments) {
        std::signal(SIGPIPE, SIG_IGN);
        const pipe_ends told = make_pipe();
        told_ = told.out;
        for (const char* name : {"A", "B", "C"}) {
            std::vector<std::string> argv = {"flash_sale", process_flag};
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
    /// Lets all go on, those that can.
    void go() {
        for (process& p : all_) {
            p.say("go");
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

    event wait_for(const std::string& kind) {
        for (;;) {
            event e = next();
            if (e.kind == kind) {
                return e;
            }
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

} // namespace stage
