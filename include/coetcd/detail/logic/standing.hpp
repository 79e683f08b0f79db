// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/kv.hpp>

#include <charconv>
#include <cstdint>
#include <string>
#include <vector>

/// What an attempt to take places wants, and where it stands.
namespace coetcd::detail::logic {

/// One life of a key.
struct held_life {
    std::string key;
    std::int64_t create_revision;
    bool operator==(const held_life&) const = default;
};

/// How an attempt takes part in the queue of one name: the keys of one slot, and what it waits for.
struct name_keys {
    std::string name;
    std::vector<std::string> keys; ///< Ours. All are put by one transaction: they have one age.
    key_range before;              ///< Where the older keys are that we wait for.
    std::string epoch_key;
    std::string void_key; ///< Never put by anybody.
    std::int64_t epoch = 0;
    std::string write_key{}; ///< The key by which a writer is known; empty if nobody only reads.
    std::string base_key{};  ///< The key by which a reader is known; empty if nobody only reads.
    /// Keys that were put later, or may have been; with 0 if we do not count on them.
    std::vector<held_life> later{};
    std::string note_key{}; ///< Where an owner leaves a note: see notes.hpp. Empty: nowhere.
};

/// All the places that one attempt takes at once.
struct attempt_keys {
    lease_id lease = 0;
    std::vector<name_keys> by_name;
};

inline std::string hex(std::uint64_t value) {
    char digits[16];
    const auto end = std::to_chars(digits, digits + sizeof digits, value, 16).ptr;
    return std::string(digits, end);
}

/// The keys for a mutex: one key, behind all others of its name.
/// @param nonce That of the session object: another one may have had the same lease.
inline name_keys exclusive_keys(const std::string& name,
                                lease_id lease,
                                std::uint64_t nonce,
                                std::uint64_t slot,
                                std::int64_t epoch) {
    const std::string session = hex(static_cast<std::uint64_t>(lease)) + "-" + hex(nonce) + "-";
    const std::string id = session + hex(slot);
    return {name,
            {name + "/" + id},
            key_range::prefix(name + "/"),
            name + "." + id,
            name + "." + session + "void",
            epoch};
}

/// Another key in the queue.
struct predecessor {
    std::string key;
    std::int64_t create_revision;
    std::int64_t ended = 0; ///< When this life has ended, by the revision; 0 if that was not told.
};

/// Those before us in the queue of one name, as one answer told them.
struct keys_ahead {
    std::vector<predecessor> newest{}; ///< The newest first.
    bool complete = false;             ///< There is no other one, nor will there be: see ahead.hpp.
};

/// Where an attempt stands.
struct standing {
    enum class where {
        owner,   ///< Nobody is before us.
        behind,  ///< Somebody is.
        queued,  ///< Our keys are there; this answer does not say who is before us.
        taken,   ///< Somebody is there, and our keys are not.
        ended,   ///< Our keys are not there, and cannot come: somebody ended our slot.
        gone,    ///< Our keys are not there.
        delayed, ///< Nobody is before us, but an earlier owner has vanished: see notes.hpp.
        // Only where a rule says so:
        room,     ///< There is room besides those before us: we are to be admitted.
        no_room,  ///< There is none, and we know what is before us.
        too_many, ///< We have a permit, but there are too many: we must queue instead.
        exceeds,  ///< There is no room for us even if nobody else is there.
    };
    where at = where::gone;
    std::int64_t create_revision = 0;   ///< That of our keys, if they are there.
    std::vector<keys_ahead> ahead{};    ///< If `behind`: those before us, for each name.
    std::vector<std::int64_t> epochs{}; ///< If `ended`: those that count now, of all names.
    bool partly = false; ///< Some of our keys are there, and others are not: somebody deleted them.
    std::int64_t note = 0; ///< If `delayed`: the revision of the note.
    std::int64_t seen = 0; ///< If `no_room`: the revision of the store.
    bool crowded = false;  ///< If `owner`: the next one may well find no room.
};

} // namespace coetcd::detail::logic
