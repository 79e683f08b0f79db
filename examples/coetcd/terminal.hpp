// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <cstddef>
#include <string>
#include <termios.h>
#include <vector>

namespace tool {

/// A terminal in which pages are shown, one in place of the other, and keys are read as they are
/// typed. The destructor leaves it as it was.
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

    /// Lines are cut off at the right margin. The first one is a heading.
    void show(const std::vector<std::string>& lines);

    /// The next key; 0 at the end of the input.
    boost::asio::awaitable<char> key();

    /// Whether there is one, at both ends.
    static bool is_there();

private:
    boost::asio::posix::stream_descriptor input_;
    termios before_{};
};

/// The beginning of a text that is that wide; a character that is not ASCII counts as one column.
std::string cut(const std::string& text, std::size_t columns);
/// The same, and filled up with spaces.
std::string column(const std::string& text, std::size_t columns);

} // namespace tool
