// SPDX-License-Identifier: BSL-1.0
#include <coetcd/sequence.hpp>
#include <coetcd/stm.hpp>

#include <nlohmann/json.hpp>

#include <chrono>
#include <string>
#include <utility>

#include "judged.hpp"
#include "support/catch.hpp"

using namespace std::chrono_literals;
using boost::system::system_error;
using coetcd::client;
using coetcd::session;
using nlohmann::json;
using support::recorder;

namespace faults {

namespace {

// Moves something from one account to another one, or looks at two of them. The control reads no
// more than what was committed, and so loses updates.
class stm_party : public party {
public:
    stm_party(client, const session& owner, const writer_options& how)
        : session_(owner)
        , bank_(how.lock)
        , protection_(how.kind == "judged_loser" ? coetcd::isolation::read_committed
                                                 : coetcd::isolation::serializable_snapshot) {}

    awaitable<void> turn(recorder& told, int n) override {
        auto moving = told.begin("stm", bank_, "txn");
        const std::string from = bank_ + '/' + std::to_string(n % 3);
        const std::string to = bank_ + '/' + std::to_string((n + 1 + n % 2) % 3);
        json reads, writes;
        auto body = [&](coetcd::transaction& t) -> awaitable<void> {
            reads = json::object();
            writes = json::object();
            const auto a = co_await t.get(from);
            const auto b = co_await t.get(to);
            reads[from] = a ? *a : std::string();
            reads[to] = b ? *b : std::string();
            say("held");
            co_await support::sleep_for(10ms); // time to be overtaken
            if (n % 4 != 0) {
                const std::string less = std::to_string((a ? std::stoi(*a) : 100) - 1);
                const std::string more = std::to_string((b ? std::stoi(*b) : 100) + 1);
                t.put(from, less);
                t.put(to, more);
                writes[from] = less;
                writes[to] = more;
            }
        };
        const char* end = "yes";
        try {
            co_await coetcd::stm(session_, body, protection_);
        } catch (const system_error& e) {
            end = end_of(e);
        }
        moving.with("reads", reads).with("writes", writes).end(end);
        say((*end == 'y' ? "added " : "refused ") + std::to_string(n));
    }

private:
    const session& session_;
    const std::string bank_;
    const coetcd::stm_options protection_;
};

class sequence_party : public party {
public:
    sequence_party(client, const session& owner, const writer_options& how)
        : sequence_(owner, how.lock) {}

    awaitable<void> turn(recorder& told, int n) override {
        return draw(told, sequence_.name(), sequence_.next(), n);
    }

private:
    coetcd::sequence sequence_;
};

// Counts by itself: reads a number, and writes the next one.
class counting_party : public party {
public:
    counting_party(client c, const session&, const writer_options& how)
        : client_(std::move(c))
        , key_(how.lock) {}

    awaitable<void> turn(recorder& told, int n) override {
        auto drawing = told.begin("sequence", key_, "next");
        say("held");
        const auto last = co_await client_.get(key_);
        const std::int64_t number = last ? std::stoll(last->value) + 1 : 1;
        std::string text = std::to_string(number);
        (void)co_await client_.put(key_, std::move(text)); // if it throws, its end is unknown
        drawing.with("amount", number).end("yes");
        say("added " + std::to_string(n));
    }

private:
    client client_;
    const std::string key_;
};

const judged_kind judged_stm("judged_stm", &make_party<stm_party>);
const judged_kind judged_loser("judged_loser", &make_party<stm_party>);
const judged_kind judged_counting("judged_counting", &make_party<counting_party>);
const judged_kind judged_sequence("judged_sequence", &make_party<sequence_party>);

} // namespace

} // namespace faults

TEST_CASE("judged_stm: what clients saw of transactions can have happened",
          "[nemesis][judge][short]") {
    faults::run_judged("judged_stm");
}

TEST_CASE("judged_loser: what clients saw that lose updates cannot, as a control",
          "[nemesis][judge]") {
    faults::run_judged("judged_loser", false);
}

TEST_CASE("judged_sequence: what clients saw of a sequence can have happened",
          "[nemesis][judge][short]") {
    faults::run_judged("judged_sequence");
}

TEST_CASE("judged_counting: what clients saw that count without a guard cannot, as a control",
          "[nemesis][judge]") {
    faults::run_judged("judged_counting", false);
}
