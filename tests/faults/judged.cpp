// SPDX-License-Identifier: BSL-1.0
#include "judged.hpp"

#include <coetcd/kv.hpp>
#include <coetcd/mutex.hpp>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "harness.hpp"
#include "support/catch.hpp"
#include "support/etcd_cluster.hpp"
#include "support/etcd_tools.hpp"
#include "support/run_test.hpp"
#include "support/temporary_file.hpp"

using namespace std::chrono_literals;
using boost::system::system_error;
using coetcd::client;
using coetcd::session;
using nlohmann::json;
using support::grant;
using support::recorder;

namespace faults {

namespace {

std::map<std::string, judged_kind::factory>& kinds() {
    static std::map<std::string, judged_kind::factory> all;
    return all;
}

class mutex_party : public party {
public:
    mutex_party(client c, const session& owner, const writer_options& how)
        : client_(std::move(c))
        , lock_(owner, how.lock)
        , believes_(how.kind == "judged_believer") {}

    awaitable<void> turn(recorder& told, int n) override {
        std::function<coetcd::compare()> guard = [this] { return lock_.is_owner(); };
        return turn_with(told, client_, lock_.name(), lock_, std::move(guard), believes_, n);
    }

private:
    client client_;
    coetcd::mutex lock_;
    bool believes_; ///< It does not look whether it has the lock still.
};

const judged_kind judged_mutex("judged_mutex", &make_party<mutex_party>);
const judged_kind judged_believer("judged_believer", &make_party<mutex_party>);

} // namespace

judged_kind::judged_kind(const std::string& name, factory make) {
    kinds().emplace(name, make);
}

bool is_judged(const std::string& kind) {
    return kinds().contains(kind);
}

awaitable<void> judged_on(writer_options how, const bool& stop) {
    const auto executor = co_await boost::asio::this_coro::executor;
    const client c(executor, how.urls);
    recorder told(how.target, how.number);
    std::optional<session> lease;
    std::unique_ptr<party> one;
    int n = 0;
    while (!stop) {
        ++n;
        try {
            if (!lease || lease->state() == coetcd::session_state::lost) {
                session s = co_await support::open_session(c, writer_ttl);
                one.reset();
                lease.emplace(std::move(s));
                one = kinds().at(how.kind)(c, *lease, how);
            }
            co_await one->turn(told, n);
        } catch (const system_error& e) {
            say(std::string("trouble ") + e.what());
        }
        co_await support::sleep_for(5ms);
    }
    if (one) {
        co_await one->end(told);
    }
    say("stopped");
}

json told_of(const coetcd::key_value& kv) {
    return {{"value", kv.value},
            {"revision", kv.mod_revision},
            {"create", kv.create_revision},
            {"version", kv.version}};
}

json told_of(const coetcd::event& e) {
    json all{{"key", e.kv.key}, {"now", told_of(e.kv)}};
    if (e.type == coetcd::event_type::erase) {
        all["erased"] = true;
    }
    if (e.prev_kv) {
        all["before"] = told_of(*e.prev_kv);
    }
    return all;
}

const char* end_of(const system_error& e) {
    const bool known = e.code() != coetcd::condition::outcome_unknown;
    return known ? "no" : "unknown";
}

awaitable<void> draw(recorder& told, std::string name, awaitable<std::int64_t> drawing, int n) {
    auto call = told.begin("sequence", name, "next");
    say("held");
    const char* end = "yes";
    try {
        const std::int64_t number = co_await std::move(drawing);
        call.with("amount", number);
    } catch (const system_error& e) {
        end = end_of(e);
    }
    call.end(end);
    say((*end == 'y' ? "added " : "refused ") + std::to_string(n));
}

awaitable<void> use_grant(recorder& told, client c, grant held, int n) {
    const std::string key = held.name + "-data";
    say("held");
    const bool well = co_await support::use(told, c, key, std::move(held));
    say((well ? "added " : "refused ") + std::to_string(n));
}

void run_judged(const std::string& kind, bool can_have_happened, witness::factory beside) {
    const auto time = duration(60s) / 2;
    support::etcd_cluster& etcd = shared_cluster();
    const support::temporary_file file("coetcd-history");
    const auto body = [&]() -> awaitable<void> {
        const auto executor = co_await boost::asio::this_coro::executor;
        const auto name = support::unique_name(kind);
        const client c(executor, etcd.urls());
        std::unique_ptr<witness> looks;
        if (beside) {
            looks = beside(c, recorder(file.path(), "witness"), name);
            co_await looks->begin();
        }
        writers all = start_writers(executor, etcd, kind, name, file.path().string());
        nemesis strikes(etcd);
        const auto enough = [&] { return added_by(all) > 20 && !strikes.done.empty(); };
        const int stopped = co_await torment(strikes, all, time, enough);
        std::size_t added = 0, refused = 0;
        for (const auto& w : all) {
            added += w->added.size();
            refused += w->refused;
        }
        std::cout << kind << ": " << added << " turns went well, " << refused << " did not; "
                  << stopped << " writers stopped" << std::endl;
        CHECK(added > 20);
        CHECK(!strikes.done.empty());
        if (looks) {
            co_await looks->end();
        }
        co_await support::erase_all(c, name);
    };
    support::run_test(body, for_seconds(time));
    const auto verdict = support::judge(file.path());
    if (!verdict) {
        std::cout << "skipped: the judge of " << kind << ": it is built with Go" << std::endl;
        return;
    }
    std::cout << verdict->output << std::flush;
    const int expected = can_have_happened ? 0 : 1;
    CHECK(verdict->exit_code == expected);
    if (verdict->exit_code != expected) {
        std::filesystem::create_directory("build");
        const auto kept = std::filesystem::absolute("build/" + kind + ".jsonl");
        std::filesystem::copy_file(
            file.path(), kept, std::filesystem::copy_options::overwrite_existing);
        std::cout << "its history is in " << kept << std::endl;
    }
}

} // namespace faults

TEST_CASE("judged_mutex: what clients saw of a mutex can have happened",
          "[nemesis][judge][short]") {
    faults::run_judged("judged_mutex");
}

TEST_CASE("judged_believer: what clients saw that do not look cannot, as a control",
          "[nemesis][judge]") {
    faults::run_judged("judged_believer", false);
}
