// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/recipe/feed.hpp>
#include <coetcd/feed.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/leader.hpp>

#include <optional>
#include <utility>

namespace coetcd {

template<class T>
feed<T>::feed(std::shared_ptr<impl> made)
    : impl_(std::move(made)) {}

template<class T>
feed<T>& feed<T>::operator=(feed&& other) noexcept {
    feed old(std::move(*this)); // ends the feed that this one was
    impl_ = std::move(other.impl_);
    return *this;
}

template<class T>
feed<T>::~feed() {
    if (impl_) {
        detail::env& world = impl_->world();
        detail::at_home(world, [last = std::move(impl_)] { last->end(); });
    }
}

template<class T>
typename feed<T>::executor_type feed<T>::get_executor() const {
    return impl_->world().executor();
}

template<class T>
boost::asio::awaitable<T> feed<T>::next() {
    const std::shared_ptr<impl>& self = impl_.get();
    return detail::go_home_and_back<T>(
        get_executor(), impl::next(self), [self](const T&) { self->put_back(); });
}

#ifdef COETCD_SEPARATE_COMPILATION
template class feed<std::optional<leader>>;
template class feed<std::optional<key_value>>;
#endif

} // namespace coetcd
