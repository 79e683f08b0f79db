// SPDX-License-Identifier: BSL-1.0
#include "support/etcd_server.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <mutex>
#include <netinet/in.h>
#include <random>
#include <signal.h>
#include <stdexcept>
#include <string_view>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace support {
namespace {

using namespace std::chrono_literals;

constexpr auto ready_timeout = 30s;

// What failed tests are told: servers now alive, and the logs of those that ended meanwhile.
struct log_registry {
    std::mutex mutex;
    std::vector<const etcd_server*> alive;
    std::string ended;
};

log_registry& registry() {
    static log_registry instance;
    return instance;
}

std::string program(const char* variable, const char* otherwise) {
    const char* value = std::getenv(variable);
    return value != nullptr && *value != '\0' ? value : otherwise;
}

std::string tail(const std::string& text) {
    constexpr std::size_t limit = 4000;
    return text.size() <= limit ? text : "...\n" + text.substr(text.size() - limit);
}

sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

class tcp_socket {
public:
    tcp_socket()
        : handle_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
    tcp_socket(const tcp_socket&) = delete;
    tcp_socket& operator=(const tcp_socket&) = delete;
    ~tcp_socket() { ::close(handle_); }
    int handle() const { return handle_; }

private:
    int handle_;
};

// A port below the range of the kernel's own choices: those would be given to outgoing connections
// while the server is stopped, even to one that is looking for this very port.
std::uint16_t free_port() {
    static std::mt19937 random{std::random_device{}()};
    static std::mutex mutex;
    int limit = 32768;
    std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> limit;
    std::uniform_int_distribution<int> choice(10000, limit > 11000 ? limit - 1 : 65535);
    const std::lock_guard lock(mutex);
    for (int attempt = 0; attempt < 1000; ++attempt) {
        const auto port = static_cast<std::uint16_t>(choice(random));
        const tcp_socket socket;
        const int on = 1; // as etcd does: connections in TIME_WAIT are no obstacle
        ::setsockopt(socket.handle(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        const auto address = loopback(port);
        if (::bind(socket.handle(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) ==
            0) {
            return port;
        }
    }
    throw std::runtime_error("no free port");
}

// The answer with its header, or nothing.
std::string http_get(std::uint16_t port, const std::string& path) {
    const tcp_socket socket;
    const timeval timeout{1, 0}; // also for connect
    ::setsockopt(socket.handle(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    ::setsockopt(socket.handle(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
    const auto address = loopback(port);
    const auto request =
        "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    std::string answer;
    if (::connect(socket.handle(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) ==
            0 &&
        ::send(socket.handle(), request.data(), request.size(), MSG_NOSIGNAL) > 0) {
        std::array<char, 4096> block;
        ssize_t n = 0;
        while ((n = ::recv(socket.handle(), block.data(), block.size(), 0)) > 0) {
            answer.append(block.data(), static_cast<std::size_t>(n));
        }
    }
    return answer;
}

} // namespace

etcd_server::etcd_server(std::vector<std::string> extra_arguments, std::optional<server_tls> tls)
    : extra_arguments_(std::move(extra_arguments))
    , tls_(std::move(tls)) {
    static std::atomic<int> count{0};
    name_ = "coetcd-test-" + std::to_string(::getpid()) + '-' + std::to_string(++count);
    auto pattern = (std::filesystem::temp_directory_path() / (name_ + "-XXXXXX")).string();
    if (::mkdtemp(pattern.data()) == nullptr) {
        throw std::runtime_error("cannot create " + pattern);
    }
    directory_ = pattern;
    if (tls_) {
        show(tls_->own);
    }
    try {
        constexpr int attempts = 5; // somebody else may take a port before etcd does
        for (int attempt = 1;; ++attempt) {
            choose_ports();
            launch();
            if (wait_until_ready()) {
                break;
            }
            const auto text = log();
            if (attempt == attempts || text.find("address already in use") == std::string::npos) {
                throw std::runtime_error(name_ + " has not become ready: " + tail(text));
            }
            process_.reset();
            std::filesystem::remove_all(directory_ / "data");
        }
    } catch (...) {
        process_.reset();
        std::filesystem::remove_all(directory_);
        throw;
    }
    const std::lock_guard lock(registry().mutex);
    registry().alive.push_back(this);
}

etcd_server::~etcd_server() {
    process_.reset();
    {
        const std::lock_guard lock(registry().mutex);
        std::erase(registry().alive, this);
        registry().ended += "--- " + name_ + " (ended)\n" + tail(log());
    }
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
}

void etcd_server::choose_ports() {
    client_port_ = free_port();
    do {
        peer_port_ = free_port();
    } while (peer_port_ == client_port_);
}

void etcd_server::launch() {
    const auto peer_url = "http://127.0.0.1:" + std::to_string(peer_port_);
    std::vector<std::string> argv{program("COETCD_ETCD", "etcd"),
                                  "--name=" + name_,
                                  "--data-dir=" + (directory_ / "data").string(),
                                  "--listen-client-urls=" + url(),
                                  "--advertise-client-urls=" + url(),
                                  "--listen-peer-urls=" + peer_url,
                                  "--initial-advertise-peer-urls=" + peer_url,
                                  "--initial-cluster=" + name_ + '=' + peer_url,
                                  "--unsafe-no-fsync",
                                  "--logger=zap",
                                  "--log-outputs=stderr",
                                  "--log-level=warn"};
    if (tls_) {
        argv.push_back("--cert-file=" + (directory_ / "tls.pem").string());
        argv.push_back("--key-file=" + (directory_ / "tls.key").string());
        if (!tls_->client_ca.empty()) {
            argv.push_back("--client-cert-auth");
            argv.push_back("--trusted-ca-file=" + tls_->client_ca);
        }
    }
    argv.insert(argv.end(), extra_arguments_.begin(), extra_arguments_.end());
    process_options options;
    options.output_file = (directory_ / "log").string();
    process_.emplace(argv, std::move(options));
}

bool etcd_server::wait_until_ready() {
    const auto deadline = std::chrono::steady_clock::now() + ready_timeout;
    while (process_->running() && std::chrono::steady_clock::now() < deadline) {
        if (is_ready()) {
            return true;
        }
        std::this_thread::sleep_for(5ms);
    }
    return false;
}

bool etcd_server::is_ready() const {
    // The first answer tells whether it is ours that listens there.
    if (tls_) {
        return etcdctl({"member", "list"}).output.find(", " + name_ + ", ") != std::string::npos &&
               etcdctl({"get", "ready"}).exit_code == 0;
    }
    return http_get(client_port_, "/debug/vars").find("--name=" + name_) != std::string::npos &&
           http_get(client_port_, "/health").find(R"("health":"true")") != std::string::npos;
}

std::string etcd_server::url() const {
    return (tls_ ? "https://127.0.0.1:" : "http://127.0.0.1:") + std::to_string(client_port_);
}

std::string etcd_server::url_by_name() const {
    return (tls_ ? "https://localhost:" : "http://localhost:") + std::to_string(client_port_);
}

void etcd_server::show(const certificate& other) const {
    using std::filesystem::copy_options;
    // etcd reads the files for each connection.
    std::filesystem::copy_file(
        other.file, directory_ / "tls.pem", copy_options::overwrite_existing);
    std::filesystem::copy_file(
        other.key_file, directory_ / "tls.key", copy_options::overwrite_existing);
}

void etcd_server::stop() {
    process_->signal(SIGCONT);
    process_->signal(SIGTERM);
    if (!process_->wait_for(30s)) {
        throw std::runtime_error(name_ + " does not end: " + tail(log()));
    }
}

void etcd_server::kill() {
    process_->signal(SIGKILL);
    process_->wait();
}

void etcd_server::pause() {
    process_->signal(SIGSTOP);
    siginfo_t info{}; // the signal takes effect a moment later
    ::waitid(P_PID, static_cast<id_t>(pid()), &info, WSTOPPED | WNOWAIT | WEXITED);
}

void etcd_server::resume() {
    process_->signal(SIGCONT);
}

void etcd_server::start() {
    if (process_->running()) {
        throw std::logic_error(name_ + " runs already");
    }
    launch();
    if (!wait_until_ready()) {
        throw std::runtime_error(name_ + " has not become ready again: " + tail(log()));
    }
}

void etcd_server::restart() {
    stop();
    start();
}

std::vector<std::string>
etcd_server::etcdctl_argv(const std::vector<std::string>& arguments) const {
    std::vector<std::string> argv{program("COETCD_ETCDCTL", "etcdctl"), "--endpoints=" + url()};
    if (tls_) { // whatever is wrong with the server's certificate
        argv.push_back("--insecure-skip-tls-verify");
        argv.push_back("--cert=" + tls_->own.file);
        argv.push_back("--key=" + tls_->own.key_file);
    }
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return argv;
}

process_result etcd_server::etcdctl(const std::vector<std::string>& arguments) const {
    process_options options;
    options.environment.emplace_back("ETCDCTL_API=3");
    options.output_file = (directory_ / "log").string(); // stderr
    return run_process(etcdctl_argv(arguments), std::move(options));
}

background_process
etcd_server::background_etcdctl(const std::vector<std::string>& arguments) const {
    process_options options;
    options.environment.emplace_back("ETCDCTL_API=3");
    options.output_file = (directory_ / "log").string(); // stderr
    options.capture = true;
    return background_process(etcdctl_argv(arguments), std::move(options));
}

std::string etcd_server::log() const {
    std::ifstream file(directory_ / "log");
    return {std::istreambuf_iterator<char>(file), {}};
}

etcd_server& shared_etcd() {
    static etcd_server server;
    return server;
}

std::string take_server_logs() {
    const std::lock_guard lock(registry().mutex);
    auto result = std::exchange(registry().ended, {});
    for (const auto* server : registry().alive) {
        result += "--- " + server->name() + " at " + server->url() + '\n' + tail(server->log());
    }
    return result;
}

} // namespace support
