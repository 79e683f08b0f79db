// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/rpc.hpp>
#include <coetcd/detail/testing/json.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace coetcd::detail::testing {

/// The two dialects of JSON that gateways speak.
enum class dialect { v1, v2 };

/// An etcd cluster in memory: keys with their history, transactions, leases, watches, users, the
/// NOSPACE alarm, members and their leader; in the bytes of the JSON gateway. It does nothing by
/// itself: whoever owns it delivers requests to it, carries its answers, and lets its time pass.
///
/// All members share one store: what is replicated late is up to the network that carries the
/// messages, except for reads, see `stale_by`.
class etcd {
public:
    struct record {
        std::string value;
        std::int64_t create_revision = 0;
        std::int64_t mod_revision = 0;
        std::int64_t version = 0;
        lease_id lease = 0;
    };
    struct change {
        bool deleted = false;
        std::string key;
        std::int64_t revision = 0;
        record now;    ///< Unless deleted.
        record before; ///< Its version is 0 if there was none.
    };
    /// Why keys change.
    enum class cause { request, lease, operator_ };
    /// Why leases end.
    enum class lease_end { expired, revoked, by_operator };

    /// Is told what happens, as it happens.
    class witness {
    public:
        virtual void changed(const std::vector<change>&, cause) {}
        virtual void lease_ended(lease_id, lease_end) {}
        /// @param start_revision 0: none was asked for.
        virtual void
        watched(std::uint64_t /*stream*/, std::int64_t /*id*/, std::int64_t /*start_revision*/) {}

    protected:
        ~witness() = default;
    };

    using clock = std::function<std::chrono::nanoseconds()>;
    explicit etcd(clock now, int members = 1, dialect speaks = dialect::v1);

    // Requests.

    struct answer {
        answer() {}
        unsigned status = 200;
        std::string body;
        /// This is not all of it: it is to be asked again, soon, with what there is.
        bool wait = false;
        std::size_t served = 0; ///< So much of the request is answered. Of renewals only.
    };
    answer call(
        int at, rpc what, std::string_view body, const std::string& token = {}, answer so_far = {});

    /// Where the lines of a stream go to.
    struct listener {
        std::function<void(std::string line)> on_line;
        std::function<void()> on_end;
    };
    /// A watch stream. Its messages follow by `listen`.
    std::uint64_t open(int at, listener to, std::string token = {});
    /// @param messages One or more, one after the other.
    void listen(std::uint64_t stream, std::string_view messages);
    /// The client has closed it.
    void close(std::uint64_t stream);
    /// The member has had no leader for so long that it ends its streams, or it breaks them.
    void end_streams(int at, bool says_why = true);
    /// A failure, in its words.
    answer failure(rpc what, int code, std::string_view message) const;

    void speak(dialect how) { speaks_ = how; }

    // Time.

    /// The leader looks for leases that are over. etcd does so every 500 ms.
    void expire();
    /// Sends history to watches that began in the past. etcd does so every 100 ms.
    void sync();
    /// Tells how far it is, to those who want to know. etcd does so every 10 minutes.
    void tell_progress();
    bool has_unsynced() const { return unsynced_ != 0; }

    // The store.

    using store_map = std::map<std::string, record>;
    store_map keys;
    std::int64_t revision = 1;
    std::int64_t compacted = 0;
    std::uint64_t term = 2;
    /// Which cluster it is. Another one is told apart by it, and by nothing else.
    std::uint64_t cluster = 14841639068965178418u;
    /// All changes there were, those that were compacted included.
    const std::vector<change>& history() const { return history_; }

    /// The keys that begin with `prefix`.
    std::vector<std::string> under(const std::string& prefix) const;
    bool has_any(std::string_view prefix) const {
        const auto first = keys.lower_bound(std::string(prefix));
        return first != keys.end() && first->first.starts_with(prefix);
    }
    bool has_lease(lease_id id) const { return leases_.contains(id); }
    /// When it ends, unless it is renewed; nothing if there is none, or no leader: the next one
    /// gives it more time.
    std::optional<std::chrono::nanoseconds> end_of_lease(lease_id id) const {
        const auto found = leases_.find(id);
        return found != leases_.end() && leader_ >= 0 ? std::optional(found->second.ends)
                                                      : std::nullopt;
    }
    std::size_t leases() const { return leases_.size(); }
    std::vector<lease_id> lease_ids() const;
    std::size_t watches() const { return watches_.size(); }
    /// Of ranges that begin with that key.
    std::size_t watches_of(std::string_view key) const {
        return static_cast<std::size_t>(std::count_if(
            watches_.begin(), watches_.end(), [&](const watch& w) { return w.key == key; }));
    }
    std::size_t streams() const { return streams_.size(); }
    std::size_t watching_streams() const; ///< How many have a watch.

    // What an operator does.

    void write(const std::string& key, const std::string& value);
    void erase(const std::string& key);
    void revoke(lease_id lease);
    void compact(std::int64_t before);
    bool no_space = false; ///< Puts and grants are refused; what only deletes is not.
    bool corrupt = false;  ///< All that would change something is refused. Leases are renewed.
    /// Else a transaction without space may put in a transaction that it holds, as in 3.4.23.
    bool counts_inner_puts = true;
    /// Else leases need no token, though authentication is on, as before 3.4.42, 3.5.28 and 3.6.9:
    /// a bad one is refused only where something is to be stored.
    bool guards_leases = true;
    /// A range of keys only tells their leases, as before 3.7.
    bool tells_leases_of_keys = false;
    /// Turns authentication on.
    void require_user(std::string name, std::string password);
    void expire_tokens() { tokens_.clear(); }
    bool locked_out = false; ///< The user's password is another one now.

    /// Has the keys and the leases of another one, as if restored from its snapshot. What there was
    /// before is gone.
    void restore(const etcd& from);

    // The cluster.

    int members() const { return static_cast<int>(members_.size()); }
    int leader() const { return leader_; } ///< -1: there is none.
    /// Cuts a member off from the others, or joins it to them again. Clients still reach it.
    void cut(int member, bool off);
    bool is_cut(int member) const { return members_[index(member)].cut; }
    /// A member applies nothing any more, though it hears of it; or it catches up. Meanwhile its
    /// watches are told nothing, and new ones begin in the past; then they are told all, in order.
    void lag(int member, bool on);
    bool lags(int member) const { return members_[index(member)].lagging; }
    /// The leader is gone. Who was it answers renewals for a while, to no effect.
    void depose();
    /// Makes a member the leader: every lease has its full ttl again.
    void elect(int member);

    // What etcd should not do, and has done.

    bool tells = true;                 ///< Else events are lost.
    std::function<bool()> loses_event; ///< Asked for each message of events, if set.
    std::set<std::string> forbidden;   ///< Keys that must not be put.
    std::string forbidden_prefix;      ///< Of keys that must not be put; empty for none.
    std::int64_t stale_by = 0;         ///< Reads show the store so many revisions ago.
    witness* told = nullptr;

    std::chrono::seconds shortest_ttl{2};
    /// How many revisions of history etcd sends at a time: then it attends to others.
    std::size_t batch = 1000;
    static constexpr std::chrono::seconds election_timeout{1};
    static constexpr std::chrono::milliseconds expiry_interval{500};
    static constexpr std::chrono::milliseconds sync_interval{100};

private:
    using value = json::value;
    struct lease {
        std::chrono::seconds ttl;
        std::chrono::nanoseconds ends;
        std::uint64_t term; // in which it was granted
    };
    struct peer {
        bool cut = false;
        std::chrono::nanoseconds since{0};
        bool lagging = false;
        std::int64_t applied = 0;   // if it lags
        std::int64_t compacted = 0; // likewise
    };
    struct stream {
        int at;
        listener to;
        std::string token;
    };
    struct watch {
        std::uint64_t stream;
        int at;
        std::int64_t id;
        std::string key;
        std::string range_end;
        bool no_put;
        bool no_delete;
        bool prev_kv;
        bool wants_progress;
        bool synced;
        std::int64_t next; // the first revision that was not sent
    };
    struct refusal {
        int code;
        std::string message;
    };
    /// What one request changes.
    struct edit {
        std::int64_t at;
        std::vector<change> changes;
    };
    /// What comes of one request.
    struct serving {
        json_writer rest; ///< Of the answer, behind its header, which tells the revision.
        edit changes;
        std::int64_t shown = 0; ///< The revision that a read shows; 0: that after the changes.
    };

    std::size_t index(int m) const { return static_cast<std::size_t>(m); }
    /// How far a member is.
    std::int64_t applied(int m) const { return lags(m) ? members_[index(m)].applied : revision; }
    std::int64_t compacted_at(int m) const {
        return lags(m) ? members_[index(m)].compacted : compacted;
    }
    json_writer writer() const { return json_writer(speaks_ == dialect::v2); }
    /// @param at_revision 0: none.
    void header(json_writer& out, int of, std::int64_t at_revision) const;
    answer refuse(rpc what, const refusal& no, answer so_far) const;
    std::string stream_error(int code, std::string_view message) const;
    void check_token(rpc what, const std::string& token) const;

    void renew(int at, bool still_leads, std::string_view body, answer& so_far);
    void serve(int of, rpc what, value request, json_writer& out);
    /// One function for each kind of request.
    void answer_to(rpc what, value request, serving& s);
    void serve_range(value request, serving& s);
    void serve_put(value request, serving& s);
    void serve_delete_range(value request, serving& s);
    void serve_txn(value request, serving& s);
    void serve_compact(value request);
    void serve_lease_grant(value request, serving& s);
    void serve_lease_time_to_live(value request, serving& s);
    void serve_lease_leases(serving& s) const;
    void serve_authenticate(value request, serving& s);
    void serve_member_list(serving& s) const;
    void serve_status(serving& s) const;
    void range(value request,
               std::int64_t now,
               const std::vector<change>& pending,
               json_writer& out) const;
    void write_kv(json_writer& out, const std::string& key, const record& r, bool keys_only) const;
    void put(value request, edit& e, json_writer& out);
    std::int64_t erase_range(value request, edit& e, json_writer* out);
    static bool holds(value condition, const store_map& in);
    void check_shape(value txn, std::size_t most) const;
    std::set<std::string> check_overlaps(value ops, std::vector<value>& erased) const;
    static void check_put_shape(value request);
    void check_put(value request, bool in_txn) const;
    static void decide(value txn, const store_map& in, std::vector<bool>& taken);
    void check_branches(value txn,
                        const std::vector<bool>& taken,
                        std::size_t& at,
                        std::string_view& unreadable) const;
    void txn(value request,
             const std::vector<bool>& taken,
             std::size_t& at,
             edit& e,
             std::int64_t before,
             json_writer& out);
    static bool only_reads(value txn);
    bool puts(value txn) const;
    void apply(edit& e, cause why);
    bool end_lease(lease_id id, lease_end how);
    /// Of changes of one revision.
    void tell(const change* first, const change* last, std::optional<int> only_at = {});
    void send_events(const watch& w, const std::vector<const change*>& changes);
    void create_watch(std::uint64_t id, value request);
    store_map keys_at(std::int64_t then, const std::vector<change>& pending) const;

    clock now_;
    dialect speaks_;
    std::vector<peer> members_;
    int leader_ = 0;
    int deposed_ = -1;
    std::chrono::nanoseconds deposed_until_{0};
    std::map<lease_id, lease> leases_;
    lease_id last_lease_ = 7587000000000000000;
    std::map<std::uint64_t, stream> streams_;
    std::uint64_t last_stream_ = 0;
    std::vector<watch> watches_;
    std::size_t unsynced_ = 0;
    std::vector<change> history_;
    bool auth_ = false;
    std::string user_;
    std::string password_;
    std::set<std::string> tokens_;
    std::uint64_t last_token_ = 0;
};

} // namespace coetcd::detail::testing
