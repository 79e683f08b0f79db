// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/group.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/error.hpp>

#include <optional>

namespace coetcd::detail::logic {

/// One transaction of a request that has ended.
struct passenger {
    group::form how = group::form::flat; ///< How it was written.
    bool with_others = false;            ///< There were others in the same request.
    bool has_else = false;               ///< There is something to do if it is refused.
    bool asks_why = true;                ///< It asks why, even if that takes another request.
    bool doubtful = false;               ///< As `landing::doubtful`, from an earlier request.
    bool wanted = true;                  ///< Somebody still wants its outcome.
    bool may_repeat = true;              ///< It may be sent again.
};

/// What becomes of a transaction.
struct landing {
    enum class next {
        over,   ///< That was its outcome.
        alone,  ///< It is sent again, by itself.
        fewer,  ///< It is sent again with half as many others: one of them may be at fault.
        nested, ///< It is sent again with others, so that none refuses another.
    };
    next then = next::over;
    /// It was refused without a reason, or for the lack of another one's lease: a copy that the
    /// network made may have been applied before.
    bool doubtful = false;
};

/// @param ec How the request ended.
/// @param succeeded Whether this transaction's conditions held, if its answer says so.
inline landing land(const passenger& p, const error_code& ec, std::optional<bool> succeeded) {
    using form = group::form;
    using next = landing::next;
    const bool refused = !ec && !succeeded.value_or(false);
    const bool told_why =
        p.how == form::alone || (p.how == form::nested && succeeded && p.has_else);
    landing result;
    const bool lease_gone = p.with_others && ec == server_errc::not_found;
    result.doubtful = (refused && !told_why) || lease_gone || (ec && p.doubtful);
    if (!p.wanted || !p.may_repeat) {
        return result;
    }
    // Another one may be at fault, for etcd or for something before it that reads along. But an
    // error about etcd's data as a whole is not the fault of any single one.
    const bool for_good =
        ec && ec != server_errc::data_loss && (!is_transient(ec) || ec == errc::protocol_error);
    if (for_good && p.with_others) {
        result.then = next::fewer;
    } else if (!ec && !succeeded && p.with_others) {
        result.then = next::nested; // a condition does not hold: each for itself
    } else if (refused && !told_why && p.has_else && p.asks_why) {
        result.then = next::alone;
    }
    return result;
}

} // namespace coetcd::detail::logic
