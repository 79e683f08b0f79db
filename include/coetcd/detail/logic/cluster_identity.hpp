// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/endpoint.hpp>
#include <coetcd/detail/logic/retry.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace coetcd::detail::logic {

/// A cluster's id as etcd's logs have it.
inline std::string cluster_name(std::uint64_t id) {
    char digits[16];
    const auto end = std::to_chars(digits, digits + sizeof digits, id, 16);
    return {digits, end.ptr};
}

/// Which cluster a client belongs to: that of the first answer. Every answer of etcd names its
/// cluster, but for errors.
///
/// What another cluster says is none of ours: locks of two clusters exclude nobody. But a cluster
/// may have been replaced. It has if every endpoint that was named has spoken for one and the same
/// other since the last one spoke for ours, and that is a while ago. One that cannot be reached has
/// not agreed: it may be all that can be seen of ours.
template<class TimePoint>
class cluster_identity {
public:
    explicit cluster_identity(const std::vector<endpoint>& named) {
        for (const endpoint& e : named) {
            voices_.push_back({e, 0, false});
        }
    }

    /// 0: nobody has answered yet.
    std::uint64_t ours() const { return ours_; }

    enum class speaker {
        ours,     ///< The answer counts.
        other,    ///< It does not.
        successor ///< It does not, but the next ones do: that cluster is ours from now on.
    };
    /// An endpoint has answered.
    /// @param cluster The id in the header.
    speaker heard(const endpoint& from, std::uint64_t cluster, TimePoint now) {
        if (ours_ == 0) {
            ours_ = cluster;
        }
        if (cluster == ours_) {
            if (others_) {
                end_agreement();
                note(from, 0);
            }
            return speaker::ours;
        }
        if (!agreement_ || agreement_->on != cluster) {
            end_agreement();
            agreement_.emplace(agreement{cluster, now, 0});
        }
        ++agreement_->answers;
        note(from, cluster);
        const bool all =
            std::all_of(voices_.begin(), voices_.end(), [](const voice& v) { return v.agrees; });
        if (!all || agreement_->answers < enough || now - agreement_->since < settled) {
            others_ = true;
            return speaker::other;
        }
        ours_ = cluster;
        end_agreement();
        for (voice& v : voices_) {
            v.said = 0;
        }
        others_ = false;
        return speaker::successor;
    }

    /// The other cluster for which an endpoint that was named spoke last; 0 if it did not. Its
    /// errors, which name none, are of that one, too.
    std::uint64_t strayed_to(const endpoint& where) const {
        const auto found = std::find_if(
            voices_.begin(), voices_.end(), [&](const voice& v) { return v.where == where; });
        return found == voices_.end() ? 0 : found->said;
    }

    /// What is told of an answer of another cluster.
    /// @param before `ours`, before it was heard.
    static std::string text(std::uint64_t cluster, std::uint64_t before) {
        return "it leads to cluster " + cluster_name(cluster) + ", and this client is one of " +
               cluster_name(before);
    }

private:
    static constexpr int enough = 3; // answers
    static constexpr std::chrono::seconds settled{1};

    struct voice {
        endpoint where;
        std::uint64_t said; // the other cluster that it last spoke for; 0: none
        bool agrees;        // it has since the agreement began
    };
    /// On another cluster, since when nobody has spoken for ours.
    struct agreement {
        std::uint64_t on;
        TimePoint since;
        int answers;
    };

    void end_agreement() {
        agreement_.reset();
        for (voice& v : voices_) {
            v.agrees = false;
        }
    }
    void note(const endpoint& from, std::uint64_t other) {
        for (voice& v : voices_) {
            if (v.where == from) {
                v.said = other;
                v.agrees = other != 0;
            }
        }
        others_ =
            std::any_of(voices_.begin(), voices_.end(), [](const voice& v) { return v.said != 0; });
    }

    std::vector<voice> voices_; // of those that were named
    std::uint64_t ours_ = 0;
    bool others_ = false; // some have last spoken for another cluster, or have just done so
    std::optional<agreement> agreement_;
};

/// Judges an answer of another cluster. That one has done what it was asked for: it is not asked
/// for a second time where that would matter.
inline verdict judge_other_cluster() {
    return elsewhere(effect::settled);
}

} // namespace coetcd::detail::logic
