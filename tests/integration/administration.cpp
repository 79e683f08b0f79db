// SPDX-License-Identifier: BSL-1.0
#include <coetcd/auth.hpp>
#include <coetcd/client.hpp>
#include <coetcd/cluster.hpp>
#include <coetcd/maintenance.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/etcd_server.hpp"
#include "support/run_test.hpp"
#include "support/tcp_proxy.hpp"
#include "support/temporary_file.hpp"

using namespace std::chrono_literals;
using namespace support;
namespace asio = boost::asio;
using coetcd::client;
using coetcd::client_options;
using coetcd::errc;
using coetcd::key_range;
using coetcd::permission_type;
using coetcd::server_errc;
using strings_of_admin = std::vector<std::string>;

namespace {

client as_user(const asio::any_io_executor& executor,
               const etcd_server& etcd,
               const std::string& user,
               const std::string& password) {
    client_options o;
    o.credentials = coetcd::credentials(user, password);
    return client(executor, etcd.url(), o);
}

/// Whether it is an etcd of this minor version, as 3.4.
awaitable<bool> is_version(client c, std::string endpoint, std::string minor) {
    const auto status = co_await coetcd::maintenance(c).status(std::move(endpoint));
    co_return status.version.starts_with(minor + '.');
}

std::string bytes_of(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::size_t files_beside(const std::filesystem::path& file) {
    std::size_t n = 0;
    for (const auto& each : std::filesystem::directory_iterator(file.parent_path())) {
        n += each.path().string().starts_with(file.string()) ? 1U : 0U;
    }
    return n;
}

/// Fills the database of an etcd with some 100 KiB for each round.
awaitable<void> fill(client c, int rounds) {
    for (int i = 0; i != rounds; ++i) {
        (void)co_await c.put("big" + std::to_string(i % 4),
                             std::string(100 * 1024, static_cast<char>('a' + i % 26)));
    }
}

} // namespace

TEST_CASE("Users and roles are made, used, changed and deleted", "[auth]") {
    etcd_server etcd;
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client nobody(executor, etcd.url());
        const coetcd::auth first(nobody);
        const bool old = co_await is_version(nobody, etcd.url(), "3.4");

        const auto early = co_await ending_of(first.enable());
        CHECK(early.code == server_errc::failed_precondition); // there is no root
        co_await first.add_user("root", "canary-root");
        const auto twice = co_await ending_of(first.add_user("root", "canary-root"));
        CHECK(twice.code == server_errc::already_exists);
        co_await first.grant_role("root", "root");
        co_await first.add_user("app", "canary-\"app\\\n\xc3\xbc");
        co_await first.add_user("certified", coetcd::no_password);
        co_await first.add_role("reader");
        const auto role_twice = co_await ending_of(first.add_role("reader"));
        CHECK(role_twice.code == server_errc::already_exists);
        auto below_app = key_range::prefix("app/");
        co_await first.grant_permission("reader", permission_type::readwrite, below_app);
        co_await first.grant_permission("reader", permission_type::read, "seen");
        co_await first.grant_permission("reader", permission_type::write, key_range::from("z"));
        co_await first.grant_role("app", "reader");
        co_await first.grant_role("app", "reader"); // no error
        const auto no_role = co_await ending_of(first.grant_role("app", "none"));
        CHECK(no_role.code == server_errc::not_found);
        const auto no_user = co_await ending_of(first.grant_role("none", "reader"));
        CHECK(no_user.code == server_errc::not_found);

        const strings_of_admin users = co_await first.list_users();
        CHECK(users == strings_of_admin{"app", "certified", "root"});
        const auto app = co_await first.get_user("app");
        REQUIRE(app);
        CHECK(app->roles == strings_of_admin{"reader"});
        const auto reader = co_await first.get_role("reader");
        REQUIRE(reader);
        REQUIRE(reader->permissions.size() == 3);
        CHECK((reader->permissions.at(0).type == permission_type::readwrite));
        CHECK(reader->permissions.at(0).keys.key == "app/");
        CHECK(reader->permissions.at(0).keys.range_end == "app0");
        CHECK((reader->permissions.at(1).type == permission_type::read));
        CHECK(reader->permissions.at(1).keys.range_end.empty());
        CHECK((reader->permissions.at(2).type == permission_type::write));
        CHECK(reader->permissions.at(2).keys.range_end == std::string(1, '\0'));
        const auto missing = co_await first.get_user("none");
        CHECK_FALSE(missing);

        co_await first.enable();
        const auto refused = co_await ending_of(nobody.put("app/x", "1"));
        CHECK(refused.code); // it has no user
        const client root = as_user(executor, etcd, "root", "canary-root");
        const coetcd::auth admin(root);
        if (old) {
            const auto status = co_await ending_of(admin.status());
            CHECK(status.code == server_errc::unimplemented);
            CHECK_THAT(status.text, contains("since etcd 3.5"));
        } else {
            const auto status = co_await admin.status();
            CHECK(status.enabled);
            CHECK(status.auth_revision > 5);
        }

        const client user = as_user(executor, etcd, "app", "canary-\"app\\\n\xc3\xbc");
        (void)co_await user.put("app/x", "1");
        const auto elsewhere = co_await ending_of(user.put("other", "1"));
        CHECK(elsewhere.code == server_errc::permission_denied);
        const auto not_root = co_await ending_of(coetcd::auth(user).add_role("mine"));
        CHECK(not_root.code == server_errc::permission_denied);
        const client certified = as_user(executor, etcd, "certified", "anything");
        const auto no_login = co_await ending_of(certified.with_timeout(300ms).get("app/x"));
        CHECK(no_login.code); // etcd has no code for it

        co_await admin.change_password("app", "canary-new");
        const client renewed = as_user(executor, etcd, "app", "canary-new");
        (void)co_await renewed.put("app/x", "2");
        const client outdated = as_user(executor, etcd, "app", "canary-\"app\\\n\xc3\xbc");
        const auto wrong = co_await ending_of(outdated.get("app/x"));
        CHECK(wrong.code == errc::login_failed);

        co_await admin.revoke_permission("reader", below_app);
        const auto denied = co_await ending_of(renewed.put("app/x", "3"));
        CHECK(denied.code == server_errc::permission_denied);
        const auto nothing = co_await ending_of(admin.revoke_permission("reader", below_app));
        CHECK(nothing.code == server_errc::not_found);
        co_await admin.revoke_role("app", "reader");
        const auto no_more = co_await ending_of(admin.revoke_role("app", "reader"));
        CHECK(no_more.code == server_errc::not_found);
        const bool deleted = co_await admin.delete_role("reader");
        CHECK(deleted);
        const bool deleted_again = co_await admin.delete_role("reader");
        CHECK_FALSE(deleted_again);
        const bool user_deleted = co_await admin.delete_user("app");
        CHECK(user_deleted);
        const bool user_again = co_await admin.delete_user("app");
        CHECK_FALSE(user_again);
        const auto root_deleted = co_await ending_of(admin.delete_user("root"));
        CHECK(root_deleted.code == server_errc::invalid_argument);

        co_await admin.disable();
        (void)co_await nobody.put("app/x", "4");
        (void)co_await root.put("app/x", "5"); // it needs no login any more
        const strings_of_admin roles = co_await coetcd::auth(nobody).list_roles();
        CHECK(std::find(roles.begin(), roles.end(), "reader") == roles.end());
    });
    CHECK(etcd.log().find("canary") == std::string::npos);
}

TEST_CASE("sec.auth.password_length: A password that etcd would cut off is not sent", "[auth]") {
    etcd_server etcd;
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, etcd.url());
        const coetcd::auth a(c);
        const std::string longest(72, 'x');
        co_await a.add_user("long", longest);
        CHECK_THROWS_AS(a.add_user("longer", longest + "y"), std::invalid_argument);
        const strings_of_admin users = co_await a.list_users();
        CHECK(users == strings_of_admin{"long"});
    });
}

TEST_CASE("A cluster of one lists, updates and refuses members", "[cluster]") {
    etcd_server etcd;
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, etcd.url());
        const coetcd::cluster all(c);
        const auto before = co_await all.members();
        REQUIRE(before.size() == 1);
        const coetcd::cluster_member me = before.at(0);
        CHECK(me.id != 0);
        CHECK(me.name == etcd.name());
        CHECK(me.is_started());
        CHECK_FALSE(me.is_learner);
        CHECK(me.client_urls == strings_of_admin{etcd.url()});
        REQUIRE(me.peer_urls.size() == 1);
        const auto status = co_await coetcd::maintenance(c).status(etcd.url());
        CHECK(status.header.member_id == me.id);
        CHECK(status.is_leader());

        const auto same = co_await all.update_member(me.id, me.peer_urls);
        CHECK(same.size() == 1);
        const auto taken = co_await ending_of(all.add_learner(me.peer_urls));
        CHECK(taken.code == server_errc::already_exists);
        const auto votes = co_await ending_of(all.promote_member(me.id));
        CHECK(votes.code == server_errc::failed_precondition);
        const auto unknown = co_await ending_of(all.remove_member(me.id ^ 1));
        CHECK(unknown.code == server_errc::not_found);

        // A learner that is never started does no harm.
        const strings_of_admin nowhere{"http://127.0.0.1:1"};
        const auto added = co_await all.add_learner(nowhere);
        CHECK(added.id != me.id);
        CHECK(added.is_learner);
        CHECK_FALSE(added.is_started());
        const auto behind = co_await ending_of(all.promote_member(added.id));
        CHECK(behind.code == server_errc::failed_precondition);
        CHECK_THAT(behind.text, contains("in sync with leader"));
        const auto last = co_await ending_of(all.remove_member(me.id));
        CHECK(last.code); // nobody would be left
        CHECK(last.code != coetcd::condition::outcome_unknown);
        const auto listed = co_await all.members();
        CHECK(listed.size() == 2);
        const auto left = co_await all.remove_member(added.id);
        CHECK(left.size() == 1);
    });
}

TEST_CASE("A member that is full is emptied, defragmented, and its alarm taken back",
          "[maintenance]") {
    etcd_server etcd({"--quota-backend-bytes=2000000"});
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = client(executor, etcd.url()).with_timeout(20s);
        const coetcd::maintenance m(c);
        const auto none = co_await m.alarms();
        CHECK(none.empty());
        const auto full = co_await ending_of(fill(c, 100));
        CHECK(full.code == server_errc::resource_exhausted);
        std::vector<coetcd::raised_alarm> raised;
        const auto is_raised = [&]() -> awaitable<bool> {
            raised = co_await m.alarms();
            co_return !raised.empty();
        };
        co_await eventually(is_raised, 5s, "the alarm is raised");
        REQUIRE(raised.size() == 1);
        const auto before = co_await m.status(etcd.url());
        CHECK(raised.at(0).member_id == before.header.member_id);
        CHECK((raised.at(0).type == coetcd::alarm_type::no_space));

        auto big = key_range::prefix("big");
        const auto erased = co_await c.erase(big);
        (void)co_await c.compact(erased.header.revision, true);
        co_await m.defragment(etcd.url());
        const auto after = co_await m.status(etcd.url());
        CHECK(after.db_size < before.db_size / 2);
        const auto still = co_await ending_of(c.put("k", "v"));
        CHECK(still.code == server_errc::resource_exhausted);
        const bool disarmed = co_await m.disarm(raised.at(0));
        CHECK(disarmed);
        const bool again = co_await m.disarm(raised.at(0));
        CHECK_FALSE(again);
        (void)co_await c.put("k", "v");
    });
}

TEST_CASE("Each version of etcd says what it can do", "[maintenance]") {
    etcd_server etcd;
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, etcd.url());
        const coetcd::maintenance m(c);
        const auto put = co_await c.put("k", "v");
        const auto status = co_await m.status(etcd.url());
        co_await m.move_leader(status.leader); // it leads already
        const auto no_member = co_await ending_of(m.move_leader(status.leader ^ 1));
        CHECK(no_member.code == server_errc::failed_precondition);
        const bool old = co_await is_version(c, etcd.url(), "3.4");
        if (old) {
            const auto began = clock::now();
            const auto hash = co_await ending_of(m.hash_kv(etcd.url()));
            CHECK(hash.code == server_errc::unimplemented);
            const auto valid = co_await ending_of(m.validate_downgrade("3.3"));
            CHECK(valid.code == server_errc::unimplemented);
            const auto enable = co_await ending_of(m.enable_downgrade("3.3"));
            CHECK(enable.code == server_errc::unimplemented);
            const auto cancel = co_await ending_of(m.cancel_downgrade());
            CHECK(cancel.code == server_errc::unimplemented);
            CHECK(clock::now() - began < 4s);
            co_return;
        }
        const auto newest = co_await m.hash_kv(etcd.url());
        CHECK(newest.member_id == status.header.member_id);
        CHECK(newest.revision == put.header.revision);
        CHECK(newest.compact_revision == -1);
        const auto same = co_await m.hash_kv(etcd.url(), put.header.revision);
        CHECK(same.hash == newest.hash);
        (void)co_await c.put("k", "w");
        const auto then = co_await m.hash_kv(etcd.url());
        CHECK(then.hash != newest.hash);
        const auto future = co_await ending_of(m.hash_kv(etcd.url(), 1000));
        CHECK(future.code == server_errc::out_of_range);

        const auto dot = status.version.find('.');
        const int minor = std::stoi(status.version.substr(dot + 1));
        const std::string before = "3." + std::to_string(minor - 1);
        const auto set_up = [&]() -> awaitable<bool> { // the version of the cluster is soon known
            const auto valid = co_await ending_of(m.validate_downgrade(before));
            co_return !valid.code;
        };
        co_await eventually(set_up, 10s, "a downgrade is possible");
        const std::string version = co_await m.validate_downgrade(before);
        CHECK(version.starts_with("3." + std::to_string(minor)));
        const auto far = co_await ending_of(m.validate_downgrade("2.0"));
        CHECK(far.code == server_errc::invalid_argument);
        if (minor >= 6) {
            const std::string enabled = co_await m.enable_downgrade(before);
            CHECK(enabled.starts_with("3."));
            const std::string cancelled = co_await m.cancel_downgrade();
            CHECK(cancelled.starts_with("3."));
        } else {
            const auto none = co_await ending_of(m.cancel_downgrade());
            CHECK(none.code == server_errc::failed_precondition);
        }
    });
}

TEST_CASE("sec.admin.other_cluster: Maintenance keeps off the members of another cluster",
          "[maintenance]") {
    etcd_server ours;
    etcd_server other;
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = client(executor, ours.url()).with_timeout(1s);
        (void)co_await c.put("k", "v");
        const coetcd::maintenance m(c);
        const auto defragmented = co_await ending_of(m.defragment(other.url()));
        CHECK(defragmented.code == errc::wrong_cluster);
        const temporary_file file("snapshot");
        const auto taken = co_await ending_of(m.snapshot(other.url(), file.path()));
        CHECK(taken.code == errc::wrong_cluster);
        CHECK(files_beside(file.path()) == 0);
    });
    CHECK(other.log().find("defragment") == std::string::npos);
}

TEST_CASE("A snapshot is what etcdctl takes for one", "[maintenance][snapshot]") {
    etcd_server etcd;
    const temporary_file file("snapshot");
    std::string hash;
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, etcd.url());
        co_await fill(c, 20);
        std::uint64_t last = 0;
        std::uint64_t total = 0;
        int steps = 0;
        auto told = [&](const coetcd::snapshot_progress& p) {
            CHECK(p.received > last);
            CHECK((total == 0 || total == p.total));
            last = p.received;
            total = p.total;
            ++steps;
        };
        const auto info = co_await coetcd::maintenance(c).snapshot(etcd.url(), file.path(), told);
        CHECK(last == total);
        CHECK(steps > 10);
        CHECK(info.size == total);
        CHECK(info.size % 512 == 32);
        CHECK(std::filesystem::file_size(file.path()) == info.size);
        CHECK(files_beside(file.path()) == 1);
    });
    const auto status = etcd.etcdctl({"snapshot", "status", file.path().string(), "-w", "json"});
    CHECK(status.exit_code == 0);
    CHECK_THAT(status.output, contains("\"totalKey\""));
}

TEST_CASE("A snapshot that is cut or changed on its way is not kept", "[maintenance][snapshot]") {
    etcd_server etcd;
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, etcd.url());
        co_await fill(c, 20);
        tcp_proxy proxy(executor, etcd.port());
        const coetcd::maintenance m(c);
        toxics cut;
        cut.limit_data = 500'000;
        toxics reset;
        reset.reset_after = 500'000;
        toxics change;
        change.corrupt_every = 400'000;
        for (const toxics& t : {cut, reset, change}) {
            const temporary_file file("snapshot");
            std::ofstream(file.path()) << "before";
            proxy.answers(t);
            const auto taken = co_await ending_of(m.snapshot(proxy.url(), file.path()));
            CHECK((taken.code == errc::unavailable || taken.code == errc::protocol_error));
            CHECK_THAT(taken.text, contains("snapshot: "));
            CHECK(bytes_of(file.path()) == "before");
            CHECK(files_beside(file.path()) == 1);
        }
    });
}
