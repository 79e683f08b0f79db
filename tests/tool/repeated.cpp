// SPDX-License-Identifier: BSL-1.0
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include <string>
#include <utility>

#include "support/catch.hpp"
#include "support/etcd_server.hpp"
#include "support/process.hpp"
#include "tool/common.hpp"
#include "tool/in_between.hpp"

// What is between us and etcd makes requests twice, as some balancers do where the first answer is
// late.

namespace tool_tests {

namespace {

namespace http = boost::beast::http;
using support::unique_name;

/// Has etcd do twice what deletes something, and passes on the second answer.
class asks_twice final : public in_between {
public:
    asks_twice() { start(); }
    ~asks_twice() override { stop(); }

private:
    using request = http::request<http::string_body>;
    using response = http::response<http::string_body>;

    asio::awaitable<void> serve(socket client, std::string begins) override {
        if (begins.starts_with("POST /v3/watch ")) {
            auto passing = pass_all(client, std::move(begins));
            co_await std::move(passing);
            co_return;
        }
        boost::beast::flat_buffer read, answers;
        read.commit(asio::buffer_copy(read.prepare(begins.size()), asio::buffer(begins)));
        const socket server = co_await connect();
        for (;;) {
            request asked;
            co_await http::async_read(*client, read, asked, asio::use_awaitable);
            const bool deletes = asked.body().find("request_delete_range") != std::string::npos;
            response last;
            for (int times = deletes ? 2 : 1; times != 0; --times) {
                co_await http::async_write(*server, asked, asio::use_awaitable);
                last = {};
                co_await http::async_read(*server, answers, last, asio::use_awaitable);
            }
            co_await http::async_write(*client, last, asio::use_awaitable);
        }
    }
};

} // namespace

TEST_CASE("A lock that is given back twice was not lost", "[tool][repeated]") {
    const asks_twice proxy;
    const std::string name = unique_name("twice");
    const words connected{"--endpoints", proxy.url(), "--", "sh", "-c", "exit 7"};
    for (const words& subcommand : {words{"lock", name},
                                    words{"lock", name, "--shared"},
                                    words{"elect", name, "us"},
                                    words{"sem", name + "/sem"},
                                    words{"sem", name + "/five", "--limit=8", "--permits=5"}}) {
        INFO(subcommand.front() << ' ' << subcommand.back());
        words line = subcommand;
        line.insert(line.end(), connected.begin(), connected.end());
        CHECK(run(line).exit_code == 7);
        CHECK(who(name)["holders"].empty());
    }
}

TEST_CASE("An ownership that is ended twice was ended", "[tool][repeated]") {
    const asks_twice proxy;
    const std::string name = unique_name("twice");
    auto holder = start({"lock", name});
    (void)next_line(holder);
    const std::string token = std::to_string(who(name)["holders"][0]["token"].get<long>());
    const words ends{"unlock", name, "--token", token, "--endpoints", proxy.url()};
    CHECK(run(ends).exit_code == 0);
    CHECK(holder.wait() == 75);
    CHECK(run(ends).exit_code == 1);
}

} // namespace tool_tests
