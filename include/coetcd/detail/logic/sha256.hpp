// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace coetcd::detail::logic {

/// SHA-256, as FIPS 180-4 has it. For what is to be whole, not for what is to be secret.
class sha256 {
public:
    static constexpr std::size_t digest_size = 32;

    void add(std::string_view bytes) {
        size_ += bytes.size();
        while (!bytes.empty()) {
            const std::size_t n = std::min(bytes.size(), block_.size() - filled_);
            std::memcpy(block_.data() + filled_, bytes.data(), n);
            filled_ += n;
            bytes.remove_prefix(n);
            if (filled_ == block_.size()) {
                mix();
            }
        }
    }

    /// The digest of all that was added. Nothing is to be added later.
    std::string finish() {
        const std::uint64_t bits = size_ * 8;
        add(std::string_view("\x80", 1));
        const std::string zeros((block_.size() + 56 - filled_) % block_.size(), '\0');
        add(zeros);
        std::string length;
        for (int shift = 56; shift >= 0; shift -= 8) {
            length += static_cast<char>((bits >> shift) & 0xff);
        }
        add(length);
        std::string digest;
        for (const std::uint32_t word : state_) {
            for (int shift = 24; shift >= 0; shift -= 8) {
                digest += static_cast<char>((word >> shift) & 0xff);
            }
        }
        return digest;
    }

private:
    static constexpr std::array<std::uint32_t, 64> constants{
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
        0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
        0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
        0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
        0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
        0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
        0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
        0xc67178f2};

    static std::uint32_t rotated(std::uint32_t x, int n) { return (x >> n) | (x << (32 - n)); }

    void mix() {
        std::array<std::uint32_t, 64> w{};
        for (std::size_t i = 0; i != 16; ++i) {
            for (std::size_t k = 0; k != 4; ++k) {
                w[i] = (w[i] << 8) | block_[4 * i + k];
            }
        }
        for (std::size_t i = 16; i != 64; ++i) {
            const std::uint32_t a =
                rotated(w[i - 15], 7) ^ rotated(w[i - 15], 18) ^ (w[i - 15] >> 3);
            const std::uint32_t b =
                rotated(w[i - 2], 17) ^ rotated(w[i - 2], 19) ^ (w[i - 2] >> 10);
            w[i] = w[i - 16] + a + w[i - 7] + b;
        }
        auto [a, b, c, d, e, f, g, h] = state_;
        for (std::size_t i = 0; i != 64; ++i) {
            const std::uint32_t x = h + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) +
                                    ((e & f) ^ (~e & g)) + constants[i] + w[i];
            const std::uint32_t y =
                (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
            h = g;
            g = f;
            f = e;
            e = d + x;
            d = c;
            c = b;
            b = a;
            a = x + y;
        }
        const std::array<std::uint32_t, 8> mixed{a, b, c, d, e, f, g, h};
        for (std::size_t i = 0; i != mixed.size(); ++i) {
            state_[i] += mixed[i];
        }
        filled_ = 0;
    }

    std::array<std::uint32_t, 8> state_{0x6a09e667,
                                        0xbb67ae85,
                                        0x3c6ef372,
                                        0xa54ff53a,
                                        0x510e527f,
                                        0x9b05688c,
                                        0x1f83d9ab,
                                        0x5be0cd19};
    std::array<unsigned char, 64> block_{};
    std::size_t filled_ = 0;
    std::uint64_t size_ = 0;
};

} // namespace coetcd::detail::logic
