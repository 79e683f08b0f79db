// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string>
#include <string_view>

namespace coetcd {

/// Makes untrusted text, such as the label of a lock's holder or a key, fit for a log or a
/// terminal. The library does so with all untrusted text in its errors and reports.
///
/// @returns Valid UTF-8 in one line, of at most 256 bytes. White space other than the space becomes
///   a space; other control characters, those of Unicode that change the direction of a text or end
///   a line, and malformed bytes become '?'.
std::string printable(std::string_view untrusted);

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/printable.hpp>
#endif
