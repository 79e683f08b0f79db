// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/service/watcher.hpp>
#include <coetcd/watch.hpp>

#include <memory>
#include <utility>

namespace coetcd {

COETCD_DECL watcher::watcher(std::shared_ptr<detail::watcher_impl> impl)
    : impl_(std::move(impl)) {}

COETCD_DECL watcher& watcher::operator=(watcher&& other) noexcept {
    watcher old(std::move(*this)); // ends the watch that this one was
    impl_ = std::move(other.impl_);
    return *this;
}

COETCD_DECL watcher::~watcher() {
    if (impl_) {
        detail::env& world = impl_->world();
        detail::at_home(world, [impl = std::move(impl_)] { impl->end(); });
    }
}

COETCD_DECL watcher::executor_type watcher::get_executor() const {
    return impl_->world().executor();
}

COETCD_DECL boost::asio::awaitable<watch_batch> watcher::next() {
    const std::shared_ptr<detail::watcher_impl>& self = impl_.get();
    return detail::go_home_and_back<watch_batch>(
        get_executor(), detail::watcher_impl::next(self), [self](watch_batch dropped) {
            self->put_back(std::move(dropped));
        });
}

} // namespace coetcd
