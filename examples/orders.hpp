// Ships each order once, however many servers are asked to, and however often. 15_http_server
// serves it, 16_testing tests it.
#pragma once

#include <coetcd.hpp>

#include <boost/asio.hpp>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace shop {

namespace asio = boost::asio;

struct outcome {
    enum class kind { shipped, shipped_before, try_again };
    kind what = kind::try_again;
    std::string by; ///< Who has shipped it.
};

class order_handler {
public:
    /// What takes its time, and does no harm should it be done twice: it comes before the write
    /// that only the owner of the lock can do.
    using packing = std::function<asio::awaitable<void>(std::string order)>;

    /// @param sessions Must outlive this.
    order_handler(coetcd::client client,
                  const coetcd::session_keeper& sessions,
                  std::string name,
                  packing pack)
        : client_(std::move(client))
        , sessions_(sessions)
        , name_(std::move(name))
        , pack_(std::move(pack)) {}

    /// @throws coetcd::error: whether the order is shipped or not, the next request will tell.
    asio::awaitable<outcome> ship(std::string order) const {
        // No order is in the way of another one, whatever its name.
        const std::string lock = coetcd::lock_name("orders", order);
        auto shipping = [this, order](const coetcd::held_lock& held) {
            return ship_locked(order, held);
        };
        const auto patience = std::chrono::seconds(5); // also for a session, if one was just lost
        const std::optional<outcome> end =
            co_await coetcd::with_lock_for(sessions_, lock, patience, std::move(shipping));
        co_return end.value_or(outcome());
    }

private:
    asio::awaitable<outcome> ship_locked(std::string order, const coetcd::held_lock& held) const {
        const std::string shipped = "shipped/" + order;
        const std::optional<coetcd::key_value> before = co_await client_.get(shipped);
        outcome end;
        if (before) {
            end = {outcome::kind::shipped_before, before->value};
            co_return end;
        }
        co_await pack_(order);
        coetcd::txn note =
            coetcd::txn().when(held.is_owner()).then(coetcd::op::put(shipped, name_));
        const coetcd::txn_response noted = co_await client_.txn(std::move(note));
        if (noted.succeeded) {
            end = {outcome::kind::shipped, name_};
        }
        co_return end;
    }

    coetcd::client client_;
    const coetcd::session_keeper& sessions_;
    const std::string name_;
    const packing pack_;
};

} // namespace shop
