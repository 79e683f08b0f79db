// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/wire/event_scanner.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>

namespace coetcd::detail::wire {

/// Splits a stream of bytes into lines. How the bytes are sliced never changes the result. Empty
/// lines are skipped, and a carriage return before the end of a line is dropped.
///
/// A long line that is a message of a watch is cut between its events, into several messages that
/// have the same beginning, so that memory need not hold all of it.
///
/// Holds the lines that were not taken yet and at most one line more; its time is linear.
class line_splitter {
public:
    /// The size that is worth a message of its own.
    static constexpr std::size_t usual_piece = 64 * 1024;

    /// @param max_line The most bytes of a line that is not cut, without its newline.
    /// @param piece Lines with more bytes are cut where possible, and so is the rest of them.
    explicit line_splitter(std::size_t max_line, std::size_t piece = std::string::npos)
        : max_line_(max_line)
        , piece_(std::max<std::size_t>(piece, 1)) {}

    /// Adds bytes of the stream. Ignores everything from the first line that is too long.
    void feed(std::string_view bytes) {
        discard_taken();
        while (!too_long_ && !bytes.empty()) {
            const auto newline = bytes.find('\n');
            add(bytes.substr(0, newline));
            if (too_long_ || newline == bytes.npos) {
                return;
            }
            end_line();
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
            more_ = !pieces_.empty() && pieces_.front() == discarded_ + taken_;
            if (more_) {
                pieces_.pop_front();
            }
            if (take(start, end, line)) {
                return true;
            }
        }
        return false;
    }

    /// Like `next`, but at the end of the stream: an unterminated last line counts, too.
    bool finish(std::string& line) {
        if (next(line)) {
            return true;
        }
        const auto start = taken_;
        taken_ = complete_ = buffer_.size();
        more_ = false;
        return take(start, taken_, line);
    }

    /// Whether the line that was taken last is a piece of a longer line, and not the last piece.
    bool more() const { return more_; }

    /// True once `next` has returned all lines before one that is too long.
    bool overflowed() const { return too_long_ && taken_ == complete_; }

    /// The beginning of the line that is too long.
    const std::string& beginning() const { return beginning_; }

private:
    static constexpr std::size_t most_kept = 64 * 1024;
    /// The most bytes of the beginning that all pieces share: some 200 in etcd's messages.
    static constexpr std::size_t most_repeated = 1024;
    static constexpr std::string_view end_of_events = "]}}";

    std::size_t under_way() const { return buffer_.size() - complete_; }

    void add(std::string_view part) {
        while (!part.empty()) {
            const std::size_t room = max_line_ - under_way();
            if (room == 0) {
                too_long_ = true;
                beginning_.assign(buffer_, complete_, most_kept);
                buffer_.resize(complete_);
                return;
            }
            const auto some = part.substr(0, std::min(room, piece_));
            buffer_ += some;
            part.remove_prefix(some.size());
            cut();
        }
    }
    void end_line() {
        buffer_ += '\n';
        complete_ = buffer_.size();
        scanner_ = {};
        scanned_ = comma_ = 0;
    }

    /// Cuts the line under way while it is longer than a piece: at the last comma within a piece,
    /// or else at the first one.
    void cut() {
        while (under_way() > piece_) {
            const std::string_view line = std::string_view(buffer_).substr(complete_);
            const std::string_view first = line.substr(0, piece_ + 1);
            while (scanned_ < first.size() && scanner_.pass_comma(first, scanned_)) {
                comma_ = scanned_ - 1;
            }
            if (comma_ == 0 && scanner_.pass_comma(line, scanned_)) {
                comma_ = scanned_ - 1;
            }
            const std::size_t comma = std::exchange(comma_, 0);
            const std::string_view head = line.substr(0, scanner_.head());
            if (comma == 0 || head.size() > most_repeated) {
                return;
            }
            std::string seam(end_of_events);
            seam.append("\n").append(head);
            scanned_ -= comma + 1 - head.size();
            buffer_.replace(complete_ + comma, 1, seam);
            complete_ += comma + end_of_events.size() + 1;
            pieces_.push_back(discarded_ + complete_);
        }
    }

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
            discarded_ += taken_;
            complete_ -= taken_;
            taken_ = 0;
        }
    }

    std::size_t max_line_;
    std::size_t piece_;
    std::string buffer_;       // lines taken, complete lines, the line that is under way
    std::size_t taken_ = 0;    // where the next line begins
    std::size_t complete_ = 0; // where the line that is under way begins
    bool too_long_ = false;
    std::string beginning_; // of the line that is too long

    // The state of the line under way, if it is longer than a piece:
    event_scanner scanner_;
    std::size_t scanned_ = 0; // how many of its bytes
    std::size_t comma_ = 0;   // where to cut it; 0: not known

    std::uint64_t discarded_ = 0;      // bytes that were in the buffer
    std::deque<std::uint64_t> pieces_; // where pieces end, counted with the discarded bytes
    bool more_ = false;
};

} // namespace coetcd::detail::wire
