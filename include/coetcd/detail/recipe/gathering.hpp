// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/loss.hpp>
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/arrival.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/recipe/ask_anew.hpp>
#include <coetcd/detail/recipe/first_number.hpp>
#include <coetcd/detail/recipe/once.hpp>
#include <coetcd/detail/recipe/vigil.hpp>
#include <coetcd/detail/service/call.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/detail/service/session.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

/// One arrival at a barrier where groups gather, from the request that puts its key. Whoever has it
/// last gives it up, in the background, unless it is over. Lives and ends at home.
class barrier_arrival final : private loss_listener {
public:
    static std::shared_ptr<barrier_arrival> begin(const named_recipe& about, logic::gathers how) {
        return {new barrier_arrival(about, how), give_up};
    }

    const std::shared_ptr<session_impl> session;
    once_writer writer;
    logic::arrival keys;
    notifier changed;
    std::int64_t group = 0; ///< Once it is in a double barrier.
    bool over = false;      ///< Its keys have gone, for certain.

private:
    barrier_arrival(const named_recipe& about, logic::gathers how)
        : session(about.session)
        , writer(session, about.name, about.title)
        , keys(how, about.name, writer.next_id(), writer.marker_key())
        , changed(session->world)
        , losses_(session->losses, *this) {}

    void on_loss() override { changed.notify_all(); }

    static void give_up(barrier_arrival* last) {
        std::unique_ptr<barrier_arrival> mine(last);
        const std::shared_ptr<session_impl> s = mine->session;
        if (!mine->over && s->alive()) {
            try {
                spawn(s->world, abandon(std::move(mine)));
            } catch (const std::bad_alloc&) {
                s->fail(session_end::cleanup_failed);
            }
        }
    }
    /// Erases its keys, whatever may have become of them, as long as the session lives.
    static asio::awaitable<void> abandon(std::unique_ptr<barrier_arrival> mine) {
        env& world = mine->session->world;
        for (unsigned failures = 0; !mine->over && mine->session->alive(); ++failures) {
            try {
                txn erases = logic::abandon(mine->keys);
                (void)co_await mine->writer.apply(
                    std::move(erases),
                    once_writer::form::plain,
                    mine->session->owner->within(mine->session->request_timeout));
                mine->over = true;
            } catch (const error& e) {
                mine->over = !logic::is_transient(e.code());
            }
            if (!mine->over) {
                const time_point next =
                    after(world.now(), logic::backoff(failures, world.random()));
                co_await sleep_until(world, next);
            }
        }
    }

    const loss_source::subscription losses_;
};

/// A barrier where groups of a fixed size gather. Lives and ends at home.
class gathering {
public:
    using where = logic::arrived::where;

    gathering(const char* word,
              std::shared_ptr<session_impl> s,
              std::string n,
              std::int64_t parties,
              logic::gathers how)
        : about(word, std::move(s), std::move(n))
        , how_(how)
        , wanted_(parties) {}

    const named_recipe about;

    /// Arrives, and waits until its group is let through.
    /// @returns Null if the deadline came first: it has withdrawn.
    static asio::awaitable<std::shared_ptr<barrier_arrival>>
    gather_until(std::shared_ptr<gathering> self, time_point deadline) {
        const std::shared_ptr<session_impl> session = self->about.session;
        session->require_alive(self->about.title);
        if (!self->parties_) {
            self->parties_ = co_await find_first_number(session->owner,
                                                        self->about.title,
                                                        logic::parties_key(self->about.name),
                                                        self->wanted_,
                                                        logic::most_parties(self->how_),
                                                        self->about.within());
        }
        const auto mine = barrier_arrival::begin(self->about, self->how_);
        const time_point sent = session->world.now();
        logic::arrived now = co_await arrive(self, mine);
        vigil watching(session, mine->changed);
        bool watches = false;
        for (;;) {
            if (now.at == where::full) {
                now = co_await trip(self, mine);
            }
            if (now.at == where::through) {
                mine->group = now.group;
                co_return mine;
            }
            self->check(now, *mine);
            if (now.at == where::full) {
                continue; // others were faster, and there is another group
            }
            if (session->world.now() >= deadline) {
                break;
            }
            if (!std::exchange(watches, true)) {
                watching.watch({{mine->keys.key, mine->keys.create_revision}}, sent);
            }
            auto waits = wait(self, mine, watching, deadline);
            const vigil::end end = co_await std::move(waits);
            session->require_alive(self->about.title);
            if (end == vigil::end::late) {
                break;
            }
            if (end == vigil::end::failed) {
                throw error(watching.failure, self->about.title + ": " + watching.failure_text);
            }
            now = co_await look(self, mine, deadline);
        }
        now = co_await withdraw(self, mine);
        if (now.at == where::through) {
            mine->group = now.group;
            co_return mine;
        }
        co_return nullptr;
    }

private:
    static asio::awaitable<logic::arrived> arrive(std::shared_ptr<gathering> self,
                                                  std::shared_ptr<barrier_arrival> mine) {
        txn arrives = logic::arrive(mine->keys, mine->session->lease());
        const once_end end = co_await mine->writer.apply(
            std::move(arrives), once_writer::form::plain, self->about.within());
        if (!end.applied) {
            throw error(errc::protocol_error, self->about.title + ": refused, without a reason");
        }
        mine->keys.create_revision = end.revision;
        bool full = true; // perhaps: the answer that tells was lost
        if (end.answered) {
            full = logic::answers::range_at(*end.answered, 1).count >= *self->parties_;
        }
        logic::arrived now;
        now.at = full ? where::full : where::waiting;
        co_return now;
    }

    /// Lets the oldest group through, and those after it that are whole, until we are in one.
    static asio::awaitable<logic::arrived> trip(std::shared_ptr<gathering> self,
                                                std::shared_ptr<barrier_arrival> mine) {
        const std::shared_ptr<client_impl> by = self->about.session->owner;
        for (bool again = true; again;) {
            txn asks;
            asks.success.emplace_back(logic::oldest_arrivals(self->about.name, *self->parties_));
            const outcome<txn_response> read =
                co_await ask_anew(by, std::move(asks), self->about.within(), self->told_);
            self->check(read);
            std::vector<key_value> group;
            if (!read.ec) {
                group = logic::answers::range_at(read.response, 0).kvs;
            }
            auto trips = logic::trip(mine->keys, group, *self->parties_);
            if (!trips) {
                break;
            }
            const outcome<txn_response> done = co_await ask_alone(
                by, std::move(*trips), self->about.within().as(impact::idempotent));
            self->check(done);
            if (!done.ec) {
                self->told_.heed(done.response.header.revision);
            }
            again = !done.ec && done.response.succeeded;
            if (again && logic::is_among(group, mine->keys)) {
                logic::arrived now;
                now.at = where::through;
                now.group = done.response.header.revision;
                co_return now;
            }
        }
        co_return co_await look(self, mine, time_point::max());
    }

    /// Whatever may pass, the wait goes on: somebody else, or a later look, trips. The lease of
    /// another member may just have ended.
    void check(const answer& a) const {
        if (a.ec && !logic::is_transient(a.ec) && a.ec != server_errc::not_found) {
            throw error(a.ec, about.title + ": " + a.text);
        }
    }
    void check(logic::arrived now, barrier_arrival& mine) const {
        if (now.at == where::gone) {
            about.session->require_alive(about.title);
            throw error(errc::session_lost, about.title + ": its lease has ended");
        }
        if (now.at == where::deleted) {
            mine.over = true;
            throw error(errc::lock_lost, about.title + ": its key was deleted by somebody else");
        }
    }

    static asio::awaitable<vigil::end> wait(std::shared_ptr<gathering> self,
                                            std::shared_ptr<barrier_arrival> mine,
                                            vigil& watching,
                                            time_point deadline) {
        std::function<txn()> look = [&mine] { return logic::look_at(mine->keys); };
        std::function<bool(const txn_response&)> moved = [&](const txn_response& said) {
            return logic::after_look(said, mine->keys, *self->parties_).at != where::waiting;
        };
        auto waits = watching.until_moved(std::move(look), std::move(moved), deadline);
        const vigil::end end = co_await std::move(waits);
        co_return end;
    }

    /// Asks until there is an answer; if there is none in time, the wait goes on.
    static asio::awaitable<logic::arrived> look(std::shared_ptr<gathering> self,
                                                std::shared_ptr<barrier_arrival> mine,
                                                time_point deadline) {
        for (;;) {
            txn asks = logic::look_at(mine->keys);
            const outcome<txn_response> a = co_await ask_anew(self->about.session->owner,
                                                              std::move(asks),
                                                              self->about.within().as(impact::none),
                                                              self->told_);
            self->check(a);
            mine->session->require_alive(self->about.title);
            if (!a.ec) {
                co_return logic::after_look(a.response, mine->keys, *self->parties_);
            }
            if (mine->session->world.now() >= deadline) {
                co_return logic::arrived();
            }
        }
    }

    /// @returns `through` if it could not leave any more.
    static asio::awaitable<logic::arrived> withdraw(std::shared_ptr<gathering> self,
                                                    std::shared_ptr<barrier_arrival> mine) {
        txn leaves = logic::withdraw(mine->keys);
        const once_end end = co_await mine->writer.apply(
            std::move(leaves), once_writer::form::plain, self->about.within());
        if (end.applied) {
            mine->over = true;
            co_return logic::arrived();
        }
        const auto through =
            logic::is_through(logic::answers::range_at(*end.answered, 0), mine->keys);
        if (!through) {
            logic::arrived deleted;
            deleted.at = where::deleted;
            self->check(deleted, *mine);
        }
        co_return *through;
    }

    const logic::gathers how_;
    const std::int64_t wanted_;
    std::optional<std::int64_t> parties_; // once it is known
    newest_told told_;
};

} // namespace coetcd::detail
