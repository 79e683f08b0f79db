// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/kv.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/common.hpp"
#include "sim/world.hpp"

namespace sim {

/// What must be true of a value that many write, each of them something else, and of what its
/// followers are told.
class value_rules {
public:
    explicit value_rules(world& w)
        : world_(w) {}

    // What clients do.

    /// @param once Not by a client that has no session: the network may make a copy.
    void writes(const std::string& what, bool once) { writes_[what].once = once; }
    /// It is said to be written then.
    /// @param expected The revision in whose place it is; negative: of any.
    void written(const std::string& what, std::int64_t at, std::int64_t expected);
    /// It was not, and will not be.
    void refused(const std::string& what);

    using state = std::optional<coetcd::key_value>;
    struct following {
        nanoseconds since{0};
        std::int64_t revision = 0; ///< Of what was told last.
        std::optional<state> last{};
    };
    /// A follower of it, as long as this exists.
    class entry {
    public:
        explicit entry(value_rules& of)
            : of_(of)
            , place_(of.followers_.insert(of.followers_.end(), following{of.world_.now(), 0, {}})) {
        }
        ~entry() { of_.followers_.erase(place_); }
        entry(const entry&) = delete;
        entry& operator=(const entry&) = delete;
        following& operator*() const { return *place_; }

    private:
        value_rules& of_;
        const std::list<following>::iterator place_;
    };
    void told(following& f, const state& now);

    // What etcd does.

    /// Of one revision.
    /// @param has_returned Whether a lease had ended before: with it went what makes late copies
    ///   void.
    void changed(const std::vector<etcd::change>& changes,
                 const std::function<bool(lease_id)>& has_returned);

    /// Whether a follower was not told the last state yet.
    bool owes_states() const;
    void look_for_untold(nanoseconds healed_at, nanoseconds bound) const;

    std::uint64_t told_states = 0;

private:
    void put(const etcd::change& c);

    struct write {
        std::vector<std::int64_t> at{}; ///< Empty: not yet.
        std::int64_t before = 0;
        bool once = true;
        bool refused = false;
    };
    bool is_untold(const following& f) const;

    world& world_;
    std::map<std::string, write> writes_;
    state now_;
    nanoseconds since_{0};
    std::list<following> followers_;
    bool returned_ = false;
};

} // namespace sim
