// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/leader.hpp>

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/common.hpp"
#include "sim/world.hpp"

namespace sim {

/// Who has led each election, with what value; what its observers are told; and what was
/// proclaimed. Values are numbers that grow with each call.
class leader_rules {
public:
    explicit leader_rules(world& w)
        : world_(w) {}

    /// Something has changed in a queue.
    void changed(const std::string& name, const etcd::change& c, etcd::cause why);

    /// proclaim() says that it has put a value.
    void has_proclaimed(const std::string& key, std::int64_t term, const std::string& value);

    /// An observer of an election.
    struct observing {
        std::string name;
        nanoseconds since{0};
        std::optional<std::size_t> at; ///< The last state that it was told, of those that were.
        std::optional<std::optional<coetcd::leader>> last; ///< What it was told last.
    };
    std::list<observing>::iterator observes(std::string name);
    void observes_no_more(std::list<observing>::iterator o) { observers_.erase(o); }
    void told(observing& o, const std::optional<coetcd::leader>& l);

    /// Whether an observer was not told the last state yet.
    bool owes_states() const;
    void look_for_untold(nanoseconds healed_at, nanoseconds bound);

    std::uint64_t told_states = 0;
    std::uint64_t proclaimed = 0;

private:
    struct state {
        std::optional<coetcd::leader> who;
        nanoseconds since{0};
    };
    std::vector<state>& states_of(const std::string& name);
    bool is_untold(const observing& o) const;

    world& world_;
    std::map<std::string, std::vector<state>> states_;
    std::list<observing> observers_;
    /// The values of each life of a key, as they were put.
    std::map<std::pair<std::string, std::int64_t>, std::vector<std::uint64_t>> values_;
};

} // namespace sim
