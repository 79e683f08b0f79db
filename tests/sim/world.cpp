// SPDX-License-Identifier: BSL-1.0
#include "sim/world.hpp"

#include <boost/asio/async_result.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <cstring>

namespace sim {

using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::detail::call_request;
using coetcd::detail::open_result;
using coetcd::detail::reply;
using coetcd::detail::sending;

std::string_view name(fault f) {
    constexpr std::string_view names[] = {
        "request_lost",   "answer_lost",    "doubted",       "doubted_late",  "duplicated",
        "late_duplicate", "very_late",      "delayed",       "refused",       "broken",
        "interrupted",    "stream_dropped", "stream_silent", "event_lost",    "stale_read",
        "early_revoke",   "leader_change",  "compaction",    "member_paused", "member_cut",
        "member_lags",    "member_hidden",  "client_paused", "client_cut",    "client_crashed",
        "clock_rate",     "token_expired",  "locked_out",    "no_space",      "operator_delete",
        "silent_delete"};
    static_assert(std::size(names) == fault_kinds);
    return names[static_cast<std::size_t>(f)];
}

// Suspensions.

template<class Handler>
struct suspension::handler_of final : continuation {
    explicit handler_of(Handler h)
        : handler(std::move(h)) {}
    void post() override { asio::post(std::move(handler)); }
    Handler handler;
};

template<class Handler>
void suspension::start(Handler handler) {
    auto slot = asio::get_associated_cancellation_slot(handler);
    if (slot.is_connected()) {
        slot.assign([weak = weak_from_this()](asio::cancellation_type how) {
            const auto self = weak.lock();
            if (self &&
                (how & asio::cancellation_type::terminal) != asio::cancellation_type::none) {
                self->resume(asio::error::operation_aborted);
            }
        });
    }
    then_ = std::make_unique<handler_of<Handler>>(std::move(handler));
    place_ = in_.waiting_.insert(in_.waiting_.end(), this);
    ++in_.suspensions;
    if (in_.on_suspension) {
        in_.on_suspension();
    }
    if (resumed_) {
        resumed_ = false;
        resume(result_);
    }
}

suspension::~suspension() {
    if (then_) {
        in_.waiting_.erase(place_);
    }
}

void suspension::resume(error_code ec) {
    if (std::exchange(resumed_, true)) {
        return;
    }
    result_ = ec;
    if (then_) {
        in_.waiting_.erase(place_);
        const std::unique_ptr<continuation> then = std::move(then_);
        then->post();
    }
}

asio::awaitable<error_code> suspension::wait(std::shared_ptr<suspension> self) {
    auto initiate = [&self](auto handler) { self->start(std::move(handler)); };
    co_await asio::async_initiate<const asio::use_awaitable_t<>&, void()>(initiate,
                                                                          asio::use_awaitable);
    co_return self->result_;
}

// Processes.

asio::execution_context& process_executor::query(asio::execution::context_t) const noexcept {
    return in_->loop;
}

process::process(world& w, std::size_t number, std::uint64_t seed)
    : in(w)
    , number_(number)
    , chance_(seed)
    , executor_(*this)
    , offset_(std::chrono::hours(1000) +
              nanoseconds(static_cast<std::int64_t>(chance_.below(1'000'000'000'000)))) {}

process::~process() {
    shut_down();
}

time_point process::now() const {
    const nanoseconds t = in.now();
    return time_point(offset_ + t + nanoseconds(t.count() / 1000 * rate_ppm_ / 1000));
}

nanoseconds process::to_world(time_point when) const {
    constexpr std::int64_t million = 1'000'000;
    const std::int64_t d = (when.time_since_epoch() - offset_).count();
    const std::int64_t rate = million + rate_ppm_;
    std::int64_t t = d / rate * million + d % rate * million / rate;
    // Not a moment too early.
    while (t + t / 1000 * rate_ppm_ / 1000 < d) {
        t += 1000;
    }
    return nanoseconds(t);
}

void process::enqueue(std::unique_ptr<task> t) {
    ready_.push_back(std::move(t));
}

void process::pause(nanoseconds until) {
    paused_until_ = std::max(paused_until_, until);
    ++pauses;
    in.note("pause", number_);
    in.at(paused_until_, [] {}); // then it goes on
}

bool process::is_paused() const {
    return paused_until_ > in.now();
}

bool process::is_cut_off() const {
    return cut_until_ > in.now();
}

void process::stir(bool by_line) {
    if (stirred_at_ != in.now()) {
        stirred_at_ = in.now();
        stirs_ = 0;
    }
    ++stirs_;
    heard_a_line_ = by_line;
}

bool process::heard_one_line() const {
    return stirred_at_ == in.now() && stirs_ == 1 && heard_a_line_;
}

bool process::run_ready() {
    bool any = false;
    while (!ready_.empty() && !is_paused() && !crashed_ && in.failure_.empty()) {
        if (crashing_ ||
            (in.counts()[static_cast<std::size_t>(fault::client_crashed)] < world::most_crashes &&
             in.strikes(fault::client_crashed))) {
            crash();
            return true;
        }
        if (in.strikes(fault::client_paused)) {
            const bool long_one = in.luck.one_in(4);
            pause(in.now() + in.luck.within(1ms, long_one ? 12s : 1s));
            break;
        }
        any = true;
        const std::unique_ptr<task> next = std::move(ready_.front());
        ready_.pop_front();
        running_ = true;
        if (++in.handlers_now_ > 100'000) {
            in.fail("handlers run for ever, and time stands still");
        }
        try {
            next->run();
        } catch (const std::exception& e) {
            in.fail(std::string("an exception escaped into the event loop: ") + e.what());
        }
        running_ = false;
    }
    if (crashing_ && !crashed_) {
        crash();
    }
    return any;
}

void process::crash() {
    in.note("crash", number_);
    crashed_ = true;
    shut_down();
    // What its code holds may begin something when it goes, which comes to nothing.
    if (on_crash) {
        on_crash();
    }
    shut_down();
}

void process::shut_down() {
    do {
        while (!ready_.empty() || !waiting_.empty()) {
            if (!ready_.empty()) {
                const std::unique_ptr<task> dropped = std::move(ready_.front());
                ready_.pop_front();
            } else {
                suspension& s = *waiting_.front();
                waiting_.pop_front();
                const auto keep = s.weak_from_this().lock();
                const std::unique_ptr<suspension::continuation> dropped = std::move(s.then_);
            }
        }
        loop.shutdown(); // drops what strands have queued
    } while (!ready_.empty() || !waiting_.empty());
}

class process::sleeper_here final : public coetcd::detail::sleeper {
public:
    explicit sleeper_here(process& in)
        : in_(in)
        , nap_(std::make_shared<suspension>(in)) {}

    asio::awaitable<error_code> sleep_until(time_point when) override {
        if (when != time_point::max()) {
            in_.in.at(in_.to_world(when), [of = &in_, weak = std::weak_ptr(nap_)] {
                if (const auto nap = weak.lock(); nap && !nap->resumed()) {
                    of->stir();
                    nap->resume();
                }
            });
        }
        const error_code ec = co_await suspension::wait(nap_);
        co_return woken_ ? error_code() : ec;
    }
    void wake() override {
        woken_ = true;
        nap_->resume();
    }

private:
    process& in_;
    const std::shared_ptr<suspension> nap_;
    bool woken_ = false;
};

std::unique_ptr<coetcd::detail::sleeper> process::make_sleeper() {
    return std::make_unique<sleeper_here>(*this);
}

asio::awaitable<error_code> process::sleep(nanoseconds time) {
    sleeper_here nap(*this);
    const error_code ec = co_await nap.sleep_until(now() + time);
    co_return ec;
}

namespace {

int member_of(const call_request& request) {
    return request.to.host.back() - '0';
}

/// Whether all members have to agree to it, so that one can give up waiting for that.
bool is_proposed(rpc what) {
    return what == rpc::txn || what == rpc::put || what == rpc::delete_range ||
           what == rpc::lease_grant || what == rpc::lease_revoke;
}

} // namespace

asio::awaitable<reply> process::call(call_request r) {
    if (crashed_) {
        (void)co_await suspension::wait(std::make_shared<suspension>(*this)); // for ever
    }
    struct exchange {
        explicit exchange(process& p)
            : done(std::make_shared<suspension>(p)) {}
        const std::shared_ptr<suspension> done;
        reply result;
    };
    ++calls;
    const auto letter =
        std::make_shared<const world::letter>(world::letter{std::move(r), ++in.last_letter_});
    const call_request* const request = &letter->request;
    const auto x = std::make_shared<exchange>(*this);
    const auto ends = [this, x](error_code ec, bool sent) {
        if (!x->done->resumed()) {
            stir();
            x->result.ec = ec;
            x->result.sent = sent;
            x->done->resume();
        }
    };
    in.note("call", number_, request->body);
    if (in.listening) {
        in.listening->sent(*this, letter->number, *request);
    }
    const bool chosen = failing_call != 0 && calls == failing_call;
    const auto strikes = [&](fault f) { return (chosen && failing_how == f) || in.strikes(f); };
    if (strikes(fault::refused)) {
        in.after(in.latency(), [ends] { ends(asio::error::connection_refused, false); });
    } else {
        const int to = member_of(*request);
        const bool very_late =
            request->what == rpc::txn && !is_cut_off() && strikes(fault::very_late);
        const bool lost =
            is_cut_off() || strikes(fault::request_lost) || (very_late && in.luck.one_in(2));
        const bool breaks = strikes(fault::broken);
        const bool answer_lost = strikes(fault::answer_lost) || very_late;
        const bool proposed = is_proposed(request->what);
        const bool doubted = proposed && strikes(fault::doubted);
        const bool doubted_late = proposed && strikes(fault::doubted_late);
        const foreign_answer* const foreign =
            in.answered_between(to, chosen && failing_how == fault::interrupted);
        nanoseconds there = in.latency();
        nanoseconds back{0};
        if (strikes(fault::delayed)) {
            // Often by so much that a renewal still succeeds.
            const nanoseconds longest = in.luck.one_in(2) ? 600ms : 4s;
            (in.luck.one_in(2) ? there : back) += in.luck.within(10ms, longest);
        }
        // A second copy is made by what stands between and tries again, because it got no answer to
        // the first: then that is the one that may be answered. It does not overtake the first.
        const bool twice = !is_cut_off() && strikes(fault::duplicated);
        const bool twice_late = !is_cut_off() && strikes(fault::late_duplicate);
        const bool copied = twice || twice_late;
        if (very_late) {
            in.hold_back(to, letter);
        }
        etcd::answer doubt;
        if (doubted || doubted_late) {
            constexpr std::string_view texts[] = {"etcdserver: request timed out",
                                                  "etcdserver: server stopped",
                                                  "error reading from server: EOF"};
            const std::string_view text = texts[in.luck.below(std::size(texts))];
            doubt = in.store.failure(request->what, 14, text);
            ++failed_calls;
        }
        nanoseconds behind{0};
        if (copied) {
            ++repeated_calls;
            behind = twice_late ? in.luck.within(100ms, world::longest_delay) : in.latency();
        }
        if (breaks) {
            in.after(in.luck.within(0s, 2 * (there + behind)),
                     [ends] { ends(asio::error::connection_reset, true); });
        }
        auto answered = [x, ends, w = &in, answer_lost, back, doubted, doubt](etcd::answer a) {
            if (answer_lost) {
                return;
            }
            if (doubted && a.status == 200) {
                a = doubt;
            }
            w->after(back + w->latency(), [x, ends, a = std::move(a)] {
                if (!x->done->resumed()) {
                    x->result.status = a.status;
                    x->result.body = a.body;
                    ends({}, true);
                }
            });
        };
        const auto nobody_listens = [](const etcd::answer&) {};
        if (foreign && !lost) {
            ++failed_calls;
            if (foreign->passes_on && in.luck.one_in(2) && !in.is_hidden(to)) {
                in.send(there, to, letter, nobody_listens);
            }
            etcd::answer a;
            a.status = foreign->status;
            a.body = foreign->body;
            if (a.status != 0) {
                in.after(there, [answered, a = std::move(a)] { answered(a); });
            }
        } else if (doubted_late && !lost) {
            // A lease that is granted so late may not outlive the session that wants it.
            const nanoseconds latest =
                request->what == rpc::lease_grant ? nanoseconds(1500ms) : world::longest_delay;
            in.send(in.luck.within(0ms, latest), to, letter, nobody_listens);
            in.after(there, [answered, doubt] { answered(doubt); });
        } else if (copied && !lost) {
            in.send(there, to, letter, [=, w = &in](const etcd::answer& first) {
                // If the token has ended since, the second answer would say that nothing was done.
                const bool done = first.status == 200;
                w->send(behind, to, letter, [=](etcd::answer second) {
                    if (!done || second.status != 401) {
                        answered(std::move(second));
                    }
                });
            });
        } else if (copied || !lost) {
            in.send(there + behind, to, letter, std::move(answered));
        }
    }
    in.at(to_world(request->deadline), [ends] { ends(errc::timed_out, true); });
    const error_code ec = co_await suspension::wait(x->done);
    if (ec) {
        x->result = reply();
        x->result.ec = ec;
        x->result.sent = true;
    }
    if (x->result.ec) {
        ++failed_calls;
    } else if (in.listening && x->result.status == 200) {
        in.listening->answered(letter->number);
    }
    in.note(x->result.ec ? "failed" : "answer", number_, x->result.body);
    co_return std::move(x->result);
}

/// A stream, with both of its ends.
struct process::link : std::enable_shared_from_this<process::link> {
    link(process& p, int m, sending how)
        : in(p.in)
        , of(p)
        , member(m)
        , once(how == sending::once) {}

    void arrive(reply r) {
        if (!over) {
            of.stir(true);
            if (in.listening) {
                in.listening->told(of, r.body);
            }
            lines.push_back(std::move(r));
            if (reader) {
                reader->resume();
            }
        }
    }
    /// The client's end breaks.
    void end(error_code ec) {
        if (!std::exchange(over, true)) {
            why = ec;
            of.stir();
            if (reader) {
                reader->resume();
            }
        }
    }
    /// In order, whatever the latency.
    nanoseconds next_down() {
        return down = std::max({down + 1ns, in.awake(member) + in.latency(), in.now()});
    }
    nanoseconds next_up() {
        return up = std::max({up + 1ns, in.awake(member) + in.latency(), in.now()});
    }
    void push(std::string line) {
        if (silent || over) {
            return;
        }
        const bool lost = of.is_cut_off() || in.strikes(fault::stream_silent);
        if (lost && !once) {
            silent = true;
            return;
        }
        // Without a question the other way, silence would be noticed after minutes only.
        if (lost || in.strikes(fault::stream_dropped)) {
            drop();
            return;
        }
        in.at(next_down(), [self = shared_from_this(), line = std::move(line)] {
            self->in.note("line", self->of.number(), line);
            reply r;
            r.sent = true;
            r.status = 200;
            r.body = line;
            self->arrive(std::move(r));
        });
    }
    void drop() {
        silent = true;
        in.after(in.latency(), [self = shared_from_this()] { self->end(asio::error::eof); });
        close_at_server();
    }
    void close_at_server() {
        if (server != 0) {
            in.after(in.latency(),
                     [w = &in, id = std::exchange(server, 0)] { w->store.close(id); });
        }
    }
    void send(std::string messages) {
        in.at(next_up(), [self = shared_from_this(), messages = std::move(messages)] {
            if (!self->silent && self->server != 0) {
                self->in.store.listen(self->server, messages);
                self->in.look_at_watches();
            }
        });
    }

    world& in;
    process& of;
    const int member;
    const bool once;
    std::uint64_t server = 0;
    std::deque<reply> lines;
    std::shared_ptr<suspension> reader;
    bool over = false;
    bool silent = false;
    error_code why;
    nanoseconds down{0};
    nanoseconds up{0};
};

class process::client_stream final : public coetcd::detail::stream {
public:
    explicit client_stream(std::shared_ptr<link> l)
        : link_(std::move(l)) {}
    ~client_stream() override { close(); }

    asio::awaitable<error_code> write(std::string json, time_point) override {
        error_code ec;
        if (link_->over) {
            ec = asio::error::broken_pipe;
            co_return ec;
        }
        link_->in.note("write", link_->of.number(), json);
        if (link_->in.listening) {
            link_->in.listening->sent_on_stream(link_->of);
        }
        const std::shared_ptr<link> l = link_;
        const auto done = std::make_shared<suspension>(l->of);
        l->in.after(1us, [done] { done->resume(); });
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
        if (l->lines.empty() && !l->over) {
            l->reader = std::make_shared<suspension>(l->of);
            const error_code ec = co_await suspension::wait(l->reader);
            l->reader = nullptr;
            if (ec) {
                result.ec = ec;
                co_return result;
            }
        }
        if (!l->lines.empty()) {
            result = std::move(l->lines.front());
            l->lines.pop_front();
        } else {
            result.ec = l->why;
        }
        co_return result;
    }
    void close() override {
        link_->end(asio::error::eof);
        link_->close_at_server();
    }

private:
    const std::shared_ptr<link> link_;
};

asio::awaitable<open_result> process::open(call_request request) {
    if (crashed_) {
        (void)co_await suspension::wait(std::make_shared<suspension>(*this)); // for ever
    }
    open_result result;
    const auto l = std::make_shared<link>(*this, member_of(request), request.how);
    in.note("open", number_, request.body);
    if (in.listening) {
        in.listening->sent_on_stream(*this);
    }
    const auto connected = std::make_shared<suspension>(*this);
    const bool refused = is_cut_off() || in.strikes(fault::refused);
    in.after(2 * in.latency(), [this, connected] {
        stir();
        connected->resume();
    });
    const error_code ec = co_await suspension::wait(connected);
    if (ec || refused) {
        result.ec = ec ? ec : error_code(asio::error::connection_refused);
        co_return result;
    }
    in.at(l->next_up(), [l, r = std::move(request)] {
        if (l->over) {
            return;
        }
        world& w = l->in;
        if (const foreign_answer* const foreign = w.answered_between(l->member)) {
            if (foreign->status == 0) {
                return;
            }
            w.after(w.latency(), [l, foreign] {
                if (!foreign->body.empty()) {
                    reply no;
                    no.status = foreign->status;
                    no.sent = true;
                    no.body = foreign->body;
                    l->arrive(std::move(no));
                }
                l->end(asio::error::eof);
            });
            return;
        }
        if (w.store.is_cut(l->member) || w.store.leader() < 0) {
            w.after(w.latency(), [l] {
                reply no;
                no.status = 503;
                no.sent = true;
                no.body = R"({"error":{"grpc_code":14,"message":"etcdserver: no leader"}})";
                l->arrive(std::move(no));
            });
            return;
        }
        etcd::listener to;
        to.on_line = [weak = std::weak_ptr(l)](std::string line) {
            if (const auto self = weak.lock()) {
                self->push(std::move(line));
            }
        };
        to.on_end = [weak = std::weak_ptr(l)] {
            if (const auto self = weak.lock()) {
                self->drop();
            }
        };
        l->server = w.store.open(l->member, std::move(to), r.token);
        w.store.listen(l->server, r.body);
        w.look_at_watches();
    });
    result.opened = std::make_unique<client_stream>(l);
    co_return result;
}

// The world.

world::world(std::uint64_t seed, options o)
    : store([this] { return now_; }, o.members, o.speaks)
    , luck(chance::derive(seed, 1))
    , options_(o)
    , ties_(chance::derive(seed, 2))
    , seed_(seed)
    , member_paused_until_(static_cast<std::size_t>(o.members))
    , member_lags_until_(static_cast<std::size_t>(o.members))
    , hiding_(static_cast<std::size_t>(o.members)) {
    events_.reserve(256);
    store.loses_event = [this] { return strikes(fault::event_lost); };
    after(etcd::expiry_interval, [this] { look_at_leases(); });
    after(options_.progress_interval, [this] { tell_progress(); });
}

world::~world() {
    shut_down();
}

void world::shut_down() {
    for (const auto& p : processes_) {
        p->shut_down();
    }
    events_.clear();
}

std::shared_ptr<process> world::add_process() {
    const std::size_t number = processes_.size();
    processes_.push_back(
        std::make_shared<process>(*this, number, chance::derive(seed_, 100 + number)));
    return processes_.back();
}

void world::at(nanoseconds when, std::function<void()> fire) {
    events_.push_back({std::max(when, now_), ties_.next(), ++last_event_, std::move(fire)});
    std::push_heap(events_.begin(), events_.end(), later());
}

bool world::step() {
    for (bool any = true; any;) {
        any = false;
        for (const auto& p : processes_) {
            any = p->run_ready() || any;
        }
    }
    if (events_.empty() || !failure_.empty()) {
        return false;
    }
    std::pop_heap(events_.begin(), events_.end(), later());
    event next = std::move(events_.back());
    events_.pop_back();
    if (next.when > now_) {
        now_ = next.when;
        handlers_now_ = 0;
    }
    next.fire();
    return failure_.empty();
}

nanoseconds world::all_awake() const {
    nanoseconds result = now_;
    for (const auto& p : processes_) {
        result = std::max(result, p->paused_until_);
    }
    return result;
}

nanoseconds world::awake(int member) const {
    return std::max(now_, member_paused_until_[static_cast<std::size_t>(member)]);
}

void world::send(nanoseconds wait,
                 int member,
                 std::shared_ptr<const letter> what,
                 std::function<void(etcd::answer)> answered) {
    ++in_flight_;
    grants_in_flight_ += what->request.what == rpc::lease_grant ? 1 : 0;
    after(wait, [this, member, what = std::move(what), answered = std::move(answered)] {
        deliver(member, what, answered);
    });
}

void world::hold_back(int member, std::shared_ptr<const letter> what) {
    const std::uint64_t number = what->number;
    held_back_[number] = {member, std::move(what)};
    after(luck.within(longest_delay, 200s), [this, number] {
        if (const auto found = held_back_.find(number); found != held_back_.end()) {
            const held_letter now = std::move(found->second);
            held_back_.erase(found);
            send(0s, now.member, now.what, [](const etcd::answer&) {});
        }
    });
}

void world::let_late_ones_come() {
    for (const auto& [number, late] : held_back_) {
        send(luck.within(0s, 1s), late.member, late.what, [](const etcd::answer&) {});
    }
    held_back_.clear();
}

void world::deliver(int member,
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
        a = store.call(member, request.what, request.body, request.token, std::move(a));
        if (listening) {
            listening->served(what->number);
        }
    }
    if (awaits || a.wait) {
        at(awaits ? up : now_ + 50ms,
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
        // It was done where all is up to date; the member answers once it has got there itself.
        at(member_lags_until_[static_cast<std::size_t>(member)],
           [answered = std::move(answered), a = std::move(a)] { answered(a); });
        return;
    }
    answered(std::move(a));
}

void world::look_at_leases() {
    store.expire();
    after(luck.within(1ms, etcd::expiry_interval), [this] { look_at_leases(); });
}

void world::look_at_watches() {
    if (store.has_unsynced() && !std::exchange(looking_at_watches_, true)) {
        after(luck.within(0ms, etcd::sync_interval), [this] {
            looking_at_watches_ = false;
            store.sync();
            look_at_watches();
        });
    }
}

void world::tell_progress() {
    store.tell_progress();
    after(options_.progress_interval, [this] { tell_progress(); });
}

bool world::strikes(fault f) {
    const bool hit = luck.ppm(weather_[f]);
    if (hit) {
        count(f);
        note(name(f));
    }
    return hit;
}

const foreign_answer* world::answered_between(int member, bool chosen) {
    if (is_hidden(member)) {
        return hiding_[static_cast<std::size_t>(member)];
    }
    return chosen || strikes(fault::interrupted) ? draw_foreign_answer(luck, false) : nullptr;
}

void world::delete_by_hand() {
    const std::string& queue = operator_prefixes[luck.below(operator_prefixes.size())];
    if (const auto all = store.under(queue); !all.empty()) {
        store.erase(all[luck.below(all.size())]);
    }
}

void world::set_weather(const weather& w) {
    weather_ = w;
    healed_ = false;
    chaos();
}

void world::new_leader() {
    // Not one that stands still or is cut off.
    std::vector<int> fit;
    for (int m = 0; m != store.members(); ++m) {
        if (awake(m) <= now_ && !store.is_cut(m) && !store.lags(m)) {
            fit.push_back(m);
        }
    }
    if (!fit.empty()) {
        store.elect(fit[luck.below(fit.size())]);
        note("elected", static_cast<std::uint64_t>(store.leader()));
    }
}

/// What goes wrong by itself. Occasions come every 100 ms.
void world::chaos() {
    if (healed_) {
        return;
    }
    after(100ms, [this] { chaos(); });
    // Nobody is elected while the old leader may still be heard of, or answer renewals.
    const auto lead = [this] {
        after(luck.within(etcd::election_timeout, 2s), [this] {
            if (store.leader() < 0) {
                new_leader();
            }
        });
    };
    // A grant that is on its way would let the lease return, without what it held.
    if (grants_in_flight_ == 0 && strikes(fault::early_revoke)) {
        if (const auto all = store.lease_ids(); !all.empty()) {
            store.revoke(all[luck.below(all.size())]);
        }
    }
    if (strikes(fault::operator_delete)) {
        delete_by_hand();
    }
    if (strikes(fault::silent_delete)) {
        store.tells = false;
        delete_by_hand();
        store.tells = true;
    }
    if (strikes(fault::client_cut)) {
        process& one = *processes_[luck.below(processes_.size())];
        one.cut_off(now_ + luck.within(100ms, 15s));
    }
    if (strikes(fault::compaction)) {
        store.compact(store.revision);
    }
    if (strikes(fault::token_expired)) {
        store.expire_tokens();
    }
    if (strikes(fault::locked_out)) {
        store.locked_out = true;
        store.expire_tokens();
        after(luck.within(100ms, 4s), [this] { store.locked_out = false; });
    }
    if (strikes(fault::no_space)) {
        store.no_space = true;
        after(luck.within(100ms, 4s), [this] { store.no_space = false; });
    }
    if (strikes(fault::stale_read)) {
        store.stale_by = static_cast<std::int64_t>(luck.between(1, most_stale));
        after(luck.within(10ms, 2s), [this] { store.stale_by = 0; });
    }
    if (store.leader() >= 0 && strikes(fault::leader_change)) {
        store.depose();
        lead();
    }
    if (store.members() > 1 && ill_member_ < 0) {
        const int m = static_cast<int>(luck.below(static_cast<std::uint64_t>(store.members())));
        if (strikes(fault::member_paused)) {
            ill_member_ = m;
            nanoseconds& until = member_paused_until_[static_cast<std::size_t>(m)];
            until = now_ + luck.within(100ms, 8s);
            at(until, [this] { ill_member_ = -1; });
            after(1s, [this, m, lead] {
                if (store.leader() == m && awake(m) > now_) {
                    store.depose();
                    lead();
                }
            });
        } else if (strikes(fault::member_cut)) {
            ill_member_ = m;
            if (store.leader() == m) {
                lead();
            }
            store.cut(m, true);
            const nanoseconds off = luck.within(500ms, 8s);
            let_lag(m, now_ + off);
            after(3100ms, [this, m] {
                if (store.is_cut(m)) {
                    store.end_streams(m);
                }
            });
            after(off, [this, m] {
                store.cut(m, false);
                ill_member_ = -1;
            });
        } else if (store.leader() != m && strikes(fault::member_lags)) {
            ill_member_ = m;
            const nanoseconds until = now_ + luck.within(10ms, luck.one_in(4) ? 8s : 1s);
            let_lag(m, until);
            at(until, [this] { ill_member_ = -1; });
        } else if (strikes(fault::member_hidden)) {
            ill_member_ = m;
            hiding_[static_cast<std::size_t>(m)] = draw_foreign_answer(luck, true);
            store.end_streams(m, false);
            after(luck.within(100ms, 8s), [this, m] {
                hiding_[static_cast<std::size_t>(m)] = nullptr;
                ill_member_ = -1;
            });
        }
    }
}

void world::let_lag(int member, nanoseconds until) {
    store.lag(member, true);
    member_lags_until_[static_cast<std::size_t>(member)] = until;
    at(until, [this, member] { store.lag(member, false); });
}

void world::heal() {
    healed_ = true;
    weather_ = weather();
    store.no_space = false;
    store.locked_out = false;
    store.stale_by = 0;
    for (const auto& p : processes_) {
        p->cut_off(now_);
    }
    for (int m = 0; m != store.members(); ++m) {
        member_paused_until_[static_cast<std::size_t>(m)] = now_;
        hiding_[static_cast<std::size_t>(m)] = nullptr;
        store.lag(m, false);
        if (store.is_cut(m)) {
            store.cut(m, false);
        }
    }
    if (store.leader() < 0) {
        new_leader();
    }
    note("healed");
}

void world::note(std::string_view what, std::uint64_t a, std::string_view text) {
    const auto mix = [this](std::uint64_t x) {
        trace_ = (trace_ ^ x) * 0x100000001b3;
        trace_ ^= trace_ >> 29;
    };
    mix(static_cast<std::uint64_t>(now_.count()));
    mix(a + 0x10000 * what.size() + static_cast<unsigned char>(what[0]));
    for (std::size_t i = 0; i < text.size();) {
        std::uint64_t chunk = 0;
        const std::size_t n = std::min(sizeof chunk, text.size() - i);
        std::memcpy(&chunk, text.data() + i, n);
        mix(chunk);
        i += n;
    }
    if (most_notes_ != 0) {
        const std::string micros = std::to_string(now_.count() / 1000);
        notes_.push_back(micros + " us  " + std::string(what) + " " + std::to_string(a) + " " +
                         std::string(text));
        if (notes_.size() > most_notes_) {
            notes_.pop_front();
        }
    }
}

void world::fail(std::string what) {
    if (failure_.empty()) {
        failure_ = std::move(what);
        note("VIOLATION", 0, failure_);
    }
}

} // namespace sim
