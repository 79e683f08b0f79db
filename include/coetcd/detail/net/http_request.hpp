// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/env.hpp>
#include <coetcd/detail/wire/headers.hpp>

#include <algorithm>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace coetcd::detail::net {

/// The value of a `Grpc-Timeout` header: a little less than what is left, so that the server gives
/// up first and says so.
inline std::string grpc_timeout(std::chrono::nanoseconds left) {
    using namespace std::chrono;
    const milliseconds whole = duration_cast<milliseconds>(left);
    const milliseconds early = whole - std::min(whole / 10, milliseconds(100));
    // gRPC allows eight digits.
    return std::to_string(std::clamp<milliseconds::rep>(early.count(), 1, 99'999'999)) + "m";
}

/// How the body of a request is sent.
enum class framing {
    whole,  ///< All of it now.
    chunked ///< As chunks, over time; the answer streams back meanwhile.
};

/// One chunk of a chunked body.
inline std::string chunk(std::string_view text) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string size;
    for (std::size_t rest = text.size(); rest != 0; rest /= 16) {
        size.insert(size.begin(), digits[rest % 16]);
    }
    std::string out;
    out.reserve(size.size() + text.size() + 4);
    out.append(size).append("\r\n").append(text).append("\r\n");
    return out;
}

/// A request as it goes over the wire: header and body in one piece, so that no server ever sees a
/// request cut in half by our own doing.
/// @throws std::invalid_argument if the endpoint's name or the token cannot stand in a header.
inline std::string http_request(const call_request& request,
                                framing how,
                                std::optional<std::chrono::nanoseconds> time_left) {
    const std::string host = request.to.authority();
    if (!wire::is_header_value(host)) {
        throw std::invalid_argument("endpoints: a host name with control characters");
    }
    if (!wire::is_header_value(request.token)) {
        throw std::invalid_argument("credentials: a token with control characters");
    }
    std::string out; // large enough at once: a secret must not stay behind in a smaller one
    out.reserve(512 + host.size() + request.token.size() + request.headers.size() +
                request.body.size());
    out.append("POST ").append(path(request.what)).append(" HTTP/1.1\r\nHost: ").append(host);
    // Without Accept, etcd takes a request over TLS for one of its own gRPC clients.
    out.append("\r\nAccept: application/json\r\nContent-Type: application/json\r\n"
               "User-Agent: coetcd\r\n");
    if (wants_leader(request.what)) {
        // A member that has no leader says so at once, instead of after seven seconds.
        out.append("Grpc-Metadata-hasleader: true\r\n");
    }
    if (!request.token.empty()) {
        out.append("Authorization: ").append(request.token).append("\r\n");
    }
    out.append(request.headers);
    if (time_left) {
        out.append("Grpc-Timeout: ").append(grpc_timeout(*time_left)).append("\r\n");
    }
    if (how == framing::chunked) {
        // Go's server answers before the end of a request body only if it will close anyway.
        out.append("Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n");
        out.append(chunk(request.body));
    } else {
        out.append("Content-Length: ").append(std::to_string(request.body.size()));
        out.append("\r\n\r\n").append(request.body);
    }
    return out;
}

} // namespace coetcd::detail::net
