// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <functional>

/// Makes allocations fail: one or two of all that a program makes, those of Asio included.
namespace scarce {

/// The next one that counts fails, once `n` have been made; and another one after `then` more, if
/// that is not 0.
void fail_after(long n, long then);
/// None fails any more.
void enough();
/// Whether one has failed.
bool has_failed();
/// Which ones count. It must not allocate.
extern bool (*counts)();

/// Prints to standard error where the first one was that failed.
void show();

} // namespace scarce
