// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/logic/item_order.hpp>
#include <coetcd/detail/recipe/dequeue.hpp>
#include <coetcd/detail/recipe/queue.hpp>
#include <coetcd/queue.hpp>

#include <memory>
#include <utility>

namespace coetcd {

static_assert(queue::max_batch == detail::logic::most_appended);

COETCD_DECL queue::queue(const session& owner, std::string name)
    : impl_(std::make_shared<detail::queue_impl>("queue",
                                                 detail::access::impl(owner),
                                                 std::move(name),
                                                 detail::logic::queue::order::arrival)) {}

COETCD_DECL queue::executor_type queue::get_executor() const {
    return impl_->of->session().world.executor();
}

COETCD_DECL const std::string& queue::name() const {
    return impl_->of->about.name;
}

COETCD_DECL boost::asio::awaitable<void> queue::enqueue(std::string value) {
    std::vector<std::string> one;
    one.push_back(std::move(value));
    return enqueue(std::move(one));
}

COETCD_DECL boost::asio::awaitable<void> queue::enqueue(std::vector<std::string> values) {
    detail::logic::require_appendable(values);
    auto appending = detail::queue_impl::append(impl_, impl_->of->keys.items(), std::move(values));
    return detail::go_home(get_executor(), std::move(appending));
}

COETCD_DECL boost::asio::awaitable<std::string> queue::dequeue() {
    return detail::dequeue(impl_);
}

COETCD_DECL boost::asio::awaitable<std::optional<std::string>> queue::try_dequeue() {
    return detail::try_dequeue(impl_);
}

COETCD_DECL boost::asio::awaitable<std::optional<std::string>>
queue::dequeue_for(std::chrono::nanoseconds patience) {
    return detail::dequeue_for(impl_, patience);
}

COETCD_DECL boost::asio::awaitable<std::int64_t> queue::size() const {
    return detail::go_home(get_executor(), detail::queue_impl::size(impl_));
}

} // namespace coetcd
