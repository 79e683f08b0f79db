// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/auth.hpp>
#include <coetcd/cluster.hpp>
#include <coetcd/maintenance.hpp>

#include <boost/asio/awaitable.hpp>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "support/world.hpp"

/// What the tests of auth.hpp, cluster.hpp and maintenance.hpp share.
namespace administration {

namespace asio = boost::asio;
using coetcd::detail::call_request;
using coetcd::detail::reply;
using coetcd::detail::rpc;

/// A header of the cluster in memory.
inline const std::string header =
    R"("header":{"cluster_id":"14841639068965178418","member_id":"7","revision":"5"})";

/// An answer with further fields.
inline std::string with(const std::string& fields) {
    return "{" + header + (fields.empty() ? "" : "," + fields) + "}";
}

/// Has the requests of a kind answered with this.
inline void answers(support::world& w, rpc what, const std::string& body, unsigned status = 200) {
    w.env->on_call = [serve = w.env->on_call, what, body, status](const call_request& q, reply& r) {
        if (q.what == what) {
            r.status = status;
            r.body = body;
        } else {
            serve(q, r);
        }
    };
}

/// The body of the only request of a kind; all of them, if there are several.
inline std::string sent(support::world& w, rpc what) {
    std::string all;
    for (const call_request& q : w.env->calls) {
        if (q.what == what) {
            all += q.body;
        }
    }
    return all;
}

inline std::size_t count(support::world& w, rpc what) {
    std::size_t n = 0;
    for (const call_request& q : w.env->calls) {
        n += q.what == what ? 1 : 0;
    }
    return n;
}

/// A call, with what it has returned as a text.
struct row {
    std::string name;
    std::function<asio::awaitable<std::string>(coetcd::client)> call;
    rpc what;
    std::string request;
    std::string answer;
    std::string result;
    bool changes = false;
};

inline asio::awaitable<std::string> text(asio::awaitable<void> work) {
    co_await std::move(work);
    co_return "done";
}
inline asio::awaitable<std::string> text(asio::awaitable<bool> work) {
    const bool result = co_await std::move(work);
    std::string words = "no";
    if (result) {
        words = "yes";
    }
    co_return words;
}
inline asio::awaitable<std::string> text(asio::awaitable<std::string> work) {
    return work;
}
inline std::string joined(const std::vector<std::string>& all) {
    std::string words;
    for (const std::string& each : all) {
        words += each + ' ';
    }
    return words;
}
inline asio::awaitable<std::string> text(asio::awaitable<std::vector<std::string>> work) {
    const auto all = co_await std::move(work);
    co_return joined(all);
}
template<class T>
asio::awaitable<std::string> text(asio::awaitable<T> work, std::function<std::string(const T&)> f) {
    const T result = co_await std::move(work);
    std::string words = f(result);
    co_return words;
}

std::vector<row> auth_calls();
std::vector<row> cluster_calls();
std::vector<row> maintenance_calls();

} // namespace administration
