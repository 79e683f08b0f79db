// A flash sale: several processes with many coroutines each sell a stock of N items under a lock.
// In the middle of it one process is stopped for longer than its lock lasts, while it is selling,
// and then continues; later another one is killed, while it is selling.
//
// The sale takes place twice: with the lock that one writes in an afternoon (a key with a lease,
// check, write), and with coetcd::mutex and a guarded transaction. Every sale leaves a receipt in
// etcd; the receipts are counted. The first lock sells items twice, the second one sells exactly N.
//
// Run: flash_sale [http://127.0.0.1:2379]
// Exit code 0 if it came out that way.
//
// This file is how the items are sold. stage.hpp starts, stops and kills the processes.
#include <coetcd.hpp>

#include <boost/asio.hpp>

#include <chrono>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <unistd.h>

#include "stage.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

constexpr int items = 60;
constexpr int customers = 12; // of each process
constexpr auto ttl = 2s;

/// The keys of one run.
struct keys {
    explicit keys(const std::string& run)
        : stock("stock/" + run)
        , sales("sales/" + run + "/")
        , lock("locks/" + run) {}
    std::string stock; // how many items are left
    std::string sales; // + one key for each sale: the receipts are the truth
    std::string lock;
};

// --- A process that sells -------------------------------------------------------------------

/// What the coroutines of one process share.
class shop {
public:
    shop(coetcd::client c, std::string own_name, const std::string& run)
        : client(std::move(c))
        , name(std::move(own_name))
        , key(run)
        , script(client.get_executor()) {}

    coetcd::client client;
    const std::string name;
    const keys key;
    stage::script script;
    bool sold_out = false;

    std::string next_receipt() {
        return key.sales + name + "-" + std::to_string(::getpid()) + "-" +
               std::to_string(++receipts_);
    }

    void tell(const std::string& kind, const std::string& text) const {
        stage::report(name, kind, text);
    }

    asio::awaitable<int> read_stock() {
        const auto found = co_await client.get(key.stock);
        co_return std::stoi(found.value().value);
    }

    /// The part of a sale that takes time. On demand it stops here, so that the process can be
    /// frozen or killed at the worst moment: after the check, before the write.
    asio::awaitable<void> charge_the_card(int stock) {
        asio::steady_timer takes_a_while(client.get_executor(), 3ms);
        co_await takes_a_while.async_wait(asio::use_awaitable);
        if (script.holds()) {
            tell("inside", "has read stock " + std::to_string(stock) + ", is selling");
            co_await script.wait_for_cue();
        }
    }

private:
    int receipts_ = 0;
};

/// Runs many coroutines and waits for all of them.
class crowd {
public:
    explicit crowd(asio::any_io_executor executor)
        : all_left_(executor, asio::steady_timer::time_point::max()) {}

    void add(asio::awaitable<void> member) {
        ++present_;
        asio::co_spawn(
            all_left_.get_executor(), std::move(member), [this](std::exception_ptr failure) {
                if (failure) {
                    failure_ = failure;
                }
                if (--present_ == 0) {
                    all_left_.cancel();
                }
            });
    }

    asio::awaitable<void> leave() {
        while (present_ > 0) {
            boost::system::error_code cancelled;
            co_await all_left_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
        }
        if (failure_) {
            std::rethrow_exception(failure_);
        }
    }

private:
    asio::steady_timer all_left_;
    int present_ = 0;
    std::exception_ptr failure_;
};

// --- The naive way --------------------------------------------------------------------------

/// Creates the lock key with a lease, if there is none. That is all: the lock of a dead process
/// does not block the others for ever.
asio::awaitable<bool> try_naive_lock(shop& s) {
    const auto taken = co_await s.client.get(s.key.lock);
    if (taken) {
        co_return false;
    }
    const coetcd::lease_grant_response lease = co_await s.client.lease_grant(ttl);
    coetcd::put_options leased;
    leased.lease = lease.id;
    coetcd::txn create = coetcd::txn()
                             .when(coetcd::compare::version(s.key.lock) == 0)
                             .then(coetcd::op::put(s.key.lock, s.name, leased));
    try {
        const coetcd::txn_response answer = co_await s.client.txn(std::move(create));
        co_return answer.succeeded; // if not, the lease ends by itself
    } catch (const coetcd::error& e) {
        if (e.code() != coetcd::server_errc::not_found) { // the process was stopped: no such lease
            throw;
        }
    }
    co_return false;
}

asio::awaitable<void> take_naive_lock(shop& s, int customer) {
    asio::steady_timer pause(s.client.get_executor());
    bool taken = co_await try_naive_lock(s);
    while (!taken) {
        pause.expires_after(20ms + customer * 3ms);
        co_await pause.async_wait(asio::use_awaitable);
        taken = co_await try_naive_lock(s);
    }
}

asio::awaitable<void> naive_customer(shop& s, int customer) {
    while (!s.sold_out) {
        co_await take_naive_lock(s, customer);
        s.tell("acquired", "gets the lock");

        const int stock = co_await s.read_stock();
        s.sold_out = stock == 0;
        if (stock > 0) {
            co_await s.charge_the_card(stock);
            co_await s.client.put(s.key.stock, std::to_string(stock - 1));
            co_await s.client.put(s.next_receipt(), std::to_string(stock));
            s.tell("sold",
                   "sells item " + std::to_string(stock) + ", writes stock " +
                       std::to_string(stock - 1));
        }

        coetcd::erase_options tell;
        tell.prev_kv = true;
        const auto erased = co_await s.client.erase(s.key.lock, tell);
        for (const coetcd::key_value& lock : erased.prev_kvs) {
            if (lock.value != s.name) {
                s.tell("freed", "unlocks, and that is the lock of " + lock.value);
            }
        }
    }
}

asio::awaitable<void> sell_naively(shop& s) {
    crowd all(s.client.get_executor());
    for (int customer = 0; customer < customers; ++customer) {
        all.add(naive_customer(s, customer));
    }
    co_await all.leave();
}

// --- With coetcd ----------------------------------------------------------------------------

asio::awaitable<void> guarded_customer(shop& s, const coetcd::session& session) {
    try {
        coetcd::mutex mutex(session, s.key.lock);
        while (!s.sold_out) {
            coetcd::held_lock held = co_await mutex.scoped_lock();
            const std::string token = std::to_string(held.fencing_token());
            s.tell("acquired", "gets the lock, token " + token);

            const int stock = co_await s.read_stock();
            s.sold_out = stock == 0;
            if (stock > 0) {
                co_await s.charge_the_card(stock);
                coetcd::txn sale =
                    coetcd::txn()
                        .when(held.is_owner())
                        .then(coetcd::op::put(s.key.stock, std::to_string(stock - 1)),
                              coetcd::op::put(s.next_receipt(), std::to_string(stock)));
                const coetcd::txn_response answer = co_await s.client.txn(std::move(sale));
                if (answer.succeeded) {
                    s.tell("sold",
                           "sells item " + std::to_string(stock) + ", writes stock " +
                               std::to_string(stock - 1));
                } else {
                    s.tell("refused", "etcd refuses its sale: token " + token + " is over");
                }
            }
            co_await held.unlock();
        }
    } catch (const coetcd::error& e) {
        if (e.code() != coetcd::condition::ownership_lost) {
            throw;
        }
    }
}

asio::awaitable<void> sell_guarded(shop& s) {
    while (!s.sold_out) {
        const coetcd::session_options options(ttl, s.name);
        coetcd::session session = co_await coetcd::session::open(s.client, options);
        crowd all(s.client.get_executor());
        for (int customer = 0; customer < customers; ++customer) {
            all.add(guarded_customer(s, session));
        }
        co_await all.leave(); // all is sold, or else the session is lost and a new one is needed
        co_await session.close();
    }
}

/// flash_sale --process URL KIND RUN NAME
int sell(const std::string& url,
         const std::string& kind,
         const std::string& run,
         const std::string& name) {
    asio::io_context context;
    shop s(coetcd::client(context.get_executor(), url), name, run);
    auto work = [&]() -> asio::awaitable<void> {
        const bool naive = kind == "naive";
        s.tell("ready", "");
        co_await s.script.wait_for_cue();
        auto selling = naive ? sell_naively(s) : sell_guarded(s);
        co_await std::move(selling);
        s.script.close();
    };
    const auto at_end = [](std::exception_ptr failure) {
        if (failure) {
            std::rethrow_exception(failure);
        }
    };
    asio::co_spawn(context, s.script.follow(), at_end);
    asio::co_spawn(context, work(), at_end);
    context.run();
    return 0;
}

// --- The story ------------------------------------------------------------------------------

/// Runs one conversation with etcd to its end.
template<class Result>
Result ask(const std::string& url,
           std::function<asio::awaitable<Result>(coetcd::client)> conversation) {
    asio::io_context context;
    auto question = conversation(coetcd::client(context.get_executor(), url));
    auto answer = asio::co_spawn(context, std::move(question), asio::use_future);
    context.run();
    return answer.get();
}

struct result {
    int receipts = 0;
    int sold_twice = 0; // items with more than one receipt
    int stock = 0;
    int refused = 0;
};

asio::awaitable<result> count(coetcd::client client, keys key) {
    result r;
    const auto stock = co_await client.get(key.stock);
    r.stock = std::stoi(stock.value().value);
    const coetcd::range_response receipts =
        co_await client.range(coetcd::key_range::prefix(key.sales));
    r.receipts = static_cast<int>(receipts.count);
    std::map<std::string, int> times;
    for (const coetcd::key_value& receipt : receipts.kvs) {
        if (++times[receipt.value] == 2) {
            ++r.sold_twice;
        }
    }
    co_await client.erase(coetcd::key_range::prefix(key.sales));
    co_await client.erase(key.stock);
    co_return r;
}

asio::awaitable<void> fill_stock(coetcd::client client, keys key) {
    co_await client.put(key.stock, std::to_string(items));
}

/// Plays it once, and prints the time line.
result play(const std::string& url, const std::string& kind) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const std::string run =
        kind + "-" + std::to_string(now / 1us) + "-" + std::to_string(::getpid());
    const keys key(run);
    ask<void>(url, [&](coetcd::client c) { return fill_stock(c, key); });
    stage::company all({url, kind, run});
    all.begin();

    std::set<std::string> sales;
    const auto next = [&] {
        stage::event e = all.next();
        if (e.kind == "sold" && !sales.insert(e.text).second) {
            e.text += ", once more";
        }
        return e;
    };

    int sold = 0;
    while (sold < 8) {
        sold += next().kind == "sold" ? 1 : 0;
    }
    all.note("all three sell, 8 items so far");

    // One is stopped while it sells. It continues when others have sold.
    const stage::event victim = all.hold_one();
    all.note(victim.who, victim.text);
    all.stop(victim.who);
    all.note(victim.who, "SIGSTOP");
    all.go();
    for (sold = 0; sold < 3;) {
        const stage::event e = next();
        if (e.kind == "acquired" && sold == 0) {
            all.note(e.who, e.text + ": the lease of " + victim.who + " is over");
        } else if (e.kind == "sold") {
            all.note(e.who, e.text);
            ++sold;
        }
    }
    all.resume(victim.who);
    all.note(victim.who, "SIGCONT: it continues where it stood");
    int refused = 0;
    for (bool done = false; !done;) {
        const stage::event e = next();
        if (e.who == victim.who && (e.kind == "sold" || e.kind == "refused")) {
            all.note(e.who, e.text);
            refused += e.kind == "refused" ? 1 : 0;
            done = true;
        }
    }
    for (sold = 0; sold < 5;) {
        const stage::event e = next();
        if (e.kind == "freed") {
            all.note(e.who, e.text);
        }
        sold += e.kind == "sold" ? 1 : 0;
    }

    // Another one is killed while it sells.
    const stage::event dead = all.hold_one(victim.who);
    all.note(dead.who, dead.text);
    all.kill(dead.who);
    all.note(dead.who, "SIGKILL");
    all.go();
    for (bool done = false; !done;) {
        const stage::event e = next();
        if (e.kind == "acquired" && e.who != dead.who) {
            all.note(e.who, e.text);
            done = true;
        }
    }

    for (auto e = all.next_or_end(); e; e = all.next_or_end()) {
        refused += e->kind == "refused" ? 1 : 0;
    }
    if (!all.wait()) {
        throw std::runtime_error("a process failed");
    }
    all.note("sold out");
    result r = ask<result>(url, [&](coetcd::client c) { return count(c, key); });
    r.refused = refused;
    return r;
}

void print_row(const char* what, int naive, int guarded) {
    std::printf("  %-44s %10d   %13d\n", what, naive, guarded);
}

int compare(const std::string& url) {
    std::printf("%d items, 3 processes with %d customers each. First with a naive lock:\n"
                "a key with a lease of %d s; read the stock, sell, write the stock.\n\n",
                items,
                customers,
                static_cast<int>(ttl / 1s));
    const result naive = play(url, "naive");

    std::printf("\nThe same with coetcd::mutex, ttl %d s, each sale being one transaction\n"
                "that is applied only when(held.is_owner()).\n\n",
                static_cast<int>(ttl / 1s));
    const result guarded = play(url, "coetcd");

    std::printf("\n  %-44s %10s   %13s\n", "", "naive lock", "coetcd::mutex");
    print_row("items on sale", items, items);
    print_row("receipts in etcd", naive.receipts, guarded.receipts);
    print_row("items that were sold more than once", naive.sold_twice, guarded.sold_twice);
    print_row("stock in etcd at the end", naive.stock, guarded.stock);
    print_row("sales that etcd refused", naive.refused, guarded.refused);

    const bool oversold = naive.receipts > items && naive.sold_twice > 0;
    const bool exact = guarded.receipts == items && guarded.sold_twice == 0 && guarded.stock == 0 &&
                       guarded.refused > 0;
    std::printf("\n"
                "Both locks passed on when their holder stood still: no lock can know that it\n"
                "is not dead. The naive holder then went on with what it had read before. The\n"
                "other one did just the same, but its transaction names the ownership that it\n"
                "belongs to, and etcd knew that this one was over.\n\n"
                "naive lock: %s. coetcd::mutex: %s.\n",
                oversold ? "oversold" : "NOT OVERSOLD, which is not as expected",
                exact ? "sold exactly what there was" : "NOT AS EXPECTED");
    return oversold && exact ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) {
    try {
        if (argc == 6 && argv[1] == stage::process_flag) {
            stage::die_with_parent();
            return sell(argv[2], argv[3], argv[4], argv[5]);
        }
        return compare(argc > 1 ? argv[1] : "http://127.0.0.1:2379");
    } catch (const std::exception& e) {
        std::fprintf(stderr, "flash_sale: %s\n", e.what());
        return 1;
    }
}

// Prints:
//   60 items, 3 processes with 12 customers each. First with a naive lock:
//   ...
//     * s  * SIGSTOP
//   ...
//     * s  * SIGCONT: it continues where it stood
//   ...
//   The same with coetcd::mutex, ttl 2 s, each sale being one transaction
//   ...
//     * s  * SIGSTOP
//   ...
//     * s  * SIGCONT: it continues where it stood
//   ...
//     * s  * etcd refuses its sale: token * is over
//   ...
//                                                  naive lock   coetcd::mutex
//     items on sale                                        60              60
//     receipts in etcd                                     *              60
//     items that were sold more than once                  *               0
//   ...
//   naive lock: oversold. coetcd::mutex: sold exactly what there was.
