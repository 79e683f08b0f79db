// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/detail/access.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/administration.hpp>
#include <coetcd/detail/logic/endpoint.hpp>
#include <coetcd/detail/rpc.hpp>
#include <coetcd/detail/service/call.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/detail/wire/requests.hpp>
#include <coetcd/error.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace coetcd::detail {

/// Throws the error that an administrator is to see.
inline void check_administration(rpc what, const answer& a) {
    if (a.ec) {
        const error_code ec = logic::meaning_of(a.ec, a.text);
        throw error(ec, a.text + logic::advice(what, ec));
    }
}

/// One request of an administrator. It is written only here: it may hold a password.
/// @param only Where alone it may be made; nothing for any endpoint.
template<class Request>
asio::awaitable<outcome<wire::response_of<Request>>>
administer(std::shared_ptr<client_impl> by,
           Request request,
           call_terms how,
           std::optional<logic::endpoint> only) {
    if (only) {
        how.only = &*only;
    }
    auto asking = call(by->cluster_router, request, how);
    outcome<wire::response_of<Request>> result = co_await std::move(asking);
    check_administration(wire::request_traits<Request>::what, result);
    co_return std::move(result);
}

/// The answer alone.
template<class Response>
asio::awaitable<Response> answer_of(asio::awaitable<outcome<Response>> work) {
    outcome<Response> result = co_await std::move(work);
    co_return std::move(result.response);
}
template<class Request>
asio::awaitable<wire::response_of<Request>> ask_as_admin(const std::shared_ptr<client_impl>& by,
                                                         Request request,
                                                         call_terms how,
                                                         std::optional<logic::endpoint> only = {}) {
    return answer_of(administer(by, std::move(request), how, std::move(only)));
}

/// The same, on the terms of a user's client.
template<class Request>
asio::awaitable<wire::response_of<Request>> ask_as_admin(const client& by, Request request) {
    const auto& impl = access::impl(by);
    const call_terms how = impl->within(access::timeout(by));
    return impl->home(ask_as_admin(impl, std::move(request), how));
}

/// Nothing but the end of it.
template<class Response>
asio::awaitable<void> end_of(asio::awaitable<Response> work) {
    (void)co_await std::move(work);
}

/// What `work` returns; nothing if that does not exist.
template<class T>
asio::awaitable<std::optional<T>> if_found(asio::awaitable<T> work) {
    std::optional<T> found;
    try {
        found.emplace(co_await std::move(work));
    } catch (const error& e) {
        if (e.code() != server_errc::not_found) {
            throw;
        }
    }
    co_return found;
}

/// False if what was to be changed does not exist.
template<class T>
asio::awaitable<bool> whether_found(asio::awaitable<T> work) {
    const auto found = co_await if_found(std::move(work));
    co_return found.has_value();
}

} // namespace coetcd::detail
