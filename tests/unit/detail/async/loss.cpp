// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/async/loss.hpp>

#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd::detail;

namespace {

/// Notes that it was told; may end its own subscription then.
class listener final : public loss_listener {
public:
    listener(loss_source& source, int number, std::vector<int>& told, bool ends = false)
        : number_(number)
        , told_(told)
        , ends_(ends)
        , subscription_(std::in_place, source, *this) {}
    void on_loss() override {
        told_.push_back(number_);
        if (ends_) {
            subscription_.reset();
        }
    }

private:
    const int number_;
    std::vector<int>& told_;
    const bool ends_;
    std::optional<loss_source::subscription> subscription_;
};

} // namespace

TEST_CASE("a loss is told to all listeners, in order", "[loss]") {
    loss_source source;
    std::vector<int> told;
    listener first(source, 1, told);
    listener second(source, 2, told);
    source.tell();
    CHECK(told == std::vector<int>{1, 2});
    source.tell(); // once is enough
    CHECK(told == std::vector<int>{1, 2});
}

TEST_CASE("a listener that listens no longer is not told", "[loss]") {
    loss_source source;
    std::vector<int> told;
    listener first(source, 1, told);
    auto second = std::make_unique<listener>(source, 2, told);
    listener third(source, 3, told);
    second.reset();
    source.tell();
    CHECK(told == std::vector<int>{1, 3});
}

TEST_CASE("a listener that is told of a loss may end others, too", "[loss]") {
    struct ender final : loss_listener {
        explicit ender(loss_source& source)
            : own(source, *this) {}
        void on_loss() override { others.clear(); }
        std::vector<std::unique_ptr<listener>> others;
        loss_source::subscription own;
    };
    loss_source source;
    std::vector<int> told;
    auto before = std::make_unique<listener>(source, 1, told);
    ender all(source);
    all.others.push_back(std::move(before));
    all.others.push_back(std::make_unique<listener>(source, 2, told));
    all.others.push_back(std::make_unique<listener>(source, 3, told));
    const listener last(source, 4, told);
    source.tell();
    CHECK(told == std::vector<int>{1, 4});
}

TEST_CASE("a listener that is told of a loss may stop listening", "[loss]") {
    loss_source source;
    std::vector<int> told;
    listener first(source, 1, told, true);
    listener second(source, 2, told);
    listener third(source, 3, told, true);
    source.tell();
    CHECK(told == std::vector<int>{1, 2, 3});
}

TEST_CASE("a listener that could not be told for lack of memory is told by the next call",
          "[loss]") {
    struct scarce final : loss_listener {
        explicit scarce(loss_source& source)
            : own(source, *this) {}
        void on_loss() override {
            if (++told == 1) {
                throw std::bad_alloc();
            }
        }
        int told = 0;
        loss_source::subscription own;
    };
    loss_source source;
    std::vector<int> told;
    const listener first(source, 1, told);
    scarce second(source);
    const listener third(source, 3, told);
    CHECK_THROWS_AS(source.tell(), std::bad_alloc);
    CHECK(told == std::vector<int>{1});
    source.tell();
    CHECK(second.told == 2);
    CHECK(told == std::vector<int>{1, 3});
}
