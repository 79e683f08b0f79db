// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/net/dialer.hpp>

#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/dialing.hpp"
#include "support/scripted_env.hpp"
#include "support/world.hpp"

using namespace coetcd;
using namespace coetcd::detail;
using namespace std::chrono_literals;
using support::scripted_connector;

namespace {

using fate = scripted_connector::fate;

/// A dialer, a name, and what becomes of each of its addresses.
struct dialing {
    explicit dialing(std::vector<const char*> name = {"10.0.0.1"})
        : listed(std::move(name)) {}

    support::background<net::connect_result> start(std::chrono::nanoseconds timeout = 1min) {
        logic::endpoint to;
        to.host = "name";
        to.port = 7;
        return {context, dials.connect(to, env->now() + timeout)};
    }
    /// What an attempt comes to, at its end.
    std::string connect() {
        began = env->now();
        attempts_before = how->begun().size();
        auto one = start();
        for (env->pass(0s); !one.ended(); env->pass(1ms)) {
        }
        const net::connect_result r = one.get();
        return r.connected ? r.connected->peer.to_string() : r.ec.message();
    }
    std::chrono::nanoseconds took() const { return env->now() - began; }
    /// When each attempt since then has begun, in ms, and where to.
    std::string attempts() const {
        std::string out;
        for (std::size_t i = attempts_before; i != how->begun().size(); ++i) {
            const auto& each = how->begun()[i];
            out += each.to.to_string().substr(7) + " at " +
                   std::to_string((each.when - began) / 1ms) + "; ";
        }
        return out;
    }

    asio::io_context context;
    const std::shared_ptr<support::scripted_env> env =
        std::make_shared<support::scripted_env>(context);
    std::vector<const char*> listed;
    std::chrono::nanoseconds lookup_takes{0};
    int lookups = 0;
    std::map<std::string, fate> fates; // else it connects at once
    const std::shared_ptr<scripted_connector> how = std::make_shared<scripted_connector>(
        *env, [this](const asio::ip::address& a) { return fates[a.to_string()]; });
    net::dialer dials{*env, options(), how};
    time_point began;
    std::size_t attempts_before = 0;

private:
    net::net_options options() {
        net::net_options o;
        o.lookup = [this](const std::string&, auto tell) {
            ++lookups;
            logic::addresses found;
            for (const char* each : listed) {
                found.push_back(asio::ip::make_address(each));
            }
            env->at(env->now() + lookup_takes, [tell, found] { tell({}, found); });
        };
        return o;
    }
};

constexpr auto refused = asio::error::connection_refused;
const fate black_hole{1h, {}, {}};

} // namespace

TEST_CASE("a name with many addresses that are far away connects at once", "[net][dialer]") {
    dialing d({"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"});
    for (const char* each : d.listed) {
        d.fates[each].takes = 240ms;
    }
    CHECK(d.connect() == "10.0.0.1");
    CHECK(d.took() == 240ms);
    CHECK(d.how->under_way() == 0);
}

TEST_CASE("addresses that do not answer hold up the next one a little", "[net][dialer]") {
    dialing d({"10.0.0.1", "10.0.0.2", "10.0.0.3"});
    d.fates["10.0.0.1"] = d.fates["10.0.0.2"] = black_hole;
    CHECK(d.connect() == "10.0.0.3");
    CHECK(d.attempts() == "1 at 0; 2 at 250; 3 at 500; ");
    CHECK(d.took() == 500ms);
    CHECK(d.how->under_way() == 0); // those that have lost are given up
}

TEST_CASE("an attempt that is dropped for lack of memory is not waited for without end",
          "[net][dialer]") {
    dialing d({"10.0.0.1", "10.0.0.2"});
    d.fates["10.0.0.1"].dropped = true;
    CHECK(d.connect() == "10.0.0.2");
    CHECK(d.took() == 250ms);
    d.fates["10.0.0.2"].dropped = true;
    CHECK(d.connect() == make_error_code(errc::timed_out).message());
    CHECK(d.took() < 1min + 1s);
}

TEST_CASE("the first that succeeds counts, also if it is not the last to begin", "[net][dialer]") {
    dialing d({"10.0.0.1", "10.0.0.2"});
    d.fates["10.0.0.1"].takes = 300ms;
    d.fates["10.0.0.2"].takes = 100ms;
    CHECK(d.connect() == "10.0.0.1");
    CHECK(d.took() == 300ms);
    CHECK(d.attempts() == "1 at 0; 2 at 250; ");
}

TEST_CASE("an address that refuses holds up nothing, and is the last one from then on",
          "[net][dialer]") {
    dialing d({"10.0.0.1", "10.0.0.2", "10.0.0.3"});
    d.fates["10.0.0.1"].ec = refused;
    CHECK(d.connect() == "10.0.0.2");
    CHECK(d.attempts() == "1 at 0; 2 at 0; ");
    CHECK(d.connect() == "10.0.0.2");
    d.fates["10.0.0.2"] = black_hole;
    CHECK(d.connect() == "10.0.0.3");
    CHECK(d.attempts() == "2 at 0; 3 at 250; ");
    CHECK(d.lookups == 1);
}

TEST_CASE("one that has answered gets the time to finish", "[net][dialer]") {
    dialing d({"10.0.0.1", "10.0.0.2"});
    d.fates["10.0.0.1"] = {400ms, {}, 200ms};
    CHECK(d.connect() == "10.0.0.1");
    CHECK(d.attempts() == "1 at 0; ");
    // If it does not, the other has its turn.
    d.fates["10.0.0.1"] = {1h, {}, 200ms};
    CHECK(d.connect() == "10.0.0.2");
    CHECK(d.attempts() == "1 at 0; 2 at 450; ");
}

TEST_CASE("the time to connect is for all addresses together", "[net][dialer]") {
    dialing d({"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"});
    for (const char* each : d.listed) {
        d.fates[each] = black_hole;
    }
    d.lookup_takes = 100ms;
    CHECK(d.connect() == make_error_code(errc::timed_out).message());
    CHECK(d.took() == 1s);
    CHECK(d.how->begun().size() == 6); // each had its turn
    CHECK(d.how->under_way() == 0);
}

TEST_CASE("a lookup that takes all the time leaves none to connect", "[net][dialer]") {
    for (const auto takes : {1s, 2s}) {
        dialing d;
        d.lookup_takes = takes;
        CHECK(d.connect() == make_error_code(errc::timed_out).message());
        CHECK(d.took() == 1s);
        CHECK(d.attempts().empty());
    }
}

TEST_CASE("the failure that tells most is told", "[net][dialer]") {
    dialing d({"10.0.0.1", "10.0.0.2"});
    d.fates["10.0.0.1"].ec = errc::tls_failed;
    d.fates["10.0.0.2"].ec = refused;
    CHECK(d.connect() == make_error_code(errc::tls_failed).message());
}

TEST_CASE("an attempt to connect can be cancelled, with all that is under way",
          "[net][dialer][cancellation]") {
    for (const auto time : {0ms, 50ms, 300ms, 600ms}) {
        CAPTURE(time.count());
        dialing d({"10.0.0.1", "10.0.0.2"});
        d.lookup_takes = 50ms;
        d.fates["10.0.0.1"] = d.fates["10.0.0.2"] = black_hole;
        auto one = d.start();
        d.env->pass(time);
        CHECK_FALSE(one.ended());
        one.cancel();
        d.env->pass(0s);
        CHECK(one.code() == asio::error::operation_aborted);
        CHECK(d.how->under_way() == 0);
        // That says nothing about the addresses.
        d.fates.clear();
        CHECK(d.connect() == "10.0.0.1");
        CHECK(d.lookups == 1);
    }
}

TEST_CASE("a lack of our own is no address's fault", "[net][dialer]") {
    dialing d({"10.0.0.1", "10.0.0.2"});
    const error_code none = asio::error::no_descriptors;
    d.fates["10.0.0.1"].ec = d.fates["10.0.0.2"].ec = none;
    CHECK(d.connect() == none.message());
    d.env->pass(1s);
    d.fates.clear();
    CHECK(d.connect() == "10.0.0.1");
    CHECK(d.lookups == 1);
}

TEST_CASE("a name that leads elsewhere is followed once its address fails", "[net][dialer]") {
    const bool hangs = GENERATE(false, true); // the old address
    dialing d;
    d.lookup_takes = 30ms;
    CHECK(d.connect() == "10.0.0.1");
    d.env->pass(2s);
    d.fates["10.0.0.1"] = hangs ? black_hole : fate{0s, refused, {}};
    d.listed = {"10.0.0.2"};
    CHECK(d.connect() != "10.0.0.2"); // it is not known yet
    CHECK(d.connect() == "10.0.0.2");
    CHECK(d.attempts() == "2 at 30; "); // the old one is not tried again
    CHECK(d.lookups == 2);
}

TEST_CASE("an address that may be old is looked up before it is used", "[net][dialer]") {
    dialing d;
    CHECK(d.connect() == "10.0.0.1");
    d.listed = {"10.0.0.2"};
    d.env->pass(10s);
    d.lookup_takes = 30ms;
    CHECK(d.connect() == "10.0.0.2");
    CHECK(d.attempts() == "2 at 30; ");
}

TEST_CASE("a name is not looked up more often than each half second", "[net][dialer]") {
    dialing d;
    d.fates["10.0.0.1"].ec = refused;
    const time_point end = d.env->now() + 5s;
    while (d.env->now() < end) {
        CHECK(d.connect() != "10.0.0.1");
        d.env->pass(50ms);
    }
    CHECK(d.lookups == 10);
}

TEST_CASE("a lookup that hangs is no reason not to connect", "[net][dialer]") {
    dialing d;
    CHECK(d.connect() == "10.0.0.1");
    d.fates["10.0.0.1"].ec = refused;
    CHECK(d.connect() != "10.0.0.1");
    d.fates.clear();
    d.lookup_takes = 1h;
    d.env->pass(1s);
    CHECK(d.connect() == "10.0.0.1");
    CHECK(d.took() == 500ms);
    CHECK(d.connect() == "10.0.0.1");
    CHECK(d.took() == 0s); // that was long enough, for all
    CHECK(d.lookups == 2);
}
