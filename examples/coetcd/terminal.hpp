// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <termios.h>
#include <vector>

namespace tool {

/// A terminal in which pages are shown, one in place of the other, and keys are read as they are
/// typed. The destructor leaves it as it was, and so does what stops us until we are continued, as
/// Ctrl-Z until `fg`; Ctrl-\ does nothing.
class terminal {
public:
    explicit terminal(boost::asio::any_io_executor executor);
    ~terminal();
    terminal(const terminal&) = delete;
    terminal& operator=(const terminal&) = delete;

    struct extent {
        std::size_t columns = 80;
        std::size_t rows = 24;
    };
    static extent size();

    /// Lines are cut off at the right margin. The first one is a heading. In the background nothing
    /// is shown.
    void show(const std::vector<std::string>& lines);

    /// The next key; none at the end of the input.
    boost::asio::awaitable<std::optional<char>> key();
    /// When we have stood still: the page has to be shown again. To be waited for all the time.
    boost::asio::awaitable<void> continued();

    /// Whether there is one, at both ends.
    static bool is_there();
    /// Whether somebody can answer, wherever the output goes.
    static bool is_typed_in();

private:
    void enter();
    void leave();

    boost::asio::posix::stream_descriptor input_;
    boost::asio::signal_set signals_;
    boost::asio::steady_timer front_; ///< Cancelled when the terminal is ours.
    bool has_to_wait_ = false;        ///< It is another job's.
    bool is_shown_ = false;           ///< Not in the background.
    termios before_{};
    int flags_ = 0;        ///< Of the description, which other programs have, too.
    int output_flags_ = 0; ///< The same; it may be another one.
};

/// Somebody has ended what was asked, with a signal.
class interruption : public std::runtime_error {
public:
    explicit interruption(int signal)
        : std::runtime_error("interrupted")
        , number(signal) {}
    const int number;
};

enum class echo { on, off };

/// Reads a line from the standard input, and nothing after it; the prompt goes to the standard
/// error.
/// @throws interruption by a signal that ends us; the terminal is as it was then.
std::string ask(const std::string& prompt, echo shown);

/// How many columns a text takes.
std::size_t width(const std::string& text);
/// The beginning of a text that is no wider than that.
std::string cut(const std::string& text, std::size_t columns);
/// The same, and filled up with spaces.
std::string column(const std::string& text, std::size_t columns);

} // namespace tool
