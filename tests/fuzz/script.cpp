// SPDX-License-Identifier: BSL-1.0
// A lock that is really used, by two sessions, while each byte decides the fate of one request or
// what is done next. When the bytes are over nothing fails any more, and everything must finish.
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/fuzz.hpp"
#include "support/world.hpp"

using namespace std::chrono_literals;
namespace asio = boost::asio;
using coetcd::detail::call_request;
using coetcd::detail::reply;
using support::background;
using support::scripted_env;
using support::world;

namespace {

class script {
public:
    script(const std::uint8_t* data, std::size_t size)
        : at_(data)
        , end_(data + size) {}
    bool over() const { return at_ == end_; }
    std::uint8_t next() { return over() ? std::uint8_t{0} : *at_++; }

private:
    const std::uint8_t* at_;
    const std::uint8_t* const end_;
};

/// A client with one lock, whose ownership is checked against all others.
class contender {
public:
    explicit contender(world& w)
        : world_(w)
        , client_(w.client()) {}

    contender* other = nullptr;

    /// Does nothing while it does something.
    void act(std::uint8_t what) {
        if (work_ && !work_->ended()) {
            if (what % 4 == 0) {
                work_->cancel();
            }
            return;
        }
        inside_ = false;
        work_.emplace(world_.start(run(what)));
    }
    bool idle() const { return !work_ || work_->ended(); }
    bool owns() const { return inside_ && mutex_->owns_lock(); }

private:
    asio::awaitable<void> run(std::uint8_t what) {
        if (!session_ || session_->state() == coetcd::session_state::lost) {
            mutex_.reset();
            session_.reset();
            session_.emplace(co_await coetcd::session::open(client_, 5s));
            mutex_.emplace(*session_, "n");
        }
        bool got = true;
        if (what % 3 == 0) {
            co_await mutex_->lock();
        } else if (what % 3 == 1) {
            got = co_await mutex_->try_lock();
        } else {
            got = co_await mutex_->try_lock_for(3s);
        }
        if (!got) {
            co_return;
        }
        coetcd::held_lock held(*mutex_, std::adopt_lock); // given back whatever happens
        // Ownerships that are certain never overlap: no clock of this world is wrong.
        inside_ = true;
        fuzz::require(!owns() || !other->owns());
        coetcd::txn guarded = coetcd::txn().when(held.is_owner()).then(coetcd::op::range("x"));
        (void)co_await client_.txn(std::move(guarded));
        inside_ = false;
        (void)co_await held.unlock();
    }

    world& world_;
    coetcd::client client_;
    std::optional<coetcd::session> session_;
    std::optional<coetcd::mutex> mutex_;
    std::optional<background<void>> work_;
    bool inside_ = false; // between the lock and the end of its use
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    script bytes(data, size);
    world w;
    const auto serve = w.env->on_call;
    w.env->decide = [&](const call_request&) {
        scripted_env::fate f;
        const std::uint8_t b = bytes.next();
        switch (b % 8) {
        case 1:
            f.arrives = false;
            break;
        case 2:
            f.answered = false;
            break;
        case 3:
            f.breaks = true;
            break;
        case 4:
            f.refused = true;
            break;
        case 5:
            f.late = std::chrono::milliseconds(b * 8);
            break;
        default:
            break;
        }
        return f;
    };
    w.env->on_call = [&](const call_request& q, reply& r) {
        const std::uint8_t b = bytes.next();
        if (b == 2) { // etcd says so before it does anything
            r.status = 503;
            r.body = R"({"code":14,"message":"etcdserver: no leader"})";
            return;
        }
        serve(q, r);
        switch (b) {
        case 1:
            r.body = r.body.substr(0, r.body.size() / 2);
            break;
        case 3:
            r.status = 504;
            r.body = R"({"code":4,"message":"context deadline exceeded"})";
            break;
        case 4:
            r.body = "{}";
            break;
        case 5:
            r.status = 502;
            r.body = "<html>";
            break;
        default:
            break;
        }
    };
    const auto eventually = [&](auto condition) {
        for (int s = 0; s < 120 && !condition(); ++s) {
            w.env->pass(500ms);
        }
        fuzz::require(condition());
    };
    {
        contender a(w);
        contender b(w);
        a.other = &b;
        b.other = &a;
        for (int steps = 0; !bytes.over() && steps < 200; ++steps) {
            const std::uint8_t what = bytes.next();
            switch (what % 8) {
            case 0:
                w.env->pass(1ms);
                break;
            case 1:
            case 2:
                a.act(what / 8);
                break;
            case 3:
            case 4:
                b.act(what / 8);
                break;
            case 5:
                w.env->pass(std::chrono::milliseconds(what * 4));
                break;
            case 6:
                w.env->break_streams();
                break;
            case 7:
                w.env->stall(std::chrono::milliseconds(what * 8));
                break;
            }
        }
        while (!bytes.over()) {
            (void)bytes.next();
        }
        // From here on all is well.
        const auto both_idle = [&] { return a.idle() && b.idle(); };
        eventually(both_idle);
        a.act(0);
        b.act(0);
        eventually(both_idle);
    }
    eventually([&] { return w.etcd->under("n/").empty(); });
    return 0;
}
