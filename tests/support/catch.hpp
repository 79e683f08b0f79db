// SPDX-License-Identifier: BSL-1.0
#pragma once

// Catch2, v2 (Debian 12) or v3. What the two spell differently has one spelling in `support`.

#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_approx.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include <string>

namespace support {

/// For `REQUIRE_THAT(text, contains("part"))`.
inline auto contains(const std::string& part) {
#if __has_include(<catch2/catch_test_macros.hpp>)
    return Catch::Matchers::ContainsSubstring(part);
#else
    return Catch::Matchers::Contains(part);
#endif
}

} // namespace support
