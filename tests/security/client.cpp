// SPDX-License-Identifier: BSL-1.0
// A client with a password and a token, and servers that do to it what they can.
#include <coetcd/auth.hpp>
#include <coetcd/client.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/observer.hpp>
#include <coetcd/session.hpp>
#include <coetcd/watch.hpp>
#ifdef COETCD_SECURITY_TLS
#include <coetcd/tls.hpp>
#endif

#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstring> // memmem
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/certificates.hpp"
#include "support/memory_seen.hpp"
#include "support/run_test.hpp"

namespace {

constexpr char password[] = "canary-password-0123456789";

/// Memory that was given back with what is `sought` in it; counted while `looking`.
std::string_view sought(password, sizeof password - 1);
int left_behind = 0;
bool looking = false;

} // namespace

void support::memory_taken(void*, std::size_t) noexcept {}
void support::memory_given_back(void* at, std::size_t size) noexcept {
    if (looking && ::memmem(at, size, sought.data(), sought.size())) {
        ++left_behind;
    }
}

using namespace std::chrono_literals;
using namespace support;
using coetcd::client;
using coetcd::client_options;
using coetcd::credentials;
using coetcd::errc;
using coetcd::error_code;
using tcp = asio::ip::tcp;

namespace {

/// A request as it came. It is gone once it was answered, and leaves nothing in the heap.
struct request {
    std::string_view path;
    std::string_view head; ///< With its last empty line.
    std::string_view body;

    bool is(std::string_view what) const { return path == what; }
    bool has_token() const {
        return head.find("\r\nAuthorization: canary-token-0123456789.17\r\n") != head.npos;
    }
};

/// What becomes of it.
struct plan {
    std::string_view answer; ///< All of it; must stay alive.
    bool closes = false;     ///< After the answer.
    bool holds = false;      ///< There is no answer until `release`.
};

/// A server on a free port of this machine.
class server {
public:
    using handler = std::function<plan(const request&)>;

    server(const asio::any_io_executor& executor, handler serve)
        : state_(std::make_shared<state>(executor, std::move(serve))) {
        asio::co_spawn(executor, accept(state_), asio::detached);
    }
    server(const server&) = delete;
    server& operator=(const server&) = delete;
    ~server() {
        state_->acceptor.close();
        for (const auto& each : state_->sockets) {
            error_code ignored;
            each->close(ignored);
        }
    }

    std::string url(const char* scheme = "http") const {
        const auto port = state_->acceptor.local_endpoint().port();
        return std::string(scheme) + "://127.0.0.1:" + std::to_string(port);
    }
    int connections() const { return state_->connections; }
    std::size_t held() const { return state_->held.size(); }
    /// Answers what was held, all with the same.
    awaitable<void> release(std::string_view answer) {
        const auto held = std::exchange(state_->held, {});
        for (const auto& each : held) {
            error_code ignored; // the client may be gone
            co_await asio::async_write(
                *each, asio::buffer(answer), asio::redirect_error(asio::use_awaitable, ignored));
        }
    }

private:
    struct state {
        state(const asio::any_io_executor& executor, handler h)
            : serve(std::move(h))
            , acceptor(executor, tcp::endpoint(asio::ip::address_v4::loopback(), 0)) {}
        handler serve;
        tcp::acceptor acceptor;
        std::vector<std::shared_ptr<tcp::socket>> sockets;
        std::vector<std::shared_ptr<tcp::socket>> held;
        int connections = 0;
    };

    static awaitable<void> accept(std::shared_ptr<state> s) {
        for (;;) {
            error_code ec;
            tcp::socket guest =
                co_await s->acceptor.async_accept(asio::redirect_error(asio::use_awaitable, ec));
            if (ec) {
                co_return;
            }
            ++s->connections;
            s->sockets.push_back(std::make_shared<tcp::socket>(std::move(guest)));
            asio::co_spawn(
                s->acceptor.get_executor(), converse(s, s->sockets.back()), asio::detached);
        }
    }

    static awaitable<void> converse(std::shared_ptr<state> s, std::shared_ptr<tcp::socket> guest) {
        std::array<char, 16 * 1024> buffer; // in the coroutine, which the heap does not know
        std::size_t size = 0;
        for (;;) {
            error_code ec;
            size += co_await guest->async_read_some(
                asio::buffer(buffer.data() + size, buffer.size() - size),
                asio::redirect_error(asio::use_awaitable, ec));
            if (ec) {
                co_return;
            }
            const std::string_view seen(buffer.data(), size);
            const std::optional<request> whole = read(seen);
            if (!whole) {
                continue;
            }
            const plan next = s->serve(*whole);
            buffer.fill('\0'); // the next use of this memory shows what was left in it
            if (next.holds) {
                s->held.push_back(guest);
            } else {
                co_await asio::async_write(*guest,
                                           asio::buffer(next.answer),
                                           asio::redirect_error(asio::use_awaitable, ec));
            }
            if (ec || next.closes) {
                guest->close(ec);
                co_return;
            }
            size = 0;
        }
    }

    /// A whole request; of one that stays open, its head and what has come with it.
    static std::optional<request> read(std::string_view seen) {
        const auto end = seen.find("\r\n\r\n");
        if (end == seen.npos) {
            return std::nullopt;
        }
        request r;
        r.head = seen.substr(0, end + 4);
        r.body = seen.substr(end + 4);
        const auto space = seen.find(' ');
        r.path = seen.substr(space + 1, seen.find(' ', space + 1) - space - 1);
        constexpr std::string_view name = "Content-Length: ";
        std::size_t length = 0;
        if (const auto at = r.head.find(name); at != r.head.npos) {
            const char* const number = r.head.data() + at + name.size();
            (void)std::from_chars(number, r.head.data() + r.head.size(), length);
        }
        return r.body.size() < length ? std::nullopt : std::optional(r);
    }

    std::shared_ptr<state> state_;
};

std::string with_length(const std::string& status, const std::string& body) {
    return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) +
           "\r\n\r\n" + body;
}

/// As etcd answers any call that succeeds: each finds in it what it looks for.
const std::string good = with_length(
    "200 OK",
    R"({"header":{"cluster_id":"14841639068965178418","revision":"5"},"ID":"77","TTL":"1",)"
    R"("result":{"header":{"cluster_id":"14841639068965178418","revision":"5"},"ID":"77","TTL":"1","created":true}})");
/// A login that succeeds. Not of the heap.
constexpr char logged_in[] =
    "HTTP/1.1 200 OK\r\nContent-Length: 86\r\n\r\n"
    R"({"header":{"cluster_id":"14841639068965178418"},"token":"canary-token-0123456789.17" })";
const std::string no_token =
    with_length("401 Unauthorized", R"({"error":"etcdserver: invalid auth token","code":16})");

constexpr std::string_view login_path = "/v3/auth/authenticate";

/// Keeps all words that it is told.
class listener final : public coetcd::observer {
public:
    std::vector<std::string> words;

    void on_request(const coetcd::request_report& r) override {
        add(r.rpc);
        add(r.endpoint);
        add(r.outcome);
    }
    void on_connection(const coetcd::connection_report& r) override {
        add(r.endpoint);
        add(r.reason);
    }
    void on_renewal(const coetcd::renewal_report& r) override { add(r.outcome); }
    void on_lock_wait(const coetcd::lock_wait_report& r) override {
        add(r.name);
        add(r.failure);
    }
    void on_lock_hold(const coetcd::lock_hold_report& r) override { add(r.name); }
    void on_watch_stream(const coetcd::watch_stream_report& r) override { add(r.endpoint); }

private:
    void add(std::string_view text) { words.emplace_back(text); }
    void add(const error_code& ec) {
        add(ec.message());
        add(ec.category().name());
    }
};

awaitable<void> lock_and_unlock(client c) {
    coetcd::session s = co_await coetcd::session::open(c, 1s);
    coetcd::mutex m(s, "lock");
    const bool locked = co_await m.try_lock_for(200ms);
    if (locked) {
        co_await m.unlock();
    }
    co_await s.close();
}

/// Makes calls of all kinds at once.
/// @returns All that they had to say.
awaitable<std::vector<std::string>> call_everything(client c) {
    const auto executor = co_await asio::this_coro::executor;
    std::vector<task<void>> calls;
    coetcd::txn change = coetcd::txn().then(coetcd::op::put("k", "v"));
    calls.emplace_back(executor, discard(c.get("k")));
    calls.emplace_back(executor, discard(c.put("k", "v")));
    calls.emplace_back(executor, discard(c.txn(std::move(change))));
    calls.emplace_back(executor, discard(c.lease_grant(10s)));
    calls.emplace_back(executor, discard(c.lease_keep_alive_once(77)));
    calls.emplace_back(executor, discard(c.watch("k")));
    calls.emplace_back(executor, lock_and_unlock(c));
    std::vector<std::string> words;
    for (task<void>& each : calls) {
        const ending e = co_await each.how_it_ended();
        words.push_back(e.text);
        words.push_back(e.code.message());
    }
    co_return words;
}

/// Neither a secret, nor what a terminal would obey, nor more than fits into a log.
void check_words(const std::vector<std::string>& words) {
    for (const std::string& each : words) {
        INFO(each);
        CHECK(each.find("canary") == each.npos);
        CHECK(std::none_of(each.begin(), each.end(), [](char c) {
            return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
        }));
        CHECK(each.size() < 600);
    }
}

client_options with_password() {
    client_options o;
    o.credentials = credentials("user", std::string(password));
    o.request_timeout = 300ms;
    o.attempt_timeout = 150ms;
    o.connect_timeout = 100ms;
    return o;
}

/// `good` for each client that is logged in.
plan welcome(const request& r) {
    if (r.is(login_path)) {
        return {logged_in};
    }
    return {r.has_token() ? good : no_token};
}

} // namespace

TEST_CASE("sec.canary: no secret is in what the library says, whatever a server does",
          "[security]") {
    const std::string hostile = "\x1b[2J\r\nX: \x07" + std::string(3000, 'h');
    struct row {
        const char* what;
        std::string login; ///< Empty: it succeeds.
        std::string other; ///< Empty: as `welcome`.
        bool closes = false;
        bool holds = false;
    };
    const auto refusal = [](const char* status, int code, const std::string& text) {
        return with_length(status,
                           R"({"error":")" + text + R"(","code":)" + std::to_string(code) + "}");
    };
    const row rows[] = {
        {"success", "", ""},
        {"no token is good enough", "", no_token},
        {"forbidden", "", refusal("403 Forbidden", 7, R"(no\u001b[2J\r\n\u0007)" + hostile)},
        {"forbidden, in words", "", refusal("403 Forbidden", 7, R"(no\u001b[2J\r\n\u0007)")},
        {"a page", "", with_length("500 Internal Server Error", hostile)},
        {"a page that there is not", "", with_length("404 " + std::string(40, 'x'), hostile)},
        {"no JSON", "", with_length("200 OK", hostile)},
        {"no HTTP", "", hostile, true},
        {"nothing, and the end", "", " ", true},
        {"half an answer", "", good.substr(0, good.size() - 5), true},
        {"too much", "", "HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n"},
        {"too many fields", "", "HTTP/1.1 200 OK\r\nX: " + std::string(20'000, 'x'), true},
        {"silence", "", "", false, true},
        {"a wrong password",
         refusal("400 Bad Request", 3, "authentication failed, invalid user ID or password"),
         ""},
        {"a login that is forbidden", refusal("403 Forbidden", 7, hostile), ""},
        {"a login without JSON", with_length("200 OK", hostile), ""},
        {"a login without a token",
         with_length("200 OK", R"({"header":{"cluster_id":"14841639068965178418"}})"),
         ""},
        {"a token that is a header",
         with_length(
             "200 OK",
             R"({"header":{"cluster_id":"14841639068965178418"},"token":"canary\r\nX: 1"})"),
         ""},
        {"a login that is a page", with_length("502 Bad Gateway", hostile), ""},
    };
    for (const row& each : rows) {
        INFO(each.what);
        run_test([&]() -> awaitable<void> {
            const auto executor = co_await asio::this_coro::executor;
            const server s(executor, [&](const request& r) {
                const bool known =
                    r.is(login_path) || r.body.find("canary") == r.body.npos; // in no other body
                CHECK(known);
                plan p = welcome(r);
                if (r.is(login_path) && !each.login.empty()) {
                    p.answer = each.login;
                } else if (!r.is(login_path) && !each.other.empty()) {
                    p.answer = each.other;
                    p.closes = each.closes;
                } else if (!r.is(login_path)) {
                    p.holds = each.holds;
                }
                return p;
            });
            const auto heard = std::make_shared<listener>();
            client_options o = with_password();
            o.observer = heard;
            const client c(executor, s.url(), o);
            const auto words = co_await call_everything(c);
            check_words(words);
            check_words(heard->words);
            CHECK(heard->words.size() > 5);
        });
    }
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const auto heard = std::make_shared<listener>();
        client_options o = with_password();
        o.observer = heard;
        std::optional<server> gone(std::in_place, executor, welcome);
        const std::string url = gone->url();
        gone.reset();
        const auto refused = co_await call_everything(client(executor, url, o));
        check_words(refused);
#ifdef COETCD_SECURITY_TLS
        const server plain(executor, welcome);
        o.tls = coetcd::make_tls();
        const auto insecure = co_await call_everything(client(executor, plain.url("https"), o));
        check_words(insecure);
#endif
        check_words(heard->words);
    });
}

TEST_CASE("sec.wiped: a password stays in no memory that is given back", "[security]") {
    left_behind = 0;
    int logins = 0;
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        int calls = 0;
        const server s(executor, [&](const request& r) {
            plan p = welcome(r);
            if (r.is(login_path)) {
                p.closes = ++logins % 2 == 0;
            } else if (++calls % 4 == 0) {
                p.answer = no_token; // so that it logs in again
            }
            return p;
        });
        looking = true;
        for (const bool asked : {false, true}) {
            client_options o = with_password();
            if (asked) {
                o.credentials = credentials("user", [] { return std::string(password); });
            }
            const client c(executor, s.url(), o);
            for (int i = 0; i != 20; ++i) {
                (void)co_await ending_of(c.get("k"));
            }
            (void)co_await call_everything(c);
        }
    });
    looking = false;
    CHECK(logins > 5);
    CHECK(left_behind == 0);
}

TEST_CASE("sec.wiped: a password for another user stays in no memory that is given back",
          "[security]") {
    left_behind = 0;
    int asked = 0;
    const std::string exists = with_length(
        "400 Bad Request", R"({"code":9,"message":"etcdserver: user name already exists"})");
    std::vector<std::string> words;
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const server s(executor, [&](const request&) {
            plan p;
            ++asked;
            p.answer = asked % 4 == 0 ? std::string_view(exists) : std::string_view(good);
            p.closes = asked % 3 == 0;
            p.holds = asked % 5 == 0;
            return p;
        });
        const auto heard = std::make_shared<listener>();
        client_options o;
        o.observer = heard;
        const client c = client(executor, s.url(), o).with_timeout(100ms);
        looking = true;
        for (int i = 0; i != 15; ++i) {
            const ending added =
                co_await ending_of(coetcd::auth(c).add_user("user", std::string(password)));
            const ending changed =
                co_await ending_of(coetcd::auth(c).change_password("user", std::string(password)));
            words.push_back(added.text);
            words.push_back(changed.text);
        }
        (void)coetcd::auth(c).add_user("user", std::string(password)); // nobody awaits it
        CHECK_THROWS_AS(coetcd::auth(c).add_user("", std::string(password)), std::invalid_argument);
        looking = false;
        words.insert(words.end(), heard->words.begin(), heard->words.end());
    });
    CHECK(asked > 20);
    CHECK(left_behind == 0);
    check_words(words);
}

#ifdef COETCD_SECURITY_TLS
TEST_CASE("sec.wiped: the text of a key stays in no memory that is given back", "[security]") {
    certificate_maker maker;
    const certificate one = maker.self_signed({});
    const std::string key = text_of(one.key_file);
    const std::string both = maker.file("both", text_of(one.file) + key);
    const auto line = key.find('\n') + 1;
    sought = std::string_view(key).substr(line, key.find('\n', line) - line);
    REQUIRE(sought.size() > 40);
    left_behind = 0;
    for (const bool in_files : {false, true}) {
        coetcd::tls_options o;
        o.ca_file = both; // somebody's mistake
        o.certificate_file = both;
        if (in_files) {
            o.key_file = both;
        } else {
            o.key = key;
        }
        looking = true;
        CHECK(coetcd::make_tls(o));
        looking = false;
    }
    CHECK(left_behind == 0);
    sought = std::string_view(password, sizeof password - 1);
}
#endif

TEST_CASE("sec.token.redirect: a token goes to no other server than the one that was named",
          "[security]") {
    for (const char* const status : {"301 Moved Permanently",
                                     "302 Found",
                                     "303 See Other",
                                     "307 Temporary Redirect",
                                     "308 Permanent Redirect"}) {
        INFO(status);
        run_test([&]() -> awaitable<void> {
            const auto executor = co_await asio::this_coro::executor;
            const server other(executor, welcome);
            const std::string elsewhere = "HTTP/1.1 " + std::string(status) +
                                          "\r\nLocation: " + other.url() +
                                          "/v3/kv/range\r\nContent-Length: 0\r\n\r\n";
            int redirected = 0;
            const server named(executor, [&](const request& r) {
                plan p = welcome(r);
                if (!r.is(login_path)) {
                    ++redirected;
                    p.answer = elsewhere;
                }
                return p;
            });
            const client c(executor, named.url(), with_password());
            const auto words = co_await call_everything(c);
            CHECK(std::count(words.begin(), words.end(), std::string()) == 0); // none succeeded
            CHECK(redirected > 5);

            client_options no_user;
            no_user.request_timeout = 300ms;
            const client login(executor, named.url(), no_user);
            const auto e = co_await ending_of(login.get("k"));
            CHECK(e.code == errc::protocol_error); // it tries until the end
            CHECK(other.connections() == 0);
        });
    }
}

TEST_CASE("sec.header_injection: no byte of a name gets into a header", "[security]") {
    std::string name;
    for (int c = 1; c != 256; ++c) {
        name += c == '/' ? std::string("\r\nX-Injected: 1\r\n\r\n") : std::string(1, char(c));
    }
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        int requests = 0;
        const server s(executor, [&](const request& r) {
            ++requests;
            CHECK(r.head.find("Injected") == r.head.npos);
            CHECK(r.body.find("X-Injected: 1\r\n") == r.body.npos);
            CHECK(r.body.find('\n') == r.body.npos);
            return welcome(r);
        });
        client_options o = with_password();
        o.credentials = credentials("user\r\nX-Injected: 1", "p\r\nX-Injected: 1");
        const client c(executor, s.url(), o);
        (void)co_await c.put(name, name);
        (void)co_await c.get(name);
        coetcd::session session = co_await coetcd::session::open(c, 1s);
        coetcd::mutex m(session, name);
        (void)co_await ending_of(m.try_lock());
        CHECK(requests > 4);
    });
}

TEST_CASE("sec.smuggling: an answer that comes too late is given to no request", "[security]") {
    const auto kv = [](const char* value) {
        return with_length(
            "200 OK",
            R"({"header":{"cluster_id":"14841639068965178418","revision":"5"},"count":"1","kvs":[{"key":"aw==",)"
            R"("value":")" +
                std::string(value) + R"("}]})");
    };
    const std::string late = kv("bGF0ZQ=="); // late
    const std::string next = kv("bmV4dA=="); // next
    for (const bool cancelled : {false, true}) {
        INFO((cancelled ? "cancelled" : "timed out"));
        run_test([&]() -> awaitable<void> {
            const auto executor = co_await asio::this_coro::executor;
            server s(executor, [&](const request& r) {
                plan p{next};
                p.holds = r.body.find("Zmlyc3Q=") != r.body.npos; // first
                return p;
            });
            client_options o;
            o.connections = 1;
            o.request_timeout = cancelled ? 30s : 200ms;
            const client c(executor, s.url(), o);
            const client patient = c.with_timeout(30s);
            (void)co_await patient.get("k"); // on the connection that the next one uses
            task<void> first(executor, discard(c.get("first")));
            const auto is_held = [&]() -> awaitable<bool> { co_return s.held() == 1; };
            co_await eventually(is_held, 10s, "the server has the request");
            if (cancelled) {
                first.cancel();
            }
            const auto e = co_await first.how_it_ended();
            CHECK(e.code ==
                  (cancelled ? error_code(asio::error::operation_aborted) : errc::timed_out));
            task<std::optional<coetcd::key_value>> second(executor, patient.get("second"));
            co_await s.release(late);
            const auto found = co_await second.result();
            REQUIRE(found);
            CHECK(found->value == "next");
            CHECK(s.connections() == 2);
        });
    }
}

TEST_CASE("sec.limits: an answer may have max_answer bytes and no more", "[security]") {
    const std::string start =
        R"({"header":{"cluster_id":"14841639068965178418","revision":"5"},"padding":")";
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        std::string answer;
        const server s(executor, [&](const request&) { return plan{answer}; });
        client_options o;
        o.max_answer = 1000;
        const client c(executor, s.url(), o);
        for (const std::size_t size : {1000U, 1001U, 1000U}) {
            answer =
                with_length("200 OK", start + std::string(size - start.size() - 2, 'x') + "\"}");
            const auto e = co_await ending_of(c.get("k"));
            CHECK(e.code == (size == 1000 ? error_code() : error_code(errc::too_large)));
        }
        CHECK(s.connections() == 2); // not used again after the failure
    });
}
