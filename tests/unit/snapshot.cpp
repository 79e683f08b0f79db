// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/sha256.hpp>
#include <coetcd/detail/wire/base64.hpp>
#include <coetcd/maintenance.hpp>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <stdlib.h>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"
#include "unit/administration.hpp"

namespace administration {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using coetcd::client;
using coetcd::errc;
using coetcd::maintenance;
using coetcd::server_errc;
using coetcd::snapshot_info;
using coetcd::snapshot_progress;
using support::background;
using support::failure_of;
using support::scripted_env;
using support::world;

namespace {

std::string database() {
    std::string all;
    for (int i = 0; i != 40 * 1024; ++i) {
        all += static_cast<char>(i % 251);
    }
    return all;
}

std::string sum_of(const std::string& bytes) {
    coetcd::detail::logic::sha256 sum;
    sum.add(bytes);
    return sum.finish();
}

std::string message(const std::string& bytes, std::size_t remaining) {
    std::string out =
        R"({"result":{"remaining_bytes":")" + std::to_string(remaining) + R"(","blob":")";
    coetcd::detail::wire::append_base64(out, bytes);
    return out + R"(","version":"3.6.0"}})";
}

/// What etcd sends.
std::vector<std::string> messages() {
    const std::string all = database();
    const std::size_t first = 32 * 1024;
    return {message(all.substr(0, first), all.size() - first),
            message(all.substr(first), 0),
            message(sum_of(all), 0)};
}

/// A directory, an etcd that sends messages, and what is taken there.
struct taking {
    taking() {
        auto pattern = (fs::temp_directory_path() / "coetcd-snapshot-XXXXXX").string();
        directory = ::mkdtemp(pattern.data());
        file = directory / "db";
        w.env->on_open = [this](const call_request& q, auto stream) {
            asked.push_back(q.body + " on " + q.to.text());
            link = stream;
            for (const std::string& each : lines) {
                stream->push(each);
            }
            if (ends) {
                stream->drop();
            }
        };
    }
    taking(const taking&) = delete;
    taking& operator=(const taking&) = delete;
    ~taking() { fs::remove_all(directory); }

    background<snapshot_info> start(std::function<void(const snapshot_progress&)> progress = {}) {
        const client c = w.client();
        return w.start(maintenance(c).snapshot("http://etcd:2379", file, std::move(progress)));
    }
    std::size_t files() const {
        return static_cast<std::size_t>(
            std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
    }
    std::string contents() const {
        std::ifstream in(file, std::ios::binary);
        return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    }

    world w;
    fs::path directory;
    fs::path file;
    std::vector<std::string> lines = messages();
    bool ends = true;
    std::vector<std::string> asked;
    std::shared_ptr<scripted_env::server_stream> link;
};

} // namespace

TEST_CASE("a snapshot is written as etcd sends it, and appears when it is whole", "[snapshot]") {
    taking t;
    std::ofstream(t.file) << "before";
    std::vector<std::pair<std::uint64_t, std::uint64_t>> told;
    auto going = t.start([&](const snapshot_progress& p) {
        told.emplace_back(p.received, p.total);
        CHECK(t.contents() == "before");
    });
    t.w.env->pass(100ms);
    const snapshot_info info = going.get();
    CHECK(info.size == 40 * 1024 + 32);
    CHECK(info.version == "3.6.0");
    CHECK(info.sha256.size() == 64);
    CHECK(t.contents() == database() + sum_of(database()));
    CHECK(t.files() == 1);
    CHECK(t.asked == std::vector<std::string>{"{} on http://etcd:2379"});
    using steps = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
    CHECK(told == steps{{32768, 40992}, {40960, 40992}, {40992, 40992}});
    // One round trip for its status, to see whose it is.
    CHECK(count(t.w, rpc::status) == 1);
}

TEST_CASE("a snapshot that is not whole never has its name", "[snapshot]") {
    const std::string all = database();
    std::string changed = all;
    changed[1000] ^= 1;
    struct {
        const char* name;
        std::vector<std::string> lines;
        errc expected;
        const char* words;
    } const rows[] = {
        {"nothing comes", {}, errc::unavailable, "broke off"},
        {"the end is missing", {messages().at(0)}, errc::unavailable, "32768 of 40992"},
        {"the hash is missing",
         {messages().at(0), messages().at(1)},
         errc::unavailable,
         "40960 of 40992"},
        {"a piece is missing",
         {messages().at(0), message(sum_of(all), 0)},
         errc::unavailable,
         "broke off"},
        {"a byte is another one",
         {message(changed, 0), message(sum_of(all), 0)},
         errc::corrupt_snapshot,
         "SHA-256"},
        {"there is more",
         {messages().at(0), messages().at(1), messages().at(2), message("x", 0)},
         errc::corrupt_snapshot,
         "no database"},
        {"it is no message", {messages().at(0), "<html>"}, errc::protocol_error, "bad JSON"},
        {"it is no base64",
         {R"({"result":{"blob":"!"}})"},
         errc::protocol_error,
         "'blob' is not base64"},
    };
    for (const auto& row : rows) {
        INFO(row.name);
        taking t;
        std::ofstream(t.file) << "before";
        t.lines = row.lines;
        auto going = t.start();
        t.w.env->pass(100ms);
        REQUIRE(going.ended());
        const coetcd::error e = failure_of(going);
        CHECK(e.code() == row.expected);
        CHECK_THAT(e.what(), support::contains(row.words));
        CHECK_THAT(e.what(), support::contains("http://etcd:2379"));
        CHECK(t.contents() == "before");
        CHECK(t.files() == 1);
    }
}

TEST_CASE("etcd's refusal of a snapshot is told as it is", "[snapshot]") {
    struct {
        unsigned status;
        const char* body;
        coetcd::error_code expected;
    } const rows[] = {
        {200,
         R"({"error":{"grpc_code":7,"http_code":403,"message":"etcdserver: permission denied"}})",
         server_errc::permission_denied},
        {403,
         R"({"code":7,"message":"etcdserver: permission denied"})",
         server_errc::permission_denied},
        {404, "Not Found", errc::protocol_error},
        {502, "<html>bad gateway</html>", errc::protocol_error},
    };
    for (const auto& row : rows) {
        CAPTURE(row.body);
        taking t;
        t.w.env->on_open = [&](const call_request&, auto stream) {
            reply r;
            r.status = row.status;
            r.body = row.body;
            stream->push(std::move(r));
            stream->drop();
        };
        auto going = t.start();
        t.w.env->pass(100ms);
        CHECK(going.code() == row.expected);
        CHECK(t.files() == 0);
    }
}

TEST_CASE("a snapshot that stands still is given up", "[snapshot]") {
    for (const std::size_t sent_first : {0U, 1U, 3U}) {
        CAPTURE(sent_first);
        taking t;
        t.ends = false;
        t.lines.resize(sent_first);
        auto going = t.start();
        t.w.env->pass(4900ms);
        CHECK_FALSE(going.ended());
        t.w.env->pass(5200ms); // twice the time limit
        REQUIRE(going.ended());
        CHECK(going.code() == errc::timed_out);
        CHECK(t.files() == 0);
    }
}

TEST_CASE("a slow snapshot is not given up while something comes", "[snapshot]") {
    taking t;
    t.ends = false;
    t.lines.clear();
    auto going = t.start();
    for (const std::string& each : messages()) {
        t.w.env->pass(4900ms);
        REQUIRE_FALSE(going.ended());
        t.link->push(each);
    }
    t.link->drop();
    t.w.env->pass(10ms);
    CHECK(going.get().size == 40992);
}

TEST_CASE("a snapshot can be cancelled at any moment, and leaves no file", "[snapshot]") {
    for (auto when = 0ms; when < 10ms; ++when) {
        CAPTURE(when.count());
        taking t;
        t.ends = when % 2ms == 0ms;
        auto going = t.start();
        t.w.env->pass(when);
        const bool before = going.ended();
        going.cancel();
        t.w.env->pass(0ms);
        REQUIRE(going.ended());
        CHECK(t.files() == (before ? 1 : 0));
        CHECK((before || going.code() == asio::error::operation_aborted));
        CHECK(going.completions() == 1);
    }
}

TEST_CASE("a snapshot that is destroyed with its context leaves no file", "[snapshot]") {
    taking t;
    t.ends = false;
    auto going = t.start();
    t.w.env->pass(10ms);
    CHECK(t.files() == 1);
    t.link.reset();
    t.w.context.reset();
    CHECK(t.files() == 0);
}

TEST_CASE("what the progress of a snapshot throws ends it", "[snapshot]") {
    taking t;
    auto going = t.start([](const snapshot_progress&) { throw std::runtime_error("enough"); });
    t.w.env->pass(100ms);
    CHECK_THROWS_AS(going.get(), std::runtime_error);
    CHECK(t.files() == 0);
}

TEST_CASE("a file of a snapshot that cannot be made asks etcd for nothing", "[snapshot]") {
    taking t;
    t.file = t.directory / "none" / "db";
    auto going = t.start();
    t.w.env->pass(100ms);
    CHECK(going.code() == boost::system::errc::no_such_file_or_directory);
    CHECK(t.asked.empty());
}

TEST_CASE("a snapshot of another cluster is not taken", "[snapshot]") {
    taking t;
    const client c = t.w.client();
    (void)t.w.await(c.get("k"));
    t.w.env->on_call = [](const call_request&, reply& r) {
        r.status = 200;
        r.body = R"({"header":{"cluster_id":"3"},"version":"3.6.0"})";
    };
    auto going = t.w.start(maintenance(c.with_timeout(900ms)).snapshot("http://etcd:2379", t.file));
    t.w.env->pass(1s);
    CHECK(going.code() == errc::wrong_cluster);
    CHECK(t.asked.empty());
    CHECK(t.files() == 0);
}

TEST_CASE("a snapshot whose token is refused is asked for with another one, once", "[snapshot]") {
    for (const bool mends : {true, false}) {
        CAPTURE(mends);
        taking t;
        int logins = 0;
        t.w.env->on_call = [&, serve = t.w.env->on_call](const call_request& q, reply& r) {
            if (q.what == rpc::authenticate) {
                r.status = 200;
                r.body = with(R"("token":"t.)" + std::to_string(++logins) + R"(")");
            } else {
                serve(q, r);
            }
        };
        std::vector<std::string> tokens;
        t.w.env->on_open = [&, serve = t.w.env->on_open](const call_request& q, auto stream) {
            tokens.push_back(q.token);
            if (tokens.size() == 1 || !mends) {
                stream->push(
                    R"({"error":{"grpc_code":16,"message":"etcdserver: invalid auth token"}})");
                stream->drop();
            } else {
                serve(q, stream);
            }
        };
        coetcd::client_options o;
        o.credentials = coetcd::credentials("root", "canary");
        o.insecure_plain_text_credentials = true;
        const client c = t.w.client(o);
        auto going = t.w.start(maintenance(c).snapshot("http://etcd:2379", t.file));
        t.w.env->pass(1s);
        REQUIRE(going.ended());
        CHECK(tokens.size() == 2);
        CHECK(going.code() ==
              (mends ? coetcd::error_code() : make_error_code(server_errc::unauthenticated)));
        CHECK(t.files() == (mends ? 1 : 0));
    }
}

TEST_CASE("an endpoint that refuses a snapshot's connection is said to", "[snapshot]") {
    taking t;
    t.w.env->decide = [](const call_request& q) {
        scripted_env::fate f;
        f.refused = q.what == rpc::snapshot;
        return f;
    };
    auto going = t.start();
    t.w.env->pass(100ms);
    CHECK(failure_of(going).code() == errc::unavailable);
    CHECK(t.files() == 0);
}

} // namespace administration
