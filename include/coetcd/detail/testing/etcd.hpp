// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/rpc.hpp>
#include <coetcd/detail/testing/etcd_leases.hpp>
#include <coetcd/detail/testing/etcd_members.hpp>
#include <coetcd/detail/testing/etcd_store.hpp>
#include <coetcd/detail/testing/etcd_txn.hpp>
#include <coetcd/detail/testing/etcd_watches.hpp>
#include <coetcd/detail/testing/json.hpp>
#include <coetcd/kv.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace coetcd::detail::testing {

/// An etcd cluster in memory: keys with their history, transactions, leases, watches, users, the
/// NOSPACE alarm, members and their leader. It speaks the bytes of the JSON gateway. It does
/// nothing by itself: its owner delivers requests to it, carries its answers, and lets its time
/// pass.
///
/// All members share one store: the network that carries the messages decides what is replicated
/// late, except for reads: see `stale_by`.
class etcd : public etcd_store, public etcd_members {
public:
    /// Why keys change.
    enum class cause { request, lease, operator_ };
    /// Why leases end.
    enum class lease_end { expired, revoked, by_operator };

    /// Receives what happens, as it happens.
    class witness {
    public:
        virtual void changed(const std::vector<change>&, cause) {}
        virtual void lease_ended(lease_id, lease_end) {}
        /// @param start_revision 0 if none was asked for.
        /// @param key The first one that it is of.
        virtual void watched(std::uint64_t /*stream*/,
                             std::int64_t /*id*/,
                             std::int64_t /*start_revision*/,
                             const std::string& /*key*/) {}

    protected:
        ~witness() = default;
    };

    using clock = std::function<std::chrono::nanoseconds()>;
    explicit etcd(clock now, int members = 1, dialect speaks = dialect::v1);
    etcd(const etcd&) = delete;
    etcd& operator=(const etcd&) = delete;

    // Requests.

    struct answer {
        answer() {}
        unsigned status = 200;
        std::string body;
        /// Whether this is not the whole answer: ask again soon, with what there is.
        bool wait = false;
        std::size_t served = 0; ///< How much of the request is answered. Only for renewals.
    };
    answer call(
        int at, rpc what, std::string_view body, const std::string& token = {}, answer so_far = {});

    using listener = etcd_watches::listener;
    /// Opens a watch stream. Its messages follow by `listen`.
    std::uint64_t open(int at, listener to, std::string token = {}) {
        return watches_.open(at, std::move(to), std::move(token));
    }
    /// @param messages One or more, one after the other.
    void listen(std::uint64_t stream, std::string_view messages) {
        watches_.listen(stream, messages);
    }
    /// Call it when the client has closed the stream.
    void close(std::uint64_t stream) { watches_.close(stream); }
    /// A member ends its streams, since it has had no leader for too long, or breaks them.
    void end_streams(int at, bool says_why = true);
    /// A failure, in etcd's words.
    answer failure(rpc what, int code, std::string_view message) const;

    void speak(dialect how) { speaks_ = how; }

    // Time.

    /// The leader looks for leases that are over. etcd does so every 500 ms.
    void expire();
    /// Sends history to watches that began in the past. etcd does so every 100 ms.
    void sync() { watches_.sync(batch); }
    /// Tells its progress to the watches that asked for it. etcd does so every 10 minutes.
    void tell_progress() { watches_.tell_progress(); }
    bool has_unsynced() const { return watches_.has_unsynced(); }

    // What there is, beside the keys.

    bool has_lease(lease_id id) const { return leases_.find(id) != nullptr; }
    /// When it ends, unless it is renewed; nothing if there is no such lease, or no leader: the
    /// next leader gives it more time.
    std::optional<std::chrono::nanoseconds> end_of_lease(lease_id id) const {
        const etcd_leases::lease* const found = leases_.find(id);
        return found && leader() >= 0 ? std::optional(found->ends) : std::nullopt;
    }
    std::size_t leases() const { return leases_.size(); }
    std::vector<lease_id> lease_ids() const { return leases_.ids(); }
    std::size_t watches() const { return watches_.watches(); }
    /// The number of watches of ranges that begin with that key.
    std::size_t watches_of(std::string_view key) const { return watches_.watches_of(key); }
    std::size_t streams() const { return watches_.streams(); }
    /// How many streams have a watch.
    std::size_t watching_streams() const { return watches_.watching_streams(); }

    // What an operator does.

    void write(const std::string& key, const std::string& value);
    void erase(const std::string& key);
    void revoke(lease_id lease);
    void compact(std::int64_t before);
    bool no_space = false; ///< Puts and grants are refused; what only deletes is not.
    bool corrupt = false;  ///< Whatever would change something is refused. Leases are renewed.
    /// If false, a transaction without space may put in a nested transaction, as in 3.4.23.
    bool counts_inner_puts = true;
    /// If false, leases need no token although authentication is on, as before 3.4.42, 3.5.28 and
    /// 3.6.9: a bad token is refused only where something is to be stored.
    bool guards_leases = true;
    /// Turns authentication on.
    void require_user(std::string name, std::string password);
    void expire_tokens() { tokens_.clear(); }
    bool locked_out = false; ///< The user's password was changed.
    /// The user has no rights to keys with this prefix any more. Its leases are renewed all the
    /// same, as before 3.4.42 and 3.5.28.
    std::optional<std::string> denied;

    /// Takes the keys and the leases of another etcd, as if restored from its snapshot. What there
    /// was before is gone.
    void restore(const etcd& from);

    // The cluster.

    /// Cuts a member off from the others, or joins it to them again. Clients still reach it.
    void cut(int member, bool off);
    /// Makes a member lag, or catch up. While it lags it receives entries but applies none; its
    /// watches are told nothing, and new ones begin in the past. Then they are told everything, in
    /// order.
    void lag(int member, bool on);
    /// The leader is gone. The former leader answers renewals for a while, to no effect.
    void depose();
    /// Makes a member the leader: every lease has its full ttl again.
    void elect(int member);

    // What etcd should not do, and has done.

    bool tells = true;                 ///< If false, events are lost.
    std::function<bool()> loses_event; ///< Asked for each message of events, if set.
    /// Asked for each watch that begins, with its first key that is there, if set: whether it is
    /// told an end of that which is none.
    std::function<bool(const std::string&)> invents_end;
    std::set<std::string> forbidden; ///< Keys that must not be put.
    std::string forbidden_prefix;    ///< The prefix of keys that must not be put; empty for none.
    std::int64_t stale_by = 0;       ///< How many revisions old the store is that reads show.
    witness* told = nullptr;

    std::chrono::seconds shortest_ttl{2};
    /// How many revisions of history etcd sends at a time before it attends to others.
    std::size_t batch = 1000;
    static constexpr std::chrono::milliseconds expiry_interval{500};
    static constexpr std::chrono::milliseconds sync_interval{100};

private:
    using refusal = etcd_refusal;
    /// The outcome of one request.
    struct serving {
        json_writer rest; ///< The answer after its header, which tells the revision.
        edit changes;
        std::int64_t shown = 0; ///< The revision that a read shows; 0: that after the changes.
    };

    json_writer writer() const { return json_writer(speaks_ == dialect::v2); }
    answer refuse(rpc what, const refusal& no, answer so_far) const;
    std::string stream_error(int code, std::string_view message) const;
    void check_token(rpc what, const std::string& token) const;
    void check_rights(json::value range) const;
    void check_rights(rpc what, json::value request) const;

    void renew(int at, bool still_leads, std::string_view body, answer& so_far);
    void serve(int of, rpc what, json::value request, json_writer& out);
    /// One function for each kind of request.
    void answer_to(rpc what, json::value request, serving& s);
    void serve_range(json::value request, serving& s);
    void serve_put(json::value request, serving& s);
    void serve_delete_range(json::value request, serving& s);
    void serve_txn(json::value request, serving& s);
    void serve_compact(json::value request);
    void serve_lease_grant(json::value request, serving& s);
    void serve_lease_time_to_live(json::value request, serving& s);
    void serve_lease_leases(serving& s) const;
    void serve_authenticate(json::value request, serving& s);
    void serve_member_list(serving& s) const;
    void serve_status(serving& s) const;
    void check_put(json::value request, bool in_txn) const;
    void apply(const edit& e, cause why);
    bool end_lease(lease_id id, lease_end how);

    clock now_;
    dialect speaks_;
    etcd_leases leases_;
    etcd_watches watches_;
    bool auth_ = false;
    std::string user_;
    std::string password_;
    std::set<std::string> tokens_;
    std::uint64_t last_token_ = 0;
};

} // namespace coetcd::detail::testing
