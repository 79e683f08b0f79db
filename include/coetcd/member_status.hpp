// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/kv.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace coetcd {

/// What a member of the cluster reports about itself.
struct member_status {
    response_header header;          ///< Its `member_id` is the member's.
    std::string version;             ///< Such as "3.6.5".
    std::int64_t db_size = 0;        ///< Bytes of its database, including free space in it.
    std::uint64_t leader = 0;        ///< The id of the leader; 0: it knows of none.
    std::uint64_t raft_index = 0;    ///< The last entry of its log that was committed.
    bool is_learner = false;         ///< It neither votes nor serves most requests.
    std::vector<std::string> errors; ///< Alarms, and that there is no leader, in etcd's words.

    bool is_leader() const { return leader != 0 && leader == header.member_id; }
};

} // namespace coetcd
