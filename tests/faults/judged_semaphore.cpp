// SPDX-License-Identifier: BSL-1.0
#include <coetcd/semaphore.hpp>

#include <cstdint>
#include <optional>
#include <utility>

#include "judged.hpp"
#include "support/catch.hpp"

using coetcd::client;
using coetcd::permit;
using coetcd::session;
using support::grant;
using support::recorder;

namespace faults {

namespace {

// Takes one permit, or two of them; changes the limit at times. Or takes all, as the control does,
// that does not look whether it has them still.
class semaphore_party : public party {
public:
    semaphore_party(client c, const session& owner, const writer_options& how)
        : client_(std::move(c))
        , permits_(owner, how.lock, 3)
        , name_(how.lock)
        , believes_(how.kind == "judged_spender") {}

    awaitable<void> turn(recorder& told, int n) override {
        if (!limited_ || (!believes_ && n % 10 == 0)) {
            co_await limit(told, !believes_ && n % 20 == 0 ? 2 : 3);
        }
        const bool tries = n % 4 == 0;
        const std::int64_t weight = believes_ ? 3 : 1 + n % 2;
        auto taking = told.begin("semaphore", name_, tries ? "try_acquire" : "acquire");
        taking.with("amount", weight);
        std::optional<permit> taken;
        if (tries) {
            taken = co_await permits_.try_acquire(weight);
        } else {
            permit got = co_await permits_.acquire(weight);
            taken.emplace(std::move(got));
        }
        if (!taken) {
            taking.end("no");
            co_return;
        }
        taking.with("token", taken->token()).end("yes");
        grant held;
        held.object = "semaphore";
        held.name = name_;
        held.token = taken->token();
        held.give_back = "release";
        held.guard = taken->is_owner();
        held.is_held = [this, &taken] { return believes_ || taken->owns_lock(); };
        held.leave = [&taken] { return taken->release(); };
        co_await use_grant(told, client_, std::move(held), n);
    }

private:
    // Before the first permit is asked for: the judge does not know how it began.
    awaitable<void> limit(recorder& told, std::int64_t most) {
        auto setting = told.begin("semaphore", name_, "limit");
        setting.with("amount", most);
        co_await permits_.set_limit(most); // if it throws, its end is unknown
        setting.end("yes");
        limited_ = true;
    }

    client client_;
    coetcd::semaphore permits_;
    const std::string name_;
    const bool believes_;
    bool limited_ = false;
};

const judged_kind judged_semaphore("judged_semaphore", &make_party<semaphore_party>);
const judged_kind judged_spender("judged_spender", &make_party<semaphore_party>);

} // namespace

} // namespace faults

TEST_CASE("judged_semaphore: what clients saw of a semaphore can have happened",
          "[nemesis][judge][short]") {
    faults::run_judged("judged_semaphore");
}

TEST_CASE(
    "judged_spender: what clients saw that do not look for their permits cannot, as a control",
    "[nemesis][judge]") {
    faults::run_judged("judged_spender", false);
}
