// SPDX-License-Identifier: BSL-1.0
// Any bytes from the network, as an answer or as a stream of messages: how they are sliced never
// changes what is read, and reading them ends.
//
// The first byte says whether the connection ends after them, the second one how they are sliced,
// and how large pieces of a message are.
#include <coetcd/detail/net/http_connection.hpp>
#include <coetcd/detail/wire/decode.hpp>
#include <coetcd/detail/wire/line_splitter.hpp>

#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/_experimental/test/stream.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "fuzz/fuzz.hpp"

using namespace coetcd;
using namespace coetcd::detail;
namespace test = boost::beast::test;

namespace {

constexpr net::limits most{512, 1024, 64};

/// What was read, as text to be compared.
struct record {
    std::string text;
    bool waits = false;
};

asio::awaitable<void> read_answer(net::http_connection<test::stream>& from, record& into) {
    const reply r = co_await from.exchange("x");
    into.text = r.ec ? "failed" : std::to_string(r.status) + ' ' + r.body;
    fuzz::require(r.body.size() <= most.body);
}

asio::awaitable<void> read_stream(net::http_connection<test::stream>& from, record& into) {
    for (;;) {
        const reply r = co_await from.read_line();
        into.text += r.ec ? "failed" : std::to_string(r.status) + ' ' + r.body + '\n';
        fuzz::require(r.body.size() <= most.body);
        if (r.ec) {
            break;
        }
        try {
            (void)wire::decode_stream<wire::watch_response>(r.body);
        } catch (const error& e) {
            fuzz::require(e.code() == errc::protocol_error);
        }
    }
}

record read(std::string_view bytes, std::size_t slice, bool ends, bool whole) {
    record result;
    asio::io_context context;
    test::stream near(context);
    test::stream far = test::connect(near);
    net::http_connection<test::stream> connection(std::move(near), most);
    std::optional<std::exception_ptr> ended;
    asio::co_spawn(context,
                   whole ? read_answer(connection, result) : read_stream(connection, result),
                   [&](std::exception_ptr e) { ended = e; });
    context.poll();
    while (!bytes.empty() && !ended) {
        const auto part = bytes.substr(0, slice);
        asio::write(far, asio::buffer(part.data(), part.size()));
        bytes.remove_prefix(part.size());
        context.restart();
        context.poll();
    }
    if (ends) {
        far.close();
        context.restart();
        context.poll();
    }
    fuzz::require(!ends || ended);
    fuzz::require(!ended || !*ended); // it threw nothing
    result.waits = !ended;
    return result;
}

/// The events of all messages in a line, or nothing if it is not etcd's.
std::optional<std::vector<event>> events_in(std::string_view line, std::size_t piece) {
    wire::line_splitter lines(line.size(), piece);
    lines.feed(line);
    std::vector<event> all;
    for (std::string text; lines.finish(text);) {
        try {
            auto message = wire::decode_stream<wire::watch_response>(text);
            auto* const said = std::get_if<wire::watch_response>(&message);
            if (!said) {
                return std::nullopt;
            }
            for (event& e : said->events) {
                all.push_back(std::move(e));
            }
        } catch (const error&) {
            return std::nullopt;
        }
    }
    return all;
}

bool is_once(std::string_view line, std::string_view name) {
    const auto first = line.find(name);
    return first == line.npos || line.find(name, first + 1) == line.npos;
}

/// A message that is cut has the same events. Of duplicate fields the last one counts, and what
/// was read before is not taken back: etcd's messages have none.
void check_pieces(std::string_view line, std::size_t piece) {
    if (line.find('\n') != line.npos || line.find('\\') != line.npos ||
        !is_once(line, "\"result\"") || !is_once(line, "\"events\"")) {
        return;
    }
    const auto whole = events_in(line, std::string::npos);
    if (!whole) {
        return;
    }
    const auto cut = events_in(line, piece);
    fuzz::require(cut && cut->size() == whole->size());
    for (std::size_t i = 0; i != whole->size(); ++i) {
        const event& a = (*whole)[i];
        const event& b = (*cut)[i];
        fuzz::require(a.type == b.type && a.kv.key == b.kv.key && a.kv.value == b.kv.value &&
                      a.kv.mod_revision == b.kv.mod_revision);
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2) {
        return 0;
    }
    const bool ends = (data[0] & 1) != 0;
    const bool whole = (data[0] & 2) != 0;
    const std::size_t slice = 1 + data[1] % 64;
    const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
    check_pieces(bytes, slice);
    const record once = read(bytes, bytes.size(), ends, whole);
    const record sliced = read(bytes, slice, ends, whole);
    if (once.waits == sliced.waits) {
        fuzz::require(once.text == sliced.text);
    } else {
        // A bad header may be found out later if it comes in slices; until then nothing is read.
        const record& early = once.waits ? sliced : once;
        const record& late = once.waits ? once : sliced;
        fuzz::require(early.text.starts_with(late.text));
    }
    return 0;
}
