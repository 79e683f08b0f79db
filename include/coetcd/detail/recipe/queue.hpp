// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/async/loss.hpp>
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/async/turns.hpp>
#include <coetcd/detail/logic/names.hpp>
#include <coetcd/detail/logic/queue.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/recipe/ask_anew.hpp>
#include <coetcd/detail/recipe/null_if_late.hpp>
#include <coetcd/detail/recipe/once.hpp>
#include <coetcd/detail/recipe/place_wait.hpp>
#include <coetcd/detail/recipe/recipe.hpp>
#include <coetcd/detail/recipe/vigil.hpp>
#include <coetcd/detail/service/call.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/detail/wire/printable.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

/// The line of consumers that found nothing: only the first of them watches the queue.
inline constexpr recipe dequeuers_line{"queue", &logic::exclusive_keys, "dequeue_for"};

/// The session and name of a queue.
struct named_queue {
    named_queue(const char* word,
                std::shared_ptr<session_impl> s,
                std::string n,
                logic::queue::order by)
        : about(word, std::move(s), std::move(n))
        , keys{about.name, by}
        , beside(logic::queue::beside(about.name)) {}

    const named_recipe about;
    const logic::queue::layout keys;
    const std::string beside; ///< What the keys begin with that are no items.

    session_impl& session() const { return *about.session; }
    call_terms until(time_point deadline) const {
        call_terms how = about.within();
        how.deadline = deadline;
        return how;
    }
};

/// A request to take an item. It is made in the background, until etcd has answered or the session
/// has ended, whatever becomes of its caller. Lives and ends at home.
class item_taking final : private loss_listener {
public:
    item_taking(std::shared_ptr<const named_queue> q, logic::queue::item w)
        : of(std::move(q))
        , what(std::move(w))
        , changed(of->about.session->world)
        , losses_(of->about.session->losses, *this) {}

    const std::shared_ptr<const named_queue> of;
    const logic::queue::item what;
    notifier changed;
    bool over = false;
    bool taken = false;
    std::exception_ptr failure;
    logic::queue::next_item next; ///< As the answer tells.
    std::int64_t as_of = 0;       ///< The answer's revision.

    static asio::awaitable<void> run(std::shared_ptr<item_taking> self) {
        const named_queue& of = *self->of;
        std::optional<once_writer> writer;
        bool in_doubt = false;
        try {
            writer.emplace(of.about.session, of.beside, of.about.title);
            txn request = logic::queue::take(of.keys, self->what);
            const once_end end = co_await writer->apply(
                std::move(request), once_writer::form::plain, of.until(time_point::max()));
            self->taken = end.applied;
            self->as_of = end.revision;
            if (end.answered) {
                self->next = logic::queue::after_take(of.keys, self->what, *end.answered);
            }
        } catch (const error& e) {
            in_doubt = e.code() == errc::outcome_unknown;
            self->failure = std::current_exception();
        } catch (...) {
            self->failure = std::current_exception();
        }
        if (!in_doubt) {
            writer.reset();
        }
        self->over = true;
        self->changed.notify_all();
        if (in_doubt) { // the caller is told so, and gets the item no more
            auto settling = was_applied(self, *writer);
            const std::optional<bool> told = co_await std::move(settling);
            writer.reset();
            self->taken = told.value_or(false); // rather lost than there twice
        }
        self->is_known_ = true;
        if (self->dropped_) {
            co_await put_back(self);
        }
    }

    /// Nobody gets the item: it is put back in the background, if it was taken.
    static void drop(const std::shared_ptr<item_taking>& self) noexcept {
        self->dropped_ = true;
        if (self->is_known_) {
            try {
                spawn(self->of->session().world, put_back(self));
            } catch (const std::bad_alloc&) {
                // It is lost, as with a consumer that dies.
            }
        }
    }

private:
    void on_loss() override { changed.notify_all(); }

    static asio::awaitable<void> put_back(std::shared_ptr<item_taking> self) {
        const named_queue& of = *self->of;
        for (unsigned failures = 0; self->taken && of.session().alive(); ++failures) {
            if (failures != 0) {
                co_await pause(self, failures - 1);
            }
            once_writer writer(of.about.session, of.beside, of.about.title);
            bool in_doubt = false;
            try {
                txn request = logic::queue::put_back(of.keys, self->what);
                (void)co_await writer.apply(
                    std::move(request), once_writer::form::plain, of.until(time_point::max()));
                self->taken = false;
            } catch (const error& e) {
                in_doubt = e.code() == errc::outcome_unknown;
            }
            if (in_doubt) {
                auto settling = was_applied(self, writer);
                const std::optional<bool> told = co_await std::move(settling);
                self->taken = !told.value_or(true); // rather lost than there twice
            }
        }
    }

    /// Asks what became of a write that etcd has not told of, until it does.
    /// @returns Whether it was applied; nothing if that cannot be known.
    static asio::awaitable<std::optional<bool>> was_applied(std::shared_ptr<item_taking> self,
                                                            once_writer& writer) {
        const named_queue& of = *self->of;
        for (unsigned failures = 0; of.session().alive(); ++failures) {
            co_await pause(self, failures);
            try {
                auto settling = writer.settle(of.until(time_point::max()));
                const std::optional<bool> told = co_await std::move(settling);
                co_return told;
            } catch (const error&) {
                // It is asked again.
            }
        }
        co_return std::nullopt;
    }
    static asio::awaitable<void> pause(std::shared_ptr<item_taking> self, unsigned failures) {
        constexpr std::chrono::milliseconds first{50};
        constexpr std::chrono::seconds longest{5};
        env& world = self->of->session().world;
        const auto moment = logic::backoff(failures, world.random(), first, longest);
        co_await sleep_until(world, after(world.now(), moment));
    }

    bool is_known_ = false; ///< Whether the item was taken.
    bool dropped_ = false;
    const loss_source::subscription losses_;
};

/// The state that a public queue shares with the operations under way on it.
class queue_impl {
public:
    queue_impl(const char* word,
               std::shared_ptr<session_impl> s,
               std::string n,
               logic::queue::order by)
        : of(std::make_shared<named_queue>(word, std::move(s), std::move(n), by))
        , turns_(of->session().world)
        , line_name_(of->beside + ".line") {}

    const std::shared_ptr<const named_queue> of;

    /// @param prefix What the keys of the items begin with.
    static asio::awaitable<void>
    append(std::shared_ptr<queue_impl> self, std::string prefix, std::vector<std::string> values) {
        const named_queue& of = *self->of;
        const call_terms in_time = of.about.within();
        once_writer writer(of.about.session, of.beside, of.about.title);
        std::int64_t revision = self->newest_;
        bool appended = false;
        for (unsigned tries = 0; !appended; ++tries) {
            const std::string order = logic::order_of(revision, of.session().world.random());
            std::optional<compare> only_if;
            if (tries == 0) {
                only_if = logic::nothing_from(prefix, order);
            } else if (tries <= most_refusals) { // then those items are of another etcd
                only_if = logic::queue::nothing_far_after(prefix, revision);
            }
            txn what = logic::queue::append(prefix, order, values, only_if);
            const once_end end =
                co_await writer.apply(std::move(what), once_writer::form::plain, in_time);
            appended = end.applied;
            self->newest_ = std::max(self->newest_, end.revision);
            revision = end.revision; // all items that were there are from before
        }
    }

    using taken = std::shared_ptr<item_taking>; ///< Null: nothing was to be had.

    static asio::awaitable<taken> try_take(std::shared_ptr<queue_impl> self) {
        const time_point deadline = self->of->about.within().deadline;
        self->of->session().require_alive(self->of->about.title);
        auto taking = take_if_any(self, std::nullopt, deadline);
        const taken item = co_await std::move(taking);
        co_return item;
    }
    /// @returns Null if the deadline came first, and etcd has answered something before.
    static asio::awaitable<taken> take(std::shared_ptr<queue_impl> self, time_point deadline) {
        auto taking = take_or_wait(self, deadline);
        auto in_time =
            null_if_late(self->of->session().world, std::move(taking), deadline, self->answers_);
        const taken item = co_await std::move(in_time);
        co_return item;
    }

    static asio::awaitable<std::int64_t> size(std::shared_ptr<queue_impl> self) {
        range_options count;
        count.count_only = true;
        const range_request question(key_range::prefix(self->of->keys.items()), count);
        const outcome<range_response> a =
            co_await call(self->of->about.session->owner, question, self->of->about.within());
        a.check();
        co_return a.response.count;
    }

private:
    /// How often a consumer that does not stand in line is beaten by others before it does.
    static constexpr unsigned most_races = 3;
    static constexpr unsigned no_limit = ~0U;
    /// How often items are not appended because there are some that are ordered far after them.
    static constexpr unsigned most_refusals = 3;

    call_terms until(time_point deadline) const {
        call_terms how = of->until(deadline);
        how.wanted = &alive_;
        return how.as(impact::none);
    }
    /// @throws error if a request failed.
    void check(const answer& a) {
        of->session().require_alive(of->about.title);
        if (a.ec) {
            throw error(a.ec, of->about.title + ": " + a.text);
        }
        ++answers_;
    }

    static asio::awaitable<taken> take_or_wait(std::shared_ptr<queue_impl> self,
                                               time_point deadline) {
        self->of->session().require_alive(self->of->about.title);
        auto taking = take_if_any(self, std::nullopt, deadline, most_races);
        taken item = co_await std::move(taking);
        if (!item) {
            auto waiting = wait_in_line(self, deadline);
            item = co_await std::move(waiting);
        }
        co_return item;
    }

    struct looked {
        logic::queue::next_item next;
        std::int64_t revision = 0;
        time_point sent{};
    };
    asio::awaitable<looked> look(time_point deadline) {
        const logic::queue::scope all = logic::queue::everything(of->keys);
        txn question = txn().then(logic::queue::ask_first(of->keys, all));
        const outcome<txn_response> a = co_await ask_anew(
            of->about.session->owner, std::move(question), until(deadline), told_);
        check(a);
        looked now;
        now.next = logic::queue::first_in(of->keys, all, a.response, 0);
        now.revision = a.response.header.revision;
        now.sent = a.sent;
        co_return now;
    }

    /// Takes the first item.
    /// @param first The item that may be it.
    /// @param races How often to try.
    /// @returns Null if there is none, or others were faster each time.
    static asio::awaitable<taken> take_if_any(std::shared_ptr<queue_impl> self,
                                              std::optional<logic::queue::item> first,
                                              time_point deadline,
                                              unsigned races = no_limit) {
        const auto until_the_end = co_await self->turns_.take_until(deadline);
        if (!until_the_end) {
            throw error(errc::timed_out, self->of->about.title + ": behind other calls");
        }
        if (!first) {
            first = std::exchange(self->next_, std::nullopt);
        }
        for (unsigned tries = 0; tries != races; ++tries) {
            if (!first) {
                auto looking = self->look(deadline);
                looked now = co_await std::move(looking);
                first = std::move(now.next.first);
            }
            if (!first) {
                break;
            }
            auto taking = self->request(std::move(*first), deadline);
            taken item = co_await std::move(taking);
            if (item->taken) {
                if (self->of->keys.by == logic::queue::order::arrival) {
                    self->next_ = item->next.first;
                } // else there may be one of higher priority by then
                co_return item;
            }
            if (item->next.is_known && !item->next.first) {
                break;
            }
            first = item->next.first;
        }
        co_return nullptr;
    }

    /// Unless the item is handed over, it is put back.
    struct requested {
        taken item;
        bool is_wanted = false;
        ~requested() {
            if (!is_wanted) {
                item_taking::drop(item);
            }
        }
    };
    /// Waits for the answer beyond the deadline of a call, which may have taken the item.
    asio::awaitable<taken> request(logic::queue::item what, time_point of_call) {
        env& world = of->session().world;
        const time_point deadline = std::max(of_call, of->about.within().deadline);
        auto made = make_at_home<item_taking>(of->session().owner->world, of, std::move(what));
        requested now{std::move(made)};
        spawn(world, item_taking::run(now.item));
        while (!now.item->over) {
            if (!of->session().alive()) {
                throw error(errc::outcome_unknown,
                            of->about.title +
                                ": an item may be lost: " + describe(of->session().reason()));
            }
            if (world.now() >= deadline) {
                throw error(errc::timed_out, of->about.title + ": no answer");
            }
            const time_point next = std::min(deadline, of->session().certain_until());
            (void)co_await now.item->changed.wait(next);
        }
        if (now.item->failure) {
            std::rethrow_exception(now.item->failure);
        }
        ++answers_;
        told_.heed(now.item->as_of);
        now.is_wanted = true;
        co_return now.item;
    }

    /// Waits behind other consumers, and then for an item.
    static asio::awaitable<taken> wait_in_line(std::shared_ptr<queue_impl> self,
                                               time_point deadline) {
        const named_queue& of = *self->of;
        auto waiting = place_wait::lock(
            of.about.session, dequeuers_line, one_name(self->line_name_, dequeuers_line), deadline);
        const std::shared_ptr<place> line = co_await std::move(waiting);
        if (!line) {
            co_return nullptr;
        }
        logic::queue::signs told(of.keys);
        vigil watching(of.about.session, line->changed);
        std::vector<key_range> all;
        all.push_back(key_range::prefix(of.keys.items()));
        watching.watch_ahead(
            all, [&told](const std::vector<event>& changes) { return told.heed(changes); });
        const logic::queue::scope everything = logic::queue::everything(of.keys);
        const std::function<txn()> ask = [&] {
            return txn().then(logic::queue::ask_first(of.keys, everything));
        };
        const std::function<bool(const txn_response&)> has_item = [&](const txn_response& shown) {
            return logic::queue::first_in(of.keys, everything, shown, 0).first.has_value();
        };
        for (;;) {
            const std::int64_t known = told.newest();
            self->told_.heed(known);
            auto looking = self->look(deadline);
            looked now = co_await std::move(looking);
            if (now.revision < known) {
                told.forget(); // etcd was restored from a snapshot
            }
            bool is_told = false;
            if (!now.next.first && !told.has_newer(now.revision)) {
                (void)told.take_first(); // it was taken meanwhile
                watching.wait_for_signs(now.revision + 1, now.sent);
                auto wait = watching.until_moved(ask, has_item, deadline);
                const vigil::end how = co_await std::move(wait);
                of.session().require_alive(of.about.title);
                if (how == vigil::end::failed) {
                    throw error(watching.failure, of.about.title + ": " + watching.failure_text);
                }
                if (how == vigil::end::late) {
                    co_return nullptr;
                }
                is_told = how == vigil::end::told;
            }
            std::optional<logic::queue::item> first = told.take_first();
            if (now.next.first || !is_told) { // else an earlier one may have been missed
                first = std::move(now.next.first);
            }
            if (first) {
                auto taking = take_if_any(self, std::move(first), deadline);
                const taken item = co_await std::move(taking);
                if (item) {
                    co_return item;
                }
            }
        }
    }

    const std::function<bool()> alive_ = [s = of->about.session] { return s->alive(); };
    turns turns_; // to ask for the first item: several at once would only beat each other
    std::optional<logic::queue::item> next_; // the first item, as we were told last
    std::int64_t newest_ = 0;                // a revision after which we have appended nothing
    newest_told told_;                       // by reads of the items, and by requests to take one
    std::uint64_t answers_ = 0;              // that we have had
    const std::string line_name_;
};

} // namespace coetcd::detail
