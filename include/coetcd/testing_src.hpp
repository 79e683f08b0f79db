// SPDX-License-Identifier: BSL-1.0
#pragma once

// As <coetcd/src.hpp>, for <coetcd/testing.hpp>; the CMake target
// coetcd::testing_compiled includes it.

#ifndef COETCD_SEPARATE_COMPILATION
#error "define COETCD_SEPARATE_COMPILATION for the whole program"
#endif

#include <coetcd/impl/testing.hpp>
