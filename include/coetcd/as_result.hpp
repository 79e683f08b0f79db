// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/error.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/error.hpp>
#include <boost/assert/source_location.hpp>
#include <boost/system/result.hpp>
#include <boost/system/system_error.hpp>

#include <exception>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace coetcd {

/// How an operation failed, without an exception: see `as_result`.
class failure {
public:
    /// No failure: what `error()` of a result returns if there is a value.
    failure() = default;
    /// @param cause What was thrown, a `boost::system::system_error`.
    failure(const boost::system::system_error& thrown, std::exception_ptr cause)
        : code_(thrown.code())
        , text_(thrown.what())
        , cause_(std::move(cause)) {}

    const error_code& code() const noexcept { return code_; }  ///< For programs.
    const std::string& text() const noexcept { return text_; } ///< For logs, like `error::what`.

    /// Whether the operation was cancelled, rather than failed.
    bool is_cancelled() const noexcept { return code_ == boost::asio::error::operation_aborted; }

    /// Throws what the operation would have thrown: `error`, `compacted_error`, or another one.
    [[noreturn]] void rethrow() const {
        if (!cause_) {
            throw std::logic_error("failure: there is none");
        }
        std::rethrow_exception(cause_);
    }

private:
    error_code code_;
    std::string text_;
    std::exception_ptr cause_;
};

template<class Char, class Traits>
std::basic_ostream<Char, Traits>& operator<<(std::basic_ostream<Char, Traits>& out,
                                             const failure& f) {
    return out << f.text().c_str();
}

/// Called by `value()` of a result that has none.
[[noreturn]] inline void throw_exception_from_error(const failure& f,
                                                    const boost::source_location&) {
    f.rethrow();
}

/// What an operation returned, or how it failed.
template<class T>
using result = boost::system::result<T, failure>;

/// Awaits an operation, and returns what it returned or how it failed, instead of throwing.
///
///     const auto locked = co_await coetcd::as_result(mutex.try_lock_for(5s));
///     if (!locked) {
///         log(locked.error().text());
///     } else if (*locked) {
///
/// Works for every awaitable of this library. A cancelled operation has the code
/// `operation_aborted`: see `failure::is_cancelled`. An exception that is not a
/// `boost::system::system_error` is thrown all the same: for invalid arguments, already at the
/// call, or by the body of `with_lock`. Asio itself also throws `operation_aborted` where a
/// cancelled coroutine awaits again, unless it called `this_coro::throw_if_cancelled`.
///
/// Because it always succeeds, `as_result(a) || as_result(b)` ends with the first one that ends;
/// `a || b` with the first that succeeds.
template<class T>
boost::asio::awaitable<result<T>> as_result(boost::asio::awaitable<T> work) {
    std::optional<failure> failed;
    if constexpr (std::is_void_v<T>) {
        try {
            co_await std::move(work);
        } catch (const boost::system::system_error& e) {
            failed.emplace(e, std::current_exception());
        }
        if (failed) {
            co_return result<T>(boost::system::in_place_error, std::move(*failed));
        }
        co_return result<T>(boost::system::in_place_value);
    } else {
        std::optional<T> value;
        try {
            value.emplace(co_await std::move(work));
        } catch (const boost::system::system_error& e) {
            failed.emplace(e, std::current_exception());
        }
        if (failed) {
            co_return result<T>(boost::system::in_place_error, std::move(*failed));
        }
        co_return result<T>(boost::system::in_place_value, std::move(*value));
    }
}

} // namespace coetcd
