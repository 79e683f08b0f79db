// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>

#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "support/async.hpp"
#include "support/process.hpp"

namespace support {

/// What one process does with locks, added to a file for tests/judge, line by line.
///
/// All processes of this machine may write to one file: they share the clock. A line is in the file
/// when the call that wrote it has returned, whatever becomes of the process.
class recorder {
    class file;

public:
    /// @param process Told apart from the others that write to this file.
    recorder(const std::filesystem::path& where, std::string process);

    /// A call that has begun. Its end is unknown if it is not told.
    class call {
    public:
        std::string id() const { return said_.at("id"); }
        /// Tells more of it, as tests/judge/main.go names that.
        call& with(const char* name, nlohmann::json value);
        /// @param result `yes`, `no` or `unknown`.
        void end(const char* result);
        void end(bool yes) { end(yes ? "yes" : "no"); }

    private:
        friend class recorder;
        std::shared_ptr<file> out_;
        nlohmann::json said_;
    };

    /// @param object,op See the models of tests/judge/models.go.
    call begin(const std::string& object, const std::string& name, const std::string& op);

private:
    const std::string process_;
    std::shared_ptr<file> out_;
    int calls_ = 0;
};

/// Something that was granted, for `use`.
class grant {
public:
    grant() {}
    std::string object{};
    std::string name{};
    std::int64_t token = 0;
    bool shared = false;
    std::string owns = "owns";        ///< How the call is named that asks `is_held`.
    std::string give_back = "unlock"; ///< And the one that awaits `leave`.
    std::optional<coetcd::compare> guard{};
    std::function<bool()> is_held{};
    std::function<awaitable<bool>()> leave{};
};

/// Proves a grant in all ways, twice, so that it can be overtaken in between, and gives it back;
/// all that is recorded. `c` writes to `key`.
/// @returns Whether all that etcd was asked was answered with yes.
awaitable<bool> use(recorder& told, coetcd::client c, std::string key, grant what);

/// What tests/judge says of such a file: 0 and why if it can have happened. Empty if there is no
/// judge: COETCD_JUDGE names the program.
std::optional<process_result> judge(const std::filesystem::path& file);

} // namespace support
