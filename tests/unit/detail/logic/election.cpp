// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/election.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd::detail::logic;
using coetcd::errc;
using coetcd::event;
using coetcd::event_type;
using coetcd::key_value;
using coetcd::leader;
using coetcd::range_response;
using coetcd::txn_response;
using state = proclaimed::state;

namespace {

key_value kv(const std::string& key, std::int64_t create, std::int64_t mod) {
    key_value made;
    made.key = key;
    made.value = "v" + std::to_string(mod);
    made.create_revision = create;
    made.mod_revision = mod;
    made.lease = 7;
    return made;
}
event put(const std::string& key, std::int64_t create, std::int64_t mod) {
    return {event_type::put, kv(key, create, mod), std::nullopt};
}
event erase(const std::string& key, std::int64_t mod) {
    event e;
    e.type = event_type::erase;
    e.kv.key = key;
    e.kv.mod_revision = mod;
    return e;
}

/// What the answer to `proclaim` says; `read` if it was refused.
txn_response answer(std::int64_t revision, std::optional<std::vector<key_value>> read = {}) {
    txn_response r;
    r.header.revision = revision;
    r.succeeded = !read.has_value();
    if (read) {
        range_response found;
        found.kvs = std::move(*read);
        r.responses.emplace_back(std::move(found));
    }
    return r;
}

} // namespace

TEST_CASE("the oldest key of the queue leads", "[logic][election]") {
    const coetcd::range_request read = oldest_of("e");
    CHECK(read.range.key == "e/");
    CHECK(read.range.range_end == "e0");
    CHECK(read.options.limit == 1);
    CHECK(read.options.order == coetcd::sort_order::ascend);
    CHECK(read.options.target == coetcd::sort_target::create);
    CHECK_FALSE(read.options.keys_only);

    range_response found;
    CHECK_FALSE(leader_in(found));
    found.kvs.push_back(kv("e/a", 3, 5));
    const std::optional<leader> l = leader_in(found);
    REQUIRE(l);
    CHECK(l->key == "e/a");
    CHECK(l->value == "v5");
    CHECK(l->term == 3);
    CHECK(l->revision == 5);
    CHECK(l->lease == 7);
    CHECK(*l == leader_by(kv("e/a", 3, 5)));
    CHECK_FALSE(*l == leader_by(kv("e/a", 3, 6)));
    found.kvs.front().create_revision = 0;
    CHECK_THROWS_AS(leader_in(found), coetcd::error);
    found.kvs.front() = kv("e/a", 3, 0);
    CHECK_THROWS_AS(leader_in(found), coetcd::error);
}

TEST_CASE("what a change in the queue makes of who leads", "[logic][election]") {
    const std::optional<leader> nobody;
    const std::optional<leader> a = leader_by(kv("e/a", 10, 12));
    enum class then { same, other, look };
    const struct {
        const char* what;
        std::optional<leader> now;
        event e;
        then expected;
    } rows[] = {
        {"somebody comes to nobody", nobody, put("e/a", 20, 20), then::other},
        {"somebody was there all the time", nobody, put("e/a", 20, 21), then::look},
        {"somebody goes whom nobody knew", nobody, erase("e/a", 20), then::same},
        {"the leader proclaims", a, put("e/a", 10, 20), then::other},
        {"the leader goes", a, erase("e/a", 20), then::look},
        {"the leader's key begins another life", a, put("e/a", 20, 20), then::look},
        {"somebody queues up", a, put("e/b", 20, 20), then::same},
        {"somebody who waits changes his value", a, put("e/b", 15, 20), then::same},
        {"somebody older appears", a, put("e/b", 9, 20), then::look},
        {"somebody who waits goes", a, erase("e/b", 20), then::same},
    };
    for (const auto& row : rows) {
        INFO(row.what);
        const std::optional<std::optional<leader>> next = leader_after(row.now, row.e);
        CHECK(next.has_value() == (row.expected != then::look));
        if (row.expected == then::same) {
            CHECK(*next == row.now);
        } else if (row.expected == then::other) {
            REQUIRE(*next);
            CHECK(**next == leader_by(row.e.kv));
        }
    }
}

TEST_CASE("an observer watches the queue, puts and erases", "[logic][election]") {
    const question<std::optional<leader>> q = who_leads("e\n");
    CHECK(q.title == "election \"e \", observe");
    CHECK(q.read.range.key == "e\n/");
    CHECK(q.signs.range.key == "e\n/");
    CHECK(q.signs.range.range_end == "e\n0");
    CHECK_FALSE(q.signs.no_put);
    CHECK_FALSE(q.signs.no_delete);
    CHECK(q.signs.start_revision == 0);
}

TEST_CASE("proclaim() compares the term and the last change", "[logic][election]") {
    const coetcd::txn t = proclaim("e/a", 7, 10, 12, "v");
    REQUIRE(t.compares.size() == 2);
    CHECK(t.compares[0].what == coetcd::compare::target::create);
    CHECK(std::get<std::int64_t>(t.compares[0].operand) == 10);
    CHECK(t.compares[1].what == coetcd::compare::target::mod);
    CHECK(std::get<std::int64_t>(t.compares[1].operand) == 12);
    REQUIRE(t.success.size() == 1);
    const auto& written = std::get<coetcd::put_request>(t.success[0]);
    CHECK(written.key == "e/a");
    CHECK(written.value == "v");
    CHECK(written.options.lease == 7);
    REQUIRE(t.failure.size() == 1);
    CHECK(std::get<coetcd::range_request>(t.failure[0]).range.key == "e/a");
}

TEST_CASE("what the answer to proclaim() means", "[logic][election]") {
    const std::vector<key_value> none;
    const std::vector<key_value> at_15{kv("e/a", 10, 15)}; // with the value "v15"
    const struct {
        const char* what;
        txn_response response;
        std::int64_t last;
        std::string value;
        state now;
        std::int64_t then;
    } rows[] = {
        {"it was put", answer(20), 12, "v", state::done, 20},
        {"an earlier copy has put it", answer(20, at_15), 12, "v15", state::done, 15},
        {"somebody else has put something", answer(20, at_15), 12, "v", state::moved, 15},
        {"no copy of ours can have put it", answer(20, at_15), 0, "v15", state::moved, 15},
        {"the store has gone back", answer(20, at_15), 17, "v15", state::moved, 15},
        {"there is no key", answer(20, none), 12, "v", state::gone, 0},
        {"there is another life of it",
         answer(20, std::vector<key_value>{kv("e/a", 18, 18)}),
         12,
         "v18",
         state::gone,
         0},
    };
    for (const auto& row : rows) {
        INFO(row.what);
        const proclaimed p = after_proclaim(row.response, "e/a", 10, row.last, row.value);
        CHECK(p.now == row.now);
        CHECK(p.last == row.then);
    }
    const auto refuses = [](const txn_response& r, std::int64_t last) {
        try {
            (void)after_proclaim(r, "e/a", 10, last, "v");
        } catch (const coetcd::error& e) {
            return e.code() == errc::protocol_error;
        }
        return false;
    };
    CHECK(refuses(answer(0), 12));
    CHECK(refuses(answer(20, at_15), 15)); // the conditions hold
    CHECK(refuses(answer(9, none), 12));   // from before the term
    txn_response empty = answer(20);
    empty.succeeded = false;
    CHECK(refuses(empty, 12));
}

TEST_CASE("what a refused proclaim() has left is read through etcd's consensus",
          "[logic][election]") {
    const coetcd::detail::logic::name_keys c =
        coetcd::detail::logic::exclusive_keys("e", 0x1a, 0x3, 0, 0);
    const coetcd::txn t = read_proclaimed(c, "e/a", 10);
    REQUIRE(t.compares.size() == 1);
    CHECK(std::get<std::int64_t>(t.compares[0].operand) == 10);
    REQUIRE(t.success.size() == 2);
    CHECK(std::get<coetcd::erase_request>(t.success[0]).range.key == "e.1a-3-void"); // no read
    CHECK(std::get<coetcd::range_request>(t.success[1]).range.key == "e/a");

    const auto found = [](std::vector<key_value> read) {
        txn_response r = answer(20, std::move(read));
        r.succeeded = true;
        r.responses.emplace(r.responses.begin(), coetcd::erase_response());
        return r;
    };
    const std::vector<key_value> none;
    const std::vector<key_value> at_15{kv("e/a", 10, 15)}; // with the value "v15"
    const struct {
        const char* what;
        txn_response response;
        std::int64_t last;
        std::string value;
        effect left;
        state now;
        std::int64_t then;
    } rows[] = {
        {"a copy has put it", found(at_15), 12, "v15", effect::settled, state::done, 15},
        {"and others are void", found(at_15), 12, "v15", effect::unresolved, state::done, 15},
        {"nobody has", found(at_15), 15, "v", effect::settled, state::refused, 15},
        {"it was there before", found(at_15), 15, "v15", effect::settled, state::refused, 15},
        {"a copy may come yet", found(at_15), 15, "v", effect::unresolved, state::unknown, 15},
        {"or put the same", found(at_15), 15, "v15", effect::unresolved, state::unknown, 15},
        {"somebody may have overwritten it",
         found(at_15),
         12,
         "v",
         effect::settled,
         state::unknown,
         15},
        {"the store has gone back", found(at_15), 17, "v15", effect::settled, state::unknown, 15},
        {"there is no key", answer(20, none), 12, "v", effect::unresolved, state::gone, 0},
    };
    for (const auto& row : rows) {
        INFO(row.what);
        const proclaimed p = after_reading(row.response, "e/a", 10, row.last, row.value, row.left);
        CHECK(p.now == row.now);
        CHECK(p.last == row.then);
    }
    for (const txn_response& r : {found(none), answer(20, at_15), answer(9, none)}) {
        CHECK_THROWS_AS(after_reading(r, "e/a", 10, 12, "v", effect::settled), coetcd::error);
    }
}

TEST_CASE("what passes is no reason to give an election up", "[logic][election]") {
    for (const auto ec : {errc::timed_out,
                          errc::unavailable,
                          errc::outcome_unknown,
                          errc::protocol_error,
                          errc::session_lost,
                          errc::lock_lost}) {
        CHECK(may_campaign_again(ec));
    }
    CHECK_FALSE(may_campaign_again(errc::login_failed));
    CHECK_FALSE(may_campaign_again(errc::tls_failed));
    CHECK_FALSE(may_campaign_again(coetcd::server_errc::permission_denied));
}
