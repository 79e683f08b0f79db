// SPDX-License-Identifier: BSL-1.0
#pragma once

/// The version of this library: major * 10000 + minor * 100 + patch.
#define COETCD_VERSION 100

/// The same, for people.
#define COETCD_VERSION_STRING "0.1.0"
