// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/key_space.hpp>

#include <cstddef>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "support/catch.hpp"

using coetcd::compare;
using coetcd::errc;
using coetcd::key_range;
using coetcd::op;
using coetcd::txn;
using coetcd::detail::logic::encode;
using coetcd::detail::logic::key_space;
namespace wire = coetcd::detail::wire;

namespace {

std::string bytes(const char* text, std::size_t n) {
    return {text, n};
}
const std::string zero = bytes("\0", 1);

coetcd::key_value kv(std::string key) {
    coetcd::key_value made;
    made.key = std::move(key);
    made.value = "app/v"; // no key
    return made;
}

template<class Message>
Message told(const key_space& of, Message said) {
    tell(of, said);
    return said;
}

template<class Message>
void check_refused(const key_space& of, const Message& said) {
    try {
        (void)told(of, said);
        FAIL("it was taken");
    } catch (const coetcd::error& e) {
        CHECK(e.code() == errc::protocol_error);
    }
}

/// The keys of a store that are in a range, as etcd says.
using store = std::map<std::string, std::string>;
store in(const store& all, const key_range& keys) {
    store found;
    for (const auto& [key, value] : all) {
        const bool single = keys.range_end.empty();
        const bool to_last = keys.range_end == zero;
        if (single ? key == keys.key : key >= keys.key && (to_last || key < keys.range_end)) {
            found.emplace(key, value);
        }
    }
    return found;
}

} // namespace

TEST_CASE("ranges of a namespace end with it", "[logic][key_space]") {
    struct {
        std::string prefix;
        key_range asked;
        std::string key;
        std::string end;
    } const rows[] = {
        {"app/", "k", "app/k", ""},
        {"app/", {"a", "c"}, "app/a", "app/c"},
        {"app/", key_range::prefix("a"), "app/a", "app/b"},
        {"app/", key_range::from("a"), "app/a", "app0"},
        {"app/", key_range::all(), "app/" + zero, "app0"},
        {"app/", key_range::prefix("\xff"), "app/\xff", "app0"},
        {"app/", {"a", bytes("\0\0", 2)}, "app/a", "app/" + bytes("\0\0", 2)},
        {"app/", {"c", "a"}, "app/c", "app/a"}, // empty here, too
        {"a\xff", key_range::all(), "a\xff" + zero, "b"},
        {"a\xff\xff", key_range::from("k"), "a\xff\xffk", "b"},
        {"a\xff", key_range::prefix("k"), "a\xffk", "a\xffl"},
        {"\xff\xff", key_range::from("k"), "\xff\xffk", zero}, // nothing comes after it
        {zero, key_range::all(), zero + zero, "\x01"},
        {"app/", "", "", ""}, // etcd refuses it, as it does elsewhere
        {"app/", {"", "b"}, "", "app/b"},
    };
    for (const auto& row : rows) {
        key_range keys = row.asked;
        key_space(row.prefix).enter(keys);
        CAPTURE(row.prefix, row.asked.key, row.asked.range_end);
        CHECK(keys.key == row.key);
        CHECK(keys.range_end == row.end);
    }
}

TEST_CASE("all keys of a request are put into the namespace, and nothing else is",
          "[logic][key_space]") {
    const key_space app("app/");
    const coetcd::range_options first{.limit = 1};
    const auto transaction = [&](const std::string& p, const std::string& last) {
        const key_range above(p + "c", last);
        txn inner = txn()
                        .when(compare::lease(p + "i") == 7)
                        .then(op::put(p + "j", "v", {.lease = 7}))
                        .otherwise(op::erase(key_range(p + "k", p + "l")));
        return txn()
            .when(compare::value(p + "a") == "a", compare::version(key_range(p + "a", p + "b")) > 0)
            .when(compare::mod_revision(above) < 9)
            .then(op::put(p + "d", "d"), op::range(above, first), op::nested(std::move(inner)))
            .otherwise(op::erase(p + "e", {.prev_kv = true}), op::range(p + "f"));
    };
    CHECK(encode(&app, transaction("", zero)) == wire::encode(transaction("app/", "app0")));
    CHECK(encode(nullptr, transaction("", zero)) == wire::encode(transaction("", zero)));

    using coetcd::erase_request;
    using coetcd::put_request;
    using coetcd::range_request;
    CHECK(encode(&app, range_request("k", first)) == wire::encode(range_request("app/k", first)));
    CHECK(encode(&app, put_request("k", "k")) == wire::encode(put_request("app/k", "k")));
    CHECK(encode(&app, erase_request("k")) == wire::encode(erase_request("app/k")));
    wire::watch_create_request watched(key_range::from("k"));
    watched.watch_id = 3;
    wire::watch_create_request inside(key_range("app/k", "app0"));
    inside.watch_id = 3;
    CHECK(encode(&app, watched) == wire::encode(inside));

    // These are not about keys.
    CHECK(encode(&app, wire::lease_grant_request{std::chrono::seconds(7), 7}) ==
          R"({"TTL":7,"ID":7})");
    CHECK(encode(&app, wire::compaction_request{9, false}) == R"({"revision":9})");

    // What cannot be written cannot be written here, either.
    CHECK_THROWS_AS(encode(&app, range_request("k", {.limit = -1})), std::invalid_argument);
}

TEST_CASE("all keys of an answer are taken out of the namespace", "[logic][key_space]") {
    const key_space app("app/");
    coetcd::range_response read;
    read.kvs = {kv("app/a"), kv("app/app/b")};
    read.count = 5;
    const coetcd::range_response range = told(app, read);
    CHECK(range.kvs == std::vector{kv("a"), kv("app/b")});
    CHECK(range.count == 5);

    coetcd::put_response put;
    CHECK_FALSE(told(app, put).prev_kv);
    put.prev_kv = kv("app/a");
    CHECK(told(app, put).prev_kv == kv("a"));

    coetcd::erase_response erased;
    erased.prev_kvs = {kv("app/a"), kv("app/b")};
    CHECK(told(app, erased).prev_kvs == std::vector{kv("a"), kv("b")});

    coetcd::txn_response inner;
    inner.responses = {put, erased};
    coetcd::txn_response all;
    all.responses = {read, inner};
    const coetcd::txn_response txn = told(app, all);
    CHECK(txn.responses.at(0).range().kvs.at(1) == kv("app/b"));
    CHECK(txn.responses.at(1).nested().responses.at(0).put().prev_kv == kv("a"));
    CHECK(txn.responses.at(1).nested().responses.at(1).erase().prev_kvs.at(1) == kv("b"));

    wire::watch_response heard;
    heard.events.resize(2);
    heard.events[0].kv = kv("app/a");
    heard.events[0].prev_kv = kv("app/a");
    heard.events[1].kv = kv("app/b");
    const wire::stream_message<wire::watch_response> message =
        told(app, wire::stream_message<wire::watch_response>(heard));
    const auto& events = std::get<wire::watch_response>(message).events;
    CHECK(events[0].kv == kv("a"));
    CHECK(events[0].prev_kv == kv("a"));
    CHECK(events[1].kv == kv("b"));
    CHECK_FALSE(events[1].prev_kv);
    wire::status failed;
    failed.message = "app/";
    const auto refusal = told(app, wire::stream_message<wire::watch_response>(failed));
    CHECK(std::get<wire::status>(refusal).message == "app/");

    coetcd::lease_time_to_live_response lease;
    lease.keys = {"a", "app/", "app/a", "app0"};
    CHECK(told(app, lease).keys == std::vector<std::string>{"a"}); // the others are elsewhere
}

TEST_CASE("an answer is taken only with keys of the namespace", "[logic][key_space]") {
    const key_space app("app/");
    for (const char* outside : {"", "a", "app", "app/", "apq/a"}) {
        CAPTURE(outside);
        coetcd::range_response read;
        read.kvs = {kv("app/a"), kv(outside)};
        check_refused(app, read);
        coetcd::put_response put;
        put.prev_kv = kv(outside);
        check_refused(app, put);
        coetcd::erase_response erased;
        erased.prev_kvs = {kv(outside)};
        check_refused(app, erased);
        coetcd::txn_response txn;
        txn.responses = {put};
        check_refused(app, txn);
        wire::watch_response heard;
        heard.events.resize(1);
        heard.events[0].kv = kv(outside);
        check_refused(app, heard);
        heard.events[0].kv = kv("app/a");
        heard.events[0].prev_kv = kv(outside);
        check_refused(app, heard);
    }
}

TEST_CASE("a prefix that is too long is refused", "[logic][key_space]") {
    CHECK(key_space(std::string(512, 'p')).prefix().size() == 512);
    CHECK_THROWS_AS(key_space(std::string(513, 'p')), std::invalid_argument);
}

TEST_CASE("a namespace is a store of its own, whatever there is beside it",
          "[logic][key_space][property]") {
    std::mt19937 chance(1);
    const auto below = [&](std::size_t n) {
        return std::uniform_int_distribution<std::size_t>(0, n - 1)(chance);
    };
    const auto text = [&](std::size_t least) {
        const std::string letters = bytes("\0\x01/a\xfe\xff", 6);
        std::string made;
        for (std::size_t n = least + below(3); n != 0; --n) {
            made += letters[below(letters.size())];
        }
        return made;
    };
    for (int round = 0; round != 20000; ++round) {
        const key_space space(text(1));
        store alone;
        store shared;
        for (std::size_t n = below(6); n != 0; --n) {
            const std::string key = text(1);
            alone[key] = shared[space.prefix() + key] = text(0);
        }
        for (std::size_t n = below(12); n != 0; --n) {
            const std::string key = text(1);
            if (key == space.prefix() || !key.starts_with(space.prefix())) {
                shared[key] = "outside";
            }
        }
        key_range keys(text(1));
        switch (below(4)) {
        case 0:
            break;
        case 1:
            keys.range_end = text(0);
            break;
        case 2:
            keys = key_range::prefix(text(0));
            break;
        default:
            keys = key_range::from(text(0));
        }
        key_range inside = keys;
        space.enter(inside);
        store found;
        for (auto& [key, value] : in(shared, inside)) {
            std::string own = key;
            space.leave(own); // it throws if it is outside
            found.emplace(std::move(own), value);
        }
        CAPTURE(round, space.prefix(), keys.key, keys.range_end);
        REQUIRE(found == in(alone, keys));
    }
}
