// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/config.hpp>
#include <coetcd/detail/testing/etcd_watches.hpp>

#include <algorithm>
#include <set>
#include <utility>

namespace coetcd::detail::testing {

COETCD_DECL std::uint64_t etcd_watches::open(int at, listener to, std::string token) {
    streams_[++last_stream_] = {at, std::move(to), std::move(token)};
    return last_stream_;
}

COETCD_DECL void etcd_watches::close(std::uint64_t id) {
    streams_.erase(id);
    std::erase_if(watches_, [&](const watch& w) {
        unsynced_ -= w.stream == id && !w.synced ? 1 : 0;
        return w.stream == id;
    });
}

COETCD_DECL void etcd_watches::end_streams(int at, const std::optional<std::string>& why) {
    std::vector<std::uint64_t> here;
    for (const auto& [id, s] : streams_) {
        if (s.at == at) {
            here.push_back(id);
        }
    }
    for (const std::uint64_t id : here) {
        if (const auto s = streams_.find(id); s != streams_.end()) {
            const listener to = s->second.to;
            if (why) {
                to.on_line(*why);
            }
            if (to.on_end) {
                to.on_end();
            }
            close(id);
        }
    }
}

COETCD_DECL void etcd_watches::listen(std::uint64_t id, std::string_view messages) {
    while (!messages.empty()) {
        const auto found = streams_.find(id);
        if (found == streams_.end()) {
            return;
        }
        const json message(messages);
        messages.remove_prefix(message.end());
        if (const auto next = messages.find('{'); next != messages.npos) {
            messages.remove_prefix(next);
        } else {
            messages = {};
        }
        stream& from = found->second;
        const auto say = [&](std::int64_t watch_id, std::string_view field) {
            json_writer out;
            out.open().name("result").open();
            members_.header(out, from.at, how_far(from.at));
            out.number("watch_id", watch_id);
            if (!field.empty()) {
                out.flag(field, true);
            }
            out.close().close();
            from.to.on_line(out.take());
        };
        if (const json::value create = message["create_request"]) {
            create_watch(id, create);
        } else if (const json::value cancel = message["cancel_request"]) {
            const std::int64_t watch_id = cancel["watch_id"].number();
            const auto gone = std::erase_if(watches_, [&](const watch& w) {
                const bool this_one = w.stream == id && w.id == watch_id;
                unsynced_ -= this_one && !w.synced ? 1 : 0;
                return this_one;
            });
            if (gone != 0) {
                say(watch_id, "canceled");
            }
        } else if (message["progress_request"]) {
            bool any = false;
            bool all = true;
            for (const watch& w : watches_) {
                if (w.stream == id) {
                    any = true;
                    all = all && w.synced && w.next <= how_far(w.at) + 1;
                }
            }
            if (any && all) {
                say(-1, "");
            }
        }
    }
}

COETCD_DECL void etcd_watches::create_watch(std::uint64_t id, json::value request) {
    stream& from = streams_.at(id);
    std::int64_t watch_id = request["watch_id"].number();
    const auto text = [&](const char* refused) {
        json_writer out;
        out.open().name("result").open();
        members_.header(out, from.at, how_far(from.at));
        out.number("watch_id", refused ? -1 : watch_id);
        out.flag("created", true);
        out.flag("canceled", refused != nullptr);
        if (refused) {
            out.word("cancel_reason", refused);
        }
        out.close().close();
        return out.take();
    };
    const auto say = [&](const char* refused) { from.to.on_line(text(refused)); };
    try {
        how_.check_access(from.token, request);
    } catch (const etcd_refusal& no) {
        say(no.code == 16  ? "rpc error: code = Unauthenticated desc = etcdserver: invalid auth "
                             "token"
            : no.code == 7 ? "rpc error: code = PermissionDenied desc = etcdserver: permission "
                             "denied"
                           : "rpc error: code = InvalidArgument desc = etcdserver: user name is "
                             "empty");
        return;
    }
    const auto taken = std::any_of(watches_.begin(), watches_.end(), [&](const watch& w) {
        return w.stream == id && w.id == watch_id;
    });
    if (taken) {
        say("mvcc: duplicate watch ID provided on the WatchStream");
        return;
    }
    if (request["fragment"].flag()) {
        say("fragments of a large batch take a real member minutes: nobody may ask for them");
        return;
    }
    watch w{id,
            from.at,
            watch_id,
            request["key"].bytes(),
            request["range_end"].bytes(),
            false,
            false,
            request["prev_kv"].flag(),
            request["progress_notify"].flag(),
            true,
            request["start_revision"].number()};
    if (w.key.empty()) {
        w.key = std::string(1, '\0');
    }
    if (!w.range_end.empty() && w.range_end != std::string_view("\0", 1) && w.key >= w.range_end) {
        say("mvcc: watcher range is empty");
        return;
    }
    request["filters"].each([&](json::value f) {
        constexpr std::string_view filters[] = {"NOPUT", "NODELETE"};
        const bool first = f.choice(filters) == 0;
        w.no_put = w.no_put || first;
        w.no_delete = w.no_delete || !first;
    });
    w.synced = w.next == 0 || w.next > how_far(from.at);
    unsynced_ += w.synced ? 0 : 1;
    how_.watched(id, watch_id, w.next, w.key);
    watches_.push_back(w);
    const auto now = store_.keys.lower_bound(w.key);
    const bool has_any = now != store_.keys.end() && in_range(now->first, w.key, w.range_end);
    if (w.next == 0 && has_any && how_.invents_end(now->first)) {
        etcd_store::change end;
        end.key = now->first;
        end.deleted = true;
        end.before = now->second;
        end.revision = now->second.mod_revision + 1;
        send_events(w, {&end}, text(nullptr) + "\n"); // at once, so before any look
    } else {
        say(nullptr);
    }
}

COETCD_DECL void etcd_watches::send_events(const watch& w,
                                           const std::vector<const etcd_store::change*>& changes,
                                           const std::string& before) {
    const auto found = streams_.find(w.stream);
    if (found == streams_.end()) {
        return;
    }
    json_writer out;
    out.open().name("result").open();
    members_.header(out, found->second.at, how_far(found->second.at));
    out.number("watch_id", w.id);
    out.name("events").open('[');
    for (const etcd_store::change* const c : changes) {
        out.item();
        out.open();
        if (c->deleted) {
            out.word("type", "DELETE");
        }
        out.name("kv");
        if (c->deleted) {
            etcd_store::record gone;
            gone.mod_revision = c->revision;
            store_.write_kv(out, c->key, gone, true);
        } else {
            store_.write_kv(out, c->key, c->now, false);
        }
        if (w.prev_kv && c->before.version != 0) {
            out.name("prev_kv");
            store_.write_kv(out, c->key, c->before, false);
        }
        out.close();
    }
    out.close(']').close().close();
    found->second.to.on_line(before + out.take());
}

COETCD_DECL void etcd_watches::tell_progress() {
    for (std::size_t i = 0; i != watches_.size(); ++i) {
        const watch& w = watches_[i];
        const auto found = streams_.find(w.stream);
        if (w.wants_progress && w.synced && w.next <= how_far(w.at) + 1 &&
            found != streams_.end()) {
            json_writer out;
            out.open().name("result").open();
            members_.header(out, w.at, how_far(w.at));
            out.number("watch_id", w.id);
            out.close().close();
            found->second.to.on_line(out.take());
        }
    }
}

COETCD_DECL void etcd_watches::tell(const etcd_store::change* first,
                                    const etcd_store::change* last,
                                    std::optional<int> only_at) {
    if (first == last) {
        return;
    }
    std::vector<const etcd_store::change*> mine;
    for (std::size_t i = 0; i != watches_.size(); ++i) {
        const watch& w = watches_[i];
        if (!w.synced || w.next > first->revision || (only_at && w.at != *only_at) ||
            members_.lags(w.at)) {
            continue;
        }
        mine.clear();
        for (const etcd_store::change* c = first; c != last; ++c) {
            if (in_range(c->key, w.key, w.range_end) && !(c->deleted ? w.no_delete : w.no_put)) {
                mine.push_back(c);
            }
        }
        if (!mine.empty() && !how_.loses_event()) {
            send_events(w, mine);
        }
    }
}

COETCD_DECL void etcd_watches::catch_up(int member, std::int64_t applied) {
    const std::vector<etcd_store::change>& all = store_.history();
    const auto is_older = [](const etcd_store::change& c, std::int64_t r) {
        return c.revision < r;
    };
    auto from = std::lower_bound(all.begin(), all.end(), applied + 1, is_older);
    while (from != all.end()) { // one revision after the other
        const auto to = std::find_if(from, all.end(), [&](const etcd_store::change& c) {
            return c.revision != from->revision;
        });
        tell(&*from, &*from + (to - from), member);
        from = to;
    }
}

COETCD_DECL void etcd_watches::sync(std::size_t batch) {
    for (std::size_t i = 0; unsynced_ != 0 && i < watches_.size();) {
        watch& w = watches_[i];
        if (w.synced) {
            ++i;
            continue;
        }
        if (w.next < compacted(w.at)) {
            --unsynced_;
            const auto found = streams_.find(w.stream);
            json_writer out;
            out.open().name("result").open();
            members_.header(out, found->second.at, 0);
            out.number("watch_id", w.id);
            out.flag("canceled", true);
            out.number("compact_revision", compacted(w.at));
            out.close().close();
            const auto line = found->second.to.on_line;
            watches_.erase(watches_.begin() + static_cast<std::ptrdiff_t>(i));
            line(out.take());
            continue;
        }
        std::vector<const etcd_store::change*> mine;
        std::size_t revisions = 0;
        std::int64_t last = 0;
        bool all = true;
        const auto begin = std::lower_bound(
            store_.history().begin(),
            store_.history().end(),
            w.next,
            [](const etcd_store::change& c, std::int64_t from) { return c.revision < from; });
        for (auto c = begin; c != store_.history().end() && c->revision <= how_far(w.at); ++c) {
            if (!in_range(c->key, w.key, w.range_end) || (c->deleted ? w.no_delete : w.no_put)) {
                continue;
            }
            if (c->revision != last && ++revisions > batch) {
                all = false;
                w.next = c->revision;
                break;
            }
            last = c->revision;
            mine.push_back(&*c);
        }
        if (all) {
            --unsynced_;
            w.synced = true;
            w.next = 0;
        }
        if (!mine.empty()) {
            send_events(w, mine);
        }
        ++i;
    }
}

COETCD_DECL std::size_t etcd_watches::watching_streams() const {
    std::set<std::uint64_t> all;
    for (const watch& w : watches_) {
        all.insert(w.stream);
    }
    return all.size();
}

} // namespace coetcd::detail::testing
