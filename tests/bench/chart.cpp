// SPDX-License-Identifier: BSL-1.0
#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "bench/report.hpp"

namespace bench {
namespace {

struct look {
    const char* subject;
    const char* title;
    const char* colour;
};

const std::vector<look> looks{
    {"coetcd", "coetcd", "#2563eb"},
    {"go", "Go client", "#0e9f8e"},
    {"redis", "Redis, polling", "#d97706"},
    {"raw", "the bare requests", "#9ca3af"},
};

constexpr int width = 860;
constexpr int column = 420; // from one panel to the next
constexpr int bar_height = 14;
constexpr int line = 18;
constexpr int bar_from = 130; // of a panel
constexpr int bar_length = 200;

/// A number as people read it: 12,345, or 21.5.
std::string readable(double value) {
    if (value < 100) {
        std::ostringstream out;
        out << std::fixed << std::setprecision(value < 10 ? 1 : 0) << value;
        return out.str();
    }
    const std::string digits = std::to_string(std::llround(value));
    std::string grouped;
    for (std::size_t i = 0; i < digits.size(); ++i) {
        if (i != 0 && (digits.size() - i) % 3 == 0) {
            grouped += ',';
        }
        grouped += digits[i];
    }
    return grouped;
}

void text(std::ostream& out, int x, int y, const std::string& words, const char* style) {
    out << "<text x=\"" << x << "\" y=\"" << y << "\" class=\"" << style << "\">" << words
        << "</text>\n";
}

/// Draws the bars of one case.
/// @returns The height of it.
int draw_case(std::ostream& out, const results& r, const std::string& id, int x, int y) {
    std::vector<std::pair<look, const row*>> bars;
    double longest = 0;
    for (const look& l : looks) {
        if (const row* found = r.find(id, l.subject)) {
            bars.emplace_back(l, found);
            // Redis, which promises much less, would make all others small.
            if (std::string(l.subject) != "redis") {
                longest = std::max(longest, found->median_of("rate"));
            }
        }
    }
    if (bars.empty() || longest <= 0) {
        return 0;
    }
    text(out, x, y + bar_height, bars.front().second->what.title, "case");
    int at = y + line;
    for (const auto& [l, found] : bars) {
        const double rate = found->median_of("rate");
        const bool fits = rate <= longest;
        const int length =
            fits ? std::max(1, static_cast<int>(bar_length * rate / longest)) : bar_length + 10;
        text(out, x + bar_from - 8, at + bar_height - 3, l.title, "who");
        out << "<rect x=\"" << x + bar_from << "\" y=\"" << at << "\" width=\"" << length
            << "\" height=\"" << bar_height << "\" rx=\"2\" fill=\"" << l.colour << "\"/>\n";
        text(out,
             x + bar_from + length + 6,
             at + bar_height - 3,
             (fits ? "" : "&#187; ") + readable(rate),
             "number");
        at += line;
    }
    return at - y + line / 2;
}

int draw_panel(std::ostream& out,
               const results& r,
               const std::string& title,
               const std::vector<std::string>& ids,
               int x) {
    int y = 58;
    text(out, x, y - 12, title, "panel");
    for (const std::string& id : ids) {
        y += draw_case(out, r, id, x, y);
    }
    return y;
}

} // namespace

std::string chart(const results& r) {
    std::ostringstream bars;
    const std::vector<std::string> own_names{
        "uncontended-1", "uncontended-8", "uncontended-64", "uncontended-512", "one-name-32"};
    const std::vector<std::string> shared{"hand-over-2", "hand-over-8", "hand-over-32"};
    const int left = draw_panel(bars, r, "lock + unlock a second, by coroutines", own_names, 20);
    const int right = draw_panel(bars, r, "hand-overs a second, by processes", shared, 20 + column);
    const int height = std::max(left, right) + 10;
    std::ostringstream out;
    out << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " << width << ' ' << height
        << "\" width=\"" << width << "\" height=\"" << height << "\">\n"
        << "<style>text{font-family:sans-serif;font-size:12px;fill:#374151}"
           ".head{font-size:15px;font-weight:bold}.panel{font-size:13px;font-weight:bold}"
           ".case{font-weight:bold}.who{text-anchor:end}</style>\n"
        << "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
    text(out, 20, 24, "etcd " + r.version + ", medians of one run", "head");
    out << bars.str() << "</svg>\n";
    return out.str();
}

} // namespace bench
