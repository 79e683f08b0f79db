// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/rw.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/transactions.hpp"

using namespace coetcd;
using namespace coetcd::detail::logic;
using namespace support;

namespace {

const name_keys reader = reader_keys("s", 0x1a, 3, 2, 7);
const name_keys writer = writer_keys("s", 0x1a, 3, 2, 7);

bool is_in(const key_range& range, const std::string& key) {
    return range.key <= key && key < range.range_end;
}

/// Whether the first waits for the second, if that is older.
bool waits_for(const name_keys& a, const name_keys& b) {
    return std::any_of(
        b.keys.begin(), b.keys.end(), [&](const std::string& key) { return is_in(a.before, key); });
}

} // namespace

TEST_CASE("a reader has one key, a writer two; both know what they are, or may become",
          "[logic][rw]") {
    using strings = std::vector<std::string>;
    CHECK(reader.keys == strings{"s/read/1a-3-2"});
    CHECK(reader.base_key == "s/read/1a-3-2");
    CHECK(text(reader.before) == "[s/write/,s/write0)");
    CHECK(writer.keys == strings{"s/write/1a-3-2", "s/keep/1a-3-2"});
    CHECK(writer.base_key == "s/keep/1a-3-2");
    CHECK(text(writer.before) == "[s/,s0)");
    for (const name_keys& c : {reader, writer}) {
        CHECK(c.name == "s");
        CHECK(c.write_key == "s/write/1a-3-2");
        CHECK(c.epoch_key == "s.1a-3-2");
        CHECK(c.void_key == "s.1a-3-void");
        CHECK(c.epoch == 7);
        CHECK(c.later.empty());
    }
}

TEST_CASE("a reader waits for writers, a writer for everybody, and a mutex is a writer to a writer",
          "[logic][rw]") {
    const name_keys other_reader = reader_keys("s", 0x1b, 3, 2, 0);
    const name_keys other_writer = writer_keys("s", 0x1b, 3, 2, 0);
    const name_keys mutex = exclusive_keys("s", 0x1b, 3, 2, 0);
    name_keys lowered = other_writer;
    just_reads(lowered);
    CHECK_FALSE(waits_for(reader, other_reader));
    CHECK(waits_for(reader, other_writer));
    CHECK_FALSE(waits_for(reader, lowered)); // it reads along
    CHECK(waits_for(writer, other_reader));
    CHECK(waits_for(writer, other_writer));
    CHECK(waits_for(writer, lowered)); // and keeps its place
    CHECK(waits_for(writer, mutex));
    CHECK(waits_for(mutex, other_writer));
    CHECK(waits_for(mutex, lowered));
    for (const char* name : {"s1", "r", "s.", "s/", "sx", "S"}) {
        CAPTURE(name);
        CHECK_FALSE(waits_for(reader, writer_keys(name, 0x1b, 3, 2, 0)));
        const bool nests = std::string(name) == "s/"; // its keys lie in this queue
        CHECK(waits_for(writer, reader_keys(name, 0x1b, 3, 2, 0)) == nests);
    }
}

TEST_CASE("an owner that only reads is known by the key that it began with", "[logic][rw]") {
    name_keys c = writer;
    just_reads(c);
    CHECK(c.keys == std::vector<std::string>{"s/keep/1a-3-2"});
    REQUIRE(c.later.size() == 1);
    CHECK(c.later.front() == held_life{"s/write/1a-3-2", 0});
    // It is what a reader is that may be about to write.
    name_keys r = reader;
    just_reads(r);
    CHECK(r.keys == reader.keys);
    CHECK(r.later == c.later);
    r.later.front().create_revision = 60;
    just_reads(r);
    CHECK(r.later == c.later);

    // All of it goes at the end.
    CHECK(text(release(c, 50)) ==
          "c(s/keep/1a-3-2)=50 ? erase(s/keep/1a-3-2) erase(s/write/1a-3-2) : "
          "get(s.1a-3-2) get(s/keep/1a-3-2) get(s/write/1a-3-2)");
}

TEST_CASE("to lower is to give up the write key alone", "[logic][rw]") {
    for (const name_keys& of : {reader, writer}) {
        name_keys c = of;
        just_reads(c);
        const name_keys part = writing_part(c);
        CHECK(text(release(part, 60)) == "c(s/write/1a-3-2)=60 ? erase(s/write/1a-3-2) : "
                                         "get(s.1a-3-2) get(s/write/1a-3-2)");
        CHECK(text(end(part, 0x1a)) == "m(s.1a-3-2)=7 ? erase_and_tell(s/write/1a-3-2) "
                                       "put(s.1a-3-2,,1a) : get(s.1a-3-2) get(s/write/1a-3-2)");
        CHECK(text(erase_only(part)) == "m(s.1a-3-2)=7 ? erase(s/write/1a-3-2) :");
    }
}

TEST_CASE("to upgrade is to put the write key if there is no other reader, and no older key",
          "[logic][rw]") {
    CHECK(text(upgrade(reader, 0x1a, "who", 50)) ==
          "m(s.1a-3-2)=7 c(s/write/1a-3-2)=0 c(s/read/1a-3-2)=50 c([s/,s0))>49 "
          "c([s/read/,s/read/1a-3-2))=0 c([s/read/1a-3-2" +
              std::string(1, '\0') +
              ",s/read0))=0 ? put(s/write/1a-3-2,who,1a) : get(s/write/1a-3-2) get(s/read/1a-3-2)");
    CHECK(text(upgrade(writer, 0x1a, "who", 50)) ==
          "m(s.1a-3-2)=7 c(s/write/1a-3-2)=0 c(s/keep/1a-3-2)=50 c([s/,s0))>49 "
          "c([s/read/,s/read0))=0 ? "
          "put(s/write/1a-3-2,who,1a) : get(s/write/1a-3-2) get(s/keep/1a-3-2)");
}

TEST_CASE("the answer to an upgrade tells whether we write, and by which life", "[logic][rw]") {
    using how = upgraded::how;
    const op_response base = found({kv("s/read/1a-3-2", 45)});
    const op_response write = found({kv("s/write/1a-3-2", 47)});
    struct {
        const char* what;
        txn_response response;
        how went;
        std::int64_t revision;
    } const rows[] = {
        {"done", yes({put}), how::done, 50},
        {"by an earlier copy", no({write, base}), how::earlier, 47},
        {"refused", no({none, base}), how::refused, 0},
        {"others' keys", no({found({kv("s/write/1a-3-3", 47)}), base}), how::refused, 0},
        {"our key is gone", no({none, none}), how::gone, 0},
        {"our key has another life", no({none, found({kv("s/read/1a-3-2", 46)})}), how::gone, 0},
        {"our key is gone, the other one is there", no({write, none}), how::gone, 0},
    };
    for (const auto& row : rows) {
        CAPTURE(row.what);
        const upgraded now = after_upgrade(row.response, reader, 45);
        CHECK(now.went == row.went);
        CHECK(now.create_revision == row.revision);
    }
    CHECK(refused([&] { (void)after_upgrade(without_revision(yes({put})), reader, 45); }));
    CHECK(refused([&] { (void)after_upgrade(no({}), reader, 45); }));
    CHECK(refused([&] { (void)after_upgrade(no({none}), reader, 45); }));
    CHECK(refused([&] {
        (void)after_upgrade(no({found({kv("s/write/1a-3-2", 0)}), base}), reader, 45);
    }));
}
