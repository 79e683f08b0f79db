// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/net/default_env.hpp>
#include <coetcd/detail/testing/chance.hpp>
#include <coetcd/detail/testing/etcd.hpp>
#include <coetcd/detail/wire/base64.hpp>
#include <coetcd/testing.hpp>

#include <boost/asio/this_coro.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/etcd_server.hpp"
#include "support/process.hpp"
#include "support/run_test.hpp"

// The simulator's etcd is worth what these tests say: the same requests, at random, to it and to a
// real one, must get the same answers.

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::detail::call_request;
using coetcd::detail::rpc;
using coetcd::detail::testing::chance;
using coetcd::detail::testing::dialect;
using nlohmann::json;
using model_etcd = coetcd::detail::testing::etcd;

namespace {

std::string base64(const std::string& bytes) {
    std::string out;
    coetcd::detail::wire::append_base64(out, bytes);
    return out;
}

const std::vector<std::string> all_keys{"a", "ab", "b", "b/1", "b/2", "c"};

/// Writes requests at random: most of them make sense, and some do not.
class script {
public:
    explicit script(std::uint64_t seed)
        : chance_(seed) {}

    struct request {
        rpc what;
        std::string body;
    };

    request next(std::int64_t revision) {
        revision_ = revision;
        if (chance_.one_in(24)) {
            return {rpc::lease_keep_alive, renewals()};
        }
        auto [what, body] = draw();
        if (chance_.one_in(2)) {
            use_numbers(body);
        }
        return {what, body.dump()};
    }

private:
    std::pair<rpc, json> draw() {
        switch (chance_.below(17)) {
        case 0:
        case 1:
        case 2:
            return {rpc::put, put()};
        case 3:
        case 4:
        case 5:
            return {rpc::range, range()};
        case 6:
            return {rpc::delete_range, erase()};
        case 7: {
            json body{{"TTL", std::to_string(100 * chance_.between(1, 3))}, {"ID", lease(true)}};
            return {rpc::lease_grant, std::move(body)};
        }
        case 8:
            return {rpc::lease_revoke, json{{"ID", lease(true)}}};
        case 9:
            return {rpc::lease_time_to_live, json{{"ID", lease(true)}, {"keys", true}}};
        case 10:
            return {rpc::lease_keep_alive, json{{"ID", lease(true)}}};
        case 11:
            if (chance_.one_in(4)) {
                const int back = chance_.between(-1, 5);
                return {rpc::compact, json{{"revision", std::to_string(revision_ - back)}}};
            }
            return {chance_.one_in(2) ? rpc::lease_leases : rpc::member_list, json::object()};
        case 12:
            return {rpc::txn, chance_.one_in(2) ? group() : flat_group()};
        default:
            return {rpc::txn, txn(0)};
        }
    }

    /// Numbers and choices may be numbers in JSON as well.
    static void use_numbers(json& body) {
        if (body.is_object()) {
            choose(body, "target", {"VERSION", "CREATE", "MOD", "VALUE", "LEASE"});
            choose(body, "result", {"EQUAL", "GREATER", "LESS", "NOT_EQUAL"});
            choose(body, "sort_target", {"KEY", "VERSION", "CREATE", "MOD", "VALUE"});
            choose(body, "sort_order", {"NONE", "ASCEND", "DESCEND"});
            for (const char* field : {"ID",
                                      "TTL",
                                      "create_revision",
                                      "lease",
                                      "limit",
                                      "max_create_revision",
                                      "max_mod_revision",
                                      "min_create_revision",
                                      "min_mod_revision",
                                      "mod_revision",
                                      "revision",
                                      "version"}) {
                if (body.contains(field)) {
                    body[field] = std::stoll(body[field].get<std::string>());
                }
            }
        }
        if (body.is_structured()) {
            for (json& part : body) {
                use_numbers(part);
            }
        }
    }
    static void choose(json& body, const char* field, std::initializer_list<const char*> names) {
        if (body.contains(field)) {
            const auto found =
                std::find(names.begin(), names.end(), body[field].get<std::string>());
            body[field] = found - names.begin();
        }
    }

    /// Some in one request.
    std::string renewals() {
        std::string all;
        for (int i = chance_.between(1, 6); i != 0; --i) {
            json one{{"ID", lease(true)}};
            if (chance_.one_in(2)) {
                use_numbers(one);
            }
            all += one.dump() + (chance_.one_in(4) ? "" : "\n");
        }
        return all;
    }

    /// Asks whether there is no key, and says no more than has to be said.
    json compare_absent() {
        json body{{"key", key()}};
        if (chance_.one_in(4)) {
            body = json{{"key", base64("b/")}, {"range_end", base64("b0")}};
        }
        return body;
    }
    /// What a lock asks for and does.
    json part() {
        json body = json::object();
        if (chance_.one_in(2)) {
            body["compare"].push_back(compare_absent());
        }
        if (chance_.one_in(2)) {
            body["compare"].push_back(compare());
        }
        if (chance_.one_in(2)) {
            body["success"].push_back({{"request_range", range()}});
        }
        const std::uint64_t what = chance_.below(4);
        if (what < 2) {
            body["success"].push_back({{"request_put", {{"key", key()}, {"lease", lease(false)}}}});
        } else if (what == 2) {
            body["success"].push_back({{"request_delete_range", {{"key", key()}}}});
        }
        if (chance_.one_in(4)) {
            body["failure"].push_back({{"request_range", range()}});
        }
        return body;
    }
    json group() {
        json body = json::object();
        for (int i = chance_.between(1, 4); i != 0; --i) {
            body["success"].push_back({{"request_txn", part()}});
        }
        return body;
    }
    json flat_group() {
        json body = json::object();
        for (int i = chance_.between(1, 3); i != 0; --i) {
            const json one = part();
            for (const char* list : {"compare", "success"}) {
                for (const json& each : one.value(list, json::array())) {
                    body[list].push_back(each);
                }
            }
        }
        return body;
    }

    std::string key() { return base64(all_keys[chance_.below(all_keys.size())]); }
    std::string lease(bool any) {
        return std::to_string(any || chance_.one_in(3) ? chance_.between(1001, 1004) : 0);
    }
    void span(json& body) {
        body["key"] = key();
        const std::uint64_t how = chance_.below(8);
        if (how == 0) {
            body["range_end"] = base64("b0");
            body["key"] = base64("b/");
        } else if (how == 1) {
            body["range_end"] = base64(std::string(1, '\0'));
        } else if (how == 2) {
            body["range_end"] = key();
        } else if (how == 3 && chance_.one_in(4)) {
            body["key"] = "";
        }
    }

    json put() {
        json body{{"key", chance_.one_in(40) ? "" : key()}};
        if (chance_.one_in(8)) {
            body["ignore_value"] = true;
        }
        if (!body.contains("ignore_value") || chance_.one_in(8)) {
            body["value"] = base64(std::string(chance_.below(4), 'v'));
        }
        if (chance_.one_in(8)) {
            body["ignore_lease"] = true;
        }
        if (!body.contains("ignore_lease") || chance_.one_in(8)) {
            body["lease"] = lease(false);
        }
        if (chance_.one_in(3)) {
            body["prev_kv"] = true;
        }
        return body;
    }
    json erase() {
        json body = json::object();
        span(body);
        body["prev_kv"] = chance_.one_in(3);
        return body;
    }
    json range() {
        json body = json::object();
        span(body);
        const auto maybe = [&](const char* field, std::int64_t value, std::uint64_t one_in) {
            if (chance_.one_in(one_in)) {
                body[field] = std::to_string(value);
            }
        };
        maybe("limit", chance_.between(1, 3), 3);
        // A negative one is never sent; versions differ in what they make of it.
        maybe("revision", std::max<std::int64_t>(0, revision_ - chance_.between(-1, 6)), 4);
        maybe("max_create_revision", revision_ - chance_.between(0, 20), 4);
        maybe("min_create_revision", revision_ - chance_.between(0, 20), 6);
        maybe("max_mod_revision", revision_ - chance_.between(0, 20), 6);
        maybe("min_mod_revision", revision_ - chance_.between(0, 20), 6);
        if (chance_.one_in(2)) {
            body["sort_target"] = chance_.one_in(2) ? "CREATE" : chance_.one_in(2) ? "MOD" : "KEY";
            body["sort_order"] = chance_.one_in(2) ? "DESCEND" : "ASCEND";
        }
        body["keys_only"] = chance_.one_in(3);
        body["count_only"] = chance_.one_in(8);
        return body;
    }
    json compare() {
        if (chance_.one_in(6)) {
            return compare_absent();
        }
        json body = json::object();
        if (chance_.one_in(4)) {
            span(body);
        } else {
            body["key"] = key();
        }
        constexpr const char* results[] = {"EQUAL", "GREATER", "LESS", "NOT_EQUAL"};
        body["result"] = results[chance_.below(4)];
        const std::string zero_or_recent =
            std::to_string(chance_.one_in(2) ? 0 : revision_ - chance_.between(0, 10));
        switch (chance_.below(5)) {
        case 0:
            body["target"] = "VERSION";
            body["version"] = std::to_string(chance_.between(0, 2));
            break;
        case 1:
            body["target"] = "MOD";
            body["mod_revision"] = zero_or_recent;
            break;
        case 2:
            body["target"] = "VALUE";
            body["value"] = base64(std::string(chance_.below(4), 'v'));
            break;
        case 3:
            body["target"] = "LEASE";
            body["lease"] = lease(false);
            break;
        default:
            body["target"] = "CREATE";
            body["create_revision"] = zero_or_recent;
        }
        return body;
    }
    json txn(int depth) {
        json body = json::object();
        for (std::uint64_t i = chance_.below(3); i != 0; --i) {
            body["compare"].push_back(compare());
        }
        for (const char* branch : {"success", "failure"}) {
            for (std::uint64_t i = chance_.below(4); i != 0; --i) {
                json op = json::object();
                const std::uint64_t what = chance_.below(depth < 2 ? 8 : 7);
                if (what < 3) {
                    op["request_put"] = put();
                } else if (what < 6) {
                    op["request_range"] = range();
                } else if (what == 6) {
                    // etcd 3.4 and 3.5 panic if a key is deleted, unseen by the check for
                    // overlaps, before a put that keeps its value.
                    op["request_delete_range"] = json{{"key", key()}};
                } else if (depth == 0) {
                    op["request_txn"] = txn(1);
                } else {
                    op["request_range"] = range();
                }
                body[branch].push_back(std::move(op));
            }
        }
        return body;
    }

    chance chance_;
    std::int64_t revision_ = 1;
};

/// An answer; of a stream, its lines.
json read_answer(rpc what, const std::string& body) {
    if (what != rpc::lease_keep_alive) {
        return json::parse(body);
    }
    json lines = json::array();
    std::istringstream in(body);
    for (std::string line; std::getline(in, line);) {
        lines.push_back(json::parse(line));
    }
    return lines;
}

/// Whether two refused it for that reason, whose HTTP status is not the same with all gateways.
bool both_know_precondition(const json& a, const json& b) {
    return a.is_object() && b.is_object() && a.value("code", 0) == 9 && b.value("code", 0) == 9;
}

/// Takes out what two clusters do not have in common.
void normalise(json& answer) {
    if (answer.is_object()) {
        if (const auto header = answer.find("header"); header != answer.end()) {
            header->erase("cluster_id");
            header->erase("member_id");
            header->erase("raft_term");
        }
        if (answer.contains("grantedTTL")) {
            answer.erase("TTL"); // it runs
        }
        for (const char* unordered : {"leases", "keys"}) {
            if (answer.contains(unordered)) {
                std::sort(answer[unordered].begin(), answer[unordered].end());
            }
        }
        answer.erase("details");
        if (answer.contains("clientURLs")) { // a member
            answer["ID"] = json();
            answer["name"] = json();
            answer["peerURLs"] = answer["peerURLs"].size();
            answer["clientURLs"] = answer["clientURLs"].size();
        }
    }
    if (answer.is_structured()) {
        for (json& part : answer) {
            normalise(part);
        }
    }
}

/// Of two reasons to refuse a put in a transaction, 3.7 names another one than those before.
bool is_either_reason(const json& answer) {
    const std::string why = answer.is_object() ? answer.value("message", "") : "";
    return why == "etcdserver: key not found" || why == "etcdserver: requested lease not found";
}

/// Whether keys were made, or changed, by one transaction: any order of theirs is right then.
bool has_ties(const model_etcd& model) {
    std::vector<std::int64_t> created;
    std::vector<std::int64_t> changed;
    for (const auto& [key, r] : model.keys) {
        created.push_back(r.create_revision);
        changed.push_back(r.mod_revision);
    }
    std::sort(created.begin(), created.end());
    std::sort(changed.begin(), changed.end());
    return std::adjacent_find(created.begin(), created.end()) != created.end() ||
           std::adjacent_find(changed.begin(), changed.end()) != changed.end();
}

/// A real etcd, and a model that starts as it does.
struct pair {
    explicit pair(std::vector<std::string> arguments = {})
        : server(std::move(arguments))
        , model([] { return std::chrono::steady_clock::now().time_since_epoch(); }) {
        where.host = "127.0.0.1";
        where.port = server.port();
    }
    support::etcd_server server;
    coetcd::detail::logic::endpoint where;
    model_etcd model;
};

/// Finds out how the real one speaks. Afterwards both have the same keys, and the same revision.
asio::awaitable<void> learn(coetcd::detail::net::default_env& env, pair& both) {
    const auto ask = [&](rpc what, std::string body) -> asio::awaitable<json> {
        (void)both.model.call(0, what, body);
        call_request request(both.where, what, std::move(body), env.now() + 5s);
        const coetcd::detail::reply told = co_await env.call(std::move(request));
        REQUIRE_FALSE(told.ec);
        co_return json::parse(told.body);
    };
    const json refused = co_await ask(rpc::put, "{}");
    both.model.speak(refused.contains("error") ? dialect::v1 : dialect::v2);

    const std::string lease = R"({"ID":"7000","TTL":"600"})";
    (void)co_await ask(rpc::lease_grant, lease);
    (void)co_await ask(rpc::put, R"({"key":"YQ==","lease":"7000"})");
    const json key = co_await ask(rpc::range, R"({"key":"YQ==","keys_only":true})");
    both.model.tells_leases_of_keys = key.at("kvs").at(0).contains("lease");
    (void)co_await ask(rpc::lease_revoke, lease);
}

/// What both say to the same requests.
class comparison {
public:
    explicit comparison(pair& b)
        : both_(b) {}

    int failures = 0; ///< What the model refused.

    struct tokens {
        tokens() {}
        explicit tokens(const std::string& same)
            : real(same)
            , model(same) {}
        std::string real;
        std::string model;
    };

    /// Before all else.
    asio::awaitable<void> begin(asio::any_io_executor executor) {
        coetcd::detail::net::net_options options;
        env_ = std::make_shared<coetcd::detail::net::default_env>(executor, options);
        co_await learn(*env_, both_);
    }

    asio::awaitable<coetcd::detail::reply> ask_real(rpc what, std::string body, tokens with) {
        call_request request(both_.where, what, std::move(body), env_->now() + 5s);
        request.token = with.real;
        coetcd::detail::reply real = co_await env_->call(std::move(request));
        REQUIRE_FALSE(real.ec);
        co_return real;
    }
    /// @returns The answer of the real one.
    asio::awaitable<coetcd::detail::reply>
    ask(rpc what, std::string body, tokens with, bool compare = true) {
        coetcd::detail::reply real = co_await ask_real(what, body, with);
        const model_etcd::answer model = both_.model.call(0, what, body, with.model);
        failures += model.status == 200 ? 0 : 1;
        if (compare) {
            json theirs = read_answer(what, real.body);
            json ours = read_answer(what, model.body);
            normalise(theirs);
            normalise(ours);
            INFO(name(what) << ' ' << body.substr(0, 300) << "\nreal:  " << real.status << ' '
                            << theirs.dump() << "\nmodel: " << model.status << ' ' << ours.dump());
            const bool same_status =
                real.status == model.status || both_know_precondition(theirs, ours);
            CHECK(same_status);
            CHECK((theirs == ours || (is_either_reason(theirs) && is_either_reason(ours))));
        }
        last_model_ = model.body;
        co_return real;
    }
    asio::awaitable<tokens> log_in(std::string body) {
        tokens nobody;
        const coetcd::detail::reply real =
            co_await ask(rpc::authenticate, std::move(body), nobody, false);
        tokens got;
        got.real = json::parse(real.body).value("token", "");
        got.model = json::parse(last_model_).value("token", "");
        co_return got;
    }
    /// The answer to the first message of a stream.
    asio::awaitable<void> watch(std::string create, tokens with) {
        call_request request(both_.where, rpc::watch, create, env_->now() + 5s);
        request.token = with.real;
        coetcd::detail::open_result opened = co_await env_->open(std::move(request));
        REQUIRE_FALSE(opened.ec);
        const coetcd::detail::reply line = co_await opened.opened->read();
        opened.opened->close();
        std::string told;
        model_etcd::listener to;
        to.on_line = [&](std::string l) { told = std::move(l); };
        const std::uint64_t stream = both_.model.open(0, std::move(to), with.model);
        both_.model.listen(stream, create);
        both_.model.close(stream);
        json theirs = json::parse(line.body);
        json ours = json::parse(told);
        theirs.at("result").erase("header");
        ours.at("result").erase("header");
        CHECK(theirs == ours);
    }

private:
    pair& both_;
    std::shared_ptr<coetcd::detail::net::default_env> env_;
    std::string last_model_;
};

/// @param input What it reads from stdin.
void etcdctl(const support::etcd_server& server,
             const std::string& arguments,
             const std::string& input = {}) {
    const std::string command = "printf '%s\\n' '" + input + "' | ETCDCTL_API=3 " +
                                support::etcdctl_program() + " --endpoints " + server.url() + ' ' +
                                arguments + " >/dev/null";
    const std::vector<std::string> shell{"sh", "-c", command};
    REQUIRE(support::run_process(shell).exit_code == 0);
}

} // namespace

TEST_CASE("The simulator's etcd answers requests as a real one does", "[conformance]") {
    pair both;
    int differences = 0;
    int compared = 0;
    int failures = 0;
    std::string differ;
    support::run_test([&]() -> asio::awaitable<void> {
        const asio::any_io_executor executor = co_await asio::this_coro::executor;
        coetcd::detail::net::net_options options;
        const auto env = std::make_shared<coetcd::detail::net::default_env>(executor, options);
        co_await learn(*env, both);
        for (std::uint64_t seed = 1; seed <= 60 && differences < 3; ++seed) {
            script requests(chance::derive(seed, 7));
            for (int step = 0; step != 60 && differences < 3; ++step) {
                const script::request next = requests.next(both.model.revision);
                const std::string& body = next.body;
                const bool unordered =
                    has_ties(both.model) && body.find("sort_target") != std::string::npos;
                call_request request(both.where, next.what, body, env->now() + 5s);
                const coetcd::detail::reply real = co_await env->call(std::move(request));
                REQUIRE_FALSE(real.ec);
                const model_etcd::answer model = both.model.call(0, next.what, body);
                json theirs = read_answer(next.what, real.body);
                json ours = read_answer(next.what, model.body);
                normalise(theirs);
                normalise(ours);
                ++compared;
                failures += real.status == 200 ? 0 : 1;
                const bool same_status =
                    real.status == model.status || both_know_precondition(theirs, ours);
                const bool same = same_status && (theirs == ours || unordered);
                if (!same && !(is_either_reason(theirs) && is_either_reason(ours))) {
                    ++differences;
                    differ += "seed " + std::to_string(seed) + " step " + std::to_string(step) +
                              " " + std::string(name(next.what)) + " " + body +
                              "\nreal:  " + std::to_string(real.status) + " " + theirs.dump() +
                              "\nmodel: " + std::to_string(model.status) + " " + ours.dump() + "\n";
                }
            }
        }
    });
    INFO(differ);
    CHECK(compared > 3000);
    CHECK(failures > 100);
    CHECK(differences == 0);
}

TEST_CASE("The simulator's etcd refuses the groups that a real one refuses", "[conformance]") {
    pair both;
    support::run_test([&]() -> asio::awaitable<void> {
        const asio::any_io_executor executor = co_await asio::this_coro::executor;
        comparison compare(both);
        co_await compare.begin(executor);
        const comparison::tokens nobody;
        const auto put = [](const char* key) {
            return json{{"request_put", {{"key", base64(key)}}}};
        };
        const auto erase = [](const char* key, const char* end = "") {
            return json{
                {"request_delete_range", {{"key", base64(key)}, {"range_end", base64(end)}}}};
        };
        const auto nested = [](json success, json failure = json::array()) {
            return json{{"request_txn", {{"success", success}, {"failure", failure}}}};
        };
        const auto list = [](std::initializer_list<json> ops) {
            json all = json::array();
            for (const json& op : ops) {
                all.push_back(op);
            }
            return all;
        };
        const auto txn = [&](json success) { return json{{"success", success}}.dump(); };
        const auto copies = [](const json& op, int n) {
            json all = json::array();
            for (; n != 0; --n) {
                all.push_back(op);
            }
            return all;
        };
        const json get{{"request_range", {{"key", base64("a")}}}};
        const json absent{{"key", base64("a")}};
        const auto confirms = [&](int parts, int operations) {
            const json part{{"compare", list({absent})}, {"success", copies(get, operations)}};
            return txn(copies(json{{"request_txn", part}}, parts));
        };
        const std::vector<std::string> all{
            // A key that is written twice, in all the places where that may be.
            txn(list({put("a"), put("a")})),
            txn(list({put("a"), erase("a")})),
            txn(list({erase("a"), put("a")})),
            txn(list({erase("a"), erase("a")})),
            txn(list({nested(list({put("a")})), put("a")})),
            txn(list({nested(list({put("a")})), nested(list({put("a")}))})),
            txn(list({nested(list({erase("a")})), nested(list({put("a")}))})),
            txn(list({nested(list({put("a")})), nested(list({erase("a")}))})), // it does not see it
            txn(list({nested(list({put("a")})), erase("a")})),
            txn(list({nested(list({erase("a")})), put("a")})),
            txn(list({nested(list({erase("a", "b")})), nested(list({put("ab")}))})),
            txn(list({nested(list({erase("a", "b")})), nested(list({put("b")}))})),
            txn(list({nested(list({put("a")}), list({put("a")}))})),
            txn(list({nested(list({}), list({put("a")})), nested(list({put("a")}))})),
            txn(list({nested(list({}), list({erase("a")})), nested(list({put("a")}))})),
            txn(list({nested(list({nested(list({put("c")}))})), nested(list({erase("b")}))})),
            txn(list({nested(list({nested(list({put("c")}))})), put("c")})),
            txn(list({json{{"request_txn", json::object()}}, put("d")})),
            txn(list({json::object()})),
            // How many there may be.
            txn(copies(get, 128)),
            txn(copies(get, 129)),
            json{{"compare", copies(absent, 128)}, {"success", copies(get, 128)}}.dump(),
            json{{"compare", copies(absent, 129)}}.dump(),
            json{{"failure", copies(get, 129)}}.dump(),
            confirms(60, 2),
            confirms(120, 8),
            confirms(120, 9),
            confirms(126, 2),
            confirms(127, 2),
            confirms(128, 1),
            json{{"compare", copies(absent, 120)}, {"success", list({nested(copies(get, 8))})}}
                .dump(),
            json{{"compare", copies(absent, 120)}, {"success", list({nested(copies(get, 9))})}}
                .dump(),
            txn(list({nested(copies(get, 1), copies(get, 128))})),
        };
        for (const std::string& body : all) {
            (void)co_await compare.ask(rpc::txn, body, nobody);
            // All compares see the store as it was before, and each operation what came before it.
            const std::string after =
                R"({"success":[{"request_range":{"key":"YQ==","range_end":"AA=="}}]})";
            (void)co_await compare.ask(rpc::txn, after, nobody);
        }
        CHECK(compare.failures > 15);
    });
}

TEST_CASE("The simulator's etcd lets renewals wait for one another as a real one does",
          "[conformance]") {
    pair both;
    support::run_test([&]() -> asio::awaitable<void> {
        const asio::any_io_executor executor = co_await asio::this_coro::executor;
        comparison compare(both);
        co_await compare.begin(executor);
        const comparison::tokens nobody;
        (void)co_await compare.ask(rpc::lease_grant, R"({"ID":1001,"TTL":60})", nobody);
        (void)co_await compare.ask(rpc::lease_grant, R"({"ID":"1002","TTL":"2"})", nobody);
        const auto granted = std::chrono::steady_clock::now();
        const std::string all = R"({"ID":1001}
{"ID":"1002"} {"ID":99}
{"ID":1001})";
        // One whose time is over is answered once it is revoked, and holds up those behind it. The
        // answer of the real one comes by then.
        model_etcd::answer ours;
        ours.wait = true;
        while (std::chrono::steady_clock::now() < granted + 2010ms) {
            std::this_thread::sleep_for(10ms);
        }
        ours = both.model.call(0, rpc::lease_keep_alive, all);
        CHECK(ours.wait);
        CHECK(read_answer(rpc::lease_keep_alive, ours.body).size() == 1);
        const coetcd::detail::reply theirs =
            co_await compare.ask_real(rpc::lease_keep_alive, all, nobody);
        ours = both.model.call(0, rpc::lease_keep_alive, all, {}, ours);
        CHECK(ours.wait);
        both.model.expire();
        ours = both.model.call(0, rpc::lease_keep_alive, all, {}, ours);
        CHECK_FALSE(ours.wait);
        json expected = read_answer(rpc::lease_keep_alive, theirs.body);
        json got = read_answer(rpc::lease_keep_alive, ours.body);
        normalise(expected);
        normalise(got);
        CHECK(got.size() == 4);
        CHECK(expected == got);
    });
}

TEST_CASE("The simulator's etcd tells watches what a real one tells them", "[conformance]") {
    // All kinds of watches on one stream, and changes before and after they begin.
    pair both;
    std::vector<std::vector<json>> told(2); // by the real one, by the model
    // Each change by itself: how many there are in a message is a matter of speed.
    const auto take = [](const std::string& line, std::vector<json>& into) {
        json result = json::parse(line).at("result");
        result.erase("header"); // the store's revision, which goes on
        const std::string id = result.value("watch_id", "0");
        result["watch_id"] = id;
        const json events = result.value("events", json::array());
        result.erase("events");
        if (events.empty() || result.size() > 1) {
            into.push_back(std::move(result));
        }
        for (const json& e : events) {
            into.push_back(json{{"watch_id", id}, {"event", e}});
        }
    };
    support::run_test([&]() -> asio::awaitable<void> {
        const asio::any_io_executor executor = co_await asio::this_coro::executor;
        coetcd::detail::net::net_options options;
        const auto env = std::make_shared<coetcd::detail::net::default_env>(executor, options);
        const auto apply = [&](rpc what, std::string body) -> asio::awaitable<void> {
            call_request request(both.where, what, body, env->now() + 5s);
            const coetcd::detail::reply real = co_await env->call(std::move(request));
            const model_etcd::answer model = both.model.call(0, what, body);
            json theirs = json::parse(real.body);
            json ours = json::parse(model.body);
            normalise(theirs);
            normalise(ours);
            theirs.erase("error"); // of one dialect only
            ours.erase("error");
            if (!is_either_reason(theirs) || !is_either_reason(ours)) {
                CHECK(theirs == ours);
            }
        };
        const auto change = [&](std::uint64_t seed, int steps) -> asio::awaitable<void> {
            script requests(seed);
            for (int i = 0; i != steps; ++i) {
                script::request next = requests.next(both.model.revision);
                const bool changes = next.what == rpc::put || next.what == rpc::delete_range ||
                                     next.what == rpc::txn || next.what == rpc::lease_grant ||
                                     next.what == rpc::lease_revoke;
                if (changes) {
                    co_await apply(next.what, next.body);
                }
            }
        };
        co_await change(1, 200);
        const std::int64_t compacted = both.model.revision / 2;
        json compaction{{"revision", std::to_string(compacted)}};
        co_await apply(rpc::compact, compaction.dump());

        std::string creates;
        const auto create = [&](std::int64_t id, json fields) {
            fields["watch_id"] = std::to_string(id);
            creates += (creates.empty() ? "" : "\n") + json{{"create_request", fields}}.dump();
        };
        const std::string now = std::to_string(both.model.revision);
        const std::string past = std::to_string(compacted + 3);
        create(1, {{"key", base64("a")}});
        create(2, {{"key", base64("a")}, {"range_end", base64(std::string(1, '\0'))}});
        create(3, {{"key", base64("b/")}, {"range_end", base64("b0")}, {"start_revision", past}});
        create(4, {{"key", base64("b")}, {"start_revision", "1"}}); // compacted
        create(5, {{"key", base64("ab")}, {"filters", {"NOPUT"}}, {"prev_kv", true}});
        create(6, {{"key", base64("a")}, {"filters", {"NODELETE"}}, {"start_revision", past}});
        create(7, {{"key", base64("c")}, {"start_revision", now}});
        create(7, {{"key", base64("c")}}); // twice
        create(8, {{"key", base64("c")}, {"range_end", base64("b")}});
        const std::string later = std::to_string(both.model.revision + 5);
        create(9, {{"key", base64("a")}, {"range_end", base64("d")}, {"start_revision", later}});

        model_etcd::listener to;
        to.on_line = [&](std::string line) { take(line, told[1]); };
        const std::uint64_t stream = both.model.open(0, std::move(to));
        both.model.listen(stream, creates);
        both.model.sync();
        call_request request(both.where, rpc::watch, creates, env->now() + 5s);
        coetcd::detail::open_result opened = co_await env->open(std::move(request));
        REQUIRE_FALSE(opened.ec);
        const auto catch_up = [&]() -> asio::awaitable<void> {
            while (told[0].size() < told[1].size()) {
                const coetcd::detail::reply line = co_await opened.opened->read();
                REQUIRE_FALSE(line.ec);
                take(line.body, told[0]);
            }
        };
        co_await catch_up();
        co_await change(2, 200);
        co_await catch_up();
        const std::string cancel = R"({"cancel_request":{"watch_id":"2"}})";
        both.model.listen(stream, cancel);
        (void)co_await opened.opened->write(cancel, env->now() + 5s);
        co_await catch_up();
        co_await change(3, 100);
        co_await catch_up();
        opened.opened->close();
    });
    CHECK(told[0].size() == told[1].size());
    CHECK(told[1].size() > 200);
    // A real one may tell two watches of one change in any order.
    for (std::int64_t id = -1; id != 10; ++id) {
        std::vector<json> of[2];
        for (std::size_t who : {0U, 1U}) {
            std::copy_if(told[who].begin(),
                         told[who].end(),
                         std::back_inserter(of[who]),
                         [&](const json& e) {
                             return e.at("watch_id").get<std::string>() == std::to_string(id);
                         });
        }
        INFO("watch " << id);
        REQUIRE(of[0].size() == of[1].size());
        for (std::size_t i = 0; i != of[0].size(); ++i) {
            REQUIRE(of[0][i] == of[1][i]);
        }
    }
}

TEST_CASE("The simulator's etcd knows its users as a real one does", "[conformance][auth]") {
    pair both;
    support::run_test([&]() -> asio::awaitable<void> {
        const asio::any_io_executor executor = co_await asio::this_coro::executor;
        comparison compare(both);
        co_await compare.begin(executor);
        using tokens = comparison::tokens;
        const tokens nobody;
        const tokens bad("no.token");
        const std::string right = R"({"name":"root","password":"secret"})";
        const std::string wrong = R"({"name":"root","password":"guess"})";
        const std::string unknown = R"({"name":"toor","password":"secret"})";
        const std::string put = R"({"key":"YQ==","value":"MQ=="})";
        const std::string get = R"({"key":"YQ=="})";
        (void)co_await compare.ask(rpc::authenticate, right, nobody);

        etcdctl(both.server, "user add root:secret");
        etcdctl(both.server, "user grant-role root root");
        etcdctl(both.server, "auth enable");
        both.model.require_user("root", "secret");
        (void)co_await compare.ask(rpc::authenticate, wrong, nobody);
        (void)co_await compare.ask(rpc::authenticate, unknown, nobody);
        tokens good = co_await compare.log_in(right);
        REQUIRE_FALSE(good.real.empty());
        REQUIRE_FALSE(good.model.empty());

        const std::string grant = R"({"TTL":"60","ID":"77"})";
        const coetcd::detail::reply granted =
            co_await compare.ask(rpc::lease_grant, grant, nobody, false);
        both.model.guards_leases = granted.status != 200;
        if (granted.status == 200) {
            const model_etcd::answer again = both.model.call(0, rpc::lease_grant, grant);
            CHECK(again.status == 200);
        }
        const std::vector<std::pair<rpc, std::string>> all{
            {rpc::put, put},
            {rpc::range, get},
            {rpc::txn, R"({"success":[{"request_put":)" + put + "}]}"},
            {rpc::txn, R"({"success":[{"request_range":)" + get + "}]}"},
            {rpc::delete_range, get},
            {rpc::lease_grant, R"({"TTL":"60","ID":"78"})"},
            {rpc::lease_keep_alive, R"({"ID":"78"})"},
            {rpc::lease_time_to_live, R"({"ID":"78"})"},
            {rpc::lease_leases, "{}"},
            {rpc::lease_revoke, R"({"ID":"78"})"},
            {rpc::lease_revoke, R"({"ID":"79"})"},
            {rpc::compact, R"({"revision":"2"})"},
        };
        const std::vector<tokens> senders{good, bad, nobody};
        for (const tokens& with : senders) {
            for (const auto& [what, body] : all) {
                (void)co_await compare.ask(what, body, with);
            }
            co_await compare.watch(R"({"create_request":{"key":"YQ==","watch_id":"1"}})", with);
        }
        // A token ends with its password.
        etcdctl(both.server, "--user root:secret user passwd --interactive=false root", "other");
        both.model.require_user("root", "other");
        both.model.expire_tokens();
        (void)co_await compare.ask(rpc::range, get, good);
        co_await compare.watch(R"({"create_request":{"key":"YQ==","watch_id":"1"}})", good);
        (void)co_await compare.ask(rpc::authenticate, right, nobody);
        good = co_await compare.log_in(R"({"name":"root","password":"other"})");
        (void)co_await compare.ask(rpc::range, get, good);
        CHECK(compare.failures > 15);
    });
}

TEST_CASE("The simulator's etcd without space refuses what a real one refuses", "[conformance]") {
    pair both({"--quota-backend-bytes=1000000"});
    support::run_test([&]() -> asio::awaitable<void> {
        const asio::any_io_executor executor = co_await asio::this_coro::executor;
        comparison compare(both);
        co_await compare.begin(executor);
        const comparison::tokens nobody;
        script before(1);
        for (int i = 0; i != 60; ++i) {
            const script::request next = before.next(both.model.revision);
            if (!has_ties(both.model) || next.body.find("sort_target") == std::string::npos) {
                (void)co_await compare.ask(next.what, next.body, nobody);
            }
        }
        // It raises the alarm, and is not stored itself.
        json huge{{"key", base64("a")}, {"value", base64(std::string(1'100'000, 'v'))}};
        both.model.no_space = true;
        (void)co_await compare.ask(rpc::put, huge.dump(), nobody);
        // The alarm takes effect a moment later.
        const std::string small = json{{"key", base64("z")}, {"value", base64("v")}}.dump();
        both.model.no_space = false;
        for (int i = 0; i != 1000; ++i) {
            const coetcd::detail::reply r = co_await compare.ask_real(rpc::put, small, nobody);
            if (r.status != 200) {
                break;
            }
            (void)both.model.call(0, rpc::put, small);
        }
        both.model.no_space = true;
        // An older etcd does not see what is put in a transaction within a transaction.
        const std::string inner =
            R"({"success":[{"request_txn":{"success":[{"request_put":)" + small + "}]}}]}";
        const coetcd::detail::reply put = co_await compare.ask_real(rpc::txn, inner, nobody);
        both.model.counts_inner_puts = put.status != 200;
        CHECK((both.model.call(0, rpc::txn, inner).status == put.status));
        script after(2);
        const int failed = compare.failures;
        for (int i = 0; i != 150; ++i) {
            const script::request next = after.next(both.model.revision);
            const std::string& body = next.body;
            if (!has_ties(both.model) || body.find("sort_target") == std::string::npos) {
                (void)co_await compare.ask(next.what, body, nobody);
            }
        }
        CHECK(compare.failures > failed + 50);
    });
}
