// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/places.hpp>
#include <coetcd/detail/service/lane.hpp>
#include <coetcd/detail/service/until_over.hpp>
#include <coetcd/detail/wire/base64.hpp>

#include <nlohmann/json.hpp>

#include <chrono>
#include <cstddef>
#include <ctime>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"

using namespace coetcd;
using namespace coetcd::detail;
using namespace std::chrono_literals;
using logic::effect;
using nlohmann::json;
using support::scripted_env;
using support::world;
using strings = std::vector<std::string>;
using part_ptr = std::shared_ptr<lane_part>;
using rank = lane_part::rank;

namespace {

constexpr auto request_timeout = 5s;
constexpr auto attempt_timeout = 1500ms;
constexpr auto round_trip = 2ms; // of the network

/// Operations as a text: puts as their keys, reads with "?", erases with "-", nested ones in
/// brackets.
std::string text(const json& operations);
std::string text_of(const json& transaction) {
    const std::string then = text(transaction.value("success", json::array()));
    return transaction.contains("failure") ? then + " else " + text(transaction["failure"]) : then;
}
std::string text(const json& operations) {
    std::string out;
    for (const json& one : operations) {
        const auto key = [&](const char* kind) {
            std::string decoded;
            REQUIRE(wire::decode_base64(one.at(kind).at("key").get<std::string>(), decoded));
            return decoded;
        };
        out += out.empty() ? "" : " ";
        if (one.contains("request_put")) {
            out += key("request_put");
        } else if (one.contains("request_range")) {
            out += "?" + key("request_range");
        } else if (one.contains("request_delete_range")) {
            out += "-" + key("request_delete_range");
        } else {
            out += "(" + text_of(one.at("request_txn")) + ")";
        }
    }
    return out;
}

/// Puts a key that does not exist; else reads it.
part_ptr put_new(const std::string& key) {
    const auto part = std::make_shared<lane_part>(
        txn().when(compare::version(key) == 0).then(op::put(key, "")).otherwise(op::range(key)));
    part->likely = true;
    return part;
}
part_ptr put_new(const std::string& key, const std::string& queue) {
    const auto part = put_new(key);
    part->puts = {queue};
    return part;
}

std::vector<part_ptr> put_all(const strings& keys) {
    std::vector<part_ptr> out;
    for (const std::string& key : keys) {
        out.push_back(put_new(key));
    }
    return out;
}

/// "<prefix>1 <prefix>2 ..."
std::string numbered(const std::string& prefix, int first, int last) {
    std::string out;
    for (int i = first; i <= last; ++i) {
        out += (i == first ? "" : " ") + (prefix + std::to_string(i));
    }
    return out;
}

class lane_fixture {
public:
    lane_fixture() {
        const auto to = std::make_shared<router>(
            w.env, std::vector<logic::endpoint>{logic::parse_endpoint("http://etcd:2379")});
        lane = std::make_shared<transaction_lane>(to, request_timeout, attempt_timeout);
    }

    void submit(const part_ptr& part) { lane->submit(part); }
    void submit(const std::vector<part_ptr>& parts) {
        for (const part_ptr& part : parts) {
            lane->submit(part);
        }
    }
    /// Lets all handlers run that can.
    void go() { w.env->pass(0s); }
    void finish() { w.env->pass(1min); }

    /// All requests so far.
    strings requests() const {
        strings out;
        for (const call_request& c : w.env->calls) {
            REQUIRE(c.what == rpc::txn);
            out.push_back(text_of(json::parse(c.body)));
        }
        return out;
    }

    /// Two requests are under way, so that others gather.
    void occupy() {
        w.env->calls.clear();
        for (const char* key : {"busy 1", "busy 2"}) {
            submit(put_new(key));
            go();
        }
        REQUIRE(requests() == strings{"busy 1", "busy 2"});
        w.env->calls.clear();
    }
    /// The network loses some answers, then none.
    void lose_answers(int count) {
        w.env->decide = [count](const call_request&) mutable {
            scripted_env::fate f;
            f.answered = --count < 0;
            return f;
        };
    }

    world w;
    std::shared_ptr<transaction_lane> lane;
};

void check_done(const part_ptr& part, bool succeeded) {
    CHECK(part->over);
    CHECK_FALSE(part->in_flight);
    CHECK_FALSE(part->ec);
    CHECK(part->response.succeeded == succeeded);
}

} // namespace

TEST_CASE("a transaction by itself goes at once, as it is", "[service][lane]") {
    for (const bool likely : {true, false}) {
        lane_fixture f;
        const part_ptr a = put_new("a");
        a->likely = likely;
        int told = 0;
        a->on_end = [&told] { ++told; };
        f.submit(a);
        CHECK(f.requests().empty()); // when the handler that runs has ended
        f.go();
        // If it is likely to succeed there is no need to say what is to be done else.
        CHECK(f.requests() == strings{likely ? "a" : "a else ?a"});
        CHECK(a->in_flight);
        CHECK_FALSE(a->over);
        const time_point sent = f.w.env->now();
        f.w.env->pass(round_trip);
        check_done(a, true);
        CHECK(told == 1);
        CHECK(a->sent == sent);
        CHECK(a->left == effect::none);
        CHECK(a->response.header.revision == f.w.etcd->revision);
        CHECK(f.requests().size() == 1);
    }
}

TEST_CASE("what one handler submits goes together, in its order", "[service][lane]") {
    lane_fixture f;
    const auto parts = put_all({"c", "a", "b"});
    f.submit(parts);
    parts[1]->likely = false;
    f.go();
    CHECK(f.requests() == strings{"c (a else ?a) b"});
    f.finish();
    for (const part_ptr& p : parts) {
        check_done(p, true);
        CHECK(p->response.responses.size() == 1);
    }
    CHECK(f.requests().size() == 1);
}

TEST_CASE("two requests are under way at the most, and what comes meanwhile goes together",
          "[service][lane]") {
    lane_fixture f;
    f.submit(put_new("a"));
    f.go();
    f.submit(put_new("b"));
    f.w.env->pass(round_trip / 2);
    f.submit(put_new("c"));
    f.submit(put_new("d"));
    f.go();
    f.submit(put_new("e"));
    f.go();
    CHECK(f.requests() == strings{"a", "b"});
    f.finish();
    CHECK(f.requests() == strings{"a", "b", "c d e"});
}

TEST_CASE("full requests leave while others wait for company", "[service][lane]") {
    lane_fixture f;
    const auto submit = [&](const std::string& prefix, int count) {
        for (int i = 1; i <= count; ++i) {
            f.submit(put_new(prefix + std::to_string(i)));
        }
        f.go();
    };
    f.occupy();
    submit("a", 59);
    CHECK(f.requests().empty());
    submit("b", 1);
    CHECK(f.requests() == strings{numbered("a", 1, 59) + " b1"});
    submit("c", 60 * 40);
    CHECK(f.requests().size() == 30); // with the two that occupy it
    f.finish();
    CHECK(f.requests().size() == 41);
}

TEST_CASE("where etcd is far, nobody waits for company for more than 5 ms", "[service][lane]") {
    lane_fixture f;
    f.w.env->round_trip = 200ms;
    f.occupy();
    for (const char* key : {"a", "b"}) {
        f.submit(put_new(key));
        f.w.env->pass(1ms);
    }
    CHECK(f.requests().empty());
    f.w.env->pass(2ms);
    CHECK(f.requests().empty());
    f.w.env->pass(1ms); // 5 ms after the last one of those under way
    CHECK(f.requests() == strings{"a b"});
    f.submit(put_new("c"));
    f.w.env->pass(4ms);
    CHECK(f.requests().size() == 1);
    f.w.env->pass(1ms);
    CHECK(f.requests().size() == 2);
    f.w.env->pass(50ms); // nothing is left to send
    CHECK(f.requests().size() == 2);
    f.submit(put_new("d"));
    f.go();
    CHECK(f.requests().size() == 3);
    // It may be gone when that time has come.
    lane_fixture near;
    near.w.env->round_trip = 1ms;
    near.occupy();
    near.submit(put_new("a"));
    near.w.env->pass(4ms);
    CHECK(near.requests() == strings{"a"});
    near.lane.reset();
    near.finish();
}

TEST_CASE("what has to go alone takes no place of others", "[service][lane]") {
    lane_fixture f;
    f.w.etcd->forbidden = {"n.1", "n.2", "n.3"};
    for (const char* key : {"n.1", "n.2", "n.3"}) {
        f.submit(put_new(key));
    }
    f.w.env->pass(100ms);
    f.occupy();
    const auto parts = put_all({"n.1", "n.2", "a", "n.3"});
    f.submit(parts);
    f.go();
    CHECK(f.requests() == strings{"n.1 else ?n.1", "n.2 else ?n.2"});
    f.lane->withdraw(parts[3]);
    f.finish();
    CHECK(f.requests().size() == 3);
    CHECK(f.requests().back() == "a");
    CHECK(f.lane->waiting() == 0);
}

TEST_CASE("a limit of rates narrows the lane, and answers widen it again", "[service][lane]") {
    lane_fixture f;
    const auto serve = std::exchange(f.w.env->on_call, [](const call_request&, reply& r) {
        r.status = 429;
        r.body = "slow down";
    });
    f.submit(put_new("a"));
    f.finish();
    f.w.env->on_call = serve;
    f.w.env->calls.clear();
    for (int i = 1; i <= 60 * 40; ++i) {
        f.submit(put_new("k" + std::to_string(i)));
    }
    f.go();
    CHECK(f.requests().size() == 16);
    f.w.env->pass(round_trip);
    f.go();
    CHECK(f.requests().size() == 40);
    f.finish();
}

TEST_CASE("what does not fit into a request goes with the next ones, in its order",
          "[service][lane]") {
    lane_fixture f;
    for (int i = 1; i <= 130; ++i) {
        f.submit(put_new("k" + std::to_string(i)));
    }
    f.go();
    CHECK(f.requests() == strings{numbered("k", 1, 60), numbered("k", 61, 120)});
    f.finish();
    CHECK(f.requests().back() == numbered("k", 121, 130));
    CHECK(f.requests().size() == 3);
}

TEST_CASE("a crowd is shared out between the two requests", "[service][lane]") {
    const auto submit = [](lane_fixture& f, int first, int last) {
        for (int i = first; i <= last; ++i) {
            f.submit(put_new("k" + std::to_string(i)));
        }
        f.go();
    };
    lane_fixture few;
    submit(few, 1, 4);
    CHECK(few.requests() == strings{numbered("k", 1, 4)});

    lane_fixture many;
    submit(many, 1, 40);
    CHECK(many.requests() == strings{numbered("k", 1, 20), numbered("k", 21, 40)});

    lane_fixture uneven;
    submit(uneven, 1, 2);
    submit(uneven, 3, 30);
    CHECK(uneven.requests() == strings{"k1 k2", numbered("k", 3, 17)}); // 15 of 30
    uneven.finish();
    CHECK(uneven.requests().back() == numbered("k", 18, 30));
    CHECK(uneven.requests().size() == 3);
}

TEST_CASE("those that come back one after the other leave together", "[service][lane]") {
    lane_fixture f;
    const auto submit_next = [&f](int first, int last, auto&& self) -> void {
        f.submit(put_new("k" + std::to_string(first)));
        if (first != last) {
            defer(*f.w.env, [=] { self(first + 1, last, self); });
        }
    };
    f.submit({put_new("a"), put_new("b")});
    submit_next(1, 8, submit_next); // parts that come later still do not hold up the others
    f.go();
    CHECK(f.requests().at(0) == "a b k1 k2");
    CHECK(f.requests().at(1) == "k3"); // alone: at once
    f.finish();
    f.w.env->calls.clear();

    f.submit(put_new("c"));
    f.go();
    f.submit(put_new("d"));
    submit_next(4, 5, submit_next);
    f.go();
    CHECK(f.requests() == strings{"c", "d k4 k5"});
}

TEST_CASE("no two transactions that put into one queue share a request", "[service][lane]") {
    lane_fixture f;
    f.submit({put_new("m1", "m"),
              put_new("m2", "m"),
              put_new("n1", "n"),
              put_new("m3", "m"),
              put_new("free"),
              put_new("m4", "m/below")});
    f.finish();
    CHECK(f.requests() == strings{"m1 n1 free", "m2", "m3", "m4"});
}

TEST_CASE("what goes abreast leaves at once, each in a request of its own", "[service][lane]") {
    const auto abreast = [](const std::string& key) {
        part_ptr part = put_new(key, "s");
        part->abreast = true;
        part->turn = 2;
        return part;
    };
    lane_fixture f;
    f.occupy();
    f.submit({abreast("s1"), abreast("s2"), put_new("a"), put_new("m1", "m"), put_new("m2", "m")});
    f.submit(abreast("s3"));
    const part_ptr exchange = put_new("b");
    exchange->turn = 1;
    f.submit(exchange);
    f.go();
    CHECK(f.requests() == strings{"a m1 b s1", "m2 s2", "s3"}); // in the order of their turns
    f.finish();
    CHECK(f.requests().size() == 3);
    // there is no reason to hurry for one by itself, nor for those that just must not be together
    lane_fixture single;
    single.occupy();
    single.submit({abreast("s1"), put_new("m1", "m"), put_new("m2", "m")});
    single.go();
    CHECK(single.requests().empty());
    single.finish();
    CHECK(single.requests() == strings{"m1 s1", "m2"});
    // no more are under way than may be
    lane_fixture many;
    many.occupy();
    for (int i = 1; i <= 40; ++i) {
        many.submit(abreast("s" + std::to_string(i)));
    }
    many.go();
    CHECK(many.requests().size() == 30); // with the two that occupy it
    many.finish();
    CHECK(many.requests().size() == 40);
}

TEST_CASE("a part that leaves makes room for the next one in the same request", "[service][lane]") {
    lane_fixture f;
    const logic::attempt_keys first{0, {logic::exclusive_keys("m", 1, 1, 0, 0)}};
    const logic::attempt_keys second{0, {logic::exclusive_keys("m", 1, 1, 1, 0)}};
    const auto submit = [&f](txn what, strings puts) {
        const auto part = std::make_shared<lane_part>(std::move(what));
        part->puts = std::move(puts);
        part->likely = true;
        f.submit(part);
        return part;
    };
    const part_ptr held = submit(logic::enter(first, ""), {"m"});
    f.finish();
    const auto life = logic::after_enter(held->response, first).create_revision;
    f.occupy();
    const part_ptr released = submit(logic::release(first.by_name[0], life), {});
    const part_ptr entered = submit(logic::enter(second, ""), {"m"});
    f.finish();
    CHECK(f.requests() == strings{"-m/1-1-0 ?m/ m/1-1-1"});
    CHECK(logic::after_leaving(released->response, first.by_name[0], life, false).was_there);
    CHECK(logic::after_enter(entered->response, second).at == logic::standing::where::owner);
}

TEST_CASE("a condition that does not hold costs the others one request, and says why",
          "[service][lane]") {
    lane_fixture f;
    f.w.etcd->write("b", "");
    const auto parts = put_all({"a", "b", "c"});
    f.submit(parts);
    f.finish();
    CHECK(f.requests() == strings{"a b c", "(a else ?a) (b else ?b) (c else ?c)"});
    check_done(parts[0], true);
    check_done(parts[1], false);
    check_done(parts[2], true);
    REQUIRE(parts[1]->response.responses.size() == 1);
    CHECK(parts[1]->response.responses[0].range().kvs.at(0).key == "b");
    for (const part_ptr& p : parts) {
        CHECK(p->left == effect::none);
        CHECK(p->response.header.revision > 0);
    }
}

TEST_CASE("a refusal whose reason was not asked for leaves a doubt", "[service][lane]") {
    // An earlier copy, made by the network, may have been applied.
    const bool with_others = GENERATE(true, false);
    const bool has_reason = GENERATE(true, false);
    lane_fixture f;
    f.w.etcd->write("b", "");
    auto b =
        std::make_shared<lane_part>(txn().when(compare::version("b") == 0).then(op::put("b", "")));
    if (has_reason) {
        b = put_new("b");
        b->asks_why = false;
    }
    b->likely = true;
    const part_ptr a = put_new("a");
    if (with_others) {
        f.submit(a);
    }
    f.submit(b);
    f.finish();
    const std::string again = has_reason ? "(a else ?a) (b else ?b)" : "(a else ?a) (b)";
    CHECK(f.requests() == (with_others ? strings{"a b", again} : strings{"b"}));
    check_done(b, false);
    const bool told = with_others && has_reason; // it cost nothing
    CHECK(b->response.responses.size() == (told ? 1 : 0));
    CHECK(b->left == (told ? effect::none : effect::settled));
    CHECK(a->left == effect::none);
}

TEST_CASE("a doubt stays while there is no answer", "[service][lane]") {
    const bool arrives = GENERATE(true, false);
    lane_fixture f;
    f.w.etcd->write("b", "");
    const part_ptr b = put_new("b");
    f.submit(b);
    f.w.env->pass(round_trip / 2);
    f.w.env->decide = [arrives](const call_request&) {
        scripted_env::fate fate;
        fate.refused = !arrives;
        fate.answered = false;
        return fate;
    };
    f.finish();
    CHECK(f.requests().front() == "b");
    CHECK(f.requests().back() == "b else ?b");
    CHECK(b->over);
    CHECK(b->ec == (arrives ? errc::outcome_unknown : errc::unavailable));
    CHECK(b->left == (arrives ? effect::unresolved : effect::settled));
}

TEST_CASE("if a request is refused for good, its transactions go on in smaller ones",
          "[service][lane]") {
    lane_fixture f;
    f.w.etcd->forbidden = {"b"};
    const auto parts = put_all({"a", "b", "c"});
    f.submit(parts);
    f.finish();
    CHECK(f.requests() == strings{"a b c", "a else ?a", "b else ?b", "c else ?c"});
    check_done(parts[0], true);
    check_done(parts[2], true);
    CHECK(parts[1]->over);
    CHECK(parts[1]->ec == server_errc::permission_denied);
    CHECK_THAT(parts[1]->text, support::contains("permission denied"));
    for (const part_ptr& p : parts) {
        CHECK(p->left == effect::none);
    }

    const part_ptr alone = put_new("b");
    f.w.env->calls.clear();
    f.submit(alone);
    f.finish();
    CHECK(alone->ec == server_errc::permission_denied);
    CHECK(f.requests().size() == 1);
}

TEST_CASE("what is refused for good is found by halves", "[service][lane]") {
    lane_fixture f;
    f.w.etcd->forbidden = {"k5"};
    f.occupy();
    std::vector<part_ptr> parts;
    for (int i = 1; i <= 16; ++i) {
        parts.push_back(put_new("k" + std::to_string(i)));
    }
    f.submit(parts);
    f.finish();
    CHECK(f.requests() == strings{numbered("k", 1, 9),
                                  numbered("k", 10, 16), // two requests have become free
                                  numbered("k", 1, 4),
                                  numbered("k", 5, 8),
                                  "k9",
                                  "k5 k6",
                                  "k7 k8",
                                  "k5 else ?k5",
                                  "k6 else ?k6"});
    for (const part_ptr& p : parts) {
        CHECK(p->over);
        CHECK(p->ec ==
              (p == parts[4] ? make_error_code(server_errc::permission_denied) : error_code()));
    }
}

TEST_CASE("what was refused for good lately goes alone, for a while", "[service][lane]") {
    lane_fixture f;
    f.w.etcd->forbidden = {"n.1"};
    const auto submit = [&f] {
        f.w.env->calls.clear();
        const auto parts =
            put_all({"a" + std::to_string(f.w.env->now().time_since_epoch().count()),
                     "n.1",
                     "b" + std::to_string(f.w.env->now().time_since_epoch().count())});
        f.submit(parts);
        f.w.env->pass(100ms);
        for (const part_ptr& p : parts) {
            CHECK(p->over);
        }
        return f.requests();
    };
    CHECK(submit().size() == 4); // all, then one by one
    strings later = submit();
    REQUIRE(later.size() == 2);
    CHECK(later[0] == "n.1 else ?n.1");
    CHECK(later[1].find("n.1") == std::string::npos);
    // Another key of the same name, too.
    f.w.env->calls.clear();
    const auto both = put_all({"c", "n.2"});
    f.submit(both);
    f.w.env->pass(100ms);
    CHECK(f.requests() == strings{"n.2 else ?n.2", "c"});
    check_done(both[1], true); // so it has the benefit of the doubt again
    CHECK(submit().size() == 4);
    CHECK(submit().size() == 2);
    f.w.env->pass(11s);
    CHECK(submit().size() == 4);
}

TEST_CASE("the lack of another's lease leaves a doubt until there is an answer",
          "[service][lane]") {
    // An earlier copy, made by the network, may have been applied while the lease was there.
    const bool in_time = GENERATE(true, false);
    lane_fixture f;
    const part_ptr a = put_new("a");
    const auto b = std::make_shared<lane_part>(
        txn().when(compare::version("b") == 0).then(op::put("b", "", put_options{42})));
    b->likely = true;
    if (!in_time) {
        a->not_after = f.w.env->now() + round_trip;
    }
    f.submit({a, b});
    f.finish();
    CHECK(f.requests() == (in_time ? strings{"a b", "a else ?a", "b"} : strings{"a b", "b"}));
    CHECK(b->ec == server_errc::not_found);
    CHECK(a->over);
    CHECK(a->ec == (in_time ? error_code() : errc::timed_out));
    CHECK(a->left == (in_time ? effect::none : effect::settled));
}

TEST_CASE("an answer that is none ends only those whose it is", "[service][lane]") {
    lane_fixture f;
    const auto serve = f.w.env->on_call;
    f.w.env->on_call = [serve](const call_request& request, reply& r) {
        serve(request, r);
        if (text(json::parse(request.body).at("success")).find('b') != std::string::npos) {
            r.body =
                R"({"header":{"cluster_id":"14841639068965178418","revision":"9"},"succeeded":true})";
        }
    };
    const auto parts = put_all({"a", "b", "c"});
    f.submit(parts);
    f.finish();
    CHECK(parts[0]->over);
    CHECK_FALSE(parts[0]->ec);
    CHECK(parts[0]->left == effect::unresolved); // it was done, or will be
    CHECK_FALSE(parts[2]->ec);
    CHECK(parts[1]->over);
}

TEST_CASE("a request that fails for a while is not taken apart", "[service][lane]") {
    lane_fixture f;
    f.w.env->decide = [](const call_request&) {
        scripted_env::fate fate;
        fate.refused = true;
        return fate;
    };
    const auto parts = put_all({"a", "b"});
    f.submit(parts);
    f.w.env->pass(request_timeout - 1ms);
    CHECK_FALSE(parts[0]->over);
    f.w.env->pass(1s);
    for (const std::string& request : f.requests()) {
        CHECK(request == "a b");
    }
    for (const part_ptr& p : parts) {
        CHECK(p->over);
        CHECK(p->ec == errc::unavailable);
        CHECK_FALSE(p->text.empty());
        CHECK(p->left == effect::none);
    }
}

TEST_CASE("what there is no time left for is not sent", "[service][lane]") {
    lane_fixture f;
    f.occupy();
    const auto parts = put_all({"a", "b", "c", "d"});
    parts[0]->not_after = f.w.env->now() + round_trip;
    parts[1]->not_after = f.w.env->now() + round_trip + 1ns;
    // More than a tenth is left.
    parts[2]->not_after = f.w.env->now() + std::chrono::nanoseconds(round_trip) * 10 / 9 + 1us;
    f.submit(parts);
    f.finish();
    CHECK(f.requests() == strings{"c d"});
    for (const part_ptr& late : {parts[0], parts[1]}) {
        CHECK(late->over);
        CHECK(late->ec == errc::timed_out);
        CHECK(late->left == effect::none);
        CHECK_FALSE(late->text.empty());
    }
    check_done(parts[2], true);
    check_done(parts[3], true);
}

TEST_CASE("what has not waited is sent, however little time is left", "[service][lane]") {
    lane_fixture f;
    const part_ptr hasty = put_new("a");
    hasty->not_after = f.w.env->now() + 1ns;
    const part_ptr late = put_new("b");
    late->not_after = f.w.env->now();
    f.submit({hasty, late, put_new("c")});
    f.finish();
    CHECK(f.requests() == strings{"a c"});
    check_done(hasty, true);
    CHECK(late->ec == errc::timed_out);
}

TEST_CASE("a request is repeated until the last of its transactions has no time left",
          "[service][lane]") {
    lane_fixture f;
    const time_point began = f.w.env->now();
    f.lose_answers(1000);
    const auto parts = put_all({"a", "b"});
    parts[0]->not_after = began + 1s;
    parts[1]->not_after = began + 3s;
    std::vector<std::chrono::nanoseconds> ends;
    for (const part_ptr& p : parts) {
        p->on_end = [&] { ends.push_back(f.w.env->now() - began); };
    }
    f.submit(parts);
    f.finish();
    CHECK(ends == std::vector<std::chrono::nanoseconds>{3s, 3s});
    CHECK(parts[0]->ec == errc::outcome_unknown);
    CHECK(parts[0]->left == effect::unresolved);

    f.submit(put_new("c")); // not longer than any request
    const time_point then = f.w.env->now();
    const part_ptr d = put_new("d");
    d->on_end = [&] { ends.push_back(f.w.env->now() - then); };
    f.submit(d);
    f.finish();
    CHECK(ends.back() == request_timeout);
}

TEST_CASE("after a lost answer a request is repeated as it is", "[service][lane]") {
    lane_fixture f;
    f.lose_answers(1);
    const auto parts = put_all({"a", "b"});
    parts[0]->likely = parts[1]->likely = false; // so that the copy finds the first one's keys
    const time_point began = f.w.env->now();
    f.submit(parts);
    f.finish();
    CHECK(f.requests() == strings{"(a else ?a) (b else ?b)", "(a else ?a) (b else ?b)"});
    for (const part_ptr& p : parts) {
        check_done(p, false);
        CHECK(p->response.responses.at(0).range().kvs.size() == 1);
        CHECK(p->left == effect::unresolved);
        CHECK(p->sent >= began + attempt_timeout);
    }
}

TEST_CASE("what is withdrawn before it is sent is not sent", "[service][lane]") {
    lane_fixture f;
    const auto parts = put_all({"a", "b", "c"});
    bool told = false;
    parts[1]->on_end = [&told] { told = true; };
    f.submit(parts);
    f.lane->withdraw(parts[1]);
    CHECK(parts[1]->over);
    f.go();
    f.finish();
    CHECK(f.requests() == strings{"a c"});

    f.occupy();
    const part_ptr d = put_new("d");
    d->order = rank::patient;
    f.submit(d);
    f.go();
    f.lane->withdraw(d);
    f.finish();
    CHECK(f.requests().empty());
    CHECK_FALSE(told);
}

TEST_CASE("what is withdrawn under way goes on, and so do the others", "[service][lane]") {
    lane_fixture f;
    const auto parts = put_all({"a", "b"});
    bool told = false;
    parts[0]->on_end = [&told] { told = true; };
    f.submit(parts);
    f.go();
    { const withdrawn_at_end gone{*f.lane, parts[0]}; }
    CHECK_FALSE(parts[0]->over);
    f.finish();
    CHECK_FALSE(told);
    CHECK(f.w.etcd->keys.contains("a"));
    check_done(parts[0], true);
    check_done(parts[1], true);
    f.lane->withdraw(parts[1]); // too late to matter
    check_done(parts[1], true);
}

TEST_CASE("a part that is told may submit and withdraw others", "[service][lane]") {
    lane_fixture f;
    f.w.etcd->write("b", "");
    const auto parts = put_all({"a", "b"});
    const part_ptr next = put_new("next");
    int told = 0;
    parts[0]->on_end = [&] {
        ++told;
        f.lane->withdraw(parts[1]); // which has not been told yet
        f.submit(next);
    };
    parts[1]->on_end = [&] { ++told; };
    f.submit(parts);
    f.finish();
    CHECK(f.requests() == strings{"a b", "(a else ?a) (b else ?b)", "next"});
    CHECK(told == 1);
    CHECK(parts[1]->over);
    check_done(next, true);
}

TEST_CASE("a part that is told that there is no time left may withdraw others", "[service][lane]") {
    lane_fixture f;
    f.occupy();
    const part_ptr late = put_new("late");
    late->not_after = f.w.env->now() + 1ms;
    const part_ptr first = put_new("m1", "m");
    const part_ptr second = put_new("m2", "m"); // which finds no place in the same request
    late->on_end = [&] {
        f.lane->withdraw(first);
        f.lane->withdraw(second);
    };
    f.submit({first, second, late});
    f.w.env->pass(round_trip);
    CHECK(late->over);
    CHECK(first->in_flight);
    CHECK_FALSE(first->over);
    CHECK(second->over);
    f.finish();
    CHECK(f.requests() == strings{"m1"});
    check_done(first, true);
}

TEST_CASE("patient ones stand back, but a quarter of each request is theirs", "[service][lane]") {
    lane_fixture f;
    f.occupy();
    for (int i = 1; i <= 60; ++i) {
        const part_ptr p = put_new("p" + std::to_string(i));
        p->order = rank::patient;
        f.submit(p);
    }
    for (int i = 1; i <= 60; ++i) {
        f.submit(put_new("k" + std::to_string(i)));
    }
    f.finish();
    CHECK(f.requests() == strings{numbered("k", 1, 45) + " " + numbered("p", 1, 15),
                                  numbered("k", 46, 60) + " " + numbered("p", 16, 60)});
}

TEST_CASE("the room of patient ones that are not there is for those in a hurry",
          "[service][lane]") {
    lane_fixture f;
    const part_ptr p = put_new("p");
    p->order = rank::patient;
    f.submit(p);
    for (int i = 1; i <= 15; ++i) {
        f.submit(put_new("k" + std::to_string(i)));
    }
    f.go();
    CHECK(f.requests() == strings{numbered("k", 1, 7) + " p", numbered("k", 8, 15)});
}

TEST_CASE("a crowd of patient ones goes together, for it has one request", "[service][lane]") {
    lane_fixture f;
    for (int i = 1; i <= 70; ++i) {
        const part_ptr p = put_new("p" + std::to_string(i));
        p->order = rank::patient;
        f.submit(p);
    }
    f.go();
    CHECK(f.requests() == strings{numbered("p", 1, 60)});
    f.finish();
    CHECK(f.requests().back() == numbered("p", 61, 70));
}

TEST_CASE("patient ones alone never take all that may be under way", "[service][lane]") {
    lane_fixture f;
    f.w.env->round_trip = 1s; // a member far away, or slow
    const auto look = [&f](const std::string& key) {
        const part_ptr p = put_new(key);
        p->order = rank::patient;
        f.submit(p);
        f.go();
    };
    look("p1");
    look("p2");
    look("p3");
    CHECK(f.requests() == strings{"p1"});
    f.submit(put_new("unlock"));
    f.go();
    CHECK(f.requests() == strings{"p1", "unlock p2 p3"});
    f.finish();
    look("p4");
    f.w.env->pass(1s);
    CHECK(f.requests().back() == "p4");
}

TEST_CASE("a crowd is withdrawn in less time than it took to come", "[service][lane]") {
    lane_fixture f;
    f.occupy();
    std::vector<part_ptr> crowd;
    const std::clock_t first = std::clock();
    for (int i = 0; i != 20'000; ++i) {
        crowd.push_back(put_new("k" + std::to_string(i)));
        f.submit(crowd.back());
    }
    const std::clock_t then = std::clock();
    for (const part_ptr& part : crowd) {
        f.lane->withdraw(part);
    }
    CHECK(std::clock() - then < then - first);
    f.submit(put_new("late"));
    f.finish();
    CHECK(f.requests() == strings{"late"});
    for (const part_ptr& part : crowd) {
        CHECK(part->over);
        CHECK(part.use_count() == 1);
    }
}

TEST_CASE("what is withdrawn under way is not sent again", "[service][lane]") {
    lane_fixture f;
    f.w.etcd->write("b", "");
    const auto parts = put_all({"a", "b", "c"});
    f.submit(parts);
    f.go();
    { const withdrawn_at_end gone{*f.lane, parts[0]}; }
    f.finish();
    CHECK(f.requests() == strings{"a b c", "(b else ?b) (c else ?c)"});
    CHECK(parts[0]->over);
    CHECK(parts[0]->left == effect::settled);
    check_done(parts[2], true);
}

TEST_CASE("what is withdrawn under way is repeated only for parts that share its request",
          "[service][lane]") {
    const bool shared = GENERATE(false, true);
    lane_fixture f;
    f.lose_answers(2);
    const part_ptr a = put_new("a");
    const part_ptr b = put_new("b");
    f.submit(a);
    if (shared) {
        f.submit(b);
    }
    f.go();
    f.lane->withdraw(a);
    f.w.env->pass(attempt_timeout - 1ms);
    CHECK_FALSE(a->over); // it may still be answered
    f.finish();
    CHECK(f.requests() == (shared ? strings{"a b", "a b", "a b", "(b else ?b)"} : strings{"a"}));
    CHECK(a->over);
    CHECK(a->left == effect::unresolved);
}

TEST_CASE("a part that something before etcd refuses does not take others of its request along",
          "[service][lane]") {
    lane_fixture f;
    const auto serve = f.w.env->on_call;
    f.w.env->on_call = [serve](const call_request& request, reply& r) {
        serve(request, r);
        if (text(json::parse(request.body).at("success")).find('b') != std::string::npos) {
            r.status = 403; // a filter that does not like a name
            r.body = "<html>what is this?</html>";
        }
    };
    const auto parts = put_all({"a", "b", "c"});
    const time_point began = f.w.env->now();
    std::chrono::nanoseconds took{0};
    parts[2]->on_end = [&] { took = f.w.env->now() - began; };
    f.submit(parts);
    f.finish();
    CHECK(parts[0]->over);
    CHECK_FALSE(parts[0]->ec);
    CHECK_FALSE(parts[2]->ec);
    CHECK(took < 1s);
    CHECK(parts[1]->ec == errc::protocol_error); // in its own time
    CHECK(parts[1]->left == effect::none);
}

TEST_CASE("a page in the place of etcd's answers passes", "[service][lane]") {
    lane_fixture f;
    f.occupy();
    const auto serve = f.w.env->on_call;
    const time_point until = f.w.env->now() + 3s;
    const unsigned status = GENERATE(404U, 200U);
    f.w.env->on_call = [&, serve](const call_request& request, reply& r) {
        serve(request, r);
        if (f.w.env->now() < until) {
            r.status = status;
            r.body = "<html>hello</html>";
        }
    };
    const part_ptr one = put_new("a");
    f.submit(one);
    f.finish();
    CHECK_FALSE(one->ec);
}

TEST_CASE("where no part is patient, those in a hurry have all the room", "[service][lane]") {
    lane_fixture f;
    f.occupy();
    for (int i = 1; i <= 120; ++i) {
        f.submit(put_new("k" + std::to_string(i)));
    }
    f.finish();
    CHECK(f.requests() == strings{numbered("k", 1, 60), numbered("k", 61, 120)});
}

TEST_CASE("a part that finds no place lets so many pass, and no more", "[service][lane]") {
    for (const int others : {200, 300}) {
        lane_fixture f;
        f.occupy();
        for (int i = 1; i <= others; ++i) {
            f.submit(put_new("m" + std::to_string(i), "m"));
        }
        f.submit(put_new("last"));
        f.w.env->pass(round_trip);
        CHECK(f.requests().front() == (others == 200 ? "m1 last" : "m1"));
        CHECK(f.requests().at(1) == "m2");
    }
}

TEST_CASE("what is under way when the lane ends is answered, and no more is sent",
          "[service][lane]") {
    lane_fixture f;
    const part_ptr a = put_new("a");
    bool told = false;
    a->on_end = [&told] { told = true; };
    f.submit(a);
    f.go();
    const part_ptr b = put_new("b");
    f.submit(b);
    const std::weak_ptr<transaction_lane> weak = f.lane;
    f.lane = nullptr;
    f.finish();
    CHECK(weak.expired());
    CHECK(told);
    check_done(a, true);
    CHECK(f.requests().size() <= 2);

    lane_fixture never;
    never.submit(put_new("a"));
    never.lane = nullptr; // before anything was sent
    never.finish();
    CHECK(never.requests().empty());
}

TEST_CASE("a lack of memory in the midst ends what was under way, and nothing else",
          "[service][lane]") {
    lane_fixture f;
    f.w.env->decide = [](const call_request&) -> scripted_env::fate { throw std::bad_alloc(); };
    const std::vector<part_ptr> some = put_all({"a", "b"});
    f.submit(some);
    CHECK_THROWS_AS(f.go(), std::bad_alloc); // it comes out of the event loop
    for (const part_ptr& part : some) {
        CHECK(part->over);
        CHECK_FALSE(part->in_flight);
        CHECK(part->ec == errc::outcome_unknown);
        CHECK(part->left == effect::unresolved);
    }
    f.w.env->decide = nullptr;
    const std::vector<part_ptr> others = put_all({"c", "d", "e"});
    for (const part_ptr& part : others) {
        f.submit(part);
        f.go();
    }
    f.finish();
    for (const part_ptr& part : others) {
        check_done(part, true);
    }
}

namespace {

part_ptr patient(const part_ptr& part) {
    part->order = rank::patient;
    return part;
}

/// A part that takes so many of a request's operations.
part_ptr wide(const std::string& key, int operations) {
    txn t;
    for (int i = 0; i != operations; ++i) {
        t.success.push_back(op::range(key));
    }
    const auto part = std::make_shared<lane_part>(std::move(t));
    part->likely = true;
    return part;
}

/// Keeps the lane busy: each one that ends is followed by another, of as many operations.
class crowd {
public:
    crowd(lane_fixture& f, int size, int operations)
        : f_(f)
        , operations_(operations) {
        for (int i = 0; i != size; ++i) {
            next();
        }
    }
    ~crowd() {
        for (const part_ptr& each : all_) { // some may still be on their way
            each->on_end = nullptr;
        }
    }

    int ended = 0;

private:
    void next() {
        const part_ptr part = wide("crowd", operations_);
        part->on_end = [this] {
            ++ended;
            next();
        };
        f_.submit(part);
        all_.push_back(part);
    }

    lane_fixture& f_;
    const int operations_;
    std::vector<part_ptr> all_;
};

} // namespace

TEST_CASE("a part that stands back does so for a few requests, or a while", "[service][lane]") {
    for (const std::chrono::milliseconds round_trip : {2ms, 50ms, 400ms}) {
        CAPTURE(round_trip.count());
        lane_fixture f;
        f.w.env->round_trip = round_trip;
        crowd busy(f, 8, 70); // no two fit into one request
        f.w.env->pass(round_trip * 3 / 2);
        const part_ptr look = patient(wide("look", 70));
        const time_point then = f.w.env->now();
        std::optional<std::chrono::nanoseconds> took;
        look->on_end = [&] { took = f.w.env->now() - then; };
        f.submit(look);
        f.w.env->pass(10s);
        REQUIRE(took);
        CHECK(*took <= round_trip * 5); // six came before it
        CHECK(busy.ended > 20);
    }
}

TEST_CASE("a part that stands back and has to go alone does so in time", "[service][lane]") {
    lane_fixture f;
    f.w.etcd->forbidden = {"n/1"};
    crowd busy(f, 8, 1);
    f.w.env->pass(10ms);
    f.submit({put_new("n/1"), patient(put_new("p1")), patient(put_new("p2"))});
    f.w.env->pass(100ms);
    const part_ptr look = patient(put_new("n/2")); // suspect
    f.submit(look);
    f.w.env->pass(100ms);
    CHECK(look->over);
    CHECK_FALSE(look->ec);
}

TEST_CASE("many parts that stand back take turns with those in a hurry", "[service][lane]") {
    lane_fixture f;
    crowd busy(f, 4, 100);
    f.w.env->pass(10ms);
    std::vector<part_ptr> looks;
    for (int i = 0; i != 40; ++i) {
        looks.push_back(patient(wide("look", 100)));
        f.submit(looks.back());
    }
    const int before = busy.ended;
    f.w.env->pass(500ms);
    for (const part_ptr& look : looks) {
        CHECK(look->over);
    }
    CHECK(busy.ended - before > 100);
}
