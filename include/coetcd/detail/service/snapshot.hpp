// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/endpoint.hpp>
#include <coetcd/detail/logic/login.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/logic/snapshot.hpp>
#include <coetcd/detail/net/new_file.hpp>
#include <coetcd/detail/rpc.hpp>
#include <coetcd/detail/service/administration.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/detail/service/router.hpp>
#include <coetcd/detail/wire/cluster.hpp>
#include <coetcd/detail/wire/maintenance.hpp>
#include <coetcd/detail/wire/status.hpp>
#include <coetcd/error.hpp>

#include <boost/asio/error.hpp>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace coetcd::detail {

/// A stream that is closed once nothing has come for a while.
class patient_stream {
public:
    patient_stream(std::shared_ptr<env> world,
                   std::unique_ptr<stream> opened,
                   std::chrono::nanoseconds patience)
        : state_(std::make_shared<state>(std::move(world), std::move(opened), patience)) {
        spawn(*state_->world, attend(state_));
    }
    patient_stream(const patient_stream&) = delete;
    patient_stream& operator=(const patient_stream&) = delete;
    ~patient_stream() {
        state_->over = true;
        state_->channel->close();
        state_->ended.notify_all();
    }

    /// `errc::timed_out` if nothing came.
    asio::awaitable<reply> read() {
        const std::shared_ptr<state> s = state_;
        reply r = co_await s->channel->read();
        ++s->messages;
        if (r.ec && s->silent) {
            r.ec = errc::timed_out;
        }
        co_return r;
    }

private:
    struct state {
        state(std::shared_ptr<env> w, std::unique_ptr<stream> c, std::chrono::nanoseconds p)
            : world(std::move(w))
            , channel(std::move(c))
            , patience(p)
            , ended(*world) {}
        const std::shared_ptr<env> world;
        const std::unique_ptr<stream> channel;
        const std::chrono::nanoseconds patience;
        notifier ended;
        std::uint64_t messages = 0;
        bool over = false;
        bool silent = false;
    };

    static asio::awaitable<void> attend(std::shared_ptr<state> s) {
        while (!s->over) {
            const std::uint64_t messages = s->messages;
            const std::uint64_t bytes = s->channel->received();
            const bool ended = co_await s->ended.wait(after(s->world->now(), s->patience));
            if (!ended && messages == s->messages && bytes == s->channel->received()) {
                s->silent = true;
                s->channel->close();
                co_return;
            }
        }
    }

    const std::shared_ptr<state> state_;
};

/// What a snapshot needs besides its client.
struct snapshot_order {
    logic::endpoint from;
    std::filesystem::path file;
    std::chrono::nanoseconds patience;
    /// Told how many bytes have come, and how many there will be; may be empty.
    std::function<void(std::uint64_t received, std::uint64_t total)> progress;
};

struct taken_snapshot {
    std::uint64_t size = 0;
    std::string sha256;
    std::string version;
};

/// The error that a user is to see.
inline error
snapshot_failed(const error_code& ec, const std::string& text, const logic::endpoint& from) {
    return error(ec, "snapshot: " + text + ", on " + from.text() + "; the file was not touched");
}

/// Reads the next piece.
/// @returns Nothing at the end.
inline std::optional<wire::snapshot_piece> snapshot_piece_in(const reply& r,
                                                             const logic::endpoint& from) {
    if (r.ec == asio::error::eof) {
        return std::nullopt;
    }
    if (r.ec == errc::timed_out) {
        throw snapshot_failed(r.ec, "nothing came for too long", from);
    }
    if (r.ec == errc::too_large || r.ec == errc::protocol_error) {
        throw snapshot_failed(r.ec, r.ec.message(), from);
    }
    if (r.ec) {
        throw snapshot_failed(errc::unavailable, "the connection broke: " + r.ec.message(), from);
    }
    std::optional<wire::status> bad;
    if (r.status == 200 || r.status == 0) {
        try {
            auto message = wire::decode_snapshot(r.body);
            if (auto* piece = std::get_if<wire::snapshot_piece>(&message)) {
                return std::move(*piece);
            }
            bad = std::get<wire::status>(std::move(message));
        } catch (const error& e) {
            throw snapshot_failed(e.code(), logic::words_of(e), from);
        }
    } else {
        bad = wire::decode_status(r.status, r.body);
    }
    throw snapshot_failed(logic::code_of(*bad), bad->message, from);
}

/// Whether etcd refuses the token, or wants one.
inline bool refuses_token(const reply& r) {
    if (r.ec || r.status == 0) {
        return false;
    }
    const wire::status s = wire::decode_status(r.status == 200 ? 500 : r.status, r.body);
    return logic::wants_token(s);
}

inline asio::awaitable<taken_snapshot>
take_snapshot(std::shared_ptr<client_impl> by, call_terms how, snapshot_order order) {
    // A snapshot does not say which cluster it is of; a status does.
    auto asking = ask_as_admin(by, wire::status_request(), how, order.from);
    (void)co_await std::move(asking);
    const std::shared_ptr<env> world = by->world;
    net::new_file file(order.file, world->random());
    logic::snapshot_check check;
    taken_snapshot taken;
    for (int logins = 0;;) {
        authorization who = co_await by->cluster_router->authorize(how);
        if (who.ec) {
            throw error(who.ec, "snapshot: " + who.text);
        }
        call_request request(order.from, rpc::snapshot, "{}", time_point::max());
        request.patience = order.patience;
        request.how = sending::once;
        request.token = std::move(who.token);
        open_result opened = co_await world->open(std::move(request));
        if (opened.ec == asio::error::operation_aborted) {
            throw_aborted();
        }
        if (opened.ec) {
            const error_code ec = opened.ec == errc::tls_failed ? opened.ec : errc::unavailable;
            throw snapshot_failed(ec, opened.ec.message() + opened.text, order.from);
        }
        patient_stream channel(world, std::move(opened.opened), order.patience);
        bool refused = false;
        for (;;) {
            const reply r = co_await channel.read();
            if (r.ec == asio::error::operation_aborted) {
                throw_aborted();
            }
            refused = check.received() == 0 && logins == 0 && by->cluster_router->logs_in() &&
                      refuses_token(r);
            if (refused) {
                break;
            }
            std::optional<wire::snapshot_piece> piece = snapshot_piece_in(r, order.from);
            if (!piece) {
                break;
            }
            check.add(piece->bytes, piece->remaining);
            taken.version = std::move(piece->version);
            file.write(piece->bytes);
            if (order.progress) {
                order.progress(check.received(), check.total());
            }
        }
        if (!refused) {
            break;
        }
        ++logins;
        by->cluster_router->rejected(who.number);
    }
    using ending = logic::snapshot_check::ending;
    const ending end = check.finish();
    if (end != ending::whole) {
        const errc why = end == ending::broke_off ? errc::unavailable : errc::corrupt_snapshot;
        throw snapshot_failed(why, check.text(end), order.from);
    }
    file.commit();
    taken.size = check.received();
    taken.sha256 = check.digest();
    co_return taken;
}

} // namespace coetcd::detail
