// SPDX-License-Identifier: BSL-1.0
#include <coetcd/kv.hpp>
#include <coetcd/work_queue.hpp>

#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "judged.hpp"
#include "support/catch.hpp"
#include "support/etcd_tools.hpp"

using namespace std::chrono_literals;
using boost::system::system_error;
using coetcd::client;
using coetcd::job;
using coetcd::key_range;
using coetcd::op;
using coetcd::session;
using coetcd::work_queue;
using nlohmann::json;
using support::recorder;

namespace faults {

namespace {

constexpr coetcd::work_options most_attempts{3};

std::string effects_of(const std::string& queue) {
    return queue + "-effects/";
}

// One key of an item's own, which an effect that happens once makes, and one that counts them.
coetcd::txn effect_of(const std::string& queue, const job& held) {
    return coetcd::txn().then(
        op::put(effects_of(queue) + held.value(), std::to_string(held.token())),
        op::put(queue + "-count", ""));
}

awaitable<std::optional<job>>
take(recorder& told, work_queue& queue, std::chrono::milliseconds patience) {
    auto taking = told.begin("work", queue.name(), "take"); // its end is unknown if it throws
    std::optional<job> taken = co_await queue.take_for(patience);
    if (taken) {
        taking.with("value", taken->value()).with("token", taken->token());
        taking.with("amount", taken->attempt()).with("reads", json{{"id", taken->id()}});
    }
    taking.end(taken.has_value());
    co_return taken;
}

// Tells of a call that ends an attempt.
awaitable<bool>
finish(recorder& told, std::string queue, std::string what, const job& held, awaitable<bool> call) {
    auto ending = told.begin("work", queue, what);
    ending.with("value", held.value()).with("token", held.token());
    const char* end = "no";
    try {
        const bool done = co_await std::move(call);
        end = done ? "yes" : "no";
    } catch (const system_error& e) {
        end = end_of(e);
    }
    ending.end(end);
    co_return *end == 'y';
}

// Appends items, one or several, and works on one: sometimes it fails, gives up, forgets it, loses
// its session, or its claim. The control has the effect first, and then says that it is done.
class work_party : public party {
public:
    work_party(client c, const session& owner, const writer_options& how)
        : client_(std::move(c))
        , session_(owner)
        , queue_(owner, how.lock, most_attempts)
        , hurries_(how.kind == "judged_hasty") {}

    awaitable<void> turn(recorder& told, int n) override {
        if (n % 4 == 0) {
            co_await enqueue(told, n); // few, so that others wait for what is left behind
        }
        std::optional<job> held = co_await take(told, queue_, 200ms);
        if (!held) {
            co_return;
        }
        if (hurries_) {
            auto effect = effect_of(queue_.name(), *held);
            (void)co_await client_.txn(std::move(effect));
        }
        say("held");
        co_await support::sleep_for(10ms); // time to be overtaken
        if (n % 32 == 9) {
            (void)co_await client_.lease_revoke(session_.lease());
            co_await support::sleep_for(200ms); // others take it, before this one is told
        } else if (n % 16 == 1) {
            co_await take_away(*held);
            co_await support::sleep_for(200ms);
        } else if (n % 8 == 2) {
            co_return; // it forgets it
        }
        const bool well = co_await work(told, n, *held);
        say((well ? "added " : "refused ") + std::to_string(n));
    }

private:
    awaitable<void> enqueue(recorder& told, int n) {
        auto appending = told.begin("work", queue_.name(), "enqueue");
        std::vector<std::string> values;
        json writes = json::object();
        for (int i = 0; i < (n % 8 == 0 ? 3 : 1); ++i) {
            values.push_back(appending.id() + '-' + std::to_string(i));
            writes[values.back()] = "";
        }
        appending.with("writes", std::move(writes));
        const char* end = "yes";
        try {
            co_await queue_.enqueue(std::move(values));
        } catch (const system_error& e) {
            end = end_of(e);
        }
        appending.end(end);
    }

    // As an operator may do.
    awaitable<void> take_away(const job& held) {
        const std::string claims = queue_.name() + "/run/claim/";
        const std::string attempt = '.' + std::to_string(held.attempt());
        const auto erased = co_await client_.erase(claims + held.id() + attempt);
        if (erased.deleted != 1) {
            say("trouble there is no claim"); // if the session was lost
        }
    }

    awaitable<bool> work(recorder& told, int n, job& held) {
        if (n % 8 == 4) {
            return finish(told, queue_.name(), "retry", held, held.retry());
        }
        if (n % 8 == 6) {
            return finish(told, queue_.name(), "bury", held, held.bury());
        }
        if (hurries_) {
            return finish(told, queue_.name(), "ack", held, held.ack());
        }
        auto effect = effect_of(queue_.name(), held);
        return finish(told, queue_.name(), "ack", held, held.ack(std::move(effect)));
    }

    client client_;
    const session& session_;
    work_queue queue_;
    const bool hurries_;
};

// Works off what is left, and looks at what has become of all items.
class work_witness : public witness {
public:
    work_witness(client c, recorder told, const std::string& name)
        : client_(std::move(c))
        , told_(std::move(told))
        , name_(name) {}

    awaitable<void> end() override {
        const session own = co_await support::open_session(client_, writer_ttl);
        work_queue queue(own, name_, most_attempts);
        bool is_empty = false;
        auto goes_on = [&]() -> awaitable<bool> {
            std::optional<job> held = co_await take(told_, queue, 200ms);
            if (held) {
                auto effect = effect_of(name_, *held);
                auto acking = held->ack(std::move(effect));
                (void)co_await finish(told_, name_, "ack", *held, std::move(acking));
                co_return true;
            }
            const auto state = co_await queue.state();
            is_empty = state.ready == 0 && state.busy == 0;
            co_return is_empty;
        };
        while (!is_empty) {
            co_await support::eventually(goes_on, 30s, "one more item is worked off, or none left");
        }
        const auto state = co_await queue.state();
        told_.begin("work", name_, "left").with("amount", state.ready + state.busy).end("yes");
        const auto dead = co_await queue.dead();
        json all = json::array();
        for (const coetcd::dead_item& d : dead) {
            all.push_back({{"key", d.value}, {"now", {{"value", d.id}, {"version", d.attempts}}}});
        }
        auto burying = told_.begin("work", name_, "dead");
        burying.with("events", std::move(all)).with("amount", most_attempts.max_attempts);
        burying.end("yes");
        co_await look();
    }

private:
    awaitable<void> look() {
        auto looking = told_.begin("work", name_, "effects");
        const std::string before = effects_of(name_);
        auto keys = key_range::prefix(before);
        const auto effects = co_await client_.range(std::move(keys));
        json all = json::array();
        for (const coetcd::key_value& kv : effects.kvs) {
            json now{{"revision", std::stoll(kv.value)}, {"version", kv.version}};
            all.push_back({{"key", kv.key.substr(before.size())}, {"now", std::move(now)}});
        }
        const auto count = co_await client_.get(name_ + "-count");
        looking.with("events", std::move(all)).with("amount", count ? count->version : 0);
        looking.end("yes");
    }

    client client_;
    recorder told_;
    const std::string name_;
};

const judged_kind judged_work_queue("judged_work_queue", &make_party<work_party>);
const judged_kind judged_hasty("judged_hasty", &make_party<work_party>);

} // namespace

} // namespace faults

TEST_CASE("judged_work_queue: what clients saw of a work queue can have happened",
          "[nemesis][judge][short]") {
    faults::run_judged("judged_work_queue", true, &faults::make_witness<faults::work_witness>);
}

TEST_CASE("judged_hasty: what clients saw that work without a guard cannot, as a control",
          "[nemesis][judge]") {
    faults::run_judged("judged_hasty", false, &faults::make_witness<faults::work_witness>);
}
