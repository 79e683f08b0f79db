// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/config.hpp>
#include <coetcd/detail/testing/link.hpp>
#include <coetcd/detail/testing/process.hpp>
#include <coetcd/detail/testing/world.hpp>
#include <coetcd/detail/wire/line_splitter.hpp>

#include <boost/asio/error.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

namespace coetcd::detail::testing {

/// A request under way.
struct process::exchange {
    exchange(process& p, call_request r, std::uint64_t number)
        : by(p)
        , sent{std::move(r), number}
        , done(std::make_shared<suspension>(p)) {}
    void end(error_code ec, bool was_sent) {
        if (!done->resumed()) {
            by.stir();
            result.ec = ec;
            result.sent = was_sent;
            done->resume();
        }
    }
    process& by;
    const world::letter sent;
    const std::shared_ptr<suspension> done;
    reply result;
};

/// Sends a request, and decides its fate.
COETCD_DECL std::shared_ptr<process::exchange> process::send(call_request r) {
    ++calls;
    const auto x = std::make_shared<exchange>(*this, std::move(r), ++in.last_letter_);
    const auto letter = std::shared_ptr<const world::letter>(x, &x->sent);
    const call_request* const request = &letter->request;
    in.note("call", number_, request->body);
    if (in.listening) {
        in.listening->sent(*this, letter->number, *request);
    }
    const fate f = in.judge(*this, *request);
    if (f.refused) {
        in.after(f.there, [x] { x->end(asio::error::connection_refused, false); });
    } else {
        const int to = in.member_of(*request);
        if (f.held_back) {
            in.hold_back(to, letter, *f.held_back);
        }
        if (f.breaks) {
            in.after(*f.breaks, [x] { x->end(asio::error::connection_reset, true); });
        }
        auto answered =
            [x, w = &in, lost = f.answer_lost, back = f.back, doubt = f.doubt](etcd::answer a) {
                if (lost) {
                    return;
                }
                if (doubt && a.status == 200) {
                    a = *doubt;
                }
                w->after(back + w->latency(), [x, a = std::move(a)] {
                    if (!x->done->resumed()) {
                        x->result = x->by.in.receive(x->sent.request, a);
                        x->end(x->result.ec, true);
                    }
                });
            };
        const auto nobody_listens = [](const etcd::answer&) {};
        if (f.instead && !f.lost) {
            if (f.passes_on) {
                in.send(f.there, to, letter, nobody_listens);
            }
            if (f.instead->status != 0) {
                in.after(f.there, [answered, a = *f.instead] { answered(a); });
            }
        } else if (f.later && !f.lost) {
            in.send(*f.later, to, letter, nobody_listens);
            in.after(f.there, [answered, doubt = *f.doubt] { answered(doubt); });
        } else if (f.again && !f.lost) {
            in.send(
                f.there, to, letter, [=, w = &in, behind = *f.again](const etcd::answer& first) {
                    // If the token has ended since, the second answer would say that nothing was
                    // done.
                    const bool done = first.status == 200;
                    w->send(behind, to, letter, [=](etcd::answer second) {
                        if (!done || second.status != 401) {
                            answered(std::move(second));
                        }
                    });
                });
        } else if (f.again || !f.lost) {
            in.send(f.there + f.again.value_or(nanoseconds(0)), to, letter, std::move(answered));
        }
    }
    in.at(to_world(request->deadline), [x] { x->end(errc::timed_out, true); });
    return x;
}

COETCD_DECL asio::awaitable<reply> process::call(call_request request) {
    if (crashed_) {
        (void)co_await suspension::wait(std::make_shared<suspension>(*this)); // for ever
    }
    const bool may_wait = request.way == connection_kind::shared; // others have enough
    if (in.options_.connections == 0 || !may_wait) {
        auto calling = call_at_once(std::move(request));
        co_return co_await std::move(calling);
    }
    reply result;
    std::string key = request.to.text();
    const auto is_alive = &spare_connection::is_alive; // g++ 12: no lambda in this function
    auto taking = net::take_place(
        *this, pool_, std::move(key), in.options_.connections, request, result, is_alive);
    net::pool<spare_connection>::loan place = co_await std::move(taking);
    if (!result.ec) {
        const time_point departed = now();
        auto calling = call_at_once(std::move(request));
        result = co_await std::move(calling);
        result.departed = departed;
        place.connection = result.ec ? nullptr : std::make_unique<spare_connection>();
    }
    co_return result;
}

COETCD_DECL asio::awaitable<reply> process::call_at_once(call_request request) {
    const std::shared_ptr<exchange> x = send(std::move(request));
    const error_code ec = co_await suspension::wait(x->done);
    if (ec) {
        x->result = reply();
        x->result.ec = ec;
        x->result.sent = true;
    }
    if (x->result.ec) {
        ++failed_calls;
    } else if (in.listening && x->result.status == 200) {
        in.listening->answered(x->sent.number);
    }
    in.note(x->result.ec ? "failed" : "answer", number_, x->result.body);
    co_return std::move(x->result);
}

// Streams.

COETCD_DECL link::link(process& by, int to, sending how)
    : member(to)
    , once(how == sending::once)
    , in_(by.in)
    , of_(by) {}

COETCD_DECL void link::arrive(reply message) {
    if (!over_) {
        of_.stir(true);
        if (in_.listening) {
            in_.listening->told(of_, message.body);
        }
        lines_.push_back(std::move(message));
        if (reader_) {
            reader_->resume();
        }
    }
}

COETCD_DECL void link::end(error_code ec) {
    if (!std::exchange(over_, true)) {
        why_ = ec;
        of_.stir();
        if (reader_) {
            reader_->resume();
        }
    }
}

// In order, whatever the latency is, and whatever chance decides at the same moment.
COETCD_DECL nanoseconds link::next(nanoseconds last) {
    const nanoseconds gap(in_.options_.in_order ? 0 : 1);
    return std::max({last + gap, in_.awake(member) + in_.latency(), in_.now()});
}

COETCD_DECL void link::push(std::string line) {
    reply message;
    message.sent = true;
    message.status = 200;
    message.body = std::move(line);
    push(std::move(message));
}

COETCD_DECL void link::push(reply message) {
    if (message.body.size() <= in_.piece || message.body.find('\n') != message.body.npos) {
        push_whole(std::move(message)); // several lines arrive at once
        return;
    }
    wire::line_splitter lines(message.body.size(), in_.piece);
    lines.feed(message.body);
    for (reply piece = message; lines.finish(piece.body);) {
        piece.more = lines.more();
        push_whole(piece);
    }
}

COETCD_DECL void link::push_whole(reply message) {
    if (silent_ || over_) {
        return;
    }
    switch (in_.judge_line(of_, once)) {
    case line_fate::swallowed:
        silent_ = true;
        return;
    case line_fate::broken:
        drop();
        return;
    case line_fate::arrives:
        break;
    }
    down_ = next(down_);
    in_.at(down_, [self = shared_from_this(), message = std::move(message)]() mutable {
        self->in_.note("line", self->of_.number(), message.body);
        std::istringstream lines(std::exchange(message.body, {}));
        while (std::getline(lines, message.body)) {
            self->arrive(message);
        }
    });
}

COETCD_DECL void link::drop() {
    silent_ = true;
    in_.after(in_.latency(), [self = shared_from_this()] { self->end(asio::error::eof); });
    close_at_server();
}

COETCD_DECL void link::close_at_server() {
    if (std::exchange(accepted, false)) {
        in_.after(in_.latency(), [self = shared_from_this()] { self->in_.closed(*self); });
    }
}

COETCD_DECL void link::send(std::string messages) {
    up_ = next(up_);
    in_.at(up_, [self = shared_from_this(), messages = std::move(messages)] {
        if (!self->silent_ && self->accepted) {
            self->in_.hear(*self, messages);
        }
    });
}

class process::client_stream final : public stream {
public:
    explicit client_stream(std::shared_ptr<link> l)
        : link_(std::move(l)) {}
    ~client_stream() override { close(); }

    asio::awaitable<error_code> write(std::string json, time_point) override {
        error_code ec;
        if (link_->over_) {
            ec = asio::error::broken_pipe;
            co_return ec;
        }
        link_->in_.note("write", link_->of_.number(), json);
        if (link_->in_.listening) {
            link_->in_.listening->sent_on_stream(link_->of_);
        }
        const std::shared_ptr<link> l = link_;
        const auto done = std::make_shared<suspension>(l->of_);
        l->in_.after(std::chrono::microseconds(1), [done] { done->resume(); });
        ec = co_await suspension::wait(done);
        if (!ec) {
            l->send(std::move(json));
        }
        co_return ec;
    }
    asio::awaitable<reply> read() override {
        const std::shared_ptr<link> l = link_;
        reply result;
        result.sent = true;
        if (l->lines_.empty() && !l->over_) {
            l->reader_ = std::make_shared<suspension>(l->of_);
            const error_code ec = co_await suspension::wait(l->reader_);
            l->reader_ = nullptr;
            if (ec) {
                result.ec = ec;
                co_return result;
            }
        }
        if (!l->lines_.empty()) {
            result = std::move(l->lines_.front());
            l->lines_.pop_front();
        } else {
            result.ec = l->why_;
        }
        co_return result;
    }
    std::uint64_t received() const override { return link_->received; }
    void close() override {
        const world::own_doing own(link_->in_);
        link_->end(asio::error::eof);
        link_->close_at_server();
    }

private:
    const std::shared_ptr<link> link_;
};

COETCD_DECL asio::awaitable<open_result> process::open(call_request request) {
    if (crashed_) {
        (void)co_await suspension::wait(std::make_shared<suspension>(*this)); // for ever
    }
    open_result result;
    const auto l = std::make_shared<link>(*this, in.member_of(request), request.how);
    in.note("open", number_, request.body);
    if (in.listening) {
        in.listening->sent_on_stream(*this);
    }
    const auto connected = std::make_shared<suspension>(*this);
    const fate f = in.judge_stream(*this, request);
    in.after(in.connecting(), [this, connected] {
        stir();
        connected->resume();
    });
    const error_code ec = co_await suspension::wait(connected);
    if (ec || f.refused) {
        result.ec = ec ? ec : error_code(asio::error::connection_refused);
        co_return result;
    }
    if (!f.lost) {
        l->up_ = l->next(l->up_);
        in.at(l->up_, [l, r = std::move(request)] {
            if (!l->over_) {
                l->in_.accept(l, r);
            }
        });
    }
    result.opened = std::make_unique<client_stream>(l);
    co_return result;
}

// The world.

COETCD_DECL fate world::judge(process& by, const call_request&) {
    fate f;
    f.there = latency();
    f.lost = by.is_cut_off();
    return f;
}

COETCD_DECL fate world::judge_stream(process& by, const call_request&) {
    fate f;
    f.refused = by.is_cut_off();
    return f;
}

COETCD_DECL line_fate world::judge_line(const process& to, bool once) {
    // Without a question in the other direction, silence would be noticed only after minutes.
    return !to.is_cut_off() ? line_fate::arrives : once ? line_fate::broken : line_fate::swallowed;
}

COETCD_DECL reply world::receive(const call_request&, const etcd::answer& a) {
    reply r;
    r.status = a.status;
    r.body = a.body;
    return r;
}

COETCD_DECL void world::accept(const std::shared_ptr<link>& from, const call_request& what) {
    if (const std::optional<etcd::answer> foreign = answered_between(from->member)) {
        if (foreign->status == 0) {
            return;
        }
        after(latency(), [from, foreign = *foreign] {
            if (!foreign.body.empty()) {
                reply no;
                no.status = foreign.status;
                no.sent = true;
                no.body = foreign.body;
                from->arrive(std::move(no));
            }
            from->end(asio::error::eof);
        });
        return;
    }
    etcd& here = store_of(what);
    if (here.is_cut(from->member) || here.leader() < 0) {
        after(latency(), [from] {
            reply no;
            no.status = 503;
            no.sent = true;
            no.body = R"({"error":{"grpc_code":14,"message":"etcdserver: no leader"}})";
            from->arrive(std::move(no));
        });
        return;
    }
    etcd::listener to;
    to.on_line = [weak = std::weak_ptr(from)](std::string line) {
        if (const auto self = weak.lock()) {
            self->push(std::move(line));
        }
    };
    to.on_end = [weak = std::weak_ptr(from)] {
        if (const auto self = weak.lock()) {
            self->drop();
        }
    };
    from->server = here.open(from->member, std::move(to), what.token);
    from->with = &here;
    from->accepted = true;
    world::hear(*from, what.body);
}

COETCD_DECL void world::hear(link& from, const std::string& messages) {
    from.with->listen(from.server, messages);
    look_at_watches();
}

COETCD_DECL void world::closed(link& from) {
    from.with->close(from.server);
}

COETCD_DECL void world::send(nanoseconds wait,
                             int member,
                             std::shared_ptr<const letter> what,
                             std::function<void(etcd::answer)> answered) {
    ++in_flight_;
    grants_in_flight_ += what->request.what == rpc::lease_grant ? 1U : 0U;
    after(wait, [this, member, what = std::move(what), answered = std::move(answered)] {
        deliver(member, what, answered);
    });
}

COETCD_DECL void
world::hold_back(int member, std::shared_ptr<const letter> what, nanoseconds wait) {
    const std::uint64_t number = what->number;
    held_back_[number] = {member, std::move(what)};
    after(wait, [this, number] {
        if (const auto found = held_back_.find(number); found != held_back_.end()) {
            const held_letter now = std::move(found->second);
            held_back_.erase(found);
            send(nanoseconds(0), now.member, now.what, [](const etcd::answer&) {});
        }
    });
}

COETCD_DECL void world::let_late_ones_come() {
    for (const auto& [number, late] : held_back_) {
        send(luck.within(nanoseconds(0), std::chrono::seconds(1)),
             late.member,
             late.what,
             [](const etcd::answer&) {});
    }
    held_back_.clear();
}

COETCD_DECL void world::deliver(int member,
                                std::shared_ptr<const letter> what,
                                std::function<void(etcd::answer)> answered,
                                etcd::answer so_far) {
    const call_request& request = what->request;
    const nanoseconds up = awake(member);
    const bool awaits = up > now_;
    etcd::answer a = std::move(so_far);
    if (!awaits) {
        if (listening) {
            listening->arrives(what->number);
        }
        a = serve(member, request, std::move(a));
        if (listening) {
            listening->served(what->number);
        }
    }
    if (awaits || a.wait) {
        at(awaits ? up : now_ + std::chrono::milliseconds(50),
           [this,
            member,
            what = std::move(what),
            answered = std::move(answered),
            a = std::move(a)] { deliver(member, what, answered, a); });
        return;
    }
    --in_flight_;
    grants_in_flight_ -= request.what == rpc::lease_grant ? 1 : 0;
    note("served", static_cast<std::uint64_t>(member), a.body);
    if (store.lags(member) && request.what != rpc::lease_keep_alive) {
        // The request was done by a member that is up to date; this member answers once it has
        // caught up.
        at(member_lags_until_[static_cast<std::size_t>(member)],
           [answered = std::move(answered), a = std::move(a)] { answered(a); });
        return;
    }
    answered(std::move(a));
}

} // namespace coetcd::detail::testing
