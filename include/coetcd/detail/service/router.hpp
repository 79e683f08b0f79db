// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/attempts.hpp>
#include <coetcd/detail/logic/cluster_identity.hpp>
#include <coetcd/detail/logic/endpoint.hpp>
#include <coetcd/detail/logic/endpoint_choice.hpp>
#include <coetcd/detail/logic/jam.hpp>
#include <coetcd/detail/logic/login.hpp>
#include <coetcd/detail/logic/members.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/secret.hpp>
#include <coetcd/detail/service/attempt_told.hpp>
#include <coetcd/detail/service/call.hpp>
#include <coetcd/detail/service/router_options.hpp>
#include <coetcd/detail/wire/auth.hpp>
#include <coetcd/detail/wire/cluster.hpp>
#include <coetcd/detail/wire/decode.hpp>
#include <coetcd/detail/wire/encode.hpp>
#include <coetcd/detail/wire/status.hpp>
#include <coetcd/error.hpp>
#include <coetcd/observer.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

/// Carries requests to the cluster: chooses the endpoint, tries the next one on failure, gives up
/// at the deadline; logs the user in.
class router : public std::enable_shared_from_this<router> {
public:
    using use = logic::endpoint_use;

    router(std::shared_ptr<env> world,
           const std::vector<logic::endpoint>& endpoints,
           router_options options = {})
        : env_(std::move(world))
        , options_(std::move(options))
        , choice_(endpoints, env_->random())
        , identity_(endpoints)
        , login_(options_.login || options_.token)
        , login_changed_(*env_)
        , next_look_(after(env_->now(), first_look)) {}

    const std::shared_ptr<env>& world() const { return env_; }
    const std::shared_ptr<coetcd::observer>& observer() const { return options_.observer; }

    /// The usual terms.
    call_terms within(std::chrono::nanoseconds timeout) const {
        return {after(env_->now(), timeout), options_.attempt_timeout};
    }
    /// The usual terms, for at least as long as one attempt may take.
    call_terms within_attempt(std::chrono::nanoseconds timeout) const {
        return within(std::max(timeout, options_.attempt_timeout));
    }

    /// See `detail::carry`.
    asio::awaitable<answer> carry(rpc what, call_terms how, std::string body, decoder decode) {
        using step = logic::attempts<time_point>::step;
        const wipe_at_end no_trace(body); // it may hold a password
        const impact does = how.known.value_or(traits(what).usual);
        logic::attempts<time_point> tries(does, how.deadline, login_.needed(), how.can_be_split);
        answer result;
        std::vector<logic::endpoint> doubted; // what they say counts only if others agree
        for (step next = step::again; next != step::succeed && next != step::give_up;) {
            authorization who;
            if (login_.needed() && what != rpc::authenticate) {
                who = co_await authorize(how);
            }
            const time_point now = env_->now();
            // The request is sent once, whether anybody still wants it or not.
            const bool enough = tries.made() != 0 && how.is_over(now);
            next = tries.begin(enough ? how.deadline : now, who.ec, who.text);
            if (next == step::give_up) {
                break;
            }
            const logic::endpoint where = how.only ? *how.only : choice_.pick(now, doubted);
            const std::size_t endpoints = how.only ? 1 : choice_.size();
            const time_point until = tries.repeatable()
                                         ? std::min(how.deadline, after(now, how.attempt_timeout))
                                         : how.deadline;
            call_request request(where, what, body, until);
            request.latest = how.deadline;
            request.patience = how.attempt_timeout;
            request.way = how.way;
            request.token = who.token;
            if (tries.made() == 0 && !login_.failure()) { // a failed login tells more
                tell(what, how, errc::timed_out, "no answer yet, on " + where.text());
            }
            attempt_told told(*env_, options_.observer, what, where, tries.made(), request.headers);
            const reply r = co_await env_->call(std::move(request));
            if (r.ec == asio::error::operation_aborted) {
                throw_aborted();
            }
            const bool movable = tries.repeatable() && !how.can_be_split;
            const logic::attempt_end end =
                assess(where, r, what, decode, how.may_be_large, movable);
            const time_point departed = r.departed.value_or(now);
            told.end(departed - now, departed, end.code);
            const std::size_t places = endpoints * std::max<std::size_t>(r.addresses, 1);
            next = tries.ended(end, where.text(), endpoints, places);
            learn_from(end, where, r.by, who.number);
            if (end.code) {
                tell(what, how, tries.code(), tries.text());
            }
            if (end.code == server_errc::deadline_exceeded && jam_.suspects(env_->now())) {
                spawn(*env_, look_through(weak_from_this(), env_, where));
            }
            if (next == step::succeed) {
                result.sent = departed;
                result.by = where;
                look_around_if_due(now);
            } else if (next == step::elsewhere) {
                doubted.push_back(where);
            } else if (next == step::pause) {
                const auto moment = tries.pause(places, env_->random());
                co_await sleep_until(*env_, std::min(after(env_->now(), moment), how.deadline));
            }
        }
        for (const logic::endpoint& where : doubted) {
            if (tries.blames_doubted() && where != result.by) {
                failed(where, {}, use::call);
            }
        }
        result.ec = tries.code();
        result.left = tries.left();
        result.refused = tries.refused();
        if (result.ec) {
            result.text = std::string(name(what)) + ": " + tries.text();
            if (result.ec == errc::timed_out || result.ec == errc::outcome_unknown) {
                result.text += jam_.hint(env_->now());
            }
        }
        co_return result;
    }

    // For streams, which make their own attempts.

    /// Waits until there is a token, if one is needed.
    asio::awaitable<authorization> authorize(call_terms how) {
        using step = logic::login_state<time_point>::step;
        authorization result;
        for (;;) {
            const time_point now = env_->now();
            const step next = login_.next(now);
            if (next == step::go) {
                result.token = login_.token();
                result.number = login_.number();
                co_return result;
            }
            if (next == step::fail) {
                result.ec = login_.failure();
                result.text = login_.text();
                co_return result;
            }
            if (how.is_over(now)) {
                const bool failed = bool(login_.failure());
                result.ec = failed ? login_.failure() : make_error_code(errc::timed_out);
                result.text = failed ? login_.text() : "there was no login in time";
                co_return result;
            }
            if (next == step::log_in) {
                auto until_told = std::make_unique<logging_in>(shared_from_this());
                login_.begin();
                spawn(*env_, log_in(std::move(until_told)));
                continue; // it may be over already
            }
            if (how.tried && login_.failure()) {
                (*how.tried)(login_.text());
            }
            const counted waits(awaiting_login_);
            (void)co_await login_changed_.wait(std::min(how.deadline, login_.not_before()));
        }
    }
    bool logs_in() const { return login_.needed(); }
    /// Call these when etcd has refused a token, or accepted it.
    void rejected(std::uint64_t token_number) {
        if (login_.rejected(token_number)) {
            // So that the next login is made elsewhere.
            choice_.failed(granter_, env_->now(), use::call);
        }
    }
    void accepted(std::uint64_t token_number) { login_.accepted(token_number); }

    logic::endpoint pick() const { return choice_.pick(env_->now()); }
    std::vector<logic::endpoint> endpoints() const { return choice_.all(); }
    /// @param by See `reply`.
    void succeeded(const logic::endpoint& where, const asio::ip::address& by, use with) {
        if (choice_.succeeded(where, with)) {
            rate(where, by, true);
        }
    }
    void failed(const logic::endpoint& where, const asio::ip::address& by, use with) {
        choice_.failed(where, env_->now(), with);
        rate(where, by, false);
    }

    /// Replaces the endpoints that the user named: see `client::set_endpoints`.
    void set_endpoints(const std::vector<logic::endpoint>& endpoints) {
        options_.rules.plain = logic::any_plain(endpoints);
        choice_.name(endpoints);
        identity_.name(endpoints);
        next_refresh_ = time_point::min(); // what was learned is forgotten
        env_->keep_only(choice_.all());
    }

    /// The cluster that this client belongs to; 0 before the first answer. May be called from
    /// anywhere.
    std::uint64_t cluster() const { return cluster_.load(std::memory_order_relaxed); }
    /// Call it when an endpoint has answered for a cluster.
    /// @returns Why the answer does not count; nothing if it does.
    std::optional<std::string> rejects(const logic::endpoint& where, std::uint64_t cluster) {
        using speaker = decltype(identity_)::speaker;
        const std::uint64_t before = identity_.ours();
        const speaker who = identity_.heard(where, cluster, env_->now());
        if (identity_.ours() != before) {
            cluster_.store(identity_.ours(), std::memory_order_relaxed);
        }
        if (who == speaker::ours) {
            return std::nullopt;
        }
        if (who == speaker::successor) { // the members that were learned are those of the old one
            choice_.learn({});
            next_refresh_ = time_point::min();
        }
        return identity_.text(cluster, before);
    }

private:
    struct counted {
        explicit counted(std::size_t& c)
            : of(c) {
            ++of;
        }
        counted(const counted&) = delete;
        counted& operator=(const counted&) = delete;
        ~counted() { --of; }
        std::size_t& of;
    };

    /// Tells what keeps a request from its end, for a caller that has to give up before.
    void tell(rpc what, const call_terms& how, const error_code& ec, const std::string& why) {
        if (what == rpc::authenticate) {
            login_.tried(ec, std::string(name(what)) + ": " + why);
            login_changed_.notify_all();
        } else if (how.tried) {
            (*how.tried)(std::string(name(what)) + ": " + why);
        }
    }

    void rate(const logic::endpoint& where, const asio::ip::address& by, bool serves) {
        if (!by.is_unspecified()) {
            env_->rate(where, by, serves);
        }
    }

    /// Learns from an attempt about the endpoint, and about the token that it was made with.
    void learn_from(const logic::attempt_end& end,
                    const logic::endpoint& where,
                    const asio::ip::address& by,
                    std::uint64_t token_number) {
        if (!end.code) {
            succeeded(where, by, use::call);
            login_.accepted(token_number);
            return;
        }
        if (end.meaning.blame) {
            failed(where, by, use::call);
        } else if (end.meaning.ask_others) {
            rate(where, by, false); // others may have the same name
        }
        if (end.wants_token) {
            rejected(token_number);
        }
    }

    logic::attempt_end assess(const logic::endpoint& where,
                              const reply& r,
                              rpc what,
                              const decoder& decode,
                              bool may_be_large,
                              bool movable) {
        if (const error_code ec = logic::transport_code(r.ec, r.status, may_be_large)) {
            // The message of our own code is for a whole call, not for one attempt.
            std::string text = ec == errc::timed_out ? "no answer in time"
                               : ec != r.ec          ? "the answer is too large to be etcd's"
                                                     : ec.message();
            if (!r.text.empty()) {
                text = ec == errc::tls_failed ? r.text : text + ": " + r.text;
            }
            return {ec, std::move(text), logic::judge_transport(ec, r.sent, r.crowded)};
        }
        std::optional<wire::status> bad;
        if (r.status == 200) {
            try {
                decoded made = decode(r.body);
                bad = std::move(made.failure);
                const bool names_none = bad || made.cluster == 0;
                std::optional<std::string> no =
                    names_none ? std::nullopt : rejects(where, made.cluster);
                if (no) {
                    return {errc::wrong_cluster, *std::move(no), logic::judge_other_cluster()};
                }
            } catch (const error& e) {
                return {e.code(), e.what(), logic::judge_transport(e.code(), true)};
            }
        } else {
            bad = wire::decode_status(r.status, r.body);
            if (is_since_3_5(what) && bad->code == server_errc::unimplemented) {
                bad->foreign = false; // an older etcd says so
            }
        }
        if (!bad) {
            return {};
        }
        if (const std::uint64_t other = identity_.strayed_to(where); other && !bad->foreign) {
            look_around_if_due(env_->now(), true); // to find out whether it still strays
            logic::verdict meaning = logic::judge_other_cluster();
            meaning.left = std::max(meaning.left, logic::judge(*bad).left); // it may be ours again
            return {errc::wrong_cluster,
                    identity_.text(other, identity_.ours()) + ": " + bad->message,
                    meaning,
                    logic::wants_token(*bad)}; // without a token it would never say whose it is
        }
        return {logic::code_of(*bad),
                bad->message,
                logic::judge(*bad, what, movable),
                logic::wants_token(*bad)};
    }

    static decoded is_range(const std::string& body) {
        return wire::decode<range_response>(body).header;
    }

    /// A login. Its outcome is told, even if it never begins.
    struct logging_in {
        explicit logging_in(std::shared_ptr<router> r)
            : of(std::move(r)) {
            // Unless it gets further. The text is short, so it takes no memory.
            granted.ec = errc::timed_out;
            granted.text = "out of memory";
        }
        ~logging_in() { of->has_logged_in(granted); }
        logging_in(const logging_in&) = delete;
        logging_in& operator=(const logging_in&) = delete;
        const std::shared_ptr<router> of;
        outcome<wire::authenticate_response> granted;
    };
    static asio::awaitable<void> log_in(std::unique_ptr<logging_in> until_told) {
        const std::shared_ptr<router> self = until_told->of;
        outcome<wire::authenticate_response>& granted = until_told->granted;
        if (self->options_.token) {
            self->take_token(granted);
        } else if (const std::optional<wire::authenticate_request> request =
                       self->login_request()) {
            call_terms how = self->within(self->options_.login_timeout);
            const std::function<bool()> wanted = [&r = *self] { return r.awaiting_login_ != 0; };
            how.wanted = &wanted;
            auto asking = detail::call(self, *request, how);
            granted = co_await std::move(asking);
        } else {
            granted.ec = errc::login_failed;
            granted.text = "authenticate: the callback for the password threw an exception";
        }
    }
    void has_logged_in(outcome<wire::authenticate_response>& granted) {
        const time_point now = env_->now();
        if (!granted.ec || logic::is_login_off(granted.ec, granted.text)) {
            granter_ = std::move(granted.by);
            login_.succeeded(std::move(granted.response.token), now, env_->random());
        } else {
            const bool wrong = granted.ec == server_errc::invalid_argument;
            const error_code ec = wrong ? make_error_code(errc::login_failed) : granted.ec;
            login_.failed(
                !logic::is_transient(ec), ec, std::move(granted.text), now, env_->random());
        }
        login_changed_.notify_all();
    }
    /// Takes the user's own token.
    void take_token(outcome<wire::authenticate_response>& granted) const {
        granted.ec = errc::login_failed;
        try {
            granted.response.token = options_.token();
        } catch (...) {
            granted.text = "client_options::token threw an exception"; // which may hold a secret
            return;
        }
        if (wire::is_token(granted.response.token)) {
            granted.ec = {};
        } else {
            granted.text = "client_options::token gave no token: it is empty, longer than 4096 "
                           "characters, or has some that cannot stand in a header";
        }
    }
    /// @returns Nothing if there is no password to be had.
    std::optional<wire::authenticate_request> login_request() const {
        try {
            return options_.login();
        } catch (...) {
            return std::nullopt; // its message is not repeated: it may hold a secret
        }
    }

    static constexpr std::chrono::seconds first_look{1};
    static constexpr std::chrono::seconds look_interval{30};
    static constexpr std::chrono::seconds look_timeout{1}; // for each endpoint, at least

    void look_around_if_due(time_point now, bool at_once = false) {
        const bool due = now >= next_look_ && (choice_.size() > 1 || options_.member_refresh);
        if (!looks_ && (due || at_once)) {
            const auto interval = std::min<std::chrono::nanoseconds>(
                look_interval, options_.member_refresh.value_or(look_interval));
            next_look_ = after(now, interval);
            looks_ = true;
            try {
                spawn(*env_, look_around(weak_from_this(), env_));
            } catch (const std::bad_alloc&) {
                looks_ = false; // the next time
            }
        }
    }

    /// Measures how far away the endpoints are, and asks for the members of the cluster if that is
    /// wanted. This happens only while the router is in use: requests that succeed call it.
    static asio::awaitable<void> look_around(std::weak_ptr<router> of, std::shared_ptr<env> world);
    /// Asks the endpoints that were named first, one by one, and perhaps only those. A list from a
    /// learned member lasts only until the next list from a named one.
    static asio::awaitable<void> refresh_if_due(std::weak_ptr<router> of,
                                                std::shared_ptr<env> world);
    /// Asks a member whose gateway gave up a call for its state.
    static asio::awaitable<void>
    look_through(std::weak_ptr<router> of, std::shared_ptr<env> world, logic::endpoint where);
    /// Asks one endpoint, once, unless the router has gone.
    /// @param timeout If empty, as long as an attempt may take.
    static asio::awaitable<reply> look_at(std::weak_ptr<router> of,
                                          std::shared_ptr<env> world,
                                          logic::endpoint where,
                                          rpc what,
                                          std::string body,
                                          std::optional<std::chrono::nanoseconds> timeout = {});
    /// Asks one endpoint for the members, once.
    /// @returns Nothing if that fails for any reason.
    static asio::awaitable<std::optional<wire::member_list_response>>
    members_by(std::weak_ptr<router> of, std::shared_ptr<env> world, logic::endpoint where);

    const std::shared_ptr<env> env_;
    router_options options_;
    logic::endpoint_choice<time_point> choice_;
    logic::cluster_identity<time_point> identity_;
    std::atomic<std::uint64_t> cluster_ = 0; // `identity_.ours()`
    logic::login_state<time_point> login_;
    logic::endpoint granter_; // that granted the token
    notifier login_changed_;
    std::size_t awaiting_login_ = 0; // calls
    logic::jam<time_point> jam_;
    time_point next_look_;
    bool looks_ = false;
    time_point next_refresh_ = time_point::min();
};

inline asio::awaitable<answer>
carry(std::shared_ptr<router> by, rpc what, call_terms how, std::string body, decoder decode) {
    answer result = co_await by->carry(what, how, std::move(body), std::move(decode));
    co_return result;
}

} // namespace coetcd::detail

#include <coetcd/detail/service/router_looks.hpp>
