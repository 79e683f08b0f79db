// SPDX-License-Identifier: BSL-1.0
#include "support/scripted_env.hpp"

#include <coetcd/testing.hpp> // what is defined of it

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/execution_context.hpp>

#include <exception>
#include <stdexcept>
#include <utility>

namespace support {

namespace asio = boost::asio;
using namespace coetcd::detail;

/// What waits in a context ends with it, as Asio's timers do.
class scripted_env::tenancy final : public asio::execution_context::service {
public:
    using key_type = tenancy;
    static inline asio::execution_context::id id;

    explicit tenancy(asio::execution_context& context)
        : service(context) {}

    scripted_env* tenant = nullptr;

private:
    void shutdown() override {
        // This may be the last reference to it. Newer Asio comes here twice.
        scripted_env* const last = std::exchange(tenant, nullptr);
        if (const auto keep = last ? last->weak_from_this().lock() : nullptr) {
            keep->tenancy_ = nullptr;
            keep->shut_down();
        }
    }
};

namespace {

testing::world::options options_of_script() {
    testing::world::options o;
    o.members = 1;
    o.progress_interval = std::chrono::hours(100'000);
    o.sync_interval = std::chrono::nanoseconds(0);
    o.in_order = true;
    return o;
}

} // namespace

scripted_env::scripted_env(asio::io_context& where)
    : world(42, options_of_script())
    , home_(add_process(&where))
    , tenancy_(&asio::use_service<tenancy>(where)) {
    tenancy_->tenant = this;
    store.batch = 1; // so that some history takes several messages
    on_call = [this](const call_request& request, reply& r) {
        store_of(request).expire();
        if (!renews && request.what == rpc::lease_keep_alive) {
            r.status = 503;
            r.body =
                R"({"error":"etcdserver: no leader","message":"etcdserver: no leader","code":14})";
            return;
        }
        answer a = world::serve(0, request, {});
        r.status = a.status;
        r.body = std::move(a.body);
    };
    on_open = [this](const call_request& request, std::shared_ptr<server_stream> from) {
        if (request.how == sending::duplex && duplex == way::refused) {
            reply no;
            no.status = 411;
            no.body = "<html><title>411 Length Required</title></html>";
            from->push(std::move(no));
        }
        if (request.how != sending::duplex || duplex == way::direct) {
            store_of(request).expire();
            world::accept(from, request);
        }
    };
    on_message = [this](std::shared_ptr<server_stream> from, const std::string& messages) {
        if (from->server != 0) {
            from->with->expire();
            world::hear(*from, messages);
        }
    };
}

scripted_env::~scripted_env() {
    if (tenancy_ && tenancy_->tenant == this) {
        tenancy_->tenant = nullptr;
    }
    shut_down();
}

asio::awaitable<reply> scripted_env::call(call_request request) {
    calls.push_back(request);
    return home_->call(std::move(request));
}

asio::awaitable<open_result> scripted_env::open(call_request request) {
    return home_->open(std::move(request));
}

scripted_env::world_fate scripted_env::judge(process&, const call_request& what) {
    odd_.erase(&what);
    const fate f = decide ? decide(what) : fate();
    world_fate result;
    result.refused = f.refused;
    result.there = f.refused ? std::chrono::nanoseconds(0) : latency() + f.late;
    result.lost = !f.arrives;
    result.answer_lost = !f.answered || f.breaks;
    if (f.breaks) {
        result.breaks = round_trip;
    }
    return result;
}

scripted_env::world_fate scripted_env::judge_stream(process&, const call_request& what) {
    opened.push_back(what.how);
    const fate f = decide ? decide(what) : fate();
    world_fate result;
    result.refused = f.refused;
    result.lost = !f.arrives;
    return result;
}

scripted_env::answer scripted_env::serve(int, const call_request& what, answer) {
    reply r;
    r.status = 200;
    on_call(what, r);
    answer result;
    result.status = r.status;
    result.body = r.body;
    if (r.ec || r.departed) {
        odd_[&what] = std::move(r);
    }
    return result;
}

reply scripted_env::receive(const call_request& what, const answer& a) {
    if (const auto odd = odd_.extract(&what)) {
        return std::move(odd.mapped());
    }
    return world::receive(what, a);
}

void scripted_env::accept(const std::shared_ptr<server_stream>& from, const call_request& what) {
    streams_.push_back(from);
    from->accepted = true;
    on_open(what, from);
}

void scripted_env::hear(server_stream& from, const std::string& messages) {
    on_message(from.shared_from_this(), messages);
}

void scripted_env::closed(server_stream& from) {
    if (from.server != 0) {
        world::closed(from);
    }
}

void scripted_env::break_streams() {
    for (const auto& weak : std::exchange(streams_, {})) {
        if (const auto s = weak.lock()) {
            s->drop();
        }
    }
}

void scripted_env::at(time_point when, std::function<void()> fire) {
    world::at(home_->to_world(when), std::move(fire));
}

void scripted_env::run(asio::awaitable<void> body) {
    const auto settle = [this] { pass(std::chrono::nanoseconds(0)); };
    bool ended = false;
    std::exception_ptr failure;
    asio::co_spawn(executor(), std::move(body), [&](std::exception_ptr e) {
        failure = e;
        ended = true;
    });
    const std::chrono::nanoseconds limit = world::now() + std::chrono::hours(1);
    settle();
    while (!ended) {
        if (world::now() > limit || !step()) {
            throw std::runtime_error("scripted_env: the body waits for what never comes");
        }
        settle();
    }
    if (failure) {
        std::rethrow_exception(failure);
    }
}

} // namespace support
