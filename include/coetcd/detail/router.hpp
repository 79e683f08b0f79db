// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/endpoint.hpp>
#include <coetcd/detail/logic/endpoint_choice.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/notifier.hpp>
#include <coetcd/detail/wire/status.hpp>
#include <coetcd/error.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

/// How one request is to be carried out.
struct call_spec {
    rpc what;
    time_point deadline; ///< For all attempts together.
    /// Whether the request may be repeated after it may have been applied.
    bool idempotent;
    /// Whether it changes the store: if not, a lost answer is not an unknown outcome.
    bool changes;
    lane way = lane::shared;
    std::chrono::nanoseconds attempt_timeout = std::chrono::seconds(2); ///< If idempotent.
};

/// How it went.
struct answer {
    error_code ec;
    std::string text;                         ///< For a log, if `ec` is set.
    logic::effect left = logic::effect::none; ///< Of those attempts that failed.
    time_point sent{};                        ///< When the attempt that succeeded was sent.

    /// Throws what a user is to see.
    void check() const {
        if (ec) {
            throw error(ec, text);
        }
    }
};

/// Takes the body of an answer; returns the error that it turned out to be.
/// Throws `errc::protocol_error` if it is neither.
using decoder = std::function<std::optional<wire::status>(const std::string& body)>;

/// Carries requests to the cluster: chooses the endpoint, tries the next one on failure, gives up
/// at the deadline.
class router {
public:
    router(std::shared_ptr<env> world, std::vector<logic::endpoint> endpoints)
        : env_(std::move(world))
        , endpoints_(std::move(endpoints))
        , choice_(endpoints_.size(), env_->random()) {}

    const std::shared_ptr<env>& world() const { return env_; }

    /// Cancelled: throws `operation_aborted`; the request may have been applied.
    asio::awaitable<answer> call(call_spec spec, std::string body, decoder decode) {
        answer result;
        std::string trouble = "no attempt was made";
        error_code last = errc::timed_out;
        std::size_t unreadable = 0; // answers that were not etcd's
        for (unsigned attempt = 0;; ++attempt) {
            const time_point now = env_->now();
            if (now >= spec.deadline) {
                break;
            }
            const std::size_t index = choice_.pick(now);
            const time_point until = spec.idempotent
                                         ? std::min(spec.deadline, after(now, spec.attempt_timeout))
                                         : spec.deadline;
            call_request request(endpoints_[index], spec.what, body, until);
            request.way = spec.way;
            const reply r = co_await env_->call(std::move(request));
            if (r.ec == asio::error::operation_aborted) {
                throw_aborted();
            }
            failure f = assess(r, decode);
            if (!f.code) {
                choice_.succeeded(index);
                result.sent = now;
                co_return result;
            }
            if (f.meaning.blame) {
                choice_.failed(index, env_->now());
            }
            trouble = f.text + ", on " + endpoints_[index].text();
            last = f.code;
            unreadable += f.code == errc::protocol_error ? 1 : 0;
            result.left = std::max(result.left, f.meaning.left);
            const bool stop = !f.meaning.transient || unreadable > endpoints_.size() ||
                              (!spec.idempotent && f.meaning.left != logic::effect::none);
            if (stop) {
                const bool unknown =
                    spec.changes && !spec.idempotent && f.meaning.left == logic::effect::unresolved;
                result.ec = unknown ? make_error_code(errc::outcome_unknown) : f.code;
                result.text = std::string(name(spec.what)) + ": " + trouble;
                co_return result;
            }
            if ((attempt + 1) % endpoints_.size() == 0) {
                const auto round = attempt / static_cast<unsigned>(endpoints_.size());
                const time_point next = after(env_->now(), logic::backoff(round, env_->random()));
                notifier pause(*env_);
                (void)co_await pause.wait(std::min(next, spec.deadline));
            }
        }
        if (spec.changes && result.left == logic::effect::unresolved) {
            result.ec = errc::outcome_unknown;
        } else {
            const bool late = last == errc::timed_out || last == server_errc::deadline_exceeded;
            result.ec = late ? errc::timed_out : errc::unavailable;
        }
        result.text = std::string(name(spec.what)) + ": the deadline passed; last: " + trouble;
        co_return result;
    }

    /// For streams, which make their own attempts.
    std::size_t pick() const { return choice_.pick(env_->now()); }
    const logic::endpoint& endpoint(std::size_t index) const { return endpoints_[index]; }
    void succeeded(std::size_t index) { choice_.succeeded(index); }
    void failed(std::size_t index) { choice_.failed(index, env_->now()); }

private:
    struct failure {
        error_code code; ///< Clear: it was none.
        std::string text;
        logic::verdict meaning;
    };

    static failure assess(const reply& r, const decoder& decode) {
        if (r.ec) {
            return {r.ec, r.ec.message(), logic::judge_transport(r.ec, r.sent)};
        }
        std::optional<wire::status> bad;
        if (r.status == 200) {
            try {
                bad = decode(r.body);
            } catch (const error& e) {
                return {e.code(), e.what(), logic::judge_transport(e.code(), true)};
            }
        } else {
            bad = wire::decode_status(r.status, r.body);
        }
        if (!bad) {
            return {};
        }
        return {bad->code, bad->message, logic::judge(*bad)};
    }

    std::shared_ptr<env> env_;
    std::vector<logic::endpoint> endpoints_;
    logic::endpoint_choice<time_point> choice_;
};

} // namespace coetcd::detail
