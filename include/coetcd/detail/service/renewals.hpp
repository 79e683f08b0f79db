// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/login.hpp>
#include <coetcd/detail/logic/renewal_groups.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/rpc.hpp>
#include <coetcd/detail/service/call.hpp>
#include <coetcd/detail/service/router.hpp>
#include <coetcd/detail/wire/decode.hpp>
#include <coetcd/detail/wire/encode.hpp>
#include <coetcd/detail/wire/requests.hpp>
#include <coetcd/detail/wire/status.hpp>
#include <coetcd/error.hpp>
#include <coetcd/lease.hpp>

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

/// Renews the leases of one client. Those that are due together go in one request: it costs etcd
/// little more than one of them alone.
class renewals : public std::enable_shared_from_this<renewals> {
public:
    using result = outcome<lease_keep_alive_response>;

    explicit renewals(std::shared_ptr<router> r)
        : router_(std::move(r))
        , env_(*router_->world()) {}

    /// Renews one lease.
    ///
    /// etcd answers the messages of a request one after the other, and the message of a lease that
    /// is about to die only when it is dead. So a lease that has little time left, or whose last
    /// renewal failed, goes alone. But after a failure that hits all leases they go together: one
    /// by one they would hold each other up.
    ///
    /// @param how If several share a request, the latest deadline counts for the request; each
    ///   waits no longer than its own.
    /// @param alone Whether to use a request of its own, at once, unless too many do.
    /// @returns A failure also if the request was answered but this message of it was not. When
    ///   cancelled, it throws `operation_aborted`; others that share the request are not cancelled.
    static asio::awaitable<result>
    renew(std::shared_ptr<renewals> self, lease_id id, call_terms how, bool alone) {
        const auto own = std::make_shared<member>(self->env_, id, how);
        if (alone && self->alone_ < logic::most_renewals_alone) {
            co_await renew_alone(std::move(self), own);
        } else {
            co_await renew_with_others(std::move(self), own);
        }
        co_return std::move(*own->ended);
    }

private:
    /// A waiter for the renewal of a lease.
    struct member {
        member(env& world, lease_id which, call_terms on)
            : id(which)
            , how(on)
            , since(world.now())
            , changed(world) {}
        const lease_id id;
        const call_terms how;
        const time_point since;
        bool sent = false;
        std::optional<result> ended;
        notifier changed;
    };
    using group = std::vector<std::shared_ptr<member>>;
    using answers = wire::whole_stream<lease_keep_alive_response>;

    static asio::awaitable<void> renew_alone(std::shared_ptr<renewals> self,
                                             std::shared_ptr<member> own) {
        struct counted {
            renewals& by;
            ~counted() { --by.alone_; }
        };
        ++self->alone_;
        const counted until_the_end{*self};
        group only;
        only.push_back(std::move(own));
        co_await make_request(self, std::move(only));
    }

    static asio::awaitable<void> renew_with_others(std::shared_ptr<renewals> self,
                                                   std::shared_ptr<member> own) {
        struct gathered {
            renewals& in;
            const std::shared_ptr<member>& who;
            ~gathered() { in.forget(who); }
        };
        const gathered until_sent{*self, own};
        self->gathered_.push_back(own);
        self->send_if_due();
        const time_point deadline = own->how.deadline;
        const time_point patience = after(own->since, logic::longest_gathering);
        while (!own->ended) {
            const time_point now = self->env_.now();
            if (now >= deadline) {
                self->give_up(own);
                break;
            }
            const time_point next = now < patience ? std::min(patience, deadline) : deadline;
            (void)co_await own->changed.wait(next);
            self->send_if_due();
        }
    }

    void forget(const std::shared_ptr<member>& who) {
        if (!who->sent) {
            std::erase(gathered_, who);
        }
    }

    void give_up(const std::shared_ptr<member>& who) {
        result& late = who->ended.emplace();
        late.ec = errc::timed_out;
        late.text = std::string(name(rpc::lease_keep_alive)) + ": the deadline passed; " +
                    (who->sent ? "there was no answer" : "others were under way");
        late.left = who->sent ? logic::effect::unresolved : logic::effect::none;
    }

    void send_if_due() {
        while (!gathered_.empty() && logic::is_group_due(under_way_,
                                                         gathered_.size(),
                                                         env_.now() - gathered_.front()->since)) {
            // All of them are told what becomes of it, even if it never begins.
            auto flight = std::make_unique<landing>(shared_from_this());
            group& together = flight->together;
            const std::size_t some = std::min(gathered_.size(), logic::most_renewals_together);
            together.reserve(some);
            while (together.size() != some) {
                gathered_.front()->sent = true;
                together.push_back(std::move(gathered_.front()));
                gathered_.pop_front();
            }
            spawn(env_, send(std::move(flight)));
        }
    }

    struct landing {
        explicit landing(std::shared_ptr<renewals> r)
            : of(std::move(r)) {
            ++of->under_way_;
        }
        ~landing() {
            --of->under_way_;
            for (const auto& each : together) {
                if (!each->ended) { // there was no memory for it
                    result& own = each->ended.emplace();
                    own.ec = errc::unavailable;
                    own.text = "out of memory"; // short, so it takes none
                    own.left = logic::effect::unresolved;
                    each->changed.notify_all();
                }
            }
        }
        landing(const landing&) = delete;
        landing& operator=(const landing&) = delete;

        const std::shared_ptr<renewals> of;
        group together;
    };

    static asio::awaitable<void> send(std::unique_ptr<landing> flight) {
        const std::shared_ptr<renewals> self = flight->of;
        group together = flight->together;
        co_await make_request(self, std::move(together));
        flight.reset();
        self->send_if_due();
    }

    static asio::awaitable<void> make_request(std::shared_ptr<renewals> self, group together) {
        std::string body = write(together);
        answers said;
        decoder decode = [&](const std::string& text) -> decoded {
            said = wire::decode_whole_stream<lease_keep_alive_response>(text);
            if (said.messages.empty() && said.failure) {
                return *said.failure;
            }
            const bool ours = std::any_of(together.begin(), together.end(), [&](const auto& each) {
                return find(said, each->id) != nullptr;
            });
            if (!ours) {
                wire::fail_protocol("no renewal was answered");
            }
            return said.messages.front().header; // one member answers all of them
        };
        const call_terms how = terms_of(together);
        const answer a = co_await carry(
            self->router_, rpc::lease_keep_alive, how, std::move(body), std::move(decode));
        deliver(together, a, said);
    }

    static std::string write(const group& together) {
        std::string body;
        for (const auto& each : together) {
            if (!body.empty()) {
                body += '\n';
            }
            wire::append(body, wire::lease_keep_alive_request{each->id});
        }
        return body;
    }

    static call_terms terms_of(const group& together) {
        call_terms how = together.front()->how;
        for (const auto& each : together) {
            how.deadline = std::max(how.deadline, each->how.deadline);
            how.attempt_timeout = std::max(how.attempt_timeout, each->how.attempt_timeout);
        }
        return how;
    }

    /// @returns Null if there is no answer for that lease.
    static const lease_keep_alive_response* find(const answers& said, lease_id id) {
        const auto found = std::find_if(said.messages.begin(),
                                        said.messages.end(),
                                        [&](const auto& message) { return message.id == id; });
        return found == said.messages.end() ? nullptr : &*found;
    }

    /// Tells each how its renewal went.
    static void deliver(const group& together, const answer& a, const answers& said) {
        for (const auto& each : together) {
            if (each->ended) {
                continue; // its deadline has passed
            }
            result& own = each->ended.emplace();
            static_cast<answer&>(own) = a;
            if (!a.ec) {
                if (const auto* found = find(said, each->id)) {
                    own.response = *found;
                } else {
                    own.ec = said.failure ? logic::code_of(*said.failure)
                                          : make_error_code(errc::unavailable);
                    own.text = std::string(name(rpc::lease_keep_alive)) + ": " +
                               (said.failure ? said.failure->message
                                             : "other leases were answered, and not this one");
                    own.left = logic::effect::unresolved;
                }
            }
            if (together.size() > 1 && logic::is_lease_gone(own.ec, own.text)) {
                own.ec = errc::unavailable; // it does not say which lease, so each asks for itself
            }
            each->changed.notify_all();
        }
    }

    const std::shared_ptr<router> router_;
    env& env_;
    std::deque<std::shared_ptr<member>> gathered_; // not sent yet
    std::size_t under_way_ = 0;                    // requests that renewals may share
    std::size_t alone_ = 0;                        // the other requests
};

} // namespace coetcd::detail
