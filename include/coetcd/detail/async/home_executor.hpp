// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>

#include <utility>

namespace coetcd::detail {

namespace asio = boost::asio;

/// The executor on which a client, or a body that may be cancelled, does its work, one handler at a
/// time. It is the given executor, if that is a strand or the executor of an `io_context`, which
/// one thread has to run. For any other executor, such as that of a thread pool, it is a new strand
/// on that executor.
class home_executor {
public:
    explicit home_executor(asio::any_io_executor given) {
        const bool is_fine = take<asio::io_context::executor_type>(given) ||
                             take<asio::strand<asio::io_context::executor_type>>(given) ||
                             take<asio::strand<asio::thread_pool::executor_type>>(given) ||
                             take<asio::strand<asio::any_io_executor>>(given);
        if (!is_fine) {
            (void)take<asio::strand<asio::any_io_executor>>(asio::make_strand(std::move(given)));
        }
    }

    const asio::any_io_executor& get() const { return executor_; }

    /// Whether this thread runs one of its handlers now.
    bool runs_here() const { return runs_here_(executor_); }

private:
    template<class Executor>
    bool take(const asio::any_io_executor& given) {
        if (!given.target<Executor>()) {
            return false;
        }
        executor_ = given;
        runs_here_ = [](const asio::any_io_executor& e) {
            return e.target<Executor>()->running_in_this_thread();
        };
        return true;
    }

    asio::any_io_executor executor_;
    bool (*runs_here_)(const asio::any_io_executor&) = nullptr;
};

} // namespace coetcd::detail
