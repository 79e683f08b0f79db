// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client_options.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/rpc.hpp>
#include <coetcd/detail/service/call.hpp>
#include <coetcd/detail/service/lane.hpp>
#include <coetcd/detail/service/lane_part.hpp>
#include <coetcd/detail/service/router.hpp>
#include <coetcd/detail/service/until_over.hpp>
#include <coetcd/detail/wire/requests.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

namespace coetcd::detail {

/// Users' calls that share requests: see `client_options::combine_calls`. Those that only read go
/// together, and so do those that may change something.
class combined_calls {
public:
    combined_calls(const route& by, const client_options& o)
        : readers_(make_lane(by, o, impact::none))
        , writers_(make_lane(by, o, impact::once)) {}

    /// Where such a transaction may share a request; null if it has to go by itself:
    /// - a nested one would be nested too deep;
    /// - what one member answers from its memory would become a matter of all;
    /// - an answer that is too large would be lost for all, and those that may have changed
    ///   something are not repeated.
    std::shared_ptr<transaction_lane> lane_for(const txn& what, impact does) const {
        const auto may_join = [](const op& o) {
            const auto* read = std::get_if<range_request>(&o);
            return !std::holds_alternative<txn>(o) && !(read && read->options.serializable);
        };
        const bool may = (does == impact::none || !wire::may_be_large(what)) &&
                         std::all_of(what.success.begin(), what.success.end(), may_join) &&
                         std::all_of(what.failure.begin(), what.failure.end(), may_join);
        return !may ? nullptr : does == impact::none ? readers_ : writers_;
    }

private:
    static std::shared_ptr<transaction_lane>
    make_lane(const route& by, const client_options& o, impact does) {
        const lane_terms terms{connection_kind::shared, does, true};
        return std::make_shared<transaction_lane>(by, o.request_timeout, o.attempt_timeout, terms);
    }

    const std::shared_ptr<transaction_lane> readers_;
    const std::shared_ptr<transaction_lane> writers_;
};

/// What a caller is told whose time is over before its request has ended.
/// @param part Withdrawn.
inline error overdue(const lane_part& part, impact does) {
    if (!part.in_flight) {
        return error(errc::timed_out,
                     "txn: the deadline passed; earlier requests were not answered");
    }
    const errc code = does == impact::once ? errc::outcome_unknown : errc::timed_out;
    return error(code, part.text + "; the deadline passed");
}

/// Makes a call in the company of others, or by itself if it turns out that it cannot have any.
inline asio::awaitable<txn_response>
ask_in_company(route by, std::shared_ptr<transaction_lane> lane, txn what, call_terms how) {
    const bool has_conditions = !what.compares.empty();
    const auto part = std::make_shared<lane_part>(std::move(what));
    part->likely = !has_conditions;
    part->not_after = how.deadline;
    part->patience = how.deadline - by->world()->now();
    auto sharing = until_over(lane, part, how.deadline);
    const bool over = co_await std::move(sharing);
    if (part->by_itself) {
        auto calling = call(by, part->what, how);
        outcome<txn_response> alone = co_await std::move(calling);
        lane->remember(part->what, alone.ec);
        alone.check();
        co_return std::move(alone.response);
    }
    if (!over) {
        throw overdue(*part, lane->terms().does);
    }
    if (part->ec) {
        throw error(part->ec, part->text);
    }
    co_return std::move(part->response);
}

/// The answer to the only operation of a transaction.
template<class Response>
asio::awaitable<Response> only_answer(asio::awaitable<txn_response> asking) {
    txn_response all = co_await std::move(asking);
    Response only = std::get<Response>(std::move(all.responses.front()));
    only.header = all.header;
    co_return only;
}

} // namespace coetcd::detail
