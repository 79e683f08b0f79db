// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/error.hpp>
#include <coetcd/lease.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace coetcd {

enum class session_end : int;

// What an observer receives. Texts are valid during the call only. None of them holds a value, a
// password, a key, or what etcd gives for a login; names of locks and endpoints appear as they are,
// names without the prefix of `client::in_namespace`.

/// An attempt of a request begins. One `request_report` with the same `id` follows.
struct request_begin_report {
    std::string_view rpc;      ///< As in `request_report`.
    std::string_view endpoint; ///< As in `request_report`.
    unsigned attempt;          ///< As in `request_report`.
    std::uint64_t id;          ///< Of this attempt, in this process; never 0.
};

/// Headers that an observer adds to one request, such as `traceparent`. A proxy sees them as they
/// are; etcd sees those whose names begin with `Grpc-Metadata-`, without that.
class request_headers {
public:
    /// @param name Letters, digits and `-`; not one that the client sets itself.
    /// @param value Visible ASCII and spaces.
    /// @returns False, and adds nothing, if it cannot be added: all of them together have at most
    ///   4,096 characters.
    bool add(std::string_view name, std::string_view value);

    /// As they are sent: each with its name, and `\r\n` at its end.
    const std::string& lines() const { return lines_; }

private:
    std::string lines_;
};

/// One attempt of one request. A call that is tried again makes several; one request may carry
/// transactions of several locks, or renewals of several sessions.
struct request_report {
    std::string_view rpc;             ///< etcd's name of the call, such as `range` or `txn`.
    std::string_view endpoint;        ///< `http://host:port`
    unsigned attempt;                 ///< 0 for the first one of a call, more for its repetitions.
    std::chrono::nanoseconds latency; ///< From when it was sent.
    error_code outcome;               ///< Clear: it succeeded.
    /// Before it was sent: for a connection that was free, or for a new one.
    std::chrono::nanoseconds waited{0};
    std::uint64_t id{0}; ///< Of its `request_begin_report`.
};

/// A connection was made, could not be made, or has ended. One that was made and whose server then
/// refuses our certificate is reported as failed, too, before its end.
struct connection_report {
    enum kind { opened, failed, closed } what;
    std::string_view endpoint;
    std::chrono::nanoseconds duration; ///< The time to connect; if `closed`, the time it existed.
    error_code reason;                 ///< Why, if `failed`.
    /// More about `reason` than its message, such as what is wrong with a certificate; if `opened`,
    /// what is wrong with files of `tls_options` that have changed. Fit for a terminal. May be
    /// empty.
    std::string_view text{};
};

/// The name of the enumerator; "unknown" for any other value.
inline const char* to_string(connection_report::kind k) noexcept {
    switch (k) {
    case connection_report::opened:
        return "opened";
    case connection_report::failed:
        return "failed";
    case connection_report::closed:
        return "closed";
    }
    return "unknown";
}

/// A renewal of a session's lease: one round, in which each endpoint may have been asked.
struct renewal_report {
    lease_id lease;
    std::chrono::nanoseconds latency;
    /// How much longer the session would have been certain without this renewal. The smaller, the
    /// nearer it was to being lost. Normally it is more than half of the ttl; with a ttl of 1 s,
    /// about 0.4 s.
    std::chrono::nanoseconds margin;
    /// Clear: it was renewed, or is known to be gone. A renewal has failed, too, if etcd does not
    /// let the user look at what is held. Nothing is reported once the session has ended.
    error_code outcome;
};

/// A session was opened, or adopted.
struct session_open_report {
    lease_id lease;
    std::chrono::seconds ttl;
};

/// A session has ended, for whatever reason. One follows each `session_open_report`.
struct session_report {
    lease_id lease;
    session_end reason;
};

// Several names that are locked together have one report, with the first of them. A `kind` is
// "mutex", "shared_mutex", "multi_lock", "semaphore" or "election".

/// `lock`, `try_lock`, `resume` or the like begins. One `lock_wait_report` follows.
struct lock_wait_begin_report {
    std::string_view name;
    std::string_view kind;
};

/// The end of `lock`, `try_lock`, `resume` or the like. Each report with `acquired` true is
/// followed by one `lock_hold_report`.
struct lock_wait_report {
    std::string_view name;
    std::chrono::nanoseconds waited;
    bool acquired;
    /// Clear but not acquired: others had it until the time limit, or there was nothing to resume.
    /// It is `operation_aborted` if the call was cancelled.
    error_code failure;
    std::string_view kind{};
};

/// How the ownership of a lock has ended.
enum class lock_end : int {
    given_back,     ///< By its holder.
    session_closed, ///< Its own program has closed or orphaned the session.
    session_lost,   ///< A `session_report` says why.
    key_deleted,  ///< By `force_unlock` or by hand, or somebody who came earlier has it after all.
    hold_expired, ///< `lock_options::max_hold` was over.
};

/// The name of the enumerator; "unknown" for any other value.
inline const char* to_string(lock_end reason) noexcept {
    switch (reason) {
    case lock_end::given_back:
        return "given_back";
    case lock_end::session_closed:
        return "session_closed";
    case lock_end::session_lost:
        return "session_lost";
    case lock_end::key_deleted:
        return "key_deleted";
    case lock_end::hold_expired:
        return "hold_expired";
    }
    return "unknown";
}

/// The end of the ownership of a lock.
struct lock_hold_report {
    std::string_view name;
    std::chrono::nanoseconds held;
    lock_end reason;
    /// The session had retained the lock: it was granted without a request.
    bool at_home{false};
    std::string_view kind{};
    // As `coetcd who` shows them.
    std::int64_t token{0};
    lease_id lease{0};

    /// True if its holder did not give it back: the session was lost, the key was deleted, or
    /// `max_hold` was over. A session that its own program closes or orphans is not lost.
    bool lost() const noexcept {
        return reason != lock_end::given_back && reason != lock_end::session_closed;
    }
};

/// The lock of a `with_lock`, or of a similar function, was lost, and its body still runs after
/// `client_options::overrun`: it ignores its cancellation, or computes. It may do what the next
/// owner does, too, unless its writes are guarded. Reported once for each body.
struct overrun_report {
    std::string_view name;
    std::chrono::nanoseconds overrun; ///< Since the body was told.
    std::string_view kind;
    std::int64_t token;
    lease_id lease;
};

/// A stream of watches was opened, or has ended.
struct watch_stream_report {
    std::string_view endpoint;
    bool opened;
    std::size_t watches; ///< How many it carries; at its end, how many the next one resumes.
};

/// Receives a client's events, for logs and metrics: see `client_options::observer`. What has begun
/// is followed by its end, unless the executor is destroyed before.
///
/// All functions are called on the client's executor, from inside the library: they must not throw,
/// block, or use the client; they may post work to an executor. One observer may serve
/// several clients; if these run on several threads, all of the threads call it.
///
/// They are called for as long as the client's work in the background goes on. That work goes on
/// after the last handle is gone, until places in queues are deleted, leases revoked and
/// connections closed; if etcd does not answer, for some seconds. The work owns the observer: once
/// its last `shared_ptr` is gone, there are no more reports. Its destructor tells you, or a
/// `weak_ptr` that has expired.
class observer {
public:
    virtual ~observer() = default;
    virtual void on_request_begin(const request_begin_report&, request_headers&) {}
    virtual void on_request(const request_report&) {}
    virtual void on_connection(const connection_report&) {}
    virtual void on_renewal(const renewal_report&) {}
    virtual void on_session_open(const session_open_report&) {}
    virtual void on_session_end(const session_report&) {}
    virtual void on_lock_wait_begin(const lock_wait_begin_report&) {}
    virtual void on_lock_wait(const lock_wait_report&) {}
    virtual void on_lock_hold(const lock_hold_report&) {}
    virtual void on_overrun(const overrun_report&) {}
    virtual void on_watch_stream(const watch_stream_report&) {}
};

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/observer.hpp>
#endif
