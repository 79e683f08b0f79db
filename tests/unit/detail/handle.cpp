// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/handle.hpp>
#include <coetcd/election.hpp>
#include <coetcd/multi_lock.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/shared_mutex.hpp>
#include <coetcd/watch.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/locks.hpp"
#include "support/world.hpp"

using namespace std::chrono_literals;
using coetcd::detail::handle;
using support::owner;
using support::world;

namespace {

using uses = std::vector<std::pair<std::string, std::function<void()>>>;

void check_refused(const uses& all) {
    for (const auto& [name, use] : all) {
        INFO(name);
        CHECK_THROWS_AS(use(), std::logic_error);
    }
}

} // namespace

TEST_CASE("a handle refers to something, or says that it does not", "[handle]") {
    handle<int> some(std::make_shared<int>(3));
    REQUIRE(some);
    CHECK(*some.get() == 3);
    const handle<int> other = some;
    CHECK(other.get() == some.get());
    const handle<int> moved = std::move(some);
    CHECK(moved);
    CHECK_FALSE(some); // NOLINT(bugprone-use-after-move): that is the question
    CHECK_THROWS_WITH(some.get(), support::contains("moved from"));
    CHECK_THROWS_AS(some.operator->(), std::logic_error);
    CHECK_FALSE(handle<int>());
}

TEST_CASE("no call of an empty object goes astray", "[handle]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    coetcd::watcher watcher = w.await(client.watch("k"));
    const coetcd::watcher watcher_now = std::move(watcher);
    coetcd::election election(session, "e");
    const coetcd::election election_now = std::move(election);
    coetcd::leadership nobody;
    coetcd::leader_feed nothing;
    const coetcd::mutex mutex_now = std::move(mutex);
    coetcd::shared_mutex rw(session, "rw");
    coetcd::multi_lock all_of(session, {coetcd::shared("a")});
    const coetcd::shared_mutex rw_now = std::move(rw);
    const coetcd::multi_lock all_of_now = std::move(all_of);
    const coetcd::session session_now = std::move(session);
    coetcd::client& c = client;
    const coetcd::client client_now = std::move(client);
    coetcd::session& s = session;
    coetcd::mutex& m = mutex;
    coetcd::held_lock none;
    coetcd::held_locks none_of_all;
    const std::size_t calls = w.env->calls.size();
    check_refused({
        {"get_executor", [&] { (void)c.get_executor(); }},
        {"with_timeout", [&] { (void)c.with_timeout(1s); }},
        {"get", [&] { (void)c.get("k"); }},
        {"range", [&] { (void)c.range("k"); }},
        {"put", [&] { (void)c.put("k", "v"); }},
        {"erase", [&] { (void)c.erase("k"); }},
        {"txn", [&] { (void)c.txn(coetcd::txn()); }},
        {"compact", [&] { (void)c.compact(1); }},
        {"lease_grant", [&] { (void)c.lease_grant(10s); }},
        {"lease_revoke", [&] { (void)c.lease_revoke(7); }},
        {"lease_keep_alive_once", [&] { (void)c.lease_keep_alive_once(7); }},
        {"lease_time_to_live", [&] { (void)c.lease_time_to_live(7); }},
        {"lease_leases", [&] { (void)c.lease_leases(); }},
        {"watch", [&] { (void)c.watch("k"); }},
        {"next", [&] { (void)watcher.next(); }},
        {"open", [&] { (void)coetcd::session::open(c); }},
        {"adopt", [&] { (void)coetcd::session::adopt(c, 7); }},
        {"lease", [&] { (void)s.lease(); }},
        {"ttl", [&] { (void)s.ttl(); }},
        {"state", [&] { (void)s.state(); }},
        {"reason", [&] { (void)s.reason(); }},
        {"remaining", [&] { (void)s.remaining(); }},
        {"wait_lost", [&] { (void)s.wait_lost(); }},
        {"wait_suspect", [&] { (void)s.wait_suspect(); }},
        {"wait_active", [&] { (void)s.wait_active(); }},
        {"close", [&] { (void)s.close(); }},
        {"orphan", [&] { (void)s.orphan(); }},
        {"of a session that was never opened", [&] { (void)coetcd::session().close(); }},
        {"mutex", [&] { (void)coetcd::mutex(s, "m"); }},
        {"lock", [&] { (void)m.lock(); }},
        {"try_lock", [&] { (void)m.try_lock(); }},
        {"try_lock_for", [&] { (void)m.try_lock_for(1s); }},
        {"try_lock_for, negative", [&] { (void)m.try_lock_for(-1s); }},
        {"resume", [&] { (void)m.resume(); }},
        {"scoped_lock", [&] { (void)m.scoped_lock(); }},
        {"unlock", [&] { (void)m.unlock(); }},
        {"owns_lock", [&] { (void)m.owns_lock(); }},
        {"fencing_token", [&] { (void)m.fencing_token(); }},
        {"is_owner", [&] { (void)m.is_owner(); }},
        {"key", [&] { (void)m.key(); }},
        {"name", [&] { (void)m.name(); }},
        {"holder", [&] { (void)m.holder(); }},
        {"waiters", [&] { (void)m.waiters(); }},
        {"held_lock", [&] { (void)coetcd::held_lock(m, std::adopt_lock); }},
        {"held_lock::fencing_token", [&] { (void)none.fencing_token(); }},
        {"held_lock::is_owner", [&] { (void)none.is_owner(); }},
        {"held_lock::key", [&] { (void)none.key(); }},
        {"election", [&] { (void)coetcd::election(s, "e"); }},
        {"election::name", [&] { (void)election.name(); }},
        {"campaign", [&] { (void)election.campaign("v"); }},
        {"try_campaign", [&] { (void)election.try_campaign("v"); }},
        {"campaign_for", [&] { (void)election.campaign_for("v", 1s); }},
        {"election::resume", [&] { (void)election.resume(); }},
        {"election::resume of a term", [&] { (void)election.resume("e/1", 1); }},
        {"leader", [&] { (void)election.leader(); }},
        {"election::observe", [&] { (void)election.observe(); }},
        {"observe", [&] { (void)coetcd::observe(c, "e"); }},
        {"leader_of", [&] { (void)coetcd::leader_of(c, "e"); }},
        {"leader_feed::next", [&] { (void)nothing.next(); }},
        {"leadership::term", [&] { (void)nobody.term(); }},
        {"leadership::is_leader", [&] { (void)nobody.is_leader(); }},
        {"leadership::key", [&] { (void)nobody.key(); }},
        {"leadership::proclaim", [&] { (void)nobody.proclaim("v"); }},
        {"leadership::wait_lost", [&] { (void)nobody.wait_lost(); }},
        {"held_lock::mode", [&] { (void)none.mode(); }},
        {"held_lock::downgrade", [&] { (void)none.downgrade(); }},
        {"held_lock::try_upgrade", [&] { (void)none.try_upgrade(); }},
        {"shared_mutex", [&] { (void)coetcd::shared_mutex(s, "m"); }},
        {"shared_mutex::get_executor", [&] { (void)rw.get_executor(); }},
        {"shared_mutex::lock", [&] { (void)rw.lock(); }},
        {"shared_mutex::try_lock", [&] { (void)rw.try_lock(); }},
        {"shared_mutex::try_lock_for", [&] { (void)rw.try_lock_for(1s); }},
        {"shared_mutex::scoped_lock", [&] { (void)rw.scoped_lock(); }},
        {"shared_mutex::unlock", [&] { (void)rw.unlock(); }},
        {"shared_mutex::owns_lock", [&] { (void)rw.owns_lock(); }},
        {"shared_mutex::fencing_token", [&] { (void)rw.fencing_token(); }},
        {"shared_mutex::is_owner", [&] { (void)rw.is_owner(); }},
        {"shared_mutex::lock_shared", [&] { (void)rw.lock_shared(); }},
        {"shared_mutex::try_lock_shared", [&] { (void)rw.try_lock_shared(); }},
        {"shared_mutex::try_lock_shared_for", [&] { (void)rw.try_lock_shared_for(1s); }},
        {"shared_mutex::scoped_lock_shared", [&] { (void)rw.scoped_lock_shared(); }},
        {"shared_mutex::unlock_shared", [&] { (void)rw.unlock_shared(); }},
        {"shared_mutex::owns_lock_shared", [&] { (void)rw.owns_lock_shared(); }},
        {"shared_mutex::name", [&] { (void)rw.name(); }},
        {"multi_lock", [&] { (void)coetcd::multi_lock(s, {coetcd::shared("a")}); }},
        {"multi_lock::get_executor", [&] { (void)all_of.get_executor(); }},
        {"multi_lock::lock", [&] { (void)all_of.lock(); }},
        {"multi_lock::try_lock", [&] { (void)all_of.try_lock(); }},
        {"multi_lock::try_lock_for", [&] { (void)all_of.try_lock_for(1s); }},
        {"multi_lock::scoped_lock", [&] { (void)all_of.scoped_lock(); }},
        {"multi_lock::unlock", [&] { (void)all_of.unlock(); }},
        {"multi_lock::owns_lock", [&] { (void)all_of.owns_lock(); }},
        {"multi_lock::fencing_token", [&] { (void)all_of.fencing_token(); }},
        {"multi_lock::is_owner", [&] { (void)all_of.is_owner(); }},
        {"multi_lock::parts", [&] { (void)all_of.parts(); }},
        {"held_locks::get_executor", [&] { (void)none_of_all.get_executor(); }},
        {"held_locks::wait_lost", [&] { (void)none_of_all.wait_lost(); }},
        {"held_locks::fencing_token", [&] { (void)none_of_all.fencing_token(); }},
        {"held_locks::is_owner", [&] { (void)none_of_all.is_owner(); }},
    });
    CHECK(w.env->calls.size() == calls);
    // An empty guard holds nothing, which is no defect.
    CHECK_FALSE(none.owns_lock());
    CHECK_FALSE(w.await(none.unlock()));
    none = coetcd::held_lock();
    CHECK_FALSE(nobody.leads());
    CHECK_FALSE(w.await(nobody.resign()));
    nobody = coetcd::leadership();
    nothing = coetcd::leader_feed();
    CHECK_FALSE(none_of_all.owns_lock());
    CHECK_FALSE(w.await(none_of_all.unlock()));
}
