// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/standing.hpp>

/// What an attempt that wants to own does next. Each standing has its case here: a new standing
/// without one does not compile in the tests, where warnings are errors.
namespace coetcd::detail::logic {

/// The next step of an attempt that waits for as long as it takes.
enum class step {
    own,       ///< It owns, as soon as this is granted.
    enter,     ///< Its keys are not there: ask for them, at the end of the queue.
    admit,     ///< There is room for it: ask to own.
    wait,      ///< Wait until the one before it is gone.
    wait_room, ///< Wait until there may be room.
    delay,     ///< An owner before it has vanished: wait as long as the user says.
    confirm,   ///< Ask who is before it.
    explain,   ///< Its keys are gone: find out why.
    refuse,    ///< It never fits.
};

inline step next_step(standing::where at) {
    using where = standing::where;
    switch (at) {
    case where::owner:
        return step::own;
    case where::taken:
    case where::ended:
    case where::too_many:
        return step::enter;
    case where::room:
        return step::admit;
    case where::behind:
        return step::wait;
    case where::no_room:
        return step::wait_room;
    case where::delayed:
        return step::delay;
    case where::queued:
        return step::confirm;
    case where::exceeds:
        return step::refuse;
    case where::gone:
        break;
    }
    return step::explain;
}

/// The next step of an attempt that takes what is free, and waits for nobody else.
enum class try_step {
    own,
    leave,    ///< Others have it.
    take,     ///< Ask again: another epoch counts.
    wait_own, ///< What this session is giving up may be all that is there: wait, and ask again.
    confirm,
    explain,
    refuse,
};

/// @param own_may_be_there The session was giving something up when this attempt asked first.
inline try_step next_try_step(standing::where at, bool own_may_be_there) {
    using where = standing::where;
    switch (at) {
    case where::owner:
        return try_step::own;
    case where::behind:
    case where::taken:
    case where::no_room:
    case where::too_many:
        return own_may_be_there ? try_step::wait_own : try_step::leave;
    case where::delayed:
    case where::room:
        return try_step::leave;
    case where::ended:
        return try_step::take;
    case where::queued: // an earlier copy has put its keys
        return try_step::confirm;
    case where::exceeds:
        return try_step::refuse;
    case where::gone:
        break;
    }
    return try_step::explain;
}

} // namespace coetcd::detail::logic
