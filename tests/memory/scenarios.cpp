// SPDX-License-Identifier: BSL-1.0
#include <coetcd/election.hpp>
#include <coetcd/semaphore.hpp>
#include <coetcd/shared_mutex.hpp>
#include <coetcd/watch.hpp>

#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <stdexcept>
#include <string>
#include <vector>

#include "memory/stage.hpp"

namespace memory {

namespace {

/// Of scenarios with more than the lock of the stage.
struct extras {
    std::optional<coetcd::mutex> second;
    std::optional<coetcd::held_lock> held;
    std::optional<coetcd::semaphore> semaphore;
    std::optional<coetcd::election> election;
    std::optional<coetcd::session> session;
    std::optional<coetcd::shared_mutex> shared;
    std::optional<coetcd::watcher> watcher;
    std::optional<coetcd::client> client;
    int told = 0;
    std::string key;
    std::shared_ptr<operation> running;
    bool cancelled = false;
};
extras more;

/// What is called while it lasts is not called at home, if so.
class elsewhere {
public:
    elsewhere(stage& s, bool away)
        : s_(s) {
        s_.world.env->away = away;
    }
    ~elsewhere() { s_.world.env->away = false; }
    elsewhere(const elsewhere&) = delete;
    elsewhere& operator=(const elsewhere&) = delete;

private:
    stage& s_;
};

asio::awaitable<void> lock(coetcd::mutex* m) {
    co_await m->lock();
}
asio::awaitable<void> put_some(coetcd::client by) {
    (void)co_await by.put("a", "1");
    (void)co_await by.get("a");
    (void)co_await by.erase("a");
}
asio::awaitable<void> unlock(coetcd::mutex* m) {
    const bool was_ours = co_await m->unlock();
    if (!was_ours) {
        throw std::runtime_error("it was not ours");
    }
}
asio::awaitable<void> hold(coetcd::mutex* m) {
    more.held.emplace(co_await m->scoped_lock());
}
asio::awaitable<void> nothing() {
    co_return;
}
asio::awaitable<void> lock_again_and_again(coetcd::mutex* m) {
    for (int i = 0; i != 3; ++i) {
        co_await coetcd::with_lock(*m, &nothing);
    }
}
asio::awaitable<void> take_permits(coetcd::semaphore* of) {
    coetcd::permit some = co_await of->acquire(2);
    (void)co_await some.release();
}
asio::awaitable<void> lead(coetcd::election* of) {
    coetcd::leadership term = co_await of->campaign("me");
    co_await term.proclaim("still me");
    (void)co_await term.resign();
}

asio::awaitable<void> for_ever(const coetcd::held_lock& held) {
    more.key = held.key();
    boost::asio::steady_timer never(co_await asio::this_coro::executor,
                                    std::chrono::steady_clock::time_point::max());
    co_await never.async_wait(asio::use_awaitable);
}
asio::awaitable<void> go_on_reading(coetcd::shared_mutex* of) {
    coetcd::held_lock held = co_await of->scoped_lock();
    co_await held.downgrade();
    (void)co_await held.unlock();
}
asio::awaitable<void> watch(coetcd::client* of, std::size_t buffer) {
    coetcd::watch_options options;
    options.buffer = buffer;
    more.watcher.emplace(co_await of->watch(coetcd::key_range::prefix("news/"), options));
}
/// Each event once, and in order.
asio::awaitable<void> read_news(int last) {
    while (more.told != last) {
        const coetcd::watch_batch batch = co_await more.watcher->next();
        for (const coetcd::event& e : batch.events) {
            if (e.kv.key != "news/" + std::to_string(++more.told)) {
                throw std::logic_error("an event is missing");
            }
        }
    }
}
asio::awaitable<void> open_another(coetcd::client* of) {
    more.session.emplace(co_await coetcd::session::open(*of));
}

verdict until_ended(stage& s, const std::shared_ptr<operation>& op) {
    const bool ended = s.until([&] { return op->ended(); });
    scarce::enough();
    if (!ended) {
        return "it never ends";
    }
    return op->dropped && s.escaped == 0 ? "it is not told, and `run` did not throw" : "";
}
verdict until_locked(stage& s, const std::shared_ptr<operation>& op) {
    verdict wrong = until_ended(s, op);
    if (wrong.empty() && op->succeeded() && s.is_alive() && !s.mutex->owns_lock()) {
        wrong = "it has succeeded, but we do not own it";
    }
    return wrong;
}

void take(stage& s) {
    s.must([&] { return lock(&*s.mutex); });
}

std::vector<scenario> make() {
    const auto nothing_first = [](stage&) {};
    const auto no_check = [](stage&) { return verdict(); };
    std::vector<scenario> all;
    all.push_back(
        {"lock",
         nothing_first,
         [](stage& s) { return until_locked(s, s.start([&] { return lock(&*s.mutex); })); },
         no_check});
    // While others have it: soon handed over, or late, when it watches its own key, too.
    for (const bool soon : {true, false}) {
        all.push_back({soon ? "wait" : "wait_long",
                       [](stage& s) { s.put_key_of_others(); },
                       [soon](stage& s) {
                           const auto op = s.start([&] { return lock(&*s.mutex); });
                           s.pass(soon ? 50ms : 600ms);
                           s.erase_key_of_others();
                           return until_locked(s, op);
                       },
                       no_check});
    }
    // Within a session.
    all.push_back({"hand_over",
                   [](stage& s) {
                       more.second.emplace(*s.session, stage::name);
                       s.must([] { return lock(&*more.second); });
                       more.running = s.start([&] { return lock(&*s.mutex); });
                       s.pass(30ms);
                   },
                   [](stage& s) {
                       const auto op = s.start([] { return unlock(&*more.second); });
                       const bool ended = s.until([&] { return op->ended(); });
                       if (ended && more.second->owns_lock()) { // it was not even called
                           s.call([] { more.second.reset(); });
                       }
                       return ended ? until_locked(s, more.running) : "unlock never ends";
                   },
                   [](stage&) {
                       more.second.reset();
                       return verdict();
                   }});
    all.push_back(
        {"unlock",
         take,
         [](stage& s) { return until_ended(s, s.start([&] { return unlock(&*s.mutex); })); },
         no_check});
    all.push_back({"drop",
                   [](stage& s) { s.must([&] { return hold(&*s.mutex); }); },
                   [](stage& s) {
                       s.call([] { more.held.reset(); });
                       s.pass(200ms);
                       scarce::enough();
                       return verdict();
                   },
                   no_check});
    all.push_back({"cancel",
                   [](stage& s) {
                       s.put_key_of_others();
                       more.running = s.start([&] { return lock(&*s.mutex); });
                       s.pass(60ms);
                   },
                   [](stage& s) {
                       s.call([] { more.running->stop.emit(asio::cancellation_type::terminal); });
                       s.pass(200ms);
                       scarce::enough();
                       // One that could not be passed on is made once more.
                       s.call([] { more.running->stop.emit(asio::cancellation_type::terminal); });
                       return until_ended(s, more.running);
                   },
                   [](stage& s) {
                       s.erase_key_of_others();
                       return verdict();
                   }});
    all.push_back({"with_lock",
                   nothing_first,
                   [](stage& s) {
                       return until_ended(
                           s, s.start([&] { return coetcd::with_lock(*s.mutex, &nothing); }));
                   },
                   no_check});
    // Its session keeps it, has it again, and gives it back at last.
    all.push_back({"retain",
                   [](stage& s) {
                       coetcd::lock_options how;
                       how.retain = std::chrono::milliseconds(100);
                       more.second.emplace(*s.session, stage::name, how);
                   },
                   [](stage& s) {
                       const auto op = s.start([] { return lock_again_and_again(&*more.second); });
                       const bool ended = s.until([&] { return op->ended(); });
                       s.pass(400ms);
                       return ended ? until_ended(s, op) : "it never ends";
                   },
                   [](stage&) {
                       more.second.reset();
                       return verdict();
                   }});
    for (const bool away : {false, true}) { // from elsewhere it begins later
        all.push_back({away ? "close_away" : "close",
                       take,
                       [away](stage& s) {
                           more.running = s.start([&s, away] {
                               const elsewhere there(s, away);
                               return s.session->close();
                           });
                           return until_ended(s, more.running);
                       },
                       [](stage& s) {
                           const bool failed = bool(more.running->failure);
                           more.running.reset();
                           return failed || !s.world.etcd->has_lease(s.session->lease())
                                      ? verdict()
                                      : "close() says that the lease has ended, and it lives";
                       }});
    }
    all.push_back({"combined_calls",
                   [](stage& s) {
                       coetcd::client_options options;
                       options.combine_calls = true;
                       more.client.emplace(s.world.client(options));
                       s.must([] { return put_some(*more.client); });
                   },
                   [](stage& s) {
                       const auto first = s.start([] { return put_some(*more.client); });
                       const auto second = s.start([] { return put_some(*more.client); });
                       const verdict wrong = until_ended(s, first);
                       return wrong.empty() ? until_ended(s, second) : wrong;
                   },
                   [](stage& s) {
                       const auto op = s.start([] { return put_some(*more.client); });
                       const bool works = s.until([&] { return op->ended(); }, 20s) && !op->failure;
                       more.client.reset();
                       return works ? verdict() : "no call is made any more";
                   }});
    all.push_back({"acquire",
                   [](stage& s) { more.semaphore.emplace(*s.session, "permits", 2); },
                   [](stage& s) {
                       return until_ended(s,
                                          s.start([] { return take_permits(&*more.semaphore); }));
                   },
                   [](stage& s) {
                       verdict wrong;
                       if (s.is_alive()) {
                           const auto op = s.start([] { return take_permits(&*more.semaphore); });
                           if (!s.until([&] { return op->ended(); }, 20s) || op->failure) {
                               wrong = "permits are not to be had again";
                           }
                       }
                       more.semaphore.reset();
                       return wrong;
                   }});
    all.push_back(
        {"campaign",
         [](stage& s) { more.election.emplace(*s.session, "leader"); },
         [](stage& s) { return until_ended(s, s.start([] { return lead(&*more.election); })); },
         [](stage& s) {
             verdict wrong;
             if (s.is_alive()) {
                 const auto op = s.start([] { return lead(&*more.election); });
                 if (!s.until([&] { return op->ended(); }, 20s) || op->failure) {
                     wrong = "it cannot be led again";
                 }
             }
             more.election.reset();
             return wrong;
         }});
    // Three renewals, and a look at what is held.
    all.push_back({"renew",
                   take,
                   [](stage& s) {
                       s.pass(65s);
                       scarce::enough();
                       return verdict();
                   },
                   no_check});
    // The session is lost under a body, which is to be cancelled.
    all.push_back({"lose",
                   [](stage& s) {
                       more.running =
                           s.start([&] { return coetcd::with_lock(*s.mutex, &for_ever); });
                       s.pass(100ms);
                   },
                   [](stage& s) {
                       s.revoke_lease();
                       return until_ended(s, more.running);
                   },
                   no_check});
    // Its key is deleted by hand; the look with a renewal notices, or a watch at once.
    for (const bool watched : {false, true}) {
        all.push_back({watched ? "erase_watched" : "erase",
                       [watched](stage& s) {
                           coetcd::lock_options options;
                           options.watch_while_held = watched;
                           s.mutex.emplace(*s.session, stage::name, options);
                           more.running =
                               s.start([&] { return coetcd::with_lock(*s.mutex, &for_ever); });
                           s.pass(100ms);
                       },
                       [](stage& s) {
                           s.erase(more.key);
                           return until_ended(s, more.running);
                       },
                       no_check});
    }
    all.push_back({"downgrade",
                   [](stage& s) { more.shared.emplace(*s.session, "shared"); },
                   [](stage& s) {
                       return until_ended(s, s.start([] { return go_on_reading(&*more.shared); }));
                   },
                   [](stage& s) {
                       verdict wrong;
                       if (s.is_alive()) {
                           const auto op = s.start([] { return go_on_reading(&*more.shared); });
                           if (!s.until([&] { return op->ended(); }, 20s) || op->failure) {
                               wrong = "it is not to be had again";
                           }
                       }
                       more.shared.reset();
                       return wrong;
                   }});
    // Its user is slow at first: so it has streams of its own.
    for (const bool apart : {false, true}) {
        const int last = apart ? 4 : 3;
        all.push_back({apart ? "watch_apart" : "watch",
                       [apart](stage& s) {
                           const std::size_t buffer = apart ? 1 : coetcd::watch_options().buffer;
                           s.must([&] { return watch(&s.client, buffer); });
                           if (apart) {
                               s.put("news/1");
                               s.pass(20ms);
                           }
                       },
                       [last](stage& s) {
                           const auto op = s.start([last] { return read_news(last); });
                           for (int i = last - 2; i <= last; ++i) {
                               s.put("news/" + std::to_string(i));
                               s.pass(20ms);
                           }
                           s.until([&] { return op->ended(); }, 30s);
                           scarce::enough();
                           // A reader that was not told reads on.
                           if (!op->succeeded()) {
                               more.running = s.start([last] { return read_news(last); });
                               s.until([&] { return more.running->ended(); }, 30s);
                           }
                           const auto& reads = op->succeeded() ? op : more.running;
                           if (!reads->ended()) {
                               return verdict("the watch is silent");
                           }
                           try {
                               if (reads->failure) {
                                   std::rethrow_exception(reads->failure);
                               }
                           } catch (const std::logic_error& e) {
                               return verdict(e.what());
                           } catch (const std::exception&) {
                               // It was told.
                           }
                           return verdict();
                       },
                       [](stage&) {
                           more.watcher.reset();
                           return verdict();
                       }});
    }
    all.push_back({"open",
                   [](stage&) {},
                   [](stage& s) {
                       const verdict wrong =
                           until_ended(s, s.start([&] { return open_another(&s.client); }));
                       // A lease that is not held is given back, and does not last.
                       s.pass(70s);
                       return wrong;
                   },
                   [](stage& s) {
                       more.session.reset();
                       s.pass(5s);
                       const std::size_t left = s.world.etcd->leases();
                       return left <= 1 ? verdict() : "there are leases that nobody has";
                   }});
    return all;
}

} // namespace

const std::vector<scenario>& scenarios() {
    static const std::vector<scenario> all = make();
    return all;
}

} // namespace memory
