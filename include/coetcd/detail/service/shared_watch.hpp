// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/service/watch_hub.hpp>
#include <coetcd/detail/service/watch_sink.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

class shared_watch;

/// The watches of a session that several of its waiters have in common: etcd tells each change
/// once. One that nobody needs any more ends.
class shared_watches {
public:
    explicit shared_watches(std::shared_ptr<watch_hub> hub)
        : hub_(std::move(hub)) {}

    /// The watch of a range, begun if there is none.
    std::shared_ptr<shared_watch> of(const key_range& keys);

private:
    friend class shared_watch;
    using registry = std::map<std::pair<std::string, std::string>, shared_watch*>;

    const std::shared_ptr<watch_hub> hub_;
    const std::shared_ptr<registry> all_ = std::make_shared<registry>();
};

/// A watch of a range that tells all who share it.
class shared_watch final : public watch_sink, public std::enable_shared_from_this<shared_watch> {
    struct passkey {};

public:
    shared_watch(passkey,
                 std::shared_ptr<watch_hub> hub,
                 std::shared_ptr<shared_watches::registry> in,
                 const key_range& keys)
        : hub_(std::move(hub))
        , in_(std::move(in))
        , at_(in_->insert_or_assign({keys.key, keys.range_end}, this).first) {
        try {
            id_ = hub_->add(wire::watch_create_request(keys), *this);
        } catch (...) {
            in_->erase(at_);
            throw;
        }
    }
    ~shared_watch() {
        if (!is_over_) {
            in_->erase(at_);
            hub_->remove(id_);
        }
    }
    shared_watch(const shared_watch&) = delete;
    shared_watch& operator=(const shared_watch&) = delete;

    /// From now on tells `sink`, too. If the watch is in force, it says so at once.
    void add(watch_sink& sink) {
        sinks_.push_back(&sink);
        if (is_in_force_) {
            sink.on_created(told_);
        }
    }
    void remove(watch_sink& sink) noexcept {
        std::replace(sinks_.begin(), sinks_.end(), &sink, none);
        drop_gone();
    }

private:
    friend class shared_watches;
    static constexpr watch_sink* none = nullptr;

    /// While it lasts, none is taken out of the list.
    struct telling {
        explicit telling(shared_watch& w)
            : of(w) {
            of.is_telling_ = true;
        }
        ~telling() {
            of.is_telling_ = false;
            of.drop_gone();
        }
        telling(const telling&) = delete;
        telling& operator=(const telling&) = delete;
        shared_watch& of;
    };
    /// They may come and go meanwhile. Those that come are told nothing.
    template<class Tell>
    void each(Tell tell) {
        const auto self = shared_from_this(); // they may let go of it
        const std::size_t size = sinks_.size();
        const telling until_the_end(*this);
        for (std::size_t i = 0; i != size; ++i) {
            if (sinks_[i]) {
                tell(*sinks_[i]);
            }
        }
    }
    void drop_gone() noexcept {
        if (!is_telling_) {
            std::erase(sinks_, none);
        }
    }
    void on_created(std::int64_t revision) override {
        is_in_force_ = true;
        told_ = revision;
        each([&](watch_sink& s) { s.on_created(revision); });
    }
    void on_events(std::vector<event>& events) override {
        for (const event& e : events) {
            told_ = std::max(told_, e.kv.mod_revision);
        }
        each([&](watch_sink& s) { s.on_events(events); });
    }
    void on_ended(error_code ec, std::string text, std::int64_t revision) override {
        is_over_ = true;
        in_->erase(at_);
        each([&](watch_sink& s) { s.on_ended(ec, text, revision); });
    }

    const std::shared_ptr<watch_hub> hub_;
    const std::shared_ptr<shared_watches::registry> in_;
    const shared_watches::registry::iterator at_;
    std::vector<watch_sink*> sinks_; // null: it has gone
    std::int64_t id_ = 0;
    std::int64_t told_ = 0; // all that comes after this revision is still to be told
    bool is_in_force_ = false;
    bool is_telling_ = false;
    bool is_over_ = false;
};

inline std::shared_ptr<shared_watch> shared_watches::of(const key_range& keys) {
    const auto found = all_->find({keys.key, keys.range_end});
    if (found != all_->end()) {
        return found->second->shared_from_this();
    }
    return std::make_shared<shared_watch>(shared_watch::passkey(), hub_, all_, keys);
}

} // namespace coetcd::detail
