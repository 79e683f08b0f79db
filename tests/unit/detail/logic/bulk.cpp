// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/bulk.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail::logic;

namespace {

/// The sizes of the transactions that carry these.
std::vector<std::size_t> batches(const std::vector<op>& all, const bulk_options& most) {
    std::vector<std::size_t> sizes;
    for (std::size_t at = 0; at != all.size();) {
        const std::size_t end = end_of_batch(all, at, most);
        REQUIRE(end > at);
        sizes.push_back(end - at);
        at = end;
    }
    return sizes;
}

std::vector<op> puts(std::vector<std::pair<std::string, std::size_t>> keys) {
    std::vector<op> all;
    for (auto& [key, size] : keys) {
        all.push_back(op::put(key, std::string(size, 'x')));
    }
    return all;
}

bulk_options limits(std::size_t keys, std::size_t bytes) {
    bulk_options most;
    most.keys = keys;
    most.bytes = bytes;
    return most;
}

} // namespace

TEST_CASE("a transaction has so many operations and bytes at most", "[logic][bulk]") {
    using sizes = std::vector<std::size_t>;
    CHECK(end_of_batch({}, 0, {}) == 0);
    const auto five = puts({{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}, {"e", 1}});
    CHECK(batches(five, {}) == sizes{5});
    CHECK(batches(five, limits(2, 1000)) == sizes{2, 2, 1});
    CHECK(batches(five, limits(5, 150)) == sizes{3, 2}); // 50 each
    CHECK(batches(five, limits(5, 149)) == sizes{2, 2, 1});
    // One that is larger goes alone, wherever it stands.
    CHECK(batches(puts({{"a", 1000}, {"b", 1}, {"c", 1000}}), limits(5, 100)) == sizes{1, 1, 1});
    CHECK(batches(puts({{"a", 1}, {"b", 1000}, {"c", 1}}), limits(5, 100)) == sizes{1, 1, 1});
    // Keys count, too, and so do those that are erased.
    CHECK(batches(puts({{std::string(60, 'k'), 0}, {"b", 0}}), limits(5, 120)) == sizes{1, 1});
    const std::vector<op> erases = {op::erase("a"), op::erase({"b", "c"}), op::erase("a")};
    CHECK(batches(erases, limits(128, 148)) == sizes{3});
    CHECK(batches(erases, limits(128, 147)) == sizes{2, 1});
    CHECK(batches(puts(std::vector<std::pair<std::string, std::size_t>>(1, {"a", 0})), {}) ==
          sizes{1});
    std::vector<std::pair<std::string, std::size_t>> many;
    for (int i = 0; i != 300; ++i) {
        many.emplace_back(std::to_string(i), 10);
    }
    CHECK(batches(puts(many), {}) == sizes{128, 128, 44});
}

TEST_CASE("no transaction puts a key twice", "[logic][bulk]") {
    using sizes = std::vector<std::size_t>;
    CHECK(batches(puts({{"a", 1}, {"b", 1}, {"a", 2}, {"b", 2}, {"a", 3}}), {}) == sizes{2, 2, 1});
    CHECK(batches(puts({{"a", 1}, {"a", 2}}), {}) == sizes{1, 1});
}

TEST_CASE("options of a bulk that etcd could not honour are refused", "[logic][bulk]") {
    CHECK_NOTHROW(require_bulk({}));
    CHECK_NOTHROW(require_bulk(limits(1, 1)));
    CHECK_THROWS_AS(require_bulk(limits(0, 1)), std::invalid_argument);
    CHECK_THROWS_AS(require_bulk(limits(129, 1)), std::invalid_argument);
    CHECK_THROWS_AS(require_bulk(limits(1, 0)), std::invalid_argument);
}

TEST_CASE("the answer tells how many keys were changed", "[logic][bulk]") {
    txn asked;
    asked.success = {op::erase("a"), op::erase("b"), op::erase("c")};
    const auto erased = [](std::int64_t n) {
        erase_response r;
        r.deleted = n;
        return op_response(r);
    };
    txn_response said;
    said.succeeded = true;
    said.header.revision = 7;
    said.responses = {erased(1), erased(0), erased(1)};
    CHECK(keys_changed(asked, said) == 2U);
    txn writes;
    writes.success = {op::put("a", ""), op::put("b", "")};
    txn_response wrote = said;
    wrote.responses = {put_response(), put_response()};
    CHECK(keys_changed(writes, wrote) == 2U);
    // no answers to these
    CHECK_FALSE(keys_changed(writes, said));
    wrote.responses.pop_back();
    CHECK_FALSE(keys_changed(writes, wrote));
    said.header.revision = 0;
    CHECK_FALSE(keys_changed(asked, said));
    said.header.revision = 7;
    said.succeeded = false;
    CHECK_FALSE(keys_changed(asked, said));
}
