// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/sha256.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
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

    enum class ending {
        whole,
        broke_off, ///< There is more of it.
        corrupt,   ///< It is not what etcd has sent.
    };
    /// Once the stream has ended. The hash decides; what etcd has announced only explains.
    ending finish() {
        digest_ = database_.finish();
        if (has_size() && digest_ == tail_) {
            return ending::whole;
        }
        return received_ < total_ || received_ == 0 ? ending::broke_off : ending::corrupt;
    }
    /// What is wrong with it.
    std::string text(ending how) const {
        const std::string bytes = std::to_string(received_);
        if (how == ending::broke_off) {
            return "it broke off after " + bytes + " of " + std::to_string(total_) + " bytes";
        }
        return has_size() ? "the SHA-256 of its " + bytes + " bytes is wrong"
                          : "it has " + bytes + " bytes, which is no database with a hash";
    }

    /// The hash, in hexadecimal digits, once it has ended.
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
    bool has_size() const { return received_ % 512 == sha256::digest_size; }

    sha256 database_;
    std::string tail_;
    std::string digest_;
    std::uint64_t received_ = 0;
    std::uint64_t total_ = 0;
};

} // namespace coetcd::detail::logic
