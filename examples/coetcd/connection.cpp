// SPDX-License-Identifier: BSL-1.0
#include "connection.hpp"

#include <coetcd/tls.hpp>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <termios.h>
#include <unistd.h>
#include <utility>

#include "duration.hpp"

namespace tool {

namespace {

/// Reads a line from the terminal that is not shown while it is typed.
std::string ask_on_terminal(const std::string& prompt) {
    termios before{};
    if (::isatty(STDIN_FILENO) == 0 || ::tcgetattr(STDIN_FILENO, &before) != 0) {
        throw std::runtime_error("there is no password, and no terminal to ask for it: use "
                                 "--password-file, or ETCDCTL_PASSWORD");
    }
    termios hidden = before;
    hidden.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &hidden);
    std::cerr << prompt << std::flush;
    std::string line;
    std::getline(std::cin, line);
    ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
    std::cerr << '\n';
    return line;
}

std::string first_line(const std::string& file) {
    std::ifstream in(file);
    std::string line;
    if (!std::getline(in, line) && !in.eof()) {
        throw std::runtime_error("--password-file: cannot read " + file);
    }
    return line;
}

} // namespace

void connection::add_flags(CLI::App& app) {
    const std::string group = "Connection, as of etcdctl";
    app.add_option("--endpoints", endpoints_, "Members of the cluster, with commas in between")
        ->envname("ETCDCTL_ENDPOINTS")
        ->delimiter(',')
        ->capture_default_str()
        ->group(group);
    // A password in an argument could be seen by all users of the machine.
    const auto no_password = [](const std::string& name) {
        return name.find(':') == name.npos ? "" : "no password here: use --password-file";
    };
    app.add_option("--user",
                   user_,
                   "Name of the user (env: ETCDCTL_USER). The password comes from "
                   "--password-file, from ETCDCTL_PASSWORD, or is asked for")
        ->check(no_password)
        ->group(group);
    app.add_option("--password-file", password_file_, "Its first line is the password")
        ->group(group);
    app.add_flag("--plain-text-password",
                 in_the_clear_,
                 "Send the password unencrypted, also to another machine")
        ->group(group);
    app.add_option("--cacert", ca_file_, "Certificates of authorities to trust, in PEM")
        ->envname("ETCDCTL_CACERT")
        ->group(group);
    app.add_option("--cert", certificate_file_, "Our own certificate, in PEM")
        ->envname("ETCDCTL_CERT")
        ->group(group);
    app.add_option("--key", key_file_, "The key to it, in PEM")
        ->envname("ETCDCTL_KEY")
        ->group(group);
    app.add_flag("--insecure-skip-tls-verify",
                 skip_verify_,
                 "Trust any server: to find out what is wrong")
        ->envname("ETCDCTL_INSECURE_SKIP_TLS_VERIFY")
        ->group(group);
    app.add_option("--dial-timeout", dial_timeout_, "How long to wait for a connection")
        ->transform(as_duration())
        ->envname("ETCDCTL_DIAL_TIMEOUT")
        ->capture_default_str()
        ->group(group);
    app.add_option("--command-timeout", command_timeout_, "How long to wait for an answer")
        ->transform(as_duration())
        ->envname("ETCDCTL_COMMAND_TIMEOUT")
        ->capture_default_str()
        ->group(group);
}

bool connection::is_encrypted() const {
    return !ca_file_.empty() || !certificate_file_.empty() || skip_verify_ ||
           std::any_of(endpoints_.begin(), endpoints_.end(), [](const std::string& e) {
               return e.starts_with("https:");
           });
}

std::optional<coetcd::credentials> connection::credentials() const {
    std::string user = user_;
    std::optional<std::string> password;
    if (const char* known = std::getenv("ETCDCTL_USER"); user.empty() && known != nullptr) {
        user = known; // `name`, or `name:password`
        if (const std::size_t colon = user.find(':'); colon != user.npos) {
            password = user.substr(colon + 1);
            user.resize(colon);
        }
    }
    if (user.empty()) {
        return std::nullopt;
    }
    if (!password_file_.empty()) {
        password = first_line(password_file_);
    } else if (const char* known = std::getenv("ETCDCTL_PASSWORD"); !password && known != nullptr) {
        password = known;
    }
    if (!password) {
        password = ask_on_terminal("Password of " + user + ": ");
    }
    return coetcd::credentials(user, *password);
}

coetcd::client_options connection::options() const {
    coetcd::client_options result;
    result.request_timeout = milliseconds(command_timeout_);
    result.connect_timeout = milliseconds(dial_timeout_);
    if (is_encrypted()) {
        coetcd::tls_options tls;
        if (!ca_file_.empty()) {
            tls.ca_file = ca_file_;
        }
        if (!certificate_file_.empty()) {
            tls.certificate_file = certificate_file_;
            tls.key_file = key_file_;
        }
        tls.insecure_skip_verify = skip_verify_;
        result.tls = coetcd::make_tls(tls);
    }
    result.credentials = credentials();
    result.insecure_plain_text_credentials = in_the_clear_;
    return result;
}

std::string connection::url(std::string endpoint) const {
    if (is_encrypted() && endpoint.find("://") == endpoint.npos) {
        endpoint.insert(0, "https://");
    }
    return endpoint;
}

coetcd::client connection::connect(boost::asio::any_io_executor executor) const {
    std::vector<std::string> urls;
    for (const std::string& endpoint : endpoints_) {
        urls.push_back(url(endpoint));
    }
    return coetcd::client(std::move(executor), coetcd::endpoints(urls), options());
}

std::vector<connection::member>
connection::connect_to_each(boost::asio::any_io_executor executor) const {
    const coetcd::client_options how = options();
    std::vector<member> all;
    for (const std::string& endpoint : endpoints_) {
        all.push_back({endpoint, coetcd::client(executor, url(endpoint), how)});
    }
    return all;
}

} // namespace tool
