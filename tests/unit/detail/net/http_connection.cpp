// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/net/http_connection.hpp>

#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/_experimental/test/fail_count.hpp>
#include <boost/beast/_experimental/test/stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/version.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail;
using namespace coetcd::detail::net;
using namespace std::string_literals;
namespace test = boost::beast::test;

namespace {

/// A connection whose other end is the test.
class http_connection_fixture {
public:
    explicit http_connection_fixture(limits most = {})
        : client_(context_)
        , server_(test::connect(client_))
        , connection_(std::move(client_), most) {}
    /// Its n-th operation fails.
    explicit http_connection_fixture(test::fail_count& failing)
        : client_(context_, failing)
        , server_(test::connect(client_))
        , connection_(std::move(client_), limits()) {}
    ~http_connection_fixture() { context_.stop(); }

    /// Starts an exchange, or to read a message of a stream.
    void start_exchange(std::string request = "request") {
        start(connection_.exchange(std::move(request)));
    }
    void start_read_line() { start(connection_.read_line()); }

    void give(std::string_view bytes) {
        asio::write(server_, asio::buffer(bytes));
        idle();
    }
    void end() {
        server_.close();
        idle();
    }
    bool waits() const { return !result_; }
    reply result() {
        REQUIRE(result_);
        return *std::exchange(result_, std::nullopt);
    }

    reply exchange(std::string_view answer) {
        start_exchange();
        give(answer);
        return result();
    }
    reply read_line() {
        start_read_line();
        return result();
    }
    /// The messages that can be read now; `*end` is how the last reading ended.
    std::vector<std::string> read_lines(error_code* ended = nullptr) {
        std::vector<std::string> out;
        for (;;) {
            start_read_line();
            if (waits()) {
                return out;
            }
            const reply r = result();
            if (r.ec) {
                if (ended) {
                    *ended = r.ec;
                }
                return out;
            }
            out.push_back(r.body);
        }
    }

    error_code write(std::string bytes) {
        std::optional<error_code> out;
        asio::co_spawn(context_,
                       connection_.write(std::move(bytes)),
                       [&](std::exception_ptr, error_code ec) { out = ec; });
        idle();
        REQUIRE(out);
        return *out;
    }
    std::string sent() { return {server_.str().data(), server_.str().size()}; }
    bool reusable() const { return connection_.reusable(); }

private:
    void start(asio::awaitable<reply> work) {
        result_.reset();
        asio::co_spawn(context_, std::move(work), [this](std::exception_ptr e, reply r) {
            if (e) {
                std::rethrow_exception(e);
            }
            result_ = std::move(r);
        });
        idle();
    }
    void idle() {
        context_.restart();
        context_.poll();
    }

    asio::io_context context_;
    test::stream client_; // becomes part of the connection
    test::stream server_;
    http_connection<test::stream> connection_;
    std::optional<reply> result_;
};

std::string with_length(std::string_view status, std::string_view body) {
    std::string out("HTTP/1.1 ");
    out.append(status).append("\r\nContent-Type: application/json\r\nContent-Length: ");
    out.append(std::to_string(body.size())).append("\r\n\r\n").append(body);
    return out;
}

std::string chunk_of(std::string_view text) {
    const char* const digits = "0123456789abcdef";
    std::string size;
    for (auto rest = text.size(); rest != 0; rest /= 16) {
        size.insert(size.begin(), digits[rest % 16]);
    }
    return size.append("\r\n").append(text).append("\r\n");
}

const std::string chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
const std::string last_chunk = "0\r\n\r\n";
const std::string error_5 = R"({"error":"m","code":5})";

struct shape {
    const char* name;
    std::string text;
    unsigned status;
    std::string body;
    bool reusable;
    bool to_the_end; ///< The body ends where the connection does.
};

/// The answers that etcd, or something before it, gives.
std::vector<shape> shapes() {
    return {
        {"an answer",
         with_length("200 OK", R"({"count":"1"})"),
         200,
         R"({"count":"1"})",
         true,
         false},
        {"an error", with_length("404 Not Found", error_5), 404, error_5, true, false},
        {"an empty answer", with_length("200 OK", ""), 200, "", true, false},
        {"in one chunk", chunked + chunk_of(error_5) + last_chunk, 200, error_5, true, false},
        {"in a short chunk", chunked + chunk_of("{}") + last_chunk, 200, "{}", true, false},
        {"in many chunks",
         chunked + chunk_of("{\"a\"") + chunk_of(":1") + chunk_of("}") + last_chunk,
         200,
         "{\"a\":1}",
         true,
         false},
        {"with a trailer",
         "HTTP/1.1 412 Precondition Failed\r\nTrailer: Grpc-Trailer-Content-Type\r\n"
         "Transfer-Encoding: chunked\r\n\r\n" +
             chunk_of(error_5) + "0\r\nGrpc-Trailer-Content-Type: application/grpc\r\n\r\n",
         412,
         error_5,
         true,
         false},
        {"without a body", "HTTP/1.1 204 No Content\r\n\r\n", 204, "", true, false},
        {"as text",
         "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain; charset=utf-8\r\n"
         "Content-Length: 10\r\nX-Content-Type-Options: nosniff\r\n\r\nNot Found\n",
         404,
         "Not Found\n",
         true,
         false},
        {"with a challenge",
         "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: etcdserver: invalid auth token\r\n"
         "Content-Length: 2\r\n\r\n{}",
         401,
         "{}",
         true,
         false},
        {"and no more",
         "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}",
         200,
         "{}",
         false,
         false},
        {"of an old server",
         "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
         200,
         "{}",
         false,
         false},
        {"of an old server that goes on",
         "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n{}",
         200,
         "{}",
         true,
         false},
        {"after a notice",
         "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" +
             with_length("200 OK", "{}"),
         200,
         "{}",
         true,
         false},
        {"without a reason",
         "HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\n{}",
         200,
         "{}",
         true,
         false},
        {"up to the end", "HTTP/1.0 200 OK\r\n\r\n{\"a\":1}", 200, "{\"a\":1}", false, true},
    };
}

void check_answer(http_connection_fixture& f, const shape& s) {
    const reply r = f.result();
    CHECK_FALSE(r.ec);
    CHECK(r.sent);
    CHECK(r.status == s.status);
    CHECK(r.body == s.body);
    CHECK(f.reusable() == s.reusable);
}

/// What Beast counts of a header: newer versions count the status line, too.
std::size_t counted(const std::string& status_line, const std::string& fields) {
    namespace http = boost::beast::http;
    http::response_parser<http::empty_body> parser;
    parser.header_limit(static_cast<std::uint32_t>(fields.size()));
    error_code ec;
    (void)parser.put(asio::buffer(status_line + fields), ec);
    REQUIRE((!ec || ec == http::error::header_limit));
    return ec ? status_line.size() + fields.size() : fields.size();
}

} // namespace

TEST_CASE("an answer of any shape is read", "[net][http_connection]") {
    for (const shape& s : shapes()) {
        CAPTURE(s.name);
        http_connection_fixture f;
        CHECK(f.reusable());
        f.start_exchange("POST / HTTP/1.1\r\n\r\n");
        CHECK(f.sent() == "POST / HTTP/1.1\r\n\r\n");
        CHECK(f.waits());
        CHECK_FALSE(f.reusable());
        f.give(s.text);
        if (s.to_the_end) {
            CHECK(f.waits());
            f.end();
        }
        check_answer(f, s);
    }
}

TEST_CASE("an answer may come byte by byte", "[net][http_connection]") {
    for (const shape& s : shapes()) {
        CAPTURE(s.name);
        http_connection_fixture f;
        f.start_exchange();
        for (std::size_t i = 0; i != s.text.size(); ++i) {
            CAPTURE(i);
            REQUIRE(f.waits());
            f.give(s.text.substr(i, 1));
        }
        if (s.to_the_end) {
            f.end();
        }
        check_answer(f, s);
    }
}

TEST_CASE("an answer may come in three pieces, however cut", "[net][http_connection]") {
    for (const shape& s : shapes()) {
        if (s.text.size() > 62) {
            continue; // the time goes with the square
        }
        for (std::size_t a = 1; a < s.text.size(); ++a) {
            for (std::size_t b = a + 1; b < s.text.size(); ++b) {
                CAPTURE(s.name, a, b);
                http_connection_fixture f;
                f.start_exchange();
                f.give(s.text.substr(0, a));
                f.give(s.text.substr(a, b - a));
                f.give(s.text.substr(b));
                if (s.to_the_end) {
                    f.end();
                }
                check_answer(f, s);
            }
        }
    }
}

TEST_CASE("an answer that ends too early is none", "[net][http_connection]") {
    for (const shape& s : shapes()) {
        for (std::size_t n = 0; n != s.text.size(); ++n) {
            CAPTURE(s.name, n);
            http_connection_fixture f;
            f.start_exchange();
            f.give(s.text.substr(0, n));
            REQUIRE(f.waits());
            f.end();
            const reply r = f.result();
            CHECK(r.sent);
            CHECK_FALSE(f.reusable());
            if (s.to_the_end && n >= s.text.find("\r\n\r\n") + 4) {
                CHECK_FALSE(r.ec); // no way to know
            } else {
                CHECK(r.ec == asio::error::eof);
            }
        }
    }
}

TEST_CASE("a connection serves one request after the other", "[net][http_connection]") {
    http_connection_fixture f;
    for (const shape& s : shapes()) {
        if (!s.reusable) {
            continue;
        }
        CAPTURE(s.name);
        f.start_exchange();
        f.give(s.text);
        check_answer(f, s);
    }
}

TEST_CASE("sec.smuggling: bytes after an answer spoil the connection",
          "[net][http_connection][security]") {
    for (const shape& s : shapes()) {
        if (s.to_the_end) {
            continue;
        }
        for (const char* more : {"x", "\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"}) {
            CAPTURE(s.name, more);
            http_connection_fixture f;
            const reply r = f.exchange(s.text + more);
            CHECK_FALSE(r.ec);
            CHECK(r.body == s.body);
            CHECK_FALSE(f.reusable());
        }
    }
}

TEST_CASE("sec.smuggling: an answer that is not HTTP is refused",
          "[net][http_connection][security]") {
    const std::string bad[] = {
        "SSH-2.0-OpenSSH_9.2p1\r\n\r\n",
        "\x15\x03\x01\0\x02\x02\x16 alert\r\n\r\n"s,
        "\0\0\0\0\r\n\r\n"s,
        "POST / HTTP/1.1\r\n\r\n",
        "HTTP/1.1 abc OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nNo colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\nBad name : x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nBad: \x01\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        chunked + "x\r\n{}\r\n0\r\n\r\n",
        chunked + "-2\r\n{}\r\n0\r\n\r\n",
        chunked + "2\r\n{}x\r\n0\r\n\r\n",
        chunked + "fffffffffffffffff\r\n{}\r\n0\r\n\r\n",
    };
    for (const std::string& text : bad) {
        CAPTURE(text);
        http_connection_fixture f;
        const reply r = f.exchange(text);
        CHECK(r.ec == errc::protocol_error);
        CHECK(r.sent);
        CHECK_FALSE(f.reusable());
    }
}

TEST_CASE("sec.smuggling: an answer with two lengths is refused",
          "[net][http_connection][security]") {
    for (const char* both : {"Content-Length: 2\r\nTransfer-Encoding: chunked",
                             "Transfer-Encoding: chunked\r\nContent-Length: 2"}) {
        const std::string text = "HTTP/1.1 200 OK\r\n"s + both + "\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
        http_connection_fixture whole;
        CHECK(whole.exchange(text).ec == errc::protocol_error);
        CHECK_FALSE(whole.reusable());
        http_connection_fixture open;
        open.give(text);
        CHECK(open.read_line().ec == errc::protocol_error);
    }
}

TEST_CASE("sec.limits: a header has a limit", "[net][http_connection][security]") {
    const std::string status_line = "HTTP/1.1 200 OK\r\n";
    for (const std::size_t size : {100U, 8192U}) {
        std::string fields = "Content-Length: 0\r\nX: ";
        fields.append(size - fields.size() - 4, 'x').append("\r\n\r\n");
        REQUIRE(fields.size() == size);
        const std::string text = status_line + fields;
        for (const bool fits : {false, true}) {
            CAPTURE(size, fits);
            limits most;
            most.header = static_cast<std::uint32_t>(counted(status_line, fields) - (fits ? 0 : 1));
            http_connection_fixture f(most);
            const reply r = f.exchange(text);
            CHECK(r.ec == (fits ? error_code() : error_code(errc::too_large)));
            CHECK(r.status == (fits ? 200 : 0));
            CHECK(f.reusable() == fits);
            http_connection_fixture open(most);
            open.give(text);
            const reply line = open.read_line();
            CHECK(line.ec == (fits ? error_code(asio::error::eof) : error_code(errc::too_large)));
        }
    }
    // One that never ends, byte by byte.
    limits most;
    most.header = 100;
    http_connection_fixture f(most);
    f.start_exchange();
    const std::string endless = status_line + "X: " + std::string(100, 'x');
    for (std::size_t i = 0; f.waits(); ++i) {
        REQUIRE(i <= most.header);
        f.give(endless.substr(i, 1));
    }
    CHECK(f.result().ec == errc::too_large);
}

TEST_CASE("sec.limits: so have the parts between chunks", "[net][http_connection][security]") {
    const std::string filler(40'000, 'x');
    const std::string behind_size = chunked + "1;" + filler;
    for (const std::string& text : {behind_size,
                                    chunked + chunk_of("{}") + "0\r\nX: " + filler,
                                    chunked + chunk_of("{}") + "0\r\n" + filler}) {
        // Newer parsers have a limit of their own for what is behind the size of a chunk.
        const bool has_own = BOOST_VERSION > 108100 && text == behind_size;
        const auto is_refused = [&](const error_code& ec) {
            return ec == errc::too_large || (has_own && ec == errc::protocol_error);
        };
        http_connection_fixture f;
        CHECK(is_refused(f.exchange(text).ec));
        http_connection_fixture open;
        open.give(text);
        error_code end;
        (void)open.read_lines(&end);
        CHECK(is_refused(end));
    }
}

TEST_CASE("sec.limits: a body has a limit", "[net][http_connection][security]") {
    limits most;
    most.body = 1000;
    for (const bool fits : {false, true}) {
        const std::string body(fits ? 1000 : 1001, 'x');
        const error_code expected = fits ? error_code() : error_code(errc::too_large);
        const std::string texts[] = {
            with_length("200 OK", body),
            chunked + chunk_of(body) + last_chunk,
            chunked + chunk_of(body.substr(0, 999)) + chunk_of(body.substr(999)) + last_chunk,
            "HTTP/1.0 200 OK\r\n\r\n" + body,
        };
        for (const std::string& text : texts) {
            CAPTURE(fits, text.substr(0, 60));
            http_connection_fixture f(most);
            f.start_exchange();
            f.give(text);
            f.end();
            const reply r = f.result();
            CHECK(r.ec == expected);
            CHECK(r.sent);
            CHECK(r.body.size() == (fits ? 1000 : 0));
            CHECK(r.status == 200);
        }
    }
    // Told by the header alone.
    for (const unsigned status : {200U, 403U}) {
        http_connection_fixture f(most);
        const reply over = f.exchange("HTTP/1.1 " + std::to_string(status) +
                                      " Words\r\nContent-Length: 1001\r\n\r\n");
        CHECK(over.ec == errc::too_large);
        CHECK(over.status == status);
    }
}

TEST_CASE("a large answer arrives whole", "[net][http_connection]") {
    std::string body;
    for (int i = 0; i != 300'000; ++i) {
        body += static_cast<char>('a' + i % 23);
    }
    http_connection_fixture f;
    CHECK(f.exchange(with_length("200 OK", body)).body == body);
    CHECK(f.exchange(chunked + chunk_of(body) + last_chunk).body == body);
    CHECK(f.reusable());
}

TEST_CASE("a failure at any step is told", "[net][http_connection]") {
    const std::string text = with_length("200 OK", "{}");
    for (std::size_t n = 0;; ++n) {
        REQUIRE(n < 10);
        test::fail_count failing(n);
        http_connection_fixture f(failing);
        f.start_exchange();
        if (f.waits()) {
            f.give(text.substr(0, 5));
        }
        if (f.waits()) {
            f.give(text.substr(5));
        }
        const reply r = f.result();
        CHECK(r.sent);
        if (!r.ec) {
            CHECK(n > 2);
            break;
        }
        CHECK(r.ec == test::error::test_failure);
        CHECK_FALSE(f.reusable());
    }
    for (std::size_t n = 0;; ++n) {
        REQUIRE(n < 10);
        test::fail_count failing(n);
        http_connection_fixture f(failing);
        error_code ec = f.write("request");
        if (!ec) {
            f.start_read_line();
            f.give(chunked);
            if (f.waits()) {
                f.give(chunk_of("{}\n"));
            }
            ec = f.result().ec;
        }
        if (!ec) {
            CHECK(n > 2);
            break;
        }
        CHECK(ec == test::error::test_failure);
    }
}

TEST_CASE("a request to a server that is gone fails", "[net][http_connection]") {
    http_connection_fixture f;
    f.end();
    f.start_exchange();
    const reply r = f.result();
    CHECK(r.ec);
    CHECK(r.sent);
    CHECK_FALSE(f.reusable());
}

TEST_CASE("a request that stays open is written as it is", "[net][http_connection]") {
    http_connection_fixture f;
    CHECK_FALSE(f.write("one"));
    CHECK_FALSE(f.write("two"));
    CHECK(f.sent() == "onetwo");
}

TEST_CASE("an answer that stays open is read line by line", "[net][http_connection][stream]") {
    struct {
        const char* name;
        std::string text;
        std::vector<std::string> lines;
    } const rows[] = {
        {"one to a chunk", chunk_of("{1}\n") + chunk_of("{2}\n"), {"{1}", "{2}"}},
        {"two in one chunk", chunk_of("{1}\n{2}\n"), {"{1}", "{2}"}},
        {"over many chunks",
         chunk_of("{") + chunk_of("1") + chunk_of("}") + chunk_of("\n"),
         {"{1}"}},
        {"end and begin in one chunk",
         chunk_of("{1") + chunk_of("}\n{2") + chunk_of("}\n"),
         {"{1}", "{2}"}},
        {"the newline by itself",
         chunk_of("{1}") + chunk_of("\n") + chunk_of("{2}\n"),
         {"{1}", "{2}"}},
        {"empty lines", chunk_of("\n\n{1}\n\r\n\n{2}\r\n\n"), {"{1}", "{2}"}},
        {"the last one without a newline", chunk_of("{1}\n{2}"), {"{1}", "{2}"}},
        {"a single one without a newline", chunk_of("{1}"), {"{1}"}},
        {"none", "", {}},
    };
    for (const auto& row : rows) {
        CAPTURE(row.name);
        const std::string text = chunked + row.text + last_chunk;
        http_connection_fixture whole;
        whole.give(text);
        error_code end;
        CHECK(whole.read_lines(&end) == row.lines);
        CHECK(end == asio::error::eof);
        CHECK(whole.read_line().ec == asio::error::eof); // for good
        CHECK(whole.read_line().status == 200);

        // However cut.
        for (std::size_t cut = 1; cut != text.size(); ++cut) {
            CAPTURE(cut);
            http_connection_fixture f;
            f.give(text.substr(0, cut));
            std::vector<std::string> got = f.read_lines();
            REQUIRE(f.waits());
            f.give(text.substr(cut));
            for (reply r = f.result(); !r.ec; r = f.read_line()) {
                got.push_back(r.body);
            }
            CHECK(got == row.lines);
        }
    }
}

TEST_CASE("a message is given out as soon as it is there", "[net][http_connection][stream]") {
    http_connection_fixture f;
    f.start_read_line();
    CHECK(f.waits());
    f.give(chunked);
    CHECK(f.waits());
    f.give("4\r\n{1}\n"); // the end of the chunk is still to come
    const reply r = f.result();
    CHECK(r.body == "{1}");
    CHECK(r.status == 200);
    CHECK(r.sent);
    f.start_read_line();
    CHECK(f.waits());
    f.give("\r\n");
    CHECK(f.waits());
    f.give(chunk_of("{2}\n"));
    CHECK(f.result().body == "{2}");
}

TEST_CASE("a message may be written while one is waited for", "[net][http_connection][stream]") {
    http_connection_fixture f;
    f.start_read_line();
    CHECK_FALSE(f.write("more"));
    CHECK(f.sent() == "more");
    f.give(chunked + chunk_of("{1}\n"));
    CHECK(f.result().body == "{1}");
}

TEST_CASE("messages of many pieces arrive whole", "[net][http_connection][stream]") {
    for (const std::size_t size : {4095U, 4096U, 4097U, 8192U, 100'000U}) {
        CAPTURE(size);
        const std::string line(size, 'x');
        http_connection_fixture f;
        f.give(chunked + chunk_of(line) + chunk_of("\n") + chunk_of(line + "\n{}\n"));
        CHECK(f.read_line().body == line);
        CHECK(f.read_line().body == line);
        CHECK(f.read_line().body == "{}");
    }
}

TEST_CASE("a message with many events is given out in pieces as it comes",
          "[net][http_connection][stream]") {
    const std::string head = R"({"result":{"header":{},"watch_id":"7","events":[)";
    const std::string one = R"({"kv":{"key":")" + std::string(500, 'A') + R"("}})";
    limits most;
    most.body = 1000; // of one event
    http_connection_fixture f(most);
    f.give(chunked + chunk_of(head + one));
    f.start_read_line();
    CHECK(f.waits());
    for (int i = 0; i != 100; ++i) {
        f.give(chunk_of(',' + one));
        const reply r = f.result();
        REQUIRE(r.body == head + one + "]}}");
        REQUIRE(r.more);
        f.start_read_line();
        REQUIRE(f.waits());
    }
    f.give(chunk_of("]}}\n"));
    const reply last = f.result();
    CHECK(last.body == head + one + "]}}");
    CHECK_FALSE(last.more);
    // An event that is larger than the limit is found to be the one.
    f.give(chunk_of(head + one + ',' + R"({"kv":{"mod_revision":"12","key":")"));
    CHECK(f.read_line().more);
    f.give(chunk_of(std::string(1000, 'A')));
    const reply over = f.read_line();
    CHECK(over.ec == errc::too_large);
    CHECK(over.body.starts_with(head + R"({"kv":{"mod_revision":"12")"));
}

TEST_CASE("sec.limits: a message has a limit", "[net][http_connection][stream][security]") {
    limits most;
    most.body = 1000;
    const std::string longest(1000, 'x');
    http_connection_fixture f(most);
    f.give(chunked + chunk_of("{1}\n" + longest + "\n" + longest + "x\n{2}\n"));
    CHECK(f.read_line().body == "{1}");
    CHECK(f.read_line().body == longest);
    const reply over = f.read_line();
    CHECK(over.ec == errc::too_large);
    CHECK(over.body == longest); // its beginning
    CHECK(f.read_line().ec == errc::too_large);
    // There is none for all of them together.
    http_connection_fixture many(most);
    many.give(chunked);
    for (int i = 0; i != 10; ++i) {
        many.give(chunk_of(longest + "\n"));
        CHECK(many.read_line().body == longest);
    }
    // Nor need the newline come.
    http_connection_fixture endless(most);
    endless.give(chunked + chunk_of(longest));
    endless.start_read_line();
    CHECK(endless.waits());
    endless.give(chunk_of("x"));
    CHECK(endless.result().ec == errc::too_large);
}

TEST_CASE("sec.limits: notices before an answer are counted",
          "[net][http_connection][stream][security]") {
    std::string notices;
    for (int i = 0; i != 16; ++i) {
        notices += "HTTP/1.1 100 Continue\r\n\r\n";
    }
    const std::string one_more = "HTTP/1.1 103 Early Hints\r\n\r\n";
    const std::string answer = with_length("200 OK", "{}");
    http_connection_fixture f;
    CHECK(f.exchange(notices + answer).body == "{}");
    http_connection_fixture over;
    const reply r = over.exchange(notices + one_more); // it is not waited for the next one
    CHECK(r.ec == errc::protocol_error);
    CHECK_FALSE(over.reusable());
    http_connection_fixture open;
    open.give(notices + chunked + chunk_of("{1}\n"));
    CHECK(open.read_line().body == "{1}");
    http_connection_fixture open_over;
    open_over.give(notices + one_more);
    CHECK(open_over.read_line().ec == errc::protocol_error);
}

TEST_CASE("sec.limits: so are the bytes around an answer",
          "[net][http_connection][stream][security]") {
    limits most;
    most.header = 2000;
    most.body = 1000;
    // A byte at a time, each with much behind its size.
    const std::string padded = "1;" + std::string(500, 'q') + "\r\nx\r\n";
    const auto gives_up = [&](http_connection_fixture& f) {
        for (int i = 0; i != 1000 && f.waits(); ++i) {
            f.give(padded);
        }
        CHECK(f.result().ec == errc::protocol_error);
    };
    http_connection_fixture f(most);
    f.start_exchange();
    f.give(chunked);
    gives_up(f);
    http_connection_fixture open(most);
    open.start_read_line();
    open.give(chunked);
    for (int i = 0; i != 1000 && open.waits(); ++i) {
        open.give(padded);
    }
    CHECK_FALSE(open.result().body.empty()); // what there was of the message
    CHECK(open.read_line().ec == errc::protocol_error);
    // Each message begins anew.
    http_connection_fixture long_lived(most);
    long_lived.give(chunked);
    for (int i = 0; i != 1000; ++i) {
        long_lived.give("1;" + std::string(500, 'q') + "\r\n1\r\n" + chunk_of("\n"));
        REQUIRE(long_lived.read_line().body == "1");
    }
}

TEST_CASE("a stream that is refused tells why", "[net][http_connection][stream]") {
    const std::string body = R"({"error":{"grpc_code":16,"message":"m"}})";
    for (const std::string& text :
         {with_length("401 Unauthorized", body),
          "HTTP/1.1 401 Unauthorized\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk_of(body) +
              last_chunk}) {
        http_connection_fixture f;
        f.give(text);
        const reply r = f.read_line();
        CHECK_FALSE(r.ec);
        CHECK(r.status == 401);
        CHECK(r.body == body);
        CHECK(f.read_line().ec == asio::error::eof);
    }
    http_connection_fixture empty;
    empty.give("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n");
    const reply r = empty.read_line();
    CHECK(r.ec == asio::error::eof);
    CHECK(r.status == 503);
}

TEST_CASE("a stream may begin with a notice", "[net][http_connection][stream]") {
    const std::string text = "HTTP/1.1 100 Continue\r\n\r\n" + chunked + chunk_of("{1}\n");
    http_connection_fixture f;
    f.give(text);
    const reply r = f.read_line();
    CHECK(r.status == 200);
    CHECK(r.body == "{1}");
    http_connection_fixture slow;
    slow.start_read_line();
    for (const char c : text) {
        if (slow.waits()) {
            slow.give(std::string(1, c));
        }
    }
    CHECK(slow.result().body == "{1}");
}

TEST_CASE("a stream of an old server ends with the connection", "[net][http_connection][stream]") {
    http_connection_fixture f;
    f.give("HTTP/1.0 200 OK\r\n\r\n{1}\n{2}");
    CHECK(f.read_line().body == "{1}");
    f.start_read_line();
    CHECK(f.waits());
    f.end();
    CHECK(f.result().body == "{2}");
    CHECK(f.read_line().ec == asio::error::eof);
}

TEST_CASE("a stream may break at any byte", "[net][http_connection][stream]") {
    const std::string text =
        chunked + chunk_of("{1}\n") + chunk_of("{2}") + chunk_of("\n") + last_chunk;
    for (std::size_t n = 0; n != text.size(); ++n) {
        CAPTURE(n);
        http_connection_fixture f;
        f.give(text.substr(0, n));
        std::vector<std::string> lines = f.read_lines();
        REQUIRE(f.waits());
        f.end();
        reply r = f.result();
        for (; !r.ec; r = f.read_line()) {
            lines.push_back(r.body);
        }
        CHECK(r.ec == asio::error::eof);
        CHECK(f.read_line().ec == asio::error::eof);
        const std::string expected[] = {"{1}", "{2}"};
        REQUIRE(lines.size() <= 2);
        for (std::size_t i = 0; i != lines.size(); ++i) {
            // What is left of a message that was cut may come last: no JSON, then.
            CHECK(expected[i].starts_with(lines[i]));
            CHECK((lines[i] == expected[i] || i + 1 == lines.size()));
        }
    }
}

TEST_CASE("a stream of garbage is refused", "[net][http_connection][stream][security]") {
    for (const std::string& text : {"SSH-2.0-x\r\n\r\n"s, chunked + "x\r\n"}) {
        http_connection_fixture f;
        f.give(text);
        CHECK(f.read_line().ec == errc::protocol_error);
        CHECK(f.read_line().ec == errc::protocol_error);
    }
    http_connection_fixture late; // what came before it counts
    late.give(chunked + chunk_of("{1}\n") + "x\r\n");
    CHECK(late.read_line().body == "{1}");
    CHECK(late.read_line().ec == errc::protocol_error);
}

TEST_CASE("the library has its own names for what the parser reports", "[net][http_connection]") {
    CHECK(translate(http::error::body_limit) == errc::too_large);
    CHECK(translate(http::error::header_limit) == errc::too_large);
    CHECK(translate(http::error::buffer_overflow) == errc::too_large);
    CHECK(translate(http::error::end_of_stream) == asio::error::eof);
    CHECK(translate(http::error::partial_message) == asio::error::eof);
    CHECK(translate(http::error::bad_chunk) == errc::protocol_error);
    CHECK(translate(asio::error::connection_reset) == asio::error::connection_reset);
    CHECK_FALSE(translate({}));
}
