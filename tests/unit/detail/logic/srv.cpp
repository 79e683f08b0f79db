// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/srv.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd::detail;
using namespace coetcd::detail::logic;

namespace {

wire::srv_record to(std::string target, unsigned port, unsigned priority = 0, unsigned weight = 0) {
    wire::srv_record r;
    r.priority = static_cast<std::uint16_t>(priority);
    r.weight = static_cast<std::uint16_t>(weight);
    r.port = static_cast<std::uint16_t>(port);
    r.target = std::move(target);
    return r;
}

std::vector<std::string> texts(std::vector<wire::srv_record> records, bool tls = false) {
    std::vector<std::string> out;
    for (const endpoint& e : srv_endpoints(std::move(records), tls)) {
        out.push_back(e.text());
    }
    return out;
}

using strings = std::vector<std::string>;

} // namespace

TEST_CASE("the records of a cluster are named as etcdctl names them", "[logic][dns]") {
    const srv_names plain = srv_names_of("Example.com.", "");
    CHECK(plain.https == "_etcd-client-ssl._tcp.example.com");
    CHECK(plain.http == "_etcd-client._tcp.example.com");
    const srv_names named = srv_names_of("a.example.com", "Orders");
    CHECK(named.of(true) == "_etcd-client-ssl-orders._tcp.a.example.com");
    CHECK(named.of(false) == "_etcd-client-orders._tcp.a.example.com");
}

TEST_CASE("a domain and the name of a service fit into a name of DNS", "[logic][dns]") {
    const std::string label(63, 'a');
    const std::string long_domain = label + '.' + label + '.' + label; // 191
    CHECK_NOTHROW(srv_names_of(long_domain + '.' + std::string(39, 'a'), ""));
    CHECK_NOTHROW(srv_names_of("localhost", std::string(46, 'a')));
    const strings domains{"",
                          ".",
                          "..",
                          "a..b",
                          ".a",
                          "a..",
                          "a b",
                          "a/b",
                          "a\n",
                          std::string("a\0", 2),
                          "\xc3\xa4.de",
                          label + "a",
                          long_domain + '.' + std::string(40, 'a')};
    for (const std::string& domain : domains) {
        CAPTURE(domain);
        CHECK_THROWS_WITH(srv_names_of(domain, ""), support::contains("domain: \""));
        CHECK_THROWS_AS(srv_names_of(domain, ""), std::invalid_argument);
    }
    for (const std::string& service : strings{"a.b", "a b", "\n", std::string(47, 'a')}) {
        CAPTURE(service);
        CHECK_THROWS_WITH(srv_names_of("example.com", service),
                          support::contains("service_name: \""));
    }
}

TEST_CASE("endpoints come by priority, then by weight, then by name", "[logic][dns]") {
    CHECK(texts({to("d", 1, 20, 9),
                 to("c", 1, 10, 9),
                 to("b", 2, 10, 5),
                 to("b", 1, 10, 5),
                 to("a", 1, 10, 5),
                 to("z", 65535, 0, 0)}) == strings{"http://z:65535",
                                                   "http://c:1",
                                                   "http://a:1",
                                                   "http://b:1",
                                                   "http://b:2",
                                                   "http://d:1"});
    CHECK(texts({to("a", 1)}, true) == strings{"https://a:1"});
    CHECK(texts({}).empty());
}

TEST_CASE("an endpoint comes once, at its best place", "[logic][dns]") {
    CHECK(texts({to("a", 1, 9), to("b", 1, 5), to("a", 1, 1), to("a", 2, 9)}) ==
          strings{"http://a:1", "http://b:1", "http://a:2"});
}

TEST_CASE("what is no host and port is left out", "[logic][dns]") {
    CHECK(texts({to("", 1),
                 to("a", 0),
                 to("a?b", 1),
                 to("?", 1),
                 to("300.1.1.1", 1),
                 to("a.1", 1),
                 to("10.0.0.1", 1),
                 to("good", 1)}) == strings{"http://10.0.0.1:1", "http://good:1"});
}

TEST_CASE("sec.limits: no more records are used than a cluster may have",
          "[logic][dns][security]") {
    std::vector<wire::srv_record> many;
    for (unsigned i = 0; i != 3000; ++i) {
        many.push_back(to("a" + std::to_string(i) + "x", 1, 3000 - i));
    }
    const strings all = texts(many);
    CHECK(all.size() == 64);
    CHECK(all.front() == "http://a2999x:1");
    CHECK(all.back() == "http://a2936x:1");
}
