// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/net/dialer.hpp>
#include <coetcd/detail/testing/chance.hpp>
#include <coetcd/detail/testing/world.hpp>
#include <coetcd/testing.hpp> // what is defined of it

#include <boost/asio/error.hpp>
#include <boost/asio/ip/address.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/stories.hpp"
#include "support/dialing.hpp"

namespace sim {

namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;
namespace asio = boost::asio;
namespace in_memory = coetcd::detail::testing;
namespace logic = coetcd::detail::logic;
namespace net = coetcd::detail::net;
using in_memory::chance;

class name_story {
public:
    explicit name_story(std::uint64_t seed)
        : luck_(chance::derive(seed, 31))
        , world_(chance::derive(seed, 32), in_memory::world::options())
        , home_(world_.add_process())
        , connector_(std::make_shared<support::scripted_connector>(
              *home_, [this](const asio::ip::address& a) { return fate_of(a); }))
        , dials_(*home_, options(), connector_) {}
    ~name_story() { world_.shut_down(); }
    name_story(const name_story&) = delete;
    name_story& operator=(const name_story&) = delete;

    std::string run() {
        move();
        nanoseconds when{0};
        for (auto n = luck_.below(3); n != 0; --n) {
            when += luck_.within(100ms, 5s);
            world_.at(when, [this] { move(); });
        }
        when += luck_.within(100ms, 5s);
        world_.at(when, [this] {
            move();
            settled_ = std::max(world_.now(), lookup_ends_) + 5s;
        });
        coetcd::detail::spawn(*home_, connect_again_and_again());
        while (failure_.empty() && (!settled_ || world_.now() < *settled_ + 2s) && world_.step()) {
        }
        if (failure_.empty() && !world_.failure().empty()) {
            failure_ = world_.failure();
        }
        return failure_;
    }

private:
    void move() {
        const std::vector<asio::ip::address> before = std::exchange(published_, {});
        works_.clear();
        for (auto n = 1 + luck_.below(4); n != 0; --n) {
            const bool stays = !before.empty() && luck_.one_in(4);
            const auto number = std::to_string(luck_.between(1, 200));
            published_.push_back(stays             ? before[luck_.below(before.size())]
                                 : luck_.one_in(2) ? asio::ip::make_address("10.0.0." + number)
                                                   : asio::ip::make_address("fd00::" + number));
        }
        const auto well = luck_.below(published_.size());
        for (std::size_t i = 0; i != published_.size(); ++i) {
            if (i == well || !luck_.one_in(3)) {
                works_[published_[i]] = luck_.skewed(1ms, 200ms);
            }
        }
    }
    bool works(const asio::ip::address& a) const { return works_.count(a) != 0; }
    support::scripted_connector::fate fate_of(const asio::ip::address& a) {
        const auto found = works_.find(a);
        if (found != works_.end()) {
            return {found->second, {}, {}};
        }
        if (luck_.one_in(2)) {
            return {1h, {}, {}}; // it swallows everything
        }
        return {luck_.skewed(1ms, 50ms), asio::error::connection_refused, {}};
    }

    net::net_options options() {
        net::net_options o;
        o.lookup = [this](const std::string&, auto tell) { look_up(std::move(tell)); };
        return o;
    }
    void look_up(std::function<void(coetcd::error_code, logic::addresses)> tell) {
        if (world_.now() < lookup_ends_) {
            failure_ = "two lookups at the same time";
        } else if (last_lookup_ && world_.now() - *last_lookup_ < 500ms) {
            failure_ = "two lookups in half a second";
        }
        last_lookup_ = world_.now();
        const bool fails = !settled_ && luck_.one_in(8);
        nanoseconds takes = luck_.skewed(1ms, 100ms);
        if (!settled_ && luck_.one_in(3)) {
            takes = luck_.skewed(100ms, 3s);
        }
        lookup_ends_ = world_.now() + takes;
        world_.at(lookup_ends_, [tell, fails, found = published_] {
            if (fails) {
                tell(asio::error::host_not_found_try_again, {});
            } else {
                tell({}, found);
            }
        });
    }

    asio::awaitable<void> connect_again_and_again() {
        for (;;) {
            const nanoseconds began = world_.now();
            logic::endpoint to;
            to.host = "etcd.test";
            to.port = 2379;
            auto connecting = dials_.connect(to, home_->now() + 5s);
            const net::connect_result made = co_await std::move(connecting);
            const nanoseconds took = world_.now() - began;
            if (took > 1s) {
                failure_ = "connecting took more time than it may";
            }
            if (!made.connected && settled_ && began >= *settled_) {
                failure_ = "a name was not reached in time: " + made.ec.message();
            }
            (void)co_await home_->sleep(1ms);
            if (connector_->under_way() != 0) {
                failure_ = "an attempt to connect goes on for nobody";
            }
            if (made.connected) {
                (void)co_await home_->sleep(luck_.within(0ms, 300ms));
                const asio::ip::address peer = made.connected->peer;
                if (works(peer)) {
                    dials_.names().prefer(to.host, peer);
                } else {
                    (void)dials_.names().avoid(to.host, peer);
                }
            }
            (void)co_await home_->sleep(luck_.within(10ms, 300ms));
        }
    }

    chance luck_;
    in_memory::world world_;
    const std::shared_ptr<in_memory::process> home_;
    std::vector<asio::ip::address> published_;
    std::map<asio::ip::address, nanoseconds> works_; // how long it takes to connect
    const std::shared_ptr<support::scripted_connector> connector_;
    net::dialer dials_;
    /// From when on everything has to go well. An attempt may find a dead connection first, then
    /// the old addresses dead, and then looks the name up. Empty until nothing moves.
    std::optional<nanoseconds> settled_;
    std::optional<nanoseconds> last_lookup_;
    nanoseconds lookup_ends_{0};
    std::string failure_;
};

} // namespace

std::string follow_name(std::uint64_t seed) {
    name_story story(seed);
    return story.run();
}

} // namespace sim
