// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/recipe/guarded.hpp>
#include <coetcd/detail/recipe/guarding.hpp>

#include <boost/asio/this_coro.hpp>

#include <memory>
#include <utility>

namespace coetcd::detail {

COETCD_DECL asio::awaitable<void> run_guarded(asio::any_io_executor home,
                                              std::shared_ptr<guarded_job> job) {
    const asio::any_io_executor here = co_await asio::this_coro::executor;
    auto all = from_here(here, std::move(home), guard_at_home(here, std::move(job)));
    co_await std::move(all);
}

} // namespace coetcd::detail
