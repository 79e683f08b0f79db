// SPDX-License-Identifier: BSL-1.0
#include <coetcd/cluster.hpp>

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"
#include "unit/administration.hpp"

namespace administration {

using namespace std::chrono_literals;
using coetcd::client;
using coetcd::cluster;
using coetcd::cluster_member;
using coetcd::errc;
using coetcd::server_errc;
using support::failure_of;
using support::world;

namespace {

std::string words_of_entry(const cluster_member& m) {
    return std::to_string(m.id) + '=' + m.name + (m.is_started() ? "" : "(not started)") +
           (m.is_learner ? "(learner)" : "") + ' ' + joined(m.peer_urls) + joined(m.client_urls);
}

std::string words_of_all(const std::vector<cluster_member>& all) {
    std::string text;
    for (const cluster_member& m : all) {
        text += words_of_entry(m) + "; ";
    }
    return text;
}

asio::awaitable<std::string> described(asio::awaitable<std::vector<cluster_member>> work) {
    return text<std::vector<cluster_member>>(std::move(work), words_of_all);
}
asio::awaitable<std::string> described(asio::awaitable<cluster_member> work) {
    return text<cluster_member>(std::move(work), words_of_entry);
}

const std::string listed =
    R"("members":[{"ID":"13668033151171901709","name":"a","peerURLs":["http://a:2380"],)"
    R"("clientURLs":["http://a:2379"]},{"ID":"8","peerURLs":["http://b:2380"],"isLearner":true}])";
const std::string listed_words = "13668033151171901709=a http://a:2380 http://a:2379 ; "
                                 "8=(not started)(learner) http://b:2380 ; ";
const std::vector<std::string> urls{"http://b:2380", "https://[::1]:2380"};

} // namespace

std::vector<row> cluster_calls() {
    return {
        {"members",
         [](client c) { return described(cluster(c).members()); },
         rpc::member_list,
         R"({"linearizable":true})",
         with(listed),
         listed_words},
        {"add_member",
         [](client c) { return described(cluster(c).add_member(urls)); },
         rpc::member_add,
         R"({"peerURLs":["http://b:2380","https://[::1]:2380"]})",
         with(R"("member":{"ID":"8","peerURLs":["http://b:2380"]},)" + listed),
         "8=(not started) http://b:2380 ",
         true},
        {"add_learner",
         [](client c) { return described(cluster(c).add_learner({"http://b:2380"})); },
         rpc::member_add,
         R"({"peerURLs":["http://b:2380"],"isLearner":true})",
         with(R"("member":{"ID":"8","peerURLs":["http://b:2380"],"isLearner":true})"),
         "8=(not started)(learner) http://b:2380 ",
         true},
        {"promote_member",
         [](client c) { return described(cluster(c).promote_member(8)); },
         rpc::member_promote,
         R"({"ID":8})",
         with(listed),
         listed_words,
         true},
        {"update_member",
         [](client c) {
             return described(cluster(c).update_member(13668033151171901709U, {"http://b:2380"}));
         },
         rpc::member_update,
         R"({"ID":13668033151171901709,"peerURLs":["http://b:2380"]})",
         with(listed),
         listed_words,
         true},
        {"remove_member",
         [](client c) { return described(cluster(c).remove_member(13668033151171901709U)); },
         rpc::member_remove,
         R"({"ID":13668033151171901709})",
         with(listed),
         listed_words,
         true},
    };
}

TEST_CASE("cluster refuses bad members and URLs before it sends anything", "[cluster]") {
    world w;
    const client c = w.client();
    const cluster all(c);
    using bad = std::invalid_argument;
    for (const std::vector<std::string>& bad_urls : std::vector<std::vector<std::string>>{
             {},
             {""},
             {"b:2380"},
             {"http://b"},
             {"http://[::1]"},
             {"http://b:2380/"},
             {"http://b:2380/x"},
             {"http://u:p@b:2380"},
             {"unix://b:2380"},
             {"http://b:0"},
             {"http://b:70000"},
             {"http://b:2380,http://c:2380"},
             {"http://b:2380", "http://b:2380"},
         }) {
        CAPTURE(joined(bad_urls));
        CHECK_THROWS_AS(all.add_member(bad_urls), bad);
        CHECK_THROWS_AS(all.add_learner(bad_urls), bad);
        CHECK_THROWS_AS(all.update_member(7, bad_urls), bad);
    }
    CHECK_THROWS_AS(all.update_member(0, urls), bad);
    CHECK_THROWS_AS(all.remove_member(0), bad);
    CHECK_THROWS_AS(all.promote_member(0), bad);
    CHECK(w.env->calls.empty());
}

TEST_CASE("a change of members that etcd refuses was not made, and is asked for once",
          "[cluster]") {
    struct {
        unsigned status;
        int code;
        const char* message;
        server_errc expected;
    } const rows[] = {
        {404, 5, "member not found", server_errc::not_found},
        {400, 9, "Peer URLs already exists", server_errc::already_exists},
        {400,
         9,
         "can only promote a learner member which is in sync with leader",
         server_errc::failed_precondition},
        {400, 9, "can only promote a learner member", server_errc::failed_precondition},
        {400, 9, "too many learner members in cluster", server_errc::failed_precondition},
        {500, 2, "re-configuration failed due to not enough started members", server_errc::unknown},
    };
    for (const auto& row : rows) {
        CAPTURE(row.message);
        world w;
        answers(w,
                rpc::member_promote,
                R"({"code":)" + std::to_string(row.code) + R"(,"message":"etcdserver: )" +
                    row.message + R"("})",
                row.status);
        const client c = w.client();
        auto promoting = w.start(cluster(c).promote_member(8));
        w.env->pass(10ms);
        REQUIRE(promoting.ended());
        const coetcd::error e = failure_of(promoting);
        CHECK(e.code() == row.expected);
        CHECK(e.code() != coetcd::condition::outcome_unknown);
        CHECK_THAT(e.what(), support::contains(row.message));
        CHECK(w.env->calls.size() == 1);
    }
}

TEST_CASE("a member is added as soon as etcd considers the cluster healthy", "[cluster]") {
    world w;
    int refusals = 2;
    w.env->on_call = [&](const call_request&, reply& r) {
        r.status = refusals > 0 ? 503 : 200;
        r.body = refusals-- > 0 ? R"({"code":14,"message":"etcdserver: unhealthy cluster"})"
                                : with(R"("member":{"ID":"8"})");
    };
    const client c = w.client();
    CHECK(w.await(cluster(c).add_member({"http://b:2380"})).id == 8);
    CHECK(w.env->calls.size() == 3);

    refusals = 1000;
    auto adding = w.start(cluster(c).add_member({"http://b:2380"}));
    w.env->pass(5001ms);
    REQUIRE(adding.ended());
    CHECK(adding.code() == errc::unavailable); // nothing was changed
}

TEST_CASE("an answer without the member that was added is not etcd's", "[cluster]") {
    world w;
    answers(w, rpc::member_add, with(R"("member":{"peerURLs":["http://b:2380"]})"));
    const client c = w.client();
    auto adding = w.start(cluster(c).add_member({"http://b:2380"}));
    w.env->pass(10ms);
    CHECK(adding.code() == errc::outcome_unknown);
}

} // namespace administration
