// SPDX-License-Identifier: BSL-1.0
#include "sim/shrink.hpp"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace sim {

namespace {

/// What is violated, without the numbers and the names of this history.
std::string kind_of(const std::string& failure) {
    std::string kind = failure.substr(0, failure.find(':'));
    std::erase_if(kind, [](unsigned char c) { return std::isdigit(c) != 0; });
    return kind;
}

class shrinker {
public:
    explicit shrinker(plan p)
        : plan_(std::move(p))
        , story_(run(plan_))
        , all_(story_)
        , sought_(kind_of(story_.failure)) {}

    const outcome& all() const { return all_; }
    const outcome& story() const { return story_; }
    const cuts& without() const { return plan_.without; }

    void shrink() {
        if (sought_.empty()) {
            return;
        }
        for (bool less = true; less;) {
            less = take_rounds();
            less = take(&cuts::users, story_.users) || less;
            less = take(&cuts::faults, story_.strikes.size()) || less;
        }
    }

private:
    static constexpr int most_runs = 2000;

    bool goes_on_without(cuts more) {
        plan next = plan_;
        next.without = std::move(more);
        if (++runs_ > most_runs) {
            return false;
        }
        outcome o = run(next);
        if (kind_of(o.failure) != sought_) {
            return false;
        }
        plan_ = std::move(next);
        story_ = std::move(o);
        return true;
    }

    bool take_rounds() {
        bool less = false;
        for (int most = std::min(story_.rounds, plan_.without.rounds); most > 1;) {
            most /= 2;
            cuts more = plan_.without;
            more.rounds = most;
            if (!goes_on_without(std::move(more))) {
                break;
            }
            less = true;
        }
        return less;
    }

    /// Takes away many at once, then fewer and fewer; the last ones first.
    bool take(std::set<std::size_t> cuts::*which, std::size_t there_are) {
        bool less = false;
        for (std::size_t at_once = std::max<std::size_t>(there_are, 1);; at_once /= 2) {
            for (std::size_t end = there_are; end != 0;) {
                const std::size_t begin = end > at_once ? end - at_once : 0;
                cuts more = plan_.without;
                const std::size_t before = (more.*which).size();
                for (std::size_t i = begin; i != end; ++i) {
                    (more.*which).insert(i);
                }
                end = begin;
                if ((more.*which).size() != before) {
                    less = goes_on_without(std::move(more)) || less;
                }
            }
            if (at_once == 1) {
                return less;
            }
        }
    }

    plan plan_;
    outcome story_; // of the least that is known
    const outcome all_;
    const std::string sought_;
    int runs_ = 0;
};

std::size_t left(const std::set<std::size_t>& without, std::size_t there_are) {
    std::size_t n = 0;
    for (std::size_t i = 0; i != there_are; ++i) {
        n += without.contains(i) ? 0U : 1U;
    }
    return n;
}

} // namespace

bool shrink(plan p, std::ostream& to) {
    p.notes = 100'000;
    const std::uint64_t seed = p.seed;
    shrinker s(std::move(p));
    s.shrink();
    const outcome& story = s.story();
    if (story.failure.empty()) {
        to << "seed " << seed << " violates nothing\n";
        return false;
    }
    std::map<std::string, int> faults;
    for (std::size_t i = 0; i != story.strikes.size(); ++i) {
        if (!s.without().faults.contains(i)) {
            ++faults[std::string(name(story.strikes[i]))];
        }
    }
    for (const std::string& line : story.notes) {
        to << "    " << line << '\n';
    }
    to << "VIOLATION, seed " << seed << ": " << story.failure << "\nIt needs "
       << left(s.without().users, story.users) << " of " << s.all().users << " users, and "
       << left(s.without().faults, story.strikes.size()) << " of " << s.all().strikes.size()
       << " faults:";
    for (const auto& [what, times] : faults) {
        to << ' ' << what << ' ' << times;
    }
    to << '\n';
    return true;
}

} // namespace sim
