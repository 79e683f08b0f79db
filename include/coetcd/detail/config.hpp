// SPDX-License-Identifier: BSL-1.0
#pragma once

#if __cplusplus < 202002L
#error "coetcd needs C++20: compile with -std=c++20"
#elif defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 12
#error "coetcd needs g++ 12 or later"
#elif defined(__clang__) && !defined(__apple_build_version__) && __clang_major__ < 16
#error "coetcd needs clang 16 or later"
#elif !__has_include(<boost/version.hpp>) || !__has_include(<boost/beast/core.hpp>)
#error "coetcd needs Boost.Asio and Boost.Beast: install Boost 1.81 or later"
#elif !__has_include(<nlohmann/json.hpp>)
#error "coetcd needs nlohmann_json 3.11 or later"
#else
#include <boost/version.hpp>
#if BOOST_VERSION < 108100
#error "coetcd needs Boost 1.81 or later"
#endif
#endif

// Where the definitions are: in each translation unit that includes a public header, or, if all
// of the program is compiled with COETCD_SEPARATE_COMPILATION, in the one with <coetcd/src.hpp>.
#ifdef COETCD_SEPARATE_COMPILATION
#define COETCD_DECL
#else
#define COETCD_DECL inline
#endif
