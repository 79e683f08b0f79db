// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/read_again.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail::logic;

namespace {

constexpr std::int64_t at = 20;

put_options telling() {
    put_options how;
    how.prev_kv = true;
    return how;
}

/// The revisions of the reads; nothing if it cannot be told.
std::optional<std::vector<std::int64_t>> revisions(const std::vector<op>& ops) {
    const std::optional<txn> reads = read_again(ops, at);
    if (!reads) {
        return std::nullopt;
    }
    std::vector<std::int64_t> all;
    for (const op& o : reads->success) {
        all.push_back(std::get<range_request>(o).options.revision);
    }
    return all;
}

using expected = std::optional<std::vector<std::int64_t>>;

expected told(std::vector<std::int64_t> at_revisions) {
    return at_revisions;
}

} // namespace

TEST_CASE("what was read before a change is read before it again", "[logic][read_again]") {
    range_options old;
    old.revision = 7;
    const key_range some = key_range::prefix("k");
    struct {
        std::vector<op> ops;
        expected reads;
    } const rows[] = {
        {std::vector<op>(), told({})},
        {{op::put("k", "v")}, told({})},
        {{op::put("k", "v", telling())}, told({at - 1})},
        {{op::erase("k")}, told({at - 1})},
        {{op::range("k")}, told({at - 1})},
        {{op::range("k"), op::put("k", "v")}, told({at - 1})},
        {{op::put("k", "v"), op::range("k")}, told({at})},
        {{op::put("o", "v"), op::range("k")}, told({at - 1})},
        {{op::put("o", "v"), op::range("k"), op::put("k", "v")}, told({at - 1})},
        {{op::put("k1", "v"), op::range(some)}, told({at})},
        {{op::put("k1", "v"), op::range(some), op::put("k2", "v")}, std::nullopt},
        {{op::put("k1", "v"), op::range("k1"), op::put("k2", "v")}, told({at})},
        {{op::put("k1", "v"), op::range(some, old), op::put("k2", "v")}, told({7})},
        {{op::erase(some), op::range("k1")}, told({at - 1, at})},
        {{op::erase("k1"), op::erase(some)}, std::nullopt},
        {{op::erase("k1"), op::erase("k2")}, told({at - 1, at - 1})},
        {{op::nested(txn())}, std::nullopt},
    };
    for (std::size_t i = 0; i != std::size(rows); ++i) {
        CAPTURE(i);
        CHECK(revisions(rows[i].ops) == rows[i].reads);
    }
}

TEST_CASE("an erase that does not ask for its keys is only counted", "[logic][read_again]") {
    erase_options tells;
    tells.prev_kv = true;
    range_options lazy;
    lazy.serializable = true;
    lazy.limit = 3;
    const auto reads =
        read_again({op::erase("a"), op::erase("b", tells), op::range("c", lazy)}, at);
    REQUIRE(reads);
    CHECK(std::get<range_request>(reads->success[0]).options.count_only);
    CHECK_FALSE(std::get<range_request>(reads->success[1]).options.count_only);
    const range_options& third = std::get<range_request>(reads->success[2]).options;
    CHECK_FALSE(third.serializable);
    CHECK(third.limit == 3);
}

TEST_CASE("the answers are those of the operations", "[logic][read_again]") {
    const std::vector<op> ops = {op::put("a", "v"),
                                 op::put("b", "v", telling()),
                                 op::put("c", "v", telling()),
                                 op::erase("d"),
                                 op::range("e")};
    range_response one;
    one.kvs.emplace_back();
    one.kvs.back().value = "was";
    one.count = 1;
    one.header.revision = 99;
    txn_response said;
    said.header.revision = 99;
    said.header.cluster_id = 5;
    said.responses = {one, range_response(), one, one};
    const std::vector<op_response> all = as_answered(ops, said, at);
    REQUIRE(all.size() == ops.size());
    CHECK_FALSE(all[0].put().prev_kv);
    CHECK(all[0].put().header.revision == at);
    CHECK(all[0].put().header.cluster_id == 5);
    REQUIRE(all[1].put().prev_kv);
    CHECK(all[1].put().prev_kv->value == "was");
    CHECK_FALSE(all[2].put().prev_kv);
    CHECK(all[3].erase().deleted == 1);
    CHECK(all[3].erase().header.revision == at);
    CHECK(all[4].range().kvs.front().value == "was");
    CHECK(all[4].range().header.revision == at);
}
