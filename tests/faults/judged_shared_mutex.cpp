// SPDX-License-Identifier: BSL-1.0
#include <coetcd/shared_mutex.hpp>

#include <utility>

#include "judged.hpp"
#include "support/catch.hpp"

using coetcd::client;
using coetcd::held_lock;
using coetcd::session;
using support::grant;
using support::recorder;

namespace faults {

namespace {

// Reads two times of three; a writer goes on reading at times, and a reader tries to write. The
// control does not look whether it has the lock still.
class shared_mutex_party : public party {
public:
    shared_mutex_party(client c, const session& owner, const writer_options& how)
        : client_(std::move(c))
        , lock_(owner, how.lock)
        , believes_(how.kind == "judged_squatter") {}

    awaitable<void> turn(recorder& told, int n) override {
        const bool reads = n % 3 != 0;
        auto taking = begin(told, reads ? "lock_shared" : "lock", reads);
        held_lock held;
        if (reads) {
            held = co_await lock_.scoped_lock_shared();
        } else {
            held = co_await lock_.scoped_lock();
        }
        taking.with("token", held.fencing_token()).end("yes");
        if (n % 6 == 0) {
            auto lowering = begin(told, "downgrade", false);
            lowering.with("token", held.fencing_token());
            co_await held.downgrade(); // if it throws, its end is unknown
            lowering.end("yes");
        } else if (n % 5 == 0 && reads) {
            auto raising = begin(told, "upgrade", false);
            raising.with("token", held.fencing_token());
            const bool raised = co_await held.try_upgrade();
            raising.end(raised);
        }
        grant what;
        what.object = "shared_mutex";
        what.name = lock_.name();
        what.token = held.fencing_token();
        what.shared = held.mode() == coetcd::lock_mode::shared;
        what.guard = held.is_owner();
        what.is_held = [this, &held] { return believes_ || held.owns_lock(); };
        what.leave = [&held] { return held.unlock(); };
        co_await use_grant(told, client_, std::move(what), n);
    }

private:
    recorder::call begin(recorder& told, const std::string& op, bool shared) {
        auto begun = told.begin("shared_mutex", lock_.name(), op);
        if (shared) {
            begun.with("shared", true);
        }
        return begun;
    }

    client client_;
    coetcd::shared_mutex lock_;
    const bool believes_;
};

const judged_kind judged_shared_mutex("judged_shared_mutex", &make_party<shared_mutex_party>);
const judged_kind judged_squatter("judged_squatter", &make_party<shared_mutex_party>);

} // namespace

} // namespace faults

TEST_CASE("judged_shared_mutex: what clients saw of a shared_mutex can have happened",
          "[nemesis][judge][short]") {
    faults::run_judged("judged_shared_mutex");
}

TEST_CASE("judged_squatter: what readers and writers saw that do not look cannot, as a control",
          "[nemesis][judge]") {
    faults::run_judged("judged_squatter", false);
}
