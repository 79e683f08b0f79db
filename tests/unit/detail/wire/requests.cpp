// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/wire/requests.hpp>

#include <type_traits>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail;
using namespace coetcd::detail::wire;

namespace {

template<class Request, class Response>
void check(rpc what, answer_form form = answer_form::whole) {
    CAPTURE(name(what));
    static_assert(std::is_same_v<response_of<Request>, Response>);
    CHECK((request_traits<Request>::what == what));
    CHECK((request_traits<Request>::form == form));
}

} // namespace

TEST_CASE("each request has its call and its answer", "[wire][requests]") {
    check<range_request, range_response>(rpc::range);
    check<put_request, put_response>(rpc::put);
    check<erase_request, erase_response>(rpc::delete_range);
    check<txn, txn_response>(rpc::txn);
    check<compaction_request, compaction_response>(rpc::compact);
    check<lease_grant_request, lease_grant_response>(rpc::lease_grant);
    check<lease_revoke_request, lease_revoke_response>(rpc::lease_revoke);
    check<lease_keep_alive_request, lease_keep_alive_response>(rpc::lease_keep_alive,
                                                               answer_form::stream);
    check<lease_time_to_live_request, lease_time_to_live_response>(rpc::lease_time_to_live);
    check<lease_leases_request, lease_leases_response>(rpc::lease_leases);
    check<authenticate_request, authenticate_response>(rpc::authenticate);
    check<member_list_request, member_list_response>(rpc::member_list);
    check<status_request, coetcd::member_status>(rpc::status);
}
