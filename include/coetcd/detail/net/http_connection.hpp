// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/net/connection.hpp>
#include <coetcd/detail/secret.hpp>
#include <coetcd/detail/wire/line_splitter.hpp>
#include <coetcd/error.hpp>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/stream_traits.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace coetcd::detail::net {

namespace beast = boost::beast;
namespace http = boost::beast::http;

/// The library's code for what the parser or the stream reports.
inline error_code translate(const error_code& ec) {
    if (ec == http::error::body_limit || ec == http::error::header_limit ||
        ec == http::error::buffer_overflow) {
        return errc::too_large;
    }
    if (ec == http::error::end_of_stream || ec == http::error::partial_message) {
        return asio::error::eof;
    }
    if (ec.category() == make_error_code(http::error::bad_version).category()) {
        return errc::protocol_error;
    }
    return ec;
}

/// One HTTP/1.1 connection over any byte stream: a socket, TLS, or a pair of buffers in a test.
template<class Stream>
class http_connection : public connection {
public:
    http_connection(Stream connected, limits most)
        : stream_(std::make_shared<Stream>(std::move(connected)))
        , buffer_(most.header + read_size)
        , limits_(most) {}

    ~http_connection() override { close(); } // what is being sent holds the stream

    Stream& next_layer() { return *stream_; }

    asio::awaitable<reply> exchange(std::string request) override {
        reusable_ = false;
        reply result;
        result.sent = true;
        const auto out = std::make_shared<outgoing>(std::move(request));
        send_at_once(*out);
        if (out->unsent().size() > at_once) {
            // A server may answer before it has the whole request, and read no more.
            spawn(
                stream_->get_executor(), send(stream_, out), {}, [s = stream_, out](auto failure) {
                    if (failure) { // a lack of memory
                        out->ended(*s, asio::error::no_memory);
                    }
                });
        } else {
            co_await send(stream_, out);
        }
        if (out->ec && !is_hang_up(out->ec)) {
            result.ec = out->ec;
            co_return result;
        }
        const std::uint64_t before = received_;
        std::size_t notices = 0;
        do {
            http::response_parser<http::string_body> parser;
            configure(parser);
            parser.body_limit(limits_.body);
            while (!parser.is_done()) {
                error_code ec;
                const std::size_t parsed = parse(parser, ec);
                if (ec == http::error::need_more || (!ec && parsed == 0)) {
                    ec = co_await fill(before);
                    if (ec == asio::error::eof && parser.got_some()) {
                        ec = {};
                        parser.put_eof(ec);
                    }
                }
                if (ec) {
                    ec = translate(ec);
                    const bool tells = !is_hang_up(ec) && ec != asio::error::operation_aborted;
                    result.ec = out->ec && !tells ? out->ec : ec;
                    if (is_hang_up(result.ec) && out->unsent().size() != 0) {
                        result.text = "closed before it had all of the request";
                    }
                    if (parser.is_header_done() || ec == http::error::body_limit) {
                        result.status = parser.get().result_int();
                    }
                    co_return result;
                }
            }
            result.status = parser.get().result_int();
            result.body = std::move(parser.get().body());
            // Bytes that nobody asked for would be taken for the answer to the next request.
            reusable_ = !is_interim(result.status) && parser.keep_alive() && buffer_.size() == 0 &&
                        out->unsent().size() == 0;
            if (is_interim(result.status) && ++notices > most_notices) {
                result.ec = errc::protocol_error;
                co_return result;
            }
        } while (is_interim(result.status));
        if (out->unsent().size() != 0) {
            close(); // the rest is of no use
        }
        co_return result;
    }

    bool reusable() const override { return reusable_; }

    /// The stream must not block: see `connect`.
    bool is_quiet() override {
        char byte = 0;
        error_code ec;
        const std::size_t n = stream_->read_some(asio::buffer(&byte, 1), ec);
        return n == 0 && (ec == asio::error::would_block || ec == asio::error::try_again);
    }

    asio::awaitable<error_code> write(std::string bytes) override {
        const auto out = std::make_shared<outgoing>(std::move(bytes));
        send_at_once(*out);
        co_await send(stream_, out);
        co_return out->ec;
    }

    asio::awaitable<reply> read_line() override {
        reply result;
        result.sent = true;
        for (;;) {
            if (lines_.next(result.body)) {
                result.more = lines_.more();
                line_began_ = received_;
                break;
            }
            if (lines_.overflowed()) {
                result.ec = errc::too_large;
                result.body = lines_.beginning();
                break;
            }
            if (ended_ || (open_answer_ && open_answer_->is_done())) {
                if (!lines_.finish(result.body)) {
                    result.ec = ended_ ? ended_ : error_code(asio::error::eof);
                }
                break;
            }
            ended_ = co_await read_body();
        }
        const bool known = open_answer_ && open_answer_->is_header_done();
        result.status = known ? open_answer_->get().result_int() : 0;
        co_return result;
    }

    std::uint64_t received() const override { return received_; }

    void close() override { close(*stream_); }

private:
    static constexpr std::size_t read_size = 16 * 1024;
    /// How much is sent before the answer is awaited: this much can be under way.
    static constexpr std::size_t at_once = 16 * 1024;
    static constexpr std::size_t most_notices = 16; // before an answer

    /// A request, or a part of one, that is being sent.
    struct outgoing {
        explicit outgoing(std::string all)
            : text(std::move(all)) {}

        asio::const_buffer unsent() const { return asio::buffer(text) + taken; }
        void ended(Stream& by, const error_code& how) {
            ec = how;
            if (ec && !is_hang_up(ec)) {
                close(by); // otherwise what the server said before can still be read
            }
        }

        std::string text;
        const wipe_at_end no_trace{text}; // it may hold a password, or a token
        std::size_t taken = 0;
        error_code ec;
    };

    static void close(Stream& of) {
        auto& socket = beast::get_lowest_layer(of);
        // Under Wine, closing the socket alone does not end what is being sent.
        if constexpr (error_code ignored; requires { socket.cancel(ignored); }) {
            socket.cancel(ignored);
        }
        beast::close_socket(socket);
    }

    /// Whether it is a notice that comes before the answer, and has no body.
    static bool is_interim(unsigned status) { return status / 100 == 1 && status != 101; }

    template<class Parser>
    void configure(Parser& parser) {
        parser.header_limit(limits_.header);
        parser.eager(true);
    }

    /// @returns How much of the buffer was used up. Zero without an error asks for more: the parser
    ///   has no code for that inside a body.
    template<class Parser>
    std::size_t parse(Parser& parser, error_code& ec) {
        const std::size_t parsed = parser.put(buffer_.data(), ec);
        buffer_.consume(parsed);
        return parsed;
    }

    /// Usually a socket has room for a request, and takes it without a wait.
    void send_at_once(outgoing& out) {
        if constexpr (std::is_same_v<Stream, asio::ip::tcp::socket>) { // it does not block
            out.taken += stream_->write_some(out.unsent(), out.ec);
            if (out.ec == asio::error::would_block || out.ec == asio::error::try_again) {
                out.ec = {};
            }
        }
    }
    /// Writes the rest.
    static asio::awaitable<void> send(std::shared_ptr<Stream> by, std::shared_ptr<outgoing> out) {
        if (!out->ec && out->unsent().size() != 0) {
            error_code ec;
            out->taken += co_await asio::async_write(
                *by, out->unsent(), asio::redirect_error(asio::use_awaitable, ec));
            out->ended(*by, ec);
        }
    }

    /// Reads what there is into the buffer.
    /// @param began How much had been received when the answer, or the message, began. What
    ///   surrounds it, such as the sizes of its chunks, takes no more than it may have itself.
    asio::awaitable<error_code> fill(std::uint64_t began) {
        error_code ec;
        if (received_ - began > 2 * (std::uint64_t{limits_.header} + limits_.body + read_size)) {
            co_return make_error_code(errc::protocol_error);
        }
        if (buffer_.size() >= limits_.header + read_size / 2) {
            co_return error_code(http::error::buffer_overflow);
        }
        const std::size_t room = std::min(read_size, buffer_.max_size() - buffer_.size());
        const auto space = buffer_.prepare(room);
        const std::size_t n =
            co_await stream_->async_read_some(space, asio::redirect_error(asio::use_awaitable, ec));
        buffer_.commit(n);
        received_ += n;
        co_return ec;
    }

    /// Moves some of the open answer's body into the splitter.
    asio::awaitable<error_code> read_body() {
        if (!open_answer_) {
            configure(open_answer_.emplace());
            open_answer_->body_limit(boost::none);
        }
        std::array<char, 4096> piece;
        auto& body = open_answer_->get().body();
        body.data = piece.data();
        body.size = piece.size();
        error_code ec;
        const std::size_t parsed = parse(*open_answer_, ec);
        const std::size_t taken = piece.size() - body.size;
        lines_.feed({piece.data(), taken});
        body.data = nullptr;
        body.size = 0;
        if (open_answer_->is_done() && is_interim(open_answer_->get().result_int())) {
            open_answer_.reset();
            ec = ++notices_ > most_notices ? make_error_code(errc::protocol_error) : error_code();
        } else if (ec == http::error::need_buffer) {
            ec = {};
        } else if (ec == http::error::need_more || (!ec && parsed == 0)) {
            ec = {};
            if (taken != 0) {
                co_return ec; // perhaps a whole line: look at it before waiting for more
            }
            ec = co_await fill(line_began_);
            if (ec == asio::error::eof && open_answer_->got_some()) {
                ec = {};
                open_answer_->put_eof(ec);
            }
        }
        co_return translate(ec);
    }

    const std::shared_ptr<Stream> stream_; // shared with what is still being sent at the end
    beast::flat_buffer buffer_;            // read, and not parsed yet
    const limits limits_;
    bool reusable_ = true;
    std::uint64_t received_ = 0;

    // For a request that stays open:
    std::optional<http::response_parser<http::buffer_body>> open_answer_;
    wire::line_splitter lines_{limits_.body, std::min(limits_.body / 2, limits_.piece)};
    error_code ended_;
    std::size_t notices_ = 0;
    std::uint64_t line_began_ = 0; // bytes received before
};

} // namespace coetcd::detail::net
