// SPDX-License-Identifier: BSL-1.0
#include <coetcd/session_options.hpp>

#include <set>
#include <string>

#include "support/catch.hpp"

using coetcd::session_end;
using coetcd::session_state;

TEST_CASE("the state of a session, and its end, have names as labels", "[session]") {
    const auto name = [](auto e) { return std::string(to_string(e)); };
    CHECK(name(session_state::active) == "active");
    CHECK(name(session_state::suspect) == "suspect");
    CHECK(name(session_state::lost) == "lost");
    CHECK(name(session_end::none) == "none");
    CHECK(name(session_end::expired) == "expired");
    CHECK(name(session_end::deadline) == "deadline");
    CHECK(name(session_end::closed) == "closed");
    CHECK(name(session_end::orphaned) == "orphaned");
    CHECK(name(session_end::cleanup_failed) == "cleanup_failed");
    CHECK(name(session_end::cluster_replaced) == "cluster_replaced");
    CHECK(name(static_cast<session_state>(99)) == "unknown");
    CHECK(name(static_cast<session_end>(99)) == "unknown");
}

TEST_CASE("the end of a session is described for people", "[session]") {
    std::set<std::string> texts;
    for (const session_end reason : {session_end::none,
                                     session_end::expired,
                                     session_end::deadline,
                                     session_end::closed,
                                     session_end::orphaned,
                                     session_end::cleanup_failed,
                                     session_end::cluster_replaced}) {
        const std::string text = describe(reason);
        CHECK(text.find(' ') != std::string::npos);
        CHECK(texts.insert(text).second);
    }
}
