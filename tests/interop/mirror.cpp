// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/mirror.hpp>

#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "go_client.hpp"
#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/etcd_server.hpp"
#include "support/run_test.hpp"

using namespace interop;
using namespace support;
namespace asio = boost::asio;
using coetcd::client;
using coetcd::op;

namespace {

/// Puts, erases and transactions below a prefix.
class mirrored_writer {
public:
    mirrored_writer(client c, std::string prefix)
        : c_(std::move(c))
        , prefix_(std::move(prefix)) {}

    awaitable<void> write(int times) {
        for (int i = 0; i != times; ++i) {
            coetcd::txn all;
            std::set<std::string> keys; // a transaction may change a key once
            const int n = between(1, 8);
            for (int k = 0; k != n; ++k) {
                keys.insert(prefix_ + std::to_string(between(0, 1500)));
            }
            for (const std::string& key : keys) {
                if (between(0, 3) == 0) {
                    all.then(op::erase(key));
                } else {
                    all.then(op::put(key, std::to_string(luck_())));
                }
            }
            (void)co_await c_.txn(std::move(all));
        }
    }
    awaitable<std::int64_t> end() {
        const coetcd::put_response last = co_await c_.put(prefix_ + "end", "");
        co_return last.header.revision;
    }

private:
    int between(int least, int most) {
        return std::uniform_int_distribution<int>(least, most)(luck_);
    }

    client c_;
    std::string prefix_;
    std::mt19937 luck_{36};
};

/// As Go tells them: in the order of these texts.
std::string text_of(const coetcd::mirror_snapshot& keys) {
    std::multiset<std::string> all;
    for (const coetcd::mirror_entry& e : keys.entries) {
        all.insert(e->key + '=' + e->value + ' ' + std::to_string(e->mod_revision) + '\n');
    }
    std::string text;
    for (const std::string& each : all) {
        text += each;
    }
    return text;
}

} // namespace

TEST_CASE("A mirror and Go's have the same keys", "[interop][mirror]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, shared_etcd().url());
        go_client go(shared_etcd());
        const std::string prefix = unique_name("mirror") + '/';
        mirrored_writer writer(c, prefix);
        co_await writer.write(800);
        coetcd::mirror ours = co_await coetcd::open_mirror(c, prefix);
        task<std::string> theirs(executor, go.call("mirrored?name=" + prefix));
        co_await writer.write(400); // while it reads
        const std::string begun = co_await go.told();
        CHECK(begun.starts_with("mirrored "));
        co_await writer.write(400);
        const std::int64_t revision = co_await writer.end();
        co_await ours.wait(revision);
        const std::string all = co_await theirs.result();
        const bool same = text_of(ours.snapshot()) == all;
        CHECK(same);
        CHECK(all.size() > 1000);
        CHECK(ours.revision() == revision);
    });
}
