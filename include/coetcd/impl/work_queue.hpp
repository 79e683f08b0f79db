// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/logic/item_order.hpp>
#include <coetcd/detail/logic/work.hpp>
#include <coetcd/detail/recipe/job.hpp>
#include <coetcd/detail/recipe/work_queue.hpp>
#include <coetcd/detail/wire/encode.hpp>
#include <coetcd/work_queue.hpp>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace coetcd {

namespace detail {

static_assert(work_queue::max_batch == logic::most_appended);

/// Ends a job, at the call.
inline boost::asio::awaitable<bool>
end_job(const std::shared_ptr<job_impl>& held, job_impl::verdict how, txn with = {}) {
    held->begin_to_end(how, std::move(with));
    return go_home(held->session().world.executor(), job_impl::until_ended(held, how));
}

/// What a public dead_item says.
inline logic::work::item to_dead(const std::string& name, dead_item which) {
    const std::string prefix = logic::work::dead_keys(name);
    if (!which.key.starts_with(prefix)) {
        throw std::invalid_argument("dead_item::key: not the key of a dead item of this queue");
    }
    return {which.key.substr(prefix.size()), std::move(which.value), which.revision};
}

} // namespace detail

COETCD_DECL job::job(std::shared_ptr<detail::job_impl> held)
    : held_(std::move(held)) {}

COETCD_DECL job::job(job&& other) noexcept
    : held_(std::move(other.held_)) {}

COETCD_DECL job& job::operator=(job&& other) noexcept {
    job old(std::move(*this)); // puts back what this one held
    held_ = std::move(other.held_);
    return *this;
}

COETCD_DECL job::~job() {
    if (held_) {
        held_->drop();
    }
}

COETCD_DECL job::executor_type job::get_executor() const {
    return held_->session().world.executor();
}

COETCD_DECL const std::string& job::value() const {
    return held_->what.value;
}

COETCD_DECL int job::attempt() const {
    return held_->id.attempt;
}

COETCD_DECL const std::string& job::id() const {
    return held_->id.order;
}

COETCD_DECL bool job::owns() const {
    return held_ && held_->owns();
}

COETCD_DECL bool job::lost() const {
    return held_ && held_->is_lost();
}

COETCD_DECL std::int64_t job::token() const {
    return held_->token();
}

COETCD_DECL compare job::is_mine() const {
    return compare::create_revision(held_->claim_key()) == held_->token();
}

COETCD_DECL boost::asio::awaitable<bool> job::ack() {
    return detail::end_job(held_, detail::job_impl::verdict::ack);
}

COETCD_DECL boost::asio::awaitable<bool> job::ack(txn with) {
    detail::logic::work::require_effect(with);
    (void)detail::wire::encode(with); // it throws if it cannot be written
    return detail::end_job(held_, detail::job_impl::verdict::ack_with, std::move(with));
}

COETCD_DECL boost::asio::awaitable<bool> job::retry() {
    return detail::end_job(held_, detail::job_impl::verdict::retry);
}

COETCD_DECL boost::asio::awaitable<bool> job::bury() {
    return detail::end_job(held_, detail::job_impl::verdict::bury);
}

COETCD_DECL
work_queue::work_queue(const session& owner, std::string name, work_options options) {
    if (options.max_attempts < 1) {
        throw std::invalid_argument("max_attempts: must be at least 1");
    }
    impl_ = std::make_shared<detail::work_queue_impl>(
        detail::access::impl(owner), std::move(name), options.max_attempts);
}

COETCD_DECL work_queue::executor_type work_queue::get_executor() const {
    return impl_->about->session->world.executor();
}

COETCD_DECL const std::string& work_queue::name() const {
    return impl_->about->name;
}

COETCD_DECL boost::asio::awaitable<void> work_queue::enqueue(std::string value) {
    std::vector<std::string> one;
    one.push_back(std::move(value));
    return enqueue(std::move(one));
}

COETCD_DECL boost::asio::awaitable<void> work_queue::enqueue(std::vector<std::string> values) {
    detail::logic::require_appendable(values);
    return detail::go_home(get_executor(),
                           detail::work_queue_impl::enqueue(impl_, std::move(values)));
}

COETCD_DECL boost::asio::awaitable<job> work_queue::take() {
    auto taking = detail::work_queue_impl::take(impl_, detail::time_point::max());
    return detail::go_home(get_executor(), detail::as_handle<job>(std::move(taking)));
}

COETCD_DECL boost::asio::awaitable<std::optional<job>> work_queue::try_take() {
    auto taking = detail::work_queue_impl::try_take(impl_);
    return detail::go_home(get_executor(), detail::as_handle_if_any<job>(std::move(taking)));
}

COETCD_DECL boost::asio::awaitable<std::optional<job>>
work_queue::take_for(std::chrono::nanoseconds patience) {
    if (patience.count() <= 0) {
        return try_take();
    }
    const auto deadline = detail::after(impl_->about->session->world.now(), patience);
    auto taking = detail::work_queue_impl::take(impl_, deadline);
    return detail::go_home(get_executor(), detail::as_handle_if_any<job>(std::move(taking)));
}

COETCD_DECL boost::asio::awaitable<work_state> work_queue::state() const {
    return detail::go_home(get_executor(), detail::work_queue_impl::state<work_state>(impl_));
}

COETCD_DECL boost::asio::awaitable<std::vector<dead_item>>
work_queue::dead(std::size_t limit) const {
    return detail::go_home(get_executor(), detail::work_queue_impl::dead<dead_item>(impl_, limit));
}

COETCD_DECL boost::asio::awaitable<bool> work_queue::revive(dead_item which) {
    auto item = detail::to_dead(name(), std::move(which));
    auto reviving = detail::work_queue_impl::revive(impl_, std::move(item));
    return detail::go_home(get_executor(), std::move(reviving));
}

COETCD_DECL boost::asio::awaitable<bool> work_queue::erase_dead(dead_item which) {
    auto item = detail::to_dead(name(), std::move(which));
    auto erasing = detail::work_queue_impl::erase_dead(impl_, std::move(item));
    return detail::go_home(get_executor(), std::move(erasing));
}

} // namespace coetcd
