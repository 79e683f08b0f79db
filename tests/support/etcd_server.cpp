// SPDX-License-Identifier: BSL-1.0
#include "support/etcd_server.hpp"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <random>
#include <signal.h>
#include <stdexcept>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "support/blocking_http.hpp"
#include "support/environment.hpp"

namespace support {
namespace {

using namespace std::chrono_literals;

constexpr auto ready_timeout = 30s;
constexpr auto loopback = "127.0.0.1";

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
        tcp_socket socket;
        if (socket.bind(ipv4(loopback, port))) {
            return port;
        }
    }
    throw std::runtime_error("no free port");
}

// The answer with its header, or nothing.
std::string http_get(std::uint16_t port, const std::string& path) {
    blocking_request request;
    request.server = ipv4(loopback, port);
    request.path = path;
    return blocking_http(request);
}

} // namespace

std::vector<std::string> etcd_argv(const etcd_place& place) {
    return {environment("COETCD_ETCD", "etcd"),
            "--name=" + place.name,
            "--data-dir=" + place.data.string(),
            "--listen-client-urls=" + place.client_url,
            "--advertise-client-urls=" + place.client_url,
            "--listen-peer-urls=" + place.peer_url,
            "--initial-advertise-peer-urls=" + place.peer_url,
            "--initial-cluster=" + place.cluster,
            std::string("--initial-cluster-state=") + (place.joins ? "existing" : "new"),
            "--unsafe-no-fsync",
            "--logger=zap",
            "--log-outputs=stderr",
            "--log-level=warn"};
}

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
        constexpr int attempts = 5; // another process may take a port before etcd does
        for (int attempt = 1;; ++attempt) {
            choose_ports();
            launch();
            if (wait_until_ready()) {
                break;
            }
            if (attempt == attempts || log().find("address already in use") == std::string::npos) {
                throw std::runtime_error(name_ + " has not become ready: " + log_tail());
            }
            process_.reset();
            std::filesystem::remove_all(directory_ / "data");
        }
    } catch (...) {
        process_.reset();
        std::filesystem::remove_all(directory_);
        throw;
    }
    log_.emplace(name_ + " at " + url(), directory_ / "log");
}

etcd_server::~etcd_server() {
    process_.reset();
    log_.reset();
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
    etcd_place place;
    place.name = name_;
    place.data = directory_ / "data";
    place.client_url = url();
    place.peer_url = "http://127.0.0.1:" + std::to_string(peer_port_);
    place.cluster = name_ + '=' + place.peer_url;
    auto argv = etcd_argv(place);
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
        throw std::runtime_error(name_ + " does not end: " + log_tail());
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
        throw std::runtime_error(name_ + " has not become ready again: " + log_tail());
    }
}

void etcd_server::restart() {
    stop();
    start();
}

std::vector<std::string>
etcd_server::etcdctl_argv(const std::vector<std::string>& arguments) const {
    std::vector<std::string> argv{etcdctl_program(), "--endpoints=" + url()};
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
    return server_log::text(directory_ / "log");
}

std::string etcd_server::log_tail() const {
    return server_log::tail(directory_ / "log");
}

etcd_server& shared_etcd() {
    static etcd_server server;
    return server;
}

} // namespace support
