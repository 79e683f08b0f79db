// Configuration that reloads live: all keys of a prefix in memory, read without a round trip, and
// kept current.
//
// Run: 20_mirror [http://127.0.0.1:2379]
#include <coetcd.hpp>
#include <coetcd/mirror.hpp>

#include <boost/asio.hpp>

#include <iostream>
#include <string>
#include <utility>

namespace asio = boost::asio;

namespace {

const std::string prefix = "examples/config/";

/// A server that is asked something serves it with the configuration of that moment.
std::string greet(const coetcd::mirror& config, const std::string& whom) {
    const coetcd::mirror_entry greeting = config.get(prefix + "greeting");
    return (greeting ? greeting->value : "hello") + ", " + whom;
}

/// What has to be done anew when something has changed: the first batch is all that there is.
asio::awaitable<void> reload(const coetcd::mirror& config, int changes) {
    coetcd::mirror_changes news = config.changes();
    while (changes > 0) {
        const coetcd::mirror_batch batch = co_await news.next();
        for (const coetcd::mirror_change& c : batch.changes) {
            std::cout << c.key().substr(prefix.size()) << " is " << (c.is ? c.is->value : "gone")
                      << '\n';
            --changes;
        }
    }
}

asio::awaitable<void> run(std::string url) {
    coetcd::client client(co_await asio::this_coro::executor, url);
    co_await client.erase(coetcd::key_range::prefix(prefix));
    co_await client.put(prefix + "level", "info");

    const coetcd::mirror config = co_await coetcd::open_mirror(client, prefix);
    co_await reload(config, 1);
    std::cout << greet(config, "world") << '\n';

    const auto written = co_await client.put(prefix + "greeting", "good morning");
    co_await config.wait(written.header.revision); // as soon as it is here
    std::cout << greet(config, "world") << '\n';

    co_await client.erase(prefix + "level");
    const auto last = co_await client.put(prefix + "greeting", "good night");
    co_await config.wait(last.header.revision);
    co_await reload(config, 1); // a new reader begins with what there is
    std::cout << greet(config, "world") << '\n';
    if (const auto trouble = config.trouble()) { // it goes on with what it knows
        std::cout << trouble->what() << '\n';
    }
}

} // namespace

int main(int argc, char** argv) {
    asio::io_context context;
    auto story = run(argc > 1 ? argv[1] : "http://127.0.0.1:2379");
    auto ended = asio::co_spawn(context, std::move(story), asio::use_future);
    context.run();
    ended.get();
}

// Prints:
//   level is info
//   hello, world
//   good morning, world
//   greeting is good night
//   good night, world
