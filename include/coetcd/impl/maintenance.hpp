// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/logic/administration.hpp>
#include <coetcd/detail/service/administration.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/detail/service/maintenance.hpp>
#include <coetcd/detail/service/snapshot.hpp>
#include <coetcd/detail/wire/cluster.hpp>
#include <coetcd/detail/wire/maintenance.hpp>
#include <coetcd/maintenance.hpp>

#include <stdexcept>
#include <utility>

namespace coetcd {

namespace detail {

inline asio::awaitable<std::vector<raised_alarm>>
raised_alarms(asio::awaitable<std::vector<wire::alarm_member>> work) {
    const std::vector<wire::alarm_member> found = co_await std::move(work);
    std::vector<raised_alarm> all;
    for (const wire::alarm_member& a : found) {
        all.push_back({a.member_id, static_cast<alarm_type>(a.type)});
    }
    co_return all;
}

inline asio::awaitable<kv_hash> hash_of(asio::awaitable<wire::hash_kv_response> work) {
    const wire::hash_kv_response r = co_await std::move(work);
    kv_hash h;
    h.member_id = r.header.member_id;
    h.hash = r.hash;
    h.revision = r.header.revision;
    h.compact_revision = r.compact_revision;
    h.hash_revision = r.hash_revision;
    co_return h;
}

inline asio::awaitable<std::string> version_of(asio::awaitable<wire::downgrade_response> work) {
    wire::downgrade_response r = co_await std::move(work);
    co_return std::move(r.version);
}

inline asio::awaitable<std::string>
downgrade(const client& by, wire::downgrade_request::act action, std::string version) {
    const bool reads = action == wire::downgrade_request::act::validate;
    const auto& impl = access::impl(by);
    const call_terms how =
        impl->within(access::timeout(by)).as(reads ? impact::none : impact::once);
    wire::downgrade_request request{action, std::move(version)};
    return impl->home(version_of(ask_as_admin(impl, std::move(request), how)));
}

inline asio::awaitable<snapshot_info> info_of(asio::awaitable<taken_snapshot> work) {
    taken_snapshot t = co_await std::move(work);
    snapshot_info info;
    info.size = t.size;
    info.sha256 = std::move(t.sha256);
    info.version = std::move(t.version);
    co_return info;
}

} // namespace detail

COETCD_DECL maintenance::maintenance(client by)
    : by_(std::move(by)) {}

COETCD_DECL boost::asio::awaitable<std::vector<raised_alarm>> maintenance::alarms() const {
    const auto& impl = detail::access::impl(by_);
    const detail::call_terms how = impl->within(detail::access::timeout(by_));
    return impl->home(detail::raised_alarms(detail::alarms(impl, how)));
}

COETCD_DECL boost::asio::awaitable<bool> maintenance::disarm(raised_alarm alarm) const {
    if (alarm.type != alarm_type::no_space && alarm.type != alarm_type::corrupt) {
        throw std::invalid_argument("alarm: its type must be no_space or corrupt");
    }
    detail::wire::alarm_request request;
    request.action = detail::wire::alarm_request::act::disarm;
    request.member_id = alarm.member_id;
    request.type = static_cast<std::int64_t>(alarm.type);
    const auto& impl = detail::access::impl(by_);
    const detail::call_terms how = impl->within(detail::access::timeout(by_));
    return impl->home(detail::disarm(impl, how, request));
}

COETCD_DECL boost::asio::awaitable<member_status> maintenance::status(std::string endpoint) const {
    const auto& impl = detail::access::impl(by_);
    const detail::call_terms how = impl->within(detail::access::timeout(by_));
    return impl->home(detail::ask_as_admin(
        impl, detail::wire::status_request(), how, detail::parse(endpoint, impl->options)));
}

COETCD_DECL boost::asio::awaitable<void> maintenance::defragment(std::string endpoint) const {
    const auto& impl = detail::access::impl(by_);
    const detail::call_terms how = impl->within(detail::access::timeout(by_));
    return impl->home(detail::defragment(impl, how, detail::parse(endpoint, impl->options)));
}

COETCD_DECL boost::asio::awaitable<kv_hash> maintenance::hash_kv(std::string endpoint,
                                                                 std::int64_t revision) const {
    if (revision < 0) {
        throw std::invalid_argument("revision: must not be negative");
    }
    const auto& impl = detail::access::impl(by_);
    const detail::call_terms how = impl->within(detail::access::timeout(by_));
    const detail::wire::hash_kv_request request{revision};
    return impl->home(detail::hash_of(
        detail::ask_as_admin(impl, request, how, detail::parse(endpoint, impl->options))));
}

COETCD_DECL boost::asio::awaitable<void> maintenance::move_leader(std::uint64_t member_id) const {
    detail::logic::require_member(member_id);
    const auto& impl = detail::access::impl(by_);
    const detail::call_terms how = impl->within(detail::access::timeout(by_));
    return impl->home(detail::move_leader(impl, how, member_id));
}

COETCD_DECL boost::asio::awaitable<std::string>
maintenance::validate_downgrade(std::string version) const {
    detail::logic::require_version(version);
    return detail::downgrade(
        by_, detail::wire::downgrade_request::act::validate, std::move(version));
}

COETCD_DECL boost::asio::awaitable<std::string>
maintenance::enable_downgrade(std::string version) const {
    detail::logic::require_version(version);
    return detail::downgrade(by_, detail::wire::downgrade_request::act::enable, std::move(version));
}

COETCD_DECL boost::asio::awaitable<std::string> maintenance::cancel_downgrade() const {
    return detail::downgrade(by_, detail::wire::downgrade_request::act::cancel, {});
}

COETCD_DECL boost::asio::awaitable<snapshot_info>
maintenance::snapshot(std::string endpoint,
                      std::filesystem::path file,
                      std::function<void(const snapshot_progress&)> progress) const {
    const auto& impl = detail::access::impl(by_);
    if (!file.has_filename()) {
        throw std::invalid_argument("file: has no name");
    }
    detail::snapshot_order order;
    order.from = detail::parse(endpoint, impl->options);
    order.file = std::move(file);
    order.patience = detail::access::timeout(by_);
    if (progress) {
        order.progress = [tell = std::move(progress)](std::uint64_t received, std::uint64_t total) {
            tell({received, total});
        };
    }
    const detail::call_terms how = impl->within(order.patience);
    return impl->home(detail::info_of(detail::take_snapshot(impl, how, std::move(order))));
}

} // namespace coetcd
