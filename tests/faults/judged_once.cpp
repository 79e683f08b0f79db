// SPDX-License-Identifier: BSL-1.0
#include <coetcd/counter.hpp>
#include <coetcd/exactly_once.hpp>
#include <coetcd/value.hpp>

#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "judged.hpp"
#include "support/catch.hpp"

using namespace std::chrono_literals;
using coetcd::client;
using coetcd::session;
using nlohmann::json;
using support::recorder;

namespace faults {

namespace {

// Each call adds one: what it returns is a number that no other call gets.
class counter_party : public party {
public:
    counter_party(client, const session& owner, const writer_options& how)
        : counter_(owner, how.lock) {}

    awaitable<void> turn(recorder& told, int n) override {
        return draw(told, counter_.name(), counter_.add(), n);
    }

private:
    coetcd::counter counter_;
};

// What a transaction writes once is the next version of a key. The control makes it by itself, and
// again if the answer was lost, as one in a hundred is for it.
class once_party : public party {
public:
    once_party(client c, const session& owner, const writer_options& how)
        : client_(std::move(c))
        , once_(owner, how.lock + "/once")
        , key_(how.lock)
        , repeats_(how.kind == "judged_repeating") {}

    awaitable<void> turn(recorder& told, int n) override {
        return draw(told, key_, repeats_ ? repeated() : version(), n);
    }

private:
    coetcd::txn next() const {
        return coetcd::txn().then(coetcd::op::put(key_, ""), coetcd::op::range(key_));
    }
    awaitable<std::int64_t> version() {
        const coetcd::txn_outcome outcome = co_await once_.txn(next());
        if (!outcome.responses) {
            throw coetcd::error(coetcd::errc::outcome_unknown, "which number it was");
        }
        co_return outcome.responses->at(1).range().kvs.at(0).version;
    }
    awaitable<std::int64_t> repeated() {
        const bool loses = ++turns_ % 100 == 0; // the faults of a minute may lose no answer at all
        for (int lost = 0;; ++lost) {
            std::optional<coetcd::txn_response> response;
            try {
                response = co_await client_.txn(next());
            } catch (const coetcd::error& e) {
                if (lost == 3 || e.code() != coetcd::condition::outcome_unknown) {
                    throw;
                }
            }
            if (response && !(loses && lost == 0)) {
                co_return response->responses.at(1).range().kvs.at(0).version;
            }
        }
    }

    client client_;
    coetcd::exactly_once once_;
    const std::string key_;
    const bool repeats_;
    int turns_ = 0;
};

// Writes a value if it is still what was read. The control does not compare.
class value_party : public party {
public:
    value_party(client, const session& owner, const writer_options& how)
        : value_(owner, how.lock)
        , compares_(how.kind != "judged_setter")
        , process_(how.number) {}

    awaitable<void> turn(recorder& told, int n) override {
        auto writing = told.begin("stm", value_.name(), "txn");
        const auto before = co_await value_.get();
        say("held");
        co_await support::sleep_for(10ms); // time to be overtaken
        const std::string desired = process_ + '-' + std::to_string(n);
        writing.with("reads", json{{value_.name(), before ? before->value : std::string()}});
        writing.with("writes", json{{value_.name(), desired}});
        const char* end = "yes";
        try {
            std::optional<std::int64_t> written;
            if (compares_) {
                written =
                    co_await value_.compare_exchange(before ? before->mod_revision : 0, desired);
            } else {
                written = co_await value_.set(desired);
            }
            if (written) {
                writing.with("token", *written);
            } else {
                end = "no";
            }
        } catch (const boost::system::system_error& e) {
            end = end_of(e);
        }
        writing.end(end);
        say((*end == 'y' ? "added " : "refused ") + std::to_string(n));
    }

private:
    coetcd::value value_;
    const bool compares_;
    const std::string process_;
};

const judged_kind judged_counter("judged_counter", &make_party<counter_party>);
const judged_kind judged_once("judged_once", &make_party<once_party>);
const judged_kind judged_repeating("judged_repeating", &make_party<once_party>);
const judged_kind judged_value("judged_value", &make_party<value_party>);
const judged_kind judged_setter("judged_setter", &make_party<value_party>);

} // namespace

} // namespace faults

TEST_CASE("judged_counter: what clients saw of a counter can have happened",
          "[nemesis][judge][short]") {
    faults::run_judged("judged_counter");
}

TEST_CASE("judged_once: what clients saw of writes that are made once can have happened",
          "[nemesis][judge][short]") {
    faults::run_judged("judged_once");
}

TEST_CASE("judged_repeating: what clients saw that write again cannot, as a control",
          "[nemesis][judge]") {
    faults::run_judged("judged_repeating", false);
}

TEST_CASE("judged_value: what clients saw of a value can have happened",
          "[nemesis][judge][short]") {
    faults::run_judged("judged_value");
}

TEST_CASE("judged_setter: what clients saw that do not compare cannot, as a control",
          "[nemesis][judge]") {
    faults::run_judged("judged_setter", false);
}
