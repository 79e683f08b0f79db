// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/presence.hpp>
#include <coetcd/error.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd::detail::logic;
using coetcd::txn_response;
using where = standing::where;

namespace {

constexpr coetcd::lease_id lease = 0xa;

attempt_keys keys_of(name_keys c) {
    attempt_keys keys;
    keys.lease = lease;
    keys.by_name.push_back(std::move(c));
    return keys;
}
presence of_mutex() {
    presence p;
    p.begin(keys_of(exclusive_keys("n", lease, 1, 0, 0)));
    return p;
}
presence of_writer() {
    presence p;
    p.begin(keys_of(writer_keys("n", lease, 1, 0, 0)));
    return p;
}

/// Tells a standing that was said before, as if it had read it.
class says final : public rule {
public:
    explicit says(standing s)
        : said_(std::move(s)) {}
    standing after_enter(const txn_response&, attempt_keys&) override { return said_; }

private:
    const standing said_;
};

standing at(where w, std::int64_t create_revision = 0) {
    standing s;
    s.at = w;
    s.create_revision = create_revision;
    return s;
}

/// An answer to a request to enter.
void answer(presence& p, standing now, effect left = effect::none, bool succeeded = true) {
    says by(std::move(now));
    txn_response response;
    response.succeeded = succeeded;
    (void)p.answered(by, asking::enter, response, left);
}

struct event {
    std::string name;
    std::function<void(presence&)> happens;
    bool doubts; ///< Something that puts the keys may be applied later.
};

const std::vector<event> events{
    {"entered", [](presence& p) { answer(p, at(where::behind, 5)); }, false},
    {"entered, and a copy was lost",
     [](presence& p) { answer(p, at(where::behind, 5), effect::unresolved); },
     true},
    {"entered, and a copy has failed",
     [](presence& p) { answer(p, at(where::behind, 5), effect::settled); },
     false},
    {"entered by an earlier copy",
     [](presence& p) { answer(p, at(where::queued, 6), effect::none, false); },
     true},
    {"taken", [](presence& p) { answer(p, at(where::taken), effect::none, false); }, false},
    {"taken, and a copy has failed",
     [](presence& p) { answer(p, at(where::taken), effect::settled, false); },
     false},
    {"taken, and a copy was lost",
     [](presence& p) { answer(p, at(where::taken), effect::unresolved, false); },
     true},
    {"gone", [](presence& p) { answer(p, at(where::gone), effect::none, false); }, true},
    {"failed without an effect", [](presence& p) { p.failed(effect::none, false); }, false},
    {"refused", [](presence& p) { p.failed(effect::none, true); }, false},
    {"failed, and may be applied", [](presence& p) { p.failed(effect::unresolved, false); }, true},
    {"failed, and may have been applied",
     [](presence& p) { p.failed(effect::settled, false); },
     true},
    {"another epoch is there", [](presence& p) { p.not_left(0, 7); }, true},
    {"deleted", [](presence& p) { p.deleted(); }, false},
};

} // namespace

TEST_CASE("an attempt that has sent nothing has nothing in etcd", "[presence]") {
    const presence p = of_mutex();
    CHECK(p.is_absent());
    CHECK_FALSE(p.was_refused());
    CHECK_FALSE(p.may_come());
    CHECK_FALSE(p.is_known());
}

TEST_CASE("what is in doubt stays so, in every order of events", "[presence]") {
    for (const event& first : events) {
        for (const event& second : events) {
            for (const event& third : events) {
                presence p = of_mutex();
                bool doubts = false;
                for (const event* each : {&first, &second, &third}) {
                    CAPTURE(first.name, second.name, third.name, each->name);
                    each->happens(p);
                    doubts = doubts || each->doubts;
                    // Keys that are known anew, with another life, are those of another copy.
                    CHECK((p.may_come() || !doubts));
                    CHECK((p.needs_epoch() || !p.may_come()));
                    CHECK((p.needs_epoch() || p.is_known()));
                    CHECK_FALSE((p.is_absent() && (p.may_come() || p.is_known())));
                    CHECK((p.outlasts_deletion() || !p.may_come()));
                }
            }
        }
    }
}

TEST_CASE("each event leaves what it leaves", "[presence]") {
    struct row {
        const char* name;
        bool is_absent, was_refused, may_come, needs_epoch;
    };
    const std::vector<row> table{
        {"entered", false, false, false, false},
        {"entered, and a copy was lost", false, false, true, true},
        {"entered, and a copy has failed", false, false, false, false},
        {"entered by an earlier copy", false, false, true, true},
        {"taken", true, false, false, true},
        {"taken, and a copy has failed", false, false, false, true},
        {"taken, and a copy was lost", false, false, true, true},
        {"gone", false, false, true, true},
        {"failed without an effect", true, false, false, true},
        {"refused", true, true, false, true},
        {"failed, and may be applied", false, false, true, true},
        {"failed, and may have been applied", false, false, true, true},
        {"another epoch is there", false, false, true, true},
        {"deleted", true, false, false, true},
    };
    REQUIRE(table.size() == events.size());
    for (std::size_t i = 0; i != table.size(); ++i) {
        CAPTURE(events[i].name);
        REQUIRE(events[i].name == table[i].name);
        presence p = of_mutex();
        events[i].happens(p);
        CHECK(p.is_absent() == table[i].is_absent);
        CHECK(p.was_refused() == table[i].was_refused);
        CHECK(p.may_come() == table[i].may_come);
        CHECK(p.needs_epoch() == table[i].needs_epoch);
    }
}

TEST_CASE("an answer that is none leaves what is known", "[presence]") {
    class throws final : public rule {
        standing after_enter(const txn_response&, attempt_keys&) override {
            throw coetcd::error(coetcd::errc::protocol_error, "no answer");
        }
    };
    presence p = of_mutex();
    answer(p, at(where::behind, 5));
    throws by;
    CHECK_THROWS_AS(p.answered(by, asking::enter, {}, effect::unresolved), coetcd::error);
    CHECK(p.create_revision() == 5);
    CHECK(p.may_come());
}

TEST_CASE("the epochs that are told are those of the next request", "[presence]") {
    presence p = of_mutex();
    standing ended = at(where::ended);
    ended.epochs = {9};
    answer(p, ended, effect::none, false);
    CHECK(p.first().epoch == 9);
    p.not_left(0, 12);
    CHECK(p.first().epoch == 12);
}

TEST_CASE("a key that was deleted holds nothing, and others go with it", "[presence]") {
    presence p = of_mutex();
    answer(p, at(where::owner, 5));
    CHECK(p.held_by() == std::vector<held_life>{{p.first().keys.front(), 5}});
    CHECK_FALSE(p.outlasts_deletion());
    p.deleted();
    CHECK(p.is_deleted());
    CHECK(p.held_by().empty());
    CHECK_FALSE(p.needs_epoch());

    name_keys with_note = exclusive_keys("n", lease, 1, 0, 0);
    with_note.note_key = "n.note";
    presence noted;
    noted.begin(keys_of(with_note));
    answer(noted, at(where::owner, 5));
    CHECK(noted.outlasts_deletion());
    CHECK_FALSE(noted.needs_epoch());
    noted.deleted();
    CHECK(noted.needs_epoch()); // the note goes with it

    presence writes = of_writer();
    answer(writes, at(where::owner, 5));
    CHECK(writes.outlasts_deletion()); // it has two keys
}

TEST_CASE("what stands for it follows the mode", "[presence]") {
    presence p = of_writer();
    answer(p, at(where::owner, 5));
    const name_keys c = p.first();
    const held_life base{c.base_key, 5};
    CHECK(p.has_modes());
    CHECK(p.key(true) == c.write_key);
    CHECK(p.proof(5) == std::vector<held_life>{{c.write_key, 5}});
    CHECK(p.held_by().size() == 2);

    p.change_mode(); // a downgrade
    CHECK(p.key(false) == c.base_key);
    CHECK(p.proof(0) == std::vector<held_life>{base});
    CHECK(p.held_by() == std::vector<held_life>{base});
    p.lowered(8, false);
    CHECK(p.first().epoch == 8);

    p.change_mode(); // an upgrade
    CHECK(p.held_by() == std::vector<held_life>{base});
    p.raise_ended(true);
    CHECK(p.may_come());
    p.lowered(9, false); // by its life, which says nothing of other copies
    CHECK(p.may_come());
    p.raised(11);
    CHECK(p.held_by() == std::vector<held_life>{base, {c.write_key, 11}});
    CHECK(p.proof(11) == std::vector<held_life>{{c.write_key, 11}});

    p.change_mode(); // another downgrade, which has another epoch: nothing can come any more
    p.lowered(12, true);
    CHECK_FALSE(p.may_come());
    CHECK_FALSE(p.needs_epoch());
    CHECK(p.held_by() == std::vector<held_life>{base});
}

TEST_CASE("several names are proved by a key of each", "[presence]") {
    attempt_keys two = keys_of(exclusive_keys("a", lease, 1, 0, 0));
    two.by_name.push_back(exclusive_keys("b", lease, 1, 0, 0));
    presence p;
    p.begin(two);
    answer(p, at(where::owner, 5));
    CHECK(p.proof(0) == std::vector<held_life>{{two.by_name[0].keys.front(), 5},
                                               {two.by_name[1].keys.front(), 5}});
    CHECK(p.held_by() == p.proof(0));
    CHECK(p.key(false) == two.by_name[0].keys.front());
}

TEST_CASE("what an earlier object has left is known from the beginning", "[presence]") {
    for (const bool may_come : {false, true}) {
        const presence p(lease, exclusive_keys("n", lease, 1, 0, 0), 5, may_come);
        CHECK(p.is_known());
        CHECK_FALSE(p.is_absent());
        CHECK(p.may_come() == may_come);
        CHECK(p.needs_epoch() == may_come);
        CHECK(p.keys().lease == lease);
    }
}
