// SPDX-License-Identifier: BSL-1.0
// What most files of tests include; see coetcd_parse_once.
#include <coetcd.hpp>
#include <coetcd/testing.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "support/catch.hpp"
#include "support/locks.hpp"
#include "support/run_test.hpp"
#include "support/scripted_env.hpp"
#include "support/world.hpp"
