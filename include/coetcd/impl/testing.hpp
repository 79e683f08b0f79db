// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/config.hpp>
#include <coetcd/detail/testing/etcd_src.hpp>
#include <coetcd/detail/testing/faults.hpp>
#include <coetcd/detail/testing/network.hpp>
#include <coetcd/detail/testing/process_run.hpp>
#include <coetcd/detail/testing/random_world.hpp>
#include <coetcd/detail/testing/world_run.hpp>
#include <coetcd/testing.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace coetcd::detail::testing {

/// In the order of `fault`.
inline constexpr std::array<double coetcd::testing::fault_options::*, fault_names.size()>
    fault_members{
        &coetcd::testing::fault_options::connection_refused,
        &coetcd::testing::fault_options::connection_broken,
        &coetcd::testing::fault_options::request_lost,
        &coetcd::testing::fault_options::request_late,
        &coetcd::testing::fault_options::request_repeated,
        &coetcd::testing::fault_options::answer_lost,
        &coetcd::testing::fault_options::delayed,
        &coetcd::testing::fault_options::stream_dropped,
        &coetcd::testing::fault_options::stream_silent,
        &coetcd::testing::fault_options::client_stalled,
        &coetcd::testing::fault_options::client_cut,
        &coetcd::testing::fault_options::lease_ended,
        &coetcd::testing::fault_options::leader_changed,
        &coetcd::testing::fault_options::member_stopped,
        &coetcd::testing::fault_options::compacted,
    };

COETCD_DECL fault_rates rates_of(const coetcd::testing::fault_options& options) {
    constexpr std::chrono::hours day(24);
    if (options.longest <= nanoseconds(0) || options.longest > day) {
        throw std::invalid_argument(
            "testing::fault_options: longest must be positive, and no more than a day");
    }
    fault_rates rates;
    rates.longest = options.longest;
    for (std::size_t i = 0; i != fault_members.size(); ++i) {
        const double chance = options.*fault_members[i];
        if (!(chance >= 0 && chance <= 1)) { // NaN, too
            throw std::invalid_argument("testing::fault_options: " + std::string(fault_names[i]) +
                                        " must be from 0 to 1");
        }
        rates.ppm[i] = static_cast<std::uint32_t>(std::ceil(chance * 1'000'000));
    }
    return rates;
}

} // namespace coetcd::detail::testing

namespace coetcd::testing {

class cluster::impl final : public detail::testing::random_world {
public:
    using random_world::random_world;
};

COETCD_DECL fault_options fault_options::none() {
    fault_options calm;
    for (const auto member : detail::testing::fault_members) {
        calm.*member = 0;
    }
    return calm;
}

COETCD_DECL cluster::cluster(cluster_options options)
    : impl_(std::make_unique<impl>(options.members, options.seed, options.round_trip)) {}

COETCD_DECL cluster::~cluster() = default;

COETCD_DECL client cluster::make_client(client_options options) {
    return impl_->make_client(std::move(options));
}

COETCD_DECL std::chrono::nanoseconds cluster::now() const {
    return impl_->now();
}

COETCD_DECL void cluster::pass(std::chrono::nanoseconds time) {
    impl_->go_on(time);
}

COETCD_DECL void cluster::pass_until(const std::function<bool()>& done) {
    impl_->go_on_until(done);
}

COETCD_DECL boost::asio::awaitable<void> cluster::sleep(const client& in,
                                                        std::chrono::nanoseconds time) {
    return impl_->sleep(impl_->process_of(in), time);
}

COETCD_DECL void cluster::lose_lease(const session& of) {
    impl_->store.revoke(of.lease());
}

COETCD_DECL void cluster::cut(const client& one) {
    impl_->process_of(one).cut_off(detail::testing::never);
}

COETCD_DECL void cluster::join(const client& one) {
    impl_->process_of(one).cut_off(impl_->now());
}

COETCD_DECL void cluster::stall(const client& one, std::chrono::nanoseconds time) {
    impl_->process_of(one).pause(impl_->now() + time);
}

COETCD_DECL void cluster::kill(const client& one) {
    impl_->kill(impl_->process_of(one));
}

COETCD_DECL void cluster::lose_answer(const client& of) {
    impl_->lose_answer(impl_->process_of(of));
}

COETCD_DECL void cluster::change_leader() {
    impl_->change_leader();
}

COETCD_DECL void cluster::stop_member(int member) {
    impl_->stop(member);
}

COETCD_DECL void cluster::start_member(int member) {
    impl_->start(member);
}

COETCD_DECL void cluster::compact() {
    impl_->store.compact(impl_->store.revision);
}

COETCD_DECL void cluster::begin_faults(fault_options options) {
    impl_->begin_faults(detail::testing::rates_of(options));
}

COETCD_DECL void cluster::end_faults() {
    impl_->end_faults();
}

COETCD_DECL const std::vector<std::string>& cluster::faults() const {
    return impl_->faults();
}

COETCD_DECL std::vector<std::string> cluster::keys(const std::string& prefix) const {
    return impl_->store.under(prefix);
}

COETCD_DECL std::size_t cluster::leases() const {
    return impl_->store.leases();
}

COETCD_DECL std::uint64_t cluster::requests(const client& of) const {
    return impl_->process_of(of).calls;
}

} // namespace coetcd::testing
