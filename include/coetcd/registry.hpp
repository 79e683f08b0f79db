// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/detail/handle.hpp>
#include <coetcd/error.hpp>
#include <coetcd/feed.hpp>
#include <coetcd/service_endpoint.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <memory>
#include <string>
#include <vector>

// Services and their endpoints, in the keys and the JSON of Go's
// go.etcd.io/etcd/client/v3/naming/endpoints: its resolver finds what is registered here, and what
// is registered there is found here.

namespace coetcd {

class session_keeper;

namespace detail {
class access;
class kept_key;
} // namespace detail

/// Delivers the endpoints of a service, in the order of their keys, and then each change. See
/// `feed`. A change takes no request.
using endpoints_feed = feed<std::vector<service_endpoint>>;

/// An endpoint that is registered: the key `<service>/<address>`, which exists while its session
/// does, or, with a keeper, while that has a session. Destroying it removes the endpoint in the
/// background; await `remove` to know that it happened.
///
/// The key is put again if somebody deletes it, or writes to it without a lease: see `ephemeral`,
/// also for what it costs in the background. If another process registers the same address, that
/// one has it from then on, and this registration is lost.
///
/// @par Thread safety
/// As `client`.
class [[nodiscard]] registration {
public:
    using executor_type = boost::asio::any_io_executor;

    /// No registration, like an object that was moved from: `exists` and `remove` return false, and
    /// it can be assigned to; everything else throws `std::logic_error`. Default-constructible
    /// because `co_spawn` requires it of results.
    registration() noexcept = default;
    registration(registration&&) noexcept = default;
    registration& operator=(registration&&) noexcept;
    ~registration();

    /// The client's executor.
    executor_type get_executor() const;

    /// Also available after a loss.
    std::string key() const;

    /// Whether it is registered, as far as can be known without asking etcd. As
    /// `ephemeral::exists`.
    bool exists() const;
    explicit operator bool() const { return exists(); }

    /// Changes the metadata. As `ephemeral::update`.
    /// @param metadata See `register_service`.
    /// @throws std::invalid_argument as `register_service`, at once.
    boost::asio::awaitable<void> update(std::string metadata) const;

    /// Removes the endpoint. As `ephemeral::remove`.
    boost::asio::awaitable<bool> remove();

    /// Waits until it is lost. As `ephemeral::wait_lost`.
    boost::asio::awaitable<error_code> wait_lost() const;

private:
    friend class detail::access;
    explicit registration(std::shared_ptr<detail::kept_key> impl, std::string address);

    detail::handle<detail::kept_key> impl_;
    std::string address_;
};

/// Registers an endpoint of a service. One round trip; two if there is one with this address
/// already, such as that of a process that was killed and whose session lasts for its ttl: then
/// this takes its place.
///
/// Besides the key, etcd may have `<service>.<id>` until the session ends: see `ephemeral`.
///
/// @param service For example "orders". Go's target is then "etcd:///orders".
/// @param address For example "10.0.0.7:8080": UTF-8, up to 512 bytes together with the service.
/// @param metadata A JSON text, such as "{\"zone\":\"b\"}", at most 12 levels deep.
/// @throws std::invalid_argument if one of them is not as described here, at once.
/// @throws error as `ephemeral::create`; with `errc::already_exists` only if this session has
///   registered the address already.
/// @par Cancellation
/// As `ephemeral::create`.
boost::asio::awaitable<registration> register_service(const session& owner,
                                                      std::string service,
                                                      std::string address,
                                                      std::string metadata = "null");
/// For a program that outlives a session: the endpoint is registered again in the next session. As
/// `ephemeral::create` with a keeper.
boost::asio::awaitable<registration> register_service(const session_keeper& owner,
                                                      std::string service,
                                                      std::string address,
                                                      std::string metadata = "null");

/// The endpoints of a service, now and from now on. No I/O before the first `next`. What below
/// `<service>/` is no endpoint is left out.
/// @throws std::invalid_argument if `service` is empty or longer than 512 bytes.
endpoints_feed resolve(const client& c, std::string service);

/// The endpoints of a service now. One round trip.
/// @throws std::invalid_argument if `service` is empty or longer than 512 bytes.
/// @throws error as `client`.
/// @par Cancellation
/// `terminal`, at once.
boost::asio::awaitable<std::vector<service_endpoint>> endpoints_of(const client& c,
                                                                   std::string service);

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/registry.hpp>
#endif
