// SPDX-License-Identifier: BSL-1.0
#include <coetcd.hpp>
#ifdef WITH_TLS
#include <coetcd/tls.hpp>
#endif

#include <boost/asio/io_context.hpp>

coetcd::client make_client(boost::asio::io_context& context);

coetcd::client make_client(boost::asio::io_context& context) {
    coetcd::client_options options;
#ifdef WITH_TLS
    options.tls = coetcd::make_tls();
#endif
    return coetcd::client{context.get_executor(), {"http://127.0.0.1:2379"}, options};
}
