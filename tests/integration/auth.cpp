// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/detail/access.hpp>
#include <coetcd/detail/secret.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/detail/wire/auth.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>

#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/etcd_server.hpp"
#include "support/etcd_tools.hpp"
#include "support/process.hpp"
#include "support/run_test.hpp"

using namespace std::chrono_literals;
using namespace support;
namespace asio = boost::asio;
using coetcd::client;
using coetcd::client_options;
using coetcd::credentials;
using coetcd::errc;
using coetcd::key_range;
using coetcd::server_errc;
using coetcd::session;

namespace {

const std::string root_password = "canary-root";
const std::string app_password = "canary-app";

/// An etcd with authentication: `root` may all, `app` may read and write below `app/`.
class auth_server {
public:
    explicit auth_server(std::vector<std::string> extra = {}, bool enabled = true)
        : etcd(std::move(extra)) {
        must({"user", "add", "root:" + root_password});
        must({"user", "grant-role", "root", "root"}); // the role root is there already
        must({"user", "add", "app:" + app_password});
        must({"role", "add", "app"});
        must({"role", "grant-permission", "app", "--prefix=true", "readwrite", "app/"});
        must({"user", "grant-role", "app", "app"});
        if (enabled) {
            enable();
        }
    }
    void enable() {
        must({"auth", "enable"});
        as_root_ = {"--user", "root:" + root_password};
    }
    /// etcdctl, as root.
    void must(std::vector<std::string> arguments) {
        arguments.insert(arguments.end(), as_root_.begin(), as_root_.end());
        const auto r = etcd.etcdctl(arguments);
        if (r.exit_code != 0) {
            throw std::runtime_error("etcdctl " + arguments.at(0) + ' ' + arguments.at(1) +
                                     " failed");
        }
    }
    /// Changes the password, by which all tokens of the user end.
    void change_password(const std::string& user, const std::string& to) {
        const std::string command = "printf '%s\\n' '" + to + "' | ETCDCTL_API=3 " +
                                    etcdctl_program() + " --endpoints " + etcd.url() +
                                    " --user root:" + root_password +
                                    " user passwd --interactive=false " + user + " >/dev/null";
        const auto r = run_process({"sh", "-c", command});
        if (r.exit_code != 0) {
            throw std::runtime_error("the password was not changed");
        }
    }

    etcd_server etcd;

private:
    std::vector<std::string> as_root_;
};

client_options as(std::string user, std::string password) {
    client_options o;
    o.credentials = credentials(std::move(user), std::move(password));
    return o;
}

/// A pair of keys for tokens that end with any change of users or roles.
class jwt_keys {
public:
    jwt_keys() {
        auto pattern = (std::filesystem::temp_directory_path() / "coetcd-jwt-XXXXXX").string();
        directory_ = ::mkdtemp(pattern.data());
        const auto made = run_process({"openssl", "genrsa", "-out", path("key"), "2048"}, quiet());
        const auto read = run_process(
            {"openssl", "rsa", "-in", path("key"), "-pubout", "-out", path("pub")}, quiet());
        if (made.exit_code != 0 || read.exit_code != 0) {
            throw std::runtime_error("openssl failed");
        }
    }
    jwt_keys(const jwt_keys&) = delete;
    jwt_keys& operator=(const jwt_keys&) = delete;
    ~jwt_keys() { std::filesystem::remove_all(directory_); }

    std::string flag() const {
        return "--auth-token=jwt,pub-key=" + path("pub") + ",priv-key=" + path("key") +
               ",sign-method=RS256,ttl=10m";
    }

private:
    std::string path(const char* name) const { return (directory_ / name).string(); }
    process_options quiet() const {
        process_options o;
        o.output_file = path("log");
        return o;
    }
    std::filesystem::path directory_;
};

} // namespace

TEST_CASE("A user may do what the role permits, and nothing else", "[auth]") {
    auth_server server;
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client app(executor, server.etcd.url(), as("app", app_password));
        (void)co_await app.put("app/a", "1");
        const auto read = co_await app.get("app/a");
        REQUIRE(read);
        CHECK(read->value == "1");

        const auto outside = co_await ending_of(app.put("b", "1"));
        CHECK(outside.code == server_errc::permission_denied);
        CHECK_THAT(outside.text, contains(server.etcd.url()));
        const auto lock_outside = co_await session::open(app);
        coetcd::mutex forbidden(lock_outside, "b");
        const auto locked = co_await ending_of(forbidden.lock());
        CHECK(locked.code == server_errc::permission_denied);
        const auto watched = co_await ending_of(app.watch("b"));
        CHECK(watched.code == server_errc::permission_denied);

        const client root(executor, server.etcd.url(), as("root", root_password));
        (void)co_await root.put("b", "1");
    });
}

TEST_CASE("sec.canary.login: A wrong password, or none, is told as such", "[auth]") {
    auth_server server;
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client wrong(executor, server.etcd.url(), as("app", "canary-wrong"));
        const auto begin = clock::now();
        const auto e = co_await ending_of(wrong.put("app/a", "1"));
        CHECK(e.code == errc::login_failed);
        CHECK(ms_between(begin, e.when) < 2000);
        CHECK_THAT(e.text, !contains("canary"));
        CHECK_THAT(e.text, contains(server.etcd.url()));
        const auto opened = co_await ending_of(session::open(wrong));
        CHECK(opened.code == errc::login_failed);

        const client unknown(executor, server.etcd.url(), as("nobody", "canary-wrong"));
        const auto f = co_await ending_of(unknown.get("app/a"));
        CHECK(f.code == errc::login_failed);

        const client none(executor, server.etcd.url());
        const auto g = co_await ending_of(none.get("app/a"));
        CHECK(g.code == server_errc::invalid_argument);
        CHECK_THAT(g.text, contains("client_options::credentials"));
        const auto h = co_await ending_of(none.watch("app/a"));
        CHECK(h.code == server_errc::invalid_argument);
    });
}

TEST_CASE("A user is no trouble where authentication is off, and needed once it is on", "[auth]") {
    auth_server server({}, false);
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client app(executor, server.etcd.url(), as("app", app_password));
        (void)co_await app.put("app/a", "1");
        const session s = co_await session::open(app);
        coetcd::watcher w = co_await app.watch(key_range::prefix("app/"));
        server.enable();
        (void)co_await app.put("app/a", "2");
        (void)co_await w.next();
        coetcd::mutex m(s, "app/lock");
        co_await m.lock();
        co_await m.unlock();
    });
}

TEST_CASE("Tokens end, and nobody notices", "[auth]") {
    auth_server server;
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        auto password = std::make_shared<std::string>(app_password);
        client_options o;
        o.credentials = credentials("app", [password] { return *password; });
        const client app(executor, server.etcd.url(), o);
        const session s = co_await open_session(app, 3s);
        coetcd::mutex held(s, "app/held");
        co_await held.lock();
        coetcd::watcher before = co_await app.watch(key_range::prefix("app/w"));

        for (int i = 0; i < 5; ++i) {
            *password = app_password + std::to_string(i);
            server.change_password("app", *password);
            const std::string key = "app/w" + std::to_string(i);
            // A write, a watch that was there, a new watch on its stream, a waiter.
            coetcd::watcher after = co_await app.watch(key);
            (void)co_await app.put(key, "x");
            const auto old = co_await before.next();
            CHECK(old.events.at(0).kv.key == key);
            (void)co_await after.next();

            const session other = co_await open_session(app, 3s);
            coetcd::mutex waiting(other, "app/handed");
            coetcd::mutex first(s, "app/handed");
            co_await first.lock();
            task<void> waiter(executor, waiting.lock());
            auto queued = [app]() -> awaitable<bool> {
                const auto n = co_await count(app, "app/handed/");
                co_return n == 2;
            };
            co_await eventually(queued, 5s, "the waiter is in the queue");
            co_await first.unlock();
            co_await waiter.result();
        }
        CHECK(s.state() == coetcd::session_state::active);
        CHECK(held.owns_lock());
        co_await held.unlock();
    });
}

TEST_CASE("A token that ends with each change of a user is replaced each time", "[auth]") {
    const jwt_keys keys;
    auth_server server({keys.flag()});
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client app(executor, server.etcd.url(), as("app", app_password));
        const session s = co_await open_session(app, 3s);
        coetcd::watcher before = co_await app.watch(key_range::prefix("app/w"));
        for (int i = 0; i < 5; ++i) {
            server.must({"user", "add", "extra" + std::to_string(i) + ":x"});
            const std::string key = "app/w" + std::to_string(i);
            (void)co_await app.put(key, "x");
            coetcd::watcher after = co_await app.watch(key);
            (void)co_await app.put(key, "y");
            (void)co_await after.next();
            std::size_t seen = 0;
            while (seen < 2) {
                const auto some = co_await before.next();
                seen += some.events.size();
            }
            CHECK(seen == 2);
        }
        CHECK(s.state() == coetcd::session_state::active);
    });
}

TEST_CASE("A server that comes back without its tokens gets new ones", "[auth]") {
    auth_server server;
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client app(executor, server.etcd.url(), as("app", app_password));
        const session s = co_await open_session(app, 30s);
        coetcd::mutex m(s, "app/lock");
        co_await m.lock();
        coetcd::watcher w = co_await app.watch("app/w");
        co_await in_thread([&] { server.etcd.restart(); });
        (void)co_await app.put("app/w", "x");
        (void)co_await w.next();
        CHECK(m.owns_lock());
        co_await m.unlock();
    });
}

TEST_CASE("A token that comes from elsewhere serves as a login does, and is asked for again",
          "[auth]") {
    auth_server server;
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client nobody(executor, server.etcd.url());
        const auto by = coetcd::detail::access::impl(nobody);
        std::string token;
        const auto log_in = [&]() -> awaitable<void> {
            const coetcd::detail::wire::authenticate_request request(
                "app", coetcd::detail::secret(std::string(app_password)));
            auto asking = coetcd::detail::ask(by, request, by->within(10s));
            const auto said = co_await std::move(asking);
            token = said.token;
        };
        co_await log_in();
        int asked = 0;
        client_options options;
        options.token = [&] {
            ++asked;
            return token;
        };
        const client app(executor, server.etcd.url(), options);
        const session s = co_await open_session(app, 30s);
        coetcd::mutex m(s, "app/lock");
        co_await m.lock();
        coetcd::watcher w = co_await app.watch("app/w");
        const auto refused = co_await ending_of(app.put("other", "x"));
        CHECK(refused.code == server_errc::permission_denied);
        CHECK(asked == 1);

        co_await in_thread([&] { server.etcd.restart(); }); // which forgets its tokens
        co_await log_in();
        (void)co_await app.put("app/w", "x");
        (void)co_await w.next();
        CHECK(asked > 1);
        CHECK(m.owns_lock());
        co_await m.unlock();
    });
}

namespace {

/// Whether an etcd of this version asks for a user in what concerns leases.
bool guards_leases(const std::string& version) {
    int major = 0;
    int minor = 0;
    int patch = 0;
    if (std::sscanf(version.c_str(), "%d.%d.%d", &major, &minor, &patch) != 3) {
        throw std::runtime_error("no version: " + version);
    }
    const int since = minor == 4 ? 42 : minor == 5 ? 28 : minor == 6 ? 9 : 0;
    return major > 3 || minor > 6 || patch >= since;
}

} // namespace

TEST_CASE("sec.old_servers: before 3.4.42, 3.5.28 and 3.6.9 leases need no user", "[auth]") {
    auth_server server;
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const std::string about = co_await http_get(server.etcd.port(), "/version");
        const auto version = nlohmann::json::parse(about).at("etcdserver").get<std::string>();
        INFO(version);
        const bool guarded = guards_leases(version);
        const client app(executor, server.etcd.url(), as("app", app_password));
        const auto lease = co_await app.lease_grant(30s);

        const client nobody(executor, server.etcd.url());
        const auto granted = co_await ending_of(nobody.lease_grant(30s));
        const auto renewed = co_await ending_of(nobody.lease_keep_alive_once(lease.id));
        const auto asked = co_await ending_of(nobody.lease_time_to_live(lease.id));
        const auto revoked = co_await ending_of(nobody.lease_revoke(lease.id));
        const auto gone = co_await app.lease_revoke(lease.id);
        const coetcd::error_code fine;
        const coetcd::error_code refused = server_errc::invalid_argument; // user name is empty
        for (const ending& each : {granted, renewed, asked, revoked}) {
            CHECK(each.code == (guarded ? refused : fine));
        }
        CHECK(gone.has_value() == guarded);
    });
}
