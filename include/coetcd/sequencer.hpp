// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string>
#include <utility>

namespace coetcd {

/// One ownership of a lock as text, from `held_lock::sequencer`. Send it along with a request; the
/// receiver can ask whether that ownership still lasts, or have etcd refuse what comes too late:
/// see `verify` and `guard` in <coetcd/verify.hpp>.
///
/// It protects from callers that are late, not from callers that lie: it is neither secret nor
/// signed, and a program that can read a lock's queue can write one.
class sequencer {
public:
    /// @param text May come from anywhere: it is checked before it is used, by `verify` and
    /// `guard`.
    explicit sequencer(std::string text)
        : text_(std::move(text)) {}

    /// To be sent. It has no white space, and at most 1,024 bytes.
    const std::string& text() const { return text_; }

    bool operator==(const sequencer&) const = default;

private:
    std::string text_;
};

} // namespace coetcd
