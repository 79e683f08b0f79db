// SPDX-License-Identifier: BSL-1.0
#include <coetcd/pages.hpp>

#include <boost/system/system_error.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"
#include "support/writes.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::key_page;
using coetcd::key_range;
using coetcd::page_options;
using coetcd::pages;
using coetcd::server_errc;
using coetcd::detail::call_request;
using coetcd::detail::rpc;
using support::world;

namespace {

bool is_read(const call_request& r) {
    return r.what == rpc::range;
}

std::string keys_of(const std::optional<key_page>& page) {
    std::string all;
    for (const coetcd::key_value& kv : page.value().kvs) {
        all += kv.key.substr(2) + ' ';
    }
    return all;
}

struct pages_settings {
    explicit pages_settings(coetcd::client_options o = {})
        : client(w.client(o)) {
        for (char c = 'a'; c != 'h'; ++c) {
            w.etcd->write(std::string("k/") + c, "1");
        }
        w.etcd->write("k", "beside");
        w.etcd->write("k0", "beside");
    }
    pages make(page_options how) { return pages(client, key_range::prefix("k/"), how); }
    static page_options of(std::int64_t size) {
        page_options how;
        how.size = size;
        return how;
    }

    /// Answers larger than this are too large for the client.
    void limit_answers(std::size_t bytes) {
        w.env->on_call = [serve = w.env->on_call, bytes](const call_request& q,
                                                         coetcd::detail::reply& r) {
            serve(q, r);
            if (r.body.size() > bytes) {
                r.ec = errc::too_large;
            }
        };
    }

    world w;
    coetcd::client client;
};

} // namespace

TEST_CASE("a range is read in pages, one round trip each", "[pages]") {
    pages_settings s;
    pages p = s.make(pages_settings::of(3));
    REQUIRE(p.get_executor() == s.client.get_executor());
    CHECK(s.w.env->calls.empty());
    const auto first = s.w.await(p.next());
    CHECK(keys_of(first) == "a b c ");
    CHECK(first->left == 4);
    CHECK(first->kvs.front().value == "1");
    CHECK(keys_of(s.w.await(p.next())) == "d e f ");
    CHECK(s.w.env->calls.size() == 2);
    const auto last = s.w.await(p.next());
    CHECK(keys_of(last) == "g ");
    CHECK(last->left == 0);
    CHECK(s.w.env->calls.size() == 3);
    CHECK_FALSE(s.w.await(p.next()));
    CHECK_FALSE(s.w.await(p.next()));
    CHECK(s.w.env->calls.size() == 3);
    pages all = s.make({});
    CHECK(s.w.await(all.next())->kvs.size() == 7);
    CHECK_FALSE(s.w.await(all.next()));
    pages none(s.client, key_range::prefix("nothing/"));
    CHECK(s.w.await(none.next())->kvs.empty());
    CHECK_FALSE(s.w.await(none.next()));
    page_options bare;
    bare.keys_only = true;
    pages keys = s.make(bare);
    CHECK(s.w.await(keys.next())->kvs.front().value.empty());
}

TEST_CASE("all pages are of one revision, whatever is written meanwhile", "[pages]") {
    pages_settings s;
    pages p = s.make(pages_settings::of(3));
    const auto first = s.w.await(p.next());
    const std::int64_t revision = s.w.etcd->revision;
    CHECK(first->revision == revision);
    s.w.etcd->erase("k/d");
    s.w.etcd->write("k/e", "2");
    s.w.etcd->write("k/dd", "new");
    const auto second = s.w.await(p.next());
    CHECK(keys_of(second) == "d e f ");
    CHECK(second->kvs.at(1).value == "1");
    CHECK(second->revision == revision);
    page_options then = pages_settings::of(10);
    then.revision = revision;
    pages before = s.make(then);
    const auto old = s.w.await(before.next());
    CHECK(keys_of(old) == "a b c d e f g ");
    CHECK(old->revision == revision);
    pages now = s.make({});
    CHECK(keys_of(s.w.await(now.next())) == "a b c dd e f g ");
}

TEST_CASE("a page whose answer is too large is halved, and grows again", "[pages]") {
    pages_settings s;
    s.w.etcd->write("k/b", std::string(700, 'x'));
    s.w.etcd->write("k/c", std::string(700, 'x'));
    s.limit_answers(1500);
    coetcd::client_options o;
    o.max_answer = 1500;
    const coetcd::client small = s.w.client(o);
    pages p(small, key_range::prefix("k/"), pages_settings::of(4));
    CHECK(keys_of(s.w.await(p.next())) == "a b ");
    CHECK(s.w.env->calls.size() == 2); // four, two
    CHECK(keys_of(s.w.await(p.next())) == "c d ");
    CHECK(keys_of(s.w.await(p.next())) == "e f ");
    CHECK(keys_of(s.w.await(p.next())) == "g ");
    CHECK_FALSE(s.w.await(p.next()));
    CHECK(s.w.env->calls.size() == 5);

    SECTION("one key alone is too large") {
        s.w.etcd->write("k/b", std::string(3000, 'x'));
        pages q(small, key_range::prefix("k/"), pages_settings::of(2));
        CHECK(keys_of(s.w.await(q.next())) == "a ");
        auto reading = s.w.start(q.next());
        s.w.env->pass(1s);
        const coetcd::error failure = support::failure_of(reading);
        CHECK(failure.code() == errc::too_large);
        CHECK(std::string(failure.what()).find("max_answer") != std::string::npos);
        s.w.etcd->write("k/b", "small");
        auto again = s.w.start(q.next());
        s.w.env->pass(1s);
        CHECK(again.code() == errc::too_large); // as it was then
    }
}

TEST_CASE("a compaction ends the pages, and says so", "[pages]") {
    pages_settings s;
    pages p = s.make(pages_settings::of(3));
    (void)s.w.await(p.next());
    s.w.etcd->write("k/z", "1");
    s.w.etcd->compact(s.w.etcd->revision);
    for (int time = 0; time != 2; ++time) {
        auto reading = s.w.start(p.next());
        s.w.env->pass(1s);
        const coetcd::error failure = support::failure_of(reading);
        CHECK(failure.code() == server_errc::out_of_range);
        CHECK(std::string(failure.what()).find("was compacted") != std::string::npos);
    }
    CHECK(s.w.env->calls.size() == 2); // what can never be read is not asked for again
    pages anew = s.make({});
    CHECK(s.w.await(anew.next())->kvs.size() == 8);
}

TEST_CASE("a revision that does not exist is told from a store that went back", "[pages]") {
    pages_settings s;
    page_options later = pages_settings::of(3);
    later.revision = s.w.etcd->revision + 5;
    pages early = s.make(later);
    auto reading = s.w.start(early.next());
    s.w.env->pass(1s);
    CHECK(reading.code() == server_errc::out_of_range);

    pages p = s.make(pages_settings::of(3));
    (void)s.w.await(p.next());
    s.w.env->on_call = [&, serve = s.w.env->on_call](const call_request& q,
                                                     coetcd::detail::reply& r) {
        const auto old = s.w.etcd->failure(
            q.what, 11, "etcdserver: mvcc: required revision is a future revision");
        r.status = old.status;
        r.body = old.body;
    };
    auto after = s.w.start(p.next());
    s.w.env->pass(1s);
    CHECK(after.code() == errc::revision_regressed);
}

TEST_CASE("a page that was not read is read by the next call", "[pages]") {
    pages_settings s;
    pages p = s.make(pages_settings::of(3));
    (void)s.w.await(p.next());
    SECTION("etcd was away") {
        s.w.env->decide = [](const call_request&) { return support::lost(); };
        auto reading = s.w.start(p.next());
        s.w.env->pass(10s);
        CHECK(reading.code() == errc::timed_out);
        s.w.env->decide = nullptr;
        CHECK(keys_of(s.w.await(p.next())) == "d e f ");
    }
    SECTION("an answer was lost") {
        support::fate_of(s.w, is_read, {support::broken()});
        CHECK(keys_of(s.w.await(p.next())) == "d e f ");
    }
    SECTION("the answer was not etcd's") {
        int n = 0;
        s.w.env->on_call = [&, serve = s.w.env->on_call](const call_request& q,
                                                         coetcd::detail::reply& r) {
            serve(q, r);
            if (n++ == 0) {
                r.body = R"({"header":{"cluster_id":"14841639068965178418","revision":"12"},)"
                         R"("more":true,"count":"4"})";
            }
        };
        auto reading = s.w.start(p.next());
        s.w.env->pass(1s);
        CHECK(reading.code() == errc::protocol_error);
        CHECK(keys_of(s.w.await(p.next())) == "d e f ");
    }
    SECTION("etcd refused") {
        int n = 0;
        s.w.env->on_call = [&, serve = s.w.env->on_call](const call_request& q,
                                                         coetcd::detail::reply& r) {
            const auto no = s.w.etcd->failure(q.what, 7, "etcdserver: permission denied");
            serve(q, r);
            if (n++ < 2) {
                r.status = no.status;
                r.body = no.body;
            }
        };
        auto reading = s.w.start(p.next());
        s.w.env->pass(1s);
        CHECK(reading.code() == server_errc::permission_denied);
        s.w.env->pass(1s);
        n = 2;
        CHECK(keys_of(s.w.await(p.next())) == "d e f ");
    }
}

TEST_CASE("cancelled at any moment, no page is lost", "[pages][cancellation]") {
    int whole = 0;
    for (auto when = 0us; when < 3000us; when += 100us) {
        pages_settings s;
        pages p = s.make(pages_settings::of(3));
        (void)s.w.await(p.next());
        auto reading = s.w.start(p.next());
        s.w.env->pass(when);
        reading.cancel();
        s.w.env->pass(1ms);
        REQUIRE(reading.ended());
        INFO("at " << when.count());
        std::optional<key_page> page;
        try {
            page = reading.get();
            ++whole;
        } catch (const boost::system::system_error& e) {
            REQUIRE(e.code() == asio::error::operation_aborted);
            page = s.w.await(p.next());
        }
        CHECK(keys_of(page) == "d e f ");
        CHECK(keys_of(s.w.await(p.next())) == "g ");
    }
    CHECK(whole > 0);
}

TEST_CASE("calls under way at the same time get different pages", "[pages]") {
    pages_settings s;
    std::optional<pages> p(s.make(pages_settings::of(3)));
    auto one = s.w.start(p->next());
    auto two = s.w.start(p->next());
    auto three = s.w.start(p->next());
    auto four = s.w.start(p->next());
    s.w.env->pass(0ms);
    two.cancel(); // while it waits for its turn
    p.reset();    // they go on
    s.w.env->pass(1s);
    CHECK(keys_of(one.get()) == "a b c ");
    CHECK(two.code() == asio::error::operation_aborted);
    CHECK(keys_of(three.get()) == "d e f ");
    CHECK(keys_of(four.get()) == "g ");
}

TEST_CASE("pages that cannot be are refused at once", "[pages]") {
    pages_settings s;
    CHECK_THROWS_AS(pages(s.client, ""), std::invalid_argument);
    CHECK_THROWS_AS(s.make(pages_settings::of(0)), std::invalid_argument);
    CHECK_THROWS_AS(s.make(pages_settings::of(-1)), std::invalid_argument);
    page_options before;
    before.revision = -1;
    CHECK_THROWS_AS(s.make(before), std::invalid_argument);
    pages p = s.make({});
    pages taken = std::move(p);
    CHECK_THROWS_AS(p.next(), std::logic_error); // NOLINT(bugprone-use-after-move): the question
    CHECK(s.w.await(taken.next())->kvs.size() == 7);
    CHECK(s.w.env->calls.size() == 1);
}
