// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <utility>
#ifdef _WIN32
#include <io.h>
#include <share.h>
#else
#include <unistd.h>
#endif

namespace coetcd::detail::net {

/// A file that appears under its name only when it is whole, and on the disk. Until then it has
/// another name beside it; it is removed unless that moment comes. All functions block, and throw
/// `error` with a code of the system.
class new_file {
public:
    /// @param number Part of the name that it has until then.
    new_file(std::filesystem::path name, std::uint64_t number)
        : name_(std::move(name))
        , part_(name_) {
        constexpr std::string_view digits = "0123456789abcdef";
        std::string end = ".";
        for (int shift = 60; shift >= 0; shift -= 4) {
            end += digits[(number >> shift) & 15];
        }
        part_ += end + ".part";
#ifdef _WIN32
        const errno_t failed =
            ::_wsopen_s(&file_,
                        part_.c_str(),
                        _O_CREAT | _O_EXCL | _O_WRONLY | _O_BINARY | _O_NOINHERIT,
                        _SH_DENYWR,
                        _S_IREAD | _S_IWRITE);
        errno = failed;
#else
        file_ = ::open(part_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
#endif
        if (file_ < 0) {
            fail("could not be created", part_);
        }
    }
    new_file(const new_file&) = delete;
    new_file& operator=(const new_file&) = delete;
    ~new_file() {
        if (file_ >= 0) {
            (void)close();
        }
        if (!done_) {
            std::error_code ignored;
            std::filesystem::remove(part_, ignored);
        }
    }

    void write(std::string_view bytes) {
        while (!bytes.empty()) {
            const std::size_t most = std::min<std::size_t>(bytes.size(), 1U << 30);
#ifdef _WIN32
            const auto n = ::_write(file_, bytes.data(), static_cast<unsigned>(most));
#else
            const auto n = ::write(file_, bytes.data(), most);
#endif
            if (n < 0 && errno == EINTR) {
                continue;
            }
            if (n < 0) {
                fail("could not be written", part_);
            }
            bytes.remove_prefix(static_cast<std::size_t>(n));
            unflushed_ += static_cast<std::size_t>(n);
            if (unflushed_ >= flushed_together) {
                flush();
            }
        }
    }

    /// Gives it its name.
    void commit() {
        flush();
        if (const int failed = close(); failed != 0) {
            fail("could not be written", part_);
        }
        std::error_code ec;
        std::filesystem::rename(part_, name_, ec);
        if (ec) {
            throw error(error_code(ec.value(), boost::system::system_category()),
                        "file: \"" + name_.string() + "\" could not be replaced");
        }
        done_ = true;
        flush_directory();
    }

private:
    /// So that no flush takes long.
    static constexpr std::size_t flushed_together = 8 * 1024 * 1024;

    [[noreturn]] static void fail(const char* what, const std::filesystem::path& which) {
        throw error(error_code(errno, boost::system::generic_category()),
                    "file: \"" + which.string() + "\" " + what);
    }

    void flush() {
#ifdef _WIN32
        const int failed = ::_commit(file_);
#else
        const int failed = ::fsync(file_);
#endif
        if (failed != 0) {
            fail("could not be flushed", part_);
        }
        unflushed_ = 0;
    }
    int close() {
#ifdef _WIN32
        return ::_close(std::exchange(file_, -1));
#else
        return ::close(std::exchange(file_, -1));
#endif
    }
    /// A name is on the disk when its directory is. Not every file system can be asked for that.
    void flush_directory() const {
#ifndef _WIN32
        const auto parent = name_.has_parent_path() ? name_.parent_path() : ".";
        const int directory = ::open(parent.c_str(), O_RDONLY | O_CLOEXEC);
        if (directory >= 0) {
            (void)::fsync(directory);
            (void)::close(directory);
        }
#endif
    }

    const std::filesystem::path name_;
    std::filesystem::path part_;
    int file_ = -1;
    std::size_t unflushed_ = 0;
    bool done_ = false;
};

} // namespace coetcd::detail::net
