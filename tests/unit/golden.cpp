// SPDX-License-Identifier: BSL-1.0
// What real etcds of several versions answered, as tests/support/record_golden recorded it: all of
// them mean the same.
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/wire/decode.hpp>
#include <coetcd/detail/wire/line_splitter.hpp>
#include <coetcd/detail/wire/status.hpp>

#include <nlohmann/json.hpp>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail;
using namespace coetcd::detail::wire;
using namespace std::chrono_literals;
using support::contains;

namespace {

struct answer {
    unsigned status;
    std::string body;
};

answer load(const std::filesystem::path& file) {
    std::ifstream stream(file);
    const auto json = nlohmann::json::parse(stream);
    return {json.at("status").get<unsigned>(), json.at("body").get<std::string>()};
}

/// A call that succeeded.
template<class Response>
Response good(const answer& a) {
    REQUIRE(a.status == 200);
    auto response = decode<Response>(a.body);
    CHECK(response.header.cluster_id != 0);
    CHECK(response.header.member_id != 0);
    CHECK(response.header.revision > 0);
    CHECK(response.header.raft_term > 0);
    return response;
}

/// A call that failed.
status bad(const answer& a) {
    REQUIRE(a.status != 200);
    auto failure = decode_status(a.status, a.body);
    CHECK(!failure.message.empty());
    return failure;
}

std::vector<std::string> lines(const answer& a) {
    line_splitter splitter(a.body.size());
    splitter.feed(a.body);
    std::vector<std::string> all;
    for (std::string line; splitter.finish(line);) {
        all.push_back(line);
    }
    return all;
}

/// The messages of a stream, all of which are answers.
template<class Response>
std::vector<Response> messages(const answer& a) {
    REQUIRE(a.status == 200);
    std::vector<Response> all;
    for (const std::string& line : lines(a)) {
        all.push_back(std::get<Response>(decode_stream<Response>(line)));
    }
    return all;
}

lease_keep_alive_response kept_alive(const answer& a) {
    const auto all = messages<lease_keep_alive_response>(a);
    REQUIRE(all.size() == 1);
    return all[0];
}

bool is(const logic::verdict& v, logic::effect left, bool transient, bool blame) {
    return v.left == left && v.transient == transient && v.blame == blame;
}

/// Final: etcd will not do this, now or elsewhere, and has changed nothing.
void refused(const answer& a, server_errc code, const std::string& text) {
    const status s = bad(a);
    CHECK(s.code == code);
    CHECK_THAT(s.message, contains(text));
    CHECK(is(logic::judge(s), logic::effect::none, false, false));
}

/// This member cannot, and has changed nothing; another one can.
void elsewhere(const answer& a, const std::string& text) {
    const status s = bad(a);
    CHECK_THAT(s.message, contains(text));
    CHECK(is(logic::judge(s), logic::effect::none, true, true));
}

void watch_refused(const answer& a, const std::string& reason) {
    const auto all = messages<watch_response>(a);
    REQUIRE(all.size() == 1);
    CHECK(all[0].created);
    CHECK(all[0].canceled);
    CHECK(all[0].watch_id == -1);
    CHECK(all[0].compact_revision == 0);
    CHECK_THAT(all[0].cancel_reason, contains(reason));
}

void check_is_k1(const key_value& kv, const std::string& value) {
    CHECK(kv.key == "k1");
    CHECK(kv.value == value);
    CHECK(kv.create_revision == 2);
    CHECK(kv.mod_revision == 3);
    CHECK(kv.version == 2);
    CHECK(kv.lease == 0);
}

void watch_events(const answer& a) {
    const auto all = messages<watch_response>(a);
    REQUIRE(all.size() == 5);
    for (const watch_response& m : all) {
        CHECK(m.watch_id == 7);
        CHECK(m.created == (&m == &all.front()));
        CHECK(m.canceled == (&m == &all.back()));
        CHECK(m.compact_revision == 0);
        CHECK(m.events.size() == (m.created || m.canceled ? 0 : 1));
    }
    const std::vector<event> events{all[1].events[0], all[2].events[0], all[3].events[0]};
    const auto first = all[0].header.revision + 1;
    for (std::size_t i = 0; i < events.size(); ++i) {
        CHECK(events[i].kv.key == "w");
        CHECK(events[i].kv.mod_revision == first + static_cast<std::int64_t>(i));
        CHECK(events[i].type == (i == 2 ? event_type::erase : event_type::put));
        CHECK(events[i].prev_kv.has_value() == (i != 0));
    }
    CHECK(events[0].kv.value == "1");
    CHECK(events[0].kv.create_revision == first);
    CHECK(events[1].kv.version == 2);
    CHECK(events[1].prev_kv->value == "1");
    CHECK(events[2].prev_kv->value == "2");
}

using check = std::function<void(const answer&)>;

check refusal(server_errc code, std::string text) {
    return [=](const answer& a) { refused(a, code, text); };
}

const std::map<std::string, check> checks{
    // Keys
    {"put", [](const answer& a) { CHECK(!good<put_response>(a).prev_kv); }},
    {"put_prev_kv",
     [](const answer& a) {
         const auto r = good<put_response>(a);
         REQUIRE(r.prev_kv);
         CHECK(r.prev_kv->key == "k1");
         CHECK(r.prev_kv->value == "one");
         CHECK(r.prev_kv->mod_revision + 1 == r.header.revision);
     }},
    {"put_dead_lease", refusal(server_errc::not_found, "requested lease not found")},
    {"put_empty_key", refusal(server_errc::invalid_argument, "key is not provided")},
    {"range_hit",
     [](const answer& a) {
         const auto r = good<range_response>(a);
         CHECK(r.count == 1);
         CHECK(!r.more);
         REQUIRE(r.kvs.size() == 1);
         check_is_k1(r.kvs[0], "two");
     }},
    {"range_miss",
     [](const answer& a) {
         const auto r = good<range_response>(a);
         CHECK(r.count == 0);
         CHECK(r.kvs.empty());
     }},
    {"range_keys_only",
     [](const answer& a) {
         const auto r = good<range_response>(a);
         CHECK(r.count == 2);
         REQUIRE(r.kvs.size() == 2);
         check_is_k1(r.kvs[0], "");
         CHECK(r.kvs[1].key == "k2");
     }},
    {"range_count_only",
     [](const answer& a) {
         const auto r = good<range_response>(a);
         CHECK(r.count == 2);
         CHECK(r.kvs.empty());
     }},
    {"range_limit",
     [](const answer& a) {
         const auto r = good<range_response>(a);
         CHECK(r.count == 2);
         CHECK(r.kvs.size() == 1);
         CHECK(r.more);
     }},
    {"range_leased",
     [](const answer& a) { CHECK(good<range_response>(a).kvs.at(0).lease == 4711); }},
    {"range_compacted", refusal(server_errc::out_of_range, "has been compacted")},
    {"range_future", refusal(server_errc::out_of_range, "is a future revision")},
    {"delete_range",
     [](const answer& a) {
         const auto r = good<erase_response>(a);
         CHECK(r.deleted == 2);
         REQUIRE(r.prev_kvs.size() == 2);
         check_is_k1(r.prev_kvs[0], "two");
         CHECK(r.prev_kvs[1].key == "k2");
         CHECK(r.prev_kvs[1].value.empty());
     }},
    {"delete_range_miss", [](const answer& a) { CHECK(good<erase_response>(a).deleted == 0); }},
    {"txn_succeeded",
     [](const answer& a) {
         const auto r = good<txn_response>(a);
         CHECK(r.succeeded);
         REQUIRE(r.responses.size() == 3);
         CHECK(r.responses[0].put().header.revision == r.header.revision);
         check_is_k1(r.responses[1].range().kvs.at(0), "two");
         CHECK(r.responses[2].erase().deleted == 1);
         CHECK(r.responses[2].erase().prev_kvs.at(0).key == "t2");
     }},
    {"txn_failed",
     [](const answer& a) {
         const auto r = good<txn_response>(a);
         CHECK(!r.succeeded);
         REQUIRE(r.responses.size() == 1);
         REQUIRE(r.responses[0].put().prev_kv);
         CHECK(r.responses[0].put().prev_kv->value == "1");
     }},
    {"txn_nested",
     [](const answer& a) {
         const auto r = good<txn_response>(a);
         CHECK(r.succeeded);
         const txn_response& inner = r.responses.at(0).nested();
         CHECK(inner.succeeded);
         CHECK(inner.responses.at(0).range().kvs.at(0).value == "2");
     }},
    {"txn_duplicate_key", refusal(server_errc::invalid_argument, "duplicate key given")},
    {"compaction", [](const answer& a) { (void)good<compaction_response>(a); }},
    {"compaction_again", refusal(server_errc::out_of_range, "has been compacted")},
    {"unknown_path", [](const answer& a) { CHECK(bad(a).code == server_errc::unimplemented); }},

    // Leases
    {"lease_grant",
     [](const answer& a) {
         const auto r = good<lease_grant_response>(a);
         CHECK(r.id == 4711);
         CHECK(r.ttl == 60s);
     }},
    {"lease_grant_raised", [](const answer& a) { CHECK(good<lease_grant_response>(a).ttl == 2s); }},
    {"lease_grant_duplicate", refusal(server_errc::failed_precondition, "lease already exists")},
    {"lease_keep_alive",
     [](const answer& a) {
         CHECK(kept_alive(a).id == 4711);
         CHECK(kept_alive(a).ttl == 60s);
     }},
    {"lease_keep_alive_gone",
     [](const answer& a) {
         CHECK(kept_alive(a).id == 4712);
         CHECK(kept_alive(a).ttl == 0s);
     }},
    {"lease_time_to_live",
     [](const answer& a) {
         const auto r = good<lease_time_to_live_response>(a);
         CHECK(r.id == 4711);
         CHECK(r.ttl > 50s);
         CHECK(r.ttl <= 60s);
         CHECK(r.granted_ttl == 60s);
         CHECK(r.keys == std::vector<std::string>{"leased"});
     }},
    {"lease_time_to_live_gone",
     [](const answer& a) {
         const auto r = good<lease_time_to_live_response>(a);
         CHECK(r.ttl == -1s);
         CHECK(r.granted_ttl == 0s);
         CHECK(r.keys.empty());
     }},
    {"lease_leases",
     [](const answer& a) {
         const auto r = good<lease_leases_response>(a);
         CHECK(std::set<lease_id>(r.leases.begin(), r.leases.end()) ==
               std::set<lease_id>{4711, 4713});
     }},
    {"lease_revoke", [](const answer& a) { (void)good<lease_revoke_response>(a); }},
    {"lease_revoke_gone", refusal(server_errc::not_found, "requested lease not found")},

    // Watches
    {"watch_events", watch_events},
    {"watch_progress",
     [](const answer& a) {
         const auto all = messages<watch_response>(a);
         REQUIRE(all.size() == 2);
         CHECK(all[1].watch_id == -1);
         CHECK(!all[1].created);
         CHECK(!all[1].canceled);
         CHECK(all[1].events.empty());
         CHECK(all[1].header.revision == all[0].header.revision);
     }},
    {"watch_compacted",
     [](const answer& a) {
         const auto all = messages<watch_response>(a);
         REQUIRE(all.size() == 2);
         CHECK(all[0].created);
         CHECK(!all[0].canceled);
         CHECK(all[1].watch_id == 7);
         CHECK(all[1].canceled);
         CHECK(all[1].compact_revision == all[0].header.revision);
     }},

    // Logins. What a token or a list of members holds has no decoder.
    {"authenticate",
     [](const answer& a) {
         REQUIRE(a.status == 200);
         CHECK(!read_text(parse(a.body).root(), "token").empty());
     }},
    {"authenticate_not_enabled",
     refusal(server_errc::failed_precondition, "authentication is not enabled")},
    {"authenticate_wrong_password",
     refusal(server_errc::invalid_argument, "invalid user ID or password")},
    {"authenticate_unknown_user",
     refusal(server_errc::invalid_argument, "invalid user ID or password")},
    {"range_no_token", refusal(server_errc::invalid_argument, "user name is empty")},
    {"range_bad_token", refusal(server_errc::unauthenticated, "invalid auth token")},
    {"range_denied", refusal(server_errc::permission_denied, "permission denied")},
    {"put_denied", refusal(server_errc::permission_denied, "permission denied")},
    {"watch_no_token", [](const answer& a) { watch_refused(a, "user name is empty"); }},
    {"watch_bad_token", [](const answer& a) { watch_refused(a, "invalid auth token"); }},
    {"watch_denied", [](const answer& a) { watch_refused(a, "permission denied"); }},

    // Members
    {"member_list",
     [](const answer& a) {
         REQUIRE(a.status == 200);
         std::set<std::string> urls;
         int learners = 0;
         const json body = parse(a.body);
         for (const auto& member : read_array(body.root(), "members")) {
             CHECK(read_uint64(member, "ID") != 0);
             urls.insert(to_text(*read_array(member, "clientURLs").begin(), "clientURLs"));
             learners += read_bool(member, "isLearner") ? 1 : 0;
         }
         CHECK(urls.size() == 2);
         CHECK(learners == 1);
     }},
    {"status",
     [](const answer& a) {
         REQUIRE(a.status == 200);
         const auto s = decode<coetcd::member_status>(a.body);
         CHECK(s.is_leader());
         CHECK_FALSE(s.is_learner);
         CHECK(s.db_size > 0);
         CHECK(s.raft_index > 0);
         CHECK(s.version.starts_with("3."));
         CHECK(s.errors.empty());
     }},
    {"learner_status",
     [](const answer& a) {
         REQUIRE(a.status == 200);
         const auto s = decode<coetcd::member_status>(a.body);
         CHECK(s.is_learner);
         CHECK_FALSE(s.is_leader());
     }},
    {"learner_range", [](const answer& a) { elsewhere(a, "not supported for learner"); }},
    {"learner_put", [](const answer& a) { elsewhere(a, "not supported for learner"); }},
    {"learner_keep_alive", [](const answer& a) { elsewhere(a, "not supported for learner"); }},
    {"learner_watch", [](const answer& a) { elsewhere(a, "not supported for learner"); }},
    {"no_leader_range", [](const answer& a) { elsewhere(a, "no leader"); }},
    {"no_leader_put", [](const answer& a) { elsewhere(a, "no leader"); }},
    {"no_leader_status",
     [](const answer& a) {
         REQUIRE(a.status == 200);
         const auto s = decode<coetcd::member_status>(a.body);
         CHECK(s.leader == 0);
         CHECK_FALSE(s.is_leader());
         REQUIRE(s.errors.size() == 1);
         CHECK(s.errors.front().find("no leader") != std::string::npos);
     }},
    {"no_leader_keep_alive", [](const answer& a) { elsewhere(a, "no leader"); }},
    {"no_leader_watch", [](const answer& a) { elsewhere(a, "no leader"); }},
    {"leader_lost_watch",
     [](const answer& a) {
         REQUIRE(a.status == 200);
         const auto all = lines(a);
         REQUIRE(all.size() == 2);
         CHECK(std::get<watch_response>(decode_stream<watch_response>(all[0])).created);
         const auto failure = std::get<status>(decode_stream<watch_response>(all[1]));
         CHECK(failure.code == server_errc::unavailable);
         CHECK_THAT(failure.message, contains("no leader"));
     }},
};

} // namespace

TEST_CASE("What etcds of all versions answer means the same", "[wire][golden]") {
    std::set<std::string> versions;
    for (const auto& directory : std::filesystem::directory_iterator(COETCD_GOLDEN_DIRECTORY)) {
        const auto version = directory.path().filename().string();
        versions.insert(version.substr(0, version.rfind('.')));
        std::set<std::string> recorded;
        for (const auto& file : std::filesystem::directory_iterator(directory)) {
            const auto name = file.path().stem().string();
            INFO("etcd " << version << ", " << name);
            recorded.insert(name);
            const auto found = checks.find(name);
            REQUIRE(found != checks.end());
            found->second(load(file));
        }
        INFO("etcd " << version);
        CHECK(recorded.size() == checks.size());
    }
    CHECK(versions == std::set<std::string>{"3.4", "3.5", "3.6", "3.7"});
}
