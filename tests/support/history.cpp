// SPDX-License-Identifier: BSL-1.0
#include "support/history.hpp"

#include <boost/system/system_error.hpp>

#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <ratio>
#include <system_error>
#include <type_traits>
#include <unistd.h>
#include <utility>

#include "support/environment.hpp"

namespace support {

namespace {

// Linux has one monotonic clock for all processes.
std::int64_t now() {
    static_assert(std::is_same_v<clock::period, std::nano>);
    return clock::now().time_since_epoch().count();
}

} // namespace

class recorder::file {
public:
    explicit file(const std::filesystem::path& name)
        : descriptor_(::open(name.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) {
        if (descriptor_ < 0) {
            throw std::system_error(errno, std::generic_category(), name);
        }
    }
    file(const file&) = delete;
    file& operator=(const file&) = delete;
    ~file() { ::close(descriptor_); }

    void add(const nlohmann::json& object) {
        const std::string line = object.dump() + '\n';
        // At once: no other process's line comes in between.
        if (::write(descriptor_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
            throw std::system_error(errno, std::generic_category(), "a history");
        }
    }

private:
    int descriptor_;
};

recorder::recorder(const std::filesystem::path& where, std::string process)
    : process_(std::move(process))
    , out_(std::make_shared<file>(where)) {}

recorder::call
recorder::begin(const std::string& object, const std::string& name, const std::string& op) {
    call begun;
    begun.out_ = out_;
    begun.said_["id"] = process_ + '.' + std::to_string(++calls_);
    begun.said_["process"] = process_;
    begun.said_["object"] = object;
    begun.said_["name"] = name;
    begun.said_["op"] = op;
    begun.said_["call"] = now();
    out_->add(begun.said_);
    return begun;
}

recorder::call& recorder::call::with(const char* name, nlohmann::json value) {
    said_[name] = std::move(value);
    return *this;
}

void recorder::call::end(const char* result) {
    said_["return"] = now();
    said_["result"] = result;
    out_->add(said_);
}

namespace {

recorder::call begin(recorder& told, const grant& what, const std::string& op) {
    auto begun = told.begin(what.object, what.name, op);
    begun.with("token", what.token);
    if (what.shared) {
        begun.with("shared", true);
    }
    return begun;
}

void ask(recorder& told, const grant& what) {
    auto asking = begin(told, what, what.owns);
    asking.end(what.is_held());
}

awaitable<bool> write(recorder& told, coetcd::client c, std::string key, const grant& what) {
    auto writing = begin(told, what, "write");
    auto change = coetcd::txn()
                      .when(*what.guard)
                      .then(coetcd::op::put(std::move(key), std::to_string(what.token)));
    try {
        const auto r = co_await c.txn(std::move(change));
        writing.end(r.succeeded);
        co_return r.succeeded;
    } catch (const boost::system::system_error&) {
        writing.end("unknown");
    }
    co_return false;
}

} // namespace

awaitable<bool> use(recorder& told, coetcd::client c, std::string key, grant what) {
    bool well = true;
    for (int i = 0; i < 2; ++i) {
        ask(told, what);
        const bool written = co_await write(told, c, key, what);
        well = well && written;
        if (i == 0) {
            co_await sleep_for(std::chrono::milliseconds(20));
        }
    }
    ask(told, what);
    auto leaving = begin(told, what, what.give_back);
    try {
        const bool left = co_await what.leave();
        leaving.end(left);
        well = well && left;
    } catch (const boost::system::system_error&) {
        leaving.end("unknown");
        well = false;
    }
    co_return well;
}

std::optional<process_result> judge(const std::filesystem::path& file) {
    const std::string program = environment("COETCD_JUDGE");
    if (program.empty()) {
        return std::nullopt;
    }
    return run_process({program, file.string()}, {}, std::chrono::minutes(2));
}

} // namespace support
