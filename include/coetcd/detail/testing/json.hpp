// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/wire/base64.hpp>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace coetcd::detail::testing {

/// A JSON text that was read: a tree of views into it. It is made for the requests of the gateway,
/// in which no string has an escape, and is several times as fast as a general one.
class json {
public:
    enum class kind : std::uint8_t { none, object, array, string, other };

    class value {
    public:
        value() = default;
        bool exists() const { return of_ != nullptr; }
        explicit operator bool() const { return exists(); }
        kind what() const { return exists() ? of_->nodes_[at_].what : kind::none; }

        /// A field of an object; one that does not exist if there is none.
        value operator[](std::string_view name) const {
            value found;
            if (exists()) {
                for (std::size_t i = of_->nodes_[at_].first; i != 0; i = of_->nodes_[i].next) {
                    if (of_->nodes_[i].name == name) {
                        found = value(*of_, i); // the last of several counts
                    }
                }
            }
            return found;
        }
        template<class F>
        void each(F&& take) const {
            if (exists()) {
                for (std::size_t i = of_->nodes_[at_].first; i != 0; i = of_->nodes_[i].next) {
                    take(value(*of_, i));
                }
            }
        }
        std::size_t size() const {
            std::size_t n = 0;
            each([&](const value&) { ++n; });
            return n;
        }
        std::string_view text() const {
            return exists() ? of_->nodes_[at_].text : std::string_view();
        }
        bool flag() const { return text() == "true"; }
        std::int64_t number() const {
            std::int64_t n = 0;
            const std::string_view t = text();
            const auto [end, failure] = std::from_chars(t.data(), t.data() + t.size(), n);
            if (!t.empty() && (failure != std::errc() || end != t.data() + t.size())) {
                throw std::invalid_argument("json: not a number: " + std::string(t));
            }
            return n;
        }
        /// One of `names`, by its name or by its number; the first if there is no such field.
        template<std::size_t N>
        std::size_t choice(const std::string_view (&names)[N]) const {
            for (std::size_t i = 0; i != N; ++i) {
                if (what() == kind::string ? text() == names[i]
                                           : number() == static_cast<std::int64_t>(i)) {
                    return i;
                }
            }
            throw std::invalid_argument("json: no such choice: " + std::string(text()));
        }
        /// Decoded from base64.
        std::string bytes() const {
            std::string out;
            if (!wire::decode_base64(text(), out)) {
                throw std::invalid_argument("json: not base64: " + std::string(text()));
            }
            return out;
        }

    private:
        friend class json;
        value(const json& of, std::size_t at)
            : of_(&of)
            , at_(at) {}
        const json* of_ = nullptr;
        std::size_t at_ = 0;
    };

    /// Reads one value; `text` must outlive it. What follows is not read.
    /// @throws std::invalid_argument if it is not valid.
    explicit json(std::string_view text)
        : text_(text) {
        nodes_.reserve(64);
        read();
    }
    json(const json&) = delete;
    json& operator=(const json&) = delete;

    value root() const { return {*this, 0}; }
    value operator[](std::string_view name) const { return root()[name]; }
    /// Where it ended.
    std::size_t end() const { return at_; }

private:
    struct node {
        kind what = kind::none;
        std::string_view name;
        std::string_view text;
        std::size_t first = 0; // 0: none, for that is the root
        std::size_t next = 0;
    };

    [[noreturn]] void fail() const {
        throw std::invalid_argument("json: malformed: " + std::string(text_));
    }
    char peek() {
        while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) {
            ++at_;
        }
        return at_ < text_.size() ? text_[at_] : '\0';
    }
    std::string_view read_string() {
        const std::size_t from = ++at_;
        while (at_ < text_.size() && text_[at_] != '"') {
            at_ += text_[at_] == '\\' ? 2U : 1U;
        }
        if (at_ >= text_.size()) {
            fail();
        }
        return text_.substr(from, at_++ - from);
    }
    std::size_t read() {
        const std::size_t self = nodes_.size();
        nodes_.emplace_back();
        const char c = peek();
        if (c == '{' || c == '[') {
            nodes_[self].what = c == '{' ? kind::object : kind::array;
            const char close = c == '{' ? '}' : ']';
            std::size_t last = 0;
            ++at_;
            while (peek() != close) {
                std::string_view name;
                if (c == '{') {
                    if (peek() != '"') {
                        fail();
                    }
                    name = read_string();
                    if (peek() != ':') {
                        fail();
                    }
                    ++at_;
                }
                const std::size_t child = read();
                nodes_[child].name = name;
                (last == 0 ? nodes_[self].first : nodes_[last].next) = child;
                last = child;
                if (peek() == ',') {
                    ++at_;
                } else if (peek() != close) {
                    fail();
                }
            }
            ++at_;
        } else if (c == '"') {
            nodes_[self].what = kind::string;
            const std::string_view t = read_string();
            nodes_[self].text = t;
        } else {
            const std::size_t from = at_;
            while (at_ < text_.size() &&
                   std::string_view(" \n,]}").find(text_[at_]) == std::string_view::npos) {
                ++at_;
            }
            if (at_ == from) {
                fail();
            }
            nodes_[self].what = kind::other;
            nodes_[self].text = text_.substr(from, at_ - from);
        }
        return self;
    }

    std::string_view text_;
    std::size_t at_ = 0;
    std::vector<node> nodes_;
};

/// Writes JSON as the gateway does: fields that have their default value are left out.
class json_writer {
public:
    /// @param spaced Whether a space follows each comma.
    explicit json_writer(bool spaced = false)
        : comma_(spaced ? ", " : ",") {
        out_.reserve(256);
    }

    json_writer& open(char bracket = '{') {
        out_ += bracket;
        fresh_ = true;
        return *this;
    }
    json_writer& close(char bracket = '}') {
        out_ += bracket;
        fresh_ = false;
        return *this;
    }
    json_writer& name(std::string_view n) {
        item();
        out_ += '"';
        out_ += n;
        out_ += "\":";
        return *this;
    }
    /// Before an item of an array.
    void item() {
        if (!fresh_) {
            out_ += comma_;
        }
        fresh_ = false;
    }
    void raw(std::string_view text) { out_ += text; }
    void number(std::string_view n, std::int64_t value) {
        if (value != 0) {
            word(n, digits(value));
        }
    }
    void word(std::string_view n, std::string_view value) {
        name(n);
        out_ += '"';
        out_ += value;
        out_ += '"';
    }
    void bytes(std::string_view n, std::string_view value) {
        if (!value.empty()) {
            name(n);
            out_ += '"';
            wire::append_base64(out_, value);
            out_ += '"';
        }
    }
    void flag(std::string_view n, bool value) {
        if (value) {
            name(n);
            out_ += "true";
        }
    }
    const std::string& text() const { return out_; }
    std::string take() { return std::move(out_); }

    static std::string digits(std::int64_t value) {
        char buffer[24];
        const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
        return std::string(buffer, end);
    }

private:
    std::string out_;
    std::string_view comma_;
    bool fresh_ = true;
};

} // namespace coetcd::detail::testing
