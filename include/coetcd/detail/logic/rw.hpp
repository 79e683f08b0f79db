// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/places.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

/// Readers and writers in one queue. A reader waits for older writers only, a writer for everything
/// that is older. Both stand in the order of their create_revisions, so nobody starves.
///
/// A writer has two keys of one age. To go on as a reader it erases one of them: with the other it
/// keeps its place, which a new key would not have. Writers behind it see that key, readers do not.
namespace coetcd::detail::logic {

/// What readers and writers have in common.
/// @param base The folder of the base key, by which the holder reads.
inline name_keys rw_keys(const std::string& name,
                         const std::string& base,
                         lease_id lease,
                         std::uint64_t nonce,
                         std::uint64_t slot,
                         std::int64_t epoch) {
    const std::string session = hex(static_cast<std::uint64_t>(lease)) + "-" + hex(nonce) + "-";
    const std::string id = session + hex(slot);
    name_keys c{name, {}, {name}, name + "." + id, name + "." + session + "void", epoch};
    c.write_key = name + "/write/" + id;
    c.base_key = name + base + id;
    return c;
}

/// A reader's keys: behind all writers.
inline name_keys reader_keys(const std::string& name,
                             lease_id lease,
                             std::uint64_t nonce,
                             std::uint64_t slot,
                             std::int64_t epoch) {
    name_keys c = rw_keys(name, "/read/", lease, nonce, slot, epoch);
    c.keys = {c.base_key};
    c.before = key_range::prefix(name + "/write/");
    return c;
}

/// A writer's keys: behind all readers and writers, and any other key under the name.
inline name_keys writer_keys(const std::string& name,
                             lease_id lease,
                             std::uint64_t nonce,
                             std::uint64_t slot,
                             std::int64_t epoch) {
    name_keys c = rw_keys(name, "/keep/", lease, nonce, slot, epoch);
    c.keys = {c.write_key, c.base_key};
    c.before = key_range::prefix(name + "/");
    return c;
}

/// The holder only reads, by its base key. Nothing is held by its write key, which may be there.
inline void just_reads(name_keys& c) {
    c.keys = {c.base_key};
    c.later = {{c.write_key, 0}};
}

/// The key that makes its holder a writer. It is given up like any other: `release` erases one life
/// of it, and `end` makes void what could put it again.
inline name_keys writing_part(const name_keys& c) {
    name_keys part = c;
    part.keys = {c.write_key};
    part.later.clear();
    return part;
}

/// Makes a reader a writer, if nobody else reads or waits to read, and nobody was there before it.
///
/// A waiting reader is older than the write key would be, and would not wait for it; so there may
/// be none. Writers may wait: they wait for our base key. Nobody with a new key gets past the write
/// key.
/// @param create_revision That of the base key.
inline txn upgrade(const name_keys& c,
                   lease_id lease,
                   const std::string& label,
                   std::int64_t create_revision) {
    const key_range readers = key_range::prefix(c.name + "/read/");
    const auto none_in = [](key_range range) {
        return compare::create_revision(std::move(range)) == 0;
    };
    put_options with_lease;
    with_lease.lease = lease;
    txn t;
    t.compares.push_back(transactions::epoch_holds(c));
    t.compares.push_back(compare::create_revision(c.write_key) == 0);
    t.compares.push_back(compare::create_revision(c.base_key) == create_revision);
    // Its own key is there: the range is not empty.
    t.compares.push_back(compare::create_revision(key_range::prefix(c.name + "/")) >
                         create_revision - 1);
    if (transactions::covers(readers, c.base_key)) {
        t.compares.push_back(none_in(key_range(readers.key, c.base_key)));
        t.compares.push_back(none_in(key_range(c.base_key + '\0', readers.range_end)));
    } else {
        t.compares.push_back(none_in(readers));
    }
    t.success.push_back(op::put(c.write_key, label, with_lease));
    t.failure.push_back(op::range(c.write_key, transactions::keys_only()));
    t.failure.push_back(op::range(c.base_key, transactions::keys_only()));
    return t;
}

/// How an upgrade went.
struct upgraded {
    enum class how {
        done,    ///< We write.
        earlier, ///< We write, by an earlier copy; there may be more of those.
        refused, ///< We still read.
        gone,    ///< Our base key is not there.
    };
    how went;
    std::int64_t create_revision; ///< That of the write key, if we write.
};

/// What the answer to `upgrade` means. If the request was refused, the answer tells why.
inline upgraded
after_upgrade(const txn_response& response, const name_keys& c, std::int64_t create_revision) {
    using how = upgraded::how;
    if (response.succeeded) {
        return {how::done, answers::require_revision(response.header.revision)};
    }
    const range_response& write = answers::range_at(response, 0);
    const range_response& base = answers::range_at(response, 1);
    if (!answers::holds(base, c.base_key, create_revision)) {
        return {how::gone, 0};
    }
    if (answers::holds(write, c.write_key, 0)) {
        return {how::earlier, answers::require_revision(write.kvs.front().create_revision)};
    }
    return {how::refused, 0};
}

} // namespace coetcd::detail::logic
