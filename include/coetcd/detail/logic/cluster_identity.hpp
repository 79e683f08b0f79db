// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/endpoint.hpp>
#include <coetcd/detail/logic/retry.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
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

/// The cluster that a client belongs to: that of the first answer. Every answer of etcd except
/// errors names its cluster.
///
/// Answers of another cluster do not count: locks of two clusters do not exclude each other. But a
/// cluster may have been replaced. It has been replaced if, since an endpoint last spoke for ours,
/// every named endpoint has spoken for one and the same other cluster, over a while. An endpoint
/// that cannot be reached has not agreed: it may be all that is left of ours.
template<class TimePoint>
class cluster_identity {
public:
    explicit cluster_identity(const std::vector<endpoint>& named) { name(named); }

    /// Replaces the named endpoints. None of them has said anything yet.
    void name(const std::vector<endpoint>& named) {
        agreement_.reset();
        others_ = false;
        voices_.clear();
        for (const endpoint& e : named) {
            voices_.push_back({e, 0, false});
        }
        named_ = voices_.size();
    }

    /// 0: nobody has answered yet.
    std::uint64_t ours() const { return ours_; }

    enum class speaker {
        ours,     ///< The answer counts.
        other,    ///< The answer does not count.
        successor ///< The answer does not count, but later ones do: that cluster is now ours.
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
        const auto named_end = voices_.begin() + static_cast<std::ptrdiff_t>(named_);
        const bool all =
            std::all_of(voices_.begin(), named_end, [](const voice& v) { return v.agrees; });
        if (!all || agreement_->answers < enough || now - agreement_->since < settled) {
            others_ = true;
            return speaker::other;
        }
        ours_ = cluster;
        end_agreement();
        forget_learned();
        for (voice& v : voices_) {
            v.said = 0;
        }
        others_ = false;
        return speaker::successor;
    }

    /// The other cluster that an endpoint last spoke for; 0 if none. Errors of the endpoint, which
    /// name no cluster, are taken to come from the same one.
    std::uint64_t strayed_to(const endpoint& where) const {
        const auto found = std::find_if(
            voices_.begin(), voices_.end(), [&](const voice& v) { return v.where == where; });
        return found == voices_.end() ? 0 : found->said;
    }

    /// The text about an answer of another cluster.
    /// @param before `ours`, before that answer was heard.
    static std::string text(std::uint64_t cluster, std::uint64_t before) {
        return "it leads to cluster " + cluster_name(cluster) + ", and this client is one of " +
               cluster_name(before);
    }

private:
    static constexpr int enough = 3; // answers
    static constexpr std::chrono::seconds settled{1};
    static constexpr std::size_t most_voices = 64; // beside those that were named

    struct voice {
        endpoint where;
        std::uint64_t said; // the other cluster that it last spoke for; 0: none
        bool agrees;        // it has spoken for the other cluster since the agreement began
    };
    /// An agreement on another cluster. Nobody has spoken for ours since it began.
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
        bool is_known = false;
        for (voice& v : voices_) {
            if (v.where == from) {
                v.said = other;
                v.agrees = other != 0;
                is_known = true;
            }
        }
        if (!is_known && other != 0) {
            if (voices_.size() >= most_voices + named_) {
                forget_learned();
            }
            voices_.push_back({from, other, true});
        }
        others_ =
            std::any_of(voices_.begin(), voices_.end(), [](const voice& v) { return v.said != 0; });
    }

    void forget_learned() {
        voices_.erase(voices_.begin() + static_cast<std::ptrdiff_t>(named_), voices_.end());
    }

    std::vector<voice> voices_; // of the named endpoints, and then of those that were learned
    std::size_t named_ = 0;
    std::uint64_t ours_ = 0;
    bool others_ = false; // an endpoint last spoke for another cluster, or has just done so
    std::optional<agreement> agreement_;
};

/// Judges an answer of another cluster. That cluster has done what it was asked: a request that
/// must not be made twice is not made again.
inline verdict judge_other_cluster() {
    return elsewhere(effect::settled);
}

} // namespace coetcd::detail::logic
