// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/group.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coetcd::detail {

/// A transaction on its way.
class lane_part {
public:
    enum class rank {
        pressing,
        patient, ///< May wait behind the others.
    };

    explicit lane_part(txn w)
        : what(std::move(w)) {}

    const txn what;
    std::vector<std::string> puts; ///< The names in whose queues it puts keys.
    rank order = rank::pressing;
    bool likely = false; ///< Its conditions are expected to hold.
    /// It is carried out after all those of its request with a lower number, so its answer tells
    /// what they leave.
    int turn = 0;
    bool abreast = false; ///< Others that put keys under the same name go at the same time, each in
                          ///< a request of its own.
    bool asks_why = true; ///< If they do not, do the other branch, even at one more request.
    time_point not_after = time_point::max(); ///< It is not sent after this, or shortly before.
    std::chrono::nanoseconds patience{0};     ///< How long a request with it may take.
    std::function<void()> on_end;             ///< Called once it is over; must not wait.

    // The outcome.
    bool over = false;
    bool in_flight = false;
    bool by_itself = false; ///< It has to be sent outside of the lane; nothing was done of it.
    error_code ec;
    std::string text;
    logic::effect left = logic::effect::none; ///< By the copies that were not answered.
    bool refused = false;  ///< With an error, perhaps because of another; not answered since.
                           ///< Only etcd's word says that nothing was done then.
    time_point sent{};     ///< When the copy that was answered was sent.
    txn_response response; ///< If `ec` is clear; its header is the request's.

private:
    friend class lane_queues;
    friend class transaction_lane;
    logic::group::form form() const {
        if (company_ == 1) {
            return logic::group::form::alone;
        }
        return likely && !nested_ ? logic::group::form::flat : logic::group::form::nested;
    }
    /// Sets the text, if there is memory for it.
    void say(std::string_view why) noexcept {
        try {
            text = why;
        } catch (const std::bad_alloc&) {
            text.clear();
        }
    }
    void end() {
        over = true;
        if (doubtful_) {
            left = std::max(left, logic::effect::settled);
        }
        if (const auto told = std::exchange(on_end, nullptr)) {
            told();
        }
    }

    time_point asked_{};       // when it was submitted
    std::uint64_t number_ = 0; // in the order of submission
    unsigned passed_over_ = 0; // by others that came later, while it was the oldest of its queue
    std::size_t company_ = logic::group::most_members; // may share its request, itself included
    bool nested_ = false;
    bool doubtful_ = false; ///< See `logic::landing`.
    bool wanted_ = true;    ///< If false, it is not sent again.
};

} // namespace coetcd::detail
