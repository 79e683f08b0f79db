// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/async/tasks.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/task_group.hpp>

#include <new>
#include <utility>

namespace coetcd {

COETCD_DECL task_group::task_group(const client& owner) {
    const auto& world = detail::access::impl(owner)->world;
    impl_ = detail::make_at_home<detail::tasks>(world, *world);
}

COETCD_DECL task_group& task_group::operator=(task_group&& other) noexcept {
    task_group old(std::move(*this)); // cancels what this one had
    impl_ = std::move(other.impl_);
    return *this;
}

COETCD_DECL task_group::~task_group() {
    if (impl_) {
        impl_->stop();
        try {
            (void)impl_->cancel();
        } catch (const std::bad_alloc&) {
            // They end by themselves.
        }
    }
}

COETCD_DECL task_group::executor_type task_group::get_executor() const {
    return impl_->world.executor();
}

COETCD_DECL bool task_group::spawn(executor_type where, boost::asio::awaitable<void> work) {
    return impl_->start(std::move(where), std::move(work));
}

COETCD_DECL std::size_t task_group::size() const {
    return impl_->size();
}

COETCD_DECL boost::asio::awaitable<std::size_t>
task_group::shutdown(std::chrono::nanoseconds patience) {
    impl_->stop();
    const auto deadline = detail::after(impl_->world.now(), patience);
    return detail::go_home(get_executor(), detail::tasks::until_over(impl_, deadline));
}

} // namespace coetcd
