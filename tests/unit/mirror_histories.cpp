// SPDX-License-Identifier: BSL-1.0
// Random histories of a mirror: what it tells is compared with what etcd had.
#include <coetcd/client.hpp>
#include <coetcd/detail/testing/chance.hpp>
#include <coetcd/mirror.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"

using namespace std::chrono_literals;
using coetcd::mirror;
using coetcd::mirror_batch;
using coetcd::mirror_change;
using coetcd::mirror_changes;
using coetcd::mirror_entry;
using coetcd::detail::call_request;
using coetcd::detail::rpc;
using coetcd::detail::testing::chance;
using support::scripted_env;

namespace {

/// Keys, and when each was put.
using revisions_of_keys = std::map<std::string, std::int64_t>;

/// One reader, which does what it is told.
struct obedient_reader {
    explicit obedient_reader(const mirror& of)
        : from(of.changes()) {}
    /// @returns What is wrong with a batch; empty if nothing is.
    std::string take(const mirror_batch& batch) {
        std::string wrong;
        for (const mirror_change& c : batch.changes) {
            const auto had = has.find(c.key());
            if ((had == has.end() ? 0 : had->second) != (c.was ? c.was->mod_revision : 0)) {
                wrong = "a change does not follow from the one before it: " + c.key();
            }
            if (c.revision < last || c.revision > batch.revision) {
                wrong = "a change comes out of order: " + c.key();
            }
            last = c.revision;
            if (!c.by_comparison) {
                told.emplace_back(c.revision, c.key());
            } else if (!is_first) {
                ++compared;
            }
            if (c.is) {
                has[c.key()] = c.is->mod_revision;
            } else {
                has.erase(c.key());
            }
        }
        is_first = false;
        revision = batch.revision;
        return wrong;
    }
    mirror_changes from;
    revisions_of_keys has;
    std::int64_t last = 0;
    std::int64_t revision = 0;
    bool is_first = true;
    int compared = 0;
    std::vector<std::pair<std::int64_t, std::string>> told;
};

struct history_fixture : support::world {
    explicit history_fixture(std::uint64_t seed)
        : luck(seed)
        , loses_events(luck.one_in(3))
        , compacts(luck.one_in(2))
        , owner(client()) {
        for (int i = luck.between(0, 6); i != 0; --i) {
            change();
        }
        coetcd::mirror_options o;
        o.buffer = luck.one_in(2) ? 1'000'000 : 600;
        is_large = o.buffer == 1'000'000;
        copy.emplace(await(coetcd::open_mirror(owner, "c/", o)));
        began = copy->revision();
        quick.emplace(*copy);
        slow.emplace(*copy);
    }
    ~history_fixture() {
        quick.reset();
        slow.reset();
        copy.reset();
        env->pass(1min);
    }

    void change() {
        const std::string key = (luck.one_in(6) ? "d/" : "c/") + std::to_string(luck.below(4));
        if (luck.one_in(3)) {
            etcd->erase(key);
        } else {
            etcd->write(key, std::to_string(luck.below(3)));
        }
    }
    void lose_calls(std::uint64_t one_in) {
        env->decide = [this, one_in](const call_request&) {
            scripted_env::fate f;
            f.refused = one_in == 1;
            f.arrives = one_in == 0 || !luck.one_in(one_in);
            f.late = luck.skewed(0ns, 1s);
            return f;
        };
    }
    void step() {
        switch (luck.below(9)) {
        case 0:
            env->break_streams();
            break;
        case 1:
            lose_calls(luck.below(4));
            break;
        case 2:
            env->decide = nullptr;
            break;
        case 3:
            if (compacts) {
                etcd->compact(etcd->revision - luck.between(0, 2));
            }
            break;
        case 4:
            if (loses_events) {
                etcd->tells = false;
                change();
                etcd->tells = true;
            }
            break;
        case 5:
            read(*slow);
            break;
        default:
            for (int i = luck.between(1, 12); i != 0; --i) {
                change();
            }
        }
        env->pass(luck.skewed(0ns, 4s));
        read(*quick);
        check();
    }
    void read(obedient_reader& r) {
        auto reading = start(r.from.next());
        env->pass(0ms);
        if (!reading.ended()) {
            reading.cancel();
            env->pass(0ms);
            return;
        }
        CHECK(r.take(reading.get()).empty());
        if (!loses_events) {
            CHECK(r.has == at(r.revision));
        }
    }
    /// What etcd had then.
    revisions_of_keys at(std::int64_t revision) const {
        revisions_of_keys result;
        for (const auto& c : etcd->history()) {
            if (c.revision > revision || !c.key.starts_with("c/")) {
                continue;
            }
            if (c.deleted) {
                result.erase(c.key);
            } else {
                result[c.key] = c.revision;
            }
        }
        return result;
    }
    void check() {
        const coetcd::mirror_snapshot now = copy->snapshot();
        CHECK(now.revision >= seen);
        CHECK(now.revision <= etcd->revision);
        seen = now.revision;
        if (!loses_events) {
            CHECK(keys_of(now) == at(now.revision));
        }
    }
    static revisions_of_keys keys_of(const coetcd::mirror_snapshot& all) {
        revisions_of_keys result;
        for (const mirror_entry& e : all.entries) {
            result[e->key] = e->mod_revision;
        }
        return result;
    }
    /// Nothing goes wrong any more.
    void settle() {
        env->decide = nullptr;
        env->pass(1min);
        check();
        CHECK(keys_of(copy->snapshot()) == at(etcd->revision));
        CHECK_FALSE(copy->trouble());
        for (obedient_reader* r : {&*quick, &*slow}) {
            read(*r);
            CHECK(r->has == at(etcd->revision));
        }
        const bool is_exact = is_large && !loses_events && !compacts;
        if (is_exact) {
            std::vector<std::pair<std::int64_t, std::string>> all;
            for (const auto& c : etcd->history()) {
                if (c.revision > began && c.key.starts_with("c/")) {
                    all.emplace_back(c.revision, c.key);
                }
            }
            CHECK(quick->compared == 0);
            CHECK(slow->compared == 0);
            // The first batch may have had some of them.
            REQUIRE(quick->told.size() <= all.size());
            CHECK(std::vector(all.end() - static_cast<std::ptrdiff_t>(quick->told.size()),
                              all.end()) == quick->told);
        }
    }

    chance luck;
    const bool loses_events;
    const bool compacts;
    bool is_large = true;
    coetcd::client owner;
    std::optional<mirror> copy;
    std::optional<obedient_reader> quick;
    std::optional<obedient_reader> slow;
    std::int64_t began = 0;
    std::int64_t seen = 0;
};

} // namespace

TEST_CASE("whatever happens, a mirror tells what etcd had, and its readers each change",
          "[mirror]") {
    for (std::uint64_t seed = 1; seed <= 150; ++seed) {
        INFO("seed " << seed);
        history_fixture f(seed);
        for (int i = f.luck.between(10, 60); i != 0; --i) {
            f.step();
        }
        f.settle();
    }
}
