// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/config.hpp>
#include <coetcd/detail/testing/cluster.hpp>
#include <coetcd/detail/testing/etcd_requests.hpp>
#include <coetcd/detail/testing/etcd_store.hpp>
#include <coetcd/detail/testing/etcd_txn.hpp>
#include <coetcd/detail/testing/etcd_watches.hpp>
#include <coetcd/detail/testing/network.hpp>
#include <coetcd/detail/testing/process_run.hpp>
#include <coetcd/detail/testing/world_run.hpp>
#include <coetcd/testing.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace coetcd::testing {

class cluster::impl final : public detail::testing::cluster_world {
public:
    using cluster_world::cluster_world;
};

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
