// SPDX-License-Identifier: BSL-1.0
#include "coetcd/queues.hpp"

#include <coetcd/kv.hpp>

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "support/catch.hpp"

// What keys in etcd tell of who has a lock, and who waits for it.

namespace {

struct put {
    std::string key;
    std::int64_t revision; ///< That it was created at.
    coetcd::lease_id lease = 0xa;
};

/// As "name: holder holder | waiter", each with its token.
std::vector<std::string> told_by(std::initializer_list<put> puts) {
    tool::all_keys keys;
    for (const put& p : puts) {
        coetcd::key_value& kv = keys[p.key];
        kv.key = p.key;
        kv.create_revision = p.revision;
        kv.lease = p.lease;
    }
    const auto text = [](const tool::entry& e) {
        std::string said(1, ' ');
        said += std::to_string(e.token);
        if (e.shared) {
            said += 'r';
        }
        if (e.permits != 0) {
            said.append(1, '*').append(std::to_string(e.permits));
        }
        return said;
    };
    std::vector<std::string> lines;
    for (const tool::queue& q : tool::queues_of(keys)) {
        std::string line = q.name + ":";
        for (const tool::entry& e : q.holders) {
            line += text(e);
        }
        line += " |";
        for (const tool::entry& e : q.waiters) {
            line += text(e);
        }
        lines.push_back(line);
    }
    return lines;
}

using lines = std::vector<std::string>;

} // namespace

TEST_CASE("the oldest key of a name has it", "[queues]") {
    CHECK(told_by({}).empty());
    CHECK(told_by({{"n/a-1-0", 7}}) == lines{"n: 7 |"});
    CHECK(told_by({{"n/a-0", 7}}) == lines{"n: 7 |"}); // a claim
    CHECK(told_by({{"n/a-1-0", 7}, {"n/b-1-0", 5, 0xb}, {"n/a-1-1", 6}}) == lines{"n: 5 | 6 7"});
    CHECK(told_by({{"m/x/a-1-0", 7}, {"n/b", 5, 0xb}}) == lines{"m/x: 7 |", "n: 5 |"});
}

TEST_CASE("a value that says nothing of a lock takes no memory", "[queues]") {
    coetcd::key_value kv;
    kv.value = std::string(20'000, 'x');
    kv.lease = 7;
    tool::drop_plain_value(kv);
    CHECK(kv.value.size() == 20'000);
    kv.lease = 0;
    tool::drop_plain_value(kv);
    CHECK(kv.value.capacity() < 100);
}

TEST_CASE("what is said of a key that is nobody's place", "[queues]") {
    const auto said = [](const std::string& below) {
        const std::string text = tool::in_the_way("n", "n/" + below);
        const std::string begin = "n/" + below + ": is nobody's place here; a later waiter that ";
        const std::string_view end = " waits until that key is deleted";
        REQUIRE(text.size() > begin.size() + end.size());
        return text.substr(begin.size(), text.size() - begin.size() - end.size());
    };
    CHECK(said("photo") == "wants the lock alone");
    CHECK(said("write/x") == "wants no permits");
    CHECK(said("wait/x") == "wants the lock alone, or permits,");
    for (const char* permits : {"00", "01", "09", "0a", "0f"}) {
        CHECK(said(std::string("hold/") + permits + "/x") ==
              "wants the lock alone, or more permits than it leaves,");
    }
    for (const char* no_permits : {"0g", "10", "11", "1f", "99", "0F", "zz"}) {
        CHECK(said(std::string("hold/") + no_permits + "/x") == "wants the lock alone");
    }
}

TEST_CASE("a key that is no place is left out", "[queues]") {
    CHECK(told_by({{"n/a-1-0", 7, 0}}).empty());        // without a lease
    CHECK(told_by({{"n/a-1-0", 7, 0xb}}).empty());      // of another lease than it says
    CHECK(told_by({{"n.a-1-0", 7}}).empty());           // an epoch
    CHECK(told_by({{"n.ask/a-1", 7}}).empty());         // a request to the holder
    CHECK(told_by({{"n/photo", 7}, {"n", 8}}).empty()); // of something else
    CHECK(told_by({{"/a", 7}, {"a", 8}}).empty());      // no name
    CHECK(told_by({{"n/1700000000000000000", 7}}).empty());
}

TEST_CASE("who is behind a key that is no place of the lock waits for it", "[queues]") {
    CHECK(told_by({{"n/photo", 5, 0}, {"n/a-1-0", 7}}) == lines{"n: | 7"});
    CHECK(told_by({{"n/photo", 8, 0}, {"n/a-1-0", 7}, {"n/b-1-0", 9, 0xb}}) == lines{"n: 7 | 9"});
    CHECK(told_by({{"n/a-1-0", 5, 0xb}, {"n/a-1-1", 7}}) == lines{"n: | 7"}); // of another lease
    CHECK(told_by({{"n/", 5, 0}, {"n/a-1-0", 7}}) == lines{"n: | 7"});
    CHECK(told_by({{"n.photo", 5, 0}, {"n0", 5, 0}, {"n", 5, 0}, {"n/a-1-0", 7}}) ==
          lines{"n: 7 |"}); // these are not below it
    // A lock of a longer name is in the way of that of the shorter one, not the other way round.
    CHECK(told_by({{"n/x/a-1-0", 5}, {"n/b-1-0", 7, 0xb}}) == lines{"n: | 7", "n/x: 5 |"});
    CHECK(told_by({{"n/x/a-1-0", 7}, {"n/b-1-0", 5, 0xb}}) == lines{"n: 5 |", "n/x: 7 |"});
    // Readers wait only for what may be a writer's.
    CHECK(told_by({{"n/photo", 5, 0}, {"n/read/a-1-0", 7}, {"n/write/b-1-0", 8, 0xb}}) ==
          lines{"n: 7r | 8"});
    CHECK(told_by({{"n/write/photo", 5, 0}, {"n/read/a-1-0", 7}, {"n/read/b-1-0", 4, 0xb}}) ==
          lines{"n: 4r | 7r"});
    // Who has permits has them.
    CHECK(told_by({{"n/photo", 3, 0}, {"n/hold/00/a-1-0", 4}}) == lines{"n: 4*1 |"});
}

TEST_CASE("what is held by several keys has them in one place of each line", "[queues]") {
    using keys = std::vector<std::string>;
    CHECK(tool::keys_of_writer("a/b", "a/b/write/x-1-0") ==
          keys{"a/b/write/x-1-0", "a/b/keep/x-1-0"});
    CHECK(tool::keys_of_permits("n", "n/hold/00/x-1-0", 1) == keys{"n/hold/00/x-1-0"});
    CHECK(tool::keys_of_permits("n", "n/hold/00/x-1-0", 1 + 4 + (1 << 15)) ==
          keys{"n/hold/00/x-1-0", "n/hold/02/x-1-0", "n/hold/0f/x-1-0"});
}

TEST_CASE("readers have it together, until the next writer", "[queues]") {
    CHECK(told_by({{"n/read/a-1-0", 5}, {"n/read/b-1-0", 6, 0xb}}) == lines{"n: 5r 6r |"});
    CHECK(told_by({{"n/read/a-1-0", 5},
                   {"n/write/c-1-0", 6, 0xc},
                   {"n/keep/c-1-0", 6, 0xc},
                   {"n/read/b-1-0", 7, 0xb}}) == lines{"n: 5r | 6 7r"});
    CHECK(told_by({{"n/write/c-1-0", 4, 0xc}, {"n/keep/c-1-0", 4, 0xc}, {"n/read/a-1-0", 5}}) ==
          lines{"n: 4 | 5r"});
}

TEST_CASE("an owner that changes its mode stays one owner, and keeps its turn", "[queues]") {
    // A writer that reads now, and one more reader.
    CHECK(told_by({{"n/keep/a-1-0", 4}, {"n/read/b-1-0", 6, 0xb}}) == lines{"n: 4r 6r |"});
    // A reader that writes now; a writer came in between.
    CHECK(told_by({{"n/read/a-1-0", 4},
                   {"n/write/a-1-0", 9},
                   {"n/write/b-1-0", 6, 0xb},
                   {"n/keep/b-1-0", 6, 0xb}}) == lines{"n: 9 | 6"});
}

TEST_CASE("permits of one place are added up", "[queues]") {
    CHECK(told_by({{"n/hold/00/a-1-0", 4},
                   {"n/hold/02/a-1-0", 4},
                   {"n/hold/0f/b-1-0", 5, 0xb},
                   {"n/wait/c-1-0", 3, 0xc},
                   {"n.limit", 2, 0}}) == lines{"n: 4*5 5*32768 | 3"});
    // The one that has it is no more in the queue, though its key may still be there.
    CHECK(told_by({{"n/hold/00/a-1-0", 4}, {"n/wait/a-1-0", 3}}) == lines{"n: 4*1 |"});
    // All of it is taken, or there is none.
    CHECK(told_by({{"n/wait/a-1-0", 3}, {"n/wait/a-1-1", 2}}) == lines{"n: | 2 3"});
    // No permits: locks, whose names are odd.
    for (const std::string name : {"n/hold/ff", "n/hold/-1", "n/hold/10", "n/hold/0F"}) {
        CHECK(told_by({{name + "/a-1-0", 7}}) == lines{name + ": 7 |"});
    }
    // Two of one revision.
    CHECK(told_by({{"n/hold/00/a-1-0", 4}, {"n/hold/00/b-1-0", 4, 0xb}}) == lines{"n: 4*1 4*1 |"});
}

TEST_CASE("a name that is used for a lock and for permits tells who has what", "[queues]") {
    // A lock waits for all that is older, permits and who waits for them wait for no lock.
    CHECK(told_by({{"n/a-1-0", 3}, {"n/hold/00/b-1-0", 4, 0xb}}) == lines{"n: 3 4*1 |"});
    CHECK(told_by({{"n/hold/00/b-1-0", 3, 0xb}, {"n/a-1-0", 4}}) == lines{"n: 3*1 | 4"});
    CHECK(told_by({{"n/a-1-0", 3}, {"n/wait/b-1-0", 4, 0xb}}) == lines{"n: 3 | 4"});
    CHECK(told_by({{"n/wait/b-1-0", 3, 0xb}, {"n/a-1-0", 4}}) == lines{"n: | 3 4"});
    CHECK(told_by({{"n/write/a-1-0", 3}, {"n/keep/a-1-0", 3}, {"n/wait/b-1-0", 4, 0xb}}) ==
          lines{"n: 3 | 4"});
    // A reader waits for older writers alone.
    CHECK(told_by({{"n/hold/00/b-1-0", 3, 0xb}, {"n/read/a-1-0", 4}}) == lines{"n: 3*1 4r |"});
    CHECK(told_by({{"n/a-1-0", 3}, {"n/read/b-1-0", 4, 0xb}}) == lines{"n: 3 4r |"});
    CHECK(told_by({{"n/wait/b-1-0", 2, 0xb},
                   {"n/write/c-1-0", 3, 0xc},
                   {"n/keep/c-1-0", 3, 0xc},
                   {"n/read/a-1-0", 4}}) == lines{"n: | 2 3 4r"});
}

TEST_CASE("locks of other clients are told as ours are", "[queues]") {
    CHECK(told_by({{"n/694d9a1b", 5, 0x694d9a1b}, {"n/a-1-0", 6}}) == lines{"n: 5 | 6"});
    CHECK(told_by({{"n/read/1700000000000000000", 5}, {"n/write/1700000000000000001", 6, 0xb}}) ==
          lines{"n: 5r | 6"});
}

TEST_CASE("a name may end as the lines of a lock do", "[queues]") {
    CHECK(told_by({{"n/write/a-1-0", 7}}) == lines{"n: 7 |"});
    for (const std::string name : {"n/read", "n/write", "n/keep", "n/wait", "n/hold/00"}) {
        CAPTURE(name);
        // What etcdctl has put, and what is claimed for a time, is in no line.
        CHECK(told_by({{name + "/a", 7}, {name + "/b-0", 8, 0xb}}) == lines{name + ": 7 | 8"});
        // What is held by coetcd has its whole name beside it.
        CHECK(told_by({{name + "/a-1-0", 7},
                       {name + "/b-1-0", 8, 0xb},
                       {tool::since_key(name, 0xa), 7}}) == lines{name + ": 7 | 8"});
        CHECK(told_by({{name + "/a-1-0", 7}, {tool::since_key(name, 0xb), 7}}) !=
              lines{name + ": 7 |"}); // of another lease
    }
}

TEST_CASE("a waiter for permits tells how many, and its label", "[queues]") {
    const auto waiter_of = [](const std::string& value) {
        tool::all_keys keys;
        coetcd::key_value& kv = keys["n/wait/a-1-0"];
        kv.key = "n/wait/a-1-0";
        kv.value = value;
        kv.create_revision = 3;
        kv.lease = 0xa;
        const tool::entry e = tool::queues_of(keys).at(0).waiters.at(0);
        return e.label + "*" + std::to_string(e.permits);
    };
    CHECK(waiter_of("3 the label") == "the label*3");
    CHECK(waiter_of("3 ") == "*3");
    CHECK(waiter_of("3") == "*3");
    CHECK(waiter_of("three label") == "label*0");
    CHECK(waiter_of("") == "*0");
}

TEST_CASE("since when it is held is believed of this ownership alone", "[queues]") {
    const auto seconds_of = [](const std::string& value, coetcd::lease_id lease) {
        tool::all_keys keys;
        coetcd::key_value& kv = keys["n/a-1-0"];
        kv.key = "n/a-1-0";
        kv.create_revision = 7;
        kv.lease = 0xa;
        coetcd::key_value& more = keys[tool::since_key("n", 0xa)];
        more.key = tool::since_key("n", 0xa);
        more.value = value;
        more.lease = lease;
        const auto all = tool::queues_of(keys);
        REQUIRE(all.size() == 1); // the other key is no lock
        const auto since = all[0].holders.at(0).since;
        return since ? since->time_since_epoch() / std::chrono::seconds(1) : -1;
    };
    const std::chrono::system_clock::time_point then(std::chrono::seconds(1000));
    CHECK(seconds_of(tool::since_value(7, then), 0xa) == 1000);
    CHECK(seconds_of(tool::since_value(6, then), 0xa) == -1); // an earlier one's
    CHECK(seconds_of(tool::since_value(7, then), 0xb) == -1); // of another lease
    for (const char* odd : {"",
                            "7",
                            "7 ",
                            "7 x",
                            "7 -1",
                            "7 1000 ",
                            "7 9223372036854775807",
                            "7 253402300799000",
                            "7 1e3",
                            " 7 1"}) {
        CHECK(seconds_of(odd, 0xa) == -1);
    }
}

TEST_CASE("pages are halved while they are too large, down to a key without its value",
          "[queues]") {
    tool::page p;
    int n = 0;
    for (std::optional<tool::page> next = p; next; next = tool::smaller(p)) {
        p = *next;
        ++n;
        REQUIRE(n < 20);
    }
    CHECK(p.keys == 1);
    CHECK(p.without_values);
    CHECK(n == 11); // 1000, 500, 250, 125, 62, 31, 15, 7, 3, 1, and 1 without
    p = tool::larger(p);
    CHECK(p.keys == 1);
    CHECK_FALSE(p.without_values);
    for (int i = 0; i != 20; ++i) {
        p = tool::larger(p);
    }
    CHECK(p.keys == 1000);
}
