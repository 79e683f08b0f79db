// SPDX-License-Identifier: BSL-1.0
#include "sim/sidelines.hpp"

#include "sim/jobs.hpp"
#include "sim/queues.hpp"

namespace sim {

sidelines::sidelines(stage& s, std::uint64_t seed, bool may)
    : working_(seed, 658, may)
    , mirroring_(seed, 2146, may)
    , queueing_(seed, 6757, may)
    , passing_(seed, 8422, may)
    , staying_(seed, 8693, may)
    , latching_(seed, 10171, may)
    , holding_(seed, 35681, may)
    , ranking_(seed, 48243, may) {
    if (working_.on) {
        s.w.operator_prefixes.emplace_back(claim_prefix);
    }
    if (queueing_.on) {
        s.w.operator_prefixes.emplace_back(mail_line_prefix);
        s.judge.queues.only_looks = queueing_.luck.one_in(3);
    }
    if (ranking_.on) {
        s.w.operator_prefixes.emplace_back(parcels_line_prefix);
        s.judge.parcels.only_looks = ranking_.luck.one_in(3);
    }
}

void sidelines::start(actor& of, const std::function<bool()>& takes_part) {
    if (working_.on && takes_part()) {
        of.start_working(working_.luck.next());
    }
    if (mirroring_.on && mirroring_.luck.one_in(2) && takes_part()) {
        of.start_mirroring(mirroring_.luck.next());
    }
    if (queueing_.on && takes_part()) {
        of.start_queueing(queueing_.luck.next());
    }
    if (passing_.on && takes_part()) {
        of.start_passing(passing_.luck.next());
    }
    if (staying_.on && takes_part()) {
        of.start_staying(staying_.luck.next());
    }
    if (latching_.on && takes_part()) {
        of.start_latching(latching_.luck.next());
    }
    if (holding_.on && takes_part()) {
        of.start_holding(holding_.luck.next());
    }
    if (ranking_.on && takes_part()) {
        of.start_ranking(ranking_.luck.next());
    }
}

} // namespace sim
