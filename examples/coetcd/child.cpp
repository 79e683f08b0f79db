// SPDX-License-Identifier: BSL-1.0
#include "child.hpp"

#include <coetcd/printable.hpp>

#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "output.hpp"

namespace tool {

namespace asio = boost::asio;
using boost::system::system_error;

namespace {

/// What this program or a library handles or ignores.
constexpr std::initializer_list<int> touched{SIGINT,
                                             SIGTERM,
                                             SIGHUP,
                                             SIGQUIT,
                                             SIGUSR1,
                                             SIGUSR2,
                                             SIGALRM,
                                             SIGTSTP,
                                             SIGCHLD,
                                             SIGCONT,
                                             SIGPIPE,
                                             SIGTTIN,
                                             SIGTTOU};

/// The signals that were ignored when the program began, and those that were blocked.
std::vector<int> ignored;
sigset_t blocked;

/// What job control has asked for since it was heeded last. As the kernel has it, to go on makes
/// void what was asked before: several of us in one job would else stop each other for ever, since
/// each tells the whole group that it stops.
volatile std::sig_atomic_t is_to_stop = 0;
volatile std::sig_atomic_t is_to_go_on = 0;

void wake_up() {
    const int before = errno;
    ::kill(::getpid(), SIGCHLD); // is waited for
    errno = before;
}
extern "C" void coetcd_stop_command(int) {
    is_to_stop = 1;
    wake_up();
}
extern "C" void coetcd_continue_command(int) {
    is_to_stop = 0;
    is_to_go_on = 1;
    wake_up();
}

/// Whether that has been asked for, and not been heeded. SIGCONT is blocked.
bool is_continued() {
    sigset_t waiting;
    return is_to_go_on != 0 ||
           (::sigpending(&waiting) == 0 && ::sigismember(&waiting, SIGCONT) == 1);
}

void handle(int number, void (*how)(int)) {
    struct sigaction handler {};
    handler.sa_handler = how;
    handler.sa_flags = SA_RESTART;
    ::sigaddset(&handler.sa_mask, SIGTSTP);
    ::sigaddset(&handler.sa_mask, SIGCONT);
    ::sigaction(number, &handler, nullptr);
}

struct process_state {
    pid_t pid;
    pid_t parent;
    pid_t group;
    bool has_ended; ///< Nobody has taken note of it yet.
};

/// @param where `/proc/<pid>`, or `/proc/self`.
/// @returns Nothing if it cannot be seen. The numbers are those of the namespace of /proc.
std::optional<process_state> state_of(const std::filesystem::path& where) {
    std::ifstream in(where / "stat");
    std::string text;
    if (!std::getline(in, text, '\0')) {
        return std::nullopt;
    }
    // `pid (name) state parent group`: a name may hold anything.
    std::istringstream rest(text.substr(std::min(text.rfind(')') + 1, text.size())));
    char state = 0;
    pid_t parent = 0, group = 0;
    if (!(rest >> state >> parent >> group)) {
        return std::nullopt;
    }
    const auto pid = static_cast<pid_t>(std::atoi(text.c_str()));
    return process_state{pid, parent, group, state == 'Z' || state == 'X'};
}

/// What begins another process.
struct beginner {
    pid_t pid = ::getpid();
    std::optional<process_state> seen = state_of("/proc/self"); ///< As /proc numbers processes.
};

/// In the new process: whether what has begun it has ended.
bool has_lost(const beginner& parent) {
    const pid_t now = ::getppid();
    if (now != 0) {
        return now != parent.pid;
    }
    // The parent has no number here: this is the first process of another PID namespace.
    const std::optional<process_state> self = state_of("/proc/self");
    return self && parent.seen && self->parent != parent.seen->pid;
}

/// In the new process. Never returns.
[[noreturn]] void become(const std::vector<std::string>& command,
                         const child::variables& changes,
                         const beginner& parent) {
#ifdef __linux__
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (has_lost(parent)) { // it may have ended before that call
        ::_exit(128 + SIGKILL);
    }
#else
    (void)parent;
#endif
    ::setpgid(0, 0);
    for (const int number : child::heeded(touched)) {
        ::signal(number, SIG_DFL);
    }
    ::sigprocmask(SIG_SETMASK, &blocked, nullptr);
    for (const auto& [name, value] : changes) {
        ::unsetenv(name.c_str()); // also one that is there twice
        if (value) {
            ::setenv(name.c_str(), value->c_str(), 1);
        }
    }
    std::vector<char*> words;
    for (const std::string& word : command) {
        words.push_back(const_cast<char*>(word.c_str()));
    }
    words.push_back(nullptr);
    ::execvp(words.front(), words.data());
    const int why = errno;
    note_in_fork(coetcd::printable(command.front()) + ": " + std::strerror(why));
    ::_exit(why == ENOENT ? 127 : 126);
}

/// A process group, as far as it can be seen; nobody, where /proc does not show our PID namespace.
std::vector<process_state> members_of(pid_t group) {
    std::vector<process_state> found;
    const std::optional<process_state> self = state_of("/proc/self");
    if (!self || self->pid != ::getpid()) {
        return found;
    }
    std::error_code ec;
    for (std::filesystem::directory_iterator at("/proc", ec), end; !ec && at != end;
         at.increment(ec)) {
        const std::string name = at->path().filename().string();
        if (name.find_first_not_of("0123456789") != name.npos) {
            continue; // `self` is one of the others once more
        }
        const std::optional<process_state> state = state_of(at->path());
        if (state && state->group == group) {
            found.push_back(*state);
        }
    }
    return found;
}

std::vector<process_state>::const_iterator find(const std::vector<process_state>& all, pid_t pid) {
    return std::find_if(
        all.begin(), all.end(), [pid](const process_state& m) { return m.pid == pid; });
}

/// Whether our process group is none but us and what has called us: it is no pipeline.
bool is_alone() {
    const std::vector<process_state> all = members_of(::getpgrp());
    auto others =
        std::count_if(all.begin(), all.end(), [](const process_state& m) { return !m.has_ended; });
    for (auto m = find(all, ::getpid()); m != all.end(); m = find(all, m->parent)) {
        --others;
    }
    return others <= 0;
}

std::string list_of(const std::vector<pid_t>& processes) {
    std::string text = processes.size() == 1 ? "process" : "processes";
    for (const pid_t p : processes) {
        text += ' ' + std::to_string(p);
    }
    return text;
}

} // namespace

void child::keep_signals() {
    for (const int number : touched) {
        struct sigaction now {};
        if (::sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN) {
            ignored.push_back(number);
        }
    }
    sigset_t needed;
    ::sigemptyset(&needed);
    ::sigaddset(&needed, SIGCHLD);
    ::sigprocmask(SIG_UNBLOCK, &needed, &blocked);
}

std::vector<int> child::heeded(std::initializer_list<int> signals) {
    std::vector<int> all;
    std::copy_if(signals.begin(), signals.end(), std::back_inserter(all), [](int number) {
        return std::find(ignored.begin(), ignored.end(), number) == ignored.end();
    });
    return all;
}

child::child(asio::any_io_executor executor,
             const std::vector<std::string>& command,
             const variables& changes,
             std::function<bool()> may_go_on)
    : signals_(std::move(executor), SIGCHLD)
    , may_go_on_(std::move(may_go_on))
    , terminal_(::open("/dev/tty", O_RDWR | O_CLOEXEC)) {
    for (const int number : heeded(ending)) {
        signals_.add(number);
    }
    is_to_stop = 0;
    is_to_go_on = 0;
    handle(SIGCONT, coetcd_continue_command);
    for (const int number : heeded({SIGTSTP})) {
        handle(number, coetcd_stop_command);
    }
    for (const int number : {SIGTTIN, SIGTTOU}) { // others of our group may be stopped by these
        ::signal(number, SIG_IGN);
    }
    const bool gets_terminal =
        ::isatty(STDIN_FILENO) != 0 && ::tcgetpgrp(terminal_) == ::getpgrp() && is_alone();
    const beginner parent;
    sigset_t all, before; // until the child has handlers of its own, it must not run ours
    ::sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, &before);
    pid_ = ::fork();
    const int why = errno;
    if (pid_ == 0) {
        become(command, changes, parent);
    }
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    if (pid_ < 0) {
        throw std::system_error(why, std::generic_category(), "fork");
    }
    ::setpgid(pid_, pid_); // whoever comes first
    ++running_;
    ++alive_;
    if (gets_terminal) {
        give_terminal();
    }
}

child::~child() {
    if (status_ < 0) {
        signal(SIGKILL);
        const std::vector<pid_t> left = out_of_reach();
        const bool ends = std::find(left.begin(), left.end(), pid_) == left.end();
        while (ends && ::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
        }
    }
    if (take_terminal() && died_ && knows_modes_) { // and has not left it as it was
        ::tcsetattr(terminal_, TCSADRAIN, &modes_);
    }
    ::close(terminal_);
    for (const int number : heeded({SIGTSTP})) {
        ::signal(number, SIG_DFL);
    }
    ::signal(SIGCONT, SIG_DFL);
    alive_ -= status_ < 0 ? 1 : 0;
    --running_;
}

bool child::give_terminal() {
    if (::tcgetpgrp(terminal_) == ::getpgrp()) {
        if (!knows_modes_) { // in the background, they would be another job's
            knows_modes_ = ::tcgetattr(terminal_, &modes_) == 0;
        }
        ::tcsetpgrp(terminal_, pid_);
    }
    return ::tcgetpgrp(terminal_) == pid_;
}

bool child::take_terminal() const {
    return ::tcgetpgrp(terminal_) == pid_ && ::tcsetpgrp(terminal_, ::getpgrp()) == 0;
}

void child::signal(int number) const {
    ::kill(-pid_, number); // nobody, if all of its group have ended
    if (status_ < 0 && ::getpgid(pid_) != pid_) {
        ::kill(pid_, number);
    }
}

void child::kill_the_rest_of(pid_t group) {
    bool found = true;
    std::vector<pid_t> left;
    for (int rounds = 10; found && rounds != 0; --rounds) { // they may start others meanwhile
        found = false;
        left.clear();
        for (const process_state& m : members_of(group)) {
            // A group of somebody else that has this number by now is one of another session.
            if (m.has_ended || ::getsid(m.pid) != ::getsid(0)) {
                continue;
            }
            if (::kill(m.pid, SIGKILL) == 0) {
                found = true;
            } else if (errno == EPERM) {
                left.push_back(m.pid);
            }
        }
    }
    give_up_on(left);
}

void child::give_up_on(const std::vector<pid_t>& left) {
    escaped_ = !left.empty();
    if (escaped_) {
        note("gives up on COMMAND: " + list_of(left) +
             (left.size() == 1 ? " still runs" : " still run") +
             ", without the lock; stop it by hand");
    }
}

void child::go_on() const {
    if (may_go_on_()) {
        signal(SIGCONT);
    }
}

std::vector<pid_t> child::out_of_reach() const {
    // That a signal to a group went well says no more than that one of it has got it.
    const std::vector<process_state> all = members_of(pid_);
    std::vector<pid_t> found;
    for (const process_state& m : all) {
        if (!m.has_ended && ::kill(m.pid, 0) != 0 && errno == EPERM) {
            found.push_back(m.pid);
        }
    }
    const bool has_left = status_ < 0 && ::getpgid(pid_) != pid_;
    if ((all.empty() || has_left) && ::kill(has_left ? pid_ : -pid_, 0) != 0 && errno == EPERM) {
        found.push_back(pid_);
    }
    return found;
}

bool child::reap() {
    int how = 0;
    while (status_ < 0 && ::waitpid(pid_, &how, WNOHANG | WUNTRACED) == pid_) {
        if (WIFSTOPPED(how)) {
            stand_still(WSTOPSIG(how));
        } else {
            take_end(how);
        }
    }
    return status_ >= 0;
}

bool child::has_ended() {
    int how = 0;
    if (status_ < 0 && ::waitpid(pid_, &how, WNOHANG) == pid_) {
        take_end(how);
    }
    return status_ >= 0;
}

void child::take_end(int how) {
    died_ = WIFSIGNALED(how);
    status_ = died_ ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
    --alive_;
    ended_at_ = std::chrono::steady_clock::now();
    if (died_ && WTERMSIG(how) == SIGINT && !heeded({SIGINT}).empty()) {
        interrupts_ = ::tcgetpgrp(terminal_) == pid_ ? 0 : ::getpid();
    }
}

std::optional<pid_t> child::interrupts() {
    return interrupts_;
}

void child::stand_still(int why) {
    const bool wants_terminal = why == SIGTTIN || why == SIGTTOU;
    if (terminal_ < 0) {
        return;
    }
    if (!wants_terminal || !give_terminal()) { // the shell that waits for us is to notice
        const bool had_terminal = take_terminal();
        for (const int number : heeded({SIGTSTP})) {
            sigset_t both, before;
            ::sigemptyset(&both);
            ::sigaddset(&both, number); // others of us may be ahead
            ::sigaddset(&both, SIGCONT);
            ::sigprocmask(SIG_BLOCK, &both, &before);
            ::signal(number, SIG_DFL);
            if (!is_continued()) { // meanwhile
                ::kill(0, number); // all of our group, as if it were in it: a script waits for us
            }
            ::sigprocmask(SIG_SETMASK, &before, nullptr); // here we stand still, once
            handle(number, coetcd_stop_command);
        }
        if (had_terminal) {
            give_terminal();
        }
    }
    if (!wants_terminal || ::tcgetpgrp(terminal_) == pid_) { // else it would ask again at once
        go_on();
    }
}

void child::pass_on(int number) const {
    signal(number);
    const std::vector<pid_t> deaf = out_of_reach();
    for (const int end : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
        if (number == end && deaf.empty()) {
            signal(SIGCONT); // should it stand still
        }
    }
    if (!deaf.empty()) {
        note("signal " + std::to_string(number) + " is not passed on to " + list_of(deaf) +
             ": another user's");
    }
}

asio::awaitable<int> child::wait() {
    while (!reap()) {
        const int number = co_await signals_.async_wait(asio::use_awaitable);
        if (is_to_go_on != 0) {
            is_to_go_on = 0;
            go_on();
        }
        if (is_to_stop != 0) {
            is_to_stop = 0;
            pass_on(SIGTSTP);
        }
        if (number != SIGCHLD) {
            pass_on(number);
        }
    }
    co_return status_;
}

asio::awaitable<int> child::stop(std::chrono::milliseconds grace) {
    using namespace asio::experimental::awaitable_operators;
    signal(SIGTERM);
    if (const std::vector<pid_t> deaf = out_of_reach(); deaf.empty()) {
        signal(SIGCONT); // should it stand still
    } else {             // that would be permitted, and it would go on without the lock
        note("COMMAND CANNOT BE STOPPED: " + list_of(deaf) +
             ", of another user, which we may not signal; it goes on without the lock");
    }
    asio::steady_timer patience(signals_.get_executor(), grace);
    (void)co_await (wait() || patience.async_wait(asio::use_awaitable));
    // Also what is left of its group.
    signal(SIGKILL);
    std::vector<pid_t> left = out_of_reach();
    int status = 128 + SIGKILL; // what it should have got
    if (std::find(left.begin(), left.end(), pid_) == left.end()) {
        status = co_await wait();
        left = out_of_reach(); // now also where /proc shows none but one's own
    }
    give_up_on(left);
    co_return status;
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
    if (status < 0 && self.has_ended()) {
        status = self.status_; // we may have stood still
    }
    if (status < 0) {
        self.was_stopped_ = true;
        co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
        status = co_await self.stop(grace);
    }
    co_return status;
}

} // namespace tool
