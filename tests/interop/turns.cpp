// SPDX-License-Identifier: BSL-1.0
#include "turns.hpp"

#include <algorithm>
#include <functional>
#include <sstream>
#include <stdexcept>

#include "support/etcd_server.hpp"

namespace interop {

awaitable<void> add_turn(coetcd::client c, std::string list, std::int64_t token) {
    const auto before = co_await c.get(list);
    const std::string text = before ? before->value : std::string();
    (void)co_await c.put(list, text + std::to_string(token) + ' ');
}

awaitable<std::vector<std::int64_t>> turns_of(coetcd::client c, std::string list) {
    const auto found = co_await c.get(list);
    std::istringstream in(found ? found->value : std::string());
    std::vector<std::int64_t> all;
    for (std::int64_t token = 0; in >> token;) {
        all.push_back(token);
    }
    co_return all;
}

bool grow(const std::vector<std::int64_t>& turns) {
    return std::adjacent_find(turns.begin(), turns.end(), std::greater_equal<>()) == turns.end();
}

awaitable<void> go_turns(const go_client& go, std::string what, std::string name, int times) {
    const std::string session = support::unique_name("session");
    const std::string who = "?session=" + session;
    (void)co_await go.call("open" + who + "&ttl=30");
    (void)co_await go.call("enter_" + what + who + "&name=" + name + "&list=" + name +
                           "-list&times=" + std::to_string(times));
    (void)co_await go.call("close" + who);
}

awaitable<void> etcdctl_turn(std::string name) {
    const auto& etcd = support::shared_etcd();
    const std::string ctl = "etcdctl --endpoints=" + etcd.url();
    const std::string list = name + "-list";
    const std::string script =
        "token=$(" + ctl + " get -w fields \"$ETCD_LOCK_KEY\"" +
        " | sed -n 's/^\"CreateRevision\" : //p') && test -n \"$token\" && list=$(" + ctl +
        " get --print-value-only " + list + ") && " + ctl + " put " + list + " \"$list$token \"";
    auto process = etcd.background_etcdctl({"lock", name, "--", "sh", "-c", script});
    for (;;) {
        const auto line = co_await process.async_read_line(); // it says OK
        if (!line) {
            break;
        }
    }
    const int code = co_await process.async_wait();
    if (code != 0) {
        throw std::runtime_error("etcdctl lock ended with " + std::to_string(code));
    }
}

} // namespace interop
