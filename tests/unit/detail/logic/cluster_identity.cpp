// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/cluster_identity.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd::detail::logic;
using namespace std::chrono_literals;
using time_point = std::chrono::steady_clock::time_point;
using identity = cluster_identity<time_point>;
using speaker = identity::speaker;

namespace {

const time_point start(1000h);

endpoint at(const std::string& host) {
    return parse_endpoint("http://" + host + ":2379");
}

struct said {
    const char* by;
    std::uint64_t cluster;
    std::chrono::milliseconds when;
    speaker expected;
};
struct row {
    const char* what;
    std::vector<std::string> named;
    std::vector<said> all;
    std::uint64_t ours; // in the end
};

} // namespace

TEST_CASE("a client belongs to one cluster, until another has replaced it", "[logic][cluster]") {
    constexpr auto ours = speaker::ours;
    constexpr auto other = speaker::other;
    constexpr auto successor = speaker::successor;
    const row rows[] = {
        {"the first answer decides", {"a"}, {{"a", 7, 0ms, ours}, {"a", 7, 9s, ours}}, 7},
        {"one of three is another's, for ever",
         {"a", "b", "c"},
         {{"a", 7, 0ms, ours},
          {"b", 8, 1s, other},
          {"b", 8, 2s, other},
          {"c", 7, 3s, ours},
          {"b", 8, 60s, other},
          {"b", 8, 61s, other}},
         7},
        {"and answered first",
         {"a", "b", "c"},
         {{"a", 8, 0ms, ours},
          {"b", 7, 1s, other},
          {"c", 7, 2s, other},
          {"b", 7, 60s, other},
          {"c", 7, 61s, other},
          {"a", 8, 62s, ours}},
         8},
        {"half of them are replaced",
         {"a", "b"},
         {{"b", 7, 0ms, ours}, {"a", 8, 1s, other}, {"a", 8, 9s, other}, {"b", 7, 10s, ours}},
         7},
        {"all are, one after the other",
         {"a", "b"},
         {{"a", 7, 0ms, ours},
          {"a", 8, 1s, other},
          {"b", 7, 2s, ours},
          {"b", 8, 30s, other},
          {"a", 8, 30s, other},
          {"b", 8, 31s, successor},
          {"a", 8, 31s, ours},
          {"a", 7, 32s, other}}, // what it said before, late
         8},
        {"one that cannot be reached has not agreed",
         {"a", "b", "c"},
         {{"a", 7, 0ms, ours},
          {"a", 8, 1s, other},
          {"b", 8, 2s, other},
          {"a", 8, 3s, other},
          {"b", 8, 60s, other}},
         7},
        {"a single one is replaced",
         {"a"},
         {{"a", 7, 0ms, ours},
          {"a", 8, 10s, other},
          {"a", 8, 10100ms, other},
          {"a", 8, 10999ms, other},
          {"a", 8, 11s, successor},
          {"a", 8, 11s, ours}},
         8},
        {"a few answers are enough, but more than two",
         {"a"},
         {{"a", 7, 0ms, ours},
          {"a", 8, 10s, other},
          {"a", 8, 20s, other},
          {"a", 8, 30s, successor}},
         8},
        {"a load balancer has members of both",
         {"a"},
         {{"a", 7, 0ms, ours},
          {"a", 8, 1s, other},
          {"a", 8, 1500ms, other},
          {"a", 8, 1900ms, other},
          {"a", 7, 2s, ours},
          {"a", 8, 3s, other},
          {"a", 8, 3500ms, other},
          {"a", 7, 4s, ours}},
         7},
        {"it leads to one other, and then to yet another",
         {"a"},
         {{"a", 7, 0ms, ours},
          {"a", 8, 1s, other},
          {"a", 8, 1500ms, other},
          {"a", 9, 2s, other},
          {"a", 9, 2500ms, other},
          {"a", 9, 3s, successor}},
         9},
        {"they do not agree on the new one",
         {"a", "b"},
         {{"a", 7, 0ms, ours},
          {"a", 8, 1s, other},
          {"b", 9, 2s, other},
          {"a", 8, 3s, other},
          {"b", 9, 9s, other}},
         7},
        {"those that were learned do not count",
         {"a", "b"},
         {{"a", 7, 0ms, ours},
          {"x", 8, 1s, other},
          {"y", 8, 2s, other},
          {"a", 8, 3s, other},
          {"x", 8, 9s, other},
          {"b", 8, 10s, successor}},
         8},
        {"one after the other strays, and comes back unheard",
         {"a", "b", "c"},
         {{"a", 7, 0ms, ours},
          {"a", 8, 1s, other},
          {"b", 7, 2s, ours},
          {"b", 8, 9s, other},
          {"c", 7, 10s, ours},
          {"c", 8, 20s, other},
          {"c", 8, 21s, other},
          {"c", 8, 29s, other},
          {"a", 7, 30s, ours}},
         7},
        {"but one of them that speaks for ours does",
         {"a"},
         {{"a", 7, 0ms, ours},
          {"a", 8, 1s, other},
          {"a", 8, 2s - 1ms, other},
          {"x", 7, 2s, ours},
          {"a", 8, 3s, other}},
         7},
    };
    for (const row& r : rows) {
        CAPTURE(r.what);
        std::vector<endpoint> named;
        for (const std::string& host : r.named) {
            named.push_back(at(host));
        }
        identity who(named);
        CHECK(who.ours() == 0);
        for (const said& s : r.all) {
            CAPTURE(s.by, s.cluster, s.when.count());
            REQUIRE((who.heard(at(s.by), s.cluster, start + s.when) == s.expected));
        }
        CHECK(who.ours() == r.ours);
    }
}

TEST_CASE("an answer of another cluster is asked for elsewhere, unless it must be made only once",
          "[logic][cluster]") {
    const verdict v = judge_other_cluster();
    CHECK(v.left == effect::settled);
    CHECK(v.transient);
    CHECK(v.blame);
    CHECK_FALSE(v.ask_others);
}

TEST_CASE("a cluster is called as in etcd's logs", "[logic][cluster]") {
    CHECK(cluster_name(14841639068965178418u) == "cdf818194e3a8c32");
    CHECK(cluster_name(7) == "7");
    const std::string text = identity::text(255, 16);
    CHECK(text == "it leads to cluster ff, and this client is one of 10");
}

TEST_CASE("an endpoint strays until it speaks for ours, or another cluster is ours",
          "[logic][cluster]") {
    identity who({at("a"), at("b")});
    who.heard(at("a"), 7, start);
    for (const char* each : {"b", "learned"}) {
        CAPTURE(each);
        CHECK(who.strayed_to(at(each)) == 0);
        who.heard(at(each), 8, start + 1s);
        CHECK(who.strayed_to(at(each)) == 8);
        CHECK(who.strayed_to(at("a")) == 0);
        who.heard(at(each), 7, start + 2s);
        CHECK(who.strayed_to(at(each)) == 0);
    }
    for (int i = 0; i != 1000; ++i) { // a list of members that lies
        who.heard(at("learned" + std::to_string(i)), 8, start + 3s);
    }
    CHECK(who.strayed_to(at("learned0")) == 0);
    CHECK(who.strayed_to(at("learned999")) == 8);
    who.heard(at("b"), 8, start + 4s);
    REQUIRE(who.heard(at("a"), 8, start + 5s) == speaker::successor);
    CHECK(who.strayed_to(at("learned999")) == 0);
    CHECK(who.strayed_to(at("b")) == 0);
    who.heard(at("a"), 7, start + 6s);
    CHECK(who.strayed_to(at("a")) == 7);
}

TEST_CASE(
    "endpoints that are named later belong to the same cluster, until all have said otherwise",
    "[logic][cluster]") {
    identity id({at("a"), at("b")});
    CHECK(id.heard(at("a"), 7, start) == speaker::ours);
    CHECK(id.heard(at("b"), 8, start + 1s) == speaker::other);
    id.name({at("c"), at("d")});
    CHECK(id.ours() == 7);
    CHECK(id.strayed_to(at("b")) == 0);
    CHECK(id.heard(at("c"), 8, start + 2s) == speaker::other);
    CHECK(id.heard(at("a"), 8, start + 3s) == speaker::other); // an answer to an earlier request
    CHECK(id.heard(at("c"), 8, start + 9s) == speaker::other);
    CHECK(id.heard(at("d"), 8, start + 9s) == speaker::successor);
    CHECK(id.ours() == 8);
}
