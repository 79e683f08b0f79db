// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/admin.hpp>
#include <coetcd/detail/logic/names.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/detail/service/session.hpp>
#include <coetcd/detail/wire/printable.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace coetcd::detail {

/// @throws error Its text also says which permission a denied user lacks.
inline void check_lock_answer(const answer& a, const std::string& name, const char* call) {
    if (a.ec) {
        const std::string shown = wire::printable(name);
        throw error(a.ec,
                    std::string(call) + " \"" + shown + "\": " + a.text +
                        logic::if_denied(a.ec, shown));
    }
}

inline asio::awaitable<bool> force_unlock(std::shared_ptr<client_impl> by,
                                          call_terms how,
                                          std::string name,
                                          std::int64_t token) {
    constexpr const char* title = "force_unlock";
    const range_request life = logic::life_of(name, token);
    outcome<range_response> found = co_await call(by, life, how);
    check_lock_answer(found, name, title);
    bool looked_again = false;
    bool in_doubt = false; // if an answer was lost, it may have been our own first copy that did it
    std::optional<txn> end = logic::force(name, token, found.response.kvs);
    while (end) {
        const outcome<txn_response> ended = co_await call(by, *end, how.as(impact::idempotent));
        if (ended.ec == server_errc::not_found) { // the lease, and the keys that it still had
            if (std::exchange(looked_again, true)) {
                co_return false;
            }
            found = co_await call(by, life, how);
            check_lock_answer(found, name, title);
            end = logic::force(name, token, found.response.kvs);
            continue;
        }
        check_lock_answer(ended, name, title);
        if (ended.response.succeeded) {
            co_return true;
        }
        in_doubt = in_doubt || ended.left == logic::effect::unresolved;
        const range_response& rest = logic::answers::range_at(ended.response, 0);
        end = logic::force(name, token, rest.kvs);
    }
    co_return in_doubt;
}

inline asio::awaitable<std::optional<std::int64_t>> request_release(std::shared_ptr<session_impl> s,
                                                                    std::string name) {
    constexpr const char* title = "request_release";
    const auto require_session = [&s, &name] {
        s->require_alive(std::string(title) + " \"" + wire::printable(name) + "\"");
    };
    require_session();
    const call_terms how = s->owner->within(s->request_timeout);
    const range_request oldest = logic::oldest_key_of(name);
    const outcome<range_response> read = co_await call(s->owner, oldest, how);
    check_lock_answer(read, name, title);
    std::optional<logic::predecessor> holder = logic::first_in(read.response);
    std::optional<std::int64_t> asked;
    while (holder && !asked) {
        require_session();
        const txn asks = logic::ask_for_release(name, *holder, s->lease(), s->nonce());
        outcome<txn_response> said = co_await call(s->owner, asks, how.as(impact::idempotent));
        if (logic::is_lease_gone(said.ec, said.text)) { // that we put with
            const std::optional<bool> gone = co_await session_impl::look_for_lease(s, how);
            require_session();
            if (!gone) {
                said.ec = errc::timed_out;
            }
        }
        check_lock_answer(said, name, title);
        if (said.response.succeeded) {
            asked = holder->create_revision;
        } else {
            holder = logic::first_in(logic::answers::range_at(said.response, 0));
        }
    }
    co_return asked;
}

} // namespace coetcd::detail
