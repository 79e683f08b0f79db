// SPDX-License-Identifier: BSL-1.0
#include "terminal.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstring>
#include <cwchar>
#include <fcntl.h>
#include <poll.h>
#include <string_view>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "child.hpp"
#include "output.hpp"

namespace tool {

namespace asio = boost::asio;

namespace {

/// Another screen, no cursor; what is wider than the screen is cut off, and moves no line.
constexpr const char* begin_pages = "\033[?1049h\033[?25l\033[?7l";
constexpr const char* end_pages = "\033[?7h\033[?25h\033[?1049l";

/// All of it, unless the terminal stands still, as after Ctrl-S: pages are drawn anew.
void write_all(const std::string& text) {
    for (std::size_t done = 0; done != text.size();) {
        const ssize_t n = ::write(STDOUT_FILENO, text.data() + done, text.size() - done);
        if (n < 0 && errno != EINTR && errno != EAGAIN) {
            throw output_error(std::string("standard output: ") + std::strerror(errno));
        }
        pollfd output{STDOUT_FILENO, POLLOUT, 0};
        if (n < 0 && errno == EAGAIN && ::poll(&output, 1, 100) == 0) {
            return;
        }
        done += n > 0 ? static_cast<std::size_t>(n) : 0;
    }
}

struct character {
    std::size_t bytes;
    std::size_t columns;
};

/// The first one of a text that is not empty, as terminals show it: some of them take two columns,
/// and some go onto the one before.
character first_of(std::string_view text) {
    static const bool is_known = std::setlocale(LC_CTYPE, "C.UTF-8") != nullptr;
    std::mbstate_t state{};
    wchar_t c = 0;
    const std::size_t bytes = is_known ? std::mbrtowc(&c, text.data(), text.size(), &state) : 0;
    if (bytes == 0 || bytes > text.size()) {
        return {1, (static_cast<unsigned char>(text.front()) & 0xC0) == 0x80 ? 0U : 1U};
    }
    const int columns = ::wcwidth(c);
    return {bytes, columns < 0 ? 1 : static_cast<std::size_t>(columns)};
}

volatile std::sig_atomic_t ended_by = 0;
volatile std::sig_atomic_t stood_still = 0;

extern "C" void coetcd_end_the_question(int number) {
    ended_by = number;
}
extern "C" void coetcd_ask_again(int) {
    stood_still = 1;
}

/// Whether the terminal is another job's, and whoever touches it is to be stopped.
bool is_in_background() {
    const pid_t front = ::tcgetpgrp(STDIN_FILENO);
    struct sigaction now {};
    return front != -1 && front != ::getpgrp() && ::sigaction(SIGTTOU, nullptr, &now) == 0 &&
           now.sa_handler != SIG_IGN;
}
/// Stops us until we are continued. The terminal would do the same, but again and again, whatever
/// other signals have come meanwhile.
/// @returns False if nobody is there who could continue us.
bool stop_in_background() {
    sigset_t continued, before, pending;
    ::sigemptyset(&continued);
    ::sigaddset(&continued, SIGCONT);
    ::sigprocmask(SIG_BLOCK, &continued, &before);
    (void)::kill(0, SIGTTOU);
    ::sigpending(&pending);
    const bool was_stopped = ::sigismember(&pending, SIGCONT) == 1;
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    return was_stopped;
}

/// While it lives, these signals end a `pselect` with `unblocked`, and nothing else.
class answering {
public:
    explicit answering(echo shown)
        : hides_(shown == echo::off) {
        ended_by = 0;
        stood_still = 0;
        sigset_t blocked;
        ::sigemptyset(&blocked);
        struct sigaction how {};
        how.sa_handler = coetcd_end_the_question;
        for (const int number : child::ending) {
            ::sigaddset(&blocked, number);
        }
        ::sigaddset(&blocked, SIGCONT);
        ::sigprocmask(SIG_BLOCK, &blocked, &unblocked);
        for (const int number : child::ending) {
            struct sigaction& before = before_.emplace_back();
            ::sigaction(number, nullptr, &before);
            if (before.sa_handler != SIG_IGN) {
                ::sigaction(number, &how, nullptr);
            }
        }
        how.sa_handler = coetcd_ask_again;
        ::sigaction(SIGCONT, &how, &continued_before_);
        begin_line();
    }
    /// What was typed before the question is no answer to it. Also after it stood still, when the
    /// terminal was the shell's, which shows what is typed.
    void begin_line() {
        if (!comes_to_front()) {
            return;
        }
        if (hides_ && !is_hidden_) { // in the background, the modes would be the shell's
            is_hidden_ = ::tcgetattr(STDIN_FILENO, &modes_) == 0;
        }
        if (is_hidden_) {
            termios hidden = modes_;
            hidden.c_lflag &= ~static_cast<tcflag_t>(ECHO);
            ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &hidden);
        } else {
            ::tcflush(STDIN_FILENO, TCIFLUSH);
        }
    }
    /// Waits until the terminal is ours.
    /// @returns False if it is not: a signal has ended the question, or nobody continues us.
    bool comes_to_front() const {
        while (ended_by == 0 && is_in_background()) {
            if (!stop_in_background()) {
                return false;
            }
            const timespec at_once{};
            (void)::pselect(0, nullptr, nullptr, nullptr, &at_once, &unblocked);
        }
        stood_still = 0;
        return ended_by == 0;
    }
    /// Shows a text for people, unless a signal ends the wait for whoever reads it.
    void show(const std::string& text) {
        while (ended_by == 0) {
            fd_set output;
            FD_ZERO(&output);
            FD_SET(STDERR_FILENO, &output);
            const int there =
                ::pselect(STDERR_FILENO + 1, nullptr, &output, nullptr, nullptr, &unblocked);
            if (there < 0 && errno == EINTR) {
                stood_still = 0;
                begin_line();
                continue;
            }
            (void)!::write(STDERR_FILENO, text.data(), text.size());
            return;
        }
    }
    ~answering() {
        if (is_hidden_ && !is_in_background()) { // else the modes are those of another program
            ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &modes_);
        }
        auto before = before_.begin();
        for (const int number : child::ending) {
            ::sigaction(number, &*before++, nullptr);
        }
        ::sigaction(SIGCONT, &continued_before_, nullptr);
        ::sigprocmask(SIG_SETMASK, &unblocked, nullptr);
    }
    answering(const answering&) = delete;
    answering& operator=(const answering&) = delete;

    sigset_t unblocked{};

private:
    const bool hides_;
    std::vector<struct sigaction> before_; // of child::ending
    struct sigaction continued_before_ {};
    termios modes_{};
    bool is_hidden_ = false; // and `modes_` are those before that
};

} // namespace

std::string ask(const std::string& prompt, echo shown) {
    std::string line;
    {
        answering now(shown);
        now.show(prompt);
        for (char c = 0; c != '\n' && ended_by == 0;) {
            fd_set input;
            FD_ZERO(&input);
            FD_SET(STDIN_FILENO, &input);
            const int there =
                ::pselect(STDIN_FILENO + 1, &input, nullptr, nullptr, nullptr, &now.unblocked);
            if (stood_still != 0) {
                stood_still = 0;
                line.clear(); // it is thrown away
                now.begin_line();
                now.show(prompt);
                continue;
            }
            if (there > 0 && is_in_background()) {
                if (!now.comes_to_front()) {
                    break;
                }
                stood_still = 1;
                continue;
            }
            if (there > 0 && ::read(STDIN_FILENO, &c, 1) != 1) {
                break;
            }
            line.append(there > 0 && c != '\n' ? 1 : 0, c);
        }
    }
    pollfd output{STDERR_FILENO, POLLOUT, 0};
    if ((shown == echo::off || ended_by != 0) && ::poll(&output, 1, 0) == 1) {
        (void)!::write(STDERR_FILENO, "\n", 1);
    }
    if (ended_by != 0) {
        throw interruption(ended_by);
    }
    return line;
}

std::size_t width(const std::string& text) {
    std::size_t n = 0;
    for (std::string_view rest = text; !rest.empty();) {
        const character c = first_of(rest);
        n += c.columns;
        rest.remove_prefix(c.bytes);
    }
    return n;
}

bool terminal::is_there() {
    return is_typed_in() && ::isatty(STDOUT_FILENO) != 0;
}

bool terminal::is_typed_in() {
    return ::isatty(STDIN_FILENO) != 0;
}

terminal::terminal(asio::any_io_executor executor)
    : input_(executor, ::dup(STDIN_FILENO))
    , signals_(executor, SIGCONT)
    , front_(executor, asio::steady_timer::time_point::max()) {
    enter();
    for (const int number : child::heeded({SIGTSTP})) {
        signals_.add(number);
    }
}

terminal::~terminal() {
    leave();
}

void terminal::enter() {
    has_to_wait_ = is_in_background() && stop_in_background();
    if (has_to_wait_) { // until we are told that we go on
        return;
    }
    front_.cancel();
    if (::tcdrain(STDIN_FILENO) != 0) { // nobody would continue us
        return;
    }
    if (!is_shown_) {
        ::tcgetattr(STDIN_FILENO, &before_);
        flags_ = ::fcntl(STDIN_FILENO, F_GETFL);
        output_flags_ = ::fcntl(STDOUT_FILENO, F_GETFL);
        is_shown_ = true;
    }
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    raw.c_cc[VQUIT] = _POSIX_VDISABLE;
    ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw);
    ::fcntl(STDOUT_FILENO, F_SETFL, output_flags_ | O_NONBLOCK); // it may have been opened apart
    write_all(begin_pages);
    input_.native_non_blocking(true);
}

void terminal::leave() {
    if (!std::exchange(is_shown_, false)) {
        return;
    }
    const bool is_ours = ::tcgetpgrp(STDIN_FILENO) == ::getpgrp();
    if (is_ours) { // after Ctrl-S, the next program would be on a page of ours
        ::tcflow(STDOUT_FILENO, TCOOFF); // the terminal starts only what a program has stopped
        ::tcflow(STDOUT_FILENO, TCOON);
    }
    try {
        write_all(end_pages);
    } catch (const output_error&) {
        // It has gone.
    }
    if (is_ours) { // else the modes are those of another program
        ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_);
    }
    ::fcntl(STDIN_FILENO, F_SETFL, flags_); // else the next program's reads would not wait
    ::fcntl(STDOUT_FILENO, F_SETFL, output_flags_);
}

terminal::extent terminal::size() {
    winsize found{};
    extent result;
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &found) == 0 && found.ws_col != 0) {
        result.columns = found.ws_col;
        result.rows = found.ws_row;
    }
    return result;
}

void terminal::show(const std::vector<std::string>& lines) {
    if (!is_shown_) {
        return;
    }
    const extent room = size();
    std::string page = "\033[H";
    for (std::size_t i = 0; i != room.rows; ++i) {
        const std::string line = i < lines.size() ? cut(lines[i], room.columns) : "";
        page += i == 0 ? "\033[7m" + column(line, room.columns) + "\033[0m" : line + "\033[K";
        page += i + 1 == room.rows ? "" : "\r\n";
    }
    write_all(page);
}

asio::awaitable<std::optional<char>> terminal::key() {
    char typed = 0;
    boost::system::error_code ec;
    while (has_to_wait_) { // else a read would stop us before anything else is looked at
        co_await front_.async_wait(asio::redirect_error(asio::use_awaitable, ec));
    }
    co_await input_.async_read_some(asio::buffer(&typed, 1),
                                    asio::redirect_error(asio::use_awaitable, ec));
    if (ec && ec != asio::error::eof) {
        throw boost::system::system_error(ec);
    }
    if (ec) {
        co_return std::nullopt;
    }
    co_return typed;
}

asio::awaitable<void> terminal::continued() {
    int number = co_await signals_.async_wait(asio::use_awaitable);
    while (number == SIGTSTP) {
        leave();
        signals_.remove(SIGTSTP);
        (void)::raise(SIGTSTP); // others of our group have got one of their own
        signals_.add(SIGTSTP);
        (void)::raise(SIGCONT); // should nobody be there to stop us for
        number = co_await signals_.async_wait(asio::use_awaitable);
    }
    // A signal that ends us may have come before, and be told only now.
    co_await asio::post(input_.get_executor(), asio::use_awaitable);
    const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() == asio::cancellation_type::none) { // else it would stop us once more
        enter();
    }
}

std::string cut(const std::string& text, std::size_t columns) {
    std::string_view rest = text;
    while (!rest.empty()) {
        const character c = first_of(rest);
        if (c.columns > columns) {
            break;
        }
        columns -= c.columns;
        rest.remove_prefix(c.bytes);
    }
    return text.substr(0, text.size() - rest.size());
}

std::string column(const std::string& text, std::size_t columns) {
    std::string result = cut(text, columns);
    result.append(columns - width(result), ' ');
    return result;
}

} // namespace tool
