// SPDX-License-Identifier: BSL-1.0
#include <coetcd.hpp>

#include <boost/asio/io_context.hpp>

coetcd::client make_client(boost::asio::io_context& context);

coetcd::client make_client(boost::asio::io_context& context) {
    return coetcd::client{context.get_executor(), {"http://127.0.0.1:2379"}};
}
