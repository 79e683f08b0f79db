// SPDX-License-Identifier: BSL-1.0
#include "bench/raw_bodies.hpp"

#include <coetcd/detail/logic/lock.hpp>
#include <coetcd/detail/wire/encode.hpp>

#include <utility>

namespace bench {
namespace {

namespace logic = coetcd::detail::logic;

coetcd::txn lock(const logic::lock_keys& keys) {
    return logic::enter(keys, "");
}

coetcd::txn unlock(const logic::lock_keys& keys) {
    return logic::release(keys, body::placeholder, false);
}

/// Both in one.
coetcd::txn pass(const logic::lock_keys& from, const logic::lock_keys& to) {
    coetcd::txn both = unlock(from);
    const coetcd::txn next = lock(to);
    both.compares.insert(both.compares.end(), next.compares.begin(), next.compares.end());
    both.success.insert(both.success.end(), next.success.begin(), next.success.end());
    return both;
}

body encoded(const coetcd::txn& t) {
    return body(coetcd::detail::wire::encode(t));
}

} // namespace

body::body(const std::string& text) {
    const std::string number = std::to_string(placeholder);
    const auto at = text.find(number);
    before_ = text.substr(0, at);
    if (at != std::string::npos) {
        after_ = text.substr(at + number.size());
    }
}

std::string body::with(std::string_view revision) const {
    std::string whole;
    whole.reserve(before_.size() + revision.size() + after_.size());
    whole.append(before_);
    if (!after_.empty()) {
        whole.append(revision).append(after_);
    }
    return whole;
}

pair_bodies::pair_bodies(const std::string& name, std::int64_t lease)
    : lock(encoded(bench::lock(logic::make_lock_keys(name, lease, 1))))
    , unlock(encoded(bench::unlock(logic::make_lock_keys(name, lease, 1)))) {}

pass_bodies::pass_bodies(const std::string& name, std::int64_t lease)
    : lock(encoded(bench::lock(logic::make_lock_keys(name, lease, 1))))
    , pass{encoded(bench::pass(logic::make_lock_keys(name, lease, 1),
                               logic::make_lock_keys(name, lease, 2))),
           encoded(bench::pass(logic::make_lock_keys(name, lease, 2),
                               logic::make_lock_keys(name, lease, 1)))} {}

} // namespace bench
