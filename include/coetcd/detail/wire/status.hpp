// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/wire/json.hpp>
#include <coetcd/detail/wire/printable.hpp>
#include <coetcd/error.hpp>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace coetcd::detail::wire {

/// A failure that etcd, or something before it, reports.
struct status {
    server_errc code;
    std::string message;  ///< Printable.
    bool foreign = false; ///< Not in etcd's words: something else answered, perhaps before it.
    /// If foreign: what answered accepts no request this large.
    bool too_large = false;
};

/// What an HTTP status means where the body does not say it.
inline server_errc to_server_errc(unsigned http_status) {
    switch (http_status) {
    case 301: // to be sent elsewhere, or in another way
    case 302:
    case 307:
    case 308:
    case 411:
    case 415:
    case 421:
    case 431:
        return server_errc::failed_precondition;
    case 400:
    case 413: // as etcd says of a request that is too large
        return server_errc::invalid_argument;
    case 401:
        return server_errc::unauthenticated;
    case 403:
        return server_errc::permission_denied;
    case 404: // no such method in this etcd, or no gateway
    case 405:
    case 501:
        return server_errc::unimplemented;
    case 408:
    case 499:
        return server_errc::canceled;
    case 409:
        return server_errc::aborted;
    case 429:
        return server_errc::resource_exhausted;
    case 503:
        return server_errc::unavailable;
    case 504:
        return server_errc::deadline_exceeded;
    default:
        return server_errc::unknown;
    }
}

/// Reads an error in any of the gateway's forms.
/// @returns Nothing if `body` is none of them.
inline std::optional<status> to_status(const json_value& body) {
    if (!body.is_object()) {
        return std::nullopt;
    }
    const auto* error = find_field(body, "error");
    const bool wrapped = error && error->is_object(); // as on streams
    const auto& fields = wrapped ? *error : body;
    const auto* code = wrapped ? find_field(fields, "grpc_code") : nullptr;
    if (!code) {
        code = find_field(fields, "code");
    }
    if (!code && !wrapped) {
        return std::nullopt;
    }
    status result{server_errc::unknown, {}};
    if (const auto number = code ? to_integer<int>(*code) : std::nullopt;
        number && *number >= 1 && *number <= 16) {
        result.code = static_cast<server_errc>(*number);
    } else {
        result.foreign = true; // others write JSON, too
    }
    const auto* message = find_field(fields, "message");
    if (!message && !wrapped) {
        message = error;
    }
    if (message && message->is_string()) {
        result.message = printable(message->text);
    }
    // etcd names what it does not find. Newer gateways, and whatever routes requests, refuse an
    // unknown path with an error that names nothing.
    if (result.code == server_errc::not_found &&
        result.message.find("etcdserver: ") == std::string::npos) {
        result.code = server_errc::unimplemented;
    }
    return result;
}

/// The one refusal that etcd writes as plain text: of a client certificate that names a user.
inline bool refuses_common_name(std::string_view text) {
    return text.find("CommonName of client sending a request") != text.npos;
}

/// Classifies the answer to a request that failed. Never throws, whatever the answer holds. If the
/// body names no code, it is not etcd's, and the HTTP status decides.
inline status decode_status(unsigned http_status, std::string_view body) {
    if (const auto json = try_parse(body)) {
        if (auto result = to_status(json->root())) {
            if (result->foreign) {
                result->code = to_server_errc(http_status);
                result->too_large = http_status == 413;
            }
            return *std::move(result);
        }
    }
    constexpr std::string_view space = " \t\r\n";
    const auto first = body.find_first_not_of(space);
    const bool empty = first == body.npos;
    const bool too_large = http_status == 413;
    std::string message;
    if (empty || too_large) {
        message = "HTTP status " + std::to_string(http_status) + (empty ? "" : ": ");
    }
    if (!empty) {
        body = body.substr(first, body.find_last_not_of(space) - first + 1);
        message += printable(body);
    }
    return {to_server_errc(http_status), std::move(message), !refuses_common_name(body), too_large};
}

/// Reads why etcd ended one watch of a stream.
/// @returns Nothing if it gives no gRPC code.
inline std::optional<status> decode_cancel_reason(std::string_view reason) {
    constexpr std::string_view before_code = "rpc error: code = ";
    constexpr std::string_view before_text = " desc = ";
    // As gRPC for Go spells its codes, in order.
    constexpr std::string_view words[] = {"Canceled",
                                          "Unknown",
                                          "InvalidArgument",
                                          "DeadlineExceeded",
                                          "NotFound",
                                          "AlreadyExists",
                                          "PermissionDenied",
                                          "ResourceExhausted",
                                          "FailedPrecondition",
                                          "Aborted",
                                          "OutOfRange",
                                          "Unimplemented",
                                          "Internal",
                                          "Unavailable",
                                          "DataLoss",
                                          "Unauthenticated"};
    const auto end = reason.find(before_text);
    if (!reason.starts_with(before_code) || end == reason.npos || end < before_code.size()) {
        return std::nullopt;
    }
    const auto word = reason.substr(before_code.size(), end - before_code.size());
    const auto* const found = std::find(std::begin(words), std::end(words), word);
    const bool known = found != std::end(words);
    return status{known ? static_cast<server_errc>(found - std::begin(words) + 1)
                        : server_errc::unknown,
                  printable(reason.substr(end + before_text.size()))};
}

} // namespace coetcd::detail::wire
