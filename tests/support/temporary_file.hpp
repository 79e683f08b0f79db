// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <filesystem>
#include <string>

#include "support/async.hpp"

namespace support {

/// The name of a file, which is removed with this object.
class temporary_file {
public:
    explicit temporary_file(const std::string& what)
        : path_(std::filesystem::temp_directory_path() / unique_name(what)) {}
    temporary_file(const temporary_file&) = delete;
    temporary_file& operator=(const temporary_file&) = delete;
    ~temporary_file() { std::filesystem::remove(path_); }
    const std::filesystem::path& path() const { return path_; }

private:
    std::filesystem::path path_;
};

} // namespace support
