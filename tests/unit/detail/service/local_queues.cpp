// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/service/local_queues.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd::detail;

namespace {

using names = std::vector<std::string>;

int seconds_now = 0; ///< Seconds.

/// How one that goes abreast with others asks, when its turn has come.
enum class abreast { at_once, when_told };

/// A waiter in line; counts what it is told.
class waiter final : public turn_taker {
public:
    waiter(local_queues& of, const names& wanted, const std::vector<bool>& shares = {}) {
        turn_.emplace(of, wanted, *this, shares);
    }
    waiter(local_queues& of, abreast how, const std::string& wanted) {
        turn_.emplace(of, names{wanted}, *this, std::vector<bool>(), true);
        goes_on_ = how == abreast::at_once;
        if (goes_on_ && has_come()) {
            step_forward();
        }
    }

    bool has_come() const { return turn_->has_come(); }
    bool is_behind_known() const { return turn_->is_behind_known(); }
    bool is_behind_queue() const { return turn_->is_behind_queue(); }
    local_queues::line& at(std::size_t index) { return turn_->at(index); }
    void pass_on() { turn_->pass_on(); }
    void share() { turn_->share(); }
    void step_forward() { turn_->step_forward(); }
    void step_aside() { turn_->step_aside(); }
    void tell_behind() const { turn_->tell_behind(); }
    void leave() { turn_.reset(); }
    void was_told() { turn_->was_told(); }
    /// When etcd had last told one before it something; -1 if it never has.
    int told_at() const {
        const time_point last = turn_->told();
        return last == time_point::min()
                   ? -1
                   : static_cast<int>(last.time_since_epoch() / std::chrono::seconds(1));
    }
    int told = 0;
    int told_known = 0;
    bool known = false;
    bool queues = false;

private:
    void on_turn() noexcept override {
        ++told;
        if (goes_on_) {
            step_forward();
        }
    }
    void on_known() override { ++told_known; }
    time_point now() const override { return time_point(std::chrono::seconds(seconds_now)); }
    bool is_known() const override { return known; }
    bool is_queueing() const override { return queues; }
    bool goes_on_ = false;
    std::optional<local_turn> turn_;
};

/// The epoch of the slot of a name, with which one tells whether the name was forgotten.
std::int64_t epoch(local_queues& of, const std::string& name) {
    waiter w(of, {name});
    auto* const slot = w.at(0).slots.take();
    REQUIRE(slot);
    const std::int64_t known = slot->epoch;
    logic::slot_table::free(*slot, known);
    return known;
}

void set_epoch(local_queues& of, const std::string& name, std::int64_t epoch) {
    waiter w(of, {name});
    auto* const slot = w.at(0).slots.take();
    REQUIRE(slot);
    logic::slot_table::free(*slot, epoch);
}

void visit(local_queues& of, const std::string& prefix, int count) {
    for (int i = 0; i != count; ++i) {
        waiter w(of, {prefix + std::to_string(i)});
    }
}

constexpr int most_idle = 1024;

} // namespace

TEST_CASE("turns come in order of arrival", "[service][lines]") {
    local_queues all;
    waiter first(all, {"a"});
    waiter second(all, {"a"});
    waiter third(all, {"a"});
    waiter other(all, {"b"});
    CHECK(first.has_come());
    CHECK_FALSE(second.has_come());
    CHECK_FALSE(third.has_come());
    CHECK(other.has_come());
    first.leave();
    CHECK(second.has_come());
    CHECK(second.told == 1);
    CHECK_FALSE(third.has_come());
    second.leave();
    CHECK(third.told == 1);
    CHECK(first.told == 0); // a waiter whose turn comes at once sees that by itself
    CHECK(other.told == 0);
}

TEST_CASE("when a waiter leaves the middle of a line, no turn has come", "[service][lines]") {
    local_queues all;
    waiter first(all, {"a"});
    waiter second(all, {"a"});
    waiter third(all, {"a"});
    second.leave();
    CHECK(first.told == 0);
    CHECK(third.told == 0);
    CHECK_FALSE(third.has_come());
    first.leave();
    CHECK(third.told == 1);
    CHECK(third.has_come());
}

TEST_CASE("a line remembers when etcd has last told one of it how things are", "[service][lines]") {
    local_queues all;
    seconds_now = 1;
    waiter first(all, {"a"});
    waiter second(all, {"a", "b"});
    waiter other(all, {"c"});
    CHECK(first.told_at() == -1);
    CHECK(second.told_at() == -1);
    seconds_now = 2;
    first.was_told(); // that it has no place yet, say
    seconds_now = 3;
    CHECK(second.told_at() == 2);
    CHECK(first.told_at() == -1); // nothing is before it
    CHECK(other.told_at() == -1);
    first.known = true; // as long as it stands there it is known how things are
    CHECK(second.told_at() == 3);
    seconds_now = 5;
    CHECK(second.told_at() == 5);
    first.leave();
    seconds_now = 7;
    CHECK(second.told_at() == 5);
    waiter last(all, {"b"});
    CHECK(last.told_at() == -1);
    second.leave(); // of which nothing is known
    CHECK(last.told_at() == -1);
}

TEST_CASE("a turn in several lines has come when it is the first of all", "[service][lines]") {
    local_queues all;
    waiter a(all, {"a"});
    waiter b(all, {"b"});
    waiter ab(all, {"a", "b"});
    waiter ba(all, {"b", "a"}); // another order cannot lock them up: all are joined in one step
    waiter c(all, {"c"});
    CHECK_FALSE(ab.has_come());
    b.leave();
    CHECK(ab.told == 0);
    CHECK_FALSE(ab.has_come());
    a.leave();
    CHECK(ab.told == 1);
    CHECK(ab.has_come());
    CHECK_FALSE(ba.has_come());
    CHECK(ab.at(0).name == "a");
    CHECK(ab.at(1).name == "b");
    CHECK(ba.at(0).name == "b");
    CHECK(&ab.at(0) == &ba.at(1));
    ab.leave();
    CHECK(ba.told >= 1);
    CHECK(ba.has_come());
    CHECK(c.told == 0);
}

TEST_CASE("a waiter that leaves several lines gives way in each of them", "[service][lines]") {
    local_queues all;
    waiter abc(all, {"a", "b", "c"});
    waiter a(all, {"a"});
    waiter bd(all, {"b", "d"});
    waiter d(all, {"d"});
    abc.leave();
    CHECK(a.told == 1);
    CHECK(bd.told == 1);
    CHECK(d.told == 0);
    CHECK(all.is_free_here("c"));
}

TEST_CASE("a waiter that shares a name lets the next one go on before it leaves",
          "[service][lines]") {
    local_queues all;
    waiter first(all, {"a"}, {true});
    waiter second(all, {"a"}, {true});
    waiter writer(all, {"a"});
    waiter third(all, {"a"}, {true});
    CHECK_FALSE(second.has_come());
    first.pass_on();
    CHECK(second.told == 1);
    CHECK(second.has_come());
    CHECK(first.has_come());
    CHECK(first.at(0).name == "a"); // what is known of the name is still its own
    CHECK_FALSE(writer.has_come());
    first.pass_on(); // once more changes nothing
    CHECK(second.told == 1);
    second.pass_on();
    CHECK(writer.told == 1);
    writer.pass_on(); // shares nothing
    CHECK(third.told == 0);
    first.leave();
    second.leave();
    CHECK(writer.told == 1);
    CHECK_FALSE(third.has_come());
    writer.share(); // as one that goes on as a reader
    writer.pass_on();
    CHECK(third.told == 1);
    writer.leave();
    CHECK(third.told == 1);
}

TEST_CASE("of several names only those are passed on that are shared", "[service][lines]") {
    local_queues all;
    waiter both(all, {"a", "b"}, {true, false});
    waiter a(all, {"a"}, {true});
    waiter b(all, {"b"}, {true});
    waiter ab(all, {"a", "b"}, {false, true});
    both.pass_on();
    CHECK(a.told == 1);
    CHECK(b.told == 0);
    a.pass_on();
    CHECK(ab.told == 0); // the first of one line only
    CHECK_FALSE(ab.has_come());
    both.leave();
    CHECK(b.told == 1);
    b.pass_on();
    CHECK(ab.told == 1);
    CHECK(ab.has_come());
}

TEST_CASE("a waiter that has passed its turn on is no predecessor any more", "[service][lines]") {
    local_queues all;
    waiter first(all, {"a"}, {true});
    first.known = true;
    waiter second(all, {"a"});
    CHECK(second.is_behind_known());
    first.pass_on();
    CHECK_FALSE(second.is_behind_known());
    CHECK_FALSE(first.is_behind_known());
    waiter third(all, {"a"});
    CHECK_FALSE(third.is_behind_known());
    second.known = true;
    CHECK(third.is_behind_known());
}

TEST_CASE("so many turns go abreast, in order of arrival", "[service][lines]") {
    local_queues all;
    std::vector<std::unique_ptr<waiter>> some;
    for (std::size_t i = 0; i != 20; ++i) {
        some.push_back(std::make_unique<waiter>(all, abreast::at_once, "a"));
    }
    const auto are_abreast = [&] { return some.back()->at(0).abreast.size(); };
    const auto forward = [&](std::size_t i) { return some[i]->has_come(); };
    CHECK(are_abreast() == 16);
    CHECK(forward(15));
    CHECK_FALSE(forward(16));
    CHECK_FALSE(all.is_free_here("a"));
    some[3]->step_aside(); // it is admitted
    CHECK(some[16]->told == 1);
    CHECK(forward(16));
    CHECK_FALSE(forward(17));
    some[3]->step_aside(); // once more changes nothing
    some[3]->leave();
    CHECK_FALSE(forward(17));
    some[18]->leave(); // from among those that wait here
    CHECK_FALSE(forward(17));
    some[0]->leave();
    some[1]->leave();
    CHECK(forward(17));
    CHECK(forward(19));
    CHECK(are_abreast() == 16);
}

TEST_CASE("a turn that has come lets all behind it come as soon as it has asked",
          "[service][lines]") {
    local_queues all;
    waiter first(all, abreast::when_told, "a");
    waiter second(all, abreast::at_once, "a");
    waiter third(all, abreast::at_once, "a");
    CHECK_FALSE(second.has_come());
    first.step_forward();
    CHECK(second.told == 1);
    CHECK(third.told == 1); // by the second one
    CHECK(third.has_come());
    // one that goes abreast with none waits for the queue, not for those that are abreast
    waiter alone(all, {"a"});
    CHECK(alone.has_come());
    waiter last(all, abreast::at_once, "a");
    CHECK_FALSE(last.has_come());
    alone.leave();
    CHECK(last.has_come());
}

TEST_CASE("a slot that is free again is told to all that are abreast", "[service][lines]") {
    local_queues all;
    waiter first(all, abreast::at_once, "a");
    waiter second(all, abreast::at_once, "a");
    waiter third(all, abreast::when_told, "a");
    CHECK(first.told == 0);
    all.slot_freed("a");
    CHECK(first.told == 1);
    CHECK(second.told == 1);
    CHECK(third.told == 1);
    first.step_aside();
    all.slot_freed("a");
    CHECK(first.told == 1);
    CHECK(second.told == 2);
    second.queues = true; // it waits for others
    all.slot_freed("a");
    CHECK(second.told == 2);
}

TEST_CASE("those that are abreast are ahead of all in the line", "[service][lines]") {
    local_queues all;
    waiter first(all, abreast::at_once, "a");
    waiter second(all, abreast::at_once, "a");
    waiter third(all, abreast::when_told, "a");
    CHECK_FALSE(third.is_behind_known());
    second.known = true;
    CHECK(third.is_behind_known());
    CHECK_FALSE(first.is_behind_known());
    second.tell_behind();
    CHECK(third.told_known == 1);
    CHECK(first.told_known == 0);
    CHECK_FALSE(third.is_behind_queue()); // it may have taken what was free
    second.queues = true;
    CHECK(third.is_behind_queue());
    second.step_aside();
    CHECK_FALSE(third.is_behind_queue());
    CHECK_FALSE(third.is_behind_known());
}

TEST_CASE("a name is free to be shared while all waiters in its line share it",
          "[service][lines]") {
    local_queues all;
    waiter other(all, {"b"}, {true});
    waiter first(all, {"a"}, {true});
    CHECK_FALSE(all.is_free_here("a"));
    CHECK(all.is_free_here("a", true));
    waiter second(all, {"b", "a"}, {true, false});
    CHECK_FALSE(all.is_free_here("a", true));
    CHECK(all.is_free_here("b", true));
    second.leave();
    CHECK(all.is_free_here("a", true));
    first.pass_on();
    CHECK(all.is_free_here("a"));
}

TEST_CASE("a name is not forgotten while a waiter that passed it on lasts, or a slot of it",
          "[service][lines]") {
    for (const bool slot_first : {true, false}) {
        local_queues all;
        waiter reader(all, {"a"}, {true});
        auto* const slot = reader.at(0).slots.take();
        reader.pass_on();
        visit(all, "x", 2 * most_idle);
        if (slot_first) {
            logic::slot_table::free(*slot, 7);
            all.slot_freed("a");
            visit(all, "y", 2 * most_idle);
            reader.leave();
        } else {
            reader.leave();
            visit(all, "y", 2 * most_idle);
            logic::slot_table::free(*slot, 7);
            all.slot_freed("a");
        }
        CHECK(epoch(all, "a") == 7);
        visit(all, "z", 2 * most_idle);
        CHECK(epoch(all, "a") == 0);
    }
}

TEST_CASE("a slot that is free again is told to the first waiter, while it has its turn",
          "[service][lines]") {
    local_queues all;
    waiter first(all, {"a"});
    waiter second(all, {"a", "b"});
    all.slot_freed("a");
    CHECK(first.told == 1);
    CHECK(second.told == 0);
    all.slot_freed("b"); // the waiter is the first there, and its turn has not come
    CHECK(second.told == 0);
    all.slot_freed("c"); // no waiter wants that
    first.leave();
    CHECK(second.told == 1);
    all.slot_freed("b");
    CHECK(second.told == 2);
}

TEST_CASE("a name is free here while no waiter is in its line", "[service][lines]") {
    local_queues all;
    CHECK(all.is_free_here("a"));
    waiter first(all, {"a"});
    waiter second(all, {"a"});
    CHECK_FALSE(all.is_free_here("a"));
    CHECK(all.is_free_here("b"));
    first.leave();
    CHECK_FALSE(all.is_free_here("a"));
    second.leave();
    CHECK(all.is_free_here("a"));
    // as when one of its slots is being given up
    waiter third(all, {"a"});
    logic::slot_table::close(*third.at(0).slots.take());
    third.leave();
    CHECK(all.is_free_here("a"));
}

TEST_CASE("what is known of a name is kept for the next one", "[service][lines]") {
    local_queues all;
    {
        waiter first(all, {"a"});
        first.at(0).was_free = true;
    }
    set_epoch(all, "a", 7);
    CHECK(epoch(all, "a") == 7);
    CHECK(epoch(all, "b") == 0);
    waiter second(all, {"a"});
    CHECK(second.at(0).was_free);
}

TEST_CASE("of the names that no waiter wants the last 1024 are remembered", "[service][lines]") {
    local_queues all;
    set_epoch(all, "first", 7);
    set_epoch(all, "second", 8);
    visit(all, "x", most_idle - 2);
    CHECK(epoch(all, "first") == 7); // which makes it the last one
    visit(all, "y", 1);
    CHECK(epoch(all, "second") == 0); // so that this one was the first to go
    CHECK(epoch(all, "first") == 7);
    visit(all, "z", most_idle);
    CHECK(epoch(all, "first") == 0);
}

TEST_CASE("a name that a waiter wants is not forgotten", "[service][lines]") {
    local_queues all;
    set_epoch(all, "a", 7);
    waiter one(all, {"a"});
    all.slot_freed("a");
    REQUIRE_FALSE(one.at(0).idle);
    visit(all, "x", 2 * most_idle);
    one.leave();
    CHECK(epoch(all, "a") == 7);
}

TEST_CASE("a name is not forgotten before its slots are free", "[service][lines]") {
    for (const bool soon : {true, false}) {
        local_queues all;
        waiter one(all, {"a"});
        auto* const slot = one.at(0).slots.take();
        logic::slot_table::close(*slot);
        one.leave();
        visit(all, "x", 2 * most_idle);
        logic::slot_table::free(*slot, 7);
        all.slot_freed("a"); // now it is like any other
        visit(all, "y", soon ? most_idle - 1 : most_idle);
        CHECK(epoch(all, "a") == (soon ? 7 : 0));
    }
}

TEST_CASE("a name that no waiter wants is remembered once, however often it is told of",
          "[service][lines]") {
    local_queues all;
    set_epoch(all, "a", 7);
    set_epoch(all, "b", 8);
    for (int i = 0; i != 2 * most_idle; ++i) {
        all.slot_freed("b");
    }
    CHECK(epoch(all, "a") == 7);
    CHECK(epoch(all, "b") == 8);
}
