// SPDX-License-Identifier: BSL-1.0
#include <coetcd/election.hpp>

#include <optional>
#include <utility>

#include "judged.hpp"
#include "support/catch.hpp"

using boost::system::system_error;
using coetcd::client;
using coetcd::election;
using coetcd::leadership;
using coetcd::session;
using support::grant;
using support::recorder;

namespace faults {

namespace {

// Leads in turn, proclaims, and asks who leads; a feed of its own tells it, too. The control does
// not look whether it leads still.
class election_party : public party {
public:
    election_party(client c, const session& owner, const writer_options& how)
        : client_(std::move(c))
        , election_(owner, how.lock)
        , own_(how.number)
        , believes_(how.kind == "judged_pretender")
        , feed_(election_.observe()) {}

    awaitable<void> turn(recorder& told, int n) override {
        co_await ask(told);
        co_await observe(told);
        const bool tries = n % 4 == 0;
        auto taking = told.begin("election", election_.name(), tries ? "try_campaign" : "campaign");
        std::string value = own_ + '.' + std::to_string(n);
        taking.with("value", value);
        std::optional<leadership> led;
        if (tries) {
            led = co_await election_.try_campaign(value);
        } else {
            leadership won = co_await election_.campaign(value);
            led.emplace(std::move(won));
        }
        if (!led) {
            taking.end("no");
            co_return;
        }
        taking.with("token", led->term()).end("yes");
        co_await proclaim(told, *led, value + "'");
        grant held;
        held.object = "election";
        held.name = election_.name();
        held.token = led->term();
        held.owns = "leads";
        held.give_back = "resign";
        held.guard = led->is_leader();
        held.is_held = [this, &led] { return believes_ || led->leads(); };
        held.leave = [&led] { return led->resign(); };
        co_await use_grant(told, client_, std::move(held), n);
    }

private:
    awaitable<void> ask(recorder& told) {
        auto asking = told.begin("election", election_.name(), "leader");
        const auto found = co_await election_.leader();
        if (found) {
            asking.with("token", found->term).with("value", found->value);
        }
        asking.end(found.has_value());
    }

    awaitable<void> proclaim(recorder& told, leadership& led, std::string value) {
        auto proclaiming = told.begin("election", election_.name(), "proclaim");
        proclaiming.with("token", led.term()).with("value", value);
        co_await led.proclaim(value); // if it throws, its end is unknown
        proclaiming.end("yes");
    }

    // Only what it has to tell now.
    awaitable<void> observe(recorder& told) {
        if (!telling_) {
            telling_.emplace(co_await boost::asio::this_coro::executor, feed_.next());
        }
        if (!telling_->done()) {
            co_return;
        }
        auto observing = told.begin("election", election_.name(), "observe");
        auto finished = std::move(*telling_);
        telling_.reset();
        const auto now = co_await finished.result();
        if (now) {
            observing.with("token", now->term).with("value", now->value);
        }
        observing.end(now.has_value());
    }

    client client_;
    election election_;
    const std::string own_;
    const bool believes_;
    coetcd::leader_feed feed_;
    std::optional<support::task<std::optional<coetcd::leader>>> telling_;
};

const judged_kind judged_election("judged_election", &make_party<election_party>);
const judged_kind judged_pretender("judged_pretender", &make_party<election_party>);

} // namespace

} // namespace faults

TEST_CASE("judged_election: what clients saw of an election can have happened",
          "[nemesis][judge][short]") {
    faults::run_judged("judged_election");
}

TEST_CASE("judged_pretender: what leaders saw that do not look cannot, as a control",
          "[nemesis][judge]") {
    faults::run_judged("judged_pretender", false);
}
