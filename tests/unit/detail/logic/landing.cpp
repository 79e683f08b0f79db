// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/landing.hpp>

#include <optional>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail::logic;
using form = group::form;
using next = landing::next;

namespace {

constexpr bool shared = true;
constexpr bool reason = true;
constexpr bool asks = true;
constexpr bool doubtful = true;
constexpr bool wanted = true;
constexpr bool may_repeat = true;
constexpr std::optional<bool> unknown;

} // namespace

TEST_CASE("what becomes of a transaction when its request has ended", "[logic][landing]") {
    const error_code ok;
    const error_code denied = server_errc::permission_denied;
    const error_code no_lease = server_errc::not_found;
    const error_code lost = errc::outcome_unknown;
    const error_code corrupt = server_errc::data_loss;
    const error_code strange = errc::protocol_error;
    struct {
        const char* what;
        passenger who;
        error_code ec;
        std::optional<bool> succeeded;
        next then;
        bool doubtful;
    } const rows[] = {
        {"it is done", {form::flat, shared}, ok, true, next::over, false},
        {"it is done, alone", {form::alone}, ok, true, next::over, false},
        {"and an earlier doubt is settled",
         {form::nested, shared, reason, asks, doubtful},
         ok,
         true,
         next::over,
         false},
        {"refused with others", {form::flat, shared, reason}, ok, unknown, next::nested, true},
        {"whether it asks or not", {form::flat, shared}, ok, unknown, next::nested, true},
        {"refused by others", {form::nested, shared, reason}, ok, unknown, next::nested, true},
        {"refused by itself", {form::flat, !shared, reason}, ok, unknown, next::alone, true},
        {"and nobody asks why",
         {form::flat, !shared, reason, !asks},
         ok,
         unknown,
         next::over,
         true},
        {"nor is there an answer", {form::flat, !shared}, ok, unknown, next::over, true},
        {"its own condition does not hold",
         {form::nested, shared, reason},
         ok,
         false,
         next::over,
         false},
        {"it was told why, if nobody asks",
         {form::nested, !shared, reason, !asks},
         ok,
         false,
         next::over,
         false},
        {"there is nothing to tell", {form::nested, shared}, ok, false, next::over, true},
        {"it was asked why",
         {form::alone, !shared, reason, asks, doubtful},
         ok,
         false,
         next::over,
         false},
        {"etcd refuses one of them", {form::flat, shared}, denied, unknown, next::fewer, false},
        {"but it may not be sent again",
         {form::flat, shared, !reason, asks, !doubtful, wanted, !may_repeat},
         denied,
         unknown,
         next::over,
         false},
        {"it refuses all that there is", {form::flat, shared}, corrupt, unknown, next::over, false},
        {"a lease of one of them is gone, now",
         {form::nested, shared},
         no_lease,
         unknown,
         next::fewer,
         true},
        {"its own lease is gone", {form::alone}, no_lease, unknown, next::over, false},
        {"nobody wants what shared a request with it",
         {form::flat, shared, reason, asks, !doubtful, !wanted},
         no_lease,
         unknown,
         next::over,
         true},
        {"etcd refuses it", {form::alone}, denied, unknown, next::over, false},
        {"something else answers", {form::nested, shared}, strange, unknown, next::fewer, false},
        {"even if it is alone", {form::alone}, strange, unknown, next::over, false},
        {"nobody answers", {form::flat, shared}, lost, unknown, next::over, false},
        {"and the doubt stays",
         {form::alone, !shared, reason, asks, doubtful},
         lost,
         unknown,
         next::over,
         true},
        {"nobody wants it any more",
         {form::flat, shared, reason, asks, !doubtful, !wanted},
         ok,
         unknown,
         next::over,
         true},
        {"nor does etcd",
         {form::flat, shared, reason, asks, !doubtful, !wanted},
         denied,
         unknown,
         next::over,
         false},
    };
    for (const auto& row : rows) {
        CAPTURE(row.what);
        const landing result = land(row.who, row.ec, row.succeeded);
        CHECK((result.then == row.then));
        CHECK(result.doubtful == row.doubtful);
    }
}
