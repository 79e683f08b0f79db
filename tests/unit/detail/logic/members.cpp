// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/members.hpp>

#include <string>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd::detail;
using namespace coetcd::detail::logic;

namespace {

using strings = std::vector<std::string>;

wire::member member(strings urls, bool learner = false) {
    wire::member m;
    m.client_urls = std::move(urls);
    m.is_learner = learner;
    return m;
}

strings usable(const std::vector<wire::member>& members, const member_rules& rules) {
    strings out;
    for (const endpoint& e : usable_endpoints(members, rules)) {
        out.push_back(e.text());
    }
    return out;
}

} // namespace

TEST_CASE("members that serve requests are of use", "[logic][members]") {
    const std::vector<wire::member> members{
        member({"http://a:1", "http://b:2"}),
        member({"http://learner:1"}, true),
        member({}), // not started yet
        member({"unix:///tmp/etcd", "http://user:pass@c:3", "http://a:1"}),
    };
    CHECK(usable(members, member_rules()) == strings{"http://a:1", "http://b:2"});
    CHECK(usable({}, member_rules()).empty());
}

TEST_CASE("sec.limits: no more of a list is looked at than a cluster may have",
          "[logic][members][security]") {
    strings many;
    for (int i = 0; i != 100'000; ++i) {
        many.push_back("http://h" + std::to_string(i) + "a:1");
    }
    const strings some(many.begin(), many.begin() + most_member_urls);
    CHECK(usable({member(many)}, member_rules()) == some);
    CHECK(usable({member({"unix:///x"}), member(many)}, member_rules()).size() == 63);
    // Nor does one name count more than once, however it is spelled.
    strings spelled;
    for (unsigned i = 0; i != 64; ++i) {
        std::string name = "abcdef";
        for (unsigned k = 0; k != name.size(); ++k) {
            name[k] = (i >> k & 1) != 0 ? static_cast<char>(name[k] - 'a' + 'A') : name[k];
        }
        spelled.push_back("http://" + name + ":1");
    }
    CHECK(usable({member(spelled)}, member_rules()) == strings{"http://abcdef:1"});
}

TEST_CASE("only what can be spoken, and was named, is used", "[logic][members]") {
    const std::vector<wire::member> members{member({"http://a:1", "https://a:2"})};
    member_rules rules;
    rules.tls = true;
    CHECK(usable(members, rules) == strings{"http://a:1", "https://a:2"});
    rules.plain = false; // never back from https to http
    CHECK(usable(members, rules) == strings{"https://a:2"});
    rules.tls = false;
    CHECK(usable(members, rules).empty());
}

TEST_CASE("sec.token.plain_http: a password does not follow a member into the clear",
          "[logic][members][security]") {
    const std::vector<wire::member> members{
        member({"http://a:1", "http://127.0.0.1:2", "http://localhost:3", "http://[::1]:4"}),
        member({"http://127.evil.org:5", "https://a:6", "http://127.0.0.1.evil.org:7"})};
    member_rules rules;
    rules.tls = true;
    rules.secrets = true;
    CHECK(usable(members, rules) ==
          strings{"http://127.0.0.1:2", "http://localhost:3", "http://[::1]:4", "https://a:6"});
    rules.secrets_in_the_clear = true;
    CHECK(usable(members, rules).size() == 7);
}
