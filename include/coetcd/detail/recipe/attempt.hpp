// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/names.hpp>
#include <coetcd/detail/logic/presence.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/logic/slots.hpp>
#include <coetcd/detail/recipe/ownership.hpp>
#include <coetcd/detail/recipe/recipe.hpp>
#include <coetcd/detail/service/lane.hpp>
#include <coetcd/detail/service/session.hpp>
#include <coetcd/detail/service/until_over.hpp>
#include <coetcd/detail/wire/printable.hpp>
#include <coetcd/error.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

class retained_lock;

/// One attempt to have places in the queues of some names, as far as it is known to etcd: its keys,
/// and how it asks. The derived class, `place`, decides what becomes of it; `place` and its parts,
/// `departure` and `mode_change`, decide what it asks for.
class attempt : public ownership, public held_keys, public std::enable_shared_from_this<attempt> {
public:
    /// What it wants of one name, and, from its turn to its end, the slot whose keys it has.
    struct queue : wanted_name {
        logic::slot_table::slot* slot = nullptr;
    };

    attempt(std::shared_ptr<session_impl> s, const recipe& h, std::vector<wanted_name> wanted)
        : session(std::move(s))
        , how(h)
        , changed(session->world) {
        for (wanted_name& w : wanted) {
            queues.push_back({std::move(w)});
        }
    }

    const std::shared_ptr<session_impl> session;
    const recipe& how;
    std::vector<queue> queues; ///< As in `keys().by_name`.
    logic::presence there;
    notifier changed;     ///< By everything that a wait may be for.
    bool resumed = false; ///< Its keys are those of an earlier object with this lease.
    time_point not_after = time_point::max(); ///< For its requests, and for the wait.
    time_point shown = time_point::min(); ///< When a write was sent whose answer shows its keys.
    std::shared_ptr<retained_lock> kept;  ///< Its keys are of a lock that its session retains.
    bool is_deciding = false; ///< Given back; whether its keys stay in the session is not known.

    const std::string& name() const { return queues.front().name; }
    std::vector<std::string> names() const {
        std::vector<std::string> all;
        for (const queue& q : queues) {
            all.push_back(q.name);
        }
        return all;
    }
    bool has_slots() const { return queues.front().slot != nullptr; }
    env& world() const override { return session->world; }
    const logic::attempt_keys& keys() const { return there.keys(); }
    /// The fencing token.
    std::int64_t create_revision() const { return there.create_revision(); }
    std::vector<logic::held_life> held_by() const override { return there.held_by(); }

    /// For messages.
    std::string title() const override {
        std::string text = std::string(how.word) + " \"" + wire::printable(name()) + "\"";
        if (queues.size() > 1) {
            text += " and " + std::to_string(queues.size() - 1) + " more";
        }
        return text;
    }
    /// The end of a message: what the user lacks if it was denied something.
    std::string if_denied(const error_code& ec) const {
        const std::string whole = wire::printable(session->owner->in_etcd(name()));
        return logic::if_denied(ec, whole, queues.size() > 1);
    }

    /// A request of ours, on its way.
    std::shared_ptr<lane_part> submit(std::shared_ptr<lane_part> part) {
        part->not_after = std::min(part->not_after, not_after);
        part->patience = session->request_timeout;
        part->on_end = [weak = weak_from_this()] {
            if (const auto self = weak.lock()) {
                self->changed.notify_all();
            }
        };
        session->owner->transactions->submit(part);
        return part;
    }
    /// Sends a request of ours, and waits until it is over.
    /// @param next Asked before each wait: the longest time until it is asked again. If it returns
    ///   nothing, the wait ends and the request is withdrawn.
    /// @returns Whether it is over, and was not withdrawn.
    asio::awaitable<bool> ask(std::shared_ptr<lane_part> part,
                              std::function<std::optional<time_point>()> next) {
        const auto self = shared_from_this();
        const withdrawn_at_end unless_over{*session->owner->transactions, submit(part)};
        while (!part->over) {
            const std::optional<time_point> again = next();
            if (!again) {
                co_return false;
            }
            (void)co_await changed.wait(*again);
        }
        co_return true;
    }
    /// Keeps parts that put or erase the same note out of one request: etcd refuses a request that
    /// might change a key twice.
    void keep_apart(lane_part& part) const {
        if (there.has_note()) {
            part.puts = names();
        }
    }

    /// It was granted and not given back, but may be lost.
    virtual bool is_granted() const = 0;
    /// It gives up what it may have in etcd.
    virtual bool is_leaving() const = 0;
    /// Readers of the session may go on beside it.
    virtual void share_turn() = 0;
    /// Its keys go, or have gone, with the lease.
    virtual void leave_to_lease() = 0;
    /// Nothing is left to do for it: the lease has gone.
    virtual void all_over() = 0;

    void give_lease_up() {
        session->lose(session_end::cleanup_failed);
        session->revoke();
        all_over();
    }

protected:
    ~attempt() = default;
};

/// A request has a deadline of its own and can tell more, so it should end first.
inline constexpr std::chrono::milliseconds grace_for_requests{100};

} // namespace coetcd::detail
