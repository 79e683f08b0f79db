// SPDX-License-Identifier: BSL-1.0
// Any bytes as an answer: a value or a protocol error, nothing else. The first byte says which call
// it answers.
#include <coetcd/detail/wire/decode.hpp>
#include <coetcd/detail/wire/status.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "fuzz/fuzz.hpp"

using namespace coetcd;
using namespace coetcd::detail;

namespace {

bool is_printable(const std::string& text) {
    return std::none_of(text.begin(), text.end(), [](char c) {
        return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    });
}

void check(const wire::status& s) {
    fuzz::require(is_printable(s.message));
    const int code = static_cast<int>(s.code);
    fuzz::require(code >= 1 && code <= 16);
}

template<class Response>
void answer(std::string_view text) {
    const Response r = wire::decode<Response>(text);
    fuzz::require(r.header.revision >= 0);
}

template<class Response>
void message(std::string_view text) {
    const auto m = wire::decode_stream<Response>(text);
    if (const auto* failure = std::get_if<wire::status>(&m)) {
        check(*failure);
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) {
        return 0;
    }
    const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
    try {
        switch (data[0] % 15) {
        case 0:
            answer<range_response>(text);
            break;
        case 1:
            answer<put_response>(text);
            break;
        case 2:
            answer<erase_response>(text);
            break;
        case 3:
            answer<txn_response>(text);
            break;
        case 4:
            answer<compaction_response>(text);
            break;
        case 5:
            answer<lease_grant_response>(text);
            break;
        case 6:
            answer<lease_revoke_response>(text);
            break;
        case 7:
            message<lease_keep_alive_response>(text);
            break;
        case 8:
            answer<lease_time_to_live_response>(text);
            break;
        case 9:
            answer<lease_leases_response>(text);
            break;
        case 10:
            message<wire::watch_response>(text);
            break;
        case 11:
            answer<wire::authenticate_response>(text);
            break;
        case 12:
            answer<wire::member_list_response>(text);
            answer<coetcd::member_status>(text);
            break;
        case 13:
            check(wire::decode_status(400, text));
            break;
        case 14: {
            std::string encoded;
            wire::append_base64(encoded, text);
            std::string decoded;
            fuzz::require(wire::decode_base64(encoded, decoded) && decoded == text);
            decoded.clear();
            (void)wire::decode_base64(text, decoded);
            break;
        }
        }
    } catch (const error& e) {
        fuzz::require(e.code() == errc::protocol_error);
        fuzz::require(is_printable(e.what()));
    }
    return 0;
}
