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

TEST_CASE("what users have stored makes an answer large, and nothing else does",
          "[wire][requests]") {
    range_options count;
    count.count_only = true;
    put_options old;
    old.prev_kv = true;
    erase_options erased;
    erased.prev_kv = true;
    CHECK(may_be_large(range_request("k")));
    CHECK_FALSE(may_be_large(range_request("k", count)));
    CHECK(may_be_large(put_request("k", "v", old)));
    CHECK_FALSE(may_be_large(put_request("k", "v")));
    CHECK(may_be_large(erase_request("k", erased)));
    CHECK_FALSE(may_be_large(erase_request("k")));
    CHECK(may_be_large(lease_leases_request()));
    CHECK(may_be_large(lease_time_to_live_request{7, true}));
    CHECK_FALSE(may_be_large(lease_time_to_live_request{7, false}));
    CHECK_FALSE(may_be_large(lease_keep_alive_request{7}));
    CHECK_FALSE(may_be_large(lease_grant_request{}));
    CHECK_FALSE(may_be_large(member_list_request()));
    CHECK_FALSE(may_be_large(status_request()));
    CHECK_FALSE(may_be_large(txn().then(op::put("k", "v"), op::erase("k"))));
    CHECK(may_be_large(txn().then(op::put("k", "v"), op::range("k"))));
    CHECK(may_be_large(txn().otherwise(op::range("k"))));
    CHECK(may_be_large(txn().otherwise(op::nested(txn().then(op::put("k", "v", old))))));
    CHECK_FALSE(may_be_large(txn().otherwise(op::nested(txn().then(op::range("k", count))))));
}
