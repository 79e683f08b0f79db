// SPDX-License-Identifier: BSL-1.0
#include <coetcd/multi_lock.hpp>
#include <coetcd/mutex.hpp>

#include <functional>
#include <utility>

#include "judged.hpp"
#include "support/catch.hpp"

using coetcd::client;
using coetcd::exclusive;
using coetcd::session;
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
        std::function<coetcd::compare()> guard;
        if (n % 5 == 0) {
            return visit_other();
        }
        if (n % 5 == 1) {
            guard = [this] { return alone_.is_owner(); };
            return turn_with(told, client_, alone_.name(), alone_, std::move(guard), believes_, n);
        }
        guard = [this] { return both_.is_owner().front(); };
        return turn_with(told, client_, alone_.name(), both_, std::move(guard), believes_, n);
    }

private:
    awaitable<void> visit_other() {
        co_await other_.lock();
        const bool was_held = co_await other_.unlock();
        static_cast<void>(was_held); // it may have been lost
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
