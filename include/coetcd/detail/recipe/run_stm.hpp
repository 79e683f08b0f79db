// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>

#include <boost/asio/awaitable.hpp>

#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

namespace coetcd::detail {

namespace asio = boost::asio;

class stm_run;

// See `stm_run`; from any executor.
asio::awaitable<void> begin_stm_run(std::shared_ptr<stm_run> run);
asio::awaitable<bool> commit_stm_run(std::shared_ptr<stm_run> run);
bool is_void(const stm_run& run);

/// Runs a body until what it has written is committed. The body runs where this is awaited, as a
/// part of this coroutine, and so is cancelled with it.
template<class Transaction, class Body>
asio::awaitable<typename std::invoke_result_t<Body&, Transaction&>::value_type>
run_stm(std::shared_ptr<stm_run> run, Body body) {
    using value_type = typename std::invoke_result_t<Body&, Transaction&>::value_type;
    constexpr bool is_nothing = std::is_void_v<value_type>;
    std::optional<std::conditional_t<is_nothing, std::monostate, value_type>> value;
    Transaction transaction = access::make<Transaction>(run);
    for (bool done = false; !done;) {
        co_await begin_stm_run(run);
        value.reset();
        std::exception_ptr failure;
        try {
            auto work = body(transaction);
            if constexpr (is_nothing) {
                co_await std::move(work);
            } else {
                value.emplace(co_await std::move(work));
            }
        } catch (...) {
            failure = std::current_exception();
        }
        if (is_void(*run)) {
            continue;
        }
        if (failure) {
            std::rethrow_exception(failure);
        }
        done = co_await commit_stm_run(run);
    }
    if constexpr (!is_nothing) {
        co_return std::move(*value);
    }
}

} // namespace coetcd::detail
