// A lock over TLS, with a client certificate.
// Run: 14_tls URL CA_FILE CERTIFICATE_FILE KEY_FILE, where URL begins with https://
#include <coetcd.hpp>
#include <coetcd/tls.hpp>

#include <boost/asio.hpp>

#include <iostream>
#include <string>

boost::asio::awaitable<void> ship_order(std::string url,
                                        std::string ca_file,
                                        std::string certificate_file,
                                        std::string key_file) {
    const auto executor = co_await boost::asio::this_coro::executor;

    coetcd::tls_options tls;
    tls.ca_file = ca_file;                   // left out: the authorities of the system
    tls.certificate_file = certificate_file; // left out, as the key: no client certificate
    tls.key_file = key_file;
    coetcd::client_options options;
    options.tls = coetcd::make_tls(tls);
    const coetcd::client client(executor, url, options);

    coetcd::session session = co_await coetcd::session::open(client);
    coetcd::mutex mutex(session, "orders/42");
    co_await mutex.lock();
    std::cout << "order 42 is ours, and nobody has overheard it\n";
    co_await mutex.unlock();
    co_await session.close();
}

int main(int argc, char** argv) {
    if (argc != 5) {
        std::cerr << "tls URL CA_FILE CERTIFICATE_FILE KEY_FILE\n";
        return 2;
    }
    boost::asio::io_context context;
    auto order = ship_order(argv[1], argv[2], argv[3], argv[4]);
    auto ended = boost::asio::co_spawn(context, std::move(order), boost::asio::use_future);
    context.run();
    try {
        ended.get();
    } catch (const std::exception& e) {
        std::cerr << e.what() << '\n'; // which certificate is wrong, and why
        return 1;
    }
}

// Prints:
//   order 42 is ours, and nobody has overheard it
