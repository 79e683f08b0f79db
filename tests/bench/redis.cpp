// SPDX-License-Identifier: BSL-1.0
// The usual lock of Redis: SET NX PX until it succeeds, and a script that deletes what is ours.
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <array>
#include <hiredis/hiredis.h>
#include <memory>
#include <stdexcept>
#include <unistd.h>
#include <utility>
#include <vector>

#include "bench/worker.hpp"

namespace bench {
namespace {

using asio::ip::tcp;

constexpr std::chrono::milliseconds poll_interval(10);
constexpr const char* time_to_live = "60000"; // milliseconds
constexpr const char* unlock_script =
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";

/// One owner of one lock, with a connection of its own.
class redis_lock {
public:
    redis_lock(const asio::any_io_executor& executor, std::string name, std::string owner)
        : name_(std::move(name))
        , owner_(std::move(owner))
        , socket_(executor)
        , again_(executor)
        , reader_(redisReaderCreate(), redisReaderFree) {}

    awaitable<void> open(std::uint16_t port) {
        const tcp::endpoint server(asio::ip::address_v4::loopback(), port);
        co_await socket_.async_connect(server, asio::use_awaitable);
        socket_.set_option(tcp::no_delay(true));
        const std::vector<std::string> load{"SCRIPT", "LOAD", unlock_script};
        reply loaded = co_await call(load);
        script_.assign(loaded->str, loaded->len);
        lock_words_ = {"SET", name_, owner_, "NX", "PX", time_to_live};
        unlock_words_ = {"EVALSHA", script_, "1", name_, owner_};
    }

    awaitable<bool> try_lock() {
        const reply r = co_await call(lock_words_);
        co_return r->type == REDIS_REPLY_STATUS;
    }

    awaitable<void> lock() {
        for (;;) {
            const bool locked = co_await try_lock();
            if (locked) {
                co_return;
            }
            ++refused;
            again_.expires_after(poll_interval);
            co_await again_.async_wait(asio::use_awaitable);
        }
    }

    awaitable<void> unlock() {
        const reply r = co_await call(unlock_words_);
        if (r->integer != 1) {
            throw std::runtime_error("a lock was lost: " + name_);
        }
    }

    std::size_t refused = 0;

private:
    struct free_reply {
        void operator()(redisReply* r) const { freeReplyObject(r); }
    };
    using reply = std::unique_ptr<redisReply, free_reply>;

    awaitable<reply> call(const std::vector<std::string>& words) {
        std::array<const char*, 8> texts{};
        std::array<std::size_t, 8> sizes{};
        for (std::size_t i = 0; i < words.size(); ++i) {
            texts[i] = words[i].data();
            sizes[i] = words[i].size();
        }
        char* text = nullptr;
        const auto size = redisFormatCommandArgv(
            &text, static_cast<int>(words.size()), texts.data(), sizes.data());
        const std::unique_ptr<char, void (*)(char*)> owner(text, redisFreeCommand);
        co_await asio::async_write(
            socket_, asio::buffer(text, static_cast<std::size_t>(size)), asio::use_awaitable);
        std::array<char, 1024> block;
        void* got = nullptr;
        while (got == nullptr) {
            const std::size_t n =
                co_await socket_.async_read_some(asio::buffer(block), asio::use_awaitable);
            if (redisReaderFeed(reader_.get(), block.data(), n) != REDIS_OK ||
                redisReaderGetReply(reader_.get(), &got) != REDIS_OK) {
                throw std::runtime_error(reader_->errstr);
            }
        }
        reply r(static_cast<redisReply*>(got));
        if (r->type == REDIS_REPLY_ERROR) {
            throw std::runtime_error(std::string(r->str, r->len));
        }
        co_return r;
    }

    std::string name_;
    std::string owner_;
    tcp::socket socket_;
    asio::steady_timer again_;
    std::unique_ptr<redisReader, void (*)(redisReader*)> reader_;
    std::string script_;
    std::vector<std::string> lock_words_;
    std::vector<std::string> unlock_words_;
};

awaitable<void> lock_and_unlock_once(redis_lock& l) {
    co_await l.lock();
    co_await l.unlock();
}

awaitable<json> hand_over(task t, redis_lock& l) {
    co_await pass_gate(t.gate);
    ownerships all;
    const double cpu = own_cpu();
    const auto began = clock::now();
    while (seconds_since(began) < t.seconds) {
        co_await l.lock();
        all.taken();
        all.leaving();
        co_await l.unlock();
    }
    json result;
    result["cpu"] = own_cpu() - cpu;
    result["ownerships"] = all.to_json();
    co_return result;
}

struct drain {
    durations hand_overs;
    clock::time_point last_release{};
};

awaitable<void> wait_in_line(redis_lock& l, drain& all) {
    co_await l.lock();
    all.hand_overs.add(clock::now() - all.last_release);
    all.last_release = clock::now();
    co_await l.unlock();
}

/// One holder, and many others that poll.
awaitable<json> waiters(task t, std::vector<std::unique_ptr<redis_lock>>& locks) {
    const auto executor = co_await asio::this_coro::executor;
    co_await locks.front()->lock();
    drain all;
    crew members(executor);
    for (std::size_t i = 1; i < locks.size(); ++i) {
        members.start(wait_in_line(*locks[i], all));
    }
    json result;
    const stretch waiting(t.server);
    asio::steady_timer timer(executor);
    timer.expires_after(std::chrono::milliseconds(static_cast<long>(t.seconds * 1000)));
    co_await timer.async_wait(asio::use_awaitable); // this is what is measured
    result["client_percent"] = 100 * waiting.client_cpu() / waiting.seconds();
    result["server_percent"] = 100 * waiting.server_cpu() / waiting.seconds();
    const stretch draining(t.server);
    all.last_release = clock::now();
    co_await locks.front()->unlock();
    (void)co_await members.joined();
    const auto n = static_cast<double>(all.hand_overs.count());
    result["drain_s"] = draining.seconds();
    result["rate"] = n / draining.seconds();
    result["client_us"] = draining.client_cpu() * 1e6 / n;
    result["server_us"] = draining.server_cpu() * 1e6 / n;
    result["p50_ms"] = all.hand_overs.milliseconds_at(0.5);
    result["p99_ms"] = all.hand_overs.milliseconds_at(0.99);
    result["lost"] = 0;
    co_return result;
}

} // namespace

awaitable<json> run_redis(task t) {
    const auto executor = co_await asio::this_coro::executor;
    const auto port = static_cast<std::uint16_t>(std::stoul(t.url));
    const std::string process = std::to_string(::getpid()) + "-";
    const std::size_t width = t.kind == "hand-over" ? 1 : t.count + (t.kind == "waiters" ? 1 : 0);
    const std::size_t empty = resident();
    std::vector<std::unique_ptr<redis_lock>> locks;
    for (std::size_t i = 0; i < width; ++i) {
        const std::string number = std::to_string(i);
        const std::string name = t.kind == "uncontended" ? t.name + "-" + number : t.name;
        locks.push_back(std::make_unique<redis_lock>(executor, name, process + number));
        co_await locks.back()->open(port);
    }
    json result;
    if (t.kind == "hand-over") {
        result = co_await hand_over(t, *locks.front());
    } else if (t.kind == "waiters") {
        const auto more = static_cast<double>(resident() - empty);
        result = co_await waiters(t, locks);
        result["waiter_kib"] = more / 1024 / static_cast<double>(t.count); // its connection
    } else {
        lock_and_unlock pair = [&](std::size_t i) { return lock_and_unlock_once(*locks[i]); };
        result = co_await measure_pairs(std::move(pair), width, t.seconds, t.server);
    }
    co_return result;
}

} // namespace bench
