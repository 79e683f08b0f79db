// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace coetcd::detail::wire {

/// Splits a stream of bytes into lines. How the bytes are sliced never changes the result. Empty
/// lines are skipped, and a carriage return before the end of a line is dropped.
///
/// Holds the lines that were not taken yet and at most one line more; its time is linear.
class line_splitter {
public:
    /// @param max_line The most bytes of a line, without its newline.
    explicit line_splitter(std::size_t max_line)
        : max_line_(max_line) {}

    /// Adds bytes of the stream. Ignores all from the first line that is too long.
    void feed(std::string_view bytes) {
        discard_taken();
        while (!too_long_ && !bytes.empty()) {
            const auto newline = bytes.find('\n');
            const auto part = bytes.substr(0, newline);
            if (part.size() > max_line_ - (buffer_.size() - complete_)) {
                too_long_ = true;
                beginning_.assign(buffer_, complete_).append(part.substr(0, most_kept));
                beginning_.resize(std::min({beginning_.size(), most_kept, max_line_}));
                buffer_.resize(complete_);
                return;
            }
            buffer_ += part;
            if (newline == bytes.npos) {
                return;
            }
            buffer_ += '\n';
            complete_ = buffer_.size();
            bytes.remove_prefix(newline + 1);
        }
    }

    /// Takes the next complete line.
    /// @returns False if there is none.
    bool next(std::string& line) {
        while (taken_ != complete_) {
            const auto end = buffer_.find('\n', taken_);
            const auto start = taken_;
            taken_ = end + 1;
            if (take(start, end, line)) {
                return true;
            }
        }
        return false;
    }

    /// As `next`, at the end of the stream: an unterminated last line counts as well.
    bool finish(std::string& line) {
        if (next(line)) {
            return true;
        }
        const auto start = taken_;
        taken_ = complete_ = buffer_.size();
        return take(start, taken_, line);
    }

    /// True once `next` has returned all lines before one that is too long.
    bool overflowed() const { return too_long_ && taken_ == complete_; }

    /// The beginning of the line that is too long.
    const std::string& beginning() const { return beginning_; }

private:
    static constexpr std::size_t most_kept = 1024;

    bool take(std::size_t start, std::size_t end, std::string& line) {
        if (end != start && buffer_[end - 1] == '\r') {
            --end;
        }
        if (end == start) {
            return false;
        }
        line.assign(buffer_, start, end - start);
        return true;
    }

    /// Costs no more than the bytes that were taken since it last did anything.
    void discard_taken() {
        if (taken_ > buffer_.size() / 2 || taken_ == buffer_.size()) {
            buffer_.erase(0, taken_);
            complete_ -= taken_;
            taken_ = 0;
        }
    }

    std::size_t max_line_;
    std::string buffer_;       // lines taken, complete lines, the line that is under way
    std::size_t taken_ = 0;    // where the next line begins
    std::size_t complete_ = 0; // where the line that is under way begins
    bool too_long_ = false;
    std::string beginning_; // of the line that is too long
};

} // namespace coetcd::detail::wire
