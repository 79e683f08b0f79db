// SPDX-License-Identifier: BSL-1.0
#include "support/tcp_proxy.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <exception>
#include <list>
#include <random>
#include <utility>

namespace support {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using time_point = std::chrono::steady_clock::time_point;

namespace {

constexpr auto rethrow = [](std::exception_ptr failure) {
    if (failure) {
        std::rethrow_exception(failure);
    }
};

// Leaves out chunks of chunked answers; all else it passes on as it is.
class chunk_filter {
public:
    std::string pass(const std::string& bytes, const std::string& bad, std::size_t& dropped) {
        kept_ += bytes;
        std::string out;
        for (;;) {
            if (!in_chunks_) {
                const auto n = std::min(kept_.size(), rest_);
                out += kept_.substr(0, n);
                kept_.erase(0, n);
                rest_ -= n;
                const auto end = kept_.find("\r\n\r\n");
                if (end == kept_.npos) {
                    return out;
                }
                const std::string header = kept_.substr(0, end + 4);
                kept_.erase(0, header.size());
                out += header;
                in_chunks_ = header.find("chunked") != header.npos;
                const std::string length = "Content-Length: ";
                const auto at = header.find(length);
                rest_ = at == header.npos ? 0 : std::stoul(header.substr(at + length.size()));
                continue;
            }
            const auto line = kept_.find("\r\n");
            if (line == kept_.npos) {
                return out;
            }
            const auto size = std::strtoul(kept_.c_str(), nullptr, 16);
            const auto whole = line + 2 + size + 2;
            if (kept_.size() < whole) {
                return out;
            }
            const std::string chunk = kept_.substr(0, whole);
            kept_.erase(0, whole);
            in_chunks_ = size != 0;
            if (chunk.find(bad) != chunk.npos) {
                ++dropped;
            } else {
                out += chunk;
            }
        }
    }

private:
    bool in_chunks_ = false;
    std::size_t rest_ = 0; // of a body that is not chunked
    std::string kept_;
};

/// Takes requests together.
class request_filter {
public:
    /// @returns Requests that are complete now.
    std::string pass(const std::string& bytes, std::size_t& requests) {
        kept_ += bytes;
        std::string out;
        while (const std::size_t size = complete()) {
            out += kept_.substr(0, size);
            kept_.erase(0, size);
            ++requests;
        }
        return out;
    }

private:
    /// @returns The size of the first request; 0 if it is not complete.
    std::size_t complete() const {
        const auto end = kept_.find("\r\n\r\n");
        if (end == kept_.npos) {
            return 0;
        }
        const std::string header = kept_.substr(0, end + 4);
        if (header.find("chunked") == header.npos) {
            const std::string length = "Content-Length: ";
            const auto at = header.find(length);
            const auto size = at == header.npos ? 0 : std::stoul(header.substr(at + length.size()));
            return kept_.size() < header.size() + size ? 0 : header.size() + size;
        }
        for (auto at = header.size();;) {
            const auto line = kept_.find("\r\n", at);
            if (line == kept_.npos) {
                return 0;
            }
            const auto size = std::strtoul(kept_.c_str() + at, nullptr, 16);
            at = line + 2 + size + 2;
            if (kept_.size() < at) {
                return 0;
            }
            if (size == 0) {
                return at;
            }
        }
    }

    std::string kept_;
};

} // namespace

struct tcp_proxy::state : std::enable_shared_from_this<state> {
    enum class end { none, closed, reset };

    struct piece {
        piece(time_point when, std::string what, end then)
            : due(when)
            , bytes(std::move(what))
            , after(then) {}
        time_point due;
        std::string bytes;
        end after;
    };

    // One direction of a connection.
    struct lane {
        explicit lane(const asio::any_io_executor& executor, toxics t)
            : rule(std::move(t))
            , changed(executor, time_point::max()) {}
        void set(const toxics& t) {
            rule = t;
            seen = 0;
            changed.cancel();
        }
        std::size_t held() const {
            std::size_t sum = 0;
            for (const piece& each : queue) {
                sum += rule.hold ? each.bytes.size() : 0;
            }
            return sum;
        }
        toxics rule;
        std::size_t seen = 0; // bytes, since the rule was set
        bool lossy = false;   // something is missing from what it passed on
        bool flooded = false;
        bool was_held = false;
        chunk_filter chunks;
        request_filter wholes;
        std::deque<piece> queue;
        time_point last_due{};
        asio::steady_timer changed; // the queue
        std::array<char, 16384> block;
    };

    struct connection {
        connection(tcp::socket accepted, toxics up, toxics down)
            : client(std::move(accepted))
            , server(client.get_executor())
            , requests(client.get_executor(), std::move(up))
            , answers(client.get_executor(), std::move(down)) {}
        void close(bool reset = false) {
            error_code ignored;
            for (tcp::socket* s : {&client, &server}) {
                if (reset) {
                    s->set_option(asio::socket_base::linger(true, 0), ignored);
                }
                s->close(ignored);
            }
            closed = true;
            requests.changed.cancel();
            answers.changed.cancel();
        }
        tcp::socket client;
        tcp::socket server;
        lane requests;
        lane answers;
        bool closed = false;
    };

    state(const asio::any_io_executor& e, tcp::endpoint server, const std::string& from)
        : executor(e)
        , target(std::move(server)) {
        if (!from.empty()) {
            source.emplace(asio::ip::make_address(from), 0);
        }
        listen(0);
    }

    void listen(std::uint16_t port) {
        const tcp::endpoint here(asio::ip::address_v4::loopback(), port);
        acceptor.emplace(executor, here); // with SO_REUSEADDR
        own_port = acceptor->local_endpoint().port();
    }

    static asio::awaitable<void> accept(std::shared_ptr<state> self) {
        while (self->acceptor) {
            error_code ec;
            tcp::socket socket(self->executor);
            co_await self->acceptor->async_accept(socket,
                                                  asio::redirect_error(asio::use_awaitable, ec));
            if (ec) {
                break;
            }
            const auto number = self->count.accepted++;
            auto up = self->up(number);
            auto down = self->down(number);
            auto c =
                std::make_shared<connection>(std::move(socket), std::move(up), std::move(down));
            self->connections.remove_if([](const auto& old) { return old->closed; });
            self->connections.push_back(c);
            asio::co_spawn(self->executor, serve(self, c), rethrow);
        }
    }

    static asio::awaitable<void> serve(std::shared_ptr<state> self, std::shared_ptr<connection> c) {
        error_code ec;
        c->server.open(self->target.protocol(), ec);
        if (self->source) {
            c->server.bind(*self->source, ec);
        }
        co_await c->server.async_connect(self->target,
                                         asio::redirect_error(asio::use_awaitable, ec));
        if (ec || c->closed) {
            c->close();
            co_return;
        }
        c->client.set_option(tcp::no_delay(true), ec);
        c->server.set_option(tcp::no_delay(true), ec);
        asio::co_spawn(self->executor, write(self, c, c->client, c->answers), rethrow);
        asio::co_spawn(self->executor, write(self, c, c->server, c->requests), rethrow);
        asio::co_spawn(self->executor, read(self, c, c->server, c->answers), rethrow);
        co_await read(self, c, c->client, c->requests);
    }

    static asio::awaitable<void>
    read(std::shared_ptr<state> self, std::shared_ptr<connection> c, tcp::socket& from, lane& way) {
        error_code ec;
        while (!c->closed) {
            const std::size_t n = co_await from.async_read_some(
                asio::buffer(way.block), asio::redirect_error(asio::use_awaitable, ec));
            if (ec) {
                break;
            }
            if (&way == &c->answers) {
                self->count.received_answers += n;
            }
            if (!self->take(way, std::string(way.block.data(), n))) {
                co_return;
            }
        }
        // A request that was held is to be carried out although its client has gone.
        if (!way.rule.blackhole && !way.was_held) {
            const auto wait = way.rule.slow_close;
            self->push(way, std::string(), end::closed, wait);
        }
    }

    // Does to bytes what is done at once. False: there will be no more.
    bool take(lane& way, std::string bytes) {
        const toxics& rule = way.rule;
        if (rule.blackhole) {
            count.swallowed += bytes.size();
            way.lossy = true;
            return true;
        }
        if (rule.flood != 0) {
            count.swallowed += bytes.size();
            way.lossy = true;
            if (!std::exchange(way.flooded, true)) {
                ++count.floods;
                std::string answer = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                                     "Content-Length: " +
                                     std::to_string(rule.flood) + "\r\n\r\n";
                answer.append(rule.flood, ' ');
                push(way, std::move(answer), end::none);
            }
            return true;
        }
        if (rule.corrupt_every != 0) {
            for (std::size_t i = 0; i < bytes.size(); ++i) {
                if ((way.seen + i + 1) % rule.corrupt_every == 0) {
                    bytes[i] = '\0';
                    ++count.corrupted;
                    way.lossy = true;
                }
            }
        }
        if (!rule.drop_chunks.empty()) {
            bytes = way.chunks.pass(bytes, rule.drop_chunks, count.dropped_chunks);
        }
        if (rule.whole_requests) {
            bytes = way.wholes.pass(bytes, count.whole_requests);
        }
        way.was_held = way.was_held || rule.hold;
        const auto before = way.seen;
        way.seen += bytes.size();
        const auto limit = rule.reset_after ? rule.reset_after : rule.limit_data;
        if (limit && way.seen >= *limit) {
            const bool reset = rule.reset_after.has_value();
            ++(reset ? count.reset : count.closed);
            bytes.resize(*limit > before ? *limit - before : 0);
            push(way, std::move(bytes), reset ? end::reset : end::closed);
            return false;
        }
        push(way, std::move(bytes), end::none);
        return true;
    }

    void push(lane& way, std::string bytes, end after, std::chrono::milliseconds more = {}) {
        auto wait = way.rule.latency + more;
        if (way.rule.jitter.count() != 0) {
            std::uniform_int_distribution<long> choice(0, way.rule.jitter.count());
            wait += std::chrono::milliseconds(choice(random));
        }
        if (wait.count() != 0) {
            count.delayed += bytes.size();
        }
        way.last_due = std::max(way.last_due, std::chrono::steady_clock::now() + wait);
        way.queue.emplace_back(way.last_due, std::move(bytes), after);
        way.changed.cancel();
    }

    static asio::awaitable<void>
    write(std::shared_ptr<state> self, std::shared_ptr<connection> c, tcp::socket& to, lane& way) {
        asio::steady_timer wait(self->executor);
        error_code ec;
        while (!c->closed) {
            if (way.queue.empty() || way.rule.hold) {
                co_await way.changed.async_wait(asio::redirect_error(asio::use_awaitable, ec));
                continue;
            }
            piece next = std::move(way.queue.front());
            way.queue.pop_front();
            if (next.due > std::chrono::steady_clock::now()) {
                wait.expires_at(next.due);
                co_await wait.async_wait(asio::redirect_error(asio::use_awaitable, ec));
            }
            std::size_t done = 0;
            while (done < next.bytes.size() && !c->closed) {
                std::size_t n = next.bytes.size() - done;
                if (way.rule.slice != 0 && n > way.rule.slice) {
                    n = way.rule.slice;
                    ++self->count.sliced;
                }
                if (const auto speed = way.rule.bytes_per_second; speed != 0) {
                    n = std::min(n, std::max<std::size_t>(speed / 20, 1));
                    self->count.delayed += n;
                    wait.expires_after(std::chrono::microseconds(1000000 * n / speed));
                    co_await wait.async_wait(asio::redirect_error(asio::use_awaitable, ec));
                }
                co_await asio::async_write(to,
                                           asio::buffer(next.bytes.data() + done, n),
                                           asio::redirect_error(asio::use_awaitable, ec));
                if (ec) {
                    c->close();
                    co_return;
                }
                done += n;
                self->count.passed += n;
                self->count.passed_requests += &way == &c->requests ? n : 0;
            }
            if (next.after != end::none) {
                c->close(next.after == end::reset);
            }
        }
    }

    template<class Function>
    void for_each(Function f) {
        const auto all = connections;
        for (const auto& c : all) {
            f(*c);
        }
    }

    const asio::any_io_executor executor;
    const tcp::endpoint target;
    std::optional<tcp::endpoint> source;
    std::optional<tcp::acceptor> acceptor;
    std::uint16_t own_port = 0;
    toxics_of up = [](std::size_t) { return toxics(); };
    toxics_of down = [](std::size_t) { return toxics(); };
    counters count;
    std::minstd_rand random;
    std::list<std::shared_ptr<connection>> connections;
};

tcp_proxy::tcp_proxy(const asio::any_io_executor& executor, std::uint16_t port)
    : tcp_proxy(executor, "127.0.0.1", port) {}

tcp_proxy::tcp_proxy(const asio::any_io_executor& executor,
                     const std::string& address,
                     std::uint16_t port,
                     const std::string& source) {
    const tcp::endpoint server(asio::ip::make_address(address), port);
    state_ = std::make_shared<state>(executor, server, source);
    asio::co_spawn(executor, state::accept(state_), rethrow);
}

tcp_proxy::~tcp_proxy() {
    state_->acceptor.reset();
    cut();
}

std::string tcp_proxy::url() const {
    return "http://127.0.0.1:" + std::to_string(state_->own_port);
}

void tcp_proxy::requests(const toxics& t) {
    state_->up = [t](std::size_t) { return t; };
    present_requests(t);
}

void tcp_proxy::answers(const toxics& t) {
    state_->down = [t](std::size_t) { return t; };
    present_answers(t);
}

void tcp_proxy::present_requests(const toxics& t) {
    state_->for_each([&](auto& c) { c.requests.set(t); });
}

void tcp_proxy::present_answers(const toxics& t) {
    state_->for_each([&](auto& c) { c.answers.set(t); });
}

void tcp_proxy::future_requests(toxics_of f) {
    state_->up = std::move(f);
}

void tcp_proxy::future_answers(toxics_of f) {
    state_->down = std::move(f);
}

void tcp_proxy::refuse(bool yes) {
    if (yes) {
        state_->acceptor.reset();
    } else if (!state_->acceptor) {
        state_->listen(state_->own_port);
        asio::co_spawn(state_->executor, state::accept(state_), rethrow);
    }
}

void tcp_proxy::cut() {
    state_->for_each([](auto& c) { c.close(); });
}

void tcp_proxy::heal() {
    requests({});
    answers({});
    state_->for_each([](auto& c) {
        if (c.requests.lossy || c.answers.lossy) {
            c.close();
        }
    });
}

std::size_t tcp_proxy::held_requests() const {
    std::size_t sum = 0;
    for (const auto& c : state_->connections) {
        sum += c->requests.held();
    }
    return sum;
}

const tcp_proxy::counters& tcp_proxy::count() const {
    return state_->count;
}

} // namespace support
