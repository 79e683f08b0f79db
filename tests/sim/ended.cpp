// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/detail/recipe/place.hpp>
#include <coetcd/detail/testing/chance.hpp>
#include <coetcd/detail/testing/world.hpp>
#include <coetcd/election.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>
#include <coetcd/shared_mutex.hpp>
#include <coetcd/value.hpp>
#include <coetcd/watch.hpp>

#include <boost/asio/co_spawn.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/stories.hpp"
#include "sim/story.hpp"

namespace sim {

namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;
namespace asio = boost::asio;
namespace in_memory = coetcd::detail::testing;
using in_memory::chance;
using in_memory::process;

/// One client has what watches serve: a lock, of either kind, that is watched while it is held, a
/// wait for a lock, a feed of leaders, one of a value, a watch. Another client, and an operator,
/// change what they are about.
class service {
public:
    service(std::uint64_t seed, in_memory::world::options o)
        : w_(chance::derive(seed, 61), o)
        , luck_(chance::derive(seed, 62))
        , members_(o.members)
        , home_(w_.add_process())
        , others_(w_.add_process())
        , has_user_(luck_.one_in(2)) {
        coetcd::client_options options;
        if (has_user_) {
            options.credentials.emplace("root", std::string("secret"));
            options.insecure_plain_text_credentials = true;
            w_.store.require_user("root", "secret");
        }
        client_.emplace(client_of_all(home_, members_, options));
        other_client_.emplace(client_of_all(others_, members_, options));
    }
    ~service() { w_.shut_down(); }
    service(const service&) = delete;
    service& operator=(const service&) = delete;

    std::string run() {
        begin(others_, live());
        while (w_.failure().empty() && !finished_ && w_.step()) {
            if (w_.now() > 3000s) {
                w_.fail("no progress although watches are begun again");
            }
        }
        std::string failure = w_.failure();
        session_.reset();
        other_session_.reset();
        watcher_.reset();
        leaders_.reset();
        values_.reset();
        client_.reset();
        other_client_.reset();
        w_.shut_down();
        return failure;
    }

private:
    /// From what etcd ends a watch to the next change that it tells, and so from a change. A
    /// client without a watch finds out after 10 s and more.
    static constexpr std::chrono::seconds bound{3};

    void begin(const std::shared_ptr<process>& where, asio::awaitable<void> work) {
        auto at_end = [this](std::exception_ptr failure) {
            try {
                if (failure) {
                    std::rethrow_exception(failure);
                }
            } catch (const std::exception& e) {
                if (!finished_) {
                    w_.fail(std::string("what a watch serves fails: ") + e.what());
                }
            }
        };
        asio::co_spawn(where->executor(), std::move(work), std::move(at_end));
    }
    coetcd::session_options how() const { return coetcd::session_options(60s); }

    asio::awaitable<void> live() {
        coetcd::session theirs = co_await coetcd::session::open(*other_client_, how());
        other_session_.emplace(std::move(theirs));
        begin(home_, open());
        while (!session_) {
            (void)co_await others_->sleep(10ms);
        }
        begin(home_, hold());
        begin(home_, follow_leaders());
        begin(home_, follow_value());
        begin(home_, watch());
        coetcd::election office(*other_session_, "lock/office");
        const coetcd::leadership term = co_await office.campaign("0");
        coetcd::value value(*other_session_, "value/0");
        coetcd::mutex taken(*other_session_, "lock/taken");
        co_await taken.lock();
        begin(home_, wait());
        for (int round = luck_.between(3, 8); round != 0; --round) {
            co_await until_all_serve();
            (void)co_await others_->sleep(luck_.skewed(500ms, 3s));
            end_watches();
            if (luck_.one_in(2)) {
                (void)co_await others_->sleep(luck_.skewed(0ms, 2s));
            }
            const std::string next = std::to_string(++changes_);
            switch (luck_.below(5)) {
            case 0:
                w_.store.erase(held_keys_[luck_.below(held_keys_.size())]);
                held_keys_.clear();
                co_await until_told("a lock that is watched",
                                    [this] { return !held_keys_.empty(); });
                break;
            case 1:
                co_await term.proclaim(next);
                co_await until_told("a feed of leaders", [&] { return leader_ == next; });
                break;
            case 2:
                (void)co_await value.set(next);
                co_await until_told("a feed of a value", [&] { return value_ == next; });
                break;
            case 3:
                w_.store.write("data/0", next);
                co_await until_told("a watch", [&] { return data_ == next; });
                break;
            default:
                (void)co_await taken.unlock();
                co_await until_told("who waits for a lock", [this] { return turns_ == given_; });
                co_await taken.lock();
                ++given_;
            }
        }
        finished_ = true;
    }
    template<class Condition>
    asio::awaitable<void> until_told(const char* who, Condition is_told) {
        const nanoseconds began = w_.now();
        while (!is_told()) {
            if (w_.now() > began + bound) {
                w_.fail(std::string("etcd has ended a watch, and what it serves is not told: ") +
                        who);
            }
            (void)co_await others_->sleep(5ms);
        }
    }
    asio::awaitable<void> until_all_serve() {
        while (held_keys_.empty() || !waits_) {
            (void)co_await others_->sleep(5ms);
        }
    }

    void end_watches() {
        for (int n = luck_.between(1, 2); n != 0; --n) {
            if (has_user_ && luck_.one_in(2)) {
                w_.store.expire_tokens();
            }
            const bool compacts = luck_.one_in(2);
            for (int m = 0; m != members_; ++m) {
                w_.store.end_streams(m, luck_.one_in(2));
            }
            if (compacts) {
                w_.store.write("filler", "1");
                w_.store.write("data/0", data_);
                w_.store.write("filler", "2");
                w_.store.compact(w_.store.revision);
            }
        }
    }

    asio::awaitable<void> open() {
        coetcd::session made = co_await coetcd::session::open(*client_, how());
        session_.emplace(std::move(made));
    }
    asio::awaitable<void> hold() {
        coetcd::lock_options watched;
        watched.watch_while_held = true;
        coetcd::shared_mutex_options also_watched;
        also_watched.watch_while_held = true;
        while (!finished_) {
            coetcd::mutex m(*session_, "lock/held", watched);
            coetcd::shared_mutex s(*session_, "lock/shared", also_watched);
            const bool is_shared = luck_.one_in(2), begins_reading = luck_.one_in(2);
            asio::awaitable<coetcd::held_lock> taking;
            if (!is_shared) {
                taking = m.scoped_lock();
            } else if (begins_reading) {
                taking = s.scoped_lock_shared();
            } else {
                taking = s.scoped_lock();
            }
            coetcd::held_lock l = co_await std::move(taking);
            if (is_shared && luck_.one_in(2)) { // some change again and again
                co_await change_mode(l, luck_.between(1, 3));
            }
            held_keys_.clear();
            for (const auto& life : coetcd::detail::access::held(l)->held_by()) {
                held_keys_.push_back(life.key);
            }
            (void)co_await l.wait_lost();
        }
    }
    asio::awaitable<void> change_mode(coetcd::held_lock& l, int times) {
        for (; times != 0; --times) {
            if (l.mode() == coetcd::lock_mode::exclusive) {
                co_await l.downgrade();
                continue;
            }
            (void)co_await l.try_upgrade(); // what is left of the last hold may be in the way
        }
    }
    asio::awaitable<void> follow_leaders() {
        leaders_.emplace(coetcd::observe(*client_, "lock/office"));
        while (!finished_) {
            const std::optional<coetcd::leader> now = co_await leaders_->next();
            leader_ = now ? now->value : "";
        }
    }
    asio::awaitable<void> follow_value() {
        coetcd::value v(*session_, "value/0");
        values_.emplace(v.changes());
        while (!finished_) {
            const std::optional<coetcd::key_value> now = co_await values_->next();
            value_ = now ? now->value : "";
        }
    }
    asio::awaitable<void> watch() {
        std::int64_t start = 0;
        while (!finished_) {
            try {
                coetcd::watch_options from;
                from.start_revision = start;
                coetcd::key_range data("data/");
                data.range_end = "data0";
                coetcd::watcher made = co_await client_->watch(std::move(data), from);
                watcher_.emplace(std::move(made));
                for (;;) {
                    const coetcd::watch_batch batch = co_await watcher_->next();
                    for (const coetcd::event& e : batch.events) {
                        data_ = e.kv.value;
                    }
                }
            } catch (const coetcd::compacted_error& e) {
                start = e.compact_revision();
            }
        }
    }
    asio::awaitable<void> wait() {
        coetcd::mutex m(*session_, "lock/taken");
        while (!finished_) {
            waits_ = true;
            co_await m.lock();
            waits_ = false;
            turns_ = given_;
            (void)co_await m.unlock();
            while (turns_ == given_ && !finished_) {
                (void)co_await home_->sleep(1ms);
            }
        }
    }

    in_memory::world w_;
    chance luck_;
    const int members_;
    const std::shared_ptr<process> home_;
    const std::shared_ptr<process> others_;
    const bool has_user_;
    std::optional<coetcd::client> client_;
    std::optional<coetcd::client> other_client_;
    std::optional<coetcd::session> session_;
    std::optional<coetcd::session> other_session_;
    std::optional<coetcd::watcher> watcher_;
    std::optional<coetcd::leader_feed> leaders_;
    std::optional<coetcd::value_feed> values_;
    bool finished_ = false;
    bool waits_ = false;
    int changes_ = 0;
    int given_ = 1; ///< How often the lock that is waited for was given back, and once more.
    int turns_ = 0; ///< When it was taken the last time.
    std::vector<std::string> held_keys_; ///< Any of them is to be missed at once.
    std::string leader_;
    std::string value_;
    std::string data_;
};

} // namespace

std::string serve_again(std::uint64_t seed) {
    in_memory::world::options o;
    chance luck(chance::derive(seed, 63));
    o.members = luck.one_in(2) ? 1 : 3;
    o.speaks = luck.one_in(2) ? in_memory::dialect::v1 : in_memory::dialect::v2;
    service s(seed, o);
    return s.run();
}

} // namespace sim
