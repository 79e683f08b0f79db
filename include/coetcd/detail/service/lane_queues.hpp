// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/overdue.hpp>
#include <coetcd/detail/service/lane_part.hpp>

#include <algorithm>
#include <cstddef>
#include <list>
#include <memory>
#include <optional>

namespace coetcd::detail {

/// The transactions that wait for a request to take them along: one queue for each rank, and one of
/// those that must not share a request, each in the order of submission.
class lane_queues {
public:
    /// A part moves from list to list with its node, so none is lost on its way.
    using parts = std::list<std::shared_ptr<lane_part>>;

    parts pressing;
    parts patient;
    parts alone;             ///< Those that must not share a request, of either rank.
    bool go_abreast = false; ///< Several of the pressing ones do so; found out as they come, and as
                             ///< they leave.

    std::size_t in_company() const { return pressing.size() + patient.size(); }
    /// How many wait, including those that were withdrawn.
    std::size_t size() const { return in_company() + alone.size(); }
    parts& of(const lane_part& part) {
        if (part.company_ == 1) {
            return alone;
        }
        return part.order == lane_part::rank::pressing ? pressing : patient;
    }
    /// When the one that has waited for the longest was submitted; nothing if nobody waits.
    std::optional<time_point> waits_since() const {
        const lane_part* oldest = nullptr;
        for (const parts* each : {&alone, &pressing, &patient}) {
            const auto first = std::find_if(
                each->begin(), each->end(), [](const auto& part) { return !part->over; });
            if (first != each->end() && (!oldest || (*first)->number_ < oldest->number_)) {
                oldest = first->get();
            }
        }
        return oldest ? std::optional(oldest->asked_) : std::nullopt;
    }

    void add(std::shared_ptr<lane_part> part) {
        if (part->abreast) {
            const auto before = newest_abreast_.lock();
            go_abreast = go_abreast || (before && !before->in_flight && !before->over);
            newest_abreast_ = part;
        }
        of(*part).push_back(std::move(part));
    }
    /// Puts a part back where it was: ahead of those that came later.
    void put_back(parts& from, parts::iterator part) {
        parts& q = of(**part);
        const auto later = std::find_if(q.begin(), q.end(), [&](const auto& other) { //
            return other->number_ > (*part)->number_;
        });
        q.splice(later, from, part);
    }
    /// In the order in which they are to be carried out.
    static void order(parts& request) {
        request.sort([](const auto& a, const auto& b) { return a->turn < b->turn; });
    }
    /// Takes those out that were withdrawn, up to the first of each queue that was not.
    void drop_withdrawn() {
        for (parts* each : {&alone, &pressing, &patient}) {
            while (!each->empty() && each->front()->over) {
                each->pop_front();
            }
        }
    }
    parts take_all() noexcept {
        parts all;
        for (parts* each : {&alone, &pressing, &patient}) {
            all.splice(all.end(), *each);
        }
        return all;
    }

    /// A request has left without those that still wait.
    void pass_over() {
        for (parts* each : {&pressing, &patient}) {
            if (!each->empty()) {
                ++each->front()->passed_over_;
            }
        }
    }
    /// Whether the oldest patient one has given way for long enough.
    bool patient_goes_first(time_point now) const {
        const auto oldest_of = [&](const parts& q) {
            const lane_part& first = *q.front();
            return logic::oldest{first.number_, first.passed_over_, now - first.asked_};
        };
        return !patient.empty() && !pressing.empty() &&
               logic::goes_first(oldest_of(patient), oldest_of(pressing));
    }

private:
    std::weak_ptr<lane_part> newest_abreast_;
};

} // namespace coetcd::detail
