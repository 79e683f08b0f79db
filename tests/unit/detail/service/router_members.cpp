// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/service/router.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/scripted_env.hpp"
#include "support/world.hpp"

using namespace coetcd;
using namespace coetcd::detail;
using namespace std::chrono_literals;
using support::scripted_env;

namespace {

using ports = std::set<int>;

logic::endpoint at(int port) {
    return logic::parse_endpoint("http://h:" + std::to_string(port));
}

/// A router that asks for members every ten seconds, and the cluster that it asks.
class router_members_fixture {
public:
    explicit router_members_fixture(int named = 1, router_options o = {})
        : router_(make(named, std::move(o))) {
        env->on_call = [this](const call_request& q, reply& r) {
            r.status = 200;
            if (q.what == rpc::authenticate) {
                r.body = R"({"header":{"cluster_id":"14841639068965178418"},"token":"t"})";
            } else if (q.what == rpc::member_list) {
                askers.insert(q.to.port);
                r.body = R"({"header":{"cluster_id":"14841639068965178418"},"members":[)" +
                         list(q.to.port) + "]}";
            } else {
                r.body = R"({"header":{"cluster_id":"14841639068965178418"}})";
            }
        };
        env->decide = [this](const call_request& q) {
            scripted_env::fate f;
            f.arrives = !dead.contains(q.to.port);
            return f;
        };
    }

    /// Makes calls for so long.
    /// @returns How many of them failed.
    int use(std::chrono::seconds time) {
        int failed = 0;
        for (auto i = 0s; i < time; i += 2s) {
            decoder d = [](const std::string& body) -> decoded {
                return wire::decode<range_response>(body).header;
            };
            const call_terms how = call_terms{env->now() + 5s}.as(impact::idempotent);
            support::background<answer> b(
                context, detail::carry(router_, rpc::txn, how, "{}", std::move(d)));
            const auto end = env->now() + 2s;
            while (!b.ended()) {
                env->pass(1ms);
            }
            failed += b.get().ec ? 1 : 0;
            env->pass(std::max<std::chrono::nanoseconds>(end - env->now(), 0ns));
        }
        return failed;
    }
    /// Which endpoints were looked at since the last time.
    ports looked_at() {
        ports out;
        for (const auto& c : env->calls) {
            if (c.what == rpc::range) {
                out.insert(c.to.port);
            }
        }
        env->calls.clear();
        return out;
    }
    router& cluster_router() { return *router_; }

    asio::io_context context;
    std::shared_ptr<scripted_env> env = std::make_shared<scripted_env>(context);
    ports dead;
    ports askers; ///< Which endpoints were asked for members.
    /// The members that an endpoint tells of.
    std::function<std::string(int)> list = [](int) { return ""; };

private:
    std::shared_ptr<router> make(int named, router_options o) {
        std::vector<logic::endpoint> all;
        for (int i = 1; i <= named; ++i) {
            all.push_back(at(i));
        }
        o.member_refresh = 10s;
        return std::make_shared<router>(env, all, std::move(o));
    }
    std::shared_ptr<router> router_;
};

std::string member(const std::string& urls) {
    return R"({"clientURLs":[)" + urls + "]}";
}

} // namespace

TEST_CASE("the members of the cluster join the endpoints that were named", "[router]") {
    router_members_fixture f;
    f.list = [](int) {
        return member(R"("http://h:1")") + "," + member(R"("http://h:2","unix:///x")") +
               R"(,{"clientURLs":["http://h:3"],"isLearner":true},{},)" +
               member(R"("https://h:4")");
    };
    CHECK(f.use(6s) == 0);
    CHECK(f.looked_at() == ports{1, 2});
    CHECK(f.env->kept.back() == std::vector<logic::endpoint>{at(1), at(2)});

    f.list = [](int) { return member(R"("http://h:7")"); }; // another cluster, so to speak
    CHECK(f.use(20s) == 0);
    CHECK(f.looked_at() == ports{1, 7});
    CHECK(f.env->kept.back() == std::vector<logic::endpoint>{at(1), at(7)});
    CHECK(f.cluster_router().pick().port == 1);

    f.list = [](int) { return member(R"("unix:///x")"); }; // nothing of use: what there was stays
    f.dead = {1};
    CHECK(f.use(30s) == 0);
    CHECK(f.cluster_router().pick().port == 7);
}

TEST_CASE("sec.members: a bad list does not take a client over for good", "[router][security]") {
    router_members_fixture f;
    bool bad = true;
    f.list = [&](int from) {
        return bad || from != 1 ? member(R"("http://h:8","http://h:9")")
                                : member(R"("http://h:2")");
    };
    SECTION("of members that are not there") {
        f.dead = {8, 9};
        CHECK(f.use(60s) == 0);
        CHECK(f.cluster_router().pick().port == 1);
    }
    SECTION("of members that lie") {
        CHECK(f.use(20s) == 0);
        f.dead = {1}; // for a while
        CHECK(f.use(20s) == 0);
        CHECK(f.cluster_router().pick().port >= 8);
        f.dead = {};
    }
    bad = false;
    CHECK(f.use(30s) == 0);
    f.looked_at();
    CHECK(f.use(60s) == 0);
    CHECK(f.looked_at() == ports{1, 2});
}

TEST_CASE("sec.members: a client with a password takes lists only from endpoints that were named",
          "[router][security]") {
    for (const bool trusts : {false, true}) {
        CAPTURE(trusts);
        router_options o;
        o.login = [] { return wire::authenticate_request("root", secret(std::string("x"))); };
        o.lists_from_learned = trusts;
        router_members_fixture f(2, std::move(o));
        f.list = [](int from) { return member(from < 7 ? R"("http://h:7")" : R"("http://h:8")"); };
        CHECK(f.use(10s) == 0);
        CHECK(f.askers.size() == 1);
        f.dead = {1, 2};
        (void)f.use(60s);
        f.looked_at();
        CHECK(f.use(60s) == 0);
        CHECK(f.looked_at() == (trusts ? ports{1, 2, 8} : ports{1, 2, 7}));
        CHECK((f.askers.contains(7) || f.askers.contains(8)) == trusts);
    }
}

TEST_CASE("sec.token.granter: a member that hands out tokens of no use does not lock a client out",
          "[router][auth][security]") {
    const std::string grants[] = {
        R"({"header":{"cluster_id":"14841639068965178418"},"token":"garbage"})",
        R"({"header":{"cluster_id":"14841639068965178418"},"token":")" + std::string(4097, 'A') +
            "\"}",
        R"({"header":{"cluster_id":"14841639068965178418"},"token":"no token"})",
        R"({"header":{"cluster_id":"14841639068965178418"}})",
    };
    for (const std::string& grant : grants) {
        CAPTURE(grant.size());
        router_options o;
        o.login = [] { return wire::authenticate_request("root", secret(std::string("x"))); };
        router_members_fixture f(2, std::move(o));
        const int bad = f.cluster_router().pick().port; // where it begins
        const std::string good = R"({"header":{"cluster_id":"14841639068965178418"},"token":")" +
                                 std::string(4096, 't') + "\"}";
        f.env->on_call = [&](const call_request& q, reply& r) {
            r.status = 200;
            r.body = R"({"header":{"cluster_id":"14841639068965178418"}})";
            if (q.what == rpc::authenticate) {
                r.body = q.to.port == bad ? grant : good;
            } else if (q.token != std::string(4096, 't')) {
                r.status = 401;
                r.body = R"({"code":16,"message":"etcdserver: invalid auth token"})";
            }
        };
        CHECK(f.use(2s) == 0);
        const auto logins =
            std::count_if(f.env->calls.begin(), f.env->calls.end(), [](const call_request& c) {
                return c.what == rpc::authenticate;
            });
        CHECK(logins == 2);
        CHECK(f.use(20s) == 0);
    }
}

TEST_CASE("sec.limits: a client looks around once at a time", "[router][security]") {
    router_members_fixture f;
    std::string many;
    for (int i = 100; i != 300; ++i) {
        f.dead.insert(i);
        many += (many.empty() ? "\"http://h:" : ",\"http://h:") + std::to_string(i) + '"';
    }
    f.list = [&](int) { return member(many); };
    CHECK(f.use(300s) == 0);
    std::size_t most = 0; // looks in the time that one takes to fail
    for (std::size_t i = 0; i != f.env->calls.size(); ++i) {
        std::size_t at_once = 0;
        for (std::size_t k = i; k != f.env->calls.size(); ++k) {
            const call_request& c = f.env->calls[k];
            at_once += c.what == rpc::range && f.dead.contains(c.to.port) &&
                               c.deadline - f.env->calls[i].deadline < 500ms
                           ? 1
                           : 0U;
        }
        most = std::max(most, f.env->calls[i].what == rpc::range ? at_once : 0);
    }
    CHECK(most == 1);
    ports all = f.looked_at();
    CHECK(all.size() == logic::most_member_urls + 1);
}
