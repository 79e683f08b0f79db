// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/mirror_backlog.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"

namespace logic = coetcd::detail::logic;
using coetcd::event;
using coetcd::event_type;
using coetcd::key_value;
using coetcd::mirror_batch;
using coetcd::mirror_change;
using coetcd::mirror_entry;
using logic::mirror_backlog;
using logic::mirror_map;

namespace {

/// A map, and one reader of it.
struct backlog_fixture {
    using list = std::vector<std::string>;

    explicit backlog_fixture(std::size_t most = 1'000'000)
        : b(most) {
        m.become({}, 1);
    }
    static event change(std::int64_t at, std::string key, std::string value) {
        event e;
        e.type = value.empty() ? event_type::erase : event_type::put;
        e.kv.key = std::move(key);
        e.kv.value = std::move(value);
        e.kv.mod_revision = at;
        return e;
    }
    /// An empty value erases the key.
    void happens(std::string key, std::string value) {
        std::vector<event> events{change(++now, std::move(key), std::move(value))};
        b.add(m.apply(events));
    }
    static list texts(const mirror_batch& batch) {
        const auto text = [](const mirror_entry& e) { return e ? e->value : std::string("-"); };
        list result;
        for (const mirror_change& c : batch.changes) {
            result.push_back(std::to_string(c.revision) + " " + c.key() + " " + text(c.was) + ">" +
                             text(c.is) + (c.by_comparison ? "?" : ""));
        }
        return result;
    }
    mirror_batch take() {
        REQUIRE(b.any());
        mirror_batch batch = b.take(m);
        CHECK(batch.revision == m.heard());
        CHECK_FALSE(b.any());
        return batch;
    }

    mirror_map m;
    mirror_backlog b;
    std::int64_t now = 1;
};

using backlog_list = backlog_fixture::list;

} // namespace

TEST_CASE("a reader is told everything first, then each change", "[logic][mirror]") {
    backlog_fixture f;
    CHECK(f.b.is_new());
    f.happens("b", "1");
    f.happens("a", "1");
    CHECK(f.texts(f.take()) == backlog_list{"3 a ->1?", "3 b ->1?"});
    CHECK_FALSE(f.b.is_new());
    f.happens("a", "2");
    f.happens("a", "");
    f.happens("a", "2");
    CHECK(f.texts(f.take()) == backlog_list{"4 a 1>2", "5 a 2>-", "6 a ->2"});
    backlog_fixture nothing;
    CHECK(nothing.b.any());
    CHECK(nothing.take().changes.empty());
}

TEST_CASE("a slow reader is told the difference, one change for each key", "[logic][mirror]") {
    backlog_fixture f(1500); // some changes fit
    f.happens("a", "1");
    f.happens("b", "1");
    (void)f.take();
    f.happens("c", "1");
    CHECK(f.texts(f.take()) == backlog_list{"4 c ->1"});
    for (int i = 0; i != 20; ++i) {
        f.happens("a", std::to_string(i));
        f.happens("d", i % 2 == 0 ? "1" : "");
    }
    f.happens("b", "");
    f.happens("c", "1");
    CHECK(f.texts(f.take()) == backlog_list{"46 a 1>19?", "46 b 1>-?", "46 c 1>1?"});
    f.happens("a", "20"); // from then on each again
    CHECK(f.texts(f.take()) == backlog_list{"47 a 19>20"});
}

TEST_CASE("a difference may be none", "[logic][mirror]") {
    backlog_fixture f(0);
    (void)f.take();
    f.happens("a", "1");
    f.happens("a", "");
    CHECK(f.take().changes.empty());
}

TEST_CASE("that a reader gets the difference does not depend on how it was merged",
          "[logic][mirror]") {
    backlog_fixture f;
    f.happens("a", "1");
    (void)f.take();
    f.happens("a", "2");
    f.b.merge();
    f.happens("a", "3");
    f.b.merge();
    CHECK(f.texts(f.take()) == backlog_list{"4 a 1>3?"});
}

TEST_CASE("what was not told is told again, before what came meanwhile", "[logic][mirror]") {
    backlog_fixture f(1500);
    f.happens("a", "1");
    f.b.put_back(f.take()); // everything
    CHECK(f.b.is_new());
    f.happens("b", "1");
    CHECK(f.texts(f.take()) == backlog_list{"3 a ->1?", "3 b ->1?"});
    f.happens("a", "2");
    mirror_batch each = f.take();
    f.happens("a", "3");
    f.b.put_back(std::move(each));
    CHECK(f.texts(f.take()) == backlog_list{"4 a 1>2", "5 a 2>3"});
    f.happens("a", "4");
    each = f.take();
    f.happens("b", "2");
    f.b.merge();
    f.b.put_back(std::move(each));
    CHECK(f.texts(f.take()) == backlog_list{"7 a 3>4?", "7 b 1>2?"});
    f.happens("a", "5");
    f.happens("a", "6");
    each = f.take();
    f.b.merge();
    f.b.put_back(std::move(each));
    CHECK(f.texts(f.take()) == backlog_list{"9 a 4>6?"});
    f.happens("a", "7");
    f.b.merge();
    mirror_batch difference = f.take();
    f.happens("a", "8");
    f.b.put_back(std::move(difference));
    CHECK(f.texts(f.take()) == backlog_list{"10 a 6>7?", "11 a 7>8"});
}

TEST_CASE("a new reader is told of keys that have passed, if their end is still to be told",
          "[logic][mirror]") {
    backlog_fixture f;
    f.m.prove(9);
    f.happens("a", "1");
    CHECK(f.texts(f.take()) == backlog_list{"2 a ->1?"});
    f.happens("a", "");
    CHECK(f.texts(f.take()) == backlog_list{"3 a 1>-"});
    f.happens("a", "1");
    f.b.merge();
    CHECK(f.texts(f.take()) == backlog_list{"4 a ->1?"});
    f.happens("a", "");
    CHECK(f.texts(f.take()) == backlog_list{"5 a 1>-"});
}
