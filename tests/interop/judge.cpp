// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/etcd_server.hpp"
#include "support/etcd_tools.hpp"
#include "support/history.hpp"
#include "support/run_test.hpp"
#include "support/temporary_file.hpp"

using namespace std::chrono_literals;
using namespace support;
namespace asio = boost::asio;
using coetcd::client;
using coetcd::session;
using nlohmann::json;

// What a recorder writes is what the judge reads, and it says no where it must. The models have
// tests of their own: tests/judge/planted.go.

namespace {

using lines = std::vector<json>;

lines read_lines(const std::filesystem::path& file) {
    lines all;
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) {
        all.push_back(json::parse(line));
    }
    return all;
}

void write_lines(const std::filesystem::path& file, const lines& all) {
    std::ofstream out(file);
    for (const json& line : all) {
        out << line.dump() << '\n';
    }
}

/// The end of the n-th call like this that went well.
json& find(lines& all, const std::string& op, int n) {
    for (json& line : all) {
        if (line["op"] == op && line.value("result", "") == "yes" && n-- == 0) {
            return line;
        }
    }
    throw std::runtime_error("no such call: " + op);
}

/// One that begins after all others, and ends well.
void add_call(lines& all, json end) {
    std::int64_t last = 0;
    for (const json& line : all) {
        last = std::max(last, line.value("return", std::int64_t(0)));
    }
    end["id"] = "planted";
    end["call"] = last + 1;
    json begin = end;
    begin.erase("return");
    begin.erase("result");
    end["return"] = last + 2;
    all.push_back(begin);
    all.push_back(end);
}

} // namespace

TEST_CASE("The judge accepts what mutexes do, and refuses the same with an error planted",
          "[interop][judge]") {
    const temporary_file file("coetcd-history");
    const std::string name = unique_name("judged");
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, shared_etcd().url());
        const auto one = [&](int process) -> awaitable<void> {
            recorder told(file.path(), std::to_string(process));
            session s = co_await open_session(c, 30s);
            coetcd::mutex m(s, name);
            for (int i = 0; i < 10; ++i) {
                auto taking = told.begin("mutex", name, i % 3 == 0 ? "try_lock" : "lock");
                bool taken = true;
                if (i % 3 == 0) {
                    taken = co_await m.try_lock();
                } else {
                    co_await m.lock();
                }
                if (!taken) {
                    taking.end("no");
                    continue;
                }
                taking.with("token", m.fencing_token()).end("yes");
                grant held;
                held.object = "mutex";
                held.name = name;
                held.token = m.fencing_token();
                held.guard = m.is_owner();
                held.is_held = [&m] { return m.owns_lock(); };
                held.leave = [&m] { return m.unlock(); };
                const bool well = co_await use(told, c, name + "-data", std::move(held));
                CHECK(well);
            }
            co_await s.close();
        };
        std::vector<awaitable<void>> all;
        for (int i = 0; i < 4; ++i) {
            all.push_back(one(i));
        }
        co_await run_all(std::move(all));
        co_await erase_all(c, name);
    });

    const auto accepted = judge(file.path());
    REQUIRE(accepted);
    INFO(accepted->output);
    CHECK(accepted->exit_code == 0);
    CHECK_THAT(accepted->output, contains("this can have happened"));

    const lines sound = read_lines(file.path());
    struct planted {
        std::string what;
        std::function<void(lines&)> plant;
        int code = 1; ///< 2: it is no history.
    };
    const std::vector<planted> errors{
        {"a former owner writes", [](lines& all) { add_call(all, find(all, "write", 0)); }},
        {"a former owner owns", [](lines& all) { add_call(all, find(all, "owns", 2)); }},
        {"it is given back twice", [](lines& all) { add_call(all, find(all, "unlock", 0)); }},
        {"a token is given twice", [](lines& all) { add_call(all, find(all, "lock", 3)); }},
        {"a token is smaller than those before",
         [](lines& all) {
             json late = find(all, "lock", 0);
             late["token"] = 1;
             add_call(all, late);
         }},
        {"its own write is refused", [](lines& all) { find(all, "write", 4)["result"] = "no"; }},
        {"another one has it already",
         [](lines& all) { find(all, "lock", 5)["token"] = find(all, "lock", 4)["token"]; }},
        {"a call ends that never began", [](lines& all) { find(all, "lock", 0)["id"] = "9.9"; }, 2},
        {"a call ends before it begins", [](lines& all) { find(all, "lock", 0)["return"] = 1; }, 2},
        {"there is nothing", [](lines& all) { all.clear(); }, 2},
    };
    for (const planted& error : errors) {
        lines all = sound;
        error.plant(all);
        write_lines(file.path(), all);
        const auto refused = judge(file.path());
        INFO(error.what << ": " << refused->output);
        CHECK(refused->exit_code == error.code);
    }
}

TEST_CASE("The judge refuses owners that have not locked anything, as a control",
          "[interop][judge]") {
    const temporary_file file("coetcd-history");
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, shared_etcd().url());
        const std::string name = unique_name("unlocked");
        std::int64_t tokens = 0;
        const auto one = [&](int process) -> awaitable<void> {
            recorder told(file.path(), std::to_string(process));
            for (int i = 0; i < 5; ++i) {
                auto taking = told.begin("mutex", name, "lock");
                grant held;
                held.object = "mutex";
                held.name = name;
                held.token = ++tokens;
                held.guard = coetcd::compare::version(name) == 0;
                held.is_held = [] { return true; };
                held.leave = []() -> awaitable<bool> { co_return true; };
                taking.with("token", held.token).end("yes");
                (void)co_await use(told, c, name + "-data", std::move(held));
            }
        };
        std::vector<awaitable<void>> all;
        for (int i = 0; i < 3; ++i) {
            all.push_back(one(i));
        }
        co_await run_all(std::move(all));
        co_await erase_all(c, name);
    });
    const auto refused = judge(file.path());
    REQUIRE(refused);
    INFO(refused->output);
    CHECK(refused->exit_code == 1);
    CHECK_THAT(refused->output, contains("and next none of"));
}
