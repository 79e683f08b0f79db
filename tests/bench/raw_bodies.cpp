// SPDX-License-Identifier: BSL-1.0
#include "bench/raw_bodies.hpp"

#include <coetcd/detail/logic/places.hpp>
#include <coetcd/detail/wire/encode.hpp>

#include <utility>

namespace bench {
namespace {

namespace logic = coetcd::detail::logic;

/// As they go over the wire where all is as expected.
coetcd::txn lean(coetcd::txn t) {
    t.failure.clear();
    return t;
}

logic::attempt_keys keys_of(const std::string& name, std::int64_t lease, std::uint64_t slot) {
    logic::attempt_keys keys;
    keys.lease = lease;
    keys.by_name.push_back(logic::exclusive_keys(name, lease, 0xc0ffee00, slot, 0));
    return keys;
}

coetcd::txn lock(const logic::attempt_keys& keys) {
    return lean(logic::take(keys, ""));
}

coetcd::txn unlock(const logic::attempt_keys& keys) {
    return lean(logic::release(keys.by_name.front(), body::placeholder));
}

/// Both in one.
coetcd::txn pass(const logic::attempt_keys& from, const logic::attempt_keys& to) {
    coetcd::txn both = unlock(from);
    const coetcd::txn next = lean(logic::enter(to, ""));
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
    : lock(encoded(bench::lock(keys_of(name, lease, 0))))
    , unlock(encoded(bench::unlock(keys_of(name, lease, 0)))) {}

pass_bodies::pass_bodies(const std::string& name, std::int64_t lease)
    : lock(encoded(bench::lock(keys_of(name, lease, 0))))
    , pass{encoded(bench::pass(keys_of(name, lease, 0), keys_of(name, lease, 1))),
           encoded(bench::pass(keys_of(name, lease, 1), keys_of(name, lease, 0)))} {}

} // namespace bench
