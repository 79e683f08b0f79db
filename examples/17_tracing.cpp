// A span for each request to etcd, in W3C's trace context: for programs whose requests are traced,
// and for an etcd that has tracing on, whose spans then belong to ours. Where a line is written
// here, call your tracing library (OpenTelemetry's StartSpan and End).
//
// Run: 17_tracing [http://127.0.0.1:2379]
#include <coetcd.hpp>

#include <boost/asio.hpp>

#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>

namespace asio = boost::asio;

namespace {

class tracer final : public coetcd::observer {
public:
    void on_request_begin(const coetcd::request_begin_report& r,
                          coetcd::request_headers& more) override {
        span& begun = spans_[r.id];
        begun.parent = "00-" + hex(2) + "-" + hex(1) + "-01"; // trace, span, sampled
        more.add("traceparent", begun.parent);                // for proxies
        more.add("Grpc-Metadata-traceparent", begun.parent);  // for etcd
    }
    void on_request(const coetcd::request_report& r) override {
        const auto begun = spans_.extract(r.id);
        std::cout << "span " << r.rpc << ' ' << begun.mapped().parent << ": "
                  << (r.outcome ? r.outcome.message() : "ok") << '\n';
    }

private:
    struct span {
        std::string parent;
    };
    /// @param words Of 16 digits each.
    std::string hex(int words) {
        static const std::string digits = "0123456789abcdef";
        std::string text;
        for (int i = 0; i != words * 16; ++i) {
            text += digits[random_() % 16];
        }
        return text;
    }

    std::map<std::uint64_t, span> spans_;
    std::mt19937_64 random_{std::random_device()()};
};

asio::awaitable<void> run(std::string url) {
    coetcd::client_options options;
    options.observer = std::make_shared<tracer>();
    const coetcd::client client(co_await asio::this_coro::executor, url, options);
    (void)co_await client.put("examples/traced", "yes");
    (void)co_await client.get("examples/traced");
}

} // namespace

int main(int argc, char** argv) {
    asio::io_context context;
    auto all = run(argc > 1 ? argv[1] : "http://127.0.0.1:2379");
    auto ended = asio::co_spawn(context, std::move(all), asio::use_future);
    context.run();
    ended.get();
}

// Prints:
//   span put 00-*-*-01: ok
//   span range 00-*-*-01: ok
