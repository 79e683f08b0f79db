// SPDX-License-Identifier: BSL-1.0
#include <coetcd/multi_lock.hpp>
#include <coetcd/mutex.hpp>

#include <utility>

#include "judged.hpp"
#include "support/catch.hpp"

using coetcd::client;
using coetcd::exclusive;
using coetcd::session;
using support::grant;
using support::recorder;

namespace faults {

namespace {

// Takes one lock, at times together with another one, which some want alone: to the judge it is a
// mutex. The control does not look whether it has it still.
class multi_lock_party : public party {
public:
    multi_lock_party(client c, const session& owner, const writer_options& how)
        : client_(std::move(c))
        , alone_(owner, how.lock)
        , other_(owner, how.lock + "-other")
        , both_(owner, {exclusive(how.lock), exclusive(how.lock + "-other")})
        , believes_(how.kind == "judged_hoarder") {}

    awaitable<void> turn(recorder& told, int n) override {
        if (n % 5 == 0) {
            co_await other_.lock();
            const bool was_held = co_await other_.unlock();
            static_cast<void>(was_held); // it may have been lost
        } else if (n % 5 == 1) {
            co_await with(told, alone_, n);
        } else {
            co_await with(told, both_, n);
        }
    }

private:
    static coetcd::compare guard_of(const coetcd::mutex& m) { return m.is_owner(); }
    static coetcd::compare guard_of(const coetcd::multi_lock& m) { return m.is_owner().front(); }

    template<class Lock>
    awaitable<void> with(recorder& told, Lock& lock, int n) {
        const bool tries = n % 4 == 0;
        auto taking = told.begin("mutex", alone_.name(), tries ? "try_lock" : "lock");
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
        grant held;
        held.object = "mutex";
        held.name = alone_.name();
        held.token = lock.fencing_token();
        held.guard = guard_of(lock);
        held.is_held = [this, &lock] { return believes_ || lock.owns_lock(); };
        held.leave = [&lock] { return lock.unlock(); };
        taking.with("token", held.token).end("yes");
        co_await use_grant(told, client_, std::move(held), n);
    }

    client client_;
    coetcd::mutex alone_;
    coetcd::mutex other_;
    coetcd::multi_lock both_;
    const bool believes_;
};

const judged_kind judged_multi_lock("judged_multi_lock", &make_party<multi_lock_party>);
const judged_kind judged_hoarder("judged_hoarder", &make_party<multi_lock_party>);

} // namespace

} // namespace faults

TEST_CASE("judged_multi_lock: what clients saw of several locks can have happened",
          "[nemesis][judge][short]") {
    faults::run_judged("judged_multi_lock");
}

TEST_CASE("judged_hoarder: what clients saw of several locks that do not look cannot, as a control",
          "[nemesis][judge]") {
    faults::run_judged("judged_hoarder", false);
}
