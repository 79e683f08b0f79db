// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/session.hpp>

#include <boost/system/system_error.hpp>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

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
    /// After the last one, with a cluster that is well again.
    virtual awaitable<void> end(support::recorder&) { co_return; }
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

/// A key, as the judge is told of it.
nlohmann::json told_of(const coetcd::key_value& kv);
/// A change, as the judge is told of it.
nlohmann::json told_of(const coetcd::event& e);

/// How a call ended that failed.
const char* end_of(const boost::system::system_error& e);

/// A turn that draws a number which is to be the next one.
awaitable<void>
draw(support::recorder& told, std::string name, awaitable<std::int64_t> drawing, int n);

/// For a turn with something that was granted: says so, and uses it. Writes `<name>-data`.
awaitable<void> use_grant(support::recorder& told, coetcd::client c, support::grant held, int n);

/// A turn with a lock that is a mutex to the judge.
/// @param guard Called once it is held.
/// @param believes It does not look whether it has the lock still.
template<class Lock>
awaitable<void> turn_with(support::recorder& told,
                          coetcd::client c,
                          std::string name,
                          Lock& lock,
                          std::function<coetcd::compare()> guard,
                          bool believes,
                          int n) {
    const bool tries = n % 4 == 0;
    auto taking = told.begin("mutex", name, tries ? "try_lock" : "lock");
    bool taken = true;
    if (tries) {
        taken = co_await lock.try_lock();
    } else {
        co_await lock.lock();
    }
    if (!taken) {
        taking.end("no");
        co_return;
    }
    support::grant held;
    held.object = "mutex";
    held.name = std::move(name);
    held.token = lock.fencing_token();
    held.guard = guard();
    held.is_held = [&lock, believes] { return believes || lock.owns_lock(); };
    held.leave = [&lock] { return lock.unlock(); };
    taking.with("token", held.token).end("yes");
    co_await use_grant(told, std::move(c), std::move(held), n);
}

/// What the test's own process sees beside the writers, of the keys that they write.
class witness {
public:
    using factory = std::unique_ptr<witness> (*)(coetcd::client c,
                                                 support::recorder told,
                                                 const std::string& name);
    virtual ~witness() = default;
    /// Before there is a writer.
    virtual awaitable<void> begin() { co_return; }
    /// After they have ended.
    virtual awaitable<void> end() = 0;
};

template<class Witness>
std::unique_ptr<witness>
make_witness(coetcd::client c, support::recorder told, const std::string& name) {
    return std::make_unique<Witness>(std::move(c), std::move(told), name);
}

/// Lets such writers be tormented, and the judge tell whether what they saw can have happened.
void run_judged(const std::string& kind,
                bool can_have_happened = true,
                witness::factory beside = nullptr);

} // namespace faults
