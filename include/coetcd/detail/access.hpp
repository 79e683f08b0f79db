// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <boost/asio/awaitable.hpp>

#include <memory>
#include <optional>
#include <utility>

namespace coetcd::detail {

/// What the public handles let the library's own code do.
class access {
public:
    template<class Handle>
    static const auto& impl(const Handle& handle) {
        return handle.impl_.get();
    }
    /// The timeout of calls that are made through this handle of a client.
    template<class Handle>
    static auto timeout(const Handle& handle) {
        return handle.timeout_;
    }
    template<class Held>
    static const auto& held(const Held& handle) {
        return handle.held_.get();
    }
    /// Another handle to what this one holds, if it holds anything.
    template<class Held>
    static Held another(const Held& handle) {
        return handle.another();
    }
    template<class Held>
    static bool answers(const Held& handle) {
        return handle.answers_;
    }
    template<class Handle, class... Args>
    static Handle make(Args&&... args) {
        return Handle(std::forward<Args>(args)...);
    }
};

/// What `work` makes, as a public handle.
template<class Handle, class Impl>
boost::asio::awaitable<Handle> as_handle(boost::asio::awaitable<std::shared_ptr<Impl>> work) {
    std::shared_ptr<Impl> impl = co_await std::move(work);
    co_return access::make<Handle>(std::move(impl));
}

/// What `work` makes, which may be null, as a public handle.
template<class Handle, class Impl>
boost::asio::awaitable<std::optional<Handle>>
as_handle_if_any(boost::asio::awaitable<std::shared_ptr<Impl>> work) {
    std::shared_ptr<Impl> impl = co_await std::move(work);
    std::optional<Handle> handle;
    if (impl) {
        handle.emplace(access::make<Handle>(std::move(impl)));
    }
    co_return handle;
}

} // namespace coetcd::detail
