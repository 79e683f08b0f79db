// SPDX-License-Identifier: BSL-1.0
#include <coetcd.hpp>

#include <boost/asio/io_context.hpp>

coetcd::client make_client(boost::asio::io_context& context); // other.cpp includes the same headers

int main() {
    boost::asio::io_context context;
    coetcd::client here{context.get_executor(), {"http://127.0.0.1:2379"}};
    coetcd::client there = make_client(context);
}
