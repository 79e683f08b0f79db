// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <memory>
#include <stdexcept>
#include <utility>

namespace coetcd::detail {

/// What a public object refers to. Using an empty one is a defect of the program, and throws
/// `std::logic_error`.
template<class Impl>
class handle {
public:
    handle() noexcept = default;
    handle(std::shared_ptr<Impl> impl) noexcept
        : impl_(std::move(impl)) {}

    explicit operator bool() const noexcept { return impl_ != nullptr; }

    const std::shared_ptr<Impl>& get() const {
        if (!impl_) {
            throw std::logic_error("coetcd: an empty object was used: it was moved from, or "
                                   "default-constructed");
        }
        return impl_;
    }
    operator const std::shared_ptr<Impl>&() const { return get(); }
    Impl* operator->() const { return get().get(); }

private:
    std::shared_ptr<Impl> impl_;
};

} // namespace coetcd::detail
