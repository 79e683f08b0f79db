// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>

#include <boost/asio/any_io_executor.hpp>

#include <optional>
#include <string>
#include <vector>

#include "arguments.hpp"

namespace tool {

/// Where etcd is, and who we are: the flags and environment variables of etcdctl.
class connection {
public:
    connection() {}

    std::vector<option> flags();
    /// Whether they make sense together.
    /// @throws usage_error
    void check() const;

    /// Asks for the password on the terminal, if there is a user and none is known.
    /// @throws std::invalid_argument, std::runtime_error saying which flag is wrong, and why.
    coetcd::client connect(boost::asio::any_io_executor executor) const;

    /// The same, to each of them alone. The password is asked for once.
    struct member {
        std::string endpoint;
        coetcd::client client;
    };
    std::vector<member> connect_to_each(boost::asio::any_io_executor executor) const;

private:
    std::optional<coetcd::credentials> credentials() const;
    bool is_encrypted() const;
    coetcd::client_options options() const;
    std::string url(std::string endpoint) const;

    std::vector<std::string> endpoints_{"127.0.0.1:2379"};
    std::string user_;
    std::string password_file_;
    std::string ca_file_;
    std::string certificate_file_;
    std::string key_file_;
    bool skip_verify_ = false;
    bool in_the_clear_ = false;
    double command_timeout_ = 5;
    double dial_timeout_ = 1;
};

} // namespace tool
