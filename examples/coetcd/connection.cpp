// SPDX-License-Identifier: BSL-1.0
#include "connection.hpp"

#include <coetcd/printable.hpp>
#include <coetcd/tls.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "terminal.hpp"

namespace tool {

namespace fs = std::filesystem;

namespace {

/// What a password is asked for with.
std::string ask_on_terminal(const std::string& prompt) {
    if (!terminal::is_typed_in()) {
        throw std::invalid_argument(
            "there is no password, and the standard input is no terminal on "
            "which to ask for it: use --password-file, or ETCDCTL_PASSWORD");
    }
    return ask(prompt, echo::off);
}

/// Whether others than us could know what a file holds. One that is somebody else's may be there
/// for our group.
bool is_secret(const struct stat& file) {
    const mode_t others = file.st_uid == ::geteuid() ? S_IRWXG | S_IRWXO : S_IRWXO;
    const bool keeps_nothing = S_ISCHR(file.st_mode) || S_ISSOCK(file.st_mode);
    return keeps_nothing || (file.st_mode & others) == 0;
}

/// Our descriptor that a path leads to, as /dev/stdin does; -1 if there is none.
int descriptor_of(fs::path file) {
    constexpr int most_links = 40; // more would be a circle
    std::error_code failed;
    for (int links = 0; links < most_links; ++links) {
        const fs::path parent = fs::absolute(file, failed).parent_path();
        const fs::path folder = fs::canonical(parent, failed);
        for (const fs::path ours : {"/dev/fd", "/proc/self/fd", "/proc/thread-self/fd"}) {
            if (parent == ours || (!folder.empty() && folder == fs::canonical(ours, failed))) {
                const std::string name = file.filename();
                const char* const end = name.data() + name.size();
                int number = -1;
                return std::from_chars(name.data(), end, number).ptr == end ? number : -1;
            }
        }
        const fs::path leads_to = fs::read_symlink(file, failed);
        if (failed) {
            break; // it is no link
        }
        file = folder / leads_to;
    }
    return -1;
}

/// @throws std::invalid_argument if it cannot be read, or if others can read it.
std::string first_line(const std::string& file) {
    const std::string flag = "--password-file: ", name = coetcd::printable(file);
    // Of what is open already the line is taken, and no more: what follows may be the command's.
    const int ours = descriptor_of(file);
    const int descriptor =
        ours < 0 ? ::open(file.c_str(), O_RDONLY | O_CLOEXEC) : ::fcntl(ours, F_DUPFD_CLOEXEC, 0);
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> in(
        descriptor < 0 ? nullptr : ::fdopen(descriptor, "r"), std::fclose);
    if (!in) {
        throw std::invalid_argument(flag + "cannot read " + name + ": " + std::strerror(errno));
    }
    struct stat about {};
    if (::fstat(descriptor, &about) != 0 || !is_secret(about)) {
        throw std::invalid_argument(flag + "others can read or write " + name + ": chmod 600 it");
    }
    (void)std::setvbuf(in.get(), nullptr, _IONBF, 0);
    std::string line;
    constexpr std::size_t longest = 4096;
    for (int c = std::fgetc(in.get()); c != EOF && c != '\n'; c = std::fgetc(in.get())) {
        if (line.size() == longest) {
            throw std::invalid_argument(flag + "the first line of " + name + " is no password");
        }
        line += static_cast<char>(c);
    }
    if (std::ferror(in.get()) != 0) {
        throw std::invalid_argument(flag + "cannot read " + name + ": " + std::strerror(errno));
    }
    if (line.ends_with('\r')) {
        line.pop_back(); // of a line's end, as some editors write it
    }
    return line;
}

/// A password in an argument could be seen by all users of the machine.
taker name_alone(std::string& into) {
    return [&into](const std::string& value) {
        if (value.find(':') != value.npos) {
            throw usage_error("no password here: use --password-file");
        }
        name(into)(value);
    };
}

} // namespace

std::vector<option> connection::flags() {
    return {
        {"--endpoints",
         "LIST",
         "Members of the cluster, with commas in between",
         list(endpoints_),
         "",
         "127.0.0.1:2379",
         "ETCDCTL_ENDPOINTS"},
        {"--user",
         "NAME",
         "The user (env: ETCDCTL_USER). The password comes from --password-file, from "
         "ETCDCTL_PASSWORD, or is asked for",
         name_alone(user_)},
        {"--password-file",
         "FILE",
         "Its first line is the password; nobody else may read it",
         name(password_file_)},
        {"--plain-text-password",
         "",
         "Send the password unencrypted, also to another machine",
         yes(in_the_clear_)},
        {"--cacert",
         "FILE",
         "Certificates of authorities to trust, in PEM",
         name(ca_file_),
         "",
         "",
         "ETCDCTL_CACERT"},
        {"--cert",
         "FILE",
         "Our own certificate, in PEM",
         name(certificate_file_),
         "",
         "",
         "ETCDCTL_CERT"},
        {"--key", "FILE", "The key to it, in PEM", name(key_file_), "", "", "ETCDCTL_KEY"},
        {"--insecure-skip-tls-verify",
         "",
         "Trust any server: to find out what is wrong",
         yes(skip_verify_),
         "",
         "",
         "ETCDCTL_INSECURE_SKIP_TLS_VERIFY"},
        {"--dial-timeout",
         "TIME",
         "How long to wait for a connection",
         some_time(dial_timeout_),
         "",
         "1s",
         "ETCDCTL_DIAL_TIMEOUT"},
        {"--command-timeout",
         "TIME",
         "How long to wait for an answer",
         some_time(command_timeout_),
         "",
         "5s",
         "ETCDCTL_COMMAND_TIMEOUT"},
    };
}

void connection::check() const {
    if (certificate_file_.empty() != key_file_.empty()) {
        throw usage_error("--cert and --key go together");
    }
    const char* const user = std::getenv("ETCDCTL_USER");
    if (user_.empty() && user != nullptr && *user == ':') {
        throw usage_error("ETCDCTL_USER: there is no name in front of the password");
    }
    if (!password_file_.empty() && user_.empty() && (user == nullptr || *user == '\0')) {
        throw usage_error("--password-file: there is no --user");
    }
}

void connection::prepare() {
    check();
    if (is_encrypted()) {
        tls_ = read_tls();
    }
    credentials_ = read_credentials();
}

bool connection::is_encrypted() const {
    return !ca_file_.empty() || !certificate_file_.empty() || skip_verify_ ||
           std::any_of(endpoints_.begin(), endpoints_.end(), [](const std::string& e) {
               std::string scheme = e.substr(0, e.find(':'));
               for (char& c : scheme) {
                   c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
               }
               return scheme == "https";
           });
}

std::shared_ptr<const coetcd::tls_context> connection::read_tls() const {
    coetcd::tls_options how;
    if (!ca_file_.empty()) {
        how.ca_file = ca_file_;
    }
    if (!certificate_file_.empty()) {
        how.certificate_file = certificate_file_;
        how.key_file = key_file_;
    }
    how.insecure_skip_verify = skip_verify_;
    return coetcd::make_tls(how);
}

std::optional<coetcd::credentials> connection::read_credentials() const {
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
        password = ask_on_terminal("Password of " + coetcd::printable(user) + ": ");
    }
    return coetcd::credentials(user, *password);
}

coetcd::client_options connection::options() const {
    coetcd::client_options result;
    result.request_timeout = milliseconds(command_timeout_);
    result.connect_timeout = milliseconds(dial_timeout_);
    result.tls = tls_;
    result.credentials = credentials_;
    result.insecure_plain_text_credentials = in_the_clear_;
    return result;
}

std::string connection::url(std::string endpoint) const {
    if (is_encrypted() && endpoint.find("://") == endpoint.npos) {
        endpoint.insert(0, "https://");
    }
    return endpoint;
}

coetcd::client connection::connect(boost::asio::any_io_executor executor,
                                   std::shared_ptr<coetcd::observer> told) const {
    std::vector<std::string> urls;
    for (const std::string& endpoint : endpoints_) {
        urls.push_back(url(endpoint));
    }
    coetcd::client_options how = options();
    how.observer = std::move(told);
    return coetcd::client(std::move(executor), coetcd::endpoints(urls), std::move(how));
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
