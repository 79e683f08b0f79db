// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/observer.hpp>

#include <boost/asio/any_io_executor.hpp>

#include <memory>
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
    /// To be called once they are known, while signals still end us: reads the files, which may be
    /// pipes, and asks for the password on the terminal, if there is a user and none is known.
    /// @throws usage_error if they make no sense together.
    /// @throws std::invalid_argument saying which flag is wrong, and why.
    void prepare();

    /// @throws std::invalid_argument saying which flag is wrong, and why.
    /// @param told What happens on it; null: nothing is.
    coetcd::client connect(boost::asio::any_io_executor executor,
                           std::shared_ptr<coetcd::observer> told = nullptr) const;

    /// The same, to each of them alone.
    struct member {
        std::string endpoint;
        coetcd::client client;
    };
    std::vector<member> connect_to_each(boost::asio::any_io_executor executor) const;

private:
    void check() const;
    std::optional<coetcd::credentials> read_credentials() const;
    std::shared_ptr<const coetcd::tls_context> read_tls() const;
    bool is_encrypted() const;
    coetcd::client_options options() const;
    std::string url(std::string endpoint) const;

    std::vector<std::string> endpoints_{"127.0.0.1:2379"};
    std::string user_;
    std::string password_file_;
    std::optional<coetcd::credentials> credentials_{};
    std::shared_ptr<const coetcd::tls_context> tls_;
    std::string ca_file_;
    std::string certificate_file_;
    std::string key_file_;
    bool skip_verify_ = false;
    bool in_the_clear_ = false;
    double command_timeout_ = 5;
    double dial_timeout_ = 1;
};

} // namespace tool
