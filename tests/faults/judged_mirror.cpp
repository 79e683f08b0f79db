// SPDX-License-Identifier: BSL-1.0
#include <coetcd/group.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/mirror.hpp>
#include <coetcd/watch.hpp>

#include <boost/asio/error.hpp>
#include <boost/asio/this_coro.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "judged.hpp"
#include "support/catch.hpp"

using namespace std::chrono_literals;
using boost::system::system_error;
using coetcd::client;
using coetcd::key_range;
using coetcd::member_entry;
using coetcd::op;
using coetcd::session;
using nlohmann::json;
using support::recorder;
using support::task;

namespace faults {

namespace {

using faults::told_of;

json told_of(const coetcd::mirror_change& c) {
    json all{{"key", c.key()}};
    if (c.is) {
        all["now"] = told_of(*c.is);
    } else {
        all["now"] = {{"revision", c.revision}};
        all["erased"] = true;
    }
    if (c.was) {
        all["before"] = told_of(*c.was);
    }
    if (c.by_comparison) {
        all["at"] = c.revision;
    }
    return all;
}

json told_of(const member_entry& m) {
    return {{"key", m.key},
            {"now", {{"value", m.value}, {"revision", m.revision}, {"create", m.joined}}}};
}

// What the judge is told of a mirror, of all keys of a range, or of a group.
template<class Told>
json told_of_each(const std::vector<Told>& all) {
    json each = json::array();
    for (const Told& one : all) {
        each.push_back(told_of(one));
    }
    return each;
}

json told_of_keys(const std::vector<coetcd::key_value>& all) {
    json each = json::array();
    for (const coetcd::key_value& kv : all) {
        each.push_back({{"key", kv.key}, {"now", told_of(kv)}});
    }
    return each;
}

// A process is one spectator, however many sessions it has.
class mirror_spectator {
public:
    std::optional<coetcd::mirror> keys{};
    std::array<coetcd::mirror_changes, 2> readers{};
    std::array<std::int64_t, 2> told{}; // the revision, of each
    std::optional<task<void>> listening{};
    json members{}; // what the feed has told last
};

// Writes to keys that all mirror, and looks at its mirror and reads its changes up to there; a
// second reader sleeps mostly. Each of the three has another mirror: of one key, of all, of all
// with little room. Beside that, it comes and goes in a group, and follows it. The control opens
// its mirror anew, where it should go on.
class mirror_party : public party {
public:
    mirror_party(client c, const session& owner, const writer_options& how)
        : client_(std::move(c))
        , session_(owner)
        , name_(how.lock)
        , group_(owner, name_ + "/group")
        , reopens_(how.kind == "judged_reopener")
        , number_(how.number.back() - '0') {}

    awaitable<void> turn(recorder& told, int n) override {
        const auto executor = co_await boost::asio::this_coro::executor;
        if (!of_process_.listening) {
            of_process_.listening.emplace(executor, listen(told, name_, group_.changes()));
        }
        if (!of_process_.keys || n % 64 == 0) {
            co_await open(told);
        } else if (reopens_ && n % 16 == 0) {
            co_await begin();
        }
        co_await take_part(told, n);
        const std::int64_t written = co_await write(told, n, true);
        if (written == 0) {
            co_return;
        }
        (void)co_await look(told, written, 1s);
        co_await read(told, 0, written);
        if (n % 16 == 0) {
            co_await read(told, 1, written);
        }
    }

    awaitable<void> end(recorder& told) override {
        if (of_process_.keys) {
            co_await catch_up(told);
        }
        if (of_process_.listening) {
            co_await settle(told);
            of_process_.listening->cancel();
            (void)co_await of_process_.listening->how_it_ended();
        }
        of_process_ = {};
    }

private:
    std::string all() const { return name_ + "/keys/"; }
    std::string mark() const { return all() + "mark"; }

    awaitable<void> begin() {
        of_process_.keys.reset();
        coetcd::mirror_options how;
        how.buffer = number_ % 3 == 2 ? 2048 : how.buffer;
        auto keys = number_ % 3 == 0 ? key_range(mark()) : key_range::prefix(all());
        coetcd::mirror opened = co_await coetcd::open_mirror_of(client_, std::move(keys), how);
        of_process_.keys.emplace(std::move(opened));
        for (std::size_t i = 0; i < 2; ++i) {
            of_process_.readers.at(i) = of_process_.keys->changes();
            of_process_.told.at(i) = 0;
        }
    }

    awaitable<void> open(recorder& told) {
        auto opening = told.begin("mirror", name_, "open");
        co_await begin();
        opening.with("value", number_ % 3 == 0 ? mark() : all());
        opening.with("token", of_process_.keys->revision()).end("yes");
    }

    // One revision: the mark, one of four other keys, every third time away, and sometimes one
    // more, which goes with the session.
    awaitable<std::int64_t> write(recorder& told, int n, bool leases) {
        auto writing = told.begin("mirror", name_, "write");
        const std::string value = writing.id() + ' ' + std::string(100, 'x');
        const std::string key = all() + std::to_string(n % 4);
        const std::string leased = all() + "leased-" + std::to_string(number_);
        const bool erases = n % 3 == 0;
        auto change = coetcd::txn().then(op::put(mark(), value),
                                         erases ? op::erase(key) : op::put(key, value));
        json writes{{mark(), value}, {key, erases ? "" : value}};
        if (leases && n % 5 == 0) {
            coetcd::put_options with_session;
            with_session.lease = session_.lease();
            change.success.push_back(op::put(leased, value, with_session));
            writes[leased] = value;
        }
        writing.with("writes", std::move(writes));
        say("held");
        const char* end = "yes";
        std::int64_t revision = 0;
        try {
            const auto done = co_await client_.txn(std::move(change));
            revision = done.header.revision;
            writing.with("token", revision);
        } catch (const system_error& e) {
            end = end_of(e);
        }
        writing.end(end);
        say((*end == 'y' ? "added " : "refused ") + std::to_string(n));
        co_return revision;
    }

    awaitable<bool> look(recorder& told, std::int64_t written, std::chrono::seconds patience) {
        auto waiting = told.begin("mirror", name_, "wait");
        waiting.with("token", written);
        const bool there = co_await of_process_.keys->wait_for(written, patience);
        waiting.end(there);
        auto looking = told.begin("mirror", name_, "snapshot");
        const coetcd::mirror_snapshot shown = of_process_.keys->snapshot();
        std::vector<coetcd::key_value> entries;
        for (const coetcd::mirror_entry& e : shown.entries) {
            entries.push_back(*e);
        }
        looking.with("token", shown.revision).with("events", told_of_keys(entries)).end("yes");
        co_return there;
    }

    awaitable<void> read(recorder& told, std::size_t which, std::int64_t until) {
        while (of_process_.told.at(which) < until) {
            auto reading = told.begin("mirror", name_, "told");
            reading.with("amount", which);
            coetcd::mirror_batch batch;
            try {
                batch = co_await of_process_.readers.at(which).next();
            } catch (const system_error&) {
                reading.end("no");
                throw;
            }
            of_process_.told.at(which) = batch.revision;
            reading.with("token", batch.revision);
            reading.with("events", told_of_each(batch.changes)).end("yes");
        }
    }

    awaitable<void> take_part(recorder& told, int n) {
        if (n % 16 == 11 && member_) {
            (void)co_await member_->leave();
            member_.reset();
        } else if (n % 16 == 6 && member_) {
            auto writing = told.begin("mirror", name_, "write");
            const std::string value = writing.id() + " updated";
            co_await member_->update(value);
            writing.with("writes", {{member_->key(), value}}).end("unknown"); // no revision is told
        } else if (n % 16 == 1 && !member_) {
            auto writing = told.begin("mirror", name_, "write");
            const std::string value = writing.id() + " joined";
            coetcd::membership joined = co_await group_.join(value);
            writing.with("writes", {{joined.key(), value}}).end("unknown");
            member_.emplace(std::move(joined));
        }
    }

    static awaitable<void> listen(recorder& told, std::string name, coetcd::members_feed changes) {
        told.begin("mirror", name, "feed").with("value", name + "/group/").end("yes");
        for (;;) {
            auto listening = told.begin("mirror", name, "members");
            try {
                const std::vector<member_entry> members = co_await changes.next();
                of_process_.members = told_of_each(members);
            } catch (const system_error& e) {
                if (e.code() != boost::asio::error::operation_aborted) {
                    listening.end("no");
                }
                throw;
            }
            listening.with("events", of_process_.members).end("yes");
        }
    }

    awaitable<void> catch_up(recorder& told) {
        std::int64_t written = 0;
        while (written == 0) {
            written = co_await write(told, 1, false);
        }
        const bool there = co_await look(told, written, 20s);
        co_await read(told, 0, written);
        co_await read(told, 1, written);
        told.begin("mirror", name_, "end").with("token", written).end(there);
        auto asking = told.begin("mirror", name_, "truth");
        auto everything = key_range::prefix(all());
        const auto found = co_await client_.range(std::move(everything));
        asking.with("token", found.header.revision).with("value", all());
        asking.with("events", told_of_keys(found.kvs)).end("yes");
    }

    // Others may still come and go.
    awaitable<void> settle(recorder& told) {
        auto settling = told.begin("mirror", name_, "settled");
        const auto until = support::clock::now() + 20s;
        bool is_same = false;
        while (!is_same && support::clock::now() < until) {
            auto members = key_range::prefix(name_ + "/group/");
            const auto found = co_await client_.range(std::move(members));
            std::vector<member_entry> entries;
            for (const coetcd::key_value& kv : found.kvs) {
                entries.push_back({kv.key, kv.value, kv.create_revision, kv.mod_revision, 0});
            }
            std::ranges::sort(entries, {}, &member_entry::joined);
            is_same = of_process_.members == told_of_each(entries);
            settling.with("token", found.header.revision);
            co_await support::sleep_for(5ms);
        }
        settling.end(is_same);
    }

    static inline mirror_spectator of_process_;

    client client_;
    const session& session_;
    const std::string name_;
    coetcd::group group_;
    std::optional<coetcd::membership> member_;
    const bool reopens_;
    const int number_;
};

// The patient watch, by which the others are judged. What it was told may be forgotten.
class mirror_witness : public witness {
public:
    mirror_witness(client c, recorder told, const std::string& name)
        : client_(std::move(c))
        , told_(std::move(told))
        , name_(name) {}

    awaitable<void> begin() override {
        const auto executor = co_await boost::asio::this_coro::executor;
        const auto empty = co_await client_.range(name_ + '/');
        known_ = empty.header.revision;
        auto opening = told_.begin("mirror", name_, "begin");
        coetcd::watch_options how;
        how.start_revision = known_ + 1;
        how.prev_kv = true;
        auto keys = key_range::prefix(name_ + '/');
        coetcd::watcher opened = co_await client_.watch(std::move(keys), how);
        opening.with("amount", known_ + 1).with("value", name_ + '/').end("yes");
        seeing_.emplace(executor, see(std::move(opened)));
    }

    awaitable<void> end() override {
        auto writing = told_.begin("mirror", name_, "write");
        const std::string key = name_ + "/end";
        const std::string value = writing.id() + " end";
        writing.with("writes", {{key, value}});
        const auto written = co_await client_.put(key, value);
        const std::int64_t last = written.header.revision;
        writing.with("token", last).end("yes");
        auto there = [&]() -> awaitable<bool> { co_return known_ >= last || seeing_->done(); };
        co_await support::eventually(there, 20s, "the patient watch has seen all");
        seeing_->cancel();
        const support::ending e = co_await seeing_->how_it_ended();
        INFO(e.text);
        CHECK(known_ >= last);
    }

private:
    awaitable<void> see(coetcd::watcher all) {
        for (int n = 1;; ++n) {
            auto seeing = told_.begin("mirror", name_, "see");
            const coetcd::watch_batch batch = co_await all.next();
            known_ = batch.revision;
            std::vector<coetcd::event> events = batch.events;
            const auto is_own = [&](const coetcd::event& e) {
                return e.kv.key.starts_with(name_ + "/group."); // no member, but the group's
            };
            std::erase_if(events, is_own);
            seeing.with("token", known_).with("value", name_ + '/');
            seeing.with("events", told_of_each(events)).end("yes");
            const auto is_erased = [](const coetcd::event& e) {
                return e.type == coetcd::event_type::erase;
            };
            // At a deletion, old servers forget that as well: etcd issue 18089.
            if (n % 10 == 0 && std::ranges::none_of(batch.events, is_erased)) {
                auto compacting = client_.compact(known_);
                (void)co_await support::ending_of(std::move(compacting));
            }
        }
    }

    client client_;
    recorder told_;
    const std::string name_;
    std::int64_t known_ = 0;
    std::optional<task<void>> seeing_;
};

const judged_kind judged_mirror("judged_mirror", &make_party<mirror_party>);
const judged_kind judged_reopener("judged_reopener", &make_party<mirror_party>);

} // namespace

} // namespace faults

TEST_CASE("judged_mirror: what mirrors and a feed told of what was written can have happened",
          "[nemesis][judge][short]") {
    faults::run_judged("judged_mirror", true, &faults::make_witness<faults::mirror_witness>);
}

TEST_CASE("judged_reopener: what mirrors told that begin anew cannot, as a control",
          "[nemesis][judge]") {
    faults::run_judged("judged_reopener", false, &faults::make_witness<faults::mirror_witness>);
}
