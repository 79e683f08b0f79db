// SPDX-License-Identifier: BSL-1.0
#pragma once

// Where the definitions are: in each translation unit that includes a public header, or, if all
// of the program is compiled with COETCD_SEPARATE_COMPILATION, in the one with <coetcd/src.hpp>.
#ifdef COETCD_SEPARATE_COMPILATION
#define COETCD_DECL
#else
#define COETCD_DECL inline
#endif
