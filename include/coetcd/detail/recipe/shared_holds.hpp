// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/rw.hpp>
#include <coetcd/detail/recipe/holder.hpp>

#include <algorithm>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

inline constexpr recipe writer_recipe{"shared_mutex", &logic::writer_keys};
inline constexpr recipe reader_recipe{
    "shared_mutex", &logic::reader_keys, "try_lock_for", "try_lock", "unlock", true};

/// The state that a `shared_mutex` shares with the operations under way on it: one holder to write,
/// and one for each time that it reads.
class shared_holds {
public:
    shared_holds(std::shared_ptr<session_impl> s, std::string name, const lock_options& options)
        : writing(std::make_shared<holder>(std::move(s), writer_recipe, std::move(name), options)) {
    }

    const std::shared_ptr<holder> writing;

    std::shared_ptr<holder> new_reader() const {
        return std::make_shared<holder>(
            writing->session, reader_recipe, writing->name, writing->options);
    }

    /// Whether one of them is held, as far as can be known.
    bool reads() const {
        const std::lock_guard alone(access_);
        return std::any_of(reading_.begin(), reading_.end(), &holds);
    }
    /// Takes out a reader that is lost or, if none is, the last one; null if there is none. The
    /// caller that gives back may have lost its own hold: this way one is held as long as any of
    /// them reads.
    std::shared_ptr<holder> take_reader() {
        const std::lock_guard alone(access_);
        auto found = std::find_if_not(reading_.begin(), reading_.end(), &holds);
        if (found == reading_.end()) {
            if (reading_.empty()) {
                return nullptr;
            }
            --found;
        }
        std::shared_ptr<holder> taken = std::move(*found);
        reading_.erase(found);
        return taken;
    }

    /// Called when the user's object is gone: gives up what nobody else answers for.
    void drop() {
        writing->drop();
        std::vector<std::shared_ptr<holder>> dropped;
        const std::lock_guard alone(access_);
        dropped_ = true;
        reading_.swap(dropped); // `alone` goes before what was there
    }

    /// Returns the result of `trying`, which takes something for `reader`.
    static asio::awaitable<bool> kept(std::shared_ptr<shared_holds> self,
                                      std::shared_ptr<holder> reader,
                                      asio::awaitable<bool> trying) {
        const bool taken = co_await std::move(trying);
        const std::lock_guard alone(self->access_);
        if (taken && !self->dropped_) {
            self->reading_.push_back(std::move(reader));
        }
        co_return taken;
    }
    static asio::awaitable<void> lock_shared(std::shared_ptr<shared_holds> self) {
        std::shared_ptr<holder> reader = self->new_reader();
        auto trying = holder::try_lock_until(reader, time_point::max());
        (void)co_await kept(std::move(self), std::move(reader), std::move(trying));
    }

private:
    static bool holds(const std::shared_ptr<holder>& h) {
        const std::shared_ptr<place> held = h->current();
        return held && held->held();
    }

    mutable std::mutex access_; // from anywhere
    std::vector<std::shared_ptr<holder>> reading_;
    bool dropped_ = false; // the user's object is gone
};

} // namespace coetcd::detail
