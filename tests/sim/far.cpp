// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/detail/testing/chance.hpp>
#include <coetcd/detail/testing/world.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/co_spawn.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "sim/stories.hpp"
#include "sim/story.hpp"

namespace sim {

namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;
namespace asio = boost::asio;
namespace in_memory = coetcd::detail::testing;
using in_memory::chance;
using in_memory::process;

/// A client that has few connections opens many sessions at once, takes a lock in some of them, and
/// writes much; as much as gets through within the time that calls have.
class crowd {
public:
    crowd(std::uint64_t seed, in_memory::world::options o, chance luck)
        : w_(chance::derive(seed, 66), o)
        , luck_(luck)
        , home_(w_.add_process())
        , ttl_(luck_.between(3, 10)) {
        client_.emplace(client_of_all(home_, o.members));
        // Half of what the connections carry until the first request is too late.
        constexpr nanoseconds timeout = 5s;
        const auto in_time = timeout / (2 * o.latency_high) * static_cast<int>(o.connections);
        callers_ = luck_.between(2, std::min(100, static_cast<int>(in_time / 2)));
    }
    ~crowd() { w_.shut_down(); }
    crowd(const crowd&) = delete;
    crowd& operator=(const crowd&) = delete;

    std::string run() {
        for (int i = 0; i != callers_; ++i) {
            begin(live());
        }
        while (w_.failure().empty() && ended_ != begun_ && w_.step()) {
            for (const coetcd::session& s : sessions_) {
                if (s.state() != coetcd::session_state::active) {
                    w_.fail("a session is not renewed in time, though etcd answers: it is far, "
                            "and many share the connections");
                }
            }
        }
        std::string failure = w_.failure();
        sessions_.clear();
        client_.reset();
        w_.shut_down();
        return failure;
    }

private:
    void begin(asio::awaitable<void> work) {
        ++begun_;
        auto at_end = [this](std::exception_ptr failure) {
            ++ended_;
            try {
                if (failure) {
                    std::rethrow_exception(failure);
                }
            } catch (const std::exception& e) {
                w_.fail(std::string("a call fails where etcd is far, and many share the "
                                    "connections: ") +
                        e.what());
            }
        };
        asio::co_spawn(home_->executor(), std::move(work), std::move(at_end));
    }

    asio::awaitable<void> live() {
        const bool locks = luck_.one_in(4);
        const std::string name = "lock/" + std::to_string(begun_);
        coetcd::session_options how(ttl_);
        coetcd::session made = co_await coetcd::session::open(*client_, how);
        const auto mine = sessions_.insert(sessions_.end(), std::move(made));
        coetcd::session& opened = *mine;
        coetcd::mutex m(opened, name);
        if (locks) {
            co_await m.lock();
        }
        (void)co_await home_->sleep(luck_.within(0s, 2 * nanoseconds(ttl_)));
        const std::string value = std::to_string(ended_);
        (void)co_await client_->put("data/" + name, value);
        (void)co_await home_->sleep(luck_.within(0s, nanoseconds(ttl_)));
        if (locks) {
            const bool released = co_await m.unlock();
            if (!released) {
                w_.fail("a lock is lost where etcd is far, and many share the connections");
            }
        }
        coetcd::session last = std::move(opened);
        sessions_.erase(mine);
        co_await last.close();
    }

    in_memory::world w_;
    chance luck_;
    const std::shared_ptr<process> home_;
    const std::chrono::seconds ttl_;
    int callers_ = 0;
    std::optional<coetcd::client> client_;
    std::list<coetcd::session> sessions_;
    int begun_ = 0;
    int ended_ = 0;
};

} // namespace

std::string crowd_far_away(std::uint64_t seed) {
    chance luck(chance::derive(seed, 65));
    in_memory::world::options o;
    o.members = luck.one_in(2) ? 1 : 3;
    o.connections = static_cast<std::size_t>(luck.between(1, 4));
    o.latency_high = std::chrono::milliseconds(luck.between(20, 100));
    o.latency_low = o.latency_high / 2;
    crowd c(seed, o, luck);
    return c.run();
}

} // namespace sim
