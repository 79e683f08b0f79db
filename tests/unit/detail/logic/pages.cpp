// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/pages.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail::logic;

namespace {

range_response found(std::vector<std::string> keys, std::int64_t count) {
    range_response r;
    r.header.revision = 40;
    r.count = count;
    r.more = count > static_cast<std::int64_t>(keys.size());
    for (std::string& key : keys) {
        key_value kv;
        kv.key = std::move(key);
        r.kvs.push_back(std::move(kv));
    }
    return r;
}

page_options of(std::int64_t size) {
    page_options how;
    how.size = size;
    return how;
}

} // namespace

TEST_CASE("a page that is too large is halved, down to one key", "[logic][pages]") {
    page_size s(1000, 3000);
    CHECK(s.now() == 1000);
    for (const std::int64_t expected : {500, 250, 125, 62, 31, 15, 7, 3, 1}) {
        REQUIRE(s.halve());
        CHECK(s.now() == expected);
    }
    CHECK_FALSE(s.halve());
    CHECK(s.now() == 1);
}

TEST_CASE("pages grow again where their answers are small", "[logic][pages]") {
    page_size s(5, 3000);
    REQUIRE(s.halve());
    REQUIRE(s.halve());
    REQUIRE(s.now() == 1);
    s.fitted(1001);
    CHECK(s.now() == 1);
    s.fitted(1000);
    CHECK(s.now() == 2);
    s.fitted(0);
    CHECK(s.now() == 4);
    s.fitted(0);
    CHECK(s.now() == 5);
    s.fitted(0);
    CHECK(s.now() == 5);
    page_size largest(std::numeric_limits<std::int64_t>::max(), 3000);
    largest.fitted(0);
    CHECK(largest.now() == std::numeric_limits<std::int64_t>::max());
}

TEST_CASE("each page begins after the last key of the one before, at its revision",
          "[logic][pages]") {
    page_options how = of(2);
    how.keys_only = true;
    page_cursor c({"a", "z"}, how, 1 << 20);
    range_request r = c.next();
    CHECK(r.range.key == "a");
    CHECK(r.range.range_end == "z");
    CHECK(r.options.limit == 2);
    CHECK(r.options.revision == 0);
    CHECK(r.options.keys_only);
    CHECK_FALSE(r.options.serializable);
    CHECK_FALSE(c.has_begun());
    key_page p = c.take(found({"b", "c"}, 3));
    CHECK(c.has_begun());
    CHECK(p.kvs.size() == 2);
    CHECK(p.revision == 40);
    CHECK(p.left == 1);
    REQUIRE_FALSE(c.is_over());
    r = c.next();
    CHECK(r.range.key == std::string("c\0", 2));
    CHECK(r.range.range_end == "z");
    CHECK(r.options.revision == 40);
    range_response later = found({"d"}, 1);
    later.header.revision = 50;
    p = c.take(later);
    CHECK(p.revision == 40);
    CHECK(p.left == 0);
    CHECK(c.is_over());
}

TEST_CASE("pages have an end", "[logic][pages]") {
    page_cursor nothing({"a", "z"}, of(2), 1 << 20);
    CHECK(nothing.take(found({}, 0)).kvs.empty());
    CHECK(nothing.is_over());
    page_cursor one("a", of(2), 1 << 20); // not a range: nothing comes after it
    CHECK(one.take(found({"a"}, 1)).kvs.size() == 1);
    CHECK(one.is_over());
    page_cursor strange("a", of(1), 1 << 20);
    CHECK(strange.take(found({"a"}, 2)).left == 1);
    CHECK(strange.is_over());
    page_cursor rest(key_range::from("a"), of(1), 1 << 20);
    (void)rest.take(found({"b"}, 2));
    CHECK(rest.next().range.range_end == std::string(1, '\0'));
}

TEST_CASE("an answer that is not one to the read of a page is refused", "[logic][pages]") {
    const auto refused = [](range_response said) {
        page_cursor c({"b", "y"}, of(2), 1 << 20);
        try {
            (void)c.take(std::move(said));
        } catch (const coetcd::error& e) {
            CHECK_FALSE(c.has_begun());
            CHECK(c.next().range.key == "b"); // nothing was skipped
            return e.code() == errc::protocol_error;
        }
        return false;
    };
    CHECK_FALSE(refused(found({"b", "c"}, 2)));
    CHECK(refused(found({"b", "c", "d"}, 3))); // more than was asked for
    CHECK(refused(found({"c", "b"}, 2)));      // out of order
    CHECK(refused(found({"c", "c"}, 2)));
    CHECK(refused(found({"a", "c"}, 2))); // before the range
    CHECK(refused(found({"c", "y"}, 2))); // behind it
    CHECK(refused(found({}, 2)));         // it would never end
    range_response without = found({"b"}, 1);
    without.header.revision = 0;
    CHECK(refused(without));
}

TEST_CASE("why a page could not be read", "[logic][pages]") {
    struct {
        error_code ec;
        const char* text;
        page_failure why;
    } const rows[] = {
        {errc::too_large, "", page_failure::too_large},
        {server_errc::resource_exhausted,
         "grpc: received message larger than max (5 vs. 4)",
         page_failure::too_large},
        {server_errc::resource_exhausted,
         "etcdserver: mvcc: database space exceeded",
         page_failure::other},
        {server_errc::resource_exhausted, "etcdserver: too many requests", page_failure::other},
        {server_errc::out_of_range,
         "http://a: etcdserver: mvcc: required revision has been compacted",
         page_failure::compacted},
        {server_errc::out_of_range,
         "http://a: etcdserver: mvcc: required revision is a future revision",
         page_failure::no_such},
        {server_errc::out_of_range, "something else", page_failure::other},
        {errc::unavailable, "compacted", page_failure::other},
        {errc::timed_out, "", page_failure::other},
        {error_code(), "", page_failure::other},
    };
    for (const auto& row : rows) {
        CAPTURE(row.ec, row.text);
        CHECK(why_no_page(row.ec, row.text) == row.why);
    }
}

TEST_CASE("pages may begin with fewer keys than are wanted", "[logic][pages]") {
    page_size s(8192, 1'000'000, 512);
    CHECK(s.now() == 512);
    for (const std::int64_t next : {1024, 2048, 4096, 8192, 8192}) {
        s.fitted(100'000);
        CHECK(s.now() == next);
    }
    CHECK(s.halve());
    CHECK(s.now() == 4096);
    s.fitted(400'000); // twice as many would be near what is allowed
    CHECK(s.now() == 4096);
}
