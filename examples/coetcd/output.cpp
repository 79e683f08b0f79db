// SPDX-License-Identifier: BSL-1.0
#include "output.hpp"

#include <coetcd/printable.hpp>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/system/system_error.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iomanip>
#include <list>
#include <memory>
#include <mutex>
#include <poll.h>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

namespace tool {

namespace {

namespace asio = boost::asio;

/// @returns 0, or why it failed.
/// @param patience How long it waits for a reader, in milliseconds; -1 for ever. Else the text must
///   be short: a pipe takes it at once, or not at all.
int write_all(int to, std::string_view text, int patience = -1) {
    while (!text.empty()) {
        pollfd reader{to, POLLOUT, 0};
        if (patience >= 0 && ::poll(&reader, 1, patience) == 0) {
            return EAGAIN;
        }
        const ssize_t written = ::write(to, text.data(), text.size());
        if (written >= 0) {
            text.remove_prefix(static_cast<std::size_t>(written));
        } else if (errno == EAGAIN) {
            pollfd room{to, POLLOUT, 0};
            (void)::poll(&room, 1, -1);
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

bool notes_aside = false;

std::string noted(std::string_view line) {
    return "coetcd: " + std::string(line) + '\n';
}

/// Writes to one output in a thread of its own: a pipe may be full, and a terminal may stand still,
/// for as long as its reader likes. It lasts to the end of the process.
class scribe {
public:
    static scribe& of_notes() {
        static scribe& one = *new scribe(STDERR_FILENO);
        return one;
    }
    static scribe& of_output() {
        static scribe& one = *new scribe(STDOUT_FILENO, &of_notes());
        return one;
    }

    /// @param then Told in that thread what `write_all` has returned.
    void write(std::string text, std::function<void(int)> then = nullptr) {
        {
            const std::lock_guard alone(access_);
            if (!then && to_come_.size() >= most_to_come && clock::now() - began_ > patience) {
                return; // nobody has read for long
            }
            if (is_running_ || start()) {
                to_come_.push_back({std::move(text), std::move(then)});
                changed_.notify_all();
                return;
            }
        }
        const int why = write_all(to_, text); // there may be no more threads
        if (then) {
            then(why);
        }
    }
    /// Waits for its reader, but not for long.
    void finish() {
        std::unique_lock alone(access_);
        changed_.wait_for(alone, patience, [this] { return to_come_.empty(); });
    }

    /// Whether its reader has been waited for in vain.
    bool stands_still() {
        const std::lock_guard alone(access_);
        return !to_come_.empty() && clock::now() - began_ > patience;
    }

private:
    using clock = std::chrono::steady_clock;
    static constexpr std::size_t most_to_come = 10'000;
    static constexpr std::chrono::seconds patience{2};

    /// @param first What it has to write comes first, if its reader does not stand still.
    explicit scribe(int to, scribe* first = nullptr)
        : to_(to)
        , first_(first) {}

    struct job {
        std::string text;
        std::function<void(int)> then;
    };

    /// Signals are for the other thread.
    bool start() {
        sigset_t all, before;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before);
        try {
            std::thread([this] { run(); }).detach();
            is_running_ = true;
        } catch (const std::system_error&) {
        }
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
        return is_running_;
    }
    [[noreturn]] void run() {
        std::unique_lock alone(access_);
        for (;;) {
            changed_.wait(alone, [this] { return !to_come_.empty(); });
            const job& now = to_come_.front(); // others are added behind it
            began_ = clock::now();
            alone.unlock();
            if (first_ != nullptr && !first_->stands_still()) {
                first_->finish();
            }
            const int why = write_all(to_, now.text);
            if (now.then) {
                now.then(why);
            }
            alone.lock();
            to_come_.pop_front();
            changed_.notify_all();
        }
    }

    const int to_;
    scribe* const first_;
    std::mutex access_;
    std::condition_variable changed_;
    clock::time_point began_; // to write the first one
    std::list<job> to_come_;  // the first one is being written
    bool is_running_ = false;
};

} // namespace

void say(std::string_view line) {
    finish_notes(); // which came first
    if (const int why = write_all(STDOUT_FILENO, std::string(line) + '\n'); why != 0) {
        throw output_error(std::string("standard output: ") + std::strerror(why));
    }
}

asio::awaitable<void> tell(std::string lines) {
    const auto executor = co_await asio::this_coro::executor;
    const auto done = std::make_shared<asio::steady_timer>(executor);
    const auto failure = std::make_shared<int>(0);
    done->expires_at(asio::steady_timer::time_point::max());
    const auto is_over = std::make_shared<bool>(false);
    scribe::of_output().write(std::move(lines), [executor, done, failure, is_over](int why) {
        asio::post(executor, [done, failure, is_over, why] {
            *failure = why;
            *is_over = true;
            done->expires_at(asio::steady_timer::time_point::min());
        });
    });
    (void)co_await done->async_wait(asio::as_tuple(asio::use_awaitable));
    if (!*is_over) {
        throw boost::system::system_error(asio::error::operation_aborted);
    }
    if (*failure != 0) {
        throw output_error(std::string("standard output: ") + std::strerror(*failure));
    }
}

void note(std::string_view line) {
    if (notes_aside) {
        scribe::of_notes().write(noted(line));
    } else {
        (void)write_all(STDERR_FILENO, noted(line));
    }
}

void note_aside() {
    notes_aside = true;
}

void note_in_fork(std::string_view line) {
    sigset_t all; // a signal to the command does not change what it says
    ::sigfillset(&all);
    ::sigprocmask(SIG_BLOCK, &all, nullptr);
    constexpr int patience = 2000;
    (void)write_all(STDERR_FILENO, noted(line), patience);
}

void finish_notes() {
    scribe::of_notes().finish();
}

std::string single_spaced(std::string_view text) {
    // As wide as a space, or nearly: U+00A0, U+1680, U+2000 to U+200A, U+202F, U+205F, U+3000.
    const auto space_at = [](std::string_view rest) -> std::size_t {
        if (rest.front() == ' ') {
            return 1;
        }
        if (rest.starts_with("\u00A0")) {
            return 2;
        }
        const std::string_view three = rest.substr(0, 3);
        const bool is_space = (three >= "\u2000" && three <= "\u200A") || three == "\u1680" ||
                              three == "\u202F" || three == "\u205F" || three == "\u3000";
        return is_space ? 3 : 0;
    };
    std::string result;
    bool is_between = false;
    while (!text.empty()) {
        if (const std::size_t space = space_at(text); space != 0) {
            is_between = true;
            text.remove_prefix(space);
            continue;
        }
        if (std::exchange(is_between, false) && !result.empty()) {
            result += ' ';
        }
        result += text.front();
        text.remove_prefix(1);
    }
    return result;
}

std::string printed(std::string_view untrusted) {
    const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; };
    std::string all;
    while (!untrusted.empty()) { // in pieces that are not cut, which end with a character
        std::size_t size = std::min<std::size_t>(untrusted.size(), 250);
        while (size != untrusted.size() && size > 240 && continues(untrusted[size])) {
            --size;
        }
        all += coetcd::printable(untrusted.substr(0, size));
        untrusted.remove_prefix(size);
    }
    return all;
}

std::string in_flags(std::string text) {
    constexpr std::array<std::array<std::string_view, 2>, 12> anywhere{{
        {", or set tls_options::server_name", ""},
        {"tls_options::ca_file", "--cacert"},
        {"tls_options::certificate_file and key_file", "--cert and --key"},
        {"set insecure_plain_text_credentials", "set --plain-text-password"},
        {"set client_options::credentials", "use --user"},
        {"check client_options::credentials", "check --user"},
        {"the key of certificate_file:", "the key of --cert:"},
        {"is encrypted: set passphrase", "is encrypted: decrypt it, as with openssl pkey"},
        {"client_options::max_answer; raise it, or read in pages", "the limit"},
        {" of client_options::max_answer", ""},
        {"a file of tls_options is gone", "a file of --cacert, --cert or --key is gone"},
        {": key_file: ", ": --key: "},
    }};
    for (const auto& [option, flag] : anywhere) {
        std::size_t at = text.find(option);
        while (at != text.npos) {
            text.replace(at, option.size(), flag);
            at = text.find(option, at + flag.size());
        }
    }
    constexpr std::array<std::array<std::string_view, 2>, 8> in_front{{
        {"endpoints:", "--endpoints:"},
        {"ca_file:", "--cacert:"},
        {"certificate_file:", "--cert:"},
        {"key_file:", "--key:"},
        {"ttl:", "--ttl:"},
        {"name:", "NAME:"},
        {"initial_limit:", "the number of permits:"},
        {"n:", "--permits:"},
    }};
    for (const auto& [option, flag] : in_front) {
        if (text.starts_with(option)) {
            text.replace(0, option.size(), flag);
        }
    }
    return text;
}

std::string hex(std::int64_t lease) {
    std::ostringstream text;
    text << std::hex << std::setfill('0') << std::setw(16) << lease;
    return text.str();
}

std::string text_of(const nlohmann::json& j) {
    return j.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

} // namespace tool
