// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/recipe/dequeue.hpp>
#include <coetcd/detail/recipe/queue.hpp>
#include <coetcd/priority_queue.hpp>

#include <memory>
#include <utility>
#include <vector>

namespace coetcd {

COETCD_DECL priority_queue::priority_queue(const session& owner, std::string name)
    : impl_(std::make_shared<detail::queue_impl>("priority_queue",
                                                 detail::access::impl(owner),
                                                 std::move(name),
                                                 detail::logic::queue::order::priority)) {}

COETCD_DECL priority_queue::executor_type priority_queue::get_executor() const {
    return impl_->of->session().world.executor();
}

COETCD_DECL const std::string& priority_queue::name() const {
    return impl_->of->about.name;
}

COETCD_DECL boost::asio::awaitable<void> priority_queue::enqueue(std::string value,
                                                                 std::uint16_t priority) {
    std::vector<std::string> one;
    one.push_back(std::move(value));
    auto appending =
        detail::queue_impl::append(impl_, impl_->of->keys.of_priority(priority), std::move(one));
    return detail::go_home(get_executor(), std::move(appending));
}

COETCD_DECL boost::asio::awaitable<std::string> priority_queue::dequeue() {
    return detail::dequeue(impl_);
}

COETCD_DECL boost::asio::awaitable<std::optional<std::string>> priority_queue::try_dequeue() {
    return detail::try_dequeue(impl_);
}

COETCD_DECL boost::asio::awaitable<std::optional<std::string>>
priority_queue::dequeue_for(std::chrono::nanoseconds patience) {
    return detail::dequeue_for(impl_, patience);
}

COETCD_DECL boost::asio::awaitable<std::int64_t> priority_queue::size() const {
    return detail::go_home(get_executor(), detail::queue_impl::size(impl_));
}

} // namespace coetcd
