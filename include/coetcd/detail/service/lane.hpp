// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/alarm.hpp>
#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/answer_room.hpp>
#include <coetcd/detail/logic/crowd.hpp>
#include <coetcd/detail/logic/group.hpp>
#include <coetcd/detail/logic/landing.hpp>
#include <coetcd/detail/logic/lane_width.hpp>
#include <coetcd/detail/logic/refused_lately.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/logic/time_left.hpp>
#include <coetcd/detail/service/lane_part.hpp>
#include <coetcd/detail/service/lane_queues.hpp>
#include <coetcd/detail/service/router.hpp>
#include <coetcd/detail/wire/decode.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <list>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coetcd::detail {

/// What the transactions of a lane have in common.
struct lane_terms {
    connection_kind way = connection_kind::locks;
    impact does = impact::idempotent;
    /// They are users', and know nothing of each other. One that cannot share a request leaves the
    /// lane.
    bool of_users = false;
};

/// Sends transactions together: all those of the engine of one client, or its users' calls. Two
/// requests are under way: a transaction that finds room goes at once, alone or with those
/// submitted in the same handler or the next; the others gather meanwhile and go together. A crowd
/// is shared out between the two requests. What fills a request leaves at once; see
/// `logic::lane_width`. This bounds what a crowd of waiters costs, and what it can do to others.
/// Patient transactions alone never take up both requests.
///
/// No transaction waits for ever: once the oldest was passed over a few times, or for a while, it
/// leads a request, even if others then do not fit beside it; see `logic::is_overdue`.
///
/// If etcd refuses one transaction, it refuses all that share its request. They then go in smaller
/// requests until the refused one is alone; for a while that one goes alone from the outset.
class transaction_lane : public std::enable_shared_from_this<transaction_lane> {
public:
    /// @param request_timeout How long a request may take, from when it is sent, unless one of its
    ///   transactions allows more.
    transaction_lane(route r,
                     std::chrono::nanoseconds request_timeout,
                     std::chrono::nanoseconds attempt_timeout,
                     lane_terms terms = {})
        : router_(std::move(r))
        , env_(*router_->world())
        , request_timeout_(request_timeout)
        , attempt_timeout_(attempt_timeout)
        , terms_(terms)
        , alarm_(router_->world(), [this] {
            const auto self = shared_from_this(); // those that it ends may let go of it
            depart();
        }) {}

    /// Sends a part at the end of the running handler, or of the next one if it is not alone, so
    /// that parts that belong together go together.
    /// @throws std::bad_alloc if there is no memory for it; then it is not taken.
    void submit(std::shared_ptr<lane_part> part) {
        const bool goes_alone = was_refused(part->what);
        if (goes_alone && terms_.of_users) {
            part->by_itself = true;
            part->end();
            return;
        }
        if (!wake()) {
            throw std::bad_alloc();
        }
        part->asked_ = env_.now();
        part->number_ = ++submitted_;
        if (goes_alone) {
            part->company_ = 1;
        }
        waiting_.add(std::move(part));
    }

    /// Call it when nobody wants the part any more. If it is in flight it goes on, but is not sent
    /// again. If it is queued, the next request leaves it out, so a crowd is withdrawn as fast as
    /// it came.
    void withdraw(const std::shared_ptr<lane_part>& part) {
        part->wanted_ = false;
        if (!part->in_flight && !part->over) {
            part->on_end = nullptr;
            part->end();
        }
    }

    /// Whether such a transaction was refused lately, so that it has to go alone.
    bool was_refused(const txn& what) const {
        return !refused_.empty() && refused_.contains(subject_of(what), env_.now());
    }
    /// Remembers how one has ended that was alone: whether it would have others refused.
    void remember(const txn& alone, const error_code& ec) {
        if (logic::is_about_keys(ec)) {
            try {
                refused_.add(subject_of(alone), env_.now());
            } catch (const std::bad_alloc&) {
                // The next refusal tells it again.
            }
        } else if (!ec && !refused_.empty()) {
            refused_.remove(subject_of(alone));
        }
    }

    env& world() const { return env_; }
    const lane_terms& terms() const { return terms_; }
    /// How many wait to be sent, including those that were withdrawn.
    std::size_t waiting() const { return waiting_.size(); }
    /// When the one that has waited for the longest was submitted; nothing if nobody waits.
    std::optional<time_point> waits_since() const { return waiting_.waits_since(); }

private:
    using parts = lane_queues::parts;
    using load = logic::lane_width<time_point>::load;

    /// @returns False if there is no memory for it.
    bool wake() noexcept {
        try {
            if (!awake_) {
                defer(env_, [weak = weak_from_this()] {
                    if (const auto self = weak.lock()) {
                        self->awake_ = false;
                        self->depart();
                    }
                });
                awake_ = true;
            }
        } catch (const std::bad_alloc&) {
            // The caller knows what to do.
        }
        return awake_;
    }

    /// Parts that were answered together come back together, but not all in one handler: if several
    /// wait, they also wait for the next handler, and no longer.
    bool more_may_come() {
        put_off_ = !put_off_ && waiting() > 1;
        return put_off_;
    }

    /// Whether a request may leave, as far as can be told before it is put together.
    bool may_leave() const {
        const std::size_t in_company = waiting_.in_company();
        return (!waiting_.alone.empty() && may_leave(load::alone)) ||
               (in_company != 0 && may_leave(load::roomy)) ||
               ((in_company >= logic::group::most_members || waiting_.go_abreast) &&
                may_leave(load::full));
    }
    bool may_leave(load what) const { return width_.may_leave(what, env_.now()); }

    /// Those that wait for company do so until a request has ended, or as long as the width says.
    void set_alarm() noexcept {
        const std::optional<time_point> then = width_.next_turn();
        if (then && *then > env_.now() && waiting_.in_company() != 0) {
            alarm_.set(*then);
        }
    }

    void depart() {
        if (!may_leave()) {
            set_alarm();
            return;
        }
        if (more_may_come() && wake()) {
            return;
        }
        try {
            while (may_leave()) {
                auto next = std::make_unique<flight>(shared_from_this());
                gather(*next);
                const bool leaves = next->prepare();
                if (leaves) {
                    next->take_off();
                }
                next->end_late(); // last: it may withdraw others
                if (!leaves) {
                    break;
                }
                spawn(env_, fly(std::move(next)));
            }
            set_alarm();
        } catch (const std::bad_alloc&) {
            give_up_unless_in_flight();
        }
    }

    /// A request, from before it takes any part along. All its parts are told what becomes of it,
    /// even if it never leaves.
    struct flight {
        explicit flight(std::shared_ptr<transaction_lane> l)
            : lane(std::move(l))
            , g(lane->terms_.of_users)
            , company(lane->answer_room_.most(logic::group::most_members, lane->env_.now())) {
            fail(errc::unavailable, logic::effect::none);
        }
        ~flight() {
            lane->land(*this);
            end_late();
            if (size == 0) {
                return; // it has not left
            }
            lane->width_.is_over(what);
            lane->parts_in_flight_ -= size;
            lane->patient_in_flight_ = lane->patient_in_flight_ && !patient;
            if (!lane->wake()) {
                lane->give_up_unless_in_flight();
            }
        }
        flight(const flight&) = delete;
        flight& operator=(const flight&) = delete;

        /// How it ends unless it gets further. The text is short, so it takes no memory.
        void fail(errc why, logic::effect left) {
            how_it_went.ec = why;
            how_it_went.text = "out of memory";
            how_it_went.left = left;
        }
        void end_late() noexcept {
            const parts all = std::exchange(late, {});
            for (const auto& part : all) {
                part->ec = errc::timed_out;
                part->say("txn: there was no time left to send it");
                part->end();
            }
        }
        /// @returns Whether it may leave; if not, its parts are back where they were.
        bool prepare() {
            if (what != load::alone) {
                is_abreast = is_abreast || lane->waiting_.go_abreast;
                const bool is_full = is_abreast || g.is_full() || batch.size() >= company;
                what = is_full ? load::full : load::roomy;
            }
            const bool leaves = !batch.empty() && lane->may_leave(what);
            while (!leaves && !batch.empty()) {
                lane->waiting_.go_abreast = lane->waiting_.go_abreast || is_abreast;
                lane->waiting_.put_back(batch, std::prev(batch.end()));
            }
            return leaves;
        }
        void take_off() {
            size = batch.size();
            patient = what != load::alone && std::all_of(batch.begin(), batch.end(), is_patient);
            lane_queues::order(batch);
            departed = lane->env_.now();
            lane->width_.has_left(what, departed);
            lane->parts_in_flight_ += size;
            lane->patient_in_flight_ = lane->patient_in_flight_ || patient;
            for (const auto& part : batch) {
                part->in_flight = true;
            }
            if (what != load::alone) {
                lane->waiting_.pass_over();
            }
            if (size == 1 && !batch.front()->likely) {
                batch.front()->company_ = 1; // so it is written as it is
            }
        }
        static bool is_patient(const std::shared_ptr<lane_part>& part) {
            return part->order == lane_part::rank::patient;
        }

        const std::shared_ptr<transaction_lane> lane;
        logic::group g;
        std::size_t company; // how many may share it
        load what = load::roomy;
        parts batch;
        parts late;           // there is no time left to send them
        std::size_t size = 0; // of the batch, once it is under way
        bool patient = false;
        bool is_abreast = false; // a part was left for it by a request that went at the same time
        time_point departed{};
        answer how_it_went;
        std::optional<std::vector<txn_response>> answers;
    };

    /// No memory, and no request is under way whose end would try again: those that wait are told.
    void give_up_unless_in_flight() noexcept {
        const parts all = width_.under_way() == 0 ? waiting_.take_all() : parts();
        for (const auto& part : all) {
            if (!part->over) {
                part->ec = errc::unavailable;
                part->say("out of memory");
                part->end();
            }
        }
    }

    void gather(flight& b) {
        b.is_abreast = std::exchange(waiting_.go_abreast, false);
        waiting_.drop_withdrawn();
        if (!waiting_.alone.empty() && may_leave(load::alone)) {
            gather(waiting_.alone, 1, b);
            if (!b.batch.empty()) {
                b.what = load::alone;
                return;
            }
        }
        std::size_t share = logic::group::most_members;
        if (may_leave(load::roomy)) {
            share = std::min(share, crowd_.share(waiting_.in_company() + parts_in_flight_));
        }
        parts& patient = waiting_.patient;
        // A quarter of the room is for patient parts, so that they get on, too.
        const std::size_t room = share - std::min(share / 4, patient.size());
        if (!patient_in_flight_ && waiting_.patient_goes_first(env_.now())) {
            gather(patient, 1, b);
        }
        gather(waiting_.pressing, room, b);
        if (!b.batch.empty()) {
            gather(patient, share, b);
        } else if (!patient_in_flight_) { // they have one request, which is not shared out
            gather(patient, logic::group::most_members, b);
        }
    }

    void gather(parts& from, std::size_t room, flight& b) {
        const time_point now = env_.now();
        std::size_t stay = 0;
        for (auto next = from.begin(); next != from.end();) {
            const auto at = next++;
            lane_part& part = **at;
            if (part.over) {
                from.erase(at); // it was withdrawn
                continue;
            }
            const std::size_t most = std::min({room, b.company, part.company_});
            if (logic::is_nearly_due(part.not_after, part.asked_, now)) {
                b.late.splice(b.late.end(), from, at);
            } else if (b.batch.size() < most && b.g.add(part.what, part.puts, part.form())) {
                b.company = std::min(b.company, part.company_);
                b.batch.splice(b.batch.end(), from, at);
            } else {
                waiting_.go_abreast = waiting_.go_abreast || part.abreast;
                ++stay;
                if (b.batch.size() >= std::min(room, b.company) || stay > most_passed_over) {
                    break;
                }
            }
        }
    }

    static asio::awaitable<void> fly(std::unique_ptr<flight> all) {
        const transaction_lane& lane = *all->lane;
        const parts& batch = all->batch;
        logic::group g;
        for (const auto& part : batch) {
            (void)g.add(part->what, part->puts, part->form());
        }
        call_terms how{lane.deadline(batch), lane.attempt_timeout_};
        how.way = lane.terms_.way;
        how.known = lane.terms_.does;
        how.may_be_large = lane.terms_.of_users && lane.terms_.does == impact::none;
        how.can_be_split = batch.size() > 1;
        const std::function<bool()> wanted = [&batch] {
            return std::any_of(
                batch.begin(), batch.end(), [](const auto& part) { return part->wanted_; });
        };
        how.wanted = &wanted;
        const std::function<void(const std::string&)> tried = [&batch](const std::string& so_far) {
            for (const auto& part : batch) {
                part->say(so_far);
            }
        };
        how.tried = lane.terms_.of_users ? &tried : nullptr;
        decoder decode = [&](const std::string& body) -> decoded {
            txn_response said = lane.router_.told(wire::decode<txn_response>(body));
            const decoded whose(said.header);
            all->answers = g.split(std::move(said));
            return whose;
        };
        std::string body = g.body(lane.router_.keys.get());
        auto carrying = carry(lane.router_.by, rpc::txn, how, std::move(body), std::move(decode));
        all->fail(errc::outcome_unknown, logic::effect::unresolved);
        all->how_it_went = co_await std::move(carrying);
        all.reset();
    }

    time_point deadline(const parts& batch) const {
        time_point last = time_point::min();
        std::chrono::nanoseconds patience = request_timeout_;
        for (const auto& part : batch) {
            last = std::max(last, part->not_after);
            patience = std::max(patience, part->patience);
        }
        return std::min(last, after(env_.now(), patience));
    }

    void land(flight& all) noexcept {
        const answer& a = all.how_it_went;
        if (!a.ec) {
            width_.was_served(all.what);
        } else if (logic::is_too_many_requests(a.ec, a.text)) {
            width_.was_too_many(all.departed, env_.now());
        }
        const std::size_t together = all.batch.size();
        if (a.ec == errc::too_large && together > 1) {
            answer_room_.was_too_large(together, env_.now());
        }
        const bool may_repeat = terms_.does != impact::once || a.left == logic::effect::none;
        std::size_t i = 0;
        for (auto next = all.batch.begin(); next != all.batch.end(); ++i) {
            const auto at = next++;
            lane_part& part = **at;
            txn_response* const response = all.answers && !a.ec ? &(*all.answers)[i] : nullptr;
            part.in_flight = false;
            part.left = std::max(part.left, a.left);
            part.refused = a.ec && (part.refused || a.refused);
            part.sent = a.sent;
            const std::optional<bool> succeeded =
                response ? std::optional(response->succeeded) : std::nullopt;
            const logic::passenger carried{part.form(),
                                           together > 1,
                                           !part.what.failure.empty(),
                                           part.asks_why,
                                           part.doubtful_,
                                           part.wanted_,
                                           may_repeat};
            const logic::landing result = logic::land(carried, a.ec, succeeded);
            part.doubtful_ = result.doubtful;
            switch (result.then) {
            case logic::landing::next::over:
                part.ec = a.ec;
                part.say(a.text);
                if (response) {
                    part.response = std::move(*response);
                }
                if (part.company_ == 1) {
                    remember(part.what, part.ec);
                }
                continue;
            case logic::landing::next::alone:
                part.company_ = 1;
                break;
            case logic::landing::next::fewer:
                part.company_ = together / 2;
                break;
            case logic::landing::next::nested:
                part.nested_ = true;
                break;
            }
            if (part.company_ == 1 && terms_.of_users) {
                part.by_itself = true;
                continue;
            }
            waiting_.put_back(all.batch, at);
        }
        for (const auto& part : all.batch) {
            part->end();
        }
    }

    /// What a transaction is about: a lock, if it is the engine's, else a key.
    std::string_view subject_of(const txn& what) const {
        return terms_.of_users ? logic::first_key_of(what) : logic::subject_of(what);
    }

    static constexpr std::size_t most_passed_over = 256; // before a request leaves as it is

    const route router_;
    env& env_;
    const std::chrono::nanoseconds request_timeout_;
    const std::chrono::nanoseconds attempt_timeout_;
    const lane_terms terms_;
    lane_queues waiting_;
    std::uint64_t submitted_ = 0;
    logic::crowd crowd_;
    logic::refused_lately<time_point> refused_;
    logic::answer_room<time_point> answer_room_;
    bool put_off_ = false; // for one round of handlers
    logic::lane_width<time_point> width_;
    std::size_t parts_in_flight_ = 0;
    bool patient_in_flight_ = false; // a request of patient ones alone
    bool awake_ = false;
    alarm alarm_; // for those that wait for company
};

} // namespace coetcd::detail
