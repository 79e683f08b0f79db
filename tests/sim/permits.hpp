// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/service/session.hpp>

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/common.hpp"
#include "sim/world.hpp"

namespace sim {

inline constexpr std::string_view semaphore_prefix = "sem/";

inline std::string semaphore_name(int number) {
    return std::string(semaphore_prefix) + std::to_string(number);
}

/// A key of a semaphore: `<name>/wait/<id>`, or `<name>/hold/<bit>/<id>`.
struct permit_key {
    std::string name;
    std::string id;
    bool held = false; ///< Else its owner waits.
    std::int64_t weight = 0;

    /// @returns Nothing if it is no place in a queue, and no part of a permit.
    static std::optional<permit_key> parse(std::string_view key);
};

/// Permits that their user counts on, from the grant until he gives them back.
struct permit_hold {
    std::string name;
    std::string key;
    std::int64_t token;
    std::int64_t weight;
    lease_id lease;
    std::shared_ptr<coetcd::detail::session_impl> session;
    std::function<bool()> owns; ///< What the library says.
    bool sound_clock;

    bool valid() const {
        return session->reason() == coetcd::session_end::none &&
               session->certain_until() > session->world.now() && owns();
    }
};

/// What must be true of semaphores.
class permit_rules {
public:
    explicit permit_rules(world& w)
        : world_(w) {}

    /// Of one revision.
    void changed(const std::vector<etcd::change>& changes, etcd::cause why);
    /// Its lease was ended before its time.
    void revoked(lease_id id) { revoked_.insert(id); }

    std::list<permit_hold>::iterator granted(permit_hold h);
    void gives_back(std::list<permit_hold>::iterator h) { holds_.erase(h); }

    /// The keys that are there of attempts.
    std::vector<std::string> left_behind() const;

    std::uint64_t grants = 0;

private:
    bool excused(const permit_hold& h) const;
    /// The greatest limit that there was from a revision on.
    std::int64_t limit_since(const std::string& name, std::int64_t revision) const;

    world& world_;
    std::map<std::string, std::map<std::string, std::int64_t>> waiting_; // by name and id
    std::map<std::string, std::map<std::int64_t, std::int64_t>> limits_; // by name and revision
    std::set<std::pair<std::string, std::int64_t>> put_;                 // lives of permits' keys
    std::set<std::pair<std::string, std::int64_t>> robbed_;              // permits, by their owner
    std::set<std::pair<std::string, std::int64_t>> tokens_;
    std::set<lease_id> revoked_;
    std::list<permit_hold> holds_;
};

} // namespace sim
