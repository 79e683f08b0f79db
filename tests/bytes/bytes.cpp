// SPDX-License-Identifier: BSL-1.0
// Whatever bytes a server sends, and wherever they end: an answer is the one that was sent, or a
// failure. The answers are those that real etcds gave, to each of the library's calls, behind the
// headers that etcd writes; the other end of the connection is a script in memory.
#include <coetcd/detail/net/http_connection.hpp>
#include <coetcd/detail/net/http_request.hpp>
#include <coetcd/detail/wire/decode.hpp>
#include <coetcd/detail/wire/status.hpp>

#include <boost/asio/async_result.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/memory_seen.hpp"

// All of this program's memory is counted.
namespace {

std::size_t bytes_in_use = 0;
std::size_t most_in_use = 0;

} // namespace

void support::memory_taken(void*, std::size_t size) noexcept {
    bytes_in_use += size;
    most_in_use = std::max(most_in_use, bytes_in_use);
}
void support::memory_given_back(void*, std::size_t size) noexcept {
    bytes_in_use -= size;
}

using namespace coetcd;
using namespace coetcd::detail;
using namespace coetcd::detail::net;

namespace {

/// What the server does: bytes in pieces, then an end.
struct script {
    std::string_view text;
    std::vector<std::size_t> cuts; ///< Where a reading ends, in order; nowhere else if it fits.
    std::string_view endless;      ///< After the text, again and again.
    std::optional<error_code> end = error_code(asio::error::eof); ///< Empty: it stays open.

    std::size_t taken = 0;
    std::size_t reads = 0;
    bool ran_away = false;
    static constexpr std::size_t far_too_much = 1024 * 1024;

    std::size_t read(char* to, std::size_t room, error_code& ec) {
        ++reads;
        if (taken < text.size()) {
            const auto cut = std::upper_bound(cuts.begin(), cuts.end(), taken);
            const std::size_t until = cut == cuts.end() ? text.size() : *cut;
            const std::size_t n = std::min(room, until - taken);
            text.copy(to, n, taken);
            taken += n;
            return n;
        }
        if (!endless.empty() && taken < far_too_much) {
            std::size_t n = 0;
            for (; n + endless.size() <= room; n += endless.size()) {
                endless.copy(to + n, endless.size());
            }
            taken += n;
            return n;
        }
        ran_away = !endless.empty();
        ec = end.value_or(error_code(asio::error::would_block));
        return 0;
    }
};

/// The client's end of a connection in memory.
class memory_stream {
public:
    using executor_type = asio::io_context::executor_type;

    memory_stream(asio::io_context& context, script& other_end)
        : executor_(context.get_executor())
        , script_(&other_end) {}

    executor_type get_executor() const { return executor_; }

    template<class Buffers>
    std::size_t read_some(const Buffers& to, error_code& ec) {
        const asio::mutable_buffer first = *asio::buffer_sequence_begin(to);
        return script_->read(static_cast<char*>(first.data()), first.size(), ec);
    }
    template<class Buffers, class Token>
    auto async_read_some(const Buffers& to, Token&& token) {
        return asio::async_initiate<Token, void(error_code, std::size_t)>(
            [this](auto handler, auto buffers) {
                error_code ec;
                const std::size_t n = this->read_some(buffers, ec);
                if (ec != asio::error::would_block) { // else it never ends
                    this->complete(std::move(handler), ec, n);
                }
            },
            token,
            to);
    }
    template<class Buffers, class Token>
    auto async_write_some(const Buffers& from, Token&& token) {
        return asio::async_initiate<Token, void(error_code, std::size_t)>(
            [this](auto handler, auto buffers) {
                this->complete(std::move(handler), error_code(), asio::buffer_size(buffers));
            },
            token,
            from);
    }
    friend void beast_close_socket(memory_stream&) {}

private:
    template<class Handler>
    void complete(Handler handler, error_code ec, std::size_t n) {
        asio::post(executor_, [h = std::move(handler), ec, n]() mutable { std::move(h)(ec, n); });
    }

    executor_type executor_;
    script* script_;
};

/// How an exchange ended, or a stream.
struct outcome {
    bool ended = false; ///< Else it waits for ever.
    error_code ec;
    unsigned status = 0;
    std::vector<std::string> bodies; ///< One, or the lines.
    bool reusable = false;           ///< And silent.
    bool used_again = false;         ///< Then the next answer was that to the next request.
    std::size_t memory = 0;          ///< The most that it took.

    friend bool operator==(const outcome& a, const outcome& b) {
        return a.ended == b.ended && a.ec == b.ec && a.status == b.status && a.bodies == b.bodies &&
               a.reusable == b.reusable && a.used_again == b.used_again;
    }
};

std::size_t cases = 0;

void run(asio::io_context& context, asio::awaitable<void> work) {
    asio::co_spawn(context, std::move(work), [](std::exception_ptr e) {
        if (e) {
            std::rethrow_exception(e);
        }
    });
    context.restart();
    // What reads without getting anywhere is stopped here.
    int turns = 0;
    while (turns != 1'000'000 && context.run_one() != 0) {
        ++turns;
    }
    if (turns == 1'000'000) {
        throw std::runtime_error("it runs in circles");
    }
}

asio::awaitable<void> exchange_into(connection& c, outcome& out) {
    reply r = co_await c.exchange("request");
    out.ended = true;
    out.ec = r.ec;
    out.status = r.status;
    out.bodies.push_back(std::move(r.body));
}

outcome exchange(asio::io_context& context, script& s, limits most = {}) {
    ++cases;
    outcome out;
    const std::size_t before = bytes_in_use;
    most_in_use = before;
    {
        http_connection<memory_stream> c(memory_stream(context, s), most);
        run(context, exchange_into(c, out));
        out.memory = most_in_use - before;
        out.reusable = c.reusable() && c.is_quiet();
        if (out.reusable) {
            // Nothing of this answer is taken for the next one.
            script next;
            next.text = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext";
            s = next;
            outcome then;
            run(context, exchange_into(c, then));
            out.used_again = then.ended && !then.ec && then.bodies[0] == "next";
        }
    }
    return out;
}

asio::awaitable<void> read_into(connection& c, outcome& out, bool keep) {
    (void)co_await c.write("request");
    for (;;) {
        reply r = co_await c.read_line();
        out.status = r.status;
        out.ec = r.ec;
        if (r.ec) {
            break;
        }
        if (keep) {
            out.bodies.push_back(std::move(r.body));
        }
    }
    const error_code first = out.ec;
    const reply again = co_await c.read_line();
    out.ended = again.ec == first; // for good
}

/// @param keep The lines; else they are forgotten at once.
outcome read_lines(asio::io_context& context, script& s, limits most = {}, bool keep = true) {
    ++cases;
    outcome out;
    const std::size_t before = bytes_in_use;
    most_in_use = before;
    {
        http_connection<memory_stream> c(memory_stream(context, s), most);
        run(context, read_into(c, out, keep));
        out.memory = most_in_use - before;
    }
    return out;
}

/// Reads an answer as the library does.
/// @returns What it means, or nothing if it is not etcd's.
std::optional<std::string> meaning(rpc what, unsigned status, const std::string& body) {
    const auto named = [](const wire::status& s) {
        return error_code(s.code).message() + ": " + s.message;
    };
    if (status != 200) {
        return named(wire::decode_status(status, body));
    }
    const auto read = [&](auto response) -> std::optional<std::string> {
        (void)wire::decode<decltype(response)>(body);
        return body;
    };
    const auto read_stream = [&](auto response) -> std::optional<std::string> {
        const auto message = wire::decode_stream<decltype(response)>(body);
        const auto* const failure = std::get_if<wire::status>(&message);
        return failure ? named(*failure) : body;
    };
    try {
        switch (what) {
        case rpc::range:
            return read(range_response());
        case rpc::put:
            return read(put_response());
        case rpc::delete_range:
            return read(erase_response());
        case rpc::txn:
            return read(txn_response());
        case rpc::compact:
            return read(compaction_response());
        case rpc::lease_grant:
            return read(lease_grant_response());
        case rpc::lease_revoke:
            return read(lease_revoke_response());
        case rpc::lease_keep_alive:
            return read_stream(lease_keep_alive_response());
        case rpc::lease_time_to_live:
            return read(lease_time_to_live_response());
        case rpc::lease_leases:
            return read(lease_leases_response());
        case rpc::watch:
            return read_stream(wire::watch_response());
        case rpc::authenticate:
            return read(wire::authenticate_response());
        case rpc::member_list:
            return read(wire::member_list_response());
        case rpc::status:
            return read(coetcd::member_status());
        default: // they are not among `all_calls`
            break;
        }
    } catch (const error& e) {
        if (e.code() != errc::protocol_error) {
            throw;
        }
    }
    return std::nullopt;
}

constexpr rpc all_calls[] = {rpc::range,
                             rpc::put,
                             rpc::delete_range,
                             rpc::txn,
                             rpc::compact,
                             rpc::lease_grant,
                             rpc::lease_revoke,
                             rpc::lease_keep_alive,
                             rpc::lease_time_to_live,
                             rpc::lease_leases,
                             rpc::watch,
                             rpc::authenticate,
                             rpc::member_list,
                             rpc::status};

/// How an answer is packed.
enum class packing { length, chunks, to_the_end };

std::string chunk_of(std::string_view text) {
    return chunk(text);
}

std::string pack(packing how, unsigned status, const std::string& body, bool lines) {
    std::string out = how == packing::to_the_end ? "HTTP/1.0 " : "HTTP/1.1 ";
    out += std::to_string(status) + " Words\r\n"
                                    "Access-Control-Allow-Origin: *\r\n"
                                    "Content-Type: application/json\r\n";
    switch (how) {
    case packing::length:
        out += "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
        break;
    case packing::chunks:
        out += "Trailer: Grpc-Trailer-Content-Type\r\nTransfer-Encoding: chunked\r\n\r\n";
        for (std::size_t at = 0; at != body.size();) {
            const std::size_t newline = body.find('\n', at);
            const std::size_t end = newline == body.npos ? body.size()
                                    : lines              ? newline + 1
                                                         : body.size();
            out += chunk_of(std::string_view(body).substr(at, end - at));
            at = end;
        }
        out += "0\r\nGrpc-Trailer-Content-Type: application/grpc\r\n\r\n";
        break;
    case packing::to_the_end:
        out += "\r\n" + body;
        break;
    }
    return out;
}

/// An answer of etcd's as bytes, and what is right to make of them.
struct answer {
    std::string name;
    rpc what;
    packing how;
    bool stream; ///< Read line by line.
    std::string text;
    std::size_t header; ///< Its size.
    outcome right;
};

outcome receive(asio::io_context& context, const answer& a, script& s) {
    return a.stream ? read_lines(context, s) : exchange(context, s);
}

std::vector<answer> load(asio::io_context& context, const std::string& version) {
    std::vector<answer> out;
    const std::filesystem::path directory = COETCD_GOLDEN_DIRECTORY "/" + version;
    for (const auto& file : std::filesystem::directory_iterator(directory)) {
        std::ifstream stream(file.path());
        const auto json = nlohmann::json::parse(stream);
        const auto path_of = json.at("path").get<std::string>();
        const auto* const what = std::find_if(std::begin(all_calls),
                                              std::end(all_calls),
                                              [&](rpc each) { return path(each) == path_of; });
        if (what == std::end(all_calls)) {
            continue; // a call that etcd does not have
        }
        const auto status = json.at("status").get<unsigned>();
        const auto body = json.at("body").get<std::string>();
        const bool lines = *what == rpc::watch || *what == rpc::lease_keep_alive;
        for (const packing how : {packing::length, packing::chunks, packing::to_the_end}) {
            const char* const names[] = {", with its length", ", in chunks", ", up to the end"};
            answer a{version + ' ' + file.path().stem().string() + names[static_cast<int>(how)],
                     *what,
                     how,
                     *what == rpc::watch,
                     pack(how, status, body, lines),
                     0,
                     {}};
            a.header = a.text.find("\r\n\r\n") + 4;
            script whole;
            whole.text = a.text;
            if (how != packing::to_the_end && !a.stream) {
                whole.end.reset();
            }
            a.right = receive(context, a, whole);
            // As recorded, and etcd's.
            REQUIRE(a.right.ended);
            REQUIRE(a.right.status == status);
            std::string all;
            for (const std::string& each : a.right.bodies) {
                all += each + (a.stream && all.size() + each.size() < body.size() ? "\n" : "");
                REQUIRE(meaning(*what, status, each));
            }
            REQUIRE(all == body);
            REQUIRE(a.right.ec == (a.stream ? error_code(asio::error::eof) : error_code()));
            REQUIRE(a.right.reusable == a.right.used_again);
            REQUIRE(a.right.reusable == (!a.stream && how != packing::to_the_end));
            out.push_back(std::move(a));
        }
    }
    return out;
}

const char* const versions[] = {"3.4.23", "3.5.35", "3.6.16", "3.7.3"};

std::vector<answer> all_answers(asio::io_context& context) {
    std::vector<answer> out;
    for (const char* const version : versions) {
        for (answer& a : load(context, version)) {
            out.push_back(std::move(a));
        }
    }
    return out;
}

/// Of the oldest etcd, for each call and both of its ways of packing, the longest answer that
/// succeeded.
std::vector<answer> one_for_each_call(asio::io_context& context) {
    std::vector<answer> out;
    for (answer& a : load(context, versions[0])) {
        const auto same = std::find_if(out.begin(), out.end(), [&](const answer& o) {
            return o.what == a.what && o.how == a.how;
        });
        if (a.right.status != 200 || a.how == packing::to_the_end) {
            continue; // etcd does not write it
        }
        if (same == out.end()) {
            out.push_back(std::move(a));
        } else if (same->text.size() < a.text.size()) {
            *same = std::move(a);
        }
    }
    std::set<rpc> called;
    for (const answer& a : out) {
        called.insert(a.what);
    }
    REQUIRE(called.size() == std::size(all_calls));
    return out;
}

// Without optimisation, as with sanitizers, some cases of a kind stand for all of them.
#ifdef __OPTIMIZE__
constexpr bool thorough = true;
#else
constexpr bool thorough = false;
#endif

/// Fails the test for one case.
void complain(const answer& a, const std::string& about, const outcome& o) {
    std::string got = o.ended ? o.ec.message() : "it waits for ever";
    for (const std::string& each : o.bodies) {
        got += "\n  " + wire::printable(each);
    }
    FAIL_CHECK(a.name << ", " << about << ": " << got);
}

/// Tells how many cases a test has run, at its end.
class counter {
public:
    explicit counter(const char* test)
        : test_(test) {
        cases = 0;
    }
    counter(const counter&) = delete;
    counter& operator=(const counter&) = delete;
    ~counter() {
        std::cout << test_ << ": " << cases << " cases\n";
        CHECK(cases > 20);
    }

private:
    const char* test_;
};

/// What is right of an answer that is cut off.
bool is_right(const answer& a, std::size_t size, const error_code& end, const outcome& o) {
    if (!o.ended || o.reusable) {
        return false;
    }
    const bool cannot_tell = a.how == packing::to_the_end && size >= a.header;
    if (a.stream) {
        const auto& whole = a.right.bodies;
        if (o.ec != end || o.bodies.size() > whole.size()) {
            return false;
        }
        for (std::size_t i = 0; i != o.bodies.size(); ++i) {
            if (o.bodies[i] == whole[i]) {
                continue;
            }
            // What is left of the last one comes out, and is not taken for etcd's.
            if (i + 1 != o.bodies.size() || !whole[i].starts_with(o.bodies[i]) ||
                (o.status == 200 && meaning(a.what, o.status, o.bodies[i]))) {
                return false;
            }
        }
        return true;
    }
    if (cannot_tell && end == asio::error::eof) {
        const bool whole = o.bodies[0] + '\n' == a.right.bodies[0]; // it says the same
        return !o.ec && o.status == a.right.status && a.right.bodies[0].starts_with(o.bodies[0]) &&
               (o.status != 200 || whole || !meaning(a.what, o.status, o.bodies[0]));
    }
    return o.ec == end && o.bodies[0].empty();
}

void cut_at(asio::io_context& context, const answer& a, std::size_t size, const error_code& end) {
    script s;
    s.text = std::string_view(a.text).substr(0, size);
    s.end = end;
    const outcome o = receive(context, a, s);
    if (!is_right(a, size, end, o)) {
        complain(a, "cut at " + std::to_string(size), o);
    }
}

/// At each offset of an answer to each call, and at some of each other.
void cut_everywhere(const error_code& end) {
    asio::io_context context;
    for (const answer& a : one_for_each_call(context)) {
        for (std::size_t size = 0; size != a.text.size(); ++size) {
            cut_at(context, a, size, end);
        }
    }
    std::mt19937 random(7);
    for (const answer& a : all_answers(context)) {
        const std::size_t step = thorough ? 1 : 60;
        for (std::size_t size = random() % step; size < a.text.size(); size += step) {
            cut_at(context, a, size, end);
        }
    }
}

} // namespace

TEST_CASE("bytes.every_offset.eof: an answer that is cut off is none", "[bytes]") {
    const counter count("bytes.every_offset.eof");
    cut_everywhere(asio::error::eof);
}

TEST_CASE("bytes.every_offset.reset: nor is one whose connection breaks", "[bytes]") {
    const counter count("bytes.every_offset.reset");
    cut_everywhere(asio::error::connection_reset);
}

TEST_CASE("bytes.garbled: one wrong byte gives an answer or a failure, and no more", "[bytes]") {
    const counter count("bytes.garbled");
    asio::io_context context;
    std::mt19937 random(3);
    const error_code known[] = {{}, asio::error::eof, errc::protocol_error, errc::too_large};
    const std::string hostile("\0\r\n\xff\x80\"09af:;{}[],\\- ", 20);
    const auto others = [&](char right) {
        const auto flipped = [&](unsigned bit) { return static_cast<char>(right ^ (1 << bit)); };
        std::set<char> out;
        if (thorough) {
            out.insert(hostile.begin(), hostile.end());
            for (unsigned bit = 0; bit != 8; ++bit) {
                out.insert(flipped(bit));
            }
        } else {
            out = {flipped(random() % 8), hostile[random() % hostile.size()]};
        }
        out.erase(right);
        return out;
    };
    std::set<std::pair<bool, packing>> seen;
    for (const answer& a : one_for_each_call(context)) {
        std::string text = a.text;
        // All headers are alike, and the packing makes no difference to what is in a body.
        const bool first = seen.insert({a.stream, a.how}).second;
        const std::size_t from = first ? 0 : a.header - 8;
        const std::size_t to = a.how == packing::length && !first ? a.header : text.size();
        for (std::size_t at = from; at != to; ++at) {
            const char right = text[at];
            for (const char other : others(right)) {
                text[at] = other;
                script s;
                s.text = text;
                const bool ends = a.stream || random() % 2 == 0;
                if (!ends) {
                    s.end.reset(); // to be used again, perhaps
                }
                const outcome o = receive(context, a, s);
                const bool is_known =
                    std::find(std::begin(known), std::end(known), o.ec) != std::end(known);
                if ((ends && !o.ended) || !is_known || (o.reusable && (ends || !o.used_again))) {
                    complain(a, "another byte at " + std::to_string(at), o);
                }
                for (const std::string& each : o.bodies) {
                    (void)meaning(a.what, o.status, each); // or it throws what it should not
                }
            }
            text[at] = right;
        }
    }
}

TEST_CASE("bytes.split: how an answer is cut into pieces does not matter", "[bytes]") {
    const counter count("bytes.split");
    asio::io_context context;
    std::mt19937 random(20);
    const auto check = [&](const answer& a, std::vector<std::size_t> cuts) {
        script s;
        s.text = a.text;
        s.cuts = std::move(cuts);
        if (a.right.reusable) {
            s.end.reset();
        }
        const outcome o = receive(context, a, s);
        if (!(o == a.right)) {
            complain(a, "cut from " + std::to_string(s.cuts.front()) + " on", o);
        }
    };
    const auto each_byte = [](const answer& a) {
        std::vector<std::size_t> cuts(a.text.size());
        for (std::size_t i = 0; i != cuts.size(); ++i) {
            cuts[i] = i;
        }
        return cuts;
    };
    const auto at_random = [&](const answer& a) {
        std::set<std::size_t> cuts;
        for (std::size_t n = 1 + random() % 20; n != 0; --n) {
            cuts.insert(1 + random() % (a.text.size() - 1));
        }
        return std::vector<std::size_t>(cuts.begin(), cuts.end());
    };
    for (const answer& a : one_for_each_call(context)) {
        check(a, each_byte(a));
        for (std::size_t at = 1; at != a.text.size(); ++at) {
            check(a, {at});
        }
    }
    for (const answer& a : all_answers(context)) {
        for (int i = 0; i != (thorough ? 100 : 5); ++i) {
            check(a, at_random(a));
        }
    }
}

TEST_CASE("bytes.huge: no answer takes more memory than the limits say", "[bytes]") {
    const counter count("bytes.huge");
    asio::io_context context;
    limits most;
    most.header = 2000;
    most.body = 50'000;
    // A body grows by doubling, and is there once more while it is moved; and what is read ahead.
    const std::size_t most_memory = 4 * most.body + 2 * most.header + 64 * 1024;
    const std::size_t most_read = 2 * most.body + 2 * most.header + 64 * 1024;
    const std::string start = "HTTP/1.1 200 OK\r\n";
    const std::string in_chunks = start + "Transfer-Encoding: chunked\r\n\r\n";
    const std::string piece = chunk_of(std::string(1024, 'x'));
    const std::string line = chunk_of(std::string(1023, 'x') + '\n');
    struct row {
        const char* name;
        std::string text;
        std::string endless;
        std::optional<error_code> ends_with; ///< Of an answer; empty: only the deadline ends it.
        std::optional<error_code> stream_ends_with;
    };
    const error_code large = errc::too_large;
    const error_code bad = errc::protocol_error;
    const row rows[] = {
        {"a status line", "HTTP/1.1 200 ", "x", large, large},
        {"a field", start + "X: ", "x", large, large},
        {"a field's name", start, "x", large, large},
        {"fields", start, "X: y\r\n", large, large},
        {"folded lines", start + "X: y\r\n", " y\r\n", large, large},
        {"a body", start + "\r\n", "x", large, large},
        {"chunks", in_chunks, piece, large, large},
        {"small chunks", in_chunks, chunk_of("sixteen bytes ..."), large, large},
        {"one chunk", in_chunks + "7fffffff\r\n", "x", large, large},
        {"a chunk's size", in_chunks, "0", large, large},
        {"a chunk's extension", in_chunks + "1;", "x", large, large},
        {"chunks' extensions", in_chunks, "10;x=yyyy\r\nsixteen bytes...\r\n", large, large},
        {"a trailer", in_chunks + "0\r\nX: ", "x", large, large},
        {"trailers", in_chunks + "0\r\n", "X: y\r\n", large, large},
        {"garbage", "", "x", bad, bad},
        {"zeros", "", std::string(1, '\0'), bad, bad},
        {"empty lines at first", "", "\r\n", bad, bad},
        {"notices", "", "HTTP/1.1 100 Continue\r\n\r\n", bad, bad},
        {"lines", in_chunks, line, large, {}},
        {"events",
         in_chunks + chunk_of(R"({"result":{"header":{},"watch_id":"7","events":[{})"),
         chunk_of(R"(,{"kv":{"key":"YQ==","mod_revision":"7","value":"YQ=="}})"),
         large,
         {}},
        {"empty lines", in_chunks, chunk_of("\n\r\n\n\n\n\n\n\n\n\n\n\n"), large, bad},
    };
    for (const row& each : rows) {
        INFO(each.name);
        for (const bool stream : {false, true}) {
            INFO((stream ? "a stream" : "an answer"));
            script s;
            s.text = each.text;
            s.endless = each.endless;
            const outcome o =
                stream ? read_lines(context, s, most, false) : exchange(context, s, most);
            const auto& expected = stream ? each.stream_ends_with : each.ends_with;
            CHECK(o.ended);
            CHECK(o.ec == expected.value_or(error_code(asio::error::eof)));
            CHECK(s.ran_away == !expected.has_value());
            CHECK_FALSE(o.reusable);
            CHECK(o.memory < most_memory);
            if (expected) {
                CHECK(s.taken <= most_read);
            }
        }
    }

    // To the byte, with the limits as they are by default.
    const limits usual;
    for (const std::size_t over : {0U, 1U}) {
        const std::string body(usual.body + over, 'x');
        for (const packing how : {packing::length, packing::chunks, packing::to_the_end}) {
            for (const bool stream : {false, true}) {
                INFO("over by " << over << ", packing " << static_cast<int>(how) << ", "
                                << (stream ? "stream" : "answer"));
                const std::string text = pack(how, 200, body, stream);
                script s;
                s.text = text;
                const outcome o = stream ? read_lines(context, s) : exchange(context, s);
                CHECK(o.ended);
                const error_code end = stream ? error_code(asio::error::eof) : error_code();
                CHECK(o.ec == (over ? large : end));
                const bool whole = o.bodies.size() == 1 && o.bodies[0] == body;
                CHECK(whole == (over == 0));
                CHECK(o.memory < 4 * usual.body + 64 * 1024);
            }
        }
    }
}

TEST_CASE("bytes.dense: many small things take no more memory than other answers of that size",
          "[bytes]") {
    const char* const items[] = {"{}",
                                 "[]",
                                 "0",
                                 R"("")",
                                 R"({"":0})",
                                 "{            }",
                                 R"({"key":""})",
                                 R"({"key":"","value":"","version":0})",
                                 R"({"ID":"1","key":[[],[]]})"};
    const char* const lists[] = {
        "kvs", "prev_kvs", "responses", "leases", "keys", "events", "members", "unknown"};
    for (const char* const item : items) {
        for (const char* const list : lists) {
            INFO(item << " in " << list);
            std::string body = R"({"header":{"cluster_id":"14841639068965178418"},")" +
                               std::string(list) + "\":[" + item;
            while (body.size() < 200'000) {
                body.append(",").append(item);
            }
            body += "]}";
            for (const rpc what : all_calls) {
                const bool stream = what == rpc::watch || what == rpc::lease_keep_alive;
                const std::string text = stream ? "{\"result\":" + body + "}" : body;
                const std::size_t before = bytes_in_use;
                most_in_use = before;
                (void)meaning(what, 200, text);
                CHECK(most_in_use - before < 32 * text.size());
            }
        }
    }
}
