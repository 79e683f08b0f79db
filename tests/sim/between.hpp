// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "sim/common.hpp"

namespace sim {

/// What a proxy, a page for signing in, or a member without its gateway answers in etcd's place.
struct foreign_answer {
    bool drawn;        ///< Whether the simulator's histories have it.
    bool now_and_then; ///< To a single request, too; else only for a while.
    bool passes_on;    ///< The request may have reached etcd all the same.
    unsigned status;   ///< 0: it sends so slowly that it never ends.
    std::string_view body;
};

inline constexpr std::array foreign_answers = {
    foreign_answer{true, true, true, 200, "<html><body>Please sign in.</body></html>"},
    foreign_answer{true, true, true, 200, ""},
    foreign_answer{true, true, false, 302, "<a href=\"/login\">Found</a>.\n"},
    foreign_answer{true, true, false, 401, "Unauthorized\n"},
    foreign_answer{true, true, false, 403, "<html><body>Forbidden</body></html>"},
    foreign_answer{true, true, false, 404, "404 page not found\n"}, // also: no gateway
    foreign_answer{true, false, false, 404, R"({"code":5,"message":"Not Found","details":[]})"},
    foreign_answer{true, true, false, 429, "Too Many Requests"},
    foreign_answer{true, false, false, 501, R"({"code":12,"message":"Method Not Allowed"})"},
    foreign_answer{true, true, true, 502, "<html><body>Bad Gateway</body></html>"},
    foreign_answer{true, true, true, 503, "<html><body>Service Unavailable</body></html>"},
    foreign_answer{true, true, true, 504, "upstream request timeout"},
    foreign_answer{true, true, true, 0, ""},
};

/// One of those that are drawn; null if none is.
/// @param lasts It is what a member is hidden behind, for a while.
inline const foreign_answer* draw_foreign_answer(chance& c, bool lasts) {
    std::vector<const foreign_answer*> drawn;
    for (const foreign_answer& a : foreign_answers) {
        if (a.drawn && (lasts || a.now_and_then)) {
            drawn.push_back(&a);
        }
    }
    return drawn.empty() ? nullptr : drawn[c.below(drawn.size())];
}

} // namespace sim
