// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/net/name_servers.hpp>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd::detail::net;

namespace {

using texts = std::vector<std::string>;

texts servers_in(const std::string& resolv_conf) {
    texts out;
    for (const name_server& s : name_servers_in(resolv_conf)) {
        out.push_back(s.text());
    }
    return out;
}

} // namespace

TEST_CASE("a name server is an address, perhaps with a port", "[net][dns]") {
    struct row {
        const char* given;
        const char* meant;
    };
    const std::vector<row> rows{
        {"10.0.0.2", "10.0.0.2:53"},
        {"10.0.0.2:5353", "10.0.0.2:5353"},
        {"::1", "[::1]:53"},
        {"[::1]", "[::1]:53"},
        {"[fd00::2]:65535", "[fd00::2]:65535"},
        {"fd00::2:53", "[fd00::2:53]:53"},
    };
    for (const row& r : rows) {
        CAPTURE(r.given);
        const auto server = read_name_server(r.given);
        REQUIRE(server);
        CHECK(server->text() == r.meant);
    }
    for (const char* bad : {"",
                            ":",
                            "a",
                            "ns.example.com",
                            "10.0.0.2:",
                            "10.0.0.2:0",
                            "10.0.0.2:65536",
                            "10.0.0.2:53x",
                            "10.0.0.2:-1",
                            "10.0.0.2:+1",
                            "10.0.0.256",
                            "[::1",
                            "[::1]53",
                            "[::1]:",
                            "[]:53",
                            " 10.0.0.2",
                            "10.0.0.2 "}) {
        CAPTURE(bad);
        CHECK_FALSE(read_name_server(bad));
    }
    CHECK(read_name_servers({"10.0.0.2", "::1"}).size() == 2);
    CHECK_THROWS_AS(read_name_servers({"10.0.0.2", "x"}), std::invalid_argument);
    CHECK_THROWS_WITH(read_name_servers({"10.0.0.2", "x\n"}),
                      "name_servers: \"x \" is no address; expected one such as 10.0.0.2, "
                      "10.0.0.2:53 or [fd00::2]:53");
}

TEST_CASE("a resolv.conf names the name servers", "[net][dns]") {
    const texts this_machine{"127.0.0.1:53"};
    struct row {
        const char* text;
        texts servers;
    };
    const std::vector<row> rows{
        {"", this_machine},
        {"search example.com\noptions ndots:5\n", this_machine},
        {"nameserver 10.0.0.2\n", {"10.0.0.2:53"}},
        {"nameserver\t10.0.0.2 # ours\r\nnameserver ::1", {"10.0.0.2:53", "[::1]:53"}},
        {"#nameserver 10.0.0.2\n;nameserver 10.0.0.2\n nameserver 10.0.0.2\n", this_machine},
        {"nameserver\nnameserver \nnameserver10.0.0.2\nnameservers 10.0.0.2\n", this_machine},
        {"nameserver 10.0.0.256\nnameserver x\nnameserver 10.0.0.3\n", {"10.0.0.3:53"}},
        {"nameserver 10.0.0.2\nnameserver 10.0.0.3\nnameserver 10.0.0.4\nnameserver 10.0.0.5\n",
         {"10.0.0.2:53", "10.0.0.3:53", "10.0.0.4:53"}},
        {"\n\n\nnameserver 10.0.0.2", {"10.0.0.2:53"}},
    };
    for (const row& r : rows) {
        CAPTURE(r.text);
        CHECK(servers_in(r.text) == r.servers);
    }
}

TEST_CASE("without a resolv.conf this machine is asked", "[net][dns]") {
    const auto servers = system_name_servers("/nowhere/resolv.conf");
    REQUIRE(servers.size() == 1);
    CHECK(servers[0].text() == "127.0.0.1:53");
    CHECK_FALSE(system_name_servers().empty());
}
