// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/env.hpp>
#include <coetcd/detail/tls/context.hpp>
#include <coetcd/tls_options.hpp>

#include <boost/asio/ssl/context.hpp>

#include <chrono>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace coetcd::detail::tls {

/// What tells whether files have changed: their names, times and sizes.
inline std::string stamp_of(const tls_options& o) {
    std::string all;
    const auto add = [&all](const std::filesystem::path& file) {
        std::error_code ec;
        const auto time = std::filesystem::last_write_time(file, ec);
        const auto size = ec ? 0 : std::filesystem::file_size(file, ec);
        all += file.string() + '\n';
        all += ec ? ec.message()
                  : std::to_string(time.time_since_epoch().count()) + ' ' + std::to_string(size);
        all += '\n';
    };
    for (const auto* file : {&o.ca_file, &o.ca_directory, &o.certificate_file, &o.key_file}) {
        if (*file) {
            add(**file);
        }
    }
    if (o.ca_directory) {
        std::error_code ec;
        for (std::filesystem::directory_iterator entry(*o.ca_directory, ec), end;
             !ec && entry != end;
             entry.increment(ec)) {
            add(entry->path());
        }
    }
    return all;
}

/// Whether files are named that can be read again: one of a pipe would wait for ever.
inline bool are_files(const tls_options& o) {
    bool any = o.ca_directory.has_value();
    for (const auto* file : {&o.ca_file, &o.certificate_file, &o.key_file}) {
        std::error_code ec;
        if (*file && !std::filesystem::is_regular_file(**file, ec)) {
            return false;
        }
        any = any || *file;
    }
    return any;
}

/// The context for new connections. If it is made of files, and these change, it is made anew;
/// connections that exist keep the one that they have.
///
/// @par Thread safety
/// All functions may be called from any thread.
class renewed_context {
public:
    /// @throws std::invalid_argument as `make_context`.
    renewed_context(tls_options o, time_point now)
        : looked_(now) {
        const bool has_files = are_files(o);
        std::string stamp = has_files ? stamp_of(o) : std::string();
        context_ = std::make_shared<ssl::context>(make_context(o));
        if (has_files) {
            options_.emplace(std::move(o));
            stamp_ = std::move(stamp);
        }
    }

    struct found {
        std::shared_ptr<ssl::context> context; ///< Never null.
        std::string trouble; ///< Why files that have changed cannot be used. Empty if they can.
    };
    /// Looks at the files, at most once a second.
    found find(time_point now) {
        const std::lock_guard alone(access_);
        if (options_ && now - looked_ >= std::chrono::seconds(1)) {
            looked_ = now;
            look();
        }
        return {context_, trouble_};
    }

private:
    void look() {
        std::string stamp = stamp_of(*options_);
        if (stamp == stamp_ && trouble_.empty()) {
            return;
        }
        if (!are_files(*options_)) {
            trouble_ = "a file of tls_options is gone; what was read before is used";
            return;
        }
        try {
            context_ = std::make_shared<ssl::context>(make_context(*options_));
            stamp_ = std::move(stamp);
            trouble_.clear();
        } catch (const std::bad_alloc&) {
            throw;
        } catch (const std::exception& e) { // also of `ask_passphrase`
            trouble_ = std::string(e.what()) + "; what was read before is used";
        }
    }

    std::mutex access_;
    std::shared_ptr<ssl::context> context_;
    std::optional<tls_options> options_; // if there are files
    std::string stamp_;                  // of what `context_` is made of
    std::string trouble_;
    time_point looked_;
};

} // namespace coetcd::detail::tls
