// SPDX-License-Identifier: BSL-1.0
#include <coetcd/kv.hpp>
#include <coetcd/watch.hpp>

#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "judged.hpp"
#include "support/catch.hpp"

using namespace std::chrono_literals;
using boost::system::system_error;
using coetcd::client;
using coetcd::op;
using coetcd::session;
using nlohmann::json;
using support::recorder;

namespace faults {

namespace {

// Writes to keys that all watch, and reads its watch up to there. Each of the three has another
// watch: of all with what was before, of all with little room, of one key. The control goes on with
// what is new, where it should go on where it was.
class watch_party : public party {
public:
    watch_party(client c, const session&, const writer_options& how)
        : client_(std::move(c))
        , name_(how.lock)
        , skips_(how.kind == "judged_skipper")
        , number_(how.number.back() - '0') {}

    awaitable<void> turn(recorder& told, int n) override {
        if (known_ == 0) {
            const auto empty = co_await client_.range(mark());
            known_ = empty.header.revision;
            begun_ = false;
        }
        if (n % 16 == 0) {
            open_ = false;                      // what resumes elsewhere is the same watch
            co_await support::sleep_for(200ms); // others write meanwhile
        }
        if (!open_) {
            co_await open(told);
        }
        const std::int64_t written = co_await write(told, n);
        while (known_ < written) {
            co_await see(told);
        }
    }

private:
    std::string mark() const { return name_ + "/mark"; }
    std::string watched() const { return number_ % 3 == 0 ? mark() : name_ + '/'; }

    awaitable<void> open(recorder& told) {
        auto opening = told.begin("watch", name_, begun_ ? "resume" : "begin");
        coetcd::watch_options how;
        how.start_revision = begun_ && skips_ ? 0 : known_ + 1;
        how.prev_kv = number_ % 3 == 1;
        how.buffer = number_ % 3 == 2 ? 4096 : how.buffer;
        auto keys =
            number_ % 3 == 0 ? coetcd::key_range(mark()) : coetcd::key_range::prefix(watched());
        coetcd::watcher opened = co_await client_.watch(std::move(keys), how);
        watcher_ = std::move(opened);
        open_ = true;
        opening.with("amount", known_ + 1).with("value", watched()).end("yes");
        begun_ = true;
    }

    // One revision: the mark, and one of four other keys, every third time away.
    awaitable<std::int64_t> write(recorder& told, int n) {
        auto writing = told.begin("watch", name_, "write");
        const std::string key = name_ + '/' + std::to_string(n % 4);
        const bool erases = n % 3 == 0;
        const std::string value = writing.id() + ' ' + std::string(400, 'x');
        auto change = coetcd::txn().then(op::put(mark(), value),
                                         erases ? op::erase(key) : op::put(key, value));
        writing.with("writes", {{mark(), value}, {key, erases ? "" : value}});
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

    awaitable<void> see(recorder& told) {
        auto seeing = told.begin("watch", name_, "see");
        open_ = false; // unless it tells something
        const coetcd::watch_batch batch = co_await watcher_.next();
        open_ = true;
        json events = json::array();
        for (const coetcd::event& e : batch.events) {
            events.push_back(told_of(e));
        }
        known_ = batch.revision;
        seeing.with("token", known_).with("value", watched()).with("events", std::move(events));
        seeing.end("yes");
    }

    // This process is one spectator, however many sessions it has.
    static inline std::int64_t known_ = 0;
    static inline bool begun_ = false;

    client client_;
    const std::string name_;
    const bool skips_;
    const int number_;
    coetcd::watcher watcher_;
    bool open_ = false;
};

const judged_kind judged_watch("judged_watch", &make_party<watch_party>);
const judged_kind judged_skipper("judged_skipper", &make_party<watch_party>);

} // namespace

} // namespace faults

TEST_CASE("judged_watch: what watches told of what was written can have happened",
          "[nemesis][judge][short]") {
    faults::run_judged("judged_watch");
}

TEST_CASE("judged_skipper: what watches told that leave something out cannot, as a control",
          "[nemesis][judge]") {
    faults::run_judged("judged_skipper", false);
}
