// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/sha256.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace coetcd::detail::logic {

/// Whether a snapshot is what etcd has sent: a database, whose pages are multiples of 512 bytes,
/// and the SHA-256 of it.
class snapshot_check {
public:
    /// Takes the next bytes.
    /// @param remaining What etcd says comes after them, not counting the hash.
    void add(std::string_view bytes, std::uint64_t remaining) {
        if (received_ == 0) {
            total_ = bytes.size() + remaining + sha256::digest_size;
        }
        received_ += bytes.size();
        // The last 32 bytes so far may be the hash: they are not counted before others follow.
        if (bytes.size() >= sha256::digest_size) {
            database_.add(tail_);
            database_.add(bytes.substr(0, bytes.size() - sha256::digest_size));
            tail_ = bytes.substr(bytes.size() - sha256::digest_size);
            return;
        }
        tail_ += bytes;
        const std::size_t over = tail_.size() - std::min(tail_.size(), sha256::digest_size);
        database_.add(std::string_view(tail_).substr(0, over));
        tail_.erase(0, over);
    }

    std::uint64_t received() const { return received_; }
    /// How many bytes it will have; 0 before the first ones.
    std::uint64_t total() const { return total_; }

    /// Once the stream has ended: how far it came, if that is not to its end.
    std::optional<std::string> broke_off() const {
        if (received_ >= total_ && received_ != 0) {
            return std::nullopt;
        }
        return "it broke off after " + std::to_string(received_) + " of " + std::to_string(total_) +
               " bytes";
    }

    /// Once all has been added.
    /// @returns What is wrong with it; nothing if it is as etcd sent it.
    std::optional<std::string> problem() {
        if (received_ % 512 != sha256::digest_size) {
            return "it has " + std::to_string(received_) +
                   " bytes, which is no database with a hash";
        }
        digest_ = database_.finish();
        if (digest_ != tail_) {
            return "the SHA-256 of its " + std::to_string(received_) + " bytes is wrong";
        }
        return std::nullopt;
    }

    /// The hash, in hexadecimal digits, once there is no problem.
    std::string digest() const {
        constexpr std::string_view digits = "0123456789abcdef";
        std::string text;
        for (const char c : digest_) {
            text += digits[static_cast<unsigned char>(c) / 16];
            text += digits[static_cast<unsigned char>(c) % 16];
        }
        return text;
    }

private:
    sha256 database_;
    std::string tail_;
    std::string digest_;
    std::uint64_t received_ = 0;
    std::uint64_t total_ = 0;
};

} // namespace coetcd::detail::logic
