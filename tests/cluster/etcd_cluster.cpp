// SPDX-License-Identifier: BSL-1.0
#include "support/etcd_cluster.hpp"

#include "support/catch.hpp"

using support::etcd_cluster;

TEST_CASE("Members of a cluster are killed, paused and started again", "[support]") {
    etcd_cluster etcd;
    const auto first = etcd.leader();
    etcd.kill(first);
    CHECK(!etcd.healthy(first));
    const auto second = etcd.leader_after(first);
    etcd.start(first);
    etcd.wait_healthy();

    etcd.pause(second);
    CHECK(!etcd.healthy(second));
    const auto third = etcd.leader_after(second);
    etcd.resume(second);
    etcd.wait_healthy();

    etcd.stop(third);
    CHECK(!etcd.healthy(third));
    CHECK(etcd.leader_after(third) != third);
    etcd.start(third);
    etcd.wait_healthy();
}

TEST_CASE("A member that is cut from its peers is no part of a quorum", "[support]") {
    const auto cut = GENERATE(&etcd_cluster::isolate, &etcd_cluster::isolate_answers);
    etcd_cluster etcd;
    const auto leader = etcd.leader();
    CHECK(etcd.dropped(leader) == 0);
    (etcd.*cut)(leader);
    (void)etcd.leader_after(leader);
    CHECK(!etcd.healthy(leader));
    const auto during = etcd.dropped(leader);
    CHECK(during > 0);
    etcd.heal();
    etcd.wait_healthy();
    CHECK(etcd.dropped(leader) >= during);
}

TEST_CASE("A learner joins a cluster, and leaves it", "[support]") {
    etcd_cluster etcd;
    const auto learner = etcd.add_learner();
    CHECK(learner == 3);
    CHECK(etcd.urls().size() == 4);
    CHECK(etcd.healthy(learner));
    CHECK(etcd.leader() != learner);
    etcd.remove(learner);
    CHECK(!etcd.healthy(learner));
    etcd.wait_healthy();
}
