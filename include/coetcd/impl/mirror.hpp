// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/recipe/mirror.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/mirror.hpp>

#include <memory>
#include <stdexcept>
#include <utility>

namespace coetcd {

COETCD_DECL mirror_changes::mirror_changes(std::shared_ptr<detail::mirror_impl> of,
                                           std::shared_ptr<detail::mirror_reader> reader)
    : impl_(std::move(of))
    , reader_(std::move(reader)) {}

COETCD_DECL mirror_changes& mirror_changes::operator=(mirror_changes&& other) noexcept {
    mirror_changes old(std::move(*this)); // ends what this one was
    impl_ = std::move(other.impl_);
    reader_ = std::move(other.reader_);
    return *this;
}

COETCD_DECL mirror_changes::~mirror_changes() {
    if (impl_) {
        detail::env& world = *impl_->world();
        detail::at_home(
            world, [impl = std::move(impl_), gone = std::move(reader_)] { impl->remove(*gone); });
    }
}

COETCD_DECL mirror_changes::executor_type mirror_changes::get_executor() const {
    return impl_->world()->executor();
}

COETCD_DECL boost::asio::awaitable<mirror_batch> mirror_changes::next() {
    const std::shared_ptr<detail::mirror_impl>& self = impl_.get();
    return detail::go_home_and_back<mirror_batch>(
        get_executor(),
        detail::mirror_impl::next(self, reader_),
        [self, by = reader_](mirror_batch dropped) { self->put_back(*by, std::move(dropped)); });
}

COETCD_DECL mirror::mirror(std::shared_ptr<detail::mirror_impl> impl)
    : impl_(std::move(impl)) {}

COETCD_DECL mirror& mirror::operator=(mirror&& other) noexcept {
    mirror old(std::move(*this)); // ends what this one was
    impl_ = std::move(other.impl_);
    return *this;
}

COETCD_DECL mirror::~mirror() {
    if (impl_) {
        detail::env& world = *impl_->world();
        detail::at_home(world, [impl = std::move(impl_)] { impl->end(); });
    }
}

COETCD_DECL mirror::executor_type mirror::get_executor() const {
    return impl_->world()->executor();
}

COETCD_DECL mirror_entry mirror::get(std::string_view key) const {
    return impl_->state().get(key);
}

COETCD_DECL std::size_t mirror::size() const {
    return impl_->state().size();
}

COETCD_DECL std::int64_t mirror::revision() const {
    return impl_->state().revision();
}

COETCD_DECL mirror_snapshot mirror::snapshot() const {
    return impl_->state().snapshot(key_range::all());
}

COETCD_DECL mirror_snapshot mirror::snapshot(const key_range& part) const {
    return impl_->state().snapshot(part);
}

COETCD_DECL mirror_changes mirror::changes() const {
    const std::shared_ptr<detail::mirror_impl>& self = impl_.get();
    auto reader = detail::make_at_home<detail::mirror_reader>(self->world(), self->options.buffer);
    return detail::access::make<mirror_changes>(self, std::move(reader));
}

COETCD_DECL boost::asio::awaitable<void> mirror::wait(std::int64_t revision) const {
    return detail::go_home(get_executor(), detail::wait_for_revision(impl_, revision));
}

COETCD_DECL boost::asio::awaitable<bool> mirror::wait_for(std::int64_t revision,
                                                          std::chrono::nanoseconds patience) const {
    detail::require_revision(revision);
    const detail::time_point deadline = detail::after(impl_->world()->now(), patience);
    return detail::go_home(get_executor(), detail::mirror_impl::wait(impl_, revision, deadline));
}

COETCD_DECL std::optional<error> mirror::trouble() const {
    return impl_->state().trouble();
}

COETCD_DECL std::chrono::nanoseconds mirror::age() const {
    return impl_->state().age();
}

COETCD_DECL boost::asio::awaitable<mirror>
open_mirror(const client& by, std::string prefix, mirror_options options) {
    return open_mirror_of(by, key_range::prefix(std::move(prefix)), options);
}

COETCD_DECL boost::asio::awaitable<mirror>
open_mirror_of(const client& by, key_range keys, mirror_options options) {
    detail::require_key(keys.key);
    if (options.buffer == 0) {
        throw std::invalid_argument("buffer: must be positive");
    }
    const auto& impl = detail::access::impl(by);
    return impl->home(detail::as_handle<mirror>(
        detail::open_mirror(impl, detail::access::timeout(by), std::move(keys), options)));
}

} // namespace coetcd
