// SPDX-License-Identifier: BSL-1.0
#include <coetcd/kv.hpp>
#include <coetcd/version.hpp>

#include <iostream>

int main() {
    std::cout << "coetcd " << COETCD_VERSION_STRING << '\n';
    return coetcd::key_range::prefix("a").range_end == "b" && COETCD_VERSION >= 100 ? 0 : 1;
}
