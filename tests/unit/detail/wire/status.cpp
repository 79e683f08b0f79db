// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/wire/status.hpp>

#include <cstddef>
#include <random>
#include <string>
#include <string_view>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail::wire;
using namespace std::string_literals;

namespace {

/// True if the error is of this kind and says this.
bool says(unsigned http_status, std::string_view body, server_errc code, std::string_view message) {
    const auto result = decode_status(http_status, body);
    UNSCOPED_INFO(static_cast<int>(result.code) << ": " << result.message);
    return result.code == code && result.message == message;
}

} // namespace

TEST_CASE("an error is read in each form that the gateways write", "[wire][status]") {
    const auto text = "etcdserver: requested lease not found";
    // unary: etcd 3.4 to 3.5, then 3.6
    CHECK(says(404,
               R"({"error":"etcdserver: requested lease not found",)"
               R"("message":"etcdserver: requested lease not found","code":5})",
               server_errc::not_found,
               text));
    CHECK(says(404,
               R"({"code":5, "message":"etcdserver: requested lease not found"})",
               server_errc::not_found,
               text));
    CHECK(says(404,
               R"({"code":5, "message":"etcdserver: requested lease not found", "details":[{}]})",
               server_errc::not_found,
               text));
    // streams: etcd 3.4 to 3.5, then 3.6
    CHECK(says(404,
               R"({"error":{"grpc_code":5,"http_code":404,)"
               R"("message":"etcdserver: requested lease not found","http_status":"Not Found"}})",
               server_errc::not_found,
               text));
    CHECK(says(404,
               "{\"error\":{\"code\":5, \"message\":\"etcdserver: requested lease not found\"}}\n",
               server_errc::not_found,
               text));
    // the message may be in one place only
    CHECK(says(403, R"({"error":"m","code":7})", server_errc::permission_denied, "m"));
    CHECK(says(403, R"({"code":7})", server_errc::permission_denied, ""));
}

TEST_CASE("an unknown path is unimplemented, whichever gateway refuses it", "[wire][status]") {
    CHECK(says(404, "Not Found\n", server_errc::unimplemented, "Not Found"));
    // So is one that something else does not route, which writes as etcd's gateway does.
    CHECK(says(404,
               R"({"code":5,"message":"no route matched","details":[]})",
               server_errc::unimplemented,
               "no route matched"));
    CHECK(says(404, R"({"error":"m","code":5})", server_errc::unimplemented, "m"));
    CHECK(says(404, R"({"code":5})", server_errc::unimplemented, ""));
    CHECK(says(404, "404 page not found\n", server_errc::unimplemented, "404 page not found"));
    CHECK(says(404,
               R"({"code":5, "message":"Not Found", "details":[]})",
               server_errc::unimplemented,
               "Not Found"));
    CHECK(says(405, "Method Not Allowed\n", server_errc::unimplemented, "Method Not Allowed"));
    CHECK(says(501,
               R"({"code":12, "message":"Method Not Allowed", "details":[]})",
               server_errc::unimplemented,
               "Method Not Allowed"));
}

TEST_CASE("the code in the body wins over the HTTP status", "[wire][status]") {
    CHECK(says(412, R"({"code":9,"message":"m"})", server_errc::failed_precondition, "m"));
    CHECK(says(400, R"({"code":9,"message":"m"})", server_errc::failed_precondition, "m"));
    CHECK(says(200, R"({"error":{"grpc_code":14}})", server_errc::unavailable, ""));
    CHECK(says(500, R"({"code":"14","message":"m"})", server_errc::unavailable, "m"));
    for (int code = 1; code <= 16; ++code) {
        const auto body = "{\"code\":" + std::to_string(code) + ",\"message\":\"etcdserver: no\"}";
        CHECK(static_cast<int>(decode_status(200, body).code) == code);
    }
}

TEST_CASE("a code that gRPC does not have is not etcd's", "[wire][status]") {
    for (const auto code : {"0", "17", "-1", "4294967297", "1.5", "\"x\"", "[]", "{}", "true"}) {
        CAPTURE(code);
        const auto flat = "{\"code\":"s + code + ",\"message\":\"m\"}";
        const auto wrapped = "{\"error\":{\"grpc_code\":"s + code + ",\"message\":\"m\"}}";
        for (const auto& body : {flat, wrapped}) {
            CHECK(says(503, body, server_errc::unavailable, "m"));
            CHECK(decode_status(503, body).foreign);
            CHECK(to_status(parse(body).root())->code == server_errc::unknown);
        }
    }
    CHECK(says(500, R"({"error":{"message":"m"}})", server_errc::unknown, "m"));
    CHECK(says(500, R"({"error":{}})", server_errc::unknown, ""));
    CHECK(says(500, R"({"error":{"grpc_code":null}})", server_errc::unknown, ""));
    CHECK(says(500, R"({"code":7,"message":7})", server_errc::permission_denied, ""));
}

TEST_CASE("what is not in etcd's form is not etcd's", "[wire][status]") {
    for (const auto body : {R"({"error":"m","message":"m","code":5})",
                            R"({"code":5, "message":"m"})",
                            R"({"code":5, "message":"Not Found", "details":[]})",
                            R"({"error":{"grpc_code":14,"message":"m"}})",
                            "CommonName of client sending a request against gateway will be "
                            "ignored and not used as expected\n"}) {
        CAPTURE(body);
        CHECK_FALSE(decode_status(400, body).foreign);
    }
    for (const auto body : {"",
                            " ",
                            "404 page not found\n",
                            "Not Found\n",
                            "<html>403 Forbidden</html>",
                            "{}",
                            "[1]",
                            R"({"message":"Forbidden"})",
                            R"({"code":401,"message":"Unauthorized"})",
                            R"({"error":"busy"})",
                            R"({"error":{"message":"m"}})"}) {
        CAPTURE(body);
        CHECK(decode_status(400, body).foreign);
    }
}

TEST_CASE("the HTTP status decides where the body has no code", "[wire][status]") {
    struct {
        unsigned http_status;
        server_errc code;
    } const rows[] = {
        {400, server_errc::invalid_argument},
        {401, server_errc::unauthenticated},
        {403, server_errc::permission_denied},
        {404, server_errc::unimplemented},
        {405, server_errc::unimplemented},
        {408, server_errc::canceled},
        {409, server_errc::aborted},
        {418, server_errc::unknown},
        {421, server_errc::failed_precondition},
        {429, server_errc::resource_exhausted},
        {499, server_errc::canceled},
        {500, server_errc::unknown},
        {501, server_errc::unimplemented},
        {502, server_errc::unknown},
        {503, server_errc::unavailable},
        {504, server_errc::deadline_exceeded},
        {0, server_errc::unknown},
        {301, server_errc::failed_precondition},
        {302, server_errc::failed_precondition},
        {303, server_errc::unknown}, // where to see the result: it was done
        {307, server_errc::failed_precondition},
        {308, server_errc::failed_precondition},
        {411, server_errc::failed_precondition},
        {413, server_errc::invalid_argument},
        {415, server_errc::failed_precondition},
        {431, server_errc::failed_precondition},
    };
    for (const auto& row : rows) {
        CAPTURE(row.http_status);
        const auto empty = "HTTP status " + std::to_string(row.http_status);
        const bool told = row.http_status == 413; // what answers so, is terse
        CHECK(says(row.http_status, "text\n", row.code, told ? empty + ": text" : "text"));
        CHECK(decode_status(row.http_status, "").too_large == told);
        CHECK(decode_status(row.http_status, "{\"error\":\"m\"}").too_large == told);
        CHECK_FALSE(decode_status(row.http_status, "{\"code\":8,\"message\":\"m\"}").too_large);
        CHECK(says(row.http_status, "", row.code, empty));
        CHECK(says(row.http_status, " \r\n", row.code, empty));
        for (const char* body : {R"({"code":null})", R"({"error":"busy"})", "[1]", "{\"code\":5"}) {
            CHECK(says(row.http_status, body, row.code, told ? empty + ": " + body : body));
        }
    }
}

TEST_CASE("sec.server_text: an error's message is fit for a log", "[wire][status][security]") {
    CHECK(says(400,
               R"({"code":3,"message":"a\r\nb\u001b[31m\u0000"})",
               server_errc::invalid_argument,
               "a  b?[31m?"));
    CHECK(says(503, "\xff\x01 busy \n", server_errc::unavailable, "?? busy"));
    CHECK(decode_status(503, std::string(100'000, 'x')).message == std::string(256, 'x'));
    CHECK(
        decode_status(503, "{\"code\":14,\"message\":\"" + std::string(999, 'x') + "\"}").message ==
        std::string(256, 'x'));
    CHECK(decode_status(503, std::string(200'000, '[')).code == server_errc::unavailable);
}

TEST_CASE("no body makes the classification throw", "[wire][status][security]") {
    const std::string body = R"({"error":{"grpc_code":5,"message":"m\u00e9"},"code":5})";
    const auto check = [](std::string_view text) {
        const auto result = decode_status(503, text);
        REQUIRE(static_cast<int>(result.code) >= 1);
        REQUIRE(static_cast<int>(result.code) <= 16);
        REQUIRE(result.message == printable(result.message));
    };
    for (std::size_t i = 0; i != body.size(); ++i) {
        check(body.substr(0, i));
        for (int c = 0; c != 256; ++c) {
            auto mutated = body;
            mutated[i] = static_cast<char>(c);
            check(mutated);
        }
    }
    std::mt19937 random(4);
    for (int round = 0; round != 5000; ++round) {
        std::string text(random() % 40, '\0');
        for (char& c : text) {
            c = "{}[]\":,e\\u01-.\xff\0"[random() % 16];
        }
        check(text);
    }
}

TEST_CASE("the reason for which a watch was ended may hold a code", "[wire][status]") {
    const auto says = [](std::string_view reason, server_errc code, std::string_view message) {
        const auto result = decode_cancel_reason(reason);
        return result && result->code == code && result->message == message;
    };
    CHECK(says("rpc error: code = PermissionDenied desc = etcdserver: permission denied",
               server_errc::permission_denied,
               "etcdserver: permission denied"));
    CHECK(says("rpc error: code = Unauthenticated desc = etcdserver: invalid auth token",
               server_errc::unauthenticated,
               "etcdserver: invalid auth token"));
    CHECK(says("rpc error: code = InvalidArgument desc = etcdserver: user name is empty",
               server_errc::invalid_argument,
               "etcdserver: user name is empty"));
    CHECK(says("rpc error: code = InvalidArgument desc = etcdserver: revision of auth store is old",
               server_errc::invalid_argument,
               "etcdserver: revision of auth store is old"));
    CHECK(says("rpc error: code = Canceled desc = ", server_errc::canceled, ""));
    CHECK(says("rpc error: code = Unavailable desc = a desc = b\n",
               server_errc::unavailable,
               "a desc = b "));
    CHECK(says("rpc error: code = Code(77) desc = x", server_errc::unknown, "x"));
    for (const std::string_view other : {"",
                                         "mvcc: watcher range is empty",
                                         "rpc error: code = NotFound",
                                         "rpc error: code = desc = ",
                                         "rpc error: code =  desc = x",
                                         " rpc error: code = NotFound desc = x"}) {
        CAPTURE(other);
        const auto result = decode_cancel_reason(other);
        CHECK((!result || result->code == server_errc::unknown));
    }
    CHECK_FALSE(decode_cancel_reason("mvcc: watcher range is empty"));
    CHECK_FALSE(decode_cancel_reason("rpc error: code = NotFound"));
}
