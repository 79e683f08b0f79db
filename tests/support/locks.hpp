// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/mutex.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <utility>

#include "support/world.hpp"

/// What tests of locks share.
namespace support {

/// One session, and its mutex.
struct owner {
    explicit owner(coetcd::session_options options = {}, coetcd::client_options how = {})
        : client(w.client(std::move(how)))
        , session(w.await(coetcd::session::open(client, std::move(options))))
        , mutex(session, "m") {}
    world w;
    coetcd::client client;
    coetcd::session session;
    coetcd::mutex mutex;
};

/// Two sessions that want the same lock.
struct rivals {
    explicit rivals(coetcd::session_options first = {}, coetcd::session_options second = {})
        : client(w.client())
        , one(w.await(coetcd::session::open(client, std::move(first))))
        , two(w.await(coetcd::session::open(client, std::move(second))))
        , a(one, "m")
        , b(two, "m") {}
    world w;
    coetcd::client client;
    coetcd::session one;
    coetcd::session two;
    coetcd::mutex a;
    coetcd::mutex b;
};

// What the transactions of a lock look like on the wire.
inline bool has(const coetcd::detail::call_request& r, const char* text) {
    return r.what == coetcd::detail::rpc::txn && r.body.find(text) != std::string::npos;
}
inline bool is_enter(const coetcd::detail::call_request& r) {
    return has(r, "request_put") && !has(r, "request_delete_range");
}
inline bool is_confirm(const coetcd::detail::call_request& r) {
    return has(r, "max_create_revision");
}
inline bool is_release(const coetcd::detail::call_request& r) {
    return has(r, "request_delete_range") && !is_confirm(r);
}

inline std::size_t count(const world& w, bool (*which)(const coetcd::detail::call_request&)) {
    return static_cast<std::size_t>(std::count_if(w.env->calls.begin(), w.env->calls.end(), which));
}

/// The first such call arrives late.
inline void delay_first(world& w,
                        bool (*which)(const coetcd::detail::call_request&),
                        std::chrono::nanoseconds late) {
    w.env->decide = [which, late, first = true](const coetcd::detail::call_request& r) mutable {
        scripted_env::fate f;
        if (which(r) && std::exchange(first, false)) {
            f.late = late;
        }
        return f;
    };
}

/// The first such call is carried out, and its answer is lost.
inline void lose_answer(world& w, bool (*which)(const coetcd::detail::call_request&)) {
    w.env->decide = [which, first = true](const coetcd::detail::call_request& r) mutable {
        scripted_env::fate f;
        f.breaks = which(r) && std::exchange(first, false);
        return f;
    };
}

/// Lets time pass until a session is in that state, to the millisecond.
inline void reach(world& w, const coetcd::session& s, coetcd::session_state wanted) {
    for (int i = 0; s.state() != wanted && i != 60'000; ++i) {
        w.env->pass(std::chrono::milliseconds(1));
    }
    REQUIRE(s.state() == wanted);
}

} // namespace support
