// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/wire/decode.hpp>
#include <coetcd/detail/wire/encode.hpp>
#include <coetcd/detail/wire/watch.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/lease.hpp>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace coetcd::detail::logic {

/// The keys that begin with a prefix, as all keys there are. Requests enter it before they are
/// written, and answers leave it once they are read.
///
/// An empty key stays empty, so that etcd refuses it here as it does elsewhere. So the key that is
/// the prefix itself is not one of them.
class key_space {
public:
    /// @throws std::invalid_argument if it is too long: requests that carry many keys, and are of
    ///   the right size without it, must not become too large.
    explicit key_space(std::string prefix)
        : all_(key_range::prefix(std::move(prefix))) {
        if (all_.key.size() > 512) {
            throw std::invalid_argument("prefix: is longer than 512 bytes");
        }
    }

    const std::string& prefix() const { return all_.key; }

    // What etcd is asked.

    void enter(std::string& key) const {
        if (!key.empty()) {
            key.insert(0, prefix());
        }
    }
    void enter(key_range& keys) const {
        constexpr std::string_view to_the_last("\0", 1);
        enter(keys.key);
        if (keys.range_end == to_the_last) {
            keys.range_end = all_.range_end;
        } else {
            enter(keys.range_end); // an empty one stays empty: it is a single key
        }
    }
    void enter(range_request& r) const { enter(r.range); }
    void enter(put_request& r) const { enter(r.key); }
    void enter(erase_request& r) const { enter(r.range); }
    void enter(wire::watch_create_request& r) const { enter(r.range); }
    void enter(txn& r) const {
        for (compare& c : r.compares) {
            enter(c.range);
        }
        enter(r.success);
        enter(r.failure);
    }

    // What etcd has answered. A key that is not one of those asked for is no answer of etcd's:
    // these throw `errc::protocol_error`.

    void leave(std::string& key) const {
        if (!has(key)) {
            wire::fail_protocol("a key outside of the namespace was not asked for");
        }
        key.erase(0, prefix().size());
    }
    void leave(key_value& kv) const { leave(kv.key); }
    void leave(range_response& r) const { leave_each(r.kvs); }
    void leave(put_response& r) const {
        if (r.prev_kv) {
            leave(*r.prev_kv);
        }
    }
    void leave(erase_response& r) const { leave_each(r.prev_kvs); }
    void leave(op_response& r) const {
        std::visit([this](auto& each) { leave(each); }, static_cast<op_response::variant&>(r));
    }
    void leave(txn_response& r) const { leave_each(r.responses); }
    void leave(event& e) const {
        leave(e.kv);
        if (e.prev_kv) {
            leave(*e.prev_kv);
        }
    }
    void leave(wire::watch_response& r) const { leave_each(r.events); }
    /// A lease may have keys outside, too. They are left out.
    void leave(lease_time_to_live_response& r) const {
        std::erase_if(r.keys, [this](const std::string& key) { return !has(key); });
        leave_each(r.keys);
    }

private:
    bool has(std::string_view key) const {
        return key.size() > prefix().size() && key.starts_with(prefix());
    }
    void enter(std::vector<op>& all) const {
        for (op& o : all) {
            std::visit([this](auto& each) { enter(each); }, static_cast<op::variant&>(o));
        }
    }
    template<class Some>
    void leave_each(Some& all) const {
        for (auto& each : all) {
            leave(each);
        }
    }

    const key_range all_;
};

/// A request as etcd is to get it. Without a key space, nothing is copied.
/// @throws std::invalid_argument as `wire::encode`.
template<class Request>
std::string encode(const key_space* in, const Request& asked) {
    if constexpr (requires(Request inside) { in->enter(inside); }) {
        if (in) {
            Request inside = asked;
            in->enter(inside);
            return wire::encode(inside);
        }
    }
    return wire::encode(asked);
}

/// What etcd has said, as the caller is to be told: a message, or one of several kinds.
template<class Message>
void tell(const key_space& of, Message& said) {
    if constexpr (requires { of.leave(said); }) {
        of.leave(said);
    }
}
template<class... Messages>
void tell(const key_space& of, std::variant<Messages...>& said) {
    std::visit([&of](auto& each) { tell(of, each); }, said);
}

} // namespace coetcd::detail::logic
