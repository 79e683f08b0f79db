// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace bench {

/// A body that was made beforehand, but for a revision that an earlier answer tells.
class body {
public:
    /// @param text Of the body; `placeholder` stands for the revision.
    explicit body(const std::string& text);
    std::string with(std::string_view revision) const;

    static constexpr std::int64_t placeholder = 1234567890123456789;

private:
    std::string before_;
    std::string after_;
};

/// The transactions of lock() and unlock(), of a name that is free.
struct pair_bodies {
    pair_bodies(const std::string& name, std::int64_t lease);
    body lock;
    body unlock; ///< Needs the revision of the answer to `lock`.
};

/// Transactions in which one coroutine of a session gives a lock back and the next one takes it.
struct pass_bodies {
    pass_bodies(const std::string& name, std::int64_t lease);
    body lock;
    std::array<body, 2> pass; ///< By turns. Needs the revision of the answer to the last one.
};

} // namespace bench
