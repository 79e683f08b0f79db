// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/mirror_map.hpp>
#include <coetcd/detail/logic/mirror_read.hpp>
#include <coetcd/detail/logic/page_size.hpp>
#include <coetcd/kv.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "support/catch.hpp"

namespace logic = coetcd::detail::logic;
using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::error_code;
using coetcd::key_range;
using coetcd::key_value;
using coetcd::range_request;
using coetcd::range_response;
using coetcd::server_errc;
using logic::mirror_entries;
using logic::page_size;
using logic::paged_read;

namespace {

page_size sizes() {
    return {paged_read::most, 1'000'000, paged_read::first};
}

struct read_fixture {
    static range_response page(std::vector<std::string> keys, bool more, std::int64_t revision) {
        range_response r;
        r.header.revision = revision;
        r.header.cluster_id = 7;
        r.more = more;
        for (std::string& key : keys) {
            key_value kv;
            kv.key = std::move(key);
            kv.mod_revision = 2;
            r.kvs.push_back(std::move(kv));
        }
        return r;
    }
    /// Whether it is taken for an answer of etcd.
    bool takes(range_response r) {
        try {
            read.came(std::move(r));
            return true;
        } catch (const coetcd::error& e) {
            CHECK(e.code() == errc::protocol_error);
            return false;
        }
    }
    page_size size = sizes();
    mirror_entries known;
    paged_read read{key_range::prefix("k/"), size, known};
};

} // namespace

TEST_CASE("a read of many keys goes on after the last key, at the same revision",
          "[logic][mirror]") {
    read_fixture f;
    range_request r = f.read.request();
    CHECK(r.range.key == "k/");
    CHECK(r.range.range_end == "k0");
    CHECK(r.options.revision == 0);
    CHECK(r.options.limit == 512);
    CHECK_FALSE(r.options.serializable);
    f.read.came(f.page({"k/a", "k/b"}, true, 9));
    CHECK_FALSE(f.read.is_complete());
    r = f.read.request();
    CHECK(r.range.key == std::string("k/b\0", 4));
    CHECK(r.range.range_end == "k0");
    CHECK(r.options.revision == 9);
    f.read.came(f.page({"k/c"}, false, 12)); // the store has gone on
    CHECK(f.read.is_complete());
    CHECK(f.read.revision() == 9);
    CHECK(f.read.cluster() == 7);
    CHECK(f.read.found().size() == 3);
}

TEST_CASE("a read of one key, and of all keys", "[logic][mirror]") {
    page_size size = sizes();
    const mirror_entries none;
    paged_read one(key_range("k"), size, none);
    CHECK(one.request().range.key == "k");
    CHECK(one.request().range.range_end.empty());
    one.came(read_fixture::page({"k"}, false, 3));
    CHECK(one.is_complete());
    paged_read all(key_range::all(), size, none);
    all.came(read_fixture::page({std::string(1, '\0'), "\xff\xff"}, true, 3));
    CHECK(all.request().range.key == std::string("\xff\xff\0", 3));
    CHECK(all.request().range.range_end == std::string(1, '\0'));
}

TEST_CASE("a read of many keys that were known asks for a part of them at a time",
          "[logic][mirror]") {
    mirror_entries known;
    const auto name = [](std::size_t i) { return "k/" + std::to_string(1'000'000 + i); };
    for (std::size_t i = 0; i != paged_read::part + 1; ++i) {
        key_value kv;
        kv.key = name(i);
        known.insert(known.end(), std::make_shared<const key_value>(std::move(kv)));
    }
    page_size size = sizes();
    paged_read read(key_range::prefix("k/"), size, known);
    const auto asked = [&] {
        const range_request r = read.request();
        return r.range.key + " " + r.range.range_end;
    };
    const std::string bound = name(paged_read::part);
    CHECK(asked() == "k/ " + bound);
    read.came(read_fixture::page({name(0)}, true, 9));
    CHECK(asked() == name(0) + std::string(1, '\0') + " " + bound);
    read.came(read_fixture::page({name(7)}, false, 9)); // others have gone
    CHECK_FALSE(read.is_complete());
    CHECK(asked() == bound + " k0");
    CHECK_THROWS_AS(read.came(read_fixture::page({name(8)}, false, 9)), coetcd::error); // again
    CHECK(read.request().options.revision == 9);
    REQUIRE(read.failed(server_errc::out_of_range, "compacted"));
    CHECK(asked() == "k/ " + bound);
    CHECK_THROWS_AS(read.came(read_fixture::page({bound}, false, 12)), coetcd::error); // too far
    read.came(read_fixture::page({}, false, 12));
    CHECK_FALSE(read.is_complete());
    read.came(read_fixture::page({bound}, false, 12));
    CHECK(read.is_complete());
    CHECK(read.found().size() == 1);
}

TEST_CASE("a range is divided after so many keys", "[logic][mirror]") {
    mirror_entries known;
    for (const char* key : {"k/a", "k/b", "k/c", "k/d", "k/e"}) {
        key_value kv;
        kv.key = key;
        known.insert(std::make_shared<const key_value>(std::move(kv)));
    }
    CHECK(logic::key_after(known, "k/", 2) == "k/c");
    CHECK(logic::key_after(known, "k/c", 2) == "k/e");
    CHECK(logic::key_after(known, "k/bb", 2) == "k/e");
    CHECK(logic::key_after(known, "k/", 4) == "k/e");
    CHECK_FALSE(logic::key_after(known, "k/", 5));
    CHECK_FALSE(logic::key_after(known, "k/e", 2));
    CHECK_FALSE(logic::key_after(mirror_entries(), "k/", 2));
}

TEST_CASE("an answer that cannot be etcd's is refused", "[logic][mirror]") {
    using f = read_fixture;
    CHECK_FALSE(f().takes(f::page({"k/a"}, false, 0)));
    CHECK_FALSE(f().takes(f::page({}, true, 5)));              // it would go on for ever
    CHECK_FALSE(f().takes(f::page({"k/b", "k/a"}, false, 5))); // not in order
    CHECK_FALSE(f().takes(f::page({"k/a", "k/a"}, false, 5))); // twice
    CHECK_FALSE(f().takes(f::page({"j"}, false, 5)));          // not asked for
    CHECK_FALSE(f().takes(f::page({"k0"}, false, 5)));         // not asked for
    CHECK_FALSE(f().takes(f::page({"k/a"}, false, 1)));        // from the future
    CHECK(f().takes(f::page({"k/", "k/\xff"}, false, 2)));
    read_fixture again;
    CHECK(again.takes(f::page({"k/a"}, true, 5)));
    CHECK_FALSE(again.takes(f::page({"k/b"}, false, 4))); // behind the first page
    CHECK_FALSE(again.takes(f::page({"k/a"}, false, 5)));
}

TEST_CASE("how a read goes on when a page fails", "[logic][mirror]") {
    struct row {
        error_code ec;
        std::string text;
        bool first_page;
        bool goes_on;
        std::int64_t limit;
        std::int64_t revision; ///< Of the next request.
    };
    const std::vector<row> rows = {
        {errc::too_large, "", true, true, 256, 0},
        {errc::too_large, "", false, true, 512, 9},
        {server_errc::resource_exhausted, "received message larger than max", true, true, 256, 0},
        {server_errc::resource_exhausted, "too many requests", true, false, 512, 0},
        {errc::timed_out, "", true, false, 256, 0},
        {errc::unavailable, "", true, false, 512, 0},
        {server_errc::permission_denied, "", true, false, 512, 0},
        {server_errc::out_of_range, "compacted", false, true, 1024, 0},
        {server_errc::out_of_range, "compacted", true, false, 512, 0}, // nobody has asked for one
    };
    for (const row& r : rows) {
        CAPTURE(r.ec, r.first_page);
        read_fixture f;
        if (!r.first_page) {
            f.read.came(f.page({"k/a", "k/b"}, true, 9));
        }
        CHECK(f.read.failed(r.ec, r.text) == r.goes_on);
        CHECK(f.read.request().options.limit == r.limit);
        CHECK(f.read.request().options.revision == r.revision);
    }
}

TEST_CASE("a read that was overtaken begins anew, but not for ever", "[logic][mirror]") {
    read_fixture f;
    for (int i = 0; i != 5; ++i) {
        f.read.came(f.page({"k/a", "k/b"}, true, 9 + i));
        CHECK(f.read.failed(server_errc::out_of_range, "compacted"));
        CHECK(f.read.request().range.key == "k/");
        CHECK(f.read.found().empty());
    }
    f.read.came(f.page({"k/a"}, true, 20));
    CHECK_FALSE(f.read.failed(server_errc::out_of_range, "compacted"));
}

TEST_CASE("one key that is too large is the end of a read", "[logic][mirror]") {
    read_fixture f;
    for (int i = 0; i != 9; ++i) {
        CHECK(f.read.failed(errc::too_large, ""));
    }
    CHECK(f.read.request().options.limit == 1);
    CHECK_FALSE(f.read.failed(errc::too_large, ""));
}

TEST_CASE("what follows when the watch of a mirror has ended", "[logic][mirror]") {
    using logic::after_watch;
    using logic::mirror_step;
    for (const errc ec : {errc::watch_compacted, errc::too_large, errc::revision_regressed}) {
        CHECK(after_watch(ec) == mirror_step::read_again);
    }
    CHECK(after_watch(errc::watch_canceled) == mirror_step::watch_again);
    CHECK(after_watch(server_errc::permission_denied) == mirror_step::watch_again);
    CHECK(after_watch(make_error_code(boost::system::errc::not_enough_memory)) ==
          mirror_step::watch_again);
}

TEST_CASE("a look tells whether the keys have changed since a revision", "[logic][mirror]") {
    const logic::mirror_mark mark{7, 3, 4};
    const coetcd::txn look = logic::look_since(key_range::prefix("k/"), mark, false, 0);
    CHECK(look.compares.empty());
    REQUIRE(look.success.size() == 1);
    const auto& read = std::get<range_request>(look.success[0]);
    CHECK(read.range.key == "k/");
    CHECK(read.range.range_end == "k0");
    CHECK(read.options.min_mod_revision == 8);
    CHECK(read.options.limit == 1);
    CHECK(read.options.keys_only);
    CHECK_FALSE(read.options.serializable);
    struct row {
        std::vector<std::string> put;
        std::int64_t count;
        std::int64_t revision;
        logic::since expected;
    };
    const std::vector<row> rows = {
        {{}, 3, 7, logic::since::nothing},
        {{}, 3, 20, logic::since::nothing},
        {{}, 2, 20, logic::since::changes},
        {{}, 4, 20, logic::since::changes},
        {{"k/a"}, 3, 20, logic::since::changes}, // one was put, perhaps after another had gone
        {{}, 3, 6, logic::since::older},
        {{"k/a"}, 2, 6, logic::since::older},
    };
    for (const row& r : rows) {
        range_response seen = read_fixture::page(r.put, false, r.revision);
        seen.count = r.count;
        CHECK(logic::changed_since(seen, r.revision, mark) == r.expected);
    }
}

TEST_CASE("a check tells whether events were lost", "[logic][mirror]") {
    const logic::mirror_mark mark{7, 3, 4};
    const coetcd::txn look = logic::look_since(key_range::prefix("k/"), mark, true, 9);
    REQUIRE(look.success.size() == 2);
    const auto& read = std::get<range_request>(look.success[1]);
    CHECK(std::get<range_request>(look.success[0]).options.revision == 9);
    CHECK(read.options.revision == 7);
    CHECK(read.options.min_mod_revision == 5);
    CHECK(read.options.limit == 10'000);
    CHECK(read.options.keys_only);
    // What the mirror has: each put at the revision that is its name.
    const auto entries = [](std::vector<std::int64_t> revisions) {
        logic::mirror_entries result;
        for (const std::int64_t r : revisions) {
            key_value kv;
            kv.key = "k/" + std::to_string(r / 10);
            kv.mod_revision = r;
            result.insert(std::make_shared<const key_value>(std::move(kv)));
        }
        return result;
    };
    using verdict = logic::verdict_of_check;
    struct row {
        std::vector<std::int64_t> then; ///< What etcd had, of what was put since the last check.
        std::int64_t count;
        std::vector<std::int64_t> now;
        bool has_moved;
        verdict expected;
    };
    const std::vector<row> rows = {
        {{}, 3, {11, 21, 31}, false, verdict::right},
        {{}, 4, {11, 21, 31}, false, verdict::wrong}, // a new key was not told
        {{}, 2, {11, 21, 31}, false, verdict::wrong}, // the end of one was not told
        {{}, 2, {11, 21, 31}, true, verdict::wrong},
        {{25}, 3, {11, 25, 31}, false, verdict::right},
        {{25}, 3, {11, 21, 31}, false, verdict::wrong}, // a put was not told
        {{25}, 3, {11, 21, 31}, true, verdict::wrong},
        {{25}, 3, {11, 26, 31}, true, verdict::right}, // put again since
        {{25}, 3, {11, 31}, true, verdict::open},      // it may have been erased since
        {{25}, 3, {11, 31, 41}, false, verdict::wrong},
        {{25, 35}, 3, {11, 31}, true, verdict::wrong},
    };
    for (const row& r : rows) {
        range_response then;
        then.count = r.count;
        for (const std::int64_t at : r.then) {
            key_value kv;
            kv.key = "k/" + std::to_string(at / 10);
            kv.mod_revision = at;
            then.kvs.push_back(std::move(kv));
        }
        CAPTURE(r.then, r.count, r.now, r.has_moved);
        CHECK(logic::check_mark(then, mark, entries(r.now), r.has_moved) == r.expected);
    }
}

TEST_CASE("the more keys, the rarer are looks", "[logic][mirror]") {
    CHECK(logic::look_interval(0, 0) == 5s);
    CHECK(logic::look_interval(0, 5'000'000'000) == 10s);
    CHECK(logic::look_interval(1000, 0) == 10s);
    CHECK(logic::look_interval(1'000'000, 0) == 5005s);
    CHECK(logic::look_interval(static_cast<std::size_t>(-1), 0) > 1h);
}
