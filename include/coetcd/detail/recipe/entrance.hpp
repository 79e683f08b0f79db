// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/presence.hpp>
#include <coetcd/detail/logic/rule.hpp>
#include <coetcd/detail/logic/slots.hpp>
#include <coetcd/detail/recipe/attempt.hpp>
#include <coetcd/detail/recipe/retained.hpp>
#include <coetcd/detail/service/lane.hpp>
#include <coetcd/detail/service/local_queues.hpp>
#include <coetcd/detail/service/session.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

/// How an attempt enters: it waits for its turn among the attempts of its session, takes slots,
/// asks for its keys, and learns what the answer says.
class entrance final : private turn_taker {
public:
    explicit entrance(attempt& of)
        : of_(of) {}
    entrance(const entrance&) = delete;
    entrance& operator=(const entrance&) = delete;

    /// Takes the last place in the session's own lines.
    /// @param value What its keys hold; if nothing, the session's label.
    /// @param by If null, the first in the queue owns.
    void queue_up(std::optional<std::string> value, std::shared_ptr<logic::rule> by) {
        value_ = std::move(value);
        rule_ = std::move(by);
        std::vector<bool> shares;
        for (const attempt::queue& q : of_.queues) {
            shares.push_back(q.how->shares);
        }
        turn_.emplace(of_.session->wanted,
                      of_.names(),
                      static_cast<turn_taker&>(*this),
                      shares,
                      rule().admits());
    }

    /// What the first request is to be.
    enum class beginning {
        enter,        ///< Stand in the queue, or take, where the name was last free.
        take_or_leave ///< Take only if nobody is there.
    };
    /// Begins as soon as it is its turn, and there is a slot: now, or in `on_turn`.
    void begin(beginning how) {
        beginning_ = how;
        begins_ = true;
        if (turn_->has_come()) {
            on_turn();
        }
    }
    /// @throws What kept it from beginning when its turn came.
    void require_begun() const {
        if (failure_) {
            std::rethrow_exception(failure_);
        }
    }

    /// Its keys are those that the session has retained: it owns, without a request.
    bool has_retained() const { return has_retained_; }
    /// The request that is under way, or the last one; null before the first.
    const std::shared_ptr<lane_part>& request() const { return request_; }
    /// Asks (again).
    void send(logic::asking what) {
        asked_ = what;
        const bool why = beginning_ == beginning::take_or_leave || what != logic::asking::take;
        const std::string& value = value_ ? *value_ : of_.session->label();
        rule().asking();
        auto part = std::make_shared<lane_part>(
            logic::to_ask(rule(), what, of_.keys(), of_.create_revision(), value));
        part->puts = of_.names();
        part->abreast = rule().admits();
        part->turn = rule().turn(what);
        part->likely = beginning_ != beginning::take_or_leave && !rule().admits();
        part->asks_why = why;
        request_ = of_.submit(std::move(part));
        if (turn_ && what == logic::asking::admit) {
            turn_->step_aside();
        } else if (turn_) {
            turn_->step_forward();
        }
    }
    void send_again() { send(asked_); }
    /// What the request's answer means. Call it once for each request.
    logic::standing answered() {
        const bool was_known = is_known();
        const logic::standing now =
            of_.there.answered(rule(), asked_, request_->response, request_->left);
        if (now.at == logic::standing::where::ended) {
            for (std::size_t i = 0; i != of_.queues.size(); ++i) {
                of_.queues[i].slot->epoch = now.epochs[i];
            }
        }
        if (turn_) {
            tell_session(now, was_known);
        }
        request_ = nullptr;
        return now;
    }
    /// Whether it is under way to a queue, and is perhaps so near its front that it has to count
    /// who is before it.
    bool may_have_to_count() const {
        return rule().admits() && request_ && asked_ == logic::asking::enter && turn_ &&
               !turn_->at(0).was_far;
    }
    /// The request failed, perhaps not for good. Call it once for each request.
    void failed() {
        of_.there.failed(request_->left, request_->refused);
        request_ = nullptr;
    }
    /// Its answer cannot be read.
    void misunderstood() {
        of_.there.failed(logic::effect::unresolved, false);
        request_ = nullptr;
    }
    /// The request is not sent, unless it was sent already.
    void withdraw() {
        if (request_ && !request_->in_flight && !request_->over) {
            of_.session->owner->transactions->withdraw(request_);
            failed();
        }
    }

    logic::rule& rule() const { return rule_ ? *rule_ : logic::plain_rule(); }
    /// What this session was giving up when it was first asked.
    const logic::slot_table::giving_up& earlier() const { return earlier_; }
    /// Whether another coroutine of this session has the lock, or a place in etcd's queue.
    bool is_behind_own() const { return turn_ && turn_->is_behind_known(); }
    /// When etcd had last told an attempt of this session ahead of it the state of these names.
    time_point told() const { return turn_ ? turn_->told() : time_point::min(); }

    /// The session's next attempt may go on beside it.
    void share_turn() {
        if (turn_) {
            turn_->share();
            turn_->pass_on();
        }
    }
    /// The session's next attempt is now the first.
    void leave_line() { turn_.reset(); }

private:
    /// The waiter is told what keeps it from asking; nothing was sent then.
    void on_turn() noexcept override {
        try {
            ask_in_turn();
        } catch (...) {
            failure_ = std::current_exception();
            free_slots();
            of_.there.withdraw();
            begins_ = false;
        }
        of_.changed.notify_all();
    }
    time_point now() const override { return of_.session->world.now(); }
    bool is_known() const override { return of_.there.is_known(); }
    bool is_queueing() const override {
        return asked_ != logic::asking::take && (request_ || is_known());
    }
    void on_known() override {
        if (beginning_ == beginning::take_or_leave) { // the others keep waiting
            of_.changed.notify_all();
        }
    }

    void ask_in_turn() {
        const bool lives = of_.session->reason() == session_end::none;
        const bool leaves = beginning_ == beginning::take_or_leave && turn_->is_behind_queue();
        if (!begins_ || !lives || of_.has_slots() || leaves || is_retained() || !take_slots()) {
            return;
        }
        bool free = true;
        for (std::size_t i = 0; i != of_.queues.size(); ++i) {
            turn_->at(i).slots.add_closing(earlier_);
            // When etcd looks, the keys that we have are there, and those that we are giving up,
            // even if they go in the same request.
            const local_queues::line& l = turn_->at(i);
            free = free && (rule().admits() ? !l.was_full : l.was_free && !l.slots.any_other());
        }
        free = free && !turn_->is_behind_queue();
        const bool takes = beginning_ == beginning::take_or_leave || free;
        send(takes ? logic::asking::take : logic::asking::enter);
    }
    /// Whether the session has retained the lock for it, or is about to know.
    bool is_retained() {
        if (!of_.session->retained) {
            return false;
        }
        for (const attempt::queue& q : of_.queues) {
            retained_lock* const kept = of_.session->retained->find(q.name);
            if (kept && !kept->is_decided()) {
                return true;
            }
            if (kept && of_.queues.size() == 1 && !value_ && q.delay.count() == 0) {
                has_retained_ = kept->give(of_);
            } else if (kept) {
                kept->recall();
            }
        }
        return has_retained_;
    }
    bool take_slots() {
        for (std::size_t i = 0; i != of_.queues.size(); ++i) {
            of_.queues[i].slot = turn_->at(i).slots.take();
            if (!of_.queues[i].slot) {
                free_slots();
                return false;
            }
        }
        const session_impl& s = *of_.session;
        logic::attempt_keys wanted;
        wanted.lease = s.lease();
        for (const attempt::queue& q : of_.queues) {
            wanted.by_name.push_back(
                slot_keys(q, s.lease(), s.nonce(), q.slot->number, q.slot->epoch));
        }
        rule().prepare(wanted);
        of_.there.begin(std::move(wanted));
        return true;
    }
    /// Nothing was sent.
    void free_slots() {
        for (attempt::queue& q : of_.queues) {
            if (logic::slot_table::slot* const taken = std::exchange(q.slot, nullptr)) {
                logic::slot_table::free(*taken, taken->epoch);
            }
        }
    }

    /// Tells the session's next attempts what they may count on.
    void tell_session(const logic::standing& now, bool was_known) {
        using at = logic::standing::where;
        turn_->was_told();
        if (now.at == at::owner || now.at == at::behind || now.at == at::taken ||
            now.at == at::no_room || now.at == at::too_many) {
            for (std::size_t i = 0; i != of_.queues.size(); ++i) {
                turn_->at(i).was_free = now.at == at::owner;
                turn_->at(i).was_far = now.at == at::behind;
                turn_->at(i).was_full = now.at != at::owner || now.crowded;
            }
        }
        if (rule().admits() && !was_known && is_known() && now.at != at::owner) {
            turn_->tell_behind();
        }
        if (is_known()) {
            turn_->pass_on();
        }
    }

    attempt& of_;
    std::optional<std::string> value_;
    std::shared_ptr<logic::rule> rule_;
    beginning beginning_ = beginning::enter;
    bool begins_ = false;
    bool has_retained_ = false;
    logic::asking asked_ = logic::asking::enter;
    std::shared_ptr<lane_part> request_;
    std::exception_ptr failure_;           // of its beginning
    logic::slot_table::giving_up earlier_; // by this session, at the turn
    std::optional<local_turn> turn_;
};

} // namespace coetcd::detail
