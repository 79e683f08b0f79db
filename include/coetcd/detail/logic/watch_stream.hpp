// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>

namespace coetcd::detail::logic {

/// Whose watches a stream carries.
enum class stream_kind {
    everybody, ///< The watches of all.
    one_watch, ///< One watch, where a stream cannot carry more.
    question   ///< No watch: it only asks whether etcd answers.
};

/// One stream of watches: what was asked on it and what was heard, and so whether it is alive.
///
/// A question is a watch of nothing, which is ended at once: it is only there for etcd's answer.
template<class TimePoint>
class watch_stream {
public:
    /// @param two_way Whether messages can be sent while others come; else the first is the only
    ///   one.
    watch_stream(stream_kind whose, bool two_way, TimePoint now)
        : kind_(whose)
        , two_way_(two_way)
        , began_(now) {}

    // What is sent.

    /// The creation of a watch.
    void asked(std::int64_t id, TimePoint now) {
        if (unanswered_.empty()) {
            heard_ = due_since_ = now; // from here on an answer is due
        }
        unanswered_.push_back(id);
    }
    /// A question.
    /// @returns Its id, which no watch has.
    std::int64_t ask(TimePoint now) {
        const std::int64_t id = first_question + questions_++;
        asked(id, now);
        return id;
    }

    // What is heard.

    void opened(TimePoint now) {
        open_ = true;
        due_since_ = now;
        heard_something(now);
    }
    /// A whole message.
    /// @param bytes All bytes that have come on this stream so far, if that is known.
    void heard_something(TimePoint now, std::uint64_t bytes = 0) {
        heard_ = told_ = now;
        counted_ = std::max(counted_, bytes);
    }
    /// This many bytes have come so far. Those of a large message on a slow line are a sign of
    /// life, too, and an answer may be behind it; a few bytes now and then are not.
    void heard_bytes(TimePoint now, std::uint64_t bytes) {
        if (bytes >= counted_ + sign_of_life) {
            due_since_ = now;
            heard_something(now, bytes);
        }
    }
    /// Another stream tells that etcd is still there.
    void heard_beside(TimePoint now) { heard_ = now; }
    /// What was heard came from etcd.
    void heard_etcd() { answered_ = true; }
    /// A watch, or a question, was created. etcd answers in order.
    void created(std::int64_t id) {
        if (!unanswered_.empty() && unanswered_.front() == id) {
            unanswered_.pop_front();
            due_since_ = heard_; // that of the next answer
        } else {
            std::erase(unanswered_, id);
        }
    }
    /// The id that etcd answers next.
    std::optional<std::int64_t> next_answer() const {
        return unanswered_.empty() ? std::nullopt : std::optional(unanswered_.front());
    }

    bool answered() const { return answered_; }
    /// Whether etcd has said nothing although the stream was open.
    bool mute() const { return open_ && !answered_; }

    /// From now on nothing is read, for lack of room: silence means nothing.
    void hold() { held_ = true; }
    /// The stream is read again.
    void go_on(TimePoint now) {
        held_ = false;
        due_since_ = now;
        heard_something(now);
    }

    // What follows.

    enum class step {
        wait,       ///< Wait until `until()`, or until something is heard or sent.
        ask,        ///< The stream has been silent for long: call `ask`, and send the question.
        ask_beside, ///< Send a question on a stream of its own: this one cannot carry it.
        give_up,    ///< Nobody is there.
    };
    step next(TimePoint now) const {
        if (now < until()) {
            return step::wait;
        }
        if (!unanswered_.empty()) {
            return step::give_up;
        }
        if (two_way_) {
            return step::ask;
        }
        // etcd may be there, but does not tell us.
        return now - told_ >= silence_of_one ? step::give_up : step::ask_beside;
    }
    TimePoint until() const {
        if (held_) {
            return TimePoint::max();
        }
        if (!unanswered_.empty()) {
            return std::min(heard_ + patience(), due_since_ + longest_patience);
        }
        return heard_ + (two_way_ ? silence : silence_alone);
    }

    /// How long etcd may take to accept the stream, or to answer.
    std::chrono::seconds patience() const {
        return kind_ == stream_kind::question ? short_patience : long_patience;
    }
    /// Whether the stream has lasted so long that its end is no reason for a longer pause.
    bool has_lasted(TimePoint now) const { return now - began_ >= std::chrono::seconds(1); }

    static constexpr std::chrono::seconds long_patience{2};
    /// For questions, whose answer decides how to go on.
    static constexpr std::chrono::seconds short_patience{1};
    /// For an answer while other messages come.
    static constexpr std::chrono::seconds longest_patience{10};
    /// How long a stream is kept while its user takes nothing. Then it is given up, and another one
    /// is opened when there is room.
    static constexpr std::chrono::seconds longest_hold{10};

private:
    static constexpr std::uint64_t sign_of_life = 16 * 1024; // bytes

    static constexpr std::int64_t first_question = std::int64_t{1} << 62; // watches count from 1

    // After this much silence etcd is asked whether it is still there: a member that stands still
    // keeps its connections. For a stream that carries one watch, a separate request asks.
    static constexpr std::chrono::seconds silence{10};
    static constexpr std::chrono::seconds silence_alone{60};
    // How long a stream that cannot carry questions may be silent although etcd is there. By
    // default etcd reports progress every 10 minutes, up to a tenth later.
    static constexpr std::chrono::minutes silence_of_one{12};

    const stream_kind kind_;
    const bool two_way_;
    const TimePoint began_;
    bool open_ = false;
    bool answered_ = false;
    bool held_ = false;
    TimePoint heard_ = TimePoint::min();     // when there was last an answer, or first a question
    TimePoint due_since_ = TimePoint::min(); // when the next answer became due
    TimePoint told_ = TimePoint::min();      // when there was last a message on this very stream
    std::uint64_t counted_ = 0;              // the bytes that had come then
    std::deque<std::int64_t> unanswered_;    // creations, in the order in which etcd answers them
    std::int64_t questions_ = 0;
};

} // namespace coetcd::detail::logic
