// SPDX-License-Identifier: BSL-1.0
#include "support/fake_etcd.hpp"

#include <utility>

namespace support {

using coetcd::detail::call_request;
using coetcd::detail::reply;
using coetcd::detail::rpc;
using coetcd::detail::sending;

fake_etcd::fake_etcd(std::shared_ptr<scripted_env> world)
    : etcd([w = world.get()] { return w->now().time_since_epoch(); })
    , world_(std::move(world)) {
    batch = 1; // so that some history takes several messages
    world_->on_call = [this](const call_request& request, reply& r) { serve(request, r); };
    world_->on_open = [this](const call_request& request,
                             std::shared_ptr<scripted_env::server_stream> from) {
        if (request.how == sending::duplex && duplex == way::refused) {
            reply no;
            no.status = 411;
            no.body = "<html><title>411 Length Required</title></html>";
            world_->push(from, std::move(no));
        }
        if (request.how == sending::duplex && duplex != way::direct) {
            return;
        }
        auto* const key = from.get();
        listener to;
        to.on_line = [this, from](std::string line) { world_->push(from, std::move(line)); };
        streams_[key] = open(0, std::move(to), request.token);
        from->on_close = [this, key] {
            close(streams_.at(key));
            streams_.erase(key);
        };
        hear(from, request.body);
    };
    world_->on_message = [this](std::shared_ptr<scripted_env::server_stream> from,
                                const std::string& lines) {
        if (duplex == way::direct) {
            hear(from, lines);
        }
    };
}

void fake_etcd::serve(const call_request& request, reply& r) {
    expire();
    if (!renews && request.what == rpc::lease_keep_alive) {
        r.status = 503;
        r.body = R"({"error":"etcdserver: no leader","message":"etcdserver: no leader","code":14})";
        return;
    }
    answer a = call(0, request.what, request.body, request.token);
    r.status = a.status;
    r.body = std::move(a.body);
}

void fake_etcd::hear(const std::shared_ptr<scripted_env::server_stream>& from,
                     const std::string& lines) {
    expire();
    if (const auto known = streams_.find(from.get()); known != streams_.end()) {
        listen(known->second, lines);
        while (has_unsynced()) {
            sync();
        }
    }
}

} // namespace support
