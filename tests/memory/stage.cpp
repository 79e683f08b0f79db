// SPDX-License-Identifier: BSL-1.0
#include "memory/stage.hpp"

#include <coetcd/detail/rpc.hpp>
#include <coetcd/detail/wire/encode.hpp>
#include <coetcd/detail/wire/requests.hpp>

#include <stdexcept>

namespace memory {

namespace {

support::world* there = nullptr;

/// What runs in the client's event loop, and is not of the world around it.
bool is_of_client() {
    return there->context->get_executor().running_in_this_thread() && !there->env->is_own_doing();
}

/// A handler that knows whether it was called.
class handler {
public:
    explicit handler(std::shared_ptr<operation> of)
        : state_(std::make_shared<state>(std::move(of))) {}
    void operator()(std::exception_ptr failure) const {
        state_->of->called = true;
        state_->of->failure = std::move(failure);
    }

private:
    struct state {
        explicit state(std::shared_ptr<operation> o)
            : of(std::move(o)) {}
        state(const state&) = delete;
        state& operator=(const state&) = delete;
        ~state() { of->dropped = !of->called; }
        std::shared_ptr<operation> of;
    };
    std::shared_ptr<state> state_;
};

asio::awaitable<void> wait_for_end(coetcd::session* of) {
    (void)co_await of->wait_lost();
}

asio::awaitable<void> open(coetcd::client* client, std::optional<coetcd::session>* into) {
    coetcd::session_options options;
    options.ttl = 60s;
    into->emplace(co_await coetcd::session::open(*client, options));
}

asio::awaitable<void> lock_and_unlock(coetcd::mutex* m) {
    co_await m->lock();
    co_await m->unlock();
}

asio::awaitable<void> try_lock(coetcd::mutex* m, std::chrono::nanoseconds patience) {
    const bool taken = co_await m->try_lock_for(patience);
    if (!taken) {
        throw std::runtime_error("it is not to be had");
    }
    co_await m->unlock();
}

const std::string key_of_others = "jobs/5e55104-a";

} // namespace

const std::string stage::name = "jobs";

stage::stage()
    : client(world.client()) {
    there = &world;
    scarce::counts = &is_of_client;
    must([this] { return open(&client, &session); });
    mutex.emplace(*session, name);
    // Connections and watches are there.
    coetcd::mutex another(*session, "warm");
    must([&another] { return lock_and_unlock(&another); });
    lost = start([this] { return wait_for_end(&*session); });
}

bool stage::until(const std::function<bool()>& done, std::chrono::nanoseconds most) {
    const auto begin = world.env->now();
    while (!done()) {
        const auto waited = world.env->now() - begin;
        if (waited >= most) {
            return false;
        }
        pass(waited < 1s ? 1ms : 20ms);
    }
    return true;
}

void stage::pass(std::chrono::nanoseconds time) {
    const auto end = world.env->now() + time;
    do {
        try {
            world.env->pass(end - world.env->now());
        } catch (const std::exception&) {
            ++escaped;
        }
    } while (world.env->now() < end);
}

std::shared_ptr<operation> stage::start(std::function<asio::awaitable<void>()> make) {
    auto op = std::make_shared<operation>();
    asio::post(*world.context, [this, op, make = std::move(make)] {
        try {
            asio::awaitable<void> work = make();
            asio::co_spawn(*world.context,
                           std::move(work),
                           asio::bind_cancellation_slot(op->stop.slot(), handler(op)));
        } catch (...) {
            op->called = true; // it was told
            op->dropped = false;
            op->failure = std::current_exception();
        }
    });
    return op;
}

void stage::call(std::function<void()> f) {
    asio::post(*world.context, [this, f = std::move(f)] {
        try {
            f();
        } catch (const std::exception&) {
            ++escaped;
        }
    });
}

void stage::must(std::function<asio::awaitable<void>()> make) {
    const auto op = start(std::move(make));
    if (!until([op] { return op->ended(); })) {
        throw std::runtime_error("it never ends");
    }
    if (op->failure) {
        std::rethrow_exception(op->failure);
    }
}

void stage::put(const std::string& key) {
    const coetcd::put_request request(key, "somebody");
    (void)world.etcd->call(0, coetcd::detail::rpc::put, coetcd::detail::wire::encode(request));
}

void stage::erase(const std::string& key) {
    const coetcd::erase_request request(key);
    (void)world.etcd->call(
        0, coetcd::detail::rpc::delete_range, coetcd::detail::wire::encode(request));
}

void stage::put_key_of_others() {
    put(key_of_others);
}

void stage::erase_key_of_others() {
    erase(key_of_others);
}

void stage::revoke_lease() {
    const coetcd::detail::wire::lease_revoke_request request{session->lease()};
    (void)world.etcd->call(
        0, coetcd::detail::rpc::lease_revoke, coetcd::detail::wire::encode(request));
}

verdict look_back(stage& s) {
    const auto ends = [&](const char* what, std::function<asio::awaitable<void>()> make) {
        const auto op = s.start(std::move(make));
        if (!s.until([op] { return op->ended(); })) {
            return what + std::string(": never ends");
        }
        try {
            if (op->failure) {
                std::rethrow_exception(op->failure);
            }
        } catch (const std::exception& e) {
            return what + std::string(": ") + e.what();
        }
        return std::string();
    };
    verdict wrong;
    const auto note = [&wrong](const std::string& what) {
        if (!what.empty()) {
            wrong += (wrong.empty() ? "" : "; ") + what;
        }
    };
    if (s.mutex->owns_lock()) {
        note(ends("unlock afterwards", [&]() -> asio::awaitable<void> {
            auto give = [](coetcd::mutex* m) -> asio::awaitable<void> { co_await m->unlock(); };
            return give(&*s.mutex);
        }));
    }
    // Those of others. What a lost session has left ends with its lease.
    const bool alive = s.is_alive();
    coetcd::client another = s.world.client();
    std::optional<coetcd::session> session;
    note(ends("session of others", [&] { return open(&another, &session); }));
    if (session) {
        coetcd::mutex theirs(*session, stage::name);
        const auto patience = alive ? 5s : 70s;
        note(ends(alive ? "the lock of others, while the session lives" : "the lock of others",
                  [&] { return try_lock(&theirs, patience); }));
        const verdict again = ends("again", [&] { return try_lock(&*s.mutex, 10s); });
        if (alive && s.is_alive()) { // else it was told of the end meanwhile
            note(again);
        }
        note(ends("close of others", [&] { return session->close(); }));
    }
    note(ends("close", [&] { return s.session->close(); }));
    if (!s.until([&] { return s.lost->ended(); }, 1min)) {
        note("the waiter for the end of the session is not told");
    }
    s.mutex.reset();
    s.session.reset();
    session.reset();
    s.pass(3min);
    s.client = coetcd::client(another);
    s.pass(1min);
    if (const std::size_t left = s.world.env->processes().front()->waiting(); left != 0) {
        note(std::to_string(left) + " coroutines still wait");
    }
    return wrong;
}

} // namespace memory
