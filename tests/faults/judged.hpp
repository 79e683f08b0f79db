// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/session.hpp>

#include <memory>
#include <string>

#include "support/async.hpp"
#include "support/history.hpp"
#include "writers.hpp"

// Writers under the nemesis record all that they see of a lock, and tests/judge, which knows
// nothing of coetcd, tells whether that can have happened.
namespace faults {

/// What a writer of some kind does with one session, again and again.
class party {
public:
    virtual ~party() = default;
    /// The n-th time. It says when it should be overtaken, and how it went: see `writer`. What it
    /// throws is trouble, and no end of the test.
    virtual awaitable<void> turn(support::recorder& told, int n) = 0;
};

/// Makes a kind known to writers, by its name on their command line.
class judged_kind {
public:
    using factory = std::unique_ptr<party> (*)(coetcd::client c,
                                               const coetcd::session& owner,
                                               const writer_options& how);
    judged_kind(const std::string& name, factory make);
};

template<class Party>
std::unique_ptr<party>
make_party(coetcd::client c, const coetcd::session& owner, const writer_options& how) {
    return std::make_unique<Party>(c, owner, how);
}

/// For a turn with something that was granted: says so, and uses it. Writes `<name>-data`.
awaitable<void> use_grant(support::recorder& told, coetcd::client c, support::grant held, int n);

/// Lets such writers be tormented, and the judge tell whether what they saw can have happened.
void run_judged(const std::string& kind, bool can_have_happened = true);

} // namespace faults
