// SPDX-License-Identifier: BSL-1.0
#include "bench/servers.hpp"

#include <arpa/inet.h>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include "bench/measure.hpp"
#include "support/blocking_http.hpp"
#include "support/etcd_server.hpp"

namespace bench {
namespace {

using std::chrono::seconds;

support::process_options captured() {
    support::process_options options;
    options.capture = true;
    return options;
}

std::vector<std::string> worker_argv(const programs& all, const json& task) {
    if (task.at("subject") == "go") {
        return {all.go, task.dump()};
    }
    return {all.self, "--worker", task.dump()};
}

std::filesystem::path new_directory() {
    auto pattern = (std::filesystem::temp_directory_path() / "coetcd-bench-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) {
        throw std::system_error(errno, std::generic_category(), pattern);
    }
    return pattern;
}

std::uint16_t free_port() {
    support::tcp_socket socket;
    sockaddr_in any = support::ipv4("127.0.0.1", 0);
    socklen_t size = sizeof any;
    if (!socket.bind(any) ||
        ::getsockname(socket.handle(), reinterpret_cast<sockaddr*>(&any), &size) != 0) {
        throw std::runtime_error("no free port");
    }
    return ntohs(any.sin_port);
}

} // namespace

std::string version_line(const std::string& program) {
    try {
        const auto result = support::run_process({program, "--version"});
        const std::string first = result.output.substr(0, result.output.find('\n'));
        return result.exit_code == 0 ? first : "";
    } catch (const std::runtime_error&) {
        return {};
    }
}

std::string version_of(const std::string& etcd) {
    const std::string text = support::run_process({etcd, "--version"}).output;
    const std::string before = "etcd Version: ";
    const auto at = text.find(before);
    if (at == std::string::npos) {
        throw std::runtime_error(etcd + " is no etcd");
    }
    std::istringstream rest(text.substr(at + before.size()));
    std::string version;
    rest >> version;
    return version;
}

worker_process::worker_process(const programs& all, const json& task)
    : title_(task.at("case").get<std::string>() + " of " + task.at("subject").get<std::string>())
    , process_(worker_argv(all, task), captured()) {}

json worker_process::next(seconds patience) {
    const std::optional<std::string> line = process_.read_line(patience);
    if (!line) {
        throw std::runtime_error(title_ + " ended with status " + std::to_string(process_.wait()));
    }
    json result = json::parse(*line);
    if (result.contains("error")) {
        throw std::runtime_error(title_ + ": " + result["error"].get<std::string>());
    }
    return result;
}

redis_server::redis_server(const std::string& program) {
    constexpr int attempts = 5; // another process may take the port before Redis does
    for (int attempt = 0; attempt < attempts; ++attempt) {
        port_ = free_port();
        process_.emplace(std::vector<std::string>{program,
                                                  "--port",
                                                  std::to_string(port_),
                                                  "--bind",
                                                  "127.0.0.1",
                                                  "--save",
                                                  "",
                                                  "--daemonize",
                                                  "no"},
                         captured());
        while (const auto line = process_->read_line(seconds(30))) {
            if (line->find("eady to accept connections") != std::string::npos) {
                return;
            }
        }
    }
    throw std::runtime_error(program + " does not start");
}

bool delays_fsync() {
    return !version_line("strace").empty() &&
           support::run_process({"strace",
                                 "--seccomp-bpf",
                                 "-f",
                                 "-o",
                                 "/dev/null",
                                 "-e",
                                 "inject=fdatasync:delay_enter=1",
                                 "true"})
                   .exit_code == 0;
}

servers::servers(const programs& all, std::string etcd, int fsync_ms, int members)
    : all_(all)
    , program_(std::move(etcd))
    , fsync_ms_(fsync_ms)
    , members_(members) {}

servers::~servers() {
    etcds_.clear();
    if (!directory_.empty()) {
        std::error_code ignored;
        std::filesystem::remove_all(directory_, ignored);
    }
}

std::string servers::etcd_url() {
    start_members();
    return etcds_.front().url;
}

pid_t servers::etcd_pid() {
    start_members();
    return etcds_.front().process.pid();
}

void servers::start_members() {
    if (!etcds_.empty()) {
        return;
    }
    directory_ = new_directory();
    const std::string program = fsync_ms_ == 0 ? program_ : write_slow_etcd();
    ::setenv("COETCD_ETCD", program.c_str(), 1);
    std::vector<support::etcd_place> places(static_cast<std::size_t>(members_));
    std::string cluster;
    for (support::etcd_place& each : places) {
        each.name = "member-" + std::to_string(&each - places.data());
        each.data = directory_ / each.name;
        each.client_url = "http://127.0.0.1:" + std::to_string(free_port());
        each.peer_url = "http://127.0.0.1:" + std::to_string(free_port());
        cluster += (cluster.empty() ? "" : ",") + each.name + '=' + each.peer_url;
    }
    for (support::etcd_place& each : places) {
        each.cluster = cluster;
        std::vector<std::string> argv = support::etcd_argv(each);
        // A million acquisitions take more than its default.
        argv.emplace_back("--quota-backend-bytes=8000000000");
        if (fsync_ms_ != 0) {
            argv.emplace_back("--unsafe-no-fsync=false");
        }
        support::process_options options;
        options.output_file = (directory_ / (each.name + ".log")).string();
        etcds_.push_back({each.client_url, support::background_process(argv, std::move(options))});
    }
    for (member& each : etcds_) {
        const auto port = std::stoi(each.url.substr(each.url.rfind(':') + 1));
        support::blocking_request health;
        health.server = support::ipv4("127.0.0.1", static_cast<std::uint16_t>(port));
        health.path = "/health";
        const auto until = clock::now() + seconds(30);
        while (support::blocking_http(health).find("true") == std::string::npos) {
            if (!each.process.running() || clock::now() > until) {
                throw std::runtime_error(program + " does not start: see its log, and try again");
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
    }
}

/// @returns Its path.
std::string servers::write_slow_etcd() {
    const std::filesystem::path program = directory_ / "etcd";
    std::ofstream script(program);
    // strace runs beside etcd, which has the process that was started.
    script << "#!/bin/sh\nexec strace -D -f -qq --seccomp-bpf -o /dev/null"
           << " -e trace=fdatasync -e inject=fdatasync:delay_enter=" << fsync_ms_ * 1000 << " '"
           << program_ << "' \"$@\"\n";
    script.close();
    if (!script || ::chmod(program.c_str(), 0700) != 0) {
        throw std::system_error(errno, std::generic_category(), program);
    }
    return program;
}

redis_server& servers::redis() {
    if (!redis_) {
        redis_.emplace(all_.redis);
    }
    return *redis_;
}

std::string servers::urls(std::chrono::milliseconds round_trip) {
    start_members();
    delays_.clear();
    std::string all;
    for (const member& each : etcds_) {
        std::string url = each.url;
        if (round_trip.count() != 0) {
            json task;
            task["case"] = "delay";
            task["subject"] = "delay";
            task["url"] = url;
            task["seconds"] = std::chrono::duration<double>(round_trip).count();
            delays_.emplace_back(all_, task);
            url = delays_.back().next(seconds(30)).at("url");
        }
        all += (all.empty() ? "" : ",") + url;
    }
    return all;
}

void servers::start_writes(std::size_t count) {
    json task;
    task["case"] = "writes";
    task["subject"] = "writer";
    task["url"] = etcd_url();
    task["name"] = "written";
    task["count"] = count;
    writer_.emplace(all_, task);
    (void)writer_->next(seconds(30));
}

void servers::stop_writes() {
    writer_.reset();
}

start_gate::start_gate() {
    path_ = new_directory() / "gate";
    if (::mkfifo(path_.c_str(), 0600) == 0) {
        descriptor_ = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
    }
    if (descriptor_ < 0) {
        throw std::system_error(errno, std::generic_category(), path_);
    }
}

start_gate::~start_gate() {
    open();
    std::error_code ignored;
    std::filesystem::remove_all(path_.parent_path(), ignored);
}

void start_gate::open() {
    if (descriptor_ >= 0) {
        ::close(std::exchange(descriptor_, -1));
    }
}

} // namespace bench
