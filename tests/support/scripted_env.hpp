// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/env.hpp>
#include <coetcd/detail/testing/link.hpp>
#include <coetcd/detail/testing/world.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace support {

using coetcd::detail::time_point;

/// The simulator's world with one process, one member and no chance in it: the network does what
/// the test says. No sockets, no sleeps, no threads.
class scripted_env final : public coetcd::detail::env,
                           public coetcd::detail::testing::world,
                           public std::enable_shared_from_this<scripted_env> {
public:
    /// What becomes of one request.
    struct fate {
        bool arrives = true;  ///< Else it is lost on the way.
        bool answered = true; ///< Else its answer is lost on the way.
        bool breaks = false;  ///< The connection ends when the answer should come; no answer.
        bool refused = false; ///< No connection: it is not even sent.
        std::chrono::nanoseconds late{0}; ///< It arrives that much later than usual.
    };
    using server_stream = coetcd::detail::testing::link;

    /// `where` is run by nothing else. What waits in it ends with it.
    explicit scripted_env(boost::asio::io_context& where);
    ~scripted_env() override;

    /// What uses the library now is not at home: what that begins there begins later.
    bool away = false;
    bool is_home() const override { return !away; }

    // The script.
    /// Serves a request that has arrived: sets status and body. Else the store does.
    std::function<void(const coetcd::detail::call_request&, coetcd::detail::reply&)> on_call;
    /// Serves a stream in the same way: its first message is in the request.
    std::function<void(const coetcd::detail::call_request&, std::shared_ptr<server_stream>)>
        on_open;
    /// Serves further messages of a stream in the same way.
    std::function<void(std::shared_ptr<server_stream>, const std::string&)> on_message;
    /// Decides over a request, before it leaves.
    std::function<fate(const coetcd::detail::call_request&)> decide;
    std::chrono::nanoseconds round_trip = std::chrono::milliseconds(2);
    std::optional<std::uint64_t> always; ///< What chance says, each time, if it is broken.
    bool renews = true;                  ///< Else renewals are refused.
    /// The clusters that hosts lead to; to the store, if they are not among them.
    std::map<std::string, coetcd::detail::testing::etcd*> leads_to;
    /// What a stream with messages in both directions meets on its way.
    enum class way {
        direct,
        buffered, ///< A proxy that waits for the end of the request.
        refused,  ///< A proxy that wants to know the length of the request.
    };
    way duplex = way::direct;

    // The record.
    std::vector<coetcd::detail::call_request> calls;
    std::vector<coetcd::detail::sending> opened; ///< Streams, refused ones included.
    std::vector<std::vector<coetcd::detail::logic::endpoint>> kept; ///< See `keep_only`.

    /// Breaks all streams.
    void break_streams();

    void at(time_point when, std::function<void()> fire);
    /// Runs `body` to its end and rethrows what it throws. Fails if it takes more than an hour of
    /// this world's time.
    void run(boost::asio::awaitable<void> body);
    /// The process is stopped: the clock goes on, and nothing else does.
    void stall(std::chrono::nanoseconds time) { skip(time); }

    boost::asio::any_io_executor executor() const override { return home_->executor(); }
    time_point now() const override { return home_->now(); }
    std::uint64_t random() override { return always ? *always : home_->random(); }
    std::unique_ptr<coetcd::detail::sleeper> make_sleeper() override {
        return home_->make_sleeper();
    }
    boost::asio::awaitable<coetcd::detail::reply>
    call(coetcd::detail::call_request request) override;
    boost::asio::awaitable<coetcd::detail::open_result>
    open(coetcd::detail::call_request request) override;
    void keep_only(const std::vector<coetcd::detail::logic::endpoint>& used) override {
        kept.push_back(used);
    }

private:
    class tenancy;
    using answer = coetcd::detail::testing::etcd::answer;
    using process = coetcd::detail::testing::process;
    using world_fate = coetcd::detail::testing::fate;

    std::chrono::nanoseconds latency() override { return round_trip / 2; }
    std::chrono::nanoseconds connecting() override { return {}; }
    int member_of(const coetcd::detail::call_request&) const override { return 0; }
    world_fate judge(process& by, const coetcd::detail::call_request& what) override;
    world_fate judge_stream(process& by, const coetcd::detail::call_request& what) override;
    coetcd::detail::testing::etcd& store_of(const coetcd::detail::call_request& what) override {
        const auto other = leads_to.find(what.to.host);
        return other == leads_to.end() ? store : *other->second;
    }
    answer serve(int member, const coetcd::detail::call_request& what, answer so_far) override;
    coetcd::detail::reply receive(const coetcd::detail::call_request& what,
                                  const answer& a) override;
    void accept(const std::shared_ptr<server_stream>& from,
                const coetcd::detail::call_request& what) override;
    void hear(server_stream& from, const std::string& messages) override;
    void closed(server_stream& from) override;

    const std::shared_ptr<process> home_;
    tenancy* tenancy_; ///< Null: the context has gone.
    /// How the client ends up with an answer, if it is no answer.
    std::map<const coetcd::detail::call_request*, coetcd::detail::reply> odd_;
    std::vector<std::weak_ptr<server_stream>> streams_;
};

} // namespace support
