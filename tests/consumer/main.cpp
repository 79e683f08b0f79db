// SPDX-License-Identifier: BSL-1.0
#include <coetcd.hpp>
#ifdef WITH_TLS
#include <coetcd/tls.hpp>
#elif defined(OPENSSL_VERSION_NUMBER)
#error "coetcd.hpp needs OpenSSL"
#endif

#include <boost/asio/io_context.hpp>

#include <stdexcept>

coetcd::client make_client(boost::asio::io_context& context); // other.cpp includes the same headers

int main() {
    boost::asio::io_context context;
    coetcd::client here{context.get_executor(), {"http://127.0.0.1:2379"}};
    coetcd::client there = make_client(context);

    coetcd::client_options options;
#ifdef WITH_TLS
    options.tls = coetcd::make_tls();
#endif
    try {
        coetcd::client secure{context.get_executor(), {"https://127.0.0.1:2379"}, options};
        return options.tls ? 0 : 1;
    } catch (const std::invalid_argument&) {
        return options.tls ? 1 : 0;
    }
}
