// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/endpoint.hpp>
#include <coetcd/detail/logic/key_space.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/rpc.hpp>
#include <coetcd/detail/wire/decode.hpp>
#include <coetcd/detail/wire/encode.hpp>
#include <coetcd/detail/wire/requests.hpp>
#include <coetcd/detail/wire/status.hpp>
#include <coetcd/error.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace coetcd::detail {

/// The terms of a call: its deadline, its connections, and how often it may be tried.
struct call_terms {
    time_point deadline; ///< For all attempts together.
    std::chrono::nanoseconds attempt_timeout = std::chrono::seconds(2); ///< If it may be repeated.
    connection_kind way = connection_kind::shared;
    std::optional<impact> known{}; ///< Of this very request; if empty, the usual one.
    bool can_be_split = false;     ///< See `logic::attempts`.
    bool may_be_large = false;     ///< The true answer may be over the limit.
    /// Where alone it may be made; null for any endpoint. Must outlive the call.
    const logic::endpoint* only = nullptr;
    /// Whether anybody still wants it; null if that is certain. Must outlive the call.
    const std::function<bool()>* wanted = nullptr;

    /// Told what keeps the call from its end: when the first attempt begins, and when any attempt
    /// fails. Null if nobody is to be told. Must outlive the call.
    const std::function<void(const std::string& how)>* tried = nullptr;

    /// Whether no further attempt is to be made.
    bool is_over(time_point now) const { return now >= deadline || (wanted && !(*wanted)()); }

    call_terms as(impact what) const {
        call_terms result = *this;
        result.known = what;
        return result;
    }
    call_terms at(const logic::endpoint& where) const {
        call_terms result = *this;
        result.only = &where;
        return result;
    }
};

/// How a call went.
struct answer {
    error_code ec;
    std::string text;                         ///< For a log, if `ec` is set.
    logic::effect left = logic::effect::none; ///< By the attempts that failed.
    bool refused = false;                     ///< See `logic::attempts`.
    time_point sent{};                        ///< When the attempt that succeeded was sent.
    logic::endpoint by;                       ///< The endpoint that answered it.

    /// Throws the error that a user is to see.
    void check() const {
        if (ec) {
            throw error(ec, text);
        }
    }
};

/// How a call went, and what etcd said.
template<class Response>
struct outcome : answer {
    Response response; ///< As initialized, if `ec` is set.
};

/// What the body of an answer turned out to be: an answer of some etcd cluster, or an error, which
/// names none.
struct decoded {
    decoded(const response_header& header)
        : cluster(header.cluster_id) {}
    decoded(wire::status failed)
        : failure(std::move(failed)) {}
    std::uint64_t cluster = 0; ///< 0: it does not say.
    std::optional<wire::status> failure;
};

/// Takes the body of an answer. The result counts only if the call succeeds: the answer may be
/// another cluster's. Throws `errc::protocol_error` if it is neither.
using decoder = std::function<decoded(const std::string& body)>;

class router;

/// The way to a cluster, and to some of its keys. Each request about keys is written here, and each
/// answer passes here once it is read; `carry` sends a body as it is.
struct route {
    route(std::shared_ptr<router> r, std::shared_ptr<const logic::key_space> k = nullptr)
        : by(std::move(r))
        , keys(std::move(k)) {}
    router* operator->() const { return by.get(); }

    /// See `logic::encode`.
    template<class Request>
    std::string write(const Request& asked) const {
        return logic::encode(keys.get(), asked);
    }
    /// See `logic::tell`.
    template<class Message>
    Message told(Message said) const {
        if (keys) {
            logic::tell(*keys, said);
        }
        return said;
    }

    std::shared_ptr<router> by;
    std::shared_ptr<const logic::key_space> keys; ///< Null: all there are.
};

/// Makes a request that is written already; router.hpp has the definition. `body` is wiped at the
/// end. When cancelled, it throws `operation_aborted`; the request may have been applied.
inline asio::awaitable<answer>
carry(std::shared_ptr<router> by, rpc what, call_terms how, std::string body, decoder decode);

/// The part of `call` that waits.
template<class Request>
asio::awaitable<outcome<wire::response_of<Request>>>
carry_for(route by, call_terms how, std::string body) {
    using response = wire::response_of<Request>;
    outcome<response> result;
    decoder decode = [&result, &by](const std::string& text) -> decoded {
        auto message = by.told(wire::decode_answer<Request>(text));
        if (auto* failure = std::get_if<wire::status>(&message)) {
            return std::move(*failure);
        }
        result.response = std::get<response>(std::move(message));
        return result.response.header;
    };
    constexpr rpc what = wire::request_traits<Request>::what;
    answer how_it_went =
        co_await carry(std::move(by.by), what, how, std::move(body), std::move(decode));
    static_cast<answer&>(result) = std::move(how_it_went);
    if (result.ec) {
        result.response = response();
    }
    co_return result;
}

/// Makes a request, and reads its answer. When cancelled, it throws `operation_aborted`; the
/// request may have been applied.
/// @throws std::invalid_argument if the request cannot be written, at once.
template<class Request>
asio::awaitable<outcome<wire::response_of<Request>>>
call(route by, const Request& request, call_terms how) {
    how.may_be_large = wire::may_be_large(request);
    std::string body = by.write(request);
    return carry_for<Request>(std::move(by), how, std::move(body));
}

} // namespace coetcd::detail
