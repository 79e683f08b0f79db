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
#include <unistd.h>
#include <utility>

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

servers::servers(const programs& all, std::string etcd, int fsync_ms)
    : all_(all)
    , program_(std::move(etcd))
    , fsync_ms_(fsync_ms) {}

servers::~servers() {
    etcd_.reset();
    if (!slow_.empty()) {
        std::error_code ignored;
        std::filesystem::remove_all(slow_, ignored);
    }
}

support::etcd_server& servers::etcd() {
    if (!etcd_) {
        // A million acquisitions take more than its default.
        std::vector<std::string> arguments{"--quota-backend-bytes=8000000000"};
        std::string program = program_;
        if (fsync_ms_ != 0) {
            write_slow_etcd();
            program = slow_ / "etcd";
            arguments.emplace_back("--unsafe-no-fsync=false");
        }
        ::setenv("COETCD_ETCD", program.c_str(), 1);
        etcd_ = std::make_unique<support::etcd_server>(arguments);
    }
    return *etcd_;
}

void servers::write_slow_etcd() {
    slow_ = new_directory();
    const std::filesystem::path program = slow_ / "etcd";
    std::ofstream script(program);
    // strace runs beside etcd, which has the process that was started.
    script << "#!/bin/sh\nexec strace -D -f -qq --seccomp-bpf -o /dev/null"
           << " -e trace=fdatasync -e inject=fdatasync:delay_enter=" << fsync_ms_ * 1000 << " '"
           << program_ << "' \"$@\"\n";
    script.close();
    if (!script || ::chmod(program.c_str(), 0700) != 0) {
        throw std::system_error(errno, std::generic_category(), program);
    }
}

redis_server& servers::redis() {
    if (!redis_) {
        redis_.emplace(all_.redis);
    }
    return *redis_;
}

std::string servers::delayed(std::chrono::milliseconds round_trip) {
    json task;
    task["case"] = "delay";
    task["subject"] = "delay";
    task["url"] = etcd().url();
    task["seconds"] = std::chrono::duration<double>(round_trip).count();
    delay_.emplace(all_, task);
    return delay_->next(seconds(30)).at("url");
}

void servers::start_writes(std::size_t count) {
    json task;
    task["case"] = "writes";
    task["subject"] = "writer";
    task["url"] = etcd().url();
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
