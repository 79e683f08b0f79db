// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/async/loss.hpp>
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/logic/leaving.hpp>
#include <coetcd/detail/logic/legacy.hpp>
#include <coetcd/detail/logic/names.hpp>
#include <coetcd/detail/logic/places.hpp>
#include <coetcd/detail/logic/presence.hpp>
#include <coetcd/detail/logic/rule.hpp>
#include <coetcd/detail/recipe/ownership.hpp>
#include <coetcd/detail/recipe/recipe.hpp>
#include <coetcd/detail/service/lane.hpp>
#include <coetcd/detail/service/local_queues.hpp>
#include <coetcd/detail/service/session.hpp>
#include <coetcd/detail/wire/printable.hpp>
#include <coetcd/lock_mode.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

/// One attempt's places in the queues of its names, from the first request to the last. Whatever
/// ends it, nothing of it stays in etcd: what is left to do then is done in the background.
class place final : public ownership,
                    public held_keys,
                    public std::enable_shared_from_this<place>,
                    private turn_taker,
                    private loss_listener {
    struct passkey {};

public:
    /// Takes the last place in the session's own lines. With the last handle to it, it is given up.
    /// @param value What is in its keys; nothing: the session's label.
    /// @param by Null: the first in the queue owns.
    static std::shared_ptr<place> open(std::shared_ptr<session_impl> s,
                                       const recipe& how,
                                       std::vector<wanted_name> wanted,
                                       std::optional<std::string> value = {},
                                       std::shared_ptr<logic::rule> by = nullptr) {
        std::vector<bool> shares;
        for (const wanted_name& w : wanted) {
            shares.push_back(w.how->shares);
        }
        auto world = s->owner->world;
        const auto made =
            make_at_home<place>(std::move(world), passkey(), std::move(s), how, std::move(wanted));
        made->value_ = std::move(value);
        made->rule_ = std::move(by);
        made->turn_.emplace(
            made->session->wanted, made->names, static_cast<turn_taker&>(*made), shares);
        return {made.get(), [made](place*) { made->abandon(); }}; // from anywhere
    }
    /// What an earlier object with the same lease has put. It stands in no line of the session's:
    /// a waiter of the session for the same name waits behind it in etcd.
    /// @param unresolved Something that puts it again may still be under way.
    static std::shared_ptr<place> inherit(std::shared_ptr<session_impl> s,
                                          const recipe& how,
                                          std::string name,
                                          logic::claim claim,
                                          std::int64_t create_revision,
                                          bool unresolved) {
        std::vector<wanted_name> wanted = one_name(std::move(name), how);
        auto world = s->owner->world;
        const auto made =
            make_at_home<place>(std::move(world), passkey(), std::move(s), how, std::move(wanted));
        const lease_id lease = made->session->lease();
        made->there_ = logic::presence(lease, std::move(claim), create_revision, unresolved);
        made->slots_.push_back(&made->inherited_slot_);
        made->inherited_ = true;
        made->phase_ = phase::entered;
        return {made.get(), [made](place*) { made->abandon(); }};
    }
    place(passkey, std::shared_ptr<session_impl> s, const recipe& how, std::vector<wanted_name> w)
        : session(std::move(s))
        , names(names_of(w))
        , changed(session->world)
        , recipe_(how)
        , recipes_(recipes_of(w))
        , loss_of_session_(session->losses, static_cast<loss_listener&>(*this)) {}

    const std::shared_ptr<session_impl> session;
    const std::vector<std::string> names;
    notifier changed;             ///< Of everything that a wait may be for.
    std::atomic<int> handles = 0; ///< Of those that answer for it together: the last gives it back.

    /// For messages.
    std::string title() const {
        std::string text =
            std::string(recipe_.word) + " \"" + wire::printable(names.front()) + "\"";
        if (names.size() > 1) {
            text += " and " + std::to_string(names.size() - 1) + " more";
        }
        return text;
    }
    /// Likewise, at their ends: what the user lacks if it was denied something.
    std::string if_denied(const error_code& ec) const {
        return logic::if_denied(ec, wire::printable(names.front()), names.size() > 1);
    }
    /// @throws error if the session has ended.
    void require_session() const {
        if (!session->alive()) {
            throw loss();
        }
    }

    const recipe& how() const { return recipe_; }

    // Entering.

    /// What the first request is to be.
    enum class beginning {
        enter,        ///< Stand in the queue; take, where the name was free the last time.
        take_or_leave ///< Only if nobody is there.
    };
    /// Begins as soon as it is its turn, and there is a slot: now, or in `on_turn`.
    void begin(beginning how, time_point not_after) {
        beginning_ = how;
        not_after_ = not_after;
        begins_ = true;
        if (turn_->has_come()) {
            on_turn();
        }
    }
    /// @throws What has kept it from beginning when its turn came.
    void require_begun() const {
        if (failure_) {
            std::rethrow_exception(failure_);
        }
    }
    /// The request to enter that is under way, or was the last; null before the first.
    const std::shared_ptr<lane_part>& entry() const { return entry_; }
    /// What its answer means. Call it once for each.
    logic::standing entered() {
        const bool known = is_known();
        const logic::standing now = there_.answered(rule(), asked_, entry_->response, entry_->left);
        learn(now, known);
        entry_ = nullptr;
        return now;
    }
    /// What the answer to a `confirm` means.
    logic::standing confirmed(const txn_response& response) {
        return there_.confirmed(rule(), response);
    }
    /// It failed, perhaps not for good. Call it once for each.
    void failed() {
        there_.failed(entry_->left, entry_->refused);
        entry_ = nullptr;
    }
    /// Asks (again).
    void send_entry(logic::asking what);

    /// Keeps parts that put or erase the same note out of one request: etcd refuses a request that
    /// might change a key twice.
    void keep_apart(lane_part& part) const;
    logic::asking asked() const { return asked_; }
    logic::rule& rule() const { return rule_ ? *rule_ : logic::plain_rule(); }
    /// What this session was giving up when it was first asked.
    const logic::slot_table::giving_up& earlier() const { return earlier_; }
    /// Whether another coroutine of this session has the lock, or a place in etcd's queue.
    bool is_behind_own() const { return turn_ && turn_->is_behind_known(); }
    /// When etcd had last told one of this session before it how things are with these names.
    time_point told() const { return turn_ ? turn_->told() : time_point::min(); }
    const logic::attempt_keys& keys() const { return there_.keys(); }

    /// A request of ours, on its way.
    std::shared_ptr<lane_part> submit(std::shared_ptr<lane_part> part) {
        part->not_after = std::min(part->not_after, not_after_);
        part->patience = session->request_timeout;
        part->on_end = [weak = weak_from_this()] {
            if (const auto self = weak.lock()) {
                self->changed.notify_all();
            }
        };
        session->owner->transactions->submit(part);
        return part;
    }

    // Holding.

    /// From here on it is ours, if the session still is.
    /// @throws error if the session has ended: the answer may have waited for us while the process
    ///   stood still.
    void grant() {
        require_session();
        phase_ = phase::held;
        if (there_.first().keys.front() == there_.first().write_key) {
            write_life_ = create_revision();
        }
        holds_ = true;
        not_after_ = time_point::max(); // the patience of who waited for it is over
        granted_at_ = session->world.now();
        granted_ = granted_at_;
        session->look_after(*this);
        if (recipe_.admits) {
            turn_.reset();
        }
    }
    bool held() const override {
        return holds_ && session->world.now() < held_until_.load() && session->alive();
    }
    bool is_given_up() const override { return !holds_ && !lost_; }
    error loss() const override {
        if (!session->alive()) {
            return session->loss(title());
        }
        if (!there_.is_deleted() && session->world.now() >= held_until_.load()) {
            return error(errc::hold_expired, title());
        }
        return error(errc::lock_lost, title());
    }
    /// It is to end so long after it was granted, whatever becomes of the session. See keeping.hpp.
    void end_after(std::chrono::nanoseconds most) { held_until_ = after(granted_at_, most); }
    time_point held_until() const { return held_until_; }
    /// At home: granted, and neither lost nor given back.
    bool is_kept() const { return phase_ == phase::held && !lost_; }
    bool is_lost() const { return lost_; }
    /// Its time is over: gives it back.
    void on_expired();
    env& world() const override { return session->world; }

    /// The fencing token.
    std::int64_t create_revision() const { return there_.create_revision(); }
    std::vector<logic::held_life> held_by() const override { return there_.held_by(); }
    void on_key_gone() override {
        const auto self = shared_from_this(); // those who are told may let go of it
        const bool leaves = !there_.is_deleted() && there_.outlasts_deletion();
        holds_ = false;
        there_.deleted();
        if (leaves) {
            leave_etcd(); // a late request must not put it again, nor the others be in the way
        }
        tell_own_loss();
        changed.notify_all();
    }

    /// Waits until it is lost.
    /// @returns Why. Throws `operation_aborted` if it is given back before.
    static asio::awaitable<error_code> wait_lost(std::shared_ptr<place> self) {
        while (self->holds_ && !self->lost_) {
            (void)self->session->alive(); // if not, and that is news, it tells us
            if (!self->lost_) {
                (void)co_await self->changed.wait(self->session->certain_until());
            }
        }
        if (!self->lost_) {
            throw_aborted();
        }
        co_return self->loss().code();
    }

    /// The key that stands for it; of several names, for the first.
    const std::string& key() const { return there_.key(writes()); }
    /// The lives that stand for it: one of each name.
    std::vector<logic::held_life> proof() const {
        return there_.proof(std::max(write_life_.load(), reads));
    }
    /// A key that is there from the grant to the end, whatever becomes of the mode; of one name.
    logic::held_life lasting() const { return there_.lasting(); }

    // Reading and writing, where that makes a difference. See place_mode.hpp.

    lock_mode mode() const {
        return there_.has_modes() && !writes() ? lock_mode::shared : lock_mode::exclusive;
    }
    /// Goes on as a reader: here at once, in etcd in the background. From anywhere; what is awaited
    /// is that etcd knows.
    asio::awaitable<void> downgrade();
    /// Goes on as a writer, if nobody is in the way. From anywhere.
    asio::awaitable<bool> upgrade();

    // Leaving.

    /// Gives it up: here at once, in etcd in the background; the next of the session may go on.
    /// From anywhere.
    void abandon() noexcept override;

    /// The same, at home.
    /// @param stays What is in etcd is left there, if it is held.
    /// @returns Whether it was held.
    bool leave(bool stays) noexcept;

    /// Gives it up as `abandon` does, and waits until etcd knows. From anywhere.
    /// @returns Whether it was there to be given back.
    asio::awaitable<bool> release();
    /// Lets go of what was inherited as if it never had been: another one may inherit it. Nothing
    /// else is changed. From anywhere.
    void disinherit() {
        if (inherited_) {
            at_home(session->world, [self = shared_from_this()] {
                self->session->legacies.erase({self->key(), self->create_revision()});
                (void)self->leave(true);
            });
        }
    }

private:
    enum class phase {
        waiting, // nothing was sent yet
        entered, // our keys may be there
        held,    // they are, and we own what they stand for
        over,    // we want nothing any more
    };

    /// What an orphaned lease holds is for whoever adopts it; not what was given back before.
    bool is_for_heir() const { return session->reason() == session_end::orphaned; }

    std::string leaving_title() const { return title() + ", " + recipe_.giving_back + ": "; }

    /// How far the giving up of keys of one claim is.
    struct leaving {
        std::size_t of = 0;   ///< The index of the claim.
        bool writing = false; ///< Only what makes us a writer is given up, not the place.
        std::int64_t life = 0;
        std::shared_ptr<lane_part> part;
        bool bumps = false;
        bool just_in_case = false; // nothing is there, by all that etcd has said
        bool over = false;
        bool was_there = false;
        unsigned pauses = 0;
        int refusals = 0;                          // in a row
        logic::failing_time<time_point> failing{}; // with answers that say nothing
        error_code trouble{};                      // with the last request
        std::string trouble_text{};
    };

    /// Moves them out of `wanted`.
    static std::vector<std::string> names_of(std::vector<wanted_name>& wanted) {
        std::vector<std::string> names;
        for (wanted_name& w : wanted) {
            names.push_back(std::move(w.name));
        }
        return names;
    }
    static std::vector<const recipe*> recipes_of(const std::vector<wanted_name>& wanted) {
        std::vector<const recipe*> recipes;
        for (const wanted_name& w : wanted) {
            recipes.push_back(w.how);
        }
        return recipes;
    }

    // See place_enter.hpp.

    void on_turn() noexcept override;
    void ask_in_turn();
    time_point now() const override { return session->world.now(); }
    bool is_known() const override { return there_.is_known(); }
    void on_known() override {
        if (beginning_ == beginning::take_or_leave) { // others wait on, whoever is before them
            changed.notify_all();
        }
    }
    bool take_slots();
    void learn(const logic::standing& now, bool was_known);

    void on_loss() override {                      // of the session
        const auto self = weak_from_this().lock(); // those who are told may let go of it
        if (!self) {
            return; // it ends
        }
        if (phase_ == phase::held || lost_) {
            tell_loss();
        }
        changed.notify_all();
    }

    void tell_own_loss() noexcept;
    void tell_loss() {
        lost_ = true;
        report_end();
        losses.tell();
    }

    /// Tells the observer, once. Without a look at the session that might end it here and now.
    void report_end();

    // What happens in etcd; goes on when nobody has a handle any more. See place_end.hpp.

    /// A request has a deadline of its own, and can tell more: that one first.
    static constexpr std::chrono::milliseconds grace{100};

    void leave_etcd() noexcept;
    void withdraw_entry();
    void send_leave();
    void send(leaving& l);
    void send_again(leaving& l);
    logic::claim what_of(const leaving& l) const;
    txn to_leave(const leaving& l) const;
    void given_up(leaving& l, std::int64_t epoch);
    bool is_left() const {
        return std::all_of(
            leaving_.begin(), leaving_.end(), [](const leaving& l) { return l.over; });
    }
    void throw_trouble() const;

    static asio::awaitable<void> finish(std::shared_ptr<place> self);
    static asio::awaitable<void> go_on(std::shared_ptr<place> self, leaving& l);
    bool may_go_on(leaving& l, logic::remedy next);
    void leave_to_lease();
    void give_lease_up();
    void all_over();
    asio::awaitable<void> erase_meanwhile(leaving& l);
    static asio::awaitable<bool> until_left(std::shared_ptr<place> self,
                                            std::shared_ptr<const bool> was_held);

    // See place_mode.hpp.

    bool writes() const { return write_life_ > reads; }
    static asio::awaitable<bool> try_upgrade(std::shared_ptr<place> self);
    void require_shared_mutex() const;
    void require_held(const char* call) const;
    void lower(std::int64_t life) noexcept;
    void begin_lowering(std::int64_t life);
    void lowered(const leaving& l, std::int64_t epoch);
    void not_raised(bool doubtful);
    void cancel_changes();
    [[noreturn]] void
    throw_refused(const char* call, const error_code& ec, const std::string& text);
    static asio::awaitable<void> finish_lowering(std::shared_ptr<place> self,
                                                 std::shared_ptr<leaving> l);
    static asio::awaitable<void> until_lowered(std::shared_ptr<place> self);
    struct raise_guard;

    const recipe& recipe_;
    std::optional<std::string> value_;
    const std::vector<const recipe*> recipes_; // of each name
    beginning beginning_ = beginning::enter;
    time_point not_after_ = time_point::max();
    bool begins_ = false;
    phase phase_ = phase::waiting;
    std::atomic<bool> holds_ = false; // what can be seen of it from anywhere
    logic::presence there_;
    std::vector<logic::slot_table::slot*> slots_; // of each name, from the turn to the end
    logic::slot_table::giving_up earlier_;        // by this session, at the turn
    bool inherited_ = false;                      // from an earlier object with this lease
    logic::slot_table::slot inherited_slot_;
    std::shared_ptr<logic::rule> rule_;
    logic::asking asked_ = logic::asking::enter;
    bool lost_ = false;          // while it was held
    std::exception_ptr failure_; // of its beginning
    std::shared_ptr<lane_part> entry_;
    std::vector<leaving> leaving_; // of each name, once it is left
    /// Of the write key, where readers and writers differ: that of a writer, or one of these.
    static constexpr std::int64_t reads = 0;
    static constexpr std::int64_t raising = -1;  // it reads, and an upgrade is under way
    static constexpr std::int64_t lowering = -2; // it reads, and home does not know yet
    std::atomic<std::int64_t> write_life_ = reads;
    std::shared_ptr<lane_part> raise_;  // the upgrade that is under way
    std::shared_ptr<leaving> lowering_; // the downgrade that is under way
    time_point granted_at_{};
    std::atomic<time_point> held_until_{time_point::max()}; // whatever becomes of the session
    std::optional<time_point> granted_;                     // for the observer
    std::optional<local_queues::turn> turn_;
    const loss_source::subscription loss_of_session_;
};

} // namespace coetcd::detail

#include <coetcd/detail/recipe/place_end.hpp>
#include <coetcd/detail/recipe/place_enter.hpp>
#include <coetcd/detail/recipe/place_mode.hpp>
