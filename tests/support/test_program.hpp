// SPDX-License-Identifier: BSL-1.0
#pragma once

namespace support {

/// What `main` of every test program does; support/main.cpp is for those that do nothing else.
int run_test_program(int argc, char** argv);

} // namespace support
