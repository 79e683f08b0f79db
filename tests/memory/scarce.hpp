// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <functional>

/// Memory of which one allocation fails: everything that a program allocates, Asio's own included.
namespace scarce {

/// The next one that counts fails, once `n` have been made.
void fail_after(long n);
/// None fails any more.
void enough();
/// Whether one has failed.
bool has_failed();
/// Which ones count. It must not allocate.
extern bool (*counts)();

/// Prints to standard error where the one was that failed.
void show();

} // namespace scarce
