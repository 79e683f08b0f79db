// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/wire/status.hpp>
#include <coetcd/error.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace coetcd::detail::logic {

/// Whether etcd refused the token, or wants one. Nothing was done in that case.
inline bool wants_token(const wire::status& s) {
    const auto has = [&](std::string_view text) {
        return s.message.find(text) != std::string::npos;
    };
    if (s.foreign) {
        return false; // etcd's tokens would not help
    }
    return s.code == server_errc::unauthenticated ||
           (s.code == server_errc::invalid_argument &&
            (has("user name is empty") || has("auth store is old")));
}

/// Whether etcd says that it needs no login.
inline bool is_login_off(const error_code& ec, std::string_view text) {
    return ec == server_errc::failed_precondition &&
           text.find("authentication is not enabled") != text.npos;
}

/// The error, in the library's own terms where it has some.
inline error_code code_of(const wire::status& s) {
    if (s.foreign) {
        return errc::protocol_error;
    }
    if (s.code == server_errc::invalid_argument && wire::refuses_common_name(s.message)) {
        return errc::cn_auth_unsupported;
    }
    return s.code;
}

/// The state of a client's login. There is one login at a time. The more logins in a row were of no
/// use, the longer the pause before the next: checking a password is expensive for etcd.
template<class TimePoint>
class login_state {
public:
    /// @param needed Whether there is a user to log in.
    explicit login_state(bool needed)
        : needed_(needed) {}

    bool needed() const { return needed_; }

    enum class step {
        go,     ///< Send the request, with `token()`.
        log_in, ///< Call `begin()`, and log in.
        wait,   ///< Wait for the login under way, or until `not_before()`.
        fail,   ///< etcd has just refused the password: it is not asked again so soon.
    };
    step next(TimePoint now) const {
        if (!needed_ || valid_) {
            return step::go;
        }
        if (running_) {
            return step::wait;
        }
        if (now >= not_before_) {
            return step::log_in;
        }
        return refused_ ? step::fail : step::wait;
    }
    TimePoint not_before() const { return running_ ? TimePoint::max() : not_before_; }

    const std::string& token() const { return token_; }
    std::uint64_t number() const { return number_; } ///< The number of the token.
    /// How the last login failed, if it did; or the one under way, so far.
    const error_code& failure() const { return failure_; }
    const std::string& text() const { return text_; }

    void begin() { running_ = true; }
    /// How the login under way has failed so far: told to calls that cannot wait for its end.
    void tried(const error_code& ec, std::string text) {
        const bool late = ec == errc::timed_out || ec == server_errc::deadline_exceeded;
        failure_ = late ? errc::timed_out : errc::unavailable;
        text_ = std::move(text);
    }
    /// @param token Empty if etcd needs none.
    void succeeded(std::string token, TimePoint now, std::uint64_t random) {
        end(now, random);
        token_ = std::move(token);
        ++number_;
        valid_ = true;
        refused_ = false;
        failure_ = {};
        text_.clear();
    }
    /// @param refused True: etcd refused the login. False: there was nobody to say.
    void
    failed(bool refused, error_code ec, std::string text, TimePoint now, std::uint64_t random) {
        end(now, random);
        refused_ = refused;
        failure_ = ec;
        text_ = std::move(text);
    }

    // What became of a request with the token of that number.
    void accepted(std::uint64_t number) {
        if (number == number_) {
            useless_ = 0;
        }
    }
    /// @returns True at the first rejection of a token that was never accepted: the member that
    ///   granted it may be at fault.
    bool rejected(std::uint64_t number) {
        const bool news = number == number_ && valid_;
        if (news) {
            valid_ = false;
        }
        return news && useless_ != 0;
    }

private:
    static constexpr std::chrono::milliseconds first_pause{25};
    static constexpr std::chrono::milliseconds longest_pause{5000};

    void end(TimePoint now, std::uint64_t random) {
        running_ = false;
        not_before_ = now + backoff(useless_, random, first_pause, longest_pause);
        useless_ = std::min(useless_ + 1, 16U);
    }

    const bool needed_;
    bool valid_ = false;
    bool running_ = false;
    std::string token_;
    std::uint64_t number_ = 0;
    unsigned useless_ = 0; // logins since a token was last accepted
    TimePoint not_before_ = TimePoint::min();
    bool refused_ = false;
    error_code failure_;
    std::string text_;
};

} // namespace coetcd::detail::logic
