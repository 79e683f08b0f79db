// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <functional>

#include "sim/common.hpp"
#include "sim/stage.hpp"
#include "sim/users.hpp"

namespace sim {

/// What goes on besides in some histories. Each draws from a stream of its own, so that a new one
/// changes nothing in the histories without it: take a stream with which it is in none of those
/// that `mutants/found` names.
class sidelines {
public:
    /// @param may Whether this history may have any.
    sidelines(stage& s, std::uint64_t seed, bool may);

    /// A client begins.
    void start(actor& of, const std::function<bool()>& takes_part);

private:
    struct part {
        part(std::uint64_t seed, std::uint64_t stream, bool may)
            : luck(chance::derive(seed, stream))
            , on(may && luck.one_in(12)) {}
        chance luck;
        const bool on;
    };
    part working_;
    part mirroring_;
    part queueing_;
    part passing_;
    part staying_;
    part latching_;
    part holding_;
    part ranking_;
};

} // namespace sim
