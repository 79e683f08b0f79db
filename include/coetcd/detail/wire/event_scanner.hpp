// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace coetcd::detail::wire {

/// Follows the text of one message of a watch, however it is sliced, and finds the commas between
/// its events: where it can be cut. It knows only how JSON nests: the parser judges what it finds.
///
/// etcd writes the events last. If a message does not name its header and its watch before them, no
/// commas are found, and the message has to be read whole.
class event_scanner {
public:
    /// Reads the message from `at` on, up to and including the next comma between two events.
    /// @param message All of it that has come: each time at least what there was before.
    /// @returns Whether there is such a comma: `at` is then just behind it. Otherwise `at` is at
    ///   the end.
    bool pass_comma(std::string_view message, std::size_t& at) {
        while (at != message.size()) {
            const char c = message[at++];
            if (in_string_) {
                read_string(c, message, at);
            } else if (c == ',' && in_events_ && depth_ == depth_of_events) {
                return true;
            } else {
                read(c, at);
            }
        }
        return false;
    }

    /// How many bytes come before the first event; 0 if it was not reached.
    std::size_t head() const { return head_; }

private:
    static constexpr std::size_t depth_of_events = 3; // {"result":{"events":[

    void read_string(char c, std::string_view message, std::size_t& at) {
        if (escaped_) {
            escaped_ = false;
        } else if (c == '\\') {
            escaped_ = true;
            note(c); // no name that matters has one
        } else if (c == '"') {
            in_string_ = false;
        } else if (depth_ < depth_of_events) {
            note(c);
        } else {
            while (at != message.size() && message[at] != '"' && message[at] != '\\') {
                ++at; // keys and values: nearly all there is
            }
        }
    }
    void note(char c) {
        if (word_.size() < longest_name) {
            word_ += c;
        }
    }

    void read(char c, std::size_t at) {
        switch (c) {
        case '"':
            in_string_ = true;
            word_.clear();
            break;
        case ':':
            name_ = word_;
            if (in_result_ && depth_ == 2) {
                has_header_ = has_header_ || name_ == "header";
                has_id_ = has_id_ || name_ == "watch_id";
            }
            break;
        case ',':
            name_.clear();
            break;
        case '{':
            in_result_ = in_result_ || (depth_ == 1 && name_ == "result");
            ++depth_;
            break;
        case '[':
            if (in_result_ && depth_ == 2 && name_ == "events" && has_header_ && has_id_ &&
                head_ == 0) {
                in_events_ = true;
                head_ = at;
            }
            ++depth_;
            break;
        case '}':
        case ']':
            in_events_ = in_events_ && depth_ != depth_of_events;
            depth_ -= depth_ == 0 ? 0 : 1;
            in_result_ = in_result_ && depth_ > 1;
            name_.clear();
            break;
        default:
            break;
        }
    }

    static constexpr std::size_t longest_name = 9; // one more than those that matter

    std::size_t depth_ = 0;
    bool in_string_ = false;
    bool escaped_ = false;
    std::string word_; // the beginning of the last string outside the events
    std::string name_; // of the value that comes next
    bool in_result_ = false;
    bool has_header_ = false;
    bool has_id_ = false;
    bool in_events_ = false;
    std::size_t head_ = 0;
};

} // namespace coetcd::detail::wire
