// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/once.hpp>
#include <coetcd/detail/logic/places.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/service/call.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/detail/service/lane.hpp>
#include <coetcd/detail/service/lease.hpp>
#include <coetcd/detail/service/session.hpp>
#include <coetcd/detail/wire/decode.hpp>
#include <coetcd/detail/wire/encode.hpp>
#include <coetcd/detail/wire/printable.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

namespace coetcd::detail {

/// Sends a transaction in a request of its own. etcd evaluates the conditions of all transactions
/// that share a request before it does anything, so two might both write what each of them has
/// ruled out.
inline asio::awaitable<outcome<txn_response>>
ask_alone(std::shared_ptr<client_impl> by, txn what, call_terms how) {
    outcome<txn_response> result;
    decoder decode = [&](const std::string& body) -> decoded {
        result.response = by->cluster_router.told(wire::decode<txn_response>(body));
        if (result.response.header.revision <= 0 || !logic::fits(what, result.response)) {
            throw error(errc::protocol_error, "txn: the answer is not one to this request");
        }
        return result.response.header;
    };
    how.may_be_large = wire::may_be_large(what);
    std::string body = by->cluster_router.write(what);
    answer how_it_went =
        co_await carry(by->cluster_router.by, rpc::txn, how, std::move(body), std::move(decode));
    static_cast<answer&>(result) = std::move(how_it_went);
    if (result.ec) {
        result.response = txn_response();
    }
    co_return result;
}

/// The outcome of a write that is applied once.
struct once_end {
    bool applied = false;      ///< If false, a condition of its own failed, and it never will be.
    std::int64_t revision = 0; ///< The one it made; if it was refused, the store's then.
    std::string mark;          ///< If it was applied: see `logic::marks`.
    /// The answer, without what concerns the marker. It may be lost if the write was applied.
    std::optional<txn_response> answered;
};

/// Makes writes of a session that are applied once each, however often they are sent, one at a
/// time. Must live and end at home.
class once_writer {
public:
    const std::string& marker_key() const { return marker_.key; }
    /// A name that no other write of any session has: that of the next one.
    std::string next_id() const {
        return marker_.key.substr(marker_.name.size() + 1) + "-" + logic::hex(marker_.number + 1);
    }

    enum class form {
        plain, ///< A write that may be refused.
        either ///< A transaction that does something in either case.
    };

    /// @param name What the marker's key begins with.
    /// @param title For messages.
    once_writer(std::shared_ptr<session_impl> s, const std::string& name, std::string title)
        : session_(std::move(s))
        , title_(std::move(title))
        , marker_(session_->markers.take(name, session_->lease(), session_->nonce())) {}
    ~once_writer() {
        const std::optional<logic::marker> old = session_->markers.give_back(std::move(marker_));
        if (old && session_->reason() == session_end::none) {
            const auto part = std::make_shared<lane_part>(logic::erase_marker(*old));
            part->order = lane_part::rank::patient;
            part->likely = true;
            const std::chrono::nanoseconds enough = std::chrono::seconds(5); // nobody waits
            part->not_after =
                after(session_->world.now(), std::min(session_->request_timeout, enough));
            session_->owner->transactions->submit(part);
        }
    }
    once_writer(const once_writer&) = delete;
    once_writer& operator=(const once_writer&) = delete;

    /// Makes a write: sends it until there is an answer, or no time is left.
    /// @throws error with `errc::outcome_unknown` if it may have been applied, or may still be
    ///   until the next write with this marker; otherwise nothing was changed.
    /// @par Cancellation
    /// As with `outcome_unknown`, if it was sent.
    asio::awaitable<once_end> apply(txn what, form how, call_terms in_time) {
        using end = logic::written::how;
        unsettled_ = ++marker_.number;
        bool in_doubt = false; // a copy may still come
        for (;;) {
            require_session(in_doubt);
            txn request = how == form::plain ? logic::write_once(marker_, what)
                                             : logic::write_either_once(marker_, what);
            outcome<txn_response> a = co_await send(std::move(request), in_time);
            in_doubt = in_doubt || a.left == logic::effect::unresolved;
            logic::written now;
            if (a.ec) {
                answer failed = a;
                now = co_await look_after(std::move(failed), in_doubt, in_time);
            } else {
                now = logic::after_write(a.response, marker_);
            }
            once_end result;
            if (now.end == end::refused) {
                require_marker_to_tell();
                result.revision = a.response.header.revision;
                result.answered = logic::without_marker(std::move(a.response));
                if (!in_doubt) {
                    co_return result;
                }
                // A copy that comes late may find what this one did not.
                now = co_await make_void(in_time);
                if (now.end == end::refused) {
                    co_return result;
                }
                result.answered.reset();
            }
            switch (now.end) {
            case end::applied:
                if (in_doubt) {
                    require_marker_to_tell(); // the applied one may be the second copy
                }
                result.answered = logic::without_marker(std::move(a.response));
                [[fallthrough]];
            case end::told:
                marker_.value = now.mark;
                result.applied = true;
                result.revision = now.revision;
                result.mark = now.mark;
                co_return result;
            case end::overtaken:
                marker_.value = now.mark; // all copies so far are void
                in_doubt = false;
                break;
            case end::vanished:
                throw_vanished();
            case end::refused:
                break; // handled above
            }
        }
    }

    /// Finds out what became of the last write, for which `apply` has thrown `outcome_unknown`, and
    /// lets no copy of it be applied after that.
    /// @returns Whether it was applied; nothing if that cannot be known any more.
    /// @throws error with `errc::outcome_unknown` if etcd does not tell now: it can be called
    /// again.
    asio::awaitable<std::optional<bool>> settle(call_terms in_time) {
        using end = logic::written::how;
        if (unsettled_ == 0) {
            co_return std::nullopt;
        }
        const logic::written now = co_await make_void(in_time);
        co_return now.end == end::told;
    }

    enum class knowledge {
        fresh,
        perhaps_old, ///< The first refusal tells what there is: the next attempt follows at once.
    };
    /// Changes what is known to be there, and tries again after each refusal, until the change is
    /// applied.
    /// @param what Makes the change to what is known by then. May throw.
    /// @param learn Is told what a refused change has read instead.
    /// @returns How it ended: applied.
    /// @throws error as `apply`; `errc::conflict` if others keep changing it.
    /// @par Cancellation
    /// As `apply`; between two attempts nothing is in doubt.
    asio::awaitable<once_end> change(std::function<txn()> what,
                                     std::function<void(const range_response&)> learn,
                                     knowledge first,
                                     call_terms in_time) {
        constexpr std::chrono::milliseconds first_pause{1};
        constexpr std::chrono::milliseconds longest_pause{64};
        env& world = session_->world;
        bool again_at_once = first == knowledge::perhaps_old;
        unsigned pauses = 0;
        for (;;) {
            txn now = what();
            once_end end = co_await apply(std::move(now), form::plain, in_time);
            if (end.applied) {
                co_return end;
            }
            learn(logic::answers::range_at(*end.answered, 0));
            if (std::exchange(again_at_once, false)) {
                continue;
            }
            const auto moment =
                logic::backoff(pauses++, world.random(), first_pause, longest_pause);
            const time_point next = after(world.now(), moment);
            if (next >= in_time.deadline) {
                throw error(errc::conflict, title_);
            }
            co_await sleep_until(world, next);
        }
    }

private:
    /// @throws error if the session has ended.
    void require_session(bool in_doubt) {
        if (in_doubt && !session_->alive()) {
            throw_unknown();
        }
        session_->require_alive(title_);
    }
    /// @param why Shown unless the session has ended, which tells more.
    [[noreturn]] void throw_unknown(const std::string& why = {}) const {
        throw error(errc::outcome_unknown,
                    title_ + ": " + (session_->alive() ? why : describe(session_->reason())));
    }
    /// A copy may have been applied before somebody deleted the marker; none can be applied any
    /// more.
    [[noreturn]] void throw_vanished() {
        marker_ = session_->markers.fresh(marker_.name, session_->lease(), session_->nonce());
        unsettled_ = 0;
        throw_unknown("the key that tells was deleted");
    }

    asio::awaitable<outcome<txn_response>> send(txn request, call_terms in_time) {
        const bool erasable = marker_.erasable;
        marker_.erasable = erasable && !marker_.value.empty(); // in case we do not hear of it
        in_time = in_time.as(impact::idempotent);
        in_time.wanted = &alive_; // later the lease may exist again, without the marker
        outcome<txn_response> a = co_await ask_alone(session_->owner, std::move(request), in_time);
        if (a.left != logic::effect::unresolved) {
            marker_.erasable = erasable;
        }
        co_return a;
    }

    /// If the marker was never there, nothing was applied, but only while the lease lives: when it
    /// ends, it takes along a marker that an earlier copy may have put.
    void require_marker_to_tell() const {
        if (marker_.value.empty() && !session_->alive()) {
            throw_unknown();
        }
    }

    /// Called when the request failed for good: finds out whether it was applied all the same.
    /// @throws error if it was not, or may not have been.
    asio::awaitable<logic::written> look_after(answer failed, bool in_doubt, call_terms in_time) {
        const bool lease_gone = failed.ec == server_errc::not_found; // ours, or of what is written
        if (lease_gone) {
            const auto gone = co_await session_impl::look_for_lease(session_, in_time);
            require_session(true); // a marker that told of an earlier copy went with the lease
            in_doubt = in_doubt || !gone;
        }
        // A copy that the network made may have found a lease that is gone now.
        const bool asks = lease_gone || failed.left == logic::effect::settled ||
                          (in_doubt && !logic::is_transient(failed.ec));
        if (asks) {
            txn question = logic::read_marker(marker_);
            const outcome<txn_response> a =
                co_await ask_alone(session_->owner, std::move(question), in_time.as(impact::none));
            if (a.ec) {
                throw_unknown(failed.text + "; then " + a.text);
            }
            logic::written now =
                logic::after_look(logic::answers::range_at(a.response, 0), marker_);
            if (now.end == logic::written::how::told) {
                co_return now;
            }
            if (now.end == logic::written::how::vanished) {
                throw_vanished();
            }
            require_marker_to_tell();
        }
        if (in_doubt) {
            throw_unknown(failed.text);
        }
        std::string text = title_ + ": " + failed.text;
        if (failed.ec == server_errc::permission_denied) {
            text +=
                "; besides the keys that it writes, " +
                logic::needed_permission(wire::printable(session_->owner->in_etcd(marker_.name)));
        }
        throw error(failed.ec, text);
    }

    /// Makes sure that no copy of the last write is applied any more.
    /// @returns `refused`: none was; `told`: one was, after all.
    asio::awaitable<logic::written> make_void(call_terms in_time) {
        using end = logic::written::how;
        ++marker_.number;
        for (;;) {
            require_session(true);
            txn request = logic::write_once(marker_, txn());
            const outcome<txn_response> a = co_await send(std::move(request), in_time);
            if (a.ec) {
                throw_unknown(a.text);
            }
            logic::written now = logic::after_write(a.response, marker_);
            if (now.end == end::vanished) {
                throw_vanished();
            }
            if (now.end == end::applied || now.end == end::told) {
                marker_.value = now.mark;
                now.end = end::refused;
                co_return now;
            }
            if (now.end == end::overtaken && logic::marks::number_of(now.mark) == unsettled_) {
                marker_.value = now.mark;
                now.end = end::told;
                now.revision = logic::answers::range_at(a.response, 0).kvs.front().mod_revision;
                co_return now;
            }
            marker_.value = now.mark;
        }
    }

    const std::shared_ptr<session_impl> session_;
    const std::function<bool()> alive_ = [this] { return session_->alive(); };
    const std::string title_;
    logic::marker marker_;
    std::uint64_t unsettled_ = 0; // the number of the last write; 0: its marker was deleted
};

/// The session and name of a recipe that writes once.
struct named_recipe {
    named_recipe(const char* word, std::shared_ptr<session_impl> s, std::string n)
        : session(std::move(s))
        , name(checked(std::move(n)))
        , title(std::string(word) + " \"" + wire::printable(name) + "\"") {}

    /// @throws std::invalid_argument
    static std::string checked(std::string name) {
        logic::require_name(name);
        return name;
    }

    call_terms within() const { return session->owner->within(session->request_timeout); }

    const std::shared_ptr<session_impl> session;
    const std::string name;
    const std::string title; ///< For messages.
};

} // namespace coetcd::detail
