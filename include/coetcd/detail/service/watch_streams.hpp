// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/cluster_identity.hpp>
#include <coetcd/detail/logic/login.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/logic/watch_stream.hpp>
#include <coetcd/detail/rpc.hpp>
#include <coetcd/detail/service/look_back.hpp>
#include <coetcd/detail/service/router.hpp>
#include <coetcd/detail/service/watch_entry.hpp>
#include <coetcd/detail/service/watch_link.hpp>
#include <coetcd/detail/service/watch_sink.hpp>
#include <coetcd/detail/wire/decode.hpp>
#include <coetcd/detail/wire/encode.hpp>
#include <coetcd/detail/wire/status.hpp>
#include <coetcd/detail/wire/watch.hpp>
#include <coetcd/error.hpp>
#include <coetcd/observer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace coetcd::detail {

/// The watches of one client, and the work of one stream that carries some of them. It does not
/// decide which streams there are.
class watch_streams : public std::enable_shared_from_this<watch_streams> {
protected:
    /// @param most How many bytes a revision, or a message with one event, may have.
    watch_streams(route r, std::size_t most)
        : router_(std::move(r))
        , env_(*router_->world())
        , most_(most) {}
    ~watch_streams() = default;

    /// A watch has ended.
    virtual void on_removed() = 0;
    /// A watch is no longer on the shared stream.
    virtual void on_parted(watch_entry& w) = 0;

    /// The reason that ends a watch that cannot go on.
    static error_code no_memory() {
        return make_error_code(boost::system::errc::not_enough_memory);
    }

    using watch = watch_entry;
    using kind = logic::stream_kind;
    using stream_state = logic::watch_stream<time_point>;

    std::shared_ptr<watch_link> make_link(logic::endpoint where, sending how, watch_load whose) {
        return std::make_shared<watch_link>(env_, std::move(where), how, whose, router_.keys);
    }

    /// Opens a stream with the watches that it carries, and reads until it ends.
    /// @returns Whether it broke: false if it was closed by us.
    asio::awaitable<bool> serve(std::shared_ptr<watch_link> on) {
        struct closing {
            const watch_streams& of;
            watch_link& on;
            ~closing() {
                on.close();
                tell_of_end(on, of.watches_);
            }
        };
        const closing at_end{*this, *on};
        if (on->is_for(kind::everybody)) {
            for (auto& [id, w] : watches_) {
                if (!w.apart) {
                    w.place(on);
                }
            }
        } else if (const auto one = watches_.find(on->load.watch); one != watches_.end()) {
            one->second.place(on);
        } else {
            on->ask();
        }
        authorization who =
            co_await router_->authorize(router_->within(stream_state::long_patience));
        if (who.ec || on->closed) {
            if (who.ec && !logic::is_transient(who.ec)) {
                end_all(*on, who.ec, who.text);
            }
            co_return !on->closed;
        }
        on->token_number = who.number;
        call_request request(on->where, rpc::watch, on->next_piece(), time_point::max());
        request.patience = on->state.patience();
        request.how = on->how;
        request.token = std::move(who.token);
        open_result opened = co_await env_.open(std::move(request));
        if (opened.ec) {
            router_->failed(on->where, {}, router::use::stream); // the env knows its addresses
            co_return !on->closed;
        }
        on->channel = std::move(opened.opened);
        report(*on, true);
        on->state.opened(env_.now());
        spawn(env_, attend(shared_from_this(), on));

        asio::ip::address by;
        while (!on->closed) {
            if (is_full(*on)) {
                co_await until_room(on);
                continue;
            }
            reply r = co_await on->channel->read();
            by = r.by;
            on->state.heard_something(env_.now(), on->channel->received());
            if (!dispatch(*on, r)) {
                break;
            }
            if (on->is_for(kind::question)) {
                on->close(); // it has its answer
            }
        }
        const bool broke = !on->closed;
        report(*on, false);
        if (broke && !on->token_refused) {
            router_->failed(on->where, by, router::use::stream);
        }
        co_return broke;
    }

    /// Whether the watch that has this stream for itself can take no more.
    bool is_full(const watch_link& on) {
        if (!on.is_for(kind::one_watch)) {
            return false;
        }
        const auto one = find(on.load.watch, on);
        return one != watches_.end() && one->second.sink->is_full();
    }

    /// Reads nothing as long as the watch's user does not, so etcd sends nothing. If that takes
    /// long, the stream is given up, since it occupies a connection here and a place in etcd.
    asio::awaitable<void> until_room(std::shared_ptr<watch_link> on) {
        const std::shared_ptr<notifier> room = on->room;
        const time_point until = after(env_.now(), stream_state::longest_hold);
        on->state.hold();
        while (!on->closed && is_full(*on)) {
            const bool in_time = co_await room->wait(until);
            if (!in_time) {
                on->close();
            }
        }
        on->state.go_on(env_.now());
        on->outgoing.notify_all();
    }

    void report(const watch_link& of, bool opened) const {
        if (router_->observer() && !of.is_for(kind::question)) {
            router_->observer()->on_watch_stream({of.where.text(), opened, carried_by(of)});
        }
    }

    std::size_t carried_by(const watch_link& on) const {
        const auto is_on = [&](const auto& w) { return w.second.on.get() == &on; };
        if (on.is_for(kind::one_watch)) { // there may be thousands of these
            const auto one = watches_.find(on.load.watch);
            return one != watches_.end() && is_on(*one) ? 1 : 0;
        }
        return static_cast<std::size_t>(std::count_if(watches_.begin(), watches_.end(), is_on));
    }

    /// Sends what is to be sent; ends a stream on which etcd does not answer.
    static asio::awaitable<void> attend(std::shared_ptr<watch_streams> self,
                                        std::shared_ptr<watch_link> on) {
        using step = stream_state::step;
        struct closing { // the reader does the rest
            stream& of;
            ~closing() { of.close(); }
        };
        const closing at_end{*on->channel};
        env& world = self->env_;
        while (!on->closed) {
            if (!on->unsent.empty()) {
                std::string piece = on->next_piece();
                const time_point until = after(world.now(), stream_state::long_patience);
                const error_code ec = co_await on->channel->write(std::move(piece), until);
                if (ec) {
                    break;
                }
                continue;
            }
            on->state.heard_bytes(world.now(), on->channel->received());
            const step next = on->state.next(world.now());
            if (next == step::wait) {
                (void)co_await on->outgoing.wait(on->state.until());
            } else if (next == step::ask) {
                on->ask();
            } else if (next == step::give_up) {
                break;
            } else {
                const bool there = co_await self->ask_beside(on);
                if (!there) {
                    break;
                }
            }
        }
    }

    /// Asks whether etcd is still there, on behalf of a stream on which nobody can ask.
    asio::awaitable<bool> ask_beside(std::shared_ptr<watch_link> silent) {
        const auto question = make_link(silent->where, sending::once, {kind::question});
        silent->beside = question;
        (void)co_await serve(question);
        silent->beside = nullptr;
        silent->state.heard_beside(env_.now());
        co_return question->state.answered();
    }

    /// Handles one message of a stream, or a piece of one.
    /// @returns Whether the stream may go on.
    bool dispatch(watch_link& from, reply& r) {
        const bool is_rest = std::exchange(from.goes_on, r.more);
        const bool may_be_large = r.ec && wire::begins_message(r.body);
        if (logic::transport_code(r.ec, r.status, may_be_large) == errc::too_large) {
            from.state.heard_etcd();
            end_oversized(from, r.body);
        }
        if (r.ec) {
            return false;
        }
        if (is_rest && is_nobodys(from, r.body)) {
            return true;
        }
        wire::stream_message<wire::watch_response> message;
        try {
            if (r.status == 200) {
                message = router_.told(wire::decode_stream<wire::watch_response>(r.body));
            } else {
                message = wire::decode_status(r.status, r.body);
            }
        } catch (const error&) {
            return false;
        }
        auto* const failure = std::get_if<wire::status>(&message);
        if (!failure || !failure->foreign) {
            from.state.heard_etcd();
        }
        if (failure) {
            if (!refuses_token(from, *failure)) {
                from.failure = std::move(*failure);
            }
            return false;
        }
        auto& said = std::get<wire::watch_response>(message);
        const bool is_progress = said.events.empty() && !is_rest && !r.more;
        return dispatch(from, said, is_progress, r);
    }

    /// Whether the watch that a message is for is no longer on this stream.
    bool is_nobodys(const watch_link& from, std::string_view message) {
        const auto id = wire::find_watch_id(message);
        return id && find(*id, from) == watches_.end();
    }

    /// Whether etcd refused the user's token: a stream with another one may succeed.
    bool refuses_token(watch_link& on, const wire::status& s) {
        const bool refused = router_->logs_in() && logic::wants_token(s);
        if (refused) {
            on.token_refused = true;
            router_->rejected(on.token_number);
        }
        return refused;
    }

    // A sink may add and remove watches when it is told something, so telling it comes last.
    bool dispatch(watch_link& from, wire::watch_response& m, bool is_progress, const reply& whole) {
        if (router_->rejects(from.where, m.header.cluster_id)) {
            return false; // all watches go on elsewhere
        }
        const auto refusal = wire::decode_cancel_reason(m.cancel_reason);
        if (m.canceled && refusal && refuses_token(from, *refusal)) {
            return false; // all watches go on with another token
        }
        if (m.created && m.canceled) {
            m.watch_id = from.state.next_answer().value_or(m.watch_id); // a refusal names none
        }
        if (m.created) {
            from.state.created(m.watch_id);
            router_->accepted(from.token_number);
            // Events only show that the stream works.
            router_->succeeded(from.where, whole.by, router::use::stream);
        }
        const auto found = find(m.watch_id, from);
        if (found == watches_.end()) {
            return true; // it is a question, or was removed or moved meanwhile
        }
        watch& w = found->second;
        if (m.canceled) {
            const error_code ec = m.compact_revision != 0 ? make_error_code(errc::watch_compacted)
                                  : refusal               ? logic::code_of(*refusal)
                                                          : errc::watch_canceled;
            end(found, ec, std::move(m.cancel_reason), m.compact_revision);
        } else if (m.created && w.is_of_another(m.header.cluster_id)) {
            from.cancel(m.watch_id);
            end(found,
                errc::revision_regressed,
                "cluster " + logic::cluster_name(w.cluster) + " was replaced by cluster " +
                    logic::cluster_name(m.header.cluster_id));
        } else if (m.created) {
            if (w.history.told() > m.header.revision) {
                doubt(w);
            }
            w.sink->on_created(m.header.revision);
        } else if (!is_progress) {
            try {
                std::vector<event> complete =
                    w.history.take(m.events, whole.more, whole.body.size());
                if (!complete.empty()) {
                    w.sink->on_events(complete);
                }
            } catch (const std::bad_alloc&) {
                if (const auto one = find(m.watch_id, from); one != watches_.end()) {
                    end(one, no_memory(), {}); // rather than lose some of them
                }
                throw;
            }
            end_if_overfull(m.watch_id, from);
            part_if_large(m.watch_id, from, whole.body.size());
        } else if (w.request.progress_notify) {
            w.history.reached(m.header.revision);
            w.sink->on_progress(w.history.next() - 1);
        }
        return true;
    }

    /// The member where this watch was created is behind what the watch has told.
    void doubt(const watch& one) {
        doubted_ = true;
        if (!looks_back_) {
            auto looking = check_revision(shared_from_this(), wire::least_of(one.request));
            looks_back_ = true;
            try {
                spawn(env_, std::move(looking));
            } catch (const std::bad_alloc&) {
                looks_back_ = false; // the next stream gives another occasion
            }
        }
    }

    /// Ends the watches that have told more than etcd has, if it will not catch up. If that cannot
    /// be found out, the next stream gives another occasion.
    static asio::awaitable<void> check_revision(std::shared_ptr<watch_streams> self,
                                                range_request read) {
        struct looking {
            watch_streams& of;
            ~looking() { of.looks_back_ = false; }
        };
        const looking until_the_end{*self};
        std::map<std::int64_t, std::int64_t> told; // by watch, when the last read was sent
        while (self->doubted_) {
            std::function<std::int64_t()> asked = [of = self.get(), &told] {
                of->doubted_ = false;
                told.clear();
                std::int64_t most = 0; // one look for all
                for (const auto& [id, w] : of->watches_) {
                    told.emplace(id, w.history.told());
                    most = std::max(most, w.history.told());
                }
                return most;
            };
            const std::optional<std::int64_t> revision =
                co_await look_back(self->router_, read, 2, std::move(asked));
            if (revision) {
                self->end_ahead_of(*revision, told);
            }
        }
    }

    void end_ahead_of(std::int64_t revision, const std::map<std::int64_t, std::int64_t>& told) {
        for (const auto& [id, last] : told) {
            const auto ahead = watches_.find(id); // telling a sink may remove others
            if (last > revision && ahead != watches_.end() && ahead->second.on) {
                ahead->second.on->cancel(id);
                end(ahead,
                    errc::revision_regressed,
                    "etcd is at revision " + std::to_string(revision) + ", and revision " +
                        std::to_string(last) + " was told of");
            }
        }
    }

    /// The watch with this id, if it is on that stream.
    watch_map::iterator find(std::int64_t id, const watch_link& on) {
        const auto found = watches_.find(id);
        return found != watches_.end() && found->second.on.get() == &on ? found : watches_.end();
    }
    /// Every watch is removed here, since some are counted.
    watch_map::node_type take_out(watch_map::iterator one) noexcept {
        apart_ -= one->second.apart ? 1U : 0U;
        return watches_.extract(one);
    }
    /// Whether there is a watch that does not have streams of its own for good.
    bool any_together() const { return watches_.size() != apart_; }

    void end(watch_map::iterator one, error_code ec, std::string text, std::int64_t revision = 0) {
        watch_sink& sink = *one->second.sink;
        const std::shared_ptr<watch_link> on = std::move(one->second.on);
        take_out(one);
        if (!on->is_for(kind::everybody)) {
            on->close();
        }
        on_removed();
        sink.on_ended(ec, std::move(text), revision);
    }

    /// Ends the watch for which a message was too large: it would come again. If it is not known
    /// which one that is, ends all of them.
    void end_oversized(const watch_link& from, std::string_view beginning) {
        const auto id = wire::find_watch_id(beginning);
        if (!id) {
            end_all(from, errc::too_large, oversized(0));
        } else if (const auto found = find(*id, from); found != watches_.end()) {
            const std::int64_t revision = wire::find_revision(beginning).value_or(0);
            end(found, errc::too_large, oversized(revision), revision);
        }
    }

    /// Ends a watch that has too many pieces of one revision: the rest may never come.
    void end_if_overfull(std::int64_t id, watch_link& from) {
        const auto found = find(id, from);
        if (found != watches_.end() && found->second.history.held() > most_) {
            const std::int64_t revision = found->second.history.unfinished();
            from.cancel(id);
            end(found, errc::too_large, oversized(revision), revision);
        }
    }

    /// Takes a watch off the shared stream if others would have to wait for it, because it brings
    /// much or its user is slow.
    void part_if_large(std::int64_t id, watch_link& from, std::size_t bytes) {
        const auto found = find(id, from);
        if (found == watches_.end() || !from.is_for(kind::everybody)) {
            return;
        }
        watch& w = found->second;
        w.traffic.add(bytes, env_.now());
        if (w.traffic.is_much() || w.sink->is_full()) {
            from.cancel(id);
            w.sink->on_broken();
            w.on = nullptr;
            w.apart = true;
            ++apart_;
            on_parted(w);
        }
    }

    /// Ends the watches of a stream that etcd refuses.
    void end_if_refused(const watch_link& from) {
        if (from.failure && !logic::judge(*from.failure).transient) {
            end_all(from, logic::code_of(*from.failure), from.failure->message);
        }
    }

    void end_all(const watch_link& on, error_code ec, const std::string& text) {
        watch_map over;
        for (auto w = watches_.begin(); w != watches_.end();) {
            const auto next = std::next(w);
            if (w->second.on.get() == &on) {
                over.insert(take_out(w));
            }
            w = next;
        }
        on_removed();
        for (auto& [id, w] : over) {
            w.sink->on_ended(ec, text, 0);
        }
    }

    const route router_;
    env& env_;
    const std::size_t most_; // bytes of one revision
    watch_map watches_;

private:
    std::size_t apart_ = 0;   // of those, how many have streams of their own for good
    bool doubted_ = false;    // since etcd was last asked how far it has got
    bool looks_back_ = false; // etcd is being asked
};

} // namespace coetcd::detail
