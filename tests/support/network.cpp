// SPDX-License-Identifier: BSL-1.0
#include "support/network.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdexcept>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include "support/blocking_http.hpp"
#include "support/process.hpp"

namespace support {
namespace {

[[noreturn]] void fail(const std::string& what) {
    throw std::system_error(errno, std::generic_category(), what);
}

// Of this thread.
void enter_new_network() {
    if (::unshare(CLONE_NEWNET) != 0) {
        fail("unshare");
    }
    const tcp_socket any;
    ifreq loopback{};
    std::strcpy(loopback.ifr_name, "lo");
    loopback.ifr_flags = IFF_UP;
    if (::ioctl(any.handle(), SIOCSIFFLAGS, &loopback) != 0) {
        fail("lo");
    }
}

} // namespace

bool enter_private_network() {
    if (::geteuid() != 0) {
        return false;
    }
    enter_new_network();
    return true;
}

network_namespace::network_namespace() {
    std::exception_ptr failure;
    std::thread([&] {
        try {
            enter_new_network();
            descriptor_ = ::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
            if (descriptor_ < 0) {
                fail("/proc/thread-self/ns/net");
            }
        } catch (...) {
            failure = std::current_exception();
        }
    }).join();
    if (failure) {
        std::rethrow_exception(failure);
    }
}

network_namespace::network_namespace(network_namespace&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

network_namespace::~network_namespace() {
    if (descriptor_ >= 0) {
        ::close(descriptor_);
    }
}

std::string run_script(const std::string& script, int network) {
    process_options options;
    options.network = network;
    auto result = run_process({"sh", "-ec", "PATH=$PATH:/usr/sbin:/sbin\nexec 2>&1\n" + script},
                              std::move(options));
    if (result.exit_code != 0) {
        throw std::runtime_error(script + ": " + result.output);
    }
    return std::move(result.output);
}

} // namespace support
