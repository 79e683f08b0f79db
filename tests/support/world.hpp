// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/detail/access.hpp>
#include <coetcd/error.hpp>
#include <coetcd/testing.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <utility>

#include "support/scripted_env.hpp"

namespace support {

/// An operation that runs by itself, to be looked at and cancelled from outside.
template<class T>
class background : public coetcd::testing::task<T> {
public:
    background(boost::asio::io_context& where, boost::asio::awaitable<T> work)
        : coetcd::testing::task<T>(where.get_executor(), std::move(work)) {}
};

/// The error that an operation has ended with.
template<class T>
coetcd::error failure_of(background<T>& b) {
    try {
        (void)b.get();
    } catch (const coetcd::error& e) {
        return e;
    }
    throw std::logic_error("it has not failed");
}

/// An etcd, a network and a clock, all of them at the test's command.
struct world {
    world()
        : context(std::make_unique<boost::asio::io_context>(1))
        , env(std::make_shared<scripted_env>(*context))
        , etcd(&env->store) {}
    ~world() { context.reset(); } // what is under way goes before what it uses
    world(const world&) = delete;
    world& operator=(const world&) = delete;

    coetcd::client client(coetcd::client_options options = {}) {
        return client("http://etcd:2379", options);
    }
    coetcd::client client(coetcd::endpoints cluster, coetcd::client_options options = {}) {
        return coetcd::detail::access::make<coetcd::client>(env, std::move(cluster), options);
    }

    /// Starts an operation.
    template<class T>
    background<T> start(boost::asio::awaitable<T> work) {
        return background<T>(*context, std::move(work));
    }

    /// Lets time pass until an operation has ended; ten minutes at the most.
    template<class T>
    T await(boost::asio::awaitable<T> work) {
        background<T> b = start(std::move(work));
        const auto limit = env->now() + std::chrono::minutes(10);
        for (env->pass(std::chrono::nanoseconds(0)); !b.ended() && env->now() < limit;) {
            env->pass(std::chrono::milliseconds(1));
        }
        return b.get();
    }

    std::unique_ptr<boost::asio::io_context> context;
    std::shared_ptr<scripted_env> env;
    coetcd::detail::testing::etcd* etcd;
};

} // namespace support
