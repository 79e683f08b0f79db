// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/logic/election.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/recipe/place_wait.hpp>
#include <coetcd/detail/recipe/resume.hpp>
#include <coetcd/detail/recipe/watch_over.hpp>
#include <coetcd/detail/service/lane.hpp>
#include <coetcd/detail/service/session.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

inline constexpr recipe election_recipe{
    "election", &logic::exclusive_keys, "campaign_for", "try_campaign", "resign"};

/// A term: the state that a `leadership` shares with the operations under way on it.
class leading {
public:
    /// @param last A mod_revision that the key has had; 0 if none is known.
    leading(std::shared_ptr<place> taken, std::int64_t last)
        : held(std::move(taken))
        , last_(last) {
        spawn(held->world(), watch_over(held->shared_from_this()));
    }

    const std::shared_ptr<place> held;

    /// Makes a term of a place in an election.
    /// @param resumed Whether somebody else may have proclaimed something in it.
    static asio::awaitable<std::shared_ptr<leading>>
    begin(asio::awaitable<std::shared_ptr<place>> taking, bool resumed = false) {
        std::shared_ptr<place> taken = co_await std::move(taking);
        std::shared_ptr<leading> term;
        if (taken) {
            const std::int64_t last = resumed ? 0 : taken->create_revision();
            term = std::make_shared<leading>(std::move(taken), last);
        }
        co_return term;
    }

    /// Proclaims a value after those that were asked for before.
    static asio::awaitable<void> proclaim(std::shared_ptr<leading> self, std::string value) {
        place& mine = *self->held;
        const turn own(*self);
        while (!own.has_come()) {
            self->require_leading();
            (void)co_await mine.changed.wait(mine.session->certain_until());
        }
        std::shared_ptr<lane_part> refused;       // although a copy may have been applied
        logic::effect left = logic::effect::none; // by all copies so far
        logic::lease_refusals of_lease;
        for (;;) {
            self->require_leading();
            const std::string& key = mine.key();
            const std::int64_t term = mine.create_revision();
            auto part = std::make_shared<lane_part>(
                refused ? logic::read_proclaimed(mine.keys().by_name.front(), key, term)
                        : logic::proclaim(key, mine.session->lease(), term, self->last_, value));
            part->likely = true;
            std::function<std::optional<time_point>()> while_leading = [&] {
                self->require_leading();
                return std::optional<time_point>(mine.session->certain_until());
            };
            (void)co_await mine.ask(part, std::move(while_leading));
            if (!refused && self->last_ != 0) { // otherwise etcd applies none of its copies
                left = std::max(left, part->left);
            }
            if (part->ec) {
                if (logic::is_transient(part->ec)) {
                    of_lease.end_row();
                    continue;
                }
                if (logic::is_lease_gone(part->ec, part->text)) {
                    session_impl& s = *mine.session;
                    const call_terms how = s.owner->within(s.request_timeout);
                    const auto gone = co_await session_impl::look_for_lease(mine.session, how);
                    self->require_leading();
                    of_lease.add(gone);
                    if (!of_lease.are_final()) {
                        continue;
                    }
                }
                if (refused || left == logic::effect::none) {
                    self->throw_refused(refused ? *refused : *part, refused != nullptr);
                }
                refused = part;
                continue;
            }
            const logic::proclaimed now =
                refused ? logic::after_reading(part->response, key, term, self->last_, value, left)
                        : logic::after_proclaim(part->response, key, term, self->last_, value);
            if (now.now == logic::proclaimed::state::gone) {
                co_await lose_key(self->held);
                continue; // and say so
            }
            self->last_ = now.last;
            if (now.now == logic::proclaimed::state::done) {
                co_return;
            }
            if (refused) {
                self->throw_refused(*refused, now.now == logic::proclaimed::state::unknown);
            }
            if (left != logic::effect::none) {
                left = logic::effect::unresolved; // what a copy put may be overwritten already
            }
        }
    }

    /// Takes effect at the call; await it to know that etcd knows.
    static asio::awaitable<bool> resign(const std::shared_ptr<leading>& self) {
        return self ? self->held->release() : nothing();
    }

private:
    /// A place among the calls that want to proclaim, in order of arrival.
    class turn {
    public:
        explicit turn(leading& of)
            : of_(of)
            , place_(of.line_.insert(of.line_.end(), this)) {}
        ~turn() {
            of_.line_.erase(place_);
            of_.held->changed.notify_all();
        }
        turn(const turn&) = delete;
        turn& operator=(const turn&) = delete;
        bool has_come() const { return of_.line_.front() == this; }

    private:
        leading& of_;
        const std::list<const turn*>::iterator place_;
    };

    void require_leading() const {
        if (held->held()) {
            return;
        }
        if (held->is_given_up()) {
            throw error(errc::not_owner, held->title() + ", proclaim: it was resigned");
        }
        throw held->loss();
    }

    /// @param in_doubt A copy may have been applied, or may still be.
    [[noreturn]] void throw_refused(const lane_part& part, bool in_doubt) const {
        throw error(in_doubt ? make_error_code(errc::outcome_unknown) : part.ec,
                    held->title() + ", proclaim: " + part.text);
    }

    static asio::awaitable<bool> nothing() { co_return false; }

    std::int64_t last_;
    std::list<const turn*> line_;
};

/// The state that an `election` shares with the operations under way on it.
struct election_impl {
    std::shared_ptr<session_impl> session;
    std::string name;
};

/// Waits until it leads, or until the deadline.
inline asio::awaitable<std::shared_ptr<leading>>
campaign(std::shared_ptr<session_impl> s, std::string name, std::string value, time_point until) {
    auto wanted = one_name(std::move(name), election_recipe);
    auto taking =
        place_wait::lock(std::move(s), election_recipe, std::move(wanted), until, std::move(value));
    return leading::begin(std::move(taking));
}

/// Leads if nobody leads or wants to.
inline asio::awaitable<std::shared_ptr<leading>>
try_campaign(std::shared_ptr<session_impl> s, std::string name, std::string value) {
    auto wanted = one_name(std::move(name), election_recipe);
    auto taking =
        place_wait::try_lock(std::move(s), election_recipe, std::move(wanted), std::move(value));
    return leading::begin(std::move(taking));
}

/// Reads who leads.
inline asio::awaitable<std::optional<leader>>
read_leader(std::shared_ptr<client_impl> c, std::string name, std::chrono::nanoseconds timeout) {
    const range_request oldest = logic::oldest_of(name);
    const range_response read = co_await ask(c, oldest, c->within(timeout));
    co_return logic::leader_in(read);
}

} // namespace coetcd::detail
