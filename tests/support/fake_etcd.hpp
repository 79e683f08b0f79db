// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/kv.hpp>

#include <nlohmann/json.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "support/scripted_env.hpp"

namespace support {

/// An etcd in memory, behind a `scripted_env`: keys, transactions, leases and watches, in the JSON
/// of the gateway. It has one member and no failures of its own: those are the env's.
class fake_etcd {
public:
    /// Serves `world` from now on. Must live until that is idle.
    explicit fake_etcd(std::shared_ptr<scripted_env> world);

    struct record {
        std::string value;
        std::int64_t create_revision = 0;
        std::int64_t mod_revision = 0;
        std::int64_t version = 0;
        coetcd::lease_id lease = 0;
    };
    std::map<std::string, record> keys;
    std::int64_t revision = 1;
    std::int64_t compacted = 0;

    /// The keys that begin with `prefix`.
    std::vector<std::string> under(const std::string& prefix) const;
    void write(const std::string& key, const std::string& value);
    void erase(const std::string& key);
    void revoke(coetcd::lease_id lease);
    std::size_t leases() const { return leases_.size(); }
    std::size_t watches() const { return watches_.size(); }

    bool renews = true;              ///< Else renewals are not answered.
    bool tells = true;               ///< Else events are lost.
    bool no_space = false;           ///< Puts are refused; what only deletes is not.
    std::set<std::string> forbidden; ///< Keys that must not be put.

    // Of watches.
    /// What a stream with messages in both directions meets on its way.
    enum class way {
        direct,
        buffered, ///< A proxy that waits for the end of the request.
        refused,  ///< A proxy that wants to know the length of the request.
    };
    way duplex = way::direct;
    std::size_t piece = 0; ///< Events in a message, to those who want pieces; 0 for all.
    std::size_t batch = 1; ///< Revisions in a message that tells of history.
    /// Tells how far it is, to those who want to know.
    void tell_progress();
    /// The streams that have a watch.
    std::size_t streams() const;

private:
    using json = nlohmann::json;
    struct lease {
        std::chrono::seconds ttl;
        time_point ends;
    };
    struct watch {
        std::shared_ptr<scripted_env::server_stream> stream;
        std::int64_t id;
        std::string key;
        std::string range_end;
        bool no_put;
        bool no_delete;
        bool wants_progress;
        bool wants_pieces;
    };
    struct change {
        bool deleted;
        std::string key;
        std::int64_t revision;
        record now;
    };
    struct refusal {
        int code;
        std::string message;
    };

    void serve(const coetcd::detail::call_request& request, coetcd::detail::reply& reply);
    void listen(const std::shared_ptr<scripted_env::server_stream>& from, const std::string& lines);
    json header() const;

    json range(const json& request) const;
    json txn(const json& request, std::int64_t at, bool& changed);
    bool holds(const json& condition) const;
    void check_branch(const json& ops) const;
    void put(const json& request, std::int64_t at);
    std::int64_t erase_range(const json& request, std::int64_t at);
    void expire();
    void end_lease(coetcd::lease_id id);
    void tell(const std::vector<change>& changes);
    void tell(const watch& w, const std::vector<change>& changes);
    void push(const watch& w, nlohmann::json message);

    std::shared_ptr<scripted_env> world_;
    std::map<coetcd::lease_id, lease> leases_;
    std::vector<watch> watches_;
    std::vector<change> history_;
    std::vector<change> pending_; // of the request that is being served
};

} // namespace support
