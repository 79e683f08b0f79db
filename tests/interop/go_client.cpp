// SPDX-License-Identifier: BSL-1.0
#include "go_client.hpp"

#include <chrono>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "support/environment.hpp"

namespace interop {

namespace {

support::background_process start(const std::string& url) {
    support::process_options options;
    options.capture = true;
    return support::background_process({support::environment("COETCD_GO_CLIENT"), url},
                                       std::move(options));
}

} // namespace

bool can_run() {
    return !support::environment("COETCD_GO_CLIENT").empty() &&
           !support::environment("COETCD_JUDGE").empty();
}

go_client::go_client(const support::etcd_server& etcd)
    : process_(start(etcd.url())) {
    const auto port = process_.read_line(std::chrono::seconds(30));
    if (!port) {
        throw std::runtime_error("the Go client has ended");
    }
    port_ = static_cast<std::uint16_t>(std::stoi(*port));
}

awaitable<std::string> go_client::call(std::uint16_t port, std::string what) {
    std::string answer = co_await support::http_get(port, "/" + what);
    if (answer.starts_with("error: ")) {
        throw std::runtime_error("Go: " + what + ": " + answer);
    }
    co_return answer;
}

awaitable<std::string> go_client::told() {
    const auto line = co_await process_.async_read_line();
    if (!line) {
        throw std::runtime_error("the Go client has ended");
    }
    co_return *line;
}

entry::entry(const std::string& text) {
    std::istringstream in(text);
    if (!(in >> key >> token)) {
        throw std::runtime_error("no key and revision: " + text);
    }
}

} // namespace interop
