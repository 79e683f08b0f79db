// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace bench {

/// A prebuilt body with a place for the revision of an earlier answer.
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

/// Transactions that release a lock and take it for the next coroutine of the same session.
struct pass_bodies {
    pass_bodies(const std::string& name, std::int64_t lease);
    body lock;
    std::array<body, 2> pass; ///< Alternating. Needs the revision of the previous answer.
};

} // namespace bench
