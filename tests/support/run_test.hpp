// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <functional>

namespace support {

struct run_options {
    std::chrono::milliseconds timeout = std::chrono::seconds(60); ///< For the body.
    std::chrono::milliseconds drain = std::chrono::seconds(10);   ///< For what it leaves behind.
};

/// Runs `body` on an io_context of its own, on the calling thread, and rethrows what it throws.
///
/// Fails the test, and says why, if the body has not completed in time, if nothing is left that
/// could ever resume it, or if work remains some time after it completed. A thread that blocks
/// beyond all this ends the process. `body` and its captures outlive the io_context.
void run_test(std::function<boost::asio::awaitable<void>()> body, run_options options = {});

} // namespace support
