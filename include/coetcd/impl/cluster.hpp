// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/cluster.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/logic/administration.hpp>
#include <coetcd/detail/rpc.hpp>
#include <coetcd/detail/service/administration.hpp>
#include <coetcd/detail/wire/cluster.hpp>
#include <coetcd/detail/wire/cluster_admin.hpp>

#include <utility>

namespace coetcd {

namespace detail {

inline cluster_member to_member(wire::member m) {
    return {
        m.id, std::move(m.name), std::move(m.peer_urls), std::move(m.client_urls), m.is_learner};
}

inline asio::awaitable<std::vector<cluster_member>>
members_of(asio::awaitable<wire::member_list_response> work) {
    wire::member_list_response r = co_await std::move(work);
    std::vector<cluster_member> all;
    for (wire::member& m : r.members) {
        all.push_back(to_member(std::move(m)));
    }
    co_return all;
}

inline asio::awaitable<cluster_member>
added_member(asio::awaitable<wire::member_add_response> work) {
    wire::member_add_response r = co_await std::move(work);
    cluster_member added = to_member(std::move(r.added));
    co_return added;
}

inline asio::awaitable<cluster_member>
add_member(const client& by, std::vector<std::string> peer_urls, bool is_learner) {
    logic::require_peer_urls(peer_urls);
    wire::member_add_request request{std::move(peer_urls), is_learner};
    return added_member(ask_as_admin(by, std::move(request)));
}

} // namespace detail

COETCD_DECL cluster::cluster(client by)
    : by_(std::move(by)) {}

COETCD_DECL boost::asio::awaitable<std::vector<cluster_member>> cluster::members() const {
    return detail::members_of(detail::ask_as_admin(by_, detail::wire::member_list_request()));
}

COETCD_DECL boost::asio::awaitable<cluster_member>
cluster::add_member(std::vector<std::string> peer_urls) const {
    return detail::add_member(by_, std::move(peer_urls), false);
}

COETCD_DECL boost::asio::awaitable<cluster_member>
cluster::add_learner(std::vector<std::string> peer_urls) const {
    return detail::add_member(by_, std::move(peer_urls), true);
}

COETCD_DECL boost::asio::awaitable<std::vector<cluster_member>>
cluster::promote_member(std::uint64_t id) const {
    detail::logic::require_member(id);
    const detail::wire::member_request<detail::rpc::member_promote> request{id};
    return detail::members_of(detail::ask_as_admin(by_, request));
}

COETCD_DECL boost::asio::awaitable<std::vector<cluster_member>>
cluster::update_member(std::uint64_t id, std::vector<std::string> peer_urls) const {
    detail::logic::require_member(id);
    detail::logic::require_peer_urls(peer_urls);
    detail::wire::member_update_request request{id, std::move(peer_urls)};
    return detail::members_of(detail::ask_as_admin(by_, std::move(request)));
}

COETCD_DECL boost::asio::awaitable<std::vector<cluster_member>>
cluster::remove_member(std::uint64_t id) const {
    detail::logic::require_member(id);
    const detail::wire::member_request<detail::rpc::member_remove> request{id};
    return detail::members_of(detail::ask_as_admin(by_, request));
}

} // namespace coetcd
